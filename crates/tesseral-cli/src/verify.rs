//! `tet verify`: checks a source, and reports the bytes that no digest covers.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value as Json, json};
use tesseral::{AuditOptions, Depth, Finding, Format, Severity};
use tesseral_engine::Verified;

use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output;
use crate::progress::Meter;
use crate::terminal_style::TerminalStyle;
use crate::text::{self, escape};
use tesseral_display::json;

/// Arguments of `tet verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// Path or URL of a file or folder of any supported format
    source: PathBuf,
    /// Decode every chunk and compare stored statistics with the cells
    #[arg(long, group = "depth")]
    deep: bool,
    /// Check the structure only
    #[arg(long, group = "depth")]
    quick: bool,
    /// Verify digests without decoding
    #[arg(long, group = "depth")]
    checksum: bool,
    /// Like --deep, with all other checks of the reference validator: cells of .tgm must be finite or masked
    #[arg(long, group = "depth")]
    full: bool,
    /// Warn about metadata that is not in canonical form
    #[arg(long)]
    canonical: bool,
    /// Print one line
    #[arg(short, long)]
    quiet: bool,
}

/// Result of a verification.
pub(crate) struct VerifyReport {
    pub(crate) format: &'static dyn Format,
    pub(crate) findings: Vec<Finding>,
    pub(crate) verified: Verified,
}

pub(crate) fn run(context: &Context, arguments: &VerifyArguments) -> CliResult {
    let depth = match arguments {
        VerifyArguments { quick: true, .. } => Depth::Structure,
        VerifyArguments { checksum: true, .. } => Depth::Digests,
        VerifyArguments { deep: true, .. } => Depth::Deep,
        VerifyArguments { full: true, .. } => Depth::Full,
        _ => Depth::Usual,
    };
    let checked = check(context, &arguments.source, depth, arguments.canonical)?;
    let source = arguments.source.to_string_lossy();
    if context.json() {
        output::print_json(&checked.document(&source))?;
    } else if arguments.quiet {
        output::print(&checked.line(&source))?;
    } else {
        output::print(&checked.text(&source, TerminalStyle::stdout()))?;
    }
    Ok(checked.exit_code())
}

/// Verifies a source.
pub(crate) fn check(
    context: &Context,
    source: &Path,
    depth: Depth,
    canonical: bool,
) -> CliResult<VerifyReport> {
    let meter = Meter::new(true);
    let (opener, store, format) = context.source(source, &meter)?;
    let mut findings = Vec::new();
    let options = context.options(&meter);
    let checks = AuditOptions { open: opener.format_options().clone(), depth, canonical };
    let verified = tesseral_engine::verify_to(format, store, &checks, &options, &mut |f| findings.push(f))?;
    meter.finish();
    Ok(VerifyReport { format, findings, verified })
}

impl VerifyReport {
    /// 0 if intact, 7 if the only failures are unsupported features, 1 if damaged.
    fn exit_code(&self) -> u8 {
        let mut failures = self.findings.iter().filter(|finding| !finding.ok).peekable();
        match (self.verified.ok, failures.peek().is_some() && failures.all(|finding| finding.unsupported)) {
            (true, _) => exit::OK,
            (false, true) => exit::UNSUPPORTED,
            (false, false) => exit::NO,
        }
    }

    fn count(&self, severity: Severity) -> usize {
        self.findings
            .iter()
            .filter(|f| f.severity == severity && (severity != Severity::Error || !f.ok))
            .count()
    }

    /// The document of `--json`.
    pub(crate) fn document(&self, source: &str) -> Json {
        json!({
            "schema": "tesseral.verify/1",
            "ok": self.verified.ok,
            "source": source,
            "format": self.format.id(),
            "findings": self.findings.iter().map(json::finding).collect::<Vec<_>>(),
            "covered_bytes": self.verified.covered_bytes,
            "uncovered_bytes": self.verified.uncovered_bytes,
        })
    }

    /// One line.
    pub(crate) fn line(&self, source: &str) -> String {
        format!(
            "path={} status={} errors={} warnings={} covered_bytes={} uncovered_bytes={}\n",
            escape(source),
            if self.verified.ok { "ok" } else { "failed" },
            self.count(Severity::Error),
            self.count(Severity::Warning),
            self.verified.covered_bytes,
            self.verified.uncovered_bytes,
        )
    }

    /// A report as text.
    pub(crate) fn text(&self, source: &str, paint: TerminalStyle) -> String {
        let status = if self.verified.ok { paint.success("ok") } else { paint.failure("failed") };
        let mut out = format!("{}  {}\n", paint.strong(&escape(source)), self.format.title());
        out.push_str(&format!("status: {status}\nchecks:\n"));
        let width = self.findings.iter().map(|f| f.check.len()).max().unwrap_or(0);
        for finding in &self.findings {
            out.push_str(&line(finding, width, paint));
        }
        let Verified { covered_bytes, uncovered_bytes, .. } = self.verified;
        out.push_str(&format!(
            "digests cover {}; changes in the other {} can stay undetected\n",
            text::size(covered_bytes),
            text::size(uncovered_bytes)
        ));
        out
    }
}

/// One finding on one line: check, result, description, location.
pub(crate) fn line(finding: &Finding, width: usize, paint: TerminalStyle) -> String {
    let verdict = match (finding.ok, finding.severity) {
        (false, _) => paint.failure("FAIL"),
        (true, Severity::Warning) => paint.warning("warn"),
        (true, _) => paint.success("ok  "),
    };
    let mut places = Vec::new();
    if let Some(array) = &finding.array {
        places.push(format!("array {array:?}"));
    }
    if let Some(chunk) = &finding.chunk {
        places.push(format!("chunk {chunk:?}"));
    }
    match (finding.offset, finding.length) {
        (Some(offset), Some(length)) => {
            places.push(format!("bytes {offset}..{}", offset.saturating_add(length)))
        }
        (Some(offset), None) => places.push(format!("byte {offset}")),
        _ => {}
    }
    // The detail of an error often contains its location.
    places.retain(|place| !finding.detail.contains(place.as_str()));
    let place = if places.is_empty() { String::new() } else { format!(" ({})", places.join(", ")) };
    let line =
        format!("  {:width$}  {verdict}  {}{}", finding.check, escape(&finding.detail), escape(&place));
    line.trim_end().to_owned() + "\n"
}
