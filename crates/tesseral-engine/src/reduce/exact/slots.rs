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

const PARTS: usize = 3;
/// Positions whose parts are copied at once.
const PIECE: usize = 512;

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
        if terms.is_empty() {
            return;
        }
        for k in 0..PARTS {
            if self.parts.len() == k {
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
        for part in &other.parts {
            for (i, piece) in part.chunks(PIECE).enumerate() {
                let terms = &mut terms[..piece.len()];
                terms.copy_from_slice(piece);
                self.add_terms(SlotRange { first: i * PIECE, step: 1 }, terms);
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
        self.pair(slot)
            .and_then(|(sum, rest)| quotient(sum, rest, n))
            .unwrap_or_else(|| self.exact(slot).digits().quotient(u128::from(n)))
    }
}

/// `(sum + rest) / n`, rounded once; `None` if double arithmetic does not decide how.
///
/// The remainder of `sum / n` is a double, so the quotient and a correction are known to about 100 bits. Unless a change in
/// the last of those would change the rounded sum of both, it is the rounded exact quotient.
fn quotient(sum: f64, rest: f64, n: u64) -> Option<f64> {
    const SMALLEST: f64 = f64::from_bits((1023 - 900) << 52);
    const RELATIVE_ERROR: f64 = f64::from_bits((1023 - 48) << 52);
    if n > 1 << 53 {
        return None;
    }
    let n = n as f64;
    let quotient = sum / n;
    if rest == 0.0 {
        return Some(quotient);
    }
    if quotient.abs() < SMALLEST {
        return None;
    }
    let correction = ((-quotient).mul_add(n, sum) + rest) / n;
    let doubt = correction.abs() * RELATIVE_ERROR;
    let (low, high) = (quotient + (correction - doubt), quotient + (correction + doubt));
    (low == high).then_some(low)
}

/// The rounded sum and its rounding error, of doubles whose sum does not overflow.
#[inline(always)]
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    (sum, (a - (sum - b_part)) + (b - b_part))
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
