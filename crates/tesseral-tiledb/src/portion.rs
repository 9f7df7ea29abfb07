//! Portions of arrays of very many fragments.
//!
//! An open fragment takes some kilobytes. Of arrays with more than a few thousand of them only the box of each fragment is kept, and
//! an operation that reads the array part by part opens the fragments of one part at a time.

use std::cmp::Ordering;

use tesseral_core::{Region, Result, Scalar};
use tesseral_format::{CoordinateRanges, Request, Target};

use crate::array::TileDbArray;
use crate::fragment::{Bounds, Fragment};
use crate::fragments::Fragments;
use crate::sparse::meets;

/// Number of fragments that an array keeps open.
pub(crate) const KEPT: usize = 1024;
/// Approximate number of fragments of a part of a sparse array.
const TOGETHER: usize = 1024;
/// A division opens each fragment this many times at most, on average.
const REPEATS: usize = 4;

/// The box of a fragment.
#[derive(Debug)]
pub(crate) enum FragmentBox {
    /// It has no cells, or its box is not known.
    Unknown,
    /// Positions in a dense array.
    Region(Region),
    /// Coordinates in a sparse array.
    Bounds(Bounds),
}

impl FragmentBox {
    fn from_fragment(array: &TileDbArray, fragment: &Fragment) -> Self {
        if let Some(placement) = &fragment.placement {
            return Self::Region(placement.region.clone());
        }
        let scalar = |d: usize, bytes: &[u8]| Scalar::from_le_bytes(array.schema.dims[d].dtype, bytes).ok();
        let ranges = fragment.footer.domain.iter().flatten().take(array.schema.dims.len()).enumerate();
        let bounds: Option<Bounds> =
            ranges.map(|(d, (low, high))| Some((scalar(d, low)?, scalar(d, high)?))).collect();
        match bounds {
            Some(bounds) if bounds.len() == array.schema.dims.len() => Self::Bounds(bounds),
            _ => Self::Unknown,
        }
    }
}

impl TileDbArray {
    /// Boxes of all fragments, lowest layer first; `None` if the array has few of them, or they are open.
    fn places(&self) -> Result<Option<&[FragmentBox]>> {
        if !self.fragments.exceeds(KEPT) {
            return Ok(None);
        }
        if let Some(places) = self.places.get() {
            return Ok(Some(places));
        }
        let mut places = Vec::new();
        self.fragments.visit(&self.reader, |fragment| {
            places.push(FragmentBox::from_fragment(self, fragment));
            Ok(())
        })?;
        Ok(Some(self.places.get_or_init(|| places)))
    }

    /// Returns an array of only those fragments that serve a request.
    pub(crate) fn portion_for(&self, request: &Request) -> Result<Option<Self>> {
        let Some(places) = self.places()? else { return Ok(None) };
        let chosen = match &request.target {
            Target::Cells(selection) => painted(places, &selection.bounds()),
            Target::Coordinates(ranges) => merged(places, ranges),
        };
        let fragments = self.fragments.open_some(&self.reader, &chosen)?;
        Ok(Some(Self {
            reader: self.reader.clone(),
            schema: self.schema.clone(),
            current: self.current.clone(),
            geometry: self.geometry.clone(),
            fragments: Fragments::from_opened(fragments)?,
            places: std::sync::OnceLock::new(),
            outline: std::sync::OnceLock::new(),
            hidden: Vec::new(),
            prefix: self.prefix.clone(),
            deletes: self.deletes.clone(),
            range: self.range,
            file_attributes: None,
            history: Vec::new(),
            tables: crate::chunk_tables::ChunkTables::default(),
        }))
    }

    /// Divides a request for cells of a sparse array along the dimension whose fragments begin at most different coordinates.
    pub(crate) fn parts_of(&self, request: &Request) -> Result<Vec<Request>> {
        let whole = || Ok(vec![request.clone()]);
        let Target::Coordinates(ranges) = &request.target else { return whole() };
        let Some(places) = self.places()? else { return whole() };
        let divisions = (0..self.schema.dims.len()).filter_map(|d| Some((d, self.intervals(places, d)?)));
        let Some((dim, intervals)) = divisions.max_by_key(|(_, intervals)| intervals.len()) else {
            return whole();
        };
        let dtype = self.schema.dims[dim].dtype;
        let mut requests = Vec::with_capacity(intervals.len());
        for (low, high) in intervals {
            let Some(interval) = Scalar::from_i128(dtype, low).zip(Scalar::from_i128(dtype, high)) else {
                return whole();
            };
            let mut ranges = ranges.clone();
            let Some(own) = ranges.get_mut(dim) else { return whole() };
            *own = match own.is_empty() {
                true => vec![interval],
                false => own.iter().filter_map(|range| clip(range, &interval)).collect(),
            };
            if !own.is_empty() {
                requests.push(Request { target: Target::Coordinates(ranges), ..request.clone() });
            }
        }
        Ok(requests)
    }

    /// Divides the domain of a dimension into closed intervals with few fragments each; `None` if it cannot be divided.
    fn intervals(&self, places: &[FragmentBox], dim: usize) -> Option<Vec<(i128, i128)>> {
        let (first, last) = self.schema.dims[dim].domain.as_ref()?;
        let (first, last) = (first.as_i128()?, last.as_i128()?);
        let mut spans = Vec::with_capacity(places.len());
        for place in places {
            if let FragmentBox::Bounds(bounds) = place {
                let (low, high) = bounds.get(dim)?;
                spans.push((low.as_i128()?, high.as_i128()?));
            }
        }
        spans.sort_unstable();
        let mut starts: Vec<i128> = spans.iter().step_by(TOGETHER).map(|span| span.0).collect();
        starts.dedup();
        starts.retain(|start| (first.saturating_add(1)..=last).contains(start));
        let lows = std::iter::once(first).chain(starts.iter().copied());
        let highs = starts.iter().map(|start| start - 1).chain([last]);
        let intervals: Vec<(i128, i128)> = lows.zip(highs).collect();
        // Fragments that extend over many intervals would be opened for each of them.
        let touched = |(low, high): &(i128, i128)| {
            let from = intervals.partition_point(|interval| interval.1 < *low);
            let to = intervals.partition_point(|interval| interval.0 <= *high);
            to.saturating_sub(from)
        };
        let opened: usize = spans.iter().map(touched).sum();
        (intervals.len() > 1 && opened <= REPEATS * spans.len()).then_some(intervals)
    }
}

/// Intersects two closed ranges.
fn clip(a: &(Scalar, Scalar), b: &(Scalar, Scalar)) -> Option<(Scalar, Scalar)> {
    let low = if a.0.compare(&b.0)? == Ordering::Less { &b.0 } else { &a.0 };
    let high = if a.1.compare(&b.1)? == Ordering::Greater { &b.1 } else { &a.1 };
    (low.compare(high)? != Ordering::Greater).then(|| (low.clone(), high.clone()))
}

/// Fragments of a dense array with cells in a box, without those that a later one hides there.
fn painted(places: &[FragmentBox], bounds: &Region) -> Vec<usize> {
    let covers =
        |place: &FragmentBox| matches!(place, FragmentBox::Region(region) if region.contains(bounds));
    let lowest = places.iter().rposition(covers).unwrap_or(0);
    let meets = |place: &FragmentBox| match place {
        FragmentBox::Region(region) => region.intersect(bounds).is_some(),
        FragmentBox::Bounds(_) => true,
        FragmentBox::Unknown => false,
    };
    (lowest..places.len()).filter(|&i| meets(&places[i])).collect()
}

/// Fragments of a sparse array that can have cells in the ranges.
fn merged(places: &[FragmentBox], ranges: &[CoordinateRanges]) -> Vec<usize> {
    let inside = |place: &FragmentBox| match place {
        FragmentBox::Bounds(bounds) => {
            bounds.iter().zip(ranges).all(|(bounds, ranges)| meets(bounds, ranges))
        }
        FragmentBox::Region(_) => true,
        FragmentBox::Unknown => false,
    };
    (0..places.len()).filter(|&i| inside(&places[i])).collect()
}
