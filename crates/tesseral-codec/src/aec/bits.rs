//! Bit streams, most significant bit first.

use tesseral_core::{Error, Result};

/// Reads bits from a slice. The only state is the position: every read loads the eight bytes there, so that consecutive reads
/// are independent.
#[derive(Clone, Debug)]
pub(super) struct BitReader<'a> {
    src: &'a [u8],
    bit: usize,
}

fn truncated() -> Error {
    Error::codec("szip", "truncated stream: unexpected end inside a block")
}

impl<'a> BitReader<'a> {
    /// A reader that starts at a bit of the slice.
    pub(super) fn at(src: &'a [u8], bit: u64) -> Result<Self> {
        let bit = usize::try_from(bit).ok().filter(|bit| bit.div_ceil(8) <= src.len());
        Ok(Self { src, bit: bit.ok_or_else(truncated)? })
    }

    /// The position in bits.
    pub(super) fn position(&self) -> u64 {
        self.bit as u64
    }

    /// The number of remaining bits.
    fn remaining(&self) -> usize {
        self.src.len() * 8 - self.bit
    }

    /// Eight bytes from `at` on, padded with zeros.
    #[inline]
    fn word(&self, at: usize) -> u64 {
        if let Some(word) = self.src.get(at..at + 8).and_then(|w| w.first_chunk::<8>()) {
            return u64::from_be_bytes(*word);
        }
        let mut word = [0; 8];
        let rest = self.src.get(at..).unwrap_or_default();
        word[..rest.len()].copy_from_slice(rest);
        u64::from_be_bytes(word)
    }

    /// The `n` bits at a position, 1 to 32.
    #[inline]
    fn peek(&self, bit: usize, n: u32) -> u32 {
        (self.word(bit / 8) << (bit % 8) >> (64 - n)) as u32
    }

    /// The next `n` bits, at most 32.
    #[inline]
    pub(super) fn read(&mut self, n: u32) -> Result<u32> {
        if n == 0 {
            return Ok(0);
        }
        if self.remaining() < n as usize {
            return Err(truncated());
        }
        let value = self.peek(self.bit, n);
        self.bit += n as usize;
        Ok(value)
    }

    /// Reads numbers of `n` bits into the low bits of `out`: each element becomes `element << n | number`.
    #[inline]
    pub(super) fn read_below(&mut self, n: u32, out: &mut [u32]) -> Result<()> {
        if n == 0 {
            return Ok(());
        }
        let bits = out.len() * n as usize;
        if self.remaining() < bits {
            return Err(truncated());
        }
        let mut bit = self.bit;
        for number in out {
            // No previous bits remain when `n` is 32.
            *number = number.checked_shl(n).unwrap_or(0) | self.peek(bit, n);
            bit += n as usize;
        }
        self.bit = bit;
        Ok(())
    }

    /// The number of zeros before the next 1 bit, which is consumed too.
    #[inline]
    pub(super) fn unary(&mut self) -> Result<u32> {
        let mut number = [0];
        self.unary_into(&mut number)?;
        Ok(number[0])
    }

    /// Reads `out.len()` unary numbers. A word of bits is reversed once; its 1 bits are then found from the low end, with two
    /// dependent instructions each.
    #[inline]
    pub(super) fn unary_into(&mut self, out: &mut [u32]) -> Result<()> {
        // The bit after the last 1 bit.
        let mut last = self.bit;
        let mut bit = self.bit;
        let mut numbers = out.iter_mut();
        let Some(mut number) = numbers.next() else { return Ok(()) };
        loop {
            let at = bit / 8;
            let mut word = self.word(at).reverse_bits() >> (bit % 8);
            while word != 0 {
                let set_bit = bit + word.trailing_zeros() as usize;
                {
                    *number = (set_bit - last) as u32;
                }
                last = set_bit + 1;
                word &= word - 1;
                let Some(next) = numbers.next() else {
                    self.bit = last;
                    return Ok(());
                };
                number = next;
            }
            bit = (at + 8) * 8;
            // A count beyond 32 bits belongs to no valid sample, however long the stream.
            if at + 8 >= self.src.len() || bit - last > u32::MAX as usize {
                return Err(truncated());
            }
        }
    }

    /// Skips `n` bits.
    pub(super) fn skip(&mut self, n: u64) -> Result<()> {
        let n = usize::try_from(n).ok().filter(|n| *n <= self.remaining()).ok_or_else(truncated)?;
        self.bit += n;
        Ok(())
    }

    /// Skips `n` unary numbers: `n` 1 bits and all zeros before them.
    pub(super) fn skip_unary(&mut self, mut n: u32) -> Result<()> {
        let mut bit = self.bit;
        while n > 0 {
            let at = bit / 8;
            let mut word = self.word(at).reverse_bits() >> (bit % 8);
            let ones = word.count_ones();
            if ones >= n {
                for _ in 1..n {
                    word &= word - 1;
                }
                self.bit = bit + word.trailing_zeros() as usize + 1;
                return Ok(());
            }
            n -= ones;
            bit = (at + 8) * 8;
            if at + 8 >= self.src.len() {
                return Err(truncated());
            }
        }
        Ok(())
    }
}

/// Appends bits to a vector.
#[derive(Debug)]
pub(super) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    acc: u64,
    have: u32,
}

impl<'a> BitWriter<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { start: out.len(), out, acc: 0, have: 0 }
    }

    /// Bits written so far.
    pub(super) fn position(&self) -> u64 {
        (self.out.len() - self.start) as u64 * 8 + u64::from(self.have)
    }

    /// Writes the low `n` bits of a value, at most 32; the higher bits must be zero.
    #[inline]
    pub(super) fn put(&mut self, value: u32, n: u32) {
        self.acc = self.acc << n | u64::from(value);
        self.have += n;
        while self.have >= 32 {
            self.have -= 32;
            self.out.extend_from_slice(&((self.acc >> self.have) as u32).to_be_bytes());
        }
    }

    /// Writes `zeros` 0 bits and a 1 bit.
    #[inline]
    pub(super) fn put_unary(&mut self, mut zeros: u32) {
        while zeros >= 31 {
            self.put(0, 31);
            zeros -= 31;
        }
        self.put(1, zeros + 1);
    }

    /// Pads the last byte with zeros.
    pub(super) fn finish(mut self) {
        while self.have >= 8 {
            self.have -= 8;
            self.out.push((self.acc >> self.have) as u8);
        }
        if self.have > 0 {
            self.out.push((self.acc << (8 - self.have)) as u8);
        }
    }
}
