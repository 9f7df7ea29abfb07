//! Recovery of the intact part of a damaged source into a new one.

use std::sync::Arc;

use tesseral_core::{Error, Finding, Result};
use tesseral_engine::{Options, Recovered};
use tesseral_format::{CreateOptions, Format, OpenOptions};
use tesseral_registry as registry;
use tesseral_store::{Overwrite, Store};

use crate::Output;

/// Copies the intact chunks of a damaged source to a new container of the same format. `output` is a
/// dataset of that format. See [`tesseral_engine::recover`].
///
/// # Errors
/// `Corrupt` if nothing can be recovered; `InvalidRequest` if the output exists or has a name of another format; `Unsupported`; `Io`.
pub fn recover(
    format: &dyn Format,
    source: Arc<dyn Store>,
    open: &OpenOptions,
    output: Output,
    options: &Options,
    report: &mut dyn FnMut(Finding),
) -> Result<Recovered> {
    let source = source.canceled_by(&options.cancel).unwrap_or(source);
    // The output of an encrypted source is encrypted too.
    let key = open.key.clone();
    let mut create = CreateOptions { overwrite: Overwrite::Replace, key, ..CreateOptions::default() };
    create.check(format)?;
    registry::check_named(output.path(), format)?;
    let output = output.source(source.location()).outside_sources().canceled_by(&options.cancel);
    let mut staged = None;
    let mut begin = || {
        // An earlier one is discarded.
        staged = None;
        let output = staged.insert(output.clone().stage()?);
        create.folder = output.is_folder();
        format.create(output.store(), &create)
    };
    let recovered = tesseral_engine::recover(format, source, open, &mut begin, options, report)?;
    staged.ok_or_else(|| Error::internal("no output was begun"))?.publish()?;
    Ok(recovered)
}
