//! An opened file: the parser, its storage and the sizes of its addresses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hdf5_reader::error::Error as ParserError;
use hdf5_reader::global_heap::GlobalHeapCollection;
use hdf5_reader::{Hdf5File, OpenOptions as ParserOptions};
use tesseral_core::{Error, Limits, Result};
use tesseral_format::OpenOptions;
use tesseral_store::Rounds;

use crate::datatype::Hdf5CellType;
use crate::error::of_parser;
use crate::header_messages::{VirtualLayout, virtual_layout};
use crate::siblings::Siblings;
use crate::storage::MetadataStorage;

/// An opened file. Clones share it.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) parser: Hdf5File,
    pub(crate) storage: Arc<MetadataStorage>,
    pub(crate) limits: Limits,
    /// Unwritten chunks are an error.
    pub(crate) strict: bool,
    pub(crate) offset_size: u8,
    pub(crate) length_size: u8,
    /// Files that hold cells of its datasets.
    pub(crate) siblings: Arc<Siblings>,
    /// Layouts of virtual datasets by the address of their object header.
    virtual_layouts: Arc<Mutex<HashMap<u64, VirtualLayout>>>,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("storage", &self.storage).finish_non_exhaustive()
    }
}

impl File {
    pub(crate) fn open(
        storage: Arc<MetadataStorage>,
        options: &OpenOptions,
        siblings: Siblings,
    ) -> Result<Self> {
        let object = storage.describe();
        let parsing = ParserOptions::default().with_chunk_cache_bytes(0);
        let parser = Hdf5File::from_storage_with_options(Arc::clone(&storage) as _, parsing)
            .map_err(|e| of_parser(e, "superblock", &object))?;
        let superblock = parser.superblock();
        let (offset_size, length_size) = (superblock.offset_size, superblock.length_size);
        let (limits, strict) = (options.limits, options.strict);
        let (siblings, virtual_layouts) = (Arc::new(siblings), Arc::default());
        Ok(Self { parser, storage, limits, strict, offset_size, length_size, siblings, virtual_layouts })
    }

    /// Shows the parser the virtual dataset whose object header is at an address as one that it knows. Returns whether it is one.
    pub(crate) fn show_virtual(&self, address: u64) -> Result<bool> {
        let Some((layout, patches)) = virtual_layout(self, address)? else { return Ok(false) };
        self.storage.show(patches);
        self.virtual_layouts.lock().unwrap_or_else(PoisonError::into_inner).insert(address, layout);
        Ok(true)
    }

    /// The layout of a virtual dataset that the parser was shown.
    pub(crate) fn virtual_layout(&self, address: u64) -> Option<VirtualLayout> {
        self.virtual_layouts.lock().unwrap_or_else(PoisonError::into_inner).get(&address).copied()
    }

    /// The file as read in rounds.
    pub(crate) fn through(&self, rounds: &Arc<Rounds>) -> Self {
        Self { storage: Arc::new(self.storage.through(rounds)), ..self.clone() }
    }

    /// Converts an error of the parser.
    pub(crate) fn error(&self, error: ParserError, what: &str) -> Error {
        of_parser(error, what, &self.storage.describe())
    }

    /// Returns whether an address is the undefined address.
    pub(crate) fn is_undefined(&self, address: u64) -> bool {
        hdf5_reader::io::Cursor::is_undefined_offset(address, self.offset_size)
    }

    /// Bytes of a reference to a value in a global heap.
    pub(crate) fn reference_size(&self) -> usize {
        8 + usize::from(self.offset_size)
    }
}

/// Values in global heaps, which references point to. Holds recently read collections.
pub(crate) struct HeapReader<'a> {
    file: &'a File,
    collections: HashMap<u64, GlobalHeapCollection>,
    held: usize,
    /// Bytes of all collections read.
    pub(crate) read: u64,
}

/// Bytes of collections that are held at a time.
const HELD: usize = 16 << 20;

impl<'a> HeapReader<'a> {
    pub(crate) fn new(file: &'a File) -> Self {
        Self { file, collections: HashMap::new(), held: 0, read: 0 }
    }

    /// The bytes that a reference points to: a number of elements of `element` bytes; none for a null reference.
    pub(crate) fn value(&mut self, reference: &[u8], element: usize) -> Result<&[u8]> {
        let file = self.file;
        let corrupt = |offset: u64, detail: String| {
            Error::corrupt("a global heap", file.storage.describe(), offset, detail)
        };
        let little = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
        if reference.len() != file.reference_size() {
            return Err(corrupt(0, format!("a reference of {} bytes", reference.len())));
        }
        let (count, rest) = reference.split_at(4);
        let (address, index) = rest.split_at(usize::from(file.offset_size));
        let (count, address, index) = (little(count), little(address), little(index));
        if index == 0 || address == 0 || file.is_undefined(address) {
            return Ok(&[]);
        }
        let len = usize::try_from(count).ok().and_then(|count| count.checked_mul(element));
        let object = self.object(address, index)?;
        len.and_then(|len| object.get(..len))
            .ok_or_else(|| corrupt(address, format!("object {index} is shorter than {count} elements")))
    }

    /// The bytes of an object of the heap at an address.
    pub(crate) fn object(&mut self, address: u64, index: u64) -> Result<&[u8]> {
        self.load(address)?;
        let object = self.collections.get(&address).zip(u16::try_from(index).ok());
        let object = object.and_then(|(collection, index)| collection.get_object(index));
        let missing = || {
            Error::corrupt(
                "a global heap",
                self.file.storage.describe(),
                address,
                format!("no object {index}"),
            )
        };
        object.map(|object| &object.data[..]).ok_or_else(missing)
    }

    fn load(&mut self, address: u64) -> Result<()> {
        if self.collections.contains_key(&address) {
            return Ok(());
        }
        if self.held > HELD {
            self.collections.clear();
            self.held = 0;
        }
        let file = self.file;
        let collection = GlobalHeapCollection::parse_at_storage(
            &*file.storage,
            address,
            file.offset_size,
            file.length_size,
        )
        .map_err(|e| file.error(e, "a global heap"))?;
        let bytes: usize = collection.objects.iter().map(|object| object.data.len()).sum();
        self.held += bytes;
        self.read = self.read.saturating_add(bytes as u64);
        self.collections.insert(address, collection);
        Ok(())
    }
}

/// Whether a variable-length type has references of the size that the file has.
pub(crate) fn has_references(file: &File, cell: &Hdf5CellType) -> bool {
    cell.size == file.reference_size()
}
