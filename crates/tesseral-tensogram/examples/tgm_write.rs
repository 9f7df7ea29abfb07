//! Writes one `.tgm` from raw cells: `tgm_write OUT [--option NAME=VALUE]… [--extra KEY=JSON]… [--no-hash]
//! (--object DTYPE SHAPE CODECS FILE [--attr KEY=JSON]…)…`
//!
//! SHAPE is `2x3`, or `x` for a single cell. CODECS are joined by `+`, each `name` or `name:key=value,…`. FILE contains cells
//! in native byte order.

use tesseral_core::{ArraySchema, Attributes, Coords, Error, Result, Value};
use tesseral_format::{ArraySpec, CodecSpec, ColumnData, CreateOptions, Format, Scratch};
use tesseral_store::{Location, Overwrite, ReadMode, StorageOptions};
use tesseral_tensogram::TensogramFormat;

fn value(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::Null,
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(n), _) => Value::Int(n),
            (None, Some(n)) => Value::UInt(n),
            _ => Value::Float(n.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::List(items.iter().map(value).collect()),
        Json::Object(map) => Value::Map(Box::new(map.iter().map(|(k, v)| (k.clone(), value(v))).collect())),
    }
}

fn pair(text: &str) -> Result<(String, Value)> {
    let usage = || Error::invalid(format!("{text:?} is not KEY=JSON"));
    let (key, json) = text.split_once('=').ok_or_else(usage)?;
    let json: serde_json::Value = serde_json::from_str(json).map_err(|_| usage())?;
    Ok((key.to_owned(), value(&json)))
}

fn codecs(text: &str) -> Result<Vec<CodecSpec>> {
    let one = |text: &str| {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let mut spec = CodecSpec::new(name);
        for option in options.split(',').filter(|option| !option.is_empty()) {
            let (key, value) = pair(option)?;
            spec.options.insert(key, value);
        }
        Ok(spec)
    };
    text.split('+').filter(|text| !text.is_empty()).map(one).collect()
}

struct Object {
    spec: ArraySpec,
    file: String,
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let mut next = |what: &str| words.next().ok_or_else(|| Error::invalid(format!("{what} is missing")));
    let out = next("OUT")?;
    let mut options = CreateOptions { overwrite: Overwrite::Replace, ..CreateOptions::default() };
    let (mut named, mut extra) = (Attributes::new(), Attributes::new());
    let mut objects: Vec<Object> = Vec::new();
    while let Ok(word) = next("") {
        match word.as_str() {
            "--option" => named.extend([pair(&next("NAME=VALUE")?)?]),
            "--extra" => extra.extend([pair(&next("KEY=JSON")?)?]),
            "--no-hash" => options.digests = false,
            "--object" => {
                let (dtype, shape, stages) =
                    (next("DTYPE")?.parse()?, next("SHAPE")?, codecs(&next("CODECS")?)?);
                let extents = shape.split('x').filter(|n| !n.is_empty());
                let shape = extents.map(str::parse).collect::<Result<Coords, _>>();
                let shape = shape.map_err(|e| Error::invalid(e.to_string()))?;
                let chunk: Coords = shape.iter().map(|n| (*n).max(1)).collect();
                let name = format!("0/{}", objects.len());
                let mut spec = ArraySpec::raw(ArraySchema::dense(name, dtype, &shape, &chunk));
                spec.codecs[0] = stages;
                objects.push(Object { spec, file: next("FILE")? });
            }
            "--attr" => {
                let (key, value) = pair(&next("KEY=JSON")?)?;
                let object =
                    objects.last_mut().ok_or_else(|| Error::invalid("--attr comes after --object"))?;
                object.spec.schema.attributes.insert(key, value);
            }
            other => return Err(Error::invalid(format!("{other:?} is not an option"))),
        }
    }
    let store = Location::parse(&out)?.store(ReadMode::Read, &StorageOptions::new())?;
    options.format = TensogramFormat.create_options().parse(&named)?;
    let mut writer = TensogramFormat.create(store, &options)?;
    for object in &objects {
        writer.begin(&object.spec)?;
    }
    writer.set_attributes(extra)?;
    for (number, object) in objects.iter().enumerate() {
        let cells = std::fs::read(&object.file).map_err(|e| Error::io("read", &object.file, e))?;
        let grid = object.spec.schema.grid()?;
        if grid.total() == 0 {
            continue;
        }
        let column = ColumnData::Fixed { values: &cells, validity: None };
        let chunk = writer.encode(number, &grid.coords(0), &[column], Vec::new(), &mut Scratch::default())?;
        writer.push(number, chunk)?;
    }
    writer.commit()
}
