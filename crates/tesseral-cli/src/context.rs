//! Context of all commands: opening sources, options, cancellation.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tesseral::{Cancel, Container, Error, Format, Limits, Open, Options};
use tesseral_store::{CacheFolder, Store};

use crate::args::Global;
use crate::error::{CliError, CliResult, CommandFailure, exit};
use crate::explain;
use crate::progress::Meter;

/// State derived from the global options.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) global: Global,
    cancel: Cancel,
    options: Options,
}

impl Context {
    pub(crate) fn new(global: Global) -> CliResult<Self> {
        let cancel = match global.deadline {
            Some(time) => stop_after(time),
            None => Cancel::default(),
        };
        stop_on_signals(&cancel);
        let mut options = Options::default().with_cancel(cancel.clone());
        options.memory = global.memory;
        if let Some(threads) = global.threads {
            options = options.with_threads(threads.into())?;
        }
        if global.explain {
            options = explain::begin(options);
        }
        Ok(Self { global, cancel, options })
    }

    /// Returns the same context at another time.
    pub(crate) fn at(&self, moment: &str) -> Self {
        let global = Global { as_of: Some(moment.to_owned()), ..self.global.clone() };
        Self { global, cancel: self.cancel.clone(), options: self.options.clone() }
    }

    /// Returns the same context without `--json`, for commands that write a file.
    pub(crate) fn without_json(&self) -> Self {
        let global = Global { json: false, ..self.global.clone() };
        Self { global, cancel: self.cancel.clone(), options: self.options.clone() }
    }

    /// Returns whether `--json` was given.
    pub(crate) fn json(&self) -> bool {
        self.global.json
    }

    /// Memory limit in bytes.
    pub(crate) fn memory(&self) -> Option<u64> {
        self.global.memory
    }

    /// Cancellation flag of the process.
    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Fails if the user requested cancellation.
    pub(crate) fn check(&self) -> CliResult<()> {
        self.cancel.check().map_err(CommandFailure::from)
    }

    /// Options of operations, reporting progress to a meter.
    pub(crate) fn options(&self, meter: &Meter) -> Options {
        let mut options = self.options.clone();
        if meter.is_visible() {
            let meter = meter.clone();
            options.progress = Some(Arc::new(move |progress| meter.set(progress)));
        }
        options
    }

    /// Options for opening sources.
    pub(crate) fn opener(&self, meter: &Meter) -> CliResult<Open> {
        let mut open = Open::new().execution(self.options(meter));
        if self.global.no_digests {
            open = open.without_digests();
        }
        if self.global.strict {
            open = open.strict();
        }
        if let Some(bytes) = self.global.max_expansion {
            open = open.limits(Limits::default().with_expansion(bytes));
        }
        if let Some(text) = &self.global.as_of {
            open = open.as_of(tesseral::as_of(text)?);
        }
        if let Some(path) = &self.global.cache {
            let folder = CacheFolder::new(path);
            open = open.cache(match self.global.cache_size {
                Some(bytes) => folder.with_size(bytes),
                None => folder,
            });
        }
        if let Some(key) = self.key()? {
            open = open.key(key);
        }
        Ok(open)
    }

    /// Key of encrypted arrays, if one was given.
    pub(crate) fn key(&self) -> CliResult<Option<Vec<u8>>> {
        let Some(path) = &self.global.key_file else { return Ok(None) };
        let key = std::fs::read(path).map_err(|e| Error::io("read", path.display().to_string(), e))?;
        Ok(Some(key))
    }

    /// Opens a source.
    pub(crate) fn open(&self, source: &Path, meter: &Meter) -> CliResult<Container> {
        let (opener, store, format) = self.source(source, meter)?;
        let container = opener.open_as(format, store).map_err(CommandFailure::opening)?;
        match self.global.dims.as_slice() {
            [] => Ok(container),
            dims => Ok(container.pivoted(dims)?),
        }
    }

    /// A source to be opened: options, path and format.
    pub(crate) fn source(
        &self,
        source: &Path,
        meter: &Meter,
    ) -> CliResult<(Open, Arc<dyn Store>, &'static dyn Format)> {
        let opener = self.opener(meter)?;
        let store = opener.store(source)?;
        let format = tesseral::recognize(&*store).map_err(CommandFailure::opening)?;
        self.check_versions(format)?;
        Ok((opener, store, format))
    }

    /// Rejects `--as-of` for formats without versions: ignoring it would show the wrong state.
    pub(crate) fn check_versions(&self, format: &dyn Format) -> CliResult<()> {
        match &self.global.as_of {
            Some(_) if format.versioned().is_none() => {
                let feature = format!("--as-of on {}: the format does not support versions", format.title());
                Err(Error::unsupported(feature).into())
            }
            _ => Ok(()),
        }
    }
}

/// The user's folder for caches: `$XDG_CACHE_HOME`, else `$HOME/.cache`.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))
}

/// Time that an operation has to stop after a signal.
const GRACE: Duration = Duration::from_millis(120);

/// Operations end at a deadline. If one does not stop in time, its staged files are removed and the process ends.
fn stop_after(time: Duration) -> Cancel {
    let deadline = Instant::now() + time;
    // Without the thread, a long decode ends later.
    let _ = std::thread::Builder::new().name("deadline".to_owned()).spawn(move || {
        std::thread::sleep(time + GRACE);
        tesseral_store::abandon();
        let failure = CliError::from(Error::deadline());
        failure.report();
        std::process::exit(failure.code().into());
    });
    Cancel::at(deadline)
}

/// A signal requests cancellation of the running operation. If it does not stop in time, because it is inside a long decode or
/// parse, its staged files are removed and the process ends.
fn stop_on_signals(cancel: &Cancel) {
    let cancel = cancel.clone();
    // Without a handler, signals end the process and only leave staged files under their marked names.
    let _ = ctrlc::set_handler(move || {
        cancel.cancel();
        // The handler has its own thread.
        std::thread::sleep(GRACE);
        tesseral_store::abandon();
        std::process::exit(exit::INTERRUPTED.into());
    });
}
