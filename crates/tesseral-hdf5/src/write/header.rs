//! Object headers of version 2 and their messages.
//!
//! ```text
//! OHDR · version · flags · attribute limits · size │ message … │ checksum
//! message: type · size · flags · order of creation │ body
//! ```

use hdf5_reader::checksum::jenkins_lookup3;
use tesseral_core::{Error, Result};

/// The undefined address.
pub(super) const UNDEFINED: u64 = u64::MAX;
/// The extent of an unlimited dimension.
pub(super) const UNLIMITED: u64 = u64::MAX;
/// The most bytes of a message.
const MESSAGE: usize = u16::MAX as usize;

/// Types of messages.
const DATASPACE: u8 = 1;
const LINK_INFO: u8 = 2;
const DATATYPE: u8 = 3;
const FILL_VALUE: u8 = 5;
const LINK: u8 = 6;
const LAYOUT: u8 = 8;
const GROUP_INFO: u8 = 10;
const FILTERS: u8 = 11;
const ATTRIBUTE: u8 = 12;
const ATTRIBUTE_INFO: u8 = 21;

/// Size of the first block in four bytes; attributes in order of creation; limits of attributes.
const FLAGS: u8 = 0x02 | 0x04 | 0x08 | 0x10;
/// Order of creation is tracked and indexed.
const TRACKED: u8 = 3;

/// Appends numbers in little-endian order.
pub(super) trait Little {
    fn u16(&mut self, value: u16);
    fn u32(&mut self, value: u32);
    fn u64(&mut self, value: u64);
}

impl Little for Vec<u8> {
    fn u16(&mut self, value: u16) {
        self.extend(value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.extend(value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.extend(value.to_le_bytes());
    }
}

/// An object header that is being assembled.
#[derive(Debug, Default)]
pub(super) struct ObjectHeader {
    messages: Vec<u8>,
    attributes: u16,
}

impl ObjectHeader {
    fn message(&mut self, kind: u8, order: u16, body: &[u8]) -> Result<()> {
        let size = u16::try_from(body.len())
            .map_err(|_| Error::limit("a message of an object header", body.len() as u64, MESSAGE as u64))?;
        self.messages.push(kind);
        self.messages.u16(size);
        self.messages.push(0);
        self.messages.u16(order);
        self.messages.extend(body);
        Ok(())
    }

    /// Adds what makes the object a dataset; `filters` is the body of its pipeline, if it has one.
    pub(super) fn dataset(
        &mut self,
        space: &[u8],
        datatype: &[u8],
        fill: Option<&[u8]>,
        layout: &[u8],
        filters: Option<&[u8]>,
    ) -> Result<()> {
        self.message(DATASPACE, 0, space)?;
        self.message(DATATYPE, 0, datatype)?;
        // Version 3; allocation when needed, written where a value is defined.
        let mut body = vec![3, 0x0b | u8::from(fill.is_some()) << 5];
        if let Some(fill) = fill {
            body.u32(u32::try_from(fill.len()).unwrap_or(u32::MAX));
            body.extend(fill);
        }
        self.message(FILL_VALUE, 0, &body)?;
        self.message(LAYOUT, 0, layout)?;
        filters.map_or(Ok(()), |body| self.message(FILTERS, 0, body))
    }

    /// Adds what makes the object a group with these members in their order.
    pub(super) fn group<'a>(&mut self, members: impl ExactSizeIterator<Item = (&'a str, u64)>) -> Result<()> {
        let count = members.len();
        let mut info = vec![0, TRACKED];
        info.u64(count as u64);
        [UNDEFINED; 3].into_iter().for_each(|address| info.u64(address));
        self.message(LINK_INFO, 0, &info)?;
        // All links are in the header, however many.
        let mut info = vec![0, 1];
        info.u16(u16::try_from(count).unwrap_or(u16::MAX).max(8));
        info.u16(0);
        self.message(GROUP_INFO, 0, &info)?;
        for (order, (name, address)) in members.enumerate() {
            // Version 1; length of the name in two bytes, order of creation, character set UTF-8.
            let mut link = vec![1, 0x01 | 0x04 | 0x10];
            link.u64(order as u64);
            link.push(1);
            let len = u16::try_from(name.len());
            link.u16(len.map_err(|_| Error::limit("a name", name.len() as u64, MESSAGE as u64))?);
            link.extend(name.as_bytes());
            link.u64(address);
            self.message(LINK, 0, &link)?;
        }
        Ok(())
    }

    /// Adds an attribute.
    pub(super) fn attribute(&mut self, name: &str, datatype: &[u8], space: &[u8], data: &[u8]) -> Result<()> {
        let size = |len: usize| {
            u16::try_from(len).map_err(|_| Error::limit("an attribute", len as u64, MESSAGE as u64))
        };
        let mut body = vec![3, 0];
        body.u16(size(name.len() + 1)?);
        body.u16(size(datatype.len())?);
        body.u16(size(space.len())?);
        body.push(u8::from(!name.is_ascii()));
        body.extend(name.as_bytes());
        body.push(0);
        [datatype, space, data].into_iter().for_each(|part| body.extend(part));
        self.message(ATTRIBUTE, self.attributes, &body)?;
        self.attributes = self.attributes.saturating_add(1);
        Ok(())
    }

    /// The bytes of the header, a multiple of eight.
    pub(super) fn finish(mut self) -> Result<Vec<u8>> {
        let mut info = vec![0, TRACKED];
        info.u16(self.attributes);
        [UNDEFINED; 3].into_iter().for_each(|address| info.u64(address));
        self.message(ATTRIBUTE_INFO, 0, &info)?;
        let mut out = b"OHDR\x02".to_vec();
        out.push(FLAGS);
        out.u16(self.attributes.max(8));
        out.u16(0);
        let size = u32::try_from(self.messages.len());
        out.u32(size.map_err(|_| {
            Error::limit("an object header", self.messages.len() as u64, u64::from(u32::MAX))
        })?);
        out.extend(self.messages);
        out.u32(jenkins_lookup3(&out));
        out.resize(out.len().next_multiple_of(8), 0);
        Ok(out)
    }
}

/// A dataspace of these extents; no extents for a scalar.
pub(super) fn space(shape: &[u64], unlimited: &[bool]) -> Vec<u8> {
    let grows = unlimited.contains(&true);
    // Version 2; rank, whether there are maxima, scalar or simple.
    let rank = u8::try_from(shape.len()).unwrap_or(u8::MAX);
    let mut out = vec![2, rank, u8::from(grows), u8::from(rank > 0)];
    shape.iter().for_each(|extent| out.u64(*extent));
    if grows {
        let each = shape.iter().zip(unlimited);
        each.for_each(|(extent, unlimited)| out.u64(if *unlimited { UNLIMITED } else { *extent }));
    }
    out
}

/// The dataspace without elements.
pub(super) fn null_space() -> Vec<u8> {
    vec![2, 0, 0, 2]
}

/// The layout of cells in one range of bytes.
pub(super) fn contiguous(address: u64, len: u64) -> Vec<u8> {
    let mut out = vec![3, 1];
    out.u64(address);
    out.u64(len);
    out
}

/// The layout of chunks in a B-tree of version 1.
pub(super) fn chunked(tree: u64, chunk: &[u32], element: u32) -> Vec<u8> {
    let mut out = vec![3, 2, u8::try_from(chunk.len() + 1).unwrap_or(u8::MAX)];
    out.u64(tree);
    chunk.iter().chain([&element]).for_each(|extent| out.u32(*extent));
    out
}
