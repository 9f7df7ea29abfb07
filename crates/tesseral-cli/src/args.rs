//! The command line: options of all commands, and `tet SOURCE` as an abbreviation of `tet info SOURCE`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::Styles;
use clap::builder::styling::AnsiColor;
use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, Parser, ValueEnum};

use crate::command::Command;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Yellow.on_default().bold())
    .usage(AnsiColor::Yellow.on_default().bold())
    .literal(AnsiColor::Green.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const AFTER_HELP: &str = "\
`tet SOURCE` is short for `tet info SOURCE`. A source is a file, folder or URL of any known format, recognized by its content.

Selections, one argument per dimension (its name, or its number from 0):
  dim=a:b[:step]   positions, half-open; negative ones count from the end
  dim=7            one position
  dim=a..b         coordinates, both ends included; either can be omitted
  dim=@v           one coordinate; a date such as 2015-07 selects the whole period
  dim=~v           the nearest coordinate

Exit codes: 0 success, 1 not equal or not intact, 2 usage, 3 not found or no permission, 4 no known format, 5 damaged data, \
6 limit exceeded, 7 not supported, 8 I/O error or changed source, 70 internal error, 130 interrupted";

/// Inspect, print, aggregate, convert, verify, repair and recover tiled arrays
#[derive(Debug, Parser)]
#[command(name = "tet", version, styles = STYLES, after_help = AFTER_HELP)]
#[command(arg_required_else_help = true, subcommand_required = true, max_term_width = 110)]
#[command(override_usage = "tet <COMMAND> [OPTIONS] …\n       tet <SOURCE>")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of all commands.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// Print one JSON document instead of text
    #[arg(short = 'j', long, global = true)]
    pub(crate) json: bool,
    /// Limit results and working memory to this many bytes, e.g. 512MiB [default: the budget stored in the file, if any]
    #[arg(long, global = true, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) memory: Option<u64>,
    /// Accept chunks and arrays that expand to this many bytes, regardless of their stored size [default: 32 MiB per chunk and
    /// 64 MiB per operation, or more if the source stores enough bytes]
    #[arg(long, global = true, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) max_expansion: Option<u64>,
    /// Number of threads [default: all cores]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Do not verify stored digests
    #[arg(long, global = true)]
    pub(crate) no_digests: bool,
    /// Treat absent chunks as errors instead of reading the fill value (Zarr, HDF5)
    #[arg(long, global = true)]
    pub(crate) strict: bool,
    /// Read a table as arrays over these columns, such as time,lat,lon: their values become coordinates, positions without a row are null
    #[arg(long, global = true, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) dims: Vec<String>,
    /// Read the state at a time: T or T1..T2, each in milliseconds since 1970 or a date
    #[arg(long, global = true, value_name = "T")]
    pub(crate) as_of: Option<String>,
    /// Read the key of encrypted arrays from a file
    #[arg(long, global = true, value_name = "F")]
    pub(crate) key_file: Option<PathBuf>,
    /// Stop after this time, such as 30s or 5m, with exit code 8
    #[arg(long, global = true, value_name = "TIME", value_parser = parse_time)]
    pub(crate) deadline: Option<Duration>,
    /// Print planned and actual round trips, requests and bytes of URLs on standard error
    #[arg(long, global = true)]
    pub(crate) explain: bool,
    /// Cache bytes of URLs in a folder for later commands [default: the folder in TESSERAL_CACHE, if set]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Limit the size of the cache folder [default: 4 GiB]
    #[arg(long, global = true, value_name = "SIZE", value_parser = parse_size, requires = "cache")]
    pub(crate) cache_size: Option<u64>,
    /// Use colors in the output
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
}

/// When to use colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// If the output is a terminal and NO_COLOR is not set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Color {
    pub(crate) fn write_global(self) {
        match self {
            Self::Auto => anstream::ColorChoice::Auto,
            Self::Always => anstream::ColorChoice::Always,
            Self::Never => anstream::ColorChoice::Never,
        }
        .write_global();
    }
}

pub(crate) fn parse_size(text: &str) -> Result<u64, SizeError> {
    text.parse::<bytesize::ByteSize>().ok().map(|size| size.0).filter(|size| *size > 0).ok_or(SizeError)
}

/// A time of at least a millisecond.
fn parse_time(text: &str) -> Result<Duration, TimeError> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).ok_or(TimeError)?;
    let (number, unit) = text.split_at(unit);
    let number: f64 = number.trim_end().parse().map_err(|_| TimeError)?;
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(TimeError),
    };
    Duration::try_from_secs_f64(number * seconds).ok().filter(|time| time.as_millis() > 0).ok_or(TimeError)
}

/// An invalid time.
#[derive(Debug)]
struct TimeError;

impl std::fmt::Display for TimeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("expected a time with a unit: 500ms, 30s, 5m, 1h")
    }
}

impl std::error::Error for TimeError {}

/// An invalid size.
#[derive(Debug)]
pub(crate) struct SizeError;

impl std::fmt::Display for SizeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("expected a number with an optional unit: 65536, 512MiB, 2GB")
    }
}

impl std::error::Error for SizeError {}

/// Inserts `info` before the first argument that is not an option, unless it is a command.
///
/// A word that is neither a file nor written like a path is left unchanged, so that the error suggests a command.
pub(crate) fn with_default_command(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let root = Cli::command();
    let takes_value = |flag: &str| {
        root.get_arguments().any(|a| a.get_long() == Some(flag) && a.get_action().takes_values())
    };
    let mut at = 1;
    let found = loop {
        let Some(argument) = arguments.get(at) else { return arguments };
        match argument.to_str() {
            Some("--") => break at,
            Some(text) if text.starts_with("--") => {
                at += 1 + usize::from(takes_value(&text[2..]));
            }
            Some(text) if text.len() > 1 && text.starts_with('-') => at += 1,
            _ => break at,
        }
    };
    let word = arguments[found].to_string_lossy().into_owned();
    let known = word == "help"
        || root.get_subcommands().any(|c| c.get_name() == word || c.get_all_aliases().any(|a| a == word));
    let is_source = || Path::new(&arguments[found]).exists() || !word.chars().all(|c| c.is_ascii_lowercase());
    if !known && is_source() {
        arguments.insert(found, "info".into());
    }
    arguments
}

/// Words for commands in other programs, with the command that does it here.
const SYNONYMS: [(&str, &str); 29] = [
    ("aggregate", "stat"),
    ("average", "stat"),
    ("browse", "serve"),
    ("check", "verify"),
    ("compare", "diff"),
    ("compress", "convert"),
    ("describe", "info"),
    ("draw", "plot"),
    ("fix", "repair"),
    ("gui", "serve"),
    ("history", "log"),
    ("list", "info"),
    ("map", "plot"),
    ("max", "stat"),
    ("mean", "stat"),
    ("median", "stat"),
    ("min", "stat"),
    ("ncdump", "cdl"),
    ("open", "info"),
    ("print", "cat"),
    ("read", "cat"),
    ("select", "cat"),
    ("show", "info"),
    ("statistics", "stat"),
    ("stats", "stat"),
    ("sum", "stat"),
    ("summary", "stat"),
    ("view", "serve"),
    ("write", "create"),
];

/// The message of a word that is neither a command nor a file, with the command that was probably meant; `None` for other errors.
pub(crate) fn unknown_command(error: &clap::Error) -> Option<String> {
    if error.kind() != clap::error::ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let root = Cli::command();
    let names: Vec<&str> = root.get_subcommands().map(clap::Command::get_name).collect();
    let synonym =
        SYNONYMS.iter().find(|(other, own)| other == word && names.contains(own)).map(|(_, own)| *own);
    let meant = synonym.or_else(|| {
        // Of a name of two letters, every word of two letters is two edits away.
        let edits = |name: &str| strsim::damerau_levenshtein(name, word);
        let near = names.iter().filter(|name| edits(name) <= name.len().saturating_sub(1).min(2));
        let longer = || names.iter().find(|name| name.starts_with(word.as_str()) || word.starts_with(**name));
        near.min_by_key(|name| edits(name)).or_else(longer).copied()
    });
    let advice = match meant {
        Some(name) => format!("did you mean `tet {name}`? `tet --help` lists the commands"),
        None => "`tet --help` lists the commands".to_owned(),
    };
    Some(format!("error: {word:?} is neither a command nor an existing file\n  try: {advice}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(words: &[&str]) -> Vec<String> {
        let arguments = std::iter::once("tet").chain(words.iter().copied()).map(OsString::from).collect();
        with_default_command(arguments).iter().skip(1).map(|w| w.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn the_command_line_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_lone_source_runs_info() {
        assert_eq!(completed(&["ocean.tet"]), ["info", "ocean.tet"]);
        assert_eq!(completed(&["ocean.tet", "--json"]), ["info", "ocean.tet", "--json"]);
        assert_eq!(completed(&["--json", "ocean.tet"]), ["--json", "info", "ocean.tet"]);
        assert_eq!(completed(&["--memory", "1GiB", "ocean.tet"]), ["--memory", "1GiB", "info", "ocean.tet"]);
        assert_eq!(completed(&["--memory=1GiB", "ocean.tet"]), ["--memory=1GiB", "info", "ocean.tet"]);
        assert_eq!(completed(&["--", "-odd.tet"]), ["info", "--", "-odd.tet"]);
        for kept in [
            &["info", "x"][..],
            &["ls", "x"],
            &["--threads", "2", "cat", "x"],
            &["--help"],
            &[],
            &["help"],
            &["verifi", "x"],
        ] {
            assert_eq!(completed(kept), kept);
        }
    }

    #[test]
    fn unknown_commands_have_suggestions() {
        let message = |word: &str| {
            let error = Cli::command().try_get_matches_from(["tet", word, "x"]).unwrap_err();
            unknown_command(&error).unwrap()
        };
        for (word, command) in [
            ("verifi", "verify"),
            ("statistics", "stat"),
            ("show", "info"),
            ("haed", "head"),
            ("min", "stat"),
            ("catt", "cat"),
        ] {
            assert!(message(word).contains(&format!("did you mean `tet {command}`?")), "{}", message(word));
        }
        assert!(message("ocean").ends_with("try: `tet --help` lists the commands\n"));
        assert_eq!(completed(&["ocean"]), ["ocean"]);
        assert_eq!(completed(&["src"]), ["info", "src"], "a folder of this crate");
        let other = Cli::command().try_get_matches_from(["tet", "cat"]).unwrap_err();
        assert!(unknown_command(&other).is_none());
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("1GiB").unwrap(), 1 << 30);
        assert_eq!(parse_size("64kb").unwrap(), 64_000);
        assert_eq!(parse_size("4096").unwrap(), 4096);
        assert!(parse_size("much").is_err());
        assert!(parse_size("0").is_err());
    }
}
