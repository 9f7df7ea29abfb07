//! `tet append`: messages to the end of a file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use tesseral::{MessageChange, Error};

use super::{Filter, Source, Written};
use crate::context::{Context, local};
use crate::failure::Outcome;

/// Arguments of `tet append`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    filter: Filter,
    /// The file to append to; it is made if there is none
    output: PathBuf,
    /// Files whose messages are appended, byte for byte
    #[arg(required = true)]
    sources: Vec<PathBuf>,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Outcome {
    // Everything is opened before the first byte is written.
    let mut sources = Vec::new();
    for path in &arguments.sources {
        let source = Source::new(context, path)?;
        let file = source.open()?;
        sources.push((source, file));
    }
    let target = local(&arguments.output)?;
    let holds_some = std::fs::metadata(target).is_ok_and(|found| found.len() > 0);
    let held = match holds_some {
        true => {
            let target = Source::new(context, &arguments.output)?;
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
            if arguments.filter.condition.is_some() && !arguments.filter.holds(&file.message(number)?) {
                continue;
            }
            file.write(number, &MessageChange::None, &mut |bytes| out.write_all(bytes).map_err(io("write")))?;
            appended += 1;
        }
    }
    // One after the other, so that being stopped leaves at most the last one torn.
    out.sync_all().map_err(io("sync"))?;
    sync_folder(target)?;
    let written = Written { outputs: vec![(arguments.output.clone(), held + appended)], changed: appended };
    written.report(context, "append", &arguments.sources)
}

/// Makes the name of a new file durable.
fn sync_folder(target: &std::path::Path) -> Outcome<()> {
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(std::path::Path::new("."));
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|e| Error::io("sync folder", folder.display().to_string(), e).into())
}
