//! Files in the folder of a file that hold cells of its datasets: sources of virtual datasets, and raw cells.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tesseral_core::{Error, ErrorKind, Result};
use tesseral_format::OpenOptions;
use tesseral_store::{Location, Store, StoreExt, StoreMembers};

use crate::open::OpenedFile;

/// The name of the file itself.
const SAME: &str = ".";
/// How often virtual datasets can be sources of virtual datasets.
const NESTED: usize = 4;

/// The files of a container, by number. Only those in its folder: a file can name any other one, and what is read of it is shown.
#[derive(Debug)]
pub(crate) struct Siblings {
    own: Arc<dyn Store>,
    options: OpenOptions,
    /// Number of virtual datasets on the way to this file.
    depth: usize,
    files: Mutex<NamedFiles>,
}

#[derive(Debug, Default)]
struct NamedFiles {
    numbers: HashMap<String, u32>,
    files: Vec<Arc<Sibling>>,
}

/// A file in the folder.
#[derive(Debug)]
struct Sibling {
    store: Arc<dyn Store>,
    /// The file as HDF5; `None` if it does not exist.
    opened: OnceLock<Option<Arc<OpenedFile>>>,
}

impl Siblings {
    pub(crate) fn new(own: &Arc<dyn Store>, options: &OpenOptions, depth: usize) -> Self {
        Self { own: Arc::clone(own), options: options.clone(), depth, files: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, NamedFiles> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the file is opened as a source of a virtual dataset.
    pub(crate) fn is_nested(&self) -> bool {
        self.depth > 0
    }

    /// Whether no file was named.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().files.is_empty()
    }

    /// The number of a file by its name in a dataset.
    ///
    /// # Errors
    /// `Unsupported` for files outside the folder.
    pub(crate) fn number(&self, name: &str) -> Result<u32> {
        if let Some(number) = self.lock().numbers.get(name) {
            return Ok(*number);
        }
        let store = if name == SAME { Arc::clone(&self.own) } else { self.beside(name)? };
        let mut named = self.lock();
        let next = u32::try_from(named.files.len()).unwrap_or(u32::MAX);
        // Another thread can have added it meanwhile.
        let number = *named.numbers.entry(name.to_owned()).or_insert(next);
        if number == next {
            named.files.push(Arc::new(Sibling { store, opened: OnceLock::new() }));
        }
        Ok(number)
    }

    /// The store of a file: of a relative name, or of an absolute one in the folder. Of other absolute names, the file of that name
    /// in the folder, as by the reference, if it exists.
    fn beside(&self, name: &str) -> Result<Arc<dyn Store>> {
        let outside = || {
            let folder = self.own.location();
            Error::unsupported(format!("cells in the file {name:?}, which is not in the folder of {folder}"))
                .hint("copy the file into that folder, or link it there")
        };
        let outsider =
            |e: Error| if matches!(e.kind(), ErrorKind::InvalidRequest { .. }) { outside() } else { e };
        let relative = name.trim_start_matches("./");
        let path = Path::new(name);
        if !path.is_absolute() {
            return self.own.beside(relative).map_err(outsider);
        }
        if let Ok(Location::Path(own)) = Location::parse(self.own.location())
            && let Ok(own) = std::path::absolute(own)
            && let Some(inner) = own.parent().and_then(|folder| path.strip_prefix(folder).ok())
            && let Some(inner) = inner.to_str()
        {
            return self.own.beside(inner).map_err(outsider);
        }
        let last = path.file_name().and_then(|name| name.to_str()).ok_or_else(outside)?;
        let store = self.own.beside(last).map_err(outsider)?;
        if store.exists("")? { Ok(store) } else { Err(outside()) }
    }

    /// Whether a file exists.
    ///
    /// # Errors
    /// As [`number`](Self::number); `Io`.
    pub(crate) fn exists(&self, name: &str) -> Result<bool> {
        let file = self.sibling(self.number(name)?)?;
        match file.opened.get() {
            Some(opened) => Ok(opened.is_some()),
            None => file.store.exists(""),
        }
    }

    fn sibling(&self, number: u32) -> Result<Arc<Sibling>> {
        let files = self.lock();
        files
            .files
            .get(number as usize)
            .cloned()
            .ok_or_else(|| Error::internal("an unknown file of a dataset"))
    }

    /// A file by number, opened as HDF5; `None` if it does not exist.
    ///
    /// # Errors
    /// Errors of opening it.
    pub(crate) fn opened(&self, number: u32) -> Result<Option<Arc<OpenedFile>>> {
        let file = self.sibling(number)?;
        if let Some(opened) = file.opened.get() {
            return Ok(opened.clone());
        }
        if self.depth >= NESTED {
            return Err(Error::unsupported(format!(
                "virtual datasets over virtual datasets, {NESTED} times"
            )));
        }
        let opened = match file.store.exists("")? {
            true => Some(Arc::new(OpenedFile::new(&file.store, &self.options, self.depth + 1)?)),
            false => None,
        };
        Ok(file.opened.get_or_init(|| opened).clone())
    }
}

impl StoreMembers for Siblings {
    fn container_store(&self) -> &Arc<dyn Store> {
        &self.own
    }

    fn member(&self, number: u32) -> Result<Arc<dyn Store>> {
        let file = self.sibling(number)?;
        Ok(match file.opened.get() {
            Some(Some(opened)) => Arc::clone(&opened.store),
            _ => Arc::clone(&file.store),
        })
    }
}
