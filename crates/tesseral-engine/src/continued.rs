//! Cyclic axes that continue at their start: an array source in which a range across the end of an axis is one box.
//!
//! Position `extent + i` of a continued axis is position `i` of the stored one. A request is planned as one box on either side
//! of the end; the chunks of the second box are moved after those of the first. Everything above plans, fetches, decodes and
//! folds them like the chunks of any array ([ADR 0031](../../../docs/adr/0031-ranges-across-the-end-of-an-axis.md)).

use std::borrow::Cow;
use std::sync::Arc;

use tesseral_core::schema::Labels;
use tesseral_core::{ArraySchema, Error, Region, Result, Selection, Slice};
use tesseral_format::{
    ArraySource, ChunkPlan, Cover, Planned, PlannedChunk, Request, SourceLayer, Target, Totals, Uncovered,
};
use tesseral_store::Rounds;

/// An array some of whose axes continue at their start, for one turn.
#[derive(Debug)]
pub(crate) struct ContinuedSource {
    inner: Arc<dyn ArraySource>,
    schema: ArraySchema,
    /// The axes and their stored extents.
    axes: Vec<(usize, u64)>,
}

impl ContinuedSource {
    /// The array with these axes continued.
    pub(crate) fn new(inner: Arc<dyn ArraySource>, axes: &[usize]) -> Result<Self> {
        let mut schema = inner.schema().clone();
        let mut continued = Vec::with_capacity(axes.len());
        for &axis in axes {
            let dim = schema.dims.get_mut(axis);
            let found = dim.and_then(|dim| dim.extent.map(|extent| (dim, extent)));
            let (dim, extent) = found.filter(|_| !schema.sparse).ok_or_else(|| {
                Error::invalid("only axes of dense arrays can be continued").in_array(&inner.schema().name)
            })?;
            let twice = extent.checked_mul(2);
            dim.extent =
                Some(twice.ok_or_else(|| Error::limit("the positions of an axis", extent, u64::MAX / 2))?);
            match &mut dim.labels {
                Some(Labels::Text(labels)) => labels.extend_from_within(..),
                Some(Labels::Numbers { bytes, .. }) => bytes.extend_from_within(..),
                None => {}
            }
            // Chunks after the end must be aligned to the grid as well.
            if let Some(chunk) = schema.chunk_shape.as_mut().and_then(|shape| shape.get_mut(axis))
                && (*chunk == 0 || !extent.is_multiple_of(*chunk))
            {
                *chunk = extent.max(1);
            }
            continued.push((axis, extent));
        }
        Ok(Self { inner, schema, axes: continued })
    }

    /// Divides a selection at the ends of the axes: each part as a selection of the stored array, and how far each axis is moved.
    fn parts(&self, selection: &Selection) -> Result<Vec<(Selection, Vec<u64>)>> {
        let shape = self.inner.schema().shape();
        let shape = shape.ok_or_else(|| Error::internal("an axis without positions cannot be continued"))?;
        let mut parts = vec![(selection.slices().to_vec(), vec![0; selection.rank()])];
        for &(axis, extent) in &self.axes {
            for (slices, moved) in std::mem::take(&mut parts) {
                let slice = slices[axis];
                for shift in [0, extent] {
                    let (part, _) = slice.clip(shift, shift.saturating_add(extent));
                    if part.count() == 0 && !(shift == 0 && slice.count() == 0) {
                        continue;
                    }
                    let (mut slices, mut moved) = (slices.clone(), moved.clone());
                    let end = part.tight_end();
                    slices[axis] = match part.count() {
                        0 => Slice::new(0, 0),
                        _ => Slice { start: part.start - shift, end: end - shift, step: part.step },
                    };
                    moved[axis] = shift;
                    parts.push((slices, moved));
                }
            }
        }
        parts.into_iter().map(|(slices, moved)| Ok((Selection::new(slices, &shape)?, moved))).collect()
    }

    /// Offset by which the axes of a chunk are moved.
    fn shifts(&self, chunk: &PlannedChunk) -> Vec<u64> {
        let mut moved = vec![0; self.schema.dims.len()];
        for &(axis, extent) in &self.axes {
            // No stored chunk crosses the end.
            if chunk.cover.region().is_some_and(|cover| cover.start(axis) >= extent) {
                moved[axis] = extent;
            }
        }
        moved
    }
}

fn moved(region: &Region, by: &[u64], add: impl Fn(u64, u64) -> u64) -> Region {
    Region::new(region.bounds().iter().zip(by).map(|(&(start, end), &by)| (add(start, by), add(end, by))))
}

impl SourceLayer for ContinuedSource {
    fn inner(&self) -> &dyn ArraySource {
        &*self.inner
    }

    fn inner_chunk<'a>(&self, chunk: &'a PlannedChunk) -> Cow<'a, PlannedChunk> {
        let by = self.shifts(chunk);
        if by.iter().all(|by| *by == 0) {
            return Cow::Borrowed(chunk);
        }
        let mut stored = chunk.clone();
        if let Cover::Exact(region) = &chunk.cover {
            stored.cover = Cover::Exact(moved(region, &by, u64::saturating_sub));
        }
        stored.tile = chunk.tile.as_deref().map(|tile| Box::new(moved(tile, &by, u64::saturating_sub)));
        Cow::Owned(stored)
    }

    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn plan(&self, request: &Request, rounds: &Arc<Rounds>) -> Result<Planned> {
        let Target::Cells(selection) = &request.target else { return self.inner.plan(request, rounds) };
        let mut needs = Vec::new();
        let mut plan =
            ChunkPlan { chunks: Vec::new(), uncovered: Uncovered::Impossible, deletes: Vec::new() };
        for (part, by) in self.parts(selection)? {
            // Conditions on positions refer to the continued axes.
            let target = Target::Cells(part);
            let request = Request { target, columns: request.columns.clone(), condition: None };
            let found = match self.inner.plan(&request, rounds)? {
                Planned::Ready(found) => found,
                Planned::Needs(more) => {
                    needs.extend(more);
                    continue;
                }
            };
            plan.chunks.extend(found.chunks.into_iter().map(|mut chunk| {
                if let Cover::Exact(region) = &chunk.cover {
                    chunk.cover = Cover::Exact(moved(region, &by, u64::saturating_add));
                }
                chunk.tile = chunk.tile.map(|tile| Box::new(moved(&tile, &by, u64::saturating_add)));
                chunk
            }));
            plan.deletes = found.deletes;
            if found.uncovered == Uncovered::Fill {
                plan.uncovered = Uncovered::Fill;
            }
        }
        Ok(if needs.is_empty() { Planned::Ready(plan) } else { Planned::Needs(needs) })
    }

    fn divide(&self, request: &Request) -> Result<Vec<Request>> {
        Ok(vec![request.clone()])
    }

    fn totals(&self, everything: &Request) -> Result<Option<Totals>> {
        let shape = self.inner.schema().shape().unwrap_or_default();
        let target = Target::Cells(Selection::all(&shape));
        self.inner.totals(&Request { target, ..everything.clone() })
    }
}
