//! What every command needs: how to open sources, how to run, how to stop.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tesseral::core::{TimeUnit, time};
use tesseral::{Cancel, Container, Error, Format, Open, Options, TimeRange};

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
        if let Some(text) = &self.global.as_of {
            open = open.as_of(parse_as_of(text)?);
        }
        if let Some(path) = &self.global.key_file {
            let key = std::fs::read(path).map_err(|e| Error::io("read", path.display().to_string(), e))?;
            open = open.key(key);
        }
        Ok(open)
    }

    /// Opens a source.
    pub(crate) fn open(&self, source: &Path, meter: &Meter) -> Outcome<Container> {
        let opener = self.opener(meter)?;
        let store = opener.store(local(source)?);
        let format = tesseral::recognise(&*store).map_err(Failure::opening)?;
        self.check_versions(format)?;
        opener.open_store(store).map_err(Failure::opening)
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
    let Some(text) = source.to_str() else { return Ok(source) };
    if let Some(path) = text.strip_prefix("file://") {
        return Ok(Path::new(path));
    }
    match text.split_once("://") {
        Some((scheme, _)) if scheme.len() > 1 && scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => {
            Err(Error::unsupported(format!("reading {scheme}:// sources")).hint("copy it here first").into())
        }
        _ => Ok(source),
    }
}

/// The first signal asks the running operation to stop, the second ends the process.
fn stop_on_signals(cancel: &Cancel) {
    let cancel = cancel.clone();
    let asked = AtomicBool::new(false);
    // Without a handler, signals end the process: staged files stay behind under their marked names, nothing else.
    let _ = ctrlc::set_handler(move || {
        if asked.swap(true, Ordering::Relaxed) {
            std::process::exit(exit::INTERRUPTED.into());
        }
        cancel.cancel();
    });
}

/// Reads `T` or `T1..T2`. A date stands for all of the time it names.
fn parse_as_of(text: &str) -> Outcome<TimeRange> {
    let moment = |text: &str| {
        parse_moment(text).ok_or_else(|| {
            Error::invalid(format!("--as-of {text:?} is neither milliseconds since 1970 nor a date"))
                .hint("write 1735689600000, 2025-01-01 or 2025-01-01T06:30")
        })
    };
    let range = match text.split_once("..") {
        None => TimeRange { start: 0, end: moment(text)?.1 },
        Some((from, to)) => TimeRange {
            start: if from.is_empty() { 0 } else { moment(from)?.0 },
            end: if to.is_empty() { u64::MAX } else { moment(to)?.1 },
        },
    };
    if range.start > range.end {
        return Err(Error::invalid(format!("--as-of {text:?} ends before it begins")).into());
    }
    Ok(range)
}

/// First and last millisecond.
fn parse_moment(text: &str) -> Option<(u64, u64)> {
    // Digits alone are a count, four of them too: a year is written with its month.
    if let Ok(milliseconds) = text.parse() {
        return Some((milliseconds, milliseconds));
    }
    let start = time::parse(text, TimeUnit::Millisecond)?;
    // The coarsest unit the text is a whole count of *and* spells out is the one it means.
    let spelled = |unit: TimeUnit| {
        let count = time::parse(text, unit)?;
        let mut written = String::new();
        time::write(&mut written, count, unit).ok()?;
        let same = written.len() == text.trim_end_matches('Z').len();
        same.then_some((count, unit))
    };
    let next = TimeUnit::ALL.into_iter().filter(|u| *u != TimeUnit::Week).find_map(spelled).and_then(
        |(count, unit)| {
            let mut written = String::new();
            time::write(&mut written, count.checked_add(1)?, unit).ok()?;
            time::parse(&written, TimeUnit::Millisecond)
        },
    );
    let end = next.map_or(start, |next| (next - 1).max(start));
    Some((u64::try_from(start).ok()?, u64::try_from(end).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_cover_what_they_name() {
        assert_eq!(parse_moment("1735689600000"), Some((1_735_689_600_000, 1_735_689_600_000)));
        let (start, end) = parse_moment("2025-01-01").unwrap();
        assert_eq!((start, end), (1_735_689_600_000, 1_735_689_600_000 + 86_399_999));
        assert_eq!(parse_moment("2025-01").unwrap().1 - start, 31 * 86_400_000 - 1);
        assert_eq!(parse_moment("2025"), Some((2025, 2025)));
        assert_eq!(parse_moment("2025-01-01T06:30").unwrap().1 - start, 23_459_999);
        assert_eq!(parse_moment("2025-01-01T00:00:00.250Z").unwrap(), (start + 250, start + 250));
        assert_eq!(parse_moment("soon"), None);
    }

    #[test]
    fn ranges_have_either_end() {
        let ends = |text: &str| parse_as_of(text).map(|r| (r.start, r.end)).ok();
        assert_eq!(ends("50000"), Some((0, 50_000)));
        assert_eq!(ends("10..20"), Some((10, 20)));
        assert_eq!(ends("10.."), Some((10, u64::MAX)));
        assert_eq!(ends("20..10"), None);
        assert_eq!(ends("x"), None);
    }

    #[test]
    fn sources_are_paths_or_say_what_they_are() {
        assert_eq!(local(Path::new("file:///a/b.tet")).unwrap(), Path::new("/a/b.tet"));
        assert_eq!(local(Path::new("a:b.tet")).unwrap(), Path::new("a:b.tet"));
        assert!(local(Path::new("s3://bucket/key")).is_err());
    }
}
