//! Writing of NetCDF classic files: the place of every cell is known before the first chunk.
//!
//! ```text
//! header │ history │ fixed-size variables, each padded to 4 bytes │ record 0 │ record 1 │ …
//! ```
//!
//! History has no place in the format: it is between the header and the first variable, where readers look at nothing.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use tesseral_core::{
    Attributes, CellLen, ChunkStats, DType, Error, HistoryRow, Order, Region, Result, Scalar, Value,
};
use tesseral_format::convention::history;
use tesseral_format::{
    ArraySpec, ColumnData, CreateOption, CreateOptions, EncodedChunk, OptionTable, OptionType, Scratch,
    Writer, WrittenChunks, check_unique, contiguous_runs,
};
use tesseral_store::{Staged, Store};

use crate::header::{ATTRIBUTES, DIMENSIONS, MAGIC, UNNAMED, VARIABLES};

/// First bytes of the history.
pub(crate) const HISTORY: &[u8; 8] = b"tsr-hist";
/// The most bytes of a name in the reference.
const NAME: usize = 256;
/// The most dimensions of a variable in the reference.
const RANK: usize = 1024;
/// Offsets of the first kind are signed numbers of 32 bits.
const OFFSETS_32: u64 = i32::MAX as u64;
/// Lengths of variables of the second kind.
const LENGTHS_32: u64 = u32::MAX as u64 - 3;

/// Kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FileKind {
    /// CDF-1.
    Classic,
    /// CDF-2.
    Offset64,
    /// CDF-5.
    Data64,
}

impl FileKind {
    fn version(self) -> u8 {
        match self {
            Self::Classic => 1,
            Self::Offset64 => 2,
            Self::Data64 => 5,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic files",
            Self::Offset64 => "64-bit offset files",
            Self::Data64 => "CDF-5 files",
        }
    }
}

/// Options of creation that other formats do not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetCdf3Options {
    /// `classic`, `offset64` or `data64`; otherwise the first of them that holds the arrays.
    pub kind: String,
    /// Name of the unlimited dimension.
    pub unlimited: Option<String>,
}

/// Names of the options.
pub(crate) static OPTIONS: OptionTable<NetCdf3Options> = OptionTable(&[
    CreateOption {
        name: "kind",
        kind: OptionType::Choice(
            &["auto", "classic", "offset64", "data64"],
            |options: &mut NetCdf3Options, kind| kind.clone_into(&mut options.kind),
        ),
        default: "auto: the smallest that supports the arrays",
        description: "Kind of the file: classic (CDF-1), offset64 (CDF-2) or data64 (CDF-5).",
    },
    CreateOption {
        name: "unlimited",
        kind: OptionType::Text(|options: &mut NetCdf3Options, name| {
            options.unlimited = Some(name.trim().to_owned());
            Ok(())
        }),
        default: "none",
        description: "Name of the unlimited dimension. It must be the first dimension of every variable that uses it.",
    },
]);

/// The number of a type, and the first kind of file that has it.
fn type_number(dtype: DType) -> Option<(u32, FileKind)> {
    Some(match dtype {
        DType::Int8 => (1, FileKind::Classic),
        DType::Char => (2, FileKind::Classic),
        DType::Int16 => (3, FileKind::Classic),
        DType::Int32 => (4, FileKind::Classic),
        DType::Float32 => (5, FileKind::Classic),
        DType::Float64 => (6, FileKind::Classic),
        DType::UInt8 => (7, FileKind::Data64),
        DType::UInt16 => (8, FileKind::Data64),
        DType::UInt32 => (9, FileKind::Data64),
        DType::Int64 => (10, FileKind::Data64),
        DType::UInt64 => (11, FileKind::Data64),
        _ => return None,
    })
}

/// Whether the format holds these cells.
pub(crate) fn holds(dtype: DType, cell: CellLen) -> bool {
    cell == CellLen::One && type_number(dtype).is_some()
}

/// An attribute that declares values of cells: it has the type of the variable.
fn has_type_of_cells(name: &str) -> bool {
    ["_FillValue", "missing_value", "valid_min", "valid_max", "valid_range", "flag_values", "flag_masks"]
        .contains(&name)
}

/// Numbers of an attribute as they read back: other integers than those of classic files become `int32` if that holds them.
fn numbers(name: &str, dtype: DType, bytes: &[u8]) -> Option<Value> {
    let (_, kind) = type_number(dtype)?;
    let size = dtype.size().filter(|_| dtype != DType::Char)?;
    let (mut dtype, mut bytes) = (dtype, bytes.to_vec());
    if kind == FileKind::Data64 && !has_type_of_cells(name) {
        let narrow = |value: &[u8]| {
            let value = Scalar::from_le_bytes(dtype, value).ok()?.as_i128()?;
            i32::try_from(value).ok().map(i32::to_le_bytes)
        };
        let narrow: Option<Vec<[u8; 4]>> = bytes.chunks_exact(size).map(narrow).collect();
        if let Some(narrow) = narrow {
            (dtype, bytes) = (DType::Int32, narrow.concat());
        }
    }
    match Scalar::from_le_bytes(dtype, &bytes) {
        Ok(scalar) if Some(bytes.len()) == dtype.size() => Some(Value::from(scalar)),
        _ => Some(Value::Numbers { dtype, bytes }),
    }
}

/// An attribute as it reads back; `None` if it cannot be stored.
pub(crate) fn read_back(name: &str, value: &Value) -> Option<Value> {
    if check_name(name).is_err() {
        return None;
    }
    match value {
        Value::Text(text) => (!text.ends_with('\0')).then(|| value.clone()),
        // Bytes that are not text read back as bytes.
        Value::Bytes(bytes) => {
            (std::str::from_utf8(bytes).is_err() && !bytes.ends_with(&[0])).then(|| value.clone())
        }
        Value::Numbers { dtype, bytes } => numbers(name, *dtype, bytes),
        Value::Bool(truth) => Some(Value::Scalar(Scalar::from_element(i8::from(*truth)))),
        Value::List(_) => None,
        other => {
            let scalar = other.to_scalar()?;
            numbers(name, scalar.dtype(), scalar.bytes())
        }
    }
}

/// Rejects names that the reference does not read.
fn check_name(name: &str) -> Result<()> {
    let valid = !name.is_empty()
        && name.len() <= NAME
        && !name.contains('/')
        && !name.chars().any(char::is_control)
        && !name.ends_with(' ')
        && !name.starts_with(|c: char| c.is_ascii_punctuation() && c != '_');
    if valid { Ok(()) } else { Err(Error::unsupported(format!("the name {name:?} in NetCDF classic"))) }
}

/// An array that is being written.
#[derive(Debug)]
struct VariableWrite {
    name: String,
    dtype: DType,
    size: u64,
    /// Numbers of the dimensions.
    dims: Vec<usize>,
    record: bool,
    attributes: Attributes,
    chunks: WrittenChunks<()>,
}

impl VariableWrite {
    /// Extents of the fixed-size variable, or of one record.
    fn slab_shape(&self) -> &[u64] {
        let shape = self.chunks.grid().shape();
        if self.record { shape.get(1..).unwrap_or_default() } else { shape }
    }

    /// Bytes of the fixed-size variable, or of one record.
    fn slab(&self) -> Option<u64> {
        self.slab_shape().iter().try_fold(self.size, |bytes, n| bytes.checked_mul(*n))
    }
}

/// A dimension.
#[derive(Debug)]
struct DimensionWrite {
    name: String,
    extent: u64,
    unlimited: bool,
}

/// Layout of the file.
#[derive(Debug)]
struct ClassicLayout {
    /// Header and history.
    head: Vec<u8>,
    begins: Vec<u64>,
    /// Distance of records.
    record: u64,
    len: u64,
}

/// Writer of a file.
#[derive(Debug)]
pub(crate) struct NetCdf3Writer {
    staged: Box<dyn Staged>,
    options: NetCdf3Options,
    dims: Vec<DimensionWrite>,
    variables: Vec<VariableWrite>,
    attributes: Attributes,
    history: Vec<HistoryRow>,
    layout: OnceLock<ClassicLayout>,
}

/// Bytes of a header.
struct HeaderBytes {
    out: Vec<u8>,
    kind: FileKind,
}

impl HeaderBytes {
    fn word(&mut self, value: u32) {
        self.out.extend(value.to_be_bytes());
    }

    /// A count, length or number of a dimension. Every kind was checked to hold it.
    fn count(&mut self, value: u64) {
        match self.kind {
            FileKind::Data64 => self.out.extend(value.to_be_bytes()),
            _ => self.word(u32::try_from(value).unwrap_or(u32::MAX)),
        }
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.out.extend(bytes);
        self.out.resize(self.out.len().next_multiple_of(4), 0);
    }

    fn name(&mut self, name: &str) {
        self.count(name.len() as u64);
        self.padded(name.as_bytes());
    }

    /// The tag and length of a list; an empty one has no tag.
    fn list(&mut self, tag: u32, len: usize) {
        self.word(if len == 0 { 0 } else { tag });
        self.count(len as u64);
    }

    fn attributes(&mut self, attributes: &Attributes) -> Result<()> {
        self.list(ATTRIBUTES, attributes.len());
        for (name, value) in attributes {
            self.name(name);
            let (dtype, bytes) = stored(value).ok_or_else(|| {
                Error::unsupported(format!("the attribute {name:?} with the value {value} in NetCDF classic"))
            })?;
            let (number, _) = type_number(dtype).unwrap_or((0, FileKind::Classic));
            let size = dtype.size().unwrap_or(1);
            self.word(number);
            self.count((bytes.len() / size) as u64);
            let big: Vec<u8> = bytes.chunks_exact(size).flat_map(|n| n.iter().rev()).copied().collect();
            self.padded(&big);
        }
        Ok(())
    }
}

/// Type and little-endian bytes of an attribute.
fn stored(value: &Value) -> Option<(DType, Cow<'_, [u8]>)> {
    Some(match value {
        Value::Text(text) => (DType::Char, Cow::Borrowed(text.as_bytes())),
        Value::Bytes(bytes) => (DType::Char, Cow::Borrowed(bytes.as_slice())),
        Value::Numbers { dtype, bytes } => (*dtype, Cow::Borrowed(bytes.as_slice())),
        other => {
            let scalar = other.to_scalar()?;
            (scalar.dtype(), Cow::Owned(scalar.bytes().to_vec()))
        }
    })
    .filter(|(dtype, _)| type_number(*dtype).is_some())
}

impl NetCdf3Writer {
    pub(crate) fn create(store: &Arc<dyn Store>, options: &CreateOptions) -> Result<Self> {
        Ok(Self {
            staged: store.stage("", options.overwrite)?,
            options: options.format.get()?,
            dims: Vec::new(),
            variables: Vec::new(),
            attributes: Attributes::new(),
            history: Vec::new(),
            layout: OnceLock::new(),
        })
    }

    fn variable(&self, array: usize) -> Result<&VariableWrite> {
        self.variables.get(array).ok_or_else(|| Error::invalid(format!("array {array} was not created")))
    }

    /// Rejects changes of the header after the first chunk.
    fn check_open(&self) -> Result<()> {
        if self.layout.get().is_none() {
            return Ok(());
        }
        Err(Error::invalid(
            "arrays and attributes of a NetCDF classic file must be declared before its first chunk",
        ))
    }

    /// The number of a dimension, which is new if the name is.
    fn dimension(dims: &mut Vec<DimensionWrite>, name: &str, extent: u64, unlimited: bool) -> Result<usize> {
        check_name(name)?;
        if let Some(known) = dims.iter().position(|dim| dim.name == name) {
            if dims[known].extent != extent {
                let detail = format!("dimension {name:?} with lengths {extent} and {}", dims[known].extent);
                return Err(Error::unsupported(format!("{detail}, in one NetCDF classic file")));
            }
            return Ok(known);
        }
        dims.push(DimensionWrite { name: name.to_owned(), extent, unlimited });
        Ok(dims.len() - 1)
    }

    fn declare(&mut self, spec: &ArraySpec) -> Result<()> {
        let schema = &spec.schema;
        let unsupported = |what: String| Err(Error::unsupported(format!("{what} in NetCDF classic")));
        let ([field], false) = (&schema.fields[..], schema.sparse) else {
            return unsupported("sparse arrays, or several fields,".to_owned());
        };
        if let Some(codec) = spec.codecs.iter().flatten().find(|codec| codec.name != "raw") {
            return unsupported(format!("codec {:?}", codec.name));
        }
        if field.nullable || field.enumeration.is_some() {
            return unsupported(if field.nullable { "null cells" } else { "enumerations" }.to_owned());
        }
        if schema.cell_order != Order::RowMajor || schema.dims.len() > RANK {
            return unsupported(format!("{} dimensions in {:?} order", schema.dims.len(), schema.cell_order));
        }
        if !holds(field.dtype, field.cell) {
            return unsupported(format!("cells of {}", field.type_name()));
        }
        check_name(&schema.name)?;
        check_unique(self.variables.iter().map(|own| own.name.as_str()), &schema.name)?;
        let chunks = WrittenChunks::new(schema)?;
        let (mut dims, mut record) = (Vec::new(), false);
        for (axis, (dim, extent)) in schema.dims.iter().zip(chunks.grid().shape()).enumerate() {
            let unlimited = self.options.unlimited.as_ref() == Some(&dim.name);
            if unlimited && axis > 0 {
                return unsupported(format!(
                    "the unlimited dimension {:?} after another dimension",
                    dim.name
                ));
            }
            if *extent == 0 && !unlimited {
                return unsupported(format!("the dimension {:?} of length 0", dim.name));
            }
            let name = if dim.name.is_empty() { format!("{UNNAMED}{extent}") } else { dim.name.clone() };
            record |= unlimited;
            dims.push(Self::dimension(&mut self.dims, &name, *extent, unlimited)?);
        }
        self.variables.push(VariableWrite {
            name: schema.name.clone(),
            dtype: field.dtype,
            size: field.dtype.size().unwrap_or(1) as u64,
            dims,
            record,
            attributes: schema.attributes.clone(),
            chunks,
        });
        Ok(())
    }

    /// The first kind that has all types.
    fn kind_of_types(&self) -> (FileKind, String) {
        let of_attributes = |attributes: &Attributes| {
            let typed = attributes.values().filter_map(|value| stored(value).map(|(dtype, _)| dtype));
            typed.collect::<Vec<_>>()
        };
        let mut found = (FileKind::Classic, String::new());
        let lists = std::iter::once(&self.attributes).chain(self.variables.iter().map(|own| &own.attributes));
        let types = lists.flat_map(of_attributes).chain(self.variables.iter().map(|own| own.dtype));
        for dtype in types {
            if let Some((_, kind)) = type_number(dtype).filter(|(_, kind)| *kind > found.0) {
                found = (kind, format!("{dtype}"));
            }
        }
        found
    }

    /// The layout in the first kind that holds the arrays, or in the one that was requested.
    fn lay_out(&self) -> Result<ClassicLayout> {
        let (least, dtype) = self.kind_of_types();
        let requested = match self.options.kind.as_str() {
            "classic" => Some(FileKind::Classic),
            "offset64" => Some(FileKind::Offset64),
            "data64" => Some(FileKind::Data64),
            _ => None,
        };
        if let Some(kind) = requested.filter(|kind| *kind < least) {
            return Err(Error::unsupported(format!("{dtype} in {}", kind.name())));
        }
        for kind in [FileKind::Classic, FileKind::Offset64, FileKind::Data64] {
            if requested.is_some_and(|own| own != kind) || kind < least {
                continue;
            }
            if let Some(layout) = self.layout_as(kind)? {
                return Ok(layout);
            }
        }
        let kind = requested.unwrap_or(FileKind::Data64).name();
        Err(Error::unsupported(format!("arrays of this size in {kind}")))
    }

    /// The layout in a kind; `None` if lengths or offsets exceed it.
    fn layout_as(&self, kind: FileKind) -> Result<Option<ClassicLayout>> {
        let zeros = vec![0; self.variables.len()];
        let history = self.history_bytes();
        let head = self.header(kind, &zeros)?.len() as u64 + history.len() as u64;
        let records = self.variables.iter().filter(|own| own.record).count();
        let place = || -> Option<(Vec<u64>, u64, u64)> {
            let (mut begins, mut at, mut record) = (zeros.clone(), head, 0_u64);
            let largest = match kind {
                FileKind::Data64 => u64::MAX,
                _ => LENGTHS_32,
            };
            for (begin, own) in begins.iter_mut().zip(&self.variables).filter(|(_, own)| !own.record) {
                *begin = at;
                let bytes = own.slab()?.checked_next_multiple_of(4).filter(|bytes| *bytes <= largest)?;
                at = at.checked_add(bytes)?;
            }
            let first = at;
            for (begin, own) in begins.iter_mut().zip(&self.variables).filter(|(_, own)| own.record) {
                *begin = at;
                // The records of a single variable are not padded.
                let padding = if records == 1 { 1 } else { 4 };
                let bytes =
                    own.slab()?.checked_next_multiple_of(padding).filter(|bytes| *bytes <= largest)?;
                at = at.checked_add(bytes)?;
                record = record.checked_add(bytes)?;
            }
            let end = self.records().checked_mul(record)?.checked_add(first)?;
            let fits = kind != FileKind::Classic || begins.iter().all(|begin| *begin <= OFFSETS_32);
            let counts = kind == FileKind::Data64 || self.dims.iter().all(|dim| dim.extent <= OFFSETS_32);
            (fits && counts && i64::try_from(end).is_ok()).then_some((begins, record, end))
        };
        let Some((begins, record, len)) = place() else { return Ok(None) };
        let head = [self.header(kind, &begins)?, history].concat();
        Ok(Some(ClassicLayout { head, begins, record, len }))
    }

    fn records(&self) -> u64 {
        self.dims.iter().find(|dim| dim.unlimited).map_or(0, |dim| dim.extent)
    }

    fn history_bytes(&self) -> Vec<u8> {
        if self.history.is_empty() {
            return Vec::new();
        }
        let text = history::to_json(&self.history).to_string();
        let mut out = HISTORY.to_vec();
        out.extend((text.len() as u64).to_be_bytes());
        out.extend(text.as_bytes());
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    fn header(&self, kind: FileKind, begins: &[u64]) -> Result<Vec<u8>> {
        let mut header = HeaderBytes { out: [&MAGIC[..], &[kind.version()]].concat(), kind };
        header.count(self.records());
        header.list(DIMENSIONS, self.dims.len());
        for dim in &self.dims {
            header.name(&dim.name);
            header.count(if dim.unlimited { 0 } else { dim.extent });
        }
        header.attributes(&self.attributes)?;
        header.list(VARIABLES, self.variables.len());
        for (own, begin) in self.variables.iter().zip(begins) {
            header.name(&own.name);
            header.count(own.dims.len() as u64);
            own.dims.iter().for_each(|dim| header.count(*dim as u64));
            header.attributes(&own.attributes).map_err(|e| e.in_array(&own.name))?;
            header.word(type_number(own.dtype).map_or(0, |(number, _)| number));
            let bytes = own.slab().and_then(|bytes| bytes.checked_next_multiple_of(4));
            header.count(bytes.unwrap_or(u64::MAX));
            match kind {
                FileKind::Classic => header.word(u32::try_from(*begin).unwrap_or(u32::MAX)),
                _ => header.out.extend(begin.to_be_bytes()),
            }
        }
        Ok(header.out)
    }

    fn layout(&self) -> Result<&ClassicLayout> {
        if let Some(layout) = self.layout.get() {
            return Ok(layout);
        }
        let layout = self.lay_out()?;
        Ok(self.layout.get_or_init(|| layout))
    }

    /// Writes the cells of a box of a variable.
    fn put(&self, own: &VariableWrite, begin: u64, region: &Region, cells: &[u8]) -> Result<()> {
        let (run, starts) = contiguous_runs(own.slab_shape(), region)
            .ok_or_else(|| Error::internal("a box beyond its array"))?;
        let len = usize::try_from(run.saturating_mul(own.size)).unwrap_or(usize::MAX).max(1);
        let mut runs = starts.zip(cells.chunks(len));
        runs.try_for_each(|(first, bytes)| self.staged.write_at(begin + first * own.size, bytes))
    }
}

impl Writer for NetCdf3Writer {
    fn begin(&mut self, spec: &ArraySpec) -> Result<usize> {
        self.check_open()?;
        self.declare(spec).map_err(|e| e.in_array(&spec.schema.name))?;
        // A file that no kind holds is an error before the first chunk.
        self.lay_out().map_err(|e| e.in_array(&spec.schema.name))?;
        Ok(self.variables.len() - 1)
    }

    fn needs_order(&self, _array: usize) -> bool {
        false
    }

    fn encode<'a>(
        &self,
        array: usize,
        coords: &[u64],
        columns: &[ColumnData<'a>],
        _stats: Vec<ChunkStats>,
        _scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        let own = self.variable(array)?;
        let values = own.chunks.fixed(coords, columns, own.size)?;
        let mut bytes = Cow::Borrowed(values);
        let word = own.dtype.word();
        if cfg!(target_endian = "little") && word > 1 {
            bytes.to_mut().chunks_exact_mut(word).for_each(<[u8]>::reverse);
        }
        Ok(EncodedChunk::contiguous(coords, bytes, values.len()))
    }

    fn push(&self, array: usize, chunk: EncodedChunk<'_>) -> Result<()> {
        let (own, layout) = (self.variable(array)?, self.layout()?);
        let coords = chunk.coords.clone();
        let part = chunk.into_part()?;
        own.chunks.claim(&coords, ())?;
        let begin = layout.begins.get(array).copied().unwrap_or(0);
        let region = own.chunks.grid().region(&coords);
        let written = match region.bounds().split_first().filter(|_| own.record) {
            None => self.put(own, begin, &region, &part.bytes),
            Some(((first, end), rest)) => {
                let rest = Region::new(rest.iter().copied());
                let len = part.bytes.len() / usize::try_from(end - first).unwrap_or(usize::MAX).max(1);
                let mut records = (*first..*end).zip(part.bytes.chunks(len.max(1)));
                records.try_for_each(|(record, cells)| {
                    self.put(own, begin + record * layout.record, &rest, cells)
                })
            }
        };
        written.inspect_err(|_| own.chunks.release(&coords))
    }

    fn set_attributes(&mut self, attributes: Attributes) -> Result<()> {
        self.check_open()?;
        self.attributes = attributes;
        self.lay_out().map(drop)
    }

    fn add_history(&mut self, row: HistoryRow) -> Result<()> {
        self.check_open()?;
        self.history.push(row);
        Ok(())
    }

    fn set_parents(&mut self, parents: &[String]) -> bool {
        // The header that is laid out contains the history.
        self.layout = OnceLock::new();
        history::set_parents(&mut self.history, parents)
    }

    fn commit(self: Box<Self>) -> Result<()> {
        self.variables.iter().try_for_each(|own| own.chunks.check_complete())?;
        let layout = self.layout()?;
        self.staged.write_at(0, &layout.head)?;
        self.staged.set_len(layout.len.max(layout.head.len() as u64))?;
        self.staged.publish()
    }
}
