//! Fixes that a file needs. The only automatic one removes a truncated message from the end.

use std::sync::Arc;

use tesseral_core::{Cancel, Error, Result};
use tesseral_format::Repair;
use tesseral_store::{Overwrite, Store};

use crate::edit::copy;
use crate::message::Message;
use crate::scan::{Skipped, scan, truncated_tail};
use crate::source::MessageBytes;

/// The fix that can be applied automatically.
const TRUNCATED_TAIL: &str = "truncated_tail";
/// Damaged messages and bytes between messages: readers skip them; removing them requires a new file.
const SKIPPED_BYTES: &str = "skipped_bytes";

/// Returns the fixes a file needs.
pub(crate) fn repairs(store: &Arc<dyn Store>, cancel: &Cancel) -> Result<Vec<Repair>> {
    let source = MessageBytes::open(store)?;
    source.guarded(|| {
        let mut repairs = Vec::new();
        let tail = truncated_tail(&source, cancel)?;
        let end = tail.as_ref().map_or(source.len, |tail| tail.offset);
        let found = scan(&source, cancel)?;
        let others = found.skipped.iter().filter(|skipped| skipped.offset < end);
        let (count, bytes) = others.fold((0, 0), |(n, bytes), skipped| (n + 1, bytes + skipped.len));
        if let Some(tail) = tail {
            // A file without an intact message would be empty after the fix, which needs an explicit decision.
            let automatic = !found.messages.is_empty();
            repairs.push(Repair { code: TRUNCATED_TAIL, message: describe(&source, &tail)?, automatic });
        }
        if count > 0 {
            let message = format!(
                "{bytes} bytes in {count} ranges are outside messages; recover the intact messages into a new file"
            );
            repairs.push(Repair { code: SKIPPED_BYTES, message, automatic: false });
        }
        Ok(repairs)
    })
}

fn describe(source: &MessageBytes, tail: &Skipped) -> Result<String> {
    let Skipped { offset, len, detail, .. } = tail;
    // Too short for a preamble: contains no data.
    let objects = match Message::walk(source, *offset, *len, true) {
        Ok(message) => message.object_count(),
        Err(error) if error.is_damage() => 0,
        Err(error) => return Err(error),
    };
    let kept = match objects {
        0 => String::new(),
        n => format!("; {n} intact objects in it can be recovered into a new file first"),
    };
    Ok(format!("{detail}; the fix removes the last {len} bytes and keeps all intact messages{kept}"))
}

/// Applies a fix: stages a file without the tail and atomically replaces the original.
pub(crate) fn apply(store: &Arc<dyn Store>, cancel: &Cancel, code: &str) -> Result<()> {
    let needed = repairs(store, cancel)?;
    match needed.iter().find(|repair| repair.code == code) {
        Some(repair) if repair.automatic => {}
        Some(_) => return Err(Error::invalid(format!("{code} cannot be fixed automatically"))),
        None => return Err(Error::invalid(format!("{code} does not apply to the file"))),
    }
    let source = MessageBytes::open(store)?;
    source.guarded(|| {
        let Some(tail) = truncated_tail(&source, cancel)? else {
            return Err(Error::invalid(format!("{code} does not apply to the file")));
        };
        let staged = store.stage("", Overwrite::Replace)?;
        let mut at = 0;
        copy(&source, 0, tail.offset, &mut |bytes| {
            cancel.check()?;
            staged.write_at(at, bytes)?;
            at += bytes.len() as u64;
            Ok(())
        })?;
        // The bytes must be durable before they replace the file.
        source.check()?;
        staged.publish()
    })
}
