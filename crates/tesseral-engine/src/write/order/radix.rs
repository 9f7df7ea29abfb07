//! Sorting of words by their first digit: one pass divides them into buckets that fit the cache, which are then sorted by themselves.
//!
//! 1. Each thread counts the digits of its block of words and divides the block, in memory of its own.
//! 2. Each bucket of the result is collected from the blocks and sorted, buckets on all threads.
//!
//! Comparing words of five million cells directly takes some twenty passes over memory, this takes three.

use rayon::prelude::*;

/// Bits of the first digit.
const DIGIT: u32 = 11;
/// Fewer words are sorted directly.
const WORTH: usize = 1 << 15;

/// Sorts words, of which only the lowest `bits` are used.
pub(super) fn sort(words: &mut [u64], bits: u32) {
    if words.len() < WORTH {
        words.sort_unstable();
        return;
    }
    let digit = |word: u64| {
        let digit = word.unbounded_shr(bits.saturating_sub(DIGIT));
        usize::try_from(digit).unwrap_or(usize::MAX).min((1 << DIGIT) - 1)
    };
    let block = words.len().div_ceil(rayon::current_num_threads().max(1));
    // Where each bucket of a block begins and the last one ends, from the start of the block.
    let starts = |words: &[u64]| {
        let mut starts = vec![0_usize; (1 << DIGIT) + 1];
        words.iter().for_each(|word| starts[digit(*word) + 1] += 1);
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        starts
    };
    let starts: Vec<Vec<usize>> = words.par_chunks(block).map(starts).collect();
    let mut divided = vec![0_u64; words.len()];
    divided.par_chunks_mut(block).zip(words.par_chunks(block)).zip(&starts).for_each(
        |((out, words), starts)| {
            let mut next = starts.clone();
            for word in words {
                let at = &mut next[digit(*word)];
                out[*at] = *word;
                *at += 1;
            }
        },
    );
    let mut rest = words;
    let mut buckets = Vec::with_capacity(1 << DIGIT);
    for bucket in 0..1 << DIGIT {
        let len = starts.iter().map(|starts| starts[bucket + 1] - starts[bucket]).sum();
        let (own, others) = rest.split_at_mut(len);
        buckets.push(own);
        rest = others;
    }
    buckets.into_par_iter().enumerate().for_each(|(bucket, out)| {
        let mut at = 0;
        for (block, starts) in divided.chunks(block).zip(&starts) {
            let part = &block[starts[bucket]..starts[bucket + 1]];
            out[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        // Most words of a skewed distribution can be in one bucket.
        if out.len() < WORTH { out.sort_unstable() } else { out.par_sort_unstable() }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_standard_sort() {
        let mut state = 1_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for (len, bits, skewed) in [
            (0, 10, false),
            (1000, 64, false),
            (100_000, 64, false),
            (100_001, 40, false),
            (70_000, 5, false),
            (90_000, 64, true),
            (WORTH, 12, false),
        ] {
            let mask = u64::MAX >> (64 - bits);
            let mut words: Vec<u64> =
                (0..len).map(|i| if skewed && i % 10 > 0 { random() % 7 } else { random() & mask }).collect();
            let mut expected = words.clone();
            expected.sort_unstable();
            sort(&mut words, bits);
            assert!(words == expected, "{len} {bits} {skewed}");
        }
    }
}
