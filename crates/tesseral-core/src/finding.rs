//! What an audit finds.

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Told for completeness.
    Info,
    /// Odd, but every value can be read.
    Warning,
    /// Damage.
    Error,
}

impl Severity {
    /// The word reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The outcome of one check. Names of checks are the reference implementation's where it has the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The check.
    pub check: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// Whether the check passed. Warnings pass.
    pub ok: bool,
    /// What was seen.
    pub detail: String,
    /// The array concerned.
    pub array: Option<String>,
    /// Grid coordinates of the chunk concerned.
    pub chunk: Option<Vec<u64>>,
    /// First byte concerned.
    pub offset: Option<u64>,
    /// Number of bytes concerned.
    pub length: Option<u64>,
    /// Name of an object that was listed and is missing.
    pub missing: Option<String>,
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
        }
    }

    /// A check that passed.
    pub fn passed(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, Severity::Info, true, detail)
    }

    /// Something odd that loses nothing.
    pub fn warning(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, Severity::Warning, true, detail)
    }

    /// Damage.
    pub fn failed(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, Severity::Error, false, detail)
    }

    /// Damage, with the places that the error names.
    pub fn from_error(check: &'static str, error: &crate::Error) -> Self {
        let mut finding = Self::failed(check, error.to_string());
        finding.array = error.array().map(str::to_owned);
        finding.chunk = error.chunk().map(<[u64]>::to_vec);
        finding.offset = error.offset();
        if let crate::ErrorKind::Missing { name, .. } = error.kind() {
            finding.missing = Some(name.clone());
        }
        finding
    }

    /// Names the array.
    #[must_use]
    pub fn in_array(mut self, array: impl Into<String>) -> Self {
        self.array = Some(array.into());
        self
    }

    /// Names the chunk.
    #[must_use]
    pub fn in_chunk(mut self, chunk: &[u64]) -> Self {
        self.chunk = Some(chunk.to_vec());
        self
    }

    /// Names the bytes.
    #[must_use]
    pub fn at(mut self, offset: u64, length: u64) -> Self {
        self.offset = Some(offset);
        self.length = Some(length);
        self
    }
}
