//! Fast path for chunks of which all rows are requested: every column is decoded directly into the result, without a copy.

use rayon::prelude::*;
use tesseral_core::{Result, alloc};
use tesseral_format::{Column, ColumnMut, PlannedChunk};

use super::partition::{self, Slab};
use super::{CellBatch, CellOrder, CellRead, rows};
use crate::decode::chunk::with_workspace;
use crate::decode::columns::{Cells, column_layout};
use crate::options::{Options, Ticker};

/// Destination of one chunk's cells of one column.
type ColumnOutput<'a> = (Column, &'a mut [u8], Option<&'a mut [u8]>);

/// Number of rows, if every row of these chunks is part of the result and all cells are fixed-size.
fn count(query: &CellRead, chunks: &[&PlannedChunk], slab: &Slab, settles: bool) -> Option<usize> {
    let sifted = settles
        || query.order != CellOrder::Stored
        || query.request.condition.is_some()
        || !query.plan.deletes.is_empty();
    let timed = |chunk: &PlannedChunk| {
        [Column::Timestamp, Column::DeletedBy].iter().any(|&c| chunk.column_parts(c).next().is_some())
    };
    let cut = |chunk: &PlannedChunk| {
        let mut limits = slab.limits.iter().enumerate();
        limits.any(|(d, limits)| limits.is_some() && !partition::inside(chunk, d, limits))
    };
    if sifted || chunks.iter().any(|chunk| timed(chunk) || cut(chunk)) {
        return None;
    }
    let sized = |&column: &Column| {
        let stored = matches!(column, Column::Field(_) | Column::Dim(_));
        stored && column_layout(query.schema(), column).is_ok_and(|(size, _)| size > 0)
    };
    let rows = chunks.iter().try_fold(0_u64, |sum, chunk| sum.checked_add(chunk.cells))?;
    query.request.columns.iter().all(sized).then(|| usize::try_from(rows).ok())?
}

/// Reads chunks whose rows are all visible; `None` if they are not, or the result exceeds `allowed`.
pub(super) fn read(
    query: &CellRead,
    chunks: &[&PlannedChunk],
    slab: &Slab,
    settles: bool,
    allowed: u64,
    workers: &Options,
    ticker: &Ticker<'_>,
) -> Result<Option<CellBatch>> {
    let Some(rows) = count(query, chunks, slab, settles) else { return Ok(None) };
    let mut columns = Vec::new();
    let mut held = 0_u64;
    for &column in &query.request.columns {
        let (size, nullable) = column_layout(query.schema(), column)?;
        let Some(bytes) = rows.checked_mul(size) else { return Ok(None) };
        held = held.saturating_add(bytes as u64 + if nullable { rows as u64 } else { 0 });
        columns.push((column, size, nullable, bytes));
    }
    if held > allowed {
        return Ok(None);
    }
    let mut columns: Vec<(Column, Cells)> = columns
        .into_iter()
        .map(|(column, size, nullable, bytes)| {
            let validity = nullable.then(|| alloc::zeroed("validity", rows)).transpose()?;
            Ok((column, Cells::from_fixed(size, alloc::zeroed("rows", bytes)?, validity)))
        })
        .collect::<Result<_>>()?;
    let mut outputs: Vec<Vec<ColumnOutput<'_>>> = chunks.iter().map(|_| Vec::new()).collect();
    for (column, cells) in &mut columns {
        let size = cells.size();
        let (mut values, mut validity) = cells.parts_mut();
        for (chunk, outputs) in chunks.iter().zip(&mut outputs) {
            // At most the total, which was counted.
            let cells = usize::try_from(chunk.cells).unwrap_or(usize::MAX);
            let (own, rest) = values.split_at_mut(cells * size);
            values = rest;
            let own_validity = validity.take().map(|all| {
                let (own, rest) = all.split_at_mut(cells);
                validity = Some(rest);
                own
            });
            outputs.push((*column, own, own_validity));
        }
    }
    let decode_into_outputs = |(chunk, outputs): (&&PlannedChunk, Vec<ColumnOutput<'_>>)| -> Result<()> {
        let decode = |source: &crate::fetch::ChunkBytes<'_>| -> Result<()> {
            for (column, values, validity) in outputs {
                let parts = source.column(&query.handle, chunk, column)?;
                let out = ColumnMut::Fixed { values, validity };
                let run = 0..chunk.cells;
                with_workspace(|w| {
                    query.handle.source().decode(chunk, column, &parts, run, out, &mut w.scratch)
                })?;
            }
            Ok(())
        };
        rows::with_source(query, chunk, decode).map_err(|e| query.handle.locate(chunk, e))?;
        ticker.tick()
    };
    workers.run(|| chunks.par_iter().zip(outputs).try_for_each(decode_into_outputs))?;
    Ok(Some(CellBatch { rows, columns }))
}
