//! `tet split`: one file per object.

use std::path::{Path, PathBuf};

use clap::Args;
use tesseral::{Error, MessageChange};

use super::{Source, Written, create, put, target};
use crate::context::Context;
use crate::failure::Outcome;

/// Arguments of `tet split`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where objects go: `[index]` in the name stands for their number; without it the number comes before the ending
    #[arg(short, long, value_name = "OUT")]
    output: String,
    /// Replaces existing outputs
    #[arg(short, long)]
    force: bool,
    /// A file of messages
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

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Outcome {
    if arguments.output == "-" {
        let error = Error::invalid("objects go to a file each, not to standard output");
        return Err(error.hint("`tet copy` and `tet merge` write there").into());
    }
    let file = Source::new(context, &arguments.source)?.open()?;
    let sources = std::slice::from_ref(&arguments.source);
    let mut plan = Vec::new();
    for number in 0..file.len() {
        let objects = file.message(number)?.objects.len();
        // A message of one object, or none, is one already.
        let parts = if objects > 1 { (0..objects).map(Some).collect() } else { vec![None] };
        plan.extend(parts.into_iter().map(|object| (number, object)));
    }
    // Nothing is written when one of them must not be.
    for number in 0..plan.len() {
        let path = numbered(&arguments.output, number);
        target(&path, arguments.force, sources)?.check()?;
    }
    let mut written = Written::default();
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
    fn numbers_come_where_they_are_asked_for() {
        assert_eq!(numbered("a/msg_[index].tgm", 3), Path::new("a/msg_0003.tgm"));
        assert_eq!(numbered("a/out.tgm", 12), Path::new("a/out_0012.tgm"));
        assert_eq!(numbered("out", 0), Path::new("out_0000"));
    }
}
