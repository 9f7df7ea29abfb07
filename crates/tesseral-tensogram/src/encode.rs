//! Encoding of cells into an object frame: masks, encoding, filter, compression.

use std::borrow::Cow;

use tesseral_codec::packing::SimplePacking;
use tesseral_codec::{Contexts, aec, shuffle};
use tesseral_core::dtype::Class;
use tesseral_core::{Advice, DType, Error, ErrorKind, Result, Value};
use tesseral_format::CodecSpec;

use crate::buffer_cache;
use crate::compress::{compress, encode_mask};
use crate::decode::pattern;
use crate::pipeline::ObjectPipeline;
use crate::wire::block_hashes::{BodyHasher, ObjectHashes};
use crate::wire::cbor::{CborItem, ErrorLocation};
use crate::wire::descriptor::{Descriptor, Mask, MaskKind};
use crate::wire::object::ObjectFrame;

/// Encoding parameters of an object: a descriptor without its data-dependent values.
#[derive(Clone, Debug)]
pub(crate) struct Stages {
    descriptor: Descriptor,
    /// Reference value and binary scale are given; otherwise they are computed from the cells.
    fixed: bool,
}

fn number(spec: &CodecSpec, names: &[&str], default: i64) -> Result<i64> {
    for name in names {
        match spec.options.get(*name) {
            None => {}
            Some(Value::Int(n)) => return Ok(*n),
            Some(_) => {
                return Err(Error::invalid(format!("{name} of codec {} must be an integer", spec.name)));
            }
        }
    }
    Ok(default)
}

fn only(spec: &CodecSpec, names: &[&str]) -> Result<()> {
    match spec.options.keys().find(|name| !names.contains(&name.as_str())) {
        Some(name) => Err(Error::invalid(format!("unknown option {name:?} of codec {}", spec.name))),
        None => Ok(()),
    }
}

/// Returns the only option of a codec that requires exactly one of `names`.
fn single<'a>(spec: &CodecSpec, names: &[&'a str]) -> Result<(&'a str, f64)> {
    only(spec, names)?;
    let wanted =
        || Error::invalid(format!("codec {} requires exactly one of {}", spec.name, names.join(", ")));
    let mut given = names.iter().filter_map(|name| Some((*name, spec.options.get(*name)?)));
    let (Some((name, value)), None) = (given.next(), given.next()) else { return Err(wanted()) };
    match value {
        Value::Float(value) => Ok((name, *value)),
        Value::Int(value) => Ok((name, *value as f64)),
        _ => Err(Error::invalid(format!("{name} of codec {} must be a number", spec.name))),
    }
}

fn item(n: i64) -> CborItem {
    u64::try_from(n).map_or_else(|_| CborItem::Negative(!n as u64), CborItem::UInt)
}

pub(crate) const PLACE: ErrorLocation<'_> =
    ErrorLocation { what: "codecs", object: "the object to be written", offset: 0 };

impl Stages {
    /// Returns validated stages for cells of a dtype and shape.
    pub(crate) fn new(codecs: &[CodecSpec], dtype: DType, shape: &[u64]) -> Result<Self> {
        let descriptor = Descriptor::raw(dtype, shape);
        let mut stages = Self { descriptor, fixed: false };
        for spec in codecs {
            stages.add(spec)?;
        }
        stages.checked()
    }

    /// Returns the stages of a descriptor. Scales that it omits are computed from the cells.
    pub(crate) fn from_descriptor(descriptor: &Descriptor) -> Result<Self> {
        let mut descriptor = descriptor.clone();
        let mut fixed = false;
        if descriptor.encoding == "simple_packing" {
            let given = |key: &str| descriptor.params.contains_key(key);
            fixed = given("sp_reference_value");
            if fixed != given("sp_binary_scale_factor") {
                let detail = "sp_reference_value and sp_binary_scale_factor must be given together";
                return Err(Error::corrupt("descriptor", PLACE.object, None, detail));
            }
            let params = &mut descriptor.params;
            params.entry("sp_decimal_scale_factor".to_owned()).or_insert(CborItem::UInt(0));
            params.entry("sp_binary_scale_factor".to_owned()).or_insert(CborItem::UInt(0));
            params.entry("sp_reference_value".to_owned()).or_insert(CborItem::Float(0.0));
        }
        Self { descriptor, fixed }.checked()
    }

    /// Returns the descriptor without its data-dependent values.
    pub(crate) fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Returns whether the payload is the cells as they are in memory, unless some are masked.
    pub(crate) fn stores_as_given(&self) -> bool {
        let Descriptor { encoding, filter, compression, big_endian, .. } = &self.descriptor;
        let swapped = big_endian.is_some_and(|big| big != cfg!(target_endian = "big"));
        !swapped && [encoding, filter, compression] == ["none"; 3]
    }

    /// Returns whether the packing scale is computed from the cells.
    pub(crate) fn fits_packing(&self) -> bool {
        self.descriptor.encoding == "simple_packing" && !self.fixed
    }

    /// Size of the payload in bytes if compression does not change it.
    pub(crate) fn plain_len(&self) -> Result<Option<u64>> {
        let pipeline = ObjectPipeline::from_descriptor(&self.descriptor, PLACE)?;
        Ok(pipeline.plain().then_some(pipeline.coded_len))
    }

    /// Rejects codecs that the reader would reject.
    fn checked(self) -> Result<Self> {
        let stages = self;
        let dtype = stages.descriptor.dtype;
        let pipeline =
            ObjectPipeline::from_descriptor(&stages.descriptor, PLACE).map_err(|e| match e.kind() {
                ErrorKind::Corrupt { detail, .. } => {
                    Error::unsupported(format!("this codec chain on {dtype}: {detail}"))
                }
                _ => e,
            })?;
        pipeline.check_writable(dtype)?;
        if let Some(size) = pipeline.shuffle
            && !pipeline.coded_len.is_multiple_of(size as u64)
        {
            let detail = format!("shuffle of {} bytes with element size {size}", pipeline.coded_len);
            return Err(Error::unsupported(detail));
        }
        Ok(stages)
    }

    fn add(&mut self, spec: &CodecSpec) -> Result<()> {
        let Descriptor { encoding, filter, compression, params, dtype, .. } = &mut self.descriptor;
        let free = |slot: &String| slot == "none";
        let mut set = |key: &str, item: CborItem| params.insert(key.to_owned(), item);
        let out_of_order =
            || Error::unsupported(format!("codec {} at this position in Tensogram", spec.name));
        match spec.name.as_str() {
            "raw" | "none" => return only(spec, &[]),
            "simple_packing" => {
                only(spec, &["bits", "level", "decimal", "reference_value", "binary_scale_factor"])?;
                if !(free(encoding) && free(filter) && free(compression)) {
                    return Err(out_of_order());
                }
                let reference = match spec.options.get("reference_value") {
                    None => None,
                    Some(Value::Float(value)) => Some(*value),
                    Some(_) => {
                        return Err(Error::invalid(
                            "reference_value of codec simple_packing must be a float",
                        ));
                    }
                };
                let binary = spec.options.contains_key("binary_scale_factor");
                if reference.is_some() != binary {
                    return Err(Error::invalid(
                        "reference_value and binary_scale_factor must be given together",
                    ));
                }
                self.fixed = binary;
                set("sp_bits_per_value", item(number(spec, &["bits", "level"], 16)?));
                set("sp_decimal_scale_factor", item(number(spec, &["decimal"], 0)?));
                set("sp_binary_scale_factor", item(number(spec, &["binary_scale_factor"], 0)?));
                set("sp_reference_value", CborItem::Float(reference.unwrap_or(0.0)));
                *encoding = spec.name.clone();
            }
            "shuffle" => {
                only(spec, &["element_size"])?;
                if !(free(filter) && free(compression)) {
                    return Err(out_of_order());
                }
                let packed =
                    params.get("sp_bits_per_value").and_then(CborItem::as_i64).map(|bits| (bits + 7) / 8);
                let own = packed.unwrap_or_else(|| dtype.size().unwrap_or(1) as i64);
                let size = number(spec, &["element_size"], own)?;
                params.insert("shuffle_element_size".to_owned(), item(size));
                *filter = spec.name.clone();
            }
            name @ ("zstd" | "lz4" | "szip" | "blosc2" | "zfp" | "sz3" | "rle" | "roaring") => {
                if !free(compression) {
                    return Err(out_of_order());
                }
                match name {
                    "zstd" => {
                        only(spec, &["level"])?;
                        let level = number(spec, &["level"], 3)?;
                        if !(-7..=22).contains(&level) {
                            return Err(Error::invalid(format!("level {level} is out of range for zstd")));
                        }
                        if spec.options.contains_key("level") {
                            set("zstd_level", item(level));
                        }
                    }
                    "szip" => {
                        only(spec, &["rsi", "block_size", "flags"])?;
                        set("szip_rsi", item(number(spec, &["rsi"], 128)?));
                        set("szip_block_size", item(number(spec, &["block_size"], 16)?));
                        set("szip_flags", item(number(spec, &["flags"], i64::from(aec::PREPROCESS))?));
                    }
                    "blosc2" => {
                        only(spec, &["codec", "level"])?;
                        if let Some(Value::Text(codec)) = spec.options.get("codec") {
                            set("blosc2_codec", CborItem::Text(codec.clone()));
                        } else if spec.options.contains_key("codec") {
                            return Err(Error::invalid("codec of codec blosc2 must be a name"));
                        }
                        if spec.options.contains_key("level") {
                            set("blosc2_clevel", item(number(spec, &["level"], 5)?));
                        }
                    }
                    "zfp" => {
                        let (key, value) = single(spec, &["rate", "precision", "tolerance"])?;
                        let (mode, key) = match key {
                            "rate" => ("fixed_rate", "zfp_rate"),
                            "precision" => ("fixed_precision", "zfp_precision"),
                            _ => ("fixed_accuracy", "zfp_tolerance"),
                        };
                        set("zfp_mode", CborItem::Text(mode.to_owned()));
                        let value = match key {
                            "zfp_precision" => item(value as i64),
                            _ => CborItem::Float(value),
                        };
                        set(key, value);
                    }
                    "sz3" => {
                        let (mode, bound) = single(spec, &["abs", "rel", "psnr"])?;
                        set("sz3_error_bound_mode", CborItem::Text(mode.to_owned()));
                        set("sz3_error_bound", CborItem::Float(bound));
                    }
                    _ => only(spec, &[])?,
                }
                *compression = name.to_owned();
            }
            other => {
                let error = Error::unsupported(format!("writing Tensogram with codec {other:?}"));
                return Err(error
                    .hint("available: raw, zstd, lz4, szip, blosc2, zfp, sz3; optionally after shuffle or simple_packing"));
            }
        }
        Ok(())
    }
}

/// Which non-finite cells are allowed, and how their masks are stored.
#[derive(Clone, Debug, PartialEq)]
pub struct MaskOptions {
    /// Allow NaN.
    pub allow_nan: bool,
    /// Allow infinities.
    pub allow_inf: bool,
    /// Mask methods for NaN, +∞ and −∞.
    pub methods: [String; 3],
    /// Masks up to this size in bytes are stored uncompressed.
    pub small: usize,
}

impl Default for MaskOptions {
    /// Rejects non-finite cells, as the reference does.
    fn default() -> Self {
        Self {
            allow_nan: false,
            allow_inf: false,
            methods: std::array::from_fn(|_| "roaring".to_owned()),
            small: 128,
        }
    }
}

impl MaskOptions {
    /// Returns options that allow all non-finite cells.
    pub fn any() -> Self {
        Self { allow_nan: true, allow_inf: true, ..Self::default() }
    }
}

/// Encodes the cells of an object, in native byte order, into its frame. Uncompressed cells are borrowed. The frame does not depend on
/// the number of threads.
pub(crate) fn encode_object<'a>(
    stages: Stages,
    mut cells: Cow<'a, [u8]>,
    masks: &MaskOptions,
    hashes: ObjectHashes,
    threads: usize,
) -> Result<ObjectFrame<'a>> {
    let (fits, as_given) = (stages.fits_packing(), stages.stores_as_given());
    let mut descriptor = stages.descriptor;
    let dtype = descriptor.dtype;
    // Packing rejects non-finite cells, so no scan is needed after it succeeded.
    let fitted = if fits { fit_and_pack(&mut descriptor, &cells).ok() } else { None };
    let swapped = descriptor.big_endian.is_some_and(|big| big != cfg!(target_endian = "big"));
    let mut hasher = if as_given { hashes.hasher(cells.len() as u64) } else { None };
    let found =
        if fitted.is_some() { Vec::new() } else { take_masks(dtype, &mut cells, masks, hasher.as_mut())? };
    if as_given && found.is_empty() {
        return Ok(ObjectFrame::hashed(descriptor, cells, hasher));
    }
    if fits && fitted.is_none() {
        set_packing(&mut descriptor, &cells, &found)?;
    }
    let pipeline = ObjectPipeline::from_descriptor(&descriptor, PLACE)?;
    if found.is_empty() && pipeline.native(dtype) && doubles(&cells).any(|cell| !cell.is_finite()) {
        let what = "a NaN with a payload that masks cannot restore, with lossy compression";
        return Err(Error::unsupported(what));
    }
    let mut coded = match (fitted, &pipeline.packing) {
        (Some(packed), _) => Cow::Owned(packed),
        (None, Some(packing)) => {
            let mut packed = Vec::new();
            packing.encode(&cells, &mut packed)?;
            Cow::Owned(packed)
        }
        (None, None) => {
            if swapped && !pipeline.native(dtype) {
                swap(dtype, cells.to_mut());
            }
            cells
        }
    };
    if let Some(size) = pipeline.shuffle {
        let mut shuffled = vec![0; coded.len()];
        shuffle::encode_into(&coded, size, &mut shuffled)?;
        coded = Cow::Owned(shuffled);
    }
    let mut contexts = Contexts::default();
    let mut region = compress(&pipeline, coded, &mut descriptor.params, threads, &mut contexts)?;
    let count = descriptor.cells().unwrap_or(0);
    for (kind, bits) in found {
        let method = &masks.methods[kind as usize];
        let mask = append_mask(kind, method, &bits, count, masks.small, region.to_mut(), &mut contexts)?;
        descriptor.masks.push(mask);
    }
    Ok(ObjectFrame::with_hashes(descriptor, region, hashes, pipeline.coded_len))
}

/// Reverses the bytes of every number.
pub(crate) fn swap(dtype: DType, cells: &mut [u8]) {
    if dtype.word() > 1 {
        cells.chunks_exact_mut(dtype.word()).for_each(<[u8]>::reverse);
    }
}

/// Appends the blob of a mask.
pub(crate) fn append_mask(
    kind: MaskKind,
    method: &str,
    bits: &[u8],
    count: u64,
    small: usize,
    region: &mut Vec<u8>,
    contexts: &mut Contexts,
) -> Result<Mask> {
    let offset = region.len() as u64;
    let method = if bits.len() <= small {
        "none"
    } else if method == "roaring" && count > u64::from(u32::MAX) {
        "rle"
    } else {
        method
    };
    let params = encode_mask(method, bits, count, region, contexts)?;
    let length = region.len() as u64 - offset;
    Ok(Mask { kind, method: method.to_owned(), offset, length, params })
}

fn doubles(cells: &[u8]) -> impl Iterator<Item = f64> {
    cells.as_chunks().0.iter().map(|cell| f64::from_ne_bytes(*cell))
}

/// Computes the packing parameters from the cells. Fails for non-finite cells, masked or not.
pub(crate) fn set_packing(
    descriptor: &mut Descriptor,
    cells: &[u8],
    masks: &[(MaskKind, Vec<u8>)],
) -> Result<SimplePacking> {
    if !masks.is_empty() {
        return Err(Error::unsupported("simple_packing of non-finite cells without a given scale"));
    }
    let given = |key: &str| descriptor.params.get(key).and_then(CborItem::as_i64).unwrap_or(0);
    let bits = u32::try_from(given("sp_bits_per_value")).unwrap_or(u32::MAX);
    let decimal = i32::try_from(given("sp_decimal_scale_factor")).unwrap_or(0);
    let packing = SimplePacking::fit(cells, bits, decimal)?;
    descriptor.params.insert("sp_reference_value".to_owned(), CborItem::Float(packing.reference));
    descriptor.params.insert("sp_binary_scale_factor".to_owned(), item(packing.binary.into()));
    Ok(packing)
}

/// Packs cells with a scale computed from them.
fn fit_and_pack(descriptor: &mut Descriptor, cells: &[u8]) -> Result<Vec<u8>> {
    let packing = set_packing(descriptor, cells, &[])?;
    let mut packed = buffer_cache::acquire(cells.len());
    packing.encode(cells, &mut packed)?;
    Ok(packed)
}

/// Moves NaN and infinities into masks and replaces them by zeros. If a mask would not restore the exact bits, all cells stay
/// unchanged. The hasher processes the original cells in the same pass, while they are in the cache.
fn take_masks(
    dtype: DType,
    cells: &mut Cow<'_, [u8]>,
    allowed: &MaskOptions,
    mut hasher: Option<&mut BodyHasher>,
) -> Result<Masks> {
    let mut hash = |bytes: &[u8]| {
        if let Some(hasher) = &mut hasher {
            hasher.update(bytes);
        }
    };
    let (Class::Float | Class::Complex, Some(size)) = (dtype.class(), dtype.size()) else {
        hash(cells);
        return Ok(Vec::new());
    };
    let mut finder = MaskFinder::new(dtype, (cells.len() / size) as u64, allowed);
    let mut first = 0;
    for span in cells.chunks(SPAN) {
        finder.survey(first, span)?;
        hash(span);
        first += (span.len() / size) as u64;
    }
    let found = finder.finish();
    if !found.is_empty() {
        clear_masked(dtype, &found, 0, cells.to_mut());
    }
    Ok(found)
}

/// Masks of the kinds found, one bit per cell.
pub(crate) type Masks = Vec<(MaskKind, Vec<u8>)>;

/// Collects non-finite cells.
pub(crate) struct MaskFinder<'a> {
    dtype: DType,
    allowed: &'a MaskOptions,
    /// Restored bytes of each kind, computed on first use.
    patterns: Option<[Vec<u8>; 3]>,
    /// Size of a mask in bytes.
    len: usize,
    found: [Vec<u8>; 3],
    exact: bool,
}

impl<'a> MaskFinder<'a> {
    /// Creates a collector for `cells` cells.
    pub(crate) fn new(dtype: DType, count: u64, allowed: &'a MaskOptions) -> Self {
        let len = usize::try_from(count.div_ceil(8)).unwrap_or(usize::MAX);
        Self { dtype, allowed, patterns: None, len, found: Default::default(), exact: true }
    }

    /// Scans cells starting at index `first`.
    pub(crate) fn survey(&mut self, first: u64, cells: &[u8]) -> Result<()> {
        let size = self.dtype.size().unwrap_or(1);
        let runs = cells.chunks(RUN).enumerate().filter(|(_, run)| may_hold_specials(self.dtype, run));
        let suspects = runs
            .flat_map(|(number, run)| (first + (number * (RUN / size)) as u64..).zip(run.chunks_exact(size)));
        for (i, cell) in suspects.filter(|(_, cell)| !is_finite(self.dtype, cell)) {
            let kind = kind_of(self.dtype, cell);
            let nan = kind == MaskKind::Nan;
            if !(if nan { self.allowed.allow_nan } else { self.allowed.allow_inf }) {
                let what = if nan { "NaN" } else { "infinite" };
                let name = if nan { "allow_nan" } else { "allow_inf" };
                return Err(Error::codec("masks", format!("cell {i} is {what}"))
                    .hint(Advice::FormatOption { name, value: "true" }));
            }
            let patterns = self.patterns.get_or_insert_with(|| {
                MaskKind::ALL.map(|kind| pattern(self.dtype, kind).unwrap_or_default())
            });
            self.exact &= patterns[kind as usize] == cell;
            let bits = &mut self.found[kind as usize];
            if bits.is_empty() {
                *bits = vec![0; self.len];
            }
            bits[usize::try_from(i / 8).unwrap_or(usize::MAX)] |= 0x80 >> (i % 8);
        }
        Ok(())
    }

    /// Returns the masks, or `None` if one would not restore the exact bits.
    pub(crate) fn finish(self) -> Masks {
        let found = MaskKind::ALL.into_iter().zip(self.found);
        found.filter(|(_, bits)| self.exact && !bits.is_empty()).collect()
    }
}

/// Replaces masked cells by zeros. `first` is the index of the first cell.
pub(crate) fn clear_masked(dtype: DType, found: &[(MaskKind, Vec<u8>)], first: u64, cells: &mut [u8]) {
    let size = dtype.size().unwrap_or(1);
    for (_, bits) in found {
        for (i, cell) in (first..).zip(cells.chunks_exact_mut(size)) {
            let byte = bits.get(usize::try_from(i / 8).unwrap_or(usize::MAX)).copied().unwrap_or(0);
            if byte & 0x80 >> (i % 8) != 0 {
                cell.fill(0);
            }
        }
    }
}

/// Block size of the scan in bytes: a multiple of the cell and word size.
const RUN: usize = 4096;

/// Number of bytes scanned before hashing; fits the L2 cache.
const SPAN: usize = 16 * RUN;

/// Returns whether any cell is not finite.
pub(crate) fn has_specials(dtype: DType, cells: &[u8]) -> bool {
    matches!(dtype.class(), Class::Float | Class::Complex)
        && cells.chunks(RUN).any(|run| may_hold_specials(dtype, run))
}

/// Returns whether a run of cells contains a non-finite number: adding one to an exponent of all ones carries into the cleared
/// sign bit. A word of eight bytes holds several numbers, whose carries do not interfere.
fn may_hold_specials(dtype: DType, run: &[u8]) -> bool {
    let mask = exponent(dtype);
    // The lowest bit of each exponent, and the sign bit above it.
    let (step, sign) = (mask & mask.wrapping_neg(), mask + (mask & mask.wrapping_neg()));
    let repeat = u64::MAX / (u64::MAX >> (64 - 8 * dtype.word()));
    let (mask, step) = (mask * repeat, step * repeat);
    let carried = |word: &[u8; 8]| (u64::from_ne_bytes(*word) & mask).wrapping_add(step);
    let (words, rest) = run.as_chunks();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let all = words.iter().fold(carried(&last), |all, word| all | carried(word));
    all & (sign * repeat) != 0
}

/// Classifies a non-finite cell: NaN if any component is NaN, otherwise +∞ if any component is.
pub(crate) fn kind_of(dtype: DType, cell: &[u8]) -> MaskKind {
    let parts = cell.chunks_exact(dtype.word()).map(|number| {
        let mut bytes = [0; 8];
        bytes[..number.len()].copy_from_slice(number);
        if cfg!(target_endian = "big") {
            bytes[..number.len()].reverse();
        }
        let bits = u64::from_le_bytes(bytes);
        match dtype {
            DType::Float16 => f64::from(half::f16::from_bits(bits as u16)),
            DType::BFloat16 => f64::from(half::bf16::from_bits(bits as u16)),
            DType::Float32 | DType::Complex64 => f64::from(f32::from_bits(bits as u32)),
            _ => f64::from_bits(bits),
        }
    });
    let mut kind = MaskKind::NegInf;
    for part in parts {
        if part.is_nan() {
            return MaskKind::Nan;
        }
        if part == f64::INFINITY {
            kind = MaskKind::PosInf;
        }
    }
    kind
}

/// Exponent bits of a float dtype.
fn exponent(dtype: DType) -> u64 {
    match dtype {
        DType::Float16 => 0x7c00,
        DType::BFloat16 => 0x7f80,
        DType::Float32 | DType::Complex64 => 0x7f80_0000,
        _ => 0x7ff0 << 48,
    }
}

/// Returns whether all components of a cell are finite: no exponent is all ones.
pub(crate) fn is_finite(dtype: DType, cell: &[u8]) -> bool {
    let exponent = exponent(dtype);
    cell.chunks_exact(dtype.word()).all(|number| {
        let shift = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        let bits = if cfg!(target_endian = "big") {
            number.iter().fold(0, shift)
        } else {
            number.iter().rev().fold(0, shift)
        };
        bits & exponent != exponent
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOATS: [DType; 6] = [
        DType::Float16,
        DType::BFloat16,
        DType::Float32,
        DType::Float64,
        DType::Complex64,
        DType::Complex128,
    ];

    #[test]
    fn the_run_test_agrees_with_the_cell_test() {
        let mut state = 1_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for dtype in FLOATS {
            let size = dtype.size().unwrap();
            let (mut held, mut clean) = (0, 0);
            for len in 0..400 {
                // Exponents of all ones, and adjacent values, in some places.
                let high = if len % 3 == 0 { 0x7f } else { 0x7b };
                let mut run: Vec<u8> = (0..len * size).map(|_| random() as u8 & 0xbb).collect();
                if let Some(at) = (random() as usize).checked_rem(run.len()) {
                    run[at..].iter_mut().take(2).for_each(|byte| *byte |= high);
                }
                let naive = run.chunks_exact(size).any(|cell| !is_finite(dtype, cell));
                assert_eq!(may_hold_specials(dtype, &run), naive, "{dtype} {run:?}");
                *(if naive { &mut held } else { &mut clean }) += 1;
            }
            assert!(held > 5 && clean > 5, "{dtype}: {held} {clean}");
        }
    }

    #[test]
    fn masks_name_the_cells_of_every_run() {
        let count = 5 * RUN / 8 + 3;
        let special = |i: usize| match i {
            _ if i % 700 == 511 || i + 1 == count => f64::NAN,
            _ if i.is_multiple_of(1100) => f64::INFINITY,
            _ => i as f64,
        };
        let bytes: Vec<u8> = (0..count).flat_map(|i| special(i).to_ne_bytes()).collect();
        let mut cells = Cow::Borrowed(&bytes[..]);
        let masks = take_masks(DType::Float64, &mut cells, &MaskOptions::any(), None).unwrap();
        assert_eq!(
            masks.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
            [MaskKind::Nan, MaskKind::PosInf]
        );
        for i in 0..count {
            let named = |k: usize| masks[k].1[i / 8] & 0x80 >> (i % 8) != 0;
            let value = special(i);
            assert_eq!((named(0), named(1)), (value.is_nan(), value.is_infinite()), "{i}");
            let stored = doubles(&cells).nth(i).unwrap();
            assert_eq!(stored, if value.is_finite() { value } else { 0.0 }, "{i}");
        }
    }
}
