//! `tet advise`: recommends chunk shapes for given read patterns.

use clap::Args;
use serde_json::json;
use tesseral::ChunkAdvice;

use crate::cells_argument::CellsArgument;
use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output;
use crate::progress::Meter;
use crate::terminal_style::TerminalStyle;
use crate::text;

/// Arguments of `tet advise`.
#[derive(Debug, Args)]
pub(crate) struct AdviseArguments {
    #[command(flatten)]
    subject: CellsArgument,
    /// Access pattern: `time=0`, `lat=3 lon=5`; a position represents any position. Repeatable
    #[arg(long, value_name = "SELECTION", required = true)]
    read: Vec<String>,
    /// Number of recommendations to show
    #[arg(short, value_name = "N", default_value_t = 5)]
    n: usize,
}

pub(crate) fn run(context: &Context, arguments: &AdviseArguments) -> CliResult {
    let container = context.open(&arguments.subject.source, &Meter::new(false))?;
    let target = arguments.subject.resolve(&container)?;
    let array = &target.array;
    let found = tesseral::advise(array, &arguments.read, arguments.n.max(1))?;
    let dims = array.schema().dims.iter().enumerate();
    let names: Vec<String> =
        dims.map(|(d, dim)| if dim.name.is_empty() { d.to_string() } else { dim.name.clone() }).collect();
    let source = arguments.subject.source.to_string_lossy();
    let command = found.first().filter(|best| !best.current).map(|best| {
        let extents: Vec<String> =
            names.iter().zip(&best.chunk_shape).map(|(n, e)| format!("{n}={e}")).collect();
        format!(
            "tet rechunk {} OUT --chunks {}",
            text::shell_quoted(&source),
            text::shell_quoted(&extents.join(","))
        )
    });
    if context.json() {
        let advice = |a: &ChunkAdvice| {
            json!({
                "chunk_shape": a.chunk_shape,
                "chunk_bytes": a.chunk_bytes,
                "chunks": a.chunks,
                "cost": a.cost,
                "current": a.current,
                "reads": a.reads.iter().map(|r| json!({"wanted_bytes": r.wanted, "bytes": r.bytes, "chunks": r.chunks})).collect::<Vec<_>>(),
            })
        };
        output::print_json(&json!({
            "schema": "tesseral.advise/1",
            "source": source,
            "array": array.name(),
            "field": target.field.name,
            "reads": arguments.read,
            "shapes": found.iter().map(advice).collect::<Vec<_>>(),
            "command": command,
        }))?;
        return Ok(exit::OK);
    }
    let paint = TerminalStyle::stdout();
    let titles: Vec<String> = arguments.read.iter().map(|read| format!(">{read}")).collect();
    let mut columns = vec!["chunks of", ">size", ">number"];
    columns.extend(titles.iter().map(String::as_str));
    columns.push("");
    let rows = found.iter().map(|a| {
        let reads =
            a.reads.iter().map(|r| format!("{} of {:.0}", text::size(r.bytes as u64), r.chunks.ceil()));
        let shape = text::shape(a.chunk_shape.iter().map(|n| Some(*n)), paint.times());
        let head = [shape, text::size(a.chunk_bytes), a.chunks.to_string()];
        head.into_iter()
            .chain(reads)
            .chain([if a.current { "now".to_owned() } else { String::new() }])
            .collect()
    });
    let mut out = paint.table(&columns, rows);
    match command {
        Some(command) => out.push_str(&format!("\n{}\n", text::escape(&command))),
        None => out.push_str("\nthe current chunk shape is the best one for these reads\n"),
    }
    output::print(&out)?;
    Ok(exit::OK)
}
