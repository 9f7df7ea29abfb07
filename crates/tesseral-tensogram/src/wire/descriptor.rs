//! What an object is: its type, shape and how its bytes came about.

use tesseral_core::{DType, Result};

use super::cbor::{Item, Map, Place};
use super::part::Part;

/// The dtypes there are, under the names the format has for them.
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

/// Their names.
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

/// Which cells a mask restores, in the order their blobs are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MaskKind {
    /// To NaN.
    Nan,
    /// To +∞.
    PosInf,
    /// To −∞.
    NegInf,
}

impl MaskKind {
    /// All, in stored order.
    pub const ALL: [Self; 3] = [Self::Nan, Self::PosInf, Self::NegInf];

    /// Its key.
    pub fn key(self) -> &'static str {
        match self {
            Self::Nan => "nan",
            Self::PosInf => "inf+",
            Self::NegInf => "inf-",
        }
    }
}

/// A blob that says which cells to restore.
#[derive(Clone, Debug, PartialEq)]
pub struct Mask {
    /// What they are restored to.
    pub kind: MaskKind,
    /// How the bits are stored.
    pub method: String,
    /// Where the blob begins in the payload region.
    pub offset: u64,
    /// Its length.
    pub length: u64,
    /// Parameters of the method.
    pub params: Map,
}

/// What an object is.
#[derive(Clone, Debug, PartialEq)]
pub struct Descriptor {
    /// Its kind, `ntensor` by convention.
    pub kind: String,
    /// Number of cells along each dimension.
    pub shape: Vec<u64>,
    /// Strides in cells, told and not used: cells are row-major.
    pub strides: Vec<u64>,
    /// The type of a cell.
    pub dtype: DType,
    /// Whether numbers are big-endian; absent means the reader's own order.
    pub big_endian: Option<bool>,
    /// `none` or `simple_packing`.
    pub encoding: String,
    /// `none` or `shuffle`.
    pub filter: String,
    /// The compression.
    pub compression: String,
    /// Masks, in stored order.
    pub masks: Vec<Mask>,
    /// Parameters of the codecs and whatever else there is.
    pub params: Map,
}

/// The keys that are not parameters.
const NAMED: [&str; 10] =
    ["type", "ndim", "shape", "strides", "dtype", "byte_order", "encoding", "filter", "compression", "masks"];

/// Row-major strides in cells.
pub fn strides(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1_u64; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d].saturating_mul(shape[d]);
    }
    strides
}

impl Descriptor {
    /// Little-endian cells of a shape, row-major, stored as they are.
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

    /// From its item.
    ///
    /// # Errors
    /// `Corrupt` when a key is missing, said twice, or contradicts another.
    pub fn from_item(item: Item, place: Place<'_>) -> Result<Self> {
        let no_map = || place.corrupt("it is not a map of text keys");
        let Item::Map(pairs) = item else { return Err(no_map()) };
        let mut named: [Option<Item>; NAMED.len()] = Default::default();
        let mut params = Map::new();
        for (key, value) in pairs {
            let Item::Text(key) = key else { return Err(no_map()) };
            match NAMED.iter().position(|name| *name == key) {
                Some(at) if named[at].is_some() => return Err(place.corrupt(format!("{key} is there twice"))),
                Some(at) => named[at] = Some(value),
                None => drop(params.insert(key, value)),
            }
        }
        let [kind, ndim, shape, strides, dtype, order, encoding, filter, compression, masked] = named;
        let bad = |key: &str| place.corrupt(format!("{key} is missing or of another kind"));
        let text = |item: Option<Item>, key: &str| match item {
            Some(Item::Text(text)) => Ok(text),
            _ => Err(bad(key)),
        };
        let (kind, dtype) = (text(kind, "type")?, text(dtype, "dtype")?);
        let (encoding, filter) = (text(encoding, "encoding")?, text(filter, "filter")?);
        let compression = text(compression, "compression")?;
        let dtype = NAMES.iter().position(|name| *name == dtype).map(|at| DTYPES[at]);
        let dtype = dtype.ok_or_else(|| place.corrupt("dtype is not a known one"))?;
        let list =
            |item: Option<Item>, key: &str| item.and_then(|item| item.as_u64s()).ok_or_else(|| bad(key));
        let (shape, strides) = (list(shape, "shape")?, list(strides, "strides")?);
        let ndim = ndim.and_then(|item| item.as_u64()).ok_or_else(|| bad("ndim"))?;
        if ndim != shape.len() as u64 || strides.len() != shape.len() {
            let detail = format!("ndim is {ndim}, shape {shape:?}, strides {strides:?}");
            return Err(place.corrupt(detail));
        }
        let big_endian = match order {
            None => None,
            Some(Item::Text(order)) if order == "little" => Some(false),
            Some(Item::Text(order)) if order == "big" => Some(true),
            Some(_) => return Err(bad("byte_order")),
        };
        let masks = match masked {
            None => Vec::new(),
            Some(item) => masks(item, place)?,
        };
        Ok(Self { kind, shape, strides, dtype, big_endian, encoding, filter, compression, masks, params })
    }

    /// What it is made of.
    fn part<'a>(&'a self, dtype: &'a str) -> Part<'a> {
        // Parameters do not say again what the descriptor says.
        let params = self.params.iter().filter(|(key, _)| !NAMED.contains(&key.as_str()));
        let mut pairs: Vec<_> = params.map(|(key, item)| (key.as_str(), Part::Item(item))).collect();
        pairs.extend([
            ("type", Part::Text(&self.kind)),
            ("ndim", Part::UInt(self.shape.len() as u64)),
            ("shape", Part::UInts(&self.shape)),
            ("strides", Part::UInts(&self.strides)),
            ("dtype", Part::Text(dtype)),
            ("encoding", Part::Text(&self.encoding)),
            ("filter", Part::Text(&self.filter)),
            ("compression", Part::Text(&self.compression)),
        ]);
        if let Some(big) = self.big_endian {
            pairs.push(("byte_order", Part::Text(if big { "big" } else { "little" })));
        }
        if !self.masks.is_empty() {
            let masks = self.masks.iter().map(|mask| {
                let mut pairs = vec![
                    ("method", Part::Text(&mask.method)),
                    ("offset", Part::UInt(mask.offset)),
                    ("length", Part::UInt(mask.length)),
                ];
                if !mask.params.is_empty() {
                    pairs.push(("params", Part::of(&mask.params)));
                }
                (mask.kind.key(), Part::Map(pairs))
            });
            pairs.push(("masks", Part::Map(masks.collect())));
        }
        Part::Map(pairs)
    }

    /// As an item.
    pub fn to_item(&self) -> Item {
        self.part(&self.dtype.to_string()).to_item()
    }

    /// Its canonical form.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.part(&self.dtype.to_string()).to_bytes()
    }

    /// Number of cells; `None` beyond `u64`.
    pub fn cells(&self) -> Option<u64> {
        tesseral_core::Region::from_shape(&self.shape).cells()
    }

    /// Bytes of the cells once decoded; `None` beyond `u64`.
    pub fn raw_len(&self) -> Option<u64> {
        let cells = self.cells()?;
        match self.dtype.size() {
            Some(size) => cells.checked_mul(size as u64),
            None => Some(cells.div_ceil(8)),
        }
    }
}

fn masks(item: Item, place: Place<'_>) -> Result<Vec<Mask>> {
    let mut map = item.into_map().ok_or_else(|| place.corrupt("masks is not a map of text keys"))?;
    let mut masks = Vec::new();
    for kind in MaskKind::ALL {
        let Some(item) = map.remove(kind.key()) else { continue };
        let bad =
            |key: &str| place.corrupt(format!("{key} of mask {} is missing or of another kind", kind.key()));
        let mut mask = item.into_map().ok_or_else(|| bad("the map"))?;
        let Some(Item::Text(method)) = mask.remove("method") else { return Err(bad("method")) };
        let offset = mask.remove("offset").and_then(|item| item.as_u64()).ok_or_else(|| bad("offset"))?;
        let length = mask.remove("length").and_then(|item| item.as_u64()).ok_or_else(|| bad("length"))?;
        let params = match mask.remove("params") {
            None => Map::new(),
            Some(item) => item.into_map().ok_or_else(|| bad("params"))?,
        };
        masks.push(Mask { kind, method, offset, length, params });
    }
    if let Some(key) = map.keys().next() {
        return Err(place.corrupt(format!("mask {key:?} is not a known one")));
    }
    Ok(masks)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place<'_> = Place { what: "descriptor", object: "a test", offset: 0 };

    #[test]
    fn every_dtype_comes_back() {
        for dtype in DTYPES {
            let descriptor = Descriptor::raw(dtype, &[2, 3]);
            assert_eq!(Descriptor::from_item(descriptor.to_item(), PLACE).unwrap(), descriptor);
        }
    }

    #[test]
    fn keys_said_twice_count_once_or_not_at_all() {
        let Item::Map(pairs) = Descriptor::raw(DType::Int8, &[4]).to_item() else { panic!() };
        let with = |key: Item, value: u64| {
            let mut pairs = pairs.clone();
            pairs.push((key, Item::UInt(value)));
            pairs
        };
        let text = |key: &str| Item::Text(key.to_owned());
        for name in NAMED.into_iter().filter(|name| *name != "masks") {
            assert!(Descriptor::from_item(Item::Map(with(text(name), 1)), PLACE).is_err(), "{name}");
        }
        assert!(Descriptor::from_item(Item::Map(with(Item::UInt(1), 1)), PLACE).is_err());
        let mut twice = with(text("own"), 1);
        twice.push((text("own"), Item::UInt(2)));
        let found = Descriptor::from_item(Item::Map(twice), PLACE).unwrap();
        assert_eq!(found.params, Map::from([("own".to_owned(), Item::UInt(2))]));
    }
}
