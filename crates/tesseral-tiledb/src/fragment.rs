//! One fragment: its footer is read first, other metadata on demand.

mod files;
mod footers;
mod sections;
mod tiles;

use std::sync::{Arc, OnceLock};

use tesseral_core::{Error, Result, Scalar};
use tesseral_store::StoreExt;

pub(crate) use self::footers::{FooterBytes, read_footer, read_footers};
pub(crate) use self::tiles::check_blocks;

use self::footers::MetadataEnd;
use self::sections::SlotSections;
use crate::directory::FragmentEntry;
use crate::geometry::{FragmentExtent, Geometry};
use crate::metadata_loader::{MetadataLoader, join};
use crate::model::StoredSchema;
use crate::scatter::ScatteredCells;
use crate::wire::footer::{Footer, schema_name};

/// Name of a fragment's metadata file.
pub(crate) const METADATA: &str = "__fragment_metadata.tdb";

/// Maximum number of tiles of one fragment.
pub(crate) const MAX_TILES: u64 = 1 << 40;

/// Minimum and maximum coordinate along each dimension.
pub(crate) type Bounds = Box<[(Scalar, Scalar)]>;

/// A visible fragment.
#[derive(Debug)]
pub(crate) struct Fragment {
    pub entry: FragmentEntry,
    pub schema: Arc<StoredSchema>,
    pub footer: Footer,
    /// Placement of a dense fragment; `None` if it has no cells.
    pub placement: Option<FragmentExtent>,
    /// The cells of a sparse fragment of a dense array.
    pub scattered: Option<ScatteredCells>,
    /// Number of tiles.
    pub tiles: u64,
    /// Index of its first object.
    pub objects: u32,
    footer_len: u64,
    /// Digest of the footer.
    footer_digest: u64,
    /// The end of the fragment's own metadata file; set once it was read.
    metadata_end: OnceLock<MetadataEnd>,
    /// Created when a slot is first used: most slots of a hundred thousand fragments never are.
    slots: Box<[OnceLock<Box<SlotSections>>]>,
    boxes: OnceLock<Vec<Bounds>>,
}

impl Fragment {
    /// Opens a fragment. `schemas` resolves a schema by name.
    pub(crate) fn open(
        reader: &MetadataLoader,
        entry: FragmentEntry,
        FooterBytes { bytes, own }: FooterBytes,
        geometry: Option<&Geometry>,
        schemas: impl FnOnce(&str) -> Option<Arc<StoredSchema>>,
    ) -> Result<Self> {
        crate::wire::check_version(entry.version)?;
        let object = join(&entry.folder, METADATA);
        let described = reader.store.describe(&object);
        let footer_at = own.as_ref().map(|own| own.footer_at);
        let name = schema_name(&described, &bytes)?;
        let schema = schemas(&name).ok_or_else(|| {
            Error::corrupt("the footer", &described, footer_at, format!("unknown schema {name:?}"))
        })?;
        let footer = Footer::parse(&described, &bytes, &schema.wire)?;
        if footer.is_zipped() && schema.wire.version >= 5 {
            let detail = format!("version {} of an array of version {}", footer.version, schema.wire.version);
            return Err(Error::corrupt("the footer", &described, footer_at, detail));
        }
        let scattered = footer.is_zipped() && !footer.dense && !schema.wire.sparse;
        if footer.dense == schema.wire.sparse && !scattered {
            let detail = "fragment and array differ in being dense or sparse";
            return Err(Error::corrupt("the footer", &described, footer_at, detail));
        }
        let placement = match (&footer.domain, geometry) {
            (Some(domain), Some(geometry)) => Some(geometry.locate_fragment(domain, &described)?),
            _ => None,
        };
        let (placement, scattered) = match placement {
            Some(around) if scattered => (None, Some(ScatteredCells::new(around.region))),
            other => (other, None),
        };
        let tiles = match (&placement, footer.dense) {
            (Some(placement), _) => placement.tiles,
            (None, true) => 0,
            (None, false) => footer.tiles,
        };
        if tiles >= MAX_TILES {
            return Err(Error::limit("the tiles of a fragment", tiles, MAX_TILES));
        }
        let capacity = schema.wire.capacity;
        if !footer.dense && tiles > 0 && (footer.last_tile_cells == 0 || footer.last_tile_cells > capacity) {
            let detail =
                format!("last tile with {} cells exceeds the capacity {capacity}", footer.last_tile_cells);
            return Err(Error::corrupt("the footer", &described, footer_at, detail));
        }
        let slots = footer.files[0].len();
        Ok(Self {
            entry,
            schema,
            placement,
            scattered,
            tiles,
            objects: 0,
            footer_len: bytes.len() as u64,
            footer_digest: xxhash_rust::xxh3::xxh3_64(&bytes),
            metadata_end: own.map_or_else(OnceLock::new, OnceLock::from),
            slots: (0..slots).map(|_| OnceLock::new()).collect(),
            boxes: OnceLock::new(),
            footer,
        })
    }

    /// Number of cells in a tile.
    pub(crate) fn cells(&self, tile: u64, geometry: Option<&Geometry>) -> u64 {
        match geometry {
            Some(geometry) if self.scattered.is_none() => geometry.cells,
            _ if tile + 1 == self.tiles => self.footer.last_tile_cells,
            _ => self.schema.wire.capacity,
        }
    }

    /// Number of cells of a sparse fragment.
    pub(crate) fn total_cells(&self) -> u64 {
        match self.tiles {
            0 => 0,
            n => {
                (n - 1).saturating_mul(self.schema.wire.capacity).saturating_add(self.footer.last_tile_cells)
            }
        }
    }
}
