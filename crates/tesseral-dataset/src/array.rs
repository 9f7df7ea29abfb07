//! Arrays of a container.

use std::borrow::Cow;

use tesseral_core::calendar::TimeUnits;
use tesseral_core::packing::Packing;
use tesseral_core::{ArraySchema, Attributes, Error, Field, Result, Selection, Slice};
use tesseral_engine::fold;
use tesseral_engine::{Cells, Dense, Explained, Handle, Options, Reduced, StatSet, Summary};
use tesseral_format::convention;
use tesseral_format::{ChunkInfo, Column, Request, Target, Totals};
use tesseral_store::Bytes;

use crate::labels::PendingLabels;
use crate::{CellQuery, select};

/// An array. Opening one does not read cells.
///
/// There are three ways to read fixed-size cells: [`read`](Self::read) returns them, [`read_into`](Self::read_into) fills memory of
/// the caller, and [`read_with`](Self::read_with) passes them to a function without a copy. [`read_var`](Self::read_var) reads
/// variable-length cells, and [`cells`](Self::cells) rows of dense and sparse arrays. [`view`](Self::view) returns stored bytes
/// without a copy, or nothing.
///
/// ```
/// # fn main() -> Result<(), tesseral::Error> {
/// # use tesseral::{ArraySchema, ArraySpec, Create, DType};
/// # let path = std::env::temp_dir().join(format!("tesseral-doc-array-{}.tet", std::process::id()));
/// # let mut session = Create::new().overwrite().begin(&path, "")?;
/// # let sst = session.add(&ArraySpec::raw(ArraySchema::dense("sst", DType::Float32, &[3, 2], &[3, 2])))?;
/// # session.write(sst, &(0..6_u8).flat_map(|n| f32::from(n).to_ne_bytes()).collect::<Vec<u8>>())?;
/// # session.commit()?;
/// let sst = tesseral::open(&path)?.array("sst")?;
/// let rows = sst.read(&sst.select(["0=1:3"])?)?;
/// assert_eq!(rows.shape[..], [2, 2]);
/// # std::fs::remove_file(path).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Array {
    handle: Handle,
    options: Options,
    field: u16,
    /// Labels of dimensions that were not read yet.
    pending: Option<PendingLabels>,
    /// It is the whole container, whose path is its name.
    whole: bool,
}

impl Array {
    pub(crate) fn new(handle: Handle, options: Options) -> Self {
        Self { handle, options, field: 0, pending: None, whole: false }
    }

    /// Returns the array as the only one of its container.
    pub(crate) fn with_whole(mut self, whole: bool) -> Self {
        self.whole = whole;
        self
    }

    /// Schema of the array.
    pub fn schema(&self) -> &ArraySchema {
        self.handle.schema()
    }

    /// Returns the array with labels that are read on demand.
    pub(crate) fn with_pending(mut self, pending: Option<PendingLabels>) -> Self {
        self.pending = pending;
        self
    }

    /// Returns the array, whose numbers count time.
    pub(crate) fn counting(mut self, units: TimeUnits) -> Self {
        self.handle = self.handle.with_source(|source| convention::counting(source, units));
        self
    }

    /// Returns the array with the labels of those index coordinates that are small and readable.
    pub(crate) fn with_small_labels(self) -> Result<Self> {
        self.read_labels(|_| true, true)
    }

    /// Returns whether a dimension has labels, read or not.
    pub fn has_labels(&self, dim: usize) -> bool {
        self.schema().dims.get(dim).is_some_and(|dim| dim.labels.is_some())
            || self.pending.as_ref().is_some_and(|pending| pending.has(dim))
    }

    /// Returns the array with the labels of some dimensions in its schema.
    ///
    /// # Errors
    /// `Limit` if they exceed the memory; errors of reading.
    pub fn labeled(&self, wanted: impl Fn(usize) -> bool) -> Result<Cow<'_, Self>> {
        match &self.pending {
            Some(pending) if (0..self.schema().dims.len()).any(|d| wanted(d) && pending.has(d)) => {
                self.clone().read_labels(wanted, false).map(Cow::Owned)
            }
            _ => Ok(Cow::Borrowed(self)),
        }
    }

    fn read_labels(mut self, wanted: impl Fn(usize) -> bool, small: bool) -> Result<Self> {
        let Some(pending) = self.pending.take() else { return Ok(self) };
        let (mut labels, rest) = pending.read(wanted, small)?;
        self.pending = rest;
        labels.retain(|(d, labels)| Some(labels.labels.len() as u64) == self.schema().dims[*d].extent);
        if !labels.is_empty() {
            self.handle = self.handle.with_source(|source| convention::labeled(source, labels));
        }
        Ok(self)
    }

    /// Name of the variable: the user-defined name if the array is numbered, that of the field if the array is the whole container
    /// and has one field, else the name of the array.
    pub fn variable_name(&self) -> &str {
        let named = match self.schema().fields.as_slice() {
            [field] if self.whole && !field.name.is_empty() => Some(field.name.as_str()),
            _ => self.handle.source().given_name(),
        };
        named.unwrap_or_else(|| self.name())
    }

    /// Name of the variable that a field is: [`variable_name`](Self::variable_name), with the name of the field if there are several.
    /// The fields of an array that is the whole container have only their own names.
    pub fn field_variable(&self, field: &Field) -> String {
        match self.schema().fields.len() {
            0 | 1 => self.variable_name().to_owned(),
            _ if self.whole => field.name.clone(),
            _ => format!("{}/{}", self.variable_name(), field.name),
        }
    }

    /// Whether the array is the whole container.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Attributes of the array, without derived ones.
    pub fn attributes(&self) -> Attributes {
        let mut attributes = self.stored_attributes();
        crate::variable::bring_back(&mut attributes);
        attributes
    }

    /// As [`attributes`](Self::attributes), with the names under which reserved ones are stored.
    pub(crate) fn stored_attributes(&self) -> Attributes {
        let source = self.handle.source();
        let mut attributes = self.schema().attributes.clone();
        attributes.retain(|name, _| !source.derived_attributes().contains(&name.as_str()));
        attributes
    }

    /// Attributes of the selected field: its own, and those that all fields of the array share. Without those of the container.
    pub fn field_attributes(&self) -> Attributes {
        let prefix = self.schema().field_attributes;
        let stored = self.stored_attributes();
        let mut attributes = crate::variable::of_field(&stored, prefix, &self.selected_field().name);
        crate::variable::lift(&mut attributes, &mut Attributes::new());
        crate::variable::bring_back(&mut attributes);
        attributes
    }

    /// Attributes of the container that are stored with the array, as in files of earlier versions.
    pub fn container_attributes(&self) -> Attributes {
        let mut lifted = Attributes::new();
        crate::variable::lift(&mut self.stored_attributes(), &mut lifted);
        lifted
    }

    /// Name of the array.
    pub fn name(&self) -> &str {
        &self.schema().name
    }

    /// The engine's handle of the array.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The same array with physical values in its packed fields, which become `float32` or `float64`.
    #[must_use]
    pub fn physical(mut self) -> Self {
        self.handle = self.handle.physical();
        self
    }

    /// The packing of each packed field by name; empty when stored values are read.
    pub fn packings(&self) -> &[(String, Packing)] {
        self.handle.packings()
    }

    /// Options of operations.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the array with other options.
    #[must_use]
    pub fn with_options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Returns the array with another selected field. The first field is the default.
    ///
    /// # Errors
    /// `NotFound`, with the available fields.
    pub fn field(mut self, name: &str) -> Result<Self> {
        let number = self.schema().field(name)?;
        self.field =
            u16::try_from(number).map_err(|_| Error::limit("fields", number as u64, u64::from(u16::MAX)))?;
        Ok(self)
    }

    /// The selected field.
    pub fn selected_field(&self) -> &Field {
        // `field` and `field_at` validated the index, and an array has at least one field.
        &self.schema().fields[usize::from(self.field)]
    }

    /// Index of the selected field.
    pub fn field_number(&self) -> u16 {
        self.field
    }

    /// Returns the array with a field selected by index.
    ///
    /// # Errors
    /// `InvalidRequest` if the array has fewer fields.
    pub fn field_at(mut self, number: u16) -> Result<Self> {
        let fields = self.schema().fields.len();
        if usize::from(number) >= fields {
            let detail = format!("field {number} is out of range: the array has {fields}");
            return Err(Error::invalid(detail).in_array(self.name()));
        }
        self.field = number;
        Ok(self)
    }

    /// Returns a selection of all cells.
    ///
    /// # Errors
    /// `InvalidRequest` if positions are not countable, as in some sparse arrays.
    pub fn all(&self) -> Result<Selection> {
        let shape = self.schema().shape();
        let shape = shape.ok_or_else(|| {
            Error::invalid("the positions of the array are not countable").in_array(self.name())
        })?;
        Ok(Selection::all(&shape))
    }

    /// Parses a selection, one argument per dimension: `time=3:5`, `lat=10..20`, `lon=@12.5`, `0=7`.
    ///
    /// # Errors
    /// `InvalidRequest`, `NotFound`, with the argument. `InvalidRequest` for a range across the end of a cyclic axis, which is
    /// not a box of the array: [`narrowed`](Self::narrowed) serves it.
    pub fn select<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<Selection> {
        let (array, selection) = self.narrowed(arguments)?;
        match self.schema().shape() == array.schema().shape() {
            true => Ok(selection),
            false => {
                let detail = "the range crosses the end of a cyclic axis, so it is not a contiguous range of positions";
                Err(Error::invalid(detail).in_array(self.name()))
            }
        }
    }

    /// Parses a selection as [`select`](Self::select), and returns it with the array that it selects from. That is this array,
    /// unless a range crosses the end of a cyclic axis (`lon=-10..10` of longitudes from 0 to 359): then the axis of the returned
    /// array continues at its start, and the range is one box of it. Labels and coordinates are the stored ones.
    ///
    /// # Errors
    /// `InvalidRequest`, `NotFound`, with the argument.
    pub fn narrowed<'a>(
        &self,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Result<(Cow<'_, Self>, Selection)> {
        let arguments: Vec<&str> = arguments.into_iter().collect();
        let by_coordinate = select::by_coordinate(self.schema(), &arguments);
        let labeled = self.labeled(|d| by_coordinate.contains(&d))?;
        let (selection, axes) = select::parse(labeled.schema(), arguments)?;
        if axes.is_empty() {
            return Ok((Cow::Borrowed(self), selection));
        }
        Ok((Cow::Owned(labeled.into_owned().continued(&axes)?), selection))
    }

    /// The array with axes that continue at their start for one turn: position `extent + i` is position `i`.
    ///
    /// # Errors
    /// `InvalidRequest` if the array is sparse or an axis does not exist; errors of reading labels.
    pub fn continued(&self, axes: &[usize]) -> Result<Self> {
        let mut array = self.labeled(|d| axes.contains(&d))?.into_owned();
        array.handle = array.handle.continued(axes)?;
        Ok(array)
    }

    /// Returns the positions of a dimension between two coordinates, both included; `None` is unbounded. The same as
    /// `dim=low..high` in [`narrowed`](Self::narrowed): positions from the extent on are those of the axis
    /// [continued](Self::continued) at its start.
    ///
    /// # Errors
    /// `InvalidRequest`, `NotFound`.
    pub fn between(&self, dim: usize, low: Option<&str>, high: Option<&str>) -> Result<Slice> {
        select::between(self.labeled(|d| d == dim)?.schema(), dim, low, high)
    }

    /// Returns the positions of a dimension at one coordinate: several if adjacent positions share it, or for a partial date.
    /// The same as `dim=@value` in [`select`](Self::select).
    ///
    /// # Errors
    /// `InvalidRequest`, `NotFound`.
    pub fn at(&self, dim: usize, value: &str) -> Result<Slice> {
        select::value(self.labeled(|d| d == dim)?.schema(), dim, value)
    }

    /// Returns which of some positions of a dimension have the coordinates nearest to some values; of two at the same distance,
    /// that of the larger one. The same as `dim=~value` in [`select`](Self::select). Positions from the extent on are those of a
    /// cyclic dimension [continued](Self::continued) at its start.
    ///
    /// # Errors
    /// `InvalidRequest`, `NotFound`.
    pub fn nearest(&self, dim: usize, values: &[String], among: Slice) -> Result<Vec<u64>> {
        select::nearest(self.labeled(|d| d == dim)?.schema(), dim, values, among)
    }

    /// Parses a selection of an array of either kind: positions of a dense one as in [`narrowed`](Self::narrowed), coordinates of a
    /// sparse one.
    ///
    /// # Errors
    /// As [`narrowed`](Self::narrowed).
    pub fn target<'a>(
        &self,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Result<(Cow<'_, Self>, Target)> {
        if self.schema().sparse {
            let ranges = select::ranges::parse(self.schema(), arguments)?;
            return Ok((Cow::Borrowed(self), Target::Coordinates(ranges)));
        }
        let (array, selection) = self.narrowed(arguments)?;
        Ok((array, Target::Cells(selection)))
    }

    /// Resolves a field, or else a dimension, by name.
    ///
    /// # Errors
    /// `NotFound`, with the available names.
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

    /// Returns a query of cells as rows: coordinates and fields that match a condition. Supports dense and sparse arrays.
    ///
    /// # Errors
    /// `InvalidRequest` if the positions of a dense array are not countable.
    pub fn cells(&self) -> Result<CellQuery<'_>> {
        CellQuery::new(self)
    }

    /// Returns a request for the selected field.
    pub fn request(&self, selection: &Selection) -> Request {
        Request::cells(selection.clone(), self.field)
    }

    /// Reads cells, row-major over the selection; a view of the file if its layout allows it.
    ///
    /// ```
    /// # fn main() -> Result<(), tesseral::Error> {
    /// # use tesseral::{ArraySchema, ArraySpec, Create, DType};
    /// # let path = std::env::temp_dir().join(format!("tesseral-doc-read-{}.tet", std::process::id()));
    /// # let mut session = Create::new().overwrite().begin(&path, "")?;
    /// # let mut schema = ArraySchema::dense("height", DType::Int32, &[4, 6], &[2, 6]);
    /// # (schema.dims[0].name, schema.dims[1].name) = ("y".to_owned(), "x".to_owned());
    /// # let height = session.add(&ArraySpec::raw(schema))?;
    /// # session.write(height, &(0..24).flat_map(i32::to_ne_bytes).collect::<Vec<u8>>())?;
    /// # session.commit()?;
    /// let height = tesseral::open(&path)?.array("height")?;
    /// let row = height.read(&height.select(["y=1"])?)?;
    /// assert_eq!(row.shape[..], [1, 6]);
    /// assert_eq!(row.bytes()[..4], 6_i32.to_ne_bytes());
    /// # std::fs::remove_file(path).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Errors of the plan, the store and the decoders; `Limit`.
    pub fn read(&self, selection: &Selection) -> Result<Dense> {
        tesseral_engine::read(&self.handle, &self.request(selection), &self.options)
    }

    /// Reads cells and passes them to `visit`, without a copy if the layout of the file allows it. If another process truncates
    /// the file meanwhile, the result of `visit` is replaced by an error; accessing a view of [`read`](Self::read) would end the
    /// process.
    ///
    /// ```
    /// # fn main() -> Result<(), tesseral::Error> {
    /// # use tesseral::{ArraySchema, ArraySpec, Create, DType};
    /// # let path = std::env::temp_dir().join(format!("tesseral-doc-with-{}.tet", std::process::id()));
    /// # let mut session = Create::new().overwrite().begin(&path, "")?;
    /// # let mut schema = ArraySchema::dense("height", DType::Int32, &[4, 6], &[2, 6]);
    /// # (schema.dims[0].name, schema.dims[1].name) = ("y".to_owned(), "x".to_owned());
    /// # let height = session.add(&ArraySpec::raw(schema))?;
    /// # session.write(height, &(0..24).flat_map(i32::to_ne_bytes).collect::<Vec<u8>>())?;
    /// # session.commit()?;
    /// let height = tesseral::open(&path)?.array("height")?;
    /// let bytes = height.read_with(&height.all()?, |cells| Ok(cells.bytes().len()))?;
    /// assert_eq!(bytes, 4 * 6 * 4);
    /// # std::fs::remove_file(path).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`read`](Self::read); errors of `visit`.
    pub fn read_with<T>(&self, selection: &Selection, visit: impl FnOnce(&Dense) -> Result<T>) -> Result<T> {
        tesseral_engine::read_with(&self.handle, &self.request(selection), &self.options, visit)
    }

    /// Returns the cells as a slice of the file after verifying digests; `None` if the layout does not allow it.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn view(&self, selection: &Selection) -> Result<Option<Bytes>> {
        tesseral_engine::view(&self.handle, &self.request(selection))
    }

    /// Reads cells into memory of the caller: their bytes and, on request, one byte per cell that is 1 where the cell is valid and
    /// 0 where it is missing. A nullable field requires the latter.
    ///
    /// ```
    /// # fn main() -> Result<(), tesseral::Error> {
    /// # use tesseral::{ArraySchema, ArraySpec, Create, DType};
    /// # let path = std::env::temp_dir().join(format!("tesseral-doc-into-{}.tet", std::process::id()));
    /// # let mut session = Create::new().overwrite().begin(&path, "")?;
    /// # let mut schema = ArraySchema::dense("height", DType::Int32, &[4, 6], &[2, 6]);
    /// # (schema.dims[0].name, schema.dims[1].name) = ("y".to_owned(), "x".to_owned());
    /// # let height = session.add(&ArraySpec::raw(schema))?;
    /// # session.write(height, &(0..24).flat_map(i32::to_ne_bytes).collect::<Vec<u8>>())?;
    /// # session.commit()?;
    /// let height = tesseral::open(&path)?.array("height")?;
    /// let mut column = vec![0; 4 * 4];
    /// height.read_into(&height.select(["x=2"])?, &mut column, None)?;
    /// assert_eq!(column[4..8], 8_i32.to_ne_bytes());
    /// # std::fs::remove_file(path).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_into(
        &self,
        selection: &Selection,
        values: &mut [u8],
        validity: Option<&mut [u8]>,
    ) -> Result<()> {
        let (field, request) = (self.selected_field(), self.request(selection));
        let Some(validity) = validity else {
            return tesseral_engine::read_into(&self.handle, &request, values, None, &self.options);
        };
        validity.fill(1);
        let stored = field.nullable.then_some(&mut *validity);
        tesseral_engine::read_into(&self.handle, &request, values, stored, &self.options)?;
        let written = tesseral_engine::gaps(&self.handle, &request)?;
        let found = tesseral_engine::validity(field, values, Some(validity), written.as_deref());
        if let Some(Cow::Owned(found)) = found {
            validity.copy_from_slice(&found);
        }
        Ok(())
    }

    /// Returns whether a selection of a dense array can contain cells that match a condition on its fields, by the statistics of its
    /// chunks. Reads no cells: `true` does not promise any.
    ///
    /// ```
    /// # fn main() -> Result<(), tesseral::Error> {
    /// # use tesseral::{ArraySchema, ArraySpec, Create, DType};
    /// # let path = std::env::temp_dir().join(format!("tesseral-doc-match-{}.tet", std::process::id()));
    /// # let mut session = Create::new().overwrite().statistics().begin(&path, "")?;
    /// # let mut schema = ArraySchema::dense("height", DType::Int32, &[4, 6], &[2, 6]);
    /// # (schema.dims[0].name, schema.dims[1].name) = ("y".to_owned(), "x".to_owned());
    /// # let height = session.add(&ArraySpec::raw(schema))?;
    /// # session.write(height, &(0..24).flat_map(i32::to_ne_bytes).collect::<Vec<u8>>())?;
    /// # session.commit()?;
    /// let height = tesseral::open(&path)?.array("height")?;
    /// assert!(height.may_match(&height.all()?, "height > 20")?);
    /// assert!(!height.may_match(&height.select(["y=0:2"])?, "height > 20")?);
    /// # std::fs::remove_file(path).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidRequest` for a syntax error and for sparse arrays; `NotFound` for unknown names.
    pub fn may_match(&self, selection: &Selection, condition: &str) -> Result<bool> {
        let schema = self.schema();
        if schema.sparse {
            return Err(
                Error::invalid("conditions of sparse arrays are tested cell by cell").in_array(self.name())
            );
        }
        let request =
            Request { condition: Some(crate::filter::parse(schema, condition)?), ..self.request(selection) };
        Ok(tesseral_engine::may_hold(&self.handle, &request, selection))
    }

    /// Returns whether cells of a selection of a dense array are unwritten.
    ///
    /// # Errors
    /// Errors of the plan.
    pub fn has_gaps(&self, selection: &Selection) -> Result<bool> {
        tesseral_engine::has_gaps(&self.handle, &self.request(selection))
    }

    /// Reads variable-length cells, missing ones with validity 0.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_var(&self, selection: &Selection) -> Result<Cells> {
        tesseral_engine::read_valid_var(&self.handle, &self.request(selection), &self.options)
    }

    /// Computes the `wanted` statistics in one pass: count, nulls, NaN, minimum, maximum, sum, mean, standard deviation.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn summary(&self, selection: &Selection, wanted: StatSet) -> Result<Summary> {
        Ok(fold::summary(&self.handle, &self.request(selection), wanted, &self.options)?.summary)
    }

    /// As [`summary`](Self::summary) along some axes, with one result for each position of the others.
    ///
    /// # Errors
    /// As [`read`](Self::read); `InvalidRequest` if an axis does not exist.
    pub fn reduce(&self, selection: &Selection, axes: &[usize], wanted: StatSet) -> Result<Reduced> {
        tesseral_engine::reduce(&self.handle, &self.request(selection), axes, wanted, &self.options)
    }

    /// Divides the selection into boxes in row-major order, each of which needs at most `bytes` of memory to read.
    ///
    /// # Errors
    /// `InvalidRequest` for variable-length fields.
    pub fn blocks(&self, selection: &Selection, bytes: u64) -> Result<tesseral_engine::Blocks> {
        tesseral_engine::blocks(&self.handle, &self.request(selection), bytes)
    }

    /// Returns what reading a selection would fetch.
    ///
    /// # Errors
    /// Errors of the plan.
    pub fn explain(&self, selection: &Selection) -> Result<Explained> {
        tesseral_engine::explain(&self.handle, &self.request(selection))
    }

    /// Number and size of the chunks, over all fields.
    ///
    /// # Errors
    /// Errors of the plan, if the format needs one.
    pub fn totals(&self) -> Result<Totals> {
        let everything = self.everything()?;
        let totals = self.handle.guarded(|| self.handle.totals(&everything));
        totals.map_err(|e| e.in_array(self.name()))
    }

    /// Upper bound of the number of cells of a target: all positions of a dense array, the cells of all touched chunks of a
    /// sparse one.
    ///
    /// # Errors
    /// Errors of the plan.
    pub fn cells_at_most(&self, target: &Target) -> Result<u64> {
        if let Target::Cells(selection) = target {
            return Ok(selection.cells().unwrap_or(u64::MAX));
        }
        let request =
            Request { target: target.clone(), columns: vec![Column::Field(self.field)], condition: None };
        let plan = self.handle.guarded(|| self.handle.plan(&request));
        let plan = plan.map_err(|e| e.in_array(self.name()))?;
        Ok(plan.chunks.iter().map(|chunk| chunk.cells).fold(0, u64::saturating_add))
    }

    /// Returns a request for every stored column of every cell.
    ///
    /// # Errors
    /// `InvalidRequest` if the positions of a dense array are not countable.
    pub fn everything(&self) -> Result<Request> {
        let schema = self.schema();
        let dims = if schema.sparse { schema.dims.len() } else { 0 };
        let columns = (0..).take(schema.fields.len()).map(Column::Field);
        let columns = columns.chain((0..).take(dims).map(Column::Dim)).collect();
        Ok(Request { target: self.target([])?.1, columns, condition: None })
    }

    /// Describes the chunks that serve a selection, in the format's terms.
    ///
    /// # Errors
    /// Errors of the plan.
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
            let plan = self.handle.plan(&request)?;
            Ok(plan.chunks.iter().map(|chunk| self.handle.source().describe(chunk)).collect())
        })
    }
}
