//! Opening and describing `.npz` archives: each `.npy` member is an array.

use std::ops::Range;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tesseral_codec::zlib;
use tesseral_core::{
    Attributes, CellLen, DType, Error, ErrorKind, Finding, HistoryRow, Limits, Result, numpy,
};
use tesseral_format::convention::{Holds, history, value};
use tesseral_format::{
    ArraySource, AuditOptions, AuditReport, Capabilities, ContainerSource, CreateOptions, Format,
    OpenOptions, Probe, Sniff, Writer,
};
use tesseral_store::{Bytes, Store, StoreExt};

use crate::array::{CellsPlace, NpyArray, PackedCells};
use crate::header::{self, NpyHeader};
use crate::write::NpzWriter;
use crate::zip::{self, ArchiveMember, Directory, MemberMethod};

/// The id of the format.
pub const ID: &str = "npz";
/// The extension of members that are arrays.
pub(crate) const SUFFIX: &str = ".npy";
/// Bytes of a member that are read first, after its local header: most headers are shorter.
const FIRST: u64 = 640;
/// Bytes of a local header: with the longest name and extra fields.
const LONGEST: u64 = zip::LOCAL_LEN + 2 * 0xffff;
/// Bytes that hold the longest header of a member, also as a deflate stream.
const MOST: u64 = LONGEST + 2 * header::MAX_LEN;

/// NumPy `.npz` archives.
#[derive(Clone, Copy, Debug, Default)]
pub struct NpzFormat;

/// An opened archive.
#[derive(Debug)]
struct NpzContainer {
    store: Arc<dyn Store>,
    names: Vec<String>,
    arrays: Vec<Arc<NpyArray>>,
    unread: Vec<String>,
    attributes: Attributes,
    history: Vec<HistoryRow>,
    members: usize,
    /// Bytes that are not cells.
    other_bytes: u64,
}

/// Whether an array of an archive holds these cells.
pub(crate) fn holds(dtype: DType, cell: CellLen) -> bool {
    let read = numpy::descr(dtype, cell).and_then(|descr| numpy::parse_descr(&descr));
    read.is_some_and(|(own, len, _)| (own, len) == (dtype, cell))
}

/// The header of a member and its place, from bytes that begin at its local header; `None` if these bytes are too few.
fn locate(member: &ArchiveMember, bytes: &[u8], object: &str) -> Result<Option<(NpyHeader, CellsPlace)>> {
    if (bytes.len() as u64) < zip::LOCAL_LEN {
        return Ok(None);
    }
    let begin = zip::stored_offset(bytes, object, member.offset)?;
    let corrupt = |detail: &str| Error::corrupt("member", object, member.offset, detail);
    let start = member.offset.checked_add(begin).ok_or_else(|| corrupt("offset beyond 2^64"))?;
    let end = start.checked_add(member.stored).ok_or_else(|| corrupt("length beyond 2^64"))?;
    let stored = usize::try_from(begin).ok().and_then(|begin| bytes.get(begin..));
    let Some(stored) = stored else { return Ok(None) };
    let stored = usize::try_from(member.stored).ok().and_then(|len| stored.get(..len)).unwrap_or(stored);
    // The bytes of the member as far as they are in memory.
    let content = |len: u64| -> Result<Vec<u8>> {
        let len = usize::try_from(len.min(header::FIRST + header::MAX_LEN)).unwrap_or(0);
        match member.method {
            MemberMethod::Deflate => zlib::inflate_prefix(stored, len)
                .map_err(|e| Error::corrupt("member", object, start, e.to_string())),
            _ => Ok(stored.get(..len).unwrap_or(stored).to_vec()),
        }
    };
    let complete = stored.len() as u64 == member.stored;
    let first = content(header::FIRST)?;
    if (first.len() as u64) < header::FIRST && !complete {
        return Ok(None);
    }
    let dictionary = header::dictionary_range(&first, object)?;
    let head = content(dictionary.end)?;
    let text = usize::try_from(dictionary.start).ok().and_then(|start| head.get(start..));
    let Some(text) = text.filter(|_| head.len() as u64 == dictionary.end) else {
        return if complete { Err(corrupt("the member ends inside its header")) } else { Ok(None) };
    };
    let header = NpyHeader::parse(text, object, start)?;
    let head = dictionary.end;
    let place = match member.method {
        MemberMethod::Deflate => CellsPlace {
            range: start..end,
            packed: Some(PackedCells { head, len: member.len, crc: member.crc }),
        },
        _ => CellsPlace { range: start + head..end, packed: None },
    };
    Ok(Some((header, place)))
}

/// Attributes of a document.
fn attributes_of(json: &Json) -> Attributes {
    let pairs = json.as_object().into_iter().flatten();
    pairs.map(|(name, own)| (name.clone(), value::from_json(own))).collect()
}

/// Metadata that this crate wrote into a comment.
fn document(comment: &[u8]) -> Json {
    let own = serde_json::from_slice::<Json>(comment).unwrap_or_default();
    own.get(crate::write::KEY).cloned().unwrap_or_default()
}

/// Data to read members.
struct Opening<'a> {
    store: &'a dyn Store,
    object: String,
    /// Offset of the central directory.
    end: u64,
    limits: Limits,
}

impl Opening<'_> {
    fn window(&self, member: &ArchiveMember, len: u64) -> Range<u64> {
        let start = member.offset.min(self.end);
        start..start.saturating_add(len).min(self.end)
    }

    /// The array of a member, from its first bytes.
    fn array(&self, name: &str, member: &ArchiveMember, first: &Bytes) -> Result<NpyArray> {
        if let MemberMethod::Other(method) = member.method {
            return Err(Error::unsupported(format!("encryption, or method {method},")));
        }
        let mut found = locate(member, first, &self.object)?;
        let mut len = first.len() as u64;
        while found.is_none() {
            let window = self.window(member, len.saturating_mul(16).min(MOST));
            let read = window.end - window.start;
            if read <= len {
                let detail = format!("{name:?} ends inside its header");
                return Err(Error::corrupt("member", &self.object, member.offset, detail));
            }
            len = read;
            found = locate(member, &self.store.read("", window)?, &self.object)?;
        }
        let Some((header, place)) = found else { return Err(Error::internal("a member without a header")) };
        if place.range.end > self.end {
            let detail = format!("{name:?} overlaps the directory");
            return Err(Error::corrupt("member", &self.object, member.offset, detail));
        }
        let own = document(&member.comment);
        let mut array = NpyArray::new(name, &header, place, &self.object, self.limits)?;
        array.describe_as(own["dims"].as_array(), attributes_of(&own["attributes"]));
        Ok(array)
    }
}

impl NpzContainer {
    fn open(store: Arc<dyn Store>, options: &OpenOptions) -> Result<Self> {
        let directory = Directory::read(&*store, &options.limits)?;
        let len = store.len("")?;
        let (object, limits) = (store.describe(""), options.limits);
        let opening = Opening { store: &*store, object, end: len - directory.len, limits };
        let own = document(&directory.comment);
        let (attributes, history) = (
            attributes_of(&own["attributes"]),
            history::from_value(own.get("history").map(value::from_json)),
        );
        let (mut names, mut arrays, mut unread) = (Vec::new(), Vec::new(), Vec::new());
        let is_array =
            |member: &&ArchiveMember| member.name.strip_suffix(SUFFIX).is_some_and(|n| !n.is_empty());
        let wanted: Vec<&ArchiveMember> = directory.members.iter().filter(is_array).collect();
        for other in directory.members.iter().filter(|member| !is_array(member)) {
            unread.push(format!("{}: the member is not a .npy file", other.name));
        }
        let windows: Vec<Range<u64>> = wanted
            .iter()
            .map(|member| opening.window(member, zip::LOCAL_LEN + member.name.len() as u64 + FIRST))
            .collect();
        let firsts = if windows.is_empty() { Vec::new() } else { store.read_many("", &windows)? };
        let mut known = std::collections::HashSet::new();
        let mut cells = 0_u64;
        for (member, first) in wanted.into_iter().zip(&firsts) {
            options.cancel.check()?;
            let name = member.name.strip_suffix(SUFFIX).unwrap_or(&member.name);
            if !known.insert(name) {
                let detail = format!("duplicate member {:?}", member.name);
                return Err(Error::corrupt("central directory", &opening.object, None, detail));
            }
            match opening.array(name, member, first) {
                Ok(array) => {
                    cells = cells.saturating_add(array.stored_len());
                    names.push(name.to_owned());
                    arrays.push(Arc::new(array));
                }
                Err(e) if matches!(e.kind(), ErrorKind::Unsupported { .. }) => {
                    unread.push(format!("{name}: {e}"));
                }
                Err(e) => return Err(e.in_array(name)),
            }
        }
        let (members, other_bytes) = (directory.members.len(), len.saturating_sub(cells));
        Ok(Self { store, names, arrays, unread, attributes, history, members, other_bytes })
    }
}

impl ContainerSource for NpzContainer {
    fn format(&self) -> &'static str {
        ID
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn len(&self) -> usize {
        self.arrays.len()
    }

    fn name(&self, index: usize) -> &str {
        self.names.get(index).map_or("", String::as_str)
    }

    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>> {
        let array = self.arrays.get(index).cloned().ok_or_else(|| self.out_of_bounds(index))?;
        Ok(array as Arc<dyn ArraySource>)
    }

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn history(&self) -> &[HistoryRow] {
        &self.history
    }

    fn unread(&self) -> Vec<String> {
        self.unread.clone()
    }

    fn details(&self) -> Json {
        json!({"members": self.members})
    }
}

impl Format for NpzFormat {
    fn id(&self) -> &'static str {
        ID
    }

    fn title(&self) -> &'static str {
        "NumPy .npz"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["npz"]
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { create: true, many_arrays: true, attributes: true, ..Capabilities::default() }
    }

    fn holds(&self) -> Holds {
        Holds { cells: holds, contiguous: true, ..Holds::DENSE }
    }

    fn sniff(&self, probe: &Probe<'_>) -> Sniff {
        let named = probe.has_extension(self.extensions());
        let archive = probe.head.starts_with(&zip::LOCAL);
        // The first member of an archive that NumPy wrote is a .npy file.
        let name = probe.head.get(26..28).map(|len| usize::from(u16::from_le_bytes([len[0], len[1]])));
        let name = name.and_then(|len| probe.head.get(30..)?.get(..len)).unwrap_or_default();
        match probe.entries {
            None if archive && name.ends_with(SUFFIX.as_bytes()) => Sniff::Content,
            None if named && (archive || probe.head.starts_with(&zip::END)) => Sniff::Content,
            None if named => Sniff::Name,
            _ => Sniff::No,
        }
    }

    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn ContainerSource>> {
        Ok(Arc::new(NpzContainer::open(store, options)?))
    }

    fn create(&self, store: Arc<dyn Store>, options: &CreateOptions) -> Result<Box<dyn Writer>> {
        Ok(Box::new(NpzWriter::create(&store, options)?))
    }

    fn audit(
        &self,
        store: Arc<dyn Store>,
        options: &AuditOptions,
        report: &mut dyn FnMut(Finding),
    ) -> Result<AuditReport> {
        let len = store.len("")?;
        let opened = NpzContainer::open(store, &options.open);
        AuditReport::from_opening(opened, len, report, |container, report| {
            report(Finding::passed("structure", "the directory describes all members"));
            AuditReport::uncovered(container.other_bytes)
        })
    }
}
