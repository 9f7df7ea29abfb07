//! Arbitrary bytes as an Arrow IPC file or stream: opened, audited, planned and decoded, within limits and without a panic.
//!
//! The footer of a file is at the end, after it comes its length: input that begins like neither is completed, so that mutations reach
//! the parser.

use std::sync::Arc;

use tesseral_arrow::ArrowFormat;
use tesseral_core::{CellLen, Limits, Selection};
use tesseral_format::{AuditOptions, Column, ColumnMut, Format, OpenOptions, Request, Scratch};
use tesseral_store::{MemoryStore, Store, StoreExt};

const LIMITS: Limits =
    Limits { chunk_bytes: 1 << 20, metadata_bytes: 1 << 20, depth: 64, plan_chunks: 4096, ..Limits::DEFAULT };

/// Opens, audits, plans and decodes a file.
pub fn open(data: &[u8]) {
    let mut file = data.to_vec();
    if !file.starts_with(&[0xff; 4]) && !file.ends_with(b"ARROW1") {
        file = [b"ARROW1\0\0", data, &(data.len() as u32).to_le_bytes(), b"ARROW1"].concat();
    }
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("fuzz.arrow", file));
    let options = OpenOptions { limits: LIMITS, ..OpenOptions::default() };
    let mut findings = 0;
    let audit = AuditOptions { open: options.clone(), ..AuditOptions::default() };
    assert!(ArrowFormat.audit(Arc::clone(&store), &audit, &mut |_| findings += 1).is_ok() && findings > 0);
    let Ok(container) = ArrowFormat.open(store, &options) else { return };
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
            let read = |part: &tesseral_format::Part| {
                container.store().read("", part.offset..part.offset + part.len)
            };
            let Ok(stored) = chunk.parts.iter().map(read).collect::<Result<Vec<_>, _>>() else {
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
            let _ = array.decode(chunk, Column::Field(0), &stored, 0..chunk.cells, out, &mut Scratch::default());
        }
    }
}
