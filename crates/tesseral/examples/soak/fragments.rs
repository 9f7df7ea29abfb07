//! Arrays of very many fragments, for measurements of what each of them costs.

use std::path::Path;

use serde_json::{Value as Json, json};
use tesseral::{Append, ArrayId, ColumnData, Create, InputOrder, Region};

/// Cells of a fragment.
const CELLS: u64 = 64;

/// Writes `count` fragments of 64 cells next to one another to a new array.
pub fn run(folder: &Path, count: u64, kind: &str) -> Result<Json, Box<dyn std::error::Error>> {
    let sparse = kind == "sparse";
    let document = json!({
        "sparse": sparse,
        "dims": [{"name": "x", "dtype": "int64", "domain": [0, count * CELLS - 1], "tile": if sparse { 1024 } else { CELLS }}],
        "fields": [{"name": "a", "dtype": "float64"}],
    });
    Create::new().declare(folder, "tiledb", &document)?.commit()?;
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
