//! Cells of a new array from the arrays of a source: selected, cast, and checked for values that the target cannot store.

use tesseral_core::{
    Advice, CellLen, Coords, DType, Error, Field, Limits, Region, Result, Scalar, Selection, Slice, alloc,
    missing,
};
use tesseral_engine::kernel::cast;
use tesseral_engine::{CellSource, Cells, Options, gaps, read_column, read_stored, scatter_cells};
use tesseral_format::convention::TextExtent;
use tesseral_format::{StoredChunk, StoredForm};

use tesseral_dataset::Array;

/// One field of the new array.
#[derive(Clone, Debug)]
pub(crate) struct FeedColumn {
    /// Source of its cells.
    pub array: Array,
    /// Target dtype.
    pub dtype: DType,
    /// Treatment of null and unwritten cells.
    pub absent: MissingPolicy,
    /// Declared missing values of the source that become other values, which no valid cell can have.
    pub replaced: Vec<(Scalar, Scalar)>,
}

/// Treatment of null and unwritten cells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MissingPolicy {
    /// There are none, or they are unchanged.
    Preserve,
    /// The target has no nulls: return an error.
    Reject,
    /// They become null.
    Null,
    /// They get this value of the target's dtype, which no other cell can have.
    Value(Scalar),
}

/// Source of the cells of a new array.
#[derive(Clone, Debug)]
pub(crate) struct CellFeed {
    pub columns: Vec<FeedColumn>,
    /// Selection of each array.
    pub selection: Selection,
    /// Whether stored bytes can be copied.
    pub pass_through: bool,
}

impl FeedColumn {
    fn field(&self) -> &Field {
        self.array.selected_field()
    }

    /// Returns whether cells are converted.
    pub(crate) fn casts(&self) -> bool {
        self.field().dtype != self.dtype
    }

    fn read(&self, selection: &Selection, column: &mut Cells, options: &Options) -> Result<()> {
        if !self.changes() {
            return self.load(selection, column, options);
        }
        let mut own = self.load_marked(selection, column.len(), options)?;
        let place = |i: u64| format!("at {:?}", position(selection, i));
        let nulls = self.absent != MissingPolicy::Reject;
        let marks = self.take_declared(&mut own)?;
        *column = fitted(self.field(), self.dtype, nulls, own, place)?;
        self.put_declared(&marks, column, place)?;
        if let MissingPolicy::Value(value) = &self.absent {
            // A cell that was missing before may hold it.
            let declared =
                self.is_declared(value) || self.replaced.iter().any(|(_, new)| missing::same(new, value));
            match self.field().cell {
                CellLen::Var => {
                    stand_in_texts(column, value, declared, self.array.handle().limits(), place)?;
                }
                _ => stand_in(column, value, declared, place)?,
            }
            *column = std::mem::replace(column, Cells::for_field(self.field())).without_validity();
        }
        Ok(())
    }

    /// Returns whether cells are converted or checked.
    pub(crate) fn changes(&self) -> bool {
        self.casts() || self.absent != MissingPolicy::Preserve || !self.replaced.is_empty()
    }

    /// Properties of the converted cells, for a format that stores variable-length cells in another layout.
    pub(crate) fn text_extent(&self, selection: &Selection) -> Result<TextExtent> {
        let mut cells = Cells::for_field(self.field());
        let count = usize::try_from(selection.cells().unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        cells.reset(count)?;
        self.read(selection, &mut cells, self.array.options())?;
        let mut extent = TextExtent::default();
        (0..cells.len()).for_each(|i| extent.add(cells.get(i)));
        Ok(extent)
    }

    /// Zeroes the cells that hold a replaced value, so that every cast holds them. Returns the replacement of each cell: its index
    /// plus one, or 0.
    fn take_declared(&self, cells: &mut Cells) -> Result<Vec<u8>> {
        if self.replaced.is_empty() {
            return Ok(Vec::new());
        }
        let (dtype, size) = (self.field().dtype, cells.size().max(1));
        let mut marks = alloc::filled("replaced cells", 0, cells.len())?;
        let (values, _) = cells.parts_mut();
        for (cell, mark) in values.chunks_exact_mut(size).zip(&mut marks) {
            let value = Scalar::from_le_bytes(dtype, cell)?;
            if let Some(i) = self.replaced.iter().position(|(old, _)| missing::same(old, &value)) {
                *mark = u8::try_from(i + 1).unwrap_or(u8::MAX);
                cell.fill(0);
            }
        }
        Ok(marks)
    }

    /// Writes the replacements of [`take_declared`](Self::take_declared); fails if another cell has one of these values.
    fn put_declared(&self, marks: &[u8], cells: &mut Cells, place: impl Fn(u64) -> String) -> Result<()> {
        let size = cells.size().max(1);
        let (values, mut validity) = cells.parts_mut();
        for (i, (cell, mark)) in values.chunks_exact_mut(size).zip(marks).enumerate() {
            if let Some((_, new)) = usize::from(*mark).checked_sub(1).and_then(|n| self.replaced.get(n)) {
                cell.copy_from_slice(new.bytes());
                continue;
            }
            let valid = validity.as_deref_mut().is_none_or(|validity| validity[i] != 0);
            let value = Scalar::from_le_bytes(self.dtype, cell)?;
            if valid
                && self.replaced.iter().any(|(_, new)| missing::same(new, &value))
                && !self.is_declared(&value)
            {
                let what = format!(
                    "the cell {} already holds {value}, the value for missing cells",
                    place(i as u64)
                );
                return Err(Error::unsupported(what));
            }
        }
        Ok(())
    }

    /// Returns whether a value of the target's dtype was declared before.
    fn is_declared(&self, value: &Scalar) -> bool {
        self.field().missing.iter().any(|known| known.dtype() == value.dtype() && missing::same(known, value))
    }

    /// Reads cells of the source; absent cells become null if they are replaced.
    fn load_marked(&self, selection: &Selection, count: usize, options: &Options) -> Result<Cells> {
        let field = self.field();
        let marks = matches!(self.absent, MissingPolicy::Null | MissingPolicy::Value(_)) && !field.nullable;
        let sparse = self.array.schema().sparse;
        let mut own =
            Cells::for_field(&Field { nullable: field.nullable || marks && sparse, ..field.clone() });
        own.reset(count)?;
        self.load(selection, &mut own, options)?;
        if marks && !sparse {
            let written = gaps(self.array.handle(), &self.array.request(selection))?;
            let count = own.len();
            own = own.with_validity(written.unwrap_or_else(|| vec![1; count]))?;
        }
        Ok(own)
    }

    /// Reads cells of the source.
    fn load(&self, selection: &Selection, column: &mut Cells, options: &Options) -> Result<()> {
        let handle = self.array.handle();
        if self.array.schema().sparse {
            return scatter_cells(handle, self.array.field_number(), selection, column, options);
        }
        read_column(handle, &self.array.request(selection), column, options)
    }
}

/// The error for a cell that has the value which replaces missing cells.
fn value_in_use(place: &str, value: &Scalar) -> Error {
    let what = format!("the cell {place} already holds {value}, the value for missing cells");
    Error::unsupported(what).hint(Advice::OtherFillValue)
}

/// Replaces nulls by a value; fails if a cell already has it.
fn stand_in(cells: &mut Cells, value: &Scalar, declared: bool, place: impl Fn(u64) -> String) -> Result<()> {
    let size = cells.size();
    let filled: Vec<u8> = value.bytes().iter().copied().cycle().take(size).collect();
    // Numbers are compared by value: every NaN is missing if one is declared, and −0.0 if 0.0 is.
    let numeric = value.as_f64().is_some_and(|v| v.is_nan() || v == 0.0);
    let dtype = value.dtype();
    let (values, Some(validity)) = cells.parts_mut() else { return Ok(()) };
    for (i, (cell, valid)) in values.chunks_exact_mut(size.max(1)).zip(validity).enumerate() {
        if *valid == 0 {
            cell.copy_from_slice(&filled);
        } else if !declared
            && (*cell == *filled || numeric && missing::same(&Scalar::from_le_bytes(dtype, cell)?, value))
        {
            return Err(value_in_use(&place(i as u64), value));
        }
    }
    Ok(())
}

/// As [`stand_in`] for variable-length cells.
fn stand_in_texts(
    cells: &mut Cells,
    value: &Scalar,
    declared: bool,
    limits: &Limits,
    place: impl Fn(u64) -> String,
) -> Result<()> {
    let Some(validity) = cells.validity() else { return Ok(()) };
    let own = value.bytes();
    let (count, stored) = (cells.len(), cells.data().len());
    let absent = validity.iter().filter(|valid| **valid == 0).count();
    let bytes = absent.saturating_mul(own.len()).saturating_add(stored);
    limits.check_held("missing values", bytes as u64, (stored + count) as u64)?;
    let mut out = cells.part(0..0);
    out.try_reserve(count, bytes)?;
    for i in 0..count {
        let (cell, valid) = (cells.get(i), cells.is_valid(i));
        if valid && !declared && cell == own {
            return Err(value_in_use(&place(i as u64), value));
        }
        out.push(if valid { cell } else { own }, valid);
    }
    *cells = out;
    Ok(())
}

/// Converts cells to the target dtype; the error names the first cell that does not fit.
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
            return Err(Error::unsupported(feature).hint(Advice::FillValue));
        }
        cells = cells.without_validity();
    }
    if field.dtype == dtype {
        return Ok(cells);
    }
    let Some(size) = field.cell_size() else {
        return Err(Error::unsupported(format!("{} as {dtype}", field.type_name())));
    };
    let mut out = Cells::for_field(&Field { dtype, nullable: cells.validity().is_some(), ..field.clone() });
    out.reset(cells.len())?;
    let ((raw, valid), (values, validity)) = (cells.parts_mut(), out.parts_mut());
    if let (Some(to), Some(from)) = (validity, valid.as_deref()) {
        to.copy_from_slice(from);
    }
    // Values of null cells are ignored.
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

/// Position in the array of a cell of a selection.
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

impl CellFeed {
    /// Source selection of a region of the new array.
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

impl CellSource for CellFeed {
    fn read(&self, region: &Region, columns: &mut [Cells], options: &Options) -> Result<()> {
        let selection = self.source_of(region)?;
        for (feed, column) in self.columns.iter().zip(columns) {
            feed.read(&selection, column, options).map_err(|e| e.in_array(feed.array.name()))?;
        }
        Ok(())
    }

    fn stored(
        &self,
        region: &Region,
        accepts_encoded: &dyn Fn(StoredForm) -> bool,
    ) -> Result<Option<StoredChunk>> {
        let [column] = self.columns.as_slice() else { return Ok(None) };
        if !self.pass_through {
            return Ok(None);
        }
        read_stored(column.array.handle(), &self.source_of(region)?.bounds(), accepts_encoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tesseral_core::ErrorKind;

    fn texts(values: &[&str], validity: &[u8]) -> Cells {
        let field = Field { cell: CellLen::Var, ..Field::new("t", DType::Utf8) };
        let mut cells = Cells::for_field(&field);
        values.iter().for_each(|value| cells.push(value.as_bytes(), true));
        cells.with_validity(validity.to_vec()).unwrap()
    }

    #[test]
    fn missing_texts_become_the_value() {
        let at = |i: u64| format!("at {i}");
        for value in ["", "none", "n"] {
            let mut cells = texts(&["ab", "", "c", ""], &[1, 0, 1, 0]);
            let value = Scalar::from_text(value);
            stand_in_texts(&mut cells, &value, false, &Limits::DEFAULT, at).unwrap();
            let found: Vec<&[u8]> = (0..4).map(|i| cells.get(i)).collect();
            assert_eq!(found, [b"ab", value.bytes(), b"c", value.bytes()]);
        }
        // A cell that has the value already.
        let mut cells = texts(&["ab", "", ""], &[1, 0, 1]);
        let error =
            stand_in_texts(&mut cells, &Scalar::from_text(""), false, &Limits::DEFAULT, at).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }) && error.to_string().contains("at 2"));
        stand_in_texts(&mut cells, &Scalar::from_text(""), true, &Limits::DEFAULT, at).unwrap();
        // A long value for many cells.
        let mut cells = texts(&["", "", ""], &[0, 0, 0]);
        let long = Scalar::from_text(&"x".repeat(20 << 20));
        let error = stand_in_texts(&mut cells, &long, false, &Limits::DEFAULT, at).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
    }
}
