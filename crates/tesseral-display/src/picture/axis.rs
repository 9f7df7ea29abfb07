//! Axes of a picture: coordinates of the drawn points, and positions of ticks.

use tesseral::{Dimension, Slice};

/// Most characters of a text label.
const LABEL: usize = 16;

/// One drawn dimension.
#[derive(Clone, Debug)]
pub struct PictureAxis {
    /// Name of the dimension, or its number.
    pub name: String,
    /// Units of its coordinates; empty if unknown, and for dates.
    pub units: String,
    /// First and last coordinate.
    pub ends: (String, String),
    /// Whether larger coordinates belong up or right although they come first: ascending latitudes on a vertical axis.
    pub reversed: bool,
    coordinates: Coordinates,
}

/// Coordinates of the points of an axis.
#[derive(Clone, Debug)]
enum Coordinates {
    /// Ascending or descending numbers.
    Numbers(Vec<f64>),
    /// Texts that begin with an ISO date.
    Dates(Vec<String>),
    /// Others.
    Texts(Vec<String>),
}

/// A tick: its position along the axis, from 0 to 1, and its label.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// Position along the axis, from 0 to 1.
    pub place: f64,
    /// The coordinate.
    pub label: String,
}

impl PictureAxis {
    /// The axis of a dimension whose selected positions are drawn as `points` points.
    pub fn new(dim: &Dimension, number: usize, slice: Slice, points: usize, units: &str) -> Self {
        let count = slice.count().max(1);
        let position = |point: usize| {
            // The middle of the positions of the point.
            let (point, points, count) = (point as u128, points.max(1) as u128, u128::from(count));
            let middle = (2 * point + 1) * count / (2 * points);
            slice.start + u64::try_from(middle).unwrap_or(0).min(count as u64 - 1) * slice.step
        };
        let text = |at: u64| dim.coordinate_text(at).unwrap_or_else(|| at.to_string());
        let last = slice.start + (count - 1) * slice.step;
        let texts = || (0..points).map(|i| text(position(i))).collect::<Vec<_>>();
        let coordinates = match (dim.time.is_some(), numbers(dim, (0..points).map(position))) {
            (false, Some(numbers)) => Coordinates::Numbers(numbers),
            _ => Some(texts())
                .filter(|texts| texts.iter().all(|t| is_date(t)))
                .map_or_else(|| Coordinates::Texts(texts()), Coordinates::Dates),
        };
        let is_number = matches!(coordinates, Coordinates::Numbers(_));
        let mut ends = (text(slice.start), text(last));
        if is_number && dim.period.is_some() {
            // The drawn ends of a range across the end of a cyclic axis.
            let number = |at: u64| dim.coordinate(at).and_then(|value| value.as_f64()).unwrap_or(f64::NAN);
            let all = [slice.start].into_iter().chain((0..points).map(position)).chain([last]);
            let stored: Vec<f64> = all.map(number).collect();
            let drawn = dim.unwrapped(stored.clone());
            if let (Some(first), Some(last)) = (drawn.first(), drawn.last())
                && drawn != stored
            {
                ends = (first.to_string(), last.to_string());
            }
        }
        Self {
            name: if dim.name.is_empty() { number.to_string() } else { dim.name.clone() },
            units: if is_number { units.to_owned() } else { String::new() },
            ends,
            reversed: false,
            coordinates,
        }
    }

    /// The axis of bins between ascending edges.
    pub fn of_bins(name: &str, units: &str, edges: &[f64]) -> Self {
        let text = |edge: Option<&f64>| edge.map(f64::to_string).unwrap_or_default();
        let middles = edges.windows(2).map(|bin| bin[0] / 2.0 + bin[1] / 2.0).collect();
        Self {
            name: name.to_owned(),
            units: units.to_owned(),
            ends: (text(edges.first()), text(edges.last())),
            reversed: false,
            coordinates: Coordinates::Numbers(middles),
        }
    }

    /// Whether coordinates are numbers that ascend.
    pub fn ascends(&self) -> bool {
        matches!(&self.coordinates, Coordinates::Numbers(v) if v.first() < v.last())
    }

    /// Whether coordinates are numbers that descend.
    pub fn descends(&self) -> bool {
        matches!(&self.coordinates, Coordinates::Numbers(v) if v.first() > v.last())
    }

    /// Distance between the first and the last coordinate, if they are numbers.
    pub fn span(&self) -> Option<f64> {
        match &self.coordinates {
            Coordinates::Numbers(v) => Some((v.last()? - v.first()?).abs()),
            _ => None,
        }
    }

    /// Name and units.
    pub fn title(&self) -> String {
        if self.units.is_empty() { self.name.clone() } else { format!("{} [{}]", self.name, self.units) }
    }

    /// At most `most` ticks, in ascending order of their places.
    pub fn ticks(&self, most: usize) -> Vec<Tick> {
        let mut ticks = match &self.coordinates {
            Coordinates::Numbers(numbers) => number_ticks(numbers, self.units.starts_with("degree"), most),
            Coordinates::Dates(texts) => date_ticks(texts, most),
            Coordinates::Texts(texts) => even_ticks(texts, most),
        };
        if self.reversed {
            ticks.iter_mut().for_each(|tick| tick.place = 1.0 - tick.place);
            ticks.reverse();
        }
        ticks
    }
}

/// The coordinates as numbers, if all are and they are in order.
fn numbers(dim: &Dimension, positions: impl Iterator<Item = u64>) -> Option<Vec<f64>> {
    #[allow(clippy::cast_precision_loss)]
    let number = |at: u64| match dim.coordinate(at) {
        Some(value) if value.as_text().is_some() => value.as_text()?.trim().parse().ok(),
        Some(value) if matches!(value.dtype(), tesseral::DType::DateTime(_)) => None,
        Some(value) => value.as_f64(),
        None => Some(at as f64),
    };
    let values = dim.unwrapped(positions.map(number).collect::<Option<_>>()?);
    let up = values.windows(2).all(|pair| pair[0] < pair[1]);
    let down = values.windows(2).all(|pair| pair[0] > pair[1]);
    ((up || down) && values.iter().all(|v| v.is_finite())).then_some(values)
}

/// Round numbers between two, at most `most` of them, and the number of decimals they need.
pub fn round_numbers(low: f64, high: f64, degrees: bool, most: usize) -> (Vec<f64>, usize) {
    let span = high - low;
    if !(span.is_finite() && span > 0.0) || most == 0 {
        return (vec![low], 2);
    }
    let magnitude = 10_f64.powf((span / 10.0).log10().floor());
    let decimal = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0].map(|f| f * magnitude);
    let angles = [10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 180.0];
    let angular = degrees && span >= 40.0;
    let steps: &[f64] = if angular { &angles } else { &decimal };
    let count = |step: f64| ((high / step).floor() - (low / step).ceil() + 1.0).max(0.0);
    #[allow(clippy::cast_precision_loss)]
    let Some(step) = steps.iter().copied().find(|step| count(*step) <= most as f64) else {
        return (vec![low], 2);
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let decimals = if step < 1.0 { (-step.log10()).ceil().min(12.0) as usize } else { 0 };
    let first = (low / step).ceil();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let values = (0..count(step) as usize).map(|i| (first + i as f64) * step).collect();
    (values, decimals)
}

/// A number with so many decimals; very large and small ones with an exponent.
pub fn number_label(value: f64, decimals: usize) -> String {
    if value != 0.0 && (value.abs() >= 1e7 || decimals > 5) {
        return format!("{value:.2e}");
    }
    let text = format!("{value:.decimals$}");
    if text.trim_start_matches('-').chars().all(|c| matches!(c, '0' | '.')) {
        format!("{:.decimals$}", 0.0)
    } else {
        text
    }
}

#[allow(clippy::cast_precision_loss)]
fn number_ticks(values: &[f64], degrees: bool, most: usize) -> Vec<Tick> {
    let (Some(&first), Some(&last)) = (values.first(), values.last()) else { return Vec::new() };
    let n = values.len() as f64;
    if values.len() < 2 {
        return vec![Tick { place: 0.5, label: number_label(first, 2) }];
    }
    let (found, decimals) = round_numbers(first.min(last), first.max(last), degrees, most);
    let up = first < last;
    let mut ticks: Vec<Tick> = found
        .into_iter()
        .map(|value| {
            let after = values.partition_point(|v| if up { *v < value } else { *v > value });
            let (i, j) = (after.saturating_sub(1), after.min(values.len() - 1));
            let inside = if i == j { 0.0 } else { (value - values[i]) / (values[j] - values[i]) };
            Tick { place: (i as f64 + inside + 0.5) / n, label: number_label(value, decimals) }
        })
        .collect();
    ticks.sort_by(|a, b| a.place.total_cmp(&b.place));
    ticks
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 10
        && bytes[..10]
            .iter()
            .enumerate()
            .all(|(i, b)| if matches!(i, 4 | 7) { *b == b'-' } else { b.is_ascii_digit() })
}

/// The start of each period: the finest of which there are not too many.
#[allow(clippy::cast_precision_loss)]
fn date_ticks(texts: &[String], most: usize) -> Vec<Tick> {
    let place = |i: usize| (i as f64 + 0.5) / texts.len() as f64;
    let number = |text: &str, from: usize, to: usize| {
        text.get(from..to).and_then(|t| t.parse::<u32>().ok()).unwrap_or(0)
    };
    let starts = |length: usize, holds: &dyn Fn(&str) -> bool| -> Vec<usize> {
        let prefix = |i: usize| texts[i].get(..length);
        let begins = |text: &str| {
            let rest = text.get(length..).unwrap_or_default();
            rest.chars().all(|c| matches!(c, '0' | '1' | '-' | ':' | 'T' | '.'))
                && !rest.contains("10")
                && !rest.contains("11")
        };
        let new = |i: &usize| if *i == 0 { begins(&texts[0]) } else { prefix(*i) != prefix(*i - 1) };
        (0..texts.len()).filter(new).filter(|i| holds(&texts[*i])).collect()
    };
    let mut found: Vec<(usize, Vec<usize>)> = Vec::new();
    for step in [1, 3, 6, 12] {
        found.push((13, starts(13, &|t| number(t, 11, 13) % step == 0)));
    }
    found.push((10, starts(10, &|_| true)));
    found.push((10, starts(10, &|t| number(t, 8, 10) % 5 == 1 && number(t, 8, 10) < 31)));
    for step in [1, 3, 6] {
        found.push((7, starts(7, &|t| number(t, 5, 7) % step == 1 % step)));
    }
    for step in [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] {
        found.push((4, starts(4, &|t| number(t, 0, 4) % step == 0)));
    }
    // A level at which every point is distinct repeats nothing and is as short as possible.
    match found.into_iter().find(|(_, at)| (2..=most).contains(&at.len())) {
        Some((length, at)) => at
            .into_iter()
            .map(|i| Tick { place: place(i), label: texts[i].get(..length).unwrap_or(&texts[i]).to_owned() })
            .collect(),
        None => even_ticks(texts, most),
    }
}

/// Ticks at even distances.
#[allow(clippy::cast_precision_loss)]
fn even_ticks(texts: &[String], most: usize) -> Vec<Tick> {
    let step = texts.len().div_ceil(most.max(1)).max(1);
    let at = (0..texts.len()).step_by(step);
    at.map(|i| Tick {
        place: (i as f64 + 0.5) / texts.len() as f64,
        label: texts[i].chars().take(LABEL).collect(),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn numbers_are_round() {
        assert_eq!(round_numbers(0.0, 1.0, false, 6), (vec![0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0], 1));
        assert_eq!(round_numbers(-90.0, 90.0, true, 7).0, [-90.0, -60.0, -30.0, 0.0, 30.0, 60.0, 90.0]);
        assert_eq!(number_label(-0.0, 1), "0.0");
        assert_eq!(number_label(2.5e9, 0), "2.50e9");
    }

    #[test]
    fn descending_coordinates_have_ticks_in_order() {
        let ticks = number_ticks(&[90.0, 45.0, 0.0, -45.0, -90.0], true, 5);
        assert_eq!(labels(&ticks), ["90", "45", "0", "-45", "-90"]);
        assert!((ticks[2].place - 0.5).abs() < 1e-9);
    }

    #[test]
    fn ranges_across_the_end_of_a_cyclic_axis_ascend() {
        let mut lon = Dimension::new("lon", 8);
        let numbers = |values: &[f64]| values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let stored = [0.0, 90.0, 180.0, 270.0, 0.0, 90.0, 180.0, 270.0];
        lon.labels = Some(tesseral_core::schema::Labels::Numbers {
            dtype: tesseral::DType::Float64,
            bytes: numbers(&stored),
        });
        lon.period = Some(360.0);
        let ends = |start, end| {
            PictureAxis::new(&lon, 0, Slice::new(start, end), (end - start) as usize, "degrees_east").ends
        };
        assert_eq!(ends(3, 6), ("-90".to_owned(), "90".to_owned()));
        assert_eq!(ends(2, 6), ("-180".to_owned(), "90".to_owned()));
        assert_eq!(ends(0, 4), ("0.0".to_owned(), "270.0".to_owned()));
        assert_eq!(lon.unwrapped(vec![10.0, 350.0, 340.0]), [370.0, 350.0, 340.0]);
    }

    #[test]
    fn dates_begin_periods() {
        let months = |n: usize| {
            (0..n).map(|i| format!("{:04}-{:02}-01", 1990 + i / 12, i % 12 + 1)).collect::<Vec<_>>()
        };
        assert_eq!(
            labels(&date_ticks(&months(36), 6)),
            ["1990-01", "1990-07", "1991-01", "1991-07", "1992-01", "1992-07"]
        );
        assert_eq!(labels(&date_ticks(&months(36), 4)), ["1990", "1991", "1992"]);
        assert_eq!(labels(&date_ticks(&months(240), 5)), ["1990", "1995", "2000", "2005"]);
        let hours: Vec<String> =
            (0..48).map(|i| format!("2000-01-{:02}T{:02}:00", 1 + i / 24, i % 24)).collect();
        assert_eq!(labels(&date_ticks(&hours, 3)), ["2000-01-01", "2000-01-02"]);
    }
}
