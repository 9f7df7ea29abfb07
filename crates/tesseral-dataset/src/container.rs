//! Opened containers.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tesseral_core::calendar::TimeUnits;
use tesseral_core::dtype::Class;
use tesseral_core::schema::VariableRole;
use tesseral_core::{ArraySchema, Attributes, Cancel, ErrorKind, HistoryRow, Limits, Result, description};
use tesseral_engine::{Handle, Options, Reopen, missing_or_stale, open_listed, watched};
use tesseral_format::convention;
use tesseral_format::{Column, Format, Groups, OpenOptions, TimeRange, Version};
use tesseral_store::{CacheFolder, Location, ReadMode, StorageOptions, Store, StoreExt};

use crate::Array;
use crate::labels::{self, LabelCache, PendingLabels};
use crate::roles::{self, NamedRole, Roles};
use tesseral_registry as registry;

/// Options of opening. [`open`] uses the defaults.
#[derive(Clone, Debug, Default)]
pub struct Open {
    options: OpenOptions,
    access: ReadMode,
    storage: StorageOptions,
    execution: Options,
}

impl Open {
    /// Default options: digests verified, files memory-mapped, all cores, the file's own memory budget.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the memory of every operation to this many bytes, overriding the file's budget. Files are then read instead of
    /// memory-mapped, and results are never views of them.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.execution.memory = Some(bytes);
        self
    }

    /// Disables the verification of digests.
    #[must_use]
    pub fn without_digests(mut self) -> Self {
        self.options.digests = false;
        self
    }

    /// Makes absent chunks an error, in formats where they hold the fill value (Zarr, HDF5).
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.options.strict = true;
        self
    }

    /// Reads with `pread` instead of memory-mapping files.
    #[must_use]
    pub fn access(mut self, access: ReadMode) -> Self {
        self.access = access;
        self
    }

    /// Sets credentials, endpoints and other settings of object stores. Default: those of the environment.
    #[must_use]
    pub fn storage(mut self, storage: StorageOptions) -> Self {
        self.storage = storage;
        self
    }

    /// Keeps bytes of objects in a folder of this machine, by URL and entity tag. Default: the folder that the environment
    /// variable `TESSERAL_CACHE` names, if any.
    #[must_use]
    pub fn cache(mut self, folder: CacheFolder) -> Self {
        self.storage = self.storage.with_cache(folder);
        self
    }

    /// Reads the state at a time range, for formats with versions.
    #[must_use]
    pub fn as_of(mut self, range: TimeRange) -> Self {
        self.options.as_of = Some(range);
        self
    }

    /// Sets resource limits for untrusted sources.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.options.limits = limits;
        self
    }

    /// Sets the key of encrypted arrays.
    #[must_use]
    pub fn key(mut self, key: Vec<u8>) -> Self {
        self.options.key = Some(key);
        self
    }

    /// Sets threads, cancellation and progress of every operation.
    #[must_use]
    pub fn execution(mut self, options: Options) -> Self {
        self.options.cancel = options.cancel.clone();
        self.execution = options;
        self
    }

    /// Sets cancellation of opening, and of every operation without its own flag.
    #[must_use]
    pub fn cancel(mut self, cancel: Cancel) -> Self {
        self.options.cancel = cancel.clone();
        self.execution.cancel = cancel;
        self
    }

    /// Options of the format.
    pub fn format_options(&self) -> &OpenOptions {
        &self.options
    }

    /// Options of operations.
    pub fn execution_options(&self) -> &Options {
        &self.execution
    }

    /// Returns the store of a path or URL without reading. With a memory limit files are read, not memory-mapped: resident
    /// pages of a map count as memory of the process.
    ///
    /// # Errors
    /// `Unsupported` for URLs that cannot be reached, `InvalidRequest` for unknown storage options.
    pub fn store(&self, source: impl AsRef<Path>) -> Result<Arc<dyn Store>> {
        let access = if self.execution.memory.is_some() { ReadMode::Read } else { self.access };
        let store = Location::parse(source)?.store(access, &self.storage)?;
        Ok(store.canceled_by(&self.options.cancel).unwrap_or(store))
    }

    /// Opens a path or URL.
    ///
    /// # Errors
    /// `NotFound`, `Unrecognized`, and errors of the format.
    pub fn open(&self, source: impl AsRef<Path>) -> Result<Container> {
        self.open_store(self.store(source)?)
    }

    /// Opens the content of a store.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_store(&self, store: Arc<dyn Store>) -> Result<Container> {
        let format = store.guarded(|| registry::recognize(&*store))?;
        self.open_as(format, store)
    }

    /// Opens the content of a store whose format is known.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_as(&self, format: &'static dyn Format, store: Arc<dyn Store>) -> Result<Container> {
        self.options.check(format)?;
        let versioned = format.versioned().is_some();
        let store = watched(format, store);
        // A source that is reopened, because another process removed objects, is reopened at the same time.
        let mut options = self.options.clone().with_workers(self.execution.workers());
        if versioned {
            options.as_of = options.as_of.or_else(|| Some(TimeRange { start: 0, end: now() }));
        }
        let reopen: Arc<Reopen> = Arc::new(move || {
            open_listed(|| store.guarded(|| convention::open(format, Arc::clone(&store), &options)))
        });
        let inner = reopen()?;
        Ok(Container {
            reopen: versioned.then_some(ReopenContainer(reopen)),
            ..self.container(format, inner)
        })
    }

    /// Wraps a container that was opened in another way, such as by recovery.
    pub fn container(
        &self,
        format: &'static dyn Format,
        inner: Arc<dyn tesseral_format::ContainerSource>,
    ) -> Container {
        let mut execution = self.execution.clone();
        if execution.memory.is_none() {
            execution.memory = inner.memory_budget().and_then(tesseral_engine::budget_bytes);
        }
        let OpenOptions { digests, as_of, limits, .. } = &self.options;
        let (digests, as_of, limits) = (*digests, *as_of, *limits);
        let (labels, roles) = (Arc::default(), Arc::default());
        Container {
            format,
            inner,
            execution,
            digests,
            as_of,
            limits,
            reopen: None,
            labels,
            roles,
            physical: false,
        }
    }
}

/// Opens a file or folder of any supported format, detected by its content.
///
/// # Errors
/// `NotFound`, `Unrecognized`, and errors of the format.
pub fn open(path: impl AsRef<Path>) -> Result<Container> {
    Open::new().open(path)
}

/// An opened file or folder: an immutable snapshot.
///
/// ```
/// # fn main() -> Result<(), tesseral::Error> {
/// # use tesseral::{ArraySchema, ArraySpec, Create, DType};
/// # let path = std::env::temp_dir().join(format!("tesseral-doc-container-{}.tet", std::process::id()));
/// # let mut session = Create::new().overwrite().begin(&path, "")?;
/// # let height = session.add(&ArraySpec::raw(ArraySchema::dense("height", DType::Int32, &[4], &[4])))?;
/// # session.write(height, &[0; 16])?;
/// # session.commit()?;
/// let container = tesseral::open(&path)?;
/// assert_eq!(container.names().collect::<Vec<_>>(), ["height"]);
/// assert_eq!(container.array("height")?.schema().fields[0].dtype, DType::Int32);
/// # std::fs::remove_file(path).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Container {
    format: &'static dyn Format,
    inner: Arc<dyn tesseral_format::ContainerSource>,
    execution: Options,
    digests: bool,
    as_of: Option<TimeRange>,
    limits: Limits,
    /// How to reopen it if others remove parts of it while it is read.
    reopen: Option<ReopenContainer>,
    /// Cached index coordinates.
    labels: Arc<LabelCache>,
    /// Roles of arrays by attributes of other arrays, computed on first use; the key is the first of the arrays that can refer to
    /// each other.
    roles: Arc<Mutex<HashMap<usize, Arc<Roles>>>>,
    /// Packed fields are read as physical values.
    physical: bool,
}

#[derive(Clone)]
struct ReopenContainer(Arc<Reopen>);

impl std::fmt::Debug for ReopenContainer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Reopened").finish_non_exhaustive()
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Container {
    /// The format.
    pub fn format(&self) -> &'static dyn Format {
        self.format
    }

    /// The format's container.
    pub fn inner(&self) -> &Arc<dyn tesseral_format::ContainerSource> {
        &self.inner
    }

    /// The same container, whose arrays show physical values in packed fields instead of stored ones.
    #[must_use]
    pub fn physical(mut self) -> Self {
        self.physical = true;
        self
    }

    /// The same options around other arrays of the source.
    pub(crate) fn with_source(&self, inner: Arc<dyn tesseral_format::ContainerSource>) -> Self {
        Self { inner, reopen: None, labels: Arc::default(), roles: Arc::default(), ..self.clone() }
    }

    /// The store it was opened from.
    pub fn location(&self) -> &str {
        self.inner.store().location()
    }

    /// Number of arrays.
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// Returns whether the container has no arrays.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Names of the arrays, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|i| self.inner.name(i))
    }

    /// Returns an array by name.
    ///
    /// # Errors
    /// `NotFound`, with the available names.
    pub fn array(&self, name: &str) -> Result<Array> {
        self.array_at(self.inner.find(name)?)
    }

    /// Returns an array by name, or a column: `array/field`, a field of the only array, or a dimension of a sparse one.
    ///
    /// # Errors
    /// `NotFound`, with the available names; errors of loading its metadata.
    pub fn find(&self, name: &str) -> Result<(Array, Option<Column>)> {
        let error = match self.array(name) {
            Ok(array) => return Ok((array, None)),
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound { .. }) => return Err(error),
            Err(error) => error,
        };
        let column = |array: Array, name: &str| {
            if !array.schema().sparse {
                array.schema().field(name)?;
            }
            let column = array.column(name)?;
            Ok((array, Some(column)))
        };
        if let Some((array, field)) = name.rsplit_once('/')
            && let Ok(array) = self.array(array)
        {
            return column(array, field);
        }
        if let Some(only) = self.only_array()? {
            let array = self.array_at(only)?;
            if array.column(name).is_ok() || array.schema().fields.len() > 1 {
                return column(array, name);
            }
        }
        Err(error)
    }

    /// Index of the only array that does not describe others; `None` if there are several. Coordinates, bounds and grid mappings
    /// describe other arrays, by their own [role](Self::role) or by attributes of these.
    ///
    /// # Errors
    /// Errors of loading the metadata of arrays.
    pub fn only_array(&self) -> Result<Option<usize>> {
        /// Among more arrays than these, the attributes of all are not read.
        const CANDIDATES: usize = 256;
        if self.len() == 1 {
            return Ok(Some(0));
        }
        let mut data = Vec::new();
        for index in 0..self.len() {
            if self.inner.store().guarded(|| self.inner.array(index))?.schema().role == VariableRole::Data {
                data.push(index);
            }
            if data.len() > CANDIDATES {
                return Ok(None);
            }
        }
        if data.len() > 1 {
            let mut left = Vec::new();
            for index in data {
                if self.role(index)? == VariableRole::Data {
                    left.push(index);
                }
            }
            data = left;
        }
        Ok(<[usize; 1]>::try_from(data).ok().map(|[only]| only))
    }

    /// Returns an array by index. Index coordinates of its dimensions are read as their labels, unless they are large: then a
    /// selection reads them.
    ///
    /// # Errors
    /// `NotFound` if the index is out of bounds; errors of loading its metadata.
    pub fn array_at(&self, index: usize) -> Result<Array> {
        self.lazy_array(index)?.with_small_labels()
    }

    /// As [`array_at`](Self::array_at), but index coordinates are read only when a selection or a condition needs their labels.
    ///
    /// # Errors
    /// As [`array_at`](Self::array_at).
    pub fn lazy_array(&self, index: usize) -> Result<Array> {
        let array = self.unlabeled(index)?;
        let pending = PendingLabels::new(self, index, &array);
        let array = array.with_pending(pending);
        Ok(match self.time_of_bounds(index, array.schema()) {
            Some(units) => array.counting(units),
            None => array,
        })
    }

    /// The time that the cells of bounds count where they have no units of their own: that of the coordinate whose bounds they are, as
    /// the CF conventions have it.
    fn time_of_bounds(&self, index: usize, schema: &ArraySchema) -> Option<TimeUnits> {
        let [field] = schema.fields.as_slice() else { return None };
        let numbers = matches!(field.dtype.class(), Class::Int | Class::UInt | Class::Float);
        let pairs = schema.dims.last().is_some_and(|dim| dim.extent == Some(2));
        let own = description::text_attribute(schema, field, "units").is_some();
        if !numbers || !pairs || own || !matches!(schema.role, VariableRole::Data | VariableRole::Bounds) {
            return None;
        }
        let named = self.named_role(index).filter(|named| named.role == VariableRole::Bounds)?;
        let of = self.inner.store().guarded(|| self.inner.array(named.by)).ok()?;
        let [coordinate] = of.schema().fields.as_slice() else { return None };
        coordinate.time
    }

    /// The role of an array: its own, or the one that attributes of other arrays give it (`coordinates`, `bounds`, `grid_mapping`,
    /// `ancillary_variables`). The first call reads the attributes of all arrays.
    ///
    /// # Errors
    /// Errors of loading the metadata of the array.
    pub fn role(&self, index: usize) -> Result<VariableRole> {
        let own = self.inner.store().guarded(|| self.inner.array(index))?.schema().role;
        Ok(self.role_among_others(index, own))
    }

    /// The role of an array that has a role by its own metadata.
    pub fn role_among_others(&self, index: usize, own: VariableRole) -> VariableRole {
        if own != VariableRole::Data {
            return own;
        }
        self.named_role(index).map_or(own, |named| named.role)
    }

    /// The role that an attribute of another array gives an array.
    fn named_role(&self, index: usize) -> Option<NamedRole> {
        /// Number of sets of arrays whose roles are kept.
        const KEPT: usize = 64;
        let among = self.inner.companions(index);
        if among.len() < 2 {
            return None;
        }
        let kept = || self.roles.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept().get(&among.start).map(Arc::clone);
        let named = known.unwrap_or_else(|| {
            let found = Arc::new(roles::of_attributes(self, among.clone()));
            let mut kept = kept();
            if kept.len() >= KEPT {
                kept.clear();
            }
            Arc::clone(kept.entry(among.start).or_insert(found))
        });
        named.get(&index).copied()
    }

    pub(crate) fn labels(&self) -> &LabelCache {
        &self.labels
    }

    /// Index of the array that is the index coordinate of a dimension of another array.
    pub(crate) fn coordinate(
        &self,
        index: usize,
        array: &Array,
        dim: &str,
        extent: Option<u64>,
    ) -> Option<usize> {
        if labels::is_index(array.schema(), dim, extent) {
            return Some(index);
        }
        let own = self.inner.sibling(index, dim).filter(|own| *own != index)?;
        let source = self.inner.store().guarded(|| self.inner.array(own)).ok()?;
        labels::is_index(source.schema(), dim, extent).then_some(own)
    }

    /// Returns an array with only its stored labels.
    pub(crate) fn unlabeled(&self, index: usize) -> Result<Array> {
        self.execution.cancel.check()?;
        let handle = Handle::new(&*self.inner, index, self.digests)?.with_limits(self.limits);
        let handle = match &self.reopen {
            Some(ReopenContainer(reopen)) => handle.reopened_by(Arc::clone(reopen), self.inner.name(index)),
            None => handle,
        };
        let handle = if self.physical { handle.physical() } else { handle };
        // Objects of messages are numbered, also the only one.
        let whole = self.len() == 1 && self.format.messages().is_none();
        Ok(Array::new(handle, self.execution.clone()).with_whole(whole))
    }

    /// Attributes of the container.
    pub fn attributes(&self) -> &Attributes {
        self.inner.attributes()
    }

    /// Attributes of its groups by path, in order. Groups with arrays but without attributes are not listed.
    pub fn groups(&self) -> &Groups {
        self.inner.groups()
    }

    /// Provenance rows.
    pub fn history(&self) -> &[HistoryRow] {
        self.inner.history()
    }

    /// Versions, for formats that support them.
    ///
    /// # Errors
    /// Errors of reading them.
    pub fn versions(&self) -> Result<Vec<Version>> {
        let versions = self.inner.store().guarded(|| self.inner.versions());
        versions.map_err(|error| match &self.reopen {
            Some(ReopenContainer(reopen)) => missing_or_stale(error, self.location(), &**reopen),
            None => error,
        })
    }

    /// Time range of the snapshot, if not everything.
    pub fn as_of(&self) -> Option<TimeRange> {
        self.as_of
    }

    /// Resource limits of operations on its arrays.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Options of operations on its arrays.
    pub fn execution(&self) -> &Options {
        &self.execution
    }
}
