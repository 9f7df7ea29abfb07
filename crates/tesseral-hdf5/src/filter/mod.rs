//! Filter pipelines: the steps between the cells of a chunk and its stored bytes.
//!
//! Filters are applied in the order of the pipeline and undone in reverse. A chunk has a mask of filters that were skipped.

mod bitshuffle;
mod fletcher32;
mod lz4;
mod lzf;
mod szip;

use hdf5_reader::messages::filter_pipeline::FilterDescription;
use smallvec::SmallVec;
use tesseral_codec::{Contexts, blosc2, bzip2, shuffle, zlib, zstd};
use tesseral_core::{Error, Result, alloc};
use tesseral_format::Scratch;

use self::bitshuffle::Bitshuffle;
use self::szip::Szip;

/// One filter with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hdf5Filter {
    Deflate,
    Shuffle {
        size: usize,
    },
    Fletcher32,
    Szip(Szip),
    Nbit {
        parameters: Vec<u32>,
    },
    ScaleOffset {
        parameters: Vec<u32>,
    },
    Lzf,
    Blosc,
    Blosc2,
    Lz4,
    Zstd,
    Bzip2,
    Bitshuffle(Bitshuffle),
    /// Filters that changed values when they were written and leave them alone when they are read.
    Quantize,
}

/// Names of filters without an implementation, for errors.
const OTHERS: [(u16, &str); 8] = [
    (305, "lzo"),
    (32013, "zfp"),
    (32017, "sz"),
    (32018, "fcidecomp"),
    (32019, "jpeg"),
    (32024, "sz3"),
    (32028, "sperr"),
    (32029, "imagecodecs"),
];

impl Hdf5Filter {
    /// The filter of a description; `element` is the size of an element in bytes.
    fn new(description: &FilterDescription, element: usize) -> Result<Self> {
        let parameters = description.client_data.clone();
        let size = |at: usize| parameters.get(at).and_then(|n| usize::try_from(*n).ok()).filter(|n| *n > 0);
        Ok(match description.id {
            1 => Self::Deflate,
            2 => Self::Shuffle { size: size(0).unwrap_or(element) },
            3 => Self::Fletcher32,
            4 => Self::Szip(Szip::new(&parameters)?),
            5 => Self::Nbit { parameters },
            6 => Self::ScaleOffset { parameters },
            307 => Self::Bzip2,
            32000 => Self::Lzf,
            32001 => Self::Blosc,
            32004 => Self::Lz4,
            32008 => Self::Bitshuffle(Bitshuffle::new(&parameters, element)?),
            32015 => Self::Zstd,
            32022 | 32023 => Self::Quantize,
            32026 => Self::Blosc2,
            id => {
                let known = OTHERS.iter().find(|(other, _)| *other == id).map(|(_, name)| (*name).to_owned());
                let name = known.or_else(|| description.name.clone()).unwrap_or_else(|| "unnamed".to_owned());
                return Err(Error::unsupported(format!("the HDF5 filter {id} ({name})")));
            }
        })
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Deflate => "deflate",
            Self::Shuffle { .. } => "shuffle",
            Self::Fletcher32 => "fletcher32",
            Self::Szip(_) => "szip",
            Self::Nbit { .. } => "nbit",
            Self::ScaleOffset { .. } => "scaleoffset",
            Self::Lzf => "lzf",
            Self::Blosc => "blosc",
            Self::Blosc2 => "blosc2",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::Bitshuffle(_) => "bitshuffle",
            Self::Quantize => "quantize",
        }
    }

    /// Bytes that the filter adds; `None` if that depends on the data.
    fn growth(&self) -> Option<usize> {
        match self {
            Self::Shuffle { .. } | Self::Quantize => Some(0),
            Self::Fletcher32 => Some(fletcher32::LEN),
            _ => None,
        }
    }

    /// Undoes a filter that only shortens or keeps the bytes; `None` for all others.
    fn trimmed<'a>(&self, src: &'a [u8]) -> Option<Result<&'a [u8]>> {
        match self {
            Self::Fletcher32 => Some(fletcher32::check(src)),
            Self::Quantize => Some(Ok(src)),
            _ => None,
        }
    }

    /// Undoes the filter and returns the number of bytes written. If `exact`, they must fill `dst`.
    fn decode(&self, src: &[u8], dst: &mut [u8], exact: bool, contexts: &mut Contexts) -> Result<usize> {
        let len = dst.len();
        match self {
            Self::Deflate if exact => zlib::decode_into(src, dst).map(|()| len),
            Self::Deflate => inflate(src, dst),
            Self::Shuffle { size } => unshuffle(src, *size, dst),
            Self::Szip(szip) => szip.decode(src, dst),
            Self::Nbit { parameters } => {
                copy("nbit", hdf5_reader::filters::nbit::decompress_with_limit(src, parameters, len), dst)
            }
            Self::ScaleOffset { parameters } => copy(
                "scaleoffset",
                hdf5_reader::filters::scaleoffset::decompress_with_limit(src, parameters, len),
                dst,
            ),
            Self::Lzf => lzf::decode(src, dst),
            Self::Blosc => blosc2::decode_chunk_into(src, dst, contexts).map(|()| len),
            Self::Blosc2 => blosc2::decode_into(src, dst, contexts).map(|()| len),
            Self::Lz4 => lz4::decode(src, dst),
            Self::Zstd => zstd::decode_into(src, dst, contexts).map(|()| len),
            Self::Bzip2 => bzip2::decode_into(src, dst).map(|()| len),
            Self::Bitshuffle(bitshuffle) => bitshuffle.decode(src, dst, contexts),
            Self::Fletcher32 | Self::Quantize => Err(Error::internal("the filter is undone without a copy")),
        }
    }
}

/// Decodes a stream whose output is at most as long as `dst`.
fn inflate(src: &[u8], dst: &mut [u8]) -> Result<usize> {
    let (mut out, most) = (Vec::new(), dst.len() as u64 * 2 + (1 << 20));
    let admit = |len: u64| if len > most { Err(Error::limit("a filtered chunk", len, most)) } else { Ok(()) };
    zlib::decode_growing(src, &mut out, &admit)?;
    let target = dst.get_mut(..out.len()).ok_or_else(|| Error::codec("deflate", "the output is too long"))?;
    target.copy_from_slice(&out);
    Ok(out.len())
}

/// Copies the output of a decoder of the parser.
fn copy(codec: &'static str, decoded: hdf5_reader::error::Result<Vec<u8>>, dst: &mut [u8]) -> Result<usize> {
    let decoded = decoded.map_err(|e| Error::codec(codec, e))?;
    let target = dst.get_mut(..decoded.len()).ok_or_else(|| Error::codec(codec, "the output is too long"))?;
    target.copy_from_slice(&decoded);
    Ok(decoded.len())
}

/// Restores elements; bytes after the last complete element are stored unchanged.
fn unshuffle(src: &[u8], size: usize, dst: &mut [u8]) -> Result<usize> {
    let dst = dst.get_mut(..src.len()).ok_or_else(|| Error::codec("shuffle", "the output is too long"))?;
    let whole = src.len() / size.max(1) * size.max(1);
    let (elements, tail) = dst.split_at_mut(whole);
    shuffle::decode_into(&src[..whole], size.max(1), elements)?;
    tail.copy_from_slice(&src[whole..]);
    Ok(src.len())
}

/// The filters of a dataset, in the order in which they were applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pipeline {
    filters: Vec<Hdf5Filter>,
}

impl Pipeline {
    /// The pipeline of a dataset with elements of `element` bytes.
    pub(crate) fn new(descriptions: &[FilterDescription], element: usize) -> Result<Self> {
        let filters = descriptions.iter().map(|description| Hdf5Filter::new(description, element));
        Ok(Self { filters: filters.collect::<Result<_>>()? })
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.filters.iter().map(|filter| filter.name().to_owned()).collect()
    }

    fn active(&self, mask: u32) -> impl DoubleEndedIterator<Item = (usize, &Hdf5Filter)> {
        let skipped = move |at: usize| at < 32 && mask >> at & 1 == 1;
        self.filters.iter().enumerate().filter(move |(at, _)| !skipped(*at))
    }

    /// Whether a chunk with this mask is stored as its cells.
    pub(crate) fn is_plain(&self, mask: u32) -> bool {
        self.active(mask).next().is_none()
    }

    /// Whether a chunk with this mask has a checksum.
    pub(crate) fn has_checksum(&self, mask: u32) -> bool {
        self.active(mask).any(|(_, filter)| matches!(filter, Hdf5Filter::Fletcher32))
    }

    /// Bytes before filter `number` was applied to `raw` bytes; `None` if a filter before it changes the length.
    fn input_len(&self, number: usize, mask: u32, raw: usize) -> Option<usize> {
        let mut before = self.active(mask).take_while(|(at, _)| *at < number);
        before.try_fold(raw, |len, (_, filter)| filter.growth().and_then(|more| len.checked_add(more)))
    }

    /// Undoes all filters of a chunk with this mask; the result must fill `dst` exactly.
    pub(crate) fn decode(
        &self,
        stored: &[u8],
        mask: u32,
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let mut buffers = std::mem::take(&mut scratch.buffers);
        let done = self.undo(stored, mask, dst, &mut buffers, &mut scratch.contexts);
        scratch.buffers = buffers;
        done
    }

    fn undo(
        &self,
        mut stored: &[u8],
        mask: u32,
        dst: &mut [u8],
        buffers: &mut [Vec<u8>; 2],
        contexts: &mut Contexts,
    ) -> Result<()> {
        let steps: SmallVec<[(usize, &Hdf5Filter); 4]> = self.active(mask).rev().collect();
        let [from, to] = buffers;
        let (mut from, mut to) = (from, to);
        // Bytes in `from`; none before the first copy.
        let mut held = None;
        for (done, (number, filter)) in steps.iter().enumerate() {
            let src = held.map_or(stored, |len: usize| &from[..len]);
            if let Some(trimmed) = filter.trimmed(src) {
                let len = trimmed?.len();
                match &mut held {
                    None => stored = &stored[..len],
                    Some(held) => *held = len,
                }
                continue;
            }
            let exact = self.input_len(*number, mask, dst.len());
            if done + 1 == steps.len() {
                let written = filter.decode(src, dst, true, contexts)?;
                return expect(filter, dst.len(), written);
            }
            // Filters whose output is shorter or hardly longer than their input.
            let most = exact.unwrap_or_else(|| dst.len().saturating_add(dst.len() / 8).saturating_add(4096));
            let out = alloc::scratch("a filtered chunk", to, most)?;
            let written = filter.decode(src, out, exact.is_some(), contexts)?;
            if let Some(exact) = exact {
                expect(filter, exact, written)?;
            }
            held = Some(written);
            std::mem::swap(&mut from, &mut to);
        }
        let src = held.map_or(stored, |len| &from[..len]);
        if src.len() != dst.len() {
            let detail = format!("expected {} bytes, found {}", dst.len(), src.len());
            return Err(Error::codec("hdf5", detail));
        }
        dst.copy_from_slice(src);
        Ok(())
    }
}

fn expect(filter: &Hdf5Filter, expected: usize, written: usize) -> Result<()> {
    if expected == written {
        return Ok(());
    }
    Err(Error::codec(filter.name(), format!("expected {expected} bytes, decoded {written}")))
}

/// Undoes a pipeline of arbitrary filters, for fuzzing.
///
/// # Errors
/// `Unsupported`, `Codec`, `Limit`.
pub fn decode_filters(filters: &[(u16, Vec<u32>)], mask: u32, stored: &[u8], dst: &mut [u8]) -> Result<()> {
    let describe = |(id, parameters): &(u16, Vec<u32>)| FilterDescription {
        id: *id,
        name: None,
        client_data: parameters.clone(),
    };
    let descriptions: Vec<FilterDescription> = filters.iter().map(describe).collect();
    Pipeline::new(&descriptions, 4)?.decode(stored, mask, dst, &mut Scratch::default())
}

#[cfg(test)]
mod tests;
