//! An accumulator that never rounds.
//!
//! A [`Fixed`] is a fixed-point number in limbs of 32 bits, each kept in an `i64`:
//!
//! ```text
//! value = Σ limb[i] · 2^(32·(first + i))
//! add ± m · 2^e:   shift m by e mod 32, and add its three 32-bit parts to limbs e div 32 and following
//! ```
//!
//! 1. The upper half of a limb collects carries, so an addition touches three limbs and propagates nothing. Carries are
//!    propagated after 2^29 additions, long before a limb overflows.
//! 2. Only the limbs between the smallest and the largest term exist. Most data fits the inline ones, so that a state per slot stays
//!    small; the full range of doubles takes 70.
//! 3. Limbs are integers, so the order of additions and of merges is irrelevant.

use smallvec::SmallVec;

use super::digits::Digits;

/// Additions between two propagations of carries.
const ADDITIONS: u32 = 1 << 29;

/// An exact sum.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fixed {
    /// The power of 2^32 of the first limb.
    first: i32,
    /// No limb exceeds this number times 2^32 by magnitude.
    additions: u32,
    limbs: SmallVec<[i64; 6]>,
}

impl Fixed {
    /// Adds `±magnitude · 2^exponent`.
    #[inline]
    pub fn add(&mut self, negative: bool, magnitude: u64, exponent: i32) {
        if magnitude == 0 {
            return;
        }
        let at = self.reserve(exponent.div_euclid(32), 3);
        add_parts(&mut self.limbs[at..at + 3], negative, magnitude, exponent);
        self.count(1);
    }

    /// Adds a float, which must be finite.
    #[inline]
    pub fn add_f64(&mut self, value: f64) {
        let (magnitude, exponent) = parts(value);
        self.add(value.is_sign_negative(), magnitude, exponent);
    }

    /// Adds `±magnitude · 2^exponent`.
    #[inline]
    pub fn add_wide(&mut self, negative: bool, magnitude: u128, exponent: i32) {
        self.add(negative, magnitude as u64, exponent);
        self.add(negative, (magnitude >> 64) as u64, exponent + 64);
    }

    /// Adds the square of a float, which must be finite.
    pub fn add_square(&mut self, value: f64) {
        let (magnitude, exponent) = parts(value);
        self.add_wide(false, u128::from(magnitude) * u128::from(magnitude), 2 * exponent);
    }

    /// Adds an integer.
    pub fn add_integer(&mut self, value: i128) {
        self.add_wide(value < 0, value.unsigned_abs(), 0);
    }

    /// Adds limbs that start at a power of 2^32; none exceeds `additions` times 2^32 by magnitude.
    pub fn add_limbs(&mut self, first: i32, limbs: &[i64], additions: u32) {
        let used = |limb: &&i64| **limb == 0;
        let (low, high) =
            (limbs.iter().take_while(used).count(), limbs.iter().rev().take_while(used).count());
        if low == limbs.len() {
            return;
        }
        if self.additions.saturating_add(additions) >= ADDITIONS {
            self.carry();
        }
        let limbs = &limbs[low..limbs.len() - high];
        let at = self.reserve(first + low as i32, limbs.len());
        self.limbs[at..at + limbs.len()].iter_mut().zip(limbs).for_each(|(to, from)| *to += from);
        self.count(additions);
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &Self) {
        if other.additions < ADDITIONS / 2 {
            self.add_limbs(other.first, &other.limbs, other.additions);
        } else {
            let mut other = other.clone();
            other.carry();
            self.add_limbs(other.first, &other.limbs, other.additions);
        }
    }

    /// Adds the product of another sum and a float, which must be finite.
    pub fn add_scaled(&mut self, sum: &Self, by: f64) {
        let (factor, exponent) = parts(by);
        for (power, &limb) in (sum.first..).zip(&sum.limbs) {
            let product = u128::from(limb.unsigned_abs()) * u128::from(factor);
            self.add_wide((limb < 0) != by.is_sign_negative(), product, 32 * power + exponent);
        }
    }

    /// The value as a sum of doubles far from the ends of their range; `None` if it has none of that kind.
    pub fn terms(&self) -> Option<SmallVec<[f64; 6]>> {
        // Limbs of at most 53 bits are doubles.
        if self.additions > 1 << 20 || self.first < -30 || self.end() > 28 {
            return None;
        }
        let power = |i: usize| f64::from_bits(((32 * (self.first + i as i32) + 1023) as u64) << 52);
        Some(self.limbs.iter().enumerate().map(|(i, &limb)| limb as f64 * power(i)).collect())
    }

    /// Whether only zeros were added.
    pub fn is_untouched(&self) -> bool {
        self.limbs.is_empty()
    }

    /// Whether the value is an integer of at most 128 bits with its sign.
    pub fn fits_i128(&self) -> bool {
        // Three limbs from 1 on are below 2^127 by far.
        (self.first >= 0 && self.end() <= 3) || self.digits().to_i128().is_some()
    }

    fn end(&self) -> i32 {
        self.first + self.limbs.len() as i32
    }

    /// Extends the limbs to `count` of them from a power of 2^32 on, and returns the index of the first.
    #[inline]
    fn reserve(&mut self, first: i32, count: usize) -> usize {
        if self.limbs.is_empty() {
            self.first = first;
        }
        if first < self.first {
            self.limbs.insert_many(0, std::iter::repeat_n(0, (self.first - first) as usize));
            self.first = first;
        }
        let at = (first - self.first) as usize;
        if at + count > self.limbs.len() {
            self.limbs.resize(at + count, 0);
        }
        at
    }

    #[inline]
    fn count(&mut self, additions: u32) {
        self.additions += additions;
        if self.additions >= ADDITIONS {
            self.carry();
        }
    }

    /// Propagates carries. The last limb keeps what it has unless that exceeds 32 bits, so that −1 does not grow without end.
    fn carry(&mut self) {
        let mut carry = 0;
        for limb in &mut self.limbs {
            let sum = *limb + carry;
            (*limb, carry) = (sum & 0xFFFF_FFFF, sum >> 32);
        }
        match (carry, self.limbs.last_mut()) {
            (0, _) | (_, None) => {}
            (-1, Some(last)) => *last -= 1 << 32,
            (carry, _) => self.limbs.push(carry),
        }
        self.additions = 1;
    }

    /// The value in canonical form.
    pub fn digits(&self) -> Digits {
        let mut digits: SmallVec<[u32; 16]> = SmallVec::with_capacity(self.limbs.len() + 2);
        let mut carry = 0_i64;
        for &limb in &self.limbs {
            let sum = limb + carry;
            digits.push(sum as u32);
            carry = sum >> 32;
        }
        digits.extend([carry as u32, (carry >> 32) as u32]);
        let negative = carry < 0;
        if negative {
            // The magnitude is the two's complement.
            let mut more = true;
            for digit in &mut digits {
                (*digit, more) = (!*digit).overflowing_add(u32::from(more));
            }
        }
        Digits::new(negative, self.first, digits)
    }
}

impl From<&Digits> for Fixed {
    fn from(from: &Digits) -> Self {
        let sign = if from.negative { -1 } else { 1 };
        let limbs = from.digits.iter().map(|&digit| sign * i64::from(digit)).collect();
        Self { first: from.first, additions: 1, limbs }
    }
}

impl PartialEq for Fixed {
    fn eq(&self, other: &Self) -> bool {
        self.digits() == other.digits()
    }
}

/// Adds `±magnitude · 2^(exponent mod 32)` to three limbs.
#[inline(always)]
fn add_parts(limbs: &mut [i64], negative: bool, magnitude: u64, exponent: i32) {
    let shift = exponent.rem_euclid(32);
    let (low, high) = (magnitude << shift, magnitude >> 32 >> (32 - shift));
    // Negates without a branch: x XOR -1, plus 1.
    let sign = -i64::from(negative);
    for (limb, part) in limbs.iter_mut().zip([low as u32, (low >> 32) as u32, high as u32]) {
        *limb += (i64::from(part) ^ sign) - sign;
    }
}

/// The integer and the power of two whose product is the magnitude of a finite float.
#[inline(always)]
pub(crate) fn parts(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> 52 & 0x7FF) as i32, bits & ((1 << 52) - 1));
    if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) }
}

/// Sum of many floats and products, in a limb for every power that either can have.
///
/// The limbs of a [`Fixed`] move when a smaller term arrives, which is too slow for one term after another.
pub(crate) struct AllLimbs {
    limbs: [i64; Self::COUNT],
    additions: u32,
}

impl AllLimbs {
    /// From 2^-2176, which is below the product of the two smallest doubles, to beyond the product of the two largest.
    const COUNT: usize = 136;
    const FIRST: i32 = -68;

    pub fn new() -> Self {
        Self { limbs: [0; Self::COUNT], additions: 0 }
    }

    /// Adds `±magnitude · 2^exponent`; at most 2^28 times.
    #[inline(always)]
    fn add(&mut self, negative: bool, magnitude: u64, exponent: i32) {
        let at = (exponent.div_euclid(32) - Self::FIRST) as usize;
        add_parts(&mut self.limbs[at..at + 3], negative, magnitude, exponent);
        self.additions += 1;
    }

    /// Adds a finite float.
    #[inline(always)]
    pub fn add_f64(&mut self, value: f64) {
        let (magnitude, exponent) = parts(value);
        self.add(value.is_sign_negative(), magnitude, exponent);
    }

    /// Adds the product of two finite floats.
    #[inline(always)]
    pub fn add_product(&mut self, x: f64, y: f64) {
        let ((a, i), (b, j)) = (parts(x), parts(y));
        let product = u128::from(a) * u128::from(b);
        let negative = x.is_sign_negative() != y.is_sign_negative();
        self.add(negative, product as u64, i + j);
        self.add(negative, (product >> 64) as u64, i + j + 64);
    }

    /// Adds these limbs to a sum.
    pub fn add_to(&self, sum: &mut Fixed) {
        sum.add_limbs(Self::FIRST, &self.limbs, self.additions);
    }
}
