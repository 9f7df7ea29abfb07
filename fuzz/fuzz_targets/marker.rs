//! Arbitrary text as the marker of an array: it decodes to an array that can be planned and read, or the stored array is shown.
#![no_main]

use std::sync::Arc;

use tesseral_core::{ArraySchema, DType, Limits, Region, Selection, Value};
use tesseral_format::convention::{self, KEY, ModelContainer};
use tesseral_format::{ArraySpec, Column, CreateOptions, Format, OpenOptions, Request};
use tesseral_store::MemoryStore;
use tesseral_tet::TetFormat;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let store = Arc::new(MemoryStore::new("marked.tet"));
    let mut writer = TetFormat.create(store.clone(), &CreateOptions::default()).expect("a writer");
    let mut schema = ArraySchema::dense("a", DType::UInt8, &[4, 16], &[2, 16]);
    schema.attributes.insert(KEY.to_owned(), Value::from(text));
    let array = writer.begin(&ArraySpec::raw(schema)).expect("an array");
    for row in 0..2 {
        let cells = [1; 32];
        let column = tesseral_format::ColumnData::Fixed { values: &cells, validity: None };
        let chunk = writer.encode(array, &[row, 0], &[column], Vec::new(), &mut Default::default());
        writer.push(array, chunk.expect("cells")).expect("a chunk");
    }
    writer.commit().expect("a file");
    let native = TetFormat.open(store, &OpenOptions::default()).expect("an open file");
    let Ok(container) = ModelContainer::new(native, TetFormat.holds(), Limits::default()) else { return };
    let Ok(array) = tesseral_format::ContainerSource::array(&container, 0) else { return };
    let shape = array.schema().shape().expect("a shape");
    if Region::from_shape(&shape).cells().is_some() {
        let request = Request { columns: vec![Column::Field(0)], ..Request::cells(Selection::all(&shape), 0) };
        let _ = tesseral_format::plan(&*array, tesseral_format::ContainerSource::store(&container), &request);
    }
    let _ = convention::labeled(array, Vec::new());
});
