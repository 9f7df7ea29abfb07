//! Checks of decoders: fill their buffers, respect ranges, tolerate any bytes.

use bytes::Bytes;

use super::{Check, Fixture, Violation, for_each_column, open, random_indices};
use crate::oracle::{ColumnLayout, Decoded, Prefill, decode_parts, fetch};
use crate::testing::Random;
use tesseral_format::{Access, ArraySource, Column, Format, PlannedChunk};

const PREFILLS: [Prefill; 3] =
    [Prefill { byte: 0, cells: 0 }, Prefill { byte: 0xFF, cells: 2 }, Prefill { byte: 0x5A, cells: 1 }];

/// A decoder overwrites every byte, gives the same result on every thread, decodes ranges equal to slices of the full decode where
/// it declares ranges, and returns the stored bytes where it declares direct access.
///
/// # Errors
/// The first violation.
pub fn decoders_keep_their_contract(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    let check = Check::new("decoders_keep_their_contract", fixture.seed);
    let container = open(&check, format, fixture)?;
    let mut random = fixture.random(4);
    for_each_column(&check, container.as_ref(), |check, source, column, plan| {
        for i in random_indices(&mut random, plan.chunks.len(), fixture.effort.chunks) {
            let chunk = &plan.chunks[i];
            if chunk.column_parts(column).next().is_none() && column == Column::Timestamp {
                continue;
            }
            let location = format!("{}, chunk {}", check.location, chunk.id);
            let check = check.at(&location);
            let parts = check.must("fetch", fetch(container.store().as_ref(), source, chunk, column))?;
            let decode = |prefill| decode_parts(source, chunk, column, &parts, 0..chunk.cells, prefill);
            let first = check.must("decode", decode(PREFILLS[0]))?;
            for prefill in &PREFILLS[1..] {
                let again = check.must("decode", decode(*prefill))?;
                check.require(first == again, || "previous buffer content is visible".to_owned())?;
            }
            let threaded = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| decode(PREFILLS[1]))).collect();
                threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
            });
            for outcome in threaded {
                let same = matches!(&outcome, Ok(Ok(decoded)) if *decoded == first);
                check.require(same, || "another thread decodes differently".to_owned())?;
            }
            direct(&check, source, chunk, column, &parts, &first)?;
            runs(&check, &mut random, source, chunk, column, &parts, &first)?;
        }
        Ok(())
    })
}

/// Chunks with direct access decode to their stored bytes.
fn direct(
    check: &Check<'_>,
    source: &dyn ArraySource,
    chunk: &PlannedChunk,
    column: Column,
    parts: &[Bytes],
    whole: &Decoded,
) -> Result<(), Violation> {
    let Access::Direct { swapped } = chunk.access else { return Ok(()) };
    let layout = check.must("layout", ColumnLayout::new(source.schema(), column))?;
    check.require(!layout.nullable && layout.size.is_some() && !layout.bits, || {
        "direct access for nullable, variable-length or packed cells".to_owned()
    })?;
    check.same("parts of a chunk with direct access", &parts.len(), &1)?;
    let mut bytes = parts[0].to_vec();
    if swapped {
        bytes.chunks_exact_mut(layout.dtype.word()).for_each(<[u8]>::reverse);
    }
    let cells: Vec<u8> = (0..chunk.cells).flat_map(|i| whole.raw(i)).copied().collect();
    check.require(bytes == cells, || "direct access, but the decoded bytes differ".to_owned())
}

/// Ranges equal slices of the full decode. Those of a chunk whose granule shows only in its bytes consist of whole granules.
fn runs(
    check: &Check<'_>,
    random: &mut Random,
    source: &dyn ArraySource,
    chunk: &PlannedChunk,
    column: Column,
    parts: &[Bytes],
    whole: &Decoded,
) -> Result<(), Violation> {
    let (granule, whole_granules) = match chunk.access {
        Access::Coded { granule: Some(granule) } => (granule, false),
        Access::Coded { granule: None } => match source.stored_granule(chunk, column, parts) {
            Some(granule) => (granule, true),
            None => return Ok(()),
        },
        Access::Direct { .. } => return Ok(()),
    };
    check.require(granule > 0, || "a granule of 0 cells".to_owned())?;
    for _ in 0..6 {
        let start = random.below(chunk.cells / granule + 1) * granule;
        let mut end = random.within(start, chunk.cells);
        if whole_granules {
            end = end.div_ceil(granule).saturating_mul(granule).min(chunk.cells);
        }
        let location = format!("{}, cells {start}..{end}", check.location);
        let check = check.at(&location);
        let run = check
            .must("decode", decode_parts(source, chunk, column, parts, start..end, Prefill::default()))?;
        for i in start..end {
            let same = run.raw(i - start) == whole.raw(i) && run.is_valid(i - start) == whole.is_valid(i);
            check.require(same, || format!("cell {i} differs from the full decode"))?;
        }
    }
    Ok(())
}

/// Damaged parts are rejected or decoded, without a panic and within the buffer contract.
///
/// # Errors
/// The first violation.
pub fn damaged_parts_never_panic(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    let check = Check::new("damaged_parts_never_panic", fixture.seed);
    let container = open(&check, format, fixture)?;
    let mut random = fixture.random(5);
    for_each_column(&check, container.as_ref(), |check, source, column, plan| {
        for i in random_indices(&mut random, plan.chunks.len(), fixture.effort.chunks.min(6)) {
            let chunk = &plan.chunks[i];
            let parts = check.must("fetch", fetch(container.store().as_ref(), source, chunk, column))?;
            for kind in 0..fixture.effort.damages / 4 {
                let damaged = damage(&mut random, &parts, kind);
                let location = format!("{}, chunk {}, damage {kind}", check.location, chunk.id);
                let check = check.at(&location);
                let outcome = check.guarded("decode", || {
                    decode_parts(source, chunk, column, &damaged, 0..chunk.cells, Prefill::default())
                })?;
                // Only the oracle returns `InvalidRequest` here: the decoder violated its contract.
                if let Err(e) = &outcome
                    && !damaged.is_empty()
                    && matches!(e.kind(), tesseral_core::ErrorKind::InvalidRequest { .. })
                {
                    return check.fail(e);
                }
            }
        }
        Ok(())
    })
}

fn damage(random: &mut Random, parts: &[Bytes], kind: usize) -> Vec<Bytes> {
    let mut out: Vec<Vec<u8>> = parts.iter().map(|part| part.to_vec()).collect();
    if out.is_empty() {
        return Vec::new();
    }
    let which = random.index(out.len());
    match kind % 6 {
        0 => out[which].clear(),
        1 => {
            let len = random.index(out[which].len() + 1);
            out[which].truncate(len);
        }
        2 => {
            let more = random.bytes(9);
            out[which].extend(more);
        }
        3 => {
            out.remove(which);
        }
        4 => {
            let len = out[which].len();
            out[which] = random.bytes(len);
        }
        _ => {
            for _ in 0..random.within(1, 3) {
                if !out[which].is_empty() {
                    let at = random.index(out[which].len());
                    out[which][at] ^= 1 << random.below(8);
                }
            }
        }
    }
    out.into_iter().map(Bytes::from).collect()
}
