//! Indexes name files, arrays and decoders: whatever they name, reading ends with values or an error.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tesseral::{Container, ErrorKind, IndexOptions, Open, Result};
use tesseral_core::{ArraySchema, Coords, DType};
use tesseral_registry::index::{
    ChunkEntry, ChunkForm, FormKind, IndexContent, IndexedArray, IndexedSource, Piece, SourceState,
};
use tesseral_store::MemoryStore;

/// A `.npy` file of four float32 cells.
fn npy(path: &Path) {
    let header = format!("{:<117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }");
    let cells = [1_f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat();
    fs::write(path, [b"\x93NUMPY\x01\0\x76\0", header.as_bytes(), &cells].concat()).unwrap();
}

/// An index of one array of four cells.
fn write(path: &Path, source: &str, format: &str, form: ChunkForm, dtype: DType, state: SourceState) {
    let mut table = Vec::new();
    // Has a part with bytes, which are the cells if no recipe decodes them.
    let flags = if form.kind == FormKind::Stored { 37 } else { 33 };
    IndexContent::push_entries(&mut table, &[ChunkEntry { offset: 128, len: 16, object: 0, flags }]);
    let content = IndexContent {
        sources: vec![IndexedSource { path: source.to_owned(), format: format.to_owned(), state }],
        forms: vec![form],
        arrays: vec![IndexedArray {
            schema: ArraySchema::dense("a", dtype, &[4], &[4]),
            axis: None,
            new_axis: false,
            pieces: vec![Piece { source: 0, form: 0, start: 0, extent: 1, entry: 0 }],
        }],
        table: table.into(),
        ..IndexContent::default()
    };
    fs::write(path, content.to_bytes().unwrap()).unwrap();
}

fn form(format: &str, kind: FormKind) -> ChunkForm {
    ChunkForm { format: format.to_owned(), name: "a".to_owned(), kind, chunk: Coords::from_slice(&[4]) }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    read_from(&tesseral::open(path)?)
}

fn read_from(container: &Container) -> Result<Vec<u8>> {
    let array = container.array("a")?;
    let dense = array.read(&array.all()?)?;
    Ok(dense.bytes().to_vec())
}

#[test]
fn an_index_of_itself_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tix");
    let mut len = 0;
    for _ in 0..2 {
        let state = SourceState { len: Some(len), version: None };
        write(&path, "a.tix", "index", form("index", FormKind::Opened), DType::Float32, state);
        len = fs::metadata(&path).unwrap().len();
    }
    let error = read(&path).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    // Nor are those written.
    let inner = folder.path().join("inner.tix");
    npy(&folder.path().join("a.npy"));
    let index = |source: &Path, output: &Path| {
        tesseral::index(&[source.to_path_buf()], output, &Open::new(), &IndexOptions::new())
    };
    index(&folder.path().join("a.npy"), &inner).unwrap();
    let error = index(&inner, &folder.path().join("outer.tix")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
}

#[test]
fn cells_of_another_type_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    npy(&folder.path().join("a.npy"));
    fs::create_dir(folder.path().join("z")).unwrap();
    npy(&folder.path().join("z/0"));
    let path = folder.path().join("a.tix");
    let zarr = |dtype: &str, chunk: u64| {
        let document = format!(
            "\0{{\"zarr_format\":2,\"shape\":[4],\"chunks\":[{chunk}],\"dtype\":\"{dtype}\",\"compressor\":null,\
             \"fill_value\":0,\"order\":\"C\",\"filters\":null}}"
        );
        form("zarr", FormKind::Recipe(document.into_bytes()))
    };
    for (own, dtype, accepted) in [
        (form("npy", FormKind::Opened), DType::Float32, true),
        (form("npy", FormKind::Opened), DType::Float64, false),
        (form("npy", FormKind::Opened), DType::UInt8, false),
        (zarr("<f4", 4), DType::Float32, true),
        (zarr("<f8", 4), DType::Float32, false),
        (zarr("<u2", 4), DType::Float32, false),
        (zarr("<f4", 3), DType::Float32, false),
    ] {
        let (source, len) = if own.is_opened() { ("a.npy", Some(144)) } else { ("z", None) };
        let state = SourceState { len, version: None };
        write(&path, source, &own.format, own.clone(), dtype, state);
        match read(&path) {
            Ok(cells) => assert!(accepted && cells[4..8] == 2_f32.to_le_bytes(), "{own:?} {dtype}"),
            Err(error) => {
                let known = matches!(error.kind(), ErrorKind::Corrupt { .. } | ErrorKind::Changed { .. });
                assert!(!accepted && known, "{own:?} {dtype}: {error}");
            }
        }
    }
}

/// What is read may be shown or sent elsewhere: data from a network name no files of this machine.
#[test]
fn an_index_in_an_object_store_names_no_local_files() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, path) = (folder.path().join("a.npy"), folder.path().join("a.tix"));
    npy(&secret);
    let state = SourceState { len: Some(144), version: None };
    let kinds = [FormKind::Stored, FormKind::Opened];
    for kind in kinds {
        write(&path, secret.to_str().unwrap(), "npy", form("npy", kind.clone()), DType::Float32, state);
        let bytes = fs::read(&path).unwrap();
        for (location, accepted) in [("/elsewhere/a.tix", true), ("s3://bucket/a.tix", false)] {
            let store = Arc::new(MemoryStore::with_object(location, bytes.clone()));
            let found = Open::new().open_store(store).and_then(|container| read_from(&container));
            match found {
                Ok(_) => assert!(accepted, "{location}"),
                Err(error) => {
                    let unsupported = matches!(error.kind(), ErrorKind::Unsupported { .. });
                    assert!(!accepted && unsupported, "{location} {kind:?}: {error}");
                }
            }
        }
    }
}
