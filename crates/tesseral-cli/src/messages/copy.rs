//! `tet copy`: copies messages unchanged, into one file or one file per value of a key.

use std::collections::HashMap;
use std::path::PathBuf;

use clap::Args;
use tesseral::{Error, MessageChange, MessageInfo};

use super::{MessageFilter, MessageSource, WriteReport, create, each, put, shown, target};
use crate::context::Context;
use crate::error::CliResult;

/// Arguments of `tet copy`.
#[derive(Debug, Args)]
pub(crate) struct CopyArguments {
    #[command(flatten)]
    filter: MessageFilter,
    /// File of messages
    source: PathBuf,
    /// Output path; `[KEY]` is replaced by the value of a key, or `unknown` if it is missing; separators and invisible
    /// characters are written as %XX
    output: String,
    /// Replace existing outputs
    #[arg(short, long)]
    force: bool,
}

/// Returns the path with values of the message.
fn expand(template: &str, message: &MessageInfo) -> Result<String, Error> {
    let mut name = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('[') {
        let Some((key, after)) = after.split_once(']') else { break };
        name.push_str(before);
        let value = message.lookup(key).map_or_else(|| "unknown".to_owned(), |value| shown(&value));
        // A value must not lead out of the folder, nor look like another name.
        let safe = tesseral_core::file_name_part(&value);
        let empty =
            || Error::invalid(format!("the value of {key:?} is empty and cannot be part of a file name"));
        name.push_str(&safe.ok_or_else(empty)?);
        rest = after;
    }
    name.push_str(rest);
    Ok(name)
}

pub(crate) fn run(context: &Context, arguments: &CopyArguments) -> CliResult {
    let file = MessageSource::new(context, &arguments.source)?.open()?;
    // Groups messages by output, in the order of first use.
    let mut plan: Vec<(String, Vec<usize>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    each(context, &*file, &arguments.filter, &mut |number, message| {
        let name = expand(&arguments.output, &message)?;
        let place = *places.entry(name).or_insert_with_key(|name| {
            plan.push((name.clone(), Vec::new()));
            plan.len() - 1
        });
        plan[place].1.push(number);
        Ok(())
    })?;
    if plan.is_empty() && !arguments.output.contains('[') {
        plan.push((arguments.output.clone(), Vec::new()));
    }
    // Check all outputs before writing any.
    let sources = std::slice::from_ref(&arguments.source);
    for (name, _) in plan.iter().filter(|(name, _)| name != "-") {
        target(name.as_ref(), arguments.force, sources)?.check()?;
    }
    let mut written = WriteReport::default();
    for (name, numbers) in plan {
        let path = PathBuf::from(name);
        let mut output = create(context, &path, target(&path, arguments.force, sources)?)?;
        for number in &numbers {
            context.check()?;
            file.write(*number, &MessageChange::None, &mut |bytes| put(&mut output, bytes))?;
        }
        output.finish()?;
        written.outputs.push((path, numbers.len()));
    }
    written.report(context, "copy", sources)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tesseral::{Attributes, Value};

    #[test]
    fn values_in_names_cannot_leave_the_folder() {
        let keys =
            Attributes::from([("p".to_owned(), Value::from("2t")), ("q".to_owned(), Value::from("../x"))]);
        let message = MessageInfo { base: vec![keys], ..MessageInfo::default() };
        assert_eq!(expand("by/[p]_[none].tgm", &message).unwrap(), "by/2t_unknown.tgm");
        assert_eq!(expand("plain[.tgm", &message).unwrap(), "plain[.tgm");
        assert_eq!(expand("[q].tgm", &message).unwrap(), "%2E.%2Fx.tgm");
    }
}
