//! Columns of a schema, and which nodes and buffers of a record batch are theirs.

use arrow_ipc as ipc;
use tesseral_core::{Attributes, DType, Error, Limits, Result, Value};
use tesseral_format::table::{TABLE_KEY, TableDocument};

use crate::kind::{ArrowKind, Layout};

/// The most columns, those of groups included.
const COLUMNS: usize = 1 << 15;

/// The first node and buffer of an array in a record batch. Arrays of views before it have more buffers, a number per batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) node: usize,
    pub(crate) buffer: usize,
    pub(crate) views: usize,
}

impl Place {
    /// The buffers that hold the cells, besides their validity: positions from the first buffer of the array.
    pub(crate) fn values(kind: &ArrowKind) -> &'static [usize] {
        match (kind.layout, kind.child) {
            (Layout::Bits | Layout::Plain(_), false) => &[1],
            // Validity of the lists and of their values come before.
            (Layout::Bits | Layout::Plain(_), true) => &[2],
            (Layout::Offsets { .. }, false) => &[1, 2],
            (Layout::Offsets { .. }, true) => &[1, 3],
            // The long texts follow.
            (Layout::Views, _) => &[1],
        }
    }
}

/// The dictionary of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Indexed {
    pub(crate) id: i64,
    /// Type of the indices.
    pub(crate) index: ArrowKind,
}

/// A column that is an array.
#[derive(Clone, Debug)]
pub(crate) struct SchemaColumn {
    pub(crate) name: String,
    /// Type of the cells: of the values of a dictionary, if there is one.
    pub(crate) kind: ArrowKind,
    pub(crate) indexed: Option<Indexed>,
    pub(crate) place: Place,
    /// The groups around it, outermost first.
    pub(crate) groups: Vec<Place>,
    pub(crate) attributes: Attributes,
}

/// A parsed schema.
#[derive(Debug, Default)]
pub(crate) struct ArrowColumns {
    pub(crate) columns: Vec<SchemaColumn>,
    pub(crate) unread: Vec<String>,
    pub(crate) attributes: Attributes,
    pub(crate) document: TableDocument,
    /// Nodes and buffers of a batch, and arrays of views in it.
    pub(crate) nodes: usize,
    pub(crate) buffers: usize,
    pub(crate) views: usize,
    arrays: usize,
}

/// Text attributes, and the document of this crate's family.
fn metadata<'a>(pairs: impl Iterator<Item = ipc::KeyValue<'a>>) -> (Attributes, Option<&'a str>) {
    let (mut attributes, mut document) = (Attributes::new(), None);
    for pair in pairs {
        match (pair.key(), pair.value()) {
            (Some(TABLE_KEY), Some(own)) => document = Some(own),
            // Keys of pandas and of Arrow itself do not describe the data.
            (Some(name), _) if name == "pandas" || name.starts_with("ARROW:") => {}
            (Some(name), Some(own)) => {
                attributes.insert(name.to_owned(), Value::from(own));
            }
            _ => {}
        }
    }
    (attributes, document)
}

impl ArrowColumns {
    /// Describes the columns of a verified schema.
    pub(crate) fn new(schema: &ipc::Schema<'_>, object: &str, limits: &Limits) -> Result<Self> {
        if schema.endianness() != ipc::Endianness::Little {
            return Err(Error::unsupported("Arrow files of big-endian machines"));
        }
        let mut own = Self::default();
        let (attributes, document) = metadata(schema.custom_metadata().into_iter().flatten());
        if let Some(document) = document {
            own.document = TableDocument::parse(document, limits)?;
            own.attributes = own.document.attributes();
        } else {
            own.attributes = attributes;
        }
        for field in schema.fields().into_iter().flatten() {
            own.add(&field, "", &[])?;
        }
        let mut names: Vec<&str> = own.columns.iter().map(|column| column.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::corrupt("schema", object, None, format!("duplicate column {:?}", twice[0])));
        }
        Ok(own)
    }

    /// Adds a field with its children, in the order of their nodes.
    fn add(&mut self, field: &ipc::Field<'_>, prefix: &str, groups: &[Place]) -> Result<()> {
        self.arrays += 1;
        if self.arrays > COLUMNS {
            return Err(Error::limit("columns of a table", self.arrays as u64, COLUMNS as u64));
        }
        let name = format!("{prefix}{}", field.name().unwrap_or_default());
        let place = Place { node: self.nodes, buffer: self.buffers, views: self.views };
        if let Some(dictionary) = field.dictionary() {
            self.nodes += 1;
            self.buffers += 2;
            let index = match dictionary.indexType() {
                Some(own) => DType::integer(own.bitWidth().into(), own.is_signed()),
                None => Some(DType::Int32),
            };
            let index = index.and_then(|dtype| ArrowKind::stored(dtype, tesseral_core::CellLen::One));
            match (ArrowKind::from_field(field), index) {
                (Some(kind), Some(index)) => {
                    let indexed = Some(Indexed { id: dictionary.id(), index });
                    self.push(field, name, kind, indexed, place, groups);
                }
                _ => self
                    .unread
                    .push(format!("{name}: the column is a dictionary of values that are not supported")),
            }
            return Ok(());
        }
        // Validity, and the buffers before the children.
        let buffers = match field.type_type() {
            ipc::Type::Null | ipc::Type::RunEndEncoded => 0,
            ipc::Type::Struct_ | ipc::Type::FixedSizeList => 1,
            ipc::Type::Union => {
                if field.type_as_union().is_some_and(|own| own.mode() == ipc::UnionMode::Dense) {
                    2
                } else {
                    1
                }
            }
            ipc::Type::List | ipc::Type::LargeList | ipc::Type::Map => 2,
            ipc::Type::Utf8 | ipc::Type::LargeUtf8 | ipc::Type::Binary | ipc::Type::LargeBinary => 3,
            ipc::Type::ListView | ipc::Type::LargeListView => 3,
            _ => 2,
        };
        self.nodes += 1;
        self.buffers += buffers;
        self.views += usize::from(matches!(field.type_type(), ipc::Type::Utf8View | ipc::Type::BinaryView));
        let children: Vec<ipc::Field<'_>> = field.children().into_iter().flatten().collect();
        if field.type_type() == ipc::Type::Struct_ {
            let within: Vec<Place> = groups.iter().copied().chain([place]).collect();
            let prefix = format!("{name}.");
            return children.iter().try_for_each(|child| self.add(child, &prefix, &within));
        }
        let several = |count| match &children[..] {
            [child] if child.dictionary().is_none() && child.children().is_none_or(|own| own.is_empty()) => {
                ArrowKind::from_field(child)?.several(count)
            }
            _ => None,
        };
        let kind = match field.type_type() {
            ipc::Type::FixedSizeList => {
                let n = field.type_as_fixed_size_list().and_then(|own| u32::try_from(own.listSize()).ok());
                n.and_then(|n| several(Ok(n)))
            }
            ipc::Type::List => several(Err(false)),
            ipc::Type::LargeList => several(Err(true)),
            _ if children.is_empty() => ArrowKind::from_field(field),
            _ => None,
        };
        match kind {
            Some(kind) => self.push(field, name, kind, None, place, groups),
            None => {
                let what = field.type_type().variant_name().unwrap_or("unknown").to_ascii_lowercase();
                let what = what.trim_end_matches('_');
                self.unread.push(format!("{name}: the column is of the type {what}, which is not supported"));
            }
        }
        children.iter().try_for_each(|child| self.skip(child))
    }

    /// Passes over the nodes and buffers of a child that is no column.
    fn skip(&mut self, field: &ipc::Field<'_>) -> Result<()> {
        let (columns, unread) = (self.columns.len(), self.unread.len());
        self.add(field, "", &[])?;
        self.columns.truncate(columns);
        self.unread.truncate(unread);
        Ok(())
    }

    fn push(
        &mut self,
        field: &ipc::Field<'_>,
        name: String,
        kind: ArrowKind,
        indexed: Option<Indexed>,
        place: Place,
        groups: &[Place],
    ) {
        let (mut attributes, _) = metadata(field.custom_metadata().into_iter().flatten());
        let mut kind = kind;
        if self.document.describes(&name) {
            attributes = self.document.column_attributes(&name);
            let own = |property| self.document.property(&name, property);
            kind = kind.restored(own("dtype"), own("cell"));
        }
        self.columns.push(SchemaColumn { name, kind, indexed, place, groups: groups.to_vec(), attributes });
    }
}
