//! Arbitrary bytes as a `.tet` file: opened, audited, salvaged, planned and decoded, within limits and without a panic.

use std::sync::Arc;

use tesseral_core::{Limits, Selection};
use tesseral_format::{
    AuditOptions, Column, ColumnMut, ContainerSource, Format, OpenOptions, Request, Scratch, Uncovered,
};
use tesseral_store::{MemoryStore, Store, StoreExt};
use tesseral_tet::{TetFormat, TetSummary};

const LIMITS: Limits =
    Limits { chunk_bytes: 1 << 20, metadata_bytes: 1 << 20, depth: 64, plan_chunks: 4096, ..Limits::DEFAULT };

fn read(container: &dyn ContainerSource, file: &[u8]) {
    let mut scratch = Scratch::default();
    container.details();
    for i in 0..container.len() {
        let Ok(array) = container.array(i) else { continue };
        let Some(shape) = array.schema().shape() else { continue };
        let Ok(plan) = tesseral_format::plan(&*array, container.store(), &Request::cells(Selection::all(&shape), 0)) else { continue };
        let mut cells = 0;
        for chunk in &plan.chunks {
            cells += chunk.cells;
            array.stats(chunk, Column::Field(0));
            array.describe(chunk);
            array.digests(chunk);
            let part = chunk.parts[0];
            assert!(part.offset + part.len <= file.len() as u64, "planned bytes outside the file");
            let size = array.schema().fields[0].cell_size().unwrap_or(1) as u64;
            if chunk.cells * size > LIMITS.chunk_bytes {
                continue;
            }
            let Ok(stored) = container.store().read(&array.object(0), part.offset..part.offset + part.len)
            else {
                panic!("planned bytes are not readable")
            };
            let mut values = vec![0; (chunk.cells * size) as usize];
            let out = ColumnMut::Fixed { values: &mut values, validity: None };
            let _ = array.decode(chunk, part.column, &[stored], 0..chunk.cells, out, &mut scratch);
        }
        if plan.uncovered == Uncovered::Impossible {
            assert_eq!(Some(cells), Selection::all(&shape).cells(), "the plan does not cover the selection");
        }
    }
}

/// Opens, audits, salvages, plans and decodes a file.
pub fn open(file: &[u8]) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("fuzz.tet", file.to_vec()));
    for digests in [true, false] {
        let options = OpenOptions { limits: LIMITS, digests, ..OpenOptions::default() };
        if let Ok(container) = TetFormat.open(Arc::clone(&store), &options) {
            read(container.as_ref(), file);
        }
        let mut findings = 0;
        let audit = AuditOptions { open: options.clone(), ..AuditOptions::default() };
        let report = TetFormat.audit(Arc::clone(&store), &audit, &mut |_| findings += 1);
        assert!(findings > 0 && report.is_ok());
        let _ = TetFormat.repairs(Arc::clone(&store), &options);
        if let Ok(salvage) = TetFormat.salvage(Arc::clone(&store), &options) {
            read(salvage.container.as_ref(), file);
        }
    }
    let _ = TetSummary::parse(file);
}
