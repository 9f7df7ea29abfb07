//! Indexes of existing files, alone or joined along a dimension.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tesseral_core::{ArraySchema, Attributes, Dimension, Error, Result, Selection};
use tesseral_dataset::{Container, Open, Output};
use tesseral_format::{ArraySource, ContainerSource, Format, Request, to_little_endian};
use tesseral_registry::index::{
    ChunkForm, IndexContent, IndexedArray, IndexedSource, Piece, SourceState, check_format, chunk_form,
    relative_path,
};
use tesseral_store::{Bytes, Location, Overwrite, Store, StoreExt, together};

use crate::diff::{DiffOptions, diff};

/// How files are joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Join {
    /// Their arrays are those of one dataset. Arrays of the same name must be equal.
    #[default]
    Union,
    /// Arrays with this dimension are joined along it, in the order of the files; others must be equal.
    Along(String),
    /// Arrays are joined along a new first dimension of this name; index coordinates must be equal.
    New(String),
}

/// Options of an index.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct IndexOptions {
    /// How files are joined.
    pub join: Join,
    /// Replace an existing output.
    pub overwrite: bool,
}

impl IndexOptions {
    /// The default options: the arrays of all files in one dataset, no replacement of an existing output.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how files are joined.
    #[must_use]
    pub fn join(mut self, join: Join) -> Self {
        self.join = join;
        self
    }

    /// Sets whether an existing output is replaced.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }
}

/// An index that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrittenIndex {
    /// Number of sources.
    pub sources: usize,
    /// Names of the arrays.
    pub arrays: Vec<String>,
    /// Number of chunks in the chunk table.
    pub chunks: u64,
    /// Arrays that are read through their sources, because their chunks cannot be decoded without them.
    pub opened: Vec<String>,
    /// Size of the index in bytes.
    pub bytes: u64,
}

/// Writes an index of sources. Neither the sources nor their cells are copied.
///
/// # Errors
/// `Unsupported` for arrays that are not dense or have several fields; `InvalidRequest` for sources that do not fit together,
/// with both names and the difference; errors of opening and writing.
pub fn index(
    sources: &[PathBuf],
    output: impl AsRef<Path>,
    open: &Open,
    options: &IndexOptions,
) -> Result<WrittenIndex> {
    let output = output.as_ref();
    let target = Location::parse(output)?;
    let overwrite = if options.overwrite { Overwrite::Replace } else { Overwrite::Refuse };
    let staged = sources.iter().fold(Output::dataset(output, false).overwrite(overwrite), Output::source);
    let staged = staged.outside_sources().stage()?;
    let mut building = Building::new(options, sources);
    let mut numbers = 0_u32..;
    for block in sources.chunks(AHEAD) {
        let first = open.store(&block[0])?;
        // Over a network, the sources of a block are opened at the same time.
        let opened = together(&*first, block, |path| {
            open.execution_options().cancel.check()?;
            OpenedSource::new(path, open)
        });
        for ((path, number), source) in block.iter().zip(&mut numbers).zip(opened) {
            building.add(number, path, &target, source?, open)?;
        }
    }
    let content = building.finish()?;
    let bytes = content.to_bytes()?;
    staged.store().put("", &bytes, Overwrite::Replace)?;
    staged.publish()?;
    let opened = |array: &&IndexedArray| {
        array.pieces.iter().any(|piece| content.forms[piece.form as usize].is_opened())
    };
    Ok(WrittenIndex {
        sources: sources.len(),
        arrays: content.arrays.iter().map(|array| array.schema.name.clone()).collect(),
        chunks: content.chunks(),
        opened: content.arrays.iter().filter(opened).map(|array| array.schema.name.clone()).collect(),
        bytes: bytes.len() as u64,
    })
}

/// Number of sources that are opened before the first of them is added.
const AHEAD: usize = 32;

/// A source that is added to an index.
struct OpenedSource {
    store: Arc<dyn Store>,
    format: &'static dyn Format,
    state: SourceState,
    container: Arc<dyn ContainerSource>,
}

impl OpenedSource {
    fn new(path: &Path, open: &Open) -> Result<Self> {
        let store = open.store(path)?;
        let format = tesseral_registry::recognize(&*store)?;
        check_format(format)?;
        let state = SourceState::read(&Location::parse(path)?, &*store)?;
        let container = format.open(Arc::clone(&store), open.format_options())?;
        Ok(Self { store, format, state, container })
    }
}

/// An index that is being put together.
struct Building<'a> {
    options: &'a IndexOptions,
    paths: &'a [PathBuf],
    content: IndexContent,
    table: Vec<u8>,
    forms: HashMap<ChunkForm, u32>,
    arrays: HashMap<String, usize>,
    /// The source that each array was found in first.
    origins: Vec<u32>,
    /// Containers of sources that later ones are compared with.
    opened: HashMap<u32, Container>,
    /// Cells of index coordinates, which the index holds itself: a dataset opens without its sources then.
    coordinates: HashMap<usize, Vec<u8>>,
}

/// Bytes of a coordinate that an index holds at most.
const COORDINATE: usize = 16 << 20;

impl<'a> Building<'a> {
    fn new(options: &'a IndexOptions, paths: &'a [PathBuf]) -> Self {
        Self {
            options,
            paths,
            content: IndexContent::default(),
            table: Vec::new(),
            forms: HashMap::new(),
            arrays: HashMap::new(),
            origins: Vec::new(),
            opened: HashMap::new(),
            coordinates: HashMap::new(),
        }
    }

    fn add(
        &mut self,
        number: u32,
        path: &Path,
        target: &Location,
        source: OpenedSource,
        open: &Open,
    ) -> Result<()> {
        let OpenedSource { store, format, state, container } = source;
        let source = relative_path(&Location::parse(path)?, target);
        self.content.sources.push(IndexedSource { path: source, format: format.id().to_owned(), state });
        self.merge_attributes(number, &*container);
        let own = open.container(format, Arc::clone(&container));
        let mut same = Vec::new();
        for at in 0..container.len() {
            let (name, array) = (container.name(at).to_owned(), container.array(at)?);
            check_supported(array.schema(), path).map_err(|e| e.in_array(&name))?;
            match self.arrays.get(&name).copied() {
                None => {
                    let known = self.content.arrays.len();
                    self.first(number, &name, &*container, &*array)?;
                    if is_index(array.schema(), &name) {
                        self.coordinates.insert(known, Vec::new());
                        self.keep_coordinate(known, &own, at)?;
                    }
                }
                Some(known) if self.content.arrays[known].axis.is_some() => {
                    self.piece(known, number, &name, &*container, &*array)?;
                    self.keep_coordinate(known, &own, at)?;
                }
                Some(known) => same.push((known, name)),
            }
        }
        if !same.is_empty() {
            // With the conventions of datasets, as those of the first source.
            let own = open.open_store(store)?;
            self.compare(&own, number, &same, open)?;
        }
        Ok(())
    }

    /// Adds the cells of a source to those of an index coordinate, if the index holds them.
    fn keep_coordinate(&mut self, known: usize, own: &Container, at: usize) -> Result<()> {
        let Some(kept) = self.coordinates.get_mut(&known) else { return Ok(()) };
        let array = own.array_at(at)?;
        let field = &array.schema().fields[0];
        let bytes = field.cell_size().zip(array.schema().shape()).and_then(|(size, shape)| {
            let bytes = shape.iter().try_fold(size as u64, |bytes, n| bytes.checked_mul(*n))?;
            usize::try_from(bytes).ok()?.checked_add(kept.len())
        });
        if bytes.is_none_or(|bytes| bytes > COORDINATE) {
            self.coordinates.remove(&known);
            return Ok(());
        }
        let word = field.dtype.word();
        array.read_with(&array.all()?, |cells| {
            kept.extend_from_slice(&to_little_endian(cells.bytes().into(), word));
            Ok(())
        })
    }

    /// Attributes of the dataset are those that all sources agree on.
    fn merge_attributes(&mut self, number: u32, container: &dyn ContainerSource) {
        let agree = |known: &mut Attributes, own: &Attributes| {
            known.retain(|name, value| own.get(name).is_none_or(|other| other == value));
        };
        if number == 0 {
            self.content.attributes = container.attributes().clone();
        } else {
            agree(&mut self.content.attributes, container.attributes());
        }
        for (path, own) in container.groups() {
            match self.content.groups.get_mut(path) {
                Some(known) => agree(known, own),
                None => drop(self.content.groups.insert(path.clone(), own.clone())),
            }
        }
    }

    /// The number of a form, and of the first entry of its chunks.
    fn form(
        &mut self,
        name: &str,
        container: &dyn ContainerSource,
        array: &dyn ArraySource,
    ) -> Result<(u32, u64)> {
        let shape = array.schema().shape().unwrap_or_default();
        let request = Request::cells(Selection::all(&shape), 0);
        let plan = tesseral_format::plan(array, container.store(), &request)?;
        let (form, entries) = chunk_form(container.format(), name, array, &plan);
        let entry = IndexContent::push_entries(&mut self.table, &entries);
        let next = u32::try_from(self.forms.len()).unwrap_or(u32::MAX);
        let number = *self.forms.entry(form.clone()).or_insert(next);
        if number == next {
            self.content.forms.push(form);
        }
        Ok((number, entry))
    }

    fn first(
        &mut self,
        source: u32,
        name: &str,
        container: &dyn ContainerSource,
        array: &dyn ArraySource,
    ) -> Result<()> {
        let (form, entry) = self.form(name, container, array)?;
        let mut schema = array.schema().clone();
        name.clone_into(&mut schema.name);
        let is_index = is_index(&schema, name);
        let (axis, new_axis) = match &self.options.join {
            Join::Union => (None, false),
            Join::Along(along) => (schema.dims.iter().position(|dim| dim.name == *along), false),
            Join::New(_) if is_index => (None, false),
            Join::New(new) => {
                if schema.dims.iter().any(|dim| dim.name == *new) {
                    let detail = format!("dimension {new:?} is not new");
                    return Err(Error::invalid(detail).in_array(name));
                }
                schema.dims.insert(0, Dimension::new(new, 1));
                if let Some(chunk) = &mut schema.chunk_shape {
                    chunk.insert(0, 1);
                }
                (Some(0), true)
            }
        };
        if source > 0 && axis.is_some() {
            let detail = format!("{} has no array {name:?}", self.paths[0].display());
            return Err(Error::invalid(detail));
        }
        let extent = axis.and_then(|axis| schema.dims[axis].extent).unwrap_or(1);
        let piece = Piece { source, form, start: 0, extent, entry };
        self.arrays.insert(name.to_owned(), self.content.arrays.len());
        self.content.arrays.push(IndexedArray { schema, axis, new_axis, pieces: vec![piece] });
        self.origins.push(source);
        Ok(())
    }

    fn piece(
        &mut self,
        known: usize,
        source: u32,
        name: &str,
        container: &dyn ContainerSource,
        array: &dyn ArraySource,
    ) -> Result<()> {
        let (first, other) = (self.origins[known], self.content.arrays[known].pieces.len());
        if other != source as usize {
            let path = self.paths.get(other).unwrap_or(&self.paths[0]);
            return Err(Error::invalid(format!("{} has no array {name:?}", path.display())));
        }
        let indexed = &self.content.arrays[known];
        if let Some(difference) = differs(indexed, array.schema()) {
            let (a, b) = (&self.paths[first as usize], &self.paths[source as usize]);
            let detail = format!("{} and {} cannot be joined: {difference}", a.display(), b.display());
            return Err(Error::invalid(detail).in_array(name));
        }
        let (form, entry) = self.form(name, container, array)?;
        let indexed = &mut self.content.arrays[known];
        let Some(axis) = indexed.axis else { return Ok(()) };
        let extent = if indexed.new_axis { Some(1) } else { array.schema().dims[axis].extent };
        let (start, extent) = (indexed.schema.dims[axis].extent.unwrap_or(0), extent.unwrap_or(0));
        let end = start.checked_add(extent);
        indexed.schema.dims[axis].extent =
            Some(end.ok_or_else(|| Error::limit("the extent of a dimension", u64::MAX, u64::MAX))?);
        indexed.pieces.push(Piece { source, form, start, extent, entry });
        Ok(())
    }

    /// Compares arrays that are not joined with those of the source that has them first.
    fn compare(&mut self, own: &Container, number: u32, same: &[(usize, String)], open: &Open) -> Result<()> {
        for (known, name) in same {
            let first = self.origins[*known];
            let path = &self.paths[first as usize];
            let opened = match self.opened.entry(first) {
                Entry::Occupied(opened) => opened.into_mut(),
                Entry::Vacant(slot) => slot.insert(open.open(path)?),
            };
            let options = DiffOptions {
                arrays: vec![name.clone()],
                execution: open.execution_options().clone(),
                ..DiffOptions::default()
            };
            let found = diff(opened, own, &options)?;
            let note = found.notes.iter().find(|note| note.array.as_deref() == Some(name.as_str()));
            let note = note.map(|note| {
                let side = |text: &Option<String>| text.clone().unwrap_or_else(|| "nothing".to_owned());
                format!("{}: {} and {}", note.what, side(&note.left), side(&note.right))
            });
            let cells = found.values.iter().find(|value| value.differing > 0);
            let cells = cells.map(|value| format!("{} of {} cells differ", value.differing, value.cells));
            if let Some(difference) = note.or(cells) {
                let other = &self.paths[number as usize];
                let detail = format!("{} and {} differ: {difference}", path.display(), other.display());
                return Err(Error::invalid(detail).in_array(name));
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<IndexContent> {
        let joined = self.content.arrays.iter().filter(|array| array.axis.is_some());
        for array in joined.clone() {
            if let Some(path) = self.paths.get(array.pieces.len()) {
                let detail = format!("{} has no array {:?}", path.display(), array.schema.name);
                return Err(Error::invalid(detail));
            }
        }
        if let (Join::Along(along), None) = (&self.options.join, joined.clone().next()) {
            let dims = self.content.arrays.iter().flat_map(|array| &array.schema.dims);
            let mut names: Vec<String> = dims.map(|dim| dim.name.clone()).collect();
            names.sort();
            names.dedup();
            return Err(Error::not_found("dimension", along, names));
        }
        self.content.table = Bytes::from(self.table);
        let mut coordinates: Vec<_> = self.coordinates.into_iter().collect();
        coordinates.sort_unstable_by_key(|(array, _)| *array);
        for (array, cells) in coordinates {
            self.content.set_inline(array, cells);
        }
        Ok(self.content)
    }
}

/// Whether an array is the coordinate of its only dimension.
fn is_index(schema: &ArraySchema, name: &str) -> bool {
    matches!(schema.dims.as_slice(), [dim] if name.rsplit('/').next() == Some(&dim.name))
}

/// Arrays that an index can hold.
fn check_supported(schema: &ArraySchema, path: &Path) -> Result<()> {
    let what = match schema.fields.as_slice() {
        _ if schema.sparse => "sparse arrays",
        [field] if field.nullable => "null cells",
        [field] if field.enumeration.is_some() => "enumerations",
        [_] if schema.dims.iter().any(|dim| dim.labels.is_some() || dim.domain.is_some()) => {
            "dimensions with labels or domains"
        }
        [_] => return Ok(()),
        _ => "arrays of several fields",
    };
    Err(Error::unsupported(format!("{what} of {} in an index", path.display())))
}

/// How an array of another source differs from the first, except in its extent along the joined dimension.
fn differs(known: &IndexedArray, other: &ArraySchema) -> Option<String> {
    let (ours, theirs) = (&known.schema.fields[0], &other.fields[0]);
    if (ours.dtype, ours.cell) != (theirs.dtype, theirs.cell) {
        return Some(format!("dtype {} and {}", ours.type_name(), theirs.type_name()));
    }
    if known.schema.cell_order != other.cell_order {
        return Some("the orders of cells differ".to_owned());
    }
    let own: Vec<&Dimension> = known
        .schema
        .dims
        .iter()
        .enumerate()
        .filter_map(|(at, dim)| (!(known.new_axis && Some(at) == known.axis)).then_some(dim))
        .collect();
    let named = |dims: &[&Dimension]| {
        let names: Vec<String> =
            dims.iter().map(|dim| format!("{}={}", dim.name, dim.extent.unwrap_or(0))).collect();
        names.join(", ")
    };
    let others: Vec<&Dimension> = other.dims.iter().collect();
    let joined = |at: usize| !known.new_axis && Some(at) == known.axis;
    let equal = own.len() == others.len()
        && own
            .iter()
            .zip(&others)
            .enumerate()
            .all(|(at, (a, b))| a.name == b.name && (joined(at) || a.extent == b.extent));
    if !equal {
        return Some(format!("dimensions {} and {}", named(&own), named(&others)));
    }
    let names = known.schema.attributes.keys().chain(other.attributes.keys());
    for name in names {
        let (a, b) = (known.schema.attributes.get(name), other.attributes.get(name));
        if a != b {
            let shown = |value: Option<&tesseral_core::Value>| {
                value.map_or("nothing".to_owned(), ToString::to_string)
            };
            return Some(format!("attribute {name:?}: {} and {}", shown(a), shown(b)));
        }
    }
    if ours.fill != theirs.fill {
        return Some("the fill values differ".to_owned());
    }
    None
}
