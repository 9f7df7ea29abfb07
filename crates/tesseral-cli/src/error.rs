//! Exit codes, and reporting of errors with hints.

use std::error::Error as _;
use std::io::Write;

use anstyle::{AnsiColor, Style};
use tesseral::{Error, ErrorKind};

use crate::{hint, text};

/// Exit codes.
pub(crate) mod exit {
    pub(crate) const OK: u8 = 0;
    /// Negative result, for example a difference or damage.
    pub(crate) const NO: u8 = 1;
    pub(crate) const USAGE: u8 = 2;
    pub(crate) const NOT_FOUND: u8 = 3;
    pub(crate) const UNREADABLE: u8 = 4;
    pub(crate) const DAMAGED: u8 = 5;
    pub(crate) const LIMIT: u8 = 6;
    pub(crate) const UNSUPPORTED: u8 = 7;
    pub(crate) const IO: u8 = 8;
    /// A defect of this program; `EX_SOFTWARE` of sysexits.
    pub(crate) const INTERNAL: u8 = 70;
    pub(crate) const INTERRUPTED: u8 = 130;
}

/// Result of a command: its exit code, or the error.
pub(crate) type CliResult<T = u8> = Result<T, CommandFailure>;

/// Prints a note on standard error.
pub(crate) fn report(text: &str) {
    // A failure to print cannot be reported.
    let _ = anstream::stderr().write_all(text.as_bytes());
}

/// Reason why a command ended early.
#[derive(Debug)]
pub(crate) enum CommandFailure {
    /// The reader of the output closed the pipe.
    Closed,
    /// An error to report.
    Error(Box<CliError>),
}

/// An error, and whether it occurred while opening.
#[derive(Debug)]
pub(crate) struct CliError {
    error: Error,
    /// Corruption while opening means an unreadable file; afterwards it means damaged data.
    opening: bool,
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        Self { error, opening: false }
    }
}

impl From<Error> for CommandFailure {
    fn from(error: Error) -> Self {
        Self::Error(Box::new(error.into()))
    }
}

impl CommandFailure {
    /// Creates an error that occurred while opening a source.
    pub(crate) fn opening(error: Error) -> Self {
        Self::Error(Box::new(CliError { error, opening: true }))
    }

    /// Returns whether the source changed so that reopening can succeed.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Self::Error(failure) if matches!(failure.error.kind(), ErrorKind::Stale { .. }))
    }

    /// Returns whether the source does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Error(failure) if matches!(failure.error.kind(), ErrorKind::NotFound { .. }))
    }

    /// Converts to a library error.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Error(failure) => failure.error,
            Self::Closed => Error::io("write", "standard output", std::io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Creates an error of writing to the output `to`.
    pub(crate) fn writing(to: &str, error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::Closed;
        }
        match error.downcast::<Error>() {
            Ok(inner) => inner.into(),
            Err(error) => Error::io("write", to, error).into(),
        }
    }
}

impl CliError {
    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self.error.kind() {
            ErrorKind::Unrecognized { .. } => exit::UNREADABLE,
            ErrorKind::Corrupt { .. } | ErrorKind::Missing { .. } | ErrorKind::Codec { .. } => {
                if self.opening { exit::UNREADABLE } else { exit::DAMAGED }
            }
            ErrorKind::Unsupported { .. } => exit::UNSUPPORTED,
            ErrorKind::Limit { .. } => exit::LIMIT,
            ErrorKind::NotFound { .. } => exit::NOT_FOUND,
            ErrorKind::InvalidRequest { .. } => exit::USAGE,
            ErrorKind::Internal { .. } => exit::INTERNAL,
            ErrorKind::Cancelled => exit::INTERRUPTED,
            ErrorKind::Io { source, .. } => match source.kind() {
                std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => exit::NOT_FOUND,
                _ => exit::IO,
            },
            _ => exit::IO,
        }
    }

    /// Prints the error to standard error: what, where, why, and a hint.
    pub(crate) fn report(&self) {
        let red = AnsiColor::Red.on_default().bold();
        let cyan = AnsiColor::Cyan.on_default().bold();
        let mut text = String::new();
        let mut line = |style: Style, label: &str, detail: &str| {
            // The detail can contain names from a file, which are escaped for the terminal.
            text.push_str(&format!("{style}{label}{style:#}: {}\n", text::escape(detail)));
        };
        line(red, "error", &self.error.to_string());
        for cause in self.causes() {
            line(red, "  why", &cause);
        }
        if let Some(name) = self.nearest() {
            line(cyan, "  try", &format!("did you mean {name:?}?"));
        }
        match self.error.advice() {
            Some(advice) => line(cyan, "  try", &advice.worded(&hint::worded)),
            None => {
                if let Some(advice) = self.advice() {
                    line(cyan, "  try", advice);
                }
            }
        }
        report(&text);
    }

    /// The chain of causes, without those that an outer message already contains.
    fn causes(&self) -> Vec<String> {
        let mut printed = self.error.to_string();
        let mut causes = Vec::new();
        let mut source = self.error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !printed.contains(&text) {
                printed.push_str(&text);
                causes.push(text);
            }
            source = cause.source();
        }
        causes
    }

    /// The most similar candidate.
    fn nearest(&self) -> Option<&str> {
        let ErrorKind::NotFound { name, candidates, .. } = self.error.kind() else { return None };
        text::nearest(name, candidates.iter().map(String::as_str))
    }

    fn advice(&self) -> Option<&'static str> {
        match self.error.kind() {
            _ if self.error.is_damage() && self.opening => Some(
                "`tet verify` reports the damage, `tet repair` lists fixes, `tet recover` copies the intact chunks",
            ),
            _ if self.error.is_damage() => {
                Some("`tet verify --deep` lists all damaged chunks, `tet recover` copies the others")
            }
            ErrorKind::Limit { .. } => {
                Some("select less, or raise the limit: `--memory`, or `--max-expansion` for trusted sources")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(failure: CommandFailure) -> u8 {
        match failure {
            CommandFailure::Error(failure) => failure.code(),
            CommandFailure::Closed => panic!("not an error"),
        }
    }

    #[test]
    fn exit_codes_depend_on_kind_and_phase() {
        let damage = || Error::corrupt("row", "f", 8, "x");
        assert_eq!(code(CommandFailure::opening(damage())), exit::UNREADABLE);
        assert_eq!(code(damage().into()), exit::DAMAGED);
        assert_eq!(code(Error::codec("zstd", "bad").into()), exit::DAMAGED);
        assert_eq!(code(Error::missing("a file", "f", "f").into()), exit::DAMAGED);
        assert_eq!(code(Error::changed("f", "x").into()), exit::IO);
        assert_eq!(code(Error::stale("a", "f").into()), exit::IO);
        assert_eq!(code(Error::unsupported("x").into()), exit::UNSUPPORTED);
        assert_eq!(code(Error::limit("x", 2, 1).into()), exit::LIMIT);
        assert_eq!(code(Error::invalid("x").into()), exit::USAGE);
        assert_eq!(code(Error::internal("x").into()), exit::INTERNAL);
        assert_eq!(code(Error::cancelled().into()), exit::INTERRUPTED);
        let io = |kind: std::io::ErrorKind| code(Error::io("open", "f", kind.into()).into());
        assert_eq!(io(std::io::ErrorKind::PermissionDenied), exit::NOT_FOUND);
        assert_eq!(io(std::io::ErrorKind::StorageFull), exit::IO);
    }

    #[test]
    fn a_closed_pipe_is_not_an_error_and_inner_errors_keep_their_kind() {
        let closed = CommandFailure::writing("out", std::io::ErrorKind::BrokenPipe.into());
        assert!(matches!(closed, CommandFailure::Closed));
        let inner = CommandFailure::writing("out", std::io::Error::other(Error::limit("x", 2, 1)));
        assert_eq!(code(inner), exit::LIMIT);
    }
}
