//! Output to standard output, or to a file that is published atomically.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use tesseral::{Cancel, Error, Overwrite, StagedOutput};
use tesseral_core::escape_json;
use tesseral_store::{Staged, Store};

use crate::error::{CliResult, CommandFailure};
use crate::explain;
use crate::terminal_style::TerminalStyle;

const BUFFER: usize = 256 << 10;

/// Output arguments.
#[derive(Clone, Debug, Args)]
pub(crate) struct OutputArguments {
    /// Write to a file instead of standard output; it is published when complete
    #[arg(short, long, value_name = "F")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing output
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// Returns whether an existing output can be replaced.
pub(crate) fn overwrite(force: bool) -> Overwrite {
    if force { Overwrite::Replace } else { Overwrite::Refuse }
}

/// An open output.
#[derive(Debug)]
pub(crate) struct OutputStream {
    inner: OutputTarget,
    name: String,
    /// Cancellation flag, checked while writing.
    cancel: Cancel,
}

/// Set once a byte has been written to standard output: a command that fails before can restart.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Returns whether a byte has been written to standard output.
pub(crate) fn has_begun() -> bool {
    BEGUN.load(Ordering::Relaxed)
}

/// Standard output that records writes.
#[derive(Debug)]
struct Noted(File);

impl Write for Noted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        BEGUN.store(true, Ordering::Relaxed);
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[derive(Debug)]
enum OutputTarget {
    Stdout(BufWriter<Noted>),
    File(Box<StagedWriter>),
    /// Finished or aborted.
    Done,
}

impl OutputStream {
    /// Standard output without line buffering, for binary data.
    pub(crate) fn stdout() -> CliResult<Self> {
        let name = "standard output".to_owned();
        match io::stdout().as_fd().try_clone_to_owned() {
            Ok(descriptor) => {
                let inner =
                    OutputTarget::Stdout(BufWriter::with_capacity(BUFFER, Noted(File::from(descriptor))));
                Ok(Self { inner, name, cancel: Cancel::default() })
            }
            Err(e) => Err(CommandFailure::writing(&name, e)),
        }
    }

    /// Opens the output of the arguments, for values of a source.
    pub(crate) fn open(arguments: &OutputArguments, source: &Path, cancel: &Cancel) -> CliResult<Self> {
        let output = match &arguments.output {
            Some(path) if path.as_os_str() != "-" => {
                let document = tesseral::Output::document(path).overwrite(overwrite(arguments.force));
                Self::file(document.source(source).outside_sources(), path)?
            }
            _ => Self::stdout()?,
        };
        Ok(output.until(cancel))
    }

    /// Opens a file for messages.
    pub(crate) fn file(output: tesseral::Output, path: &Path) -> CliResult<Self> {
        let output = output.stage()?;
        let staged = output.store().stage("", Overwrite::Replace)?;
        let writer = StagedWriter { staged, output, offset: 0, buffer: Vec::with_capacity(BUFFER) };
        let name = path.display().to_string();
        Ok(Self { inner: OutputTarget::File(Box::new(writer)), name, cancel: Cancel::default() })
    }

    /// Sets the cancellation flag.
    pub(crate) fn until(mut self, cancel: &Cancel) -> Self {
        self.cancel = cancel.clone();
        self
    }

    /// Returns whether the output is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        match &self.inner {
            OutputTarget::Stdout(writer) => writer.get_ref().0.is_terminal(),
            OutputTarget::File(_) | OutputTarget::Done => false,
        }
    }

    /// Writes bytes.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> CliResult<()> {
        const AT_ONCE: usize = 4 << 20;
        for piece in bytes.chunks(AT_ONCE) {
            self.cancel.check()?;
            let written = match &mut self.inner {
                OutputTarget::Stdout(writer) => writer.write_all(piece),
                OutputTarget::File(writer) => writer.write_all(piece),
                OutputTarget::Done => Ok(()),
            };
            written.map_err(|e| CommandFailure::writing(&self.name, e))?;
        }
        Ok(())
    }

    /// Flushes, and publishes a file.
    pub(crate) fn finish(mut self) -> CliResult<()> {
        self.cancel.check()?;
        match std::mem::replace(&mut self.inner, OutputTarget::Done) {
            OutputTarget::Stdout(mut writer) => {
                writer.flush().map_err(|e| CommandFailure::writing(&self.name, e))
            }
            OutputTarget::File(mut writer) => {
                writer.flush().map_err(|e| CommandFailure::writing(&self.name, e))?;
                let StagedWriter { staged, output, .. } = *writer;
                staged.publish()?;
                output.publish().map_err(CommandFailure::from)
            }
            OutputTarget::Done => Ok(()),
        }
    }
}

impl Drop for OutputStream {
    fn drop(&mut self) {
        // An output that fails before its first bytes are flushed prints nothing, instead of a partial document.
        if let OutputTarget::Stdout(writer) = std::mem::replace(&mut self.inner, OutputTarget::Done) {
            let _ = writer.into_parts();
        }
    }
}

/// Sequential writes to a staged file.
#[derive(Debug)]
struct StagedWriter {
    staged: Box<dyn Staged>,
    output: StagedOutput,
    offset: u64,
    buffer: Vec<u8>,
}

impl StagedWriter {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.staged.write_at(self.offset, bytes).map_err(io::Error::other)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

impl Write for StagedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > BUFFER {
            self.flush()?;
        }
        if bytes.len() >= BUFFER {
            self.put(bytes)?;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let written = self.put(&buffer);
        buffer.clear();
        self.buffer = buffer;
        written
    }
}

/// Prints text to standard output.
pub(crate) fn print(text: &str) -> CliResult<()> {
    let mut output = OutputStream::stdout()?;
    output.put(text.as_bytes())?;
    output.finish()
}

/// Maximum number of rows of a table.
pub(crate) const TABLE: usize = 10_000;

/// Prints rows as a table; very many rows as several tables, so that few of them are in memory.
pub(crate) fn put_tables(
    output: &mut OutputStream,
    columns: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> CliResult<()> {
    let mut rows = rows.into_iter().peekable();
    loop {
        let table = TerminalStyle::stdout().table(columns, rows.by_ref().take(TABLE));
        output.put(table.as_bytes())?;
        if rows.peek().is_none() {
            return Ok(());
        }
    }
}

/// Prints a JSON document to standard output.
pub(crate) fn print_json(document: &serde_json::Value) -> CliResult<()> {
    let mut output = OutputStream::stdout()?;
    let explained = document.as_object().filter(|_| explain::is_requested()).map(|members| {
        let mut members = members.clone();
        explain::add_to(&mut members);
        serde_json::Value::Object(members)
    });
    let document = explained.as_ref().unwrap_or(document);
    let mut writer = OutputWriter { output: &mut output, failure: None };
    if let Err(error) = serde_json::to_writer_pretty(&mut writer, document) {
        return Err(writer.failure.unwrap_or_else(|| Error::internal(error.to_string()).into()));
    }
    output.put(b"\n")?;
    output.finish()
}

/// An output as a writer, which keeps the failure of a call.
struct OutputWriter<'a> {
    output: &'a mut OutputStream,
    failure: Option<CommandFailure>,
}

impl Write for OutputWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Texts are written in one piece.
        let escaped = std::str::from_utf8(bytes).map(escape_json);
        match self.output.put(escaped.as_ref().map_or(bytes, |text| text.as_bytes())) {
            Ok(()) => Ok(bytes.len()),
            Err(failure) => {
                self.failure = Some(failure);
                Err(io::Error::other("the output failed"))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A JSON object with a list that can be long, printed row by row with one row in memory. A failure before the first flush
/// prints nothing.
#[derive(Debug)]
pub(crate) struct JsonRows {
    output: OutputStream,
    rows: u64,
}

impl JsonRows {
    /// Starts the object with the members of `head`, which is not empty, and the list under `key`.
    pub(crate) fn begin(head: &serde_json::Value, key: &str) -> CliResult<Self> {
        let mut rows = Self { output: OutputStream::stdout()?, rows: 0 };
        let text = format!("{head:#}");
        let members = text.strip_suffix("\n}").unwrap_or(&text);
        rows.put(&format!("{members},\n  {}: [", serde_json::Value::from(key)))?;
        Ok(rows)
    }

    fn put(&mut self, text: &str) -> CliResult<()> {
        self.output.put(escape_json(text).as_bytes())
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: &serde_json::Value) -> CliResult<()> {
        let separator = if self.rows == 0 { "\n    " } else { ",\n    " };
        self.rows += 1;
        // Strings contain no line breaks: they are escaped.
        self.put(&format!("{separator}{}", format!("{row:#}").replace('\n', "\n    ")))
    }

    /// Ends the list, and the object with the members of `tail`.
    pub(crate) fn finish(mut self, tail: &serde_json::Map<String, serde_json::Value>) -> CliResult<()> {
        self.put(if self.rows == 0 { "]" } else { "\n  ]" })?;
        let mut tail = tail.clone();
        explain::add_to(&mut tail);
        for (key, value) in &tail {
            let value = format!("{value:#}").replace('\n', "\n  ");
            self.put(&format!(",\n  {}: {value}", serde_json::Value::from(key.as_str())))?;
        }
        self.put("\n}\n")?;
        self.output.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_published_atomically() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.bin");
        let file =
            |force| OutputStream::file(tesseral::Output::document(&path).overwrite(overwrite(force)), &path);
        let mut half = file(false).unwrap();
        half.put(&[1; 10]).unwrap();
        drop(half);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

        let mut whole = file(false).unwrap();
        for n in [1, BUFFER - 1, BUFFER, 3 * BUFFER + 1, 2] {
            whole.put(&vec![7; n]).unwrap();
        }
        assert!(!path.exists());
        whole.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), vec![7; 1 + BUFFER - 1 + BUFFER + 3 * BUFFER + 1 + 2]);
        assert!(file(false).is_err());
        file(true).unwrap().finish().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    }
}
