//! From the name of a source or an output to its store: the only place that distinguishes paths and URLs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tesseral_core::{Error, Result};

use crate::local::{LocalStore, ReadMode};
use crate::store::Store;

/// Credentials, endpoints and other settings of object stores by name. Settings that are not given are taken from the
/// environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`).
///
/// Names are those of the `object_store` crate and of obstore (`access_key_id` or `aws_access_key_id`, `endpoint`, `region`,
/// `skip_signature` …) or of fsspec's file systems (`key`, `secret`, `token`, `anon`, `endpoint_url`). Values are never
/// displayed.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct StorageOptions {
    settings: BTreeMap<String, String>,
    cache: Option<CacheFolder>,
}

impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings: Vec<_> = self.settings.keys().collect();
        f.debug_struct("StorageOptions").field("settings", &settings).field("cache", &self.cache).finish()
    }
}

/// A folder of this machine that keeps bytes of objects, by URL and entity tag, for later processes. Processes can share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CacheFolder {
    path: PathBuf,
    size: u64,
}

impl CacheFolder {
    /// Size limit in bytes if none is set.
    pub const SIZE: u64 = 4 << 30;

    /// A folder, which is created when it is needed, with the default size limit.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), size: Self::SIZE }
    }

    /// Sets the size limit in bytes. Bytes that were not used for the longest time are removed first.
    #[must_use]
    pub fn with_size(mut self, bytes: u64) -> Self {
        self.size = bytes;
        self
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Size limit in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The folder that the environment names: `TESSERAL_CACHE`, limited to `TESSERAL_CACHE_SIZE` bytes.
    ///
    /// # Errors
    /// `InvalidRequest` if the limit is not a number.
    pub fn of_environment() -> Result<Option<Self>> {
        let Some(path) = std::env::var_os("TESSERAL_CACHE").filter(|path| !path.is_empty()) else {
            return Ok(None);
        };
        let folder = Self::new(path);
        match std::env::var_os("TESSERAL_CACHE_SIZE").filter(|size| !size.is_empty()) {
            None => Ok(Some(folder)),
            Some(size) => match size.to_str().and_then(|size| size.parse().ok()) {
                Some(bytes) => Ok(Some(folder.with_size(bytes))),
                None => {
                    Err(Error::invalid(format!("TESSERAL_CACHE_SIZE: {size:?} is not a number of bytes")))
                }
            },
        }
    }
}

impl StorageOptions {
    /// No settings: those of the environment are used.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a setting.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.insert(name.into().to_ascii_lowercase(), value.into());
        self
    }

    /// Keeps bytes of objects in a folder of this machine. Default: the folder that the environment names, if any.
    #[must_use]
    pub fn with_cache(mut self, folder: CacheFolder) -> Self {
        self.cache = Some(folder);
        self
    }

    /// The folder that keeps bytes of objects.
    ///
    /// # Errors
    /// As [`CacheFolder::of_environment`].
    pub fn cache(&self) -> Result<Option<CacheFolder>> {
        match &self.cache {
            Some(folder) => Ok(Some(folder.clone())),
            None => CacheFolder::of_environment(),
        }
    }

    /// Names of the settings.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.settings.keys().map(String::as_str)
    }

    /// Settings of the environment with a prefix, overridden by these.
    #[cfg(feature = "remote")]
    pub(crate) fn with_environment(&self, prefix: &str) -> Vec<(String, String, bool)> {
        let environment = std::env::vars_os().filter_map(|(name, value)| {
            let (name, value) = (name.to_str()?, value.to_str()?);
            name.starts_with(prefix).then(|| (name.to_ascii_lowercase(), value.to_owned(), false))
        });
        let given = self.settings.iter().map(|(name, value)| (name.clone(), value.clone(), true));
        let mut all: Vec<_> = environment.collect();
        all.sort();
        all.extend(given);
        all
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for StorageOptions {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(settings: I) -> Self {
        settings.into_iter().fold(Self::default(), |all, (name, value)| all.with(name, value))
    }
}

/// Location of a source or an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A file or folder of this machine.
    Path(PathBuf),
    /// An object or a prefix of an object store, or a file of a web server.
    Url(String),
}

impl Location {
    /// Parses a path, a `file://` URL or the URL of an object store.
    ///
    /// # Errors
    /// `Unsupported` for URLs that this build cannot reach.
    pub fn parse(source: impl AsRef<Path>) -> Result<Self> {
        let source = source.as_ref();
        let Some(text) = source.to_str().filter(|text| is_url(text)) else {
            return Ok(Self::Path(source.to_path_buf()));
        };
        if let Some(path) = text.strip_prefix("file://") {
            return Ok(Self::Path(PathBuf::from(path)));
        }
        reachable(text)?;
        Ok(Self::Url(text.to_owned()))
    }

    /// The path; `None` for URLs.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Url(_) => None,
        }
    }

    /// Returns the store, without a request. `access` is how local files are read.
    ///
    /// # Errors
    /// `InvalidRequest` for unknown options.
    pub fn store(&self, access: ReadMode, options: &StorageOptions) -> Result<Arc<dyn Store>> {
        match self {
            Self::Path(path) => Ok(Arc::new(LocalStore::new(path, access))),
            Self::Url(url) => remote(url, options),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Url(url) => f.write_str(url),
        }
    }
}

/// Returns whether a source is a URL rather than a path: it has a scheme of two or more letters and digits.
fn is_url(source: &str) -> bool {
    source.split_once("://").is_some_and(|(scheme, _)| {
        scheme.len() > 1 && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'-')
    })
}

#[cfg(feature = "remote")]
fn reachable(url: &str) -> Result<()> {
    crate::remote::check_url(url)
}

#[cfg(feature = "remote")]
fn remote(url: &str, options: &StorageOptions) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(crate::RemoteStore::connect(url, options)?))
}

#[cfg(not(feature = "remote"))]
fn reachable(url: &str) -> Result<()> {
    let scheme = url.split("://").next().unwrap_or_default();
    Err(Error::unsupported(format!("{scheme}:// URLs in this build"))
        .hint("copy the data to this machine first"))
}

#[cfg(not(feature = "remote"))]
fn remote(url: &str, _: &StorageOptions) -> Result<Arc<dyn Store>> {
    reachable(url).and(Err(Error::internal("a URL without a store")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_not_urls() {
        for path in ["a.tet", "/a/b", "c://x", "a b://c", "://x", "a:b.tet"] {
            assert_eq!(Location::parse(path).unwrap(), Location::Path(path.into()), "{path}");
        }
        assert_eq!(Location::parse("file:///a/b").unwrap(), Location::Path("/a/b".into()));
        assert!(Location::parse("ftp://host/x").is_err());
        assert_eq!(Location::parse("s3://bucket/x").is_ok(), cfg!(feature = "remote"));
    }
}
