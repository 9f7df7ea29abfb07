//! Cells of a sparse write in the order that the format stores them.
//!
//! Keys are computed block by block on all threads. Where all of a cell's keys fit in one word, each from its smallest value on and
//! in no more bits than its range takes, words are sorted together with the numbers of their cells; comparing key by key is what is
//! left for text and for keys that are too wide.

use std::cmp::Ordering;

use rayon::prelude::*;
use tesseral_core::{Error, Result};
use tesseral_format::{CellKey, CellKeys, ColumnData, Twice, Writer};

/// Cells whose keys are computed at a time.
const BLOCK: usize = 1 << 16;

/// Keys of all cells.
pub(super) fn keys<'a>(
    writer: &dyn Writer,
    array: usize,
    columns: &[ColumnData<'a>],
    sizes: &[Option<usize>],
    cells: usize,
) -> Result<CellKeys<'a>> {
    let blocks = cells.div_ceil(BLOCK);
    let slice = |block: usize| -> Option<Vec<ColumnData<'a>>> {
        let each = columns.iter().zip(sizes).map(|(column, size)| {
            let (start, end) = (block * BLOCK, ((block + 1) * BLOCK).min(cells));
            match (*column, *size) {
                (ColumnData::Fixed { values, .. }, Some(size)) => {
                    Some(ColumnData::Fixed { values: values.get(start * size..end * size)?, validity: None })
                }
                // Fields are not looked at; text of dimensions is not cut.
                _ => None,
            }
        });
        each.collect()
    };
    let parts: Option<Vec<_>> = (0..blocks).map(slice).collect();
    let Some(parts) = parts.filter(|parts| parts.len() > 1) else { return writer.cell_keys(array, columns) };
    let done: Result<Vec<CellKeys<'a>>> =
        parts.par_iter().map(|part| writer.cell_keys(array, part)).collect();
    // Whatever is wrong with a cell is said of its number among all cells.
    let Ok(mut done) = done else { return writer.cell_keys(array, columns) };
    let mut all = done.remove(0);
    for more in done {
        all.cells += more.cells;
        for (to, from) in all.keys.iter_mut().zip(more.keys) {
            if let (CellKey::Numbers(to), CellKey::Numbers(from)) = (to, from) {
                to.extend(from);
            }
        }
    }
    Ok(all)
}

/// The cells in order, those left out whose place another takes.
pub(super) fn sorted(keys: &CellKeys<'_>) -> Result<Vec<u32>> {
    let cells = u32::try_from(keys.cells)
        .map_err(|_| Error::limit("the cells of one write", keys.cells as u64, u64::from(u32::MAX)))?;
    match bits(keys) {
        Some(bits) if bits.iter().sum::<u32>() <= 64 => {
            settle(keys.twice, by_word(keys, &bits, |word: u64, key, bits| word.unbounded_shl(bits) | key))
        }
        Some(bits) if bits.iter().sum::<u32>() <= 128 => {
            settle(keys.twice, by_word(keys, &bits, |word: u128, key, bits| word << bits | u128::from(key)))
        }
        _ => {
            let mut order: Vec<u32> = (0..cells).collect();
            let compare = |a: u32, b: u32| keys.compare(a as usize, b as usize);
            order.par_sort_unstable_by(|&a, &b| compare(a, b).then(a.cmp(&b)));
            settle_by(keys.twice, order, |&cell| cell, |&a, &b| compare(a, b).is_eq())
        }
    }
}

/// Bits that each key takes from its smallest value on; `None` with text among them.
fn bits(keys: &CellKeys<'_>) -> Option<Vec<u32>> {
    let width = |key: &CellKey<'_>| match key {
        CellKey::Numbers(numbers) => {
            let (low, high) = range(numbers);
            Some(64 - (high - low).leading_zeros())
        }
        CellKey::Text { .. } => None,
    };
    keys.keys.iter().map(width).collect()
}

fn range(numbers: &[u64]) -> (u64, u64) {
    let ends = numbers.iter().fold((u64::MAX, 0), |(low, high), n| (low.min(*n), high.max(*n)));
    if numbers.is_empty() { (0, 0) } else { ends }
}

/// One word for each cell with its number, sorted.
fn by_word<W>(keys: &CellKeys<'_>, bits: &[u32], join: impl Fn(W, u64, u32) -> W + Sync) -> Vec<(W, u32)>
where
    W: Ord + Copy + Default + Send,
{
    let columns: Vec<(&[u64], u64, u32)> = keys
        .keys
        .iter()
        .zip(bits)
        .filter_map(|(key, bits)| match key {
            // A key that is the same everywhere orders nothing.
            CellKey::Numbers(numbers) if *bits > 0 => Some((&numbers[..], range(numbers).0, *bits)),
            _ => None,
        })
        .collect();
    let word = |cell: usize| {
        columns.iter().fold(W::default(), |word, (numbers, low, bits)| join(word, numbers[cell] - low, *bits))
    };
    let mut words: Vec<(W, u32)> = Vec::with_capacity(keys.cells);
    #[allow(clippy::cast_possible_truncation)] // `sorted` counted them
    (0..keys.cells).into_par_iter().map(|cell| (word(cell), cell as u32)).collect_into_vec(&mut words);
    words.par_sort_unstable();
    words
}

fn settle<W: Ord + Copy + Sync>(twice: Twice, words: Vec<(W, u32)>) -> Result<Vec<u32>> {
    settle_by(twice, words, |word| word.1, |a, b| a.0 == b.0)
}

/// Numbers of sorted cells, several at one position settled. The later of them stands behind the earlier.
fn settle_by<T>(
    twice: Twice,
    sorted: Vec<T>,
    number: impl Fn(&T) -> u32,
    same: impl Fn(&T, &T) -> bool,
) -> Result<Vec<u32>> {
    match twice {
        Twice::Keep => {}
        Twice::Refuse => {
            if let Some(pair) = sorted.windows(2).find(|pair| same(&pair[0], &pair[1])) {
                let (a, b) = (number(&pair[0]), number(&pair[1]));
                return Err(Error::invalid(format!("cells {a} and {b} have the same coordinates"))
                    .hint("ask for duplicates to be dropped, or allow them in the schema"));
            }
        }
        Twice::Last => {
            let last = |i: usize| sorted.get(i + 1).is_none_or(|next| !same(&sorted[i], next));
            return Ok((0..sorted.len()).filter(|&i| last(i)).map(|i| number(&sorted[i])).collect());
        }
    }
    Ok(sorted.iter().map(number).collect())
}

/// Refuses cells that are not in order, or twice at a position that holds one.
pub(super) fn check(keys: &CellKeys<'_>) -> Result<()> {
    for i in 1..keys.cells {
        match keys.compare(i - 1, i) {
            Ordering::Less => {}
            Ordering::Equal if keys.twice == Twice::Keep => {}
            Ordering::Equal => {
                return Err(Error::invalid(format!("cells {} and {i} have the same coordinates", i - 1)));
            }
            Ordering::Greater => {
                let detail = format!("cell {i} comes before cell {} in the order of the array", i - 1);
                return Err(Error::invalid(detail));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    /// Cells compared one by one, as simply as can be.
    fn naive(keys: &CellKeys<'_>) -> Option<Vec<u32>> {
        let mut order: Vec<u32> = (0..u32::try_from(keys.cells).unwrap()).collect();
        order.sort_by(|&a, &b| keys.compare(a as usize, b as usize));
        let same = |a: u32, b: u32| keys.compare(a as usize, b as usize).is_eq();
        match keys.twice {
            Twice::Keep => Some(order),
            Twice::Refuse => order.windows(2).all(|w| !same(w[0], w[1])).then_some(order),
            Twice::Last => {
                let last = |i: usize| order.get(i + 1).is_none_or(|next| !same(order[i], *next));
                Some((0..order.len()).filter(|i| last(*i)).map(|i| order[i]).collect())
            }
        }
    }

    #[test]
    fn every_way_of_sorting_agrees_with_comparing() {
        let mut state = 7_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 20
        };
        let text = CellKey::Text { ends: Cow::Owned((1..=300).collect()), data: Cow::Owned(vec![7; 300]) };
        // Words of 64 bits, of 128, and what fits neither; few and many equal cells.
        for (ranges, more) in [
            (vec![10, 1, 20], None),
            (vec![4, 3], None),
            (vec![u64::MAX, 1 << 40], None),
            (vec![1 << 44, u64::MAX, u64::MAX], None),
            (vec![9, 9], Some(text)),
        ] {
            for twice in [Twice::Keep, Twice::Last, Twice::Refuse] {
                let mut numbers =
                    |range: &u64| CellKey::Numbers((0..300).map(|_| random() % range).collect());
                let keys = ranges.iter().map(&mut numbers).chain(more.clone()).collect();
                let keys = CellKeys { keys, cells: 300, twice };
                assert_eq!(sorted(&keys).ok(), naive(&keys), "{ranges:?} {twice:?}");
            }
        }
    }
}
