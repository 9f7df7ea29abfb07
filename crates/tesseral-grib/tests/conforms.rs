//! The conformance suite on files of the reference, and damaged, truncated and crafted ones.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use tesseral_conformance::{Fixture, read_suite};
use tesseral_core::{ErrorKind, Finding, Limits, Order, Result, Selection, Severity};
use tesseral_format::{
    AuditOptions, ColumnMut, ContainerSource, Format, OpenOptions, Request, Scratch, Uncovered,
};
use tesseral_grib::GribFormat;
use tesseral_store::{MemoryStore, Store, StoreExt};

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/grib")
}

/// Names and bytes of all fixtures.
fn files() -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "grib")).collect();
    paths.sort();
    assert!(paths.len() >= 20);
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), std::fs::read(path).unwrap())).collect()
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap()
}

fn memory(bytes: &[u8]) -> Arc<dyn Store> {
    Arc::new(MemoryStore::with_object("folder/cells.grib", bytes.to_vec()))
}

fn open(bytes: &[u8]) -> Result<Arc<dyn ContainerSource>> {
    GribFormat.open(memory(bytes), &OpenOptions::default())
}

/// Opens a file and decodes every chunk into values and validity.
fn read_all(bytes: &[u8]) -> Result<Vec<(Vec<f64>, Vec<u8>)>> {
    let container = open(bytes)?;
    let (store, mut read) = (memory(bytes), Vec::new());
    for index in 0..container.len() {
        let array = container.array(index)?;
        let nullable = array.schema().fields[0].nullable;
        let shape = array.schema().shape().unwrap();
        let request = Request::cells(Selection::all(&shape), 0);
        for chunk in tesseral_format::plan(&*array, container.store(), &request)?.chunks {
            let parts = chunk.parts.iter().map(|part| store.read("", part.offset..part.offset + part.len));
            let parts = parts.collect::<Result<Vec<_>>>()?;
            let cells = usize::try_from(chunk.cells).unwrap();
            if cells > 1 << 20 {
                continue;
            }
            let (mut values, mut validity) = (vec![0; cells * 8], vec![9; cells]);
            let marks = nullable.then_some(&mut validity[..]);
            let out = ColumnMut::Fixed { values: &mut values, validity: marks };
            array.decode(&chunk, request.columns[0], &parts, 0..chunk.cells, out, &mut Scratch::default())?;
            let values = values.as_chunks().0.iter().map(|value| f64::from_ne_bytes(*value)).collect();
            read.push((values, if nullable { validity } else { Vec::new() }));
        }
    }
    Ok(read)
}

#[test]
fn files_pass_the_read_suite() {
    for (name, bytes) in files() {
        let fixture = Fixture::new(memory(&bytes), 7);
        read_suite(&GribFormat, &fixture).unwrap_or_else(|violation| panic!("{name}: {violation}"));
    }
}

/// All packings of a fixture hold the same field, up to the precision of their bits.
#[test]
fn packings_agree() {
    let values = |bytes: &[u8]| read_all(bytes).unwrap().pop().unwrap().0;
    let plain = values(&fixture("grid_simple_2.grib"));
    for (name, bytes) in files().into_iter().filter(|(name, _)| name.starts_with("grid_")) {
        let own = values(&bytes);
        if own.len() == plain.len() {
            assert!(own.iter().zip(&plain).all(|(a, b)| (a - b).abs() < 1e-2), "{name}");
        }
    }
}

#[test]
fn bitmaps_decide_validity() {
    for name in ["bitmap_grid_simple_1.grib", "bitmap_grid_simple_2.grib", "bitmap_grid_complex_2.grib"] {
        let (values, validity) = read_all(&fixture(name)).unwrap().pop().unwrap();
        for (point, valid) in validity.iter().enumerate() {
            assert_eq!(*valid, u8::from(point % 5 != 2), "{name} {point}");
            assert_eq!(values[point].is_nan(), *valid == 0);
        }
    }
}

#[test]
fn fields_form_hypercubes_and_groups() {
    let cube = open(&fixture("cube.grib")).unwrap();
    let array = cube.array(cube.find("t").unwrap()).unwrap();
    let dims: Vec<(&str, u64)> =
        array.schema().dims.iter().map(|dim| (dim.name.as_str(), dim.extent.unwrap())).collect();
    assert_eq!(dims, [("time", 2), ("isobaricInhPa", 2), ("latitude", 7), ("longitude", 9)]);
    assert!(array.schema().fields[0].nullable);
    let plan =
        tesseral_format::plan(&*array, cube.store(), &Request::cells(Selection::all(&[2, 2, 7, 9]), 0))
            .unwrap();
    assert_eq!((plan.chunks.len(), plan.uncovered), (3, Uncovered::Fill));
    let groups = open(&fixture("groups.grib")).unwrap();
    assert_eq!(groups.groups().keys().collect::<Vec<_>>(), ["isobaricInhPa", "surface"]);
    assert!(groups.find("surface/t").is_ok() && groups.find("isobaricInhPa/valid_time").is_ok());
    assert_eq!(groups.details()["bytes_between_messages"], 7);
    let columns = open(&fixture("columns.grib")).unwrap();
    assert_eq!(columns.array(columns.find("t").unwrap()).unwrap().schema().cell_order, Order::ColMajor);
}

/// A message that ends early is damage: the file is rejected, an audit reports it, and salvage keeps the others.
#[test]
fn truncated_files_are_rejected() {
    for (name, whole) in files() {
        let messages = open(&whole).unwrap().details()["messages"].as_u64().unwrap();
        assert!(read_all(&whole).is_ok(), "{name}");
        for len in 0..whole.len() {
            let Err(error) = open(&whole[..len]) else {
                // The cut is between messages.
                assert!(messages > 1 && (whole[..len].ends_with(b"7777") || len > 40), "{name} {len}");
                continue;
            };
            assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{name} {len}: {error}");
        }
    }
    let cube = fixture("cube.grib");
    let cut = &cube[..cube.len() - 3];
    let mut failed = 0;
    let report = &mut |finding: Finding| failed += u32::from(finding.severity == Severity::Error);
    GribFormat.audit(memory(cut), &AuditOptions::default(), report).unwrap();
    assert!(failed > 0);
    let salvage = GribFormat.salvage(memory(cut), &OpenOptions::default()).unwrap();
    assert_eq!((salvage.findings.len(), salvage.container.details()["messages"].as_u64()), (1, Some(2)));
}

/// Flipped bits give an error or other cells, never a panic.
#[test]
fn flipped_bits_never_panic() {
    for (_, whole) in files() {
        for at in 0..whole.len() {
            for flip in [0x01, 0x10, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] ^= flip;
                let _ = read_all(&damaged);
            }
        }
    }
}

/// A message of 179 bytes that declares 10^12 points is opened, and rejected without work when it is read.
#[test]
fn claimed_points_are_limited() {
    let mut file = fixture("constant.grib");
    let section = |number: u8| {
        let mut at = 16;
        while file[at + 4] != number {
            at += u32::from_be_bytes(*file[at..].first_chunk().unwrap()) as usize;
        }
        at
    };
    let (grid, packing) = (section(3), section(5));
    let points = 65_535_u32 * 65_536;
    file[grid + 6..grid + 10].copy_from_slice(&points.to_be_bytes());
    file[grid + 30..grid + 34].copy_from_slice(&65_535_u32.to_be_bytes());
    file[grid + 34..grid + 38].copy_from_slice(&65_536_u32.to_be_bytes());
    file[packing + 5..packing + 9].copy_from_slice(&points.to_be_bytes());
    let container = open(&file).unwrap();
    let array = container.array(container.find("t").unwrap()).unwrap();
    let request = Request::cells(Selection::all(&[65_536, 65_535]), 0);
    let chunk = tesseral_format::plan(&*array, container.store(), &request).unwrap().chunks.swap_remove(0);
    // The value of all cells is known without any of them.
    assert_eq!(array.constant(&chunk, request.columns[0]).unwrap(), 273_f64.to_ne_bytes());
    assert!(Limits::default().check_total("cells", chunk.cells * 8, chunk.stored_bytes()).is_err());
}
