//! Provenance of an output: the digest of its input, and a history row.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tesseral_core::{Cancel, Error, HistoryRow, Result};
use tesseral_store::{Store, StoreExt};
use xxhash_rust::xxh3::Xxh3;

use super::options::ConvertOptions;
use tesseral_dataset::Container;

/// Placeholder of the length of a digest, for dry runs.
pub(crate) const EMPTY: &str = "xxh3:00000000000000000000000000000000";

/// Number of bytes hashed at a time.
const BLOCK: u64 = 1 << 20;
/// Maximum length of the list of arrays: formats limit the texts of their history.
const MAX_TEXT: usize = 200;

/// Digest of a source: the bytes of its file, or names and bytes of the files in its folder.
pub(crate) fn digest(store: &dyn Store, cancel: &Cancel) -> Result<String> {
    let mut source = SourceHasher { hash: Xxh3::new(), cancel, stop: &AtomicBool::new(false) };
    source.all(store)
}

/// Runs `work` while another thread computes the digest of a source; an error of `work` ends the other.
pub(crate) fn digest_during<T>(
    store: &dyn Store,
    cancel: &Cancel,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, String)> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let digest = scope.spawn(|| SourceHasher { hash: Xxh3::new(), cancel, stop: &stop }.all(store));
        let done = work().inspect_err(|_| stop.store(true, Ordering::Relaxed));
        let digest =
            digest.join().map_err(|_| Error::internal("the thread that hashes the source panicked"))?;
        Ok((done?, digest?))
    })
}

/// Hashes the bytes of a source.
struct SourceHasher<'a> {
    hash: Xxh3,
    cancel: &'a Cancel,
    /// Set when the digest is no longer needed.
    stop: &'a AtomicBool,
}

impl SourceHasher<'_> {
    fn all(&mut self, store: &dyn Store) -> Result<String> {
        store.guarded(|| match store.list("") {
            Ok(_) => self.folder(store, ""),
            Err(_) => self.object(store, ""),
        })?;
        Ok(format!("xxh3:{:032x}", self.hash.digest128()))
    }

    fn folder(&mut self, store: &dyn Store, path: &str) -> Result<()> {
        for entry in store.list(path)? {
            let name = if path.is_empty() { entry.name.clone() } else { format!("{path}/{}", entry.name) };
            if entry.is_folder() {
                self.folder(store, &name)?;
            } else {
                self.hash.update(name.as_bytes());
                self.hash.update(&[0]);
                self.hash.update(&store.len(&name)?.to_le_bytes());
                self.object(store, &name)?;
            }
        }
        Ok(())
    }

    fn object(&mut self, store: &dyn Store, name: &str) -> Result<()> {
        let len = store.len(name)?;
        let mut at = 0;
        while at < len {
            self.cancel.check()?;
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::cancelled());
            }
            let end = (at + BLOCK).min(len);
            self.hash.update(&store.read(name, at..end)?);
            at = end;
        }
        Ok(())
    }
}

/// History of an output: that of its source, and the conversion.
pub(crate) fn history(
    source: &Container,
    op: &str,
    digest: String,
    options: &ConvertOptions,
) -> Vec<HistoryRow> {
    source.history().iter().cloned().chain([row(source, op, digest, options)]).collect()
}

/// The conversion as a row of the history.
pub(crate) fn row(source: &Container, op: &str, digest: String, options: &ConvertOptions) -> HistoryRow {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let mut row = HistoryRow {
        op: op.to_owned(),
        source: source.location().to_owned(),
        at: at.to_string(),
        parents: vec![digest],
        ..HistoryRow::default()
    };
    let mut record = |name: &str, value: String| {
        if !value.is_empty() {
            row.params.insert(name.to_owned(), value.chars().take(MAX_TEXT).collect());
        }
    };
    record("tool", format!("tesseral {}", env!("CARGO_PKG_VERSION")));
    record("format", source.format().id().to_owned());
    record("select", options.select.join(" "));
    record("arrays", options.arrays.join(" "));
    let casts = options.casts.iter().map(|cast| match &cast.name {
        Some(name) => format!("{name}={}", cast.dtype),
        None => cast.dtype.to_string(),
    });
    record("cast", casts.collect::<Vec<_>>().join(" "));
    record("fill", options.fills.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    record("max_abs_error", options.max_abs_error.map(|v| v.to_string()).unwrap_or_default());
    record("max_rel_error", options.max_rel_error.map(|v| v.to_string()).unwrap_or_default());
    row
}
