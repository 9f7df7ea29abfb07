//! A source in memory, its content, and the outcome of reading a damaged copy.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tesseral::{Array, Finding, Open, OpenOptions, Options, Result, Severity, Verified, recognize};
use tesseral_core::CellLen;
use tesseral_store::{MemoryStore, Store};

/// Files by name; the empty name for a source that is one file.
pub type Files = BTreeMap<String, Vec<u8>>;
/// The cells of each column, or the error.
type Contents = BTreeMap<String, Result<Vec<u8>>>;

/// The name that attributes and history of the whole source go by.
const ATTRIBUTES: &str = "attributes of the source";

/// What the name of an array's schema ends in.
const SCHEMA: &str = "/schema";

fn is_metadata(column: &str) -> bool {
    column == ATTRIBUTES || column.ends_with(SCHEMA)
}

/// The outcome of a damaged copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The cells are unchanged.
    Harmless,
    /// Reading returns an error, and verify finds the damage.
    Refused,
    /// Reading returns an error, and verify finds nothing.
    Missed,
    /// Wrong cells without an error; verify finds the damage.
    Verified,
    /// Other content without an error, as the format defines it without the file; verify warns.
    Warned,
    /// Other content without an error, as the format defines it without the file; nothing refers to the file.
    Undefined,
    /// Wrong cells without an error, undetected.
    Silent,
    /// A panic.
    Panic,
    /// More than ten seconds of CPU time.
    Slow,
}

/// A source and its content.
pub struct Sample {
    name: String,
    pub files: Files,
    truth: BTreeMap<String, Vec<u8>>,
}

impl Sample {
    /// Reads a file, or every file below a folder.
    pub fn load(path: &Path) -> std::result::Result<Self, Box<dyn std::error::Error>> {
        let name = path.file_name().ok_or("a source has a name")?.to_string_lossy().into_owned();
        let mut files = Files::new();
        collect(path, "", &mut files)?;
        let mut truth = BTreeMap::new();
        for (column, cells) in read(store(&name, files.clone()))? {
            truth.insert(column, cells?);
        }
        Ok(Self { name, files, truth })
    }

    /// Offsets and lengths of the chunks of a single-file source.
    pub fn chunks(&self) -> Result<Vec<(usize, usize)>> {
        let mut out = Vec::new();
        let container = open().open_store(store(&self.name, self.files.clone()))?;
        for i in 0..container.len() {
            let array = container.array_at(i)?;
            let chunks = if array.schema().sparse { Vec::new() } else { array.chunks(&array.all()?)? };
            out.extend(chunks.iter().map(|chunk| (chunk.offset as usize, chunk.stored_len as usize)));
        }
        Ok(out)
    }

    /// Reads and verifies a copy without one of its files. A TileDB array is valid without a file of its logs: a fragment without
    /// its commit was never written, a group without its list has no members. Verify must warn of what such a file leaves
    /// behind; files of attributes, deletes and replaced fragments leave nothing.
    pub fn judge_missing(&self, removed: &str, files: Files) -> Outcome {
        let outcome = self.judge(files.clone());
        let log = removed.split('/').any(|part| matches!(part, "__commits" | "__meta" | "__group"));
        if !log || !matches!(outcome, Outcome::Silent | Outcome::Missed) {
            return outcome;
        }
        let warnings = |files: Files| warnings(store(&self.name, files));
        if warnings(files) > warnings(self.files.clone()) {
            return Outcome::Warned;
        }
        let traceless = removed.split('/').any(|part| part == "__meta")
            || [".del", ".vac", ".ign"].iter().any(|ending| removed.ends_with(ending));
        if traceless { Outcome::Undefined } else { outcome }
    }

    /// Reads and verifies a damaged copy.
    pub fn judge(&self, files: Files) -> Outcome {
        let begun = time_on_cpu();
        let store = store(&self.name, files);
        let result = catch_unwind(AssertUnwindSafe(|| (read(Arc::clone(&store)), is_sound(store))));
        let Ok((found, sound)) = result else { return Outcome::Panic };
        if time_on_cpu().saturating_sub(begun) > Duration::from_secs(10) {
            return Outcome::Slow;
        }
        let mut found = found.unwrap_or_default();
        let (mut all, mut metadata) = (true, true);
        for (column, truth) in &self.truth {
            match found.remove(column) {
                Some(Ok(bytes)) if bytes != *truth && is_metadata(column) => metadata = false,
                Some(Ok(cells)) if cells != *truth => {
                    return if sound { Outcome::Silent } else { Outcome::Verified };
                }
                Some(Ok(_)) => {}
                _ => all = false,
            }
        }
        // Formats may show metadata before they have read all that its digest covers, if reading the cells then fails.
        if all && !metadata {
            return if sound { Outcome::Silent } else { Outcome::Verified };
        }
        match (all, sound) {
            (true, _) => Outcome::Harmless,
            (false, false) => Outcome::Refused,
            (false, true) => Outcome::Missed,
        }
    }
}

fn collect(path: &Path, prefix: &str, out: &mut Files) -> std::io::Result<()> {
    if path.is_file() {
        out.insert(prefix.to_owned(), fs::read(path)?);
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let name = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        collect(&entry.path(), &name, out)?;
    }
    Ok(())
}

fn store(name: &str, files: Files) -> Arc<dyn Store> {
    let store = MemoryStore::new(name);
    files.into_iter().for_each(|(name, bytes)| store.insert(&name, bytes));
    Arc::new(store)
}

/// One thread: there are many small copies.
fn open() -> Open {
    Open::new().execution(Options::default().sequential())
}

fn read(store: Arc<dyn Store>) -> Result<Contents> {
    let container = open().open_store(store)?;
    let mut out = Contents::new();
    let about = (container.inner().attributes(), container.inner().history());
    out.insert(ATTRIBUTES.to_owned(), Ok(format!("{about:?}").into_bytes()));
    for i in 0..container.len() {
        let name = container.inner().name(i).to_owned();
        match container.array_at(i) {
            Ok(array) => columns(&name, &array, &mut out),
            Err(e) => drop(out.insert(name, Err(e))),
        }
    }
    Ok(out)
}

fn columns(name: &str, array: &Array, out: &mut Contents) {
    out.insert(format!("{name}{SCHEMA}"), Ok(format!("{:?}", array.schema()).into_bytes()));
    if array.schema().sparse {
        let rows = array.cells().and_then(|query| query.read());
        let cells = rows.map(|rows| rows.columns.iter().flat_map(|(_, cells)| flat(cells)).collect());
        out.insert(name.to_owned(), cells);
        return;
    }
    for field in 0..array.schema().fields.len() {
        let number = u16::try_from(field).unwrap_or(u16::MAX);
        out.insert(format!("{name}/{field}"), array.clone().field_at(number).and_then(|array| dense(&array)));
    }
}

fn dense(array: &Array) -> Result<Vec<u8>> {
    let all = array.all()?;
    if array.selected_field().cell == CellLen::Var {
        return Ok(flat(&array.read_var(&all)?));
    }
    let cells = array.read(&all)?;
    Ok([cells.bytes(), cells.validity().unwrap_or_default()].concat())
}

fn flat(cells: &tesseral::Cells) -> Vec<u8> {
    let ends = cells.ends().iter().flat_map(|end| end.to_le_bytes());
    let validity = cells.validity().unwrap_or_default();
    cells.data().iter().copied().chain(ends).chain(validity.iter().copied()).collect()
}

/// CPU time of this thread, because wall-clock time is meaningless on a busy machine. Zero if the system does not report it.
fn time_on_cpu() -> Duration {
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = schedstat.split(' ').next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

fn is_sound(store: Arc<dyn Store>) -> bool {
    verify(store, &mut |_| ()).is_ok_and(|verified| verified.ok)
}

fn warnings(store: Arc<dyn Store>) -> usize {
    let mut count = 0;
    let checked = verify(store, &mut |finding| count += usize::from(finding.severity == Severity::Warning));
    checked.map_or(0, |_| count)
}

fn verify(store: Arc<dyn Store>, report: &mut dyn FnMut(Finding)) -> Result<Verified> {
    let format = recognize(&*store)?;
    let options = Options::default().sequential();
    tesseral_engine::verify(format, store, &OpenOptions::default(), true, &options, report)
}
