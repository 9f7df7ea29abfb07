//! The formats of this build, those that programs [register], and detection of the format of a source or an output.
//!
//! No other crate names a format.
#![forbid(unsafe_code)]

mod foreign;

pub use tesseral_index as index;

use std::path::Path;
use std::sync::{PoisonError, RwLock};

use tesseral_core::{Advice, Error, ErrorKind, Result};
use tesseral_format::{Format, Probe, Sniff};
use tesseral_store::{Bytes, ObjectInfo, Store, StoreExt, Upcoming};

/// Formats with enabled cargo features, in detection order.
static BUILT_IN: &[&dyn Format] = &[
    #[cfg(feature = "tet")]
    &tesseral_tet::TetFormat,
    #[cfg(feature = "tensogram")]
    &tesseral_tensogram::TensogramFormat,
    #[cfg(feature = "tiledb")]
    &tesseral_tiledb::TileDbFormat,
    #[cfg(feature = "zarr")]
    &tesseral_zarr::ZarrFormat,
    #[cfg(feature = "npy")]
    &tesseral_npy::NpyFormat,
    #[cfg(feature = "npy")]
    &tesseral_npy::NpzFormat,
    #[cfg(feature = "parquet")]
    &tesseral_parquet::ParquetFormat,
    #[cfg(feature = "arrow")]
    &tesseral_arrow::ArrowFormat,
    #[cfg(feature = "csv")]
    &tesseral_csv::CsvFormat,
    // Both have the extension `.nc`; new files are NetCDF-4.
    #[cfg(feature = "hdf5")]
    &tesseral_hdf5::Hdf5Format,
    #[cfg(feature = "netcdf3")]
    &tesseral_netcdf3::NetCdf3Format,
    #[cfg(feature = "grib")]
    &tesseral_grib::GribFormat,
    &tesseral_index::IndexFormat { find: format },
];

/// Formats that programs registered, in order of registration.
static REGISTERED: RwLock<Vec<&'static dyn Format>> = RwLock::new(Vec::new());

/// All formats of this process, in detection order: those of this build, then the registered ones.
pub fn formats() -> impl Iterator<Item = &'static dyn Format> {
    // A list that a panicking thread was extending is consistent: `push` is its only change.
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner).clone();
    BUILT_IN.iter().copied().chain(registered)
}

/// Registers a format in this process permanently. Sources of this format are then detected and opened, and it can be the
/// target of a conversion if it supports creation.
///
/// If two formats recognize a source or have the same extension, the one registered first is used; the formats of this build come
/// first.
///
/// # Errors
/// `InvalidRequest` if a format already has this id or extension.
pub fn register(format: &'static dyn Format) -> Result<()> {
    let id = format.id();
    let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    let mut known = BUILT_IN.iter().chain(registered.iter());
    if let Some(other) = known.find(|f| f.id() == id || f.extensions().contains(&id)) {
        return Err(Error::invalid(format!("the format id {id:?} is already used by {}", other.title())));
    }
    registered.push(format);
    Ok(())
}

/// Number of bytes of a file that formats can inspect for detection.
const HEAD: u64 = 4096;

/// Returns the format with an id or file extension.
///
/// # Errors
/// `NotFound`, with the available ids.
pub fn format(id: &str) -> Result<&'static dyn Format> {
    formats()
        .find(|f| f.id() == id || f.extensions().contains(&id))
        .ok_or_else(|| Error::not_found("format", id, formats().map(|f| f.id().to_owned()).collect()))
}

/// Returns the format of files that queries write next to their source.
///
/// # Errors
/// `NotFound` if the build lacks that format.
pub fn sidecar() -> Result<&'static dyn Format> {
    format("tet")
}

/// Returns the format of an output by its file extension; a name without one selects the folder format.
///
/// # Errors
/// `Unsupported` for extensions that no writable format has, with those that are known.
pub fn of_output(path: &Path) -> Result<&'static dyn Format> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let probe = Probe { name: &name, head: &[], entries: None };
    let writable = || formats().filter(|f| f.capabilities().create);
    let found = match path.extension() {
        Some(_) => writable().find(|f| probe.has_extension(f.extensions())),
        None => writable().find(|f| f.capabilities().folder),
    };
    found.ok_or_else(|| {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        let extensions = writable().flat_map(Format::extensions).copied().collect();
        Error::unsupported(format!("writing .{extension} files")).hint(Advice::NameFormat { extensions })
    })
}

/// Returns the format that the file extension of an output names, if that is another one than `own`.
pub fn named_otherwise(path: &Path, own: &dyn Format) -> Option<&'static dyn Format> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let probe = Probe { name: &name, head: &[], entries: None };
    if path.extension().is_none() || probe.has_extension(own.extensions()) {
        return None;
    }
    formats().filter(|f| f.capabilities().create).find(|f| probe.has_extension(f.extensions()))
}

/// Checks that the file extension of an output of the format `own` names no other format.
///
/// # Errors
/// `InvalidRequest` with both formats.
pub fn check_named(path: &Path, own: &dyn Format) -> Result<()> {
    let Some(other) = named_otherwise(path, own) else { return Ok(()) };
    let (path, other, own) = (path.display(), other.title(), own.title());
    Err(Error::invalid(format!("{path} is a name of {other}, the output is {own}"))
        .hint("choose another name, or convert it afterwards"))
}

/// Detects the format of a source by its content, else by its name.
///
/// # Errors
/// `Unrecognized` if no format matches; `NotFound`, `Io`.
pub fn recognize(store: &dyn Store) -> Result<&'static dyn Format> {
    let location = store.location().to_owned();
    let (head, entries) = detection_input(store)?;
    match sniff(store, &head, entries.as_deref()) {
        Some((sniff, format)) if sniff > Sniff::No => Ok(format),
        _ => {
            let titles: Vec<&str> = formats().map(|f| f.title()).collect();
            let what = match &entries {
                Some(_) => "the folder matches",
                None if head.is_empty() => "it is empty, which matches",
                None => "its first bytes match",
            };
            let detail = format!("{what} none of: {}", titles.join(", "));
            let probe = Probe { name: &location, head: &head, entries: entries.as_deref() };
            let advice = foreign::advice(&probe);
            let error = Error::new(ErrorKind::Unrecognized { object: location.clone(), detail });
            Err(match advice {
                Some(advice) => error.hint(advice),
                None => error,
            })
        }
    }
}

/// Detects the format of a source by its content only; `None` if no format matches.
pub fn by_content(store: &dyn Store) -> Result<Option<&'static dyn Format>> {
    let (head, entries) = detection_input(store)?;
    let best = sniff(store, &head, entries.as_deref());
    Ok(best.filter(|(sniff, _)| *sniff == Sniff::Content).map(|(_, format)| format))
}

/// Input of the detection: the first bytes of a file, or the entries of a folder.
fn detection_input(store: &dyn Store) -> Result<(Bytes, Option<Vec<ObjectInfo>>)> {
    announce(store);
    match store.len("") {
        Ok(len) => Ok((store.read("", 0..len.min(HEAD))?, None)),
        Err(e) if is_folder(&e) => Ok((Bytes::new(), Some(store.list("")?))),
        Err(e) => Err(e),
    }
}

/// Requests what formats list first together with the first contact, where a request takes long and the name is not that of a
/// file.
fn announce(store: &dyn Store) {
    let extension = store.location().rsplit_once('.').map(|(_, extension)| extension);
    let is_file = |f: &dyn Format| {
        !f.capabilities().folder && extension.is_some_and(|extension| f.extensions().contains(&extension))
    };
    if store.profile().parallel > 1 && !formats().any(is_file) {
        let folders = formats().flat_map(Format::first_folders);
        store.prefetch(&folders.map(|folder| Upcoming::Listing((*folder).to_owned())).collect::<Vec<_>>());
    }
}

/// The format with the highest confidence; the first of several.
fn sniff(
    store: &dyn Store,
    head: &[u8],
    entries: Option<&[ObjectInfo]>,
) -> Option<(Sniff, &'static dyn Format)> {
    let probe = Probe { name: store.location(), head, entries };
    let sniffed = formats().map(|f| (f.sniff(&probe), f));
    sniffed.reduce(|best, next| if next.0 > best.0 { next } else { best })
}

fn is_folder(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io { source, .. } if source.kind() == std::io::ErrorKind::IsADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_have_the_format_of_their_extension() {
        let id = |name: &str| of_output(Path::new(name)).map(Format::id);
        assert_eq!(id("a/b.tet").unwrap(), "tet");
        assert_eq!(id("a.b/c.TGM").unwrap(), "tensogram");
        assert_eq!(id("a.b/folder").unwrap(), "tiledb");
        assert_eq!(id("folder.tdb").unwrap(), "tiledb");
        assert_eq!(id("folder.zarr").unwrap(), "zarr");
        assert_eq!(id("a.tet.nc").unwrap(), "hdf5");
        assert_eq!(id("a.nc3").unwrap(), "netcdf3");
        assert_eq!(id("a.npz").unwrap(), "npz");
        assert_eq!(id("t.parquet").unwrap(), "parquet");
        assert_eq!(id("t.feather").unwrap(), "arrow");
    }

    #[test]
    fn unknown_extensions_are_errors_that_list_the_known_ones() {
        for name in ["b.tiff", "b.v2", "a.npy", "a.nc.x"] {
            let error = of_output(Path::new(name)).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{name}");
            let Some(Advice::NameFormat { extensions }) = error.advice() else { panic!("{error:?}") };
            assert!(
                extensions.contains(&"tet") && extensions.contains(&"tgm") && !extensions.contains(&"npy")
            );
        }
    }
}
