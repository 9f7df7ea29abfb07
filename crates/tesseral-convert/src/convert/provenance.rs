//! Provenance of an output: the digest of its input, and a history row.

use std::time::{SystemTime, UNIX_EPOCH};

use tesseral_core::{HistoryRow, Result};
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
pub(crate) fn digest(store: &dyn Store) -> Result<String> {
    let mut hash = Xxh3::new();
    store.guarded(|| match store.list("") {
        Ok(_) => folder(store, "", &mut hash),
        Err(_) => object(store, "", &mut hash),
    })?;
    Ok(format!("xxh3:{:032x}", hash.digest128()))
}

fn folder(store: &dyn Store, path: &str, hash: &mut Xxh3) -> Result<()> {
    for entry in store.list(path)? {
        let name = if path.is_empty() { entry.name.clone() } else { format!("{path}/{}", entry.name) };
        if entry.is_folder() {
            folder(store, &name, hash)?;
        } else {
            hash.update(name.as_bytes());
            hash.update(&[0]);
            hash.update(&store.len(&name)?.to_le_bytes());
            object(store, &name, hash)?;
        }
    }
    Ok(())
}

fn object(store: &dyn Store, name: &str, hash: &mut Xxh3) -> Result<()> {
    let len = store.len(name)?;
    let mut at = 0;
    while at < len {
        let end = (at + BLOCK).min(len);
        hash.update(&store.read(name, at..end)?);
        at = end;
    }
    Ok(())
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
