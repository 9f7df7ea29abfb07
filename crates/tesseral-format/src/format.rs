//! A format as a whole: recognise, open, create, audit, mend.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::Arc;

use tesseral_core::{ArraySchema, Cancel, Error, Finding, Limits, Region, Result, Value};
use tesseral_store::{ObjectInfo, Overwrite, Store};

use crate::{Container, Edit, MemoryBudget, MessageFormat, Writer};

/// What can be seen of a source before opening it.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    /// Its path or URL.
    pub name: &'a str,
    /// Its first bytes, up to 4 KiB; empty for folders.
    pub head: &'a [u8],
    /// What is directly in it, for folders.
    pub entries: Option<&'a [ObjectInfo]>,
}

/// Whether a source is of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sniff {
    /// Nothing speaks for it.
    No,
    /// Only its name does: a damaged file, perhaps.
    Name,
    /// Its bytes do.
    Content,
}

/// A span of time, milliseconds since 1970, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// First moment.
    pub start: u64,
    /// Last moment.
    pub end: u64,
}

/// How to open. Printing it does not show the key.
#[derive(Clone)]
pub struct OpenOptions {
    /// Read the state of then, for formats that keep versions.
    pub as_of: Option<TimeRange>,
    /// Bounds on what the file may make us use.
    pub limits: Limits,
    /// The key of encrypted arrays.
    pub key: Option<Vec<u8>>,
    /// Check every digest the format carries, and add digests to what is appended or edited. On unless someone turns it off.
    pub digests: bool,
    /// Stops opening, auditing and salvaging from outside.
    pub cancel: Cancel,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { as_of: None, limits: Limits::default(), key: None, digests: true, cancel: Cancel::default() }
    }
}

impl Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("as_of", &self.as_of)
            .field("limits", &self.limits)
            .field("key", &self.key.as_ref().map(|_| "hidden"))
            .field("digests", &self.digests)
            .finish()
    }
}

/// How to create. Printing it does not show a key.
#[derive(Clone)]
pub struct CreateOptions {
    /// Whether an existing output may be replaced.
    pub overwrite: Overwrite,
    /// Store a digest per chunk where the format has a place for it.
    pub digests: bool,
    /// Store chunk statistics where the format makes them optional (`.tet` zone maps).
    pub statistics: bool,
    /// The memory that readers shall keep to, for formats that can say so.
    pub memory_budget: Option<MemoryBudget>,
    /// Bytes that a writer may hold to itself, where it has a choice.
    pub work_space: Option<u64>,
    /// Options only one format knows, by name.
    pub extra: BTreeMap<String, Value>,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            overwrite: Overwrite::Refuse,
            digests: true,
            statistics: false,
            memory_budget: None,
            work_space: None,
            extra: BTreeMap::new(),
        }
    }
}

impl Debug for CreateOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = Value::from("hidden");
        let shown = |name: &String| if name == "key" { &hidden } else { &self.extra[name] };
        let extra: BTreeMap<&String, &Value> = self.extra.keys().map(|name| (name, shown(name))).collect();
        f.debug_struct("CreateOptions")
            .field("overwrite", &self.overwrite)
            .field("digests", &self.digests)
            .field("statistics", &self.statistics)
            .field("memory_budget", &self.memory_budget)
            .field("work_space", &self.work_space)
            .field("extra", &extra)
            .finish()
    }
}

/// How to add to an array that exists.
#[derive(Clone, Debug, Default)]
pub struct AppendOptions {
    /// How it is opened.
    pub open: OpenOptions,
    /// When the cells count as written, milliseconds since 1970; now, unless given.
    pub timestamp: Option<u64>,
    /// The box of a dense array that is written; all of it, unless given.
    pub region: Option<Region>,
    /// Of several cells at one position of a sparse array that holds one, keep the last instead of refusing them.
    pub dedup: bool,
}

/// What a format can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Capabilities {
    pub create: bool,
    pub many_arrays: bool,
    /// Several fields in one array.
    pub many_fields: bool,
    pub sparse: bool,
    pub versions: bool,
    pub nullable: bool,
    pub attributes: bool,
    /// Containers are folders.
    pub folder: bool,
    /// The attributes that a container as a whole may have; `None` when any.
    pub container_attributes: Option<&'static [&'static str]>,
    /// Dimensions have coordinates of their own, such as 1 to 12 or dates.
    pub domains: bool,
    /// Arrays are found by number; a name they are given is a hint.
    pub numbered: bool,
    /// A chunk is always the whole array, whatever the chunk shape that was asked for.
    pub whole_arrays: bool,
    /// Others may append to a file while it is read, which leaves the bytes before as they are.
    pub grows: bool,
}

/// How deep checks go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// How the source is built, nothing else.
    Structure,
    /// And every digest. Nothing is decoded.
    Digests,
    /// And what metadata says; chunks without a digest are decoded, as far as they are few.
    #[default]
    Usual,
    /// And every chunk is decoded, stored statistics compared.
    Deep,
    /// And whatever else the format's own validator asks of cells.
    Full,
}

/// How thoroughly to audit.
#[derive(Clone, Debug, Default)]
pub struct AuditOptions {
    /// How the source would be opened.
    pub open: OpenOptions,
    /// How deep to go.
    pub depth: Depth,
    /// Tell of metadata that is not in the one form that writers must choose.
    pub canonical: bool,
}

/// What an audit of the metadata leaves for the engine: it decodes the payloads itself.
#[derive(Debug, Default)]
pub struct AuditReport {
    /// The container, when enough of it could be opened to decode payloads.
    pub container: Option<Arc<dyn Container>>,
    /// Payloads were decoded already; only their digests are left to compare.
    pub decoded: bool,
    /// Bytes of metadata that some digest or checksum covers.
    pub covered_bytes: u64,
    /// Bytes of metadata that none covers. Payload bytes are counted by the engine, by [`ArraySource::digests`](crate::ArraySource::digests).
    pub uncovered_bytes: u64,
}

/// A fix that a source needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// Its name, as `tet repair --apply` takes it.
    pub code: &'static str,
    /// What is wrong and what the fix does.
    pub message: String,
    /// Whether [`Format::apply_repair`] can do it without losing a cell that can still be read.
    pub automatic: bool,
}

/// What could be saved of a torn source.
#[derive(Debug)]
pub struct Salvage {
    /// Opens every chunk that is whole; the others are uncovered.
    pub container: Arc<dyn Container>,
    /// Whether cells that no chunk covers were lost. Else nobody wrote them.
    pub gaps_are_losses: bool,
    /// What was lost.
    pub findings: Vec<Finding>,
}

/// A format. Stateless; one value serves all.
pub trait Format: Debug + Send + Sync {
    /// Its id: `tet`, `tensogram`, `tiledb`.
    fn id(&self) -> &'static str;

    /// Its name for people.
    fn title(&self) -> &'static str;

    /// Endings of file names it is known by, without the dot.
    fn extensions(&self) -> &'static [&'static str];

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Whether a source is of this format, without further I/O.
    fn sniff(&self, probe: &Probe<'_>) -> Sniff;

    /// Opens a source.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`, `Limit`, `Io`, `NotFound`.
    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn Container>>;

    /// What can be done with its messages, for formats that have any.
    fn messages(&self) -> Option<&dyn MessageFormat> {
        None
    }

    /// Begins a new container. Nothing is visible before [`Writer::commit`].
    ///
    /// # Errors
    /// `Unsupported` when the format is only read; `InvalidRequest` when the output exists; `Io`.
    fn create(&self, store: Arc<dyn Store>, options: &CreateOptions) -> Result<Box<dyn Writer>> {
        let _ = (store, options);
        Err(Error::unsupported(format!("writing {}", self.title())))
    }

    /// Begins a further write to the one array that a source is. The writer has that array already, as number 0.
    ///
    /// # Errors
    /// `Unsupported` when the format keeps no versions or its version is only read; `InvalidRequest`; as [`open`](Self::open).
    fn append(
        &self,
        store: Arc<dyn Store>,
        options: &AppendOptions,
    ) -> Result<(Box<dyn Writer>, ArraySchema)> {
        let _ = (store, options);
        Err(Error::unsupported(format!("adding to a {}", self.title())))
    }

    /// What else can be done to a source that keeps versions.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    fn edit(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Box<dyn Edit>> {
        let _ = (store, options);
        Err(Error::unsupported(format!("changing a {}", self.title())))
    }

    /// Checks the metadata and reports every check made. The same walk as [`open`](Self::open), which goes on after a fault
    /// as far as it can. Payloads are left to the engine.
    ///
    /// # Errors
    /// Only `Io` and `NotFound`: damage is a finding.
    fn audit(
        &self,
        store: Arc<dyn Store>,
        options: &AuditOptions,
        report: &mut dyn FnMut(Finding),
    ) -> Result<AuditReport>;

    /// The first object of a folder that is no part of a container of this format; `None` when everything is. Folders with something
    /// else in them are not replaced.
    ///
    /// # Errors
    /// `Io`, `NotFound`.
    fn foreign(&self, store: Arc<dyn Store>) -> Result<Option<String>> {
        // A format of files has no folders of its own.
        let first = |entries: Vec<ObjectInfo>| entries.into_iter().next().map(|entry| entry.name);
        Ok(store.list("").map_or(None, first))
    }

    /// The fixes a source needs.
    ///
    /// # Errors
    /// `Io`, `NotFound`.
    fn repairs(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Vec<Repair>> {
        let _ = (store, options);
        Ok(Vec::new())
    }

    /// Applies one automatic fix. The source is replaced whole or left as it was.
    ///
    /// # Errors
    /// `InvalidRequest` when the fix is not needed or not automatic; `Io`.
    fn apply_repair(&self, store: Arc<dyn Store>, options: &OpenOptions, code: &str) -> Result<()> {
        let _ = (store, options);
        Err(Error::invalid(format!("{} has no automatic repair {code:?}", self.title())))
    }

    /// Opens what is whole of a torn source.
    ///
    /// # Errors
    /// `Corrupt` when nothing can be saved; `Unsupported`.
    fn salvage(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Salvage> {
        let _ = (store, options);
        Err(Error::unsupported(format!("recovering {}", self.title())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_printed() {
        let key = b"an unlikely text that is a key!!".to_vec();
        let open = OpenOptions { key: Some(key.clone()), ..OpenOptions::default() };
        let extra = BTreeMap::from([("key".to_owned(), Value::Bytes(key.clone()))]);
        let create = CreateOptions { extra, ..CreateOptions::default() };
        let append = AppendOptions { open: open.clone(), ..AppendOptions::default() };
        for printed in [format!("{open:?}"), format!("{create:#?}"), format!("{append:?}")] {
            let as_numbers = format!("{:?}", &key[..4]);
            assert!(
                !printed.contains("unlikely") && !printed.contains(as_numbers.trim_matches(['[', ']'])),
                "{printed}"
            );
            assert!(printed.contains("hidden"));
        }
    }
}
