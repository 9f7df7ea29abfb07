//! Metadata of a record batch: rows, and where its buffers are.

use std::ops::Range;

use arrow_ipc as ipc;
use tesseral_core::{Error, Result};

use crate::kind::{ArrowKind, Layout};
use crate::schema::{ArrowColumns, Place, SchemaColumn};

/// The codec of the buffers of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchCodec {
    Lz4,
    Zstd,
}

impl BatchCodec {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// Length and null count of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchNode {
    pub(crate) len: u64,
    /// `None` if it is not known.
    pub(crate) nulls: Option<u64>,
}

/// A record batch, or the values of a dictionary.
#[derive(Debug)]
pub(crate) struct StoredBatch {
    pub(crate) rows: u64,
    pub(crate) nodes: Box<[BatchNode]>,
    /// Ranges of the file.
    pub(crate) buffers: Box<[Range<u64>]>,
    /// Buffers of long texts of each array of views.
    views: Box<[usize]>,
    pub(crate) codec: Option<BatchCodec>,
}

/// Location of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageAt {
    /// Offset of the metadata, with the length before them.
    pub(crate) offset: u64,
    /// Offset of the buffers.
    pub(crate) body: u64,
    /// Bytes of the buffers.
    pub(crate) len: u64,
}

impl StoredBatch {
    /// Describes a verified batch of `nodes` arrays and `buffers` buffers, in addition to those of `views` arrays of views.
    pub(crate) fn new(
        own: &ipc::RecordBatch<'_>,
        at: MessageAt,
        (nodes, buffers, views): (usize, usize, usize),
        object: &str,
    ) -> Result<Self> {
        let corrupt = |detail: &str| Error::corrupt("record batch", object, at.offset, detail);
        let count = |n: i64| u64::try_from(n).ok();
        let rows = count(own.length()).ok_or_else(|| corrupt("the number of rows is negative"))?;
        let node = |node: &ipc::FieldNode| {
            Some(BatchNode { len: count(node.length())?, nulls: count(node.null_count()) })
        };
        let own_nodes: Option<Box<[BatchNode]>> = own.nodes().into_iter().flatten().map(node).collect();
        let own_nodes = own_nodes.filter(|own| own.len() == nodes);
        let own_nodes = own_nodes.ok_or_else(|| corrupt("the arrays are not those of the schema"))?;
        let own_views = own.variadicBufferCounts().into_iter().flatten();
        let own_views: Option<Box<[usize]>> = own_views.map(|n| usize::try_from(n).ok()).collect();
        let own_views = own_views.filter(|own| own.len() == views);
        let own_views =
            own_views.ok_or_else(|| corrupt("the buffers of views are not those of the schema"))?;
        let buffer = |buffer: &ipc::Buffer| {
            let (start, len) = (count(buffer.offset())?, count(buffer.length())?);
            let end = start.checked_add(len).filter(|end| *end <= at.len)?;
            Some(at.body.checked_add(start)?..at.body.checked_add(end)?)
        };
        let ranges: Option<Box<[Range<u64>]>> = own.buffers().into_iter().flatten().map(buffer).collect();
        let ranges = ranges.ok_or_else(|| corrupt("a buffer is outside of the batch"))?;
        let expected = own_views.iter().try_fold(buffers, |sum, n| sum.checked_add(*n));
        if expected != Some(ranges.len()) {
            return Err(corrupt("the number of buffers is not that of the schema"));
        }
        let codec = match own.compression() {
            None => None,
            Some(own) if own.method() != ipc::BodyCompressionMethod::BUFFER => {
                return Err(Error::unsupported("compression of whole Arrow batches"));
            }
            Some(own) => Some(match own.codec() {
                ipc::CompressionType::LZ4_FRAME => BatchCodec::Lz4,
                ipc::CompressionType::ZSTD => BatchCodec::Zstd,
                other => return Err(Error::unsupported(format!("Arrow compression {}", other.0))),
            }),
        };
        Ok(Self { rows, nodes: own_nodes, buffers: ranges, views: own_views, codec })
    }

    fn range(&self, place: Place, number: usize) -> Range<u64> {
        let before: usize = self.views.iter().take(place.views).sum();
        self.buffers.get(place.buffer + before + number).cloned().unwrap_or(0..0)
    }

    fn node(&self, number: usize) -> Option<BatchNode> {
        self.nodes.get(number).copied()
    }

    /// Whether an array certainly has no nulls.
    pub(crate) fn is_valid(&self, place: Place) -> bool {
        self.node(place.node).is_some_and(|node| node.nulls == Some(0))
    }

    /// Checks the metadata of a column: the lengths of its arrays, and that values in cells are not null.
    pub(crate) fn check(&self, column: &SchemaColumn) -> std::result::Result<(), &'static str> {
        let of_rows = |place: &Place| self.node(place.node).is_some_and(|node| node.len == self.rows);
        if !column.groups.iter().chain([&column.place]).all(of_rows) {
            return Err("the length of an array is not that of the batch");
        }
        let child = Place { node: column.place.node + 1, ..column.place };
        if column.indexed.is_none() && column.kind.child && !self.is_valid(child) {
            return Err("a list contains nulls, which is not supported");
        }
        Ok(())
    }

    /// The ranges of a column: validity of the groups around it and its own, then values.
    pub(crate) fn ranges(&self, column: &SchemaColumn) -> Vec<Range<u64>> {
        let places = column.groups.iter().chain([&column.place]);
        let mut ranges: Vec<Range<u64>> = places.map(|place| self.validity(*place)).collect();
        match column.indexed {
            Some(_) => ranges.push(self.range(column.place, 1)),
            None => self.push_values(column.kind, column.place, &mut ranges),
        }
        ranges
    }

    /// The ranges of the values of a dictionary, after their validity.
    pub(crate) fn dictionary_ranges(&self, kind: ArrowKind) -> Vec<Range<u64>> {
        let place = Place::default();
        let mut ranges = vec![self.validity(place)];
        self.push_values(kind, place, &mut ranges);
        ranges
    }

    fn validity(&self, place: Place) -> Range<u64> {
        if self.is_valid(place) { 0..0 } else { self.range(place, 0) }
    }

    fn push_values(&self, kind: ArrowKind, place: Place, ranges: &mut Vec<Range<u64>>) {
        ranges.extend(Place::values(&kind).iter().map(|number| self.range(place, *number)));
        if kind.layout == Layout::Views {
            let count = self.views.get(place.views).copied().unwrap_or(0);
            ranges.extend((0..count).map(|number| self.range(place, 2 + number)));
        }
    }
}

/// The shape of batches of a schema: nodes, buffers, views.
pub(crate) fn shape(columns: &ArrowColumns) -> (usize, usize, usize) {
    (columns.nodes, columns.buffers, columns.views)
}

/// Shape of the batch of a dictionary.
pub(crate) fn dictionary_shape(column: &SchemaColumn) -> (usize, usize, usize) {
    match column.kind.layout {
        Layout::Offsets { .. } => (1, 3, 0),
        Layout::Views => (1, 2, 1),
        _ => (1, 2, 0),
    }
}
