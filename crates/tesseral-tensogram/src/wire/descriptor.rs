//! The descriptor of an object: dtype, shape and codecs.

use tesseral_core::{DType, Result};

use super::cbor::{CborItem, ErrorLocation, Map};
use super::cbor_ref::CborRef;

/// Dtypes and their names in the format.
pub const DTYPES: [DType; 15] = [
    DType::Float16,
    DType::BFloat16,
    DType::Float32,
    DType::Float64,
    DType::Complex64,
    DType::Complex128,
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
    DType::Bitmask,
];

/// Names of the supported dtypes.
const NAMES: [&str; DTYPES.len()] = [
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bitmask",
];

/// The values of masked cells, in the order of the stored blobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MaskKind {
    /// NaN.
    Nan,
    /// +∞.
    PosInf,
    /// −∞.
    NegInf,
}

impl MaskKind {
    /// All kinds, in stored order.
    pub const ALL: [Self; 3] = [Self::Nan, Self::PosInf, Self::NegInf];

    /// Key of the kind in `masks`.
    pub fn key(self) -> &'static str {
        match self {
            Self::Nan => "nan",
            Self::PosInf => "inf+",
            Self::NegInf => "inf-",
        }
    }
}

/// A bit mask of cells to restore.
#[derive(Clone, Debug, PartialEq)]
pub struct Mask {
    /// The restored value.
    pub kind: MaskKind,
    /// Method by which the bits are stored.
    pub method: String,
    /// Offset of the blob in the payload region.
    pub offset: u64,
    /// Length of the blob in bytes.
    pub length: u64,
    /// Parameters of the method.
    pub params: Map,
}

/// The descriptor of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Descriptor {
    /// Object type, `ntensor` by convention.
    pub kind: String,
    /// Extent of each dimension.
    pub shape: Vec<u64>,
    /// Strides in cells. Informative: cells are always row-major.
    pub strides: Vec<u64>,
    /// Dtype of a cell.
    pub dtype: DType,
    /// Whether cells are big-endian; `None` means the byte order of the reader.
    pub big_endian: Option<bool>,
    /// `none` or `simple_packing`.
    pub encoding: String,
    /// `none` or `shuffle`.
    pub filter: String,
    /// Name of the compression.
    pub compression: String,
    /// Masks in stored order.
    pub masks: Vec<Mask>,
    /// Parameters of the codecs, and unknown keys.
    pub params: Map,
}

/// Keys that are not parameters.
const NAMED: [&str; 10] =
    ["type", "ndim", "shape", "strides", "dtype", "byte_order", "encoding", "filter", "compression", "masks"];

/// Returns row-major strides in cells.
pub fn strides(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1_u64; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d].saturating_mul(shape[d]);
    }
    strides
}

impl Descriptor {
    /// Creates a descriptor of uncompressed little-endian cells.
    pub fn raw(dtype: DType, shape: &[u64]) -> Self {
        let none = || "none".to_owned();
        Self {
            kind: "ntensor".to_owned(),
            shape: shape.to_vec(),
            strides: strides(shape),
            dtype,
            big_endian: Some(false),
            encoding: none(),
            filter: none(),
            compression: none(),
            masks: Vec::new(),
            params: Map::new(),
        }
    }

    /// Parses a CBOR item.
    ///
    /// # Errors
    /// `Corrupt` when a key is missing or duplicated, or contradicts another one.
    pub fn from_item(item: CborItem, place: ErrorLocation<'_>) -> Result<Self> {
        let no_map = || place.corrupt("not a map with text keys");
        let CborItem::Map(pairs) = item else { return Err(no_map()) };
        let mut named: [Option<CborItem>; NAMED.len()] = Default::default();
        let mut params = Map::new();
        for (key, value) in pairs {
            let CborItem::Text(key) = key else { return Err(no_map()) };
            match NAMED.iter().position(|name| *name == key) {
                Some(at) if named[at].is_some() => return Err(place.corrupt(format!("duplicate key {key}"))),
                Some(at) => named[at] = Some(value),
                None => drop(params.insert(key, value)),
            }
        }
        let [kind, ndim, shape, strides, dtype, order, encoding, filter, compression, masked] = named;
        let bad = |key: &str| place.corrupt(format!("{key} is missing or has the wrong type"));
        let text = |item: Option<CborItem>, key: &str| match item {
            Some(CborItem::Text(text)) => Ok(text),
            _ => Err(bad(key)),
        };
        let (kind, dtype) = (text(kind, "type")?, text(dtype, "dtype")?);
        let (encoding, filter) = (text(encoding, "encoding")?, text(filter, "filter")?);
        let compression = text(compression, "compression")?;
        let dtype = NAMES.iter().position(|name| *name == dtype).map(|at| DTYPES[at]);
        let dtype = dtype.ok_or_else(|| place.corrupt("unknown dtype"))?;
        let list =
            |item: Option<CborItem>, key: &str| item.and_then(|item| item.as_u64s()).ok_or_else(|| bad(key));
        let (shape, strides) = (list(shape, "shape")?, list(strides, "strides")?);
        let ndim = ndim.and_then(|item| item.as_u64()).ok_or_else(|| bad("ndim"))?;
        if ndim != shape.len() as u64 || strides.len() != shape.len() {
            let detail = format!("ndim is {ndim}, shape {shape:?}, strides {strides:?}");
            return Err(place.corrupt(detail));
        }
        let big_endian = match order {
            None => None,
            Some(CborItem::Text(order)) if order == "little" => Some(false),
            Some(CborItem::Text(order)) if order == "big" => Some(true),
            Some(_) => return Err(bad("byte_order")),
        };
        let masks = match masked {
            None => Vec::new(),
            Some(item) => masks(item, place)?,
        };
        Ok(Self { kind, shape, strides, dtype, big_endian, encoding, filter, compression, masks, params })
    }

    /// Returns the keys and values to encode.
    fn part<'a>(&'a self, dtype: &'a str) -> CborRef<'a> {
        // Parameters do not repeat keys of the descriptor.
        let params = self.params.iter().filter(|(key, _)| !NAMED.contains(&key.as_str()));
        let mut pairs: Vec<_> = params.map(|(key, item)| (key.as_str(), CborRef::Item(item))).collect();
        pairs.extend([
            ("type", CborRef::Text(&self.kind)),
            ("ndim", CborRef::UInt(self.shape.len() as u64)),
            ("shape", CborRef::UInts(&self.shape)),
            ("strides", CborRef::UInts(&self.strides)),
            ("dtype", CborRef::Text(dtype)),
            ("encoding", CborRef::Text(&self.encoding)),
            ("filter", CborRef::Text(&self.filter)),
            ("compression", CborRef::Text(&self.compression)),
        ]);
        if let Some(big) = self.big_endian {
            pairs.push(("byte_order", CborRef::Text(if big { "big" } else { "little" })));
        }
        if !self.masks.is_empty() {
            let masks = self.masks.iter().map(|mask| {
                let mut pairs = vec![
                    ("method", CborRef::Text(&mask.method)),
                    ("offset", CborRef::UInt(mask.offset)),
                    ("length", CborRef::UInt(mask.length)),
                ];
                if !mask.params.is_empty() {
                    pairs.push(("params", CborRef::from_map(&mask.params)));
                }
                (mask.kind.key(), CborRef::Map(pairs))
            });
            pairs.push(("masks", CborRef::Map(masks.collect())));
        }
        CborRef::Map(pairs)
    }

    /// Converts to a CBOR item.
    pub fn to_item(&self) -> CborItem {
        self.part(&self.dtype.to_string()).to_item()
    }

    /// Returns the canonical encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.part(&self.dtype.to_string()).to_bytes()
    }

    /// Number of cells; `None` if it exceeds `u64`.
    pub fn cells(&self) -> Option<u64> {
        tesseral_core::Region::from_shape(&self.shape).cells()
    }

    /// Size of the decoded cells in bytes; `None` if it exceeds `u64`.
    pub fn raw_len(&self) -> Option<u64> {
        let cells = self.cells()?;
        match self.dtype.size() {
            Some(size) => cells.checked_mul(size as u64),
            None => Some(cells.div_ceil(8)),
        }
    }
}

fn masks(item: CborItem, place: ErrorLocation<'_>) -> Result<Vec<Mask>> {
    let mut map = item.into_map().ok_or_else(|| place.corrupt("`masks` is not a map with text keys"))?;
    let mut masks = Vec::new();
    for kind in MaskKind::ALL {
        let Some(item) = map.remove(kind.key()) else { continue };
        let bad = |key: &str| {
            place.corrupt(format!("{key} of mask {} is missing or has the wrong type", kind.key()))
        };
        let mut mask = item.into_map().ok_or_else(|| bad("the map"))?;
        let Some(CborItem::Text(method)) = mask.remove("method") else { return Err(bad("method")) };
        let offset = mask.remove("offset").and_then(|item| item.as_u64()).ok_or_else(|| bad("offset"))?;
        let length = mask.remove("length").and_then(|item| item.as_u64()).ok_or_else(|| bad("length"))?;
        let params = match mask.remove("params") {
            None => Map::new(),
            Some(item) => item.into_map().ok_or_else(|| bad("params"))?,
        };
        masks.push(Mask { kind, method, offset, length, params });
    }
    if let Some(key) = map.keys().next() {
        return Err(place.corrupt(format!("unknown mask {key:?}")));
    }
    Ok(masks)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: ErrorLocation<'_> = ErrorLocation { what: "descriptor", object: "a test", offset: 0 };

    #[test]
    fn every_dtype_round_trips() {
        for dtype in DTYPES {
            let descriptor = Descriptor::raw(dtype, &[2, 3]);
            assert_eq!(Descriptor::from_item(descriptor.to_item(), PLACE).unwrap(), descriptor);
        }
    }

    #[test]
    fn duplicate_keys_are_rejected_or_dropped() {
        let CborItem::Map(pairs) = Descriptor::raw(DType::Int8, &[4]).to_item() else { panic!() };
        let with = |key: CborItem, value: u64| {
            let mut pairs = pairs.clone();
            pairs.push((key, CborItem::UInt(value)));
            pairs
        };
        let text = |key: &str| CborItem::Text(key.to_owned());
        for name in NAMED.into_iter().filter(|name| *name != "masks") {
            assert!(Descriptor::from_item(CborItem::Map(with(text(name), 1)), PLACE).is_err(), "{name}");
        }
        assert!(Descriptor::from_item(CborItem::Map(with(CborItem::UInt(1), 1)), PLACE).is_err());
        let mut twice = with(text("own"), 1);
        twice.push((text("own"), CborItem::UInt(2)));
        let found = Descriptor::from_item(CborItem::Map(twice), PLACE).unwrap();
        assert_eq!(found.params, Map::from([("own".to_owned(), CborItem::UInt(2))]));
    }
}
