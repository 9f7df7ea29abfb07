//! Sums of the columns of rows, in the loop that finds the bounds of the cells.
//!
//! ```text
//! guess from some cells where terms are split                       (see `split`)
//! for each 8 rows:  for each 16 columns:  add the parts of the cells to the parts of the columns; compare magnitudes
//! the cut holds for the bounds of all cells -> no addition rounded: the parts are the sums
//! otherwise                                 -> the parts are of no use
//! ```
//!
//! 1. Cells are read once, and eight rows at a time: parts are loaded and stored once for eight cells. Short rows that follow one
//!    another are read in order: their parts stay in L1, and memory is fastest in order.
//! 2. A cut holds for cells up to `SLACK` bits larger than those that it was guessed from, and for cells smaller by as many bits as
//!    doubles have left, so a wrong guess is rare.
//! 3. Magnitudes show infinities, and those of float32 show NaN. NaN of float64 shows in the sum of its column.
//! 4. Squares of float32 are exact doubles, which are split in the same loop. Those of float64 are left to others.

use multiversion::multiversion;

use super::block::{Real, bounds};
use super::slots::{SlotRange, SlotSums};
use super::split::{Bounds, COLUMNS, Cut, ROWS, padded};

/// How many bits larger than those of the guess cells may be, and how many smaller.
const SLACK: i32 = 8;
const SLACK_BELOW: i32 = 3;
/// Cells that a cut is guessed from.
const SAMPLE: usize = 256;

/// Where the cells of rows and their squares are split.
#[derive(Clone, Copy, Debug)]
struct ColumnCuts {
    sums: Cut,
    squares: Option<Cut>,
}

impl ColumnCuts {
    /// The cuts of `rows` rows of cells like these; `None` if one cut does not suffice.
    fn guess<T: Real>(cells: &[T], rows: usize, spread: bool) -> Option<Self> {
        let sample = &cells[..cells.len().min(SAMPLE)];
        let found = bounds(sample).unwrap_or_else(|| Bounds::new(1.0, 1.0, 23, -149));
        let wider = Bounds { top: found.top + SLACK, low: (found.low - SLACK_BELOW).max(-1074), ..found };
        let split = |bounds| Cut::new(bounds, rows).filter(|cut| !matches!(cut, Cut::Twice(_)));
        let squares = if spread {
            let wider = wider.times(wider);
            Some(split(wider).filter(|_| T::EXACT_PRODUCT)?.split_once(wider))
        } else {
            None
        };
        Some(Self { sums: split(wider)?, squares })
    }

    /// Whether sums of the parts of `rows` cells in these bounds are exact.
    fn hold(self, bounds: Bounds, rows: usize) -> bool {
        let squares = bounds.times(bounds);
        bounds.top < SlotSums::TOP
            && self.sums.holds(bounds, rows)
            && self.squares.is_none_or(|cut| squares.top < SlotSums::TOP && cut.holds(squares, rows))
    }
}

/// Sums of the parts of the cells of each column, and of their squares.
#[derive(Debug, Default)]
pub(crate) struct ColumnSums {
    parts: [Vec<f64>; 4],
}

impl ColumnSums {
    /// Adds the sums of the columns of rows of the same length to slots, and those of their squares. False, without effect, if
    /// doubles do not hold them, or a cell is not finite. Rows are read one after another if they are `near`.
    pub fn add<'a, T: Real + 'a>(
        &mut self,
        row: impl Fn(usize) -> &'a [T],
        (rows, near): (usize, bool),
        sums: &mut SlotSums,
        squares: Option<&mut SlotSums>,
        range: SlotRange,
    ) -> bool {
        let columns = row(0).len();
        let Some(cuts) = ColumnCuts::guess(row(0), rows, squares.is_some()) else { return false };
        let used = [true, cuts.sums.parts() == 2, cuts.squares.is_some(), cuts.squares.is_some()];
        for (part, used) in self.parts.iter_mut().zip(used) {
            part.clear();
            part.resize(if used { columns } else { 0 }, 0.0);
        }
        let mut lanes = Magnitudes::<T>::new();
        let mut first = 0;
        while !near && first + ROWS <= rows {
            let eight: [&[T]; ROWS] = std::array::from_fn(|r| row(first + r));
            add_rows(eight, cuts, &mut self.parts, &mut lanes);
            first += ROWS;
        }
        (first..rows).for_each(|r| add_rows([row(r)], cuts, &mut self.parts, &mut lanes));
        match lanes.bounds() {
            None => return false,
            Some(None) => return true,
            Some(Some(bounds)) if !cuts.hold(bounds, rows) => return false,
            Some(Some(_)) => {}
        }
        let [high, low, square_high, square_low] = &mut self.parts;
        sums.add_terms_from(0, range, high);
        sums.add_terms_from(1, range, low);
        if let Some(squares) = squares {
            squares.add_terms_from(0, range, square_high);
            squares.add_terms_from(1, range, square_low);
        }
        true
    }
}

/// Magnitudes of the cells of columns, and zeros, or NaN where a sum is not finite.
struct Magnitudes<T: Real> {
    largest: [T::Magnitude; COLUMNS],
    smallest: [T::Magnitude; COLUMNS],
    odd: [f64; COLUMNS],
}

impl<T: Real> Magnitudes<T> {
    fn new() -> Self {
        let (largest, smallest) = T::NO_MAGNITUDES;
        Self { largest: [largest; COLUMNS], smallest: [smallest; COLUMNS], odd: [0.0; COLUMNS] }
    }

    /// As [`Real::bounds_of`], and an outer `None` with NaN.
    fn bounds(&self) -> Option<Option<Bounds>> {
        let finite = self.odd.iter().all(|odd| *odd == 0.0);
        T::bounds_of(&self.largest, &self.smallest).filter(|_| finite)
    }
}

fn add_rows<T: Real, const R: usize>(
    rows: [&[T]; R],
    cuts: ColumnCuts,
    parts: &mut [Vec<f64>; 4],
    lanes: &mut Magnitudes<T>,
) {
    let parts = parts.each_mut().map(Vec::as_mut_slice);
    let carrier = |cut: Cut| if let Cut::Once([carrier, _]) = cut { carrier } else { 0.0 };
    let carriers = [carrier(cuts.sums), cuts.squares.map_or(0.0, carrier)];
    match (cuts.sums.parts(), cuts.squares.is_some()) {
        (1, false) => add_columns::<T, 1, false, R>(rows, carriers, parts, lanes),
        (1, true) => add_columns::<T, 1, true, R>(rows, carriers, parts, lanes),
        (_, false) => add_columns::<T, 2, false, R>(rows, carriers, parts, lanes),
        (_, true) => add_columns::<T, 2, true, R>(rows, carriers, parts, lanes),
    }
}

#[multiversion(targets("x86_64+avx2"))]
fn add_columns<T: Real, const PARTS: usize, const SQUARES: bool, const R: usize>(
    rows: [&[T]; R],
    carriers: [f64; 2],
    parts: [&mut [f64]; 4],
    lanes: &mut Magnitudes<T>,
) {
    add_groups::<T, PARTS, SQUARES, R>(rows, carriers, parts, lanes);
}

#[inline(always)]
fn add_groups<T: Real, const PARTS: usize, const SQUARES: bool, const R: usize>(
    rows: [&[T]; R],
    carriers: [f64; 2],
    parts: [&mut [f64]; 4],
    lanes: &mut Magnitudes<T>,
) {
    let n = parts[0].len();
    let used = [true, PARTS == 2, SQUARES, SQUARES];
    let mut unused = [[0.0; COLUMNS]; 4];
    let rows = rows.map(|row| row[..n].as_chunks::<COLUMNS>());
    let [high, low, square_high, square_low] = parts.map(<[f64]>::as_chunks_mut::<COLUMNS>);
    let groups = high.0.len();
    let cells = rows.map(|row| &row.0[..groups]);
    // Parts that do not occur have no columns.
    let low_groups = if PARTS == 2 { &mut low.0[..groups] } else { low.0 };
    let squares = if SQUARES {
        (&mut square_high.0[..groups], &mut square_low.0[..groups])
    } else {
        (square_high.0, square_low.0)
    };
    for k in 0..groups {
        let [_, other, third, fourth] = &mut unused;
        let sums = [
            &mut high.0[k],
            if PARTS == 2 { &mut low_groups[k] } else { other },
            if SQUARES { &mut squares.0[k] } else { third },
            if SQUARES { &mut squares.1[k] } else { fourth },
        ];
        add_cells::<T, PARTS, SQUARES, R>(cells.map(|row| &row[k]), carriers, sums, lanes);
    }
    let rest = [high.1, low.1, square_high.1, square_low.1];
    if rest[0].is_empty() {
        return;
    }
    let cells: [[T; COLUMNS]; R] = rows.map(|row| padded(row.1));
    for ((to, from), used) in unused.iter_mut().zip(&rest).zip(used) {
        if used {
            to[..from.len()].copy_from_slice(from);
        }
    }
    add_cells::<T, PARTS, SQUARES, R>(cells.each_ref(), carriers, unused.each_mut(), lanes);
    for ((from, to), used) in unused.iter().zip(rest).zip(used) {
        if used {
            let n = to.len();
            to.copy_from_slice(&from[..n]);
        }
    }
}

/// Adds the cells of some columns.
#[inline(always)]
fn add_cells<T: Real, const PARTS: usize, const SQUARES: bool, const R: usize>(
    rows: [&[T; COLUMNS]; R],
    [carrier, square_carrier]: [f64; 2],
    [high, low, square_high, square_low]: [&mut [f64; COLUMNS]; 4],
    lanes: &mut Magnitudes<T>,
) {
    for i in 0..COLUMNS {
        let (mut largest, mut smallest) = (lanes.largest[i], lanes.smallest[i]);
        let mut sums = [high[i], low[i], square_high[i], square_low[i]];
        for row in &rows {
            row[i].compare(&mut largest, &mut smallest);
            let x = row[i].wide();
            if PARTS == 1 {
                sums[0] += x;
            } else {
                let part = (x + carrier) - carrier;
                sums[0] += part;
                sums[1] += x - part;
            }
            if SQUARES {
                let square = x * x;
                let part = (square + square_carrier) - square_carrier;
                sums[2] += part;
                sums[3] += square - part;
            }
        }
        (lanes.largest[i], lanes.smallest[i]) = (largest, smallest);
        if !T::EXACT_PRODUCT {
            // Zero times infinity or NaN is NaN.
            lanes.odd[i] += sums[0] * 0.0;
        }
        high[i] = sums[0];
        if PARTS == 2 {
            low[i] = sums[1];
        }
        if SQUARES {
            (square_high[i], square_low[i]) = (sums[2], sums[3]);
        }
    }
}
