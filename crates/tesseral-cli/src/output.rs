//! Where results go: standard output, or a file that appears under its name only when it is whole.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use tesseral::store::{Staged, Store};
use tesseral::{Cancel, Overwrite, StagedOutput};

use crate::context::local;
use crate::failure::{Failure, Outcome};

const BUFFER: usize = 256 << 10;

/// Where to write.
#[derive(Clone, Debug, Args)]
pub(crate) struct OutputArguments {
    /// Writes to a file instead of standard output; it appears only when whole
    #[arg(short, long, value_name = "F")]
    pub(crate) output: Option<PathBuf>,
    /// Replaces an existing output
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// Whether an existing output may be replaced.
pub(crate) fn overwrite(force: bool) -> Overwrite {
    if force { Overwrite::Replace } else { Overwrite::Refuse }
}

/// An open output.
#[derive(Debug)]
pub(crate) struct Output {
    inner: Inner,
    name: String,
    /// Ends long outputs soon after the user asked to stop, whatever produces them.
    cancel: Cancel,
}

/// Whether a byte went to standard output: a command that fails before that can start again.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether a byte went to standard output.
pub(crate) fn has_begun() -> bool {
    BEGUN.load(Ordering::Relaxed)
}

/// Standard output, which notes that it was written to.
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
enum Inner {
    Stdout(BufWriter<Noted>),
    File(Box<StagedWriter>),
    /// Finished, or given up.
    Done,
}

impl Output {
    /// Standard output, without the line buffering that binary data would suffer from.
    pub(crate) fn stdout() -> Outcome<Self> {
        let name = "standard output".to_owned();
        match io::stdout().as_fd().try_clone_to_owned() {
            Ok(descriptor) => {
                let inner = Inner::Stdout(BufWriter::with_capacity(BUFFER, Noted(File::from(descriptor))));
                Ok(Self { inner, name, cancel: Cancel::default() })
            }
            Err(e) => Err(Failure::writing(&name, e)),
        }
    }

    /// What the arguments ask for: values of a source as a document.
    pub(crate) fn open(arguments: &OutputArguments, source: &Path, cancel: &Cancel) -> Outcome<Self> {
        let output = match &arguments.output {
            Some(path) if path.as_os_str() != "-" => {
                let document = tesseral::Output::document(path).overwrite(overwrite(arguments.force));
                Self::file(document.source(local(source)?).outside_sources(), path)?
            }
            _ => Self::stdout()?,
        };
        Ok(output.until(cancel))
    }

    /// A file, by the rules of the library.
    pub(crate) fn file(output: tesseral::Output, path: &Path) -> Outcome<Self> {
        let output = output.stage()?;
        let staged = output.store().stage("", Overwrite::Replace)?;
        let writer = StagedWriter { staged, output, offset: 0, buffer: Vec::with_capacity(BUFFER) };
        let name = path.display().to_string();
        Ok(Self { inner: Inner::File(Box::new(writer)), name, cancel: Cancel::default() })
    }

    /// Ends the output soon after the user asked to stop.
    pub(crate) fn until(mut self, cancel: &Cancel) -> Self {
        self.cancel = cancel.clone();
        self
    }

    /// Whether bytes would end up on a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        match &self.inner {
            Inner::Stdout(writer) => writer.get_ref().0.is_terminal(),
            Inner::File(_) | Inner::Done => false,
        }
    }

    /// Writes bytes.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Outcome<()> {
        const AT_ONCE: usize = 4 << 20;
        for piece in bytes.chunks(AT_ONCE) {
            self.cancel.check()?;
            let written = match &mut self.inner {
                Inner::Stdout(writer) => writer.write_all(piece),
                Inner::File(writer) => writer.write_all(piece),
                Inner::Done => Ok(()),
            };
            written.map_err(|e| Failure::writing(&self.name, e))?;
        }
        Ok(())
    }

    /// Writes what is still held back and puts a file under its name.
    pub(crate) fn finish(mut self) -> Outcome<()> {
        self.cancel.check()?;
        match std::mem::replace(&mut self.inner, Inner::Done) {
            Inner::Stdout(mut writer) => writer.flush().map_err(|e| Failure::writing(&self.name, e)),
            Inner::File(mut writer) => {
                writer.flush().map_err(|e| Failure::writing(&self.name, e))?;
                let StagedWriter { staged, output, .. } = *writer;
                staged.publish()?;
                output.publish().map_err(Failure::from)
            }
            Inner::Done => Ok(()),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // What failed before its first bytes went out prints nothing: half a document helps nobody.
        if let Inner::Stdout(writer) = std::mem::replace(&mut self.inner, Inner::Done) {
            let _ = writer.into_parts();
        }
    }
}

/// Writes one after the other into a staged file.
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
pub(crate) fn print(text: &str) -> Outcome<()> {
    let mut output = Output::stdout()?;
    output.put(text.as_bytes())?;
    output.finish()
}

/// Prints a JSON document to standard output.
pub(crate) fn print_json(document: &serde_json::Value) -> Outcome<()> {
    let mut output = Output::stdout()?;
    output.put(format!("{document:#}\n").as_bytes())?;
    output.finish()
}

/// A JSON object with a list that may be long, printed row by row: no more than one row is held in memory. What fails before the first
/// bytes went out prints nothing.
#[derive(Debug)]
pub(crate) struct JsonRows {
    output: Output,
    rows: u64,
}

impl JsonRows {
    /// Begins the object with the members of `head`, which has some, and the list under `key`.
    pub(crate) fn begin(head: &serde_json::Value, key: &str) -> Outcome<Self> {
        let mut output = Output::stdout()?;
        let text = format!("{head:#}");
        let members = text.strip_suffix("\n}").unwrap_or(&text);
        output.put(format!("{members},\n  {}: [", serde_json::Value::from(key)).as_bytes())?;
        Ok(Self { output, rows: 0 })
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: &serde_json::Value) -> Outcome<()> {
        let separator = if self.rows == 0 { "\n    " } else { ",\n    " };
        self.rows += 1;
        // No string holds a line break: it would be escaped.
        self.output.put(format!("{separator}{}", format!("{row:#}").replace('\n', "\n    ")).as_bytes())
    }

    /// Ends the list, then the object with the members of `tail`.
    pub(crate) fn finish(mut self, tail: &serde_json::Map<String, serde_json::Value>) -> Outcome<()> {
        self.output.put(if self.rows == 0 { b"]" } else { b"\n  ]" })?;
        for (key, value) in tail {
            let value = format!("{value:#}").replace('\n', "\n  ");
            self.output.put(format!(",\n  {}: {value}", serde_json::Value::from(key.as_str())).as_bytes())?;
        }
        self.output.put(b"\n}\n")?;
        self.output.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_appear_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.bin");
        let file = |force| Output::file(tesseral::Output::document(&path).overwrite(overwrite(force)), &path);
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
