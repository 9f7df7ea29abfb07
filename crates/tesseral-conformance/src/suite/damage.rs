//! Checks of audits, and of truncated, modified and incomplete sources.

use std::sync::Arc;

use tesseral_core::{ErrorKind, Limits};
use tesseral_store::{MemoryStore, Store, StoreExt};

use super::{Check, Fixture, Violation, columns, full_request, objects, store_with};
use crate::oracle::{ColumnLayout, Prefill, decode_parts, fetch};
use tesseral_format::{AuditOptions, ContainerSource, Format, OpenOptions, plan};

/// Decoded bytes per column of a chunk up to which a damaged source is read.
const FOLLOW: u64 = 1 << 20;

/// The audit of a valid source finds no damage, opens it, and reports no more metadata than there are bytes.
///
/// # Errors
/// The first violation.
pub fn audit_of_a_sound_source(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    let check = Check::new("audit_of_a_sound_source", fixture.seed);
    let mut findings = Vec::new();
    let options = AuditOptions { open: fixture.options.clone(), ..AuditOptions::default() };
    let report = format.audit(Arc::clone(&fixture.store), &options, &mut |finding| findings.push(finding));
    let report = check.must("audit", report)?;
    if let Some(failed) = findings.iter().find(|finding| !finding.ok) {
        return check.fail(format!("{failed:?}"));
    }
    check.require(!findings.is_empty(), || "no findings".to_owned())?;
    let Some(container) = report.container else { return check.fail("no container") };
    let opened = check.must("open", format.open(Arc::clone(&fixture.store), &fixture.options))?;
    check.same("arrays", &container.len(), &opened.len())?;
    let stored = check.must("list", objects(fixture.store.as_ref()))?;
    let total: u64 = stored.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    let reported = report.covered_bytes.checked_add(report.uncovered_bytes);
    check.require(reported.is_some_and(|n| n <= total), || {
        format!("{reported:?} bytes of metadata in {total} bytes")
    })
}

/// For any damage, opening, auditing and reading fail or succeed, and never panic. Damage that prevents an open is reported
/// by an audit.
///
/// # Errors
/// The first violation.
pub fn damage_never_panics(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    let check = Check::new("damage_never_panics", fixture.seed);
    let mut random = fixture.random(7);
    let stored = check.must("list", objects(fixture.store.as_ref()))?;
    let location = fixture.store.location();
    for (number, (name, bytes)) in stored.iter().enumerate() {
        let with = |changed: Option<Vec<u8>>| -> Arc<MemoryStore> {
            let mut objects = stored.clone();
            match changed {
                Some(bytes) => objects[number].1 = bytes,
                None => {
                    objects.remove(number);
                }
            }
            store_with(location, &objects)
        };
        let location = format!("object {name:?} missing");
        try_all(&check.at(&location), format, fixture, with(None))?;
        let limit = fixture.effort.damages;
        let ends = (0..limit.min(bytes.len())).chain(bytes.len().saturating_sub(limit)..bytes.len());
        let middle: Vec<usize> = (0..limit).map(|_| random.index(bytes.len())).collect();
        for len in ends.chain(middle) {
            let location = format!("object {name:?} truncated to {len} of {} bytes", bytes.len());
            try_all(&check.at(&location), format, fixture, with(Some(bytes[..len].to_vec())))?;
        }
        for _ in 0..limit {
            if bytes.is_empty() {
                break;
            }
            let mut mutated = bytes.clone();
            let (at, bit) = (random.index(bytes.len()), random.below(8));
            mutated[at] ^= 1 << bit;
            let location = format!("object {name:?} with bit {bit} of byte {at} flipped");
            try_all(&check.at(&location), format, fixture, with(Some(mutated)))?;
            let mut wild = bytes.clone();
            let len = random.within(1, 8) as usize;
            let end = (at + len).min(wild.len());
            wild[at..end].copy_from_slice(&random.bytes(end - at));
            let location = format!("object {name:?} with bytes {at}..{end} replaced");
            try_all(&check.at(&location), format, fixture, with(Some(wild)))?;
        }
    }
    Ok(())
}

fn try_all(
    check: &Check<'_>,
    format: &dyn Format,
    fixture: &Fixture,
    store: Arc<MemoryStore>,
) -> Result<(), Violation> {
    let limits = Limits {
        chunk_bytes: 16 << 20,
        metadata_bytes: 16 << 20,
        depth: 64,
        plan_chunks: 1 << 16,
        ..Limits::default()
    };
    let options = OpenOptions { limits, ..fixture.options.clone() };
    let store: Arc<dyn Store> = store;
    let opened = check.guarded("open", || format.open(Arc::clone(&store), &options))?;
    let damaged = opened.as_ref().is_err_and(tesseral_core::Error::is_damage);
    if let Ok(container) = &opened {
        check.guarded("reading", || read_all(container.as_ref()))?;
    }
    let mut failed = false;
    let audit = AuditOptions { open: options, ..AuditOptions::default() };
    let report = check.guarded("audit", || {
        format.audit(Arc::clone(&store), &audit, &mut |finding| failed |= !finding.ok)
    })?;
    match report {
        Ok(report) => {
            check
                .require(failed || !damaged, || "open fails on damage that no finding reports".to_owned())?;
            if let Some(container) = report.container {
                check.guarded("reading after an audit", || read_all(container.as_ref()))?;
            }
            Ok(())
        }
        Err(e) if matches!(e.kind(), ErrorKind::Io { .. } | ErrorKind::NotFound { .. }) => Ok(()),
        Err(e) => check.fail(format!("an audit may fail only on I/O errors: {e}")),
    }
}

/// Uses a container as a caller would, and ignores errors.
fn read_all(container: &dyn ContainerSource) {
    let _ = (container.details(), container.attributes(), container.history());
    for number in 0..container.len().min(64) {
        let _ = container.find(container.name(number));
        let Ok(source) = container.array(number) else { continue };
        for column in columns(source.schema()) {
            let Ok(plan) = full_request(source.schema(), vec![column])
                .and_then(|request| plan(&*source, container.store(), &request))
            else {
                continue;
            };
            let Ok(layout) = ColumnLayout::new(source.schema(), column) else { continue };
            for chunk in plan.chunks.iter().take(4) {
                let _ = (source.stats(chunk, column), source.describe(chunk));
                for span in source.digests(chunk) {
                    let _ = container.store().read(&source.object(span.object), span.range);
                }
                let small = layout.bytes(chunk.cells).unwrap_or(chunk.cells).max(chunk.cells) <= FOLLOW;
                let fetched = fetch(container.store().as_ref(), source.as_ref(), chunk, column);
                if let (true, Ok(parts)) = (small, fetched) {
                    let run = 0..chunk.cells;
                    let _ = decode_parts(source.as_ref(), chunk, column, &parts, run, Prefill::default());
                }
            }
        }
    }
}
