//! CBOR that is written from where things lie: keys and values of a structure, none of them made an item first.

use super::cbor::{Item, Map, write_head};

/// A value to be written.
#[derive(Clone, Debug)]
pub(crate) enum Part<'a> {
    Item(&'a Item),
    Text(&'a str),
    UInt(u64),
    UInts(&'a [u64]),
    Array(Vec<Part<'a>>),
    /// Keys occur once, in any order.
    Map(Vec<(&'a str, Part<'a>)>),
}

impl<'a> Part<'a> {
    /// A map that is there already.
    pub(crate) fn of(map: &'a Map) -> Self {
        Self::Map(map.iter().map(|(key, item)| (key.as_str(), Self::Item(item))).collect())
    }

    /// The canonical form.
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
                // The form of a text begins with its length.
                sorted.sort_unstable_by_key(|(key, _)| (key.len(), *key));
                for (key, part) in sorted {
                    write_text(key, out);
                    part.write(out);
                }
            }
        }
    }

    /// As an item.
    pub(crate) fn to_item(&self) -> Item {
        match self {
            Self::Item(item) => (*item).clone(),
            Self::Text(text) => Item::Text((*text).to_owned()),
            Self::UInt(n) => Item::UInt(*n),
            Self::UInts(numbers) => Item::Array(numbers.iter().copied().map(Item::UInt).collect()),
            Self::Array(parts) => Item::Array(parts.iter().map(Self::to_item).collect()),
            Self::Map(pairs) => Item::map(pairs.iter().map(|(key, part)| (*key, part.to_item()))),
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
    fn bytes_are_those_of_the_item() {
        let long = "k".repeat(300);
        let map = Map::from([("zz".to_owned(), Item::Float(1.5)), ("a".to_owned(), Item::Negative(3))]);
        let part = Part::Map(vec![
            (long.as_str(), Part::UInt(1 << 40)),
            ("b", Part::UInts(&[1, 24, 300, 1 << 20])),
            ("ab", Part::Array(vec![Part::of(&map), Part::Text("é"), Part::Item(&Item::Null)])),
            ("aa", Part::Text(&long)),
        ]);
        assert_eq!(part.to_bytes(), part.to_item().to_bytes());
        assert!(super::super::cbor::verify_canonical_cbor(&part.to_bytes()).is_ok());
    }
}
