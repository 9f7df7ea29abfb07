//! Sorting of the cells of a sparse write in the order of the format.
//!
//! Keys are computed block by block on all threads, twice: first for the range of each, then for one word per cell that
//! contains all of them, each relative to its minimum and in as few bits as its range needs. Words are sorted together with the
//! indexes of their cells: in one word with them where both fit, which is sorted by its first digit and then digit by digit in the
//! cache ([`radix`]). So the keys of all cells, which can be larger than the cells, are never in memory at once; only text
//! and keys that are too wide for a word are gathered and compared.

mod radix;

use std::borrow::Cow;
use std::cmp::Ordering;

use rayon::prelude::*;
use tesseral_core::{Advice, Error, Result};
use tesseral_format::{CellKey, CellKeys, ColumnData, DuplicatePolicy, Writer};

/// Number of cells whose keys are computed at a time.
const BLOCK: usize = 1 << 16;

/// Indexes of the cells of a write in order, without dropped duplicates.
pub(super) fn of_cells<'a>(
    writer: &dyn Writer,
    array: usize,
    columns: &[ColumnData<'a>],
    sizes: &[Option<usize>],
    cells: usize,
) -> Result<Vec<u32>> {
    let whole = || sorted(&writer.cell_keys(array, columns)?);
    let Some(parts) = blocks(columns, sizes, cells) else { return whole() };
    let keys = |part: &[ColumnData<'a>]| writer.cell_keys(array, part);
    let measured: Result<Vec<_>> =
        parts.par_iter().map(|part| keys(part).map(|keys| (ranges(&keys), keys.duplicate_policy))).collect();
    // Errors refer to the index among all cells.
    let Ok(measured) = measured else { return whole() };
    let duplicate_policy =
        measured.first().map_or(DuplicatePolicy::Reject, |(_, duplicate_policy)| *duplicate_policy);
    let ranges = measured.into_iter().map(|(ranges, _)| ranges).reduce(|all, some| {
        all?.into_iter().zip(some?).map(|(a, b)| Some((a.0.min(b.0), a.1.max(b.1)))).collect()
    });
    let Some(places) = ranges.flatten().map(|ranges| places(&ranges)) else { return whole() };
    let keys = |block: usize| keys(&parts[block]).map(Cow::Owned);
    match sort_words(duplicate_policy, cells, BLOCK, &places, keys)? {
        Some(order) => Ok(order),
        None => whole(),
    }
}

/// Sorts words that contain all keys; `None` if they are too wide.
fn sort_words<'k>(
    duplicate_policy: DuplicatePolicy,
    cells: usize,
    block: usize,
    places: &[(u64, u32)],
    keys: impl Fn(usize) -> Result<Cow<'k, CellKeys<'k>>> + Sync,
) -> Result<Option<Vec<u32>>> {
    let bits = places.iter().map(|(_, bits)| bits).sum::<u32>();
    let index = usize::BITS - cells.leading_zeros();
    let order = if bits + index <= u64::BITS {
        let pack = |word: u64, cell: u32| word.unbounded_shl(index) | u64::from(cell);
        let mut words = words(cells, block, places, join64, pack, keys)?;
        radix::sort(&mut words, bits + index);
        // The lowest bits, which are fewer than 33.
        let cell = |word: &u64| (word & ((1 << index) - 1)) as u32;
        settle_by(duplicate_policy, words, cell, |a, b| a.unbounded_shr(index) == b.unbounded_shr(index))
    } else if bits <= u64::BITS {
        settle(duplicate_policy, words(cells, block, places, join64, |word, cell| (word, cell), keys)?)
    } else if bits <= u128::BITS {
        settle(duplicate_policy, words(cells, block, places, join128, |word, cell| (word, cell), keys)?)
    } else {
        return Ok(None);
    };
    order.map(Some)
}

/// The columns divided into blocks; `None` if they are one block, or cannot be divided.
fn blocks<'a>(
    columns: &[ColumnData<'a>],
    sizes: &[Option<usize>],
    cells: usize,
) -> Option<Vec<Vec<ColumnData<'a>>>> {
    let blocks = cells.div_ceil(BLOCK);
    let slice = |block: usize| -> Option<Vec<ColumnData<'a>>> {
        let each = columns.iter().zip(sizes).map(|(column, size)| {
            let (start, end) = (block * BLOCK, ((block + 1) * BLOCK).min(cells));
            match (*column, *size) {
                (ColumnData::Fixed { values, .. }, Some(size)) => {
                    Some(ColumnData::Fixed { values: values.get(start * size..end * size)?, validity: None })
                }
                // Fields are not used; text of dimensions is not divided.
                _ => None,
            }
        });
        each.collect()
    };
    let parts: Option<Vec<_>> = (0..blocks).map(slice).collect();
    parts.filter(|parts| parts.len() > 1)
}

/// Indexes of the cells of these keys in order, without dropped duplicates.
fn sorted(keys: &CellKeys<'_>) -> Result<Vec<u32>> {
    if let Some(places) = ranges(keys).map(|ranges| places(&ranges)) {
        let all = |_| Ok(Cow::Borrowed(keys));
        if let Some(order) = sort_words(keys.duplicate_policy, keys.cells, keys.cells, &places, all)? {
            return Ok(order);
        }
    }
    let mut order: Vec<u32> = (0..countable(keys.cells)?).collect();
    let compare = |a: u32, b: u32| keys.compare(a as usize, b as usize);
    order.par_sort_unstable_by(|&a, &b| compare(a, b).then(a.cmp(&b)));
    settle_by(keys.duplicate_policy, order, |&cell| cell, |&a, &b| compare(a, b).is_eq())
}

/// Cells have 32-bit indexes.
fn countable(cells: usize) -> Result<u32> {
    u32::try_from(cells)
        .map_err(|_| Error::limit("the cells of one write", cells as u64, u64::from(u32::MAX)))
}

/// Minimum and maximum of each key; `None` for text.
fn ranges(keys: &CellKeys<'_>) -> Option<Vec<(u64, u64)>> {
    let range = |key: &CellKey<'_>| match key {
        CellKey::Numbers(numbers) => {
            let ends = numbers.iter().fold((u64::MAX, 0), |(low, high), n| (low.min(*n), high.max(*n)));
            Some(if numbers.is_empty() { (0, 0) } else { ends })
        }
        CellKey::Text { .. } => None,
    };
    keys.keys.iter().map(range).collect()
}

/// Packing of keys into a word: offset and bits of each.
fn places(ranges: &[(u64, u64)]) -> Vec<(u64, u32)> {
    ranges.iter().map(|(low, high)| (*low, 64 - (high - low).leading_zeros())).collect()
}

fn join64(word: u64, key: u64, bits: u32) -> u64 {
    word.unbounded_shl(bits) | key
}

fn join128(word: u128, key: u64, bits: u32) -> u128 {
    word << bits | u128::from(key)
}

/// One word per cell, packed with its index. `keys` returns those of a block of cells.
fn words<'k, W, P>(
    cells: usize,
    block: usize,
    places: &[(u64, u32)],
    join: impl Fn(W, u64, u32) -> W + Sync,
    pack: impl Fn(W, u32) -> P + Sync,
    keys: impl Fn(usize) -> Result<Cow<'k, CellKeys<'k>>> + Sync,
) -> Result<Vec<P>>
where
    W: Copy + Default,
    P: Copy + Default + Send,
{
    countable(cells)?;
    let mut words = vec![P::default(); cells];
    words.par_chunks_mut(block.max(1)).enumerate().try_for_each(|(number, out)| -> Result<()> {
        let keys = keys(number)?;
        let columns: Vec<(&[u64], u64, u32)> = keys
            .keys
            .iter()
            .zip(places)
            .filter_map(|(key, (low, bits))| match key {
                // A constant key has no effect on the order.
                CellKey::Numbers(numbers) if *bits > 0 => Some((&numbers[..], *low, *bits)),
                _ => None,
            })
            .collect();
        // Column by column, so that the loops are simple.
        let mut joined = vec![W::default(); out.len()];
        for (numbers, low, bits) in columns {
            joined.iter_mut().zip(numbers).for_each(|(word, number)| *word = join(*word, number - low, bits));
        }
        for (i, (word, key)) in out.iter_mut().zip(joined).enumerate() {
            // Counted above.
            let cell = (number * block + i) as u32;
            *word = pack(key, cell);
        }
        Ok(())
    })?;
    Ok(words)
}

fn settle<W: Ord + Copy + Send>(
    duplicate_policy: DuplicatePolicy,
    mut words: Vec<(W, u32)>,
) -> Result<Vec<u32>> {
    words.par_sort_unstable();
    settle_by(duplicate_policy, words, |word| word.1, |a, b| a.0 == b.0)
}

/// Indexes of sorted cells with duplicates resolved. The later cell follows the earlier one.
fn settle_by<T>(
    duplicate_policy: DuplicatePolicy,
    sorted: Vec<T>,
    number: impl Fn(&T) -> u32,
    same: impl Fn(&T, &T) -> bool,
) -> Result<Vec<u32>> {
    match duplicate_policy {
        DuplicatePolicy::KeepAll => {}
        DuplicatePolicy::Reject => {
            if let Some(pair) = sorted.windows(2).find(|pair| same(&pair[0], &pair[1])) {
                let (a, b) = (number(&pair[0]), number(&pair[1]));
                return Err(Error::invalid(format!("cells {a} and {b} have the same coordinates"))
                    .hint(Advice::DropDuplicates.or("allow duplicates in the schema")));
            }
        }
        DuplicatePolicy::KeepLast => {
            let last = |i: usize| sorted.get(i + 1).is_none_or(|next| !same(&sorted[i], next));
            return Ok((0..sorted.len()).filter(|&i| last(i)).map(|i| number(&sorted[i])).collect());
        }
    }
    Ok(sorted.iter().map(number).collect())
}

/// Rejects cells that are not sorted, or duplicates if they are not allowed.
pub(super) fn check(keys: &CellKeys<'_>) -> Result<()> {
    for i in 1..keys.cells {
        match keys.compare(i - 1, i) {
            Ordering::Less => {}
            Ordering::Equal if keys.duplicate_policy == DuplicatePolicy::KeepAll => {}
            Ordering::Equal => {
                return Err(Error::invalid(format!("cells {} and {i} have the same coordinates", i - 1)));
            }
            Ordering::Greater => {
                let detail = format!("cell {i} precedes cell {} in the order of the array", i - 1);
                return Err(Error::invalid(detail));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Naive comparison of cells.
    fn naive(keys: &CellKeys<'_>) -> Option<Vec<u32>> {
        let mut order: Vec<u32> = (0..u32::try_from(keys.cells).unwrap()).collect();
        order.sort_by(|&a, &b| keys.compare(a as usize, b as usize));
        let same = |a: u32, b: u32| keys.compare(a as usize, b as usize).is_eq();
        match keys.duplicate_policy {
            DuplicatePolicy::KeepAll => Some(order),
            DuplicatePolicy::Reject => order.windows(2).all(|w| !same(w[0], w[1])).then_some(order),
            DuplicatePolicy::KeepLast => {
                let last = |i: usize| order.get(i + 1).is_none_or(|next| !same(order[i], *next));
                Some((0..order.len()).filter(|i| last(*i)).map(|i| order[i]).collect())
            }
        }
    }

    #[test]
    fn every_sort_strategy_agrees_with_comparisons() {
        let mut state = 7_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 20
        };
        let text = CellKey::Text { ends: Cow::Owned((1..=300).collect()), data: Cow::Owned(vec![7; 300]) };
        // Words of 64 bits, of 128, and keys that fit neither; few and many equal cells.
        for (ranges, more) in [
            (vec![10, 1, 20], None),
            (vec![4, 3], None),
            (vec![u64::MAX, 1 << 40], None),
            (vec![1 << 44, u64::MAX, u64::MAX], None),
            (vec![9, 9], Some(text)),
        ] {
            for duplicate_policy in
                [DuplicatePolicy::KeepAll, DuplicatePolicy::KeepLast, DuplicatePolicy::Reject]
            {
                let mut numbers =
                    |range: &u64| CellKey::Numbers((0..300).map(|_| random() % range).collect());
                let keys = ranges.iter().map(&mut numbers).chain(more.clone()).collect();
                let keys = CellKeys { keys, cells: 300, duplicate_policy };
                assert_eq!(sorted(&keys).ok(), naive(&keys), "{ranges:?} {duplicate_policy:?}");
            }
        }
    }

    /// Some of the keys of numbers.
    fn part(keys: &CellKeys<'_>, cells: std::ops::Range<usize>) -> CellKeys<'static> {
        let some = |key: &CellKey<'_>| match key {
            CellKey::Numbers(numbers) => CellKey::Numbers(numbers[cells.clone()].to_vec()),
            CellKey::Text { .. } => CellKey::Numbers(Vec::new()),
        };
        CellKeys {
            keys: keys.keys.iter().map(some).collect(),
            cells: cells.len(),
            duplicate_policy: keys.duplicate_policy,
        }
    }

    #[test]
    fn blocks_give_the_words_of_the_whole() {
        let numbers = |step: u64, below: u64| CellKey::Numbers((0..300).map(|i| i * step % below).collect());
        let keys = vec![numbers(7919, 13), numbers(104_729, 1009), numbers(31, 5)];
        let keys = CellKeys { keys, cells: 300, duplicate_policy: DuplicatePolicy::KeepAll };
        let places = places(&ranges(&keys).unwrap());
        let whole = words(300, 300, &places, join64, |w, c| (w, c), |_| Ok(Cow::Borrowed(&keys))).unwrap();
        for block in [1, 7, 128, 299] {
            let some = |number: usize| Ok(part(&keys, number * block..300.min((number + 1) * block)));
            let pair64 = |word: u64, cell: u32| (word, cell);
            let words64 = words(300, block, &places, join64, pair64, |n| some(n).map(Cow::Owned)).unwrap();
            assert_eq!(words64, whole, "{block}");
            let pair = |word: u128, cell: u32| (word, cell);
            let words128 = words(300, block, &places, join128, pair, |n| some(n).map(Cow::Owned)).unwrap();
            assert!(words128.iter().zip(&whole).all(|(a, b)| (a.0, a.1) == (b.0.into(), b.1)), "{block}");
        }
    }
}
