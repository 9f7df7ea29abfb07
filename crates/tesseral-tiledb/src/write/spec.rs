//! Conversion of the array model to a stored schema.

use tesseral_codec::filter::{DEFAULT_LEVEL, ElementKind, Filter, FilterElement};
use tesseral_core::dtype::Class;
use tesseral_core::{ArraySchema, CellLen, DType, Dimension, Error, Field, Order, Result, Scalar, Value};
use tesseral_format::{ArraySpec, CodecSpec, Domains};

use super::create_options::TileDbCreateOptions;
use crate::geometry::integer;
use crate::wire::WRITTEN;
use crate::wire::datatype::{Datatype, VAR, compare};
use crate::wire::pipeline::FilterPipeline;
use crate::wire::schema::{Attribute, CellLayout, Schema, StoredDimension, StoredRange};

/// Returns the schema of a new array. Enumerations are referred to by name; the writer creates their files.
pub(crate) fn schema(spec: &ArraySpec, options: &TileDbCreateOptions) -> Result<Schema> {
    let model = &spec.schema;
    if model.dims.is_empty() {
        return Err(Error::unsupported("an array without dimensions in TileDB"));
    }
    let dims = model.dims.iter().enumerate().map(|(d, dim)| {
        let grows = options.domains.contains_key(&dim.name);
        dimension(model, d, dim, grows)
    });
    let mut dims = dims.collect::<Result<Vec<_>>>()?;
    let current_domain = widen(model, &options.domains, &mut dims)?;
    let same = dims.windows(2).all(|pair| pair[0].datatype == pair[1].datatype);
    if !model.sparse && !same {
        return Err(Error::unsupported("a dense TileDB array whose dimensions differ in type"));
    }
    unique(dims.iter().map(|d| d.name.as_str()).chain(model.fields.iter().map(|f| f.name.as_str())))?;
    let attributes = model.fields.iter().enumerate().map(|(f, field)| {
        let codecs = spec.codecs.get(f).map_or(&[][..], Vec::as_slice);
        attribute(field, codecs)
    });
    let attributes = attributes.collect::<Result<Vec<_>>>()?;
    if attributes.is_empty() && !model.sparse {
        return Err(Error::unsupported("a dense TileDB array without fields"));
    }
    let cell_order = match model.cell_order {
        Order::RowMajor => CellLayout::RowMajor,
        Order::ColMajor => CellLayout::ColMajor,
        Order::Hilbert if model.sparse => CellLayout::Hilbert,
        Order::Hilbert => return Err(Error::unsupported("a dense TileDB array in Hilbert order")),
    };
    let chosen = |filters: &Option<Vec<Filter>>, usual: Filter| {
        FilterPipeline::from_filters(filters.clone().unwrap_or_else(|| vec![usual]))
    };
    let zstd = Filter::Zstd { level: DEFAULT_LEVEL };
    Ok(Schema {
        version: WRITTEN,
        duplicates: model.sparse && model.allows_duplicates,
        sparse: model.sparse,
        tile_order: options.tile_order,
        cell_order,
        capacity: options.capacity,
        coords: chosen(&options.coords, zstd),
        offsets: chosen(&options.offsets, zstd),
        validity: chosen(&options.validity, Filter::Rle),
        dims,
        attributes,
        labels: Vec::new(),
        enumerations: Vec::new(),
        current_domain,
    })
}

/// Sets the domains that dimensions can grow to; returns the current domain if any of them can grow.
fn widen(
    model: &ArraySchema,
    domains: &Domains,
    dims: &mut [StoredDimension],
) -> Result<Option<Vec<StoredRange>>> {
    if let Some(name) = domains.keys().find(|name| !model.dims.iter().any(|dim| dim.name == **name)) {
        return Err(Error::not_found("dimension", name, model.dims.iter().map(|d| d.name.clone()).collect()));
    }
    let mut used = Vec::new();
    for (dim, wire) in model.dims.iter().zip(dims.iter_mut()) {
        let end = |text: &str| Scalar::parse(dim.dtype, text);
        let part = match (&dim.domain, &wire.domain) {
            (Some((low, high)), _) => range(low, high, wire.datatype, wire.var)?,
            (None, Some(domain)) => domain.clone(),
            (None, None) => (Vec::new(), Vec::new()),
        };
        if let Some(Some((low, high))) = domains.get(&dim.name) {
            let whole = range(&end(low)?, &end(high)?, wire.datatype, wire.var)?;
            let inside = compare(wire.datatype, &whole.0, &part.0).is_le()
                && compare(wire.datatype, &part.1, &whole.1).is_le();
            if !inside {
                let detail = format!("the current domain of dimension {:?} exceeds its domain", dim.name);
                return Err(Error::invalid(detail));
            }
            wire.domain = Some(whole);
            check_domain(wire)?;
        }
        used.push(part);
    }
    Ok((!domains.is_empty()).then_some(used))
}

fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if !seen.insert(name) {
            let detail = format!("duplicate dimension or field name {name:?} in a TileDB array");
            return Err(Error::invalid(detail));
        }
    }
    Ok(())
}

/// Name of an unnamed dimension, as in the reference's Python package.
pub(crate) fn unnamed(d: usize) -> String {
    format!("__dim_{d}")
}

fn dimension(model: &ArraySchema, d: usize, dim: &Dimension, grows: bool) -> Result<StoredDimension> {
    let name = if dim.name.is_empty() { unnamed(d) } else { dim.name.clone() };
    let refuse = |what: &str| Error::unsupported(format!("{what} (dimension {name:?}) in a TileDB array"));
    let datatype = match dim.dtype {
        DType::Utf8 | DType::Ascii | DType::Char | DType::Bytes if model.sparse => Datatype::ASCII,
        dtype => Datatype::from_dtype(dtype).ok_or_else(|| refuse(&format!("coordinates of {dtype}")))?,
    };
    let var = datatype == Datatype::ASCII;
    let counted = datatype.is_integral();
    let float = model.sparse && datatype.word().kind == ElementKind::Float;
    if !(var || counted || float) {
        return Err(refuse(&format!("coordinates of {}", dim.dtype)));
    }
    let pipeline = FilterPipeline::from_filters(Vec::new());
    if var {
        return Ok(StoredDimension { name, datatype, var, pipeline, domain: None, extent: None });
    }
    let domain = match (&dim.domain, dim.extent) {
        (Some((low, high)), _) => (sized(low, datatype)?, sized(high, datatype)?),
        (None, Some(0)) => return Err(refuse("an extent of 0")),
        (None, Some(n)) if counted => (number(0, datatype)?, number(i128::from(n) - 1, datatype)?),
        (None, _) => return Err(refuse("coordinates without a domain")),
    };
    let extent = match (&model.chunk_shape, &dim.tile) {
        (Some(chunk), _) => {
            // A tile is at most as long as the dimension, unless it can grow.
            let positions = dim.extent.filter(|_| !grows).unwrap_or(u64::MAX).max(1);
            let tile = chunk.get(d).copied().unwrap_or(1).min(positions);
            Some(number(i128::from(tile), datatype)?)
        }
        (None, Some(tile)) => Some(sized(tile, datatype)?),
        (None, None) if model.sparse => None,
        (None, None) => return Err(refuse("a dense array without a chunk shape")),
    };
    let dim = StoredDimension { name, datatype, var, pipeline, domain: Some(domain), extent };
    check_domain(&dim)?;
    Ok(dim)
}

/// The last tile must end inside the range of the coordinate type, otherwise the reference rejects the array.
fn check_domain(dim: &StoredDimension) -> Result<()> {
    let (Some((low, high)), Some(extent)) = (&dim.domain, &dim.extent) else { return Ok(()) };
    let ends = (integer(dim.datatype, low), integer(dim.datatype, high), integer(dim.datatype, extent));
    let (Some(low), Some(high), Some(extent)) = ends else { return Ok(()) };
    if low > high || extent < 1 {
        return Err(Error::invalid(format!("dimension {:?} is empty", dim.name)));
    }
    let last = low + ((high - low) / extent + 1) * extent - 1;
    if number(last, dim.datatype).is_err() {
        let detail = format!(
            "the last tile of dimension {:?} would end at {last}, which exceeds {}",
            dim.name,
            dim.datatype.dtype()
        );
        return Err(Error::invalid(detail).hint("choose another chunk shape or a wider dtype"));
    }
    Ok(())
}

/// Encodes an integer coordinate.
pub(crate) fn number(n: i128, datatype: Datatype) -> Result<Vec<u8>> {
    let bytes = n.to_le_bytes()[..datatype.size()].to_vec();
    if integer(datatype, &bytes) == Some(n) {
        return Ok(bytes);
    }
    Err(Error::invalid(format!("{n} is not a valid {}", datatype.dtype())))
}

/// Encodes a scalar as a coordinate of a datatype.
pub(crate) fn sized(scalar: &Scalar, datatype: Datatype) -> Result<Vec<u8>> {
    if Datatype::from_dtype(scalar.dtype()) == Some(datatype) && scalar.bytes().len() == datatype.size() {
        return Ok(scalar.bytes().to_vec());
    }
    let float = datatype.word().kind == ElementKind::Float;
    match (scalar.as_i128(), scalar.as_f64()) {
        (Some(n), _) if !float => number(n, datatype),
        (_, Some(v)) if float && datatype.size() == 4 => Ok((v as f32).to_le_bytes().to_vec()),
        (_, Some(v)) if float => Ok(v.to_le_bytes().to_vec()),
        _ => Err(Error::invalid(format!("{scalar} is not a valid {}", datatype.dtype()))),
    }
}

/// Encodes one coordinate range.
pub(crate) fn range(low: &Scalar, high: &Scalar, datatype: Datatype, var: bool) -> Result<StoredRange> {
    if var {
        return Ok((low.bytes().to_vec(), high.bytes().to_vec()));
    }
    Ok((sized(low, datatype)?, sized(high, datatype)?))
}

/// Converts a field to a stored attribute.
pub(crate) fn attribute(field: &Field, codecs: &[CodecSpec]) -> Result<Attribute> {
    let refuse = || {
        Error::unsupported(format!("{} (field {:?}) in a TileDB array", field.type_name(), field.name))
            .hint("cast it to a type of 8 to 64 bits")
    };
    let (dtype, parts) = match field.dtype {
        DType::Complex64 => (DType::Float32, 2),
        DType::Complex128 => (DType::Float64, 2),
        other => (other, 1),
    };
    let datatype = Datatype::from_dtype(dtype).ok_or_else(refuse)?;
    let values = match field.cell {
        CellLen::One => parts,
        CellLen::Fixed(n) => n.checked_mul(parts).filter(|n| *n > 0 && *n < VAR).ok_or_else(refuse)?,
        CellLen::Var => VAR,
    };
    let filters = codecs.iter().filter(|c| c.name != "raw").map(filter).collect::<Result<Vec<_>>>()?;
    let mut attribute = Attribute {
        name: field.name.clone(),
        datatype,
        values,
        pipeline: FilterPipeline::from_filters(filters),
        fill: Vec::new(),
        nullable: field.nullable,
        fill_valid: field.nullable && field.fill_valid,
        order: 0,
        enumeration: field.enumeration.as_ref().map(|e| e.name.clone()),
    };
    attribute.fill = fill(field, &attribute)?;
    Ok(attribute)
}

fn fill(field: &Field, attribute: &Attribute) -> Result<Vec<u8>> {
    let size = attribute.cell_size();
    let value_size = attribute.datatype.size();
    let repeat = |bytes: &[u8]| bytes.iter().copied().cycle().take(size).collect::<Vec<u8>>();
    match &field.fill {
        None => Ok(repeat(&attribute.datatype.default_fill())),
        Some(fill) if attribute.var() && !fill.bytes().is_empty() => Ok(fill.bytes().to_vec()),
        Some(_) if attribute.var() => Ok(vec![0; value_size]),
        Some(fill) if fill.bytes().len() == size => Ok(fill.bytes().to_vec()),
        Some(fill) if fill.bytes().len() == value_size => Ok(repeat(fill.bytes())),
        Some(fill) if field.dtype.class() == Class::Text && fill.bytes().len() < size => {
            let mut padded = fill.bytes().to_vec();
            padded.resize(size, 0);
            Ok(padded)
        }
        Some(fill) => Err(Error::invalid(format!(
            "the fill value of field {:?} has {} bytes, expected {size}",
            field.name,
            fill.bytes().len()
        ))),
    }
}

/// Parses a filter list such as `byteshuffle,zstd:5`.
pub(crate) fn filters(list: &str) -> Result<Vec<Filter>> {
    let codecs = list.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "raw");
    codecs.map(|name| name.parse().and_then(|codec| filter(&codec))).collect()
}

/// Parses a filter by its display name.
pub(crate) fn filter(codec: &CodecSpec) -> Result<Filter> {
    let number = |name: &str, usual: i64| codec.int(name).unwrap_or(usual);
    let level = i32::try_from(number("level", i64::from(DEFAULT_LEVEL))).map_err(|_| {
        Error::invalid(format!("invalid level {} of codec {:?}", number("level", 0), codec.name))
    })?;
    let window = |usual: u32| {
        u32::try_from(number("window", usual.into()))
            .ok()
            .filter(|w| *w > 0)
            .ok_or_else(|| Error::invalid(format!("invalid window size of codec {:?}", codec.name)))
    };
    let float = |name: &str, usual: f64| match codec.options.get(name) {
        Some(Value::Float(v)) => *v,
        Some(Value::Int(v)) => *v as f64,
        _ => usual,
    };
    let reinterpret = || -> Result<Option<FilterElement>> {
        match codec.options.get("reinterpret") {
            Some(Value::Text(name)) => {
                let dtype: DType = name.parse()?;
                let datatype = Datatype::from_dtype(dtype);
                let datatype =
                    datatype.ok_or_else(|| Error::invalid(format!("filters do not support {dtype}")))?;
                Ok(Some(datatype.word()))
            }
            _ => Ok(None),
        }
    };
    Ok(match codec.name.as_str() {
        "noop" => Filter::Noop,
        "gzip" | "zlib" => Filter::Gzip { level },
        "zstd" => Filter::Zstd { level },
        "lz4" => Filter::Lz4 { level },
        "bzip2" => Filter::Bzip2 { level },
        "rle" => Filter::Rle,
        "dictionary" => Filter::Dictionary,
        "double_delta" => Filter::DoubleDelta { reinterpret: reinterpret()? },
        "delta" => Filter::Delta { reinterpret: reinterpret()? },
        "bit_width_reduction" => Filter::BitWidthReduction { window: window(256)? },
        "positive_delta" => Filter::PositiveDelta { window: window(1024)? },
        "bitshuffle" => Filter::BitShuffle,
        "byteshuffle" | "shuffle" => Filter::ByteShuffle,
        "xor" => Filter::Xor,
        "checksum_md5" | "md5" => Filter::Md5,
        "checksum_sha256" | "sha256" => Filter::Sha256,
        "float_scale" => {
            let width = usize::try_from(number("width", 4)).ok().filter(|w| matches!(w, 1 | 2 | 4 | 8));
            let width = width
                .ok_or_else(|| Error::invalid("the byte width of float scaling must be 1, 2, 4 or 8"))?;
            Filter::FloatScale { scale: float("scale", 1.0), offset: float("offset", 0.0), width }
        }
        other => {
            let hint =
                "available: zstd, gzip, lz4, bzip2, rle, dictionary, delta, double_delta, byteshuffle, …";
            return Err(Error::unsupported(format!("codec {other:?} in a TileDB array")).hint(hint));
        }
    })
}
