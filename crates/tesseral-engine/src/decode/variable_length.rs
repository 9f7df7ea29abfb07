//! Reading of variable-length cells of a dense array.

use rayon::prelude::*;
use tesseral_core::{Error, Region, Result, Selection, alloc};
use tesseral_format::{Column, PlannedChunk, Request};

use crate::decode::chunk::{locate_selection, with_workspace};
use crate::decode::columns::{Cells, column_layout};
use crate::fetch::{self, ChunkBytes, Resident};
use crate::handle::Handle;
use crate::kernel::copy::Walk;
use crate::missing::column_validity;
use crate::options::Options;
use crate::paint::sink::row_major;
use crate::plan::expansion;
use crate::reduce::visit::gaps;

/// Chunk and cell index of a cell of the result.
type Pointer = (u32, u32);
const FILL: Pointer = (u32::MAX, 0);

/// Reads a selection of a variable-length field, row-major.
///
/// # Errors
/// Errors of the plan, the store and the decoders; `Limit`.
pub fn read_var(handle: &Handle, request: &Request, options: &Options) -> Result<Cells> {
    handle.operate(options, |handle| read_all(handle, request, options))
}

/// As [`read_var`], with validity 0 for every missing cell.
///
/// # Errors
/// As [`read_var`].
pub fn read_valid_var(handle: &Handle, request: &Request, options: &Options) -> Result<Cells> {
    let cells = read_var(handle, request, options)?;
    let [Column::Field(field)] = request.columns.as_slice() else { return Ok(cells) };
    let field = &handle.schema().fields[usize::from(*field)];
    let written = gaps(handle, request)?;
    let validity = column_validity(field, &cells, written.as_deref()).map(std::borrow::Cow::into_owned);
    validity.map_or(Ok(cells.clone()), |validity| cells.with_validity(validity))
}

fn read_all(handle: &Handle, request: &Request, options: &Options) -> Result<Cells> {
    let (Some(selection), [column @ Column::Field(field)]) =
        (request.selection(), request.columns.as_slice())
    else {
        return Err(Error::invalid("a dense read requires positions of one field"));
    };
    let schema = handle.schema();
    let (size, nullable) = column_layout(schema, *column)?;
    let plan = handle.plan(request)?;
    let cells = selection.cells().and_then(|n| usize::try_from(n).ok());
    let cells = cells.ok_or_else(|| Error::limit("the selection", u64::MAX, usize::MAX as u64))?;
    options.check_memory("the result", cells as u64 * size_of::<Pointer>() as u64)?;
    let resident = fetch::resident(handle, &plan.chunks)?;
    let ticker = options.ticker(plan.chunks.len() as u64);
    let decode_one = |chunk: &PlannedChunk| {
        let cells = decode_chunk(handle, chunk, *column, resident.as_ref())?;
        ticker.tick().map(|()| cells)
    };
    let decoded: Vec<Cells> = if options.sequential {
        plan.chunks.iter().map(decode_one).collect::<Result<_>>()?
    } else {
        options.run(|| plan.chunks.par_iter().map(decode_one).collect::<Result<_>>())?
    };
    let held: u64 = decoded.iter().map(|c| c.data().len() as u64).sum();
    options.check_memory("the result", held.saturating_mul(2))?;

    // Lower layers first, so that higher ones are painted over them.
    let mut order: Vec<u32> = (0..).take(plan.chunks.len()).collect();
    order.sort_by_key(|&i| plan.chunks[i as usize].layer);
    let mut pointers = alloc::filled("the result", FILL, cells)?;
    for number in order {
        point(handle, &plan.chunks[number as usize], number, selection, &mut pointers)?;
    }
    let field = &schema.fields[usize::from(*field)];
    let fill = field.fill.as_ref().map_or(&[][..], |f| f.bytes());
    let mut out = Cells::new(size, nullable);
    for (chunk, cell) in pointers {
        match decoded.get(chunk as usize) {
            Some(cells) if (chunk, cell) != FILL => {
                out.push(cells.get(cell as usize), cells.is_valid(cell as usize))
            }
            _ => out.push(fill, !nullable || field.fill_valid),
        }
    }
    Ok(out)
}

/// Decodes one column of a whole chunk.
pub(crate) fn decode_chunk(
    handle: &Handle,
    chunk: &PlannedChunk,
    column: Column,
    resident: Option<&Resident>,
) -> Result<Cells> {
    let (size, nullable) = column_layout(handle.schema(), column)?;
    let decode = || -> Result<Cells> {
        let fetched;
        let source = match resident {
            Some(resident) => ChunkBytes::Resident(resident),
            None => {
                fetched = fetch::fetch(handle, &fetch::chunk_batch(handle, chunk))?;
                ChunkBytes::Fetched(&fetched)
            }
        };
        let parts = source.column(handle, chunk, column)?;
        // Cells have 32-bit indexes.
        let count = u32::try_from(chunk.cells)
            .map_err(|_| Error::limit("a chunk's cells", chunk.cells, u64::from(u32::MAX)))?;
        expansion::check_chunk(handle, chunk, (count as usize).saturating_mul(size.max(1)))?;
        let mut out = Cells::new(size, nullable);
        out.decode_with(count as usize, |to| {
            with_workspace(|w| {
                handle.source().decode(chunk, column, &parts, 0..chunk.cells, to, &mut w.scratch)
            })
        })?;
        Ok(out)
    };
    decode().map_err(|e| handle.locate(chunk, e))
}

/// Maps the cells of the result that a chunk covers to that chunk's cells.
fn point(
    handle: &Handle,
    chunk: &PlannedChunk,
    number: u32,
    selection: &Selection,
    pointers: &mut [Pointer],
) -> Result<()> {
    let Some((part, target)) = chunk.cover.region().and_then(|c| selection.clip(c)) else { return Ok(()) };
    let tile: &Region =
        chunk.tile_region().ok_or_else(|| Error::internal("a sparse chunk in a dense read"))?;
    let from = locate_selection(tile, handle.schema().cell_order, 1, &part);
    let strides = row_major(&selection.shape(), 1);
    let start: usize = target
        .bounds()
        .iter()
        .zip(&strides)
        .map(|(b, s)| usize::try_from(b.0).unwrap_or(usize::MAX) * s)
        .sum();
    let extents: Vec<usize> =
        part.shape().iter().map(|&n| usize::try_from(n).unwrap_or(usize::MAX)).collect();
    let walk = Walk::new(&from.strides, &strides, &extents, 1)?;
    walk.for_each_run(|run| {
        for i in 0..run.count {
            let cell = from.start + run.src + i * run.src_stride;
            pointers[start + run.dst + i * run.dst_stride] =
                (number, u32::try_from(cell).unwrap_or(u32::MAX));
        }
    });
    Ok(())
}
