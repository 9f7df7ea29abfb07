//! Any bytes as the structures that carry or precede digests in a TileDB array: the digest table of a fragment, trailers, digest
//! lines and the chunk table of a tile. Digests are also recomputed, so that what follows them is reached.
//! Shared by the fuzz targets and a test that runs on any toolchain.

use tesseral_store::Bytes;
use tesseral_tiledb::wire::chunk_table::ChunkTable;
use tesseral_tiledb::wire::digest_table::{self, DigestTable, TAIL_LEN};
use tesseral_tiledb::wire::{name, trailer};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const FRAGMENT: &str = "__1_2_0123456789abcdef01234567d16e5701_22";

/// A digest table: `u16` position of the directory in its file, then the directory, with its own last bytes as the tail and with a
/// valid tail.
pub fn digest_tables(bytes: &[u8]) {
    let Some((at, directory)) = bytes.split_first_chunk::<2>() else { return };
    let at = u64::from(u16::from_le_bytes(*at));
    let mut tail = b"TSRLDIG1".to_vec();
    tail.extend_from_slice(&(directory.len() as u64).to_le_bytes());
    assert_eq!(digest_table::directory_len(&[&tail[..], &[0; 8]].concat()), Some(directory.len() as u64));
    let digest = xxh3_64_with_seed(&[directory, &tail[..]].concat(), name::seed(FRAGMENT));
    tail.extend_from_slice(&digest.to_le_bytes());
    let (front, own) = directory.split_at(directory.len().saturating_sub(TAIL_LEN as usize));
    let _ = (digest_table::directory_len(own), DigestTable::parse("fuzz", FRAGMENT, at, front, own));
    let Ok(table) = DigestTable::parse("fuzz", FRAGMENT, at, directory, &tail) else { return };
    assert!(table.sections_end <= at, "lists before the file");
    let _ = (table.check_footer("fuzz", 0, directory), table.check_section("fuzz", 0, 0, directory));
    let _ = table.check_section("fuzz", usize::MAX, 0, directory);
    let mut end = table.sections_end;
    for number in 0..12 {
        let Some(row) = table.file(number) else { continue };
        assert!(
            row.list.start >= table.sections_end
                && row.list.end <= at
                && row.list.end.is_multiple_of(8) == table.sections_end.is_multiple_of(8)
        );
        end = end.max(row.list.end);
        let list = vec![0; (row.list.end - row.list.start) as usize];
        if let Ok(digests) = row.parse("fuzz", &list) {
            assert_eq!(digests.len() * 8, list.len());
        }
    }
    assert!(end <= at);
    written_table(directory);
}

/// A table that is written must parse, and find every change of a section.
fn written_table(section: &[u8]) {
    let lists: Vec<Vec<u64>> = section.chunks(24).map(digest_table::blocks).take(9).collect();
    let files: Vec<(u32, &[u64])> = (0..).zip(lists.iter().map(Vec::as_slice)).collect();
    let mut file = section.to_vec();
    let footer = [section.get(..9).unwrap_or_default(), &[0; 8]].concat();
    digest_table::write(FRAGMENT, &mut vec![0], &files, &footer, &mut file).expect("few rows");
    let tail_at = file.len() - footer.len() - TAIL_LEN as usize;
    let tail = &file[tail_at..tail_at + TAIL_LEN as usize];
    let at = tail_at - digest_table::directory_len(tail).expect("a written tail") as usize;
    let table = DigestTable::parse("written", FRAGMENT, at as u64, &file[at..tail_at], tail)
        .expect("written bytes parse");
    assert_eq!(table.sections_end, section.len() as u64);
    table.check_section("written", 0, 0, section).expect("unchanged");
    table.check_footer("written", 0, &footer[..footer.len() - 8]).expect("unchanged");
    assert!(table.check_section("written", 0, 0, &[section, &[1]].concat()).is_err());
    for (number, digests) in files {
        let row = table.file(number).expect("a written row");
        let list = &file[row.list.start as usize..row.list.end as usize];
        assert_eq!(row.parse("written", list).expect("unchanged"), digests);
    }
}

/// Trailers and digest lines: as they are, and behind a valid digest.
pub fn trailers(bytes: &[u8]) {
    for verify in [true, false] {
        for file in [FRAGMENT, "__1_2_0123456789abcdef0123456789abcdef"] {
            let front = trailer::open("fuzz", file, bytes, verify);
            assert!(front.is_ok_and(|front| front.len() <= bytes.len()) || verify);
            let mut sealed = bytes.to_vec();
            trailer::finish_run(file, &mut sealed);
            assert_eq!(trailer::open("sealed", file, &sealed, verify).expect("unchanged"), bytes);
        }
        let objects = [
            format!("__commits/{FRAGMENT}.vac"),
            format!("__commits/{FRAGMENT}.con"),
            "__meta/__7_8_0123456789abcdef01234567d16e5701.vac".to_owned(),
            "d16e5701.vac".to_owned(),
        ];
        for object in &objects {
            let _ = trailer::open_lines("fuzz", object, bytes, verify);
            let mut sealed = bytes.to_vec();
            trailer::seal_lines(object, &mut sealed);
            if sealed.len() > bytes.len() {
                assert_eq!(trailer::open_lines("sealed", object, &sealed, verify).expect("unchanged"), bytes);
            }
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = (name::parse(text), name::carries_digest(text), name::seed(text));
    }
}

/// A tile as the chunks it consists of: `u8` position in its file, then the tile.
pub fn chunk_tables(bytes: &[u8]) {
    let Some((&at, tile)) = bytes.split_first() else { return };
    let at = u64::from(at);
    let mut reads = 0;
    let table = ChunkTable::parse("fuzz", at..at + tile.len() as u64, |range| {
        reads += 1;
        assert!(range.start >= at && range.end <= at + tile.len() as u64, "a read outside the tile");
        Ok(Bytes::copy_from_slice(&tile[(range.start - at) as usize..(range.end - at) as usize]))
    });
    assert!(reads <= 1 + tile.len() / 12, "{reads} reads");
    let Ok(table) = table else { return };
    let all = table.unfiltered();
    for range in [0..1, 0..all, all / 2..all, all / 3..all / 3 + 1, all..all.saturating_add(1)] {
        let Some(span) = table.span(&range) else { continue };
        assert!(span.start >= at + 8 && span.start < span.end && span.end <= at + tile.len() as u64);
        assert!(table.base(span.start).is_some_and(|base| base <= range.start));
    }
}
