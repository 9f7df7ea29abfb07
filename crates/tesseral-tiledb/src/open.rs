//! The opened container: an array, or the arrays of a group.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tesseral_core::{Attributes, CountedValues, Error, HistoryRow, Result};
use tesseral_format::{ArraySource, ContainerSource, OpenOptions, TimeRange, Version};
use tesseral_store::{Bytes, Rounds, Store, StoreExt};

use crate::array::TileDbArray;
use crate::convention;
use crate::directory::{self, ArrayDirectory, DeleteEntry, FragmentEntry};
use crate::fragment::{self, FooterBytes, Fragment};
use crate::fragments::Fragments;
use crate::geometry::Geometry;
use crate::label::OpenedLabel;
use crate::metadata_loader::{MetadataLoader, join};
use crate::model::{StoredSchema, array_schema};
use crate::portion::KEPT;
use crate::wire::name::Name;
use crate::wire::schema::Schema;
use crate::wire::{consolidated_footers, enumeration, metadata};

/// Number of footers read in one request.
const TOGETHER: usize = 512;

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Time range of a read: the requested one, otherwise everything up to now.
pub(crate) fn times(options: &OpenOptions) -> TimeRange {
    options.as_of.unwrap_or_else(|| TimeRange { start: 0, end: now() })
}

/// Returns the attributes from metadata files written in a time range.
pub(crate) fn read_attributes(
    reader: &MetadataLoader,
    files: &[(String, Name)],
    range: TimeRange,
) -> Result<Attributes> {
    let mut attributes = Attributes::new();
    let mut counted = CountedValues::new(reader.limits, 0);
    let files = || files.iter().filter(|(_, t)| range.start <= t.start && t.end <= range.end);
    reader.announce([], files().map(|(object, _)| object));
    for (object, time) in files() {
        let (bytes, stored) = reader.sized(object)?;
        counted.stored(stored);
        debug_assert!(time.start <= time.end);
        metadata::apply(&reader.store.describe(object), &bytes, &mut attributes, &mut counted)?;
    }
    Ok(attributes)
}

/// Reads and parses one schema.
pub(crate) fn read_schema(reader: &MetadataLoader, object: &str) -> Result<Arc<StoredSchema>> {
    let (bytes, encrypted) = reader.object(object)?;
    let wire = Schema::parse(&reader.store.describe(object), &bytes)?;
    Ok(Arc::new(StoredSchema::new(wire, encrypted)))
}

/// An array without its fragments.
#[derive(Clone, Debug)]
pub(crate) struct ArrayListing {
    pub directory: ArrayDirectory,
    pub range: TimeRange,
    pub current: Arc<StoredSchema>,
    /// File name of the current schema.
    pub current_name: String,
    pub geometry: Option<Geometry>,
    pub visible: Vec<FragmentEntry>,
    pub hidden: Vec<FragmentEntry>,
    schemas: HashMap<String, Arc<StoredSchema>>,
    prefix: String,
}

impl ArrayListing {
    /// Lists the folder and reads the schemas.
    pub(crate) fn new(reader: &MetadataLoader, prefix: &str, options: &OpenOptions) -> Result<Self> {
        Self::load(reader, prefix, ArrayDirectory::scan(reader, prefix)?, times(options))
    }

    /// Reads the schemas of a listed folder.
    pub(crate) fn load(
        reader: &MetadataLoader,
        prefix: &str,
        directory: ArrayDirectory,
        range: TimeRange,
    ) -> Result<Self> {
        let schemas =
            directory.schemas.iter().map(|(object, _)| Ok((object.clone(), read_schema(reader, object)?)));
        let schemas = schemas.collect::<Result<Vec<_>>>()?;
        Self::with_schemas(reader, prefix, directory, range, schemas)
    }

    /// Returns the array of these schemas.
    pub(crate) fn with_schemas(
        reader: &MetadataLoader,
        prefix: &str,
        mut directory: ArrayDirectory,
        range: TimeRange,
        schemas: Vec<(String, Arc<StoredSchema>)>,
    ) -> Result<Self> {
        let file = |object: &String| object.rsplit('/').next().unwrap_or(object).to_owned();
        let schemas: HashMap<String, Arc<StoredSchema>> =
            schemas.into_iter().map(|(object, schema)| (file(&object), schema)).collect();
        let newest = directory.schema_at(range.end).unwrap_or_default().to_owned();
        let name = newest.rsplit('/').next().unwrap_or(&newest);
        let current = schemas.get(name).map(Arc::clone);
        let current = current.ok_or_else(|| Error::not_found("schema", &newest, Vec::new()))?;
        let geometry = match current.wire.sparse {
            true => None,
            false => Some(Geometry::new(&current.wire, &reader.store.describe(&newest))?),
        };
        let (visible, hidden) = directory.take_visible(range, current.wire.sparse);
        let current_name = name.to_owned();
        Ok(Self {
            directory,
            range,
            current,
            current_name,
            geometry,
            visible,
            hidden,
            schemas,
            prefix: prefix.to_owned(),
        })
    }

    /// As above, without the list of fragments, which can be long.
    pub(crate) fn without_fragments(&self) -> Self {
        Self {
            directory: ArrayDirectory {
                schemas: self.directory.schemas.clone(),
                metadata: self.directory.metadata.clone(),
                deletes: self.directory.deletes.clone(),
                ..ArrayDirectory::default()
            },
            range: self.range,
            current: Arc::clone(&self.current),
            current_name: self.current_name.clone(),
            geometry: self.geometry.clone(),
            visible: Vec::new(),
            hidden: Vec::new(),
            schemas: self.schemas.clone(),
            prefix: self.prefix.clone(),
        }
    }

    /// Folder of the array.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Reads consolidated footers, by the name of the fragment.
    pub(crate) fn footers(&self, reader: &MetadataLoader) -> Result<HashMap<String, Bytes>> {
        let mut footers = HashMap::new();
        let mut waiting = false;
        for object in consolidated_objects(reader, &self.prefix)? {
            let Some((bytes, _)) = Rounds::later(reader.object(&object))? else {
                waiting = true;
                continue;
            };
            let bytes = Bytes::from(bytes);
            for (name, range) in consolidated_footers::parse(&reader.store.describe(&object), &bytes)? {
                let name = name.trim_end_matches('/').rsplit('/').next().unwrap_or(&name).to_owned();
                footers.insert(name, bytes.slice(range));
            }
        }
        if waiting { Err(Error::pending()) } else { Ok(footers) }
    }

    /// Opens all visible fragments.
    pub(crate) fn fragments(&self, reader: &MetadataLoader) -> Result<Vec<Fragment>> {
        let mut fragments = Vec::with_capacity(self.visible.len());
        self.visit(reader, &mut |batch| {
            fragments.extend(batch);
            Ok(())
        })?;
        Ok(fragments)
    }

    /// Opens all fragments that a read sees in batches, lowest layer first.
    pub(crate) fn visit(
        &self,
        reader: &MetadataLoader,
        each: &mut dyn FnMut(Vec<Fragment>) -> Result<()>,
    ) -> Result<()> {
        let mut footers =
            if self.visible.len() > few(reader) { self.footers(reader)? } else { HashMap::new() };
        let mut waiting = false;
        for some in self.visible.chunks(TOGETHER) {
            let own: Vec<&FragmentEntry> = some.iter().filter(|e| !footers.contains_key(&e.name)).collect();
            let Some(own) = Rounds::later(fragment::read_footers(reader, own, self.only_schema()))? else {
                waiting = true;
                continue;
            };
            let mut own = own.into_iter();
            let open = |entry: &FragmentEntry| {
                let footer = match footers.remove(&entry.name) {
                    Some(bytes) => FooterBytes { bytes, own: None },
                    None => own.next().ok_or_else(|| Error::invalid("missing footer"))?,
                };
                self.fragment_of(reader, entry.clone(), footer)
            };
            each(some.iter().map(open).collect::<Result<_>>()?)?;
        }
        if waiting { Err(Error::pending()) } else { Ok(()) }
    }

    /// Opens some of the visible fragments by their own footers.
    pub(crate) fn fragments_of(&self, reader: &MetadataLoader, layers: &[usize]) -> Result<Vec<Fragment>> {
        let mut fragments = Vec::with_capacity(layers.len());
        for some in layers.chunks(TOGETHER) {
            let entries: Vec<&FragmentEntry> = some.iter().filter_map(|&i| self.visible.get(i)).collect();
            let footers = fragment::read_footers(reader, entries.iter().copied(), self.only_schema())?;
            for (entry, footer) in entries.into_iter().zip(footers) {
                fragments.push(self.fragment_of(reader, entry.clone(), footer)?);
            }
        }
        Ok(fragments)
    }

    /// The schema of an array that was created before version 10.
    pub(crate) fn only_schema(&self) -> Option<&StoredSchema> {
        self.schemas.get(crate::wire::ONLY_SCHEMA).map(|schema| &**schema)
    }

    /// Opens one fragment by its own footer.
    pub(crate) fn fragment(&self, reader: &MetadataLoader, entry: FragmentEntry) -> Result<Fragment> {
        let footer = fragment::read_footer(reader, &entry, self.only_schema())?;
        self.fragment_of(reader, entry, footer)
    }

    fn fragment_of(
        &self,
        reader: &MetadataLoader,
        entry: FragmentEntry,
        footer: FooterBytes,
    ) -> Result<Fragment> {
        let object = reader.store.describe(&entry.folder);
        let fragment = Fragment::open(reader, entry, footer, self.geometry.as_ref(), |name| {
            self.schemas.get(name).map(Arc::clone)
        })?;
        let same =
            |(a, b): (&crate::wire::schema::StoredDimension, &crate::wire::schema::StoredDimension)| {
                (&a.name, a.datatype, &a.domain, &a.extent) == (&b.name, b.datatype, &b.domain, &b.extent)
            };
        let (theirs, ours) = (&fragment.schema.wire, &self.current.wire);
        if theirs.dims.len() != ours.dims.len() || !theirs.dims.iter().zip(&ours.dims).all(same) {
            let detail = "the schemas of the array differ in their dimensions";
            return Err(Error::corrupt("the schema", object, None, detail));
        }
        if theirs.sparse != ours.sparse
            || (!ours.sparse && (theirs.cell_order, theirs.tile_order) != (ours.cell_order, ours.tile_order))
        {
            let detail = "the schemas of the array differ in their tile or cell order";
            return Err(Error::corrupt("the schema", object, None, detail));
        }
        Ok(fragment)
    }

    /// Creates an array with open fragments.
    pub(crate) fn finish(
        mut self,
        reader: Arc<MetadataLoader>,
        name: &str,
        fragments: Vec<Fragment>,
    ) -> Result<TileDbArray> {
        let mut array = self.described(&reader.clone(), reader, name)?;
        array.fragments = Fragments::from_opened(fragments)?;
        Ok(array)
    }

    /// Creates an array whose fragments are opened on first use.
    pub(crate) fn unopened(mut self, reader: Arc<MetadataLoader>, name: &str) -> Result<TileDbArray> {
        let mut array = self.described(&reader.clone(), reader, name)?;
        array.fragments = Fragments::later(self);
        Ok(array)
    }

    /// Creates the array without its fragments, from metadata of `metadata`.
    pub(crate) fn described(
        &mut self,
        metadata: &MetadataLoader,
        reader: Arc<MetadataLoader>,
        name: &str,
    ) -> Result<TileDbArray> {
        let mut enumerations = BTreeMap::new();
        let (mut counted, mut files) = (CountedValues::new(reader.limits, 0), HashSet::new());
        let folder = join(&self.prefix, "__schema/__enumerations");
        let listed = self.current.wire.enumerations.iter();
        let listed: Vec<_> = listed.map(|(label, file)| (label, file, join(&folder, file))).collect();
        metadata.announce([], listed.iter().map(|(_, _, object)| object));
        for (label, file, object) in listed {
            let (bytes, stored) = metadata.sized(&object)?;
            // Any number of enumerations can have one file.
            counted.stored(if files.insert(file) { stored } else { 0 });
            let described = reader.store.describe(&object);
            enumerations.insert(label.clone(), enumeration::parse(&described, &bytes, &mut counted)?);
        }
        let entries = read_attributes(metadata, &self.directory.metadata, self.range)?;
        let meaning = convention::meaning(entries);
        let mut schema = array_schema(
            name,
            &self.current.wire,
            self.geometry.as_ref(),
            &enumerations,
            meaning.attributes,
        )?;
        for (d, dim) in schema.dims.iter_mut().enumerate() {
            dim.labels = meaning.labels.get(&d).filter(|l| Some(l.len() as u64) == dim.extent).cloned();
            if meaning.unnamed.contains(&d) {
                dim.name.clear();
            }
        }
        let mut deletes = Vec::new();
        if self.current.wire.sparse {
            let seen = |entry: &&DeleteEntry| {
                self.range.start <= entry.time.start && entry.time.end <= self.range.end
            };
            let listed = || self.directory.deletes.iter().filter(seen);
            metadata.announce([], listed().filter_map(DeleteEntry::object));
            for entry in listed() {
                deletes.push(crate::deletes::read(metadata, entry, &self.current.wire, &schema)?);
            }
        }
        Ok(TileDbArray {
            tables: crate::chunk_tables::ChunkTables::default(),
            reader,
            schema,
            current: Arc::clone(&self.current),
            geometry: self.geometry.clone(),
            fragments: Fragments::default(),
            places: std::sync::OnceLock::new(),
            outline: std::sync::OnceLock::new(),
            hidden: std::mem::take(&mut self.hidden),
            prefix: self.prefix.clone(),
            deletes,
            range: self.range,
            file_attributes: meaning.file,
            history: meaning.history,
        })
    }
}

/// Number of fragments whose own footers are read even if there are consolidated ones. One is read faster by itself. Over a network,
/// some more are read in the same round, with the lists of their tiles, which a first read would request otherwise.
fn few(reader: &MetadataLoader) -> usize {
    if reader.waits() { 64 } else { 1 }
}

/// Objects of consolidated footers.
fn consolidated_objects(reader: &MetadataLoader, prefix: &str) -> Result<Vec<String>> {
    let folder = join(prefix, "__fragment_meta");
    let entries = reader.list(&folder)?;
    let footers = entries.iter().filter(|e| !e.is_folder() && e.name.ends_with(".meta"));
    Ok(footers.map(|entry| join(&folder, &entry.name)).collect())
}

/// Opens the array in folder `prefix`.
pub(crate) fn open_array(
    reader: &Arc<MetadataLoader>,
    prefix: &str,
    name: &str,
    options: &OpenOptions,
) -> Result<TileDbArray> {
    ArrayListing::new(reader, prefix, options)?.unopened(Arc::clone(reader), name)
}

/// Opens the array in folder `prefix` across a network: all folders are listed together, and then all metadata is read together,
/// with the footers of the fragments. Of an array of more fragments than are `left`, they are opened on first use.
///
/// A schema is written before the first commit that needs it, but here both are listed at the same time. If one is missed, the
/// fragment that names it cannot be opened; the caller then lists the folders in order, which also reports all other errors.
pub(crate) fn open_array_at_once(
    rounds: &MetadataLoader,
    reader: &Arc<MetadataLoader>,
    prefix: &str,
    name: &str,
    options: &OpenOptions,
    left: &mut usize,
) -> Result<TileDbArray> {
    directory::announce(rounds, prefix);
    if let Some(listed) = Rounds::later(ArrayDirectory::described(rounds, prefix))? {
        rounds.announce([], listed.schemas.iter().chain(&listed.metadata).map(|(object, _)| object));
    }
    if let Some(footers) = Rounds::later(consolidated_objects(rounds, prefix))? {
        rounds.announce([], &footers);
    }
    // Commits do not depend on schemas: fragments are known before those are read.
    let mut open = false;
    if let Some(mut listed) = Rounds::later(ArrayDirectory::scan(rounds, prefix))? {
        let (fragments, _) = listed.take_visible(times(options), false);
        if let Some(rest) = left.checked_sub(fragments.len()) {
            (open, *left) = (true, rest);
            let consolidated = Rounds::later(consolidated_objects(rounds, prefix))?;
            if fragments.len() <= few(rounds) || consolidated.is_some_and(|objects| objects.is_empty()) {
                Rounds::later(fragment::read_footers(rounds, &fragments, None))?;
            }
        }
    }
    let mut listing = ArrayListing::new(rounds, prefix, options)?;
    let opened = (open && listing.visible.len() <= KEPT).then(|| listing.fragments(rounds)).transpose();
    // What describes the array is requested together with the fragments.
    let opened = Rounds::later(opened)?;
    let mut array = listing.described(rounds, Arc::clone(reader), name)?;
    array.fragments = match opened.ok_or_else(Error::pending)? {
        Some(fragments) => Fragments::from_opened(fragments)?,
        None => Fragments::later(listing),
    };
    Ok(array)
}

/// Name of an array: the name of its folder.
pub(crate) fn folder_name(location: &str) -> &str {
    let name = location.trim_end_matches('/').rsplit(['/', '\\']).next().unwrap_or(location);
    if name.is_empty() { location } else { name }
}

/// An opened array, or the arrays of a group.
#[derive(Debug)]
pub struct TileDbContainer {
    pub(crate) reader: Arc<MetadataLoader>,
    pub(crate) arrays: Vec<Arc<TileDbArray>>,
    /// Names of the arrays, then of the labels.
    pub(crate) names: Vec<String>,
    pub(crate) labels: Vec<OpenedLabel>,
    /// Labels that are missing or outside their array, with the reason.
    pub(crate) unread_labels: Vec<String>,
    pub(crate) group: Option<crate::group::Group>,
    pub(crate) attributes: Attributes,
    pub(crate) history: Vec<HistoryRow>,
}

impl TileDbContainer {
    /// Opens the array or group of a store.
    ///
    /// # Errors
    /// As [`Format::open`](tesseral_format::Format::open).
    pub fn open(store: Arc<dyn Store>, options: &OpenOptions) -> Result<Self> {
        let reader = Arc::new(MetadataLoader::new(store, options)?);
        if reader.waits()
            && let Ok(opened) = Rounds::run(&reader.store, |rounds| {
                Self::open_at_once(&reader.through(rounds), &reader, options)
            })
        {
            return Ok(opened);
        }
        if crate::group::is_group(&reader)? {
            return crate::group::open(&reader, options);
        }
        let name = folder_name(reader.store.location()).to_owned();
        let array = open_array(&reader, "", &name, options)?;
        Self::from_array(Arc::clone(&reader), name, array).with_labels(&reader, options)
    }

    /// Opens an array or a group across a network, with as much of its metadata as possible in each round.
    fn open_at_once(
        rounds: &MetadataLoader,
        reader: &Arc<MetadataLoader>,
        options: &OpenOptions,
    ) -> Result<Self> {
        rounds.announce(directory::FIRST.iter().map(|name| (*name).to_owned()).chain([String::new()]), []);
        if rounds.store.list("")?.iter().any(|entry| entry.name == crate::group::MARKER) {
            return crate::group::open_at_once(rounds, reader, options);
        }
        let name = folder_name(reader.store.location()).to_owned();
        let array = open_array_at_once(rounds, reader, "", &name, options, &mut { KEPT })?;
        Self::from_array(Arc::clone(reader), name, array).with_labels(rounds, options)
    }

    pub(crate) fn from_array(reader: Arc<MetadataLoader>, name: String, array: TileDbArray) -> Self {
        let attributes = array.file_attributes.clone().unwrap_or_else(|| array.schema.attributes.clone());
        let history = array.history.clone();
        Self {
            reader,
            history,
            arrays: vec![Arc::new(array)],
            names: vec![name],
            labels: Vec::new(),
            unread_labels: Vec::new(),
            group: None,
            attributes,
        }
    }

    /// Folder of an array by its name.
    pub(crate) fn folder(&self, name: &str) -> Result<String> {
        let index = self.find(name)?;
        let labels = self.labels.iter().map(|label| &label.array);
        let array = self.arrays.iter().chain(labels).nth(index);
        array.map(|array| array.prefix.clone()).ok_or_else(|| Error::internal("an array without a folder"))
    }

    /// Attributes and history of a group.
    pub(crate) fn group_meaning(
        reader: &MetadataLoader,
        range: TimeRange,
    ) -> Result<convention::ModelMetadata> {
        let entries = read_attributes(reader, &directory::metadata(reader, "__meta")?, range)?;
        Ok(convention::meaning(entries))
    }
}

impl ContainerSource for TileDbContainer {
    fn format(&self) -> &'static str {
        crate::ID
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.reader.store
    }

    fn len(&self) -> usize {
        self.names.len()
    }

    fn name(&self, index: usize) -> &str {
        self.names.get(index).map_or("", String::as_str)
    }

    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>> {
        let labels = self.labels.iter().map(|label| &label.array);
        match self.arrays.iter().chain(labels).nth(index) {
            Some(array) => Ok(Arc::clone(array) as Arc<dyn ArraySource>),
            None => Err(Error::not_found("array", index.to_string(), self.names.clone())),
        }
    }

    fn find(&self, name: &str) -> Result<usize> {
        let own = self.names.iter().position(|own| own == name);
        let label = || self.labels.iter().position(|label| label.name == name).map(|i| self.arrays.len() + i);
        own.or_else(label).ok_or_else(|| Error::not_found("array", name, self.names.clone()))
    }

    fn sibling(&self, index: usize, name: &str) -> Option<usize> {
        match self.label_of(index, name) {
            Some(label) => Some(label),
            // Labels belong to one array.
            None => {
                self.enclosing(index, name).filter(|found| *found < self.arrays.len() || self.group.is_none())
            }
        }
    }

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn history(&self) -> &[HistoryRow] {
        &self.history
    }

    fn versions(&self) -> Result<Vec<Version>> {
        crate::versions::versions(self)
    }

    fn unread(&self) -> Vec<String> {
        let members = self.group.iter().flat_map(|group| group.unread().map(|(_, line)| line));
        let labels = self.unread_labels.iter().map(|label| format!("label {label}"));
        members.chain(labels).collect()
    }

    fn details(&self) -> serde_json::Value {
        crate::details::details(self)
    }
}
