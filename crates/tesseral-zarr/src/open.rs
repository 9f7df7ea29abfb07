//! Opening: the nodes of a hierarchy, from consolidated metadata or by listing.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};
use tesseral_core::{Attributes, Error, ErrorKind, HistoryRow, MetadataCost, Result};
use tesseral_format::convention::history;
use tesseral_format::{ArraySource, ContainerSource, Groups, OpenOptions, file_stem};
use tesseral_store::{ObjectKind, Store, StoreExt};

use crate::array::ZarrArray;
use crate::wire::node::{ArrayMetadata, check_extensions, check_version, taken_attributes};
use crate::wire::{damaged, json};

pub(crate) const V3: &str = "zarr.json";
pub(crate) const V2_ARRAY: &str = ".zarray";
pub(crate) const V2_GROUP: &str = ".zgroup";
pub(crate) const V2_ATTRIBUTES: &str = ".zattrs";
pub(crate) const V2_CONSOLIDATED: &str = ".zmetadata";

/// The most nodes of a hierarchy that is listed.
const MAX_NODES: usize = 1 << 20;

/// Joins a folder and a name.
pub(crate) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// An opened hierarchy.
#[derive(Debug)]
pub(crate) struct ZarrContainer {
    store: Arc<dyn Store>,
    arrays: Vec<(String, Arc<ZarrArray>)>,
    attributes: Attributes,
    groups: Groups,
    history: Vec<HistoryRow>,
    /// Arrays that cannot be read, with the reason.
    unread: Vec<(String, String)>,
    version: u8,
    consolidated: bool,
    /// Bytes of the metadata that were read.
    pub metadata_bytes: u64,
}

/// Nodes that are being collected.
struct Hierarchy<'a> {
    store: &'a Arc<dyn Store>,
    options: &'a OpenOptions,
    arrays: Vec<(String, ArrayMetadata)>,
    groups: Groups,
    unread: Vec<(String, String)>,
    metadata_bytes: u64,
    /// What the values of attributes take in memory.
    cost: MetadataCost,
    nodes: usize,
}

impl Hierarchy<'_> {
    /// Reads a document; `None` if it does not exist.
    fn document(&mut self, object: &str) -> Result<Option<Map<String, Json>>> {
        self.options.cancel.check()?;
        let limit = self.options.limits.metadata_bytes.saturating_sub(self.metadata_bytes);
        match self.store.read_all(object, limit) {
            Ok(bytes) => {
                self.metadata_bytes += bytes.len() as u64;
                self.nodes += 1;
                if self.nodes > MAX_NODES {
                    return Err(Error::limit(
                        "the nodes of a Zarr hierarchy",
                        self.nodes as u64,
                        MAX_NODES as u64,
                    ));
                }
                let parsed = MetadataCost::of_json(&bytes).parsed();
                self.options.limits.check_values(parsed, self.metadata_bytes)?;
                json::parse(&bytes, &self.store.describe(object)).map(Some)
            }
            Err(e) if matches!(e.kind(), ErrorKind::NotFound { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Adds an array, or the reason why it cannot be read.
    fn add(&mut self, path: &str, parsed: Result<ArrayMetadata>) -> Result<()> {
        match parsed {
            Ok(metadata) => self.arrays.push((path.to_owned(), metadata)),
            // A hierarchy that is an array has nothing else to show.
            Err(e) if path.is_empty() => return Err(e),
            Err(e) => match e.kind() {
                ErrorKind::Unsupported { feature } => self.unread.push((path.to_owned(), feature.clone())),
                _ => return Err(e.in_array(path)),
            },
        }
        Ok(())
    }

    /// Counts attributes together with those of the other nodes.
    fn count(&mut self, attributes: &Map<String, Json>) -> Result<()> {
        self.cost = self.cost.and(json::cost(attributes));
        self.options.limits.check_values(self.cost, self.metadata_bytes)
    }

    /// Adds a node of v3.
    fn add_v3(&mut self, path: &str, mut map: Map<String, Json>) -> Result<bool> {
        let object = self.store.describe(&join(path, V3));
        map.get("attributes").and_then(Json::as_object).map_or(Ok(()), |own| self.count(own))?;
        match map.get("node_type").and_then(Json::as_str) {
            Some("array") => {
                self.add(path, ArrayMetadata::parse_v3(map, &object))?;
                Ok(false)
            }
            Some("group") => {
                check_version(&map, 3, &object)?;
                check_extensions(&map, &object)?;
                self.groups.insert(path.to_owned(), json::attributes(taken_attributes(&mut map)));
                Ok(true)
            }
            _ => Err(damaged(&object, "no valid member \"node_type\"")),
        }
    }

    fn add_v2_array(
        &mut self,
        path: &str,
        array: &Map<String, Json>,
        attributes: Map<String, Json>,
    ) -> Result<()> {
        let object = self.store.describe(&join(path, V2_ARRAY));
        self.count(&attributes)?;
        self.add(path, ArrayMetadata::parse_v2(array, attributes, &object))
    }

    fn add_v2_group(
        &mut self,
        path: &str,
        group: &Map<String, Json>,
        attributes: Map<String, Json>,
    ) -> Result<()> {
        check_version(group, 2, &self.store.describe(&join(path, V2_GROUP)))?;
        self.count(&attributes)?;
        self.groups.insert(path.to_owned(), json::attributes(attributes));
        Ok(())
    }

    /// Adds the node of a folder, found by listing, and those below it.
    fn visit(&mut self, path: &str, version: u8, depth: usize) -> Result<()> {
        let group = match version {
            3 => match self.document(&join(path, V3))? {
                Some(map) => self.add_v3(path, map)?,
                None => return Ok(()),
            },
            _ => {
                let array = self.document(&join(path, V2_ARRAY))?;
                let group = if array.is_some() { None } else { self.document(&join(path, V2_GROUP))? };
                if array.is_none() && group.is_none() {
                    return Ok(());
                }
                let attributes = self.document(&join(path, V2_ATTRIBUTES))?.unwrap_or_default();
                match (&array, &group) {
                    (Some(array), _) => self.add_v2_array(path, array, attributes)?,
                    (None, Some(group)) => self.add_v2_group(path, group, attributes)?,
                    (None, None) => {}
                }
                group.is_some()
            }
        };
        if group { self.visit_members(path, version, depth) } else { Ok(()) }
    }

    /// Adds the nodes of a group's folders. Links are not followed: they can form circles.
    fn visit_members(&mut self, path: &str, version: u8, depth: usize) -> Result<()> {
        let Some(depth) = depth.checked_sub(1) else {
            let most = self.options.limits.depth as u64;
            return Err(Error::limit("the nesting of Zarr groups", most + 1, most));
        };
        for entry in self.store.list(path)? {
            if entry.kind == ObjectKind::Folder {
                self.visit(&join(path, &entry.name), version, depth)?;
            }
        }
        Ok(())
    }

    /// Adds the nodes of consolidated metadata of v3.
    fn consolidated_v3(&mut self, nodes: Map<String, Json>) -> Result<()> {
        let object = self.store.describe(V3);
        for (path, node) in nodes {
            check_member(&path, &object, self.options)?;
            let Json::Object(map) = node else {
                return Err(damaged(&object, format!("invalid node {path:?}")));
            };
            self.add_v3(&path, map)?;
        }
        Ok(())
    }

    /// Adds the nodes of `.zmetadata`.
    fn consolidated_v2(&mut self, mut documents: Map<String, Json>) -> Result<()> {
        let object = self.store.describe(V2_CONSOLIDATED);
        for key in documents.keys().cloned().collect::<Vec<_>>() {
            let (path, name) = key.rsplit_once('/').unwrap_or(("", &key));
            if !path.is_empty() {
                check_member(path, &object, self.options)?;
            }
            if ![V2_ARRAY, V2_GROUP].contains(&name) {
                continue;
            }
            let mut taken = |key: &str| match documents.get_mut(key).map(Json::take) {
                Some(Json::Object(map)) => Some(map),
                _ => None,
            };
            let document =
                taken(&key).ok_or_else(|| damaged(&object, format!("{key:?} is not a document")))?;
            let attributes = taken(&join(path, V2_ATTRIBUTES)).unwrap_or_default();
            match name {
                V2_ARRAY => self.add_v2_array(path, &document, attributes)?,
                _ => self.add_v2_group(path, &document, attributes)?,
            }
        }
        Ok(())
    }
}

/// Rejects paths that are not members of the hierarchy.
fn check_member(path: &str, object: &str, options: &OpenOptions) -> Result<()> {
    if path.is_empty() {
        return Err(damaged(object, "invalid path \"\""));
    }
    check_path(path, object, options.limits.depth)
}

/// Rejects paths outside the hierarchy.
pub(crate) fn check_path(path: &str, object: &str, most: usize) -> Result<()> {
    let parts = || path.split('/');
    let inside = parts().all(|part| !matches!(part, "" | "." | "..") && !part.contains('\0'));
    if !inside && !path.is_empty() {
        return Err(damaged(object, format!("invalid path {path:?}")));
    }
    let (depth, most) = (parts().count() as u64, most as u64);
    if depth > most {
        return Err(Error::limit("the nesting of Zarr groups", depth, most));
    }
    Ok(())
}

impl ZarrContainer {
    pub(crate) fn open(store: Arc<dyn Store>, options: &OpenOptions) -> Result<Self> {
        let mut found = Hierarchy {
            store: &store,
            options,
            arrays: Vec::new(),
            groups: Groups::new(),
            unread: Vec::new(),
            metadata_bytes: 0,
            cost: MetadataCost::default(),
            nodes: 0,
        };
        let (version, consolidated) = read_root(&mut found)?;
        let Hierarchy { arrays, mut groups, unread, metadata_bytes, .. } = found;
        let mut attributes = groups.shift_remove("").unwrap_or_default();
        let history = history::from_value(attributes.shift_remove(crate::write::HISTORY));
        let open = |(path, metadata): (String, ArrayMetadata)| {
            // The root is named after its folder.
            let name =
                if path.is_empty() { file_stem(store.location(), &["zarr"], "array") } else { path.clone() };
            let array = ZarrArray::new(&name, &path, &metadata, &store, options)?;
            Ok((name, Arc::new(array)))
        };
        let arrays = arrays.into_iter().map(open).collect::<Result<_>>()?;
        Ok(Self { arrays, attributes, groups, history, unread, version, consolidated, metadata_bytes, store })
    }
}

/// Reads the root and the nodes below it; returns the version, and whether the metadata are consolidated.
fn read_root(found: &mut Hierarchy<'_>) -> Result<(u8, bool)> {
    let depth = found.options.limits.depth;
    if let Some(mut root) = found.document(V3)? {
        let consolidated = root.get_mut("consolidated_metadata").and_then(|c| c.get_mut("metadata"));
        let consolidated = consolidated.map(Json::take);
        if !found.add_v3("", root)? {
            return Ok((3, false));
        }
        return match consolidated {
            Some(Json::Object(nodes)) => found.consolidated_v3(nodes).map(|()| (3, true)),
            _ => found.visit_members("", 3, depth).map(|()| (3, false)),
        };
    }
    if let Some(mut consolidated) = found.document(V2_CONSOLIDATED)? {
        let object = found.store.describe(V2_CONSOLIDATED);
        let Some(Json::Object(documents)) = consolidated.get_mut("metadata").map(Json::take) else {
            return Err(damaged(&object, "no member \"metadata\""));
        };
        return found.consolidated_v2(documents).map(|()| (2, true));
    }
    found.visit("", 2, depth)?;
    if found.nodes == 0 {
        let detail = format!("neither {V3} nor {V2_GROUP} or {V2_ARRAY}");
        return Err(Error::corrupt("Zarr hierarchy", found.store.location(), None, detail));
    }
    Ok((2, false))
}

impl ContainerSource for ZarrContainer {
    fn format(&self) -> &'static str {
        crate::ID
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn len(&self) -> usize {
        self.arrays.len()
    }

    fn name(&self, index: usize) -> &str {
        self.arrays.get(index).map_or("", |(name, _)| name)
    }

    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>> {
        match self.arrays.get(index) {
            Some((_, array)) => Ok(Arc::clone(array) as Arc<dyn ArraySource>),
            None => Err(self.out_of_bounds(index)),
        }
    }

    fn find(&self, name: &str) -> Result<usize> {
        if let Some(index) = self.arrays.iter().position(|(known, _)| known == name) {
            return Ok(index);
        }
        if let Some((_, feature)) = self.unread.iter().find(|(known, _)| known == name) {
            return Err(Error::unsupported(feature).in_array(name));
        }
        Err(Error::not_found("array", name, self.names()))
    }

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn groups(&self) -> &Groups {
        &self.groups
    }

    fn history(&self) -> &[HistoryRow] {
        &self.history
    }

    fn unread(&self) -> Vec<String> {
        self.unread.iter().map(|(name, feature)| format!("{name}: {feature} is not supported")).collect()
    }

    fn details(&self) -> Json {
        let unread: Map<String, Json> =
            self.unread.iter().map(|(name, feature)| (name.clone(), json!(feature))).collect();
        json!({"zarr_format": self.version, "consolidated": self.consolidated, "unread": unread})
    }
}
