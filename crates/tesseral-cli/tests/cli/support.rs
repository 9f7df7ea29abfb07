//! Running `tet`, fixtures, and files written for a test.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value as Json;
use tesseral::{ArraySchema, ArraySpec, CodecSpec, Create, DType, Value};
use tesseral_core::schema::Labels;

/// Outcome of a run.
pub struct Ran {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ran {
    /// What was printed, as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    /// Asserts the exit code.
    #[track_caller]
    pub fn ended(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            code,
            "stdout: {}\nstderr: {}",
            String::from_utf8_lossy(&self.stdout),
            self.stderr
        );
        assert_eq!(self.stderr.is_empty(), code <= 1, "stderr contains only errors: {}", self.stderr);
        self
    }
}

/// The binary, with a neutral environment.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tet"));
    command.env("TET_NO_QUERY_HISTORY", "1");
    command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").stdin(Stdio::null());
    command
}

/// Runs `tet`.
pub fn tet<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    let done = command().args(arguments).output().unwrap();
    let stderr = String::from_utf8(done.stderr).unwrap();
    Ran { code: done.status.code().unwrap(), stdout: done.stdout, stderr }
}

/// Runs `tet` and parses the printed document.
#[track_caller]
pub fn json<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Json {
    let arguments: Vec<_> = arguments.into_iter().map(|a| a.as_ref().to_owned()).collect();
    let ran = tet(arguments.iter().map(|a| a.as_os_str()).chain([OsStr::new("--json")]));
    assert!(ran.code <= 1, "{}", ran.stderr);
    serde_json::from_slice(&ran.stdout).unwrap()
}

/// A file written by the reference.
pub fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tet").join(name);
    path.to_str().unwrap().to_owned()
}

/// A folder for one test.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Names of its entries, including leftovers.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// An array to write.
pub struct Made {
    pub spec: ArraySpec,
    pub cells: Vec<u8>,
}

impl Made {
    pub fn new(name: &str, dtype: DType, shape: &[u64], chunk: &[u64], cells: Vec<u8>) -> Self {
        Self { spec: ArraySpec::raw(ArraySchema::dense(name, dtype, shape, chunk)), cells }
    }

    /// Floats that count up by halves.
    pub fn counting(name: &str, shape: &[u64], chunk: &[u64]) -> Self {
        let count: u64 = shape.iter().product();
        let cells = (0..count).flat_map(|i| (i as f32 * 0.5).to_le_bytes()).collect();
        Self::new(name, DType::Float32, shape, chunk, cells)
    }

    pub fn dims(mut self, names: &[&str]) -> Self {
        for (dim, name) in self.spec.schema.dims.iter_mut().zip(names) {
            dim.name = (*name).to_owned();
        }
        self
    }

    pub fn labels(mut self, dim: usize, labels: &[&str]) -> Self {
        let labels = labels.iter().map(|l| (*l).to_owned()).collect();
        self.spec.schema.dims[dim].labels = Some(Labels::Text(labels));
        self
    }

    pub fn attribute(mut self, name: &str, value: &str) -> Self {
        self.spec.schema.attributes.insert(name.to_owned(), Value::from(value));
        self
    }

    pub fn zstd(mut self) -> Self {
        self.spec.codecs = vec![vec![CodecSpec::new("zstd")]];
        self
    }
}

/// Writes a file.
pub fn write(path: &Path, arrays: &[Made]) {
    let mut session = Create::new().begin(path, "tet").unwrap();
    let ids: Vec<_> = arrays.iter().map(|array| session.add(&array.spec).unwrap()).collect();
    for (id, array) in ids.into_iter().zip(arrays) {
        session.write(id, &array.cells).unwrap();
    }
    session.commit().unwrap();
}
