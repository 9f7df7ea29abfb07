//! `tet append`: messages to the end of a file.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::json;
use tesseral::{Error, MessageChange, TruncatedTail, append_messages};

use super::Source;
use crate::context::{Context, local};
use crate::failure::{Outcome, exit};
use crate::output;
use crate::text::{self, escape};

/// Whether messages are meant: the file holds some, or is to be made of a file that does.
pub(crate) fn is_meant(context: &Context, target: &Path, source: &Path) -> bool {
    let held = std::fs::metadata(target).is_ok_and(|found| found.is_dir() || found.len() > 0);
    Source::new(context, if held { target } else { source }).is_ok()
}

/// Appends the messages of files, byte for byte. All of them are appended, or none.
pub(crate) fn run(context: &Context, output: &Path, paths: &[PathBuf]) -> Outcome {
    // Everything is opened before the first byte is written.
    let mut sources = Vec::new();
    for path in paths {
        let source = Source::new(context, path)?;
        let file = source.open()?;
        sources.push((source, file));
    }
    let target = local(output)?;
    if std::fs::metadata(target).is_ok_and(|found| found.len() > 0) {
        let target = Source::new(context, output)?;
        if let Some((other, _)) = sources.iter().find(|(s, _)| s.format.id() != target.format.id()) {
            let detail = format!("{} messages in {}", other.format.title(), target.format.title());
            return Err(Error::unsupported(detail).into());
        }
    }
    let Some((first, _)) = sources.first() else { return Err(Error::invalid("no source to append").into()) };
    let (mut out, removed) = append_messages(first.messages, target, &first.options)?;
    if let Some(tail) = removed {
        let (path, TruncatedTail { offset, len, detail }) = (output.to_string_lossy(), tail);
        let line = format!("{path}: removed {len} bytes of a truncated message at {offset}: {detail}");
        // Nothing is left to report a failure to.
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

/// How many messages were appended. How many the file holds now is not counted: that takes as long as the file is.
fn report(context: &Context, output: &Path, sources: &[PathBuf], appended: usize) -> Outcome {
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
