//! `tet append`: appends messages to a file.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::json;
use tesseral::{Error, MessageChange, TruncatedTail, append_messages};

use super::MessageSource;
use tesseral_store::{Location, StorageOptions};

use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output;
use crate::progress::Meter;
use crate::text::{self, escape};

/// Returns whether the arguments are files of messages.
pub(crate) fn are_messages(context: &Context, target: &Path, source: &Path) -> bool {
    MessageSource::new(context, if has_content(context, target) { target } else { source }).is_ok()
}

/// Returns whether there is more than an empty file.
fn has_content(context: &Context, target: &Path) -> bool {
    match Location::parse(target) {
        Ok(Location::Path(path)) => {
            std::fs::metadata(path).is_ok_and(|found| found.is_dir() || found.len() > 0)
        }
        // A folder has no length.
        _ => context
            .opener(&Meter::new(false))
            .and_then(|open| Ok(open.store(target)?.len("")?))
            .is_ok_and(|len| len > 0),
    }
}

/// Appends the messages of files unchanged. Appends either all of them or none.
pub(crate) fn run(context: &Context, output: &Path, paths: &[PathBuf]) -> CliResult {
    // Open everything before the first write.
    let mut sources = Vec::new();
    for path in paths {
        let source = MessageSource::new(context, path)?;
        let file = source.open()?;
        sources.push((source, file));
    }
    let target = Location::parse(output)?;
    if has_content(context, output) {
        let target = MessageSource::new(context, output)?;
        if let Some((other, _)) = sources.iter().find(|(s, _)| s.format.id() != target.format.id()) {
            let detail = format!("{} messages in {}", other.format.title(), target.format.title());
            return Err(Error::unsupported(detail).into());
        }
    }
    let Some((first, _)) = sources.first() else { return Err(Error::invalid("no source to append").into()) };
    let (mut out, removed) =
        append_messages(first.messages, &target, &StorageOptions::new(), &first.options)?;
    if let Some(tail) = removed {
        let (path, TruncatedTail { offset, len, detail }) = (output.to_string_lossy(), tail);
        let line = format!("{path}: removed {len} bytes of a truncated message at {offset}: {detail}");
        // A failure to print cannot be reported.
        let _ = writeln!(anstream::stderr(), "warning: {}", escape(&line));
    }
    let mut appended = 0;
    for (_, file) in &sources {
        for number in 0..file.len() {
            context.check()?;
            file.write(number, &MessageChange::None, &mut |bytes| out.write(bytes))?;
            appended += 1;
        }
    }
    out.commit()?;
    report(context, output, paths, appended)
}

/// Number of appended messages. The total is not counted, because that would require a scan of the file.
fn report(context: &Context, output: &Path, sources: &[PathBuf], appended: usize) -> CliResult {
    if context.json() {
        output::print_json(&json!({
            "schema": "tesseral.append/1",
            "sources": sources.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
            "outputs": [{"path": output.to_string_lossy(), "appended": appended}],
            "changed": appended,
        }))?;
    } else {
        let count = text::count(appended as u64, "message");
        output::print(&format!("{}: {count} appended\n", escape(&output.to_string_lossy())))?;
    }
    Ok(exit::OK)
}
