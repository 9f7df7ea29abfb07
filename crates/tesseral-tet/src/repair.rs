//! Fixes that a file needs. The only automatic one does not lose cells.

use std::sync::Arc;

use tesseral_core::{Error, Finding, Limits, Result};
use tesseral_format::{AuditOptions, OpenOptions, Repair};
use tesseral_store::{Overwrite, Store};

use crate::layout::{Digests, FileHead, FileLayout, FileSection, OpenFailure, find_digests, read_head};
use crate::package;
use crate::source::FileBytes;
use crate::wire::footer::{DigestsRef, FooterJson, FooterTail};
use crate::wire::superblock::{FLAG_FOOTER, FLAGS_OFFSET};

/// The fix that can be applied automatically: remove an invalid footer.
const FOOTER_INVALID: &str = "footer_invalid";
/// Size of one copy operation in bytes.
const BLOCK: u64 = 4 << 20;

/// Returns the fixes a file needs, with the codes of the reference.
pub(crate) fn repairs(store: Arc<dyn Store>, options: &OpenOptions) -> Result<Vec<Repair>> {
    let manual = |code, message: String| Ok(vec![Repair { code, message, automatic: false }]);
    let name = match package::locate(&store) {
        Ok(name) => name,
        Err(error) if error.is_damage() => return manual("package_corrupt", error.to_string()),
        Err(error) => return Err(error),
    };
    let source = FileBytes::open(&store, &name)?;
    let Err(OpenFailure { stage, error }) = FileLayout::read(&source, &options.limits, options.digests)
    else {
        return inner_repairs(store, options);
    };
    if !error.is_damage() && !matches!(error.kind(), tesseral_core::ErrorKind::Unsupported { .. }) {
        return Err(error);
    }
    match stage {
        FileSection::Footer if plan_footer_repair(&source, &options.limits).is_ok() => {
            // A footer of a newer version is intact; removing it would lose its content. The manifest of a package states the
            // file length, so the package must be published again.
            let automatic = error.is_damage() && name.is_empty();
            let message = format!("{error}; the fix removes the footer and keeps all chunks");
            Ok(vec![Repair { code: FOOTER_INVALID, message, automatic }])
        }
        FileSection::Footer | FileSection::Payloads if error.is_damage() => {
            manual("payload_out_of_bounds", format!("{error}; recover the intact chunks into a new file"))
        }
        FileSection::Digests => {
            manual("digests_invalid", format!("{error}; compare with the source, or recover into a new file"))
        }
        _ => manual("invalid_layout", format!("{error}; write the file again from its source")),
    }
}

/// Returns fixes for a file that opens.
fn inner_repairs(store: Arc<dyn Store>, options: &OpenOptions) -> Result<Vec<Repair>> {
    let mut repairs: Vec<Repair> = Vec::new();
    let mut see = |finding: Finding| {
        let (code, advice) = match finding.check {
            _ if finding.ok => return,
            "chunk_dataset_ids" => {
                ("bad_dataset_id", "the index contradicts the directory: write the file again")
            }
            "chunk_coords" => ("duplicate_chunk_coords", "write the file again without overlapping parts"),
            "dataset_tensor_bytes" => ("invalid_layout", "recover the intact chunks into a new file"),
            "package" => ("package_corrupt", "publish the generation again"),
            _ => return,
        };
        if repairs.iter().all(|r| r.code != code) {
            repairs.push(Repair { code, message: format!("{}; {advice}", finding.detail), automatic: false });
        }
    };
    crate::audit::audit(store, &AuditOptions { open: options.clone(), ..AuditOptions::default() }, &mut see)?;
    Ok(repairs)
}

/// Remaining content of a file after its footer is removed.
struct FooterRepair {
    /// Number of bytes kept, with the footer flag cleared.
    len: u64,
    /// Bytes to append: a footer that only refers to the digests, if those are intact.
    footer: Vec<u8>,
    /// The new superblock flags.
    flags: u32,
}

/// Plans the removal: keeps everything up to the last payload, and the digests if they are intact.
///
/// # Errors
/// `Corrupt` when the metadata before the payloads is invalid or a payload is incomplete: the file would still be invalid.
fn plan_footer_repair(source: &FileBytes<'_>, limits: &Limits) -> Result<FooterRepair> {
    let head: FileHead = read_head(source, limits).map_err(|f| f.error)?;
    for (number, row) in head.rows().iter().enumerate() {
        let index = head.superblock.chunk_index_offset;
        row.check(&source.object, index, number as u64, head.end, source.len)?;
    }
    let flags = head.superblock.flags & !FLAG_FOOTER;
    let len = head.last_payload_end();
    let Ok(Digests::Present { region, .. }) = find_digests(source, &head, None, source.len) else {
        return Ok(FooterRepair { len, footer: Vec::new(), flags });
    };
    let digests_ref = Some(DigestsRef { region, json: 0, spill: None, zone_maps: None, statistics: None });
    let mut footer = Vec::new();
    FooterJson { digests_ref, ..FooterJson::default() }.write(&mut footer)?;
    FooterTail { json_len: footer.len() as u64, version: 1 }.write(&mut footer);
    Ok(FooterRepair { len: region.offset + region.len, footer, flags: flags | FLAG_FOOTER })
}

/// Applies a fix: stages a new file and atomically replaces the original.
pub(crate) fn apply(store: &Arc<dyn Store>, options: &OpenOptions, code: &str) -> Result<()> {
    let needed = repairs(Arc::clone(store), options)?;
    match needed.iter().find(|repair| repair.code == code) {
        Some(repair) if repair.automatic => {}
        Some(_) => return Err(Error::invalid(format!("{code} cannot be fixed automatically"))),
        None => return Err(Error::invalid(format!("{code} does not apply to the file"))),
    }
    let name = package::locate(store)?;
    let source = FileBytes::open(store, &name)?;
    let cut = plan_footer_repair(&source, &options.limits)?;
    let staged = store.stage(&name, Overwrite::Replace)?;
    let mut at = 0;
    while at < cut.len {
        let end = cut.len.min(at + BLOCK);
        staged.write_at(at, &source.get(at..end, "the file")?)?;
        at = end;
    }
    staged.write_at(FLAGS_OFFSET, &cut.flags.to_le_bytes())?;
    staged.write_at(cut.len, &cut.footer)?;
    staged.set_len(cut.len + cut.footer.len() as u64)?;
    staged.publish()
}
