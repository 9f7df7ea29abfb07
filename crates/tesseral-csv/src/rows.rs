//! Rows of values in bytes, and where each value is.
//!
//! A value ends at a separator or a line end. One that begins with a quote ends there only after its closing quote; two quotes represent
//! one, and what follows the closing quote is kept as it is. Line ends are `\n`, `\r` or both; empty lines are skipped. These are the
//! rules of the crate `csv` with its default options, which is the oracle of the tests.
//!
//! Most values are short and have no quotes, so that a state machine spends more on every byte than the value takes to parse:
//! 1. Eight bytes are compared with the separator and both line ends at once.
//! 2. A column is found by skipping the values before it; nothing is copied unless quotes are doubled.
//! 3. Where no quote is left, the rest of a row is skipped by a search for its line end.

const QUOTE: u8 = b'"';

/// Bytes that are divided into rows.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    bytes: &'a [u8],
    at: usize,
    separator: u8,
    /// No quote follows.
    plain: bool,
    /// A value whose quotes were doubled.
    buffer: Vec<u8>,
    /// Whether the end of the last row was found, or only that of the bytes.
    ended: bool,
}

/// A word of eight equal bytes.
const fn repeated(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// The highest bit of bytes that are zero, exact up to the first of them.
#[inline(always)]
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(repeated(1)) & !word & repeated(0x80)
}

/// Position of the first separator or line end from `at` on; the number of bytes if there is none.
#[inline(always)]
fn value_end(bytes: &[u8], mut at: usize, separator: u8) -> usize {
    let wanted = [repeated(separator), repeated(b'\n'), repeated(b'\r')];
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let word = u64::from_le_bytes(*eight);
        let found = zeros(word ^ wanted[0]) | zeros(word ^ wanted[1]) | zeros(word ^ wanted[2]);
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    let end = |byte: &u8| *byte == separator || matches!(byte, b'\n' | b'\r');
    at + rest.iter().position(end).unwrap_or(rest.len())
}

impl<'a> Rows<'a> {
    /// The rows of bytes that begin with one.
    pub(crate) fn new(separator: u8, bytes: &'a [u8]) -> Self {
        let plain = memchr::memchr(QUOTE, bytes).is_none();
        Self { bytes, at: 0, separator, plain, buffer: Vec::new(), ended: true }
    }

    /// Position of the next byte.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Whether the last row had a line end.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Starts the next row after empty lines; false if there is none.
    #[inline]
    pub(crate) fn start(&mut self) -> bool {
        while let Some(b'\n' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
        self.at < self.bytes.len()
    }

    /// The next value of the row, and whether it is the last one.
    #[inline]
    pub(crate) fn value(&mut self) -> (&[u8], bool) {
        let start = self.at;
        if self.bytes.get(start) == Some(&QUOTE) {
            return self.quoted();
        }
        let end = value_end(self.bytes, start, self.separator);
        let last = self.finish(end);
        (&self.bytes[start..end], last)
    }

    /// Continues after the end of a value; true if it was the last one of its row.
    #[inline(always)]
    fn finish(&mut self, end: usize) -> bool {
        let byte = self.bytes.get(end);
        self.ended = byte.is_some();
        self.at = end + usize::from(self.ended);
        byte != Some(&self.separator)
    }

    fn quoted(&mut self) -> (&[u8], bool) {
        let bytes = self.bytes;
        self.buffer.clear();
        let mut from = self.at + 1;
        loop {
            let rest = bytes.get(from..).unwrap_or_default();
            let Some(close) = memchr::memchr(QUOTE, rest).map(|found| from + found) else {
                // The quote is never closed.
                self.buffer.extend_from_slice(rest);
                let last = self.finish(bytes.len());
                return (&self.buffer, last);
            };
            if bytes.get(close + 1) == Some(&QUOTE) {
                self.buffer.extend_from_slice(&bytes[from..=close]);
                from = close + 2;
                continue;
            }
            let end = value_end(bytes, close + 1, self.separator);
            let last = self.finish(end);
            if self.buffer.is_empty() && end == close + 1 {
                return (&bytes[from..close], last);
            }
            self.buffer.extend_from_slice(&bytes[from..close]);
            self.buffer.extend_from_slice(&bytes[close + 1..end]);
            return (&self.buffer, last);
        }
    }

    /// Skips `count` values, of which none may be the last one of the row; `None` if one is.
    #[inline]
    pub(crate) fn skip(&mut self, count: usize) -> Option<()> {
        for _ in 0..count {
            if self.value().1 {
                return None;
            }
        }
        Some(())
    }

    /// Skips the rest of the row.
    #[inline]
    pub(crate) fn leave(&mut self) {
        if self.plain {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let end = memchr::memchr2(b'\n', b'\r', rest).map_or(self.bytes.len(), |found| self.at + found);
            self.finish(end);
            return;
        }
        while !self.value().1 {}
    }
}

#[cfg(test)]
mod tests {
    use csv::{ByteRecord, ReaderBuilder};
    use proptest::prelude::*;

    use super::*;

    fn own(separator: u8, bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
        let (mut rows, mut out) = (Rows::new(separator, bytes), Vec::new());
        while rows.start() {
            let mut row = Vec::new();
            loop {
                let (value, last) = rows.value();
                row.push(value.to_vec());
                if last {
                    break;
                }
            }
            out.push(row);
        }
        out
    }

    fn reference(separator: u8, bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
        let mut reader =
            ReaderBuilder::new().delimiter(separator).has_headers(false).flexible(true).from_reader(bytes);
        let (mut record, mut out) = (ByteRecord::new(), Vec::new());
        while reader.read_byte_record(&mut record).unwrap() {
            out.push(record.iter().map(<[u8]>::to_vec).collect());
        }
        out
    }

    #[test]
    fn quotes_and_line_ends_are_those_of_the_reference() {
        let tables: [&[u8]; 12] = [
            b"a,b\n1,2",
            b"\r\n\na,b\r\r\n1,2\r\n",
            b"a,\n,\n,",
            b"\"a,\"\"b\"\"\nc\",d",
            b"\"a\"b\"c,d\n",
            b"a\"b\",c\n",
            b"\"never closed,\n1,2",
            b"\"\"",
            b"\"\"\"\"",
            b"a,\"\"\nlonger than eight bytes,\"and quoted too\"\n",
            b"\"x\"",
            b"",
        ];
        for table in tables {
            assert_eq!(own(b',', table), reference(b',', table), "{}", table.escape_ascii());
        }
    }

    #[test]
    fn values_are_skipped_and_rows_left() {
        let mut rows = Rows::new(b';', b"a;b;c\n1;2;3\nx;\"y\nz\";w\n4;5;6");
        assert!(rows.start() && rows.skip(1).is_some());
        assert_eq!(rows.value(), (&b"b"[..], false));
        rows.leave();
        assert!(rows.start() && rows.skip(3).is_none());
        assert!(rows.start());
        rows.leave();
        assert!(rows.start() && rows.value() == (b"4", false) && rows.skip(1).is_some());
        assert_eq!(rows.value(), (&b"6"[..], true));
        assert!(!rows.ended() && !rows.start());
        let mut plain = Rows::new(b',', b"1,2,3\r\n4,5,6\n");
        assert!(plain.start() && plain.value() == (b"1", false));
        plain.leave();
        assert!(plain.start() && plain.value() == (b"4", false));
    }

    proptest! {
        #[test]
        fn rows_are_those_of_the_reference(
            bytes in proptest::collection::vec(
                prop_oneof![4 => b'a'..=b'z', 2 => Just(b','), 1 => Just(b'\n'), 1 => Just(b'\r'), 2 => Just(b'"'), 1 => any::<u8>()],
                0..120,
            ),
            separator in prop_oneof![Just(b','), Just(b';'), Just(b'\t'), Just(b'|')],
        ) {
            prop_assume!(!bytes.starts_with(b"\xef\xbb\xbf"));
            prop_assert_eq!(own(separator, &bytes), reference(separator, &bytes));
        }
    }
}
