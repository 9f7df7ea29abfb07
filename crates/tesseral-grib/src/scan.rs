//! One pass over a file: its messages and their fields. Only headers are read, never packed values.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem::Finder;
use tesseral_core::{Error, ErrorKind, Result};
use tesseral_format::OpenOptions;
use tesseral_store::{Store, StoreExt};

use crate::field::GribField;
use crate::grid::{self, Grid};
use crate::packing::FieldPacking;
use crate::product::FieldProduct;
use crate::wire::octets::Octets;
use crate::wire::{edition1, edition2};

/// First bytes of a message.
pub(crate) const MAGIC: [u8; 4] = *b"GRIB";
/// Last bytes of a message.
const END: [u8; 4] = *b"7777";
/// Bytes that are read at the start of a message of a store that is not resident.
const WINDOW: u64 = 16 << 10;
/// Number of messages whose headers are requested together from stores that serve several requests at a time. Messages of a file
/// often have the same length, so that the offsets of the next ones can be guessed.
const AHEAD: u64 = 16;
/// Estimated size of a field in memory.
const FIELD: u64 = 512;
/// Number of damaged messages that are described; others are counted.
const FAULTS: usize = 1000;

/// A field or message that cannot be represented: its place and the reason.
#[derive(Debug)]
pub(crate) struct UnreadField {
    pub message: u64,
    pub error: Error,
}

/// The content of a file.
#[derive(Debug, Default)]
pub(crate) struct GribScan {
    pub fields: Vec<GribField>,
    /// Fields of unsupported kinds.
    pub unread: Vec<UnreadField>,
    /// Damaged messages.
    pub faults: Vec<UnreadField>,
    pub messages: u64,
    /// Bytes outside messages.
    pub between: u64,
    /// Bytes of headers.
    pub header_bytes: u64,
}

/// Reads headers from a store, with read-ahead.
struct Headers<'a> {
    store: &'a dyn Store,
    resident: Option<Bytes>,
    object: String,
    len: u64,
    windows: Vec<(u64, Bytes)>,
    /// Length of the last message.
    stride: u64,
}

impl<'a> Headers<'a> {
    fn new(store: &'a dyn Store) -> Result<Self> {
        let (resident, len, object) = (store.resident("")?, store.len("")?, store.describe(""));
        Ok(Self { store, resident, object, len, windows: Vec::new(), stride: 0 })
    }

    /// The bytes of a range.
    fn bytes(&mut self, range: Range<u64>) -> Result<Bytes> {
        if range.start > range.end || range.end > self.len {
            let (expected, found) =
                (range.end - range.start.min(range.end), self.len.saturating_sub(range.start));
            return Err(Error::truncated("a message", &self.object, range.start, expected, found));
        }
        let cut = |start: u64, bytes: &Bytes| {
            bytes.slice((range.start - start) as usize..(range.end - start) as usize)
        };
        if let Some(bytes) = &self.resident {
            return Ok(cut(0, bytes));
        }
        let holds = |(start, bytes): &&(u64, Bytes)| {
            *start <= range.start && range.end <= start.saturating_add(bytes.len() as u64)
        };
        if let Some((start, bytes)) = self.windows.iter().find(holds) {
            return Ok(cut(*start, bytes));
        }
        let window = |start: u64, least: u64| start..least.max(start.saturating_add(WINDOW)).min(self.len);
        let mut ranges = vec![window(range.start, range.end)];
        if self.store.profile().parallel > 1 && self.stride > WINDOW {
            let next = (1..=AHEAD).map(|n| range.start.saturating_add(n.saturating_mul(self.stride)));
            ranges.extend(next.take_while(|start| *start < self.len).map(|start| window(start, start)));
        }
        let read = self.store.read_many("", &ranges)?;
        self.windows = ranges.iter().map(|range| range.start).zip(read).collect();
        match self.windows.first() {
            Some((start, bytes)) => Ok(cut(*start, bytes)),
            None => Err(Error::internal("the store returned no bytes for a range")),
        }
    }

    /// Offset of the next message from `from` on.
    fn find(&mut self, from: u64) -> Result<Option<u64>> {
        let finder = Finder::new(&MAGIC);
        let mut at = from;
        while at.saturating_add(4) <= self.len {
            let step = if self.resident.is_some() { 1 << 20 } else { WINDOW };
            let end = at.saturating_add(step).min(self.len);
            let bytes = self.bytes(at..end)?;
            if let Some(found) = finder.find(&bytes) {
                return Ok(Some(at + found as u64));
            }
            if end == self.len {
                break;
            }
            at = end - 3;
        }
        Ok(None)
    }
}

/// GridTable by the bytes of their section.
#[derive(Default)]
struct GridTable(HashMap<(u8, Bytes), (usize, Arc<Grid>)>);

impl GridTable {
    fn get(&mut self, edition: u8, bytes: Bytes, section: &Octets<'_>) -> Result<(usize, Arc<Grid>)> {
        if let Some((number, grid)) = self.0.get(&(edition, bytes.clone())) {
            return Ok((*number, Arc::clone(grid)));
        }
        let grid = if edition == 1 { grid::edition1(section)? } else { grid::edition2(section)? };
        let entry = (self.0.len(), Arc::new(grid));
        // Not a slice of a larger buffer, which it would keep in memory.
        self.0.insert((edition, Bytes::copy_from_slice(&bytes)), entry.clone());
        Ok(entry)
    }
}

/// Scans a file. Damage and unsupported fields are part of the result.
///
/// # Errors
/// `Io`, `NotFound`, `Limit`, `Cancelled`.
pub(crate) fn scan(store: &dyn Store, options: &OpenOptions) -> Result<GribScan> {
    let mut walk = MessageWalk {
        headers: Headers::new(store)?,
        grids: GridTable::default(),
        scan: GribScan::default(),
        options,
        section_bytes: 0,
    };
    let (mut at, mut more) = (0, 0_u64);
    while let Some(start) = walk.headers.find(at)? {
        options.cancel.check()?;
        walk.scan.between += start - at;
        options.limits.check_metadata(walk.metadata())?;
        match walk.message(start) {
            Ok(end) => {
                walk.headers.stride = end - start;
                walk.scan.messages += 1;
                at = end;
            }
            Err(error) if error.is_damage() || matches!(error.kind(), ErrorKind::Unsupported { .. }) => {
                if walk.scan.faults.len() < FAULTS {
                    walk.scan.faults.push(UnreadField { message: start, error });
                } else {
                    more += 1;
                }
                at = start + MAGIC.len() as u64;
            }
            Err(error) => return Err(error),
        }
    }
    walk.scan.between += walk.headers.len.saturating_sub(at);
    if more > 0 {
        let error = walk.corrupt(at, format!("{more} more damaged messages up to here"));
        walk.scan.faults.push(UnreadField { message: at, error });
    }
    walk.scan.header_bytes = walk.section_bytes;
    Ok(walk.scan)
}

struct MessageWalk<'a> {
    headers: Headers<'a>,
    grids: GridTable,
    scan: GribScan,
    options: &'a OpenOptions,
    section_bytes: u64,
}

impl MessageWalk<'_> {
    /// Estimated size of the scan result in memory.
    fn metadata(&self) -> u64 {
        let entries = self.scan.fields.len() + self.scan.unread.len() + self.scan.faults.len();
        (entries as u64).saturating_mul(FIELD)
    }

    fn corrupt(&self, at: u64, detail: impl Into<String>) -> Error {
        Error::corrupt("message", &self.headers.object, at, detail.into())
    }

    /// Reads the message at an offset and returns its end.
    fn message(&mut self, start: u64) -> Result<u64> {
        let head = self.headers.bytes(start..start.saturating_add(8))?;
        match head[7] {
            1 => self.message1(start, u64::from(u32::from_be_bytes([0, head[4], head[5], head[6]]))),
            2 => self.message2(start, head[6]),
            edition => Err(self.corrupt(start, format!("edition {edition} is neither 1 nor 2"))),
        }
    }

    /// The bytes of a section, which is kept in memory while it is parsed.
    fn section(&mut self, range: Range<u64>) -> Result<Bytes> {
        let len = range.end.saturating_sub(range.start);
        self.options.limits.check_metadata(len)?;
        self.section_bytes += len;
        self.headers.bytes(range)
    }

    fn check_end(&mut self, end: u64) -> Result<()> {
        if *self.headers.bytes(end.saturating_sub(4)..end)? == END {
            return Ok(());
        }
        Err(self.corrupt(end.saturating_sub(4), "the message does not end with 7777"))
    }

    /// Adds a field, or the reason why it cannot be represented.
    fn add(&mut self, message: u64, field: Result<GribField>) -> Result<()> {
        match field {
            Ok(field) => self.scan.fields.push(field),
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported { .. }) => {
                self.scan.unread.push(UnreadField { message, error });
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn message1(&mut self, start: u64, length: u64) -> Result<u64> {
        let object = self.headers.object.clone();
        let number = |bytes: &[u8]| u64::from(u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]));
        let mut at = start + 8;
        let mut next = |walk: &mut Self, least: u64| -> Result<(u64, Bytes)> {
            let len = number(&walk.headers.bytes(at..at.saturating_add(3))?);
            if len < least {
                return Err(walk.corrupt(at, format!("a section of {len} bytes is shorter than {least}")));
            }
            let bytes = walk.section(at..at.saturating_add(len))?;
            let begin = at;
            at += len;
            Ok((begin, bytes))
        };
        let (begin, first) = next(self, 28)?;
        let definition = edition1::definition(&Octets::new(&first, "section 1", &object, begin));
        // Which sections follow is known even if the product is not supported.
        let presence = first[7];
        let mut grid = Err(Error::unsupported("predefined grids, which are given by a number only"));
        let mut vertical = 0;
        if presence & 0x80 != 0 {
            let (begin, bytes) = next(self, 32)?;
            vertical = u32::from(bytes[3]);
            let section = Octets::new(&bytes, "section 2", &object, begin);
            grid = self.grids.get(1, bytes.clone(), &section);
        }
        let mut bitmap = None;
        if presence & 0x40 != 0 {
            let begin = at;
            let head = self.headers.bytes(at..at.saturating_add(6))?;
            let (len, table) = (number(&head), u16::from_be_bytes([head[4], head[5]]));
            if len < 6 {
                return Err(self.corrupt(begin, "a bitmap section of fewer than 6 bytes"));
            }
            at = begin.saturating_add(len);
            bitmap = Some(if table == 0 {
                Ok(begin + 6..at)
            } else {
                Err(Error::unsupported(format!("predefined bitmap {table}")))
            });
        }
        let head = self.headers.bytes(at..at.saturating_add(3))?;
        let mut data_len = number(&head);
        let mut end = start.saturating_add(length);
        if length & 0x80_0000 != 0 && data_len < 120 {
            // Messages beyond 8 MiB count in units of 120 bytes; the length of section 4 is what exceeds the message.
            end = start + ((length & 0x7f_ffff) * 120).saturating_sub(data_len).saturating_add(4);
            data_len = end.saturating_sub(4).saturating_sub(at);
        }
        if data_len < 11 || at.saturating_add(data_len).saturating_add(4) > end {
            return Err(self.corrupt(at, format!("section 4 of {data_len} bytes exceeds the message")));
        }
        if end > self.headers.len {
            let found = self.headers.len - start;
            return Err(Error::truncated("a message", &object, start, end - start, found));
        }
        let head = self.section(at..at + data_len.min(25))?;
        let section = Octets::new(&head, "section 4", &object, at);
        let data_end = at + data_len;
        let field = definition.and_then(|definition| {
            let (packing, header) = edition1::packing(&section, definition.decimal_scale)?;
            let (grid_number, grid) = grid?;
            let bitmap = bitmap.transpose()?;
            let product = FieldProduct { vertical_parameters: vertical, ..definition.product };
            let data = at.saturating_add(header).min(data_end)..data_end;
            let coded = if bitmap.is_none() { Some(grid.points) } else { None };
            Ok(GribField { message: start, product, grid, grid_number, packing, coded, bitmap, data })
        });
        let field = field.and_then(|field| self.checked(field));
        self.check_end(end)?;
        self.add(start, field)?;
        Ok(end)
    }

    /// Compares sizes that sections state with each other.
    fn checked(&self, field: GribField) -> Result<GribField> {
        let points = field.grid.points;
        let stored = field.data.end - field.data.start;
        if let Some(bitmap) = &field.bitmap
            && (bitmap.end - bitmap.start) < points.div_ceil(8)
        {
            return Err(self.corrupt(bitmap.start, format!("the bitmap is too short for {points} points")));
        }
        match field.coded {
            Some(coded) if field.bitmap.is_none() && coded != points => {
                let detail = format!("{coded} values of {points} points without a bitmap");
                return Err(self.corrupt(field.data.start, detail));
            }
            Some(coded) if coded > points => {
                return Err(self.corrupt(field.data.start, format!("{coded} values of {points} points")));
            }
            _ => {}
        }
        let needed = field.coded.and_then(|coded| field.packing.packed_len(coded));
        if needed.is_some_and(|needed| needed > stored) {
            let needed = needed.unwrap_or(u64::MAX);
            return Err(Error::truncated(
                "section 7",
                &self.headers.object,
                field.data.start,
                needed,
                stored,
            ));
        }
        Ok(field)
    }

    fn message2(&mut self, start: u64, discipline: u8) -> Result<u64> {
        let object = self.headers.object.clone();
        let head = self.headers.bytes(start..start.saturating_add(16))?;
        let total = head.last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let end = start.checked_add(total).filter(|end| *end <= self.headers.len);
        let end = end.ok_or_else(|| {
            Error::truncated("a message", &object, start, total, self.headers.len.saturating_sub(start))
        })?;
        if total < 20 {
            return Err(self.corrupt(start, format!("a message of {total} bytes")));
        }
        let mut state = Sections::default();
        let mut found = Vec::new();
        let mut at = start + 16;
        while at != end - 4 {
            let head = self.headers.bytes(at..at.saturating_add(5))?;
            let len = u64::from(u32::from_be_bytes([head[0], head[1], head[2], head[3]]));
            let number = head[4];
            if len < 5 || at.saturating_add(len) > end - 4 {
                return Err(self.corrupt(at, format!("section {number} of {len} bytes exceeds the message")));
            }
            let whole = at..at + len;
            let what = [
                "",
                "section 1",
                "section 2",
                "section 3",
                "section 4",
                "section 5",
                "section 6",
                "section 7",
            ];
            let Some(what) = what.get(usize::from(number)).filter(|_| number > 0) else {
                return Err(self.corrupt(at, format!("unknown section {number}")));
            };
            // Bitmaps and packed values are not read.
            let needed = if number == 6 {
                len.min(6)
            } else if number == 7 {
                5
            } else {
                len
            };
            let bytes = self.section(at..at + needed)?;
            let section = Octets::new(&bytes, what, &object, at);
            match number {
                1 => state.identification = Some(edition2::Identification::parse(&section)?),
                2 => state.identification = state.identification.map(|own| own.with_local(&section)),
                3 => state.grid = Some(self.grids.get(2, bytes.clone(), &section)),
                4 => {
                    let of = state.identification.ok_or_else(|| self.corrupt(at, "section 1 is missing"))?;
                    state.product = Some(edition2::product(&section, discipline, &of));
                }
                5 => state.packing = Some(edition2::packing(&section)),
                6 => match section.u8(6)? {
                    0 => state.bitmap = Some(whole.start + 6..whole.end),
                    255 => state.bitmap = None,
                    254 if state.last_bitmap.is_some() => state.bitmap.clone_from(&state.last_bitmap),
                    254 => {
                        return Err(self.corrupt(at, "a bitmap refers to an earlier one, which is missing"));
                    }
                    other => state.undefined_bitmap = Some(other),
                },
                _ => {
                    let field = state.field(start, whole.start + 5..whole.end);
                    let field =
                        field.ok_or_else(|| self.corrupt(at, "sections before section 7 are missing"))?;
                    found.push(field.and_then(|field| self.checked(field)));
                }
            }
            at = whole.end;
        }
        self.check_end(end)?;
        // Damage anywhere in a message makes all of it unreliable: its lengths no longer agree.
        if let Some(at) = found.iter().position(|field| field.as_ref().is_err_and(Error::is_damage)) {
            return Err(found.swap_remove(at).err().unwrap_or_else(|| self.corrupt(start, "damaged")));
        }
        for field in found {
            self.add(start, field)?;
        }
        Ok(end)
    }
}

/// The sections of a message of edition 2 that apply to the next field. Each stays valid until it is repeated.
#[derive(Default)]
struct Sections {
    identification: Option<edition2::Identification>,
    grid: Option<Result<(usize, Arc<Grid>)>>,
    product: Option<Result<FieldProduct>>,
    packing: Option<Result<(u64, FieldPacking)>>,
    bitmap: Option<Range<u64>>,
    last_bitmap: Option<Range<u64>>,
    undefined_bitmap: Option<u8>,
}

/// A result that can be used again.
fn again<T: Clone>(result: &Result<T>) -> Result<T> {
    match result {
        Ok(value) => Ok(value.clone()),
        Err(error) => match error.kind() {
            ErrorKind::Unsupported { feature } => Err(Error::unsupported(feature.clone())),
            _ => Err(Error::corrupt("message", "", error.offset(), error.to_string())),
        },
    }
}

impl Sections {
    /// The field whose data is in a byte range; `None` if a section is missing.
    fn field(&mut self, message: u64, data: Range<u64>) -> Option<Result<GribField>> {
        let (grid, product) = (again(self.grid.as_ref()?), again(self.product.as_ref()?));
        let packing = again(self.packing.as_ref()?);
        self.last_bitmap = self.bitmap.clone().or(self.last_bitmap.take());
        let (bitmap, undefined) = (self.bitmap.clone(), self.undefined_bitmap.take());
        let make = || {
            if let Some(number) = undefined {
                return Err(Error::unsupported(format!("predefined bitmap {number}")));
            }
            let ((grid_number, grid), (coded, packing)) = (grid?, packing?);
            let coded = Some(coded);
            Ok(GribField { message, product: product?, grid, grid_number, packing, coded, bitmap, data })
        };
        Some(make())
    }
}
