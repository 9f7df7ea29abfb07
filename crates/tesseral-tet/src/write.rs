//! Writing of a file. Directory and index size are known before the first payload; everything else follows the payloads.
//!
//! ```text
//! begin … begin │ push (any order, any thread): payloads are written to the staged file │ commit: digests, zone maps,
//!               │ only a few numbers per chunk are retained                             │ spill, footer, index, head
//! ```
//!
//! If every array is raw, the offset of each payload follows from its coordinates, so the bytes do not depend on the order of
//! pushes. With zstd, payloads are stored in the order of pushes.

mod array;
mod statistics;

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sha2::{Digest as _, Sha256};
use tesseral_core::{Attributes, ChunkStats, DType, Error, HistoryRow, Result, Scalar, Stat, alloc};
use tesseral_format::convention::KEY;
use tesseral_format::convention::history::same_lengths;
use tesseral_format::{
    ArraySpec, ColumnData, CreateOptions, EncodedChunk, MemoryBudget, Scratch, StoredChunk, StoredForm,
    Writer,
};
use tesseral_store::{Staged, Store};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};
use zerocopy::IntoBytes;

pub(crate) use self::array::held_attribute;
use self::array::{ArrayState, text_of};
use self::statistics::WrittenStatistics;
use crate::package::{NewPackage, SealedImage};
use crate::wire::chunk_index::{IndexHeader, IndexRow, RAW};
use crate::wire::digest_region::{self, DigestRegion, RowDigest};
use crate::wire::directory;
use crate::wire::footer::{DigestsRef, FileRange, FooterJson, FooterTail, HistoryEvent, MAX_JSON, MAX_SPILL};
use crate::wire::json::JsonObject;
use crate::wire::metadata::{FileMetadata, FooterMetadata, MAX_HISTORY, check_count, check_text};
use crate::wire::superblock::{self, FLAG_FOOTER, Superblock};
use crate::wire::zone_map::{self, PackedImage, Zone};

/// Attributes of the file.
pub(crate) const FILE_ATTRIBUTES: [&str; 3] = ["tool", "library_version", "created_at"];

/// Position of the statistics of a chunk among those of an encoded chunk.
const STATISTICS: usize = 0;
/// Position of its zone map.
const ZONE: usize = 1;

/// Number of bytes buffered before a write.
const BLOCK: usize = 1 << 20;

/// Writer of a `.tet` file, or of a package with one generation.
#[derive(Debug)]
pub(crate) struct TetWriter {
    staged: Box<dyn Staged>,
    package: Option<NewPackage>,
    digests: bool,
    /// Whether zone maps are stored.
    zone_maps: bool,
    /// Whether exact statistics of chunks are stored.
    statistics: bool,
    header: IndexHeader,
    arrays: Vec<ArrayState>,
    /// Names of the arrays.
    names: HashSet<String>,
    /// Whether any array is compressed.
    compressed: bool,
    history: Vec<HistoryEvent>,
    file: FileMetadata,
    /// The marker of the file.
    marker: Option<String>,
    plan: OnceLock<WritePlan>,
    progress: Mutex<WriteProgress>,
    /// A write failed: the bytes of a chunk can be missing.
    failed: AtomicBool,
}

/// Layout of the file, fixed by the first chunk.
#[derive(Debug)]
struct WritePlan {
    /// Superblock (without flags), directory, index header.
    head: Vec<u8>,
    /// Index of each array's first row.
    first_row: Vec<u64>,
    rows: u64,
    /// Offset of the payloads.
    payloads: u64,
    /// Offset of each array's payloads, if all arrays are raw.
    fixed: Option<Vec<u64>>,
    /// End of the payloads, if all arrays are raw.
    fixed_end: u64,
    /// Size of the digested blocks of raw chunks.
    block: u32,
}

/// State of each chunk.
#[derive(Debug, Default)]
struct WriteProgress {
    /// One per row, in canonical order.
    chunks: Vec<StoredRow>,
    /// Digests of the blocks of raw chunks, in the order of arrival.
    blocks: Vec<[u8; 8]>,
    zones: Vec<Zone>,
    statistics: WrittenStatistics,
    /// Offset of the next payload, if offsets are not fixed.
    end: u64,
    pushed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct StoredRow {
    /// 0: not written yet.
    offset: u64,
    len: u64,
    digest: RowDigest,
}

impl WritePlan {
    /// The head with its flags.
    fn head(&self, flags: u32) -> Vec<u8> {
        let mut head = self.head.clone();
        let at = superblock::FLAGS_OFFSET as usize;
        head[at..at + 4].copy_from_slice(&flags.to_le_bytes());
        head
    }
}

/// What lies between the payloads and the footer.
#[derive(Debug)]
struct Regions {
    end: u64,
    digests: Option<FileRange>,
    /// Digest of the statistics region.
    statistics: Option<u64>,
}

/// The end of a file.
#[derive(Debug)]
struct WrittenTail {
    /// Flags of the superblock.
    flags: u32,
    /// Length of the file.
    len: u64,
    /// What a package records of a file with zone maps.
    sealed: Option<SealedImage>,
}

impl WriteProgress {
    /// Digests of the rows, and those of their blocks in the order of the rows.
    fn digests(&self, block: u32) -> Result<(Vec<RowDigest>, Vec<[u8; 8]>)> {
        let mut rows = alloc::with_capacity("digests of chunks", self.chunks.len())?;
        let mut table = alloc::with_capacity("digests of blocks", self.blocks.len())?;
        for StoredRow { len, digest, .. } in &self.chunks {
            let first_block = digest.first_block.map(|_| table.len() as u64);
            rows.push(RowDigest { first_block, ..*digest });
            if let Some(first) = digest.first_block {
                // Both fit, because `push` added them to the list.
                let count = len.div_ceil(block.into()) as usize;
                table.extend_from_slice(&self.blocks[first as usize..first as usize + count]);
            }
        }
        Ok((rows, table))
    }
}

impl TetWriter {
    pub(crate) fn create(store: &Arc<dyn Store>, options: &CreateOptions) -> Result<Self> {
        options.format.get::<()>()?;
        let mut header = IndexHeader::default();
        match options.memory_budget {
            None => {}
            Some(MemoryBudget::Bytes(bytes)) => {
                let most = u64::from(u32::MAX);
                header.memory_budget_bytes = u32::try_from(bytes)
                    .map_err(|_| Error::limit("the memory budget of a .tet file", bytes, most))?;
            }
            Some(MemoryBudget::BasisPoints(bps @ 0..=10_000)) => header.memory_budget_percent_bps = bps,
            Some(MemoryBudget::BasisPoints(bps)) => {
                return Err(Error::limit("the memory budget in basis points", bps.into(), 10_000));
            }
        }
        let package = options.folder.then(|| NewPackage::new(Arc::clone(store), options.overwrite));
        let object = package.as_ref().map_or_else(String::new, NewPackage::packed);
        Ok(Self {
            staged: store.stage(&object, options.overwrite)?,
            digests: options.digests,
            // Packages declare them as required.
            zone_maps: options.statistics || package.is_some(),
            package,
            statistics: options.stores_chunk_statistics(),
            header,
            arrays: Vec::new(),
            names: HashSet::new(),
            compressed: false,
            history: Vec::new(),
            file: FileMetadata::default(),
            marker: None,
            plan: OnceLock::new(),
            progress: Mutex::default(),
            failed: AtomicBool::new(false),
        })
    }

    fn array(&self, array: usize) -> Result<&ArrayState> {
        self.arrays.get(array).ok_or_else(|| Error::invalid(format!("array {array} was not created")))
    }

    fn progress(&self) -> MutexGuard<'_, WriteProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes the layout once.
    fn plan(&self) -> Result<&WritePlan> {
        if let Some(plan) = self.plan.get() {
            return Ok(plan);
        }
        let mut progress = self.progress();
        // Another thread can have been first.
        if let Some(plan) = self.plan.get() {
            return Ok(plan);
        }
        let plan = self.plan_layout()?;
        let rows = usize::try_from(plan.rows).map_err(|_| too_many_chunks(plan.rows))?;
        alloc::resize("chunks", &mut progress.chunks, rows, StoredRow::default())?;
        if self.zone_maps {
            progress.zones.try_reserve_exact(rows).map_err(|_| too_many_chunks(plan.rows))?;
            alloc::resize("zone maps", &mut progress.zones, rows, Zone::default())?;
        }
        if self.statistics {
            progress.statistics.prepare(&self.arrays)?;
        }
        progress.end = plan.payloads;
        Ok(self.plan.get_or_init(|| plan))
    }

    fn plan_layout(&self) -> Result<WritePlan> {
        let overflow = || Error::invalid("the arrays do not fit a file of 2^64 bytes");
        let records: Vec<_> = self.arrays.iter().map(|a| a.record.clone()).collect();
        let mut first_row = Vec::with_capacity(records.len());
        let mut rows = 0_u64;
        for array in &self.arrays {
            first_row.push(rows);
            rows = rows.checked_add(array.grid.total()).ok_or_else(overflow)?;
        }
        let mut blob = Vec::new();
        let mut head = Vec::new();
        let mut superblock = Superblock {
            dataset_count: u32::try_from(records.len()).map_err(|_| overflow())?,
            flags: 0,
            chunk_index_offset: superblock::LEN,
            chunk_index_length: 0,
        };
        if !records.is_empty() {
            directory::write(&records, &mut blob);
            superblock.chunk_index_offset = superblock::LEN + blob.len() as u64;
            superblock.chunk_index_length = IndexHeader::length(rows).ok_or_else(overflow)?;
        }
        superblock.write(&mut head);
        head.append(&mut blob);
        if !records.is_empty() {
            IndexHeader { entry_count: rows, ..self.header }.write(&mut head);
        }
        let payloads = superblock.chunk_index_offset.checked_add(superblock.chunk_index_length);
        let payloads = payloads.ok_or_else(overflow)?;
        let mut fixed_end = payloads;
        let mut starts = Vec::with_capacity(self.arrays.len());
        for array in &self.arrays {
            starts.push(fixed_end);
            fixed_end = fixed_end.checked_add(array.bytes()).ok_or_else(overflow)?;
        }
        let fixed = self.arrays.iter().all(|a| a.level.is_none()).then_some(starts);
        let raw = self.arrays.iter().filter(|a| a.level.is_none()).map(|a| a.bytes());
        let block = digest_region::block_size(raw.fold(0, u64::saturating_add));
        Ok(WritePlan { head, first_row, rows, payloads, fixed, fixed_end, block })
    }

    fn store(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.staged.write_at(at, bytes).inspect_err(|_| self.failed.store(true, Ordering::Relaxed))
    }

    /// Returns an error with the first missing chunk.
    fn refuse_missing(&self, plan: &WritePlan, progress: &WriteProgress) -> Result<()> {
        if progress.pushed == plan.rows {
            return Ok(());
        }
        let row = progress.chunks.iter().position(|chunk| chunk.offset == 0).unwrap_or(0) as u64;
        // Every array has at least one chunk, so first rows differ.
        let number = plan.first_row.partition_point(|first| *first <= row).saturating_sub(1);
        let array = self.array(number)?;
        let coords = array.grid.coords(row - plan.first_row[number]);
        let missing = plan.rows - progress.pushed;
        Err(Error::invalid(format!("{missing} of {} chunks are missing", plan.rows))
            .in_array(&array.record.name)
            .in_chunk(&coords))
    }

    fn metadata(&self) -> Option<FooterMetadata> {
        let file = (self.file != FileMetadata::default()).then(|| JsonObject(self.file.clone()));
        let named = self.arrays.iter().filter(|a| !a.metadata.is_empty());
        let datasets: BTreeMap<_, _> =
            named.map(|a| (a.record.name.clone(), JsonObject(a.metadata.clone()))).collect();
        let marked = self.arrays.iter().filter_map(|a| Some((a.record.name.clone(), a.marker.clone()?)));
        let markers: BTreeMap<_, _> =
            marked.chain(self.marker.iter().map(|text| (String::new(), text.clone()))).collect();
        let any = file.is_some() || !datasets.is_empty() || !markers.is_empty();
        any.then_some(FooterMetadata { file, datasets, markers })
    }

    /// Writes the rows in canonical order; returns the digest of directory and index.
    fn write_index(&self, plan: &WritePlan, progress: &WriteProgress) -> Result<u64> {
        let mut hash = Xxh3::new();
        hash.update(plan.head.get(32..).unwrap_or_default());
        let mut block = Vec::with_capacity(BLOCK);
        let mut at = plan.head.len() as u64;
        for (number, array) in self.arrays.iter().enumerate() {
            let first = plan.first_row[number];
            let codec = array.codec();
            for linear in 0..array.grid.total() {
                // Both fit, because the rows were allocated.
                let chunk = progress.chunks[(first + linear) as usize];
                let coords = array.grid.coords(linear);
                let raw = array.tile_bytes(&coords);
                let row = IndexRow::new(number as u64, &coords, chunk.offset, raw, chunk.len, codec);
                block.extend_from_slice(row.as_bytes());
                if block.len() + size_of::<IndexRow>() > BLOCK {
                    hash.update(&block);
                    self.store(at, &block)?;
                    at += block.len() as u64;
                    block.clear();
                }
            }
        }
        hash.update(&block);
        self.store(at, &block)?;
        Ok(hash.digest())
    }

    /// Writes the zone maps at `at`; returns their length and digest.
    fn write_zones(
        &self,
        at: u64,
        image: &PackedImage,
        plan: &WritePlan,
        progress: &WriteProgress,
    ) -> Result<(u64, u64)> {
        let mut hash = Xxh3::new();
        let mut block = Vec::new();
        let mut end = at;
        zone_map::write_start(image, &mut block);
        for (number, array) in self.arrays.iter().enumerate() {
            for linear in 0..array.grid.total() {
                let row = plan.first_row[number] + linear;
                let zone = &progress.zones[row as usize];
                zone_map::write_entry(row == 0, number as u64, &array.grid.coords(linear), zone, &mut block);
                if block.len() > BLOCK {
                    hash.update(&block);
                    self.store(end, &block)?;
                    end += block.len() as u64;
                    block.clear();
                }
            }
        }
        zone_map::write_end(plan.rows == 0, &mut block);
        hash.update(&block);
        self.store(end, &block)?;
        end += block.len() as u64;
        Ok((end - at, hash.digest()))
    }

    /// Writes the digest and statistics regions after the payloads.
    fn write_regions(&self, plan: &WritePlan, progress: &WriteProgress, catalog: u64) -> Result<Regions> {
        let mut end = if plan.fixed.is_some() { plan.fixed_end } else { progress.end };
        let (mut digests, mut statistics) = (None, None);
        if self.digests && !self.arrays.is_empty() {
            let offset = end.next_multiple_of(8);
            let mut bytes = vec![0; usize::try_from(offset - end).unwrap_or(0)];
            let (rows, table) = progress.digests(plan.block)?;
            DigestRegion::write(catalog, plan.block, rows.into_iter(), &table, &mut bytes);
            self.store(end, &bytes)?;
            end += bytes.len() as u64;
            digests = Some(FileRange { offset, len: end - offset });
        }
        if !progress.statistics.is_empty() {
            let offset = end.next_multiple_of(8);
            let mut bytes = vec![0; usize::try_from(offset - end).unwrap_or(0)];
            let start = bytes.len();
            progress.statistics.write(catalog, &self.arrays, &mut bytes);
            statistics = Some(xxh3_64(&bytes[start..]));
            self.store(end, &bytes)?;
            end += bytes.len() as u64;
        }
        Ok(Regions { end, digests, statistics })
    }

    /// The bytes from `at` to the end of the file: metadata spill, JSON and tail. `zones` are the zone maps before it.
    fn footer(&self, at: u64, regions: &Regions, zones: Option<(FileRange, u64)>) -> Result<Vec<u8>> {
        let mut json = FooterJson {
            history: self.history.clone(),
            metadata: self.metadata(),
            zone_maps_ref: zones.map(|(range, _)| range),
            digests_ref: regions.digests.map(|region| DigestsRef {
                region,
                json: 0,
                spill: None,
                zone_maps: zones.map(|(_, digest)| digest),
                statistics: regions.statistics,
            }),
            ..FooterJson::default()
        };
        let mut text = Vec::new();
        json.write(&mut text)?;
        let mut spill = Vec::new();
        if text.len() > MAX_JSON
            && let Some(metadata) = json.metadata.take()
        {
            spill = serde_json::to_vec(&metadata)
                .map_err(|e| Error::internal(format!("cannot serialize the metadata as JSON: {e}")))?;
            if spill.len() > MAX_SPILL {
                return Err(Error::limit(
                    "the metadata of a .tet file",
                    spill.len() as u64,
                    MAX_SPILL as u64,
                ));
            }
            json.metadata_ref = Some(FileRange { offset: at, len: spill.len() as u64 });
            if let Some(digests) = &mut json.digests_ref {
                digests.spill = Some(xxh3_64(&spill));
            }
            text.clear();
            json.write(&mut text)?;
        }
        if text.len() > MAX_JSON {
            return Err(Error::limit("the footer of a .tet file", text.len() as u64, MAX_JSON as u64)
                .hint("shorten the history"));
        }
        let version = if zones.is_some() { 2 } else { 1 };
        FooterTail { json_len: text.len() as u64, version }.write(&mut text);
        spill.append(&mut text);
        Ok(spill)
    }

    /// Returns whether the file needs a footer without zone maps.
    fn has_footer(&self, regions: &Regions) -> bool {
        let any = regions.digests.is_some() || regions.statistics.is_some();
        any || !self.history.is_empty() || self.metadata().is_some()
    }

    /// SHA-256 of the file as it would be without zone maps.
    fn image_digest(&self, plan: &WritePlan, regions: &Regions) -> Result<[u8; 32]> {
        let end = regions.end;
        let (flags, footer) = match self.has_footer(regions) {
            true => (FLAG_FOOTER, self.footer(end, regions, None)?),
            false => (0, Vec::new()),
        };
        let mut hash = Sha256::new();
        hash.update(plan.head(flags));
        let mut at = plan.head.len() as u64;
        let mut block = vec![0; BLOCK];
        while at < end {
            let len = usize::try_from(end - at).map_or(BLOCK, |rest| rest.min(BLOCK));
            self.staged.read_at(at, &mut block[..len])?;
            hash.update(&block[..len]);
            at += len as u64;
        }
        hash.update(footer);
        Ok(hash.finalize().into())
    }

    /// Writes everything after the payloads.
    fn write_tail(&self, plan: &WritePlan, progress: &WriteProgress, catalog: u64) -> Result<WrittenTail> {
        let regions = self.write_regions(plan, progress, catalog)?;
        let mut end = regions.end;
        if !self.has_footer(&regions) && !self.zone_maps {
            return Ok(WrittenTail { flags: 0, len: end, sealed: None });
        }
        let mut image = PackedImage::default();
        if let Some(package) = &self.package {
            let sha256 = self.image_digest(plan, &regions)?;
            image = PackedImage { generation: package.generation, sha256 };
        }
        let mut zones = None;
        if self.zone_maps {
            let (len, digest) = self.write_zones(end, &image, plan, progress)?;
            zones = Some((FileRange { offset: end, len }, digest));
            end += len;
        }
        let footer = self.footer(end, &regions, zones)?;
        self.store(end, &footer)?;
        let len = end + footer.len() as u64;
        let sealed = zones.map(|(zones, _)| SealedImage { image, len, zones });
        Ok(WrittenTail { flags: FLAG_FOOTER, len, sealed })
    }
}

fn too_many_chunks(rows: u64) -> Error {
    Error::limit("the chunks of one .tet file", rows, isize::MAX as u64 / size_of::<StoredRow>() as u64)
}

impl Writer for TetWriter {
    fn begin(&mut self, spec: &ArraySpec) -> Result<usize> {
        if self.plan.get().is_some() {
            return Err(Error::invalid("all arrays of a .tet file must be created before its first chunk")
                .in_array(&spec.schema.name));
        }
        let state = ArrayState::new(spec).map_err(|e| e.in_array(&spec.schema.name))?;
        if !self.names.insert(state.record.name.clone()) {
            return Err(Error::invalid("duplicate array name").in_array(&spec.schema.name));
        }
        self.compressed |= state.level.is_some();
        self.arrays.push(state);
        Ok(self.arrays.len() - 1)
    }

    /// Zone maps have their own definition of null and zero, so `encode` computes those from the cells.
    fn wants_stats(&self, array: usize) -> bool {
        self.statistics && self.arrays.get(array).is_some_and(ArrayState::has_statistics)
    }

    fn excludes_missing(&self, _array: usize) -> bool {
        true
    }

    fn needs_order(&self, _array: usize) -> bool {
        self.compressed
    }

    fn encode<'a>(
        &self,
        array: usize,
        coords: &[u64],
        columns: &[ColumnData<'a>],
        stats: Vec<ChunkStats>,
        scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        let state = self.array(array)?;
        state.encode(coords, columns, stats, self.zone_maps, scratch).map_err(|e| state.name_chunk(e, coords))
    }

    fn accepts_encoded(&self, array: usize, form: StoredForm) -> bool {
        // Zone maps require decoded cells.
        form == StoredForm::Zstd && !self.zone_maps && self.array(array).is_ok_and(|a| a.level.is_some())
    }

    fn push_encoded<'a>(
        &self,
        array: usize,
        coords: &[u64],
        stored: &'a StoredChunk,
    ) -> Result<EncodedChunk<'a>> {
        let state = self.array(array)?;
        state.push_encoded(coords, stored).map_err(|e| state.name_chunk(e, coords))
    }

    fn push(&self, array: usize, chunk: EncodedChunk<'_>) -> Result<()> {
        let state = self.array(array)?;
        let refuse = |detail: String| Err(state.name_chunk(Error::invalid(detail), &chunk.coords));
        let plan = self.plan()?;
        if !state.grid.contains(&chunk.coords) {
            return refuse(format!(
                "chunk coordinates out of bounds for a grid of {:?}",
                state.grid.counts()
            ));
        }
        let codec = state.codec();
        let raw = state.tile_bytes(&chunk.coords);
        let [part] = chunk.parts.as_slice() else {
            return refuse(format!("expected one part per chunk, found {}", chunk.parts.len()));
        };
        let len = part.bytes.len() as u64;
        if part.codec != codec || part.raw_len != raw || (codec == RAW && len != raw) {
            return refuse(format!("{len} bytes of codec {} do not match a tile of {raw} bytes", part.codec));
        }
        let zone = match (self.zone_maps, chunk.stats.get(ZONE).and_then(zone_of_stats)) {
            (true, None) => return refuse("the chunk has no zone map".to_owned()),
            (_, zone) => zone,
        };
        let blocks =
            if self.digests && codec == RAW { block_digests(&part.bytes, plan.block) } else { Vec::new() };
        let digest = match (self.digests, blocks.is_empty()) {
            (false, _) => 0,
            (true, true) => xxh3_64(&part.bytes),
            (true, false) => xxh3_64(blocks.as_flattened()),
        };
        let linear = state.grid.linear(&chunk.coords);
        let row = usize::try_from(plan.first_row[array] + linear).map_err(|_| too_many_chunks(plan.rows))?;
        let mut progress = self.progress();
        if progress.chunks[row].offset != 0 {
            drop(progress);
            return refuse("duplicate chunk".to_owned());
        }
        let offset = match &plan.fixed {
            Some(starts) => starts[array] + state.bytes_before(&chunk.coords),
            None => {
                let offset = progress.end;
                progress.end = offset.checked_add(len).ok_or_else(|| too_many_chunks(plan.rows))?;
                offset
            }
        };
        let first_block = (!blocks.is_empty()).then_some(progress.blocks.len() as u64);
        alloc::reserve("digests of blocks", &mut progress.blocks, blocks.len())?;
        progress.blocks.extend_from_slice(&blocks);
        progress.chunks[row] = StoredRow { offset, len, digest: RowDigest { digest, first_block } };
        progress.pushed += 1;
        if let Some(zone) = zone.filter(|_| self.zone_maps) {
            progress.zones[row] = zone;
        }
        if let Some(stats) = chunk.stats.get(STATISTICS).filter(|_| self.statistics) {
            progress.statistics.set(array, linear, state, stats)?;
        }
        drop(progress);
        self.store(offset, &part.bytes)
    }

    fn set_attributes(&mut self, attributes: Attributes) -> Result<()> {
        let mut file = FileMetadata::default();
        let mut marker = None;
        for (name, value) in attributes {
            if name == KEY {
                marker = Some(text_of(&name, &value)?);
                continue;
            }
            let slot = match name.as_str() {
                "tool" => &mut file.tool,
                "library_version" => &mut file.library_version,
                "created_at" => &mut file.created_at,
                _ => {
                    return Err(Error::unsupported(format!("the attribute {name:?} of a .tet file")).hint(
                        "available for the file: tool, library_version, created_at; arrays accept any attribute",
                    ));
                }
            };
            let text = text_of(&name, &value)?;
            check_text(&format!("the file attribute {name}"), &text)?;
            *slot = Some(text);
        }
        self.file = file;
        self.marker = marker;
        Ok(())
    }

    fn add_history(&mut self, row: HistoryRow) -> Result<()> {
        check_count("rows of the history", self.history.len() + 1, MAX_HISTORY)?;
        self.history.push(HistoryEvent::from_row(row)?);
        Ok(())
    }

    fn set_parents(&mut self, parents: &[String]) -> bool {
        let same = |row: &&mut HistoryEvent| same_lengths(&row.parents, parents);
        let Some(row) = self.history.last_mut().filter(same) else { return false };
        row.parents = parents.to_vec();
        true
    }

    fn commit(self: Box<Self>) -> Result<()> {
        if self.failed.load(Ordering::Relaxed) {
            return Err(Error::internal("a previous write of a chunk failed"));
        }
        if let Some(metadata) = self.metadata() {
            metadata.check()?;
        }
        let plan = self.plan()?;
        let progress = self.progress();
        self.refuse_missing(plan, &progress)?;
        let catalog = self.write_index(plan, &progress)?;
        let WrittenTail { flags, len, sealed } = self.write_tail(plan, &progress, catalog)?;
        drop(progress);
        self.store(0, &plan.head(flags))?;
        // Zero-length writes do not extend a file; set its length explicitly.
        self.staged.set_len(len)?;
        self.staged.publish()?;
        match (self.package, sealed) {
            (Some(package), Some(sealed)) => package.publish(&sealed),
            _ => Ok(()),
        }
    }
}

/// Digests of the blocks of a raw chunk; none if it is not longer than a block.
fn block_digests(bytes: &[u8], block: u32) -> Vec<[u8; 8]> {
    let block = usize::try_from(block).unwrap_or(usize::MAX);
    if bytes.len() <= block {
        return Vec::new();
    }
    bytes.chunks(block).map(|bytes| xxh3_64(bytes).to_le_bytes()).collect()
}

/// Zone maps are passed from `encode` to `push` as statistics: `nulls` includes NaN, as in zone maps.
fn stats_of_zone(dtype: DType, cells: u64, zone: &Zone) -> ChunkStats {
    let scalar = |bytes: &[u8]| Scalar::from_le_bytes(dtype, bytes).map_or(Stat::Absent, Stat::Exact);
    let (min, max) = zone.range.map_or((Stat::Absent, Stat::Absent), |r| (scalar(r.min()), scalar(r.max())));
    ChunkStats {
        cells,
        nulls: Stat::Exact(zone.null_count),
        nans: Stat::Absent,
        min,
        max,
        sum: Stat::Absent,
        partial_sum: None,
        missing: Vec::new(),
    }
}

fn zone_of_stats(stats: &ChunkStats) -> Option<Zone> {
    let range = match (&stats.min, &stats.max) {
        (Stat::Exact(min), Stat::Exact(max)) => Some(zone_map::ZoneRange::new(min.bytes(), max.bytes())?),
        _ => None,
    };
    Some(Zone { element_count: stats.cells, null_count: *stats.nulls.exact()?, range })
}
