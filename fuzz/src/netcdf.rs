//! Arbitrary bytes as a NetCDF or HDF5 file: opened, audited, planned and decoded, within limits and without a panic.

use std::sync::Arc;

use tesseral_core::{Limits, Selection};
use tesseral_format::{AuditOptions, Column, ColumnMut, Format, OpenOptions, Request, Scratch};
use tesseral_hdf5::Hdf5Format;
use tesseral_netcdf3::NetCdf3Format;
use tesseral_store::{MemoryStore, Store, StoreExt};

const LIMITS: Limits = Limits {
    chunk_bytes: 1 << 20,
    chunk_expansion: 1 << 20,
    total_expansion: 1 << 20,
    metadata_bytes: 1 << 20,
    plan_chunks: 4096,
    ..Limits::DEFAULT
};

/// Opens a file as NetCDF classic.
pub fn classic(file: &[u8]) {
    open(&NetCdf3Format, file);
}

/// Opens a file as HDF5.
pub fn hdf5(file: &[u8]) {
    open(&Hdf5Format, file);
}

/// Undoes filters: the first bytes choose them.
pub fn filters(data: &[u8]) {
    const IDS: [u16; 14] = [1, 2, 3, 4, 5, 6, 307, 32000, 32001, 32004, 32008, 32015, 32022, 32026];
    let Some((&[count, mask, len], rest)) = data.split_first_chunk::<3>() else { return };
    let mut rest = rest;
    let mut chosen = Vec::new();
    for _ in 0..count % 4 {
        let Some((&[id, a, b, c, d, e], tail)) = rest.split_first_chunk::<6>() else { return };
        rest = tail;
        chosen.push((IDS[usize::from(id) % IDS.len()], [a, b, c, d, e].map(u32::from).to_vec()));
    }
    let mut out = vec![0; usize::from(len) * 16];
    let _ = tesseral_hdf5::decode_filters(&chosen, mask.into(), rest, &mut out);
}

/// Parses the mappings of a virtual dataset and finds their boxes.
pub fn mappings(data: &[u8]) {
    let Some((&[a, b, c], rest)) = data.split_first_chunk::<3>() else { return };
    let _ = tesseral_hdf5::virtual_boxes(rest, &[a.into(), b.into()], &[c.into(), 9]);
}

/// Parses a datatype message.
pub fn datatype(data: &[u8]) {
    let _ = tesseral_hdf5::datatype::Hdf5CellType::parse(tesseral_core::Cursor::new("fuzz", data));
}

fn open(format: &dyn Format, file: &[u8]) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("fuzz.nc", file.to_vec()));
    let options = OpenOptions { limits: LIMITS, ..OpenOptions::default() };
    let mut findings = 0;
    let audit = AuditOptions { open: options.clone(), ..AuditOptions::default() };
    assert!(format.audit(Arc::clone(&store), &audit, &mut |_| findings += 1).is_ok() && findings > 0);
    let Ok(container) = format.open(store, &options) else { return };
    container.details();
    for index in 0..container.len().min(64) {
        let Ok(array) = container.array(index) else { panic!("an open file lacks an array") };
        let Some(shape) = array.schema().shape() else { panic!("an array without a shape") };
        let request = Request::cells(Selection::all(&shape), 0);
        let _ = array.totals(&request);
        let Ok(plan) = tesseral_format::plan(&*array, container.store(), &request) else { continue };
        for chunk in plan.chunks.iter().take(256) {
            array.stats(chunk, Column::Field(0));
            array.describe(chunk);
            let parts = chunk.parts.iter().map(|part| {
                let object = array.object(part.object);
                let read = container.store().read(&object, part.offset..part.offset.saturating_add(part.len));
                // Other files, of which there are none, are opened when they are read.
                assert!(read.is_ok() || !object.is_empty(), "planned bytes are not readable");
                read
            });
            let Ok(parts) = parts.collect::<Result<Vec<_>, _>>() else { continue };
            let (mut values, mut offsets, mut data) = (Vec::new(), Vec::new(), Vec::new());
            let out = match array.schema().fields[0].cell_size() {
                Some(size) => {
                    values.resize(usize::try_from(chunk.cells).unwrap_or(0) * size, 0);
                    ColumnMut::Fixed { values: &mut values, validity: None }
                }
                None => ColumnMut::Var { offsets: &mut offsets, data: &mut data, validity: None },
            };
            let _ =
                array.decode(chunk, Column::Field(0), &parts, 0..chunk.cells, out, &mut Scratch::default());
        }
    }
}
