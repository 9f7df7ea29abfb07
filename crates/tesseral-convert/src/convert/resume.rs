//! Resuming an interrupted conversion.
//!
//! Encoded chunks are stored in a journal next to the target while a conversion runs. An interrupted conversion leaves it; the
//! next one of the same source with the same options reuses the chunks.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use tesseral_core::{Error, ErrorKind, Result};
use tesseral_engine::Journal;
use tesseral_store::{Location, StagedPath};
use xxhash_rust::xxh3::Xxh3;

use super::options::{ConvertOptions, Resume};
use super::plan::ConvertPlan;
use tesseral_dataset::Container;

/// Minimum size of a conversion with a journal, in bytes.
const WORTH: u64 = 64 << 20;

/// Journal of the current conversion.
#[derive(Debug)]
pub(crate) struct ConversionJournal {
    path: PathBuf,
}

impl ConversionJournal {
    /// Opens the journal of a conversion, if it is worth one. `staged` is the temporary path of the output.
    ///
    /// # Errors
    /// `Unsupported` if one is requested for an output in an object store, which is not uploaded in parts of a conversion; `Io`.
    pub(crate) fn begin(
        source: &Container,
        digest: &str,
        plan: &ConvertPlan,
        target: &Path,
        staged: &StagedPath,
        options: &ConvertOptions,
    ) -> Result<Option<(Self, Journal)>> {
        let location = Location::parse(target)?;
        let Some(target) = location.path() else {
            return match options.resume {
                Resume::Always => Err(Error::unsupported(format!("resuming a conversion to {location}"))
                    .hint("convert to a local path, and copy the output afterwards")),
                Resume::Never | Resume::Large => Ok(None),
            };
        };
        let key = key(source, digest, plan);
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let path = target.with_file_name(format!(".tesseral-{name}.{:016x}.resume", key as u64));
        let kept = kept_arrays(plan);
        let bytes: u64 =
            plan.arrays.iter().zip(&kept).filter(|(_, k)| **k).map(|(a, _)| a.rechunk.bytes).sum();
        let wanted = match options.resume {
            Resume::Never => false,
            Resume::Always => kept.contains(&true),
            Resume::Large => bytes >= WORTH,
        };
        if !wanted {
            let _ = fs::remove_file(&path);
            return Ok(None);
        }
        let io = |e| Error::io("open", path.display().to_string(), e);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(io)?;
        let own = staged.path().file_name().unwrap_or_default().to_string_lossy();
        let (journal, earlier) = Journal::open(file, key, &own, kept)?;
        if let Some(left) = earlier {
            staged.discard(&left);
        }
        Ok(Some((Self { path }, journal)))
    }

    /// Removes the journal, unless the conversion was interrupted.
    pub(crate) fn end<T>(self, outcome: &Result<T>) {
        let interrupted = outcome.as_ref().err().is_some_and(|e| matches!(e.kind(), ErrorKind::Cancelled));
        if !interrupted {
            // A remaining journal is harmless: it is validated before it is used.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns for each array whether its encoded chunks can be stored.
fn kept_arrays(plan: &ConvertPlan) -> Vec<bool> {
    // A writer that collects arrays encodes them at the end: no chunks can be stored.
    let coded = |codecs: &Vec<Vec<tesseral_format::CodecSpec>>| codecs.iter().any(|list| !list.is_empty());
    let gathers = !plan.format.holds().chunks;
    plan.arrays.iter().map(|a| !gathers && !a.feed.pass_through && coded(&a.spec.codecs)).collect()
}

/// Returns whether the conversion can have a journal, of this attempt or an earlier one.
pub(crate) fn is_possible(plan: &ConvertPlan) -> bool {
    kept_arrays(plan).contains(&true)
}

/// Identity of a conversion: the source's bytes and time range, and everything that its chunks depend on.
fn key(source: &Container, digest: &str, plan: &ConvertPlan) -> u128 {
    let mut hash = Xxh3::new();
    let mut add = |text: String| {
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    add(format!("{} {} {digest} {:?}", env!("CARGO_PKG_VERSION"), plan.format.id(), source.as_of()));
    add(format!("{:?}", plan.create.format));
    for planned in &plan.arrays {
        add(format!("{:?} {:?}", planned.spec, planned.feed.selection));
        for column in &planned.feed.columns {
            add(format!("{} {} {:?}", column.array.name(), column.array.field_number(), column.dtype));
        }
    }
    hash.digest128()
}
