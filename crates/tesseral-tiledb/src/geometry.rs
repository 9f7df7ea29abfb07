//! Placement of tiles and fragments of a dense array, in positions.

use tesseral_codec::filter::ElementKind;
use tesseral_core::grid::Touched;
use tesseral_core::{ChunkGrid, Coords, Error, Order, Region, Result, Selection, Slice};

use crate::padded_tile::PaddedTile;
use crate::wire::datatype::Datatype;
use crate::wire::schema::{CellLayout, Schema, StoredDimension, StoredRange};

/// Parses an integer coordinate; `None` for other datatypes and lengths.
pub(crate) fn integer(datatype: Datatype, bytes: &[u8]) -> Option<i128> {
    if bytes.len() != datatype.size() || !datatype.is_integral() {
        return None;
    }
    let signed = datatype.word().kind != ElementKind::Unsigned;
    let negative = signed && bytes.last()? & 0x80 != 0;
    let mut wide = if negative { [0xFF; 16] } else { [0; 16] };
    wide[..bytes.len()].copy_from_slice(bytes);
    Some(i128::from_le_bytes(wide))
}

/// First coordinate and number of coordinates of a range; `None` if they are not countable.
pub(crate) fn span(dim: &StoredDimension, range: &StoredRange) -> Option<(i128, u64)> {
    let (low, high) = (integer(dim.datatype, &range.0)?, integer(dim.datatype, &range.1)?);
    let count = high.checked_sub(low)?.checked_add(1)?;
    Some((low, u64::try_from(count).ok()?))
}

/// One dimension of a dense array.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DomainAxis {
    /// First coordinate of the domain, the origin of the tile grid.
    anchor: i128,
    /// Coordinate of position 0.
    origin: i128,
    /// Number of positions.
    count: u64,
    /// Tile extent in positions.
    extent: u64,
    /// Number of coordinates of the first tile before position 0, which are outside the array.
    before: u64,
    datatype: Datatype,
}

/// The grid of a dense array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    axes: Vec<DomainAxis>,
    tile_order: CellLayout,
    /// Order of the cells of a tile.
    pub cell_order: Order,
    /// Number of cells of a tile.
    pub cells: u64,
}

/// Placement of a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FragmentExtent {
    /// Region of its cells, clipped to the array.
    pub region: Region,
    /// Grid coordinates of its first tile.
    first: Coords,
    /// Number of tiles along each dimension.
    counts: Coords,
    /// Total number of tiles.
    pub tiles: u64,
}

impl Geometry {
    pub(crate) fn new(schema: &Schema, object: &str) -> Result<Self> {
        let corrupt = |detail: String| Error::corrupt("the schema", object, None, detail);
        let mut axes = Vec::new();
        for (d, dim) in schema.dims.iter().enumerate() {
            let odd = || corrupt(format!("dimension {:?} of a dense array has no integer domain", dim.name));
            let domain = dim.domain.as_ref().ok_or_else(odd)?;
            let (anchor, _) = span(dim, domain).ok_or_else(odd)?;
            let used = schema.current_domain.as_ref().map_or(domain, |ranges| &ranges[d]);
            let (origin, count) = span(dim, used).filter(|(o, _)| *o >= anchor).ok_or_else(odd)?;
            let extent = dim.extent.as_ref().and_then(|e| integer(dim.datatype, e));
            let extent = extent.and_then(|e| u64::try_from(e).ok()).filter(|e| *e > 0);
            let extent =
                extent.ok_or_else(|| corrupt(format!("dimension {:?} has no tile extent", dim.name)))?;
            // Less than the extent.
            let before = u64::try_from((origin - anchor) % i128::from(extent)).map_err(|_| odd())?;
            axes.push(DomainAxis { anchor, origin, count, extent, before, datatype: dim.datatype });
        }
        let cells = axes.iter().try_fold(1_u64, |n, axis| n.checked_mul(axis.extent));
        let cells = cells.ok_or_else(|| corrupt("the number of cells of a tile overflows".to_owned()))?;
        let cell_order = match schema.cell_order {
            CellLayout::ColMajor => Order::ColMajor,
            _ => Order::RowMajor,
        };
        Ok(Self { axes, tile_order: schema.tile_order, cell_order, cells })
    }

    /// Returns whether position 0 is at the start of a tile along every dimension.
    pub(crate) fn is_aligned(&self) -> bool {
        self.axes.iter().all(|axis| axis.before == 0)
    }

    /// Returns the tiles that a selection touches.
    pub(crate) fn touched(&self, selection: &Selection) -> Result<Touched> {
        let long = || Error::limit("the positions of a dimension", u64::MAX, u64::MAX);
        let shape = self.axes.iter().map(|axis| axis.count.checked_add(axis.before));
        let shape = shape.collect::<Option<Coords>>().ok_or_else(long)?;
        let grid = ChunkGrid::uncounted(&shape, &self.chunk_shape())?;
        if self.is_aligned() {
            return Ok(grid.touched(selection));
        }
        // Relative to the start of the first tile.
        let slices = selection.slices().iter().zip(&self.axes).map(|(slice, axis)| Slice {
            start: slice.start + axis.before,
            end: slice.end + axis.before,
            step: slice.step,
        });
        Ok(grid.touched(&Selection::new(slices, &shape)?))
    }

    /// Returns the cells of a tile that are part of the array, if it begins before the array; otherwise `None`.
    pub(crate) fn padded_tile(&self, coords: &[u64]) -> Option<PaddedTile> {
        let axes = || self.axes.iter().zip(coords);
        if !axes().any(|(axis, c)| *c == 0 && axis.before > 0) {
            return None;
        }
        let tile = Region::new(self.axes.iter().map(|axis| (0, axis.extent)));
        let cells = axes().map(|(axis, c)| (if *c == 0 { axis.before } else { 0 }, axis.extent));
        Some(PaddedTile::new(tile, Region::new(cells), self.cell_order))
    }

    pub(crate) fn shape(&self) -> Coords {
        self.axes.iter().map(|axis| axis.count).collect()
    }

    pub(crate) fn chunk_shape(&self) -> Coords {
        self.axes.iter().map(|axis| axis.extent).collect()
    }

    /// Returns the placement of a fragment with this non-empty domain.
    pub(crate) fn locate_fragment(&self, domain: &[StoredRange], object: &str) -> Result<FragmentExtent> {
        let corrupt = |detail: &str| Error::corrupt("the non-empty domain", object, None, detail);
        let mut bounds = Vec::new();
        let (mut first, mut counts) = (Coords::new(), Coords::new());
        for (axis, range) in self.axes.iter().zip(domain) {
            let ends = (integer(axis.datatype, &range.0), integer(axis.datatype, &range.1));
            let (Some(low), Some(high)) = ends else {
                return Err(corrupt("it does not match the dimensions"));
            };
            if low > high || low < axis.anchor {
                return Err(corrupt("it is outside the domain"));
            }
            let clip = |at: i128| u64::try_from(at.max(0)).unwrap_or(u64::MAX).min(axis.count);
            bounds.push((clip(low - axis.origin), clip(high + 1 - axis.origin)));
            let extent = i128::from(axis.extent);
            let tile = |at: i128| (at - axis.anchor) / extent;
            let count = tile(high) - tile(low) + 1;
            // Relative to the tile of position 0.
            let before = (axis.origin - axis.anchor) / extent;
            let relative = u64::try_from(tile(low) - before);
            first.push(relative.map_err(|_| corrupt("it begins before the current domain"))?);
            counts.push(u64::try_from(count).map_err(|_| corrupt("it has too many tiles"))?);
        }
        let tiles = counts.iter().try_fold(1_u64, |n, c| n.checked_mul(*c));
        let tiles = tiles.ok_or_else(|| corrupt("it has too many tiles"))?;
        Ok(FragmentExtent { region: Region::new(bounds), first, counts, tiles })
    }

    /// The position of a cell whose coordinates are at an index of columns; `None` outside the array.
    pub(crate) fn position(&self, columns: &[Vec<u8>], cell: u64) -> Option<Coords> {
        let mut at = Coords::new();
        for (axis, column) in self.axes.iter().zip(columns) {
            let size = axis.datatype.size();
            let start = usize::try_from(cell).ok()?.checked_mul(size)?;
            let coordinate = integer(axis.datatype, column.get(start..start.checked_add(size)?)?)?;
            at.push(u64::try_from(coordinate - axis.origin).ok().filter(|at| *at < axis.count)?);
        }
        Some(at)
    }

    /// Converts a region to coordinates.
    pub(crate) fn ranges(&self, region: &Region) -> Result<Vec<StoredRange>> {
        let axis_range = |(axis, &(start, end)): (&DomainAxis, &(u64, u64))| {
            let low = axis.origin + i128::from(start);
            let high = axis.origin + i128::from(end) - 1;
            let bytes = |n: i128| n.to_le_bytes()[..axis.datatype.size()].to_vec();
            let range = (bytes(low), bytes(high));
            let fits = integer(axis.datatype, &range.1) == Some(high);
            fits.then_some(range).ok_or_else(|| Error::invalid(format!("{high} is outside the dimension")))
        };
        self.axes.iter().zip(region.bounds()).map(axis_range).collect()
    }

    /// Positions of the tile at grid coordinates, including those after the end of the array, but none before its start.
    pub(crate) fn tile(&self, coords: &[u64]) -> Option<Region> {
        let mut bounds = Vec::with_capacity(coords.len());
        for (axis, &c) in self.axes.iter().zip(coords) {
            let start = c.checked_mul(axis.extent)?;
            bounds.push((
                start.saturating_sub(axis.before),
                start.checked_add(axis.extent)?.checked_sub(axis.before)?,
            ));
        }
        Some(Region::new(bounds))
    }

    /// Returns the index of a tile in a fragment; `None` if the fragment does not contain it.
    pub(crate) fn number(&self, placement: &FragmentExtent, coords: &[u64]) -> Option<u64> {
        let mut linear = 0_u64;
        let rank = self.axes.len();
        for i in 0..rank {
            let d = if self.tile_order == CellLayout::ColMajor { rank - 1 - i } else { i };
            let at = coords[d].checked_sub(placement.first[d]).filter(|at| *at < placement.counts[d])?;
            linear = linear.checked_mul(placement.counts[d])?.checked_add(at)?;
        }
        Some(linear)
    }

    /// Returns the grid coordinates of a fragment's tile.
    pub(crate) fn coords(&self, placement: &FragmentExtent, mut number: u64) -> Coords {
        let rank = self.axes.len();
        let mut coords = placement.first.clone();
        for i in (0..rank).rev() {
            let d = if self.tile_order == CellLayout::ColMajor { rank - 1 - i } else { i };
            let count = placement.counts[d].max(1);
            coords[d] = coords[d].saturating_add(number % count);
            number /= count;
        }
        coords
    }
}
