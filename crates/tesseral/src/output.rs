//! Outputs: where they are made, and what they may replace.
//!
//! Every output of the library is made under a temporary name and put in place whole by [`Output`], so that one set of rules holds
//! whoever writes (`docs/adr/0013-overwriting-and-removal.md`):
//!
//! - an existing output is an error unless overwriting is asked for; an empty folder is no output;
//! - a dataset replaces a dataset of a known format, recognized by its content, or an empty file; a folder with anything else in it
//!   is never replaced, nor is any other file;
//! - a document, such as a table or a picture, replaces any regular file;
//! - neither replaces a symbolic link, a device, a folder that holds a source, or something inside a source. A source itself is
//!   replaced only by operations that turn it into the output;
//! - permissions and owner of what is replaced are kept, access control lists and extended attributes are not.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tesseral_core::{Error, Result};
use tesseral_store::{Access, LocalStore, Overwrite, StagedPath};

use crate::registry;

/// How deep folders of a dataset are nested at most.
const MAX_DEPTH: usize = 64;

/// What identifies a file or folder, whatever its name.
type Identity = (u64, u64);

/// What an output is, which decides what it may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A file or folder of a format.
    Dataset { folder: bool },
    /// Any other file.
    Document,
}

/// An output: a path, and what may be replaced there.
#[derive(Clone, Debug)]
pub struct Output {
    path: PathBuf,
    kind: Kind,
    overwrite: Overwrite,
    sources: Vec<PathBuf>,
    in_place: bool,
    outside: bool,
}

impl Output {
    fn new(path: &Path, kind: Kind) -> Self {
        let path = path.to_path_buf();
        Self {
            path,
            kind,
            overwrite: Overwrite::Refuse,
            sources: Vec::new(),
            in_place: false,
            outside: false,
        }
    }

    /// A file of a format, or a folder of one.
    pub fn dataset(path: impl AsRef<Path>, folder: bool) -> Self {
        Self::new(path.as_ref(), Kind::Dataset { folder })
    }

    /// A file of any other kind, such as a table.
    pub fn document(path: impl AsRef<Path>) -> Self {
        Self::new(path.as_ref(), Kind::Document)
    }

    /// Whether an existing output may be replaced. The default is not to.
    #[must_use]
    pub fn overwrite(mut self, overwrite: Overwrite) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Adds a file or folder that the output is made from.
    #[must_use]
    pub fn source(mut self, path: impl AsRef<Path>) -> Self {
        self.sources.push(path.as_ref().to_path_buf());
        self
    }

    /// Allows the output to replace its source: it is what the source becomes.
    #[must_use]
    pub fn in_place(mut self) -> Self {
        self.in_place = true;
        self
    }

    /// Refuses to make the output inside a source, also where nothing is replaced.
    #[must_use]
    pub fn outside_sources(mut self) -> Self {
        self.outside = true;
        self
    }

    /// Begins the output under a temporary name.
    ///
    /// # Errors
    /// `InvalidRequest` when something is there that must not be replaced; `Io`.
    pub fn stage(self) -> Result<StagedOutput> {
        let rules = Rules::new(&self)?;
        if self.overwrite == Overwrite::Replace {
            rules.check(&self.path)?;
        }
        let folder = self.kind == Kind::Dataset { folder: true };
        let staged = StagedPath::new(&self.path, folder, self.overwrite)?;
        Ok(StagedOutput { staged, rules })
    }

    /// Checks what [`stage`](Self::stage) checks and begins nothing, for commands that write several outputs or none.
    ///
    /// # Errors
    /// As [`stage`](Self::stage).
    pub fn check(&self) -> Result<()> {
        let rules = Rules::new(self)?;
        match (self.overwrite, status(&self.path)?) {
            (Overwrite::Replace, _) => rules.check(&self.path),
            (Overwrite::Refuse, None) => Ok(()),
            (Overwrite::Refuse, Some(_)) => Err(tesseral_store::output_exists(&self.path)),
        }
    }
}

/// An output under a temporary name. Dropping it unpublished leaves no trace.
#[derive(Debug)]
pub struct StagedOutput {
    staged: StagedPath,
    rules: Rules,
}

impl StagedOutput {
    /// Where to make it: an empty file or folder, which may be replaced.
    pub fn path(&self) -> &Path {
        self.staged.path()
    }

    /// A store at the temporary name. Objects that are staged in it replace the empty file.
    pub fn store(&self) -> Arc<LocalStore> {
        Arc::new(LocalStore::new(self.path(), Access::Read))
    }

    pub(crate) fn staged(&self) -> &StagedPath {
        &self.staged
    }

    /// Puts the output under its name. Its files must be durable already. What it replaces stays whole until then.
    ///
    /// # Errors
    /// `InvalidRequest` when something appeared there meanwhile that must not be replaced; `Io`.
    pub fn publish(self) -> Result<()> {
        let rules = self.rules;
        self.staged.publish(&|replaced| rules.check(replaced))
    }
}

/// What may be replaced, independent of names: files and folders may be renamed while an output is made.
#[derive(Debug)]
struct Rules {
    path: PathBuf,
    kind: Kind,
    /// Sources, unless they may be replaced.
    sources: HashSet<Identity>,
    /// Folders that hold a source.
    above: HashSet<Identity>,
    /// The source that the output would lie in.
    inside: Option<PathBuf>,
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// What a path names, links not followed; `None` when nothing.
fn status(path: &Path) -> Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("stat", path.display().to_string(), e)),
    }
}

/// Folders above a path that exists, links resolved.
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
        // The folder may not exist yet: the nearest one that does tells where it will be.
        let nearest = absolute.ancestors().skip(1).find(|folder| folder.exists()).unwrap_or(Path::new("/"));
        let holders = std::iter::once(nearest.to_path_buf()).chain(ancestors(nearest));
        let inside = holders.into_iter().find(|folder| known(folder).is_some_and(|id| all.contains(&id)));
        if let Some(source) = inside.as_ref().filter(|_| output.outside) {
            let (path, source) = (output.path.display(), source.display());
            return Err(Error::invalid(format!("cannot write {path}: it lies inside the source {source}")));
        }
        Ok(Self {
            path: output.path.clone(),
            kind: output.kind,
            above: above.collect(),
            sources: if output.in_place { HashSet::new() } else { all },
            inside,
        })
    }

    /// Judges what is replaced, under whatever name it has now.
    fn check(&self, now: &Path) -> Result<()> {
        let Some(found) = status(now)? else { return Ok(()) };
        let path = &self.path;
        if found.is_symlink() {
            return Err(cannot_replace(path, "it is a symbolic link")
                .hint("name the file or folder that it points to, or remove the link"));
        }
        if let Some(source) = &self.inside {
            let why = format!("it lies inside the source {}", source.display());
            return Err(cannot_replace(path, &why).hint("choose another name"));
        }
        if self.above.contains(&identity(&found)) {
            return Err(cannot_replace(path, "a source lies in it").hint("choose another name"));
        }
        if self.sources.contains(&identity(&found)) {
            return Err(cannot_replace(path, "it is the source").hint("choose another name"));
        }
        match self.kind {
            Kind::Document if found.is_dir() => {
                Err(Error::invalid(format!("{} is a folder", path.display())))
            }
            Kind::Document | Kind::Dataset { .. } if !found.is_dir() && !found.is_file() => {
                Err(cannot_replace(path, "it is neither a file nor a folder"))
            }
            Kind::Document => Ok(()),
            Kind::Dataset { .. } if found.is_file() && found.len() == 0 => Ok(()),
            Kind::Dataset { .. } => self.check_dataset(now, found.is_dir()),
        }
    }

    /// A dataset is replaced when its content is that of a known format, and nothing else is in its folder.
    fn check_dataset(&self, now: &Path, folder: bool) -> Result<()> {
        let path = &self.path;
        let advice = "remove it first, or choose another name";
        if folder && let Some(odd) = odd_entry(now, now, MAX_DEPTH)? {
            let why = format!("it holds {}, which is no part of a dataset", odd.display());
            return Err(cannot_replace(path, &why).hint(advice));
        }
        let store = Arc::new(LocalStore::new(now, Access::Read));
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
                let why = format!("it holds {name}, which is no part of a {}", format.title());
                Err(cannot_replace(path, &why).hint(advice))
            }
            None => Ok(()),
        }
    }
}

/// The first link, device, name that is not text or folder nested too deep below a folder: what listings of stores leave out or may
/// follow.
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
