//! Covariances and correlations of two variables, from exact sums of values and of products.

use serde::{Deserialize, Serialize};
use tesseral_core::{CellLen, DType, Element, Error, Result, Selection, alloc, dispatch_element};
use tesseral_format::{Column, Request};

use super::wire::{moments, products};
use crate::decode::columns::Cells;
use crate::handle::Handle;
use crate::options::Options;
use crate::paint::dense;
use crate::reduce::exact::{Moments, Products};
use crate::reduce::kernel::block::Cell;

/// The second variable of a fold: its values are those at the positions of the first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Paired {
    field: u16,
    /// Whether it is a field of another array.
    foreign: bool,
    /// That array, which a serialized job does not contain.
    #[serde(skip)]
    handle: Option<Handle>,
}

impl PartialEq for Paired {
    fn eq(&self, other: &Self) -> bool {
        (self.field, self.foreign) == (other.field, other.foreign)
    }
}

impl Paired {
    /// Another field of the same array.
    pub fn field(field: u16) -> Self {
        Self { field, foreign: false, handle: None }
    }

    /// A field of another dense array of the same shape.
    pub fn of_array(handle: Handle, field: u16) -> Self {
        Self { field, foreign: true, handle: Some(handle) }
    }

    /// The column of the same array; `None` if the variable is in another one.
    pub(super) fn column(&self) -> Option<Column> {
        (!self.foreign).then_some(Column::Field(self.field))
    }

    /// Whether a fold of `handle` can read the variable.
    ///
    /// # Errors
    /// `InvalidRequest` if the other array is not open, is sparse or has another shape; `Unsupported` for cells without arithmetic.
    pub(super) fn check(&self, handle: &Handle) -> Result<()> {
        let other = self.handle(handle)?;
        let invalid = |detail: &str| Err(Error::invalid(detail).in_array(&other.schema().name));
        let (schema, own) = (other.schema(), handle.schema());
        if self.foreign && (schema.sparse || own.sparse || schema.shape() != own.shape()) {
            return invalid("the two variables must be dense and of the same shape");
        }
        match schema.fields.get(usize::from(self.field)) {
            None => invalid("the second variable does not exist"),
            Some(field) if field.cell != CellLen::One => {
                Err(Error::unsupported(format!("covariances of {} cells", field.type_name())))
            }
            Some(field) => dispatch_element!(field.dtype, T => Ok(size_of::<T>()),
                else => Err(Error::unsupported(format!("covariances of {}", field.dtype))))
            .map(drop),
        }
    }

    fn handle<'a>(&'a self, own: &'a Handle) -> Result<&'a Handle> {
        match (&self.handle, self.foreign) {
            (_, false) => Ok(own),
            (Some(handle), true) => Ok(handle),
            (None, true) => Err(Error::invalid("the array of the second variable is not open")),
        }
    }

    /// The values at the positions of a part of a dense array.
    pub(super) fn read(&self, own: &Handle, part: &Selection, options: &Options) -> Result<Vec<f64>> {
        let handle = self.handle(own)?;
        let dtype = self.dtype(handle)?;
        dense::read_with(handle, &Request::cells(part.clone(), self.field), options, |block| {
            numbers(dtype, block.bytes(), block.validity())
        })
    }

    /// The values of a column of rows.
    pub(super) fn of_rows(&self, handle: &Handle, cells: &Cells) -> Result<Vec<f64>> {
        numbers(self.dtype(handle)?, cells.data(), cells.validity())
    }

    fn dtype(&self, handle: &Handle) -> Result<DType> {
        let field = handle.schema().fields.get(usize::from(self.field));
        field.map(|field| field.dtype).ok_or_else(|| Error::invalid("the second variable does not exist"))
    }
}

/// Cells as doubles, NaN for missing ones.
///
/// # Errors
/// `Unsupported` for integers that no double equals.
fn numbers(dtype: DType, bytes: &[u8], validity: Option<&[u8]>) -> Result<Vec<f64>> {
    dispatch_element!(dtype, T => {
        let mut values = alloc::with_capacity("a second variable", bytes.len() / size_of::<T>())?;
        for (i, cell) in bytes.chunks_exact(size_of::<T>()).enumerate() {
            let cell: T = bytemuck::pod_read_unaligned(cell);
            let value = cell.to_f64();
            if validity.is_some_and(|validity| validity.get(i) == Some(&0)) {
                values.push(f64::NAN);
            } else if T::IS_FLOAT || value as i128 == cell.to_i128() {
                values.push(value);
            } else {
                return Err(Error::unsupported("integers beyond 2^53 as the second variable"));
            }
        }
        Ok(values)
    }, else => Err(Error::unsupported(format!("covariances of {dtype}"))))
}

/// Exact sums over the cells at which both variables have a value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pairs {
    cells: u64,
    nans: u64,
    #[serde(with = "moments")]
    first: Moments,
    #[serde(with = "moments")]
    second: Moments,
    #[serde(with = "products")]
    products: Products,
}

impl Pairs {
    pub(super) fn fold<T: Cell>(&mut self, values: &[T], others: &[f64]) {
        const BLOCK: usize = 1024;
        self.cells += values.len() as u64;
        for (values, others) in values.chunks(BLOCK).zip(others.chunks(BLOCK)) {
            let (mut x, mut low, mut y) = (Vec::new(), Vec::new(), Vec::new());
            for (&value, &other) in values.iter().zip(others) {
                if value.is_nan() || other.is_nan() {
                    self.nans += 1;
                    continue;
                }
                let wide = value.to_f64();
                if wide.is_infinite() || other.is_infinite() {
                    self.first.add_float(wide, 1, false);
                    self.second.add_float(other, 1, false);
                    continue;
                }
                y.push(other);
                if T::IS_FLOAT {
                    x.push(wide);
                } else {
                    // 64 bits in two doubles, both exact.
                    let value = value.to_i128();
                    self.first.add_integer(value, 1, true);
                    x.push((value >> 32 << 32) as f64);
                    low.push((value & 0xFFFF_FFFF) as f64);
                }
            }
            self.second.add_floats(&y);
            self.products.add_floats(&x, &y);
            match T::IS_FLOAT {
                true => self.first.add_floats(&x),
                false => self.products.add_floats(&low, &y),
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.cells = self.cells.saturating_add(other.cells);
        self.nans = self.nans.saturating_add(other.nans);
        self.first.merge(&other.first);
        self.second.merge(&other.second);
        self.products.merge(&other.products);
    }

    pub(super) fn cells(&self) -> u64 {
        self.cells
    }

    /// Cells at which one of the variables is NaN, or the second one is missing.
    pub fn nans(&self) -> u64 {
        self.nans
    }

    /// Cells at which both variables have a value.
    pub fn valid(&self) -> u64 {
        self.cells.saturating_sub(self.nans)
    }

    /// The correctly rounded covariance of more than `ddof` pairs; NaN with infinities.
    pub fn covariance(&self, ddof: u64) -> Option<f64> {
        (self.valid() > ddof).then(|| self.products.covariance(&self.first, &self.second, self.valid(), ddof))
    }

    /// The correlation, within one unit in the last place; NaN with infinities or a constant variable, `None` without pairs.
    pub fn correlation(&self) -> Option<f64> {
        (self.valid() > 0).then(|| self.products.correlation(&self.first, &self.second, self.valid()))
    }
}
