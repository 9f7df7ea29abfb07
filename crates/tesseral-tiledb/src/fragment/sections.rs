//! Sections of the metadata file: lists with an entry per tile, boxes, statistics and delete markers. They are read on demand.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use tesseral_core::{Error, Result, Scalar};
use tesseral_store::{Bytes, Rounds, StoreExt};

use super::tiles::TileDigests;
use super::{Bounds, Fragment};
use crate::metadata_loader::MetadataLoader;
use crate::wire::footer::FooterList;
use crate::wire::rtree;
use crate::wire::schema::{StoredDimension, StoredRange};
use crate::wire::section::{self, ExtremaValues, SlotStatistics};

/// Loaded lists of one slot.
#[derive(Debug, Default)]
pub(super) struct SlotSections {
    /// Names of its files.
    pub names: [String; 3],
    /// Digests of the tiles, by file.
    pub digests: [OnceLock<TileDigests>; 3],
    /// By [`FooterList`].
    pub lists: [OnceLock<Vec<u64>>; 8],
    /// Minima and maxima.
    extrema: [OnceLock<ExtremaValues>; 2],
}

impl SlotSections {
    pub(super) fn new(names: [String; 3]) -> Self {
        Self { names, ..Self::default() }
    }
}

impl Fragment {
    /// Returns the unfiltered bytes of a section.
    fn section(&self, reader: &MetadataLoader, offset: u64) -> Result<Vec<u8>> {
        let stored = self.stored_section(reader, offset)?;
        let described = reader.store.describe(&self.metadata_object());
        reader.decode(&described, &stored).map(|(bytes, _)| bytes)
    }

    /// Returns the stored bytes of a section after verifying their digest.
    fn stored_section(&self, reader: &MetadataLoader, offset: u64) -> Result<Bytes> {
        let object = self.metadata_object();
        // The order of sections is not fixed: one ends at the next larger offset.
        let file_end = match Rounds::later(self.metadata_end(reader))? {
            Some(file_end) => file_end,
            None => {
                // Read together with the end of the file, if where it ends is known.
                if let Some(next) = self.footer.offsets().filter(|o| *o > offset).min() {
                    Rounds::later(reader.store.read(&object, offset..next))?;
                }
                return Err(Error::pending());
            }
        };
        let last = file_end.digests.as_ref().map_or(file_end.footer_at, |table| table.sections_end);
        let next = self.footer.offsets().filter(|o| *o > offset).min().unwrap_or(last);
        let end = next.min(last);
        if offset >= end {
            let detail = format!("section offset {offset} exceeds {last}");
            return Err(Error::corrupt(
                "the footer",
                reader.store.describe(&object),
                file_end.footer_at,
                detail,
            ));
        }
        let bytes = file_end.read(reader, &object, offset..end)?;
        let described = reader.store.describe(&object);
        if let Some(table) = &file_end.digests {
            let number = self.footer.offsets().filter(|o| *o < offset).collect::<BTreeSet<_>>().len();
            table.check_section(&described, number, offset, &bytes)?;
        }
        Ok(bytes)
    }

    /// Returns a list with one number per tile.
    pub(crate) fn list(&self, reader: &MetadataLoader, list: FooterList, slot: usize) -> Result<&[u64]> {
        let cell = &self.loaded(slot).lists[list as usize];
        if let Some(numbers) = cell.get() {
            return Ok(numbers);
        }
        let object = reader.store.describe(&self.metadata_object());
        let offset = self.footer.list(list, slot).unwrap_or(u64::MAX);
        let loaded = self.footer.loaded.as_ref();
        let numbers = match loaded {
            Some(loaded) => {
                loaded.lists.get(list as usize).and_then(|l| l.get(slot)).cloned().unwrap_or_default()
            }
            None => section::numbers(&object, &self.section(reader, offset)?, "a list of the fragment")?,
        };
        // Versions 1 and 2 store no list of a file that does not exist.
        let optional = (loaded.is_some() || matches!(list, FooterList::Sums | FooterList::NullCounts))
            && numbers.is_empty();
        if numbers.len() as u64 != self.tiles && !optional {
            let detail = format!("{} entries for {} tiles", numbers.len(), self.tiles);
            return Err(Error::corrupt("a list of the fragment", object, offset, detail));
        }
        Ok(cell.get_or_init(|| numbers))
    }

    /// Returns minima or maxima of tiles.
    pub(crate) fn extrema(
        &self,
        reader: &MetadataLoader,
        list: FooterList,
        slot: usize,
    ) -> Result<&ExtremaValues> {
        let cell = &self.loaded(slot).extrema[usize::from(list == FooterList::Maxs)];
        if let Some(values) = cell.get() {
            return Ok(values);
        }
        let object = reader.store.describe(&self.metadata_object());
        let offset = self.footer.list(list, slot).unwrap_or(u64::MAX);
        let values = ExtremaValues::parse(&object, &self.section(reader, offset)?)?;
        Ok(cell.get_or_init(|| values))
    }

    /// Returns the boxes of a sparse fragment's tiles: minimum and maximum coordinate along each dimension.
    pub(crate) fn boxes(&self, reader: &MetadataLoader) -> Result<&[Bounds]> {
        if let Some(boxes) = self.boxes.get() {
            return Ok(boxes);
        }
        let object = reader.store.describe(&self.metadata_object());
        let dims = &self.schema.wire.dims;
        let boxes = match &self.footer.loaded {
            Some(loaded) => loaded.boxes.clone(),
            None => {
                let bytes = self.section(reader, self.footer.rtree)?;
                rtree::leaves(&object, &bytes, dims, self.footer.version)?
            }
        };
        if boxes.len() as u64 != self.tiles {
            let detail = format!("{} boxes for {} tiles", boxes.len(), self.tiles);
            return Err(Error::corrupt("the R-tree", object, self.footer.rtree, detail));
        }
        let coordinates = |ranges: &Vec<StoredRange>| -> Result<Bounds> {
            let ends = |dim: &StoredDimension, (low, high): &StoredRange| {
                let dtype = dim.datatype.dtype();
                Ok((Scalar::from_le_bytes(dtype, low)?, Scalar::from_le_bytes(dtype, high)?))
            };
            dims.iter().zip(ranges).map(|(dim, range)| ends(dim, range)).collect()
        };
        let boxes = boxes.iter().map(coordinates).collect::<Result<Vec<_>>>()?;
        Ok(self.boxes.get_or_init(|| boxes))
    }

    /// Statistics of each slot over the whole fragment; `None` before version 11.
    pub(crate) fn statistics(&self, reader: &MetadataLoader) -> Result<Vec<SlotStatistics>> {
        match self.footer.statistics.filter(|_| self.footer.version > 11) {
            Some(offset) => {
                let object = reader.store.describe(&self.metadata_object());
                section::statistics(&object, &self.section(reader, offset)?, self.slots())
            }
            None => Ok(Vec::new()),
        }
    }

    /// Markers of deletes that were already applied to the fragment.
    pub(crate) fn processed(&self, reader: &MetadataLoader) -> Result<Vec<String>> {
        match self.footer.conditions {
            Some(offset) => {
                let object = reader.store.describe(&self.metadata_object());
                section::markers(&object, &self.section(reader, offset)?)
            }
            None => Ok(Vec::new()),
        }
    }

    /// Reads the tile offsets, which are required to locate tiles.
    pub(crate) fn check_tiles(&self, reader: &MetadataLoader) -> Result<()> {
        for slot in 0..self.slots() {
            let lists = [
                FooterList::Offsets,
                FooterList::VarOffsets,
                FooterList::VarSizes,
                FooterList::ValidityOffsets,
            ];
            for list in lists {
                // Not every version has all of them.
                if self.footer.loaded.is_some() || self.footer.list(list, slot).is_some() {
                    self.list(reader, list, slot)?;
                }
            }
        }
        if self.footer.dense { Ok(()) } else { self.boxes(reader).map(drop) }
    }

    /// Reads every section, for audits.
    pub(crate) fn check_sections(&self, reader: &MetadataLoader) -> Result<()> {
        let object = reader.store.describe(&self.metadata_object());
        self.check_tiles(reader)?;
        if self.metadata_end(reader)?.digests.is_some() {
            // Including those that reads do not use.
            self.footer.offsets().try_for_each(|offset| self.stored_section(reader, offset).map(drop))?;
            for (slot, file) in (0..self.slots()).flat_map(|slot| (0..3).map(move |file| (slot, file))) {
                if self.footer.files[file][slot] > 0 {
                    self.span(reader, file, slot, 0)?;
                }
            }
        }
        for slot in 0..self.slots() {
            if self.footer.version >= 11 {
                self.extrema(reader, FooterList::Mins, slot)?;
                self.extrema(reader, FooterList::Maxs, slot)?;
                let sums = self.footer.list(FooterList::Sums, slot).unwrap_or(u64::MAX);
                section::numbers(&object, &self.section(reader, sums)?, "sums")?;
                let nulls = self.footer.list(FooterList::NullCounts, slot).unwrap_or(u64::MAX);
                section::numbers(&object, &self.section(reader, nulls)?, "null counts")?;
            }
        }
        self.statistics(reader)?;
        self.check_files(reader)?;
        self.processed(reader).map(drop)
    }

    /// Compares the lengths of its files with the footer.
    fn check_files(&self, reader: &MetadataLoader) -> Result<()> {
        for (number, object) in self.object_names().enumerate() {
            let declared = self.footer.files[number % 3][number / 3];
            if declared > 0 {
                let found = reader.store.len(&object)?;
                if found < declared {
                    return Err(Error::truncated(
                        "a file of the fragment",
                        reader.store.describe(&object),
                        0,
                        declared,
                        found,
                    ));
                }
            }
        }
        Ok(())
    }
}
