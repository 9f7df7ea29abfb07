//! Every part of the data model round-trips through every format and every conversion.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};

use tesseral::{
    Array, ArraySchema, ArraySpec, Attributes, CellLen, ColumnData, Container, ConvertOptions, Create, DType,
    Region, Scalar, TextExtent, Value,
};
use tesseral_core::TimeUnit;
use tesseral_core::schema::{Labels, VariableRole};

const FORMATS: [(&str, &str); 3] = [("tet", "tet"), ("tensogram", "tgm"), ("tiledb", "tiledb")];

/// One variable with its cells: fixed-size bytes, or text.
struct Variable {
    name: &'static str,
    dims: Vec<(&'static str, u64)>,
    dtype: DType,
    cell: CellLen,
    cells: Cells,
    role: VariableRole,
    attributes: Attributes,
}

#[derive(Clone, Debug, PartialEq)]
enum Cells {
    Fixed(Vec<u8>),
    Text(Vec<Vec<u8>>),
}

fn numbers<const N: usize>(values: impl IntoIterator<Item = [u8; N]>) -> Cells {
    Cells::Fixed(values.into_iter().flatten().collect())
}

fn texts(values: &[&[u8]]) -> Cells {
    Cells::Text(values.iter().map(|text| text.to_vec()).collect())
}

/// Attributes of every type, not sorted by name.
fn attributes() -> Attributes {
    let scalar = |scalar: Scalar| Value::from(scalar);
    let inner = Attributes::from([("z".to_owned(), Value::Int(1)), ("a".to_owned(), Value::from("$"))]);
    [
        ("units", Value::from("K")),
        ("a_byte", scalar(Scalar::from_element(-3_i8))),
        ("Short", scalar(Scalar::from_element(-999_i16))),
        ("unsigned", scalar(Scalar::from_element(7_u32))),
        ("huge", Value::UInt(u64::MAX)),
        ("int", Value::Int(i64::MIN)),
        ("single", scalar(Scalar::from_element(0.1_f32))),
        ("double", Value::Float(0.1)),
        ("nan", Value::Float(f64::from_bits(0x7ff8_0000_0000_0001))),
        ("yes", Value::Bool(true)),
        ("empty", Value::from("")),
        ("long", Value::Text("x".repeat(5000))),
        ("bytes", Value::Bytes(vec![0, 255, 0])),
        ("none", Value::Null),
        (
            "range",
            Value::Numbers { dtype: DType::Float32, bytes: [1_f32, 2.5].map(f32::to_le_bytes).concat() },
        ),
        ("one", Value::Numbers { dtype: DType::Int32, bytes: 5_i32.to_le_bytes().to_vec() }),
        ("words", Value::List(vec![Value::from("b"), Value::from("a")])),
        ("map", Value::Map(inner.into())),
        ("name", Value::from("not the name of the variable")),
        ("_tesseral", Value::from("an attribute of this name")),
        ("history", Value::from("2020: created")),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

fn variables() -> Vec<Variable> {
    let plain = |name, dims: &[(&'static str, u64)], dtype, cells| Variable {
        name,
        dims: dims.to_vec(),
        dtype,
        cell: CellLen::One,
        cells,
        role: if dims.len() == 1 && name.rsplit('/').next() == Some(dims[0].0) {
            VariableRole::Index
        } else {
            VariableRole::Data
        },
        attributes: Attributes::new(),
    };
    let (t, x) = (("time", 3), ("x", 2));
    let day = DType::DateTime(TimeUnit::Day);
    vec![
        Variable {
            attributes: attributes(),
            ..plain("temp", &[t, x], DType::Float32, numbers((0..6).map(|i: u8| f32::from(i).to_le_bytes())))
        },
        plain("time", &[t], day, numbers([0_i64, i64::MIN, 19_000].map(i64::to_le_bytes))),
        Variable {
            attributes: [("axis".to_owned(), Value::from("X"))].into(),
            ..plain("x", &[x], DType::Float32, numbers([0.1_f32, 0.2].map(f32::to_le_bytes)))
        },
        plain("flag", &[t], DType::Bool, Cells::Fixed(vec![1, 0, 1])),
        plain("small", &[x], DType::Int8, Cells::Fixed(vec![255, 3])),
        plain(
            "lead",
            &[t],
            DType::TimeDelta(TimeUnit::Nanosecond),
            numbers([-1_i64, 0, 1].map(i64::to_le_bytes)),
        ),
        Variable {
            role: VariableRole::Auxiliary,
            ..plain("lat", &[t, x], DType::Float64, numbers((0..6).map(|i: u8| f64::from(i).to_le_bytes())))
        },
        Variable {
            role: VariableRole::GridMapping,
            attributes: attributes(),
            ..plain("crs", &[], DType::Int32, numbers([0_i32.to_le_bytes()]))
        },
        Variable {
            role: VariableRole::Auxiliary,
            ..plain("reference_time", &[], day, numbers([7_i64.to_le_bytes()]))
        },
        plain("half", &[x], DType::Float16, Cells::Fixed(vec![1, 2, 3, 4])),
        Variable {
            cell: CellLen::Fixed(4),
            ..plain("code", &[t], DType::Ascii, Cells::Fixed(b"ab\0\0wxyz\0\0\0\0".to_vec()))
        },
        Variable {
            cell: CellLen::Var,
            ..plain("station", &[("station", 3)], DType::Utf8, texts(&[b"03772", b"", "Ü".as_bytes()]))
        },
        Variable { cell: CellLen::Var, ..plain("odd", &[t], DType::Utf8, texts(&[b"a\0", b"\0", b""])) },
        Variable { cell: CellLen::Var, ..plain("title", &[], DType::Utf8, texts(&[b"of a scalar"])) },
        plain("nothing", &[("none", 0), x], DType::Int16, Cells::Fixed(Vec::new())),
        plain("sub/group/time", &[("time", 2)], DType::Int32, numbers([5_i32, 6].map(i32::to_le_bytes))),
        plain(
            "sub/group/v",
            &[("time", 2), x],
            DType::UInt16,
            numbers([1_u16, 2, 3, 4].map(u16::to_le_bytes)),
        ),
    ]
}

fn write(path: &Path, format: &str, variables: &[Variable]) {
    let mut session = Create::new().begin(path, format).unwrap();
    let mut ids = Vec::new();
    for variable in variables {
        let shape: Vec<u64> = variable.dims.iter().map(|dim| dim.1).collect();
        let chunk: Vec<u64> = shape.iter().map(|n| (*n).max(1)).collect();
        let mut schema = ArraySchema::dense(variable.name, variable.dtype, &shape, &chunk);
        schema.fields[0].cell = variable.cell;
        schema.role = variable.role;
        schema.attributes = variable.attributes.clone();
        for (dim, (name, _)) in schema.dims.iter_mut().zip(&variable.dims) {
            (*name).clone_into(&mut dim.name);
        }
        let mut spec = ArraySpec::raw(schema);
        if let Cells::Text(cells) = &variable.cells {
            let mut extent = TextExtent::default();
            cells.iter().for_each(|cell| extent.add(cell));
            spec.text = Some(extent);
        }
        ids.push((session.add(&spec).unwrap_or_else(|e| panic!("{format} {}: {e}", variable.name)), shape));
    }
    for ((id, shape), variable) in ids.iter().zip(variables) {
        match &variable.cells {
            _ if shape.contains(&0) => {}
            Cells::Fixed(bytes) => session.write(*id, bytes).unwrap(),
            Cells::Text(cells) => {
                let mut end = 0;
                let ends = cells.iter().map(|cell| {
                    end += cell.len() as u64;
                    end
                });
                let (ends, data): (Vec<u64>, Vec<u8>) = (ends.collect(), cells.concat());
                let column = ColumnData::Var { offsets: &ends, data: &data, validity: None };
                session.write_columns(*id, &Region::from_shape(shape), &[column]).unwrap();
            }
        }
    }
    session.set_attributes(attributes()).unwrap();
    session.set_group("sub", Attributes::new()).unwrap();
    session.set_group("sub/group", attributes()).unwrap();
    session.set_group("hollow", Attributes::new()).unwrap();
    session.commit().unwrap();
}

fn read(array: &Array) -> Cells {
    let all = array.all().unwrap();
    match array.selected_field().cell {
        CellLen::Var => {
            let cells = array.read_var(&all).unwrap();
            Cells::Text((0..cells.len()).map(|i| cells.get(i).to_vec()).collect())
        }
        _ => Cells::Fixed(array.read(&all).unwrap().bytes().to_vec()),
    }
}

/// Attributes in order, including NaN.
fn shown(attributes: &Attributes) -> String {
    format!("{attributes:?}")
}

fn check(context: &str, container: &Container, variables: &[Variable]) {
    for variable in variables {
        let context = format!("{context}: {}", variable.name);
        let array = container.array(variable.name).unwrap_or_else(|e| panic!("{context}: {e}"));
        let schema = array.schema();
        let dims: Vec<(&str, u64)> =
            schema.dims.iter().map(|d| (d.name.as_str(), d.extent.unwrap())).collect();
        assert_eq!(dims, variable.dims, "{context}");
        let field = array.selected_field();
        assert_eq!((field.dtype, field.cell), (variable.dtype, variable.cell), "{context}");
        assert_eq!(schema.role, variable.role, "{context}");
        assert_eq!(read(&array), variable.cells, "{context}");
        assert_eq!(shown(&array.attributes()), shown(&variable.attributes), "{context}");
    }
    assert_eq!(shown(container.attributes()), shown(&attributes()), "{context}");
    let groups: Vec<&str> = container.groups().keys().map(String::as_str).collect();
    assert_eq!(groups, ["sub", "sub/group", "hollow"], "{context}");
    assert_eq!(shown(&container.groups()["sub/group"]), shown(&attributes()), "{context}");
    // Labels are a view of coordinates: numbers with their dtype, text as text.
    let labels = |name: &str, d: usize| container.array(name).unwrap().schema().dims[d].labels.clone();
    let days = [0_i64, i64::MIN, 19_000].map(i64::to_le_bytes).concat();
    let time = Labels::Numbers { dtype: DType::DateTime(TimeUnit::Day), bytes: days };
    assert_eq!(labels("temp", 0), Some(time), "{context}");
    let inner = Labels::Numbers { dtype: DType::Int32, bytes: [5_i32, 6].map(i32::to_le_bytes).concat() };
    assert_eq!(labels("sub/group/v", 0), Some(inner), "{context}");
    assert!(
        matches!(labels("sub/group/v", 1), Some(Labels::Numbers { dtype: DType::Float32, .. })),
        "{context}"
    );
    let stations = ["03772", "", "Ü"].map(str::to_owned).to_vec();
    assert_eq!(labels("station", 0), Some(Labels::Text(stations)), "{context}");
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_path_buf();
    (folder, path)
}

#[test]
fn every_format_stores_the_data_model() {
    let (_held, folder) = folder();
    let variables = variables();
    for (format, ending) in FORMATS {
        let path = folder.join(format!("a.{ending}"));
        write(&path, format, &variables);
        check(format, &tesseral::open(&path).unwrap(), &variables);
    }
}

#[test]
fn conversions_are_identities() {
    let (_held, folder) = folder();
    let variables = variables();
    for (from, ending) in FORMATS {
        let source = folder.join(format!("a.{ending}"));
        write(&source, from, &variables);
        for (to, ending) in FORMATS {
            let target = folder.join(format!("{from}-to.{ending}"));
            let options = ConvertOptions::new().check();
            let converted = tesseral::convert(&tesseral::open(&source).unwrap(), &target, &options);
            converted.unwrap_or_else(|e| panic!("{from} to {to}: {e}"));
            check(&format!("{from} to {to}"), &tesseral::open(&target).unwrap(), &variables);
        }
    }
}

#[test]
fn numbers_given_as_labels_become_a_coordinate() {
    let (_held, folder) = folder();
    for (format, ending) in FORMATS {
        let path = folder.join(format!("l.{ending}"));
        let mut session = Create::new().begin(&path, format).unwrap();
        let mut schema = ArraySchema::dense("v", DType::Float64, &[100], &[50]);
        "time".clone_into(&mut schema.dims[0].name);
        let hours: Vec<u8> = (0..100_i32).flat_map(|i| (i * 6).to_le_bytes()).collect();
        let labels = Labels::Numbers { dtype: DType::Int32, bytes: hours.clone() };
        schema.dims[0].labels = Some(labels.clone());
        let id = session.add(&ArraySpec::raw(schema)).unwrap();
        session.write(id, &[0; 800]).unwrap();
        session.commit().unwrap();
        let container = tesseral::open(&path).unwrap();
        assert_eq!(container.len(), 2, "{format}");
        let (time, v) = (container.array("time").unwrap(), container.array("v").unwrap());
        assert_eq!((time.schema().role, read(&time)), (VariableRole::Index, Cells::Fixed(hours)), "{format}");
        assert_eq!(v.schema().dims[0].labels, Some(labels), "{format}");
        assert_eq!(v.select(["time=@12"]).unwrap().slices()[0].start, 2, "{format}");
    }
}
