//! Fetching of planned chunks: borrows resident bytes, reads the rest in few large requests.

pub(crate) mod ahead;
pub(crate) mod reopen;

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;
use tesseral_core::{Error, Result, Selection};
use tesseral_format::{Access, ChunkPlan, Column, DigestSpan, DigestSpans, PlannedChunk};

use crate::handle::Handle;
use crate::plan::groups::Groups;

/// Digests over this many more bytes than those of the chunk's parts are verified by reading the rest separately.
const GAP: u64 = 64 << 10;

/// Resident objects by index.
pub(crate) type Resident = SmallVec<[(u32, Bytes); 1]>;

/// A read: object and byte range.
pub(crate) type Reads = SmallVec<[(u32, Range<u64>); 1]>;

/// Groups whose bytes are read together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    /// Indexes of the groups.
    pub groups: Range<usize>,
    /// Reads of the groups.
    pub reads: Reads,
}

/// Bytes of one batch.
pub(crate) struct Fetched {
    reads: SmallVec<[(u32, Range<u64>, Bytes); 1]>,
}

impl Fetched {
    /// Returns the read that contains a range, and the range in it.
    fn get(&self, object: u32, range: &Range<u64>) -> Option<(&Bytes, Range<u64>)> {
        let (_, held, bytes) = self
            .reads
            .iter()
            .find(|(o, held, _)| *o == object && held.start <= range.start && range.end <= held.end)?;
        Some((bytes, range.start - held.start..range.end - held.start))
    }
}

/// Source of the bytes of a chunk.
pub(crate) enum ChunkBytes<'a> {
    /// Memory-mapped or in memory.
    Resident(&'a Resident),
    /// Read for this batch.
    Fetched(&'a Fetched),
}

/// Bytes of a chunk that an operation reads: equal runs at regular distances, as a box of a row-major chunk has them. Digests of
/// blocks between the runs are not verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ByteRuns {
    first: Range<u64>,
    /// Number and distance of the runs, the longest distance first.
    steps: SmallVec<[(u64, u64); 4]>,
}

/// Runs closer together than this are one: blocks of digests are not smaller.
const RUN_GAP: u64 = 4 << 10;

impl From<Range<u64>> for ByteRuns {
    fn from(first: Range<u64>) -> Self {
        Self { first, steps: SmallVec::new() }
    }
}

impl ByteRuns {
    /// The bytes of `size` at every combination of `(count, distance)`.
    pub(crate) fn new(start: u64, size: u64, steps: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut steps: SmallVec<[(u64, u64); 4]> = steps.filter(|(count, _)| *count > 1).collect();
        steps.sort_unstable_by_key(|(_, distance)| std::cmp::Reverse(*distance));
        let mut end = start.saturating_add(size);
        while let Some(&(count, distance)) = steps.last()
            && distance <= RUN_GAP.saturating_add(end - start)
        {
            end = end.saturating_add(distance.saturating_mul(count - 1));
            steps.pop();
        }
        Self { first: start..end, steps }
    }

    /// The same runs after `offset` bytes.
    pub(crate) fn offset(mut self, offset: u64) -> Self {
        self.first = self.first.start.saturating_add(offset)..self.first.end.saturating_add(offset);
        self
    }

    /// The range from the first to the last byte.
    pub(crate) fn bounds(&self) -> Range<u64> {
        let length = self.steps.iter().map(|(count, distance)| distance.saturating_mul(count - 1));
        self.first.start..length.fold(self.first.end, u64::saturating_add)
    }

    /// The runs, in the order of their bytes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let runs = self.steps.iter().map(|(count, _)| *count).fold(1, u64::saturating_mul);
        (0..runs).map(|number| {
            let mut rest = number;
            let mut skip = 0_u64;
            for (count, distance) in self.steps.iter().rev() {
                skip = skip.saturating_add((rest % count).saturating_mul(*distance));
                rest /= count;
            }
            self.first.start.saturating_add(skip)..self.first.end.saturating_add(skip)
        })
    }
}

/// Bytes of the parts of one column, usually one.
pub(crate) type PartBytes = SmallVec<[Bytes; 2]>;

impl<'a> ChunkBytes<'a> {
    /// Returns the bytes of a range, borrowed: threads that share an object do not contend for its reference count.
    fn slice(&self, handle: &Handle, object: u32, range: &Range<u64>) -> Result<(&'a Bytes, &'a [u8])> {
        let found = match self {
            Self::Resident(objects) => {
                objects.iter().find(|(o, _)| *o == object).map(|(_, bytes)| (bytes, range.clone()))
            }
            Self::Fetched(fetched) => fetched.get(object, range),
        };
        let slice = found.and_then(|(bytes, range)| {
            let start = usize::try_from(range.start).ok()?;
            let end = usize::try_from(range.end).ok()?;
            Some((bytes, bytes.get(start..end)?))
        });
        slice.ok_or_else(|| {
            let name = tesseral_store::StoreExt::describe(handle.store(), &handle.source().object(object));
            Error::truncated("a chunk's bytes", name, range.start, range.end.saturating_sub(range.start), 0)
        })
    }

    /// Verifies digests of a chunk that are not verified yet: of blocks that intersect a range of its only part's object, or of
    /// all blocks of its parts. Blocks that were not fetched with the chunk are read separately.
    pub(crate) fn check(
        &self,
        handle: &Handle,
        chunk: &PlannedChunk,
        within: Option<&ByteRuns>,
    ) -> Result<()> {
        handle.check_digests(chunk, within, |object, range| match self {
            Self::Fetched(fetched) if fetched.get(object, range).is_none() => Ok(None),
            _ => self.slice(handle, object, range).map(|(_, slice)| Some(slice)),
        })
    }

    /// Returns the stored cells of one column of a direct chunk after verifying digests of the `touched` bytes; `None` if they
    /// must be decoded.
    pub(crate) fn plain(
        &self,
        handle: &Handle,
        chunk: &PlannedChunk,
        column: Column,
        touched: impl FnOnce() -> ByteRuns,
    ) -> Result<Option<&'a [u8]>> {
        let mut parts = chunk.column_parts(column);
        let (Access::Direct { .. }, Some((_, part)), None) = (chunk.access, parts.next(), parts.next())
        else {
            return Ok(None);
        };
        if part.len == 0 {
            self.check(handle, chunk, None)?;
            return Ok(Some(&[]));
        }
        self.check(handle, chunk, Some(&touched().offset(part.offset)))?;
        let range = part.offset..part.offset.saturating_add(part.len);
        self.slice(handle, part.object, &range).map(|(_, slice)| Some(slice))
    }

    /// Returns the bytes of one column of a chunk after verifying its digests.
    pub(crate) fn column(&self, handle: &Handle, chunk: &PlannedChunk, column: Column) -> Result<PartBytes> {
        self.column_within(handle, chunk, column, None)
    }

    /// Returns the bytes of one column of a chunk after verifying digests of the `needed` bytes of its only part.
    pub(crate) fn column_within(
        &self,
        handle: &Handle,
        chunk: &PlannedChunk,
        column: Column,
        needed: Option<&Range<u64>>,
    ) -> Result<PartBytes> {
        self.check(handle, chunk, needed.cloned().map(ByteRuns::from).as_ref())?;
        chunk
            .column_parts(column)
            .map(|(_, part)| {
                if part.len == 0 {
                    return Ok(Bytes::new());
                }
                let range = part.offset..part.offset.saturating_add(part.len);
                self.slice(handle, part.object, &range).map(|(bytes, slice)| bytes.slice_ref(slice))
            })
            .collect()
    }
}

/// Returns the objects of the chunks, if all of them are resident.
pub(crate) fn resident(handle: &Handle, chunks: &[PlannedChunk]) -> Result<Option<Resident>> {
    let mut objects = Resident::new();
    let mut last = None;
    // A digest covers the parts, so it refers to another object only if there are none.
    let needed = chunks.iter().flat_map(|chunk| {
        let digests = if chunk.parts.is_empty() { handle.pending_digests(chunk) } else { DigestSpans::new() };
        chunk.parts.iter().map(|part| part.object).chain(digests.into_iter().map(|span| span.object))
    });
    for object in needed {
        if last == Some(object) || objects.iter().any(|(o, _)| *o == object) {
            continue;
        }
        last = Some(object);
        // Many objects are read batch by batch instead of holding them open together.
        if objects.len() >= 64 {
            return Ok(None);
        }
        match handle.store().resident(&handle.source().object(object))? {
            Some(bytes) => objects.push((object, bytes)),
            None => return Ok(None),
        }
    }
    Ok(Some(objects))
}

/// Byte range of one digest span to verify before the parts of a chunk are used: all of it for a whole chunk; for a piece,
/// whose span is much longer, the range between the first and the last byte of its parts in that object.
pub(crate) fn touched_range(chunk: &PlannedChunk, span: &DigestSpan<'_>) -> Range<u64> {
    let parts = || chunk.parts.iter().filter(|part| part.object == span.object && part.len > 0);
    let stored = parts().map(|part| part.len).fold(0, u64::saturating_add);
    let start = parts().map(|part| part.offset).min();
    let end = parts().map(|part| part.offset.saturating_add(part.len)).max();
    let covered = span.range.end.saturating_sub(span.range.start);
    match start.zip(end) {
        Some((start, end)) if covered > stored.saturating_add(GAP) => start..end,
        _ => span.range.clone(),
    }
}

/// Blocks of a digest span that are read together with a chunk; `None` if they are much larger than the chunk, as one digest
/// over a whole chunk is for a piece of it. Such digests are streamed.
fn fetched_blocks(chunk: &PlannedChunk, span: &DigestSpan<'_>) -> Option<(u32, Range<u64>)> {
    let touched = touched_range(chunk, span);
    let first = span.blocks(&touched).next()?;
    let last = span.blocks(&(touched.end.saturating_sub(1)..touched.end)).next()?;
    let range = first.range.start..last.range.end;
    let stored = chunk.parts.iter().filter(|part| part.object == span.object).map(|part| part.len);
    let allowed = stored.fold(GAP, u64::saturating_add);
    (range.end.saturating_sub(range.start) <= allowed).then_some((span.object, range))
}

/// All byte ranges that a chunk needs, including those of its digests.
fn spans<'a>(handle: &'a Handle, chunk: &'a PlannedChunk) -> impl Iterator<Item = (u32, Range<u64>)> + 'a {
    let digests = handle.pending_digests(chunk).into_iter();
    let digests = digests.filter_map(|span| fetched_blocks(chunk, &span));
    let parts = chunk.parts.iter().map(|p| (p.object, p.offset..p.offset.saturating_add(p.len)));
    parts.chain(digests)
}

/// Divides the groups into batches and merges the reads of each, up to about `merged` bytes. Groups that are `known` are not
/// read.
pub(crate) fn batches(
    handle: &Handle,
    plan: &ChunkPlan,
    groups: &Groups,
    selection: &Selection,
    merged: u64,
    known: &dyn Fn(usize) -> Result<bool>,
) -> Result<Vec<Batch>> {
    let gap = handle.store().profile().gap;
    let mut out: Vec<Batch> = Vec::new();
    for index in 0..groups.len(plan) {
        let group = groups.get(plan, index)?;
        let (members, _) = group.visible(plan, selection);
        let members = if known(index)? { &[] } else { members };
        let needed = || members.iter().flat_map(|&m| spans(handle, &plan.chunks[m as usize]));
        let joined = out.last_mut().and_then(|batch| {
            let reads = merge(batch.reads.iter().cloned().chain(needed()), gap);
            // Merge only while the reads stay few and small: bytes between distant chunks are not read.
            let size: u64 = reads.iter().map(|(_, r)| r.end - r.start).sum();
            (size <= merged && reads.len() <= batch.reads.len().max(1)).then_some((batch, reads))
        });
        match joined {
            Some((batch, reads)) => {
                batch.reads = reads;
                batch.groups.end = index + 1;
            }
            None => out.push(Batch { groups: index..index + 1, reads: merge(needed(), gap) }),
        }
    }
    Ok(out)
}

/// Reads of one group; empty if everything is resident.
pub(crate) fn group_batch(
    handle: &Handle,
    plan: &ChunkPlan,
    groups: &Groups,
    selection: &Selection,
    index: usize,
) -> Result<Batch> {
    let group = groups.get(plan, index)?;
    let (members, _) = group.visible(plan, selection);
    let needed = members.iter().flat_map(|&m| spans(handle, &plan.chunks[m as usize]));
    Ok(Batch { groups: index..index + 1, reads: merge(needed, handle.store().profile().gap) })
}

/// Reads of one chunk.
pub(crate) fn chunk_batch(handle: &Handle, chunk: &PlannedChunk) -> Batch {
    Batch { groups: 0..0, reads: merge(spans(handle, chunk), handle.store().profile().gap) }
}

/// Sorts byte ranges and merges those with at most `gap` bytes between them.
fn merge(spans: impl Iterator<Item = (u32, Range<u64>)>, gap: u64) -> Reads {
    let mut sorted: SmallVec<[(u32, Range<u64>); 4]> = spans.filter(|(_, r)| r.start < r.end).collect();
    sorted.sort_by_key(|(object, range)| (*object, range.start));
    let mut out = Reads::new();
    for (object, range) in sorted {
        match out.last_mut() {
            Some((o, last)) if *o == object && range.start <= last.end.saturating_add(gap) => {
                last.end = last.end.max(range.end);
            }
            _ => out.push((object, range)),
        }
    }
    out
}

impl Batch {
    /// Number of bytes to read.
    pub(crate) fn bytes(&self) -> u64 {
        self.reads.iter().map(|(_, range)| range.end - range.start).fold(0, u64::saturating_add)
    }
}

/// Reads a batch.
pub(crate) fn fetch(handle: &Handle, batch: &Batch) -> Result<Fetched> {
    let mut reads = SmallVec::new();
    for group in batch.reads.chunk_by(|a, b| a.0 == b.0) {
        let object = group[0].0;
        let ranges: SmallVec<[Range<u64>; 4]> = group.iter().map(|(_, range)| range.clone()).collect();
        let bytes = handle.store().read_many(&handle.source().object(object), &ranges)?;
        if bytes.len() != ranges.len() {
            return Err(Error::internal("the store returned fewer ranges than requested"));
        }
        reads.extend(ranges.into_iter().zip(bytes).map(|(range, bytes)| (object, range, bytes)));
    }
    Ok(Fetched { reads })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_those_of_a_box_without_the_gaps_between_distant_ones() {
        // A series along the first of three axes: one cell in each plane of 32 KiB.
        let series = ByteRuns::new(40, 4, [(3, 32_768), (1, 360), (1, 4)].into_iter());
        assert_eq!(series.iter().collect::<Vec<_>>(), [40..44, 32_808..32_812, 65_576..65_580]);
        assert_eq!(series.bounds(), 40..65_580);
        // Near rows are one run; the order of the axes does not matter.
        let window = ByteRuns::new(0, 4, [(8, 4), (2, 1 << 20), (10, 360)].into_iter()).offset(100);
        assert_eq!(window.iter().collect::<Vec<_>>(), [100..3372, 1_048_676..1_051_948]);
        let nested = ByteRuns::new(0, 1, [(2, 100_000), (2, 10_000)].into_iter());
        assert_eq!(
            nested.iter().collect::<Vec<_>>(),
            [0..1, 10_000..10_001, 100_000..100_001, 110_000..110_001]
        );
        assert!(ByteRuns::from(5..9).iter().eq(std::iter::once(5..9)));
    }

    #[test]
    fn near_spans_merge_far_ones_do_not() {
        let spans =
            [(0, 10..20), (0, 0..10), (0, 20 + GAP..30 + GAP), (1, 0..5), (0, 10_000_000..10_000_001)];
        let merged = merge(spans.into_iter(), GAP);
        assert_eq!(merged.as_slice(), &[(0, 0..30 + GAP), (0, 10_000_000..10_000_001), (1, 0..5)]);
    }
}
