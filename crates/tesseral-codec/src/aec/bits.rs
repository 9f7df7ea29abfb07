//! Bits, most significant first.

use tesseral_core::{Error, Result};

/// Takes bits from a slice. The top `have` bits of `acc` are valid; those below are zero or what follows in the slice.
#[derive(Clone, Debug)]
pub(super) struct BitReader<'a> {
    src: &'a [u8],
    pos: usize,
    acc: u64,
    have: u32,
}

fn short() -> Error {
    Error::codec("szip", "the stream ends inside a block")
}

impl<'a> BitReader<'a> {
    /// Starts at a bit of the slice.
    pub(super) fn at(src: &'a [u8], bit: u64) -> Result<Self> {
        let pos = usize::try_from(bit / 8).ok().filter(|pos| *pos <= src.len()).ok_or_else(short)?;
        let mut reader = Self { src, pos, acc: 0, have: 0 };
        #[allow(clippy::cast_possible_truncation)]
        reader.read((bit % 8) as u32)?;
        Ok(reader)
    }

    /// The position in bits.
    pub(super) fn position(&self) -> u64 {
        self.pos as u64 * 8 - u64::from(self.have)
    }

    #[inline]
    fn refill(&mut self) {
        if let Some(word) = self.src.get(self.pos..self.pos + 8).and_then(|w| w.first_chunk::<8>()) {
            self.acc |= u64::from_be_bytes(*word) >> self.have;
            self.pos += ((63 - self.have) >> 3) as usize;
            self.have |= 56;
            return;
        }
        while self.have <= 56
            && let Some(byte) = self.src.get(self.pos)
        {
            self.acc |= u64::from(*byte) << (56 - self.have);
            self.have += 8;
            self.pos += 1;
        }
    }

    #[inline]
    fn skip(&mut self, n: u32) {
        self.acc <<= n;
        self.have -= n;
    }

    /// The next `n` bits, at most 32.
    #[inline]
    pub(super) fn read(&mut self, n: u32) -> Result<u32> {
        if n == 0 {
            return Ok(0);
        }
        if self.have < n {
            self.refill();
            if self.have < n {
                return Err(short());
            }
        }
        #[allow(clippy::cast_possible_truncation)]
        let value = (self.acc >> (64 - n)) as u32;
        self.skip(n);
        Ok(value)
    }

    /// The number of zeros before the next one, which is taken too.
    #[inline]
    pub(super) fn unary(&mut self) -> Result<u32> {
        let mut count = 0_u32;
        loop {
            let zeros = self.acc.leading_zeros();
            if zeros < self.have {
                self.skip(zeros);
                self.skip(1);
                return count.checked_add(zeros).ok_or_else(short);
            }
            count = count.checked_add(self.have).ok_or_else(short)?;
            self.acc = 0;
            self.have = 0;
            self.refill();
            if self.have == 0 {
                return Err(short());
            }
        }
    }
}

impl BitReader<'_> {
    /// Passes over `n` bits.
    pub(super) fn pass(&mut self, n: u64) -> Result<()> {
        if n < 64 && n <= self.have.into() {
            #[allow(clippy::cast_possible_truncation)]
            self.skip(n as u32);
            return Ok(());
        }
        let end = self.position().checked_add(n).filter(|end| *end <= self.src.len() as u64 * 8);
        *self = Self::at(self.src, end.ok_or_else(short)?)?;
        Ok(())
    }

    /// Passes over `n` ones and all zeros before them: as many numbers in unary.
    pub(super) fn pass_unary(&mut self, mut n: u32) -> Result<()> {
        loop {
            let valid = if self.have == 0 { 0 } else { self.acc & u64::MAX << (64 - self.have) };
            let ones = valid.count_ones();
            if ones >= n {
                let mut rest = valid;
                for _ in 1..n {
                    rest &= !(1 << 63 >> rest.leading_zeros());
                }
                let zeros = rest.leading_zeros();
                self.skip(zeros);
                self.skip(1);
                return Ok(());
            }
            n -= ones;
            self.acc = 0;
            self.have = 0;
            self.refill();
            if self.have == 0 {
                return Err(short());
            }
        }
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

    /// Writes the low `n` bits of a value that has no others, at most 32.
    #[inline]
    pub(super) fn put(&mut self, value: u32, n: u32) {
        self.acc = self.acc << n | u64::from(value);
        self.have += n;
        while self.have >= 32 {
            self.have -= 32;
            #[allow(clippy::cast_possible_truncation)]
            self.out.extend_from_slice(&((self.acc >> self.have) as u32).to_be_bytes());
        }
    }

    /// Writes zeros and a one.
    #[inline]
    pub(super) fn put_unary(&mut self, mut zeros: u32) {
        while zeros >= 31 {
            self.put(0, 31);
            zeros -= 31;
        }
        self.put(1, zeros + 1);
    }

    /// Fills the last byte with zeros.
    pub(super) fn finish(mut self) {
        while self.have >= 8 {
            self.have -= 8;
            #[allow(clippy::cast_possible_truncation)]
            self.out.push((self.acc >> self.have) as u8);
        }
        if self.have > 0 {
            #[allow(clippy::cast_possible_truncation)]
            self.out.push((self.acc << (8 - self.have)) as u8);
        }
    }
}
