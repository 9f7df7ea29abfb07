//! Datasets, described by their object headers.

use hdf5_reader::Dataset;
use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::dataspace::DataspaceType;
use hdf5_reader::messages::layout::DataLayout;
use tesseral_core::{CellLen, Cursor, Error, Result, Scalar};

use crate::attribute::ObjectAttributes;
use crate::datatype::Hdf5CellType;
use crate::file::{File, has_references};
use crate::filter::Pipeline;
use crate::header_messages::has_unfiltered_edges;
use crate::index::ChunkedLayout;
use crate::recipe;

/// The maximum number of dimensions in HDF5.
const RANK: usize = 32;

/// Where the cells of a dataset are.
#[derive(Debug)]
pub(crate) enum Layout {
    /// In the object header.
    Compact(Vec<u8>),
    /// In one range of bytes; `None` if it was never written.
    Contiguous(Option<u64>),
    Chunked(ChunkedLayout),
}

/// A dataset with a representation in the data model.
#[derive(Debug)]
pub(crate) struct DatasetInfo {
    /// Address of the object header.
    pub(crate) address: u64,
    pub(crate) cell: Hdf5CellType,
    /// Current extents.
    pub(crate) shape: Vec<u64>,
    /// Whether each dimension is unlimited.
    pub(crate) unlimited: Vec<bool>,
    pub(crate) layout: Layout,
    pub(crate) pipeline: Pipeline,
    pub(crate) fill: Option<Scalar>,
    pub(crate) attributes: ObjectAttributes,
    /// How chunks are decoded without the file; `None` for values of variable length and cells in the header.
    pub(crate) recipe: Option<Vec<u8>>,
}

impl DatasetInfo {
    /// Describes a dataset.
    ///
    /// # Errors
    /// `Unsupported` for what the data model lacks; errors of its metadata.
    pub(crate) fn new(file: &File, dataset: &Dataset) -> Result<Self> {
        let address = dataset.address();
        let failed = |e| file.error(e, "a dataset");
        let datatype = dataset.raw_datatype().map_err(failed)?;
        // The message is at an unknown offset of the object header.
        let object = file.storage.describe();
        let cell = Hdf5CellType::parse(Cursor::at_offset(&object, &datatype, address))?;
        if cell.cell == CellLen::Var && !has_references(file, &cell) {
            return Err(Error::unsupported("references of another size than those of the file"));
        }
        let header = file.parser.get_or_parse_header(address).map_err(failed)?;
        let (mut shape, mut max, mut layout, mut filters, mut fill) = (None, None, None, &[][..], None);
        for message in &header.messages {
            match message {
                HdfMessage::Dataspace(space) => {
                    let null = space.dataspace_type == DataspaceType::Null;
                    shape = Some(if null { vec![0] } else { space.dims.clone() });
                    max = space.max_dims.clone().filter(|_| !null);
                }
                HdfMessage::DataLayout(message) => layout = Some(message.layout.clone()),
                HdfMessage::FilterPipeline(pipeline) => filters = &pipeline.filters,
                HdfMessage::FillValue(message) if fill.is_none() => fill.clone_from(&message.value),
                HdfMessage::ExternalFiles(_) => return Err(Error::unsupported("cells in external files")),
                _ => {}
            }
        }
        let incomplete = |what: &str| Error::corrupt("a dataset", file.storage.describe(), address, what);
        let shape = shape.ok_or_else(|| incomplete("missing dataspace"))?;
        if shape.len() > RANK {
            return Err(incomplete("more than 32 dimensions"));
        }
        let layout = layout.ok_or_else(|| incomplete("missing layout"))?;
        let extents = cell.dims.iter().try_fold(cell.size as u64, |bytes, n| bytes.checked_mul(*n));
        let element = extents.and_then(|bytes| usize::try_from(bytes).ok());
        let element = element.ok_or_else(|| incomplete("elements beyond the address space"))?;
        let layout = match layout {
            DataLayout::Compact { data } => Layout::Compact(data),
            DataLayout::Contiguous { address, .. } => {
                Layout::Contiguous(Some(address).filter(|address| !file.is_undefined(*address)))
            }
            DataLayout::Chunked { address, mut dims, chunk_indexing, .. } => {
                // Some versions store the size of an element as the last extent.
                dims.truncate(shape.len());
                if dims.len() != shape.len() || dims.contains(&0) {
                    return Err(incomplete("the chunk shape does not match the dataspace"));
                }
                let max = max.clone().filter(|max| max.len() == shape.len());
                // Layouts with a kind of index have flags; they matter where there are filters.
                let flagged = chunk_indexing.is_some() && !filters.is_empty();
                let unfiltered_edges = flagged && has_unfiltered_edges(file, dataset.address())?;
                let (shape, chunk, indexing) = (shape.clone(), dims, chunk_indexing);
                Layout::Chunked(ChunkedLayout {
                    address,
                    chunk,
                    indexing,
                    shape,
                    max,
                    element,
                    unfiltered_edges,
                })
            }
        };
        let unlimited = max.map_or_else(Vec::new, |max| max.iter().map(|n| *n == u64::MAX).collect());
        let pipeline = Pipeline::new(filters, element)?;
        let detached = cell.cell != CellLen::Var && !matches!(layout, Layout::Compact(_));
        let recipe = detached.then(|| recipe::recipe(&datatype, element, fill.as_deref(), filters));
        let fill = fill_value(&cell, fill.as_deref());
        let raw = dataset.raw_attributes().map_err(failed)?;
        let attributes = ObjectAttributes::new(file, dataset.address(), raw)?;
        Ok(Self { address, cell, shape, unlimited, layout, pipeline, fill, attributes, recipe })
    }
}

/// The fill value; zeros where none is defined, as by the reference.
fn fill_value(cell: &Hdf5CellType, stored: Option<&[u8]>) -> Option<Scalar> {
    match cell.cell {
        CellLen::Var => Some(Scalar::from_text("")),
        _ => {
            let zeros = [0_u8; 16];
            let stored = stored.filter(|bytes| bytes.len() == cell.size);
            match stored {
                Some(bytes) => cell.number(bytes),
                None => zeros.get(..cell.size).and_then(|bytes| cell.number(bytes)),
            }
        }
    }
}
