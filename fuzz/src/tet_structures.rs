//! Any bytes as one of the structures of a `.tet` file, without the file around them, so that no digest or offset has to be right first.
//! Shared by the fuzz target and a test that runs on any toolchain.

use tesseral_tet::wire::chunk_index::{self, IndexHeader, IndexRow};
use tesseral_tet::wire::digest_region::DigestRegion;
use tesseral_tet::wire::footer::FooterJson;
use tesseral_tet::wire::secondary_index::SecondaryIndex;
use tesseral_tet::wire::superblock::Superblock;
use tesseral_tet::wire::{Cursor, directory, footer, zone_map};
use xxhash_rust::xxh3::xxh3_64;

const DEPTH: usize = 64;

/// The structures, selected by the first byte.
pub fn structures(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let mut cursor = Cursor::at_offset("fuzz", bytes, 0);
    match which % 8 {
        0 => drop(Superblock::parse(&mut cursor, bytes.len() as u64)),
        1 => {
            if let Ok(records) = directory::parse(&mut cursor, u32::from(*which) / 8) {
                records.iter().for_each(|record| drop(record.geometry("fuzz")));
            }
        }
        2 => {
            let Ok(header) = IndexHeader::parse(&mut cursor, bytes.len() as u64) else { return };
            let rows = chunk_index::rows(cursor.rest());
            assert!(header.entry_count <= rows.len() as u64, "rows that are not there");
            for row in rows {
                let _ =
                    (row.coords(3), row.payload_end(), row.is_suspect(0, 99), row.check("fuzz", 0, 0, 0, 99));
            }
        }
        3 => digests(bytes),
        4 => drop(footer::FooterTail::parse(&mut cursor)),
        5 => {
            if let Ok(parsed) = FooterJson::parse(bytes, "fuzz", 0, DEPTH) {
                let _ = parsed.spills(1).count();
            }
        }
        6 => drop(SecondaryIndex::parse(bytes, "fuzz", 0, DEPTH, 3)),
        _ => {
            let rows = [IndexRow::new(0, &[0], 0, 8, 8, 0), IndexRow::new(1, &[1, 2], 8, 8, 8, 0)];
            let _ = zone_map::parse(bytes, "fuzz", 0, DEPTH, &[], &rows);
            let _ = zone_map::parse(bytes, "fuzz", 0, DEPTH, &[], &[]);
        }
    }
}

/// A digest region: as it is, and with a valid digest of itself.
fn digests(bytes: &[u8]) {
    let count = (bytes.len() as u64).saturating_sub(40) / 8;
    for rows in [count, count + 1, u64::MAX] {
        let _ = DigestRegion::parse(&mut Cursor::at_offset("fuzz", bytes, 0), rows);
    }
    let sealed = [bytes, &xxh3_64(bytes).to_le_bytes()].concat();
    if let Ok(region) = DigestRegion::parse(&mut Cursor::at_offset("sealed", &sealed, 0), count + 1) {
        assert_eq!(region.chunks.len() as u64, 8 * (count + 1));
        assert!(DigestRegion::get(region.chunks, count).is_some());
        assert!(DigestRegion::get(region.chunks, count + 1).is_none());
        assert!(DigestRegion::get(region.chunks, u64::MAX).is_none());
    }
    let numbers: Vec<u64> = bytes.iter().map(|byte| u64::from(*byte)).collect();
    let mut written = Vec::new();
    DigestRegion::write(7, numbers.iter().copied(), &mut written);
    let region = DigestRegion::parse(&mut Cursor::at_offset("written", &written, 0), numbers.len() as u64);
    assert_eq!(region.expect("written bytes parse").catalog, 7);
}
