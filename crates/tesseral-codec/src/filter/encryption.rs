//! AES-256-GCM over metadata and data parts.
//!
//! Header `u32 metadata parts`, `u32 data parts`, then per part `u32` plaintext length, `u32` stored length, a 12-byte IV and a
//! 16-byte tag. The data are the ciphertexts, metadata parts first.

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use tesseral_core::{Cursor, Error, Result};

use super::header::put_len;
use super::{FilterBuffers, grow};

const NAME: &str = "aes_256_gcm";

pub(crate) fn reverse(
    key: Option<&[u8; 32]>,
    meta: &[u8],
    data: &[u8],
    out: &mut FilterBuffers,
    cap: usize,
) -> Result<()> {
    let Some(key) = key else {
        return Err(Error::invalid("missing encryption key: the array is encrypted with AES-256-GCM"));
    };
    let cipher = Aes256Gcm::new(key.into());
    let mut header = Cursor::codec(NAME, meta);
    let mut data = Cursor::codec(NAME, data);
    let meta_parts = header.len32("metadata parts")?;
    let data_parts = header.count32(36, "data parts")?;
    for part in 0..meta_parts.saturating_add(data_parts) {
        let plain = header.len32("part length")?;
        let stored = data.take(header.len32("part stored length")?, "part")?;
        let iv: [u8; 12] = header.array("IV")?;
        let tag: [u8; 16] = header.array("tag")?;
        if plain != stored.len() {
            return Err(header.corrupt(
                "a filtered chunk",
                format!("plaintext of {plain} bytes has a ciphertext of {}", stored.len()),
            ));
        }
        let out = if part < meta_parts { &mut out.meta } else { &mut out.data };
        let target = grow(out, plain, cap, NAME)?;
        target.copy_from_slice(stored);
        let opened = cipher.decrypt_inout_detached(&Nonce::from(iv), &[], target.into(), &Tag::from(tag));
        opened.map_err(|_| {
            header.corrupt("a filtered chunk", "authentication tag mismatch: wrong key or damaged data")
        })?;
    }
    Ok(())
}

/// Encrypts metadata, if any, and data, each with its own IV.
pub(crate) fn forward(
    key: Option<&[u8; 32]>,
    meta: &[u8],
    data: &[u8],
    out: &mut FilterBuffers,
) -> Result<()> {
    let Some(key) = key else {
        return Err(Error::invalid("missing encryption key: the array is encrypted with AES-256-GCM"));
    };
    let cipher = Aes256Gcm::new(key.into());
    put_len(NAME, usize::from(!meta.is_empty()), &mut out.meta)?;
    put_len(NAME, 1, &mut out.meta)?;
    for part in (!meta.is_empty()).then_some(meta).into_iter().chain([data]) {
        let iv = random_iv();
        let start = out.data.len();
        out.data.extend_from_slice(part);
        let sealed = cipher.encrypt_inout_detached(&Nonce::from(iv), &[], (&mut out.data[start..]).into());
        let tag = sealed.map_err(|_| Error::codec(NAME, "part too long"))?;
        put_len(NAME, part.len(), &mut out.meta)?;
        put_len(NAME, part.len(), &mut out.meta)?;
        out.meta.extend_from_slice(&iv);
        out.meta.extend_from_slice(&tag);
    }
    Ok(())
}

/// Twelve random bytes from the operating system. Random UUIDs have six fixed bits, in bytes 6 and 8.
fn random_iv() -> [u8; 12] {
    let uuid = uuid::Uuid::new_v4().into_bytes();
    let mut iv = [0; 12];
    iv[..6].copy_from_slice(&uuid[..6]);
    iv[6..].copy_from_slice(&uuid[10..]);
    iv
}
