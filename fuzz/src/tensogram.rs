//! Arbitrary bytes as a `.tgm` file: opened, audited, salvaged, planned and decoded, in full and in ranges, within limits.
//! Shared by the fuzz target `tensogram_open` and a test that runs on any toolchain.

use std::sync::Arc;

use tesseral_core::{Limits, Selection};
use tesseral_format::{
    Access, AuditOptions, Column, ColumnMut, ContainerSource, Format, OpenOptions, Request, Scratch,
};
use tesseral_store::{MemoryStore, Store};
use tesseral_tensogram::TensogramFormat;

const LIMITS: Limits =
    Limits { chunk_bytes: 1 << 20, metadata_bytes: 1 << 20, depth: 64, plan_chunks: 4096, ..Limits::DEFAULT };

fn read(container: &dyn ContainerSource) {
    let mut scratch = Scratch::default();
    container.details();
    for i in 0..container.len() {
        let Ok(array) = container.array(i) else { continue };
        let Some(shape) = array.schema().shape() else { continue };
        let Ok(plan) =
            tesseral_format::plan(&*array, container.store(), &Request::cells(Selection::all(&shape), 0))
        else {
            continue;
        };
        for chunk in &plan.chunks {
            array.describe(chunk);
            array.digests(chunk);
            let object = array.object(0);
            let parts: Vec<_> = chunk.parts.iter().map(|part| part.offset..part.offset + part.len).collect();
            let parts = container.store().read_many(&object, &parts).expect("planned bytes are readable");
            let size = array.schema().fields[0].cell_size();
            let bytes = |cells: u64| match size {
                Some(size) => (cells * size as u64) as usize,
                None => cells.div_ceil(8) as usize,
            };
            // Plans respect the limit, so this allocation does too.
            assert!(bytes(chunk.cells) as u64 <= LIMITS.chunk_bytes);
            let mut whole = vec![0; bytes(chunk.cells)];
            let out = ColumnMut::Fixed { values: &mut whole, validity: None };
            let decoded = array.decode(chunk, Column::Field(0), &parts, 0..chunk.cells, out, &mut scratch);
            let Access::Coded { granule: Some(granule) } = chunk.access else { continue };
            let start = chunk.cells / 2 / granule * granule;
            let mut part = vec![0; bytes(chunk.cells - start)];
            let out = ColumnMut::Fixed { values: &mut part, validity: None };
            let run = array.decode(chunk, Column::Field(0), &parts, start..chunk.cells, out, &mut scratch);
            if decoded.is_ok() {
                run.expect("a range of a valid stream decodes");
                assert!(part == whole[bytes(start)..]);
            }
        }
    }
}

/// Uses a file in every way that must not panic.
pub fn exercise(file: &[u8]) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("fuzz.tgm", file.to_vec()));
    for digests in [true, false] {
        let options = OpenOptions { limits: LIMITS, digests, ..OpenOptions::default() };
        if let Ok(container) = TensogramFormat.open(Arc::clone(&store), &options) {
            read(container.as_ref());
        }
        let mut findings = 0;
        let audit = AuditOptions { open: options.clone(), ..AuditOptions::default() };
        let report = TensogramFormat.audit(Arc::clone(&store), &audit, &mut |_| findings += 1);
        assert!(findings > 0 && report.is_ok());
        if let Ok(salvage) = TensogramFormat.salvage(Arc::clone(&store), &options) {
            read(salvage.container.as_ref());
        }
    }
}
