//! The conformance suite on files of the reference, and damaged, truncated and crafted ones.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use tesseral_conformance::{Fixture, read_suite};
use tesseral_core::{DType, ErrorKind, Result, Scalar, Selection, Value};
use tesseral_format::{ColumnMut, ContainerSource, Format, OpenOptions, PlannedChunk, Request, Scratch};
use tesseral_hdf5::Hdf5Format;
use tesseral_store::{MemoryStore, Store, StoreExt};

const FILES: [&str; 3] = ["earliest.h5", "latest.h5", "netcdf4.nc"];

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hdf5").join(name)).unwrap()
}

fn memory(bytes: &[u8]) -> Arc<dyn Store> {
    Arc::new(MemoryStore::with_object("folder/cells.h5", bytes.to_vec()))
}

fn open(bytes: &[u8]) -> Result<Arc<dyn ContainerSource>> {
    Hdf5Format.open(memory(bytes), &OpenOptions::default())
}

fn plan(
    container: &dyn ContainerSource,
    name: &str,
) -> (Arc<dyn tesseral_format::ArraySource>, Vec<PlannedChunk>) {
    let array = container.array(container.find(name).unwrap()).unwrap();
    let shape = array.schema().shape().unwrap();
    let plan = array.plan(&Request::cells(Selection::all(&shape), 0)).unwrap();
    (array, plan.chunks)
}

/// Opens a file and decodes every chunk; errors are expected, panics are not.
fn read_all(bytes: &[u8]) -> Result<u64> {
    let container = open(bytes)?;
    let (store, mut read) = (memory(bytes), 0);
    for index in 0..container.len() {
        let array = container.array(index)?;
        let field = &array.schema().fields[0];
        let shape = array.schema().shape().unwrap();
        let request = Request::cells(Selection::all(&shape), 0);
        for chunk in array.plan(&request)?.chunks {
            let part = &chunk.parts[0];
            let stored = store.read("", part.offset..part.offset + part.len)?;
            let mut scratch = Scratch::default();
            let column = request.columns[0];
            let Some(size) = field.cell_size() else {
                let (mut offsets, mut data) = (Vec::new(), Vec::new());
                let out = ColumnMut::Var { offsets: &mut offsets, data: &mut data, validity: None };
                array.decode(&chunk, column, &[stored], 0..chunk.cells, out, &mut scratch)?;
                continue;
            };
            if chunk.cells * size as u64 > 1 << 20 {
                continue;
            }
            let mut values = vec![0; usize::try_from(chunk.cells).unwrap() * size];
            let out = ColumnMut::Fixed { values: &mut values, validity: None };
            array.decode(&chunk, column, &[stored], 0..chunk.cells, out, &mut scratch)?;
            read += values.len() as u64;
        }
    }
    Ok(read)
}

#[test]
fn files_pass_the_read_suite() {
    for name in FILES {
        let fixture = Fixture::new(memory(&fixture(name)), 7);
        read_suite(&Hdf5Format, &fixture).unwrap_or_else(|violation| panic!("{name}: {violation}"));
    }
}

#[test]
fn netcdf_dimensions_and_attributes_are_those_of_the_model() {
    let container = open(&fixture("netcdf4.nc")).unwrap();
    let names: Vec<&str> = (0..container.len()).map(|i| container.name(i)).collect();
    assert_eq!(names, ["time", "air", "short", "names", "kind", "inner/y"]);
    assert_eq!(container.attributes()["title"], Value::from("a fixture"));
    assert_eq!(container.groups().keys().collect::<Vec<_>>(), ["inner"]);
    let (air, chunks) = plan(&*container, "air");
    let schema = air.schema();
    assert_eq!(schema.dims.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["time", "x"]);
    assert_eq!(schema.fields[0].missing, [Scalar::from_element(-999_i16)]);
    assert_eq!(schema.attributes["scale_factor"], Value::from(Scalar::from_element(0.1_f32)));
    assert!(!schema.attributes.contains_key("DIMENSION_LIST"));
    assert_eq!((chunks.len(), chunks[1].tile.is_some()), (2, true));
    // The variable has one record, its dimension three: the others are fill values.
    let (short, _) = plan(&*container, "short");
    assert_eq!(short.schema().dims[0].extent, Some(3));
    assert_eq!(container.array(3).unwrap().schema().fields[0].dtype, DType::Char);
    assert_eq!(container.array(4).unwrap().schema().attributes["flag_meanings"], Value::from("low high"));
    let names: Vec<String> =
        container.details()["dimensions"].as_array().unwrap().iter().map(|d| d["name"].to_string()).collect();
    assert_eq!(names, ["\"time\"", "\"x\""]);
}

#[test]
fn both_generations_of_structures_hold_the_same_cells() {
    let (old, new) = (fixture("earliest.h5"), fixture("latest.h5"));
    let names = |bytes: &[u8]| -> Vec<String> {
        let container = open(bytes).unwrap();
        (0..container.len()).map(|i| container.name(i).to_owned()).collect()
    };
    assert_eq!(names(&old), names(&new));
    assert_eq!(read_all(&old).unwrap(), read_all(&new).unwrap());
}

/// A file that ends early is rejected as a whole, as by the reference.
#[test]
fn truncated_files_are_rejected() {
    for name in FILES {
        let whole = fixture(name);
        assert!(read_all(&whole).is_ok());
        for len in (0..whole.len()).step_by(7).chain(whole.len() - 9..whole.len()) {
            let error = open(&whole[..len]).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{name} {len}: {error}");
        }
    }
}

/// Flipped bits give an error or other cells, never a panic, and never much work.
#[test]
fn flipped_bits_never_panic() {
    for name in FILES {
        let whole = fixture(name);
        let step = (whole.len() / 1500).max(1);
        for at in (0..whole.len()).step_by(step) {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] ^= flip;
                let _ = read_all(&damaged);
            }
        }
    }
}

/// A dataset whose shape claims 2^40 cells, none of which is written, is opened and rejected without work.
#[test]
fn claimed_shapes_are_limited() {
    let mut file = fixture("earliest.h5");
    let dims: Vec<u8> = [3_u64, 4].iter().flat_map(|n| n.to_le_bytes()).collect();
    let at = file.windows(16).position(|window| window == dims).unwrap();
    let huge: Vec<u8> = [1_u64 << 20, 1 << 20].iter().flat_map(|n| n.to_le_bytes()).collect();
    file[at..at + 16].copy_from_slice(&huge);
    let container = open(&file).unwrap();
    let array = container.array(container.find("unwritten").unwrap()).unwrap();
    let request = |n: u64| Request::cells(Selection::all(&[n, n]), 0);
    let error = array.plan(&request(1 << 20)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
}
