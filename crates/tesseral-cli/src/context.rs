//! What every command needs: how to open sources, how to run, how to stop.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tesseral::store::Store;
use tesseral::{Cancel, Container, Error, Format, Limits, Open, Options};

use crate::args::Global;
use crate::failure::{Failure, Outcome, exit};
use crate::progress::Meter;

/// What the global options amount to.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) global: Global,
    cancel: Cancel,
    options: Options,
}

impl Context {
    pub(crate) fn new(global: Global) -> Outcome<Self> {
        let cancel = Cancel::default();
        stop_on_signals(&cancel);
        let mut options = Options { cancel: cancel.clone(), memory: global.memory, ..Options::default() };
        if let Some(threads) = global.threads {
            options = options.with_threads(threads.into())?;
        }
        Ok(Self { global, cancel, options })
    }

    /// The same, reading the state of another time.
    pub(crate) fn at(&self, moment: &str) -> Self {
        let global = Global { as_of: Some(moment.to_owned()), ..self.global.clone() };
        Self { global, cancel: self.cancel.clone(), options: self.options.clone() }
    }

    /// The same without `--json`, for what writes a file of its own.
    pub(crate) fn without_json(&self) -> Self {
        let global = Global { json: false, ..self.global.clone() };
        Self { global, cancel: self.cancel.clone(), options: self.options.clone() }
    }

    /// Whether `--json` was given.
    pub(crate) fn json(&self) -> bool {
        self.global.json
    }

    /// Tells when the user asked to stop.
    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Fails once the user asked to stop.
    pub(crate) fn check(&self) -> Outcome<()> {
        self.cancel.check().map_err(Failure::from)
    }

    /// How operations run, telling a meter how far they are.
    pub(crate) fn options(&self, meter: &Meter) -> Options {
        let mut options = self.options.clone();
        if meter.is_visible() {
            let meter = meter.clone();
            options.progress = Some(Arc::new(move |progress| meter.set(progress)));
        }
        options
    }

    /// How sources are opened.
    pub(crate) fn opener(&self, meter: &Meter) -> Outcome<Open> {
        let mut open = Open::new().execution(self.options(meter));
        if self.global.no_digests {
            open = open.without_digests();
        }
        if let Some(bytes) = self.global.max_expansion {
            open = open.limits(Limits::default().with_expansion(bytes));
        }
        if let Some(text) = &self.global.as_of {
            open = open.as_of(tesseral::as_of(text)?);
        }
        if let Some(key) = self.key()? {
            open = open.key(key);
        }
        Ok(open)
    }

    /// The key of encrypted arrays, where one was given.
    pub(crate) fn key(&self) -> Outcome<Option<Vec<u8>>> {
        let Some(path) = &self.global.key_file else { return Ok(None) };
        let key = std::fs::read(path).map_err(|e| Error::io("read", path.display().to_string(), e))?;
        Ok(Some(key))
    }

    /// Opens a source.
    pub(crate) fn open(&self, source: &Path, meter: &Meter) -> Outcome<Container> {
        let (opener, store, _) = self.source(source, meter)?;
        opener.open_store(store).map_err(Failure::opening)
    }

    /// A source that is yet to be opened: how, where it is, its format.
    pub(crate) fn source(
        &self,
        source: &Path,
        meter: &Meter,
    ) -> Outcome<(Open, Arc<dyn Store>, &'static dyn Format)> {
        let opener = self.opener(meter)?;
        let store = opener.store(local(source)?);
        let format = tesseral::recognise(&*store).map_err(Failure::opening)?;
        self.check_versions(format)?;
        Ok((opener, store, format))
    }

    /// Refuses `--as-of` for formats that keep one state only: ignoring it would show the wrong one.
    pub(crate) fn check_versions(&self, format: &dyn Format) -> Outcome<()> {
        match &self.global.as_of {
            Some(_) if !format.capabilities().versions => {
                let feature = format!("--as-of on {}: the format keeps no versions", format.title());
                Err(Error::unsupported(feature).into())
            }
            _ => Ok(()),
        }
    }
}

/// The path a source names.
pub(crate) fn local(source: &Path) -> Outcome<&Path> {
    Ok(tesseral::local(source)?)
}

/// How long an operation has to stop by itself after a signal.
const GRACE: Duration = Duration::from_millis(120);

/// A signal asks the running operation to stop. One that does not in time, because it is inside a long decode or parse, is ended with the
/// process; what it had staged is removed first.
fn stop_on_signals(cancel: &Cancel) {
    let cancel = cancel.clone();
    // Without a handler, signals end the process: staged files stay behind under their marked names, nothing else.
    let _ = ctrlc::set_handler(move || {
        cancel.cancel();
        // The handler has a thread of its own.
        std::thread::sleep(GRACE);
        tesseral::store::abandon();
        std::process::exit(exit::INTERRUPTED.into());
    });
}
