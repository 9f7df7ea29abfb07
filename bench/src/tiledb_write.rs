//! The cases about writing TileDB arrays: tiles, cells, many small writes, and consolidation.

use std::fs;
use std::path::Path;

use serde_json::{Value as Json, json};
use tesseral::{
    Append, ArrayId, ArraySchema, ArraySpec, CodecSpec, ColumnData, Consolidate, Create, DType, Dimension,
    Field, InputOrder, OpenOptions, Region, Scalar, StatSet, Value,
};

use crate::common::{Args, Outcome, Result, digest, time, time_after};
use crate::plain;

/// Side lengths of the domain and of the space tiles of sparse cells, and cells per data tile.
const SIDE: i64 = 100_000;
const TILE: i64 = 1000;
const CAPACITY: i64 = 10_000;
/// Cells per small write.
const ROW: usize = 100;

/// Runs a case.
pub fn run(args: &Args) -> Result<Outcome> {
    match args.case.as_str() {
        "tdb_write" => tiles(args),
        "tdb_rows" => rows(args),
        "tdb_append" => appends(args),
        "tdb_small" => small(args),
        "tdb_consolidate" => consolidate(args),
        case => Err(format!("unknown case {case}").into()),
    }
}

fn zstd() -> Vec<CodecSpec> {
    "zstd:3".parse().into_iter().collect()
}

/// Bytes of all files below a folder.
fn stored(folder: &Path) -> Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        total += if entry.file_type()?.is_dir() { stored(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(total)
}

/// A dimension of 32-bit positions.
fn positions(name: &str, extent: u64) -> Dimension {
    Dimension { dtype: DType::Int32, ..Dimension::new(name, extent) }
}

/// Writes a plain file, held in memory, as a dense array.
fn tiles(args: &Args) -> Result<Outcome> {
    let mut schema = ArraySchema::dense("cube", DType::Float32, &args.shape, &args.chunk);
    schema.dims = (0..).zip(&args.shape).map(|(d, n)| positions(&format!("d{d}"), *n)).collect();
    let mut spec = ArraySpec::raw(schema);
    if args.zstd {
        spec.codecs = vec![zstd()];
    }
    let written = crate::write_as(args, &Create::new().overwrite(), "tiledb", &spec)?;
    Ok(written.stored(stored(&args.out)?))
}

/// The sparse array: two coordinates and a field.
fn sparse() -> ArraySpec {
    let axis = |name: &str| Dimension {
        dtype: DType::Int64,
        domain: Some((Scalar::from_element(0_i64), Scalar::from_element(SIDE - 1))),
        tile: Some(Scalar::from_element(TILE)),
        ..Dimension::new(name, SIDE.unsigned_abs())
    };
    let mut schema = ArraySchema::dense("rows", DType::Float64, &[], &[]);
    schema.dims = vec![axis("x"), axis("y")];
    schema.fields = vec![Field::new("a", DType::Float64)];
    (schema.sparse, schema.chunk_shape) = (true, None);
    ArraySpec { schema, codecs: vec![zstd()], text: None }
}

/// A checksum of an array: the sum of all cells; for a sparse array their number and the sum of each column.
fn sums(path: &Path) -> Result<Json> {
    let array = tesseral::open(path)?.array_at(0)?;
    if !array.schema().sparse {
        let sum = array.summary(&array.all()?, StatSet::SUM)?;
        return Ok(json!([sum.sum().ok_or("no sum")?.to_f64()]));
    }
    let found = array.cells()?.columns(["x", "y", "a"])?.unordered().read()?;
    let sum = |number: fn([u8; 8]) -> f64, column: usize| -> f64 {
        let cells = &found.columns[column].1;
        (0..found.rows).map(|i| number(std::array::from_fn(|k| cells.get(i)[k]))).sum()
    };
    // Coordinates are far below 2⁵³.
    let as_float = |word| i64::from_le_bytes(word) as f64;
    Ok(json!([found.rows, sum(as_float, 0), sum(as_float, 1), sum(f64::from_le_bytes, 2)]))
}

/// Cells at random positions, column after column in a raw file, written as a sparse array.
fn rows(args: &Args) -> Result<Outcome> {
    let source = plain::map(&args.file)?;
    // Touch every page of the source before measuring memory.
    digest([plain::cells(&source)?]);
    let column = args.count * 8;
    let columns: Vec<ColumnData<'_>> =
        source.chunks_exact(column).map(|values| ColumnData::Fixed { values, validity: None }).collect();
    let create = Create::new()
        .overwrite()
        .option("capacity", Value::Int(CAPACITY))
        .option("coordinates", Value::from("zstd:3"));
    let timed = time(args, || {
        let mut session = create.begin(&args.out, "tiledb")?;
        let rows = session.add(&sparse())?;
        session.write_cells(rows, &columns, InputOrder::Unordered)?;
        Ok(session.commit()?)
    })?;
    Ok(Outcome::new(&timed, source.len() as u64, sums(&args.out)?).stored(stored(&args.out)?))
}

/// Many writes of one row each, each opening the array again.
fn appends(args: &Args) -> Result<Outcome> {
    let count = args.count as u64;
    let mut schema = ArraySchema::dense("versions", DType::Float32, &[count, ROW as u64], &[1, ROW as u64]);
    schema.dims = vec![positions("t", count), positions("x", ROW as u64)];
    let spec = ArraySpec::raw(schema);
    let timed = time_after(
        args,
        || {
            let create = Create::new().overwrite().empty();
            let mut session = create.begin(&args.out, "tiledb")?;
            session.add(&spec)?;
            Ok(session.commit()?)
        },
        || {
            for t in 0..count {
                let cells = [t as f32; ROW];
                let region = Region::new([(t, t + 1), (0, ROW as u64)]);
                let session = Append::new().region(region.clone()).begin(&args.out)?;
                session.write_region(ArrayId(0), &region, bytemuck::cast_slice(&cells))?;
                session.commit()?;
            }
            Ok(())
        },
    )?;
    let array = tesseral::open(&args.out)?.array_at(0)?;
    let answer = digest([array.read(&array.all()?)?.as_slice().ok_or("not f32")?]);
    Ok(Outcome::new(&timed, 4 * ROW as u64, answer).per(args.count).stored(stored(&args.out)?))
}

/// Many small arrays, each in a separate folder.
fn small(args: &Args) -> Result<Outcome> {
    let spec = ArraySpec::raw(ArraySchema::dense("a", DType::Float32, &[ROW as u64], &[ROW as u64]));
    let path = |number: usize| args.out.join(number.to_string());
    let timed = time_after(
        args,
        || {
            let _ = fs::remove_dir_all(&args.out);
            Ok(fs::create_dir_all(&args.out)?)
        },
        || {
            for number in 0..args.count {
                let mut session = Create::new().begin(path(number), "tiledb")?;
                let array = session.add(&spec)?;
                session.write(array, bytemuck::cast_slice(&[number as f32; ROW]))?;
                session.commit()?;
            }
            Ok(())
        },
    )?;
    let last = tesseral::open(path(args.count - 1))?.array_at(0)?;
    let answer = digest([last.read(&last.all()?)?.as_slice().ok_or("not f32")?]);
    Ok(Outcome::new(&timed, 4 * ROW as u64, answer).per(args.count))
}

/// Consolidates all fragments of an array; each run begins with a fresh copy.
fn consolidate(args: &Args) -> Result<Outcome> {
    let timed = time_after(
        args,
        || copy(&args.file, &args.out),
        || Ok(tesseral::edit(&args.out, &OpenOptions::default())?.consolidate(&Consolidate::default())?),
    )?;
    if timed.result.made.len() != 1 {
        return Err(format!("expected 1 fragment, found {}", timed.result.made.len()).into());
    }
    Ok(Outcome::new(&timed, 0, sums(&args.out)?).stored(stored(&args.out)?))
}

/// Copies a folder to a new path.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
