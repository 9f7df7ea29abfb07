//! Writing of NetCDF-4 files: chunks as they come, then everything that describes them (ADR 0036).
//!
//! ```text
//! superblock │ chunks, heaps of text … │ B-trees │ heap of attributes │ object headers
//! ```
//!
//! Only the address and length of each chunk are kept in memory. Superblock and root are written last, to a staged object.

mod array;
mod attribute;
mod datatype;
mod dimension;
mod header;
mod heap;
mod provenance;
mod tree;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hdf5_reader::checksum::jenkins_lookup3;
use tesseral_core::{Attributes, ChunkStats, Error, HistoryRow, Result};
use tesseral_format::{
    ArraySpec, ColumnData, CreateOption, CreateOptions, EncodedChunk, Groups, OptionTable, OptionType,
    Pending, Scratch, Writer, check_paths, check_unique, groups_around, publish_shared,
};
use tesseral_store::{Staged, Store};

use self::array::DatasetWrite;
pub(crate) use self::array::holds;
pub(crate) use self::attribute::read_back;
use self::dimension::{FileDimensions, split};
use self::header::{Little, ObjectHeader, UNDEFINED};
use self::heap::HeapBuilder;
pub(crate) use self::provenance::history;
use self::tree::StoredAt;
use crate::dimension::{NOT_A_COORDINATE, NOT_A_VARIABLE};
use crate::open::SIGNATURE;

/// Bytes of the superblock.
const SUPERBLOCK: u64 = 48;
/// Alignment of everything in the file.
const ALIGNMENT: u64 = 8;
/// The most bytes of a component of a path.
const NAME: usize = 1024;

/// Options of creation that other formats do not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetCdf4Options {
    /// Names of the unlimited dimensions.
    pub unlimited: Vec<String>,
}

/// Names of the options.
pub(crate) static OPTIONS: OptionTable<NetCdf4Options> = OptionTable(&[CreateOption {
    name: "unlimited",
    kind: OptionType::Text(|options: &mut NetCdf4Options, names| {
        options.unlimited = names.split(',').map(|name| name.trim().to_owned()).collect();
        Ok(())
    }),
    default: "none",
    description: "Names of the unlimited dimensions, separated by commas.",
}]);

/// Writer of a NetCDF-4 file.
#[derive(Debug)]
pub(crate) struct Hdf5Writer {
    staged: Arc<Box<dyn Staged>>,
    options: NetCdf4Options,
    arrays: Vec<DatasetWrite>,
    attributes: Attributes,
    groups: Groups,
    history: Vec<HistoryRow>,
    /// Offset of the next chunk.
    end: AtomicU64,
}

/// Rejects paths that HDF5 or NetCDF would read as another one.
fn check_name(path: &str) -> Result<()> {
    let valid = |part: &str| {
        !part.is_empty()
            && part != "."
            && part.len() <= NAME
            && !part.contains('\0')
            && !part.starts_with(NOT_A_COORDINATE)
    };
    if path.split('/').all(valid) {
        return Ok(());
    }
    Err(Error::unsupported(format!("the name {path:?} in NetCDF-4")))
}

impl Hdf5Writer {
    pub(crate) fn create(store: &Arc<dyn Store>, options: &CreateOptions) -> Result<Self> {
        Ok(Self {
            options: options.format.get()?,
            staged: Arc::new(store.stage("", options.overwrite)?),
            arrays: Vec::new(),
            attributes: Attributes::new(),
            groups: Groups::new(),
            history: Vec::new(),
            end: AtomicU64::new(SUPERBLOCK),
        })
    }

    fn array(&self, array: usize) -> Result<&DatasetWrite> {
        self.arrays.get(array).ok_or_else(|| Error::invalid(format!("array {array} was not created")))
    }

    /// Reserves bytes at the end of the file.
    fn reserve(&self, len: usize) -> u64 {
        self.end.fetch_add((len as u64).next_multiple_of(ALIGNMENT), Ordering::Relaxed)
    }

    /// All groups with their attributes, outer ones first, the root among them.
    fn all_groups(&self) -> Groups {
        let mut all = Groups::new();
        all.insert(String::new(), self.attributes.clone());
        let paths = self.groups.keys().chain(self.arrays.iter().map(|array| &array.name));
        for path in paths {
            for group in groups_around(path) {
                all.entry(group.to_owned()).or_default();
            }
        }
        all.extend(self.groups.iter().map(|(path, attributes)| (path.clone(), attributes.clone())));
        all.sort_by_cached_key(|path, _| if path.is_empty() { 0 } else { 1 + path.matches('/').count() });
        all
    }
}

/// The objects of a file: groups, then dimensions without a variable, then arrays. Their numbers count in this order.
struct Objects<'a> {
    writer: &'a Hdf5Writer,
    groups: Groups,
    scales: FileDimensions,
    /// Addresses of the cells or the tree of each array.
    cells: Vec<u64>,
}

impl Objects<'_> {
    /// The number of the object of an array.
    fn of_array(&self, number: usize) -> usize {
        self.groups.len() + self.scales.list.len() + number
    }

    /// The number of the object that is the scale of a dimension.
    fn of_scale(&self, number: usize) -> usize {
        match self.scales.list[number].variable {
            Some(array) => self.of_array(array),
            None => self.groups.len() + number,
        }
    }

    /// The heap of attributes and all object headers. `base` is the address of the heap, `addresses` are those of the headers;
    /// sizes do not depend on either.
    fn build(&self, base: u64, addresses: &[u64]) -> Result<(Vec<u8>, Vec<Vec<u8>>)> {
        let mut heap = HeapBuilder::default();
        let mut headers = Vec::with_capacity(addresses.len());
        for (number, (path, attributes)) in self.groups.iter().enumerate() {
            let mut header = ObjectHeader::default();
            header.group(self.members(path, addresses).iter().map(|(name, at)| (name.as_str(), *at)))?;
            if number == 0 {
                provenance::write(&mut header, &self.writer.history)?;
            }
            attribute::write(&mut header, attributes, &mut heap, base)?;
            headers.push(header.finish()?);
        }
        for (number, scale) in self.scales.list.iter().enumerate() {
            let mut header = ObjectHeader::default();
            if scale.variable.is_none() {
                let (extents, grows) = ([scale.extent], [scale.unlimited]);
                let layout = if scale.unlimited {
                    header::chunked(UNDEFINED, &[1024], 4)
                } else {
                    header::contiguous(UNDEFINED, scale.extent.saturating_mul(4))
                };
                let (space, datatype) = (header::space(&extents, &grows), datatype::dimension_only());
                header.dataset(&space, &datatype, None, &layout, None)?;
                self.scale(&mut header, number, addresses)?;
            }
            // A dimension with a variable has no separate object.
            headers.push(if scale.variable.is_none() { header.finish()? } else { Vec::new() });
        }
        for (number, array) in self.writer.arrays.iter().enumerate() {
            let mut header = ObjectHeader::default();
            array.describe(&mut header, self.cells[number])?;
            self.dimensions(&mut header, number, addresses, &mut heap, base)?;
            attribute::write(&mut header, &array.attributes, &mut heap, base)?;
            headers.push(header.finish().map_err(|e| e.in_array(&array.name))?);
        }
        Ok((heap.finish(), headers))
    }

    /// Names and addresses of the members of a group: dimensions, arrays, groups.
    fn members(&self, group: &str, addresses: &[u64]) -> Vec<(String, u64)> {
        let inside = |path: &str| !path.is_empty() && split(path).0 == group;
        let scales = self.scales.list.iter().enumerate();
        let scales = scales.filter(|(_, scale)| scale.group == group && scale.variable.is_none());
        let arrays = self.writer.arrays.iter().enumerate().filter(|(_, array)| inside(&array.name));
        let groups = self.groups.keys().enumerate().filter(|(_, path)| inside(path));
        let at = |object: usize| addresses.get(object).copied().unwrap_or(0);
        scales
            .map(|(number, scale)| (scale.name.clone(), at(self.of_scale(number))))
            .chain(arrays.map(|(number, _)| {
                (self.scales.link(&self.writer.arrays, number), at(self.of_array(number)))
            }))
            .chain(groups.map(|(number, path)| (split(path).1.to_owned(), at(number))))
            .collect()
    }

    /// Adds the attributes by which arrays and their dimensions refer to one another.
    fn dimensions(
        &self,
        header: &mut ObjectHeader,
        number: usize,
        addresses: &[u64],
        heap: &mut HeapBuilder,
        base: u64,
    ) -> Result<()> {
        let (array, own) = (&self.writer.arrays[number], &self.scales.of_arrays[number]);
        let rank = array.dims.len() as u64;
        if let Some(scale) = own.first().filter(|scale| self.scales.list[**scale].variable == Some(number)) {
            self.scale(header, *scale, addresses)?;
            if own.len() > 1 {
                let ids: Vec<u8> = own.iter().flat_map(|scale| (*scale as u32).to_le_bytes()).collect();
                let int32 = datatype::plain(tesseral_core::DType::Int32).unwrap_or_default();
                header.attribute("_Netcdf4Coordinates", &int32, &header::space(&[rank], &[]), &ids)?;
            }
            return Ok(());
        }
        if !own.is_empty() {
            let mut references = Vec::new();
            for scale in own {
                let address = addresses.get(self.of_scale(*scale)).copied().unwrap_or(0);
                references.extend(heap.add(&address.to_le_bytes(), 1)?.bytes(base));
            }
            let (lists, space) = (datatype::reference_lists(), header::space(&[rank], &[]));
            return header.attribute("DIMENSION_LIST", &lists, &space, &references);
        }
        if array.dims.iter().any(|(name, _)| !name.is_empty()) {
            let mut references = Vec::new();
            for (name, _) in &array.dims {
                references.extend(heap.add(name.as_bytes(), name.len())?.bytes(base));
            }
            let (text, space) = (datatype::variable_text(), header::space(&[rank], &[]));
            return header.attribute("DIMENSION_LABELS", &text, &space, &references);
        }
        Ok(())
    }

    /// Adds the attributes of a dimension scale.
    fn scale(&self, header: &mut ObjectHeader, number: usize, addresses: &[u64]) -> Result<()> {
        let scale = &self.scales.list[number];
        let name = match scale.variable {
            Some(_) => scale.name.clone(),
            None => format!("{NOT_A_VARIABLE}.{:10}", scale.extent),
        };
        let int32 = datatype::plain(tesseral_core::DType::Int32).unwrap_or_default();
        for (key, mut text) in [("CLASS", "DIMENSION_SCALE".to_owned()), ("NAME", name)] {
            text.push('\0');
            attribute::text(header, key, &text)?;
        }
        header.attribute(
            "_Netcdf4Dimid",
            &int32,
            &header::space(&[], &[]),
            &(number as u32).to_le_bytes(),
        )?;
        let mut users = Vec::new();
        for (array, own) in self.scales.of_arrays.iter().enumerate() {
            let is_scale = |scale: usize| self.scales.list[scale].variable == Some(array);
            if own.first().is_some_and(|first| is_scale(*first)) {
                continue;
            }
            for (axis, _) in own.iter().enumerate().filter(|(_, scale)| **scale == number) {
                users.u64(addresses.get(self.of_array(array)).copied().unwrap_or(0));
                users.u32(axis as u32);
                users.u32(0);
            }
        }
        // Readers find dimensions by the other direction; a list that fits in no message is omitted.
        if users.is_empty() || users.len() > 60_000 {
            return Ok(());
        }
        let count = (users.len() / datatype::DIMENSION_USER as usize) as u64;
        header.attribute(
            "REFERENCE_LIST",
            &datatype::dimension_users(),
            &header::space(&[count], &[]),
            &users,
        )
    }
}

/// The superblock, version 2.
fn superblock(end: u64, root: u64) -> Vec<u8> {
    let mut out = SIGNATURE.to_vec();
    // Version, sizes of addresses and lengths, flags.
    out.extend([2, 8, 8, 0]);
    [0, UNDEFINED, end, root].into_iter().for_each(|address| out.u64(address));
    out.u32(jenkins_lookup3(&out));
    out
}

impl Writer for Hdf5Writer {
    fn begin(&mut self, spec: &ArraySpec) -> Result<usize> {
        let name = &spec.schema.name;
        check_name(name)?;
        check_unique(self.arrays.iter().map(|own| own.name.as_str()), name)?;
        let array = DatasetWrite::new(spec, &self.options.unlimited).map_err(|e| e.in_array(name))?;
        dimension::check(&self.arrays, &array).map_err(|e| e.in_array(name))?;
        self.arrays.push(array);
        Ok(self.arrays.len() - 1)
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
        self.place(array, chunk)?.store()
    }

    fn place<'a>(&self, array: usize, chunk: EncodedChunk<'a>) -> Result<Pending<'a>> {
        let array = self.array(array)?;
        let coords = chunk.coords.clone();
        let part = chunk.into_part()?;
        let mut pending = Pending::default();
        let mut bytes = part.bytes;
        let at = self.reserve(bytes.len());
        let mut len = bytes.len();
        if array.has_heap() {
            // The heap follows the references to it.
            len = usize::try_from(part.raw_len).unwrap_or(len).min(len);
            let base = at.saturating_add(len as u64);
            heap::rebase(bytes.to_mut().get_mut(..len).unwrap_or_default(), base);
        }
        let stored = u32::try_from(len).unwrap_or(u32::MAX);
        array.chunks.claim(&coords, StoredAt { address: at, len: stored })?;
        pending.push(&self.staged, at, bytes);
        Ok(pending)
    }

    fn set_attributes(&mut self, attributes: Attributes) -> Result<()> {
        self.attributes = attributes;
        Ok(())
    }

    fn set_group(&mut self, path: &str, attributes: Attributes) -> Result<()> {
        check_name(path)?;
        self.groups.insert(path.to_owned(), attributes);
        Ok(())
    }

    fn add_history(&mut self, row: HistoryRow) -> Result<()> {
        self.history.push(row);
        // A text that fits in no attribute is an error before the first chunk.
        provenance::write(&mut ObjectHeader::default(), &self.history)
    }

    fn set_parents(&mut self, parents: &[String]) -> bool {
        tesseral_format::convention::history::set_parents(&mut self.history, parents)
    }

    fn commit(self: Box<Self>) -> Result<()> {
        let names = self.arrays.iter().map(|array| array.name.as_str());
        check_paths(names, self.groups.keys().map(String::as_str))?;
        self.arrays.iter().try_for_each(|array| array.chunks.check_complete())?;
        let mut end = self.end.load(Ordering::Relaxed);
        let mut put = |bytes: &[u8]| {
            let at = end;
            end += (bytes.len() as u64).next_multiple_of(ALIGNMENT);
            self.staged.write_at(at, bytes).map(|()| at)
        };
        let mut cells = Vec::with_capacity(self.arrays.len());
        let mut at = self.end.load(Ordering::Relaxed);
        for array in &self.arrays {
            let (tree, address) = array.tree(at);
            at = put(&tree)? + (tree.len() as u64).next_multiple_of(ALIGNMENT);
            cells.push(address);
        }
        let groups = self.all_groups();
        let scales = FileDimensions::new(&self.arrays, groups.keys().map(String::as_str));
        let objects = Objects { writer: &self, groups, scales, cells };
        let (heap, headers) = objects.build(0, &[])?;
        let base = at;
        let mut next = base + heap.len() as u64;
        let addresses: Vec<u64> = headers
            .iter()
            .map(|header| {
                let at = next;
                next += header.len() as u64;
                at
            })
            .collect();
        let (heap, headers) = objects.build(base, &addresses)?;
        let metadata = [heap, headers.concat()].concat();
        put(&metadata)?;
        // Alignment may end beyond the last byte.
        self.staged.set_len(end)?;
        let root = addresses.first().copied().unwrap_or(UNDEFINED);
        self.staged.write_at(0, &superblock(end, root))?;
        publish_shared(self.staged)
    }
}
