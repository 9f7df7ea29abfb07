//! Borrowed CBOR values, encoded without building [`Item`](super::cbor::Item)s.

use super::cbor::{CborItem, Map, write_head};

/// A value to encode.
#[derive(Clone, Debug)]
pub(crate) enum CborRef<'a> {
    Item(&'a CborItem),
    Text(&'a str),
    UInt(u64),
    UInts(&'a [u64]),
    Array(Vec<CborRef<'a>>),
    /// Unique keys in any order.
    Map(Vec<(&'a str, CborRef<'a>)>),
}

impl<'a> CborRef<'a> {
    /// A map of owned items.
    pub(crate) fn from_map(map: &'a Map) -> Self {
        Self::Map(map.iter().map(|(key, item)| (key.as_str(), Self::Item(item))).collect())
    }

    /// Appends the canonical encoding.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(super::cbor::TYPICAL);
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Item(item) => item.write(out),
            Self::Text(text) => write_text(text, out),
            Self::UInt(n) => write_head(0, *n, out),
            Self::UInts(numbers) => {
                write_head(4, numbers.len() as u64, out);
                numbers.iter().for_each(|n| write_head(0, *n, out));
            }
            Self::Array(parts) => {
                write_head(4, parts.len() as u64, out);
                parts.iter().for_each(|part| part.write(out));
            }
            Self::Map(pairs) => {
                write_head(5, pairs.len() as u64, out);
                let mut sorted: Vec<_> = pairs.iter().collect();
                // The encoding of a text key begins with its length.
                sorted.sort_unstable_by_key(|(key, _)| (key.len(), *key));
                for (key, part) in sorted {
                    write_text(key, out);
                    part.write(out);
                }
            }
        }
    }

    /// Converts to an owned item.
    pub(crate) fn to_item(&self) -> CborItem {
        match self {
            Self::Item(item) => (*item).clone(),
            Self::Text(text) => CborItem::Text((*text).to_owned()),
            Self::UInt(n) => CborItem::UInt(*n),
            Self::UInts(numbers) => CborItem::Array(numbers.iter().copied().map(CborItem::UInt).collect()),
            Self::Array(parts) => CborItem::Array(parts.iter().map(Self::to_item).collect()),
            Self::Map(pairs) => CborItem::map(pairs.iter().map(|(key, part)| (*key, part.to_item()))),
        }
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    write_head(3, text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_the_same_bytes_as_the_item() {
        let long = "k".repeat(300);
        let map =
            Map::from([("zz".to_owned(), CborItem::Float(1.5)), ("a".to_owned(), CborItem::Negative(3))]);
        let part = CborRef::Map(vec![
            (long.as_str(), CborRef::UInt(1 << 40)),
            ("b", CborRef::UInts(&[1, 24, 300, 1 << 20])),
            (
                "ab",
                CborRef::Array(vec![
                    CborRef::from_map(&map),
                    CborRef::Text("é"),
                    CborRef::Item(&CborItem::Null),
                ]),
            ),
            ("aa", CborRef::Text(&long)),
        ]);
        assert_eq!(part.to_bytes(), part.to_item().to_bytes());
        assert!(super::super::cbor::verify_canonical_cbor(&part.to_bytes()).is_ok());
    }
}
