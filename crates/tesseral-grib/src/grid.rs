//! Grids: where the points of a field are.

mod define;
mod gaussian;
mod projection;

use std::ops::Range;

use tesseral_core::{Error, Result, Value, alloc};

pub(crate) use define::{edition1, edition2};
pub(crate) use projection::Ellipsoid;
use projection::{Lambert, Mercator, PolarStereographic, unrotate};

/// Flag of the scanning mode: points of a row go west.
const I_NEGATIVE: u8 = 0x80;
/// Flag of the scanning mode: rows go north.
const J_POSITIVE: u8 = 0x40;
/// Flag of the scanning mode: points of a column are consecutive.
const J_CONSECUTIVE: u8 = 0x20;
/// Flag of the scanning mode: every other row is stored in the opposite direction.
const ALTERNATE: u8 = 0x10;

/// A grid.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    pub kind: GridKind,
    /// Points along a parallel or the x axis; 0 for reduced grids.
    pub ni: u64,
    /// Points along a meridian or the y axis.
    pub nj: u64,
    /// Number of points.
    pub points: u64,
    pub scanning: u8,
    /// Whether vector components are relative to the grid instead of east and north.
    pub uv_relative: bool,
    /// Title of the grid in the code tables.
    pub description: &'static str,
    /// Further attributes, by key.
    pub keys: Vec<(&'static str, Value)>,
}

/// Corners and increments in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Angles {
    pub latitudes: (f64, f64),
    pub longitudes: (f64, f64),
    /// Increment of latitudes.
    pub dj: f64,
}

/// The south pole of a rotated grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pole {
    pub latitude: f64,
    pub longitude: f64,
    pub angle: f64,
}

/// The projection of a grid.
#[derive(Clone, Debug)]
pub(crate) enum GridKind {
    LatLon {
        angles: Angles,
        pole: Option<Pole>,
    },
    Gaussian {
        angles: Angles,
        /// Parallels between a pole and the equator.
        order: u64,
        pole: Option<Pole>,
    },
    ReducedGaussian {
        angles: Angles,
        order: u64,
        /// Points of each parallel: number, and longitudes of the first and the distance to the next.
        rows: Vec<Row>,
        pole: Option<Pole>,
    },
    Lambert(Lambert),
    PolarStereographic(PolarStereographic),
    Mercator(Mercator),
}

/// The points of one parallel of a reduced grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    /// Index of the first point.
    pub start: u64,
    pub count: u64,
    /// Number of points on the whole parallel.
    pub parallel: u64,
    /// Number of the first point on the parallel.
    pub first: i64,
}

/// Which of the coordinates of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    Latitude,
    Longitude,
}

impl Axis {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Latitude => "latitude",
            Self::Longitude => "longitude",
        }
    }
}

/// How the points are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GridLayout {
    /// Rows of equal latitude and columns of equal longitude.
    Separable,
    /// A rectangle whose points have a latitude and a longitude each.
    Curvilinear,
    /// A list of points.
    Points,
}

impl Grid {
    /// Name of the grid type.
    pub(crate) fn type_name(&self) -> &'static str {
        match &self.kind {
            GridKind::LatLon { pole: None, .. } => "regular_ll",
            GridKind::LatLon { .. } => "rotated_ll",
            GridKind::Gaussian { pole: None, .. } => "regular_gg",
            GridKind::Gaussian { .. } => "rotated_gg",
            GridKind::ReducedGaussian { pole: None, .. } => "reduced_gg",
            GridKind::ReducedGaussian { .. } => "reduced_rotated_gg",
            GridKind::Lambert(_) => "lambert",
            GridKind::PolarStereographic(_) => "polar_stereographic",
            GridKind::Mercator(_) => "mercator",
        }
    }

    pub(crate) fn layout(&self) -> GridLayout {
        match &self.kind {
            GridKind::LatLon { pole: None, .. } | GridKind::Gaussian { pole: None, .. } => {
                GridLayout::Separable
            }
            GridKind::ReducedGaussian { .. } | GridKind::Mercator(_) => GridLayout::Points,
            _ => GridLayout::Curvilinear,
        }
    }

    /// Names and extents of the dimensions of a field.
    pub(crate) fn dimensions(&self) -> Vec<(&'static str, u64)> {
        match self.layout() {
            GridLayout::Separable => vec![("latitude", self.nj), ("longitude", self.ni)],
            GridLayout::Curvilinear => vec![("y", self.nj), ("x", self.ni)],
            GridLayout::Points => vec![("values", self.points)],
        }
    }

    fn has(&self, flag: u8) -> bool {
        self.scanning & flag != 0
    }

    /// Whether the points of a column are consecutive, so that the first dimension varies fastest.
    pub(crate) fn columns_first(&self) -> bool {
        self.has(J_CONSECUTIVE) && self.layout() != GridLayout::Points
    }

    /// Length of the rows of which every other one is reversed, if the field is stored that way.
    pub(crate) fn alternating(&self) -> Option<u64> {
        let row = if self.has(J_CONSECUTIVE) { self.nj } else { self.ni };
        (self.has(ALTERNATE) && self.layout() != GridLayout::Points && row > 0).then_some(row)
    }

    /// Dimensions of a coordinate variable.
    pub(crate) fn axis_dimensions(&self, axis: Axis) -> Vec<(&'static str, u64)> {
        match (self.layout(), axis) {
            (GridLayout::Separable, Axis::Latitude) => vec![("latitude", self.nj)],
            (GridLayout::Separable, Axis::Longitude) => vec![("longitude", self.ni)],
            _ => self.dimensions(),
        }
    }

    /// Whether latitudes decrease.
    pub(crate) fn decreasing(&self) -> bool {
        self.layout() == GridLayout::Separable && !self.has(J_POSITIVE)
    }

    /// Values of a coordinate variable at a range of its cells, row-major.
    ///
    /// # Errors
    /// `Corrupt` for grids that contradict themselves; `Limit`.
    pub(crate) fn coordinates(&self, axis: Axis, cells: Range<u64>, out: &mut [f64]) -> Result<()> {
        match (self.layout(), axis) {
            (GridLayout::Separable, Axis::Latitude) => self.latitudes(cells, out),
            (GridLayout::Separable, Axis::Longitude) => self.longitudes(cells, out),
            _ => self.points(axis, cells, out),
        }
    }

    /// Latitudes of rows.
    fn latitudes(&self, rows: Range<u64>, out: &mut [f64]) -> Result<()> {
        match &self.kind {
            GridKind::LatLon { angles, .. } => {
                // Increments are added up, as by the reference, so that coordinates are the same numbers.
                let step = if self.has(J_POSITIVE) { -angles.dj } else { angles.dj };
                let latitudes = accumulate(angles.latitudes.0, -step, self.nj, angles.latitudes.1);
                fill(latitudes, rows, out);
                Ok(())
            }
            GridKind::Gaussian { angles, order, .. } => {
                let latitudes = gaussian::latitudes(*order)?;
                let (first, count) =
                    (gaussian::nearest(&latitudes, angles.latitudes.0), latitudes.len() as u64);
                let up = self.has(J_POSITIVE);
                let at = |row: u64| if up { first + count - row % count } else { first + row } % count.max(1);
                fill((0..self.nj).map(|row| latitudes[at(row) as usize]), rows, out);
                Ok(())
            }
            _ => Err(Error::internal("a grid without rows")),
        }
    }

    /// Longitudes of columns.
    fn longitudes(&self, columns: Range<u64>, out: &mut [f64]) -> Result<()> {
        let (GridKind::LatLon { angles, .. } | GridKind::Gaussian { angles, .. }) = &self.kind else {
            return Err(Error::internal("a grid without columns"));
        };
        let (mut first, last) = angles.longitudes;
        let mut step = 0.0;
        if self.ni > 1 {
            let count = (self.ni - 1) as f64;
            step = if self.has(I_NEGATIVE) {
                -(if first > last { first - last } else { first + 360.0 - last }) / count
            } else {
                (if last > first { last - first } else { last + 360.0 - first }) / count
            };
        }
        if !self.has(I_NEGATIVE) && first + (self.ni as f64 - 2.0) * step > 360.0 {
            first -= 360.0;
        }
        let last = if last > 0.0 { within_circle(last) } else { last };
        fill(accumulate(first, step, self.ni, last), columns, out);
        Ok(())
    }

    /// Latitudes or longitudes of points, of a rectangle by row.
    fn points(&self, axis: Axis, cells: Range<u64>, out: &mut [f64]) -> Result<()> {
        let pick = |(latitude, longitude): (f64, f64)| match axis {
            Axis::Latitude => latitude,
            Axis::Longitude => longitude,
        };
        let turned = |point: (f64, f64), pole: &Option<Pole>| match pole {
            Some(pole) => unrotate(point, pole),
            None => point,
        };
        match &self.kind {
            GridKind::LatLon { pole, .. } | GridKind::Gaussian { pole, .. } => {
                let width = |n: u64| usize::try_from(n).map_err(|_| Error::limit("coordinates", n, 0));
                let mut latitudes = alloc::zeroed("coordinates", width(self.nj)?)?;
                let mut longitudes = alloc::zeroed("coordinates", width(self.ni)?)?;
                self.latitudes(0..self.nj, &mut latitudes)?;
                self.longitudes(0..self.ni, &mut longitudes)?;
                for (cell, out) in cells.zip(out) {
                    let (row, column) = (cell / self.ni.max(1), cell % self.ni.max(1));
                    let point = (latitudes[row as usize], longitudes[column as usize]);
                    *out = pick(turned(point, pole));
                }
            }
            GridKind::ReducedGaussian { angles, order, rows, pole } => {
                let latitudes = gaussian::latitudes(*order)?;
                let count = latitudes.len();
                let first = gaussian::nearest(&latitudes, angles.latitudes.0) as usize;
                let up = self.has(J_POSITIVE);
                let begin = rows.partition_point(|row| row.start + row.count <= cells.start);
                let mut out = out.iter_mut();
                for (number, row) in rows.iter().enumerate().skip(begin) {
                    let at =
                        if up { (first + count - number % count) % count } else { (first + number) % count };
                    let from = cells.start.max(row.start);
                    for point in from..cells.end.min(row.start + row.count) {
                        let i = row.first + (point - row.start) as i64;
                        let longitude = (i as f64 * 360.0) / row.parallel as f64;
                        let Some(out) = out.next() else { return Ok(()) };
                        *out = pick(turned((latitudes[at], within_circle(longitude)), pole));
                    }
                }
                out.for_each(|out| *out = f64::NAN);
            }
            GridKind::Lambert(projection) => self.project(cells, out, |i, j| pick(projection.at(i, j))),
            GridKind::PolarStereographic(projection) => {
                self.project(cells, out, |i, j| pick(projection.at(i, j)));
            }
            GridKind::Mercator(projection) => {
                // The points are in stored order.
                let column = self.has(J_CONSECUTIVE);
                let row = if column { self.nj } else { self.ni }.max(1);
                for (cell, out) in cells.zip(out) {
                    let (slow, mut fast) = (cell / row, cell % row);
                    if self.has(ALTERNATE) && slow % 2 == 1 {
                        fast = row - 1 - fast;
                    }
                    let (i, j) = if column { (slow, fast) } else { (fast, slow) };
                    *out = pick(projection.at(i as f64, j as f64));
                }
            }
        }
        Ok(())
    }

    fn project(&self, cells: Range<u64>, out: &mut [f64], at: impl Fn(f64, f64) -> f64) {
        let width = self.ni.max(1);
        for (cell, out) in cells.zip(out) {
            *out = at((cell % width) as f64, (cell / width) as f64);
        }
    }
}

/// `count` numbers, each the previous one plus `step`; the last is given.
fn accumulate(first: f64, step: f64, count: u64, last: f64) -> impl Iterator<Item = f64> {
    let mut next = first;
    (1..=count).map(move |number| {
        let value = next;
        next += step;
        if number == count && count > 1 { last } else { value }
    })
}

fn fill(values: impl Iterator<Item = f64>, range: Range<u64>, out: &mut [f64]) {
    let skipped = usize::try_from(range.start).unwrap_or(usize::MAX);
    for (out, value) in out.iter_mut().zip(values.skip(skipped)) {
        *out = value;
    }
}

/// A longitude from 0 to 360.
pub(crate) fn within_circle(longitude: f64) -> f64 {
    if (0.0..360.0).contains(&longitude) { longitude } else { longitude.rem_euclid(360.0) }
}
