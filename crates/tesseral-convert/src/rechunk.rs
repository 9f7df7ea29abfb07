//! Rewriting of datasets with other chunks.

use std::path::Path;

use tesseral_core::Result;

use crate::convert::{ChunkShape, ConvertOptions, Converted, run};
use tesseral_dataset::Container;
use tesseral_registry as registry;

/// Rewrites a source with other chunks, in its own format unless the options or the file extension of the output name another;
/// everything else is unchanged.
///
/// # Errors
/// As [`convert`](crate::convert).
pub fn rechunk(
    source: &Container,
    target: impl AsRef<Path>,
    chunk: ChunkShape,
    options: &ConvertOptions,
) -> Result<Converted> {
    let target = target.as_ref();
    let own = source.format();
    let format = || registry::named_otherwise(target, own).unwrap_or(own).id().to_owned();
    let format = options.format.clone().unwrap_or_else(format);
    let options = ConvertOptions { chunk: Some(chunk), format: Some(format), ..options.clone() };
    run(source, target, &options, "rechunk")
}
