//! The column codings of both test formats: plain, byte-swapped, or XORed.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use tesseral_core::{DType, Error, Field, Result};

use tesseral_format::{Access, ColumnData, ColumnMut, Role};

/// The coding of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Coding {
    /// Numbers are big-endian.
    pub big_endian: bool,
    /// Cell bytes are XORed with 0x5A, and with the granule number where there are granules.
    pub xor: bool,
    /// Ranges that begin at a multiple of this many cells decode independently; 0 for full decodes only.
    pub granule: u32,
}

impl Coding {
    /// Uncoded bytes, which equal the cells of fixed-size fields that are not nullable.
    pub const PLAIN: Self = Self { big_endian: false, xor: false, granule: 0 };

    fn key(self, cell: u64) -> u8 {
        match (self.xor, self.granule) {
            (false, _) => 0,
            (true, 0) => 0x5A,
            (true, granule) => 0x5A ^ (cell / u64::from(granule)) as u8,
        }
    }

    fn swapped(self) -> bool {
        self.big_endian != cfg!(target_endian = "big")
    }

    /// The access that a plan declares for a chunk with this coding.
    pub(crate) fn access(self, layout: ColumnCoding) -> Access {
        if !self.xor && self.granule == 0 && layout.size.is_some() && !layout.nullable {
            return Access::Direct { swapped: self.swapped() };
        }
        Access::Coded { granule: (self.granule > 0).then_some(u64::from(self.granule)) }
    }

    pub(crate) fn to_bits(self) -> u8 {
        u8::from(self.big_endian) | u8::from(self.xor) << 1
    }

    pub(crate) fn from_bits(bits: u8, granule: u32) -> Option<Self> {
        (bits < 4).then_some(Self { big_endian: bits & 1 != 0, xor: bits & 2 != 0, granule })
    }
}

/// The access of a chunk of several columns: only what each of them supports.
pub(crate) fn join(accesses: impl Iterator<Item = Access>) -> Access {
    let common_multiple = |a: u64, b: u64| {
        let (mut x, mut y) = (a, b);
        while y > 0 {
            (x, y) = (y, x % y);
        }
        (a / x).checked_mul(b)
    };
    let granule = |access| match access {
        Access::Direct { .. } => None,
        Access::Coded { granule } => granule,
    };
    accesses
        .reduce(|a, b| {
            if a == b {
                return a;
            }
            let granule = granule(a).zip(granule(b)).and_then(|(a, b)| common_multiple(a, b));
            Access::Coded { granule }
        })
        .unwrap_or(Access::Coded { granule: None })
}

/// The layout of the cells of a column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnCoding {
    /// Bytes per cell, `None` for variable-length cells.
    pub(crate) size: Option<usize>,
    /// Bytes per element; a variable-length cell has a whole number of them.
    element: usize,
    /// Bytes per machine number.
    word: usize,
    pub(crate) nullable: bool,
}

impl ColumnCoding {
    pub(crate) fn from_field(field: &Field) -> Self {
        let element = field.dtype.size().unwrap_or(1);
        Self { size: field.cell_size(), element, word: field.dtype.word(), nullable: field.nullable }
    }

    /// Text coordinates are variable-length, others have one element.
    pub(crate) fn from_dimension(dtype: DType) -> Self {
        let text = dtype.class() == tesseral_core::dtype::Class::Text;
        let element = dtype.size().unwrap_or(1);
        Self { size: (!text).then_some(element), element, word: dtype.word(), nullable: false }
    }

    /// Timestamps in milliseconds.
    pub(crate) const TIMESTAMP: Self = Self { size: Some(8), element: 8, word: 8, nullable: false };

    /// The parts of a column, in the order they are stored.
    pub(crate) fn roles(self) -> impl Iterator<Item = Role> {
        let offsets = self.size.is_none().then_some(Role::Offsets);
        offsets.into_iter().chain([Role::Values]).chain(self.nullable.then_some(Role::Validity))
    }

    /// Whether a part of `len` bytes can hold `cells` cells.
    pub(crate) fn fits(self, role: Role, cells: u64, len: u64) -> bool {
        match (role, self.size) {
            (Role::Values, Some(size)) => cells.checked_mul(size as u64) == Some(len),
            (Role::Values, None) => true,
            (Role::Offsets, _) => cells.checked_mul(8) == Some(len),
            (Role::Validity, _) => len == cells,
            (Role::Mask, _) => false,
        }
    }
}

fn swap(bytes: &mut [u8], word: usize) {
    bytes.chunks_exact_mut(word).for_each(<[u8]>::reverse);
}

/// Encodes a column, part by part in the order of [`ColumnCoding::roles`].
///
/// # Errors
/// `InvalidRequest` when the cells do not match the layout or their number.
pub(crate) fn encode<'a>(
    coding: Coding,
    layout: ColumnCoding,
    cells: u64,
    data: ColumnData<'a>,
) -> Result<Vec<(Role, Cow<'a, [u8]>)>> {
    let mismatch = |what: &str| Error::invalid(format!("{what} do not match a chunk of {cells} cells"));
    let touched = coding.xor || coding.swapped();
    let mut parts = Vec::new();
    let validity = match (data, layout.size) {
        (ColumnData::Fixed { values, validity }, Some(size)) => {
            if !layout.fits(Role::Values, cells, values.len() as u64) {
                return Err(mismatch("values"));
            }
            let mut stored = Cow::Borrowed(values);
            if touched {
                let bytes = stored.to_mut();
                if coding.swapped() {
                    swap(bytes, layout.word);
                }
                for (i, cell) in bytes.chunks_exact_mut(size).enumerate() {
                    cell.iter_mut().for_each(|b| *b ^= coding.key(i as u64));
                }
            }
            parts.push((Role::Values, stored));
            validity
        }
        (ColumnData::Var { offsets, data, validity }, None) => {
            if offsets.len() as u64 != cells || offsets.last().copied().unwrap_or(0) != data.len() as u64 {
                return Err(mismatch("offsets"));
            }
            let mut stored = Cow::Borrowed(data);
            let mut starts = Vec::with_capacity(offsets.len() * 8);
            let mut start = 0;
            for (i, &end) in offsets.iter().enumerate() {
                let range = start as usize..end as usize;
                if start > end || !(end - start).is_multiple_of(layout.element as u64) {
                    return Err(mismatch("offsets"));
                }
                starts.extend(start.to_le_bytes());
                if touched {
                    let cell = stored.to_mut().get_mut(range).ok_or_else(|| mismatch("offsets"))?;
                    if coding.swapped() {
                        swap(cell, layout.word);
                    }
                    cell.iter_mut().for_each(|b| *b ^= coding.key(i as u64));
                }
                start = end;
            }
            parts.push((Role::Offsets, starts.into()));
            parts.push((Role::Values, stored));
            validity
        }
        _ => return Err(mismatch("cells of that length")),
    };
    match (validity, layout.nullable) {
        (None, false) => {}
        (Some(validity), true) if validity.len() as u64 == cells && validity.iter().all(|v| *v <= 1) => {
            parts.push((Role::Validity, validity.into()));
        }
        _ => return Err(mismatch("validity bytes")),
    }
    Ok(parts)
}

/// Decodes a range of a column of `cells` cells. Rejects ranges that the coding cannot decode independently.
///
/// # Errors
/// `Corrupt` for parts that do not match the layout; `InvalidRequest` for a range or buffers that do not match.
pub(crate) fn decode(
    coding: Coding,
    layout: ColumnCoding,
    cells: u64,
    parts: &[Bytes],
    run: Range<u64>,
    out: ColumnMut<'_>,
) -> Result<()> {
    let alone = coding.granule > 0 && run.start.is_multiple_of(u64::from(coding.granule));
    if run.start > run.end || run.end > cells || !(alone || run == (0..cells)) {
        return Err(Error::invalid(format!("cells {run:?} of {cells} cannot be decoded independently")));
    }
    let corrupt =
        |role: Role, detail: &str| Error::corrupt(format!("{role:?} part"), "a chunk", None, detail);
    let mut stored = [None; 3];
    for (slot, role) in layout.roles().enumerate() {
        let bytes = parts.get(slot).ok_or_else(|| corrupt(role, "missing"))?;
        if !layout.fits(role, cells, bytes.len() as u64) {
            return Err(corrupt(role, "length does not match the cells"));
        }
        stored[match role {
            Role::Offsets => 0,
            Role::Values => 1,
            _ => 2,
        }] = Some(&bytes[..]);
    }
    let [offsets, values, valid] = stored;
    let values = values.unwrap_or_default();
    let range = run.start as usize..run.end as usize;
    let validity = match (out, layout.size) {
        (ColumnMut::Fixed { values: out, validity }, Some(size)) => {
            let bytes = &values[range.start * size..range.end * size];
            if out.len() != bytes.len() {
                return Err(Error::invalid("the buffer size does not match the cells"));
            }
            out.copy_from_slice(bytes);
            for (cell, i) in out.chunks_exact_mut(size).zip(run.clone()) {
                cell.iter_mut().for_each(|b| *b ^= coding.key(i));
            }
            if coding.swapped() {
                swap(out, layout.word);
            }
            validity
        }
        (ColumnMut::Var { offsets: ends, data, validity }, None) => {
            let starts = offsets.unwrap_or_default();
            let cell_start = |i: usize| match starts.get(i * 8..i * 8 + 8) {
                Some(bytes) => u64::from_le_bytes(bytes.try_into().unwrap_or_default()),
                None => values.len() as u64,
            };
            for i in range.clone() {
                let (start, end) = (cell_start(i), cell_start(i + 1));
                let cell = usize::try_from(start)
                    .ok()
                    .zip(usize::try_from(end).ok())
                    .and_then(|(start, end)| values.get(start..end))
                    .filter(|cell| cell.len().is_multiple_of(layout.element));
                let Some(cell) = cell else {
                    return Err(corrupt(Role::Offsets, "offset outside the values"));
                };
                let from = data.len();
                data.extend(cell.iter().map(|b| b ^ coding.key(i as u64)));
                if coding.swapped() {
                    swap(&mut data[from..], layout.word);
                }
                ends.push(data.len() as u64);
            }
            validity
        }
        _ => return Err(Error::invalid("the buffer kind does not match the cells")),
    };
    match (validity, valid) {
        (None, None) => Ok(()),
        (Some(out), Some(valid)) if out.len() == range.len() => {
            let valid = &valid[range];
            if valid.iter().any(|v| *v > 1) {
                return Err(corrupt(Role::Validity, "expected 0 or 1"));
            }
            out.copy_from_slice(valid);
            Ok(())
        }
        _ => Err(Error::invalid("a validity buffer is required exactly when the column is nullable")),
    }
}
