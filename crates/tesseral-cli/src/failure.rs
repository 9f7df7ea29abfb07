//! How a command ends: exit codes, and errors told so that the next step is clear.

use std::error::Error as _;
use std::io::Write;

use anstyle::{AnsiColor, Style};
use tesseral::{Error, ErrorKind};

use crate::text;

/// Exit codes.
pub(crate) mod exit {
    pub(crate) const OK: u8 = 0;
    /// The answer is no.
    pub(crate) const NO: u8 = 1;
    pub(crate) const USAGE: u8 = 2;
    pub(crate) const NOT_FOUND: u8 = 3;
    pub(crate) const UNREADABLE: u8 = 4;
    pub(crate) const DAMAGED: u8 = 5;
    pub(crate) const LIMIT: u8 = 6;
    pub(crate) const UNSUPPORTED: u8 = 7;
    pub(crate) const IO: u8 = 8;
    pub(crate) const INTERRUPTED: u8 = 130;
}

/// What a command gives: its exit code, or why it could not finish.
pub(crate) type Outcome<T = u8> = Result<T, Failure>;

/// Tells something beside the result.
pub(crate) fn tell(text: &str) {
    // Nowhere is left to complain about a failure here.
    let _ = anstream::stderr().write_all(text.as_bytes());
}

/// Why a command could not finish.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Whoever read our output has seen enough.
    Closed,
    /// An error to be told.
    Error(Box<Told>),
}

/// An error and when it happened.
#[derive(Debug)]
pub(crate) struct Told {
    error: Error,
    /// Damage met while opening means "not a readable file"; met later it means "damaged data".
    opening: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(Box::new(Told { error, opening: false }))
    }
}

impl Failure {
    /// An error met while opening a source.
    pub(crate) fn opening(error: Error) -> Self {
        Self::Error(Box::new(Told { error, opening: true }))
    }

    /// Whether the source changed in a way that opening it again makes good.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Self::Error(told) if matches!(told.error.kind(), ErrorKind::Stale { .. }))
    }

    /// As an error, for callers that know nothing of commands.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Error(told) => told.error,
            Self::Closed => Error::io("write", "standard output", std::io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// An error of writing to the output `to`.
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

impl Told {
    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self.error.kind() {
            ErrorKind::Unrecognised { .. } => exit::UNREADABLE,
            ErrorKind::Corrupt { .. } | ErrorKind::Missing { .. } | ErrorKind::Codec { .. } => {
                if self.opening { exit::UNREADABLE } else { exit::DAMAGED }
            }
            ErrorKind::Unsupported { .. } => exit::UNSUPPORTED,
            ErrorKind::Limit { .. } => exit::LIMIT,
            ErrorKind::NotFound { .. } => exit::NOT_FOUND,
            ErrorKind::InvalidRequest { .. } => exit::USAGE,
            ErrorKind::Cancelled => exit::INTERRUPTED,
            ErrorKind::Io { source, .. } => match source.kind() {
                std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => exit::NOT_FOUND,
                _ => exit::IO,
            },
            _ => exit::IO,
        }
    }

    /// Tells the error on standard error: what, where, why, and what to try.
    pub(crate) fn report(&self) {
        let red = AnsiColor::Red.on_default().bold();
        let cyan = AnsiColor::Cyan.on_default().bold();
        let mut told = String::new();
        let mut line = |style: Style, label: &str, detail: &str| {
            // The detail may carry names from a file: they must not speak to the terminal.
            told.push_str(&format!("{style}{label}{style:#}: {}\n", text::escape(detail)));
        };
        line(red, "error", &self.error.to_string());
        for cause in self.causes() {
            line(red, "  why", &cause);
        }
        if let Some(name) = self.nearest() {
            line(cyan, "  try", &format!("did you mean {name:?}?"));
        }
        if let Some(advice) = self.error.advice() {
            line(cyan, "  try", advice);
        }
        // How limits are raised is said here alone: what meets one knows nothing of options.
        let raise = matches!(self.error.kind(), ErrorKind::Limit { .. });
        if let Some(advice) = self.advice().filter(|_| raise || self.error.advice().is_none()) {
            line(cyan, "  try", advice);
        }
        tell(&told);
    }

    /// The chain of causes, without those that a message further up already holds.
    fn causes(&self) -> Vec<String> {
        let mut told = self.error.to_string();
        let mut causes = Vec::new();
        let mut source = self.error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !told.contains(&text) {
                told.push_str(&text);
                causes.push(text);
            }
            source = cause.source();
        }
        causes
    }

    /// The candidate that was probably meant.
    fn nearest(&self) -> Option<&str> {
        let ErrorKind::NotFound { name, candidates, .. } = self.error.kind() else { return None };
        text::nearest(name, candidates.iter().map(String::as_str))
    }

    fn advice(&self) -> Option<&'static str> {
        match self.error.kind() {
            _ if self.error.is_damage() && self.opening => Some(
                "`tet verify` tells what is wrong, `tet repair` lists fixes, `tet recover` saves whole chunks",
            ),
            _ if self.error.is_damage() => {
                Some("`tet verify --deep` lists every damaged chunk, `tet recover` saves the others")
            }
            ErrorKind::Limit { .. } => Some(
                "select less, or raise the limit: `--memory`, or `--max-expansion` for sources you trust",
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(failure: Failure) -> u8 {
        match failure {
            Failure::Error(told) => told.code(),
            Failure::Closed => panic!("not an error"),
        }
    }

    #[test]
    fn codes_follow_kind_and_moment() {
        let damage = || Error::corrupt("row", "f", 8, "x");
        assert_eq!(code(Failure::opening(damage())), exit::UNREADABLE);
        assert_eq!(code(damage().into()), exit::DAMAGED);
        assert_eq!(code(Error::codec("zstd", "bad").into()), exit::DAMAGED);
        assert_eq!(code(Error::missing("a file", "f", "f").into()), exit::DAMAGED);
        assert_eq!(code(Error::changed("f", "x").into()), exit::IO);
        assert_eq!(code(Error::stale("a", "f").into()), exit::IO);
        assert_eq!(code(Error::unsupported("x").into()), exit::UNSUPPORTED);
        assert_eq!(code(Error::limit("x", 2, 1).into()), exit::LIMIT);
        assert_eq!(code(Error::invalid("x").into()), exit::USAGE);
        assert_eq!(code(Error::cancelled().into()), exit::INTERRUPTED);
        let io = |kind: std::io::ErrorKind| code(Error::io("open", "f", kind.into()).into());
        assert_eq!(io(std::io::ErrorKind::PermissionDenied), exit::NOT_FOUND);
        assert_eq!(io(std::io::ErrorKind::StorageFull), exit::IO);
    }

    #[test]
    fn a_closed_pipe_is_no_error_and_inner_errors_keep_their_kind() {
        let closed = Failure::writing("out", std::io::ErrorKind::BrokenPipe.into());
        assert!(matches!(closed, Failure::Closed));
        let inner = Failure::writing("out", std::io::Error::other(Error::limit("x", 2, 1)));
        assert_eq!(code(inner), exit::LIMIT);
    }
}
