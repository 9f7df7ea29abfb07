//! Rewriting of datasets with other chunks.

use std::path::Path;

use tesseral_core::Result;

use crate::convert::{ChunkShape, ConvertOptions, Converted, run};
use tesseral_dataset::Container;

/// Rewrites a source with other chunks, in its own format unless the options name another; everything else is unchanged.
///
/// # Errors
/// As [`convert`](crate::convert).
pub fn rechunk(
    source: &Container,
    target: impl AsRef<Path>,
    chunk: ChunkShape,
    options: &ConvertOptions,
) -> Result<Converted> {
    let format = options.format.clone().unwrap_or_else(|| source.format().id().to_owned());
    let options = ConvertOptions { chunk: Some(chunk), format: Some(format), ..options.clone() };
    run(source, target.as_ref(), &options, "rechunk")
}
