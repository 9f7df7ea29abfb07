//! Outputs: their temporary paths, and rules for replacement.
//!
//! Every output is staged under a temporary name and published atomically by [`Output`], so that the same rules apply to all
//! writers (`docs/adr/0013-overwriting-and-removal.md`):
//!
//! - an existing output is an error unless overwriting is requested; an empty folder is not an output;
//! - a dataset replaces a dataset of a known format, detected by its content, or an empty file; a folder with foreign objects
//!   is never replaced, nor is any other file;
//! - a document, such as a table or a picture, replaces any regular file;
//! - neither replaces a symbolic link, a device, a folder that contains a source, or an entry inside a source. A source itself
//!   is replaced only by operations that convert it in place;
//! - an output in an object store is written locally and uploaded when it is published ([`remote`]);
//! - permissions and owner of the replaced entry are kept; access control lists and extended attributes are not.

mod remote;

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tesseral_core::{Cancel, Error, Result};
use tesseral_format::Format;
use tesseral_store::{
    Durability, LocalStore, Location, Overwrite, ReadMode, StagedPath, StorageOptions, Unsynced,
};

use remote::RemoteTarget;
use tesseral_registry as registry;

/// Maximum nesting depth of folders of a dataset.
const MAX_DEPTH: usize = 64;

/// Identity of a file or folder, independent of its name.
type Identity = (u64, u64);

/// Kind of an output, which determines what it can replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputKind {
    /// A file or folder of a format.
    Dataset { folder: bool },
    /// Any other file.
    Document,
}

/// An output: a path, and rules for replacement.
#[derive(Clone, Debug)]
pub struct Output {
    path: PathBuf,
    kind: OutputKind,
    overwrite: Overwrite,
    sources: Vec<PathBuf>,
    in_place: bool,
    outside: bool,
    storage: StorageOptions,
    durability: Durability,
    cancel: Cancel,
}

impl Output {
    fn new(path: &Path, kind: OutputKind) -> Self {
        let path = path.to_path_buf();
        Self {
            path,
            kind,
            overwrite: Overwrite::Refuse,
            sources: Vec::new(),
            in_place: false,
            outside: false,
            storage: StorageOptions::new(),
            durability: Durability::Full,
            cancel: Cancel::default(),
        }
    }

    /// Creates an output that is a file or folder of a format.
    pub fn dataset(path: impl AsRef<Path>, folder: bool) -> Self {
        Self::new(path.as_ref(), OutputKind::Dataset { folder })
    }

    /// Creates an output of a format, which decides by the name whether it is a file or a folder.
    pub fn of_format(path: impl AsRef<Path>, format: &dyn Format) -> Self {
        let path = path.as_ref();
        Self::dataset(path, format.is_folder(&path.to_string_lossy()))
    }

    /// Creates an output that is any other file, such as a table.
    pub fn document(path: impl AsRef<Path>) -> Self {
        Self::new(path.as_ref(), OutputKind::Document)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Sets whether an existing output can be replaced. Default: false.
    #[must_use]
    pub fn overwrite(mut self, overwrite: Overwrite) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Adds a file or folder that is a source of the output.
    #[must_use]
    pub fn source(mut self, path: impl AsRef<Path>) -> Self {
        self.sources.push(path.as_ref().to_path_buf());
        self
    }

    /// Allows the output to replace its source.
    #[must_use]
    pub fn in_place(mut self) -> Self {
        self.in_place = true;
        self
    }

    /// Rejects outputs inside a source, even if nothing is replaced.
    #[must_use]
    pub fn outside_sources(mut self) -> Self {
        self.outside = true;
        self
    }

    /// Sets credentials, endpoints and other settings of object stores. Default: those of the environment.
    #[must_use]
    pub fn storage(mut self, storage: StorageOptions) -> Self {
        self.storage = storage;
        self
    }

    /// Sets whether the output survives a loss of power once it is published. Default: [`Durability::Full`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Ends an upload when an operation is canceled.
    #[must_use]
    pub fn canceled_by(mut self, cancel: &Cancel) -> Self {
        self.cancel = cancel.clone();
        self
    }

    /// Resolves `file://` URLs. Returns the URL of an output in an object store.
    fn resolve(&mut self) -> Result<Option<String>> {
        match Location::parse(&self.path)? {
            Location::Path(path) => {
                self.path = path;
                Ok(None)
            }
            Location::Url(url) if !self.in_place && self.sources.contains(&self.path) => {
                Err(Error::invalid(format!("cannot replace {url}: it is the source"))
                    .hint("choose another name"))
            }
            Location::Url(url) => Ok(Some(url)),
        }
    }

    /// Starts the output under a temporary name.
    ///
    /// # Errors
    /// `InvalidRequest` if an existing entry must not be replaced; `Io`.
    pub fn stage(mut self) -> Result<StagedOutput> {
        if let Some(url) = self.resolve()? {
            let (remote, staged) = RemoteTarget::stage(&url, &self)?;
            // Local files of an output in an object store are temporary.
            let unsynced = Unsynced::new(Durability::None);
            return Ok(StagedOutput { staged, checks: OutputChecks::Remote(remote), unsynced });
        }
        let rules = Rules::new(&self)?;
        if self.overwrite == Overwrite::Replace {
            rules.check(&self.path)?;
        }
        let folder = self.kind == OutputKind::Dataset { folder: true };
        let staged = StagedPath::new(&self.path, folder, self.overwrite)?.durability(self.durability);
        let unsynced = Unsynced::new(self.durability);
        Ok(StagedOutput { staged, checks: OutputChecks::Local(rules), unsynced })
    }

    /// Runs the checks of [`stage`](Self::stage) without starting the output, for commands that write several outputs or none.
    ///
    /// # Errors
    /// As [`stage`](Self::stage).
    pub fn check(&self) -> Result<()> {
        let mut output = self.clone();
        if let Some(url) = output.resolve()? {
            let store = Location::Url(url).store(ReadMode::Read, &self.storage)?;
            return remote::check(&store, self.kind, self.overwrite);
        }
        let rules = Rules::new(&output)?;
        match (output.overwrite, status(&output.path)?) {
            (Overwrite::Replace, _) => rules.check(&output.path),
            (Overwrite::Refuse, None) => Ok(()),
            (Overwrite::Refuse, Some(_)) => Err(tesseral_store::output_exists(&output.path)),
        }
    }
}

/// An output under a temporary name. Dropping it without publishing removes it.
#[derive(Debug)]
pub struct StagedOutput {
    staged: StagedPath,
    checks: OutputChecks,
    /// Its files and folders, which are made durable before it is published.
    unsynced: Arc<Unsynced>,
}

/// Action that publishes an output.
#[derive(Debug)]
enum OutputChecks {
    /// It takes its name if the rules allow it.
    Local(Rules),
    /// It is uploaded.
    Remote(RemoteTarget),
}

impl StagedOutput {
    /// Temporary path: an empty file or folder, which can be replaced.
    pub fn path(&self) -> &Path {
        self.staged.path()
    }

    /// Whether it is a folder.
    pub fn is_folder(&self) -> bool {
        self.path().is_dir()
    }

    /// A store at the temporary path. Objects staged in it replace the empty file.
    pub fn store(&self) -> Arc<LocalStore> {
        Arc::new(LocalStore::new(self.path(), ReadMode::Read).unsynced(Arc::clone(&self.unsynced)))
    }

    /// The staged path.
    pub fn staged(&self) -> &StagedPath {
        &self.staged
    }

    /// Publishes the output under its name, after making its files durable. The replaced entry stays intact until then.
    ///
    /// # Errors
    /// `InvalidRequest` if an entry appeared meanwhile that must not be replaced; `Io`.
    pub fn publish(self) -> Result<()> {
        self.unsynced.settle()?;
        match self.checks {
            OutputChecks::Local(rules) => self.staged.publish_approved(&|replaced| rules.check(replaced)),
            OutputChecks::Remote(target) => {
                self.staged.publish_approved(&|_| Ok(()))?;
                target.upload()
            }
        }
    }
}

/// Rules by file identity: files and folders can be renamed while an output is written.
#[derive(Debug)]
struct Rules {
    path: PathBuf,
    kind: OutputKind,
    /// Sources, unless they can be replaced.
    sources: HashSet<Identity>,
    /// Folders that contain a source.
    above: HashSet<Identity>,
    /// The source that contains the output.
    inside: Option<PathBuf>,
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// Type of the entry at a path, without following links; `None` if it does not exist.
fn status(path: &Path) -> Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("stat", path.display().to_string(), e)),
    }
}

/// Parent folders of an existing path, with links resolved.
fn ancestors(path: &Path) -> Vec<PathBuf> {
    let real = path.canonicalize().unwrap_or_default();
    real.ancestors().skip(1).map(Path::to_path_buf).collect()
}

fn cannot_replace(path: &Path, why: &str) -> Error {
    Error::invalid(format!("cannot replace {}: {why}", path.display()))
}

impl Rules {
    fn new(output: &Output) -> Result<Self> {
        let known = |path: &PathBuf| fs::metadata(path).ok().map(|metadata| identity(&metadata));
        let all: HashSet<Identity> = output.sources.iter().filter_map(known).collect();
        let above = output.sources.iter().flat_map(|source| ancestors(source)).filter_map(|p| known(&p));
        let absolute = std::path::absolute(&output.path)
            .map_err(|e| Error::io("resolve", output.path.display().to_string(), e))?;
        // If the folder does not exist yet, its nearest existing parent is used.
        let nearest = absolute.ancestors().skip(1).find(|folder| folder.exists()).unwrap_or(Path::new("/"));
        let holders = std::iter::once(nearest.to_path_buf()).chain(ancestors(nearest));
        let inside = holders.into_iter().find(|folder| known(folder).is_some_and(|id| all.contains(&id)));
        if let Some(source) = inside.as_ref().filter(|_| output.outside) {
            let (path, source) = (output.path.display(), source.display());
            return Err(Error::invalid(format!("cannot write {path}: it is inside the source {source}")));
        }
        Ok(Self {
            path: output.path.clone(),
            kind: output.kind,
            above: above.collect(),
            sources: if output.in_place { HashSet::new() } else { all },
            inside,
        })
    }

    /// Checks the entry to be replaced, under its current name.
    fn check(&self, now: &Path) -> Result<()> {
        let Some(found) = status(now)? else { return Ok(()) };
        let path = &self.path;
        if found.is_symlink() {
            return Err(cannot_replace(path, "it is a symbolic link")
                .hint("use the path of its target, or remove the link"));
        }
        if let Some(source) = &self.inside {
            let why = format!("it is inside the source {}", source.display());
            return Err(cannot_replace(path, &why).hint("choose another name"));
        }
        if self.above.contains(&identity(&found)) {
            return Err(cannot_replace(path, "it contains a source").hint("choose another name"));
        }
        if self.sources.contains(&identity(&found)) {
            return Err(cannot_replace(path, "it is the source").hint("choose another name"));
        }
        match self.kind {
            OutputKind::Document if found.is_dir() => {
                Err(Error::invalid(format!("{} is a folder", path.display())))
            }
            OutputKind::Document | OutputKind::Dataset { .. } if !found.is_dir() && !found.is_file() => {
                Err(cannot_replace(path, "it is neither a file nor a folder"))
            }
            OutputKind::Document => Ok(()),
            OutputKind::Dataset { .. } if found.is_file() && found.len() == 0 => Ok(()),
            OutputKind::Dataset { .. } => self.check_dataset(now, found.is_dir()),
        }
    }

    /// A dataset is replaced if its content has a known format, and its folder has no foreign objects.
    fn check_dataset(&self, now: &Path, folder: bool) -> Result<()> {
        let path = &self.path;
        let advice = "remove it first, or choose another name";
        if folder && let Some(odd) = odd_entry(now, now, MAX_DEPTH)? {
            let why = format!("it contains {}, which is not part of a dataset", odd.display());
            return Err(cannot_replace(path, &why).hint(advice));
        }
        let store = Location::Path(now.to_path_buf()).store(ReadMode::Read, &StorageOptions::new())?;
        let is_empty = || fs::read_dir(now).is_ok_and(|mut entries| entries.next().is_none());
        let format = match registry::by_content(&*store)? {
            Some(format) => format,
            None if folder && is_empty() => return Ok(()),
            None => {
                let kind = if folder { "folder" } else { "file" };
                let why = format!("the {kind} is not a dataset of a known format");
                return Err(cannot_replace(path, &why).hint(advice));
            }
        };
        match folder.then(|| format.foreign(store)).transpose()?.flatten() {
            Some(name) => {
                let why = format!("it contains {name}, which is not part of {}", format.title());
                Err(cannot_replace(path, &why).hint(advice))
            }
            None => Ok(()),
        }
    }
}

/// Returns the first link, device, name that is not UTF-8, or too deeply nested folder below a folder: entries that listings of
/// stores omit or follow.
fn odd_entry(top: &Path, folder: &Path, depth: usize) -> Result<Option<PathBuf>> {
    let io = |e| Error::io("list", folder.display().to_string(), e);
    for entry in fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let (kind, path) = (entry.file_type().map_err(io)?, entry.path());
        let found = match entry.file_name().to_str() {
            Some(_) if kind.is_file() => None,
            Some(_) if kind.is_dir() && depth > 0 => odd_entry(top, &path, depth - 1)?,
            _ => Some(path.strip_prefix(top).unwrap_or(&path).to_path_buf()),
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}
