//! Where tiles and fragments of a dense array lie, in positions.

use tesseral_codec::filter::Kind;
use tesseral_core::grid::Touched;
use tesseral_core::{ChunkGrid, Coords, Error, Order, Region, Result, Selection, Slice};

use crate::frame::Frame;
use crate::wire::datatype::Datatype;
use crate::wire::schema::{Dimension, Layout, Range, Schema};

/// An integer coordinate; `None` for other datatypes and lengths.
pub(crate) fn integer(datatype: Datatype, bytes: &[u8]) -> Option<i128> {
    if bytes.len() != datatype.size() || !datatype.is_integral() {
        return None;
    }
    let signed = datatype.word().kind != Kind::Unsigned;
    let negative = signed && bytes.last()? & 0x80 != 0;
    let mut wide = if negative { [0xFF; 16] } else { [0; 16] };
    wide[..bytes.len()].copy_from_slice(bytes);
    Some(i128::from_le_bytes(wide))
}

/// First coordinate and number of coordinates of a range; `None` when they cannot be counted.
pub(crate) fn span(dim: &Dimension, range: &Range) -> Option<(i128, u64)> {
    let (low, high) = (integer(dim.datatype, &range.0)?, integer(dim.datatype, &range.1)?);
    let count = high.checked_sub(low)?.checked_add(1)?;
    Some((low, u64::try_from(count).ok()?))
}

/// One dimension of a dense array.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Axis {
    /// First coordinate of the domain, where the grid of tiles begins.
    anchor: i128,
    /// Coordinate of position 0.
    origin: i128,
    /// Positions.
    count: u64,
    /// Positions of a tile.
    extent: u64,
    /// Coordinates of the first tile in front of position 0, which are no part of the array.
    before: u64,
    datatype: Datatype,
}

/// The grid of a dense array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    axes: Vec<Axis>,
    tile_order: Layout,
    /// Order of the cells of a tile.
    pub cell_order: Order,
    /// Cells of a tile.
    pub cells: u64,
}

/// Where a fragment lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Its cells, clipped to the array.
    pub region: Region,
    /// Grid coordinates of its first tile.
    first: Coords,
    /// Tiles along each dimension.
    counts: Coords,
    /// Tiles in all.
    pub tiles: u64,
}

impl Geometry {
    pub(crate) fn new(schema: &Schema, object: &str) -> Result<Self> {
        let corrupt = |detail: String| Error::corrupt("the schema", object, None, detail);
        let mut axes = Vec::new();
        for (d, dim) in schema.dims.iter().enumerate() {
            let odd =
                || corrupt(format!("dimension {:?} of a dense array has no domain of integers", dim.name));
            let domain = dim.domain.as_ref().ok_or_else(odd)?;
            let (anchor, _) = span(dim, domain).ok_or_else(odd)?;
            let used = schema.current_domain.as_ref().map_or(domain, |ranges| &ranges[d]);
            let (origin, count) = span(dim, used).filter(|(o, _)| *o >= anchor).ok_or_else(odd)?;
            let extent = dim.extent.as_ref().and_then(|e| integer(dim.datatype, e));
            let extent = extent.and_then(|e| u64::try_from(e).ok()).filter(|e| *e > 0);
            let extent =
                extent.ok_or_else(|| corrupt(format!("dimension {:?} has no tile extent", dim.name)))?;
            // Less than an extent.
            let before = u64::try_from((origin - anchor) % i128::from(extent)).map_err(|_| odd())?;
            axes.push(Axis { anchor, origin, count, extent, before, datatype: dim.datatype });
        }
        let cells = axes.iter().try_fold(1_u64, |n, axis| n.checked_mul(axis.extent));
        let cells = cells.ok_or_else(|| corrupt("a tile has more cells than can be counted".to_owned()))?;
        let cell_order = match schema.cell_order {
            Layout::ColMajor => Order::ColMajor,
            _ => Order::RowMajor,
        };
        Ok(Self { axes, tile_order: schema.tile_order, cell_order, cells })
    }

    /// Whether position 0 is where a tile begins, along every dimension.
    pub(crate) fn is_aligned(&self) -> bool {
        self.axes.iter().all(|axis| axis.before == 0)
    }

    /// The tiles that a selection touches.
    pub(crate) fn touched(&self, selection: &Selection) -> Result<Touched> {
        let long = || Error::limit("the positions of a dimension", u64::MAX, u64::MAX);
        let shape = self.axes.iter().map(|axis| axis.count.checked_add(axis.before));
        let shape = shape.collect::<Option<Coords>>().ok_or_else(long)?;
        let grid = ChunkGrid::new(&shape, &self.chunk_shape())?;
        if self.is_aligned() {
            return Ok(grid.touched(selection));
        }
        // Counted from where the first tile begins.
        let slices = selection.slices().iter().zip(&self.axes).map(|(slice, axis)| Slice {
            start: slice.start + axis.before,
            end: slice.end + axis.before,
            step: slice.step,
        });
        Ok(grid.touched(&Selection::new(slices, &shape)?))
    }

    /// Of a tile that begins before the array does, the cells that are part of it; `None` for others.
    pub(crate) fn cut(&self, coords: &[u64]) -> Option<Frame> {
        let axes = || self.axes.iter().zip(coords);
        if !axes().any(|(axis, c)| *c == 0 && axis.before > 0) {
            return None;
        }
        let tile = Region::new(self.axes.iter().map(|axis| (0, axis.extent)));
        let cells = axes().map(|(axis, c)| (if *c == 0 { axis.before } else { 0 }, axis.extent));
        Some(Frame::new(tile, Region::new(cells), self.cell_order))
    }

    pub(crate) fn shape(&self) -> Coords {
        self.axes.iter().map(|axis| axis.count).collect()
    }

    pub(crate) fn chunk_shape(&self) -> Coords {
        self.axes.iter().map(|axis| axis.extent).collect()
    }

    /// Where a fragment with this non-empty domain lies.
    pub(crate) fn place(&self, domain: &[Range], object: &str) -> Result<Placement> {
        let corrupt = |detail: &str| Error::corrupt("the non-empty domain", object, None, detail);
        let mut bounds = Vec::new();
        let (mut first, mut counts) = (Coords::new(), Coords::new());
        for (axis, range) in self.axes.iter().zip(domain) {
            let ends = (integer(axis.datatype, &range.0), integer(axis.datatype, &range.1));
            let (Some(low), Some(high)) = ends else { return Err(corrupt("it does not fit the dimensions")) };
            if low > high || low < axis.anchor {
                return Err(corrupt("it lies outside the domain"));
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
        Ok(Placement { region: Region::new(bounds), first, counts, tiles })
    }

    /// The box of positions in coordinates.
    pub(crate) fn ranges(&self, region: &Region) -> Result<Vec<Range>> {
        let one = |(axis, &(start, end)): (&Axis, &(u64, u64))| {
            let low = axis.origin + i128::from(start);
            let high = axis.origin + i128::from(end) - 1;
            let bytes = |n: i128| n.to_le_bytes()[..axis.datatype.size()].to_vec();
            let range = (bytes(low), bytes(high));
            let fits = integer(axis.datatype, &range.1) == Some(high);
            fits.then_some(range).ok_or_else(|| Error::invalid(format!("{high} lies outside the dimension")))
        };
        self.axes.iter().zip(region.bounds()).map(one).collect()
    }

    /// All positions of the tile at grid coordinates, past the array's end too, but none before its beginning.
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

    /// The number of a tile in a fragment; `None` when the fragment does not have it.
    pub(crate) fn number(&self, placement: &Placement, coords: &[u64]) -> Option<u64> {
        let mut linear = 0_u64;
        let rank = self.axes.len();
        for i in 0..rank {
            let d = if self.tile_order == Layout::ColMajor { rank - 1 - i } else { i };
            let at = coords[d].checked_sub(placement.first[d]).filter(|at| *at < placement.counts[d])?;
            linear = linear.checked_mul(placement.counts[d])?.checked_add(at)?;
        }
        Some(linear)
    }

    /// Grid coordinates of a fragment's tile.
    pub(crate) fn coords(&self, placement: &Placement, mut number: u64) -> Coords {
        let rank = self.axes.len();
        let mut coords = placement.first.clone();
        for i in (0..rank).rev() {
            let d = if self.tile_order == Layout::ColMajor { rank - 1 - i } else { i };
            let count = placement.counts[d].max(1);
            coords[d] = coords[d].saturating_add(number % count);
            number /= count;
        }
        coords
    }
}
