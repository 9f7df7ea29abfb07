//! What a conversion is asked to do.

use std::fmt;
use std::str::FromStr;

use tesseral_core::{ArraySchema, Coords, DType, Error, Result};
use tesseral_engine::Options;
use tesseral_format::CodecSpec;

/// How to convert. The default keeps chunks, codecs and dtypes as far as the target holds them, and refuses an existing output.
#[derive(Clone, Debug, Default)]
pub struct ConvertOptions {
    /// The id of the target's format; without, the target's name tells.
    pub format: Option<String>,
    /// Arrays or fields to take, by name; all when empty.
    pub arrays: Vec<String>,
    /// What to take of them, as [`Array::select`](crate::Array::select) reads it. A dimension that an array does not have is left
    /// out for that array.
    pub select: Vec<String>,
    /// Extents of the target's chunks.
    pub chunk: Option<ChunkShape>,
    /// Codecs of the target's chunks; an empty list stores cells raw.
    pub codecs: Option<Vec<CodecSpec>>,
    /// Dtypes to turn cells into: of one array by name, or of all.
    pub casts: Vec<Cast>,
    /// What cells become that nobody wrote, and nulls where the target has none: of one array by name, or of all.
    pub fills: Vec<Fill>,
    /// What becomes of sparse arrays; without, they stay sparse where the target has such arrays and are refused elsewhere.
    pub sparse: Option<SparseAs>,
    /// Stores statistics of every chunk where the format makes them optional.
    pub statistics: bool,
    /// Reads the output again and compares every cell before it appears under its name.
    pub check: bool,
    /// Packs float64 cells so that none is off by more than this.
    pub max_abs_error: Option<f64>,
    /// Packs float64 cells so that none is off by more than this part of its value.
    pub max_rel_error: Option<f64>,
    /// Replaces an existing output.
    pub overwrite: bool,
    /// Whether what is done is kept for another try, and taken over from one.
    pub resume: Resume,
    /// Only plans.
    pub dry_run: bool,
    /// Threads, memory, cancellation and progress.
    pub execution: Options,
}

/// Whether encoded chunks are kept until the conversion ends, so that one that was cut short can go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// Those of large conversions.
    #[default]
    Large,
    /// However small it is.
    Always,
    /// No; what an earlier try left is removed.
    Never,
}

/// What sparse arrays become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SparseAs {
    /// Dense arrays: cells at their positions, the fill or a null where there is none.
    Dense,
    /// Tables: an array of one dimension for each dimension and each field, with an entry for every cell, sorted by coordinates.
    Rows,
}

impl FromStr for SparseAs {
    type Err = Error;

    /// `dense`, `rows`.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "dense" => Ok(Self::Dense),
            "rows" => Ok(Self::Rows),
            _ => Err(Error::invalid(format!("{text:?} is nothing a sparse array can become"))
                .hint("dense or rows")),
        }
    }
}

/// A dtype to turn cells into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cast {
    /// The array or field; all when absent.
    pub name: Option<String>,
    /// What its cells become.
    pub dtype: DType,
}

impl FromStr for Cast {
    type Err = Error;

    /// `float32`, `sst=float32`.
    fn from_str(text: &str) -> Result<Self> {
        match text.rsplit_once('=') {
            Some((name, dtype)) => Ok(Self { name: Some(name.to_owned()), dtype: dtype.parse()? }),
            None => Ok(Self { name: None, dtype: text.parse()? }),
        }
    }
}

/// A value for cells that are not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The array or field; all when absent.
    pub name: Option<String>,
    /// The value, read as the dtype that its cells become.
    pub value: String,
}

impl FromStr for Fill {
    type Err = Error;

    /// `-999`, `sst=-999`.
    fn from_str(text: &str) -> Result<Self> {
        let (name, value) = match text.rsplit_once('=') {
            Some((name, value)) => (Some(name.to_owned()), value),
            None => (None, text),
        };
        Ok(Self { name, value: value.to_owned() })
    }
}

impl fmt::Display for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}={}", self.value),
            None => f.write_str(&self.value),
        }
    }
}

/// Extents of chunks, as people write them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkShape {
    /// One for each dimension, in order.
    List(Vec<u64>),
    /// Some dimensions by name or number; the others keep theirs.
    Named(Vec<(String, u64)>),
}

impl FromStr for ChunkShape {
    type Err = Error;

    /// `4,5` or `time=4,lat=5`.
    fn from_str(text: &str) -> Result<Self> {
        let extent = |word: &str| match word.trim().parse::<u64>() {
            Ok(extent) if extent > 0 => Ok(extent),
            _ => Err(Error::invalid(format!("{word:?} is not the extent of a chunk"))
                .hint("write extents from 1 up: `4,5`, or `time=4,lat=5`")),
        };
        if text.contains('=') {
            let pair = |word: &str| match word.rsplit_once('=') {
                Some((name, word)) => Ok((name.trim().to_owned(), extent(word)?)),
                None => Err(Error::invalid(format!("{word:?} names no dimension"))
                    .hint("name all of them, `time=4,lat=5`, or none, `4,5`")),
            };
            return text.split(',').map(pair).collect::<Result<_>>().map(Self::Named);
        }
        text.split(',').map(extent).collect::<Result<_>>().map(Self::List)
    }
}

impl ChunkShape {
    /// The extents for an array that has `default` ones. An array without any of the dimensions named keeps its own.
    ///
    /// # Errors
    /// `InvalidRequest` when a list has another number of dimensions.
    pub fn resolve(&self, schema: &ArraySchema, default: &[u64]) -> Result<Coords> {
        match self {
            Self::List(extents) if extents.len() == default.len() => Ok(Coords::from_slice(extents)),
            Self::List(extents) => Err(Error::invalid(format!(
                "the chunk has {} dimensions, the array {}",
                extents.len(),
                default.len()
            ))
            .in_array(&schema.name)),
            Self::Named(named) => {
                let mut out = Coords::from_slice(default);
                for (name, extent) in named {
                    if let Ok(d) = schema.dim(name) {
                        out[d] = *extent;
                    }
                }
                Ok(out)
            }
        }
    }

    /// The first dimension named that no array has.
    pub(crate) fn unknown<'a>(
        &self,
        schemas: impl Iterator<Item = &'a ArraySchema> + Clone,
    ) -> Option<Error> {
        let Self::Named(named) = self else { return None };
        named.iter().find_map(|(name, _)| unknown_dim(name, schemas.clone()))
    }
}

/// The complaint about a dimension that no array has.
pub(crate) fn unknown_dim<'a>(
    name: &str,
    schemas: impl Iterator<Item = &'a ArraySchema> + Clone,
) -> Option<Error> {
    let mut last = None;
    for schema in schemas {
        match schema.dim(name) {
            Ok(_) => return None,
            Err(e) => last = Some(e),
        }
    }
    last
}

/// Codecs in the order they encode: `raw`, `zstd`, `zstd:9`, `shuffle+zstd`.
///
/// # Errors
/// `InvalidRequest` for an empty name or a level that is no number.
pub fn parse_codecs(text: &str) -> Result<Vec<CodecSpec>> {
    let codecs: Vec<CodecSpec> = text.split('+').map(str::parse).collect::<Result<_>>()?;
    Ok(codecs.into_iter().filter(|codec| codec.name != "raw").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_codecs_and_casts_are_read() {
        assert_eq!("4,5".parse::<ChunkShape>().unwrap(), ChunkShape::List(vec![4, 5]));
        let named = "time=4,lat=5".parse::<ChunkShape>().unwrap();
        let mut schema = ArraySchema::dense("a", DType::Int8, &[9, 9, 9], &[3, 3, 3]);
        for (dim, name) in schema.dims.iter_mut().zip(["time", "lat", "lon"]) {
            dim.name = name.to_owned();
        }
        assert_eq!(named.resolve(&schema, &[3, 3, 3]).unwrap().as_slice(), [4, 5, 3]);
        for bad in ["", "0", "4,x", "time=4,5", "time=0"] {
            assert!(bad.parse::<ChunkShape>().is_err(), "{bad}");
        }
        assert!(parse_codecs("raw").unwrap().is_empty());
        assert_eq!(parse_codecs("shuffle+zstd:9").unwrap()[1].int("level"), Some(9));
        assert!(parse_codecs("zstd:x").is_err());
        assert_eq!("a=b=float32".parse::<Cast>().unwrap().name.as_deref(), Some("a=b"));
    }
}
