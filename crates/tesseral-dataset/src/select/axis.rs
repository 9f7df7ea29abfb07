//! Coordinates of one axis: positions between two of them.

use std::cmp::Ordering;

use tesseral_core::calendar::TimeUnits;
use tesseral_core::condition::Op;
use tesseral_core::schema::Labels;
use tesseral_core::{Advice, DType, Dimension, Error, Result, Scalar, Slice};

use super::instant::{self, Instant};

/// The coordinates of a dimension, as they are compared.
pub(super) struct AxisCoordinates<'a> {
    dim: &'a Dimension,
    extent: u64,
    argument: &'a str,
    coordinates: CoordinateValues<'a>,
}

enum CoordinateValues<'a> {
    /// Words, ordered by appearance only.
    Words(&'a [String]),
    /// Numbers written as text.
    Numerals(Vec<Scalar>),
    /// Numbers of one dtype.
    Numbers(&'a Labels, DType),
    /// Dates, one per position; `None` for NaT.
    Dates(Vec<Option<Instant>>),
    /// Times in a calendar, one per position; `None` for numbers without a time.
    Times(Vec<Option<Instant>>, TimeUnits),
    /// Consecutive integers from this value.
    IntegerDomain(i128),
    /// Consecutive dates from this count.
    DateDomain(i64, tesseral_core::TimeUnit),
}

/// One end of a range.
enum RangeEnd {
    Number(Scalar),
    Date(std::ops::Range<Instant>),
}

impl<'a> AxisCoordinates<'a> {
    pub(super) fn new(dim: &'a Dimension, extent: u64, argument: &'a str) -> Result<Self> {
        let coordinates = match (&dim.labels, &dim.domain) {
            (Some(labels), _) if labels.len() as u64 != extent => {
                return Err(Error::invalid(format!(
                    "{argument:?}: the dimension has {} labels for {extent} positions",
                    labels.len()
                ))
                .hint(Advice::SelectByPosition));
            }
            (Some(Labels::Text(words)), _) => of_words(words, argument)?,
            (Some(labels @ Labels::Numbers { dtype: DType::DateTime(unit), .. }), _) => {
                let count = |i| labels.get(i).and_then(|label| label.as_i128());
                let instant = |i| instant::of_count(i64::try_from(count(i)?).ok()?, *unit);
                CoordinateValues::Dates((0..labels.len()).map(instant).collect())
            }
            (Some(labels @ Labels::Numbers { dtype, .. }), _) => match dim.time {
                Some(units) => {
                    let instant = |i| units.instant(&labels.get(i)?);
                    CoordinateValues::Times((0..labels.len()).map(instant).collect(), units)
                }
                None => CoordinateValues::Numbers(labels, *dtype),
            },
            (None, Some((first, _))) => match (first.dtype(), first.as_i128()) {
                (DType::DateTime(unit), Some(first)) => {
                    let first = i64::try_from(first).map_err(|_| no_coordinates(argument))?;
                    CoordinateValues::DateDomain(first, unit)
                }
                (_, Some(first)) => CoordinateValues::IntegerDomain(first),
                _ => return Err(no_coordinates(argument)),
            },
            (None, None) => return Err(no_coordinates(argument)),
        };
        Ok(Self { dim, extent, argument, coordinates })
    }

    /// Returns the positions of `a..b`.
    pub(super) fn between(&self, text: &str) -> Result<Slice> {
        // Labels can contain dots: use the first split with two valid sides.
        let cuts = || text.match_indices("..").map(|(at, _)| (&text[..at], &text[at + 2..]));
        let mut failure = None;
        let side = |text| Some(text).filter(|text: &&str| !text.is_empty());
        for (low, high) in cuts() {
            match self.range(side(low), side(high)) {
                Ok(slice) => return Ok(slice),
                Err(e) => failure = failure.or(Some(e)),
            }
        }
        Err(failure.unwrap_or_else(|| self.invalid_selection("missing range")))
    }

    /// Returns the positions of `@v`: several if adjacent positions share the value.
    pub(super) fn value(&self, text: &str) -> Result<Slice> {
        if text.is_empty() {
            return Err(self.invalid_selection("missing value after `@`"));
        }
        let slice = self.range(Some(text), Some(text))?;
        if slice.count() == 0 { Err(self.missing(text)) } else { Ok(slice) }
    }

    /// Returns the positions from `low` to `high`, both included; `None` is unbounded.
    pub(super) fn range(&self, low: Option<&str>, high: Option<&str>) -> Result<Slice> {
        if let CoordinateValues::Words(words) = &self.coordinates {
            let find = |word: &str| words.iter().position(|w| w == word).ok_or_else(|| self.missing(word));
            let first = low.map_or(Ok(0), find);
            let last = high.map_or(Ok(words.len().saturating_sub(1)), find);
            let (first, last) = (first?, last?);
            let (first, last) = (first.min(last), first.max(last));
            // The last of equal adjacent words belongs to the range as well.
            let last = (last..words.len()).take_while(|i| words[*i] == words[last]).last().unwrap_or(last);
            self.unique(words, [first, last])?;
            return Ok(Slice::new(first as u64, (last as u64 + 1).min(self.extent)));
        }
        let bound = |text: Option<&str>| text.map(|text| self.bound(text)).transpose();
        let (mut low, mut high) = (bound(low)?, bound(high)?);
        if let (Some(a), Some(b)) = (&low, &high)
            && a.is_after(b)
        {
            match self.after_a_turn(a, b) {
                Some(turned) => high = Some(turned),
                None => std::mem::swap(&mut low, &mut high),
            }
        }
        let inside = |position: u64| {
            low.as_ref().is_none_or(|b| self.side(position, b).is_some_and(Ordering::is_ge))
                && high.as_ref().is_none_or(|b| self.side(position, b).is_some_and(Ordering::is_le))
        };
        if self.is_domain() {
            // Domain values ascend: both ends are found by bisection.
            let start = first_where(self.extent, |p| {
                low.as_ref().is_none_or(|b| self.side(p, b).is_some_and(Ordering::is_ge))
            });
            let end = first_where(self.extent, |p| {
                high.as_ref().is_some_and(|b| self.side(p, b).is_some_and(Ordering::is_gt))
            });
            return Ok(Slice::new(start.min(end), end));
        }
        if let Some(turns) = self.turns(low.as_ref(), high.as_ref()) {
            return self.cyclic_run(&turns);
        }
        let mut found: Option<(u64, u64)> = None;
        for position in (0..self.extent).filter(|p| inside(*p)) {
            match &mut found {
                None => found = Some((position, position + 1)),
                Some((_, end)) if *end == position => *end += 1,
                Some(_) => return Err(self.not_adjacent()),
            }
        }
        let (start, end) = found.unwrap_or((0, 0));
        Ok(Slice::new(start, end))
    }

    fn not_adjacent(&self) -> Error {
        self.invalid_selection("the labels are not sorted: matching positions are not adjacent")
            .hint(Advice::SelectByPosition)
    }

    /// The end of a range that begins after it on an ascending cyclic axis: one turn later, so that the range goes upward across
    /// the end of the axis. `None` for other axes, where both orders of the ends mean the same, and for whole turns.
    fn after_a_turn(&self, start: &RangeEnd, end: &RangeEnd) -> Option<RangeEnd> {
        let CoordinateValues::Numbers(labels, dtype) = &self.coordinates else { return None };
        let (period, RangeEnd::Number(start), RangeEnd::Number(end)) = (self.dim.period?, start, end) else {
            return None;
        };
        let values: Vec<f64> = (0..labels.len()).filter_map(|i| labels.get(i)?.as_f64()).collect();
        let upward = values.windows(2).filter(|pair| pair[0] < pair[1]).count();
        let downward = values.windows(2).filter(|pair| pair[0] > pair[1]).count();
        let (start, end) = (start.as_f64()?, end.as_f64()?);
        let turned = end + period * ((start - end) / period).ceil();
        if upward < downward || turned <= start {
            return None;
        }
        Some(RangeEnd::Number(match dtype {
            DType::Float32 => Scalar::from_element(turned as f32),
            _ => Scalar::from_element(turned),
        }))
    }

    /// The coordinates of a cyclic axis that lie between two bounds, each after the fewest turns that place it there; `None` for a
    /// position that no turn places there. The bounds are turned and rounded to the dtype of the coordinates, so that a decimal that
    /// is not a binary number equals its coordinate after a turn as well.
    fn turns(&self, low: Option<&RangeEnd>, high: Option<&RangeEnd>) -> Option<Vec<Option<f64>>> {
        const MOST: i32 = 8;
        let CoordinateValues::Numbers(labels, dtype) = &self.coordinates else { return None };
        let (period, RangeEnd::Number(low), RangeEnd::Number(high)) = (self.dim.period?, low?, high?) else {
            return None;
        };
        let mut turned = Vec::new();
        for turn in (0..=MOST).flat_map(|n| if n == 0 { vec![0] } else { vec![-n, n] }) {
            let by = f64::from(turn) * period;
            let bound = |bound: &Scalar| -> Option<Scalar> {
                Some(match (turn, dtype) {
                    (0, _) => bound.clone(),
                    (_, DType::Float32) => Scalar::from_element((bound.as_f64()? - by) as f32),
                    _ => Scalar::from_element(bound.as_f64()? - by),
                })
            };
            turned.push((by, bound(low)?, bound(high)?));
        }
        let place = |position: usize| {
            let value = labels.get(position)?;
            let within = |(_, low, high): &&(f64, Scalar, Scalar)| {
                value.compare(low).is_some_and(Ordering::is_ge)
                    && value.compare(high).is_some_and(Ordering::is_le)
            };
            Some(value.as_f64()? + turned.iter().find(within)?.0)
        };
        Some((0..labels.len()).map(place).collect())
    }

    /// The positions of a cyclic axis that have a place in a range, in the order of their places. They can continue at the start of
    /// the axis: positions from its extent on are those from 0 on.
    fn cyclic_run(&self, places: &[Option<f64>]) -> Result<Slice> {
        let count = places.iter().flatten().count();
        if count == 0 {
            return Ok(Slice::new(0, 0));
        }
        let run = |start: usize| places[start..].iter().chain(&places[..start]).take(count);
        let place = |i: &usize| places[*i].unwrap_or(f64::NAN);
        let positions = || (0..places.len()).filter(|i| places[*i].is_some());
        let first = positions().min_by(|a, b| place(a).total_cmp(&place(b)));
        // Equal places are in the order of the axis: the last of the largest can be followed by smaller ones.
        let last = positions().rev().max_by(|a, b| place(a).total_cmp(&place(b)));
        let start_of = |at: Option<usize>| {
            // Equal neighbors before it belong to the same end of the range.
            let at = at?;
            let before = (1..places.len()).map(|n| (at + places.len() - n) % places.len());
            Some(before.take_while(|i| places[*i] == places[at]).last().unwrap_or(at))
        };
        let sorted = |start: usize, descending: bool| {
            run(start).all(Option::is_some)
                && run(start).flatten().is_sorted_by(|a, b| if descending { a >= b } else { a <= b })
        };
        for (at, descending) in [(start_of(first), false), (start_of(last), true)] {
            if let Some(start) = at.filter(|start| sorted(*start, descending)) {
                let start = start as u64;
                return Ok(Slice::new(start, start + count as u64));
            }
        }
        // Unsorted coordinates of one block are used unchanged.
        let start = positions().next().unwrap_or(0);
        match run(start).all(Option::is_some) && start + count <= places.len() {
            true => Ok(Slice::new(start as u64, (start + count) as u64)),
            false => Err(self.not_adjacent()),
        }
    }

    /// Returns which of some positions has the nearest coordinate; of two at the same distance, that of the larger one. Positions
    /// from the extent on are those of an axis that continues at its start.
    pub(super) fn nearest(&self, text: &str, among: Slice) -> Result<u64> {
        if text.is_empty() {
            return Err(self.invalid_selection("missing value after `~`"));
        }
        if matches!(self.coordinates, CoordinateValues::Words(_)) {
            return Err(self.invalid_selection(
                "the nearest label requires numbers or dates, the labels are text: use `@`",
            ));
        }
        let bound = self.bound(text)?;
        if let Some(position) = self.clamped(&bound, among) {
            return Ok(position);
        }
        let mut best: Option<(Distance, u64)> = None;
        for position in (0..among.count()).map(|i| among.start + i * among.step) {
            let Some(distance) = self.distance(position % self.extent.max(1), &bound) else { continue };
            if best.as_ref().is_none_or(|(least, _)| distance.is_nearer(least)) {
                best = Some((distance, position));
            }
        }
        let (_, position) = best.ok_or_else(|| self.missing(text))?;
        Ok(position)
    }

    /// The nearest of some positions of a domain, whose coordinates are consecutive.
    fn clamped(&self, bound: &RangeEnd, among: Slice) -> Option<u64> {
        let last = among.count().checked_sub(1).filter(|_| self.is_domain() && among.end <= self.extent)?;
        let position = |i: u64| among.start + i * among.step;
        let reached = |i: u64| self.side(position(i), bound).is_some_and(Ordering::is_ge);
        let at = first_where(among.count(), reached).min(last);
        let before = at.saturating_sub(1);
        let nearer = self.distance(position(at), bound)?.is_nearer(&self.distance(position(before), bound)?);
        Some(position(if nearer || before == at { at } else { before }))
    }

    fn distance(&self, position: u64, bound: &RangeEnd) -> Option<Distance> {
        let index = usize::try_from(position).ok()?;
        let (value, wanted) = match (&self.coordinates, bound) {
            (CoordinateValues::Dates(dates) | CoordinateValues::Times(dates, _), RangeEnd::Date(span)) => {
                return Some(Distance::exact((*dates.get(index)?)?, span.start));
            }
            (CoordinateValues::DateDomain(first, unit), RangeEnd::Date(span)) => {
                let count = i64::try_from(i128::from(*first).checked_add(i128::from(position))?).ok()?;
                return Some(Distance::exact(instant::of_count(count, *unit)?, span.start));
            }
            (CoordinateValues::Numerals(values), RangeEnd::Number(wanted)) => {
                (values.get(index)?.clone(), wanted)
            }
            (CoordinateValues::Numbers(labels, _), RangeEnd::Number(wanted)) => (labels.get(index)?, wanted),
            (CoordinateValues::IntegerDomain(first), RangeEnd::Number(wanted)) => {
                let value = first.checked_add(i128::from(position))?;
                match wanted.as_i128() {
                    Some(wanted) => return Some(Distance::exact(value, wanted)),
                    None => (Scalar::from_element(i64::try_from(value).ok()?), wanted),
                }
            }
            _ => return None,
        };
        if let (Some(a), Some(b), None) = (value.as_i128(), wanted.as_i128(), self.dim.period) {
            return Some(Distance::exact(a, b));
        }
        let (value, wanted) = (value.as_f64().filter(|v| v.is_finite())?, wanted.as_f64()?);
        let mut length = (value - wanted).abs();
        if let Some(period) = self.dim.period {
            length = (value - wanted).rem_euclid(period);
            length = length.min(period - length);
        }
        Some(Distance { whole: 0, rest: length, larger: value > wanted })
    }

    /// Returns the positions whose coordinates satisfy a comparison, as runs. Words support equality only.
    pub(super) fn meeting(&self, op: Op, text: &str) -> Result<Vec<Slice>> {
        let words = match &self.coordinates {
            CoordinateValues::Words(words) => Some(*words),
            _ => None,
        };
        if words.is_some() && !matches!(op, Op::Eq | Op::Ne) {
            let detail = "the labels are unordered: use `==`, `!=` or `in`";
            return Err(self.invalid_selection(detail));
        }
        let bound = if words.is_none() { Some(self.bound(text)?) } else { None };
        let order = |position: u64| match (words, &bound) {
            (Some(words), _) => words.get(usize::try_from(position).ok()?).map(|w| w.as_str().cmp(text)),
            (None, Some(bound)) => self.side(position, bound),
            (None, None) => None,
        };
        let mut runs: Vec<Slice> = Vec::new();
        for position in (0..self.extent).filter(|p| op.holds(order(*p))) {
            match runs.last_mut() {
                Some(run) if run.end == position => run.end += 1,
                _ => runs.push(Slice::new(position, position + 1)),
            }
        }
        Ok(runs)
    }

    /// Rejects a word at two separate positions, which is ambiguous.
    fn unique(&self, words: &[String], ends: [usize; 2]) -> Result<()> {
        for end in ends {
            let mut same = words.iter().enumerate().filter(|(_, w)| **w == words[end]).map(|(i, _)| i);
            let first = same.next().unwrap_or(end);
            if let Some((_, apart)) = same.enumerate().find(|(n, at)| first + n + 1 != *at) {
                let word = &words[end];
                let detail = format!("ambiguous label {word:?} at positions {first} and {apart}");
                return Err(self.invalid_selection(&detail).hint(Advice::SelectByPosition));
            }
        }
        Ok(())
    }

    fn is_domain(&self) -> bool {
        matches!(self.coordinates, CoordinateValues::IntegerDomain(_) | CoordinateValues::DateDomain(..))
    }

    fn bound(&self, text: &str) -> Result<RangeEnd> {
        let date = || instant::span(text).map(RangeEnd::Date);
        let number = || numeral(text).map(RangeEnd::Number);
        match &self.coordinates {
            CoordinateValues::Dates(_) | CoordinateValues::DateDomain(..) => date().ok_or_else(|| {
                self.invalid_selection(&format!(
                    "invalid date {text:?}: expected a date such as 2015, 2015-07 or 2015-07-01T06:00"
                ))
            }),
            CoordinateValues::Times(_, units) => match numeral(text).filter(|_| !is_year(text)) {
                // A number is one of those that count the time.
                Some(number) => {
                    let at = units.instant(&number).map(|at| at..at.saturating_add(1));
                    at.map(RangeEnd::Date)
                        .ok_or_else(|| self.invalid_selection(&format!("{text:?} is beyond the calendar")))
                }
                None => units
                    .span(text)
                    .map(RangeEnd::Date)
                    .map_err(|error| self.invalid_selection(&error.to_string())),
            },
            // First in the labels' own dtype: 0.1 must match the nearest float32.
            CoordinateValues::Numbers(_, dtype) => Scalar::parse(*dtype, text)
                .ok()
                .map(RangeEnd::Number)
                .or_else(number)
                .ok_or_else(|| self.invalid_selection(&format!("invalid number {text:?}"))),
            _ => number().ok_or_else(|| self.invalid_selection(&format!("invalid number {text:?}"))),
        }
    }

    /// Compares the coordinate of a position with a bound; a date inside the bound's period is equal to it.
    fn side(&self, position: u64, bound: &RangeEnd) -> Option<Ordering> {
        let index = || usize::try_from(position).ok();
        let instant = match (&self.coordinates, bound) {
            (CoordinateValues::Numerals(values), RangeEnd::Number(b)) => {
                return values.get(index()?)?.compare(b);
            }
            (CoordinateValues::Numbers(labels, _), RangeEnd::Number(b)) => {
                return labels.get(index()?)?.compare(b);
            }
            (CoordinateValues::IntegerDomain(first), RangeEnd::Number(b)) => {
                let value = first.checked_add(i128::from(position))?;
                let value = i64::try_from(value)
                    .map(Scalar::from_element)
                    .or_else(|_| u64::try_from(value).map(Scalar::from_element));
                return value.ok()?.compare(b);
            }
            (CoordinateValues::Dates(dates) | CoordinateValues::Times(dates, _), RangeEnd::Date(_)) => {
                (*dates.get(index()?)?)?
            }
            (CoordinateValues::DateDomain(first, unit), RangeEnd::Date(_)) => {
                let count = i128::from(*first).checked_add(i128::from(position))?;
                instant::of_count(i64::try_from(count).ok()?, *unit)?
            }
            _ => return None,
        };
        match bound {
            RangeEnd::Date(span) if instant < span.start => Some(Ordering::Less),
            RangeEnd::Date(span) if instant >= span.end => Some(Ordering::Greater),
            RangeEnd::Date(_) => Some(Ordering::Equal),
            RangeEnd::Number(_) => None,
        }
    }

    fn invalid_selection(&self, detail: &str) -> Error {
        Error::invalid(format!("{:?}: {detail}", self.argument))
    }

    fn missing(&self, value: &str) -> Error {
        let what = if self.dim.name.is_empty() {
            "coordinate".to_owned()
        } else {
            format!("coordinate along {:?}", self.dim.name)
        };
        let labels = self.dim.labels.as_ref();
        let shown = |i: usize| self.dim.coordinate_text(i as u64);
        let candidates = (0..labels.map_or(0, Labels::len)).filter_map(shown).collect();
        Error::not_found(what, value, candidates).hint(Advice::InSelection(self.argument.to_owned()))
    }
}

/// Distance of a coordinate from a value: of integers exactly, of floats in `rest`.
struct Distance {
    whole: u128,
    rest: f64,
    /// Whether the coordinate is larger than the value.
    larger: bool,
}

impl Distance {
    fn exact(coordinate: i128, value: i128) -> Self {
        Self { whole: coordinate.abs_diff(value), rest: 0.0, larger: coordinate > value }
    }

    fn is_nearer(&self, other: &Self) -> bool {
        let order = self.whole.cmp(&other.whole).then(self.rest.total_cmp(&other.rest));
        order == Ordering::Less || (order == Ordering::Equal && self.larger && !other.larger)
    }
}

impl RangeEnd {
    fn is_after(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.compare(b) == Some(Ordering::Greater),
            (Self::Date(a), Self::Date(b)) => a.start >= b.end,
            _ => false,
        }
    }
}

fn no_coordinates(argument: &str) -> Error {
    Error::invalid(format!("{argument:?}: the dimension has no coordinates")).hint(Advice::SelectByPosition)
}

/// Type of text labels: numbers if all are, dates if all are, otherwise words. Dates in an unknown time zone are an error.
fn of_words<'a>(words: &'a [String], argument: &str) -> Result<CoordinateValues<'a>> {
    if let Some(numbers) = words.iter().map(|w| numeral(w)).collect() {
        return Ok(CoordinateValues::Numerals(numbers));
    }
    if let Some(dates) = words.iter().map(|w| instant::span(w).map(|span| Some(span.start))).collect() {
        return Ok(CoordinateValues::Dates(dates));
    }
    let zoned = |word: &str| instant::unknown_zone(word).is_some();
    if let Some(zone) = words.iter().find_map(|word| instant::unknown_zone(word))
        && words.iter().all(|word| zoned(word) || instant::span(word).is_some())
    {
        let feature = format!("{argument:?}: the time zone {zone:?} of labels");
        return Err(Error::unsupported(feature).hint(Advice::SelectByPosition));
    }
    Ok(CoordinateValues::Words(words))
}

/// Returns whether a text without a sign, a point or an exponent can be a year: four digits.
fn is_year(text: &str) -> bool {
    let text = text.trim();
    text.len() == 4 && text.bytes().all(|b| b.is_ascii_digit())
}

/// A finite number, without loss if it fits 64 bits.
pub(crate) fn numeral(text: &str) -> Option<Scalar> {
    let text = text.trim();
    let integer = text.parse::<i64>().map(Scalar::from_element);
    let integer = integer.or_else(|_| text.parse::<u64>().map(Scalar::from_element));
    integer.ok().or_else(|| text.parse::<f64>().ok().filter(|v| v.is_finite()).map(Scalar::from_element))
}

/// The first of `0..count` for which an ascending predicate is true, or `count`.
fn first_where(count: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}
