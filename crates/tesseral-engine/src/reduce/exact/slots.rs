//! Exact sums of many positions at once.
//!
//! A sum per position in limbs would be large and slow to add to. Here a sum is up to three doubles and, rarely, limbs:
//!
//! ```text
//! for each part, until nothing is left of any term:
//!     for each position:  (part, term) = (part + term rounded, the rounding error)
//! what is left after three parts goes to the limbs of its position
//! ```
//!
//! 1. The rounding error of an addition of doubles is a double, and six additions compute it without a branch (Knuth). So the sum
//!    of parts and limbs is exact at any time.
//! 2. Neighboring positions are neighboring lanes.
//! 3. A part exists once there is an error for it. Sums of float32 of similar size take one double per position, of float64
//!    two; limbs are needed beyond 159 bits between the largest sum and the smallest term.
//! 4. Terms are below 2^959, so that 2^64 of them cannot overflow a part; larger ones go to limbs at once.

use std::collections::BTreeMap;

use multiversion::multiversion;

use super::fixed::Fixed;
use super::rounding::{quotient, spread, two_sum};

const PARTS: usize = 3;
/// Positions whose parts are copied at once.
const PIECE: usize = 512;
/// Counts up to this are doubles.
const COUNTABLE: u64 = 1 << 53;

/// Exact sums of positions.
#[derive(Clone, Debug)]
pub(crate) struct SlotSums {
    slots: usize,
    parts: Vec<Vec<f64>>,
    limbs: BTreeMap<usize, Fixed>,
}

/// Positions at a constant distance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotRange {
    pub first: usize,
    pub step: usize,
}

impl SlotRange {
    #[inline(always)]
    pub fn at(self, i: usize) -> usize {
        self.first + i * self.step
    }
}

impl SlotSums {
    /// Terms are below this by magnitude: 2^959.
    pub const LIMIT: f64 = f64::from_bits((959 + 1023) << 52);
    /// Up to 2^64 terms of at most 2^`TOP` stay below the limit.
    pub const TOP: i32 = 959 - 64;

    /// Sums of no terms.
    pub fn new(slots: usize) -> Self {
        Self { slots, parts: Vec::new(), limbs: BTreeMap::new() }
    }

    /// Adds a term to each position of a range. Terms are below [`LIMIT`](Self::LIMIT); afterwards they are undefined.
    pub fn add_terms(&mut self, range: SlotRange, terms: &mut [f64]) {
        self.add_terms_from(0, range, terms);
    }

    /// The same, beginning with a part: for terms that are smaller than the parts before it.
    pub fn add_terms_from(&mut self, first: usize, range: SlotRange, terms: &mut [f64]) {
        if terms.is_empty() {
            return;
        }
        for k in first..PARTS {
            while self.parts.len() <= k {
                self.parts.push(vec![0.0; self.slots]);
            }
            let part = &mut self.parts[k];
            let left = if range.step == 1 {
                add_adjacent(&mut part[range.first..range.first + terms.len()], terms)
            } else {
                let mut left = false;
                for (i, term) in terms.iter_mut().enumerate() {
                    let slot = &mut part[range.at(i)];
                    (*slot, *term) = two_sum(*slot, *term);
                    left |= *term != 0.0;
                }
                left
            };
            if !left {
                return;
            }
        }
        for (i, &term) in terms.iter().enumerate().filter(|(_, term)| **term != 0.0) {
            self.limbs(range.at(i)).add_f64(term);
        }
    }

    /// Adds a term below [`LIMIT`](Self::LIMIT) to a position.
    fn add_term(&mut self, slot: usize, mut term: f64) {
        for k in 0..PARTS {
            if term == 0.0 {
                return;
            }
            if self.parts.len() == k {
                self.parts.push(vec![0.0; self.slots]);
            }
            let part = &mut self.parts[k][slot];
            (*part, term) = two_sum(*part, term);
        }
        if term != 0.0 {
            self.limbs(slot).add_f64(term);
        }
    }

    /// Adds an exact sum to a position.
    pub fn add(&mut self, slot: usize, sum: &Fixed) {
        match sum.terms() {
            Some(terms) => terms.into_iter().for_each(|term| self.add_term(slot, term)),
            None => self.limbs(slot).merge(sum),
        }
    }

    /// The limbs of a position, which are part of its sum.
    pub fn limbs(&mut self, slot: usize) -> &mut Fixed {
        self.limbs.entry(slot).or_default()
    }

    /// Adds the sums of other positions, one to one.
    pub fn merge(&mut self, other: &Self) {
        let mut terms = [0.0; PIECE];
        for (k, part) in other.parts.iter().enumerate() {
            for (i, piece) in part.chunks(PIECE).enumerate() {
                let terms = &mut terms[..piece.len()];
                terms.copy_from_slice(piece);
                self.add_terms_from(k, SlotRange { first: i * PIECE, step: 1 }, terms);
            }
        }
        for (&slot, limbs) in &other.limbs {
            self.limbs(slot).merge(limbs);
        }
    }

    /// The exact sum of a position.
    pub fn exact(&self, slot: usize) -> Fixed {
        let mut sum = self.limbs.get(&slot).cloned().unwrap_or_default();
        self.parts.iter().for_each(|part| sum.add_f64(part[slot]));
        sum
    }

    /// The sum of a position as two doubles, the first of which is the rounded sum; `None` if two are not enough.
    fn pair(&self, slot: usize) -> Option<(f64, f64)> {
        let part = |k: usize| self.parts.get(k).map_or(0.0, |part| part[slot]);
        let short = part(2) == 0.0 && !self.limbs.contains_key(&slot);
        short.then(|| two_sum(part(0), part(1)))
    }

    /// The correctly rounded sum of a position.
    pub fn value(&self, slot: usize) -> f64 {
        self.pair(slot).map_or_else(|| self.exact(slot).digits().to_f64(), |pair| pair.0)
    }

    /// The correctly rounded quotient of the sum of a position and a count, which must not be 0.
    pub fn mean(&self, slot: usize, n: u64) -> f64 {
        let pair = self.pair(slot).filter(|_| n <= COUNTABLE);
        let mean = pair.map_or(f64::NAN, |(sum, rest)| quotient(sum, rest, n as f64));
        if mean.is_nan() { self.exact(slot).digits().quotient(u128::from(n)) } else { mean }
    }

    /// The means of adjacent positions from `first` on, of the same count.
    pub fn means(&self, first: usize, n: u64, out: &mut [f64]) {
        for (piece, out) in out.chunks_mut(PIECE).enumerate() {
            let first = first + piece * PIECE;
            match self.triples(first, out.len()).filter(|_| n <= COUNTABLE) {
                Some(sums) => quotients(sums, n as f64, out),
                None => out.fill(f64::NAN),
            }
            for (i, mean) in out.iter_mut().enumerate().filter(|(_, mean)| mean.is_nan()) {
                *mean = self.mean(first + i, n);
            }
        }
    }

    /// The variances of adjacent positions from `first` on, or their roots, of the same count, with `ddof` degrees of freedom less;
    /// NaN where doubles do not decide how they round.
    pub fn spreads(&self, squares: &Self, (first, n, ddof): (usize, u64, u64), root: bool, out: &mut [f64]) {
        let divisor = n.saturating_mul(n.saturating_sub(ddof));
        for (piece, out) in out.chunks_mut(PIECE).enumerate() {
            let first = first + piece * PIECE;
            let both = (self.triples(first, out.len()), squares.triples(first, out.len()));
            match both {
                (Some(sums), Some(squares)) if divisor <= COUNTABLE => {
                    spreads(sums, squares, n as f64, divisor as f64, root, out);
                }
                _ => out.fill(f64::NAN),
            }
        }
    }

    /// The parts of up to [`PIECE`] adjacent positions from `first` on; `None` if one of them has limbs.
    fn triples(&self, first: usize, len: usize) -> Option<[&[f64]; PARTS]> {
        static ZEROS: [f64; PIECE] = [0.0; PIECE];
        let short = self.limbs.range(first..first + len).next().is_none();
        let part = |k: usize| self.parts.get(k).map_or(&ZEROS[..len], |part| &part[first..first + len]);
        short.then(|| std::array::from_fn(part))
    }
}

/// The means of sums of three parts; NaN where it is not known how they round.
#[multiversion(targets("x86_64+avx2+fma"))]
fn quotients(sums: [&[f64]; PARTS], n: f64, out: &mut [f64]) {
    let [a, b, c] = sums.map(|part| &part[..out.len()]);
    for (i, out) in out.iter_mut().enumerate() {
        let (sum, rest) = two_sum(a[i], b[i]);
        let mean = quotient(sum, rest, n);
        *out = if c[i] == 0.0 { mean } else { f64::NAN };
    }
}

/// The variances of sums of three parts, or their roots; NaN where it is not known how they round.
#[multiversion(targets("x86_64+avx2+fma"))]
fn spreads(
    sums: [&[f64]; PARTS],
    squares: [&[f64]; PARTS],
    n: f64,
    divisor: f64,
    root: bool,
    out: &mut [f64],
) {
    let [a, b, c] = sums.map(|part| &part[..out.len()]);
    let [d, e, f] = squares.map(|part| &part[..out.len()]);
    if root {
        for (i, out) in out.iter_mut().enumerate() {
            *out = spread::<true>([a[i], b[i], c[i]], [d[i], e[i], f[i]], n, divisor);
        }
    } else {
        for (i, out) in out.iter_mut().enumerate() {
            *out = spread::<false>([a[i], b[i], c[i]], [d[i], e[i], f[i]], n, divisor);
        }
    }
}

/// Adds terms to sums and replaces them by the rounding errors; whether any is not 0.
#[multiversion(targets("x86_64+avx2"))]
fn add_adjacent(sums: &mut [f64], terms: &mut [f64]) -> bool {
    let mut left = 0_u64;
    for (sum, term) in sums.iter_mut().zip(terms) {
        (*sum, *term) = two_sum(*sum, *term);
        left |= term.to_bits() << 1;
    }
    left != 0
}
