//! Tiles: their byte ranges in the data files, and their digests.

use tesseral_core::{Error, Result};
use tesseral_format::{Digest, DigestSpan};
use tesseral_store::{Bytes, Rounds, Store, StoreExt};

use super::Fragment;
use crate::metadata_loader::MetadataLoader;
use crate::wire::digest_table::{FileRow, block_count};
use crate::wire::footer::FooterList;
use crate::wire::name::carries_digest;

/// Digests of the tiles of one data file.
#[derive(Debug)]
pub(super) struct TileDigests {
    digests: Vec<u64>,
    /// Index of the first block of each tile; empty if every tile is one block.
    firsts: Vec<u64>,
}

/// Returns the list of tile offsets of a file.
fn offsets_list(file: usize) -> FooterList {
    [FooterList::Offsets, FooterList::VarOffsets, FooterList::ValidityOffsets][file.min(2)]
}

/// Tile offsets of a file.
struct TileSpans<'a> {
    offsets: &'a [u64],
    file_len: u64,
}

impl TileSpans<'_> {
    /// Byte range of a stored tile.
    fn get(&self, tile: usize) -> Option<(u64, u64)> {
        let start = *self.offsets.get(tile)?;
        Some((start, self.offsets.get(tile + 1).copied().unwrap_or(self.file_len)))
    }

    /// Returns whether any tile is larger than `bytes`.
    fn any_longer(&self, bytes: u64) -> bool {
        let spans = (0..self.offsets.len()).filter_map(|tile| self.get(tile));
        spans.into_iter().any(|(start, end)| end.saturating_sub(start) > bytes)
    }
}

impl Fragment {
    /// Returns whether its files have digests.
    pub(crate) fn carries_digests(&self) -> bool {
        carries_digest(&self.entry.name)
    }

    /// Loads the digests of a data file. Their number follows from the tile offsets.
    fn load_digests(
        &self,
        reader: &MetadataLoader,
        file: usize,
        slot: usize,
        spans: &TileSpans<'_>,
    ) -> Result<()> {
        let cell = &self.loaded(slot).digests[file];
        let Some(table) = &self.metadata_end(reader)?.digests else { return Ok(()) };
        if cell.get().is_some() || spans.file_len == 0 {
            return Ok(());
        }
        let object = self.metadata_object();
        let missing =
            |detail: &str| Error::corrupt("the digest table", reader.store.describe(&object), None, detail);
        let number = u32::try_from(slot * 3 + file).unwrap_or(u32::MAX);
        let row =
            table.file(number).ok_or_else(|| missing("a file of the fragment is missing from the table"))?;
        let bytes = self.digest_bytes(reader, row)?;
        let digests = row.parse(&reader.store.describe(&object), &bytes)?;
        let mut firsts = Vec::new();
        let mut blocks = digests.len() as u64;
        if blocks != self.tiles || spans.any_longer(table.block) {
            firsts.reserve(spans.offsets.len());
            blocks = 0;
            for tile in 0..spans.offsets.len() {
                firsts.push(blocks);
                let (start, end) = spans.get(tile).unwrap_or((0, 0));
                blocks = blocks.saturating_add(block_count(end.saturating_sub(start), table.block));
            }
        }
        if blocks != digests.len() as u64 {
            return Err(missing("the lists do not match the tiles"));
        }
        cell.get_or_init(|| TileDigests { digests, firsts });
        Ok(())
    }

    /// Stored bytes of the digests of a data file.
    fn digest_bytes(&self, reader: &MetadataLoader, row: &FileRow) -> Result<Bytes> {
        reader.limits.check_metadata(row.list.end - row.list.start)?;
        self.metadata_end(reader)?.read(reader, &self.metadata_object(), row.list.clone())
    }

    /// Loads the tile offsets and digests of slots from a store across a network: all that is not loaded is named in one round.
    /// Other stores read each of them when it is used.
    pub(crate) fn load_slots(
        &self,
        reader: &MetadataLoader,
        slots: impl IntoIterator<Item = usize>,
    ) -> Result<()> {
        if !reader.waits() {
            return Ok(());
        }
        let mut waiting = false;
        for slot in slots {
            for file in (0..3).filter(|file| self.footer.files[*file].get(slot).is_some_and(|len| *len > 0)) {
                let offsets = Rounds::later(self.list(reader, offsets_list(file), slot))?;
                waiting |= match offsets {
                    Some(offsets) => {
                        let spans = TileSpans { offsets, file_len: self.footer.files[file][slot] };
                        Rounds::later(self.load_digests(reader, file, slot, &spans))?.is_none()
                    }
                    None => {
                        let table =
                            Rounds::later(self.metadata_end(reader))?.and_then(|own| own.digests.as_ref());
                        let number = u32::try_from(slot * 3 + file).unwrap_or(u32::MAX);
                        if let Some(row) = table.and_then(|table| table.file(number)) {
                            Rounds::later(self.digest_bytes(reader, row))?;
                        }
                        true
                    }
                };
            }
        }
        if waiting { Err(Error::pending()) } else { Ok(()) }
    }

    /// Returns the digests of a tile whose file was loaded before.
    pub(crate) fn tile_digests(&self, file: usize, slot: usize, tile: u64) -> Option<DigestSpan<'_>> {
        let table = self.metadata_end.get()?.digests.as_ref()?;
        let loaded = self.slots.get(slot)?.get()?;
        let held = loaded.digests.get(file)?.get()?;
        let offsets = loaded.lists[offsets_list(file) as usize].get()?;
        let spans = TileSpans { offsets, file_len: *self.footer.files[file].get(slot)? };
        let (start, end) = spans.get(usize::try_from(tile).ok()?)?;
        let first = match held.firsts.is_empty() {
            true => tile,
            false => *held.firsts.get(usize::try_from(tile).ok()?)?,
        };
        let from = usize::try_from(first).ok()?;
        let count = usize::try_from(block_count(end.checked_sub(start)?, table.block)).ok()?;
        let digests = held.digests.get(from..from.checked_add(count)?)?;
        let digest = Digest::Xxh3Blocks { block: table.block, digests };
        Some(DigestSpan { object: self.object(slot, file), range: start..end, number: first, digest })
    }

    /// Block size of its digests in bytes, if they are loaded.
    pub(crate) fn digest_block(&self) -> Option<u64> {
        Some(self.metadata_end.get()?.digests.as_ref()?.block)
    }

    /// Returns the byte range of a tile in one of a slot's three files.
    pub(crate) fn span(
        &self,
        reader: &MetadataLoader,
        file: usize,
        slot: usize,
        tile: u64,
    ) -> Result<(u64, u64)> {
        let list = offsets_list(file);
        let size = self.footer.files[file.min(2)][slot];
        let spans = TileSpans { offsets: self.list(reader, list, slot)?, file_len: size };
        let (start, end) =
            usize::try_from(tile).ok().and_then(|tile| spans.get(tile)).unwrap_or((u64::MAX, size));
        self.load_digests(reader, file.min(2), slot, &spans)?;
        if start > end || end > size {
            let object = reader.store.describe(&self.metadata_object());
            let detail = format!("tile {tile} at {start}..{end} exceeds a file of {size} bytes");
            return Err(Error::corrupt("the tile offsets", object, self.footer.list(list, slot), detail));
        }
        Ok((start, end - start))
    }

    /// Returns the stored bytes of a tile after verifying their digests.
    pub(crate) fn read_tile(
        &self,
        reader: &MetadataLoader,
        object: &str,
        (slot, file): (usize, usize),
        tile: u64,
    ) -> Result<Bytes> {
        let (start, len) = self.span(reader, file, slot, tile)?;
        let bytes = reader.store.read(object, start..start + len)?;
        if let Some(span) = self.tile_digests(file, slot, tile) {
            check_blocks(&*reader.store, object, &span, start, &bytes)?;
        }
        Ok(bytes)
    }
}

/// Verifies the whole blocks in `bytes`, which are at offset `start` of their object.
pub(crate) fn check_blocks(
    store: &dyn Store,
    object: &str,
    span: &DigestSpan<'_>,
    start: u64,
    bytes: &[u8],
) -> Result<()> {
    let held = start..start.saturating_add(bytes.len() as u64);
    for digest in span.blocks(&held) {
        let (range, expected) = (&digest.range, digest.expected);
        let at = |n: u64| n.checked_sub(start).and_then(|n| usize::try_from(n).ok());
        let block = at(range.start).zip(at(range.end)).and_then(|(from, to)| bytes.get(from..to));
        let block = block.ok_or_else(|| Error::internal("the range is not aligned to blocks"))?;
        let computed = digest.compute(block);
        if computed != expected {
            let detail = format!("checksum mismatch: expected {expected:016x}, computed {computed:016x}");
            return Err(Error::corrupt("a tile", store.describe(object), range.start, detail));
        }
    }
    Ok(())
}
