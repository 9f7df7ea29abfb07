//! The formats there are. The only place that names them.

use std::path::Path;

use tesseral_core::{Error, ErrorKind, Result};
use tesseral_format::{Format, Probe, Sniff};
use tesseral_store::{Bytes, ObjectInfo, Store, StoreExt};

/// Every format, in the order they are asked.
pub static FORMATS: &[&dyn Format] = &[
    &tesseral_tet::TetFormat,
    &tesseral_tensogram::TensogramFormat,
    &tesseral_tiledb::TileDbFormat,
    &tesseral_npy::NpyFormat,
];

/// How much of a file formats may look at to recognise it.
const HEAD: u64 = 4096;

/// The format of that id, or of that ending of its names.
///
/// # Errors
/// `NotFound`, with the ids there are.
pub fn format(id: &str) -> Result<&'static dyn Format> {
    FORMATS
        .iter()
        .copied()
        .find(|f| f.id() == id || f.extensions().contains(&id))
        .ok_or_else(|| Error::not_found("format", id, FORMATS.iter().map(|f| f.id().to_owned()).collect()))
}

/// The format whose file names end like this one; that of folders for a name without an ending.
pub(crate) fn by_name(path: &Path) -> Option<&'static dyn Format> {
    let name = path.file_name()?.to_str()?;
    let ends = |f: &&dyn Format| {
        f.extensions().iter().any(|e| name.strip_suffix(e).is_some_and(|stem| stem.ends_with('.')))
    };
    let plain = !name.contains('.');
    FORMATS.iter().copied().find(|f| ends(f) || (plain && f.capabilities().folder))
}

/// Endings of files that are arrays of another kind.
const FOREIGN: [&str; 14] = [
    "npy", "npz", "nc", "nc4", "h5", "hdf5", "zarr", "csv", "json", "parquet", "grib", "grib2", "grb", "png",
];

/// The format of an output by its name: that of its ending, else the one that keeps arrays as folders.
///
/// # Errors
/// `Unsupported` for endings of formats that are not written here.
pub fn of_output(path: &Path) -> Result<&'static dyn Format> {
    if let Some(format) = by_name(path).filter(|format| format.capabilities().create) {
        return Ok(format);
    }
    let ending = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    match ending {
        Some(ending) if FOREIGN.contains(&ending.as_str()) => {
            Err(Error::unsupported(format!("writing .{ending} files"))
                .hint("name another output, or its format with --to"))
        }
        _ => Ok(&tesseral_tiledb::TileDbFormat),
    }
}

/// The format of a source, by its bytes and, failing that, by its name.
///
/// # Errors
/// `Unrecognised` when no format knows it; `NotFound`, `Io`.
pub fn recognise(store: &dyn Store) -> Result<&'static dyn Format> {
    let location = store.location().to_owned();
    let (head, entries) = look(store)?;
    match sniff(store, &head, entries.as_deref()) {
        Some((sniff, format)) if sniff > Sniff::No => Ok(format),
        _ => {
            let titles: Vec<&str> = FORMATS.iter().map(|f| f.title()).collect();
            let what = match &entries {
                Some(_) => "the folder matches",
                None if head.is_empty() => "it is empty, which matches",
                None => "its first bytes match",
            };
            let detail = format!("{what} none of: {}", titles.join(", "));
            Err(ErrorKind::Unrecognised { object: location, detail }.into())
        }
    }
}

/// The format of a source by its bytes alone; `None` when no format knows them.
pub(crate) fn by_content(store: &dyn Store) -> Result<Option<&'static dyn Format>> {
    let (head, entries) = look(store)?;
    let best = sniff(store, &head, entries.as_deref());
    Ok(best.filter(|(sniff, _)| *sniff == Sniff::Content).map(|(_, format)| format))
}

/// What formats look at: the first bytes of a file, or what is in a folder.
fn look(store: &dyn Store) -> Result<(Bytes, Option<Vec<ObjectInfo>>)> {
    match store.len("") {
        Ok(len) => Ok((store.read("", 0..len.min(HEAD))?, None)),
        Err(e) if is_folder(&e) => Ok((Bytes::new(), Some(store.list("")?))),
        Err(e) => Err(e),
    }
}

/// The format that is surest.
fn sniff(
    store: &dyn Store,
    head: &[u8],
    entries: Option<&[ObjectInfo]>,
) -> Option<(Sniff, &'static dyn Format)> {
    let probe = Probe { name: store.location(), head, entries };
    FORMATS.iter().copied().map(|f| (f.sniff(&probe), f)).max_by_key(|(sniff, _)| *sniff)
}

fn is_folder(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io { source, .. } if source.kind() == std::io::ErrorKind::IsADirectory)
}
