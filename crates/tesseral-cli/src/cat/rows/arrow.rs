//! Arrow record batches: the file format for `-o F.arrow` and `-o F.feather`, otherwise the stream format.
//!
//! | dtype | Arrow type |
//! |---|---|
//! | bool, integers, floats except `bfloat16` | the same |
//! | dates and durations in s, ms, us, ns | `timestamp` and `duration` of that unit, not-a-time as null |
//! | the same in weeks, days, hours, minutes | in seconds |
//! | `string_ascii`, `string_utf8` (variable-length) | `string` |
//! | `char`, `bytes` (variable-length); any of the four (fixed-size) | `binary`; `fixed_size_binary` |
//! | several values per cell | `fixed_size_list`; `list` if variable-length |
//! | complex numbers | `fixed_size_list` of two |
//! | enumerations | `dictionary`; codes without a label are null |

use std::ops::Range;

use std::path::Path;
use std::sync::Arc;

use arrow_array::{RecordBatch, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{ArrowError, DataType, Field as ArrowField, Schema, TimeUnit as ArrowUnit};
use tesseral::{CellBatch, CellLen, Cells, DType, Error, Field, Result};
use tesseral_core::dtype::{Class, TimeUnit};
use tesseral_core::schema::{Enumeration, Labels};

use super::{PrintedRows, RenderRows};
use crate::error::CliResult;
use crate::output::OutputStream;

/// Approximate size in bytes of the record batches that are written: parts of those that are read.
const ENCODED: usize = 1 << 20;

/// Buffer between the Arrow writer and the output.
enum ArrowOutput {
    Stream(StreamWriter<Vec<u8>>),
    File(FileWriter<Vec<u8>>),
}

pub(super) struct Arrow {
    schema: Arc<Schema>,
    writer: ArrowOutput,
}

/// Error for an array that Arrow rejects.
fn refused(error: ArrowError) -> Error {
    Error::internal(format!("Arrow: {error}"))
}

impl Arrow {
    pub(super) fn new(table: &PrintedRows<'_>, output: Option<&Path>) -> CliResult<Self> {
        let array = table.target.array.name();
        let fields = table.fields.iter().map(|f| arrow_field(f).map_err(|e| e.in_array(array)));
        let schema = Arc::new(Schema::new(fields.collect::<Result<Vec<_>>>()?));
        let ending = output.and_then(Path::extension).and_then(|e| e.to_str());
        let writer = match ending {
            Some("arrow" | "feather") => FileWriter::try_new(Vec::new(), &schema).map(ArrowOutput::File),
            _ => StreamWriter::try_new(Vec::new(), &schema).map(ArrowOutput::Stream),
        };
        Ok(Self { schema, writer: writer.map_err(refused)? })
    }

    /// Forwards the bytes of the writer.
    fn drain(&mut self, out: &mut OutputStream) -> CliResult<()> {
        let bytes = match &mut self.writer {
            ArrowOutput::Stream(writer) => writer.get_mut(),
            ArrowOutput::File(writer) => writer.get_mut(),
        };
        out.put(bytes)?;
        bytes.clear();
        Ok(())
    }
}

impl RenderRows for Arrow {
    fn begin(&mut self, _: &PrintedRows<'_>, out: &mut OutputStream) -> CliResult<()> {
        self.drain(out)
    }

    fn batch(
        &mut self,
        table: &PrintedRows<'_>,
        batch: &CellBatch,
        _: Range<usize>,
        out: &mut OutputStream,
    ) -> CliResult<()> {
        let columns = batch.columns.iter().zip(&table.fields).map(|((_, cells), field)| {
            let located = |e: Error| e.in_array(table.target.array.name());
            column(field, cells).map(make_array).map_err(located)
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(refused)?;
        // The writer holds an encoded batch twice.
        let rows = batch.num_rows();
        let held = batch.get_array_memory_size() / rows.max(1);
        let step = (ENCODED / held.max(1)).clamp(1, rows.max(1));
        for start in (0..rows).step_by(step) {
            let part = batch.slice(start, step.min(rows - start));
            match &mut self.writer {
                ArrowOutput::Stream(writer) => writer.write(&part),
                ArrowOutput::File(writer) => writer.write(&part),
            }
            .map_err(refused)?;
            self.drain(out)?;
        }
        Ok(())
    }

    fn end(&mut self, _: &PrintedRows<'_>, out: &mut OutputStream) -> CliResult<()> {
        match &mut self.writer {
            ArrowOutput::Stream(writer) => writer.finish(),
            ArrowOutput::File(writer) => writer.finish(),
        }
        .map_err(refused)?;
        self.drain(out)
    }
}

/// Type of a cell's values, without their number.
fn element(dtype: DType) -> Result<DataType> {
    let unit = |unit: TimeUnit| match unit {
        TimeUnit::Week | TimeUnit::Day | TimeUnit::Hour | TimeUnit::Minute | TimeUnit::Second => {
            Some(ArrowUnit::Second)
        }
        TimeUnit::Millisecond => Some(ArrowUnit::Millisecond),
        TimeUnit::Microsecond => Some(ArrowUnit::Microsecond),
        TimeUnit::Nanosecond => Some(ArrowUnit::Nanosecond),
        _ => None,
    };
    let found = match dtype {
        DType::Bool => Some(DataType::Boolean),
        DType::Int8 => Some(DataType::Int8),
        DType::Int16 => Some(DataType::Int16),
        DType::Int32 => Some(DataType::Int32),
        DType::Int64 => Some(DataType::Int64),
        DType::UInt8 => Some(DataType::UInt8),
        DType::UInt16 => Some(DataType::UInt16),
        DType::UInt32 => Some(DataType::UInt32),
        DType::UInt64 => Some(DataType::UInt64),
        DType::Float16 => Some(DataType::Float16),
        DType::Float32 | DType::Complex64 => Some(DataType::Float32),
        DType::Float64 | DType::Complex128 => Some(DataType::Float64),
        DType::DateTime(u) => unit(u).map(|u| DataType::Timestamp(u, None)),
        DType::TimeDelta(u) => unit(u).map(DataType::Duration),
        _ => None,
    };
    found.ok_or_else(|| {
        Error::unsupported(format!("{dtype} in an Arrow column")).hint("use --format csv, json or raw")
    })
}

/// Values inside a cell. NaT is null there too.
fn item(dtype: DataType) -> Arc<ArrowField> {
    let absent = matches!(dtype, DataType::Timestamp(..) | DataType::Duration(_));
    Arc::new(ArrowField::new("item", dtype, absent))
}

/// Values of one dtype in a fixed-size cell; a complex number is two values.
fn width(field: &Field) -> u32 {
    let cell = if let CellLen::Fixed(n) = field.cell { n } else { 1 };
    if field.dtype.class() == Class::Complex { cell.saturating_mul(2) } else { cell }
}

fn length(n: u32) -> Result<i32> {
    i32::try_from(n).map_err(|_| Error::limit("the values of an Arrow cell", n.into(), i32::MAX as u64))
}

fn arrow_type(field: &Field) -> Result<DataType> {
    if let Some(enumeration) = &field.enumeration {
        let values = match &enumeration.labels {
            Labels::Text(_) => DataType::Utf8,
            Labels::Numbers { dtype, .. } => element(*dtype)?,
        };
        return Ok(DataType::Dictionary(Box::new(element(field.dtype)?), Box::new(values)));
    }
    let text = field.dtype.class() == Class::Text;
    Ok(match field.cell {
        CellLen::Var if matches!(field.dtype, DType::Ascii | DType::Utf8) => DataType::Utf8,
        CellLen::Var if text => DataType::Binary,
        CellLen::Var => DataType::List(item(element(field.dtype)?)),
        _ if text => DataType::FixedSizeBinary(length(width(field))?),
        _ if width(field) > 1 => DataType::FixedSizeList(item(element(field.dtype)?), length(width(field))?),
        _ => element(field.dtype)?,
    })
}

fn arrow_field(field: &Field) -> Result<ArrowField> {
    let absent = field.nullable || field.enumeration.is_some() || field.dtype.class() == Class::Time;
    let dtype = arrow_type(field)?;
    let ordered = field.enumeration.as_ref().is_some_and(|e| e.ordered);
    Ok(match dtype {
        #[allow(deprecated, reason = "the only API for ordered dictionaries")]
        DataType::Dictionary(..) => ArrowField::new_dict(&field.name, dtype, absent, 0, ordered),
        _ => ArrowField::new(&field.name, dtype, absent),
    })
}

/// Converts cells to an Arrow array.
fn column(field: &Field, cells: &Cells) -> Result<ArrayData> {
    let valid: Option<Vec<bool>> = cells.validity().map(|v| v.iter().map(|b| *b != 0).collect());
    if let Some(enumeration) = &field.enumeration {
        return codes(field, enumeration, cells, valid);
    }
    let dtype = arrow_type(field)?;
    let text = field.dtype.class() == Class::Text;
    match (&dtype, field.cell) {
        (DataType::Utf8 | DataType::Binary, _) => {
            build(dtype, cells.len(), valid, vec![offsets(cells, 1)?, Buffer::from(cells.data())])
        }
        (DataType::List(inner), _) => {
            let size = field.dtype.word();
            let values = values(field.dtype, inner.data_type().clone(), cells.data(), size, None)?;
            let data = ArrayData::builder(dtype).len(cells.len()).nulls(valid.map(NullBuffer::from));
            data.add_buffer(offsets(cells, size)?).add_child_data(values).build().map_err(refused)
        }
        (DataType::FixedSizeList(inner, _), _) => {
            let values =
                values(field.dtype, inner.data_type().clone(), cells.data(), field.dtype.word(), None)?;
            let data = ArrayData::builder(dtype).len(cells.len()).nulls(valid.map(NullBuffer::from));
            data.add_child_data(values).build().map_err(refused)
        }
        _ if text => build(dtype, cells.len(), valid, vec![Buffer::from(cells.data())]),
        _ => values(field.dtype, dtype, cells.data(), field.dtype.word(), valid),
    }
}

fn build(dtype: DataType, len: usize, valid: Option<Vec<bool>>, buffers: Vec<Buffer>) -> Result<ArrayData> {
    let data = ArrayData::builder(dtype).len(len).nulls(valid.map(NullBuffer::from));
    data.buffers(buffers).build().map_err(refused)
}

/// Offsets of variable-length cells, in values of `size` bytes.
fn offsets(cells: &Cells, size: usize) -> Result<Buffer> {
    let place = |end: &u64| {
        let at = end / size as u64;
        i32::try_from(at).map_err(|_| Error::limit("the bytes of an Arrow batch", *end, i32::MAX as u64))
    };
    let ends = cells.ends().iter().map(place);
    let all = std::iter::once(Ok(0)).chain(ends).collect::<Result<Vec<i32>>>()?;
    Ok(ScalarBuffer::from(all).into_inner())
}

/// Contiguous fixed-size values.
fn values(
    dtype: DType,
    arrow: DataType,
    bytes: &[u8],
    size: usize,
    valid: Option<Vec<bool>>,
) -> Result<ArrayData> {
    let len = bytes.len() / size.max(1);
    match dtype {
        DType::Bool => {
            let bits = BooleanBuffer::collect_bool(len, |i| bytes[i] != 0);
            build(arrow, len, valid, vec![bits.into_inner()])
        }
        DType::DateTime(unit) | DType::TimeDelta(unit) => times(arrow, unit, bytes, valid),
        _ => build(arrow, len, valid, vec![Buffer::from(bytes)]),
    }
}

/// Timestamps and durations. NaT is null.
fn times(arrow: DataType, unit: TimeUnit, bytes: &[u8], valid: Option<Vec<bool>>) -> Result<ArrayData> {
    let seconds: i64 = match unit {
        TimeUnit::Week => 7 * 86400,
        TimeUnit::Day => 86400,
        TimeUnit::Hour => 3600,
        TimeUnit::Minute => 60,
        _ => 1,
    };
    let counts: Vec<i64> = bytes.as_chunks().0.iter().map(|word| i64::from_le_bytes(*word)).collect();
    let mut valid = valid.unwrap_or_else(|| vec![true; counts.len()]);
    valid.iter_mut().zip(&counts).for_each(|(valid, count)| *valid &= *count != i64::MIN);
    let scaled = counts.iter().zip(&valid).map(|(count, valid)| match (valid, count.checked_mul(seconds)) {
        (false, _) => Ok(0),
        (true, Some(scaled)) => Ok(scaled),
        (true, None) => {
            let what = format!("{count} {} in an Arrow column of seconds", unit.abbreviation());
            Err(Error::unsupported(what))
        }
    });
    let scaled = scaled.collect::<Result<Vec<i64>>>()?;
    build(arrow, scaled.len(), Some(valid), vec![ScalarBuffer::from(scaled).into_inner()])
}

/// Codes and their labels.
fn codes(
    field: &Field,
    enumeration: &Enumeration,
    cells: &Cells,
    valid: Option<Vec<bool>>,
) -> Result<ArrayData> {
    let labels = match &enumeration.labels {
        Labels::Text(texts) => {
            let ends = texts.iter().scan(0, |end, text| {
                *end += text.len();
                Some(i32::try_from(*end).map_err(|_| Error::limit("labels", *end as u64, i32::MAX as u64)))
            });
            let ends = std::iter::once(Ok(0)).chain(ends).collect::<Result<Vec<i32>>>()?;
            let bytes = Buffer::from(texts.concat().as_bytes());
            build(DataType::Utf8, texts.len(), None, vec![ScalarBuffer::from(ends).into_inner(), bytes])?
        }
        Labels::Numbers { dtype, bytes } => values(*dtype, element(*dtype)?, bytes, dtype.word(), None)?,
    };
    let mut valid = valid.unwrap_or_else(|| vec![true; cells.len()]);
    let mut bytes = cells.data().to_vec();
    let size = cells.size().max(1);
    for (valid, code) in valid.iter_mut().zip(bytes.chunks_exact_mut(size)) {
        *valid &= tesseral_display::json::label(field, code).is_some();
        if !*valid {
            code.fill(0);
        }
    }
    let data = ArrayData::builder(arrow_type(field)?).len(cells.len()).nulls(Some(NullBuffer::from(valid)));
    data.add_buffer(Buffer::from(bytes)).add_child_data(labels).build().map_err(refused)
}
