//! The file header: dimensions, attributes and variables.
//!
//! ```text
//! header:    "CDF" │ version 1, 2 or 5 │ records │ list of dimensions │ list of attributes │ list of variables
//! list:      tag, u32 │ count │ items                            an empty list: two zeros
//! dimension: name │ length                                       length 0: the record dimension
//! attribute: name │ type, u32 │ count │ values, padded to 4
//! variable:  name │ rank │ dimension numbers │ list of attributes │ type, u32 │ size │ offset
//! name:      count │ UTF-8 bytes, padded to 4
//! ```
//!
//! Numbers are big-endian. Counts, lengths and dimension numbers have 32 bits, in CDF-5 64; offsets have 32 bits in CDF-1 only.

use tesseral_core::{Attributes, Cursor, DType, Error, Result, Scalar, Value};

/// The first bytes of a file, before the version.
pub const MAGIC: [u8; 3] = *b"CDF";
/// Tags of lists.
pub(crate) const DIMENSIONS: u32 = 10;
pub(crate) const VARIABLES: u32 = 11;
pub(crate) const ATTRIBUTES: u32 = 12;
/// Beginning of the names that dimensions without a name have here; their length follows.
pub(crate) const UNNAMED: &str = "unnamed_";
/// The maximum number of dimensions of a variable in the reference.
const RANK: u64 = 1024;

/// A dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDimension {
    /// Name.
    pub name: String,
    /// Length; 0 for the record dimension.
    pub len: u64,
}

/// A variable.
#[derive(Clone, Debug, PartialEq)]
pub struct NetCdf3Variable {
    /// Name.
    pub name: String,
    /// Numbers of its dimensions.
    pub dims: Vec<usize>,
    /// Attributes in the order of the file.
    pub attributes: Attributes,
    /// Type of a cell.
    pub dtype: DType,
    /// Offset of its first cell.
    pub begin: u64,
}

/// The header of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Version: 1, 2 or 5.
    pub version: u8,
    /// Number of records; `None` if it is not stored and follows from the size of the file.
    pub records: Option<u64>,
    /// Dimensions.
    pub dims: Vec<NamedDimension>,
    /// Attributes of the file.
    pub attributes: Attributes,
    /// Variables.
    pub variables: Vec<NetCdf3Variable>,
    /// Length of the header in bytes.
    pub len: u64,
}

impl Header {
    /// Parses the header from the first bytes of a file; `None` if it is longer than these bytes.
    ///
    /// # Errors
    /// `Corrupt`; `Unsupported` for unknown versions.
    pub fn parse(bytes: &[u8], object: &str) -> Result<Option<Self>> {
        let mut cursor = HeaderCursor { cursor: Cursor::new(object, bytes), wide: false, ended: false };
        match cursor.header() {
            Ok(header) => Ok(Some(header)),
            Err(_) if cursor.ended => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether a variable has records.
    pub fn is_record(&self, variable: &NetCdf3Variable) -> bool {
        variable.dims.first().is_some_and(|dim| self.dims[*dim].len == 0)
    }
}

struct HeaderCursor<'a> {
    cursor: Cursor<'a>,
    /// Whether counts have 64 bits.
    wide: bool,
    /// The bytes end inside the header.
    ended: bool,
}

impl<'a> HeaderCursor<'a> {
    fn corrupt(&self, what: &str, detail: impl Into<String>) -> Error {
        self.cursor.corrupt(what, detail)
    }

    fn bytes(&mut self, len: u64, what: &str) -> Result<&'a [u8]> {
        self.cursor.take64(len, what).inspect_err(|_| self.ended = true)
    }

    fn word(&mut self, what: &str) -> Result<u32> {
        self.cursor.array(what).map(u32::from_be_bytes).inspect_err(|_| self.ended = true)
    }

    fn double_word(&mut self, what: &str) -> Result<u64> {
        self.cursor.array(what).map(u64::from_be_bytes).inspect_err(|_| self.ended = true)
    }

    /// A count, length or dimension number.
    fn count(&mut self, what: &str) -> Result<u64> {
        if self.wide { self.double_word(what) } else { self.word(what).map(u64::from) }
    }

    fn padded(&mut self, len: u64, what: &str) -> Result<&'a [u8]> {
        let bytes = self.bytes(len, what)?;
        self.bytes(len.wrapping_neg() % 4, what)?;
        Ok(bytes)
    }

    fn header(&mut self) -> Result<Header> {
        if self.bytes(3, "magic")? != MAGIC {
            return Err(self.cursor.corrupt_at(0, "magic", "not a NetCDF classic file"));
        }
        let version = self.bytes(1, "version")?[0];
        if !matches!(version, 1 | 2 | 5) {
            return Err(Error::unsupported(format!("NetCDF classic files of version {version}")));
        }
        self.wide = version == 5;
        let streaming = if self.wide { u64::MAX } else { u64::from(u32::MAX) };
        let records = Some(self.count("number of records")?).filter(|records| *records != streaming);
        let dims = self.list("dimensions", DIMENSIONS, |cursor, dims: &mut Vec<NamedDimension>| {
            let dim = NamedDimension { name: cursor.name("dimensions")?, len: cursor.count("dimensions")? };
            if dim.len == 0 && dims.iter().any(|other| other.len == 0) {
                return Err(cursor.corrupt("dimensions", "more than one record dimension"));
            }
            dims.push(dim);
            Ok(())
        })?;
        let attributes = self.attributes()?;
        let variables =
            self.list("variables", VARIABLES, |cursor, variables: &mut Vec<NetCdf3Variable>| {
                variables.push(cursor.variable(version, &dims)?);
                Ok(())
            })?;
        let mut names = std::collections::HashSet::new();
        if let Some(twice) = variables.iter().find(|variable| !names.insert(variable.name.as_str())) {
            return Err(self.corrupt("variables", format!("duplicate variable {:?}", twice.name)));
        }
        Ok(Header { version, records, dims, attributes, variables, len: self.cursor.at() })
    }

    /// A list of items. Memory grows with the bytes that were read, not with the count that the list declares.
    fn list<T: Default>(
        &mut self,
        what: &str,
        tag: u32,
        mut item: impl FnMut(&mut Self, &mut T) -> Result<()>,
    ) -> Result<T> {
        let (found, count) = (self.word(what)?, self.count(what)?);
        if found != tag && (found, count) != (0, 0) {
            return Err(self.corrupt(what, format!("tag mismatch: expected {tag}, found {found}")));
        }
        let mut items = T::default();
        for _ in 0..count {
            item(self, &mut items)?;
        }
        Ok(items)
    }

    fn name(&mut self, what: &str) -> Result<String> {
        let len = self.count(what)?;
        let bytes = self.padded(len, what)?;
        match std::str::from_utf8(bytes) {
            Ok(name) if !name.is_empty() => Ok(name.to_owned()),
            Ok(_) => Err(self.corrupt(what, "empty name")),
            Err(_) => Err(self.corrupt(what, "a name is not UTF-8")),
        }
    }

    fn dtype(&mut self) -> Result<DType> {
        let number = self.word("type")?;
        Ok(match number {
            1 => DType::Int8,
            2 => DType::Char,
            3 => DType::Int16,
            4 => DType::Int32,
            5 => DType::Float32,
            6 => DType::Float64,
            7 if self.wide => DType::UInt8,
            8 if self.wide => DType::UInt16,
            9 if self.wide => DType::UInt32,
            10 if self.wide => DType::Int64,
            11 if self.wide => DType::UInt64,
            _ => return Err(self.corrupt("type", format!("unknown type {number}"))),
        })
    }

    fn attributes(&mut self) -> Result<Attributes> {
        self.list("attributes", ATTRIBUTES, |cursor, attributes: &mut Attributes| {
            let (name, dtype, count) =
                (cursor.name("attributes")?, cursor.dtype()?, cursor.count("attributes")?);
            let size = dtype.size().unwrap_or(1);
            // An overflow is more than any file holds.
            let len = count.saturating_mul(size as u64);
            let value = value(dtype, size, cursor.padded(len, "attributes")?);
            match attributes.insert(name, value) {
                None => Ok(()),
                Some(_) => Err(cursor.corrupt("attributes", "duplicate attribute")),
            }
        })
    }

    fn variable(&mut self, version: u8, dims: &[NamedDimension]) -> Result<NetCdf3Variable> {
        let (name, rank) = (self.name("variables")?, self.count("variables")?);
        if rank > RANK {
            return Err(self.corrupt("variables", format!("{name:?} has {rank} dimensions")));
        }
        let mut own = Vec::new();
        for position in 0..rank {
            let number = self.count("variables")?;
            let known = usize::try_from(number).ok().filter(|number| *number < dims.len());
            let dim = known
                .ok_or_else(|| self.corrupt("variables", format!("{name:?} has no dimension {number}")))?;
            if dims[dim].len == 0 && position > 0 {
                return Err(
                    self.corrupt("variables", format!("the record dimension of {name:?} is not its first"))
                );
            }
            own.push(dim);
        }
        let (attributes, dtype) = (self.attributes()?, self.dtype()?);
        // The size is redundant, and wrong for variables that exceed its width.
        self.count("variables")?;
        let begin =
            if version == 1 { self.word("variables")?.into() } else { self.double_word("variables")? };
        Ok(NetCdf3Variable { name, dims: own, attributes, dtype, begin })
    }
}

/// The value of an attribute. Text loses the NUL bytes that end it.
fn value(dtype: DType, size: usize, bytes: &[u8]) -> Value {
    if dtype == DType::Char {
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        return match std::str::from_utf8(&bytes[..end]) {
            Ok(text) => Value::from(text),
            Err(_) => Value::Bytes(bytes.to_vec()),
        };
    }
    let mut little = bytes.to_vec();
    little.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    match Scalar::from_le_bytes(dtype, &little) {
        Ok(scalar) if little.len() == size => Value::from(scalar),
        _ => Value::Numbers { dtype, bytes: little },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(version: u8, words: &[u32]) -> Vec<u8> {
        let mut out = [&MAGIC[..], &[version]].concat();
        out.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        out
    }

    const X: u32 = u32::from_be_bytes(*b"x\0\0\0");

    #[test]
    fn headers_end_with_their_last_variable() {
        let file =
            words(1, &[3, 10, 1, 1, X, 0, 0, 0, 11, 1, 1, X, 1, 0, 12, 1, 1, X, 3, 1, 7 << 16, 4, 4, 96, 9]);
        let header = Header::parse(&file, "f").unwrap().unwrap();
        assert_eq!((header.records, header.len), (Some(3), file.len() as u64 - 4));
        let [variable] = header.variables.as_slice() else { panic!("{header:?}") };
        assert!(header.is_record(variable));
        assert_eq!((variable.dtype, variable.begin), (DType::Int32, 96));
        assert_eq!(variable.attributes["x"], Value::from(Scalar::from_element(7_i16)));
        for end in 0..file.len() - 4 {
            assert_eq!(Header::parse(&file[..end], "f").unwrap(), None, "{end}");
        }
    }

    #[test]
    fn contradictory_headers_are_rejected() {
        for (version, list) in [
            (1, vec![0, 9, 1]),
            (1, vec![0, 10, 2, 1, X, 0, 1, X, 0]),
            (1, vec![0, 0, 0, 0, 0, 11, 1, 1, X, 1, 0]),
            (1, vec![0, 10, 1, 0]),
            (1, vec![0, 0, 0, 12, 1, 1, X, 7, 1, 0]),
            (2, vec![0, 10, 1, 1, X, 0, 0, 0, 11, 1, 1, X, 2, 0, 0]),
            (1, vec![0, 0, 0, 0, 0, 11, 1, 1, X, u32::MAX]),
        ] {
            let error = Header::parse(&words(version, &list), "f").unwrap_err();
            assert!(matches!(error.kind(), tesseral_core::ErrorKind::Corrupt { .. }), "{list:?}: {error}");
        }
        assert!(Header::parse(&words(3, &[]), "f").is_err() && Header::parse(b"CDX\x01", "f").is_err());
    }

    #[test]
    fn text_ends_before_its_padding() {
        assert_eq!(value(DType::Char, 1, b"days\0"), Value::from("days"));
        assert_eq!(value(DType::Char, 1, b""), Value::from(""));
        assert_eq!(value(DType::Char, 1, b"\xb0C"), Value::Bytes(b"\xb0C".to_vec()));
        let pair = Value::Numbers { dtype: DType::Int16, bytes: vec![1, 0, 2, 0] };
        assert_eq!(value(DType::Int16, 2, &[0, 1, 0, 2]), pair);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(version in 0_u8..6, list in proptest::collection::vec(0_u32..13, 0..60), bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = (Header::parse(&bytes, "f"), Header::parse(&words(version, &list), "f"));
        }
    }
}
