//! Arbitrary bytes as a table: opened, audited, planned and every column decoded, within limits and without a panic.

use std::sync::Arc;

use tesseral_core::{CellLen, Limits, Selection};
use tesseral_csv::CsvFormat;
use tesseral_format::{AuditOptions, ColumnMut, Format, OpenOptions, Probe, Request, Scratch};
use tesseral_store::{MemoryStore, Store, StoreExt};

const LIMITS: Limits = Limits { chunk_bytes: 1 << 20, plan_chunks: 4096, ..Limits::DEFAULT };

/// Opens, audits, plans and decodes a table.
pub fn open(file: &[u8]) {
    CsvFormat.sniff(&Probe { name: "fuzz", head: &file[..file.len().min(4096)], entries: None });
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("fuzz.csv", file.to_vec()));
    let options = OpenOptions { limits: LIMITS, ..OpenOptions::default() };
    let audit = AuditOptions { open: options.clone(), ..AuditOptions::default() };
    assert!(CsvFormat.audit(Arc::clone(&store), &audit, &mut |_| {}).is_ok());
    let Ok(container) = CsvFormat.open(Arc::clone(&store), &options) else { return };
    let Ok(array) = container.array(0) else { panic!("an open table has no array") };
    let Some(shape) = array.schema().shape() else { panic!("an array without a shape") };
    for (number, field) in (0_u16..).zip(&array.schema().fields) {
        let request = Request::cells(Selection::all(&shape), number);
        let Ok(plan) = tesseral_format::plan(&*array, container.store(), &request) else { return };
        for chunk in &plan.chunks {
            let part = chunk.parts[0];
            let Ok(stored) = store.read("", part.offset..part.offset + part.len) else {
                panic!("planned bytes are not readable")
            };
            let cells = usize::try_from(chunk.cells).unwrap_or(0);
            let (mut valid, mut values) = (vec![0; cells], vec![0; cells * 8]);
            let (mut offsets, mut data) = (Vec::new(), Vec::new());
            let validity = field.nullable.then_some(&mut valid[..]);
            let out = match field.cell {
                CellLen::Var => ColumnMut::Var { offsets: &mut offsets, data: &mut data, validity },
                _ => ColumnMut::Fixed { values: &mut values, validity },
            };
            let decoded =
                array.decode(chunk, part.column, &[stored], 0..chunk.cells, out, &mut Scratch::default());
            assert!(decoded.is_ok(), "planned cells cannot be decoded");
        }
    }
}
