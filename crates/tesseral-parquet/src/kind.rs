//! Types of columns: how stored values become cells.

use parquet::basic::{
    ConvertedType, IntType, LogicalType, Repetition, TimeUnit as ParquetUnit, Type as Physical,
};
use parquet::schema::types::{ColumnDescriptor, Type};
use tesseral_core::{CellLen, DType, Error, Field, Result, Scalar, TimeUnit};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) dtype: DType,
    pub(crate) cell: CellLen,
}

fn unit(unit: &ParquetUnit) -> TimeUnit {
    match unit {
        ParquetUnit::MILLIS => TimeUnit::Millisecond,
        ParquetUnit::MICROS => TimeUnit::Microsecond,
        ParquetUnit::NANOS => TimeUnit::Nanosecond,
    }
}

/// The dtype of integers with a meaning; `Ok(None)` if they have none.
fn annotated(descr: &ColumnDescriptor) -> Option<Option<DType>> {
    Some(Some(match (descr.logical_type_ref(), descr.converted_type()) {
        (Some(LogicalType::Integer(IntType { bit_width, is_signed })), _) => {
            return DType::integer((*bit_width).into(), *is_signed).map(Some);
        }
        (Some(LogicalType::Date), _) | (None, ConvertedType::DATE) => DType::DateTime(TimeUnit::Day),
        (Some(LogicalType::Timestamp(own)), _) => DType::DateTime(unit(&own.unit)),
        (Some(LogicalType::Time(own)), _) => DType::TimeDelta(unit(&own.unit)),
        (Some(LogicalType::Unknown), _) => return Some(None),
        (Some(_), _) => return None,
        (None, ConvertedType::TIMESTAMP_MILLIS) => DType::DateTime(TimeUnit::Millisecond),
        (None, ConvertedType::TIMESTAMP_MICROS) => DType::DateTime(TimeUnit::Microsecond),
        (None, ConvertedType::TIME_MILLIS) => DType::TimeDelta(TimeUnit::Millisecond),
        (None, ConvertedType::TIME_MICROS) => DType::TimeDelta(TimeUnit::Microsecond),
        (None, ConvertedType::INT_8) => DType::Int8,
        (None, ConvertedType::INT_16) => DType::Int16,
        (None, ConvertedType::INT_32) => DType::Int32,
        (None, ConvertedType::INT_64) => DType::Int64,
        (None, ConvertedType::UINT_8) => DType::UInt8,
        (None, ConvertedType::UINT_16) => DType::UInt16,
        (None, ConvertedType::UINT_32) => DType::UInt32,
        (None, ConvertedType::UINT_64) => DType::UInt64,
        (None, ConvertedType::NONE) => return Some(None),
        (None, _) => return None,
    }))
}

impl Kind {
    /// The type of a column; `None` if it is not supported.
    pub(crate) fn from_descriptor(descr: &ColumnDescriptor) -> Option<Self> {
        if descr.max_rep_level() != 0 {
            return None;
        }
        let single = |dtype| Some(Self { dtype, cell: CellLen::One });
        match descr.physical_type() {
            Physical::BOOLEAN => single(DType::Bool),
            Physical::INT32 => {
                let dtype = annotated(descr)?.unwrap_or(DType::Int32);
                let wide = matches!(dtype, DType::Int64 | DType::UInt64);
                let day = matches!(dtype, DType::DateTime(unit) if unit != TimeUnit::Day);
                let time = matches!(dtype, DType::TimeDelta(unit) if unit != TimeUnit::Millisecond);
                if wide || day || time { None } else { single(dtype) }
            }
            Physical::INT64 => {
                let dtype = annotated(descr)?.unwrap_or(DType::Int64);
                let fits = matches!(dtype, DType::Int64 | DType::UInt64 | DType::TimeDelta(_))
                    || matches!(dtype, DType::DateTime(unit) if unit != TimeUnit::Day);
                if fits { single(dtype) } else { None }
            }
            // Timestamps of old writers.
            Physical::INT96 => single(DType::DateTime(TimeUnit::Nanosecond)),
            Physical::FLOAT => single(DType::Float32),
            Physical::DOUBLE => single(DType::Float64),
            Physical::BYTE_ARRAY => match (descr.logical_type_ref(), descr.converted_type()) {
                (Some(LogicalType::String | LogicalType::Enum | LogicalType::Json), _)
                | (None, ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON) => {
                    Some(Self { dtype: DType::Utf8, cell: CellLen::Var })
                }
                (Some(LogicalType::Bson | LogicalType::Unknown), _)
                | (None, ConvertedType::NONE | ConvertedType::BSON) => {
                    Some(Self { dtype: DType::Bytes, cell: CellLen::Var })
                }
                _ => None,
            },
            Physical::FIXED_LEN_BYTE_ARRAY => match (descr.logical_type_ref(), descr.converted_type()) {
                (Some(LogicalType::Float16), _) if descr.type_length() == 2 => single(DType::Float16),
                (Some(LogicalType::Uuid), _) | (None, ConvertedType::NONE) => {
                    let len = u32::try_from(descr.type_length()).ok().filter(|len| *len > 0)?;
                    Some(Self { dtype: DType::Bytes, cell: CellLen::Fixed(len) })
                }
                _ => None,
            },
        }
    }

    /// Whether cells of a dtype and length have a type of column. Others are stored by the conventions.
    pub(crate) fn holds(dtype: DType, cell: CellLen) -> bool {
        Self { dtype, cell }.physical().is_some()
    }

    /// The physical and logical type of a column.
    fn physical(self) -> Option<(Physical, Option<LogicalType>)> {
        let stored = |unit| match unit {
            TimeUnit::Millisecond => Some(ParquetUnit::MILLIS),
            TimeUnit::Microsecond => Some(ParquetUnit::MICROS),
            TimeUnit::Nanosecond => Some(ParquetUnit::NANOS),
            _ => None,
        };
        let small = |bits, signed| (Physical::INT32, Some(LogicalType::integer(bits, signed)));
        Some(match (self.dtype, self.cell) {
            (DType::Utf8, CellLen::Var) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            (DType::Bytes, CellLen::Var) => (Physical::BYTE_ARRAY, None),
            (DType::Bytes, CellLen::Fixed(1..=0x7fff_ffff)) => (Physical::FIXED_LEN_BYTE_ARRAY, None),
            (_, CellLen::Var | CellLen::Fixed(_)) => return None,
            (DType::Bool, _) => (Physical::BOOLEAN, None),
            (DType::Int8, _) => small(8, true),
            (DType::Int16, _) => small(16, true),
            (DType::Int32, _) => (Physical::INT32, None),
            (DType::Int64, _) => (Physical::INT64, None),
            (DType::UInt8, _) => small(8, false),
            (DType::UInt16, _) => small(16, false),
            (DType::UInt32, _) => small(32, false),
            (DType::UInt64, _) => (Physical::INT64, Some(LogicalType::integer(64, false))),
            (DType::Float16, _) => (Physical::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Float16)),
            (DType::Float32, _) => (Physical::FLOAT, None),
            (DType::Float64, _) => (Physical::DOUBLE, None),
            (DType::DateTime(unit), _) => {
                (Physical::INT64, Some(LogicalType::timestamp(false, stored(unit)?)))
            }
            _ => return None,
        })
    }

    /// The column of a schema that stores cells of this type.
    pub(crate) fn column(self, name: &str, nullable: bool) -> Result<Type> {
        let (physical, logical) = self
            .physical()
            .ok_or_else(|| Error::unsupported(format!("cells of {} in Parquet", self.dtype)))?;
        let len = match (self.dtype, self.cell) {
            (DType::Float16, _) => 2,
            (_, CellLen::Fixed(len)) => i32::try_from(len).unwrap_or(0),
            _ => 0,
        };
        let repetition = if nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let built = Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .with_length(len)
            .build();
        built.map_err(|e| Error::unsupported(format!("the column {name:?} in Parquet: {e}")))
    }

    /// The field of a column.
    pub(crate) fn field(self, name: &str, nullable: bool) -> Field {
        Field { cell: self.cell, nullable, ..Field::new(name, self.dtype) }
    }

    /// A bound of the statistics, stored in the physical type; `None` for NaN, and for types without a defined order.
    pub(crate) fn bound(self, physical: Physical, bytes: &[u8]) -> Option<Scalar> {
        match physical {
            Physical::INT32 => {
                let value = i32::from_le_bytes(bytes.try_into().ok()?);
                let unsigned = matches!(self.dtype, DType::UInt8 | DType::UInt16 | DType::UInt32);
                let wide = if unsigned { i128::from(value.cast_unsigned()) } else { i128::from(value) };
                Scalar::from_i128(self.dtype, wide)
            }
            Physical::INT64 => {
                let value = i64::from_le_bytes(bytes.try_into().ok()?);
                let unsigned = self.dtype == DType::UInt64;
                let wide = if unsigned { i128::from(value.cast_unsigned()) } else { i128::from(value) };
                Scalar::from_i128(self.dtype, wide)
            }
            Physical::FLOAT | Physical::DOUBLE => {
                let bound = Scalar::from_le_bytes(self.dtype, bytes).ok()?;
                bound.as_f64().filter(|value| !value.is_nan()).map(|_| bound)
            }
            _ => None,
        }
    }
}
