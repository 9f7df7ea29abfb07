//! Random cells of any field, with edge-case values: extremes, NaN payloads, −0.0, the fill value itself.

use tesseral_core::dtype::Class;
use tesseral_core::element::{bf16, f16};
use tesseral_core::{CellLen, ChunkStats, DType, Field, Scalar, Stat, TimeUnit, missing};

use super::Random;
use tesseral_format::ColumnData;

/// A cell as native-endian bytes, `None` where null.
pub type Cell = Option<Vec<u8>>;

fn float(random: &mut Random) -> f64 {
    match random.below(12) {
        0 => f64::INFINITY,
        1 => f64::NEG_INFINITY,
        2 => -0.0,
        3 => 1e30,
        4 => f64::NAN,
        _ => (random.below(2000) as f64 - 1000.0) / 8.0,
    }
}

fn element(random: &mut Random, dtype: DType, out: &mut Vec<u8>) {
    // NaN payloads must be preserved bit by bit.
    let odd = random.chance(1, 16);
    match dtype {
        DType::Bool => out.push(random.below(2) as u8),
        DType::Float16 if odd => out.extend(0x7E01_u16.to_ne_bytes()),
        DType::Float16 => out.extend(f16::from_f64(float(random)).to_bits().to_ne_bytes()),
        DType::BFloat16 => out.extend(bf16::from_f64(float(random)).to_bits().to_ne_bytes()),
        DType::Float32 if odd => out.extend(0xFFC0_1234_u32.to_ne_bytes()),
        DType::Float32 => out.extend((float(random) as f32).to_ne_bytes()),
        DType::Float64 if odd => out.extend(0x7FF8_0000_0BAD_CAFE_u64.to_ne_bytes()),
        DType::Float64 => out.extend(float(random).to_ne_bytes()),
        DType::Complex64 => (0..2).for_each(|_| element(random, DType::Float32, out)),
        DType::Complex128 => (0..2).for_each(|_| element(random, DType::Float64, out)),
        DType::Char | DType::Ascii | DType::Utf8 => out.push(b'a' + random.below(6) as u8),
        _ => {
            let size = dtype.size().unwrap_or(1);
            let number = match random.below(8) {
                0 => i64::MAX,
                1 => i64::MIN,
                2 => -1,
                _ => random.below(100).cast_signed() - 20,
            };
            // The extremes of narrower types are the upper bytes of the extremes of the widest.
            let bytes = if number.unsigned_abs() > 1000 {
                (number >> (64 - 8 * size)).to_le_bytes()
            } else {
                number.to_le_bytes()
            };
            let mut bytes = bytes[..size].to_vec();
            if cfg!(target_endian = "big") {
                bytes.reverse();
            }
            out.extend(bytes);
        }
    }
}

/// A non-null value of a field.
pub(crate) fn value(random: &mut Random, field: &Field) -> Vec<u8> {
    let special: Vec<Scalar> = field.fill.iter().chain(&field.missing).cloned().collect();
    if !special.is_empty() && random.chance(1, 6) {
        return fill_cell(field, random.pick(&special));
    }
    let elements = match field.cell {
        CellLen::One => 1,
        CellLen::Fixed(n) => u64::from(n),
        CellLen::Var => random.below(5),
    };
    let mut out = Vec::new();
    (0..elements).for_each(|_| element(random, field.dtype, &mut out));
    out
}

/// Missing values that the statistics of a chunk leave out: some formats exclude declared values, others none.
pub(crate) fn left_out(random: &mut Random, field: &Field) -> Vec<Scalar> {
    let count = random.below(field.missing.len() as u64 + 1);
    field.missing.iter().take(usize::try_from(count).unwrap_or(0)).cloned().collect()
}

/// A cell of a field.
pub(crate) fn cell(random: &mut Random, field: &Field) -> Cell {
    (!field.nullable || random.chance(3, 4)).then(|| value(random, field))
}

/// The fill value as native-endian bytes, repeated to the size of a cell.
fn fill_cell(field: &Field, fill: &Scalar) -> Vec<u8> {
    let mut bytes = fill.bytes().to_vec();
    if cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(fill.dtype().word()).for_each(<[u8]>::reverse);
    }
    match field.cell_size() {
        Some(size) => bytes.into_iter().cycle().take(size).collect(),
        None => bytes,
    }
}

/// The value of an unwritten cell of a field.
pub(crate) fn uncovered(field: &Field) -> Cell {
    if field.nullable && !field.fill_valid {
        return None;
    }
    Some(match &field.fill {
        Some(fill) => fill_cell(field, fill),
        None => vec![0; field.cell_size().unwrap_or(0)],
    })
}

/// A field of a random type.
pub(crate) fn field(random: &mut Random, name: String) -> Field {
    const KINDS: [(DType, CellLen); 17] = [
        (DType::Int8, CellLen::One),
        (DType::Int32, CellLen::One),
        (DType::Int64, CellLen::One),
        (DType::UInt16, CellLen::One),
        (DType::UInt64, CellLen::One),
        (DType::Float32, CellLen::One),
        (DType::Float64, CellLen::One),
        (DType::Float32, CellLen::One),
        (DType::Float16, CellLen::One),
        (DType::BFloat16, CellLen::One),
        (DType::Bool, CellLen::One),
        (DType::Complex64, CellLen::One),
        (DType::DateTime(TimeUnit::Second), CellLen::One),
        (DType::Int16, CellLen::Fixed(3)),
        (DType::Utf8, CellLen::Var),
        (DType::Int32, CellLen::Var),
        (DType::Ascii, CellLen::Fixed(5)),
    ];
    let (dtype, cell) = *random.pick(&KINDS);
    let mut field = Field::new(name, dtype);
    field.cell = cell;
    field.nullable = random.chance(1, 3);
    if random.chance(2, 3) {
        let mut bytes = Vec::new();
        element(random, dtype, &mut bytes);
        if cfg!(target_endian = "big") {
            bytes.chunks_exact_mut(dtype.word()).for_each(<[u8]>::reverse);
        }
        field.fill = Scalar::from_le_bytes(dtype, &bytes).ok();
        // The fill value may be declared, another value, or nothing.
        if random.chance(1, 2) {
            field.missing.extend(field.fill.clone());
        }
    }
    if random.chance(1, 3) {
        let cell =
            Field { cell: CellLen::One, nullable: false, fill: None, missing: Vec::new(), ..field.clone() };
        let mut bytes = value(random, &cell);
        if cfg!(target_endian = "big") {
            bytes.chunks_exact_mut(dtype.word()).for_each(<[u8]>::reverse);
        }
        let more = Scalar::from_le_bytes(dtype, &bytes).ok();
        field
            .missing
            .extend(more.filter(|value| !field.missing.iter().any(|known| missing::same(known, value))));
    }
    field
}

/// Packs bits from cells of one byte each, most significant bit first.
pub(crate) fn pack(cells: &[Cell]) -> Vec<u8> {
    let bit = |cell: &Cell| cell.as_ref().is_some_and(|bytes| bytes[0] & 1 != 0);
    let byte =
        |eight: &[Cell]| eight.iter().enumerate().fold(0, |b, (i, cell)| b | u8::from(bit(cell)) << (7 - i));
    cells.chunks(8).map(byte).collect()
}

/// Cells in the layout of an encoder.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    fixed: bool,
    values: Vec<u8>,
    ends: Vec<u64>,
    validity: Option<Vec<u8>>,
}

impl Buffers {
    /// `size` is the cell size, `None` for variable-length cells. Null cells hold a pattern that must never be returned.
    pub(crate) fn new(size: Option<usize>, element: usize, nullable: bool, cells: &[Cell]) -> Self {
        let mut out = Self { fixed: size.is_some(), ..Self::default() };
        out.validity = nullable.then(|| cells.iter().map(|cell| u8::from(cell.is_some())).collect());
        for cell in cells {
            match cell {
                Some(bytes) => out.values.extend(bytes),
                None => out.values.extend(vec![0xEE; size.unwrap_or(element)]),
            }
            out.ends.push(out.values.len() as u64);
        }
        out
    }

    pub(crate) fn from_field(field: &Field, cells: &[Cell]) -> Self {
        if field.dtype.class() == Class::Bits {
            return Self { fixed: true, values: pack(cells), ..Self::default() };
        }
        Self::new(field.cell_size(), field.dtype.size().unwrap_or(1), field.nullable, cells)
    }

    pub(crate) fn data(&self) -> ColumnData<'_> {
        let validity = self.validity.as_deref();
        if self.fixed {
            ColumnData::Fixed { values: &self.values, validity }
        } else {
            ColumnData::Var { offsets: &self.ends, data: &self.values, validity }
        }
    }
}

/// The same statistics as bounds that are loose by a little or a lot.
pub(crate) fn loosen(stats: ChunkStats, random: &mut Random) -> ChunkStats {
    let by = random.below(40);
    let shifted = |stat: Stat<Scalar>, up: bool| match stat {
        Stat::Exact(value) | Stat::Bound(value) => Stat::Bound(shift(value, by, up)),
        Stat::Absent => Stat::Absent,
    };
    let more = |stat: Stat<u64>| match stat {
        Stat::Exact(n) | Stat::Bound(n) => Stat::Bound(n + by % 3),
        Stat::Absent => Stat::Absent,
    };
    ChunkStats {
        cells: stats.cells,
        nulls: more(stats.nulls),
        nans: more(stats.nans),
        min: shifted(stats.min, false),
        max: shifted(stats.max, true),
        sum: Stat::Absent,
        partial_sum: None,
        missing: stats.missing,
    }
}

/// A value moved up or down, or unchanged at the limits of the dtype.
fn shift(value: Scalar, by: u64, up: bool) -> Scalar {
    let dtype = value.dtype();
    let shifted = if let Some(int) = value.as_i128() {
        let by = i128::from(by);
        Scalar::parse(dtype, &(if up { int + by } else { int - by }).to_string()).ok()
    } else if let Some(float) = value.as_f64() {
        let by = by as f64;
        Scalar::parse(dtype, &(if up { float + by } else { float - by }).to_string()).ok()
    } else if up {
        let mut bytes = value.bytes().to_vec();
        bytes.extend(vec![b'~'; dtype.size().unwrap_or(1)]);
        Scalar::from_le_bytes(dtype, &bytes).ok()
    } else {
        Scalar::from_le_bytes(dtype, &[]).ok()
    };
    shifted.unwrap_or(value)
}
