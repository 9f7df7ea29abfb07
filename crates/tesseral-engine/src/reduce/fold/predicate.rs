//! Predicates on cells.

use serde::{Deserialize, Serialize};
use tesseral_core::{ChunkStats, DType, Element, Error, Field, Result, Scalar, dispatch_element};

/// A number as given in a document: integers stay integers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Number {
    /// An integer.
    Int(i128),
    /// Any other number.
    Float(f64),
}

impl Number {
    /// The nearest `f64`.
    #[allow(clippy::cast_precision_loss)]
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    /// The value as a cell of a dtype, when it is exactly representable.
    pub fn to_scalar(self, dtype: DType) -> Option<Scalar> {
        let text = match self {
            Self::Int(value) => value.to_string(),
            Self::Float(value) => format!("{value:?}"),
        };
        let found = Scalar::parse(dtype, &text).ok();
        let whole = || match self {
            Self::Float(value) if value.fract() == 0.0 && value.abs() < 1e18 => {
                Scalar::parse(dtype, &format!("{value:.0}")).ok()
            }
            _ => None,
        };
        found.or_else(whole)
    }
}

impl From<Number> for String {
    fn from(number: Number) -> Self {
        match number {
            Number::Int(value) => value.to_string(),
            Number::Float(value) => format!("f{:016x}", value.to_bits()),
        }
    }
}

impl TryFrom<String> for Number {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        let float = text.strip_prefix('f').and_then(|bits| u64::from_str_radix(bits, 16).ok());
        let number = match float {
            Some(bits) => Some(Self::Float(f64::from_bits(bits))),
            None => text.parse().ok().map(Self::Int),
        };
        number.ok_or_else(|| Error::invalid(format!("invalid number: {text:?}")))
    }
}

/// A comparison with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// A condition on cells; all of its parts must hold. Numbers compare exactly across types: no integer is rounded.
///
/// A NaN is unequal to every number and neither below nor above any. No comparison holds for a null cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Predicate {
    /// Comparisons with numbers.
    pub compare: Vec<(Compare, Number)>,
    /// Only missing cells, or only others.
    pub null: Option<bool>,
    /// One more value that counts as missing for `null`.
    pub fill: Option<Number>,
    /// Only finite cells.
    pub finite: bool,
}

/// A predicate compiled for an element type.
#[derive(Clone, Debug)]
pub(super) struct CompiledPredicate<T> {
    ints: Option<(i128, i128, Vec<i128>)>,
    floats: Vec<(Compare, f64)>,
    never: bool,
    null: Option<bool>,
    fill: Option<T>,
    finite: bool,
}

impl Predicate {
    /// Compiles the predicate for cells of a dtype.
    pub(super) fn test<T: Element>(&self, dtype: DType) -> CompiledPredicate<T> {
        let fill = self.fill.and_then(|fill| fill.to_scalar(dtype));
        let mut test = CompiledPredicate {
            ints: None,
            floats: Vec::new(),
            never: false,
            null: self.null,
            fill: fill.as_ref().and_then(Scalar::get::<T>),
            finite: self.finite,
        };
        if T::IS_FLOAT {
            self.compare.iter().for_each(|&(op, number)| test.float(op, number));
        } else if !self.compare.is_empty() {
            let mut range = (i128::MIN, i128::MAX, Vec::new());
            self.compare.iter().for_each(|&(op, number)| test.int(op, number, &mut range));
            test.ints = Some(range);
        }
        test
    }

    /// The cells that meet it: native-endian cells of a field, and one byte per cell that is 0 for a missing one.
    ///
    /// # Errors
    /// `Unsupported` for dtypes without arithmetic.
    pub fn matches(&self, field: &Field, cells: &[u8], validity: Option<&[u8]>) -> Result<Vec<bool>> {
        dispatch_element!(field.dtype, T => {
            let test = self.test::<T>(field.dtype);
            let cell = |(i, bytes): (usize, &[u8])| match validity {
                Some(valid) if valid[i] == 0 => test.null(),
                _ => test.value(bytemuck::pod_read_unaligned::<T>(bytes)),
            };
            Ok(cells.chunks_exact(size_of::<T>()).enumerate().map(cell).collect())
        }, else => Err(Error::unsupported(format!("conditions on {}", field.dtype))))
    }

    /// Whether a chunk with these statistics may hold a cell that meets it.
    pub(super) fn may_match(&self, stats: &ChunkStats) -> bool {
        if self.null == Some(true) && self.fill.is_none() && stats.nulls.bound() == Some(&0) {
            return false;
        }
        if self.null == Some(false) && self.fill.is_none() && stats.nulls.exact() == Some(&stats.cells) {
            return false;
        }
        let (Some(min), Some(max)) = (stats.min.bound(), stats.max.bound()) else { return true };
        self.compare.iter().all(|&(op, number)| {
            let number = match number {
                Number::Int(value) => match i64::try_from(value) {
                    Ok(value) => Scalar::from_element(value),
                    Err(_) => return true,
                },
                Number::Float(value) => Scalar::from_element(value),
            };
            let (low, high) = (min.compare(&number), max.compare(&number));
            let (Some(low), Some(high)) = (low, high) else { return true };
            match op {
                Compare::Eq => low.is_le() && high.is_ge(),
                Compare::Ne => true,
                Compare::Lt => low.is_lt(),
                Compare::Le => low.is_le(),
                Compare::Gt => high.is_gt(),
                Compare::Ge => high.is_ge(),
            }
        })
    }
}

impl<T: Element> CompiledPredicate<T> {
    /// Compiles a comparison of floats: an integer that is not exact in `f64` lies between two neighbors, which decide.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
    fn float(&mut self, op: Compare, number: Number) {
        let Number::Int(int) = number else {
            self.floats.push((op, number.to_f64()));
            return;
        };
        let near = int as f64;
        let above = match (near as i128).cmp(&int) {
            std::cmp::Ordering::Equal => return self.floats.push((op, near)),
            order => order.is_gt(),
        };
        match op {
            Compare::Eq => self.never = true,
            Compare::Ne => {}
            Compare::Gt | Compare::Ge => {
                self.floats.push((if above { Compare::Ge } else { Compare::Gt }, near));
            }
            Compare::Lt | Compare::Le => {
                self.floats.push((if above { Compare::Lt } else { Compare::Le }, near));
            }
        }
    }

    /// Compiles a comparison of integers to a closed range and excluded values.
    #[allow(clippy::cast_possible_truncation)]
    fn int(&mut self, op: Compare, number: Number, range: &mut (i128, i128, Vec<i128>)) {
        let (floor, ceil) = match number {
            Number::Int(value) => (value, value),
            // Casts saturate, far outside every cell.
            Number::Float(value) => (value.floor() as i128, value.ceil() as i128),
        };
        let whole = floor == ceil;
        match op {
            Compare::Eq if whole => {
                (range.0, range.1) = (range.0.max(floor), range.1.min(floor));
            }
            Compare::Eq => self.never = true,
            Compare::Ne if whole => range.2.push(floor),
            Compare::Ne => {}
            Compare::Gt => range.0 = range.0.max(floor.saturating_add(1)),
            Compare::Ge => range.0 = range.0.max(ceil),
            Compare::Lt => range.1 = range.1.min(ceil.saturating_sub(1)),
            Compare::Le => range.1 = range.1.min(floor),
        }
    }

    /// Whether a cell that is valid by the mask is selected.
    #[inline]
    pub(super) fn value(&self, cell: T) -> bool {
        if self.never || (self.finite && (cell.is_nan() || cell.is_infinite())) {
            return false;
        }
        if let Some(null) = self.null {
            let fill = self.fill.is_some_and(|fill| cell == fill || (fill.is_nan() && cell.is_nan()));
            if fill != null {
                return false;
            }
        }
        if let Some((low, high, not)) = &self.ints {
            let value = cell.to_i128();
            return (*low..=*high).contains(&value) && !not.contains(&value);
        }
        if self.floats.is_empty() {
            return true;
        }
        let value = cell.to_f64();
        self.floats.iter().all(|&(op, bound)| match op {
            Compare::Eq => value == bound,
            Compare::Ne => value != bound,
            Compare::Lt => value < bound,
            Compare::Le => value <= bound,
            Compare::Gt => value > bound,
            Compare::Ge => value >= bound,
        })
    }

    /// Whether a cell that is null by the mask is selected.
    #[inline]
    pub(super) fn null(&self) -> bool {
        self.null == Some(true)
            && !self.never
            && !self.finite
            && self.floats.is_empty()
            && self.ints.is_none()
    }
}
