//! `tet recover`: copies the intact chunks of a damaged source to a new container.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tesseral::{Finding, MessageChange, MessageFile, recover};

use crate::context::Context;
use crate::error::{CliResult, CommandFailure, exit};
use crate::messages::{create, put, target};
use crate::output;
use crate::output::OutputStream;
use crate::progress::Meter;
use crate::terminal_style::TerminalStyle;
use crate::text::{self, escape};
use crate::verify::line;
use tesseral_display::json;

/// Arguments of `tet recover`.
#[derive(Debug, Args)]
pub(crate) struct RecoverArguments {
    /// A truncated or damaged file or folder
    source: PathBuf,
    /// Output path, in the same format
    output: PathBuf,
    /// Replace an existing output
    #[arg(short, long)]
    force: bool,
}

pub(crate) fn run(context: &Context, arguments: &RecoverArguments) -> CliResult {
    let meter = Meter::new(true);
    let opener = context.opener(&meter)?;
    let store = opener.store(&arguments.source)?;
    let format = tesseral::recognize(&*store).map_err(CommandFailure::opening)?;
    context.check_versions(format)?;
    if let Some(messages) = format.messages() {
        let truncated =
            messages.open_messages(store, opener.format_options(), true).map_err(CommandFailure::opening)?;
        let mut findings = truncated.findings();
        tesseral::check_named(&arguments.output, format)?;
        let target = target(&arguments.output, arguments.force, std::slice::from_ref(&arguments.source))?;
        let mut output = create(context, &arguments.output, target)?;
        let (saved, lost) = recover_messages(context, &*truncated, &mut output, &mut findings)?;
        output.finish()?;
        return report(context, arguments, format.id(), (saved, lost), &findings);
    }
    let overwrite = output::overwrite(arguments.force);
    let mut findings: Vec<Finding> = Vec::new();
    let options = context.options(&meter);
    let output = tesseral::Output::of_format(&arguments.output, format).overwrite(overwrite);
    let mut report_to = |finding| findings.push(finding);
    let recovered = recover(format, store, opener.format_options(), output, &options, &mut report_to)
        .map_err(CommandFailure::opening)?;
    meter.finish();
    report(context, arguments, format.id(), (recovered.chunks_saved, recovered.chunks_lost), &findings)
}

/// Copies intact messages unchanged, and the intact objects of others. Returns the numbers of recovered and lost objects.
fn recover_messages(
    context: &Context,
    truncated: &dyn MessageFile,
    output: &mut OutputStream,
    findings: &mut Vec<Finding>,
) -> CliResult<(u64, u64)> {
    let (mut saved, mut lost) = (0, 0);
    for number in 0..truncated.len() {
        context.check()?;
        let message = match truncated.message(number) {
            Ok(message) => message,
            Err(error) if error.is_damage() => {
                findings.push(Finding::from_error("message_lost", &error));
                lost += 1;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let damaged = truncated.damaged(number)?;
        let kept: Vec<usize> = (0..message.objects.len()).filter(|i| !damaged.contains(i)).collect();
        let change = if damaged.is_empty() && !message.truncated {
            MessageChange::None
        } else {
            MessageChange::Objects(&kept)
        };
        for object in &damaged {
            let detail = "hash mismatch";
            findings.push(Finding::failed("chunk_lost", detail).in_array(format!("{number}/{object}")));
        }
        // A message without intact objects is not written.
        if !kept.is_empty() || !message.truncated && damaged.is_empty() {
            truncated.write(number, &change, &mut |bytes| put(output, bytes))?;
        }
        saved += kept.len() as u64;
        // A message truncated inside its first object had at least one.
        lost += damaged.len() as u64 + u64::from(message.truncated && kept.is_empty() && damaged.is_empty());
    }
    Ok((saved, lost))
}

fn report(
    context: &Context,
    arguments: &RecoverArguments,
    format: &str,
    (saved, lost): (u64, u64),
    findings: &[Finding],
) -> CliResult {
    if context.json() {
        output::print_json(&json!({
            "schema": "tesseral.recover/1",
            "source": arguments.source.to_string_lossy(),
            "output": arguments.output.to_string_lossy(),
            "format": format,
            "chunks_saved": saved,
            "chunks_lost": lost,
            "findings": findings.iter().map(json::finding).collect::<Vec<_>>(),
        }))?;
        return Ok(exit::OK);
    }
    let paint = TerminalStyle::stdout();
    let width = findings.iter().map(|f| f.check.len()).max().unwrap_or(0);
    let mut out: String = findings.iter().map(|finding| line(finding, width, paint)).collect();
    out.push_str(&format!(
        "{}: {} saved, {lost} lost\n",
        escape(&arguments.output.to_string_lossy()),
        text::count(saved, "chunk"),
    ));
    output::print(&out)?;
    Ok(exit::OK)
}
