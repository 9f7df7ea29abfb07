//! Options of new arrays that other formats do not have.

use tesseral_codec::filter::Filter;
use tesseral_core::Result;
use tesseral_format::{CreateOption, DeclaredLabel, Domains, OptionTable, OptionType};

use super::spec::filters;
use crate::wire::schema::CellLayout;

/// Default capacity of a sparse tile in cells.
pub(crate) const CAPACITY: u64 = 10_000;

/// Format-specific options of creation.
#[derive(Clone, Debug)]
pub struct TileDbCreateOptions {
    /// Capacity of a sparse tile in cells.
    pub capacity: u64,
    /// Order of tiles.
    pub tile_order: CellLayout,
    /// Filters of coordinates; `None` for the default.
    pub coords: Option<Vec<Filter>>,
    /// Filters of the offsets of variable-length cells; `None` for the default.
    pub offsets: Option<Vec<Filter>>,
    /// Filters of validity; `None` for the default.
    pub validity: Option<Vec<Filter>>,
    /// Domains of the dimensions whose domain in the schema is the current domain.
    pub domains: Domains,
    /// Labels of dimensions.
    pub labels: Vec<DeclaredLabel>,
}

impl Default for TileDbCreateOptions {
    fn default() -> Self {
        Self {
            capacity: CAPACITY,
            tile_order: CellLayout::RowMajor,
            coords: None,
            offsets: None,
            validity: None,
            domains: Domains::new(),
            labels: Vec::new(),
        }
    }
}

const fn filter_list(
    name: &'static str,
    set: fn(&mut TileDbCreateOptions, &str) -> Result<()>,
    default: &'static str,
    description: &'static str,
) -> CreateOption<TileDbCreateOptions> {
    CreateOption { name, kind: OptionType::Text(set), default, description }
}

/// Names of the options.
pub(crate) static OPTIONS: OptionTable<TileDbCreateOptions> = OptionTable(&[
    CreateOption {
        name: "capacity",
        kind: OptionType::Integer(|options, cells| options.capacity = cells.max(1)),
        default: "10000",
        description: "Capacity of a sparse tile in cells.",
    },
    CreateOption {
        name: "tile_order",
        kind: OptionType::Choice(&["row-major", "col-major"], |options, order| {
            options.tile_order =
                if order == "col-major" { CellLayout::ColMajor } else { CellLayout::RowMajor };
        }),
        default: "row-major",
        description: "Order of tiles.",
    },
    filter_list(
        "coordinates",
        |options, list| {
            options.coords = Some(filters(list)?);
            Ok(())
        },
        "zstd",
        "Filters of coordinates, such as `byteshuffle,zstd:5`.",
    ),
    filter_list(
        "offsets",
        |options, list| {
            options.offsets = Some(filters(list)?);
            Ok(())
        },
        "zstd",
        "Filters of the offsets of variable-length cells.",
    ),
    filter_list(
        "validity",
        |options, list| {
            options.validity = Some(filters(list)?);
            Ok(())
        },
        "rle",
        "Filters of the validity of nullable cells.",
    ),
    CreateOption {
        name: "domains",
        kind: OptionType::Domains(|options, domains| options.domains = domains),
        default: "the domain of each dimension",
        description: "Domains that dimensions can be expanded to, if their initial domain is smaller.",
    },
    CreateOption {
        name: "labels",
        kind: OptionType::Labels(|options, labels| options.labels = labels),
        default: "none",
        description: "Labels of dimensions: arrays of coordinates below the array, filled by appends.",
    },
]);
