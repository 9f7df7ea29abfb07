//! Files of other kinds, in and out: arrays written as `.npy`, `.csv` or `.json`, arrays made of `.npy` files.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::json;
use tesseral::{ArraySchema, ArraySpec, Create, DType, Error, Region, Result};

use super::Arguments;
use crate::append::npy::Header;
use crate::cat::{self, Format};
use crate::context::{Context, local};
use crate::failure::{Outcome, exit};
use crate::output::{self, OutputArguments};
use crate::progress::Meter;
use crate::subject::Subject;
use crate::text::{self, escape};

/// The kind of file that an output's name tells, where it is none of the formats.
pub(super) fn kind_of(arguments: &Arguments) -> Option<(Format, &'static str)> {
    let ending = arguments.output.extension()?.to_str()?;
    match ending {
        _ if arguments.to.is_some() => None,
        "npy" => Some((Format::Npy, "npy")),
        "csv" => Some((Format::Csv, "csv")),
        "json" => Some((Format::Json, "json")),
        _ => None,
    }
}

/// Writes one array as a file of another kind.
pub(super) fn export(context: &Context, arguments: &Arguments, format: Format, kind: &str) -> Outcome {
    let shared = &arguments.shared;
    let asked = [
        (arguments.chunk.is_some(), "--chunk"),
        (shared.codec.is_some(), "--codec"),
        (!arguments.cast.is_empty(), "--cast"),
        (!arguments.fill.is_empty(), "--fill"),
        (arguments.sparse_as.is_some(), "--sparse-as"),
        (arguments.max_abs_error.is_some() || arguments.max_rel_error.is_some(), "an error bound"),
        (shared.check, "--check"),
    ];
    if let Some((_, option)) = asked.iter().find(|(asked, _)| *asked) {
        return Err(Error::unsupported(format!("{option} for .{kind} files")).into());
    }
    let named = &arguments.array;
    if named.len() > 1 {
        return Err(Error::unsupported(format!("several arrays in one .{kind} file"))
            .hint("name one with --array")
            .into());
    }
    let words = named.iter().chain(&arguments.select).cloned().collect();
    let target = local(&arguments.output)?;
    let output = OutputArguments { output: Some(target.to_owned()), force: shared.force };
    let from = context.open(&arguments.input, &Meter::new(false))?.format().id();
    if shared.dry_run {
        return tell(context, arguments, from, kind, None);
    }
    cat::export(context, Subject::new(arguments.input.clone(), words), format, output)?;
    tell(context, arguments, from, kind, Some(super::stored(target)))
}

/// Tells what was written of what; nothing was without bytes.
fn tell(context: &Context, arguments: &Arguments, from: &str, to: &str, stored: Option<u64>) -> Outcome {
    let (input, target) = (arguments.input.to_string_lossy(), arguments.output.to_string_lossy());
    if context.json() {
        output::print_json(&json!({
            "schema": "tesseral.convert/1",
            "source": input,
            "output": target,
            "from": from,
            "format": to,
            "dry_run": stored.is_none(),
            "checked": false,
            "resumed_chunks": 0,
            "source_digest": null,
            "stored_bytes": stored,
            "arrays": [],
        }))?;
        return Ok(exit::OK);
    }
    let done = stored.map_or_else(|| "not written".to_owned(), text::size);
    output::print(&format!("{} -> {}: {from} as {to}, {done}\n", escape(&input), escape(&target)))?;
    Ok(exit::OK)
}

/// A `.npy` file.
pub(super) struct Npy {
    file: File,
    dtype: DType,
    shape: Vec<u64>,
    /// Cells are in column order.
    fortran: bool,
    /// Numbers are stored the other way around.
    swapped: bool,
    /// Where the cells begin.
    offset: u64,
}

impl Npy {
    /// Opens a file; `None` when it is none of that kind.
    pub(super) fn open(path: &Path) -> Result<Option<Self>> {
        const HEAD: u64 = 64 << 10;
        let shown = path.display().to_string();
        // A pipe would give its first bytes only once.
        if !path.is_file() {
            return Ok(None);
        }
        let Ok(file) = File::open(path) else { return Ok(None) };
        let mut head = Vec::new();
        if (&file).take(HEAD).read_to_end(&mut head).is_err() || !head.starts_with(b"\x93NUMPY") {
            return Ok(None);
        }
        let corrupt = |detail: String| Error::corrupt("header", &shown, Some(0), detail);
        let header = Header::parse(&head).ok_or_else(|| corrupt("it cannot be read".to_owned()))?;
        let dtype = dtype_of(&header.descr)
            .ok_or_else(|| Error::unsupported(format!("cells of {:?} in {shown}", header.descr)))?;
        let npy = Self {
            file,
            dtype,
            fortran: header.fortran && header.shape.len() > 1,
            swapped: header.descr.starts_with('>') && dtype.word() > 1,
            offset: header.len as u64,
            shape: header.shape,
        };
        let cells = npy.shape.iter().try_fold(1_u64, |n, extent| n.checked_mul(*extent));
        let expected = cells.and_then(|n| n.checked_mul(npy.size() as u64)?.checked_add(npy.offset));
        let found = npy.file.metadata().map_err(|e| Error::io("look at", &shown, e))?.len();
        if expected != Some(found) {
            let wanted = expected.map_or_else(|| "too many".to_owned(), |n| n.to_string());
            return Err(corrupt(format!("its cells end at byte {wanted}, the file at {found}")));
        }
        Ok(Some(npy))
    }

    fn size(&self) -> usize {
        self.dtype.size().unwrap_or(1)
    }

    /// Reads the cells of a box, row-major: run by run along the dimension in which the file keeps cells side by side.
    fn read(&self, region: &Region, out: &mut [u8]) -> Result<()> {
        let (rank, size) = (region.rank(), self.size());
        let io = |e| Error::io("read", "the .npy file", e);
        let word = self.dtype.word().max(1);
        if rank == 0 {
            self.file.read_exact_at(out, self.offset).map_err(io)?;
        }
        let index = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let fast = if self.fortran { 0 } else { rank.saturating_sub(1) };
        let run = if rank == 0 { 0 } else { index(region.extent(fast)) };
        let stride: u64 = (fast + 1..rank).map(|d| region.extent(d)).product();
        let mut at: Vec<u64> = region.bounds().iter().map(|bound| bound.0).collect();
        let mut cells = vec![0; run * size];
        let runs = if rank == 0 { 0 } else { region.cells().unwrap_or(0) / region.extent(fast).max(1) };
        for _ in 0..runs {
            let linear = |d: &dyn Fn(usize) -> usize, at: &[u64]| {
                (0..rank).map(d).fold(0, |sum, d| sum * self.shape[d] + at[d])
            };
            let place = match self.fortran {
                true => linear(&|d| rank - 1 - d, &at),
                false => linear(&|d| d, &at),
            };
            self.file.read_exact_at(&mut cells, self.offset + place * size as u64).map_err(io)?;
            let first = (0..rank).fold(0, |sum, d| sum * region.extent(d) + at[d] - region.start(d));
            for (i, cell) in (0_u64..).zip(cells.chunks_exact(size)) {
                let to = index(first + i * stride) * size;
                out[to..to + size].copy_from_slice(cell);
            }
            for d in (0..rank).rev().filter(|d| *d != fast) {
                at[d] += 1;
                if at[d] < region.end(d) {
                    break;
                }
                at[d] = region.start(d);
            }
        }
        if self.swapped {
            out.chunks_exact_mut(word).for_each(<[u8]>::reverse);
        }
        Ok(())
    }
}

/// The dtype that NumPy calls so.
fn dtype_of(descr: &str) -> Option<DType> {
    let plain = descr.trim_start_matches(['<', '>', '|', '=']);
    let (kind, rest) = plain.split_at_checked(1)?;
    let bits = |rest: &str| rest.parse::<u32>().ok()?.checked_mul(8);
    let name = match kind {
        "b" => "bool".to_owned(),
        "i" => format!("int{}", bits(rest)?),
        "u" => format!("uint{}", bits(rest)?),
        "f" => format!("float{}", bits(rest)?),
        "c" => format!("complex{}", bits(rest)?),
        "M" => format!("datetime64{}", rest.strip_prefix('8')?),
        "m" => format!("timedelta64{}", rest.strip_prefix('8')?),
        _ => return None,
    };
    name.parse().ok()
}

/// Makes an array of a `.npy` file.
pub(super) fn import(context: &Context, arguments: &Arguments, npy: &Npy) -> Outcome {
    let shared = &arguments.shared;
    let asked = [
        (!arguments.cast.is_empty(), "--cast"),
        (!arguments.fill.is_empty(), "--fill"),
        (!arguments.select.is_empty(), "--select"),
        (arguments.max_abs_error.is_some() || arguments.max_rel_error.is_some(), "an error bound"),
        (shared.check, "--check"),
    ];
    if let Some((_, option)) = asked.iter().find(|(asked, _)| *asked) {
        let error = Error::unsupported(format!("{option} for .npy files"));
        return Err(error.hint("make an array of it first, then convert that").into());
    }
    let target = local(&arguments.output)?;
    let format = match &arguments.to {
        Some(id) => id.clone(),
        None => tesseral::of_output(target)?.id().to_owned(),
    };
    let stem = arguments.input.file_stem().unwrap_or_default().to_string_lossy();
    let name = arguments.array.first().cloned().unwrap_or_else(|| stem.into_owned());
    let mut schema = ArraySchema::dense(name, npy.dtype, &npy.shape, &npy.shape);
    let default = tesseral::default_chunk(&npy.shape, npy.size() as u64);
    let chunk = match &arguments.chunk {
        Some(chunk) => chunk.resolve(&schema, &default)?,
        None => default,
    };
    schema.chunk_shape = Some(chunk);
    let mut spec = ArraySpec::raw(schema);
    spec.codecs = vec![shared.codec.clone().unwrap_or_default()];
    if shared.dry_run {
        return tell(context, arguments, "npy", &format, None);
    }
    let meter = Meter::new(true);
    let mut create = Create::new().execution(context.options(&meter));
    if shared.force {
        create = create.overwrite();
    }
    if shared.zone_maps {
        create = create.statistics();
    }
    let mut session = create.begin(target, &format)?;
    let id = session.add(&spec)?;
    session.fill(id, |region, cells| npy.read(region, cells))?;
    session.commit()?;
    meter.finish();
    tell(context, arguments, "npy", &format, Some(super::stored(target)))
}
