//! Writing of a hierarchy: one object per chunk or shard, then the documents of arrays and groups; those of all nodes again in
//! the root, which is last and makes the hierarchy visible.

mod array;
mod codecs;
mod document;
mod shards;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};
use tesseral_core::{Advice, Attributes, ChunkStats, Error, ErrorKind, HistoryRow, Result, Value};
use tesseral_format::convention::history;
use tesseral_format::{
    ArraySpec, ColumnData, CreateOption, CreateOptions, EncodedChunk, OptionTable, OptionType, Scratch,
    Writer, check_paths, check_unique, groups_around,
};
use tesseral_store::{Overwrite, Store, StoreExt};

use self::array::{HierarchyLayout, ZarrArrayWrite};
pub use self::shards::ShardShape;
use crate::open::{V2_ARRAY, V2_ATTRIBUTES, V2_CONSOLIDATED, V2_GROUP, V3, join};
use crate::wire::json::{to_bytes, to_json};

/// The attribute of the root with the history.
pub(crate) const HISTORY: &str = "_tesseral_history";

/// Format-specific options of creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZarrOptions {
    /// Version to write: 2 or 3.
    pub version: u64,
    /// Extents of shards in cells. Default: those of the schema; without them, each chunk is a separate object.
    pub shards: Option<ShardShape>,
}

impl Default for ZarrOptions {
    fn default() -> Self {
        Self { version: 3, shards: None }
    }
}

/// Names of the options.
pub(crate) static OPTIONS: OptionTable<ZarrOptions> = OptionTable(&[
    CreateOption {
        name: "zarr_format",
        kind: OptionType::Integer(|options, version| options.version = version),
        default: "3",
        description: "Version of Zarr to write: 2 or 3.",
    },
    CreateOption {
        name: "shards",
        kind: OptionType::Text(|options, text| {
            options.shards = Some(text.parse()?);
            Ok(())
        }),
        default: "those of a converted source",
        description: "Extents of shards in cells, rounded up to whole chunks: `100,200` or `time=100`; `none` for an object per chunk.",
    },
]);

/// Memory of unfinished shards, if the writer has no limit.
const MEMORY: u64 = 64 << 20;

/// Writer of a new hierarchy.
#[derive(Debug)]
pub(crate) struct ZarrWriter {
    store: Arc<dyn Store>,
    layout: HierarchyLayout,
    arrays: Vec<ZarrArrayWrite>,
    attributes: Attributes,
    groups: BTreeMap<String, Attributes>,
    history: Vec<HistoryRow>,
    committed: bool,
}

/// Documents that make a folder a hierarchy.
const ROOTS: [&str; 4] = [V3, V2_ARRAY, V2_GROUP, V2_CONSOLIDATED];

impl Drop for ZarrWriter {
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        // Best effort: without a root document, readers do not see what remains.
        for root in ROOTS {
            let _ = self.store.remove(root);
        }
        let names =
            self.arrays.iter().map(|array| array.name.as_str()).chain(self.groups.keys().map(String::as_str));
        let tops: BTreeSet<&str> = names.map(|name| name.split('/').next().unwrap_or(name)).collect();
        for top in tops {
            let _ = self.store.remove_all(top);
        }
    }
}

impl ZarrWriter {
    pub(crate) fn create(store: &Arc<dyn Store>, options: &CreateOptions) -> Result<Self> {
        let own: ZarrOptions = options.format.get()?;
        let version = u8::try_from(own.version).ok().filter(|version| [2, 3].contains(version));
        let version =
            version.ok_or_else(|| Error::invalid(format!("Zarr version {} is not 2 or 3", own.version)))?;
        let old = match store.list("") {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound { .. }) => Vec::new(),
            other => other?,
        };
        // Without a document, the root has at most objects that an unfinished writer left.
        if old.iter().any(|entry| ROOTS.contains(&entry.name.as_str())) {
            if options.overwrite == Overwrite::Refuse {
                let detail = format!("output {} already exists", store.location());
                return Err(Error::invalid(detail).hint(Advice::Overwrite));
            }
            if let Some(foreign) = crate::contents::foreign(store)? {
                let detail = format!("{} is not part of a Zarr hierarchy", store.describe(&foreign));
                return Err(Error::invalid(format!("cannot replace {}: {detail}", store.location())));
            }
            // Old chunks would be read as chunks of the new arrays.
            old.iter().try_for_each(|entry| store.remove_all(&entry.name))?;
        }
        Ok(Self {
            store: Arc::clone(store),
            layout: HierarchyLayout {
                version,
                digests: options.digests,
                shards: own.shards,
                memory: options.work_space.map_or(MEMORY, |bytes| bytes / 4),
            },
            arrays: Vec::new(),
            attributes: Attributes::new(),
            groups: BTreeMap::new(),
            history: Vec::new(),
            committed: false,
        })
    }

    fn array(&self, array: usize) -> Result<&ZarrArrayWrite> {
        self.arrays.get(array).ok_or_else(|| Error::invalid(format!("array {array} was not created")))
    }

    /// Attributes of all groups, also of those that only contain others.
    fn all_groups(&self) -> Result<BTreeMap<String, Map<String, Json>>> {
        let mut out = BTreeMap::new();
        for path in self.arrays.iter().map(|array| &array.name).chain(self.groups.keys()) {
            for outer in groups_around(path) {
                out.entry(outer.to_owned()).or_insert_with(Map::new);
            }
        }
        for (path, attributes) in &self.groups {
            out.insert(path.clone(), attribute_map(attributes)?);
        }
        let mut root = attribute_map(&self.attributes)?;
        if !self.history.is_empty() {
            root.insert(HISTORY.to_owned(), history::to_json(&self.history));
        }
        out.insert(String::new(), root);
        Ok(out)
    }

    fn put(&self, object: &str, document: &Map<String, Json>) -> Result<()> {
        self.store.put(object, &to_bytes(document), Overwrite::Replace)
    }

    fn commit_v3(&mut self) -> Result<()> {
        let mut groups = self.all_groups()?;
        let root = groups.remove("").unwrap_or_default();
        let mut nodes = Map::new();
        for (path, attributes) in groups {
            nodes.insert(path, Json::Object(document::group_v3(attributes)));
        }
        for array in &mut self.arrays {
            nodes.insert(array.name.clone(), Json::Object(std::mem::take(&mut array.document)));
        }
        for (path, node) in &nodes {
            if let Json::Object(node) = node {
                self.put(&join(path, V3), node)?;
            }
        }
        let mut root = document::group_v3(root);
        let mut consolidated = Map::new();
        consolidated.insert("kind".to_owned(), json!("inline"));
        consolidated.insert("must_understand".to_owned(), json!(false));
        consolidated.insert("metadata".to_owned(), Json::Object(nodes));
        root.insert("consolidated_metadata".to_owned(), Json::Object(consolidated));
        self.put(V3, &root)
    }

    fn commit_v2(&mut self) -> Result<()> {
        let mut documents = Map::new();
        for (path, attributes) in self.all_groups()? {
            documents.insert(join(&path, V2_ATTRIBUTES), Json::Object(attributes));
            documents.insert(join(&path, V2_GROUP), json!({"zarr_format": 2}));
        }
        for array in &mut self.arrays {
            let (document, attributes) =
                (std::mem::take(&mut array.document), std::mem::take(&mut array.attributes));
            documents.insert(join(&array.name, V2_ATTRIBUTES), Json::Object(attributes));
            documents.insert(join(&array.name, V2_ARRAY), Json::Object(document));
        }
        for (object, document) in documents.iter().filter(|(object, _)| *object != V2_GROUP) {
            if let Json::Object(document) = document {
                self.put(object, document)?;
            }
        }
        let mut consolidated = Map::new();
        consolidated.insert("zarr_consolidated_format".to_owned(), json!(1));
        consolidated.insert("metadata".to_owned(), Json::Object(documents));
        self.put(V2_CONSOLIDATED, &consolidated)?;
        self.put(V2_GROUP, &Map::from_iter([("zarr_format".to_owned(), json!(2))]))
    }
}

/// Rejects names that are not paths of nodes.
fn check_name(path: &str) -> Result<()> {
    let reserved = [V3, V2_ARRAY, V2_GROUP, V2_ATTRIBUTES, V2_CONSOLIDATED];
    let valid = |part: &str| {
        !part.is_empty()
            && !part.bytes().all(|b| b == b'.')
            && !part.starts_with("__")
            && !part.starts_with(".tesseral-")
            && !part.contains(['\0', '\\'])
            && !reserved.contains(&part)
    };
    if path.split('/').all(valid) {
        Ok(())
    } else {
        Err(Error::unsupported(format!("the name {path:?} in Zarr")))
    }
}

/// Attributes as JSON.
fn attribute_map(attributes: &Attributes) -> Result<Map<String, Json>> {
    let to_entry = |(name, value): (&String, &Value)| match to_json(value) {
        Some(json) => Ok((name.clone(), json)),
        None => Err(Error::unsupported(format!("the attribute {name:?} with the value {value} in Zarr"))),
    };
    attributes.iter().map(to_entry).collect()
}

impl Writer for ZarrWriter {
    fn begin(&mut self, spec: &ArraySpec) -> Result<usize> {
        let name = &spec.schema.name;
        check_name(name)?;
        check_unique(self.arrays.iter().map(|own| own.name.as_str()), name)?;
        self.arrays.push(ZarrArrayWrite::new(spec, &self.layout)?);
        Ok(self.arrays.len() - 1)
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
        scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        self.array(array)?.encode(coords, columns, scratch)
    }

    fn push(&self, array: usize, chunk: EncodedChunk<'_>) -> Result<()> {
        let coords = chunk.coords.clone();
        self.array(array)?.store(&coords, &chunk.into_part()?.bytes, &*self.store)
    }

    fn set_attributes(&mut self, attributes: Attributes) -> Result<()> {
        attribute_map(&attributes)?;
        self.attributes = attributes;
        Ok(())
    }

    fn set_group(&mut self, path: &str, attributes: Attributes) -> Result<()> {
        check_name(path)?;
        attribute_map(&attributes)?;
        self.groups.insert(path.to_owned(), attributes);
        Ok(())
    }

    fn add_history(&mut self, row: HistoryRow) -> Result<()> {
        self.history.push(row);
        Ok(())
    }

    fn set_parents(&mut self, parents: &[String]) -> bool {
        history::set_parents(&mut self.history, parents)
    }

    fn commit(mut self: Box<Self>) -> Result<()> {
        check_paths(
            self.arrays.iter().map(|array| array.name.as_str()),
            self.groups.keys().map(String::as_str),
        )?;
        self.arrays.iter().try_for_each(|array| array.chunks.check_complete())?;
        if self.layout.version == 3 { self.commit_v3() } else { self.commit_v2() }?;
        self.committed = true;
        Ok(())
    }
}
