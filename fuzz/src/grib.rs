//! Arbitrary bytes as a GRIB file: opened, audited, planned and decoded, within limits and without a panic.

use std::sync::Arc;

use tesseral_core::{Limits, Selection};
use tesseral_format::{AuditOptions, Column, ColumnMut, Format, OpenOptions, Request, Scratch};
use tesseral_grib::GribFormat;
use tesseral_store::{MemoryStore, Store, StoreExt};

const LIMITS: Limits = Limits {
    chunk_bytes: 1 << 20,
    chunk_expansion: 1 << 20,
    total_expansion: 1 << 20,
    metadata_bytes: 1 << 20,
    plan_chunks: 4096,
    ..Limits::DEFAULT
};

/// Opens a file and decodes all of its fields.
pub fn open(file: &[u8]) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("fuzz.grib", file.to_vec()));
    let options = OpenOptions { limits: LIMITS, ..OpenOptions::default() };
    let mut findings = 0;
    let audit = AuditOptions { open: options.clone(), ..AuditOptions::default() };
    assert!(GribFormat.audit(Arc::clone(&store), &audit, &mut |_| findings += 1).is_ok() && findings > 0);
    let _ = GribFormat.salvage(Arc::clone(&store), &options);
    let Ok(container) = GribFormat.open(store, &options) else { return };
    container.details();
    for index in 0..container.len().min(64) {
        let Ok(array) = container.array(index) else { panic!("an open file lacks an array") };
        let Some(shape) = array.schema().shape() else { panic!("an array without a shape") };
        let request = Request::cells(Selection::all(&shape), 0);
        let _ = array.totals(&request);
        let Ok(plan) = tesseral_format::plan(&*array, container.store(), &request) else { continue };
        for chunk in plan.chunks.iter().take(64) {
            let column = Column::Field(0);
            array.describe(chunk);
            array.constant(chunk, column);
            let parts = chunk.parts.iter().map(|part| {
                assert!(part.offset + part.len <= file.len() as u64, "planned bytes outside the file");
                container.store().read("", part.offset..part.offset + part.len)
            });
            let Ok(parts) = parts.collect::<Result<Vec<_>, _>>() else { panic!("planned bytes are not readable") };
            // Fields whose ranges can be decoded alone may declare any number of cells.
            let cells = chunk.cells.min(1 << 16);
            let (mut values, mut validity) = (vec![0; cells as usize * 8], vec![0; cells as usize]);
            let nullable = array.schema().fields[0].nullable;
            let out = ColumnMut::Fixed { values: &mut values, validity: nullable.then_some(&mut validity[..]) };
            let _ = array.decode(chunk, column, &parts, 0..cells, out, &mut Scratch::default());
        }
    }
}

/// Opens a message of edition 2 whose packing is `template` and whose section 5 and data are arbitrary.
pub fn packing(template: u16, data: &[u8]) {
    let Some((parameters, data)) = data.split_at_checked(40) else { return };
    let mut file = b"GRIB\0\0\0\x02\0\0\0\0\0\0\0\0".to_vec();
    let mut section = |number: u8, body: &[u8]| {
        file.extend((body.len() as u32 + 5).to_be_bytes());
        file.push(number);
        file.extend(body);
    };
    section(1, &[0, 98, 0, 0, 30, 0, 1, 7, 228, 1, 1, 0, 0, 0, 0, 1]);
    // 16 × 16 points.
    let mut grid = vec![0; 67];
    grid[4] = 1;
    grid[29] = 16;
    grid[33] = 16;
    section(3, &grid);
    let mut product = vec![0; 29];
    product[18] = 1;
    product[24] = 255;
    section(4, &product);
    let mut packing = vec![0, 0, 1, 0];
    packing.extend(template.to_be_bytes());
    packing.extend(parameters);
    section(5, &packing);
    section(6, &[255]);
    section(7, data);
    file.extend(b"7777");
    let len = file.len() as u64;
    file[8..16].copy_from_slice(&len.to_be_bytes());
    open(&file);
}

/// Opens a message of edition 1 with second-order packing whose flags and everything after them are arbitrary.
pub fn second_order(data: &[u8]) {
    let mut file = b"GRIB\0\0\0\x01".to_vec();
    // The definition: a temperature in 2020, with a grid.
    file.extend([0, 0, 28, 1, 98, 0, 255, 0x80, 11, 1, 0, 0, 20, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 21, 0, 0, 0]);
    // 16 × 16 points.
    let mut grid = vec![0, 0, 32, 0, 255, 0, 0, 16, 0, 16];
    grid.resize(32, 0);
    file.extend(grid);
    let len = (10 + data.len() as u32).to_be_bytes();
    file.extend(&len[1..]);
    file.extend([0x50, 0, 0, 0, 0, 0, 0]);
    file.extend(data);
    file.extend(b"7777");
    let len = (file.len() as u32).to_be_bytes();
    file[4..7].copy_from_slice(&len[1..]);
    open(&file);
}
