//! Types of columns: how Arrow stores their cells.

use arrow_ipc as ipc;
use arrow_schema::{DataType, Field as ArrowField, TimeUnit as ArrowUnit};
use serde_json::{Value as Json, json};
use tesseral_core::dtype::Class;
use tesseral_core::{CellLen, DType, Error, Field, Result, TimeUnit};

/// Layout of cells in the buffers of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// A bit per cell, the least significant first.
    Bits,
    /// Cells of this many bytes.
    Plain(usize),
    /// Ends of cells, of 32 or 64 bits, in values of this many bytes.
    Offsets { wide: bool, size: usize },
    /// 16 bytes per cell: a short text, or where a long one is.
    Views,
}

/// How stored values become cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Same,
    /// 32 bits become 64.
    Widened,
    /// Seconds become a coarser unit of this many.
    Seconds(i64),
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArrowKind {
    pub(crate) dtype: DType,
    pub(crate) cell: CellLen,
    pub(crate) layout: Layout,
    pub(crate) form: Form,
    /// Whether the values are those of a child: cells of several values.
    pub(crate) child: bool,
}

/// The seconds of a unit coarser than a second.
fn seconds(unit: TimeUnit) -> Option<i64> {
    Some(match unit {
        TimeUnit::Week => 7 * 86_400,
        TimeUnit::Day => 86_400,
        TimeUnit::Hour => 3600,
        TimeUnit::Minute => 60,
        _ => return None,
    })
}

fn unit(unit: ipc::TimeUnit) -> Option<TimeUnit> {
    Some(match unit {
        ipc::TimeUnit::SECOND => TimeUnit::Second,
        ipc::TimeUnit::MILLISECOND => TimeUnit::Millisecond,
        ipc::TimeUnit::MICROSECOND => TimeUnit::Microsecond,
        ipc::TimeUnit::NANOSECOND => TimeUnit::Nanosecond,
        _ => return None,
    })
}

fn stored_unit(unit: TimeUnit) -> Option<ArrowUnit> {
    Some(match unit {
        TimeUnit::Second => ArrowUnit::Second,
        TimeUnit::Millisecond => ArrowUnit::Millisecond,
        TimeUnit::Microsecond => ArrowUnit::Microsecond,
        TimeUnit::Nanosecond => ArrowUnit::Nanosecond,
        other => return seconds(other).map(|_| ArrowUnit::Second),
    })
}

impl ArrowKind {
    /// Numbers of a dtype.
    fn scalar(dtype: DType) -> Self {
        let layout =
            if dtype == DType::Bool { Layout::Bits } else { Layout::Plain(dtype.size().unwrap_or(1)) };
        Self { dtype, cell: CellLen::One, layout, form: Form::Same, child: false }
    }

    fn var(dtype: DType, layout: Layout) -> Self {
        Self { dtype, cell: CellLen::Var, layout, form: Form::Same, child: false }
    }

    /// The type of a column that is no dictionary, list or group; `None` if it is not supported.
    pub(crate) fn from_field(field: &ipc::Field<'_>) -> Option<Self> {
        let offsets = |dtype, wide| Some(Self::var(dtype, Layout::Offsets { wide, size: 1 }));
        let widened =
            |dtype| Some(Self { layout: Layout::Plain(4), form: Form::Widened, ..Self::scalar(dtype) });
        match field.type_type() {
            ipc::Type::Bool => Some(Self::scalar(DType::Bool)),
            ipc::Type::Int => {
                let own = field.type_as_int()?;
                DType::integer(own.bitWidth().into(), own.is_signed()).map(Self::scalar)
            }
            ipc::Type::FloatingPoint => match field.type_as_floating_point()?.precision() {
                ipc::Precision::HALF => Some(Self::scalar(DType::Float16)),
                ipc::Precision::SINGLE => Some(Self::scalar(DType::Float32)),
                ipc::Precision::DOUBLE => Some(Self::scalar(DType::Float64)),
                _ => None,
            },
            ipc::Type::Date => match field.type_as_date()?.unit() {
                ipc::DateUnit::DAY => widened(DType::DateTime(TimeUnit::Day)),
                ipc::DateUnit::MILLISECOND => Some(Self::scalar(DType::DateTime(TimeUnit::Millisecond))),
                _ => None,
            },
            ipc::Type::Time => {
                let own = field.type_as_time()?;
                match (own.bitWidth(), unit(own.unit())?) {
                    (32, unit @ (TimeUnit::Second | TimeUnit::Millisecond)) => {
                        widened(DType::TimeDelta(unit))
                    }
                    (64, unit @ (TimeUnit::Microsecond | TimeUnit::Nanosecond)) => {
                        Some(Self::scalar(DType::TimeDelta(unit)))
                    }
                    _ => None,
                }
            }
            ipc::Type::Timestamp => {
                unit(field.type_as_timestamp()?.unit()).map(DType::DateTime).map(Self::scalar)
            }
            ipc::Type::Duration => {
                unit(field.type_as_duration()?.unit()).map(DType::TimeDelta).map(Self::scalar)
            }
            ipc::Type::Utf8 => offsets(DType::Utf8, false),
            ipc::Type::LargeUtf8 => offsets(DType::Utf8, true),
            ipc::Type::Utf8View => Some(Self::var(DType::Utf8, Layout::Views)),
            ipc::Type::Binary => offsets(DType::Bytes, false),
            ipc::Type::LargeBinary => offsets(DType::Bytes, true),
            ipc::Type::BinaryView => Some(Self::var(DType::Bytes, Layout::Views)),
            ipc::Type::FixedSizeBinary => {
                let len = u32::try_from(field.type_as_fixed_size_binary()?.byteWidth()).ok();
                let len = len.filter(|len| *len > 0)?;
                Some(Self {
                    cell: CellLen::Fixed(len),
                    layout: Layout::Plain(len as usize),
                    ..Self::scalar(DType::Bytes)
                })
            }
            _ => None,
        }
    }

    /// Cells of several values of this type: `n`, or any number with ends of 32 or 64 bits.
    pub(crate) fn several(self, count: Result<u32, bool>) -> Option<Self> {
        let Layout::Plain(size) = self.layout else { return None };
        if self.cell != CellLen::One || self.form != Form::Same || self.child {
            return None;
        }
        match count {
            Ok(n) => {
                let bytes = size.checked_mul(usize::try_from(n).ok()?).filter(|bytes| *bytes > 0)?;
                Some(Self { cell: CellLen::Fixed(n), layout: Layout::Plain(bytes), child: true, ..self })
            }
            Err(wide) => {
                Some(Self { cell: CellLen::Var, layout: Layout::Offsets { wide, size }, child: true, ..self })
            }
        }
    }

    /// The type that a column had before it was stored as one of this type; itself if the description is another.
    pub(crate) fn restored(self, dtype: &Json, cell: &Json) -> Self {
        let dtype = dtype.as_str().and_then(|name| name.parse().ok());
        let cell = match cell {
            Json::String(var) if var == "var" => CellLen::Var,
            Json::Number(n) => {
                n.as_u64().and_then(|n| u32::try_from(n).ok()).map_or(CellLen::One, CellLen::Fixed)
            }
            _ => CellLen::One,
        };
        let stored = dtype.and_then(|dtype| Self::stored(dtype, cell));
        let same = |stored: &Self| {
            let seconds = matches!(stored.form, Form::Seconds(_)) && self.form == Form::Same;
            let unit = |dtype| match dtype {
                DType::DateTime(unit) | DType::TimeDelta(unit) => Some(unit),
                _ => None,
            };
            let coarse = seconds && unit(self.dtype) == Some(TimeUnit::Second);
            let alike = match (stored.dtype, self.dtype) {
                (DType::DateTime(_), DType::DateTime(_)) | (DType::TimeDelta(_), DType::TimeDelta(_)) => {
                    coarse || stored.dtype == self.dtype
                }
                (DType::Complex64, DType::Float32) | (DType::Complex128, DType::Float64) => self.child,
                (DType::Ascii, DType::Utf8) => true,
                (own, DType::Bytes) => own.class() == Class::Text,
                (own, other) => own == other,
            };
            let layout = match (stored.layout, self.layout) {
                (Layout::Offsets { size, .. }, Layout::Offsets { size: own, .. }) => size == own,
                (own, other) => own == other,
            };
            alike && layout && stored.child == self.child
        };
        // Ends can be of 64 bits in files of other programs.
        stored.filter(same).map_or(self, |stored| Self { layout: self.layout, ..stored })
    }

    /// How cells of a dtype and length are stored; `None` if they are stored by the conventions.
    pub(crate) fn stored(dtype: DType, cell: CellLen) -> Option<Self> {
        let text = dtype.class() == Class::Text;
        let number = |dtype: DType| match dtype {
            DType::BFloat16 | DType::Bitmask => None,
            DType::DateTime(unit) | DType::TimeDelta(unit) => {
                stored_unit(unit)?;
                let form = seconds(unit).map_or(Form::Same, Form::Seconds);
                Some(Self { form, ..Self::scalar(dtype) })
            }
            _ => Some(Self::scalar(dtype)),
        };
        match cell {
            CellLen::Var if text => Some(Self::var(dtype, Layout::Offsets { wide: false, size: 1 })),
            CellLen::Fixed(len @ 1..=0x7fff_ffff) if text => {
                let layout = Layout::Plain(len as usize);
                Some(Self { dtype, cell, layout, form: Form::Same, child: false })
            }
            _ if text => None,
            CellLen::One if dtype.class() == Class::Complex => {
                number(dtype).map(|kind| Self { child: true, ..kind })
            }
            CellLen::One => number(dtype),
            // A child has no bits, and no unit of its own.
            _ if dtype == DType::Bool || dtype.class() == Class::Time => None,
            CellLen::Fixed(n) => {
                number(dtype)?.several(Ok(n)).filter(|_| i32::try_from(n).is_ok_and(|n| n < i32::MAX / 2))
            }
            CellLen::Var if dtype.class() == Class::Complex => None,
            CellLen::Var => number(dtype)?.several(Err(false)),
        }
    }

    /// Whether cells of a dtype and length have a type of column.
    pub(crate) fn holds(dtype: DType, cell: CellLen) -> bool {
        Self::stored(dtype, cell).is_some()
    }

    /// The Arrow type that stores the cells.
    fn arrow(self) -> Option<DataType> {
        let complex = self.dtype.class() == Class::Complex;
        let element = match self.dtype {
            DType::Bool => DataType::Boolean,
            DType::Int8 => DataType::Int8,
            DType::Int16 => DataType::Int16,
            DType::Int32 => DataType::Int32,
            DType::Int64 => DataType::Int64,
            DType::UInt8 => DataType::UInt8,
            DType::UInt16 => DataType::UInt16,
            DType::UInt32 => DataType::UInt32,
            DType::UInt64 => DataType::UInt64,
            DType::Float16 => DataType::Float16,
            DType::Float32 | DType::Complex64 => DataType::Float32,
            DType::Float64 | DType::Complex128 => DataType::Float64,
            DType::DateTime(unit) => DataType::Timestamp(stored_unit(unit)?, None),
            DType::TimeDelta(unit) => DataType::Duration(stored_unit(unit)?),
            DType::Utf8 | DType::Ascii if self.cell == CellLen::Var => DataType::Utf8,
            _ => DataType::Binary,
        };
        let item = |element| ArrowField::new("item", element, false).into();
        Some(match (self.cell, self.layout) {
            (CellLen::Fixed(len), _) if !self.child => DataType::FixedSizeBinary(i32::try_from(len).ok()?),
            (CellLen::Var, _) if self.child => DataType::List(item(element)),
            (CellLen::Var, _) => element,
            (CellLen::Fixed(n), _) => {
                let n = if complex { n.checked_mul(2)? } else { n };
                DataType::FixedSizeList(item(element), i32::try_from(n).ok()?)
            }
            _ if complex => DataType::FixedSizeList(item(element), 2),
            _ => element,
        })
    }

    /// The column of a schema that stores cells of this type.
    pub(crate) fn column(self, name: &str, nullable: bool) -> Result<ArrowField> {
        let arrow = self.arrow();
        let arrow = arrow.ok_or_else(|| Error::unsupported(format!("cells of {} in Arrow", self.dtype)))?;
        // Times that are none are null to other programs.
        Ok(ArrowField::new(name, arrow, nullable || self.has_nat()))
    }

    /// Whether a value of the cells means that there is none.
    pub(crate) fn has_nat(self) -> bool {
        self.dtype.class() == Class::Time
    }

    /// Properties that the Arrow type does not describe: dtype and length of cells.
    pub(crate) fn description(self) -> [(&'static str, Json); 2] {
        let cell = match self.cell {
            CellLen::One => Json::Null,
            CellLen::Fixed(n) => json!(n),
            CellLen::Var => json!("var"),
        };
        [("dtype", json!(self.dtype.to_string())), ("cell", cell)]
    }

    /// The field of a column.
    pub(crate) fn field(self, name: &str, nullable: bool) -> Field {
        Field { cell: self.cell, nullable, ..Field::new(name, self.dtype) }
    }
}
