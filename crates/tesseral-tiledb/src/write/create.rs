//! Creation of a container: one array, or a group of several.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tesseral_core::{
    Advice, ArraySchema, Attributes, ChunkStats, Error, ErrorKind, HistoryRow, Order, Region, Result,
};
use tesseral_format::{
    ArraySpec, CellKeys, ColumnData, CreateOptions, EncodedChunk, Pending, Scratch, Writer,
};
use tesseral_store::{ObjectKind, Overwrite, Store, StoreExt};

use super::append::ArrayWrite;
use super::array::{DenseWrite, FragmentDestination};
use super::create_options::TileDbCreateOptions;
use super::fragment::FragmentWriter;
use super::sparse::SparseWrite;
use super::spec;
use super::timestamped_name;
use crate::convention;
use crate::metadata_loader::{Key, join};
use crate::model::StoredSchema;
use crate::wire::group::{self, Member};
use crate::wire::schema::Schema;
use crate::wire::{WRITTEN, enumeration, generic_tile, metadata};

/// An array to be created.
#[derive(Debug)]
struct NewArray {
    model: ArraySchema,
    schema: Arc<StoredSchema>,
    /// Files of enumerations with their bytes.
    enumerations: Vec<(String, Vec<u8>)>,
    schema_name: String,
    /// Schemas of its labels, in the order of the array's schema.
    labels: Vec<Schema>,
    write: ArrayWrite,
}

/// Writer of new arrays.
#[derive(Debug)]
pub(crate) struct TileDbWriter {
    store: Arc<dyn Store>,
    timestamp: u64,
    key: Option<Key>,
    options: TileDbCreateOptions,
    /// Whether files have digests.
    digests: bool,
    /// Create arrays without cells.
    empty: bool,
    /// Objects that the new arrays replace.
    old: Vec<String>,
    arrays: Vec<NewArray>,
    attributes: Attributes,
    history: Vec<HistoryRow>,
    places: OnceLock<Vec<FragmentDestination>>,
    /// Fragments that are complete but not committed.
    sealed: Mutex<Vec<FragmentWriter>>,
}

/// All objects below a folder. Links are objects, regardless of their target.
pub(crate) fn objects(store: &dyn Store, folder: &str) -> Result<Vec<String>> {
    let entries = match store.list(folder) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound { .. }) => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = join(folder, &entry.name);
        if entry.kind == ObjectKind::Folder {
            found.extend(objects(store, &name)?);
        }
        // A folder follows its content, so that it is empty when it is removed.
        found.push(name);
    }
    Ok(found)
}

fn is_not_empty(error: &Error) -> bool {
    let full = std::io::ErrorKind::DirectoryNotEmpty;
    matches!(error.kind(), ErrorKind::Io { source, .. } if source.kind() == full)
}

impl TileDbWriter {
    pub(crate) fn create(store: &Arc<dyn Store>, create: &CreateOptions) -> Result<Self> {
        let key = create.key.as_deref().map(Key::new).transpose()?;
        let old = objects(store.as_ref(), "")?;
        if !old.is_empty() && create.overwrite == Overwrite::Refuse {
            let detail = format!("output {} already exists", store.location());
            return Err(Error::invalid(detail).hint(Advice::Overwrite));
        }
        if let Some(foreign) = crate::contents::foreign(Arc::clone(store))? {
            let detail = format!("{} is not part of a TileDB array", store.describe(&foreign));
            return Err(Error::invalid(format!("cannot replace {}: {detail}", store.location())));
        }
        Ok(Self {
            store: Arc::clone(store),
            timestamp: create.timestamp.unwrap_or_else(timestamped_name::now),
            key,
            options: create.format.get()?,
            digests: create.digests,
            empty: create.empty,
            old,
            arrays: Vec::new(),
            attributes: Attributes::new(),
            history: Vec::new(),
            places: OnceLock::new(),
            sealed: Mutex::default(),
        })
    }

    fn array(&self, array: usize) -> Result<&NewArray> {
        self.arrays.get(array).ok_or_else(|| Error::invalid(format!("array {array} was not created")))
    }

    /// Folder of each array: a single array is the container itself, several are members of a group.
    fn places(&self) -> &[FragmentDestination] {
        self.places.get_or_init(|| {
            let alone = self.arrays.len() == 1;
            let place = |array: &NewArray| FragmentDestination {
                store: Arc::clone(&self.store),
                prefix: if alone { String::new() } else { folder(&array.model.name) },
                schema_name: array.schema_name.clone(),
                timestamp: self.timestamp,
                end: self.timestamp,
                key: self.key,
                digests: self.digests,
            };
            self.arrays.iter().map(place).collect()
        })
    }

    fn put(&self, object: &str, payload: &[u8]) -> Result<()> {
        let bytes = generic_tile::file(object, WRITTEN, payload, self.key.as_deref())?;
        self.store.put(object, &bytes, Overwrite::Refuse)
    }

    fn put_metadata(&self, prefix: &str, entries: &Attributes) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut payload = Vec::new();
        metadata::write(entries.iter().map(|(k, v)| (k.as_str(), Some(v))), &mut payload)?;
        let name = timestamped_name::timed(self.timestamp, self.timestamp, self.digests);
        self.put(&join(&join(prefix, "__meta"), &name), &payload)
    }

    /// Publishes the files of an array; its schema, which makes it visible, is last.
    fn put_array(&self, array: &NewArray, place: &FragmentDestination, alone: bool) -> Result<()> {
        let file = if alone { self.attributes.clone() } else { Attributes::new() };
        let history = if alone { &self.history[..] } else { &[] };
        self.put_metadata(&place.prefix, &convention::entries(&array.model, &file, history))?;
        let folder = join(&place.prefix, "__schema");
        for (name, payload) in &array.enumerations {
            self.put(&join(&join(&folder, "__enumerations"), name), payload)?;
        }
        for (label, schema) in array.schema.wire.labels.iter().zip(&array.labels) {
            let mut payload = Vec::new();
            schema.write(&mut payload)?;
            let folder = join(&join(&place.prefix, &label.uri), "__schema");
            self.put(&join(&folder, &array.schema_name), &payload)?;
        }
        let mut payload = Vec::new();
        array.schema.wire.write(&mut payload)?;
        self.put(&join(&folder, &array.schema_name), &payload)
    }

    fn put_group(&self) -> Result<()> {
        self.put_metadata("", &convention::group_entries(&self.attributes, &self.history))?;
        let member = |array: &NewArray| Member {
            group: false,
            relative: true,
            uri: folder(&array.model.name),
            name: Some(array.model.name.clone()),
        };
        let members: Vec<Member> = self.arrays.iter().map(member).collect();
        let mut payload = Vec::new();
        group::write(&members, &mut payload);
        let name = format!("{}_2", timestamped_name::timed(self.timestamp, self.timestamp, self.digests));
        self.put(&join("__group", &name), &payload)?;
        self.store.put(crate::group::MARKER, &[], Overwrite::Refuse)
    }
}

/// Folder of a group member: its name, if that is a valid folder name.
fn folder(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b' ');
    let mut folder: String = name
        .bytes()
        .map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect();
    if folder.is_empty() || folder.starts_with(['.', '_']) {
        folder.insert(0, 'a');
    }
    folder
}

impl Writer for TileDbWriter {
    fn begin(&mut self, spec: &ArraySpec) -> Result<usize> {
        if self.places.get().is_some() {
            return Err(Error::invalid("all arrays must be created before the first chunk"));
        }
        let taken = |a: &NewArray| folder(&a.model.name) == folder(&spec.schema.name);
        if self.arrays.iter().any(taken) {
            return Err(Error::invalid(format!("duplicate array name {:?}", spec.schema.name)));
        }
        let mut wire = spec::schema(spec, &self.options)?;
        let labels = super::label::add(&mut wire, &self.options.labels)?;
        let mut enumerations = Vec::new();
        for enumerated in spec.schema.fields.iter().filter_map(|f| f.enumeration.as_ref()) {
            if wire.enumerations.iter().any(|(name, _)| *name == enumerated.name) {
                continue;
            }
            let file = format!("__{}_0", timestamped_name::unique(self.digests));
            let mut payload = Vec::new();
            enumeration::write(enumerated, &file, &mut payload)?;
            wire.enumerations.push((enumerated.name.clone(), file.clone()));
            enumerations.push((file, payload));
        }
        // Rejects attributes that metadata cannot store before anything is written.
        let entries = convention::entries(&spec.schema, &Attributes::new(), &[]);
        metadata::write(entries.iter().map(|(k, v)| (k.as_str(), Some(v))), &mut Vec::new())?;
        let schema = Arc::new(StoredSchema::new(wire, self.key.is_some()));
        let shape = spec.schema.shape().unwrap_or_default();
        let write = if spec.schema.sparse {
            ArrayWrite::Sparse(Box::new(SparseWrite::new(Arc::clone(&schema), false)))
        } else {
            let region = Region::from_shape(&shape);
            let write = DenseWrite::new(Arc::clone(&schema), region, self.store.location())?;
            ArrayWrite::Dense(Box::new(write))
        };
        self.arrays.push(NewArray {
            model: spec.schema.clone(),
            schema,
            enumerations,
            labels,
            schema_name: timestamped_name::timed(self.timestamp, self.timestamp, self.digests),
            write,
        });
        Ok(self.arrays.len() - 1)
    }

    fn wants_stats(&self, _array: usize) -> bool {
        // The format's statistics differ: a fill is a value, and a NaN is visible in the sum.
        false
    }

    fn needs_order(&self, array: usize) -> bool {
        self.array(array).map_or(true, |a| a.write.needs_order())
    }

    fn chunk_order(&self, array: usize) -> Order {
        self.array(array).map_or(Order::RowMajor, |a| a.write.chunk_order())
    }

    fn chunk_cells(&self, array: usize) -> Option<u64> {
        self.array(array).ok().and_then(|a| a.write.chunk_cells())
    }

    fn cell_keys<'a>(&self, array: usize, columns: &[ColumnData<'a>]) -> Result<CellKeys<'a>> {
        self.array(array)?.write.keys(columns)
    }

    fn encode<'a>(
        &self,
        array: usize,
        coords: &[u64],
        columns: &[ColumnData<'a>],
        _stats: Vec<ChunkStats>,
        scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        self.array(array)?.write.encode(coords, columns, self.key.as_deref(), scratch)
    }

    fn push(&self, array: usize, chunk: EncodedChunk<'_>) -> Result<()> {
        self.place(array, chunk)?.store()
    }

    fn place<'a>(&self, array: usize, chunk: EncodedChunk<'a>) -> Result<Pending<'a>> {
        let write = &self.array(array)?.write;
        write.place(&self.places()[array], chunk)
    }

    fn finish_run(&self, array: usize) -> Result<()> {
        let fragment = self.array(array)?.write.finish(&self.places()[array])?;
        self.sealed.lock().unwrap_or_else(PoisonError::into_inner).extend(fragment);
        Ok(())
    }

    fn set_attributes(&mut self, attributes: Attributes) -> Result<()> {
        let entries = convention::group_entries(&attributes, &[]);
        metadata::write(entries.iter().map(|(k, v)| (k.as_str(), Some(v))), &mut Vec::new())?;
        self.attributes = attributes;
        Ok(())
    }

    fn add_history(&mut self, row: HistoryRow) -> Result<()> {
        self.history.push(row);
        Ok(())
    }

    fn set_parents(&mut self, parents: &[String]) -> bool {
        tesseral_format::convention::history::set_parents(&mut self.history, parents)
    }

    fn commit(self: Box<Self>) -> Result<()> {
        let places = self.places();
        let mut fragments = std::mem::take(&mut *self.sealed.lock().unwrap_or_else(PoisonError::into_inner));
        for (array, place) in self.arrays.iter().zip(places) {
            if !self.empty {
                fragments.extend(array.write.finish(place).map_err(|e| e.in_array(&array.model.name))?);
            }
        }
        for object in &self.old {
            match self.store.remove(object) {
                // A folder with files of the new array.
                Err(e) if is_not_empty(&e) => {}
                other => other?,
            }
        }
        for fragment in &mut fragments {
            fragment.commit()?;
        }
        let alone = self.arrays.len() == 1;
        for (array, place) in self.arrays.iter().zip(places) {
            self.put_array(array, place, alone)?;
        }
        if alone { Ok(()) } else { self.put_group() }
    }
}
