//! Copies regions of elements between buffers with different layouts.
//!
//! A region is a shape and, for each side, the stride in bytes along each dimension. That covers clipped chunks, steps,
//! row-major to column-major, and a source value repeated along a dimension (stride 0).
//!
//! # Algorithm
//!
//! ```text
//! drop dimensions of extent 1; order the rest by stride in the target, largest first
//! merge a dimension with the next one where both sides are contiguous across it
//! for each position of the outer dimensions:
//!     innermost contiguous on both sides -> memcpy the run
//!     target contiguous, and the source contiguous along another dimension -> transpose those two in tiles
//!     otherwise -> element by element along the innermost dimension
//! ```
//!
//! 1. Ordering by the target makes stores sequential for any order of the caller, so two column-major buffers are copied as
//!    fast as two row-major ones.
//! 2. Merging turns a complete chunk into one run and a slab into few.
//! 3. Runs of 16, 32, 64, 128 or 256 bytes are copied inline: a call of `memcpy` costs more than the copy.
//! 4. A tile is one cache line wide on either side, so each line is read and written once while it is hot.
//! 5. The last byte of either side is compared with the buffer once, before the walk; the slice checks inside never fail.

use multiversion::multiversion;
use smallvec::SmallVec;
use tesseral_core::{Error, Result};

/// One dimension of a walk: its extent and the strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dim {
    pub count: usize,
    pub src: usize,
    pub dst: usize,
}

/// Elements along a line: `count` of them from `src` and `dst`, at these strides, all in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementRun {
    /// Offset of the first element in the source.
    pub src: usize,
    /// Offset of the first element in the target.
    pub dst: usize,
    /// Number of elements.
    pub count: usize,
    /// Stride in the source.
    pub src_stride: usize,
    /// Stride in the target.
    pub dst_stride: usize,
    /// Element size: the caller's, or 1 where that is not a power of two up to 16.
    pub elem: usize,
}

impl ElementRun {
    /// The length of the run in bytes when it is contiguous on both sides.
    #[inline]
    pub fn contiguous(&self) -> Option<usize> {
        (self.src_stride == self.elem && self.dst_stride == self.elem).then_some(self.count * self.elem)
    }

    /// Bytes of the target from the start of the first element to the end of the last.
    #[inline]
    pub fn dst_len(&self) -> usize {
        span(self.count, self.dst_stride, self.elem)
    }

    /// Copies the run from the source into `dst`, which begins at the offset [`dst`](Self::dst).
    ///
    /// # Panics
    /// When either slice is shorter than the run, which a comparison with the lengths of the [`Walk`] rules out.
    #[inline]
    pub fn copy(&self, src: &[u8], dst: &mut [u8]) {
        let src = &src[self.src..];
        match self.contiguous() {
            Some(len) => dst[..len].copy_from_slice(&src[..len]),
            None => copy_line(self, src, dst),
        }
    }
}

/// A walk over a region, reduced to as few and as long runs as the two layouts allow.
#[derive(Clone, Debug)]
pub struct Walk {
    /// Outermost first, never empty; a single extent of 0 is the empty region.
    dims: SmallVec<[Dim; 6]>,
    elem: usize,
    src_len: usize,
    dst_len: usize,
}

impl Walk {
    /// Prepares a walk over a region of `shape` elements of `elem` bytes.
    ///
    /// # Errors
    /// `InvalidRequest` when the ranks differ, `elem` is 0 or an offset does not fit the address space.
    pub fn new(src_strides: &[usize], dst_strides: &[usize], shape: &[usize], elem: usize) -> Result<Self> {
        if src_strides.len() != shape.len() || dst_strides.len() != shape.len() || elem == 0 {
            return Err(Error::invalid(format!(
                "rank mismatch: a region of rank {} and {elem}-byte elements with {} and {} strides",
                shape.len(),
                src_strides.len(),
                dst_strides.len()
            )));
        }
        if shape.contains(&0) {
            let nothing = Dim { count: 0, src: elem, dst: elem };
            return Ok(Self { dims: SmallVec::from_slice(&[nothing]), elem, src_len: 0, dst_len: 0 });
        }
        let length = |strides: &[usize]| {
            let reach =
                |len: usize, (&n, &stride): (&usize, &usize)| len.checked_add(stride.checked_mul(n - 1)?);
            shape.iter().zip(strides).try_fold(elem, reach)
        };
        let (Some(src_len), Some(dst_len)) = (length(src_strides), length(dst_strides)) else {
            return Err(Error::invalid(format!("region of shape {shape:?} exceeds the address space")));
        };
        let mut dims: SmallVec<[Dim; 6]> = shape
            .iter()
            .zip(src_strides.iter().zip(dst_strides))
            .filter(|&(&count, _)| count > 1)
            .map(|(&count, (&src, &dst))| Dim { count, src, dst })
            .collect();
        // Usually they are in order, and sorting would cost more than everything else here.
        if !dims.is_sorted_by(|a, b| (a.dst, a.src) >= (b.dst, b.src)) {
            dims.sort_by_key(|d| std::cmp::Reverse((d.dst, d.src)));
        }
        // Elements of odd sizes are runs of bytes.
        let unit = if matches!(elem, 1 | 2 | 4 | 8 | 16) { elem } else { 1 };
        if unit != elem {
            dims.push(Dim { count: elem, src: 1, dst: 1 });
        }
        merge(&mut dims);
        if dims.is_empty() {
            dims.push(Dim { count: 1, src: unit, dst: unit });
        }
        Ok(Self { dims, elem: unit, src_len, dst_len })
    }

    /// The required length of the source in bytes.
    pub fn src_len(&self) -> usize {
        self.src_len
    }

    /// The required length of the target in bytes.
    pub fn dst_len(&self) -> usize {
        self.dst_len
    }

    /// Calls `visit` with each run, in target order as far as the layouts allow.
    #[inline]
    pub fn for_each_run(&self, mut visit: impl FnMut(ElementRun)) {
        let Some((inner, outer)) = self.dims.split_last() else { return };
        if inner.count == 0 {
            return;
        }
        let &Dim { count, src: src_stride, dst: dst_stride } = inner;
        each_position(outer, |src, dst| {
            visit(ElementRun { src, dst, count, src_stride, dst_stride, elem: self.elem })
        });
    }

    /// The usual distance in bytes between runs of the target; `None` where there is one run.
    pub fn row_step(&self) -> Option<usize> {
        match self.dims.as_slice() {
            [.., rows, _] => Some(rows.dst),
            _ => None,
        }
    }

    /// For a source of evenly spaced runs: bytes per run, bytes between their starts, number of runs.
    pub fn even_runs(&self) -> Option<(usize, usize, usize)> {
        match self.dims.as_slice() {
            [inner] if inner.src == self.elem => Some((inner.count * self.elem, inner.count * self.elem, 1)),
            [outer, inner] if inner.src == self.elem => {
                Some((inner.count * self.elem, outer.src, outer.count))
            }
            _ => None,
        }
    }

    /// Copies the region.
    ///
    /// # Errors
    /// `InvalidRequest` when either buffer is shorter than the region.
    pub fn copy(&self, src: &[u8], dst: &mut [u8]) -> Result<()> {
        if src.len() < self.src_len {
            return Err(too_short(self.src_len, src.len()));
        }
        if dst.len() < self.dst_len {
            return Err(too_short(self.dst_len, dst.len()));
        }
        if let Some((rest, rows, columns)) = self.transposed() {
            each_position(&rest, |s, d| {
                let (src, dst) = (&src[s..], &mut dst[d..]);
                match self.elem {
                    1 => transpose::<1, 64>(src, columns.src, dst, rows.dst, rows.count, columns.count),
                    2 => transpose::<2, 32>(src, columns.src, dst, rows.dst, rows.count, columns.count),
                    4 => transpose::<4, 16>(src, columns.src, dst, rows.dst, rows.count, columns.count),
                    8 => transpose::<8, 8>(src, columns.src, dst, rows.dst, rows.count, columns.count),
                    _ => transpose::<16, 4>(src, columns.src, dst, rows.dst, rows.count, columns.count),
                }
            });
            return Ok(());
        }
        if let [rest @ .., rows, inner] = &self.dims[..]
            && (inner.src, inner.dst) == (self.elem, self.elem)
        {
            let len = inner.count * self.elem;
            each_position(rest, |s, d| {
                copy_rows(&src[s..], rows.src, &mut dst[d..], rows.dst, rows.count, len)
            });
            return Ok(());
        }
        self.for_each_run(|run| run.copy(src, &mut dst[run.dst..]));
        Ok(())
    }

    /// All other dimensions, and the two to transpose in tiles: the one contiguous in the source, the one in the target.
    fn transposed(&self) -> Option<(SmallVec<[Dim; 6]>, Dim, Dim)> {
        const WORTHWHILE: usize = 4;
        let (columns, outer) = self.dims.split_last()?;
        if columns.dst != self.elem || columns.src <= self.elem || columns.count < WORTHWHILE {
            return None;
        }
        let at = outer.iter().rposition(|d| d.src == self.elem && d.count >= WORTHWHILE)?;
        let mut rest = SmallVec::from_slice(outer);
        let rows = rest.remove(at);
        Some((rest, rows, *columns))
    }
}

/// Copies a region of `shape` elements of `elem` bytes; strides are in bytes.
///
/// # Errors
/// `InvalidRequest` when the ranks differ or either buffer is shorter than the region.
pub fn copy_box(
    src: &[u8],
    src_strides: &[usize],
    dst: &mut [u8],
    dst_strides: &[usize],
    shape: &[usize],
    elem: usize,
) -> Result<()> {
    Walk::new(src_strides, dst_strides, shape, elem)?.copy(src, dst)
}

/// Calls `visit` with each [`ElementRun`] of a region, for targets that are not one slice.
///
/// # Errors
/// `InvalidRequest` when the ranks differ or an offset does not fit the address space.
pub fn for_each_run(
    src_strides: &[usize],
    dst_strides: &[usize],
    shape: &[usize],
    elem: usize,
    visit: impl FnMut(ElementRun),
) -> Result<()> {
    Walk::new(src_strides, dst_strides, shape, elem)?.for_each_run(visit);
    Ok(())
}

/// Repeats `pattern` over `dst`, whose length is a multiple of the pattern's.
pub fn fill_bytes(dst: &mut [u8], pattern: &[u8]) {
    fn repeat<const S: usize>(dst: &mut [u8], pattern: &[u8]) {
        dst.as_chunks_mut::<S>().0.fill(load(pattern));
    }
    debug_assert!(pattern.is_empty() || dst.len().is_multiple_of(pattern.len()));
    let Some((first, rest)) = pattern.split_first() else { return };
    match pattern.len() {
        _ if rest.iter().all(|b| b == first) => dst.fill(*first),
        2 => repeat::<2>(dst, pattern),
        4 => repeat::<4>(dst, pattern),
        8 => repeat::<8>(dst, pattern),
        16 => repeat::<16>(dst, pattern),
        size => dst.chunks_exact_mut(size).for_each(|cell| cell.copy_from_slice(pattern)),
    }
}

/// Reverses the bytes of every machine number of `word` bytes.
///
/// # Errors
/// `InvalidRequest` for an unsupported word size or bytes that are not whole words.
pub fn swap_bytes(bytes: &mut [u8], word: usize) -> Result<()> {
    if !matches!(word, 1 | 2 | 4 | 8 | 16) || !bytes.len().is_multiple_of(word) {
        return Err(Error::invalid(format!(
            "{} bytes are not a multiple of the word size {word}",
            bytes.len()
        )));
    }
    swap_words(bytes, word);
    Ok(())
}

// A reversal of a constant number of bytes is one shuffle instruction per register.
#[multiversion(targets("x86_64+avx2", "x86_64+ssse3"))]
fn swap_words(bytes: &mut [u8], word: usize) {
    #[inline(always)]
    fn swap<const S: usize>(bytes: &mut [u8]) {
        bytes.as_chunks_mut::<S>().0.iter_mut().for_each(|number| number.reverse());
    }
    match word {
        2 => swap::<2>(bytes),
        4 => swap::<4>(bytes),
        8 => swap::<8>(bytes),
        16 => swap::<16>(bytes),
        _ => {}
    }
}

fn too_short(needed: usize, found: usize) -> Error {
    Error::invalid(format!("buffer too short: need {needed} bytes, found {found}"))
}

/// Bytes from the start of the first element to the end of the last.
#[inline]
fn span(count: usize, stride: usize, elem: usize) -> usize {
    if count == 0 { 0 } else { (count - 1) * stride + elem }
}

/// Merges each dimension with the one inside it where both sides are contiguous across it.
pub(crate) fn merge(dims: &mut SmallVec<[Dim; 6]>) {
    let mut kept = 0;
    for i in 0..dims.len() {
        let dim = dims[i];
        let joined = |outer: &Dim| {
            let continues = dim.src.checked_mul(dim.count) == Some(outer.src)
                && dim.dst.checked_mul(dim.count) == Some(outer.dst);
            outer.count.checked_mul(dim.count).filter(|_| continues).map(|count| Dim { count, ..dim })
        };
        match dims[..kept].last_mut().map(|outer| (joined(outer), outer)) {
            Some((Some(joined), outer)) => *outer = joined,
            _ => {
                dims[kept] = dim;
                kept += 1;
            }
        }
    }
    dims.truncate(kept);
}

/// Calls `visit` with both offsets of each position of `dims`, the last dimension fastest.
#[inline]
pub(crate) fn each_position(dims: &[Dim], mut visit: impl FnMut(usize, usize)) {
    let Some((last, outer)) = dims.split_last() else { return visit(0, 0) };
    let mut at: SmallVec<[usize; 6]> = SmallVec::from_elem(0, outer.len());
    let (mut src, mut dst) = (0, 0);
    loop {
        for i in 0..last.count {
            visit(src + i * last.src, dst + i * last.dst);
        }
        // An odometer: the innermost dimension with a next position advances, those inside it restart.
        let advanced = outer.iter().zip(&mut at).rev().any(|(dim, at)| {
            *at += 1;
            if *at < dim.count {
                src += dim.src;
                dst += dim.dst;
                return true;
            }
            src -= (dim.count - 1) * dim.src;
            dst -= (dim.count - 1) * dim.dst;
            *at = 0;
            false
        });
        if !advanced {
            return;
        }
    }
}

// Many equally long runs. A short run of a whole number of registers is copied inline; the compiler would otherwise call
// `memcpy`, whose dispatch takes longer than the copy. The loop over rows is inside, so that the length is dispatched
// once.
#[multiversion(targets("x86_64+avx2"))]
fn copy_rows(src: &[u8], src_stride: usize, dst: &mut [u8], dst_stride: usize, rows: usize, len: usize) {
    #[inline(always)]
    fn pieces<const P: usize>(
        src: &[u8],
        src_stride: usize,
        dst: &mut [u8],
        dst_stride: usize,
        rows: usize,
        count: usize,
    ) {
        for row in 0..rows {
            let src = &src[row * src_stride..][..count * P];
            let dst = &mut dst[row * dst_stride..][..count * P];
            for (d, s) in dst.as_chunks_mut::<P>().0.iter_mut().zip(src.as_chunks::<P>().0) {
                *d = *s;
            }
        }
    }
    match len {
        16 => pieces::<16>(src, src_stride, dst, dst_stride, rows, 1),
        32 => pieces::<32>(src, src_stride, dst, dst_stride, rows, 1),
        64 => pieces::<64>(src, src_stride, dst, dst_stride, rows, 1),
        128 => pieces::<128>(src, src_stride, dst, dst_stride, rows, 1),
        256 => pieces::<128>(src, src_stride, dst, dst_stride, rows, 2),
        _ => {
            for row in 0..rows {
                dst[row * dst_stride..][..len].copy_from_slice(&src[row * src_stride..][..len]);
            }
        }
    }
}

/// Copies the elements of a run that is not contiguous on both sides.
fn copy_line(run: &ElementRun, src: &[u8], dst: &mut [u8]) {
    match run.elem {
        1 => copy_strided::<1>(run, src, dst),
        2 => copy_strided::<2>(run, src, dst),
        4 => copy_strided::<4>(run, src, dst),
        8 => copy_strided::<8>(run, src, dst),
        _ => copy_strided::<16>(run, src, dst),
    }
}

// One element per step. Dividing both sides into pieces as long as their stride leaves one length to compare, the same
// for every piece, so the loop has neither bounds checks nor multiplications. The last element has no full piece and is
// copied separately.
#[inline]
fn copy_strided<const S: usize>(run: &ElementRun, src: &[u8], dst: &mut [u8]) {
    let &ElementRun { count, src_stride, dst_stride, .. } = run;
    let Some(last) = count.checked_sub(1) else { return };
    let end = last * src_stride;
    let last_element: [u8; S] = load(&src[end..]);
    let dst = &mut dst[..span(count, dst_stride, S)];
    if src_stride == 0 && dst_stride == S {
        dst.as_chunks_mut::<S>().0.fill(last_element);
    } else if src_stride >= S && dst_stride == S {
        let targets = dst.as_chunks_mut::<S>().0;
        for (d, s) in targets.iter_mut().zip(src[..end].chunks_exact(src_stride)) {
            *d = load(s);
        }
    } else if src_stride >= S && dst_stride >= S {
        for (d, s) in dst.chunks_exact_mut(dst_stride).zip(src[..end].chunks_exact(src_stride)) {
            d[..S].copy_from_slice(&s[..S]);
        }
    } else {
        // Elements that overlap on one side, or one source element that is repeated.
        for i in 0..last {
            dst[i * dst_stride..][..S].copy_from_slice(&src[i * src_stride..][..S]);
        }
    }
    dst[last * dst_stride..][..S].copy_from_slice(&last_element);
}

#[inline(always)]
fn load<const S: usize>(bytes: &[u8]) -> [u8; S] {
    let mut element = [0; S];
    element.copy_from_slice(&bytes[..S]);
    element
}

// Source line `c` holds `rows` adjacent elements and becomes column `c` of the target. A tile of T×T elements, T of them
// being one cache line, is read line by line into a local buffer and written line by line from it: the buffer stays in L1,
// and neither side touches a cache line twice. Elements outside full tiles are copied one by one.
#[multiversion(targets("x86_64+avx2"))]
#[allow(clippy::needless_range_loop)]
fn transpose<const S: usize, const T: usize>(
    src: &[u8],
    src_stride: usize,
    dst: &mut [u8],
    dst_stride: usize,
    rows: usize,
    columns: usize,
) {
    let mut tile = [[[0_u8; S]; T]; T];
    for row in (0..rows).step_by(T) {
        let height = T.min(rows - row);
        for column in (0..columns).step_by(T) {
            let width = T.min(columns - column);
            if height == T && width == T {
                for (c, line) in tile.iter_mut().enumerate() {
                    let at = (column + c) * src_stride + row * S;
                    line.as_flattened_mut().copy_from_slice(&src[at..at + T * S]);
                }
                for r in 0..T {
                    let line: [[u8; S]; T] = std::array::from_fn(|c| tile[c][r]);
                    let at = (row + r) * dst_stride + column * S;
                    dst[at..at + T * S].copy_from_slice(line.as_flattened());
                }
            } else {
                for r in row..row + height {
                    for c in column..column + width {
                        let element: [u8; S] = load(&src[c * src_stride + r * S..]);
                        dst[r * dst_stride + c * S..][..S].copy_from_slice(&element);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
