//! Arbitrary bytes as an index: as a file, and as its chunk table and metadata with digests that match.

use tesseral_core::{Error, Limits};
use tesseral_index::{IndexContent, seal};
use tesseral_store::Bytes;

/// Parses the bytes. The first byte is the number of entries of the chunk table.
pub fn open(data: &[u8]) {
    let parse = |file: Vec<u8>| -> Result<IndexContent, Error> {
        IndexContent::parse(&Bytes::from(file), "fuzz", Limits::default())
    };
    let _ = parse(data.to_vec());
    let Some((entries, rest)) = data.split_first() else { return };
    let (table, metadata) = rest.split_at((usize::from(*entries) * 24).min(rest.len() / 24 * 24));
    if let Ok(content) = parse(seal(table, metadata)) {
        let again = content.to_bytes().expect("what was parsed is written");
        let again = parse(again).expect("what is written is parsed");
        assert_eq!(again.arrays.len(), content.arrays.len());
    }
}
