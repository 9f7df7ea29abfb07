//! Folds divided among processes: jobs and their results, as bytes.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tesseral_core::{Error, Result};
use tesseral_format::Request;

use super::merger::{Folded, Merger, Partial};
use super::run::{Fold, Unit, fold_unit, units};
use super::state::Reducer;
use super::weights::Weights;
use crate::handle::Handle;
use crate::options::Options;

/// A part of a fold that can be serialized and run by another process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The fold.
    pub fold: Fold,
    /// Units of the fold, in order.
    pub units: Vec<Unit>,
}

/// Serializable results of jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The reducers of the fold.
    pub reducers: Vec<Reducer>,
    /// The results of units, in order; those of neighbors over the same slots are joined.
    pub partials: Vec<Partial>,
}

/// The first bytes of a job and of results, with the version of what follows.
const JOB: &[u8; 8] = b"tetjob\x00\x03";
const RESULTS: &[u8; 8] = b"tetfold\x03";

fn to_bytes(magic: &[u8; 8], value: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_extend(value, magic.to_vec())
        .map_err(|e| Error::internal(format!("serializing a fold failed: {e}")))
}

fn from_bytes<T: DeserializeOwned>(magic: &[u8; 8], bytes: &[u8]) -> Result<T> {
    let corrupt = |detail: String| Error::corrupt("states", "partial result", None, detail);
    let body = bytes.strip_prefix(magic).ok_or_else(|| corrupt("unknown version".to_owned()))?;
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(corrupt("bytes after the end".to_owned())),
        Err(error) => Err(corrupt(error.to_string())),
    }
}

impl Job {
    /// The job as bytes.
    ///
    /// # Errors
    /// `Internal`, which does not happen.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        to_bytes(JOB, self)
    }

    /// The job of some bytes.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not those of a job.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        from_bytes(JOB, bytes)
    }

    /// Folds the units of the job.
    ///
    /// # Errors
    /// As [`fold_unit`].
    pub fn run(&self, handle: &Handle, request: &Request, options: &Options) -> Result<Results> {
        self.fold.weights.as_ref().map_or(Ok(()), Weights::check_finite)?;
        let mut results = Results { reducers: self.fold.reducers.clone(), partials: Vec::new() };
        for unit in &self.units {
            options.cancel.check()?;
            results.push(fold_unit(handle, request, &self.fold, unit, options)?)?;
        }
        Ok(results)
    }
}

impl Results {
    /// The results as bytes. Equal cells give equal bytes.
    ///
    /// # Errors
    /// `Internal`, which does not happen.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        to_bytes(RESULTS, self)
    }

    /// The results of some bytes.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not those of results.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        from_bytes(RESULTS, bytes)
    }

    /// Adds the result of the next units.
    fn push(&mut self, partial: Partial) -> Result<()> {
        let rest = match self.partials.last_mut() {
            Some(last) => last.join(&self.reducers, partial)?,
            None => Some(partial),
        };
        self.partials.extend(rest);
        Ok(())
    }

    /// Adds the results of the next jobs.
    ///
    /// # Errors
    /// `InvalidRequest` when they are of another fold.
    pub fn join(&mut self, next: Self) -> Result<()> {
        if self.reducers != next.reducers {
            return Err(Error::invalid("partial results of different folds do not merge"));
        }
        next.partials.into_iter().try_for_each(|partial| self.push(partial))
    }
}

/// Divides a fold into jobs of whole units and of about `bytes` of cells each, depending only on the plan and on `bytes`.
///
/// # Errors
/// As [`units`].
pub fn split(
    handle: &Handle,
    request: &Request,
    fold: &Fold,
    bytes: u64,
    options: &Options,
) -> Result<Vec<Job>> {
    let size = super::run::row_size(handle, &super::run::fields(handle, request)?.0)?;
    let mut jobs: Vec<Job> = Vec::new();
    let mut held = u64::MAX;
    for unit in units(handle, request, fold, Some(bytes), options)? {
        let more = unit.cells().saturating_mul(size);
        match jobs.last_mut().filter(|_| held.saturating_add(more) <= bytes) {
            Some(job) => {
                held += more;
                job.units.push(unit);
            }
            None => {
                held = more;
                jobs.push(Job { fold: fold.clone(), units: vec![unit] });
            }
        }
    }
    Ok(jobs)
}

/// Merges the results of all jobs of a fold, in order.
///
/// # Errors
/// `InvalidRequest` when results are missing, or those of another fold.
pub fn merge(
    handle: &Handle,
    request: &Request,
    fold: &Fold,
    results: impl IntoIterator<Item = Results>,
    units: u64,
    options: &Options,
) -> Result<Folded> {
    let mut merger = Merger::new(handle, request, fold, options)?;
    for results in results {
        if results.reducers != fold.reducers {
            return Err(Error::invalid("partial results of different folds do not merge"));
        }
        results.partials.into_iter().try_for_each(|partial| merger.add(partial))?;
    }
    merger.complete(units)?;
    merger.finish()
}
