//! Datasets, described by their object headers.

use hdf5_reader::Dataset;
use hdf5_reader::local_heap::LocalHeap;
use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::dataspace::DataspaceType;
use hdf5_reader::messages::external_files::ExternalFilesMessage;
use hdf5_reader::messages::layout::DataLayout;
use tesseral_core::{CellLen, Cursor, Error, ErrorKind, Result, Scalar};

use crate::attribute::ObjectAttributes;
use crate::datatype::Hdf5CellType;
use crate::file::{File, HeapReader, has_references};
use crate::filter::Pipeline;
use crate::header_messages::{VirtualLayout, has_unfiltered_edges};
use crate::index::ChunkedLayout;
use crate::mapping::Mapping;
use crate::recipe;
use crate::virtual_array::expand;

/// The maximum number of dimensions in HDF5.
const RANK: usize = 32;

/// Location of the cells of a dataset.
#[derive(Clone, Debug)]
pub(crate) enum StorageLayout {
    /// In the object header.
    Compact(Vec<u8>),
    /// In one range of bytes; `None` if it was never written.
    Contiguous(Option<u64>),
    Chunked(ChunkedLayout),
    /// In raw files, one after the other.
    External(Vec<ExternalSegment>),
    /// In other datasets.
    Virtual(Vec<Mapping>),
}

/// A range of a raw file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExternalSegment {
    /// Number among the files beside the dataset's.
    pub(crate) file: u32,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// A dataset, or a member of its compound datatype, with a representation in the data model.
#[derive(Clone, Debug)]
pub(crate) struct DatasetInfo {
    /// Address of the object header.
    pub(crate) address: u64,
    pub(crate) cell: Hdf5CellType,
    /// Name of the member of compound elements that this is.
    pub(crate) member: Option<String>,
    /// Current extents.
    pub(crate) shape: Vec<u64>,
    /// Whether each dimension is unlimited.
    pub(crate) unlimited: Vec<bool>,
    pub(crate) layout: StorageLayout,
    pub(crate) pipeline: Pipeline,
    pub(crate) fill: Option<Scalar>,
    /// The fill value of a whole element.
    pub(crate) stored_fill: Option<Vec<u8>>,
    pub(crate) attributes: ObjectAttributes,
    /// How chunks are decoded without the file; `None` for values of variable length and cells in the header.
    pub(crate) recipe: Option<Vec<u8>>,
}

/// Arrays of a dataset: the dataset itself, or the members of its compound datatype by name.
pub(crate) type DatasetParts = Vec<(Option<String>, Result<DatasetInfo>)>;

/// The class of compound datatypes.
const COMPOUND: u8 = 6;

impl DatasetInfo {
    /// Describes a dataset: as one array, or as one for each member of a compound datatype.
    ///
    /// # Errors
    /// `Unsupported` for elements that the data model lacks; errors of its metadata.
    pub(crate) fn parts(file: &File, dataset: &Dataset) -> Result<DatasetParts> {
        let address = dataset.address();
        let datatype = dataset.raw_datatype().map_err(|e| file.error(e, "a dataset"))?;
        // The message is at an unknown offset of the object header.
        let object = file.storage.describe();
        let message = || Cursor::at_offset(&object, &datatype, address);
        let members = match Hdf5CellType::parse(message()) {
            Ok(cell) => return Ok(vec![(None, Ok(Self::new(file, dataset, cell, &datatype)?))]),
            Err(error) if datatype.first().is_some_and(|first| first & 15 == COMPOUND) => {
                if !matches!(error.kind(), ErrorKind::Unsupported { .. }) {
                    return Err(error);
                }
                Hdf5CellType::compound_members(message())?
            }
            Err(error) => return Err(error),
        };
        let mut parts = DatasetParts::new();
        // All members have layout, filters and attributes of the dataset.
        let mut first: Option<Self> = None;
        for (name, cell) in members {
            let part = cell.and_then(|cell| match &first {
                Some(first) => first.clone().with_member(file, cell),
                None => Self::new(file, dataset, cell, &datatype),
            });
            let part = part.map(|part| Self { member: Some(name.clone()), ..part });
            if let (None, Ok(part)) = (&first, &part) {
                first = Some(part.clone());
            }
            parts.push((Some(name), part));
        }
        Ok(parts)
    }

    /// The same dataset with another member of its datatype.
    fn with_member(self, file: &File, cell: Hdf5CellType) -> Result<Self> {
        check_references(file, &cell)?;
        let fill = fill_value(&cell, self.stored_fill.as_deref())?;
        Ok(Self { cell, fill, ..self })
    }

    fn new(file: &File, dataset: &Dataset, cell: Hdf5CellType, datatype: &[u8]) -> Result<Self> {
        let address = dataset.address();
        let failed = |e| file.error(e, "a dataset");
        check_references(file, &cell)?;
        let header = file.parser.get_or_parse_header(address).map_err(failed)?;
        let (mut shape, mut max, mut layout, mut filters, mut fill) = (None, None, None, &[][..], None);
        let mut external = None;
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
                HdfMessage::ExternalFiles(message) => external = Some(message),
                _ => {}
            }
        }
        let incomplete = |what: &str| Error::corrupt("a dataset", file.storage.describe(), address, what);
        let mut shape = shape.ok_or_else(|| incomplete("missing dataspace"))?;
        if shape.len() > RANK {
            return Err(incomplete("more than 32 dimensions"));
        }
        let layout = layout.ok_or_else(|| incomplete("missing layout"))?;
        let extents = match cell.place {
            Some(place) => Some(place.element as u64),
            None => cell.dims.iter().try_fold(cell.size as u64, |bytes, n| bytes.checked_mul(*n)),
        };
        let element = extents.and_then(|bytes| usize::try_from(bytes).ok());
        let element = element.ok_or_else(|| incomplete("elements beyond the address space"))?;
        let layout = match layout {
            DataLayout::Compact { data } => match file.virtual_layout(address) {
                Some(layout) => StorageLayout::Virtual(mappings(file, layout, &mut shape)?),
                None => StorageLayout::Compact(data),
            },
            DataLayout::Contiguous { .. } if let Some(external) = external => {
                StorageLayout::External(segments(file, external)?)
            }
            DataLayout::Contiguous { address, .. } => {
                StorageLayout::Contiguous(Some(address).filter(|address| !file.is_undefined(*address)))
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
                StorageLayout::Chunked(ChunkedLayout {
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
        let detached = cell.cell != CellLen::Var
            && cell.place.is_none()
            && matches!(layout, StorageLayout::Contiguous(_) | StorageLayout::Chunked(_));
        let recipe = detached.then(|| recipe::recipe(datatype, element, fill.as_deref(), filters));
        let stored_fill = fill;
        let fill = fill_value(&cell, stored_fill.as_deref())?;
        let raw = dataset.raw_attributes().map_err(failed)?;
        let attributes = ObjectAttributes::new(file, dataset.address(), raw)?;
        let member = None;
        Ok(Self {
            address,
            cell,
            member,
            shape,
            unlimited,
            layout,
            pipeline,
            fill,
            stored_fill,
            attributes,
            recipe,
        })
    }
}

/// The mappings of a virtual dataset, and the extents that follow from its sources.
fn mappings(file: &File, layout: VirtualLayout, shape: &mut [u64]) -> Result<Vec<Mapping>> {
    if file.is_undefined(layout.address) {
        return Ok(Vec::new());
    }
    let mut heap = HeapReader::new(file);
    let block = heap.object(layout.address, u64::from(layout.index))?;
    let mappings = Mapping::parse_all(&file.storage.describe(), block, usize::from(file.length_size))?;
    expand(file, mappings, shape)
}

/// The raw files of a dataset. Their names are in a local heap.
fn segments(file: &File, external: &ExternalFilesMessage) -> Result<Vec<ExternalSegment>> {
    let failed = |e| file.error(e, "the raw files of a dataset");
    let storage = &*file.storage;
    let (offset, length) = (file.offset_size, file.length_size);
    let heap = LocalHeap::parse_at_storage(storage, external.heap_address, offset, length).map_err(failed)?;
    let names = storage.read(heap.data_segment_address, heap.data_segment_size)?;
    let mut out = Vec::new();
    for slot in &external.slots {
        let start = usize::try_from(slot.name_offset).ok().and_then(|start| names.get(start..));
        let name = start.and_then(|rest| rest.split(|byte| *byte == 0).next());
        let name = name.and_then(|name| std::str::from_utf8(name).ok()).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| {
            Error::corrupt(
                "the raw files of a dataset",
                storage.describe(),
                external.heap_address,
                "a name is not in the heap",
            )
        })?;
        out.push(ExternalSegment { file: file.siblings.number(name)?, offset: slot.offset, len: slot.size });
    }
    Ok(out)
}

fn check_references(file: &File, cell: &Hdf5CellType) -> Result<()> {
    if cell.cell == CellLen::Var && !has_references(file, cell) {
        return Err(Error::unsupported("references whose size differs from that of the file"));
    }
    Ok(())
}

/// The fill value; zeros where none is defined, as by the reference.
pub(crate) fn fill_value(cell: &Hdf5CellType, stored: Option<&[u8]>) -> Result<Option<Scalar>> {
    if cell.cell == CellLen::Var {
        return Ok(Some(Scalar::from_text("")));
    }
    let zeros = [0_u8; 16];
    let len = cell.size.saturating_mul(cell.cells());
    let stored = match cell.place {
        Some(place) => stored
            .filter(|bytes| bytes.len() == place.element)
            .and_then(|bytes| bytes.get(place.offset..place.offset.checked_add(len)?)),
        None => stored.filter(|bytes| bytes.len() == len),
    };
    let Some(stored) = stored else {
        return Ok(zeros.get(..cell.size).and_then(|bytes| cell.number(bytes)));
    };
    let (first, rest) = stored.split_at(cell.size.min(stored.len()));
    if rest.chunks(cell.size.max(1)).any(|other| other != first) {
        return Err(Error::unsupported("fill values that differ within an element"));
    }
    Ok(cell.number(first))
}
