//! The opened container.

use std::sync::{Arc, OnceLock};

use serde_json::json;
use tesseral_core::{Attributes, Error, HistoryRow, Limits, Result, Value};
use tesseral_format::convention::KEY;
use tesseral_format::{ArraySource, ContainerSource, MemoryBudget};
use tesseral_store::Store;
use xxhash_rust::xxh3::xxh3_64;

use crate::array::TetArray;
use crate::layout::{Digests, FileLayout};
use crate::lookup::{IndexLookup, RowTable};
use crate::source::FileBytes;
use crate::wire::Cursor;
use crate::wire::chunk_index::{INDEX_VERSION, codec_name};
use crate::wire::directory::name_of;
use crate::wire::footer::FileRange;
use crate::wire::statistics_region::{self, RowStatistics, StatisticsRegion};
use crate::wire::superblock::LAYOUT_VERSION;
use crate::wire::zone_map::{self, Zone};

/// State shared by the arrays of one file.
#[derive(Debug)]
pub(crate) struct TetCatalog {
    pub store: Arc<dyn Store>,
    /// Name of the file's object in the store.
    pub name: String,
    pub layout: FileLayout,
    pub limits: Limits,
    /// The file is truncated: incomplete chunks are left out of plans instead of failing them.
    pub truncated: bool,
    table: OnceLock<RowTable>,
    zones: OnceLock<Option<Vec<Option<Zone>>>>,
    statistics: OnceLock<Option<ChunkStatistics>>,
}

/// Statistics of chunks, and where they are.
#[derive(Debug)]
pub(crate) struct ChunkStatistics {
    pub place: FileRange,
    pub region: StatisticsRegion,
}

impl TetCatalog {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        name: String,
        layout: FileLayout,
        limits: Limits,
        truncated: bool,
    ) -> Self {
        Self {
            store,
            name,
            layout,
            limits,
            truncated,
            table: OnceLock::new(),
            zones: OnceLock::new(),
            statistics: OnceLock::new(),
        }
    }

    /// Returns the row of the chunk at a grid position of a dataset.
    pub(crate) fn find_row(&self, dataset: usize, linear: u64) -> IndexLookup {
        if let Some(first) = &self.layout.first_row {
            return first.get(dataset).map_or(IndexLookup::Missing, |first| IndexLookup::Row(first + linear));
        }
        self.table.get_or_init(|| RowTable::build(&self.layout)).find(dataset as u64, linear)
    }

    /// Returns the zone map of a row. Zone maps are read on first use; damaged ones are ignored.
    pub(crate) fn zone(&self, row: u64) -> Option<Zone> {
        let zones = self.zones.get_or_init(|| self.read_zones().ok().flatten());
        zones.as_ref()?.get(usize::try_from(row).ok()?).copied()?
    }

    /// Returns the statistics of a chunk of a dataset, and the values that they count as missing. They are read on first use;
    /// damaged ones are ignored.
    pub(crate) fn statistics(&self, dataset: usize, row: u64) -> Option<(RowStatistics<'_>, &[[u8; 8]])> {
        let held = self.statistics.get_or_init(|| self.read_statistics().ok().flatten());
        let region = &held.as_ref()?.region;
        // Rows of the table are in canonical order, as those of the index.
        let own = region.datasets.get(dataset)?;
        let first = *self.layout.first_row.as_ref()?.get(dataset)?;
        let number = own.first_row?.checked_add(row.checked_sub(first)?)?;
        Some((region.row(number)?, &own.missing))
    }

    /// Reads the statistics of chunks, if the file has any.
    pub(crate) fn read_statistics(&self) -> Result<Option<ChunkStatistics>> {
        let layout = &self.layout;
        let digest = layout.json().and_then(|json| json.digests_ref?.statistics);
        let absent = |detail: &str, offset: Option<u64>| match digest {
            // The footer declares them.
            Some(_) => Err(Error::corrupt("statistics region", &layout.object, offset, detail.to_owned())),
            None => Ok(None),
        };
        let Some(offset) = layout.statistics_offset() else { return absent("no digest region", None) };
        let head_end =
            offset.checked_add(statistics_region::HEAD_LEN).filter(|end| *end <= layout.payload_len);
        let Some(head_end) = head_end.filter(|_| !layout.head.datasets.is_empty()) else {
            return absent("outside the payload area", Some(offset));
        };
        let source = FileBytes::open(&self.store, &self.name)?;
        let head = source.get(offset..head_end, "statistics region")?;
        if head.get(..4) != Some(&statistics_region::MAGIC[..]) {
            return absent("missing", Some(offset));
        }
        let len = statistics_region::total_len(&mut Cursor::at_offset(&layout.object, &head, offset))?;
        self.limits.check_metadata(len)?;
        let place = FileRange { offset, len };
        let Some(end) = place.end().filter(|end| *end <= layout.payload_len) else {
            return absent("outside the payload area", Some(offset));
        };
        let bytes = source.get(offset..end, "statistics region")?;
        let count = layout.head.datasets.len();
        let region = StatisticsRegion::parse(&bytes, &layout.object, offset, count)?;
        if digest.is_some_and(|digest| digest != xxh3_64(&bytes)) {
            return absent("digest mismatch", Some(offset));
        }
        if region.catalog != layout.head.catalog_digest() {
            return absent("digest mismatch of directory and chunk index", Some(offset));
        }
        Ok(Some(ChunkStatistics { place, region }))
    }

    /// Reads the zone maps, if the file has any.
    pub(crate) fn read_zones(&self) -> Result<Option<Vec<Option<Zone>>>> {
        let [Some(zones), _] = self.layout.accelerators() else { return Ok(None) };
        let text = self.read_ref(zones, "zone maps")?;
        let digest = self.layout.json().and_then(|json| json.digests_ref?.zone_maps);
        if digest.is_some_and(|digest| digest != xxh3_64(&text)) {
            let detail = "digest mismatch";
            return Err(Error::corrupt("zone maps", &self.layout.object, zones.offset, detail));
        }
        let (head, depth) = (&self.layout.head, self.limits.depth);
        zone_map::parse(&text, &self.layout.object, zones.offset, depth, &head.datasets, head.rows())
            .map(Some)
    }

    /// Returns the bytes of a reference.
    pub(crate) fn read_ref(&self, span: FileRange, what: &str) -> Result<bytes::Bytes> {
        self.limits.check_metadata(span.len)?;
        let end = span.end().ok_or_else(|| {
            Error::corrupt(what, &self.layout.object, None, format!("{} bytes at {}", span.len, span.offset))
        })?;
        FileBytes::open(&self.store, &self.name)?.get(span.offset..end, what)
    }
}

/// An opened `.tet` file, or the current generation of a package.
#[derive(Debug)]
pub struct TetContainer {
    catalog: Arc<TetCatalog>,
    attributes: Attributes,
    history: Vec<HistoryRow>,
}

impl TetContainer {
    pub(crate) fn new(catalog: TetCatalog) -> Self {
        Self::shared(Arc::new(catalog))
    }

    pub(crate) fn shared(catalog: Arc<TetCatalog>) -> Self {
        let file = catalog.layout.metadata().and_then(|m| m.file.as_ref());
        let fields = file.into_iter().flat_map(|file| file.0.fields());
        let marker =
            catalog.layout.metadata().and_then(|m| m.markers.get("")).map(|text| (KEY, text.as_str()));
        let attributes =
            fields.chain(marker).map(|(name, text)| (name.to_owned(), Value::from(text))).collect();
        let history = catalog.layout.json().map_or(&[][..], |json| &json.history);
        let history = history.iter().map(|event| event.to_row()).collect();
        Self { catalog, attributes, history }
    }
}

impl ContainerSource for TetContainer {
    fn format(&self) -> &'static str {
        crate::ID
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.catalog.store
    }

    fn len(&self) -> usize {
        self.catalog.layout.head.datasets.len()
    }

    fn name(&self, index: usize) -> &str {
        self.catalog.layout.head.datasets.get(index).map_or("", |dataset| &dataset.name)
    }

    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>> {
        if index >= self.len() {
            let names = (0..self.len()).map(|i| self.name(i).to_owned()).collect();
            return Err(Error::not_found("array", index.to_string(), names));
        }
        Ok(Arc::new(TetArray::new(&self.catalog, index)?))
    }

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn history(&self) -> &[HistoryRow] {
        &self.history
    }

    fn memory_budget(&self) -> Option<MemoryBudget> {
        let header = &self.catalog.layout.head.header;
        match (header.memory_budget_bytes, header.memory_budget_percent_bps) {
            (0, 0) => None,
            (0, bps) => Some(MemoryBudget::BasisPoints(bps)),
            (bytes, _) => Some(MemoryBudget::Bytes(bytes.into())),
        }
    }

    fn details(&self) -> serde_json::Value {
        let layout = &self.catalog.layout;
        let (superblock, header) = (&layout.head.superblock, &layout.head.header);
        let span = |r: Option<FileRange>| r.map(|r| json!({"offset": r.offset, "len": r.len}));
        let footer = layout.footer.as_ref().map(|footer| {
            json!({
                "version": footer.tail.version,
                "json_offset": footer.json_offset,
                "json_len": footer.tail.json_len,
                "metadata_ref": span(footer.json.metadata_ref),
                "zone_maps_ref": span(footer.json.zone_maps_ref),
                "secondary_index_ref": span(footer.json.secondary_index_ref),
            })
        });
        let digests = match &layout.digests {
            Digests::Absent => serde_json::Value::Null,
            Digests::Present { region, keyed, .. } => {
                json!({"algorithm": "xxh3-64", "offset": region.offset, "len": region.len, "in_footer": keyed})
            }
            Digests::Unusable { region, error } => {
                json!({"offset": region.offset, "len": region.len, "error": error.to_string()})
            }
        };
        let datasets =
            layout.head.datasets.iter().zip(&layout.codecs).enumerate().map(|(id, (dataset, codecs))| {
                let names = [0, 1].into_iter().filter(|c| codecs >> c & 1 == 1).filter_map(codec_name);
                json!({
                    "id": id,
                    "name": dataset.name,
                    "dtype": dataset.dtype,
                    "dtype_name": name_of(dataset.dtype),
                    "shape": dataset.shape.as_slice(),
                    "chunk_shape": dataset.chunk_shape.as_slice(),
                    "codecs": names.collect::<Vec<_>>(),
                })
            });
        json!({
            "object": self.catalog.name,
            "file_len": layout.file_len,
            "payload_len": layout.payload_len,
            "superblock": {
                "layout_version": LAYOUT_VERSION,
                "dataset_count": superblock.dataset_count,
                "flags": superblock.flags,
                "chunk_index_offset": superblock.chunk_index_offset,
                "chunk_index_length": superblock.chunk_index_length,
            },
            "index": {
                "index_version": INDEX_VERSION,
                "entry_count": header.entry_count,
                "memory_budget_percent_bps": header.memory_budget_percent_bps,
                "memory_budget_bytes": header.memory_budget_bytes,
                "canonical": layout.first_row.is_some(),
            },
            "footer": footer,
            "digests": digests,
            "datasets": datasets.collect::<Vec<_>>(),
        })
    }
}
