//! Opened containers, also at earlier times.

use std::sync::{Arc, Mutex, PoisonError};

use tesseral::{Container, Error, Result};

/// Opens a source, at a time if one is given.
pub type Opener = Arc<dyn Fn(Option<&str>) -> Result<Container> + Send + Sync>;

/// Containers of earlier times that stay open.
const KEPT: usize = 8;

/// The sources of a server.
pub(crate) struct ServedSources {
    all: Vec<ServedSource>,
    /// Containers at earlier times; the last one was used last.
    earlier: Mutex<Vec<((usize, String), Container)>>,
}

/// A source.
pub(crate) struct ServedSource {
    /// Path or URL, as given.
    pub(crate) name: String,
    pub(crate) container: Container,
    opener: Opener,
}

impl std::fmt::Debug for ServedSources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.all.iter().map(|source| &source.name)).finish()
    }
}

impl ServedSources {
    /// Opens all sources.
    pub(crate) fn open(sources: Vec<(String, Opener)>) -> Result<Self> {
        let open =
            |(name, opener): (String, Opener)| Ok(ServedSource { container: opener(None)?, name, opener });
        Ok(Self { all: sources.into_iter().map(open).collect::<Result<_>>()?, earlier: Mutex::default() })
    }

    pub(crate) fn all(&self) -> &[ServedSource] {
        &self.all
    }

    /// The container of a source, at a time if one is given.
    pub(crate) fn container(&self, source: usize, as_of: Option<&str>) -> Result<Container> {
        let found = self.all.get(source);
        let found = found.ok_or_else(|| Error::not_found("source", source.to_string(), Vec::new()))?;
        let Some(time) = as_of.filter(|time| !time.is_empty()) else { return Ok(found.container.clone()) };
        let key = (source, time.to_owned());
        {
            let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = earlier.iter().position(|(known, _)| *known == key) {
                let entry = earlier.remove(at);
                let container = entry.1.clone();
                earlier.push(entry);
                return Ok(container);
            }
        }
        let container = (found.opener)(Some(time))?;
        let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        if earlier.len() >= KEPT {
            earlier.remove(0);
        }
        earlier.push((key, container.clone()));
        Ok(container)
    }
}
