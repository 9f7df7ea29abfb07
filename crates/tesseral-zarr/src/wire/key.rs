//! Names of chunk objects.

use std::fmt::Write;

/// How the coordinates of a chunk form the name of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEncoding {
    /// `c/0/1`, of v3.
    Default(char),
    /// `0.1`, of v2.
    V2(char),
}

impl KeyEncoding {
    /// The name of a chunk's object in the folder of its array.
    pub fn key(self, coords: &[u64]) -> String {
        let mut out = String::new();
        let (mut first, separator) = match self {
            Self::Default(separator) => {
                out.push('c');
                (false, separator)
            }
            Self::V2(_) if coords.is_empty() => return "0".to_owned(),
            Self::V2(separator) => (true, separator),
        };
        for coordinate in coords {
            if !first {
                out.push(separator);
            }
            first = false;
            // Writing to a `String` is infallible.
            let _ = write!(out, "{coordinate}");
        }
        out
    }

    /// The coordinates of a key.
    pub fn coords(self, key: &str, rank: usize) -> Option<Vec<u64>> {
        let (rest, separator) = match self {
            Self::Default(_) if rank == 0 => return (key == "c").then(Vec::new),
            Self::Default(separator) => (key.strip_prefix('c')?.strip_prefix(separator)?, separator),
            Self::V2(_) if rank == 0 => return (key == "0").then(Vec::new),
            Self::V2(separator) => (key, separator),
        };
        let plain = |part: &str| part.parse::<u64>().ok().filter(|n| n.to_string() == part);
        rest.split(separator).map(plain).collect::<Option<Vec<u64>>>().filter(|coords| coords.len() == rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_match_the_specification() {
        for (encoding, coords, key) in [
            (KeyEncoding::Default('/'), &[0, 12][..], "c/0/12"),
            (KeyEncoding::Default('.'), &[3], "c.3"),
            (KeyEncoding::Default('/'), &[], "c"),
            (KeyEncoding::V2('.'), &[0, 12], "0.12"),
            (KeyEncoding::V2('/'), &[7, 1, 2], "7/1/2"),
            (KeyEncoding::V2('.'), &[], "0"),
        ] {
            assert_eq!(encoding.key(coords), key);
            assert_eq!(encoding.coords(key, coords.len()).unwrap(), coords);
        }
        for (encoding, key, rank) in [
            (KeyEncoding::Default('/'), "c/01", 1),
            (KeyEncoding::Default('/'), "d/1", 1),
            (KeyEncoding::V2('.'), "1", 2),
            (KeyEncoding::V2('.'), "1.x", 2),
            (KeyEncoding::V2('.'), "", 1),
        ] {
            assert_eq!(encoding.coords(key, rank), None, "{key}");
        }
    }
}
