//! Writing a file: directory and index are known before the first payload, everything else follows the payloads.
//!
//! ```text
//! begin … begin │ push (any order, any thread): payloads go straight to the staged file │ commit: digests, zone maps,
//!               │ only a few numbers per chunk are kept                                 │ spill, footer, index, head
//! ```
//!
//! When every array is raw, each payload's place follows from its coordinates, so bytes do not depend on the order of
//! pushes. With zstd, payloads lie in the order they came.

mod array;

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tesseral_core::{Attributes, ChunkStats, DType, Error, HistoryRow, Result, Scalar, Stat, alloc};
use tesseral_format::{
    ArraySpec, ColumnData, CreateOptions, EncodedChunk, MemoryBudget, Scratch, StoredChunk, StoredForm,
    Writer,
};
use tesseral_store::{Staged, Store};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};
use zerocopy::IntoBytes;

use self::array::{ArrayState, text_of};
use crate::wire::chunk_index::{IndexHeader, RAW, Row};
use crate::wire::digest_region::DigestRegion;
use crate::wire::directory;
use crate::wire::footer::{DigestsRef, FooterJson, HistoryEvent, MAX_JSON, MAX_SPILL, Ref, Tail};
use crate::wire::json::Object;
use crate::wire::metadata::{FileMetadata, MAX_HISTORY, Metadata, check_count, check_text};
use crate::wire::superblock::{self, FLAG_FOOTER, Superblock};
use crate::wire::zone_map::{self, Zone};

/// What a file as a whole can say of itself.
pub(crate) const FILE_ATTRIBUTES: [&str; 3] = ["tool", "library_version", "created_at"];

/// How much is gathered before it is written.
const BLOCK: usize = 1 << 20;

/// A `.tet` file being written.
#[derive(Debug)]
pub(crate) struct TetWriter {
    staged: Box<dyn Staged>,
    digests: bool,
    statistics: bool,
    header: IndexHeader,
    arrays: Vec<ArrayState>,
    /// Their names.
    names: HashSet<String>,
    /// Some array is compressed.
    compressed: bool,
    history: Vec<HistoryEvent>,
    file: FileMetadata,
    plan: OnceLock<WritePlan>,
    progress: Mutex<Progress>,
    /// A write failed: the bytes of some chunk may be missing.
    failed: AtomicBool,
}

/// Where things go, fixed when the first chunk comes.
#[derive(Debug)]
struct WritePlan {
    /// Superblock (without flags), directory, index header.
    head: Vec<u8>,
    /// Number of each array's first row.
    first_row: Vec<u64>,
    rows: u64,
    /// Where payloads begin.
    payloads: u64,
    /// Where each array's payloads begin, when all arrays are raw.
    fixed: Option<Vec<u64>>,
    /// Where payloads end, when all arrays are raw.
    fixed_end: u64,
}

/// What is kept of each chunk.
#[derive(Debug, Default)]
struct Progress {
    /// One per row, in canonical order.
    chunks: Vec<Stored>,
    zones: Vec<Zone>,
    /// Where the next payload goes, when places are not fixed.
    end: u64,
    pushed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stored {
    /// 0: not stored yet.
    offset: u64,
    len: u64,
    digest: u64,
}

impl TetWriter {
    pub(crate) fn create(store: &Arc<dyn Store>, options: &CreateOptions) -> Result<Self> {
        if let Some(name) = options.extra.keys().next() {
            return Err(Error::invalid(format!(".tet has no option {name:?}")));
        }
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
        Ok(Self {
            staged: store.stage("", options.overwrite)?,
            digests: options.digests,
            statistics: options.statistics,
            header,
            arrays: Vec::new(),
            names: HashSet::new(),
            compressed: false,
            history: Vec::new(),
            file: FileMetadata::default(),
            plan: OnceLock::new(),
            progress: Mutex::default(),
            failed: AtomicBool::new(false),
        })
    }

    fn array(&self, array: usize) -> Result<&ArrayState> {
        self.arrays.get(array).ok_or_else(|| Error::invalid(format!("array {array} was not begun")))
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lays the file out, once.
    fn plan(&self) -> Result<&WritePlan> {
        if let Some(plan) = self.plan.get() {
            return Ok(plan);
        }
        let mut progress = self.progress();
        // Someone else may have been first.
        if let Some(plan) = self.plan.get() {
            return Ok(plan);
        }
        let plan = self.lay_out()?;
        let rows = usize::try_from(plan.rows).map_err(|_| too_many_chunks(plan.rows))?;
        alloc::resize("chunks", &mut progress.chunks, rows, Stored::default())?;
        if self.statistics {
            progress.zones.try_reserve_exact(rows).map_err(|_| too_many_chunks(plan.rows))?;
            alloc::resize("zone maps", &mut progress.zones, rows, Zone::default())?;
        }
        progress.end = plan.payloads;
        Ok(self.plan.get_or_init(|| plan))
    }

    fn lay_out(&self) -> Result<WritePlan> {
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
        Ok(WritePlan { head, first_row, rows, payloads, fixed, fixed_end })
    }

    fn store(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.staged.write_at(at, bytes).inspect_err(|_| self.failed.store(true, Ordering::Relaxed))
    }

    /// Names the first chunk that was not pushed.
    fn refuse_missing(&self, plan: &WritePlan, progress: &Progress) -> Result<()> {
        if progress.pushed == plan.rows {
            return Ok(());
        }
        let row = progress.chunks.iter().position(|chunk| chunk.offset == 0).unwrap_or(0) as u64;
        // Every array has at least one chunk, so first rows differ.
        let number = plan.first_row.partition_point(|first| *first <= row).saturating_sub(1);
        let array = self.array(number)?;
        let coords = array.grid.coords(row - plan.first_row[number]);
        let missing = plan.rows - progress.pushed;
        Err(Error::invalid(format!("{missing} of {} chunks were not written", plan.rows))
            .in_array(&array.record.name)
            .in_chunk(&coords))
    }

    fn metadata(&self) -> Option<Metadata> {
        let file = (self.file != FileMetadata::default()).then(|| Object(self.file.clone()));
        let named = self.arrays.iter().filter(|a| !a.metadata.is_empty());
        let datasets: BTreeMap<_, _> =
            named.map(|a| (a.record.name.clone(), Object(a.metadata.clone()))).collect();
        (file.is_some() || !datasets.is_empty()).then_some(Metadata { file, datasets })
    }

    /// Writes the rows in canonical order; gives the digest of directory and index.
    fn write_index(&self, plan: &WritePlan, progress: &Progress) -> Result<u64> {
        let mut hash = Xxh3::new();
        hash.update(plan.head.get(32..).unwrap_or_default());
        let mut block = Vec::with_capacity(BLOCK);
        let mut at = plan.head.len() as u64;
        for (number, array) in self.arrays.iter().enumerate() {
            let first = plan.first_row[number];
            let codec = array.codec();
            for linear in 0..array.grid.total() {
                // Both fit: the rows were allocated.
                #[allow(clippy::cast_possible_truncation)]
                let chunk = progress.chunks[(first + linear) as usize];
                let coords = array.grid.coords(linear);
                let raw = array.tile_bytes(&coords);
                let row = Row::new(number as u64, &coords, chunk.offset, raw, chunk.len, codec);
                block.extend_from_slice(row.as_bytes());
                if block.len() + size_of::<Row>() > BLOCK {
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

    /// Writes the zone maps at `at`; gives their length and digest.
    fn write_zones(&self, at: u64, plan: &WritePlan, progress: &Progress) -> Result<(u64, u64)> {
        let mut hash = Xxh3::new();
        let mut block = Vec::new();
        let mut end = at;
        zone_map::write_start(&mut block);
        for (number, array) in self.arrays.iter().enumerate() {
            for linear in 0..array.grid.total() {
                let row = plan.first_row[number] + linear;
                #[allow(clippy::cast_possible_truncation)]
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

    /// Writes everything that follows the payloads; gives the superblock's flags and the file's length.
    fn write_tail(&self, plan: &WritePlan, progress: &Progress, catalog: u64) -> Result<(u32, u64)> {
        let mut end = if plan.fixed.is_some() { plan.fixed_end } else { progress.end };
        let metadata = self.metadata();
        let digests = self.digests && !self.arrays.is_empty();
        if self.history.is_empty() && metadata.is_none() && !digests && !self.statistics {
            return Ok((0, end));
        }
        let mut json = FooterJson { history: self.history.clone(), metadata, ..FooterJson::default() };
        let region = if digests {
            let offset = end.next_multiple_of(8);
            let mut bytes = vec![0; usize::try_from(offset - end).unwrap_or(0)];
            DigestRegion::write(catalog, progress.chunks.iter().map(|c| c.digest), &mut bytes);
            self.store(end, &bytes)?;
            end += bytes.len() as u64;
            Some(Ref { offset, len: end - offset })
        } else {
            None
        };
        let mut zone_digest = None;
        if self.statistics {
            let (len, digest) = self.write_zones(end, plan, progress)?;
            json.zone_maps_ref = Some(Ref { offset: end, len });
            zone_digest = Some(digest);
            end += len;
        }
        json.digests_ref =
            region.map(|region| DigestsRef { region, json: 0, spill: None, zone_maps: zone_digest });
        let mut text = Vec::new();
        json.write(&mut text)?;
        if text.len() > MAX_JSON
            && let Some(metadata) = json.metadata.take()
        {
            let spill = serde_json::to_vec(&metadata)
                .map_err(|e| Error::invalid(format!("the metadata cannot be written as JSON: {e}")))?;
            if spill.len() > MAX_SPILL {
                return Err(Error::limit(
                    "the metadata of a .tet file",
                    spill.len() as u64,
                    MAX_SPILL as u64,
                ));
            }
            self.store(end, &spill)?;
            json.metadata_ref = Some(Ref { offset: end, len: spill.len() as u64 });
            if let Some(digests) = &mut json.digests_ref {
                digests.spill = Some(xxh3_64(&spill));
            }
            end += spill.len() as u64;
            text.clear();
            json.write(&mut text)?;
        }
        if text.len() > MAX_JSON {
            return Err(Error::limit("the footer of a .tet file", text.len() as u64, MAX_JSON as u64)
                .hint("shorten the history"));
        }
        let version = if self.statistics { 2 } else { 1 };
        Tail { json_len: text.len() as u64, version }.write(&mut text);
        self.store(end, &text)?;
        Ok((FLAG_FOOTER, end + text.len() as u64))
    }
}

fn too_many_chunks(rows: u64) -> Error {
    Error::limit("the chunks of one .tet file", rows, isize::MAX as u64 / size_of::<Stored>() as u64)
}

impl Writer for TetWriter {
    fn begin(&mut self, spec: &ArraySpec) -> Result<usize> {
        if self.plan.get().is_some() {
            return Err(Error::invalid("all arrays of a .tet file are declared before its first chunk")
                .in_array(&spec.schema.name));
        }
        let state = ArrayState::new(spec).map_err(|e| e.in_array(&spec.schema.name))?;
        if !self.names.insert(state.record.name.clone()) {
            return Err(Error::invalid("a .tet file holds each name once").in_array(&spec.schema.name));
        }
        self.compressed |= state.level.is_some();
        self.arrays.push(state);
        Ok(self.arrays.len() - 1)
    }

    fn wants_stats(&self, _array: usize) -> bool {
        // Zone maps have rules of their own about null and zero, so `encode` makes them from the cells.
        false
    }

    fn needs_order(&self, _array: usize) -> bool {
        self.compressed
    }

    fn encode<'a>(
        &self,
        array: usize,
        coords: &[u64],
        columns: &[ColumnData<'a>],
        _stats: Vec<ChunkStats>,
        scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        let state = self.array(array)?;
        state.encode(coords, columns, self.statistics, scratch).map_err(|e| state.name_chunk(e, coords))
    }

    fn adopts(&self, array: usize, form: StoredForm) -> bool {
        // Zone maps are made from cells.
        form == StoredForm::Zstd && !self.statistics && self.array(array).is_ok_and(|a| a.level.is_some())
    }

    fn adopt<'a>(&self, array: usize, coords: &[u64], stored: &'a StoredChunk) -> Result<EncodedChunk<'a>> {
        let state = self.array(array)?;
        state.adopt(coords, stored).map_err(|e| state.name_chunk(e, coords))
    }

    fn push(&self, array: usize, chunk: EncodedChunk<'_>) -> Result<()> {
        let state = self.array(array)?;
        let refuse = |detail: String| Err(state.name_chunk(Error::invalid(detail), &chunk.coords));
        let plan = self.plan()?;
        if !state.grid.contains(&chunk.coords) {
            return refuse(format!("there is no such chunk in a grid of {:?}", state.grid.counts()));
        }
        let codec = state.codec();
        let raw = state.tile_bytes(&chunk.coords);
        let [part] = chunk.parts.as_slice() else {
            return refuse(format!("a .tet chunk has one part, not {}", chunk.parts.len()));
        };
        let len = part.bytes.len() as u64;
        if part.codec != codec || part.raw_len != raw || (codec == RAW && len != raw) {
            return refuse(format!("{len} bytes of codec {} are not a tile of {raw} bytes", part.codec));
        }
        let zone = match (self.statistics, chunk.stats.first().and_then(zone_of_stats)) {
            (true, None) => return refuse("the chunk comes without statistics".to_owned()),
            (_, zone) => zone,
        };
        let digest = if self.digests { xxh3_64(&part.bytes) } else { 0 };
        let linear = state.grid.linear(&chunk.coords);
        let row = usize::try_from(plan.first_row[array] + linear).map_err(|_| too_many_chunks(plan.rows))?;
        let mut progress = self.progress();
        if progress.chunks[row].offset != 0 {
            drop(progress);
            return refuse("the chunk was already written".to_owned());
        }
        let offset = match &plan.fixed {
            Some(starts) => starts[array] + state.bytes_before(&chunk.coords),
            None => {
                let offset = progress.end;
                progress.end = offset.checked_add(len).ok_or_else(|| too_many_chunks(plan.rows))?;
                offset
            }
        };
        progress.chunks[row] = Stored { offset, len, digest };
        progress.pushed += 1;
        if let Some(zone) = zone.filter(|_| self.statistics) {
            progress.zones[row] = zone;
        }
        drop(progress);
        self.store(offset, &part.bytes)
    }

    fn set_attributes(&mut self, attributes: Attributes) -> Result<()> {
        let mut file = FileMetadata::default();
        for (name, value) in attributes {
            let slot = match name.as_str() {
                "tool" => &mut file.tool,
                "library_version" => &mut file.library_version,
                "created_at" => &mut file.created_at,
                _ => {
                    return Err(Error::unsupported(format!("the attribute {name:?} of a .tet file")).hint(
                        "a .tet file as a whole has tool, library_version and created_at; arrays have any",
                    ));
                }
            };
            let text = text_of(&name, &value)?;
            check_text(&format!("the file attribute {name}"), &text)?;
            *slot = Some(text);
        }
        self.file = file;
        Ok(())
    }

    fn add_history(&mut self, row: HistoryRow) -> Result<()> {
        check_count("rows of the history", self.history.len() + 1, MAX_HISTORY)?;
        self.history.push(HistoryEvent::from_row(row)?);
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<()> {
        if self.failed.load(Ordering::Relaxed) {
            return Err(Error::invalid("a chunk could not be stored, so the file cannot be whole"));
        }
        if let Some(metadata) = self.metadata() {
            metadata.check()?;
        }
        let plan = self.plan()?;
        let progress = self.progress();
        self.refuse_missing(plan, &progress)?;
        let catalog = self.write_index(plan, &progress)?;
        let (flags, len) = self.write_tail(plan, &progress, catalog)?;
        drop(progress);
        let mut head = plan.head.clone();
        let at = superblock::FLAGS_OFFSET as usize;
        head[at..at + 4].copy_from_slice(&flags.to_le_bytes());
        self.store(0, &head)?;
        // Zero-length writes do not grow a file; this makes its length certain.
        self.staged.set_len(len)?;
        self.staged.publish()
    }
}

/// Zone maps travel from `encode` to `push` as statistics: `nulls` counts NaN as well, as zone maps do.
fn stats_of_zone(dtype: DType, cells: u64, zone: &Zone) -> ChunkStats {
    let scalar = |bytes: &[u8]| Scalar::from_le_bytes(dtype, bytes).map_or(Stat::Absent, Stat::Exact);
    let (min, max) = zone.range.map_or((Stat::Absent, Stat::Absent), |r| (scalar(r.min()), scalar(r.max())));
    ChunkStats { cells, nulls: Stat::Exact(zone.null_count), nans: Stat::Absent, min, max, sum: Stat::Absent }
}

fn zone_of_stats(stats: &ChunkStats) -> Option<Zone> {
    let range = match (&stats.min, &stats.max) {
        (Stat::Exact(min), Stat::Exact(max)) => Some(zone_map::Range::new(min.bytes(), max.bytes())?),
        _ => None,
    };
    Some(Zone { element_count: stats.cells, null_count: *stats.nulls.exact()?, range })
}
