//! In-memory formats for tests, which exercise every feature of the traits, including those that no real format has yet.
//!
//! [`layered`] stores dense arrays as overlapping layers with gaps, [`cells`] sparse arrays as layers of listed cells. Both are
//! complete formats: bytes in a store, recognized, opened, audited and (layered) written like any other, so that the engine
//! and the [conformance suite](crate::suite) run on them unchanged. [`tables`] has what tests of tables have in common.

pub mod cells;
mod coding;
mod container;
pub mod layered;
mod mutation;
mod random;
pub mod tables;
mod values;
mod wire;

use std::sync::Arc;

use tesseral_core::dtype::Class;
use tesseral_core::{CellLen, Field, Finding, Limits, Result};
use tesseral_store::Store;

pub use coding::Coding;
pub use mutation::{fixtures, mutations};
pub use random::Random;
pub use values::Cell;
pub(crate) use values::{Buffers, cell as random_cell};

use crate::oracle::Cells;
use tesseral_format::{AuditOptions, AuditReport, ContainerSource, Probe, Sniff};

/// Recognizes by the magic, else by the file extension.
fn sniff(probe: &Probe<'_>, magic: &[u8; 8], extensions: &[&str]) -> Sniff {
    if probe.head.starts_with(magic) {
        Sniff::Content
    } else if probe.has_extension(extensions) {
        Sniff::Name
    } else {
        Sniff::No
    }
}

/// The steps of an open, continuing after errors where possible.
fn audit(
    store: Arc<dyn Store>,
    magic: &[u8; 8],
    options: &AuditOptions,
    report: &mut dyn FnMut(Finding),
    parse: impl FnOnce(Arc<dyn Store>, &wire::TestDirectory, &Limits) -> Result<Arc<dyn ContainerSource>>,
) -> Result<AuditReport> {
    use tesseral_core::ErrorKind;
    let limits = &options.open.limits;
    let directory = match wire::read_directory(store.as_ref(), magic, limits) {
        Ok(directory) => directory,
        Err(e) if matches!(e.kind(), ErrorKind::Io { .. } | ErrorKind::NotFound { .. }) => return Err(e),
        Err(e) => {
            report(Finding::from_error("header", &e));
            return Ok(AuditReport::default());
        }
    };
    report(Finding::passed("header", "the directory is inside the file").at(0, wire::HEADER));
    match directory.check(store.as_ref()) {
        Ok(()) => report(Finding::passed("directory_digest", "matches")),
        Err(e) => report(Finding::from_error("directory_digest", &e)),
    }
    let container = match parse(Arc::clone(&store), &directory, limits) {
        Ok(container) => {
            report(Finding::passed("directory", "valid"));
            Some(container)
        }
        Err(e) => {
            report(Finding::from_error("directory", &e));
            None
        }
    };
    let covered_bytes = directory.bytes.len() as u64;
    Ok(AuditReport { container, covered_bytes, uncovered_bytes: wire::HEADER })
}

/// Converts cells to the oracle's representation.
pub(crate) fn oracle_cells(field: &Field, cells: Vec<Cell>) -> Cells {
    if field.cell == CellLen::Var {
        return Cells::Var(cells);
    }
    let validity = field.nullable.then(|| cells.iter().map(|cell| u8::from(cell.is_some())).collect());
    if field.dtype.class() == Class::Bits {
        return Cells::Fixed { values: values::pack(&cells), validity };
    }
    let size = field.cell_size().unwrap_or(1);
    let values = cells.into_iter().flat_map(|cell| cell.unwrap_or_else(|| vec![0; size])).collect();
    Cells::Fixed { values, validity }
}
