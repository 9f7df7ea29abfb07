//! Datatype messages: how the bytes of an element become cells.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | class (low 4 bits), version |
//! | 1 | 3 | flags of the class |
//! | 4 | 4 | bytes of an element |
//! | 8 | | properties of the class |

use tesseral_core::{CellLen, Cursor, DType, Error, ErrorKind, Result, Scalar, TimeUnit, Value};

/// Maximum nesting depth of datatypes.
const DEPTH: usize = 8;

/// A datatype with a representation in the data model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hdf5CellType {
    /// Type of one element.
    pub dtype: DType,
    /// Elements per cell.
    pub cell: CellLen,
    /// Whether numbers are big-endian.
    pub big: bool,
    /// Stored bytes of a cell, without the extents of an array; for variable-length cells, those of the reference.
    pub size: usize,
    /// Padding of fixed-size text.
    pub padding: Padding,
    /// Extents of an array datatype: further dimensions of the dataset.
    pub dims: Vec<u64>,
    /// Names and values of an enumeration, as little-endian bytes.
    pub members: Vec<(String, Vec<u8>)>,
    /// Place of the cells in the elements of a compound datatype.
    pub place: Option<MemberPlace>,
}

/// The place of a member in the elements of a compound datatype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberPlace {
    /// Offset in bytes.
    pub offset: usize,
    /// Bytes of an element.
    pub element: usize,
}

/// A member of a compound datatype: its name, with those of the compounds around it, and its datatype or the reason why there is
/// none.
pub type CompoundMember = (String, Result<Hdf5CellType>);

/// How fixed-size text ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// By a NUL byte.
    Terminated,
    /// By NUL bytes up to its size.
    Nul,
    /// By spaces up to its size.
    Space,
}

impl Hdf5CellType {
    fn plain(dtype: DType, big: bool) -> Self {
        let size = dtype.size().unwrap_or(1);
        let (cell, padding) = (CellLen::One, Padding::Nul);
        Self { dtype, cell, big, size, padding, dims: Vec::new(), members: Vec::new(), place: None }
    }

    /// Cells per element of a dataset: those of an array datatype.
    pub fn cells(&self) -> usize {
        self.dims.iter().fold(1, |cells, n| cells.saturating_mul(usize::try_from(*n).unwrap_or(usize::MAX)))
    }

    /// The members of a compound datatype, each as a datatype with a place; those of inner compounds are members themselves.
    ///
    /// # Errors
    /// `Unsupported` for members that cannot be skipped; `Corrupt`.
    pub fn compound_members(mut message: Cursor<'_>) -> Result<Vec<CompoundMember>> {
        let prefix = prefix(&mut message)?.1;
        let mut members = Vec::new();
        let outer = MemberPlace { offset: 0, element: prefix.size };
        flatten(&prefix, &mut message, "", outer, DEPTH, &mut members)?;
        let mut names = std::collections::HashSet::new();
        match members.iter().find(|(name, _)| !names.insert(name.as_str())) {
            Some((name, _)) => Err(message.corrupt(WHAT, format!("duplicate member {name:?}"))),
            None => Ok(members),
        }
    }

    /// Parses a datatype message.
    ///
    /// # Errors
    /// `Unsupported` for a datatype that the data model lacks; `Corrupt`.
    pub fn parse(mut message: Cursor<'_>) -> Result<Self> {
        parse(&mut message, DEPTH)
    }

    /// Bytes per element of numbers that are swapped as a unit.
    pub fn swapped(&self) -> bool {
        self.dtype.word() > 1 && self.big != cfg!(target_endian = "big")
    }

    /// The text of a fixed-size cell without its padding.
    pub fn text<'a>(&self, cell: &'a [u8]) -> &'a [u8] {
        let end = |pad: u8| cell.iter().rposition(|byte| *byte != pad).map_or(0, |last| last + 1);
        match self.padding {
            Padding::Terminated => cell.split(|byte| *byte == 0).next().unwrap_or_default(),
            Padding::Nul => &cell[..end(0)],
            Padding::Space => &cell[..end(b' ')],
        }
    }

    /// A stored number as a value.
    pub fn number(&self, stored: &[u8]) -> Option<Scalar> {
        let mut bytes = stored.to_vec();
        if self.big {
            bytes.chunks_exact_mut(self.dtype.word()).for_each(<[u8]>::reverse);
        }
        Scalar::from_le_bytes(self.dtype, &bytes).ok()
    }

    /// The members of an enumeration as CF attributes `flag_values` and `flag_meanings`.
    pub fn flags(&self) -> Option<(Value, Value)> {
        let bytes: Vec<u8> = self.members.iter().flat_map(|(_, value)| value).copied().collect();
        let meanings: Vec<&str> = self.members.iter().map(|(name, _)| name.as_str()).collect();
        let values = Value::Numbers { dtype: self.dtype, bytes };
        (!meanings.is_empty()).then(|| (values, Value::from(meanings.join(" "))))
    }
}

/// Name of a datatype message in errors.
const WHAT: &str = "a datatype";

fn unsupported<T>(name: impl Into<String>) -> Result<T> {
    Err(Error::unsupported(name))
}

/// The fields before the properties.
struct Prefix {
    version: u8,
    flags: usize,
    size: usize,
}

/// Parses the class and the fields before the properties.
fn prefix(cursor: &mut Cursor<'_>) -> Result<(u8, Prefix)> {
    let first = cursor.u8(WHAT)?;
    let (class, version) = (first & 15, first >> 4);
    let (flags, size) = (cursor.little_endian(3, WHAT)?, cursor.little_endian(4, WHAT)?);
    if size == 0 {
        return Err(cursor.corrupt(WHAT, "elements of 0 bytes"));
    }
    Ok((class, Prefix { version, flags, size }))
}

/// Skips a datatype without a representation.
fn skip(cursor: &mut Cursor<'_>, depth: usize) -> Result<()> {
    if depth == 0 {
        return Err(cursor.corrupt(WHAT, "datatypes are nested too deeply"));
    }
    let (class, prefix) = prefix(cursor)?;
    match class {
        0 | 4 => cursor.take(4, WHAT).map(drop),
        1 => cursor.take(12, WHAT).map(drop),
        2 => cursor.take(2, WHAT).map(drop),
        3 | 7 => Ok(()),
        5 => cursor.take((prefix.flags & 255).next_multiple_of(8), WHAT).map(drop),
        6 => {
            for _ in 0..prefix.flags & 0xffff {
                member_head(&prefix, cursor)?;
                skip(cursor, depth - 1)?;
            }
            Ok(())
        }
        8 => {
            let mut base = *cursor;
            let size = self::prefix(&mut base)?.1.size;
            skip(cursor, depth - 1)?;
            let count = prefix.flags & 0xffff;
            for _ in 0..count {
                member_name(&prefix, cursor)?;
            }
            cursor.take64((count as u64).saturating_mul(size as u64), WHAT).map(drop)
        }
        9 | 11 => skip(cursor, depth - 1),
        10 => {
            let rank = cursor.little_endian(1, WHAT)?;
            cursor.take(if prefix.version < 3 { 3 + 8 * rank } else { 4 * rank }, WHAT)?;
            skip(cursor, depth - 1)
        }
        other => unsupported(format!("datatypes of class {other}")),
    }
}

/// Adds the members of a compound datatype whose prefix was parsed.
fn flatten(
    prefix: &Prefix,
    cursor: &mut Cursor<'_>,
    path: &str,
    outer: MemberPlace,
    depth: usize,
    members: &mut Vec<CompoundMember>,
) -> Result<()> {
    if depth == 0 {
        return Err(cursor.corrupt(WHAT, "datatypes are nested too deeply"));
    }
    for _ in 0..prefix.flags & 0xffff {
        let (name, offset) = member_head(prefix, cursor)?;
        let name = if path.is_empty() { name } else { format!("{path}/{name}") };
        let beyond = cursor.corrupt(WHAT, format!("the member {name:?} exceeds its compound"));
        let place = offset.checked_add(outer.offset).map(|offset| MemberPlace { offset, ..outer });
        let before = *cursor;
        let (class, own) = self::prefix(&mut { before })?;
        let end = offset.checked_add(own.size).filter(|end| *end <= prefix.size);
        let (Some(place), Some(_)) = (place, end) else { return Err(beyond) };
        match parse(cursor, depth - 1) {
            Ok(cell) => {
                // A representation that is shorter than its member would take other bytes for cells.
                if cell.size.checked_mul(cell.cells()) != Some(own.size) {
                    return Err(beyond);
                }
                members.push((name, Ok(Hdf5CellType { place: Some(place), ..cell })));
            }
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported { .. }) => {
                *cursor = before;
                if class == 6 {
                    let (_, inner) = self::prefix(cursor)?;
                    flatten(&inner, cursor, &name, place, depth - 1, members)?;
                } else {
                    skip(cursor, depth - 1)?;
                    members.push((name, Err(error)));
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn parse(cursor: &mut Cursor<'_>, depth: usize) -> Result<Hdf5CellType> {
    if depth == 0 {
        return Err(cursor.corrupt(WHAT, "datatypes are nested too deeply"));
    }
    let (class, prefix) = prefix(cursor)?;
    match class {
        0 => integer(&prefix, cursor, true),
        1 => float(&prefix, cursor),
        2 => unsupported("the time datatype"),
        3 => Ok(text(&prefix)),
        4 => integer(&prefix, cursor, false),
        5 => opaque(&prefix, cursor),
        6 => compound(&prefix, cursor, depth),
        7 => unsupported("references"),
        8 => enumeration(&prefix, cursor, depth),
        9 => variable_length(&prefix, cursor, depth),
        10 => array(&prefix, cursor, depth),
        11 => complex(&prefix, cursor, depth),
        other => unsupported(format!("datatypes of class {other}")),
    }
}

fn integer(prefix: &Prefix, cursor: &mut Cursor<'_>, signs: bool) -> Result<Hdf5CellType> {
    let (offset, precision) = (cursor.little_endian(2, WHAT)?, cursor.little_endian(2, WHAT)?);
    let signed = signs && prefix.flags & 8 != 0;
    if offset != 0 || precision != 8 * prefix.size {
        return unsupported(format!("integers of {precision} bits in {} bytes", prefix.size));
    }
    let dtype = i64::try_from(precision).ok().and_then(|bits| DType::integer(bits, signed));
    let Some(dtype) = dtype else {
        return unsupported(format!("integers of {} bytes", prefix.size));
    };
    Ok(Hdf5CellType::plain(dtype, prefix.flags & 1 != 0))
}

/// Floats of IEEE 754 and bfloat16. The layout is compared in full: another one of the same size is another number.
fn float(prefix: &Prefix, cursor: &mut Cursor<'_>) -> Result<Hdf5CellType> {
    let (offset, precision) = (cursor.little_endian(2, WHAT)?, cursor.little_endian(2, WHAT)?);
    let fields = [cursor.u8(WHAT)?, cursor.u8(WHAT)?, cursor.u8(WHAT)?, cursor.u8(WHAT)?];
    let bias = cursor.little_endian(4, WHAT)?;
    let (order, normalized, sign) = (prefix.flags & 0x41, prefix.flags >> 4 & 3, prefix.flags >> 8 & 255);
    // Exponent position and size, mantissa position and size, exponent bias.
    let dtype = match (prefix.size, fields, bias) {
        (2, [10, 5, 0, 10], 15) => DType::Float16,
        (2, [7, 8, 0, 7], 127) => DType::BFloat16,
        (4, [23, 8, 0, 23], 127) => DType::Float32,
        (8, [52, 11, 0, 52], 1023) => DType::Float64,
        _ => return unsupported(format!("floats of {precision} bits in {} bytes", prefix.size)),
    };
    if offset != 0 || precision != 8 * prefix.size || normalized != 2 || sign != precision - 1 || order > 1 {
        return unsupported(format!("floats of {precision} bits in a layout other than IEEE 754"));
    }
    Ok(Hdf5CellType::plain(dtype, order == 1))
}

/// Fixed-size text. Text of one byte is NetCDF's `char`.
fn text(prefix: &Prefix) -> Hdf5CellType {
    let dtype = match (prefix.size, prefix.flags >> 4 & 15) {
        (1, 0) => DType::Char,
        (_, 1) => DType::Utf8,
        _ => DType::Ascii,
    };
    let padding = match prefix.flags & 15 {
        0 => Padding::Terminated,
        2 => Padding::Space,
        _ => Padding::Nul,
    };
    let size = prefix.size;
    let cell = u32::try_from(size).ok().filter(|n| *n > 1).map_or(CellLen::One, CellLen::Fixed);
    Hdf5CellType { cell, size, padding, ..Hdf5CellType::plain(dtype, false) }
}

/// Opaque bytes. h5py stores dates as such, with their NumPy dtype in the tag.
fn opaque(prefix: &Prefix, cursor: &mut Cursor<'_>) -> Result<Hdf5CellType> {
    let len = prefix.flags & 255;
    let tag = cursor.take(len, WHAT)?;
    let tag = tag.split(|byte| *byte == 0).next().unwrap_or_default();
    cursor.take((len.next_multiple_of(8) - len).min(cursor.rest().len()), WHAT)?;
    let dates = std::str::from_utf8(tag).ok().and_then(date_tag).filter(|_| prefix.size == 8);
    if let Some((dtype, big)) = dates {
        return Ok(Hdf5CellType::plain(dtype, big));
    }
    let cell = u32::try_from(prefix.size).map_or(CellLen::One, CellLen::Fixed);
    Ok(Hdf5CellType { cell, size: prefix.size, ..Hdf5CellType::plain(DType::Bytes, false) })
}

/// The dtype of a tag such as `NUMPY:<M8[ns]`.
fn date_tag(tag: &str) -> Option<(DType, bool)> {
    let descr = tag.strip_prefix("NUMPY:")?;
    let big = descr.starts_with('>');
    let unit = |prefix| {
        let unit = descr.trim_start_matches(['<', '>', '=']).strip_prefix(prefix)?.strip_suffix(']')?;
        TimeUnit::ALL.into_iter().find(|known| known.abbreviation() == unit)
    };
    unit("M8[").map(DType::DateTime).or_else(|| unit("m8[").map(DType::TimeDelta)).map(|dtype| (dtype, big))
}

/// Compound datatypes. Two floats `r` and `i`, as h5py writes them, are a complex number.
fn compound(prefix: &Prefix, cursor: &mut Cursor<'_>, depth: usize) -> Result<Hdf5CellType> {
    let mut members = Vec::new();
    for _ in 0..prefix.flags & 0xffff {
        let (name, offset) = member_head(prefix, cursor)?;
        let cell = parse(cursor, depth - 1).map_err(|error| match error.kind() {
            // A member that cannot be represented makes the whole compound unsupported, independent of what follows.
            ErrorKind::Unsupported { .. } => Error::unsupported("compound datatypes"),
            _ => error,
        })?;
        members.push((name, offset, cell));
    }
    if let [(real, 0, first), (imaginary, offset, second)] = members.as_slice()
        && (real.as_str(), imaginary.as_str()) == ("r", "i")
        && first == second
        && *offset == first.size
        && prefix.size == 2 * first.size
        && let Some(dtype) = complex_of(first)
    {
        return Ok(Hdf5CellType::plain(dtype, first.big));
    }
    let names: Vec<String> = members.into_iter().take(8).map(|(name, ..)| name).collect();
    unsupported(format!("compound datatypes (members {})", names.join(", ")))
}

/// Name and offset of a member of a compound datatype.
fn member_head(prefix: &Prefix, cursor: &mut Cursor<'_>) -> Result<(String, usize)> {
    let name = member_name(prefix, cursor)?;
    let width = match prefix.version {
        0..=2 => 4,
        _ => (usize::BITS - prefix.size.leading_zeros()).div_ceil(8) as usize,
    };
    let offset = cursor.little_endian(width, WHAT)?;
    if prefix.version == 1 {
        cursor.take(28, WHAT)?;
    }
    Ok((name, offset))
}

/// The complex dtype of a pair of floats.
fn complex_of(part: &Hdf5CellType) -> Option<DType> {
    match (part.dtype, part.cell, part.dims.as_slice()) {
        (DType::Float32, CellLen::One, []) => Some(DType::Complex64),
        (DType::Float64, CellLen::One, []) => Some(DType::Complex128),
        _ => None,
    }
}

/// A name that ends with NUL; before version 3 it is padded to 8 bytes.
fn member_name(prefix: &Prefix, cursor: &mut Cursor<'_>) -> Result<String> {
    let end = cursor.rest().iter().position(|byte| *byte == 0);
    let len = end.ok_or_else(|| cursor.corrupt(WHAT, "unterminated name"))?;
    let name = String::from_utf8_lossy(&cursor.rest()[..len]).into_owned();
    let stored = if prefix.version < 3 { (len + 1).next_multiple_of(8) } else { len + 1 };
    cursor.take(stored, WHAT)?;
    Ok(name)
}

/// Enumerations of integers. `FALSE` and `TRUE`, as h5py writes them, are Booleans.
fn enumeration(prefix: &Prefix, cursor: &mut Cursor<'_>, depth: usize) -> Result<Hdf5CellType> {
    let base = parse(cursor, depth - 1)?;
    if base.size != prefix.size || base.dtype.word() != base.size || base.cell != CellLen::One {
        return Err(cursor.corrupt(WHAT, "enumerations of values other than integers"));
    }
    let count = prefix.flags & 0xffff;
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(member_name(prefix, cursor)?);
    }
    let mut members = Vec::new();
    for name in names {
        let mut value = cursor.take(base.size, WHAT)?.to_vec();
        if base.big {
            value.reverse();
        }
        members.push((name, value));
    }
    let is = |at: usize, name: &str, value: u8| {
        members.get(at).is_some_and(|(own, bytes)| own == name && bytes == &[value])
    };
    if members.len() == 2 && is(0, "FALSE", 0) && is(1, "TRUE", 1) {
        return Ok(Hdf5CellType::plain(DType::Bool, false));
    }
    Ok(Hdf5CellType { members, ..base })
}

/// Variable-length text, and sequences of numbers.
fn variable_length(prefix: &Prefix, cursor: &mut Cursor<'_>, depth: usize) -> Result<Hdf5CellType> {
    let base = parse(cursor, depth - 1)?;
    let (dtype, big) = match prefix.flags & 15 {
        1 => (DType::Utf8, false),
        0 if base.cell == CellLen::One && base.dims.is_empty() && base.members.is_empty() => {
            (base.dtype, base.big)
        }
        _ => return unsupported("sequences of values other than numbers"),
    };
    Ok(Hdf5CellType { cell: CellLen::Var, size: prefix.size, ..Hdf5CellType::plain(dtype, big) })
}

/// Arrays of numbers, whose extents become dimensions.
fn array(prefix: &Prefix, cursor: &mut Cursor<'_>, depth: usize) -> Result<Hdf5CellType> {
    let rank = cursor.little_endian(1, WHAT)?;
    if prefix.version < 3 {
        cursor.take(3, WHAT)?;
    }
    let mut dims = Vec::new();
    for _ in 0..rank {
        dims.push(cursor.little_endian(4, WHAT)? as u64);
    }
    if prefix.version < 3 {
        cursor.take(4 * rank, WHAT)?;
    }
    let base = parse(cursor, depth - 1)?;
    if base.cell == CellLen::Var {
        return unsupported("arrays of variable-length values");
    }
    dims.extend(&base.dims);
    let cells = dims.iter().try_fold(base.size as u64, |bytes, n| bytes.checked_mul(*n));
    if cells != Some(prefix.size as u64) {
        return Err(cursor.corrupt(WHAT, "the size of an array differs from that of its elements"));
    }
    Ok(Hdf5CellType { dims, ..base })
}

/// Complex numbers of HDF5 2.0.
fn complex(prefix: &Prefix, cursor: &mut Cursor<'_>, depth: usize) -> Result<Hdf5CellType> {
    let base = parse(cursor, depth - 1)?;
    match complex_of(&base).filter(|_| prefix.size == 2 * base.size) {
        Some(dtype) => Ok(Hdf5CellType::plain(dtype, base.big)),
        None => unsupported("complex numbers of values other than floats"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const F64: [u8; 20] = [0x11, 0x20, 63, 0, 8, 0, 0, 0, 0, 0, 64, 0, 52, 11, 0, 52, 255, 3, 0, 0];

    fn parsed(bytes: &[u8]) -> Result<Hdf5CellType> {
        Hdf5CellType::parse(Cursor::new("f", bytes))
    }

    fn changed(at: usize, value: u8) -> Result<Hdf5CellType> {
        let mut bytes = F64;
        bytes[at] = value;
        parsed(&bytes)
    }

    #[test]
    fn floats_of_another_layout_are_unsupported() {
        assert_eq!(parsed(&F64).unwrap(), Hdf5CellType::plain(DType::Float64, false));
        assert!(changed(1, 0x21).unwrap().big);
        for (at, value) in [(1, 0x60), (1, 0), (2, 62), (8, 1), (12, 51), (13, 12), (15, 51), (16, 254)] {
            assert!(matches!(changed(at, value).unwrap_err().kind(), ErrorKind::Unsupported { .. }), "{at}");
        }
        let mut brain = F64;
        brain[..20].copy_from_slice(&[0x11, 0x20, 15, 0, 2, 0, 0, 0, 0, 0, 16, 0, 7, 8, 0, 7, 127, 0, 0, 0]);
        assert_eq!(parsed(&brain).unwrap().dtype, DType::BFloat16);
    }

    #[test]
    fn truncated_datatypes_are_corrupt() {
        for end in 0..F64.len() {
            assert!(matches!(parsed(&F64[..end]).unwrap_err().kind(), ErrorKind::Corrupt { .. }), "{end}");
        }
    }

    fn members(bytes: &[u8]) -> Result<Vec<CompoundMember>> {
        Hdf5CellType::compound_members(Cursor::new("f", bytes))
    }

    /// A compound of version 3, of 100 bytes, with three members: a float, a datatype, a float.
    fn compound(inner: &[u8]) -> Vec<u8> {
        let head = [0x36, 3, 0, 0, 100, 0, 0, 0];
        [&head[..], b"a\0\x08", &F64, b"b\0\x10", inner, b"c\0\x50", &F64].concat()
    }

    #[test]
    fn compounds_have_the_members_that_can_be_represented() {
        let place = |offset| Some(MemberPlace { offset, element: 100 });
        // A reference is skipped; members of an inner compound of 16 bytes are members.
        let reference = [0x37, 0, 0, 0, 8, 0, 0, 0];
        let found = members(&compound(&reference)).unwrap();
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, found[1].1.is_err()), (vec!["a", "b", "c"], true));
        let inner = [&[0x36, 2, 0, 0, 24, 0, 0, 0][..], b"x\0\x08", &F64, b"y\0\x10", &F64].concat();
        let found = members(&compound(&inner)).unwrap();
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b/x", "b/y", "c"]);
        assert_eq!(found[2].1.as_ref().unwrap().place, place(32));
        assert_eq!(found[3].1.as_ref().unwrap().place, place(80));
    }

    #[test]
    fn members_beyond_their_compound_are_corrupt() {
        let whole = compound(&F64);
        for end in 0..whole.len() {
            assert!(matches!(members(&whole[..end]).unwrap_err().kind(), ErrorKind::Corrupt { .. }), "{end}");
        }
        let mut beyond = whole.clone();
        // The size of the compound.
        beyond[4] = 87;
        assert!(matches!(members(&beyond).unwrap_err().kind(), ErrorKind::Corrupt { .. }));
        let mut twice = whole;
        let at = twice.iter().position(|byte| *byte == b'c').unwrap();
        twice[at] = b'a';
        assert!(matches!(members(&twice).unwrap_err().kind(), ErrorKind::Corrupt { .. }));
    }

    #[test]
    fn tags_of_dates_name_their_unit() {
        assert_eq!(date_tag("NUMPY:<M8[ns]"), Some((DType::DateTime(TimeUnit::Nanosecond), false)));
        assert_eq!(date_tag("NUMPY:>m8[D]"), Some((DType::TimeDelta(TimeUnit::Day), true)));
        assert_eq!(date_tag("NUMPY:<M8[25s]").or(date_tag("M8[s]")), None);
    }

    #[test]
    fn padding_is_removed_from_text() {
        let padded = |padding| Hdf5CellType { padding, ..Hdf5CellType::plain(DType::Ascii, false) };
        assert_eq!(padded(Padding::Terminated).text(b"ab\0c"), b"ab");
        assert_eq!(padded(Padding::Nul).text(b"a\0b\0\0"), b"a\0b");
        assert_eq!(padded(Padding::Space).text(b" a  "), b" a");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(class in 0_u8..16, version in 0_u8..5, bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let nested = [&[version << 4 | class, 1, 0, 0, 8, 0, 0, 0], &bytes[..]].concat();
            let _ = (parsed(&nested), parsed(&bytes), members(&nested), members(&bytes), members(&compound(&bytes)));
        }
    }
}
