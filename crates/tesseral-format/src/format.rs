//! The [`Format`] trait: detect, open, create, audit, repair.

use std::fmt::{self, Debug};
use std::sync::Arc;

use tesseral_core::{Cancel, Error, ErrorKind, Finding, Limits, Region, Result};
use tesseral_store::{ObjectInfo, Store};

use crate::convention::Holds;
use crate::{
    ArraySource, ContainerSource, CreateOptions, MessageFormat, OptionSet, OptionTable, Versioned, Workers,
    Writer,
};

/// Information about a source before it is opened.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    /// Path or URL of the source.
    pub name: &'a str,
    /// First bytes of a file, up to 4 KiB; empty for folders.
    pub head: &'a [u8],
    /// Entries of a folder.
    pub entries: Option<&'a [ObjectInfo]>,
}

impl Probe<'_> {
    /// Returns whether the name has one of these file extensions, in upper or lower case.
    pub fn has_extension(&self, extensions: &[&str]) -> bool {
        let name = self.name.trim_end_matches('/').to_ascii_lowercase();
        extensions.iter().any(|extension| name.strip_suffix(extension).is_some_and(|n| n.ends_with('.')))
    }
}

/// The name of a file or folder without its location and one of these extensions; `unnamed` if nothing is left.
pub fn file_stem(location: &str, extensions: &[&str], unnamed: &str) -> String {
    let name = location.trim_end_matches(['/', '\\']).rsplit(['/', '\\']).next().unwrap_or(location);
    let without = |extension: &&str| name.strip_suffix(extension)?.strip_suffix('.');
    let stem = extensions.iter().find_map(without).unwrap_or(name);
    if stem.is_empty() { unnamed.to_owned() } else { stem.to_owned() }
}

/// Confidence that a source has a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sniff {
    /// No evidence.
    No,
    /// Only the file extension matches, possibly a damaged file.
    Name,
    /// The content matches.
    Content,
}

/// A closed time range in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// First timestamp.
    pub start: u64,
    /// Last timestamp.
    pub end: u64,
}

/// Options of opening. The debug output does not contain the key.
#[derive(Clone)]
pub struct OpenOptions {
    /// Read the state at a time range, for formats with versions.
    pub as_of: Option<TimeRange>,
    /// Resource limits for untrusted sources.
    pub limits: Limits,
    /// Key of encrypted arrays.
    pub key: Option<Vec<u8>>,
    /// Verify stored digests, and add digests to appended or edited data. Default: true.
    pub digests: bool,
    /// Chunks that a format allows to be absent, and that hold the fill value then, are an error.
    pub strict: bool,
    /// Cancellation of open, audit and recovery.
    pub cancel: Cancel,
    /// Runs parts of opening at the same time; see [`in_parallel`](Self::in_parallel).
    pub workers: Option<Arc<dyn Workers>>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            as_of: None,
            limits: Limits::default(),
            key: None,
            digests: true,
            strict: false,
            cancel: Cancel::default(),
            workers: None,
        }
    }
}

impl OpenOptions {
    /// Checks that a format supports the options that are set. [`Format::open`] need not check them again.
    ///
    /// # Errors
    /// `Unsupported` with the option.
    pub fn check(&self, format: &dyn Format) -> Result<()> {
        match self.as_of {
            Some(_) if format.versioned().is_none() => {
                Err(Error::unsupported(format!("opening {} at a timestamp", format.title())))
            }
            _ => Ok(()),
        }
    }
}

impl Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("as_of", &self.as_of)
            .field("limits", &self.limits)
            .field("key", &self.key.as_ref().map(|_| "hidden"))
            .field("digests", &self.digests)
            .field("strict", &self.strict)
            .finish()
    }
}

/// Options of appending.
#[derive(Clone, Debug, Default)]
pub struct AppendOptions {
    /// Options of opening the array.
    pub open: OpenOptions,
    /// Write time in milliseconds since 1970; `None` for now.
    pub timestamp: Option<u64>,
    /// Region of a dense array to write; `None` for all of it.
    pub region: Option<Region>,
    /// Name of the array in a container of several; `None` for the container's own array.
    pub array: Option<String>,
    /// Keep the last of several cells at one position of a sparse array instead of returning an error.
    pub dedup: bool,
}

/// Facts about the containers of a format. [`Holds`] describes their data model; operations that few formats support are optional
/// traits: [`Format::messages`], [`Format::versioned`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Containers can be [created](Format::create).
    pub create: bool,
    /// A container can have several arrays.
    pub many_arrays: bool,
    /// Containers and arrays can have attributes.
    pub attributes: bool,
    /// Containers are folders.
    pub folder: bool,
    /// File extensions of containers that are folders, in a format of files.
    pub folder_extensions: &'static [&'static str],
    /// Every chunk is a separate object, which takes longer to write than a part of one. Conversions limit their work by it before a
    /// writer exists.
    pub chunk_objects: bool,
    /// Codecs that change values: applied again, they would change them again.
    pub lossy_codecs: &'static [&'static str],
}

/// Depth of an audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Structure only.
    Structure,
    /// Structure and digests, without decoding.
    Digests,
    /// Also metadata; chunks without a digest are decoded up to a limit.
    #[default]
    Usual,
    /// Also decode every chunk and compare stored statistics.
    Deep,
    /// Also all other checks of the format's own validator.
    Full,
}

/// Options of an audit.
#[derive(Clone, Debug, Default)]
pub struct AuditOptions {
    /// Options of opening the source.
    pub open: OpenOptions,
    /// Depth of the audit.
    pub depth: Depth,
    /// Report metadata that is not in canonical form.
    pub canonical: bool,
}

/// Result of a metadata audit, for the engine, which verifies the payloads.
#[derive(Debug, Default)]
pub struct AuditReport {
    /// The container, if enough of it could be opened to decode payloads.
    pub container: Option<Arc<dyn ContainerSource>>,
    /// Bytes of metadata covered by a digest or checksum.
    pub covered_bytes: u64,
    /// Bytes of metadata without a digest. The engine counts payload bytes by
    /// [`ArraySource::digests`](crate::ArraySource::digests).
    pub uncovered_bytes: u64,
}

impl AuditReport {
    /// A report on `bytes` of metadata without a digest.
    pub fn uncovered(bytes: u64) -> Self {
        Self { uncovered_bytes: bytes, ..Self::default() }
    }

    /// The report of a format whose metadata have no digests: the audit opens the source. `describe` reports what passed, and
    /// returns the bytes of the metadata; members that are [unread](ContainerSource::unread) are warnings. A source that cannot
    /// be opened is one finding, and none of its `len` bytes is covered.
    ///
    /// # Errors
    /// Errors of opening that are not damage: `Io`, `NotFound`.
    pub fn from_opening<C: ContainerSource + 'static>(
        opened: Result<C>,
        len: u64,
        report: &mut dyn FnMut(Finding),
        describe: impl FnOnce(&C, &mut dyn FnMut(Finding)) -> Self,
    ) -> Result<Self> {
        match opened {
            Ok(container) => {
                let audited = describe(&container, report);
                for line in container.unread() {
                    report(Finding::warning("unread", line));
                }
                Ok(Self { container: Some(Arc::new(container)), ..audited })
            }
            Err(e) if matches!(e.kind(), ErrorKind::Io { .. } | ErrorKind::NotFound { .. }) => Err(e),
            Err(e) => {
                report(Finding::from_error("structure", &e));
                Ok(Self::uncovered(len))
            }
        }
    }
}

/// A fix that a source needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// Stable name of the fix, for [`Format::apply_repair`].
    pub code: &'static str,
    /// Description of the damage and the fix.
    pub message: String,
    /// Whether [`Format::apply_repair`] can apply it without losing readable cells.
    pub automatic: bool,
}

/// The intact part of a damaged source.
#[derive(Debug)]
pub struct Salvage {
    /// Container of the intact chunks; the others are uncovered.
    pub container: Arc<dyn ContainerSource>,
    /// Whether uncovered cells were lost; otherwise they are unwritten.
    pub gaps_are_losses: bool,
    /// Findings on lost data.
    pub findings: Vec<Finding>,
}

/// A storage format. Implementations are stateless.
pub trait Format: Debug + Send + Sync {
    /// Identifier: `tet`, `tensogram`, `tiledb`.
    fn id(&self) -> &'static str;

    /// Display name.
    fn title(&self) -> &'static str;

    /// Folders that [`open`](Self::open) lists first. Over a network, they are requested together with the first contact.
    fn first_folders(&self) -> &[&'static str] {
        &[]
    }

    /// File extensions, without the dot.
    fn extensions(&self) -> &'static [&'static str];

    /// Capabilities of the format.
    fn capabilities(&self) -> Capabilities;

    /// Returns whether a container of this name is a folder.
    fn is_folder(&self, name: &str) -> bool {
        let (probe, facts) = (Probe { name, head: &[], entries: None }, self.capabilities());
        facts.folder || probe.has_extension(facts.folder_extensions)
    }

    /// Parts of the data model that are supported natively. The rest is stored by the [conventions](crate::convention).
    fn holds(&self) -> Holds {
        Holds::DENSE
    }

    /// Detects whether a source has this format, without further I/O.
    fn sniff(&self, probe: &Probe<'_>) -> Sniff;

    /// Opens a source.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`, `Limit`, `Io`, `NotFound`.
    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn ContainerSource>>;

    /// Restores a decoder from a [recipe](ArraySource::recipe): an array that decodes and describes chunks as the array did that
    /// they were planned by, and that names their objects. It plans nothing.
    ///
    /// # Errors
    /// `Unsupported` by formats without recipes, `Corrupt` for damaged ones.
    fn decoder(&self, recipe: &[u8], options: &OpenOptions) -> Result<Arc<dyn ArraySource>> {
        let _ = (recipe, options);
        Err(Error::unsupported(format!("decoding chunks of {} without their source", self.title())))
    }

    /// Returns operations on messages, for message formats.
    fn messages(&self) -> Option<&dyn MessageFormat> {
        None
    }

    /// Returns the length of encryption keys in bytes, for formats that encrypt.
    fn key_len(&self) -> Option<usize> {
        None
    }

    /// Returns operations on versions, for formats that keep earlier states of an array.
    fn versioned(&self) -> Option<&dyn Versioned> {
        None
    }

    /// Returns the format's own options of creation.
    fn create_options(&self) -> &'static dyn OptionSet {
        static NONE: OptionTable<()> = OptionTable(&[]);
        &NONE
    }

    /// Creates a container. Nothing is visible before [`Writer::commit`].
    ///
    /// # Errors
    /// `Unsupported` if the format is read-only; `InvalidRequest` if the output exists; `Io`.
    fn create(&self, store: Arc<dyn Store>, options: &CreateOptions) -> Result<Box<dyn Writer>> {
        let _ = (store, options);
        Err(Error::unsupported(format!("writing {}", self.title())))
    }

    /// Audits the metadata and reports all checks. Takes the same steps as [`open`](Self::open), but continues after errors
    /// where possible. The engine audits payloads.
    ///
    /// # Errors
    /// Only `Io` and `NotFound`: damage is reported as a finding.
    fn audit(
        &self,
        store: Arc<dyn Store>,
        options: &AuditOptions,
        report: &mut dyn FnMut(Finding),
    ) -> Result<AuditReport>;

    /// Returns the first object of a folder that is not part of a container of this format; `None` if there is none. Folders
    /// with foreign objects are not replaced.
    ///
    /// # Errors
    /// `Io`, `NotFound`.
    fn foreign(&self, store: Arc<dyn Store>) -> Result<Option<String>> {
        // Formats of single files have no folders.
        let first = |entries: Vec<ObjectInfo>| entries.into_iter().next().map(|entry| entry.name);
        Ok(store.list("").map_or(None, first))
    }

    /// Returns the fixes a source needs.
    ///
    /// # Errors
    /// `Io`, `NotFound`.
    fn repairs(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Vec<Repair>> {
        let _ = (store, options);
        Ok(Vec::new())
    }

    /// Applies one automatic fix atomically.
    ///
    /// # Errors
    /// `InvalidRequest` if the fix is not needed or not automatic; `Io`.
    fn apply_repair(&self, store: Arc<dyn Store>, options: &OpenOptions, code: &str) -> Result<()> {
        let _ = (store, options);
        Err(Error::invalid(format!("unknown fix {code:?} of {}", self.title())))
    }

    /// Opens the intact part of a damaged source.
    ///
    /// # Errors
    /// `Corrupt` if nothing can be recovered; `Unsupported`.
    fn salvage(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Salvage> {
        let _ = (store, options);
        Err(Error::unsupported(format!("recovering {}", self.title())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_follow_a_dot_in_any_case() {
        let probe = |name| Probe { name, head: &[], entries: None };
        for (name, expected) in
            [("a.csv", true), ("A.CSV", true), ("d/.csv", true), ("acsv", false), ("a.csv/", true)]
        {
            assert_eq!(probe(name).has_extension(&["tsv", "csv"]), expected, "{name}");
        }
    }

    #[test]
    fn stems_are_names_without_location_and_extension() {
        for (location, stem) in [
            ("d/a.npy", "a"),
            ("d/a.b.npy/", "a.b"),
            ("C:\\d\\a.npy", "a"),
            ("a.csv", "a.csv"),
            ("d/.npy", "array"),
            ("", "array"),
        ] {
            assert_eq!(file_stem(location, &["npy"], "array"), stem, "{location}");
        }
    }

    #[test]
    fn keys_are_not_printed() {
        let key = b"an unlikely text that is a key!!".to_vec();
        let open = OpenOptions { key: Some(key.clone()), ..OpenOptions::default() };
        let create = CreateOptions { key: Some(key.clone()), ..CreateOptions::default() };
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
