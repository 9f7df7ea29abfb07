//! Saving what is whole of a torn source, beside it.

use std::path::Path;
use std::sync::Arc;

use tesseral_core::{Finding, Result, Value};
use tesseral_engine::{Options, Recovered};
use tesseral_format::{CreateOptions, Format, OpenOptions};
use tesseral_store::{Access, LocalStore, Overwrite, StagedFolder, Store};

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
    let mut create = CreateOptions { overwrite, ..CreateOptions::default() };
    // What was encrypted stays so.
    if let Some(key) = &open.key {
        create.extra.insert("key".to_owned(), Value::Bytes(key.clone()));
    }
    let folder = match format.capabilities().folder {
        true => Some(StagedFolder::create(output, overwrite)?),
        false => None,
    };
    let root = folder.as_ref().map_or(output, StagedFolder::path);
    let target = format.create(Arc::new(LocalStore::new(root, Access::Read)), &create)?;
    let recovered = tesseral_engine::recover(format, source, open, target, options, report)?;
    folder.map_or(Ok(()), StagedFolder::publish)?;
    Ok(recovered)
}
