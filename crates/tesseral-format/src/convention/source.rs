//! An array that is decoded from another one.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use tesseral_core::{
    ArraySchema, ChunkStats, Coords, Error, Limits, Region, Result, Selection, Slice, alloc,
};
use tesseral_store::Rounds;

use super::AxisLabels;
use super::encoding::ConventionEncoding;
use super::text::{TextLayout, unpack, unpad};
use crate::{
    Access, ArraySource, ChunkInfo, ChunkPlan, Column, ColumnMut, Cover, Part, Planned, PlannedChunk,
    Request, Scratch, SourceLayer, StoredForm, Target, Totals, Uncovered,
};

/// An array that is stored as another one.
#[derive(Debug)]
pub(super) struct ModelArray {
    pub inner: Arc<dyn ArraySource>,
    pub schema: ArraySchema,
    pub encoding: ConventionEncoding,
    pub limits: Limits,
    /// Attributes that only repeat the schema.
    pub derived: Vec<&'static str>,
}

impl ModelArray {
    pub(super) fn labeled(
        inner: Arc<dyn ArraySource>,
        labels: Vec<(usize, AxisLabels)>,
    ) -> Arc<dyn ArraySource> {
        Self::described(inner, |schema| {
            for (d, labels) in labels {
                if let Some(dim) = schema.dims.get_mut(d) {
                    dim.labels = Some(labels.labels);
                    dim.time = labels.time;
                    dim.period = labels.period;
                }
            }
        })
    }

    /// The array with another description of the same cells.
    pub(super) fn described(
        inner: Arc<dyn ArraySource>,
        describe: impl FnOnce(&mut ArraySchema),
    ) -> Arc<dyn ArraySource> {
        let mut schema = inner.schema().clone();
        describe(&mut schema);
        let (encoding, limits) = (ConventionEncoding::default(), Limits::default());
        let derived = inner.derived_attributes().to_vec();
        Arc::new(Self { inner, schema, encoding, limits, derived })
    }

    fn is_packed(&self) -> bool {
        self.encoding.text == Some(TextLayout::Packed)
    }

    /// Returns the stored region of a region of the array.
    fn stored_region(&self, region: &Region) -> Region {
        if self.is_packed() {
            return Region::from_shape(&self.encoding.shape);
        }
        let lead = self.encoding.scalar.then_some((0, 1));
        let last = self.encoding.trailing.map(|n| (0, n));
        Region::new(lead.into_iter().chain(region.bounds().iter().copied()).chain(last))
    }

    fn model_region(&self, region: &Region) -> Region {
        if self.is_packed() {
            return Region::from_shape(&self.schema.shape().unwrap_or_default());
        }
        let bounds = region.bounds();
        let bounds = &bounds[..bounds.len().saturating_sub(usize::from(self.encoding.trailing.is_some()))];
        Region::new(bounds.iter().skip(usize::from(self.encoding.scalar)).copied())
    }

    fn stored_request(&self, request: &Request) -> Result<Request> {
        if self.encoding.is_plain() && !self.encoding.cast {
            return Ok(request.clone());
        }
        let Target::Cells(selection) = &request.target else { return Ok(request.clone()) };
        let selection = if self.is_packed() {
            Selection::all(&self.encoding.shape)
        } else {
            let lead = self.encoding.scalar.then(|| Slice::new(0, 1));
            let last = self.encoding.trailing.map(|n| Slice::new(0, n));
            let slices = lead.into_iter().chain(selection.slices().iter().copied()).chain(last);
            Selection::new(slices, &self.encoding.shape)?
        };
        // Conditions refer to values of the array, not to the stored ones.
        let condition = request.condition.clone().filter(|_| !self.encoding.cast);
        Ok(Request { target: Target::Cells(selection), columns: request.columns.clone(), condition })
    }

    /// The plan of stored cells as a plan of the model's.
    fn model_plan(&self, mut plan: ChunkPlan) -> Result<ChunkPlan> {
        if self.is_packed() && (plan.chunks.len() != 1 || plan.chunks[0].cover.region().is_none()) {
            let detail = format!("packed text in {} chunks", plan.chunks.len());
            return Err(Error::unsupported(detail).in_array(&self.schema.name));
        }
        if !self.encoding.is_plain() {
            plan.chunks = plan.chunks.into_iter().map(|chunk| self.model_chunk(chunk)).collect();
        }
        Ok(plan)
    }

    fn model_chunk(&self, mut chunk: PlannedChunk) -> PlannedChunk {
        let each = self.encoding.elements();
        if let Cover::Exact(region) = &chunk.cover {
            chunk.cover = Cover::Exact(self.model_region(region));
        }
        chunk.tile = chunk.tile.map(|tile| Box::new(self.model_region(&tile)));
        chunk.cells = match self.is_packed() {
            true => chunk.cover.region().and_then(Region::cells).unwrap_or(0),
            false => chunk.cells / each,
        };
        chunk.access = match chunk.access {
            _ if self.encoding.text.is_some() => Access::Coded { granule: None },
            Access::Coded { granule: Some(granule) } => {
                // The smallest number of whole cells that is a multiple of it.
                Access::Coded { granule: Some((granule / gcd(granule, each)).max(1)) }
            }
            other => other,
        };
        chunk
    }

    fn stored_cells(&self, cells: &Range<u64>) -> Range<u64> {
        let each = self.encoding.elements();
        cells.start.saturating_mul(each)..cells.end.saturating_mul(each)
    }

    /// Decodes variable-length cells.
    #[allow(clippy::too_many_arguments)]
    fn decode_text(
        &self,
        layout: TextLayout,
        chunk: &PlannedChunk,
        column: Column,
        parts: &[Bytes],
        cells: Range<u64>,
        out: ColumnMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let ColumnMut::Var { offsets, data, .. } = out else {
            return Err(Error::invalid("variable-length cells require a variable-length column"));
        };
        let stored = self.inner_chunk(chunk);
        let run = if layout == TextLayout::Packed { 0..stored.cells } else { self.stored_cells(&cells) };
        let len = run.end - run.start;
        self.limits.check_decoded(len, stored.stored_bytes())?;
        let mut bytes = alloc::zeroed::<u8>("text cells", usize::try_from(len).unwrap_or(usize::MAX))?;
        let values = ColumnMut::Fixed { values: &mut bytes, validity: None };
        self.inner.decode(&stored, column, parts, run, values, scratch)?;
        match layout {
            TextLayout::Padded => {
                let width = usize::try_from(self.encoding.elements()).unwrap_or(usize::MAX);
                unpad(&bytes, width, offsets, data)
            }
            TextLayout::Packed => {
                unpack(&bytes, cells.end - cells.start, offsets, data).unwrap_or_else(|| {
                    let part = stored.parts.first();
                    let object = self.inner.object(part.map_or(0, |part| part.object));
                    let offset = part.map_or(0, |part| part.offset);
                    let detail = "cell offsets do not match the data";
                    Err(Error::corrupt("packed text", object, offset, detail).in_array(&self.schema.name))
                })
            }
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl SourceLayer for ModelArray {
    fn inner(&self) -> &dyn ArraySource {
        &*self.inner
    }

    fn inner_chunk<'a>(&self, chunk: &'a PlannedChunk) -> Cow<'a, PlannedChunk> {
        if self.encoding.is_plain() {
            return Cow::Borrowed(chunk);
        }
        let mut stored = chunk.clone();
        if let Cover::Exact(region) = &chunk.cover {
            stored.cover = Cover::Exact(self.stored_region(region));
        }
        stored.tile = chunk.tile.as_deref().map(|tile| Box::new(self.stored_region(tile)));
        stored.cells = match self.is_packed() {
            true => self.encoding.shape.iter().product(),
            false => chunk.cells.saturating_mul(self.encoding.elements()),
        };
        Cow::Owned(stored)
    }

    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn plan(&self, request: &Request, rounds: &Arc<Rounds>) -> Result<Planned> {
        if self.encoding.empty {
            return Ok(Planned::Ready(ChunkPlan {
                chunks: Vec::new(),
                uncovered: Uncovered::Impossible,
                deletes: Vec::new(),
            }));
        }
        let planned = self.inner.plan(&self.stored_request(request)?, rounds)?;
        planned.and_then(|plan| self.model_plan(plan))
    }

    fn portion(&self, request: &Request) -> Result<Option<Arc<dyn ArraySource>>> {
        if self.encoding.empty {
            return Ok(None);
        }
        let portion = self.inner.portion(&self.stored_request(request)?)?;
        Ok(portion.map(|inner| {
            let (schema, encoding) = (self.schema.clone(), self.encoding.clone());
            let (limits, derived) = (self.limits, self.derived.clone());
            Arc::new(Self { inner, schema, encoding, limits, derived }) as Arc<dyn ArraySource>
        }))
    }

    fn totals(&self, everything: &Request) -> Result<Option<Totals>> {
        if self.encoding.empty {
            return Ok(Some(Totals { chunks: 0, stored_bytes: 0, digests: true }));
        }
        self.inner.totals(&self.stored_request(everything)?)
    }

    fn non_empty_domain(&self) -> Result<Option<Option<crate::NonEmpty>>> {
        if self.encoding.is_plain() { self.inner.non_empty_domain() } else { Ok(None) }
    }

    fn load_stats(&self, chunks: &[PlannedChunk], columns: &[Column], rounds: &Arc<Rounds>) -> Result<()> {
        if self.encoding.cast {
            return Ok(());
        }
        let inner: Vec<_> = chunks.iter().map(|chunk| self.inner_chunk(chunk).into_owned()).collect();
        self.inner.load_stats(&inner, columns, rounds)
    }

    fn stats(&self, chunk: &PlannedChunk, column: Column) -> ChunkStats {
        if self.encoding.cast {
            return ChunkStats::unknown(chunk.cells);
        }
        self.inner.stats(&self.inner_chunk(chunk), column)
    }

    fn constant(&self, chunk: &PlannedChunk, column: Column) -> Option<Vec<u8>> {
        let plain = self.encoding.trailing.is_none() && self.encoding.text.is_none();
        plain.then(|| self.inner.constant(&self.inner_chunk(chunk), column))?
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let mut info = self.inner.describe(&self.inner_chunk(chunk));
        if self.is_packed() {
            info.coords = Coords::from_elem(0, self.schema.dims.len());
        } else if !self.encoding.is_plain() {
            let rank = info.coords.len().saturating_sub(usize::from(self.encoding.trailing.is_some()));
            let kept = info.coords.iter().take(rank).skip(usize::from(self.encoding.scalar));
            info.coords = kept.copied().collect();
        }
        info
    }

    fn run_bytes(&self, chunk: &PlannedChunk, cells: &Range<u64>) -> Option<Range<u64>> {
        if self.encoding.text.is_some() {
            return None;
        }
        self.inner.run_bytes(&self.inner_chunk(chunk), &self.stored_cells(cells))
    }

    fn stored_granule(&self, chunk: &PlannedChunk, column: Column, parts: &[Bytes]) -> Option<u64> {
        let plain = self.encoding.trailing.is_none() && self.encoding.text.is_none();
        plain.then(|| self.inner.stored_granule(&self.inner_chunk(chunk), column, parts))?
    }

    fn stored_form(&self, chunk: &PlannedChunk) -> Option<StoredForm> {
        // Text is laid out differently from cells; all other bytes are those of the cells.
        if self.encoding.text.is_some() {
            return None;
        }
        self.inner.stored_form(&self.inner_chunk(chunk))
    }

    fn derived_attributes(&self) -> &[&'static str] {
        &self.derived
    }

    fn narrow(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        cells: &Range<u64>,
    ) -> Result<Option<SmallVec<[Part; 1]>>> {
        if self.encoding.text.is_some() {
            return Ok(None);
        }
        self.inner.narrow(&self.inner_chunk(chunk), column, &self.stored_cells(cells))
    }

    fn decode(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        parts: &[Bytes],
        cells: Range<u64>,
        out: ColumnMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        match self.encoding.text {
            Some(layout) => self.decode_text(layout, chunk, column, parts, cells, out, scratch),
            None => {
                let cells = self.stored_cells(&cells);
                self.inner.decode(&self.inner_chunk(chunk), column, parts, cells, out, scratch)
            }
        }
    }
}
