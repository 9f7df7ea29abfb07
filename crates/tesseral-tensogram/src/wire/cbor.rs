//! CBOR: a reader for well-formed items within limits, and a canonical writer.
//!
//! Canonical form: definite lengths, shortest heads, map keys in bytewise order of their encoding, floats as the shortest of
//! 16, 32 and 64 bits that preserves the value. Floats and integers are never converted into each other.

use std::collections::BTreeMap;

use half::f16;
use tesseral_core::{Attributes, Cursor, DType, Error, Limits, MetadataCost, Result, Value};

/// A CBOR item.
#[derive(Clone, Debug, PartialEq)]
pub enum CborItem {
    /// An integer ≥ 0.
    UInt(u64),
    /// The integer `-1 - n`.
    Negative(u64),
    /// A byte string.
    Bytes(Vec<u8>),
    /// A text string.
    Text(String),
    /// A list.
    Array(Vec<CborItem>),
    /// Key-value pairs in stored order.
    Map(Vec<(CborItem, CborItem)>),
    /// A tagged item.
    Tag(u64, Box<CborItem>),
    /// A Boolean.
    Bool(bool),
    /// The simple value `null`.
    Null,
    /// The simple value `undefined`.
    Undefined,
    /// Any other simple value.
    Simple(u8),
    /// A float of 16, 32 or 64 bits.
    Float(f64),
}

/// A map with text keys; the last of duplicate keys wins.
pub type Map = BTreeMap<String, CborItem>;

/// Origin of parsed bytes, for errors.
#[derive(Clone, Copy, Debug)]
pub struct ErrorLocation<'a> {
    /// Name of the structure.
    pub what: &'static str,
    /// Name of the file.
    pub object: &'a str,
    /// Offset of the bytes in the file.
    pub offset: u64,
}

impl ErrorLocation<'_> {
    /// Creates a `Corrupt` error at this origin.
    pub fn corrupt(&self, detail: impl Into<String>) -> Error {
        Error::corrupt(self.what, self.object, self.offset, detail)
    }
}

struct CborCursor<'a> {
    cursor: Cursor<'a>,
    depth: usize,
}

type Read<T> = std::result::Result<T, &'static str>;

const SHORT: &str = "unexpected end of item";

impl<'a> CborCursor<'a> {
    fn take(&mut self, n: u64) -> Read<&'a [u8]> {
        self.cursor.take64(n, "item").map_err(|_| SHORT)
    }

    fn number(&mut self, n: u64) -> Read<u64> {
        Ok(self.take(n)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// Reads major type, low bits and argument; `None` for indefinite lengths.
    fn head(&mut self) -> Read<(u8, u8, Option<u64>)> {
        let first = self.number(1)?;
        let (major, low) = ((first >> 5) as u8, (first & 31) as u8);
        let argument = match low {
            0..=23 => Some(u64::from(low)),
            24..=27 => Some(self.number(1 << (low - 24))?),
            31 => None,
            _ => return Err("reserved additional information"),
        };
        Ok((major, low, argument))
    }

    fn is_break(&mut self) -> Read<bool> {
        let stop = *self.cursor.rest().first().ok_or(SHORT)? == 0xff;
        self.take(u64::from(stop))?;
        Ok(stop)
    }

    /// Reads a byte or text string, definite or chunked.
    fn string(&mut self, major: u8, len: Option<u64>) -> Read<Vec<u8>> {
        if let Some(len) = len {
            return Ok(self.take(len)?.to_vec());
        }
        let mut all = Vec::new();
        while !self.is_break()? {
            match self.head()? {
                (piece, _, Some(len)) if piece == major => all.extend_from_slice(self.take(len)?),
                _ => return Err("chunked string with a chunk of another type"),
            }
        }
        Ok(all)
    }

    /// Calls `f` for each of `len` entries, or until the break code.
    fn entries(&mut self, len: Option<u64>, mut f: impl FnMut(&mut Self) -> Read<()>) -> Read<()> {
        match len {
            // Every entry takes at least one byte, so the loop is bounded by the input.
            Some(len) => (0..len).try_for_each(|_| f(self)),
            None => {
                while !self.is_break()? {
                    f(self)?;
                }
                Ok(())
            }
        }
    }

    fn item(&mut self) -> Read<CborItem> {
        let (major, low, argument) = self.head()?;
        if (4..=6).contains(&major) {
            self.depth = self.depth.checked_sub(1).ok_or("nested too deeply")?;
        }
        let need = || argument.ok_or("invalid indefinite length");
        let item = match major {
            0 => CborItem::UInt(need()?),
            1 => CborItem::Negative(need()?),
            2 => CborItem::Bytes(self.string(2, argument)?),
            3 => CborItem::Text(String::from_utf8(self.string(3, argument)?).map_err(|_| "invalid UTF-8")?),
            4 => {
                let mut items = Vec::with_capacity(few(argument));
                self.entries(argument, |reader| {
                    items.push(reader.item()?);
                    Ok(())
                })?;
                CborItem::Array(items)
            }
            5 => {
                let mut pairs = Vec::with_capacity(few(argument));
                self.entries(argument, |reader| {
                    pairs.push((reader.item()?, reader.item()?));
                    Ok(())
                })?;
                CborItem::Map(pairs)
            }
            6 => CborItem::Tag(need()?, Box::new(self.item()?)),
            _ => simple(low, need()?)?,
        };
        if (4..=6).contains(&major) {
            self.depth += 1;
        }
        Ok(item)
    }
}

/// Room for the entries of a small list or map; larger ones grow with what was read.
fn few(len: Option<u64>) -> usize {
    len.and_then(|len| usize::try_from(len).ok()).unwrap_or(0).min(FEW)
}

/// Number of entries of a typical descriptor.
const FEW: usize = 16;

impl CborCursor<'_> {
    /// Passes an item and adds what it would take in memory.
    fn skip(&mut self, cost: &mut MetadataCost) -> Read<()> {
        let (major, _, argument) = self.head()?;
        if (4..=6).contains(&major) {
            self.depth = self.depth.checked_sub(1).ok_or("nested too deeply")?;
        }
        match major {
            2 | 3 => {
                *cost = cost.values(1);
                match argument {
                    Some(len) => drop(self.take(len)?),
                    None => self.entries(None, |reader| reader.skip(cost))?,
                }
            }
            4 => {
                *cost = cost.lists(1);
                self.entries(argument, |reader| reader.skip(cost))?;
            }
            5 => {
                *cost = cost.maps(1);
                self.entries(argument, |reader| {
                    *cost = cost.names(1);
                    reader.skip(cost)?;
                    reader.skip(cost)
                })?;
            }
            6 => self.skip(cost)?,
            _ => *cost = cost.values(1),
        }
        if (4..=6).contains(&major) {
            self.depth += 1;
        }
        Ok(())
    }
}

fn simple(low: u8, argument: u64) -> Read<CborItem> {
    Ok(match (low, argument) {
        (20 | 21, _) => CborItem::Bool(low == 21),
        (22, _) => CborItem::Null,
        (23, _) => CborItem::Undefined,
        (24, 0..32) => return Err("invalid two-byte simple value"),
        (25, bits) => CborItem::Float(widen(f16::from_bits(bits as u16))),
        (26, bits) => CborItem::Float(f64::from(f32::from_bits(bits as u32))),
        (27, bits) => CborItem::Float(f64::from_bits(bits)),
        (_, value) => CborItem::Simple(value as u8),
    })
}

/// Converts a half to a double; NaN payloads are preserved.
fn widen(half: f16) -> f64 {
    if half.is_nan() {
        let bits = u64::from(half.to_bits());
        return f64::from_bits((bits & 0x8000) << 48 | 0x7ff << 52 | (bits & 0x3ff) << 42);
    }
    half.to_f64()
}

/// Parses one item and returns it with its length. Trailing bytes are ignored.
///
/// # Errors
/// `Corrupt` when the item is not well-formed or nested deeper than `depth`.
pub fn parse(bytes: &[u8], depth: usize, place: ErrorLocation<'_>) -> Result<(CborItem, usize)> {
    let mut reader = CborCursor { cursor: Cursor::new(place.object, bytes), depth };
    match reader.item() {
        Ok(item) => Ok((item, bytes.len() - reader.cursor.rest().len())),
        Err(detail) => {
            let offset = place.offset.saturating_add(reader.cursor.at());
            Err(Error::corrupt(place.what, place.object, offset, format!("CBOR: {detail}")))
        }
    }
}

/// As [`parse`], unless the values would take more memory than the limits for these bytes.
///
/// # Errors
/// As [`parse`]; `Limit`.
pub fn parse_within(bytes: &[u8], limits: &Limits, place: ErrorLocation<'_>) -> Result<(CborItem, usize)> {
    let mut reader = CborCursor { cursor: Cursor::new(place.object, bytes), depth: limits.depth };
    let mut cost = MetadataCost::default();
    // Parsing reports the damage where this ends early.
    let _ = reader.skip(&mut cost);
    limits.check_values(cost, bytes.len() as u64)?;
    parse(bytes, limits.depth, place)
}

/// Checks that bytes are exactly one CBOR item in canonical form.
///
/// # Errors
/// `Corrupt` otherwise, with the first offset that differs from the canonical form.
pub fn verify_canonical_cbor(bytes: &[u8]) -> Result<()> {
    let place = ErrorLocation { what: "metadata", object: "CBOR", offset: 0 };
    let (item, _) = parse(bytes, 256, place)?;
    let canonical = item.to_bytes();
    if canonical == bytes {
        return Ok(());
    }
    let same = bytes.iter().zip(&canonical).take_while(|(a, b)| a == b).count();
    Err(Error::corrupt(place.what, place.object, same as u64, "not in canonical form"))
}

/// Typical size of descriptors and metadata in bytes.
pub(crate) const TYPICAL: usize = 256;

/// Returns whether the bytes are the canonical encoding of their item.
pub fn is_canonical(bytes: &[u8], item: &CborItem) -> bool {
    let mut again = Vec::with_capacity(bytes.len());
    item.write(&mut again);
    again == bytes
}

/// Appends the head of an item: its major type and argument.
pub(crate) fn write_head(major: u8, argument: u64, out: &mut Vec<u8>) {
    let bytes = argument.to_be_bytes();
    let (low, from) = match argument {
        0..24 => (argument as u8, 8),
        24..0x100 => (24, 7),
        0x100..0x1_0000 => (25, 6),
        0x1_0000..0x1_0000_0000 => (26, 4),
        _ => (27, 0),
    };
    out.push(major << 5 | low);
    out.extend_from_slice(&bytes[from..]);
}

fn write_float(value: f64, out: &mut Vec<u8>) {
    let single = value as f32;
    let short = f16::from_f64(value);
    let same = |wide: f64| wide.to_bits() == value.to_bits();
    if same(widen(short)) {
        out.push(0xf9);
        out.extend_from_slice(&short.to_bits().to_be_bytes());
    } else if same(f64::from(single)) {
        out.push(0xfa);
        out.extend_from_slice(&single.to_bits().to_be_bytes());
    } else {
        out.push(0xfb);
        out.extend_from_slice(&value.to_bits().to_be_bytes());
    }
}

/// Sorts pairs by the canonical encoding of their keys. Text keys compare by length and bytes without encoding. Other keys are
/// encoded once, because they can be maps themselves.
fn write_map(pairs: &[(CborItem, CborItem)], out: &mut Vec<u8>) {
    write_head(5, pairs.len() as u64, out);
    let texts = pairs.iter().map(|(key, value)| Some((key.as_text()?, value)));
    if let Some(mut sorted) = texts.collect::<Option<Vec<_>>>() {
        sorted.sort_by_key(|(key, _)| (key.len(), key.as_bytes()));
        for (key, value) in sorted {
            write_text(key, out);
            value.write(out);
        }
        return;
    }
    let mut sorted: Vec<(Vec<u8>, &CborItem)> =
        pairs.iter().map(|(key, value)| (key.to_bytes(), value)).collect();
    sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (key, value) in sorted {
        out.extend_from_slice(&key);
        value.write(out);
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    write_head(3, text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

impl CborItem {
    /// Appends the canonical encoding.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::UInt(n) => write_head(0, *n, out),
            Self::Negative(n) => write_head(1, *n, out),
            Self::Bytes(bytes) => {
                write_head(2, bytes.len() as u64, out);
                out.extend_from_slice(bytes);
            }
            Self::Text(text) => write_text(text, out),
            Self::Array(items) => {
                write_head(4, items.len() as u64, out);
                items.iter().for_each(|item| item.write(out));
            }
            Self::Map(pairs) => write_map(pairs, out),
            Self::Tag(tag, item) => {
                write_head(6, *tag, out);
                item.write(out);
            }
            Self::Bool(value) => out.push(if *value { 0xf5 } else { 0xf4 }),
            Self::Null => out.push(0xf6),
            Self::Undefined => out.push(0xf7),
            Self::Simple(value) => write_head(7, (*value).into(), out),
            Self::Float(value) => write_float(*value, out),
        }
    }

    /// Returns the canonical encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(TYPICAL);
        self.write(&mut out);
        out
    }

    /// Creates a map with text keys.
    pub fn map<K: Into<String>>(pairs: impl IntoIterator<Item = (K, CborItem)>) -> Self {
        Self::Map(pairs.into_iter().map(|(key, value)| (Self::Text(key.into()), value)).collect())
    }

    /// Returns the map if every key is text.
    pub fn into_map(self) -> Option<Map> {
        let Self::Map(pairs) = self else { return None };
        pairs
            .into_iter()
            .map(|(key, value)| if let Self::Text(key) = key { Some((key, value)) } else { None })
            .collect()
    }

    /// What the item and its copies take in memory.
    pub fn cost(&self) -> MetadataCost {
        let cost = MetadataCost::default();
        match self {
            Self::Array(items) => items.iter().fold(cost.lists(1), |sum, item| sum.and(item.cost())),
            Self::Map(pairs) => pairs
                .iter()
                .fold(cost.maps(1), |sum, (key, value)| sum.names(1).and(key.cost()).and(value.cost())),
            Self::Tag(_, item) => item.cost(),
            _ => cost.values(1),
        }
    }

    /// Whether every integer fits `i64`: the reference's Python package reads no message with another one in its metadata.
    pub fn fits_i64(&self) -> bool {
        match self {
            Self::UInt(n) | Self::Negative(n) => i64::try_from(*n).is_ok(),
            Self::Array(items) => items.iter().all(Self::fits_i64),
            Self::Map(pairs) => pairs.iter().all(|(key, value)| key.fits_i64() && value.fits_i64()),
            Self::Tag(_, item) => item.fits_i64(),
            _ => true,
        }
    }

    /// Returns the integer if it is ≥ 0.
    pub fn as_u64(&self) -> Option<u64> {
        if let Self::UInt(n) = self { Some(*n) } else { None }
    }

    /// Returns the integer if it fits 64 bits.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::UInt(n) => i64::try_from(*n).ok(),
            Self::Negative(n) => i64::try_from(*n).ok().map(|n| -1 - n),
            _ => None,
        }
    }

    /// Returns the text, if the item is text.
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// Returns the list of integers ≥ 0, if it is one.
    pub fn as_u64s(&self) -> Option<Vec<u64>> {
        if let Self::Array(items) = self { items.iter().map(Self::as_u64).collect() } else { None }
    }

    /// Converts to an attribute value. Tags are dropped; integers outside 64 bits become text.
    pub fn to_value(&self) -> Value {
        match self {
            Self::UInt(n) => i64::try_from(*n).map_or(Value::UInt(*n), Value::Int),
            Self::Negative(n) => {
                self.as_i64().map_or_else(|| Value::Text((-1 - i128::from(*n)).to_string()), Value::Int)
            }
            Self::Bytes(bytes) => Value::Bytes(bytes.clone()),
            Self::Text(text) => Value::Text(text.clone()),
            Self::Array(items) => Value::List(items.iter().map(Self::to_value).collect()),
            Self::Map(pairs) => {
                let pair = |(key, value): &(Self, Self)| {
                    let key = key.as_text().map_or_else(|| key.to_value().to_string(), str::to_owned);
                    (key, value.to_value())
                };
                Value::Map(Box::new(pairs.iter().map(pair).collect()))
            }
            Self::Tag(_, item) => item.to_value(),
            Self::Bool(value) => Value::Bool(*value),
            Self::Null | Self::Undefined => Value::Null,
            Self::Simple(value) => Value::Int((*value).into()),
            Self::Float(value) => Value::Float(*value),
        }
    }

    /// Converts from an attribute value.
    ///
    /// # Errors
    /// `Unsupported` for values without a CBOR representation.
    pub fn from_value(value: &Value) -> Result<Self> {
        Ok(match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Int(n) => Self::from_i64(*n),
            Value::UInt(n) => Self::UInt(*n),
            Value::Float(value) => Self::Float(*value),
            Value::Scalar(scalar) => match numbers(scalar.dtype(), scalar.bytes()) {
                Ok(Self::Array(mut items)) if items.len() == 1 => items.remove(0),
                // CBOR has no items for dates and complex numbers.
                _ => Self::Text(scalar.to_string()),
            },
            Value::Text(text) => Self::Text(text.clone()),
            Value::Bytes(bytes) => Self::Bytes(bytes.clone()),
            Value::List(values) => Self::Array(values.iter().map(Self::from_value).collect::<Result<_>>()?),
            Value::Map(map) => from_attributes(map)?,
            Value::Numbers { dtype, bytes } => numbers(*dtype, bytes)?,
            other => return Err(Error::unsupported(format!("attribute {other:?} in CBOR"))),
        })
    }

    fn from_i64(n: i64) -> Self {
        match u64::try_from(n) {
            Ok(n) => Self::UInt(n),
            Err(_) => Self::Negative(!n as u64),
        }
    }

    /// Converts to JSON: NaN and infinities as text, byte strings in hexadecimal.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            Self::UInt(n) => (*n).into(),
            Self::Negative(n) => {
                self.as_i64().map_or_else(|| Json::String((-1 - i128::from(*n)).to_string()), Json::from)
            }
            Self::Bytes(bytes) => bytes.iter().map(|b| format!("{b:02x}")).collect::<String>().into(),
            Self::Text(text) => text.as_str().into(),
            Self::Array(items) => items.iter().map(Self::to_json).collect(),
            Self::Map(pairs) => Json::Object(
                pairs
                    .iter()
                    .map(|(key, value)| {
                        let key = key.as_text().map_or_else(|| key.to_value().to_string(), str::to_owned);
                        (key, value.to_json())
                    })
                    .collect(),
            ),
            Self::Tag(_, item) => item.to_json(),
            Self::Bool(value) => (*value).into(),
            Self::Null | Self::Undefined => Json::Null,
            Self::Simple(value) => (*value).into(),
            Self::Float(value) if value.is_finite() => (*value).into(),
            Self::Float(value) => Value::Float(*value).to_string().into(),
        }
    }
}

/// Converts numbers of one dtype to a list.
fn numbers(dtype: DType, bytes: &[u8]) -> Result<CborItem> {
    use tesseral_core::dispatch_element;
    use tesseral_core::element::Element;
    fn list<T: Element>(bytes: &[u8]) -> CborItem {
        let cells = bytes.chunks_exact(size_of::<T>());
        CborItem::Array(
            cells
                .map(|cell| {
                    let mut cell = cell.to_vec();
                    if cfg!(target_endian = "big") {
                        cell.reverse();
                    }
                    let value: T = bytemuck::pod_read_unaligned(&cell);
                    if T::IS_FLOAT {
                        return CborItem::Float(value.to_f64());
                    }
                    let n = value.to_i128();
                    u64::try_from(n).map_or_else(
                        |_| CborItem::Negative(u64::try_from(-1 - n).unwrap_or(0)),
                        CborItem::UInt,
                    )
                })
                .collect(),
        )
    }
    let refuse = || Error::unsupported(format!("attribute of dtype {dtype} in CBOR"));
    dispatch_element!(dtype, T => Ok(list::<T>(bytes)), else => Err(refuse()))
}

/// Converts attributes to a map.
///
/// # Errors
/// As [`CborItem::from_value`].
pub fn from_attributes(attributes: &Attributes) -> Result<CborItem> {
    let pairs = attributes.iter().map(|(key, value)| Ok((key.clone(), CborItem::from_value(value)?)));
    Ok(CborItem::map(pairs.collect::<Result<Vec<_>>>()?))
}
