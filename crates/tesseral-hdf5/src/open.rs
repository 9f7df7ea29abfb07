//! Opening a file: groups and datasets in the order of the file.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use hdf5_reader::error::Error as ParserError;
use hdf5_reader::group::Group;
use tesseral_core::{Attributes, Error, ErrorKind, HistoryRow, Result};
use tesseral_format::{ArraySource, Groups, OpenOptions};
use tesseral_store::{JoinedStore, Store, StoreExt};

use crate::array::Hdf5Array;
use crate::attribute::ObjectAttributes;
use crate::dataset::{DatasetInfo, StorageLayout};
use crate::dimension::{self, NamedExtent, Scales};
use crate::error::is_virtual;
use crate::file::File;
use crate::links;
use crate::siblings::Siblings;
use crate::storage::MetadataStorage;
use crate::virtual_array::VirtualDataset;
use crate::write::history;

/// The signature of a file.
pub(crate) const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";
/// Offsets of a signature: 0, or a power of two from here on, after a block for users.
const FIRST_BLOCK: u64 = 512;
/// The maximum number of groups and datasets.
const OBJECTS: usize = 1 << 20;

/// A member that has no representation: its path and the reason.
#[derive(Debug)]
pub(crate) struct UnreadObject {
    pub(crate) path: String,
    pub(crate) error: Error,
}

impl UnreadObject {
    /// The error again, for a request of the object.
    pub(crate) fn again(&self) -> Error {
        let feature = match self.error.kind() {
            ErrorKind::Unsupported { feature } => feature.clone(),
            _ => self.error.to_string(),
        };
        let error = Error::unsupported(feature);
        match self.error.advice() {
            Some(advice) => error.hint(advice.clone()),
            None => error,
        }
    }
}

impl fmt::Display for UnreadObject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path, self.error)?;
        match self.error.advice() {
            Some(advice) => write!(out, " ({advice})"),
            None => Ok(()),
        }
    }
}

/// The content of a file.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    pub(crate) file: File,
    /// The file, and others that hold cells of its datasets.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) names: Vec<String>,
    pub(crate) arrays: Vec<Arc<dyn ArraySource>>,
    /// Those of the arrays that are virtual datasets.
    pub(crate) virtuals: Vec<Arc<VirtualDataset>>,
    pub(crate) attributes: Attributes,
    pub(crate) groups: Groups,
    /// Dimensions by path.
    pub(crate) dims: Vec<(String, NamedExtent)>,
    pub(crate) unread: Vec<UnreadObject>,
    pub(crate) history: Vec<HistoryRow>,
}

/// Finds the offset of the signature.
fn signature(store: &dyn Store, len: u64) -> Result<u64> {
    let mut at = 0_u64;
    while at.saturating_add(SIGNATURE.len() as u64) <= len {
        if *store.read("", at..at + SIGNATURE.len() as u64)? == SIGNATURE {
            return Ok(at);
        }
        at = if at == 0 { FIRST_BLOCK } else { at.saturating_mul(2) };
    }
    Err(Error::corrupt("signature", store.describe(""), 0, "not an HDF5 file"))
}

/// Objects found in the groups.
struct GroupWalk<'a> {
    file: &'a File,
    options: &'a OpenOptions,
    datasets: Vec<(String, DatasetInfo)>,
    groups: Groups,
    unread: Vec<UnreadObject>,
    /// Addresses of groups that were entered: hard links can form cycles.
    entered: HashSet<u64>,
    objects: usize,
    history: Vec<HistoryRow>,
    /// Links to virtual datasets that were found before their targets.
    linked: Vec<(String, Group, String)>,
}

impl GroupWalk<'_> {
    fn group(&mut self, path: &str, group: &Group, depth: usize) -> Result<()> {
        self.options.cancel.check()?;
        if depth > self.options.limits.depth {
            return Err(Error::limit("nested groups", depth as u64, self.options.limits.depth as u64));
        }
        if !self.entered.insert(group.address()) {
            return Ok(());
        }
        let raw = group.raw_attributes().map_err(|e| self.file.error(e, "a group"))?;
        let attributes = ObjectAttributes::new(self.file, group.address(), raw)?;
        if depth == 0 {
            self.history = attributes.hidden_text("_NCProperties").map(history).unwrap_or_default();
        }
        let attributes = self.visible(path, attributes);
        self.groups.insert(path.to_owned(), attributes);
        let mut inner = Vec::new();
        for member in links::members(self.file, group)? {
            let own = if path.is_empty() { member.name.clone() } else { format!("{path}/{}", member.name) };
            self.objects += 1;
            if self.objects > OBJECTS {
                return Err(Error::limit("objects of a file", self.objects as u64, OBJECTS as u64));
            }
            if let Some(target) = member.external {
                let error = Error::unsupported(format!("a link to another file ({target})"))
                    .hint(format!("open {target} itself"));
                self.unread.push(UnreadObject { path: own, error });
                continue;
            }
            match group.dataset(&member.name) {
                Ok(dataset) => self.dataset(own, &dataset)?,
                Err(error) if is_absent(&error) => match group.group(&member.name) {
                    Ok(group) => inner.push((own, group)),
                    // A committed datatype, or a link without a target.
                    Err(error) if is_absent(&error) => {}
                    Err(error) => self.skip(own, self.file.error(error, "a group"))?,
                },
                Err(error) if is_virtual(&error) => match member.address {
                    Some(address) if self.file.show_virtual(address)? => {
                        self.again(own, group, &member.name)?
                    }
                    // The target of a link is shown when it is found.
                    _ => self.linked.push((own, group.clone(), member.name)),
                },
                Err(error) => self.skip(own, self.file.error(error, "a dataset"))?,
            }
        }
        for (path, group) in inner {
            self.group(&path, &group, depth + 1)?;
        }
        Ok(())
    }

    /// Opens a virtual dataset that the parser can read now.
    fn again(&mut self, path: String, group: &Group, name: &str) -> Result<()> {
        match group.dataset(name) {
            Ok(dataset) => self.dataset(path, &dataset),
            Err(error) => self.skip(path, self.file.error(error, "a virtual dataset")),
        }
    }

    fn dataset(&mut self, path: String, dataset: &hdf5_reader::Dataset) -> Result<()> {
        self.options.cancel.check()?;
        let parts = match DatasetInfo::parts(self.file, dataset) {
            Ok(parts) => parts,
            Err(error) => return self.skip(path, error),
        };
        let mut listed = false;
        for (member, part) in parts {
            let own = member.map_or_else(|| path.clone(), |member| format!("{path}/{member}"));
            match part {
                Ok(mut info) => {
                    let unread = std::mem::take(&mut info.attributes.unread);
                    // Members have the attributes of their dataset.
                    let unread = unread.into_iter().filter(|_| !listed);
                    self.unread.extend(unread.map(|(name, reason)| UnreadObject {
                        path: format!("{path}@{name}"),
                        error: Error::unsupported(reason),
                    }));
                    listed = true;
                    self.objects += 1;
                    self.datasets.push((own, info));
                }
                Err(error) => self.skip(own, error)?,
            }
        }
        if self.objects > OBJECTS {
            return Err(Error::limit("objects of a file", self.objects as u64, OBJECTS as u64));
        }
        Ok(())
    }

    /// Lists an object that cannot be read. Damage of one object does not hide the others, but of the source itself it does.
    fn skip(&mut self, path: String, error: Error) -> Result<()> {
        match error.kind() {
            ErrorKind::Unsupported { .. } => {
                self.unread.push(UnreadObject { path, error });
                Ok(())
            }
            _ => Err(error.in_array(path)),
        }
    }

    /// The visible attributes of a group; the others are listed as unread.
    fn visible(&mut self, path: &str, attributes: ObjectAttributes) -> Attributes {
        self.unread.extend(attributes.unread.into_iter().map(|(name, reason)| UnreadObject {
            path: format!("{path}@{name}"),
            error: Error::unsupported(reason),
        }));
        attributes.shown
    }
}

fn is_absent(error: &ParserError) -> bool {
    match error {
        ParserError::DatasetNotFound(_) | ParserError::GroupNotFound(_) => true,
        ParserError::Context { source, .. } => is_absent(source),
        _ => false,
    }
}

impl OpenedFile {
    /// The number of the array with a name.
    pub(crate) fn find(&self, name: &str) -> Result<usize> {
        let plain = name.trim_start_matches('/');
        if let Some(index) = self.names.iter().position(|own| own == plain) {
            return Ok(index);
        }
        match self.unread.iter().find(|unread| unread.path == plain) {
            Some(unread) => Err(unread.again().in_array(plain)),
            None => Err(Error::not_found("array", name, self.names.clone())),
        }
    }

    /// Opens a file; `depth` is the number of virtual datasets on the way to it.
    pub(crate) fn new(store: &Arc<dyn Store>, options: &OpenOptions, depth: usize) -> Result<Self> {
        let len = store.len("")?;
        let base = signature(&**store, len)?;
        let storage = MetadataStorage::new(Arc::clone(store), base, len - base, options.cancel.clone());
        let file = File::open(Arc::new(storage), options, Siblings::new(store, options, depth))?;
        let end = file.parser.superblock().eof_address;
        if end > len && !file.is_undefined(end) {
            return Err(Error::truncated("file", file.storage.describe(), 0, end, len));
        }
        let root = file.parser.root_group().map_err(|e| file.error(e, "the root group"))?;
        let mut walk = GroupWalk {
            file: &file,
            options,
            datasets: Vec::new(),
            groups: Groups::new(),
            unread: Vec::new(),
            entered: HashSet::new(),
            objects: 0,
            history: Vec::new(),
            linked: Vec::new(),
        };
        walk.group("", &root, 0)?;
        for (path, group, name) in std::mem::take(&mut walk.linked) {
            walk.again(path, &group, &name)?;
        }
        let GroupWalk { datasets, mut groups, unread, history, .. } = walk;
        let attributes = groups.shift_remove("").unwrap_or_default();
        let scales = Scales::new(datasets.iter().map(|(path, info)| (path.as_str(), info)));
        let mut opened = Self {
            store: Arc::clone(store),
            file,
            names: Vec::new(),
            arrays: Vec::new(),
            virtuals: Vec::new(),
            attributes,
            groups,
            dims: Vec::new(),
            unread,
            history,
        };
        for (path, info) in datasets {
            opened.add(&path, info, &scales)?;
        }
        if !opened.virtuals.is_empty() || !opened.file.siblings.is_empty() {
            opened.store = Arc::new(JoinedStore::new(Arc::clone(&opened.file.siblings)));
        }
        Ok(opened)
    }

    /// Adds a dataset: as a dimension, as an array, or as both.
    fn add(&mut self, path: &str, info: DatasetInfo, scales: &Scales) -> Result<()> {
        let dims = scales.dimensions(&info);
        let own = path.rsplit('/').next().unwrap_or(path);
        if let [dim, ..] = dims.as_slice()
            && dim.name == own
        {
            self.dims.push((path.to_owned(), dim.clone()));
        }
        if dimension::is_dimension_only(&info) {
            return Ok(());
        }
        let name = dimension::variable_name(path);
        match self.array(&name, info, &dims) {
            Ok(array) => {
                self.names.push(name);
                self.arrays.push(array);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported { .. }) => {
                self.unread.push(UnreadObject { path: name, error });
                Ok(())
            }
            Err(error) => Err(error.in_array(name)),
        }
    }

    /// The array of a dataset.
    fn array(
        &mut self,
        name: &str,
        mut info: DatasetInfo,
        dims: &[NamedExtent],
    ) -> Result<Arc<dyn ArraySource>> {
        if let StorageLayout::Virtual(mappings) = &mut info.layout {
            let mappings = std::mem::take(mappings);
            let array = Arc::new(VirtualDataset::new(name, info, mappings, dims, &self.file)?);
            self.virtuals.push(Arc::clone(&array));
            return Ok(array);
        }
        Ok(Arc::new(Hdf5Array::new(name, info, dims, &self.file)?))
    }
}
