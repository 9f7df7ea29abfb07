//! Advice in the words of the Python package: functions and keyword arguments.

use tesseral::Advice;
use tesseral_core::advice::one_of;

/// The advice as a sentence; empty when it does not apply to callers in Python.
pub(crate) fn text(advice: &Advice) -> String {
    advice.worded(&worded)
}

/// The wording of a piece of advice; `None` for those that no function or keyword argument belongs to.
fn worded(advice: &Advice) -> Option<String> {
    let keywords =
        |name: &str, values: &[&str]| one_of(values.iter().map(|value| format!("{name}={value:?}")));
    Some(match advice {
        Advice::Overwrite => "use overwrite=True to replace it".to_owned(),
        Advice::NameFormat { extensions } => {
            let extensions = one_of(extensions.iter().map(|e| format!(".{e}")));
            format!("use the extension {extensions}, or name the format with format=")
        }
        Advice::OtherFormat { able } => format!("write another format: {}", keywords("format", able)),
        Advice::Cast { to: Some(dtype) } => format!("convert it with cast=\"{dtype}\""),
        Advice::Cast { to: None } => "convert it with cast=".to_owned(),
        Advice::LeaveOut => "exclude it with arrays= or select=".to_owned(),
        Advice::FillValue => "set a value for missing cells with fill=".to_owned(),
        Advice::OtherFillValue => "set a value that no cell has with fill=".to_owned(),
        Advice::AbsoluteErrorBound => "bound the absolute error with max_abs_error=".to_owned(),
        Advice::Codecs(names) => format!("use {}", keywords("codec", names)),
        Advice::DefaultChunks => "omit chunks=: arrays are stored whole".to_owned(),
        Advice::ReadCells => "read its cells with Array.cells() or by indexing it".to_owned(),
        Advice::RaiseMemory => "raise the limit with memory_limit=".to_owned(),
        Advice::RaiseExpansion { bytes, stored } => format!(
            "the source stores only {stored} bytes of it: if you trust the source, raise the limit with max_expansion={bytes}"
        ),
        Advice::SelectByPosition => "select by position with isel".to_owned(),
        Advice::InSelection(_) => String::new(),
        Advice::FormatOption { name, value: "true" } => format!("give {name}=True"),
        Advice::FormatOption { name, value } => format!("give {name}={value:?}"),
        Advice::DropDuplicates => "keep the last of them with dedup=True".to_owned(),
        Advice::SkipDigests => "read without verifying digests with digests=False".to_owned(),
        Advice::Recover => {
            "list every damaged chunk with verify(deep=True) and save the others with recover()".to_owned()
        }
        _ => return None,
    })
}
