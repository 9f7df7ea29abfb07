//! Is a message sound? The reference's levels, codes and report, and the hash of every frame.

use std::path::Path;

use tesseral_core::{Finding, Severity};
use tesseral_format::Depth;

use super::error::Result;
use super::file::TensogramFile;
use super::scanning::{SkippedBytes, scan_with_report};
use crate::audit::{Audit, is_error, level_of};
use crate::message::Message;
use crate::read::Reader;
use crate::source::Slice;
use crate::wire::postamble;
use crate::wire::preamble::{self, Preamble};

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValidationLevel {
    /// Magic, frames, lengths, order.
    Structure,
    /// CBOR and what it says.
    Metadata,
    /// Hashes, and whether payloads decompress.
    Integrity,
    /// Whether cells decode to what was promised, all finite.
    Fidelity,
}

impl ValidationLevel {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Structure => "structure",
            Self::Metadata => "metadata",
            Self::Integrity => "integrity",
            Self::Fidelity => "fidelity",
        }
    }

    fn of(number: u8) -> Self {
        match number {
            1 => Self::Structure,
            2 => Self::Metadata,
            3 => Self::Integrity,
            _ => Self::Fidelity,
        }
    }
}

/// Which checks to make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValidationMode {
    /// Structure alone.
    Quick,
    /// Structure, metadata, integrity.
    #[default]
    Default,
    /// Hashes alone; structural errors are still told.
    Checksum,
    /// All levels.
    Full,
}

/// How to validate.
#[derive(Clone, Debug, Default)]
pub struct ValidateOptions {
    /// Which checks to make.
    pub mode: ValidationMode,
    /// Warn of CBOR that is not in canonical form.
    pub canonical: bool,
    /// What a message may make us use.
    pub limits: tesseral_core::Limits,
}

/// Something that is wrong, or odd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationIssue {
    /// The check's name.
    pub code: &'static str,
    /// What it is about.
    pub level: ValidationLevel,
    /// How much it matters.
    pub severity: Severity,
    /// The object concerned.
    pub object_index: Option<usize>,
    /// Where, counted from the message's first byte.
    pub byte_offset: Option<u64>,
    /// What was seen.
    pub description: String,
}

/// The outcome for a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidationReport {
    /// What is wrong, or odd.
    pub issues: Vec<ValidationIssue>,
    /// Number of objects.
    pub object_count: usize,
    /// There is an object, and every hash was compared and right.
    pub hash_verified: bool,
}

impl ValidationReport {
    /// Nothing is wrong.
    pub fn is_ok(&self) -> bool {
        self.issues.iter().all(|issue| issue.severity != Severity::Error)
    }
}

/// The outcome for a file or buffer of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileValidationReport {
    /// Bytes that belong to no message. Any makes the file fail.
    pub file_issues: Vec<SkippedBytes>,
    /// One per message.
    pub messages: Vec<ValidationReport>,
}

impl FileValidationReport {
    /// Nothing is wrong.
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
            level: ValidationLevel::of(level_of(finding)),
            severity: finding.severity,
            object_index: object,
            byte_offset: finding.offset,
            description: finding.detail.clone(),
        }
    });
    ValidationReport { issues: issues.collect(), object_count, hash_verified: compared && object_count > 0 }
}

/// Makes the checks; gives the number of objects.
fn check(
    buffer: &[u8],
    options: &ValidateOptions,
    findings: &mut Vec<Finding>,
) -> tesseral_core::Result<usize> {
    let input = Slice { name: "the message", bytes: buffer };
    let Some(len) = message_length(buffer, findings) else { return Ok(0) };
    let message = Message::walk(&input, 0, len, false)?;
    let depth = match options.mode {
        ValidationMode::Quick => Depth::Structure,
        ValidationMode::Checksum => Depth::Digests,
        ValidationMode::Default => Depth::Usual,
        ValidationMode::Full => Depth::Full,
    };
    let mut audit = Audit {
        reader: Reader { input: &input, limits: options.limits, digests: true },
        depth,
        canonical: options.canonical,
        payloads: true,
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

/// The length of the message, as far as its ends agree.
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
        total if total > len => {
            fail("total_length_exceeds_buffer", format!("the message has {total} bytes, {len} are there"))
        }
        total if total < preamble::LEN + postamble::LEN => {
            fail("total_length_too_small", format!("a message of {total} bytes"))
        }
        total => Some(total),
    }
}

/// Validates every message of a buffer, and tells of what belongs to none.
///
/// # Errors
/// None that a buffer in memory could cause.
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
