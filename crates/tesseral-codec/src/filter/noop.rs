//! The identity filter.

use tesseral_core::Result;

use super::FilterBuffers;

pub(crate) fn reverse(meta: &[u8], data: &[u8], out: &mut FilterBuffers) -> Result<()> {
    out.meta.extend_from_slice(meta);
    out.data.extend_from_slice(data);
    Ok(())
}
