//! Validation with the levels, check names and report of the reference, and of the hash of every frame.

use std::path::Path;

use tesseral_core::{Cancel, Finding, Severity};
use tesseral_format::Depth;

use super::error::Result;
use super::file::TensogramFile;
use super::scanning::{SkippedBytes, scan_with_report};
use crate::audit::{Audit, is_error, level_of};
use crate::frame_reader::FrameReader;
use crate::message::Message;
use crate::source::SliceInput;
use crate::wire::postamble;
use crate::wire::preamble::{self, Preamble};

/// Level of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValidationLevel {
    /// Magic, frames, lengths and order.
    Structure,
    /// CBOR and its content.
    Metadata,
    /// Hashes, and whether payloads decompress.
    Integrity,
    /// Whether cells decode to the declared size and are finite.
    Fidelity,
}

impl ValidationLevel {
    /// Name of the level in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Structure => "structure",
            Self::Metadata => "metadata",
            Self::Integrity => "integrity",
            Self::Fidelity => "fidelity",
        }
    }

    fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Structure,
            2 => Self::Metadata,
            3 => Self::Integrity,
            _ => Self::Fidelity,
        }
    }
}

/// Set of checks to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValidationMode {
    /// Structure only.
    Quick,
    /// Structure, metadata and integrity.
    #[default]
    Default,
    /// Hashes only; structural errors are still reported.
    Checksum,
    /// All levels.
    Full,
}

/// Options of validation.
#[derive(Clone, Debug, Default)]
pub struct ValidateOptions {
    /// Checks to run.
    pub mode: ValidationMode,
    /// Report CBOR that is not canonical as a warning.
    pub canonical: bool,
    /// Resource limits for untrusted messages.
    pub limits: tesseral_core::Limits,
}

/// One finding of a validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationIssue {
    /// Stable name of the check.
    pub code: &'static str,
    /// Level of the check.
    pub level: ValidationLevel,
    /// Severity of the finding.
    pub severity: Severity,
    /// Index of the affected object, if any.
    pub object_index: Option<usize>,
    /// Offset from the start of the message, if known.
    pub byte_offset: Option<u64>,
    /// Description of the finding.
    pub description: String,
}

/// Report on one message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidationReport {
    /// Findings in order of detection.
    pub issues: Vec<ValidationIssue>,
    /// Number of objects.
    pub object_count: usize,
    /// True if the message has objects and all hashes were verified.
    pub hash_verified: bool,
}

impl ValidationReport {
    /// Returns whether no error was found.
    pub fn is_ok(&self) -> bool {
        self.issues.iter().all(|issue| issue.severity != Severity::Error)
    }
}

/// Report on a file or buffer of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileValidationReport {
    /// Byte ranges outside messages. Any range makes the report fail.
    pub file_issues: Vec<SkippedBytes>,
    /// One report per message.
    pub messages: Vec<ValidationReport>,
}

impl FileValidationReport {
    /// Returns whether no error was found.
    pub fn is_ok(&self) -> bool {
        self.file_issues.is_empty() && self.messages.iter().all(ValidationReport::is_ok)
    }
}

/// Validates the message at the start of a buffer.
pub fn validate_message(buffer: &[u8], options: &ValidateOptions) -> ValidationReport {
    let mut findings = Vec::new();
    let object_count = check(buffer, options, &mut findings).unwrap_or_else(|error| {
        findings.push(Finding::from_error("hash_verification_error", &error));
        0
    });
    let compared = options.mode != ValidationMode::Quick
        && !findings.iter().any(|f| is_error(f) || f.check == "no_hash_available");
    let issues = findings.iter().filter(|f| f.severity > Severity::Info).map(|finding| {
        let object = finding.array.as_ref().and_then(|name| name.rsplit('/').next()?.parse().ok());
        ValidationIssue {
            code: finding.check,
            level: ValidationLevel::from_number(level_of(finding)),
            severity: finding.severity,
            object_index: object,
            byte_offset: finding.offset,
            description: finding.detail.clone(),
        }
    });
    ValidationReport { issues: issues.collect(), object_count, hash_verified: compared && object_count > 0 }
}

/// Runs the checks and returns the number of objects.
fn check(
    buffer: &[u8],
    options: &ValidateOptions,
    findings: &mut Vec<Finding>,
) -> tesseral_core::Result<usize> {
    let input = SliceInput { name: "the message", bytes: buffer };
    let Some(len) = message_length(buffer, findings) else { return Ok(0) };
    let message = Message::walk(&input, 0, len, false)?;
    let depth = match options.mode {
        ValidationMode::Quick => Depth::Structure,
        ValidationMode::Checksum => Depth::Digests,
        ValidationMode::Default => Depth::Usual,
        ValidationMode::Full => Depth::Full,
    };
    let mut audit = Audit {
        reader: FrameReader { input: &input, limits: options.limits, digests: true },
        depth,
        canonical: options.canonical,
        payloads: true,
        cancel: &Cancel::default(),
        report: &mut |finding| findings.push(finding),
        failures: 0,
        covered: 0,
        payload: 0,
        decoded: 0,
        decoded_from: 0,
    };
    audit.message(&message, 0)?;
    Ok(message.object_count())
}

/// Returns the length of the message if preamble and postamble agree.
fn message_length(buffer: &[u8], findings: &mut Vec<Finding>) -> Option<u64> {
    let mut fail = |check: &'static str, detail: String| {
        findings.push(Finding::failed(check, detail).at(0, buffer.len() as u64));
        None
    };
    let len = buffer.len() as u64;
    if len < preamble::LEN + postamble::LEN {
        return fail("buffer_too_short", format!("{len} bytes"));
    }
    if !buffer.starts_with(&preamble::MAGIC) {
        return fail("invalid_magic", format!("found {:?}", buffer[..8].escape_ascii().to_string()));
    }
    let preamble = match Preamble::parse(buffer, "the message", 0) {
        Ok(preamble) => preamble,
        Err(error) => return fail("preamble_parse_failed", error.to_string()),
    };
    match preamble.total_length {
        0 => Some(len),
        total if total > len => fail(
            "total_length_exceeds_buffer",
            format!("message truncated: expected {total} bytes, found {len}"),
        ),
        total if total < preamble::LEN + postamble::LEN => {
            fail("total_length_too_small", format!("a message of {total} bytes"))
        }
        total => Some(total),
    }
}

/// Validates every message of a buffer and reports bytes outside messages.
///
/// # Errors
/// None for a buffer in memory.
pub fn validate_buffer(buffer: &[u8], options: &ValidateOptions) -> Result<FileValidationReport> {
    let found = scan_with_report(buffer)?;
    let messages = found.messages.iter().map(|(at, len)| validate_message(&buffer[*at..at + len], options));
    Ok(FileValidationReport { messages: messages.collect(), file_issues: found.skipped })
}

/// Validates every message of a file, one at a time.
///
/// # Errors
/// `Io`.
pub fn validate_file(path: impl AsRef<Path>, options: &ValidateOptions) -> Result<FileValidationReport> {
    let file = TensogramFile::open(path.as_ref());
    let mut messages = Vec::with_capacity(file.message_count()?);
    for message in &file {
        messages.push(validate_message(&message?, options));
    }
    Ok(FileValidationReport { messages, file_issues: file.skipped()? })
}
