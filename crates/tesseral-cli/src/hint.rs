//! Advice in the words of the command line: flags and commands.

use tesseral::Advice;
use tesseral_core::advice::one_of;

/// The wording of a piece of advice; `None` for those that no flag or command belongs to.
pub(crate) fn worded(advice: &Advice) -> Option<String> {
    let flags = |flag: &str, values: &[&str]| one_of(values.iter().map(|value| format!("`{flag} {value}`")));
    Some(match advice {
        Advice::Overwrite => "use `-f` to replace it".to_owned(),
        Advice::NameFormat { extensions } => {
            let extensions = one_of(extensions.iter().map(|e| format!(".{e}")));
            format!("use the extension {extensions}, or name the format with `--to`")
        }
        Advice::OtherFormat { able } => format!("write another format: {}", flags("--to", able)),
        Advice::Cast { to: Some(dtype) } => format!("convert it with `--cast {dtype}`"),
        Advice::Cast { to: None } => "convert it with `--cast`".to_owned(),
        Advice::LeaveOut => "exclude it with `--array` or `--select`".to_owned(),
        Advice::FillValue => "set a value for missing cells with `--fill`".to_owned(),
        Advice::OtherFillValue => "set a value that no cell has with `--fill`".to_owned(),
        Advice::AbsoluteErrorBound => "bound the absolute error with `--max-abs-error`".to_owned(),
        Advice::Codecs(names) => format!("use {}", flags("--codec", names)),
        Advice::SparseAs(forms) => format!("convert it with {}", flags("--sparse-as", forms)),
        Advice::DefaultChunks => "omit `--chunks`: arrays are stored whole".to_owned(),
        Advice::ReadCells => "print its cells with `tet cat`".to_owned(),
        Advice::Summarize => "use `tet stat` with `--where` and `--by`".to_owned(),
        Advice::AllowFolder => "allow another folder with `--spill-allow`".to_owned(),
        Advice::RaiseMemory => "raise the limit with `--memory`".to_owned(),
        Advice::RaiseExpansion { bytes, stored } => format!(
            "the source stores only {stored} bytes of it: if you trust the source, raise the limit with `--max-expansion {bytes}`"
        ),
        Advice::SelectByPosition => "select by position, as in `dim=0:5`".to_owned(),
        Advice::DropDuplicates => "keep the last of them with `--dedup`".to_owned(),
        Advice::SkipDigests => "read without verifying digests with `--no-digests`".to_owned(),
        Advice::Recover => {
            "list every damaged chunk with `tet verify --deep` and save the others with `tet recover`"
                .to_owned()
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use tesseral::DType;

    use super::*;

    #[test]
    fn advice_names_flags_and_commands() {
        let wording = |advice: Advice| advice.worded(&worded);
        assert_eq!(wording(Advice::Overwrite), "use `-f` to replace it");
        let cast = Advice::Cast { to: Some(DType::Float64) };
        assert_eq!(
            wording(cast.or(Advice::LeaveOut)),
            "convert it with `--cast float64`, or exclude it with `--array` or `--select`"
        );
        assert_eq!(
            wording(Advice::SparseAs(&["dense", "rows"])),
            "convert it with `--sparse-as dense` or `--sparse-as rows`"
        );
        assert_eq!(wording(Advice::from("close it first")), "close it first");
    }
}
