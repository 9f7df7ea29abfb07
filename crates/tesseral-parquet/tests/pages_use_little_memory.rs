//! A page of a few hundred bytes can hold millions of values: they are decoded a block at a time, and pages that are in memory beside
//! the cells count.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::data_type::{Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use tesseral_core::{ErrorKind, Result, Selection};
use tesseral_format::{Column, ColumnMut, Format, OpenOptions, Request, Scratch};
use tesseral_parquet::ParquetFormat;
use tesseral_store::{MemoryStore, Store, StoreExt};

/// Counts current and peak allocations.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded to the system allocator; only counters are added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size(), Ordering::Relaxed);
        // SAFETY: upheld by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: upheld by the caller.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A file of one row group of one page, all zeros or all nulls.
fn file(rows: usize, null: bool, encoding: Option<Encoding>, compression: Compression) -> Vec<u8> {
    let text = if null {
        "message m { optional int32 a (INTEGER(8, true)); }"
    } else {
        "message m { required int64 a; }"
    };
    let schema = Arc::new(parse_message_type(text).unwrap());
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_dictionary_enabled(encoding.is_none())
        .set_statistics_enabled(parquet::file::properties::EnabledStatistics::None)
        .set_max_row_group_row_count(Some(usize::MAX))
        .set_data_page_row_count_limit(usize::MAX)
        .set_data_page_size_limit(usize::MAX);
    let properties = match encoding {
        Some(encoding) => properties.set_encoding(encoding),
        None => properties,
    };
    let mut out = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut out, schema, Arc::new(properties.build())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    match null {
        true => column.typed::<Int32Type>().write_batch(&[], Some(&vec![0; rows]), None).unwrap(),
        false => column.typed::<Int64Type>().write_batch(&vec![0; rows], None, None).unwrap(),
    };
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    out
}

/// Decodes all cells; returns the memory it took in addition to them.
fn decode(file: Vec<u8>, rows: usize) -> Result<usize> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("t.parquet", file));
    let container = ParquetFormat.open(Arc::clone(&store), &OpenOptions::default())?;
    let array = container.array(0)?;
    let field = &array.schema().fields[0];
    let (mut values, mut validity) = (vec![9; rows * field.cell_size().unwrap()], vec![9; rows]);
    let request = Request::cells(Selection::all(&[rows as u64]), 0);
    let plan = tesseral_format::plan(&*array, &store, &request)?;
    let [chunk] = plan.chunks.as_slice() else { panic!("one row group") };
    let part = &chunk.parts[0];
    let bytes: Bytes = store.read("", part.offset..part.offset + part.len)?;
    let out = ColumnMut::Fixed { values: &mut values, validity: field.nullable.then_some(&mut validity) };
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    array.decode(chunk, Column::Field(0), &[bytes], 0..rows as u64, out, &mut Scratch::default())?;
    let taken = PEAK.load(Ordering::Relaxed) - before;
    assert!(
        values.iter().all(|byte| *byte == 0)
            && validity.iter().all(|byte| *byte == if field.nullable { 0 } else { 9 })
    );
    Ok(taken)
}

/// One test, because the counters are those of the process.
#[test]
fn values_of_a_page_are_not_held() {
    const ROWS: usize = 3_000_000;
    let plain = Compression::UNCOMPRESSED;
    for (name, null, encoding) in [
        ("nulls", true, None),
        ("dictionary", false, None),
        ("deltas", false, Some(Encoding::DELTA_BINARY_PACKED)),
    ] {
        let taken = decode(file(ROWS, null, encoding, plain), ROWS).unwrap();
        assert!(taken < 1 << 20, "{name}: {taken}");
    }
    // A compressed page is decompressed as a whole, beside the cells.
    let zstd = Compression::ZSTD(parquet::basic::ZstdLevel::default());
    let compressed = |rows| decode(file(rows, false, Some(Encoding::PLAIN), zstd), rows);
    let taken = compressed(ROWS / 2).unwrap();
    assert!((ROWS * 4..ROWS * 4 + (1 << 20)).contains(&taken), "{taken}");
    let error = compressed(ROWS).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
}
