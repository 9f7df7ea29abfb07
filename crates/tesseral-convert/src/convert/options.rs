//! Options of a conversion.

use std::fmt;
use std::str::FromStr;

use tesseral_core::{ArraySchema, Attributes, Coords, DType, Error, Result};
use tesseral_engine::Options;
use tesseral_format::CodecSpec;
use tesseral_store::{Durability, StorageOptions};

/// Options of a conversion. By default chunks, codecs and dtypes are kept as far as supported, and an existing output is an
/// error.
///
/// ```
/// use tesseral_convert::ConvertOptions;
/// let options = ConvertOptions::new().chunk("time=24".parse()?).cast("float32".parse()?).check();
/// assert!(options.check && options.casts.len() == 1);
/// # Ok::<(), tesseral_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ConvertOptions {
    /// Id of the target's format; `None` to use the file extension.
    pub format: Option<String>,
    /// Arrays or fields to convert, by name; empty for all.
    pub arrays: Vec<String>,
    /// Selection, in the syntax of [`Array::select`](tesseral_dataset::Array::select). Dimensions that an array lacks are
    /// ignored for that array.
    pub select: Vec<String>,
    /// Chunk shape of the target.
    pub chunk: Option<ChunkShape>,
    /// Codecs of the target; an empty list stores cells raw.
    pub codecs: Option<Vec<CodecSpec>>,
    /// Options that the target's format [declares](tesseral_format::Format::create_options), by name.
    pub create: Attributes,
    /// Casts of one array by name, or of all.
    pub casts: Vec<Cast>,
    /// Values of unwritten cells, and of nulls if the target does not support them: of one array by name, or of all.
    pub fills: Vec<Fill>,
    /// Conversion of sparse arrays; `None` keeps them sparse, or returns an error if the target does not support them.
    pub sparse: Option<SparseAs>,
    /// Store statistics of every chunk also in the form that other readers of the format use, if it makes them optional.
    pub statistics: bool,
    /// Store exact statistics of chunks where other readers of the format ignore them; `None` for the default, which is to.
    pub chunk_statistics: Option<bool>,
    /// Read the output again and compare every cell before publishing it.
    pub check: bool,
    /// Maximum absolute error of packed float64 cells.
    pub max_abs_error: Option<f64>,
    /// Maximum relative error of packed float64 cells.
    pub max_rel_error: Option<f64>,
    /// Replace an existing output.
    pub overwrite: bool,
    /// Whether the output survives a loss of power once it is published.
    pub durability: Durability,
    /// Credentials, endpoints and other settings of the target's object store. Default: those of the environment.
    pub storage: StorageOptions,
    /// Whether completed work is kept for a later attempt, and reused.
    pub resume: Resume,
    /// Only plan.
    pub dry_run: bool,
    /// Threads, memory, cancellation and progress.
    pub execution: Options,
}

impl ConvertOptions {
    /// The default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the id of the target's format, instead of the file extension.
    #[must_use]
    pub fn format(mut self, id: impl Into<String>) -> Self {
        self.format = Some(id.into());
        self
    }

    /// Adds an array or field to convert, by name.
    #[must_use]
    pub fn array(mut self, name: impl Into<String>) -> Self {
        self.arrays.push(name.into());
        self
    }

    /// Adds an argument of the selection, such as `time=0:24`.
    #[must_use]
    pub fn select(mut self, argument: impl Into<String>) -> Self {
        self.select.push(argument.into());
        self
    }

    /// Sets the chunk shape.
    #[must_use]
    pub fn chunk(mut self, shape: ChunkShape) -> Self {
        self.chunk = Some(shape);
        self
    }

    /// Sets the codecs; an empty list stores cells raw.
    #[must_use]
    pub fn codecs(mut self, codecs: Vec<CodecSpec>) -> Self {
        self.codecs = Some(codecs);
        self
    }

    /// Adds a cast.
    #[must_use]
    pub fn cast(mut self, cast: Cast) -> Self {
        self.casts.push(cast);
        self
    }

    /// Adds a value for missing cells.
    #[must_use]
    pub fn fill(mut self, fill: Fill) -> Self {
        self.fills.push(fill);
        self
    }

    /// Sets the conversion of sparse arrays.
    #[must_use]
    pub fn sparse_as(mut self, kind: SparseAs) -> Self {
        self.sparse = Some(kind);
        self
    }

    /// Sets whether to store exact statistics of chunks where other readers of the format ignore them. Default: true.
    #[must_use]
    pub fn chunk_statistics(mut self, stored: bool) -> Self {
        self.chunk_statistics = Some(stored);
        self
    }

    /// Stores statistics of every chunk also in the form that other readers of the format use, if it makes them optional.
    #[must_use]
    pub fn statistics(mut self) -> Self {
        self.statistics = true;
        self
    }

    /// Reads the output again and compares every cell before publishing it.
    #[must_use]
    pub fn check(mut self) -> Self {
        self.check = true;
        self
    }

    /// Sets the maximum absolute error of packed float64 cells.
    #[must_use]
    pub fn max_abs_error(mut self, error: f64) -> Self {
        self.max_abs_error = Some(error);
        self
    }

    /// Sets the maximum relative error of packed float64 cells.
    #[must_use]
    pub fn max_rel_error(mut self, error: f64) -> Self {
        self.max_rel_error = Some(error);
        self
    }

    /// Replaces an existing output.
    #[must_use]
    pub fn overwrite(mut self) -> Self {
        self.overwrite = true;
        self
    }

    /// Sets credentials, endpoints and other settings of the target's object store.
    #[must_use]
    pub fn storage(mut self, storage: StorageOptions) -> Self {
        self.storage = storage;
        self
    }

    /// Sets whether completed work is kept for a later attempt, and reused.
    #[must_use]
    pub fn resume(mut self, resume: Resume) -> Self {
        self.resume = resume;
        self
    }

    /// Only plans.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Sets threads, memory, cancellation and progress.
    #[must_use]
    pub fn execution(mut self, options: Options) -> Self {
        self.execution = options;
        self
    }
}

/// Whether encoded chunks are kept until the conversion ends, so that an interrupted one can continue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resume {
    /// Only for large conversions.
    #[default]
    Large,
    /// Always.
    Always,
    /// Never; leftovers of an earlier attempt are removed.
    Never,
}

/// Conversion of sparse arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SparseAs {
    /// Dense arrays: cells at their positions, elsewhere the fill value or null.
    Dense,
    /// Tables: a one-dimensional array for each dimension and field, with one entry per cell, sorted by coordinates.
    Rows,
}

impl FromStr for SparseAs {
    type Err = Error;

    /// Parses `dense` or `rows`.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "dense" => Ok(Self::Dense),
            "rows" => Ok(Self::Rows),
            _ => Err(Error::invalid(format!("unknown conversion {text:?} of sparse arrays"))
                .hint("available: dense, rows")),
        }
    }
}

/// A cast of cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cast {
    /// The array or field; `None` for all.
    pub name: Option<String>,
    /// Target dtype.
    pub dtype: DType,
}

impl FromStr for Cast {
    type Err = Error;

    /// Parses `float32` or `sst=float32`.
    fn from_str(text: &str) -> Result<Self> {
        match text.rsplit_once('=') {
            Some((name, dtype)) => Ok(Self { name: Some(name.to_owned()), dtype: dtype.parse()? }),
            None => Ok(Self { name: None, dtype: text.parse()? }),
        }
    }
}

/// A value for missing cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The array or field; `None` for all.
    pub name: Option<String>,
    /// The value, parsed as the target dtype.
    pub value: String,
}

impl FromStr for Fill {
    type Err = Error;

    /// Parses `-999` or `sst=-999`.
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

/// A chunk shape as given by the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkShape {
    /// One extent per dimension, in order.
    List(Vec<u64>),
    /// Extents of some dimensions by name or number; the others are unchanged.
    Named(Vec<(String, u64)>),
}

impl FromStr for ChunkShape {
    type Err = Error;

    /// Parses `4,5` or `time=4,lat=5`.
    fn from_str(text: &str) -> Result<Self> {
        let extent = |word: &str| match word.trim().parse::<u64>() {
            Ok(extent) if extent > 0 => Ok(extent),
            _ => Err(Error::invalid(format!("invalid chunk extent {word:?}"))
                .hint("example: `4,5` or `time=4,lat=5`")),
        };
        if text.contains('=') {
            let pair = |word: &str| match word.rsplit_once('=') {
                Some((name, word)) => Ok((name.trim().to_owned(), extent(word)?)),
                None => Err(Error::invalid(format!("missing dimension name in {word:?}"))
                    .hint("example: `4,5` or `time=4,lat=5`")),
            };
            return text.split(',').map(pair).collect::<Result<_>>().map(Self::Named);
        }
        text.split(',').map(extent).collect::<Result<_>>().map(Self::List)
    }
}

impl ChunkShape {
    /// Returns the extents for an array with `default` ones. An array without any of the named dimensions keeps its own.
    ///
    /// # Errors
    /// `InvalidRequest` if the number of dimensions differs.
    pub fn resolve(&self, schema: &ArraySchema, default: &[u64]) -> Result<Coords> {
        match self {
            Self::List(extents) if extents.len() == default.len() => Ok(Coords::from_slice(extents)),
            Self::List(extents) => Err(Error::invalid(format!(
                "rank mismatch: the chunk shape has {} dimensions, the array has {}",
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

    /// Returns the first named dimension that no array has.
    pub(crate) fn unknown<'a>(
        &self,
        schemas: impl Iterator<Item = &'a ArraySchema> + Clone,
    ) -> Option<Error> {
        let Self::Named(named) = self else { return None };
        named.iter().find_map(|(name, _)| unknown_dim(name, schemas.clone()))
    }
}

/// Error for a dimension that no array has.
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

/// Parses codecs in encoding order: `raw`, `zstd`, `zstd:9`, `shuffle+zstd`, `blosc:5:cname=zstd`.
///
/// # Errors
/// `InvalidRequest` for an empty name or an invalid level.
pub fn parse_codecs(text: &str) -> Result<Vec<CodecSpec>> {
    let codecs: Vec<CodecSpec> = text.split('+').map(str::parse).collect::<Result<_>>()?;
    Ok(codecs.into_iter().filter(|codec| codec.name != "raw").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_codecs_and_casts_are_parsed() {
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
