//! Other chunks for the same cells.

use std::path::Path;

use tesseral_core::Result;

use crate::Container;
use crate::convert::{ChunkShape, ConvertOptions, Converted, run};

/// Writes a source again, in its own format unless the options name another, with other chunks; all else stays.
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
