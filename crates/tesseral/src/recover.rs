//! Saving what is whole of a torn source, beside it.

use std::path::Path;
use std::sync::Arc;

use tesseral_core::{Finding, Result, Value};
use tesseral_engine::{Options, Recovered};
use tesseral_format::{CreateOptions, Format, OpenOptions};
use tesseral_store::{Overwrite, Store};

use crate::Output;

/// Copies every whole chunk of a torn source to a new container of the same format. See [`tesseral_engine::recover`].
///
/// # Errors
/// `Corrupt` when nothing can be saved; `InvalidRequest` when the output exists; `Unsupported`; `Io`.
pub fn recover(
    format: &dyn Format,
    source: Arc<dyn Store>,
    open: &OpenOptions,
    output: &Path,
    overwrite: Overwrite,
    options: &Options,
    report: &mut dyn FnMut(Finding),
) -> Result<Recovered> {
    let mut create = CreateOptions { overwrite: Overwrite::Replace, ..CreateOptions::default() };
    // What was encrypted stays so.
    if let Some(key) = &open.key {
        create.extra.insert("key".to_owned(), Value::Bytes(key.clone()));
    }
    let output = Output::dataset(output, format.capabilities().folder).overwrite(overwrite);
    let output = output.source(source.location()).stage()?;
    let target = format.create(output.store(), &create)?;
    let recovered = tesseral_engine::recover(format, source, open, target, options, report)?;
    output.publish()?;
    Ok(recovered)
}
