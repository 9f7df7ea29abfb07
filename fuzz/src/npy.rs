//! Arbitrary bytes as a `.npy` file: opened, audited, planned and decoded, within limits and without a panic.

use std::sync::Arc;

use tesseral_core::{Limits, Selection};
use tesseral_format::{AuditOptions, Column, ColumnMut, Format, OpenOptions, Request, Scratch};
use tesseral_npy::{NpyFormat, NpzFormat};
use tesseral_store::{MemoryStore, Store, StoreExt};

const LIMITS: Limits =
    Limits { chunk_bytes: 1 << 20, metadata_bytes: 1 << 20, depth: 64, plan_chunks: 4096, ..Limits::DEFAULT };

/// Opens, audits, plans and decodes a file.
pub fn open(file: &[u8]) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("fuzz.npy", file.to_vec()));
    let options = OpenOptions { limits: LIMITS, ..OpenOptions::default() };
    let mut findings = 0;
    let audit = AuditOptions { open: options.clone(), ..AuditOptions::default() };
    assert!(NpyFormat.audit(Arc::clone(&store), &audit, &mut |_| findings += 1).is_ok() && findings > 0);
    let Ok(container) = NpyFormat.open(store, &options) else { return };
    container.details();
    let Ok(array) = container.array(0) else { panic!("an open file has no array") };
    let Some(shape) = array.schema().shape() else { panic!("an array without a shape") };
    let request = Request::cells(Selection::all(&shape), 0);
    let Ok(plan) = tesseral_format::plan(&*array, container.store(), &request) else { return };
    let mut cells = 0;
    for chunk in &plan.chunks {
        cells += chunk.cells;
        array.stats(chunk, Column::Field(0));
        array.describe(chunk);
        let part = chunk.parts[0];
        assert!(part.offset + part.len <= file.len() as u64, "planned bytes outside the file");
        let Ok(stored) = container.store().read("", part.offset..part.offset + part.len) else {
            panic!("planned bytes are not readable")
        };
        let mut values = vec![0; stored.len()];
        let out = ColumnMut::Fixed { values: &mut values, validity: None };
        let decoded =
            array.decode(chunk, part.column, &[stored], 0..chunk.cells, out, &mut Scratch::default());
        assert!(decoded.is_ok(), "planned cells cannot be decoded");
    }
    assert_eq!(Some(cells), Selection::all(&shape).cells(), "the plan does not cover the selection");
    assert_eq!(
        array.totals(&request).ok().flatten().map(|totals| totals.chunks),
        Some(plan.chunks.len() as u64)
    );
}

/// Opens, audits, plans and decodes an archive. Its directory is at the end: input that does not end like an archive is completed, so
/// that mutations reach the members.
pub fn open_archive(data: &[u8]) {
    let mut file = data.to_vec();
    if !data.windows(4).any(|bytes| bytes == b"PK\x05\x06") {
        let entry = [
            &b"PK\x01\x02\x14\0\x14\0\0\0\x08\0"[..],
            &[0; 8],
            &(data.len() as u32).to_le_bytes(),
            &[0xff, 0xff, 0, 0, 5, 0],
            &[0; 16],
            b"a.npy",
        ];
        let entry = entry.concat();
        file.extend(&entry);
        file.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
        file.extend([entry.len() as u32, data.len() as u32].iter().flat_map(|n| n.to_le_bytes()));
        file.extend([0, 0]);
    }
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("fuzz.npz", file));
    let options = OpenOptions { limits: LIMITS, ..OpenOptions::default() };
    let mut findings = 0;
    let audit = AuditOptions { open: options.clone(), ..AuditOptions::default() };
    assert!(NpzFormat.audit(Arc::clone(&store), &audit, &mut |_| findings += 1).is_ok() && findings > 0);
    let Ok(container) = NpzFormat.open(store, &options) else { return };
    for number in 0..container.len().min(8) {
        let Ok(array) = container.array(number) else { panic!("an open archive lacks an array") };
        let Some(shape) = array.schema().shape() else { panic!("an array without a shape") };
        let request = Request::cells(Selection::all(&shape), 0);
        let Ok(plan) = tesseral_format::plan(&*array, container.store(), &request) else { continue };
        let size = array.schema().fields[0].cell_size().unwrap_or(1);
        for chunk in plan.chunks.iter().take(8) {
            array.describe(chunk);
            let part = chunk.parts[0];
            let Ok(stored) = container.store().read("", part.offset..part.offset + part.len) else {
                panic!("planned bytes are not readable")
            };
            let mut values = vec![0; usize::try_from(chunk.cells).unwrap_or(0).saturating_mul(size)];
            let out = ColumnMut::Fixed { values: &mut values, validity: None };
            let _ = array.decode(chunk, part.column, &[stored], 0..chunk.cells, out, &mut Scratch::default());
        }
    }
}
