//! `tet append`: messages to the end of a file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use tesseral::{Error, MessageChange};

use super::{Source, Written};
use crate::context::{Context, local};
use crate::failure::Outcome;

/// Whether messages are meant: the file holds some, or is to be made of a file that does.
pub(crate) fn is_meant(context: &Context, target: &Path, source: &Path) -> bool {
    let held = std::fs::metadata(target).is_ok_and(|found| found.is_dir() || found.len() > 0);
    Source::new(context, if held { target } else { source }).is_ok()
}

/// Appends the messages of files, byte for byte.
pub(crate) fn run(context: &Context, output: &Path, paths: &[PathBuf]) -> Outcome {
    // Everything is opened before the first byte is written.
    let mut sources = Vec::new();
    for path in paths {
        let source = Source::new(context, path)?;
        let file = source.open()?;
        sources.push((source, file));
    }
    let target = local(output)?;
    let holds_some = std::fs::metadata(target).is_ok_and(|found| found.len() > 0);
    let held = match holds_some {
        true => {
            let target = Source::new(context, output)?;
            if let Some((other, _)) = sources.iter().find(|(s, _)| s.format.id() != target.format.id()) {
                let detail = format!("{} messages in {}", other.format.title(), target.format.title());
                return Err(Error::unsupported(detail).into());
            }
            target.open()?.len()
        }
        false => 0,
    };
    let io = |op: &'static str| move |e| Error::io(op, target.display().to_string(), e);
    let mut out = OpenOptions::new().append(true).create(true).open(target).map_err(io("open"))?;
    let mut appended = 0;
    for (_, file) in &sources {
        for number in 0..file.len() {
            context.check()?;
            file.write(number, &MessageChange::None, &mut |bytes| out.write_all(bytes).map_err(io("write")))?;
            appended += 1;
        }
    }
    // One after the other, so that being stopped leaves at most the last one torn.
    out.sync_all().map_err(io("sync"))?;
    sync_folder(target)?;
    let written = Written { outputs: vec![(output.to_owned(), held + appended)], changed: appended };
    written.report(context, "append", paths)
}

/// Makes the name of a new file durable.
fn sync_folder(target: &Path) -> Outcome<()> {
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|e| Error::io("sync folder", folder.display().to_string(), e).into())
}
