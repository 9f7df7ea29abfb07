//! Saving what is whole of a torn source.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tesseral_core::dtype::Class;
use tesseral_core::{ArraySchema, ErrorKind, Field, Finding, HistoryRow, Region, Result, Selection};
use tesseral_format::{ArraySpec, CodecSpec, Container, Format, OpenOptions, Request, Writer};
use tesseral_store::Store;

use crate::dense;
use crate::handle::Handle;
use crate::kernel::copy::fill_bytes;
use crate::options::Options;
use crate::write::WriteSession;

/// What [`recover`] saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Chunks whose cells are in the output.
    pub chunks_saved: u64,
    /// Chunks that were lost; their cells hold the fill.
    pub chunks_lost: u64,
}

/// Copies every whole chunk of a torn source to a new container. Cells of lost chunks get the declared fill, else NaN for
/// floats, else 0; each lost chunk is a finding.
///
/// # Errors
/// `Corrupt` when nothing can be saved; `Unsupported`; `Io`.
pub fn recover(
    format: &dyn Format,
    store: Arc<dyn Store>,
    open: &OpenOptions,
    target: Box<dyn Writer>,
    options: &Options,
    report: &mut dyn FnMut(Finding),
) -> Result<Recovered> {
    let origin = store.location().to_owned();
    let salvage = format.salvage(store, open)?;
    salvage.findings.into_iter().for_each(&mut *report);
    let container = salvage.container;
    let mut session = WriteSession::new(target, options.clone());
    let mut arrays = Vec::new();
    for index in 0..container.len() {
        // An array that cannot be described cannot be written; the others still can.
        match open_array(&*container, index, &mut session) {
            Ok(pair) => arrays.push(pair),
            Err(error) if error.is_damage() || matches!(error.kind(), ErrorKind::Unsupported { .. }) => {
                report(Finding::from_error("array_lost", &error).in_array(container.name(index)));
            }
            Err(error) => return Err(error),
        }
    }
    let mut total = Recovered::default();
    for (handle, array) in &arrays {
        let lost = copy_whole_chunks(handle, &session, *array)?;
        let chunks = handle.schema().grid()?.total();
        total.chunks_saved += chunks - lost.len() as u64;
        total.chunks_lost += lost.len() as u64;
        lost.into_iter().flatten().for_each(&mut *report);
    }
    if !container.attributes().is_empty() {
        session.set_attributes(container.attributes().clone())?;
    }
    for row in container.history() {
        session.add_history(row.clone())?;
    }
    session.add_history(history_row(&origin, total))?;
    session.commit()?;
    Ok(total)
}

fn history_row(origin: &str, total: Recovered) -> HistoryRow {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let params = [("chunks_saved", total.chunks_saved), ("chunks_lost", total.chunks_lost)];
    HistoryRow {
        op: "recover".to_owned(),
        source: origin.to_owned(),
        at: at.to_string(),
        params: params.into_iter().map(|(name, n)| (name.to_owned(), n.to_string())).collect(),
        ..HistoryRow::default()
    }
}

fn open_array(
    container: &dyn Container,
    index: usize,
    session: &mut WriteSession,
) -> Result<(Handle, usize)> {
    let handle = Handle::new(container, index, true)?;
    let array = session.add(&spec_like(handle.schema())?)?;
    Ok((handle, array))
}

/// A specification that writes an array as it was stored.
pub(crate) fn spec_like(schema: &ArraySchema) -> Result<ArraySpec> {
    let codecs = schema.fields.iter().map(|field| {
        let named = field.codecs.iter().filter(|name| *name != "raw");
        named.map(|name| name.parse::<CodecSpec>()).collect::<Result<Vec<_>>>()
    });
    Ok(ArraySpec { codecs: codecs.collect::<Result<_>>()?, schema: schema.clone() })
}

/// What stands for cells that are gone.
fn lost_cell(field: &Field, size: usize) -> Vec<u8> {
    if field.fill.is_none() && field.dtype.class() == Class::Float {
        let nan = tesseral_core::Scalar::parse(field.dtype, "NaN");
        if let Ok(nan) = nan {
            return nan.bytes().to_vec();
        }
    }
    dense::fill_cell(field, size)
}

/// Copies chunk by chunk. Gives an entry for each chunk that is lost, with a finding where that shows only now.
fn copy_whole_chunks(handle: &Handle, session: &WriteSession, array: usize) -> Result<Vec<Option<Finding>>> {
    let field = &handle.schema().fields[0];
    let cell = lost_cell(field, dense::fixed_size(handle, 0)?);
    let grid = handle.schema().grid()?;
    let lost = Mutex::new(Vec::new());
    // The engine's own loop gives the order and the threads; each read is of one chunk.
    let single = Options::default();
    session.fill(array, |region: &Region, cells: &mut [u8]| {
        let request = Request::cells(Selection::from_region(region), 0);
        let planned = handle.source().plan(&request)?;
        // What the file does not hold, the salvage has told already; what it holds but is damaged shows only now.
        let damage = if planned.chunks.is_empty() {
            None
        } else {
            match dense::read_into(handle, &request, cells, None, &single) {
                Ok(()) => return Ok(()),
                Err(error) if error.is_damage() || matches!(error.kind(), ErrorKind::Limit { .. }) => {
                    Some(error)
                }
                Err(error) => return Err(error),
            }
        };
        fill_bytes(cells, &cell);
        let start: Vec<u64> = region.bounds().iter().map(|b| b.0).collect();
        let coords = grid.chunk_of(&start);
        let finding = damage.map(|error| {
            Finding::from_error("chunk_lost", &error).in_array(&handle.schema().name).in_chunk(&coords)
        });
        lost.lock().unwrap_or_else(PoisonError::into_inner).push((grid.linear(&coords), finding));
        Ok(())
    })?;
    let mut lost = lost.into_inner().unwrap_or_else(PoisonError::into_inner);
    lost.sort_by_key(|(number, _)| *number);
    Ok(lost.into_iter().map(|(_, finding)| finding).collect())
}
