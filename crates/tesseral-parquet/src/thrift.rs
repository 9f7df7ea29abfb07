//! A walk over structures of the Thrift compact protocol.
//!
//! The crate `parquet` allocates for the declared elements of a list, and recurses as deep as a schema nests. The walk checks both
//! before that crate sees the bytes. It keeps nothing: numbers are passed to a visitor with the ids of the fields that lead to them.

/// The deepest nesting of structures; metadata of Parquet have less than 16 levels.
const DEPTH: usize = 32;

/// Path of field ids to a value. Elements of lists have the path of their list.
pub(crate) type Path<'a> = &'a [i16];

struct ThriftWalk<'a, 'v> {
    bytes: &'a [u8],
    at: usize,
    path: Vec<i16>,
    visit: &'v mut dyn FnMut(Path<'_>, i64) -> Option<()>,
}

/// Walks a structure at the start of `bytes` and returns its length; `None` if it is damaged or the visitor rejects a value. Lists
/// are visited with the number of their elements, binary values with their length, structures in lists with -1.
pub(crate) fn walk(bytes: &[u8], visit: &mut dyn FnMut(Path<'_>, i64) -> Option<()>) -> Option<usize> {
    let mut walk = ThriftWalk { bytes, at: 0, path: Vec::new(), visit };
    walk.structure()?;
    Some(walk.at)
}

impl ThriftWalk<'_, '_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return None;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    #[allow(clippy::cast_possible_wrap)]
    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Passes `len` bytes.
    fn skip(&mut self, len: u64) -> Option<()> {
        let end = self.at.checked_add(usize::try_from(len).ok()?)?;
        (end <= self.bytes.len()).then(|| self.at = end)
    }

    fn seen(&mut self, value: i64) -> Option<()> {
        (self.visit)(&self.path, value)
    }

    fn structure(&mut self) -> Option<()> {
        if self.path.len() > DEPTH {
            return None;
        }
        let mut last = 0_i16;
        loop {
            let header = self.byte()?;
            let kind = header & 0x0f;
            if kind == 0 {
                return Some(());
            }
            let id = match header >> 4 {
                0 => i16::try_from(self.zigzag()?).ok()?,
                delta => last.checked_add(i16::from(delta))?,
            };
            last = id;
            self.path.push(id);
            match kind {
                // The value of a Boolean field is its type.
                1 | 2 => self.seen(i64::from(kind == 1))?,
                _ => self.value(kind)?,
            }
            self.path.pop();
        }
    }

    fn value(&mut self, kind: u8) -> Option<()> {
        match kind {
            1..=3 => {
                let value = self.byte()?;
                self.seen(i64::from(value))
            }
            4..=6 => {
                let value = self.zigzag()?;
                self.seen(value)
            }
            7 => self.skip(8),
            8 => {
                let len = self.varint()?;
                self.skip(len)?;
                self.seen(i64::try_from(len).ok()?)
            }
            9 | 10 => self.list(),
            12 => self.structure(),
            // Maps are in no structure of Parquet.
            _ => None,
        }
    }

    fn list(&mut self) -> Option<()> {
        let header = self.byte()?;
        let kind = header & 0x0f;
        let count = match header >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        // Every element takes a byte at least.
        if count > (self.bytes.len() - self.at) as u64 {
            return None;
        }
        self.seen(i64::try_from(count).ok()?)?;
        for _ in 0..count {
            if kind == 12 {
                self.seen(-1)?;
            }
            self.value(kind)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths and values in order.
    type Seen = Vec<(Vec<i16>, i64)>;

    fn seen(bytes: &[u8]) -> Option<(usize, Seen)> {
        let mut all = Vec::new();
        let len = walk(bytes, &mut |path, value| {
            all.push((path.to_vec(), value));
            Some(())
        })?;
        Some((len, all))
    }

    #[test]
    fn numbers_lists_and_structures_are_visited() {
        // 1: i32 -3, 3: list of two structures {1: true}, 4: binary "ab".
        let bytes = [0x15, 5, 0x29, 0x2c, 0x11, 0, 0x11, 0, 0x18, 2, b'a', b'b', 0, 9];
        let (len, all) = seen(&bytes).unwrap();
        assert_eq!(len, 13);
        let expected: [(&[i16], i64); 7] =
            [(&[1], -3), (&[3], 2), (&[3], -1), (&[3, 1], 1), (&[3], -1), (&[3, 1], 1), (&[4], 2)];
        assert_eq!(all, expected.map(|(path, value)| (path.to_vec(), value)));
        for len in 0..13 {
            assert!(seen(&bytes[..len]).is_none(), "{len}");
        }
    }

    #[test]
    fn claims_beyond_the_bytes_are_rejected() {
        // A list of 2^28 elements; structures within one another; a map; an endless varint.
        assert!(seen(&[0x19, 0xf5, 0x80, 0x80, 0x80, 0x80, 0x01, 0, 0]).is_none());
        assert!(seen(&[0x1c; 100]).is_none());
        assert!(seen(&[0x1b, 0, 0]).is_none());
        assert!(seen(&[0x15, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0]).is_none());
    }
}
