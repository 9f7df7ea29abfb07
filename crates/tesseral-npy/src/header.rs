//! The file header: magic, version and a Python dictionary of three keys.

use tesseral_core::{Error, Result};

/// The magic bytes of a file.
pub const MAGIC: [u8; 6] = *b"\x93NUMPY";
/// The maximum header length: NumPy does not write headers over 64 KiB that it could not read back.
pub const MAX_LEN: u64 = 1 << 20;
/// Bytes of magic, version and the longer form of the length.
pub const FIRST: u64 = 12;

/// The header of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NpyHeader {
    /// The dtype in NumPy notation; the source text where it is not a string.
    pub descr: String,
    /// Whether the first dimension is the fastest (Fortran order).
    pub fortran: bool,
    /// Extents.
    pub shape: Vec<u64>,
}

/// The byte range of the dictionary, from the first bytes of a file.
///
/// # Errors
/// `Corrupt`; `Unsupported` for unknown versions.
pub fn dictionary_range(first: &[u8], object: &str) -> Result<std::ops::Range<u64>> {
    let corrupt = |detail: &str| Error::corrupt("magic", object, 0, detail);
    let rest = first.strip_prefix(&MAGIC).ok_or_else(|| corrupt("not a .npy file"))?;
    let (start, len) = match *rest {
        [1, 0, low, high, ..] => (10, u64::from(u16::from_le_bytes([low, high]))),
        [2 | 3, 0, a, b, c, d, ..] => (12, u64::from(u32::from_le_bytes([a, b, c, d]))),
        [major, minor, ..] if !matches!((major, minor), (1..=3, 0)) => {
            return Err(Error::unsupported(format!(".npy files of version {major}.{minor}")));
        }
        _ => return Err(corrupt("truncated")),
    };
    if len > MAX_LEN {
        return Err(Error::limit("header of a .npy file", len, MAX_LEN));
    }
    Ok(start..start + len)
}

impl NpyHeader {
    /// Parses the dictionary, which begins at `offset`. Every key must occur exactly once; unknown keys are errors.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn parse(text: &[u8], object: &str, offset: u64) -> Result<Self> {
        let mut parser = LiteralParser { text, at: 0 };
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        let read = parser.dictionary(|parser, key| match key {
            "descr" => set_once(&mut descr, parser.descr()),
            "fortran_order" => set_once(&mut fortran, parser.boolean()),
            "shape" => set_once(&mut shape, parser.shape()),
            _ => None,
        });
        match (read, descr, fortran, shape) {
            (Some(()), Some(descr), Some(fortran), Some(shape)) => Ok(Self { descr, fortran, shape }),
            _ => {
                let at = offset + parser.at as u64;
                Err(Error::corrupt("header", object, at, "invalid dictionary of a .npy file"))
            }
        }
    }
}

/// Stores a parsed value; `None` for a duplicate key.
fn set_once<T>(slot: &mut Option<T>, value: Option<T>) -> Option<()> {
    value.filter(|_| slot.is_none()).map(|value| *slot = Some(value))
}

/// A parser of Python literals.
struct LiteralParser<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> LiteralParser<'a> {
    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Skips whitespace and consumes `word`, if it is next.
    fn consume(&mut self, word: &[u8]) -> Option<()> {
        self.at += self.rest().iter().take_while(|b| b.is_ascii_whitespace()).count();
        self.rest().starts_with(word).then(|| self.at += word.len())
    }

    fn dictionary(&mut self, mut entry: impl FnMut(&mut Self, &str) -> Option<()>) -> Option<()> {
        self.consume(b"{")?;
        while self.consume(b"}").is_none() {
            let key = self.string()?;
            self.consume(b":")?;
            entry(self, key)?;
            if self.consume(b",").is_none() {
                self.consume(b"}")?;
                break;
            }
        }
        let _ = self.consume(b"");
        self.rest().is_empty().then_some(())
    }

    /// A string without escapes.
    fn string(&mut self) -> Option<&'a str> {
        let quote = [*b"'", *b"\""].into_iter().find(|quote| self.consume(quote).is_some())?;
        let len = self.rest().iter().position(|b| *b == quote[0])?;
        let text = std::str::from_utf8(&self.rest()[..len]).ok().filter(|text| !text.contains('\\'))?;
        self.at += len + 1;
        Some(text)
    }

    /// The dtype; a list of fields is returned as its source text.
    fn descr(&mut self) -> Option<String> {
        if self.consume(b"[").is_none() {
            return self.string().map(str::to_owned);
        }
        let (start, mut depth) = (self.at - 1, 1_usize);
        while depth > 0 {
            if matches!(self.rest().first()?, b'\'' | b'"') {
                self.string()?;
                continue;
            }
            match self.rest()[0] {
                b'[' => depth += 1,
                b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
        Some(String::from_utf8_lossy(&self.text[start..self.at]).into_owned())
    }

    fn boolean(&mut self) -> Option<bool> {
        match self.consume(b"True") {
            Some(()) => Some(true),
            None => self.consume(b"False").map(|()| false),
        }
    }

    /// A tuple of numbers. A tuple of one number ends with a comma; old files have an `L` after each number.
    fn shape(&mut self) -> Option<Vec<u64>> {
        let mut shape = Vec::new();
        let mut commas = 0;
        self.consume(b"(")?;
        while self.consume(b")").is_none() {
            let digits = self.rest().iter().take_while(|b| b.is_ascii_digit()).count();
            let text = std::str::from_utf8(&self.rest()[..digits]).ok()?;
            shape.push(text.parse().ok()?);
            self.at += digits;
            let _ = self.consume(b"L");
            if self.consume(b",").is_none() {
                self.consume(b")")?;
                break;
            }
            commas += 1;
        }
        (shape.len() != 1 || commas == 1).then_some(shape)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Option<NpyHeader> {
        NpyHeader::parse(text.as_bytes(), "x", 0).ok()
    }

    #[test]
    fn parses_dictionaries_written_by_numpy() {
        for (shape, shown) in [
            (vec![], "()"),
            (vec![5], "(5,)"),
            (vec![2, 3], "(2, 3)"),
            (vec![0, 4, 1], "(0, 4, 1)"),
            (vec![7, 8], "(7L, 8L)"),
        ] {
            let text = format!("{{'descr': '<f4', 'fortran_order': True, 'shape': {shown}, }}   \n");
            assert_eq!(parse(&text), Some(NpyHeader { descr: "<f4".to_owned(), fortran: true, shape }));
        }
        let record =
            "{'descr': [('a]', '<f4'), ('b', '<i4', (2,))], 'fortran_order': False, 'shape': (1,), }";
        assert_eq!(parse(record).unwrap().descr, "[('a]', '<f4'), ('b', '<i4', (2,))]");
    }

    #[test]
    fn other_dictionaries_are_rejected() {
        let whole = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
        assert!(parse(whole).is_some());
        for end in 0..whole.trim_end().len() {
            assert_eq!(parse(&whole[..end]), None, "{end}");
        }
        for (from, to) in [
            ("'shape'", "'shap'"),
            ("(2, 3)", "(-2, 3)"),
            ("(2, 3)", "(2 3)"),
            ("(2, 3)", "(2)"),
            ("(2, 3)", "(99999999999999999999, 3)"),
            ("False", "0"),
            ("}\n", "} x"),
            ("'<f4'", "'<\\x664'"),
            (", 'shape'", ", 'descr': '<f8', 'shape'"),
        ] {
            assert_eq!(parse(&whole.replace(from, to)), None, "{to}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), text in "[\\[\\](){}',:0-9TrueFalsdcpho_\\s]{0,80}") {
            let _ = (dictionary_range(&bytes, "x"), NpyHeader::parse(&bytes, "x", 0), parse(&text));
        }
    }
}
