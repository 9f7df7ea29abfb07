//! Any bytes as one of the structures of a `.tet` file, without the file around them, so that no digest or offset has to be right first.
//! Shared by the fuzz target and a test that runs on any toolchain.

use std::sync::Arc;

use tesseral_format::{AuditOptions, Format};
use tesseral_store::{Bytes, MemoryStore};
use tesseral_tet::TetFormat;
use tesseral_tet::wire::chunk_index::{self, IndexHeader, IndexRow};
use tesseral_tet::wire::digest_region::{DigestRegion, Extent, RowDigest, row_digest};
use tesseral_tet::wire::footer::FooterJson;
use tesseral_tet::wire::secondary_index::SecondaryIndex;
use tesseral_tet::wire::statistics_region::{self, StatisticsRegion};
use tesseral_tet::wire::superblock::Superblock;
use tesseral_tet::wire::{Cursor, directory, footer, zone_map};
use xxhash_rust::xxh3::xxh3_64;

const DEPTH: usize = 64;

/// The structures, selected by the first byte.
pub fn structures(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let mut cursor = Cursor::at_offset("fuzz", bytes, 0);
    match which % 10 {
        0 => drop(Superblock::parse(&mut cursor, bytes.len() as u64)),
        1 => {
            if let Ok(records) = directory::parse(&mut cursor, u32::from(*which) / 8) {
                records.iter().for_each(|record| drop(record.geometry("fuzz")));
            }
        }
        2 => {
            let Ok(header) = IndexHeader::parse(&mut cursor, bytes.len() as u64) else { return };
            let rows = chunk_index::rows(cursor.rest());
            assert!(header.entry_count <= rows.len() as u64, "rows that do not exist");
            for row in rows {
                let _ =
                    (row.coords(3), row.payload_end(), row.is_suspect(0, 99), row.check("fuzz", 0, 0, 0, 99));
            }
        }
        3 => digests(bytes),
        4 => drop(footer::FooterTail::parse(&mut cursor)),
        5 => {
            if let Ok(parsed) = FooterJson::parse(bytes, "fuzz", 0, DEPTH) {
                let _ = (parsed.spills(1).count(), parsed.without_accelerators(bytes, 7));
            }
        }
        6 => drop(SecondaryIndex::parse(bytes, "fuzz", 0, DEPTH, 3)),
        7 => {
            let rows = [IndexRow::new(0, &[0], 0, 8, 8, 0), IndexRow::new(1, &[1, 2], 8, 8, 8, 0)];
            let _ = zone_map::parse(bytes, "fuzz", 0, DEPTH, &[], &rows);
            let _ = zone_map::parse(bytes, "fuzz", 0, DEPTH, &[], &[]);
        }
        8 => package(bytes),
        _ => statistics(bytes),
    }
}

/// The manifest of a package with an empty file.
fn package(manifest: &[u8]) {
    let mut packed = Vec::new();
    Superblock { dataset_count: 0, flags: 0, chunk_index_offset: 32, chunk_index_length: 0 }
        .write(&mut packed);
    let store = MemoryStore::new("fuzz.tet.d");
    store.insert("CURRENT", b"1".to_vec());
    store.insert("generations/00000001/packed.tet", packed);
    store.insert("generations/00000001/MANIFEST.json", manifest.to_vec());
    let done = TetFormat.audit(Arc::new(store), &AuditOptions::default(), &mut |_| ());
    assert!(done.is_ok(), "damage is a finding");
}

/// A statistics region: as it is, and with a valid digest of itself.
fn statistics(bytes: &[u8]) {
    let parse = |bytes: &[u8]| {
        let _ = statistics_region::total_len(&mut Cursor::at_offset("fuzz", bytes, 0));
        let bytes = Bytes::copy_from_slice(bytes);
        let Ok(region) = StatisticsRegion::parse(&bytes, "fuzz", 0, 2) else { return };
        for number in (0..region.count()).take(99) {
            assert!(region.row(number).is_none_or(|row| row.sum.len() <= bytes.len()));
        }
        assert!(region.row(region.count()).is_none());
    };
    parse(bytes);
    if let Some((body, _)) = bytes.split_last_chunk::<8>() {
        parse(&[body, &xxh3_64(body).to_le_bytes()].concat());
    }
}

/// A digest region: as it is, and with a valid digest of itself.
fn digests(bytes: &[u8]) {
    let parse = |bytes: &[u8], rows: u64| {
        let Ok(extent) = Extent::parse(&mut Cursor::at_offset("fuzz", bytes, 0), rows) else { return };
        let held = usize::try_from(extent.rows_len).ok().and_then(|len| bytes.get(..len)).unwrap_or(bytes);
        let Ok(region) = DigestRegion::parse(&mut Cursor::at_offset("fuzz", held, 0), extent) else { return };
        let with_blocks = region.block != 0;
        assert_eq!(region.rows.len() as u64, rows * if with_blocks { 16 } else { 8 });
        assert!(rows == 0 || row_digest(region.rows, with_blocks, rows - 1).is_some());
        assert!(row_digest(region.rows, with_blocks, rows).is_none());
    };
    let count = (bytes.len() as u64).saturating_sub(40);
    let sealed = [bytes, &xxh3_64(bytes).to_le_bytes()].concat();
    for rows in [count / 8, count / 8 + 1, count / 16, count / 16 + 1, u64::MAX] {
        parse(bytes, rows);
        parse(&sealed, rows);
    }
    let rows = bytes
        .iter()
        .map(|byte| RowDigest { digest: 7, first_block: (byte % 2 == 0).then_some(u64::from(*byte)) });
    for table in [&[][..], &[[1; 8], [2; 8]]] {
        let mut written = Vec::new();
        DigestRegion::write(7, 4096, rows.clone(), table, &mut written);
        let extent = Extent::parse(&mut Cursor::at_offset("written", &written, 0), bytes.len() as u64);
        let extent = extent.expect("written bytes parse");
        assert_eq!(extent.total_len(), written.len() as u64);
        let held = &written[..written.len() - 8 * table.len()];
        let region = DigestRegion::parse(&mut Cursor::at_offset("written", held, 0), extent);
        assert_eq!(region.expect("written bytes parse").catalog, 7);
    }
}
