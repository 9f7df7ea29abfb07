//! Advice after an error, independent of the interface that words it.

use std::borrow::Cow;
use std::fmt;

use crate::DType;

/// Advice for resolving an error.
///
/// Library crates choose a variant; each interface words it with its own options: the command line with flags and commands, Python
/// with keyword arguments and functions. [`Display`](fmt::Display) is the neutral wording for everyone else.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// A sentence that holds in every interface: it names no flag, command, function or keyword argument.
    Text(Cow<'static, str>),
    /// Several alternatives, the preferred one first.
    AnyOf(Vec<Advice>),
    /// Replace the output that exists.
    Overwrite,
    /// Give the output a known file extension, or name its format.
    NameFormat {
        /// Extensions of the formats that can be written, without the dot.
        extensions: Vec<&'static str>,
    },
    /// Write one of these formats instead.
    OtherFormat {
        /// Ids of formats that can hold the data.
        able: Vec<&'static str>,
    },
    /// Convert the cells to another dtype.
    Cast {
        /// The dtype that works, when there is only one.
        to: Option<DType>,
    },
    /// Do not convert the array, or not all of it.
    LeaveOut,
    /// Give a value for missing cells.
    FillValue,
    /// Give a value for missing cells that no other cell holds.
    OtherFillValue,
    /// Bound the absolute instead of the relative error.
    AbsoluteErrorBound,
    /// Use one of these codecs.
    Codecs(&'static [&'static str]),
    /// State what sparse arrays become, as one of these forms.
    SparseAs(&'static [&'static str]),
    /// Do not choose a chunk shape: the format stores arrays whole.
    DefaultChunks,
    /// Read the cells of the array.
    ReadCells,
    /// Summarize the array by a condition and groups of coordinates.
    Summarize,
    /// Allow the folder to be written to.
    AllowFolder,
    /// Request less of the array.
    SelectLess,
    /// Raise the memory limit.
    RaiseMemory,
    /// Raise the limit on decoded bytes, for a source that is trusted.
    RaiseExpansion {
        /// The smallest limit that suffices.
        bytes: u64,
        /// How many bytes the source stores for them.
        stored: u64,
    },
    /// Select by position instead of by coordinate.
    SelectByPosition,
    /// The selection that led to the error, as it was written.
    InSelection(String),
    /// Set an option of the format.
    FormatOption {
        /// The name of the option.
        name: &'static str,
        /// Its value.
        value: &'static str,
    },
    /// Keep the last of several cells at one position.
    DropDuplicates,
    /// Read without comparing digests.
    SkipDigests,
    /// Find out what is damaged and keep the rest.
    Recover,
}

impl Advice {
    /// The advice in the words of an interface: `word` gives its wording of a single piece of advice, or `None` for the neutral one.
    pub fn worded(&self, word: &impl Fn(&Advice) -> Option<String>) -> String {
        match self {
            Self::AnyOf(list) => alternatives(list.iter().map(|advice| advice.worded(word)), ", "),
            _ => word(self).unwrap_or_else(|| self.to_string()),
        }
    }

    /// This advice, with another alternative after it.
    #[must_use]
    pub fn or(self, other: impl Into<Advice>) -> Self {
        let mut list = match self {
            Self::AnyOf(list) => list,
            one => vec![one],
        };
        match other.into() {
            Self::AnyOf(others) => list.extend(others),
            one => list.push(one),
        }
        Self::AnyOf(list)
    }
}

/// `a`, `a or b`, `a, b, or c`; with a comma before the last one when the parts are clauses.
fn alternatives(words: impl IntoIterator<Item = String>, separator: &str) -> String {
    let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
    match words.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{}{separator}or {last}", first.join(", ")),
    }
}

/// Names as a list of alternatives: `a`, `a or b`, `a, b or c`.
pub fn one_of<T: fmt::Display>(names: impl IntoIterator<Item = T>) -> String {
    alternatives(names.into_iter().map(|name| name.to_string()), " ")
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::AnyOf(_) => f.write_str(&self.worded(&|_| None)),
            Self::Overwrite => f.write_str("allow the output to be replaced"),
            Self::NameFormat { extensions } => {
                let extensions = extensions.iter().map(|e| format!(".{e}"));
                write!(f, "use one of the extensions {}, or name the format", one_of(extensions))
            }
            Self::OtherFormat { able } => write!(f, "write {}, which can hold it", one_of(able)),
            Self::Cast { to: Some(dtype) } => write!(f, "convert it to {dtype}"),
            Self::Cast { to: None } => f.write_str("convert it to another dtype"),
            Self::LeaveOut => f.write_str("exclude it from the conversion"),
            Self::FillValue => f.write_str("set a fill value for missing cells"),
            Self::OtherFillValue => f.write_str("set a fill value that no cell has"),
            Self::AbsoluteErrorBound => f.write_str("bound the absolute error"),
            Self::Codecs(names) => write!(f, "use {}", one_of(*names)),
            Self::SparseAs(forms) => write!(f, "convert sparse arrays as {}", one_of(*forms)),
            Self::DefaultChunks => f.write_str("do not choose a chunk shape: arrays are stored whole"),
            Self::ReadCells => f.write_str("read its cells"),
            Self::Summarize => f.write_str("summarize it by a condition and groups of coordinates"),
            Self::AllowFolder => f.write_str("allow the folder to be written to"),
            Self::SelectLess => f.write_str("select less"),
            Self::RaiseMemory => f.write_str("raise the memory limit"),
            Self::RaiseExpansion { bytes, stored } => write!(
                f,
                "the source stores only {stored} bytes of it: if you trust the source, raise the expansion limit to {bytes} bytes"
            ),
            Self::SelectByPosition => f.write_str("select by position"),
            Self::InSelection(argument) => write!(f, "in the selection `{argument}`"),
            Self::FormatOption { name, value } => write!(f, "set the option {name} to {value}"),
            Self::DropDuplicates => f.write_str("drop duplicates"),
            Self::SkipDigests => f.write_str("read without verifying digests"),
            Self::Recover => f.write_str("verify the source, and recover what is intact"),
        }
    }
}

impl From<&'static str> for Advice {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Advice {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_word_single_pieces_and_leave_the_others_neutral() {
        let advice = Advice::SelectLess.or(Advice::RaiseMemory).or("read batch by batch");
        assert_eq!(advice.to_string(), "select less, raise the memory limit, or read batch by batch");
        let word = |advice: &Advice| (*advice == Advice::RaiseMemory).then(|| "give memory=N".to_owned());
        assert_eq!(advice.worded(&word), "select less, give memory=N, or read batch by batch");
    }

    #[test]
    fn an_empty_wording_leaves_an_alternative_out() {
        let advice = Advice::SelectLess.or(Advice::RaiseMemory);
        let word = |advice: &Advice| (*advice == Advice::SelectLess).then(String::new);
        assert_eq!(advice.worded(&word), "raise the memory limit");
    }

    #[test]
    fn names_are_listed_as_alternatives() {
        assert_eq!(one_of(["raw"]), "raw");
        assert_eq!(one_of(["raw", "zstd"]), "raw or zstd");
        assert_eq!(one_of(["raw", "zstd", "lz4"]), "raw, zstd or lz4");
    }
}
