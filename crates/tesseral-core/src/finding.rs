//! Findings of an audit.

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Information.
    Info,
    /// Unusual, but all values are readable.
    Warning,
    /// Damage.
    Error,
}

impl Severity {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Result of one check. Check names are those of the reference implementation where it has the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Stable name of the check.
    pub check: &'static str,
    /// Severity of the result.
    pub severity: Severity,
    /// Whether the check passed. Warnings pass.
    pub ok: bool,
    /// Description of the result.
    pub detail: String,
    /// Name of the affected array.
    pub array: Option<String>,
    /// Grid coordinates of the affected chunk.
    pub chunk: Option<Vec<u64>>,
    /// Offset of the first affected byte.
    pub offset: Option<u64>,
    /// Number of affected bytes.
    pub length: Option<u64>,
    /// Name of a listed object that is missing.
    pub missing: Option<String>,
    /// Whether the check failed because a feature is not supported, which does not indicate damage.
    pub unsupported: bool,
}

impl Finding {
    fn new(check: &'static str, severity: Severity, ok: bool, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self {
            check,
            severity,
            ok,
            detail,
            array: None,
            chunk: None,
            offset: None,
            length: None,
            missing: None,
            unsupported: false,
        }
    }

    /// Creates a finding for a check that passed.
    pub fn passed(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, Severity::Info, true, detail)
    }

    /// Creates a warning.
    pub fn warning(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, Severity::Warning, true, detail)
    }

    /// Creates a finding for damage.
    pub fn failed(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, Severity::Error, false, detail)
    }

    /// Creates a finding for damage, with the location of an error.
    pub fn from_error(check: &'static str, error: &crate::Error) -> Self {
        let mut finding = Self::failed(check, error.to_string());
        finding.array = error.array().map(str::to_owned);
        finding.chunk = error.chunk().map(<[u64]>::to_vec);
        finding.offset = error.offset();
        finding.unsupported = matches!(error.kind(), crate::ErrorKind::Unsupported { .. });
        if let crate::ErrorKind::Missing { name, .. } = error.kind() {
            finding.missing = Some(name.clone());
        }
        finding
    }

    /// Sets the array.
    #[must_use]
    pub fn in_array(mut self, array: impl Into<String>) -> Self {
        self.array = Some(array.into());
        self
    }

    /// Sets the chunk.
    #[must_use]
    pub fn in_chunk(mut self, chunk: &[u64]) -> Self {
        self.chunk = Some(chunk.to_vec());
        self
    }

    /// Sets the byte range.
    #[must_use]
    pub fn at(mut self, offset: u64, length: u64) -> Self {
        self.offset = Some(offset);
        self.length = Some(length);
        self
    }
}
