//! One array of a container.

use tesseral_core::{ArraySchema, Error, Field, Result, Selection, Slice};
use tesseral_engine::{
    Buffer, Cells, Dense, Explained, Handle, Options, Reduced,
    kernel::summary::{Summary, Wanted},
};
use tesseral_format::{ChunkInfo, Column, Request, Target, Totals};
use tesseral_store::Bytes;

use crate::{CellQuery, select};

/// An array. Opening one reads no cell.
#[derive(Clone, Debug)]
pub struct Array {
    handle: Handle,
    options: Options,
    field: u16,
}

impl Array {
    pub(crate) fn new(handle: Handle, options: Options) -> Self {
        Self { handle, options, field: 0 }
    }

    /// What the array is.
    pub fn schema(&self) -> &ArraySchema {
        self.handle.schema()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.schema().name
    }

    /// The engine's view.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// How operations run.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The same array with operations run another way.
    #[must_use]
    pub fn with_options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// The same array, reading another of its fields. Without this, the first field is read.
    ///
    /// # Errors
    /// `NotFound`, with the fields there are.
    pub fn field(mut self, name: &str) -> Result<Self> {
        let number = self.schema().field(name)?;
        self.field =
            u16::try_from(number).map_err(|_| Error::limit("fields", number as u64, u64::from(u16::MAX)))?;
        Ok(self)
    }

    /// The field that is read.
    pub fn selected_field(&self) -> &Field {
        // `field` looked the number up, and an array has a first field.
        &self.schema().fields[usize::from(self.field)]
    }

    /// Its number.
    pub(crate) fn field_number(&self) -> u16 {
        self.field
    }

    /// The same array, reading the field of that number.
    #[must_use]
    pub fn field_at(mut self, number: u16) -> Self {
        self.field = number;
        self
    }

    /// Every cell.
    ///
    /// # Errors
    /// `InvalidRequest` when positions cannot be counted, as in some sparse arrays.
    pub fn all(&self) -> Result<Selection> {
        let shape = self.schema().shape();
        let shape = shape
            .ok_or_else(|| Error::invalid("the array's positions cannot be counted").in_array(self.name()))?;
        Ok(Selection::all(&shape))
    }

    /// Reads a selection from text, one argument per dimension: `time=3:5`, `lat=10..20`, `lon=@12.5`, `0=7`.
    ///
    /// # Errors
    /// `InvalidRequest`, `NotFound`: the argument is named.
    pub fn select<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<Selection> {
        select::parse(self.schema(), arguments)
    }

    /// The positions of a dimension whose coordinates lie between two, both included; `None` leaves a side open. The same as
    /// `dim=low..high` in [`select`](Self::select), for coordinates that are at hand one by one.
    ///
    /// # Errors
    /// `InvalidRequest`, `NotFound`.
    pub fn between(&self, dim: usize, low: Option<&str>, high: Option<&str>) -> Result<Slice> {
        select::between(self.schema(), dim, low, high)
    }

    /// The positions of a dimension at one coordinate: more than one where neighbours share it, or where a date names less
    /// than the coordinates do. The same as `dim=@value` in [`select`](Self::select).
    ///
    /// # Errors
    /// `InvalidRequest`, `NotFound`.
    pub fn at(&self, dim: usize, value: &str) -> Result<Slice> {
        select::value(self.schema(), dim, value)
    }

    /// Reads a selection from text for an array of either kind: positions of a dense one, coordinates of a sparse one.
    ///
    /// # Errors
    /// As [`select`](Self::select).
    pub fn target<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<Target> {
        if self.schema().sparse {
            return select::ranges::parse(self.schema(), arguments).map(Target::Coordinates);
        }
        self.select(arguments).map(Target::Cells)
    }

    /// A field, or else a dimension, by name.
    ///
    /// # Errors
    /// `NotFound`, with the names there are.
    pub fn column(&self, name: &str) -> Result<Column> {
        let schema = self.schema();
        let number =
            |n: usize| u16::try_from(n).map_err(|_| Error::limit("columns", n as u64, u64::from(u16::MAX)));
        if let Ok(field) = schema.field(name) {
            return number(field).map(Column::Field);
        }
        let named = schema.dims.iter().position(|d| !d.name.is_empty() && d.name == name);
        let dim = named.ok_or_else(|| {
            let fields = schema.fields.iter().map(|f| f.name.clone());
            let names = fields.chain(schema.dims.iter().map(|d| d.name.clone())).collect();
            Error::not_found("field or dimension", name, names).in_array(&schema.name)
        })?;
        number(dim).map(Column::Dim)
    }

    /// Cells row by row: coordinates and fields, those that meet a condition. Dense arrays give them too, but sparse ones have
    /// no other form.
    ///
    /// # Errors
    /// `InvalidRequest` when the positions of a dense array cannot be counted.
    pub fn cells(&self) -> Result<CellQuery<'_>> {
        CellQuery::new(self)
    }

    /// A request for this array's field.
    pub fn request(&self, selection: &Selection) -> Request {
        Request::cells(selection.clone(), self.field)
    }

    /// Reads cells, row-major over the selection; a view of the file where its layout allows.
    ///
    /// # Errors
    /// What the plan, the store and the decoders meet; `Limit`.
    pub fn read(&self, selection: &Selection) -> Result<Dense> {
        tesseral_engine::read(&self.handle, &self.request(selection), &self.options)
    }

    /// As [`read`](Self::read), but never as a view of the file.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_owned(&self, selection: &Selection) -> Result<Dense> {
        tesseral_engine::read_owned(&self.handle, &self.request(selection), &self.options)
    }

    /// Reads cells and shows them to `see`, without a copy where the layout of the file allows. When another process cuts the file
    /// meanwhile, what `see` made of them is dropped for an error; cells of [`read`](Self::read) that are a view of the file would end
    /// this process.
    ///
    /// # Errors
    /// As [`read`](Self::read); what `see` returns.
    pub fn read_with<T>(&self, selection: &Selection, see: impl FnOnce(&Dense) -> Result<T>) -> Result<T> {
        tesseral_engine::read_with(&self.handle, &self.request(selection), &self.options, see)
    }

    /// Reads cells of a field that cannot be null into memory that may be changed: never a view of the file. Memory of results that were
    /// dropped is used again.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_buffer(&self, selection: &Selection) -> Result<Buffer> {
        tesseral_engine::read_buffer(&self.handle, &self.request(selection), &self.options)
    }

    /// The cells as a slice of the file itself, digests checked; `None` where the layout does not allow it.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn view(&self, selection: &Selection) -> Result<Option<Bytes>> {
        tesseral_engine::view(&self.handle, &self.request(selection))
    }

    /// Reads cells into memory the caller has.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_into(&self, selection: &Selection, values: &mut [u8]) -> Result<()> {
        tesseral_engine::read_into(&self.handle, &self.request(selection), values, None, &self.options)
    }

    /// Reads cells of a nullable field into memory the caller has: their bytes, and one byte per cell that is 1 where the cell is
    /// valid and 0 where it is null.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_nullable_into(
        &self,
        selection: &Selection,
        values: &mut [u8],
        validity: &mut [u8],
    ) -> Result<()> {
        let request = self.request(selection);
        tesseral_engine::read_into(&self.handle, &request, values, Some(validity), &self.options)
    }

    /// Reads cells that have any length.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_var(&self, selection: &Selection) -> Result<Cells> {
        tesseral_engine::read_var(&self.handle, &self.request(selection), &self.options)
    }

    /// Reads cells that are bits: one byte per cell, 0 or 1.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_bits(&self, selection: &Selection) -> Result<Vec<u8>> {
        tesseral_engine::read_bits(&self.handle, &self.request(selection), &self.options)
    }

    /// Count, nulls, NaN, minimum, maximum, sum, mean, standard deviation: what of it is `wanted`, in one pass.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn summary(&self, selection: &Selection, wanted: Wanted) -> Result<Summary> {
        Ok(tesseral_engine::summarize(&self.handle, &self.request(selection), wanted, &self.options)?.summary)
    }

    /// The same along some axes, one result for each position of the others.
    ///
    /// # Errors
    /// As [`read`](Self::read); `InvalidRequest` when an axis does not exist.
    pub fn reduce(&self, selection: &Selection, axes: &[usize], wanted: Wanted) -> Result<Reduced> {
        tesseral_engine::reduce(&self.handle, &self.request(selection), axes, wanted, &self.options)
    }

    /// The selection cut into boxes, in row-major order, each of which takes at most `bytes` of memory to read.
    ///
    /// # Errors
    /// `InvalidRequest` for fields whose cells have no one size.
    pub fn blocks(&self, selection: &Selection, bytes: u64) -> Result<tesseral_engine::Blocks> {
        tesseral_engine::blocks(&self.handle, &self.request(selection), bytes)
    }

    /// What reading a selection would fetch.
    ///
    /// # Errors
    /// What the plan meets.
    pub fn explain(&self, selection: &Selection) -> Result<Explained> {
        tesseral_engine::explain(&self.handle, &self.request(selection))
    }

    /// How many chunks there are and what they take, over all fields.
    ///
    /// # Errors
    /// What the plan meets, where the format needs one to know.
    pub fn totals(&self) -> Result<Totals> {
        let everything = self.everything()?;
        let totals = self.handle.guarded(|| self.handle.source().totals(&everything));
        totals.map_err(|e| e.in_array(self.name()))
    }

    /// How many cells a target has at most: all positions of a dense array, the cells of all chunks touched of a sparse one.
    ///
    /// # Errors
    /// What the plan meets.
    pub fn cells_at_most(&self, target: &Target) -> Result<u64> {
        if let Target::Cells(selection) = target {
            return Ok(selection.cells().unwrap_or(u64::MAX));
        }
        let request =
            Request { target: target.clone(), columns: vec![Column::Field(self.field)], condition: None };
        let plan = self.handle.guarded(|| self.handle.source().plan(&request));
        let plan = plan.map_err(|e| e.in_array(self.name()))?;
        Ok(plan.chunks.iter().map(|chunk| chunk.cells).fold(0, u64::saturating_add))
    }

    /// A request for every stored column of every cell.
    ///
    /// # Errors
    /// `InvalidRequest` when the positions of a dense array cannot be counted.
    pub fn everything(&self) -> Result<Request> {
        let schema = self.schema();
        let dims = if schema.sparse { schema.dims.len() } else { 0 };
        let columns = (0..).take(schema.fields.len()).map(Column::Field);
        let columns = columns.chain((0..).take(dims).map(Column::Dim)).collect();
        Ok(Request { target: self.target([])?, columns, condition: None })
    }

    /// The chunks that serve a selection, in the format's own words.
    ///
    /// # Errors
    /// What the plan meets.
    pub fn chunks(&self, selection: &Selection) -> Result<Vec<ChunkInfo>> {
        let schema = self.schema();
        let request = match schema.sparse {
            false => self.request(selection),
            true => {
                let target = Target::Coordinates(tesseral_engine::ranges(&schema.dims, selection)?);
                Request { target, columns: vec![Column::Field(self.field)], condition: None }
            }
        };
        self.handle.guarded(|| {
            let plan = self.handle.source().plan(&request).map_err(|e| e.in_array(self.name()))?;
            Ok(plan.chunks.iter().map(|chunk| self.handle.source().describe(chunk)).collect())
        })
    }
}
