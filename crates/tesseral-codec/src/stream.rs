//! Reading decoders: into a slice of a known length, or into a vector that grows as far as the caller admits.

use std::io::Read;

use tesseral_core::{Error, Result, alloc};

/// Decides whether an output of this many bytes is acceptable, before it is allocated.
pub type Admit<'a> = &'a dyn Fn(u64) -> Result<()>;

/// Bytes by which an output of unknown length grows.
const STEP: usize = 64 << 10;

/// Fills `dst` exactly.
///
/// # Errors
/// `Codec` when the input is damaged or the output is shorter or longer than `dst`.
pub(crate) fn fill(codec: &'static str, reader: &mut dyn Read, dst: &mut [u8]) -> Result<()> {
    let expected = dst.len();
    let mut filled = 0;
    loop {
        let mut beyond = [0];
        let rest = &mut dst[filled..];
        let out = if rest.is_empty() { &mut beyond[..] } else { rest };
        match reader.read(out) {
            Ok(0) if filled == expected => return Ok(()),
            Ok(n) if n > 0 && filled < expected => filled += n,
            Ok(0) => {
                return Err(Error::codec(codec, format!("expected {expected} bytes, decoded {filled}")));
            }
            Ok(_) => return Err(Error::codec(codec, format!("more than the expected {expected} bytes"))),
            Err(e) => return Err(Error::codec(codec, e)),
        }
    }
}

/// Appends everything that a reader returns to `out`.
///
/// # Errors
/// `Codec` when the input is damaged; errors of `admit`.
pub(crate) fn grow(
    codec: &'static str,
    reader: &mut dyn Read,
    out: &mut Vec<u8>,
    admit: Admit<'_>,
) -> Result<()> {
    loop {
        let start = out.len();
        let step = STEP.max(start / 4);
        admit(start.saturating_add(step) as u64)?;
        alloc::resize("decoded bytes", out, start + step, 0)?;
        let read = reader.read(&mut out[start..]);
        out.truncate(start + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(e) => return Err(Error::codec(codec, e)),
        }
    }
}
