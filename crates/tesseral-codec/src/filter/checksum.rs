//! MD5 and SHA-256 checksums of the filter's input.
//!
//! Header `u32 metadata parts`, `u32 data parts`, then per part `u64` length and the digest. The metadata parts follow the
//! header; the data are the data parts.

use md5::Digest;
use tesseral_core::{Cursor, Result};

use super::FilterBuffers;

pub(crate) fn reverse<D: Digest>(
    filter: &'static str,
    verify: bool,
    meta: &[u8],
    data: &[u8],
    out: &mut FilterBuffers,
) -> Result<()> {
    let size = <D as Digest>::output_size();
    let mut header = Cursor::codec(filter, meta);
    let meta_parts = header.len32("metadata parts")?;
    let data_parts = header.len32("data parts")?;
    let entry_len = size + 8;
    let bytes = meta_parts.checked_add(data_parts).and_then(|n| n.checked_mul(entry_len));
    let table = header.take(bytes.unwrap_or(usize::MAX), "digest table")?;
    let (meta_table, data_table) = table.split_at(meta_parts * entry_len);
    check::<D>(filter, verify, meta_table, header.rest())?;
    check::<D>(filter, verify, data_table, data)?;
    out.meta.extend_from_slice(header.rest());
    out.data.extend_from_slice(data);
    Ok(())
}

fn check<D: Digest>(filter: &'static str, verify: bool, table: &[u8], bytes: &[u8]) -> Result<()> {
    let mut bytes = Cursor::codec(filter, bytes);
    for entry in table.chunks_exact(<D as Digest>::output_size() + 8) {
        let mut entry = Cursor::codec(filter, entry);
        let part = bytes.take(entry.len64("part length")?, "part")?;
        if verify && D::digest(part).as_slice() != entry.rest() {
            return Err(bytes.corrupt(
                "a filtered chunk",
                format!("checksum mismatch in a part of {} bytes", part.len()),
            ));
        }
    }
    Ok(())
}

/// Prepends the digests of metadata and data to the metadata.
pub(crate) fn forward<D: Digest>(
    filter: &'static str,
    meta: &[u8],
    data: &[u8],
    out: &mut FilterBuffers,
) -> Result<()> {
    super::header::put_len(filter, usize::from(!meta.is_empty()), &mut out.meta)?;
    super::header::put_len(filter, 1, &mut out.meta)?;
    for part in (!meta.is_empty()).then_some(meta).into_iter().chain([data]) {
        out.meta.extend_from_slice(&(part.len() as u64).to_le_bytes());
        out.meta.extend_from_slice(&D::digest(part));
    }
    out.meta.extend_from_slice(meta);
    out.data.extend_from_slice(data);
    Ok(())
}
