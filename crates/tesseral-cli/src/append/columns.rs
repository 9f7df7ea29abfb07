//! Columns of cells, parsed from text.

use tesseral::{ArraySchema, CellLen, ColumnData, DType, Error, Scalar};
use tesseral_core::dtype::Class;
use tesseral_core::schema::{Enumeration, Labels};
use tesseral_core::{TimeUnit, time};

use super::csv::{CsvFile, CsvRow};
use crate::error::CliResult;

/// One column.
#[derive(Clone, Debug)]
struct AppendedColumn {
    name: String,
    dtype: DType,
    cell: CellLen,
    enumeration: Option<Enumeration>,
    values: Vec<u8>,
    ends: Vec<u64>,
    validity: Option<Vec<u8>>,
}

impl AppendedColumn {
    fn new(name: &str, dtype: DType, cell: CellLen, nullable: bool) -> Self {
        Self {
            name: name.to_owned(),
            dtype,
            cell,
            enumeration: None,
            values: Vec::new(),
            ends: Vec::new(),
            validity: nullable.then(Vec::new),
        }
    }

    /// Adds a cell. Empty text is null if the field is nullable; quoted empty text is an empty string.
    fn push(&mut self, text: &str, quoted: bool) -> Result<(), Error> {
        let null = self.validity.is_some() && text.is_empty() && !quoted;
        if let Some(validity) = &mut self.validity {
            validity.push(u8::from(!null));
        }
        let size = self.dtype.size().unwrap_or(1);
        let count = match self.cell {
            CellLen::One => Some(1),
            CellLen::Fixed(n) => Some(n as usize),
            CellLen::Var => None,
        };
        if null {
            self.values.resize(self.values.len() + size * count.unwrap_or(0), 0);
        } else if self.dtype == DType::Bytes {
            let bytes = unhex(text).ok_or_else(|| self.refuse(text))?;
            self.fixed(&bytes, count, text)?;
        } else if self.dtype.class() == Class::Text {
            self.fixed(text.as_bytes(), count, text)?;
        } else if count == Some(1) {
            let bytes = self.number(text)?;
            self.values.extend_from_slice(&bytes);
        } else {
            // Several numbers per cell are separated by spaces.
            let mut all = Vec::new();
            for word in text.split_whitespace() {
                all.extend(self.number(word)?);
            }
            if count.is_some_and(|n| n * size != all.len()) {
                return Err(self.refuse(text));
            }
            self.values.extend(all);
        }
        self.ends.push(self.values.len() as u64);
        Ok(())
    }

    /// Bytes of a text; padded if cells are fixed-size.
    fn fixed(&mut self, bytes: &[u8], count: Option<usize>, text: &str) -> Result<(), Error> {
        if count.is_some_and(|n| bytes.len() > n) {
            return Err(self.refuse(text));
        }
        let start = self.values.len();
        self.values.extend_from_slice(bytes);
        self.values.resize(start + count.unwrap_or(bytes.len()), 0);
        Ok(())
    }

    fn number(&self, text: &str) -> Result<Vec<u8>, Error> {
        let code = |code: usize| Ok(Scalar::parse(self.dtype, &code.to_string())?.bytes().to_vec());
        match self.enumeration.as_ref().map(|e| &e.labels) {
            Some(Labels::Text(labels)) => {
                if let Some(at) = labels.iter().position(|label| label == text) {
                    return code(at);
                }
            }
            // A number is a label here, as printed by `cat`, not a code.
            Some(labels @ Labels::Numbers { dtype, .. }) => {
                let wanted = written(*dtype, text).ok_or_else(|| self.refuse(text))?;
                let found = (0..labels.len()).find(|&at| labels.get(at).is_some_and(|l| l == wanted));
                return found.map_or_else(|| Err(self.refuse(text)), code);
            }
            None => {}
        }
        let scalar = written(self.dtype, text).ok_or_else(|| self.refuse(text))?;
        Ok(scalar.bytes().to_vec())
    }

    fn refuse(&self, text: &str) -> Error {
        Error::invalid(format!("invalid value {text:?} for {} (column {:?})", self.dtype, self.name))
    }

    fn data(&self) -> ColumnData<'_> {
        let validity = self.validity.as_deref();
        match self.cell {
            CellLen::Var => ColumnData::Var { offsets: &self.ends, data: &self.values, validity },
            _ => ColumnData::Fixed { values: &self.values, validity },
        }
    }
}

/// Parses a value as printed by `cat`: with unit years, a number is a year, not a count.
pub(super) fn written(dtype: DType, text: &str) -> Option<Scalar> {
    let year = || match dtype {
        DType::DateTime(TimeUnit::Year) => time::parse(text, TimeUnit::Year),
        _ => None,
    };
    match year() {
        Some(count) => Some(Scalar::from_element(count).with_dtype(dtype)),
        None => Scalar::parse(dtype, text).ok(),
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(byte).collect())?
}

/// The columns of a write.
#[derive(Clone, Debug)]
pub(super) struct CsvColumns(Vec<AppendedColumn>);

impl CsvColumns {
    /// One per field.
    pub(super) fn fields(schema: &ArraySchema) -> Self {
        let of_field = |f: &tesseral::Field| {
            let mut column = AppendedColumn::new(&f.name, f.dtype, f.cell, f.nullable);
            column.enumeration.clone_from(&f.enumeration);
            column
        };
        Self(schema.fields.iter().map(of_field).collect())
    }

    /// One per dimension, then one per field.
    pub(super) fn cells(schema: &ArraySchema) -> Self {
        let of_dim = |d: &tesseral::Dimension| {
            let cell = if d.dtype.class() == Class::Text { CellLen::Var } else { CellLen::One };
            AppendedColumn::new(&d.name, d.dtype, cell, false)
        };
        let mut columns: Vec<AppendedColumn> = schema.dims.iter().map(of_dim).collect();
        columns.extend(Self::fields(schema).0);
        Self(columns)
    }

    /// Columns with a single column of existing cells.
    pub(super) fn raw(schema: &ArraySchema, values: Vec<u8>) -> Self {
        let mut columns = Self::fields(schema);
        let cells =
            values.len() / schema.fields.first().and_then(tesseral::Field::cell_size).unwrap_or(1).max(1);
        if let Some(column) = columns.0.first_mut() {
            column.validity = column.validity.take().map(|_| vec![1; cells]);
            column.values = values;
        }
        columns
    }

    /// Adds up to `most` rows, calling `look` with each row and its number; returns the number of rows.
    pub(super) fn fill(
        &mut self,
        reader: &mut CsvFile,
        most: usize,
        look: impl Fn(u64, &CsvRow) -> Result<(), Error>,
    ) -> CliResult<usize> {
        let names: Vec<&str> = self.0.iter().map(|column| column.name.as_str()).collect();
        let places = reader.places(&names)?;
        let mut rows = 0;
        while rows < most {
            let Some(row) = reader.row()? else { break };
            let at = |e: Error| e.hint(format!("line {} of the input", reader.line()));
            look(rows as u64, &row).map_err(at)?;
            for (column, &place) in self.0.iter_mut().zip(&places) {
                let (text, quoted) = row.get(place).map_or(("", false), |(t, q)| (t.as_str(), *q));
                column.push(text, quoted).map_err(at)?;
            }
            rows += 1;
        }
        Ok(rows)
    }

    pub(super) fn data(&self) -> Vec<ColumnData<'_>> {
        self.0.iter().map(AppendedColumn::data).collect()
    }
}
