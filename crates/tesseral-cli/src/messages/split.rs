//! `tet split`: splits messages into one file per object.

use std::path::{Path, PathBuf};

use clap::Args;
use tesseral::{Error, MessageChange};

use super::{MessageSource, WriteReport, create, put, target};
use crate::context::Context;
use crate::error::CliResult;

/// Arguments of `tet split`.
#[derive(Debug, Args)]
pub(crate) struct SplitArguments {
    /// Output path: `[index]` is replaced by the number of the object; otherwise the number is inserted before the extension
    #[arg(short, long, value_name = "OUT")]
    output: String,
    /// Replace existing outputs
    #[arg(short, long)]
    force: bool,
    /// File of messages
    source: PathBuf,
}

fn numbered(template: &str, number: usize) -> PathBuf {
    if template.contains("[index]") {
        return template.replace("[index]", &format!("{number:04}")).into();
    }
    let path = Path::new(template);
    let stem = path.file_stem().map_or_else(|| "split".into(), |stem| stem.to_string_lossy());
    let ending = path.extension().map_or_else(String::new, |e| format!(".{}", e.to_string_lossy()));
    path.with_file_name(format!("{stem}_{number:04}{ending}"))
}

pub(crate) fn run(context: &Context, arguments: &SplitArguments) -> CliResult {
    if arguments.output == "-" {
        let error = Error::invalid("cannot split to standard output");
        return Err(error.hint("use `tet copy` or `tet merge`").into());
    }
    let file = MessageSource::new(context, &arguments.source)?.open()?;
    let sources = std::slice::from_ref(&arguments.source);
    let mut plan = Vec::new();
    for number in 0..file.len() {
        let objects = file.message(number)?.objects.len();
        // A message with at most one object is not split.
        let parts = if objects > 1 { (0..objects).map(Some).collect() } else { vec![None] };
        plan.extend(parts.into_iter().map(|object| (number, object)));
    }
    // Check all outputs before writing any.
    for number in 0..plan.len() {
        let path = numbered(&arguments.output, number);
        target(&path, arguments.force, sources)?.check()?;
    }
    let mut written = WriteReport::default();
    for (at, (number, object)) in plan.into_iter().enumerate() {
        context.check()?;
        let path = numbered(&arguments.output, at);
        let mut output = create(context, &path, target(&path, arguments.force, sources)?)?;
        let kept = object.map(|object| [object]);
        let change = kept.as_ref().map_or(MessageChange::None, |kept| MessageChange::Objects(kept));
        file.write(number, &change, &mut |bytes| put(&mut output, bytes))?;
        output.finish()?;
        written.outputs.push((path, 1));
        written.changed += usize::from(object.is_some());
    }
    written.report(context, "split", sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_replace_the_placeholder() {
        assert_eq!(numbered("a/msg_[index].tgm", 3), Path::new("a/msg_0003.tgm"));
        assert_eq!(numbered("a/out.tgm", 12), Path::new("a/out_0012.tgm"));
        assert_eq!(numbered("out", 0), Path::new("out_0000"));
    }
}
