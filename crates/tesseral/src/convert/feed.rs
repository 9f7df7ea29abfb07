//! The cells of a new array, taken from the arrays of a source: selected, turned into another dtype, checked for what the
//! target cannot hold.

use tesseral_core::{Coords, DType, Error, Field, Region, Result, Scalar, Selection, Slice};
use tesseral_engine::kernel::cast;
use tesseral_engine::{CellSource, Cells, Options, gaps, read_column, read_stored, spread};
use tesseral_format::{StoredChunk, StoredForm};

use crate::Array;

/// One field of the new array.
#[derive(Clone, Debug)]
pub(crate) struct FeedColumn {
    /// Where its cells come from.
    pub array: Array,
    /// What they become.
    pub dtype: DType,
    /// What becomes of cells that are null, or that nobody wrote.
    pub absent: Absent,
}

/// What becomes of cells that are null, or that nobody wrote.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Absent {
    /// There are none, or they come as the source shows them.
    Kept,
    /// The target has no nulls: one is an error.
    Refused,
    /// They are null.
    Null,
    /// They are this value of the target's dtype, which no other cell may hold.
    Value(Scalar),
}

/// Where the cells of a new array come from.
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    pub columns: Vec<FeedColumn>,
    /// What is taken of each array.
    pub selection: Selection,
    /// Stored bytes may be taken over.
    pub pass_through: bool,
}

impl FeedColumn {
    fn field(&self) -> &Field {
        self.array.selected_field()
    }

    /// Whether cells change on the way.
    pub(crate) fn casts(&self) -> bool {
        self.field().dtype != self.dtype
    }

    fn read(&self, selection: &Selection, column: &mut Cells, options: &Options) -> Result<()> {
        if !self.changes() {
            return self.load(selection, column, options);
        }
        let own = self.load_marked(selection, column.len(), options)?;
        let place = |i: u64| format!("at {:?}", position(selection, i));
        let nulls = self.absent != Absent::Refused;
        *column = fitted(self.field(), self.dtype, nulls, own, place)?;
        if let Absent::Value(value) = &self.absent {
            stand_in(column, value, place)?;
            *column = std::mem::replace(column, Cells::of(self.field())).without_validity();
        }
        Ok(())
    }

    /// Whether cells do not simply come as they are.
    pub(crate) fn changes(&self) -> bool {
        self.casts() || self.absent != Absent::Kept
    }

    /// The cells as the source has them; where absent ones become something, those are null.
    fn load_marked(&self, selection: &Selection, count: usize, options: &Options) -> Result<Cells> {
        let field = self.field();
        let marks = matches!(self.absent, Absent::Null | Absent::Value(_)) && !field.nullable;
        let sparse = self.array.schema().sparse;
        let mut own = Cells::of(&Field { nullable: field.nullable || marks && sparse, ..field.clone() });
        own.reset(count)?;
        self.load(selection, &mut own, options)?;
        if marks && !sparse {
            let written = gaps(self.array.handle(), &self.array.request(selection))?;
            let count = own.len();
            own = own.with_validity(written.unwrap_or_else(|| vec![1; count]))?;
        }
        Ok(own)
    }

    /// The cells as the source has them.
    fn load(&self, selection: &Selection, column: &mut Cells, options: &Options) -> Result<()> {
        let handle = self.array.handle();
        if self.array.schema().sparse {
            return spread(handle, self.array.field_number(), selection, column, options);
        }
        read_column(handle, &self.array.request(selection), column, options)
    }
}

/// Puts a value in the place of nulls; a cell that already holds it is an error.
fn stand_in(cells: &mut Cells, value: &Scalar, place: impl Fn(u64) -> String) -> Result<()> {
    let size = cells.size();
    let filled: Vec<u8> = value.bytes().iter().copied().cycle().take(size).collect();
    // Every NaN means "missing" where one is declared to.
    let nan = value.as_f64().is_some_and(f64::is_nan);
    let dtype = value.dtype();
    let (values, Some(validity)) = cells.parts_mut() else { return Ok(()) };
    for (i, (cell, valid)) in values.chunks_exact_mut(size.max(1)).zip(validity).enumerate() {
        if *valid == 0 {
            cell.copy_from_slice(&filled);
        } else if *cell == *filled
            || nan && Scalar::from_le_bytes(dtype, cell)?.as_f64().is_some_and(f64::is_nan)
        {
            let what =
                format!("the cell {} which holds {value}, beside cells that are not there", place(i as u64));
            return Err(Error::unsupported(what).hint("give another value for those: --fill VALUE"));
        }
    }
    Ok(())
}

/// Cells as the target has them; the first that it cannot hold is named with its place.
pub(crate) fn fitted(
    field: &Field,
    dtype: DType,
    nulls: bool,
    mut cells: Cells,
    place: impl Fn(u64) -> String,
) -> Result<Cells> {
    if let (Some(validity), false) = (cells.validity(), nulls) {
        if let Some(i) = validity.iter().position(|valid| *valid == 0) {
            let feature = format!("the null {} in a format without nulls", place(i as u64));
            return Err(Error::unsupported(feature).hint("give a value for nulls: --fill VALUE"));
        }
        cells = cells.without_validity();
    }
    if field.dtype == dtype {
        return Ok(cells);
    }
    let Some(size) = field.cell_size() else {
        return Err(Error::unsupported(format!("{} as {dtype}", field.type_name())));
    };
    let mut out = Cells::of(&Field { dtype, nullable: cells.validity().is_some(), ..field.clone() });
    out.reset(cells.len())?;
    let ((raw, valid), (values, validity)) = (cells.parts_mut(), out.parts_mut());
    if let (Some(to), Some(from)) = (validity, valid.as_deref()) {
        to.copy_from_slice(from);
    }
    // What lies under a null is no value: it need not fit.
    let valid = valid.as_deref().unwrap_or_default();
    for (cell, _) in raw.chunks_exact_mut(size).zip(valid).filter(|(_, valid)| **valid == 0) {
        cell.fill(0);
    }
    match cast::cast(field.dtype, raw, dtype, values)? {
        None => Ok(out),
        Some(i) => {
            let value = raw.get(i * size..(i + 1) * size).unwrap_or_default();
            let value = Scalar::from_le_bytes(field.dtype, value)?;
            Err(Error::unsupported(format!("{value} {} as {dtype}", place(i as u64))))
        }
    }
}

/// The position in the array of a cell of a selection.
pub(crate) fn position(selection: &Selection, mut cell: u64) -> Coords {
    let shape = selection.shape();
    let mut at = Coords::from_elem(0, shape.len());
    for d in (0..shape.len()).rev() {
        let n = shape[d].max(1);
        let slice = selection.slices()[d];
        at[d] = slice.start + cell % n * slice.step;
        cell /= n;
    }
    at
}

impl Feed {
    /// What of the source a box of the new array is.
    pub(crate) fn source_of(&self, region: &Region) -> Result<Selection> {
        let slices =
            self.selection.slices().iter().zip(region.bounds()).map(|(slice, &(start, end))| Slice {
                start: slice.start + start * slice.step,
                end: (slice.start + end.saturating_sub(1) * slice.step + 1).min(slice.end),
                step: slice.step,
            });
        let bounds: Vec<u64> = self.selection.slices().iter().map(|s| s.end).collect();
        Selection::new(slices, &bounds)
    }
}

impl CellSource for Feed {
    fn read(&self, region: &Region, columns: &mut [Cells], options: &Options) -> Result<()> {
        let selection = self.source_of(region)?;
        for (feed, column) in self.columns.iter().zip(columns) {
            feed.read(&selection, column, options).map_err(|e| e.in_array(feed.array.name()))?;
        }
        Ok(())
    }

    fn stored(&self, region: &Region, adopts: &dyn Fn(StoredForm) -> bool) -> Result<Option<StoredChunk>> {
        let [column] = self.columns.as_slice() else { return Ok(None) };
        if !self.pass_through {
            return Ok(None);
        }
        read_stored(column.array.handle(), &self.source_of(region)?.bounds(), adopts)
    }
}
