//! Arrays of very many fragments, for measurements of what each of them costs.

use std::path::Path;

use serde_json::{Value as Json, json};
use tesseral::{
    Append, ArrayId, ArraySchema, ArraySpec, ColumnData, Create, DType, Dimension, Field, InputOrder, Region,
    Scalar, Value,
};

/// Cells of a fragment.
const CELLS: u64 = 64;

/// Writes `count` fragments of 64 cells next to one another to a new array.
pub fn run(folder: &Path, count: u64, kind: &str) -> Result<Json, Box<dyn std::error::Error>> {
    let sparse = kind == "sparse";
    let mut session = Create::new().option("empty", Value::Bool(true)).begin(folder, "tiledb")?;
    session.add(&ArraySpec::raw(schema(count * CELLS, sparse)))?;
    session.commit()?;
    for number in 0..count {
        let (start, end) = (number * CELLS, (number + 1) * CELLS);
        let cells: Vec<u8> = (start..end).flat_map(|i| (i as f64).to_le_bytes()).collect();
        let append = Append::new().timestamp(1 + number);
        if sparse {
            let places: Vec<u8> = (start..end).flat_map(|i| i.cast_signed().to_le_bytes()).collect();
            let columns = [&places, &cells].map(|values| ColumnData::Fixed { values, validity: None });
            let session = append.begin(folder)?;
            session.write_cells(ArrayId(0), &columns, InputOrder::Unordered)?;
            session.commit()?;
        } else {
            let region = Region::new([(start, end)]);
            let session = append.region(region.clone()).begin(folder)?;
            session.write_region(ArrayId(0), &region, &cells)?;
            session.commit()?;
        }
    }
    Ok(json!({"fragments": count, "cells": count * CELLS}))
}

fn schema(extent: u64, sparse: bool) -> ArraySchema {
    let mut schema = ArraySchema::dense("many", DType::Float64, &[extent], &[CELLS]);
    if sparse {
        let last = i64::try_from(extent).unwrap_or(i64::MAX) - 1;
        let domain = Some((Scalar::from_element(0_i64), Scalar::from_element(last)));
        let tile = Some(Scalar::from_element(1024_i64));
        schema.dims = vec![Dimension { dtype: DType::Int64, domain, tile, ..Dimension::new("x", extent) }];
        schema.fields = vec![Field::new("a", DType::Float64)];
        (schema.sparse, schema.chunk_shape) = (true, None);
    }
    schema
}
