//! Tables for formats that store one: columns of every type, and damage of every byte.

use std::sync::Arc;

use tesseral_core::{ArraySchema, CellLen, DType, Error, Result, Selection};
use tesseral_format::{
    ArraySpec, CodecSpec, ColumnData, ColumnMut, ContainerSource, CreateOptions, Format, OpenOptions,
    Request, Scratch,
};
use tesseral_store::{MemoryStore, Store, StoreExt};

/// Cells of the table of [`table`].
pub const TABLE_CELLS: u64 = 46;

/// Cells of a damaged table that are decoded at most.
const MOST: u64 = 1 << 20;

/// A column of 23 rows in chunks of 9; an empty codec is none.
pub fn column(name: &str, dtype: DType, cell: CellLen, nullable: bool, codec: &str) -> ArraySpec {
    let mut schema = ArraySchema::dense(name, dtype, &[23], &[9]);
    schema.dims[0].name = "row".to_owned();
    schema.fields[0].cell = cell;
    schema.fields[0].nullable = nullable;
    let codecs = if codec.is_empty() { Vec::new() } else { vec![CodecSpec::new(codec)] };
    ArraySpec { codecs: vec![codecs], ..ArraySpec::raw(schema) }
}

/// The bytes of a table of two columns, nullable integers and text, in three chunks.
///
/// # Errors
/// Errors of the writer.
pub fn table(format: &dyn Format, codecs: [&str; 2]) -> Result<Vec<u8>> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new("table"));
    let mut writer = format.create(Arc::clone(&store), &CreateOptions::default())?;
    let [number, text] = codecs;
    let ids = [
        writer.begin(&column("n", DType::Int32, CellLen::One, true, number))?,
        writer.begin(&column("t", DType::Utf8, CellLen::Var, false, text))?,
    ];
    for (chunk, rows) in (0_u64..).zip([9, 9, 5]) {
        let values: Vec<u8> = (0..rows).flat_map(|row: i32| (row % 3).to_ne_bytes()).collect();
        let valid: Vec<u8> = (0..rows).map(|row| u8::from(row % 4 != 0)).collect();
        let words: Vec<String> = (0..rows).map(|row| format!("word {}", row % 2)).collect();
        let ends = words.iter().scan(0, |end, word| {
            *end += word.len() as u64;
            Some(*end)
        });
        let (ends, data): (Vec<u64>, _) = (ends.collect(), words.concat());
        let columns = [
            ColumnData::Fixed { values: &values, validity: Some(&valid) },
            ColumnData::Var { offsets: &ends, data: data.as_bytes(), validity: None },
        ];
        for (id, cells) in ids.iter().zip(columns) {
            let encoded = writer.encode(*id, &[chunk], &[cells], Vec::new(), &mut Scratch::default())?;
            writer.push(*id, encoded)?;
        }
    }
    writer.commit()?;
    Ok(store.read_all("", MOST)?.to_vec())
}

/// Opens the bytes of a table.
///
/// # Errors
/// Errors of the format.
pub fn open_table(format: &dyn Format, bytes: &[u8]) -> Result<Arc<dyn ContainerSource>> {
    format.open(Arc::new(MemoryStore::with_object("table", bytes.to_vec())), &OpenOptions::default())
}

/// Decodes all columns of a table, and returns the number of cells. Damaged bytes may give an error, never a panic.
///
/// # Errors
/// Errors of the format.
pub fn decode_table(format: &dyn Format, bytes: &[u8]) -> Result<u64> {
    let container = open_table(format, bytes)?;
    let mut cells = 0;
    for number in 0..container.len() {
        let array = container.array(number)?;
        let shape = array.schema().shape().ok_or_else(|| Error::internal("a column without a shape"))?;
        let request = Request::cells(Selection::all(&shape), 0);
        let field = &array.schema().fields[0];
        for chunk in tesseral_format::plan(&*array, container.store(), &request)?.chunks {
            array.stats(&chunk, request.columns[0]);
            array.describe(&chunk);
            let mut stored = Vec::new();
            for part in &chunk.parts {
                stored.push(container.store().read("", part.offset..part.offset + part.len)?);
            }
            let Some(count) = usize::try_from(chunk.cells).ok().filter(|_| chunk.cells <= MOST) else {
                continue;
            };
            let (mut valid, mut offsets) = (vec![0; count], Vec::new());
            let mut values = vec![0; count * field.cell_size().unwrap_or(0)];
            let validity = field.nullable.then_some(&mut valid[..]);
            let out = if field.cell == CellLen::Var {
                ColumnMut::Var { offsets: &mut offsets, data: &mut values, validity }
            } else {
                ColumnMut::Fixed { values: &mut values, validity }
            };
            let scratch = &mut Scratch::default();
            array.decode(&chunk, request.columns[0], &stored, 0..chunk.cells, out, scratch)?;
            cells += chunk.cells;
        }
    }
    Ok(cells)
}

/// Decodes a table once for each of several other values of every byte, and returns how many of these gave an error.
pub fn damage_table(format: &dyn Format, whole: &[u8]) -> u64 {
    let mut state = 7_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 24
    };
    let mut errors = 0;
    for at in 0..whole.len() {
        for step in 0..6_u8 {
            let mut damaged = whole.to_vec();
            damaged[at] = if step < 4 { whole[at] ^ (1 << (2 * step)) } else { random() as u8 };
            if step == 5 {
                let other = usize::try_from(random()).unwrap_or(0) % whole.len();
                damaged[other] = random() as u8;
            }
            errors += u64::from(decode_table(format, &damaged).is_err());
        }
    }
    errors
}
