//! Many small arrays in one file.

use serde_json::json;
use tesseral::{ArraySchema, ArraySpec, Create, DType};

use crate::common::{Args, Outcome, Result, digest, time};

/// Side length of an array.
const SIDE: usize = 16;

/// Writes `--count` arrays of one chunk each, named `a0`, `a1` and so on; every cell holds the number of its array.
pub fn make(args: &Args) -> Result<Outcome> {
    let extents = [SIDE as u64; 2];
    let timed = time(args, || {
        let mut session = Create::new().overwrite().begin(&args.file, "tet")?;
        let add = |number| {
            let schema = ArraySchema::dense(format!("a{number}"), DType::Float32, &extents, &extents);
            session.add(&ArraySpec::raw(schema))
        };
        let ids = (0..args.count).map(add).collect::<tesseral::Result<Vec<_>>>()?;
        for (number, id) in ids.into_iter().enumerate() {
            let cells = [number as f32; SIDE * SIDE];
            session.write(id, bytemuck::cast_slice(&cells))?;
        }
        Ok(session.commit()?)
    })?;
    Ok(Outcome::new(&timed, (args.count * SIDE * SIDE * 4) as u64, json!(null)))
}

/// Opens the file and reads every array.
pub fn read(args: &Args) -> Result<Outcome> {
    let timed = time(args, || {
        let container = tesseral::open(&args.file)?;
        let read = (0..container.len()).map(|index| {
            let array = container.array_at(index)?;
            array.read(&array.all()?)
        });
        Ok(read.collect::<tesseral::Result<Vec<_>>>()?)
    })?;
    let cells = timed.result.iter().map(|array| array.as_slice().ok_or("not f32"));
    let answer = digest(cells.collect::<std::result::Result<Vec<_>, _>>()?);
    Ok(Outcome::new(&timed, (args.count * SIDE * SIDE * 4) as u64, answer))
}
