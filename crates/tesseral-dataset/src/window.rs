//! Cells selected by the names of dimensions: `array.sel("lat", 40.0..=60.0)?.isel("time", 0)?`.

use std::borrow::Cow;
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use tesseral_core::{Error, Result, Selection, Slice};
use tesseral_engine::Dense;

use crate::Array;

/// Coordinates along a dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinateRange {
    /// One coordinate; a date that is less precise than the labels means all of the period.
    At(String),
    /// From one coordinate to another, both included; `None` is unbounded.
    Between(Option<String>, Option<String>),
}

macro_rules! coordinates {
    ($($t:ty),*) => {$(
        impl From<$t> for CoordinateRange {
            fn from(value: $t) -> Self {
                Self::At(value.to_string())
            }
        }
        impl From<RangeInclusive<$t>> for CoordinateRange {
            fn from(range: RangeInclusive<$t>) -> Self {
                Self::Between(Some(range.start().to_string()), Some(range.end().to_string()))
            }
        }
        impl From<RangeFrom<$t>> for CoordinateRange {
            fn from(range: RangeFrom<$t>) -> Self {
                Self::Between(Some(range.start.to_string()), None)
            }
        }
        impl From<RangeToInclusive<$t>> for CoordinateRange {
            fn from(range: RangeToInclusive<$t>) -> Self {
                Self::Between(None, Some(range.end.to_string()))
            }
        }
    )*};
}
coordinates!(f64, f32, i32, i64, u64, &str);

impl From<RangeFull> for CoordinateRange {
    fn from(_: RangeFull) -> Self {
        Self::Between(None, None)
    }
}

/// Positions along a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PositionRange {
    start: u64,
    /// `None` for the end of the dimension.
    end: Option<u64>,
    step: u64,
}

impl PositionRange {
    /// Every `step`-th of the positions.
    #[must_use]
    pub fn step_by(mut self, step: u64) -> Self {
        self.step = step;
        self
    }
}

impl From<u64> for PositionRange {
    fn from(position: u64) -> Self {
        Self { start: position, end: Some(position.saturating_add(1)), step: 1 }
    }
}

impl From<Range<u64>> for PositionRange {
    fn from(range: Range<u64>) -> Self {
        Self { start: range.start, end: Some(range.end), step: 1 }
    }
}

impl From<RangeInclusive<u64>> for PositionRange {
    fn from(range: RangeInclusive<u64>) -> Self {
        Self { start: *range.start(), end: Some(range.end().saturating_add(1)), step: 1 }
    }
}

impl From<RangeFrom<u64>> for PositionRange {
    fn from(range: RangeFrom<u64>) -> Self {
        Self { start: range.start, end: None, step: 1 }
    }
}

impl From<RangeTo<u64>> for PositionRange {
    fn from(range: RangeTo<u64>) -> Self {
        Self { start: 0, end: Some(range.end), step: 1 }
    }
}

impl From<RangeFull> for PositionRange {
    fn from(_: RangeFull) -> Self {
        Self { start: 0, end: None, step: 1 }
    }
}

/// Cells of a dense array, selected by the names of its dimensions. Nothing is read but labels.
#[derive(Clone, Debug)]
pub struct SelectedCells<'a> {
    array: Cow<'a, Array>,
    /// `None` where nothing is selected.
    slices: Vec<Option<Slice>>,
}

impl Array {
    /// Selects cells by coordinates along a dimension: one, or a range with both ends included. On a descending axis, both orders
    /// of the ends mean the same; a range of longitudes can cross the end of the axis.
    ///
    /// ```
    /// # fn main() -> Result<(), tesseral::Error> {
    /// # use tesseral::{ArraySchema, ArraySpec, Create, DType, Labels};
    /// # let path = std::env::temp_dir().join(format!("tesseral-doc-sel-{}.tet", std::process::id()));
    /// # let mut session = Create::new().overwrite().begin(&path, "")?;
    /// # let mut schema = ArraySchema::dense("height", DType::Int32, &[4, 6], &[2, 6]);
    /// # (schema.dims[0].name, schema.dims[1].name) = ("lat".to_owned(), "x".to_owned());
    /// # schema.dims[0].labels = Some(Labels::Text(["40", "50", "60", "70"].map(str::to_owned).to_vec()));
    /// # let height = session.add(&ArraySpec::raw(schema))?;
    /// # session.write(height, &(0..24).flat_map(i32::to_ne_bytes).collect::<Vec<u8>>())?;
    /// # session.commit()?;
    /// let height = tesseral::open(&path)?.array("height")?;
    /// let part = height.sel("lat", 50.0..=60.0)?.isel("x", 2..4)?;
    /// assert_eq!(part.read()?.as_slice::<i32>().unwrap(), [8, 9, 14, 15]);
    /// # std::fs::remove_file(path).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidRequest` for a coordinate that does not suit the dimension, and for sparse arrays; `NotFound`.
    pub fn sel(&self, dim: &str, range: impl Into<CoordinateRange>) -> Result<SelectedCells<'_>> {
        SelectedCells::new(self)?.sel(dim, range)
    }

    /// Selects cells by positions along a dimension: one, or a half-open range.
    ///
    /// # Errors
    /// `InvalidRequest` for positions out of bounds, and for sparse arrays; `NotFound`.
    pub fn isel(&self, dim: &str, range: impl Into<PositionRange>) -> Result<SelectedCells<'_>> {
        SelectedCells::new(self)?.isel(dim, range)
    }
}

impl<'a> SelectedCells<'a> {
    fn new(array: &'a Array) -> Result<Self> {
        if array.schema().sparse {
            let error = Error::invalid("cells of a sparse array have coordinates, not positions");
            return Err(error.in_array(array.name()).hint("`Array::cells` selects them"));
        }
        Ok(Self { array: Cow::Borrowed(array), slices: vec![None; array.schema().dims.len()] })
    }

    /// As [`Array::sel`], along a further dimension.
    ///
    /// # Errors
    /// As [`Array::sel`]; `InvalidRequest` for a second selection along one dimension.
    pub fn sel(mut self, dim: &str, range: impl Into<CoordinateRange>) -> Result<Self> {
        let d = self.free(dim)?;
        let slice = match range.into() {
            CoordinateRange::At(value) => self.array.at(d, &value)?,
            CoordinateRange::Between(low, high) => self.array.between(d, low.as_deref(), high.as_deref())?,
        };
        if self.array.schema().dims[d].extent.is_some_and(|extent| slice.end > extent) {
            self.array = Cow::Owned(self.array.continued(&[d])?);
        }
        self.slices[d] = Some(slice);
        Ok(self)
    }

    /// As [`Array::isel`], along a further dimension.
    ///
    /// # Errors
    /// As [`Array::isel`]; `InvalidRequest` for a second selection along one dimension.
    pub fn isel(mut self, dim: &str, range: impl Into<PositionRange>) -> Result<Self> {
        let d = self.free(dim)?;
        let extent = self.array.schema().dims[d].extent.unwrap_or(0);
        let PositionRange { start, end, step } = range.into();
        let end = end.unwrap_or(extent);
        if step == 0 || start > end || end > extent {
            let detail =
                format!("positions {start}..{end} by {step} of dimension {dim:?}, which has {extent}");
            return Err(Error::invalid(detail).in_array(self.array.name()));
        }
        self.slices[d] = Some(Slice { start, end, step });
        Ok(self)
    }

    /// The number of a dimension that has no selection yet.
    fn free(&self, dim: &str) -> Result<usize> {
        let d = self.array.schema().dim(dim)?;
        match self.slices[d] {
            None => Ok(d),
            Some(_) => {
                let detail = format!("duplicate selection of dimension {dim:?}");
                Err(Error::invalid(detail).in_array(self.array.name()))
            }
        }
    }

    /// The array that [`selection`](Self::selection) refers to: the one that was selected from, or one whose cyclic axis continues.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// The positions.
    ///
    /// # Errors
    /// `InvalidRequest` if the positions of the array are not countable.
    pub fn selection(&self) -> Result<Selection> {
        let whole = self.array.all()?;
        let bounds: Vec<u64> = whole.slices().iter().map(|slice| slice.end).collect();
        let slices = self.slices.iter().zip(whole.slices()).map(|(own, whole)| own.unwrap_or(*whole));
        Selection::new(slices, &bounds)
    }

    /// Reads the cells, as [`Array::read`].
    ///
    /// # Errors
    /// As [`Array::read`].
    pub fn read(&self) -> Result<Dense> {
        self.array.read(&self.selection()?)
    }

    /// The cells as arrays of numbers, block by block in row-major order, each with its selection. A block takes at most `bytes`.
    ///
    /// # Errors
    /// `InvalidRequest` for variable-length fields; items are errors of reading.
    pub fn blocks(&self, bytes: u64) -> Result<impl Iterator<Item = Result<(Selection, Dense)>> + '_> {
        let blocks = self.array.blocks(&self.selection()?, bytes)?;
        Ok(blocks.map(|part| {
            let cells = tesseral_engine::read_owned(
                self.array.handle(),
                &self.array.request(&part),
                self.array.options(),
            )?;
            Ok((part, cells))
        }))
    }
}
