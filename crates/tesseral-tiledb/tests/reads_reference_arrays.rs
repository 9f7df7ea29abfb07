//! Arrays of the reference are read cell for cell at every time.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use serde_json::Value;
use tesseral_conformance::oracle::{Dense, Sparse};
use tesseral_core::dtype::Class;
use tesseral_core::{CellLen, ErrorKind, Scalar, Value as Attribute};
use tesseral_format::{ContainerSource, Format, OpenOptions};
use tesseral_tiledb::TileDbFormat;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Cells as in the manifest: null cells as zeros or empty, variable-length cells with a length prefix.
fn raw<'a>(cells: impl Iterator<Item = Option<&'a [u8]>>, size: Option<usize>) -> (String, String) {
    let (mut bytes, mut validity) = (Vec::new(), Vec::new());
    for cell in cells {
        validity.push(u8::from(cell.is_some()));
        match size {
            Some(size) => bytes.extend_from_slice(cell.unwrap_or(&vec![0; size])),
            None => {
                let cell = cell.unwrap_or_default();
                bytes.extend((cell.len() as u64).to_le_bytes());
                bytes.extend_from_slice(cell);
            }
        }
    }
    (hex(&bytes), hex(&validity))
}

fn columns(container: &dyn ContainerSource) -> Vec<(String, (String, String))> {
    let source = container.array(0).unwrap();
    let schema = source.schema();
    if schema.sparse {
        let sparse = Sparse::load(container, 0).unwrap();
        let fields = schema.fields.iter().enumerate().map(|(i, field)| {
            let cells = sparse.rows().iter().map(|row| row.fields[i].as_deref());
            (field.name.clone(), raw(cells, field.cell_size()))
        });
        let dims = schema.dims.iter().enumerate().map(|(d, dim)| {
            let cells = sparse.rows().iter().map(|row| Some(&row.coords[d][..]));
            let size = dim.dtype.size().filter(|_| dim.dtype.class() != Class::Text);
            (dim.name.clone(), raw(cells, size))
        });
        return fields.chain(dims).collect();
    }
    let fields = schema.fields.iter().zip(0_u16..).map(|(field, i)| {
        let cells = Dense::load(container, 0, i).unwrap().painted().cells();
        let size = field.cell_size();
        let cells = cells.iter(size.unwrap_or(0));
        (field.name.clone(), raw(cells, if field.cell == CellLen::Var { None } else { size }))
    });
    fields.collect()
}

#[test]
fn every_cell_at_every_time() {
    let manifest = common::manifest();
    let mut compared = 0;
    for (name, array) in manifest["arrays"].as_object().unwrap() {
        for expected in array["expected"].as_array().unwrap() {
            let options = common::options_at(name, &expected["as_of"]);
            let container = TileDbFormat.open(common::store(name), &options).unwrap();
            let found = columns(container.as_ref());
            let wanted = expected["columns"].as_object().unwrap();
            assert_eq!(found.len(), wanted.len(), "{name} {}", expected["as_of"]);
            for (column, (bytes, validity)) in found {
                let want = |key: &str| wanted[&column][key].as_str().unwrap().to_owned();
                assert_eq!(bytes, want("raw"), "{name}.{column} at {}", expected["as_of"]);
                assert_eq!(validity, want("validity"), "{name}.{column} at {}", expected["as_of"]);
                compared += 1;
            }
        }
    }
    assert!(compared > 50, "{compared} columns");
}

#[test]
fn attributes_labels_and_the_current_domain() {
    let container = TileDbFormat.open(common::store("enumerated"), &OpenOptions::default()).unwrap();
    let array = container.array(0).unwrap();
    let schema = array.schema();
    assert_eq!(schema.name, "enumerated");
    assert_eq!(schema.attributes["title"], Attribute::Text("colours".to_owned()));
    assert_eq!(schema.attributes["year"], Attribute::Int(2026));
    assert_eq!(schema.attributes["scale"], Attribute::Float(0.25));
    assert_eq!(schema.attributes["raw"], Attribute::Bytes(vec![0, 0xff]));
    assert!(matches!(&schema.attributes["pair"], Attribute::Numbers { bytes, .. } if bytes.len() == 16));
    let labels = schema.fields[0].enumeration.as_ref().unwrap();
    assert!(labels.ordered);
    assert_eq!(labels.labels.get(2), Some(Scalar::from_text("blue")));
    assert_eq!(schema.shape().unwrap().as_slice(), [6]);
}

#[test]
fn groups_list_their_arrays() {
    let container = TileDbFormat.open(common::store("group"), &OpenOptions::default()).unwrap();
    assert_eq!((container.len(), container.name(0)), (1, "first"));
    assert_eq!(container.attributes()["about"], Attribute::Text("a group".to_owned()));
    assert_eq!(container.details()["members"][0]["uri"], Value::from("one"));
    assert_eq!(Dense::load(container.as_ref(), 0, 0).unwrap().painted().cells().iter(1).count(), 6);
}

#[test]
fn encrypted_arrays_need_their_key() {
    let open = |key: Option<Vec<u8>>| {
        TileDbFormat.open(common::store("encrypted"), &OpenOptions { key, ..OpenOptions::default() })
    };
    assert!(matches!(open(None).unwrap_err().kind(), ErrorKind::InvalidRequest { .. }));
    assert!(open(Some(vec![7; 32])).unwrap_err().is_damage());
    assert!(matches!(open(Some(vec![7; 31])).unwrap_err().kind(), ErrorKind::InvalidRequest { .. }));
}

#[test]
fn fragments_are_listed_with_their_replacements() {
    let container = TileDbFormat.open(common::store("sparse_history"), &OpenOptions::default()).unwrap();
    let details = container.details();
    assert_eq!(details["fragments"].as_array().unwrap().len(), 2);
    assert_eq!(details["hidden_fragments"].as_array().unwrap().len(), 2);
    assert_eq!(details["fragments"][0]["has_timestamps"], Value::from(true));
}

/// Describing an array opens its fragments and drops them again: there may be a hundred thousand.
#[test]
fn totals_and_domain_need_no_open_fragments() {
    for name in common::arrays() {
        let options = common::options(&name);
        let Ok(first) = TileDbFormat.open(common::store(&name), &options) else { continue };
        let Ok(again) = TileDbFormat.open(common::store(&name), &options) else { continue };
        for i in 0..first.len() {
            let (unopened, opened) = (first.array(i).unwrap(), again.array(i).unwrap());
            let fields = 0..u16::try_from(opened.schema().fields.len()).unwrap();
            let columns: Vec<_> = fields.map(tesseral_format::Column::Field).collect();
            let target = match opened.schema().sparse {
                true => tesseral_format::Target::Coordinates(vec![Vec::new(); opened.schema().dims.len()]),
                false => {
                    let shape = opened.schema().shape().unwrap();
                    tesseral_format::Target::Cells(tesseral_core::Selection::all(&shape))
                }
            };
            let all = tesseral_format::Request { target, columns, condition: None };
            // A plan keeps the fragments open.
            let plan = tesseral_format::plan(&*opened, again.store(), &all);
            assert_eq!(unopened.totals(&all).unwrap(), opened.totals(&all).unwrap(), "{name}");
            assert_eq!(unopened.non_empty_domain().unwrap(), opened.non_empty_domain().unwrap(), "{name}");
            if let (Ok(plan), true) = (plan, opened.schema().sparse) {
                assert_eq!(
                    unopened.totals(&all).unwrap().unwrap().chunks,
                    plan.chunks.len() as u64,
                    "{name}"
                );
            }
        }
    }
}
