//! Arbitrary bytes as a Parquet file: opened, audited, planned and decoded, within limits and without a panic.
//!
//! The metadata are at the end of a file, after their length: input that does not end like a file is completed, so that mutations
//! reach the parser.

use std::sync::Arc;

use tesseral_core::{CellLen, Limits, Selection};
use tesseral_format::{AuditOptions, Column, ColumnMut, Format, OpenOptions, Request, Scratch};
use tesseral_parquet::ParquetFormat;
use tesseral_store::{MemoryStore, Store, StoreExt};

const LIMITS: Limits =
    Limits { chunk_bytes: 1 << 20, metadata_bytes: 1 << 20, depth: 64, plan_chunks: 4096, ..Limits::DEFAULT };

/// Opens, audits, plans and decodes a file.
pub fn open(data: &[u8]) {
    let mut file = data.to_vec();
    if !file.ends_with(b"PAR1") {
        file = [b"PAR1", data, &(data.len() as u32).to_le_bytes(), b"PAR1"].concat();
    }
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("fuzz.parquet", file));
    let options = OpenOptions { limits: LIMITS, ..OpenOptions::default() };
    let mut findings = 0;
    let audit = AuditOptions { open: options.clone(), ..AuditOptions::default() };
    assert!(ParquetFormat.audit(Arc::clone(&store), &audit, &mut |_| findings += 1).is_ok() && findings > 0);
    let Ok(container) = ParquetFormat.open(store, &options) else { return };
    container.details();
    for number in 0..container.len().min(8) {
        let Ok(array) = container.array(number) else { panic!("an open file lacks an array") };
        let Some(shape) = array.schema().shape() else { panic!("an array without a shape") };
        let request = Request::cells(Selection::all(&shape), 0);
        let Ok(plan) = tesseral_format::plan(&*array, container.store(), &request) else { continue };
        let field = &array.schema().fields[0];
        for chunk in plan.chunks.iter().take(8) {
            array.stats(chunk, Column::Field(0));
            array.describe(chunk);
            let part = chunk.parts[0];
            let Ok(stored) = container.store().read("", part.offset..part.offset + part.len) else {
                panic!("planned bytes are not readable")
            };
            let Ok(cells) = usize::try_from(chunk.cells) else { continue };
            let size = field.cell_size().unwrap_or(0);
            // The engine limits what it decodes at a time.
            if cells.saturating_mul(size.max(1)) > 1 << 22 {
                continue;
            }
            let mut valid = vec![0; cells];
            let (mut values, mut offsets) = (vec![0; cells * size], Vec::new());
            let validity = field.nullable.then_some(&mut valid[..]);
            let out = match field.cell {
                CellLen::Var => {
                    values.clear();
                    ColumnMut::Var { offsets: &mut offsets, data: &mut values, validity }
                }
                _ => ColumnMut::Fixed { values: &mut values, validity },
            };
            let scratch = &mut Scratch::default();
            let _ = array.decode(chunk, part.column, &[stored], 0..chunk.cells, out, scratch);
        }
    }
}
