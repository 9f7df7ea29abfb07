//! Tensogram messages without the engine: encode, decode, scan, stream and validate. Buffers are byte arrays.

use std::borrow::Cow;
use std::io::{self, Cursor, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySlice};
use tesseral::Error;
use tesseral_tensogram::wire::cbor::{self, CborItem, ErrorLocation, Map};
use tesseral_tensogram::{
    AggregateHash, DataObjectDescriptor, DecodeOptions, EncodeOptions, Event, GlobalMetadata, MaskOptions,
    Provenance, PushDecoder, StreamingEncoder, TensogramError, ValidateOptions, ValidationMode,
    ValidationReport,
};

use crate::error::{OrRaise, raise};
use crate::{dtype, numpy_array, value};

type Outcome<T> = Result<T, TensogramError>;

impl<T> OrRaise<T> for Outcome<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, &Error::from(error)))
    }
}

/// Options of encoding.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct EncodingInput {
    hash: bool,
    aggregate_hash: Option<String>,
    block_hashes: bool,
    allow_nan: bool,
    allow_inf: bool,
    mask_methods: [String; 3],
    small_mask: usize,
    reproducible: bool,
}

impl EncodingInput {
    fn options(self) -> PyResult<EncodeOptions> {
        let aggregate_hash = match self.aggregate_hash.as_deref() {
            None | Some("auto") => AggregateHash::Auto,
            Some("none") => AggregateHash::None,
            Some("header") => AggregateHash::Header,
            Some("footer") => AggregateHash::Footer,
            Some("both") => AggregateHash::Both,
            Some(other) => {
                return Err(PyValueError::new_err(format!(
                    "aggregate_hash must be auto, none, header, footer or both, not {other:?}"
                )));
            }
        };
        Ok(EncodeOptions {
            hashing: self.hash,
            aggregate_hash,
            block_hashes: self.block_hashes,
            masks: MaskOptions {
                allow_nan: self.allow_nan,
                allow_inf: self.allow_inf,
                methods: self.mask_methods,
                small: self.small_mask,
            },
            provenance: if self.reproducible { Provenance::reproducible() } else { Provenance::default() },
            ..EncodeOptions::default()
        })
    }
}

/// Options of decoding.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Decoding {
    native_byte_order: bool,
    restore_non_finite: bool,
    verify_hash: bool,
    verify_ranges: bool,
    require_hash: bool,
}

impl From<Decoding> for DecodeOptions {
    fn from(given: Decoding) -> Self {
        Self {
            native_byte_order: given.native_byte_order,
            restore_non_finite: given.restore_non_finite,
            verify_hash: given.verify_hash,
            verify_ranges: given.verify_ranges,
            require_hash: given.require_hash,
            ..Self::default()
        }
    }
}

const GIVEN: &str = "the message to be written";

fn item(py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<CborItem> {
    cbor::from_attributes(&value::from_attributes(given)?).or_raise(py)
}

fn metadata_of(py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<GlobalMetadata> {
    let place = ErrorLocation { what: "metadata", object: GIVEN, offset: 0 };
    GlobalMetadata::from_item(item(py, given)?, place).or_raise(py)
}

fn descriptor_of(py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<DataObjectDescriptor> {
    let place = ErrorLocation { what: "descriptor", object: GIVEN, offset: 0 };
    DataObjectDescriptor::from_item(item(py, given)?, place).or_raise(py)
}

fn dictionary<'py>(py: Python<'py>, item: &CborItem) -> PyResult<Bound<'py, PyAny>> {
    value::to_python(py, &item.to_value())
}

fn map<'py>(py: Python<'py>, keys: &Map) -> PyResult<Bound<'py, PyAny>> {
    dictionary(py, &CborItem::map(keys.clone()))
}

/// Cells of a message as bytes: a view of the buffer, or a new array.
fn cells<'py>(
    buffer: &Bound<'py, PyArray1<u8>>,
    whole: &[u8],
    cells: Cow<'_, [u8]>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = buffer.py();
    match cells {
        Cow::Owned(bytes) => Ok(PyArray1::from_vec(py, bytes).into_any()),
        Cow::Borrowed(view) => {
            let start = view.as_ptr() as usize - whole.as_ptr() as usize;
            let range = PySlice::new(py, start.cast_signed(), (start + view.len()).cast_signed(), 1);
            buffer.get_item(range)
        }
    }
}

/// Encodes a message from descriptors and the bytes of their cells, or from encoded payloads.
#[pyfunction]
pub fn encode<'py>(
    py: Python<'py>,
    metadata: &Bound<'py, PyAny>,
    objects: Vec<(Bound<'py, PyAny>, Bound<'py, PyArray1<u8>>)>,
    encoding: EncodingInput,
    encoded: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let metadata = metadata_of(py, metadata)?;
    let options = encoding.options()?;
    let descriptors = objects.iter().map(|(d, _)| descriptor_of(py, d)).collect::<PyResult<Vec<_>>>()?;
    let arrays = objects.iter().map(|(_, a)| Ok(a.try_readonly()?)).collect::<PyResult<Vec<_>>>()?;
    let bytes = arrays.iter().map(|a| Ok(a.as_slice()?)).collect::<PyResult<Vec<&[u8]>>>()?;
    let pairs: Vec<_> = descriptors.iter().zip(bytes).collect();
    let encoder =
        if encoded { tesseral_tensogram::encode_pre_encoded_parts } else { tesseral_tensogram::encode_parts };
    let message = py.detach(|| encoder(&metadata, &pairs, &options)).or_raise(py)?;
    if !message.borrows() {
        let len = usize::try_from(message.total_length())?;
        return PyBytes::new_with(py, len, |out| py.detach(|| message.copy_to(out)).or_raise(py));
    }
    let parts = message.into_parts();
    let pieces = parts.into_iter().enumerate().map(|(number, part)| match part {
        Cow::Owned(bytes) => PyArray1::from_vec(py, bytes),
        // Three pieces per object after the first: the payload is the given array.
        Cow::Borrowed(_) => objects[(number - 1) / 3].1.clone(),
    });
    // Python joins them into uninitialized memory, without its lock.
    let joined = PyBytes::new(py, b"").call_method1("join", (PyList::new(py, pieces)?,))?;
    Ok(joined.cast_into()?)
}

type Object<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Decodes metadata, and descriptor and cells of every object, or of the requested one.
#[pyfunction]
#[pyo3(signature = (buffer, decoding, only=None))]
pub fn decode<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyArray1<u8>>,
    decoding: Decoding,
    only: Option<usize>,
) -> PyResult<(Bound<'py, PyAny>, Vec<Object<'py>>)> {
    let options = DecodeOptions::from(decoding);
    let held = buffer.try_readonly()?;
    let whole = held.as_slice()?;
    let (metadata, objects) = py
        .detach(|| match only {
            None => tesseral_tensogram::decode(whole, &options),
            Some(index) => {
                let (metadata, descriptor, cells) =
                    tesseral_tensogram::decode_object(whole, index, &options)?;
                Ok((metadata, vec![(descriptor, cells)]))
            }
        })
        .or_raise(py)?;
    let objects = objects.into_iter().map(|(descriptor, found)| {
        Ok((dictionary(py, &descriptor.to_item())?, cells(buffer, whole, found)?))
    });
    Ok((dictionary(py, &metadata.to_item())?, objects.collect::<PyResult<_>>()?))
}

/// Decodes metadata and descriptors without payloads.
#[pyfunction]
pub fn decode_descriptors<'py>(
    py: Python<'py>,
    buffer: PyReadonlyArray1<'py, u8>,
    decoding: Decoding,
) -> PyResult<(Bound<'py, PyAny>, Vec<Bound<'py, PyAny>>)> {
    let options = DecodeOptions::from(decoding);
    let (metadata, descriptors) =
        tesseral_tensogram::decode_descriptors(buffer.as_slice()?, &options).or_raise(py)?;
    let descriptors = descriptors.iter().map(|d| dictionary(py, &d.to_item())).collect::<PyResult<_>>()?;
    Ok((dictionary(py, &metadata.to_item())?, descriptors))
}

/// Decodes the descriptor of an object, and ranges of its cells, each first cell and count.
#[pyfunction]
pub fn decode_range<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyArray1<u8>>,
    index: usize,
    ranges: Vec<(u64, u64)>,
    decoding: Decoding,
) -> PyResult<(Bound<'py, PyAny>, Vec<Bound<'py, PyAny>>)> {
    let options = DecodeOptions::from(decoding);
    let held = buffer.try_readonly()?;
    let whole = held.as_slice()?;
    let (descriptor, found) =
        py.detach(|| tesseral_tensogram::decode_range(whole, index, &ranges, &options)).or_raise(py)?;
    let found = found.into_iter().map(|part| cells(buffer, whole, part)).collect::<PyResult<_>>()?;
    Ok((dictionary(py, &descriptor.to_item())?, found))
}

type Skipped = (u64, u64, &'static str, String);

fn skipped(bytes: tesseral_tensogram::SkippedBytes) -> Skipped {
    (bytes.offset, bytes.length, bytes.check, bytes.detail)
}

/// Returns the messages of a buffer, and bytes outside messages.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn scan(
    py: Python<'_>,
    buffer: PyReadonlyArray1<'_, u8>,
) -> PyResult<(Vec<(usize, usize)>, Vec<Skipped>)> {
    let bytes = buffer.as_slice()?;
    let found = py.detach(|| tesseral_tensogram::scan_with_report(bytes)).or_raise(py)?;
    Ok((found.messages, found.skipped.into_iter().map(skipped).collect()))
}

type Issue = (&'static str, &'static str, &'static str, Option<usize>, Option<u64>, String);

/// Validates all messages of a buffer: bytes outside messages, and for each message its issues, its number of objects and
/// whether all hashes were verified.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn validate(
    py: Python<'_>,
    buffer: PyReadonlyArray1<'_, u8>,
    mode: &str,
    canonical: bool,
) -> PyResult<(bool, Vec<Skipped>, Vec<(Vec<Issue>, usize, bool)>)> {
    let mode = match mode {
        "quick" => ValidationMode::Quick,
        "default" => ValidationMode::Default,
        "checksum" => ValidationMode::Checksum,
        "full" => ValidationMode::Full,
        _ => return Err(PyValueError::new_err("level must be quick, default, checksum or full")),
    };
    let options = ValidateOptions { mode, canonical, ..ValidateOptions::default() };
    let bytes = buffer.as_slice()?;
    let report = py.detach(|| tesseral_tensogram::validate_buffer(bytes, &options)).or_raise(py)?;
    let ok = report.is_ok();
    let message = |report: ValidationReport| {
        let issues = report.issues.into_iter().map(|issue| {
            let place = (issue.object_index, issue.byte_offset);
            (issue.code, issue.level.name(), issue.severity.name(), place.0, place.1, issue.description)
        });
        (issues.collect(), report.object_count, report.hash_verified)
    };
    let outside = report.file_issues.into_iter().map(skipped).collect();
    Ok((ok, outside, report.messages.into_iter().map(message).collect()))
}

/// Output of a stream: memory, or a Python object with `write`, and `seek` for lengths that are written afterwards.
enum Sink {
    Memory(Cursor<Vec<u8>>),
    File(Py<PyAny>),
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Memory(buffer) => buffer.write(bytes),
            Self::File(file) => Python::attach(|py| {
                let taken = file.call_method1(py, "write", (PyBytes::new(py, bytes),))?;
                // `write` can return None if everything was written.
                let taken: Option<usize> = taken.extract(py)?;
                Ok(taken.unwrap_or(bytes.len()).min(bytes.len()))
            }),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::File(file) => Python::attach(|py| {
                if file.bind(py).hasattr("flush")? {
                    file.call_method0(py, "flush")?;
                }
                Ok(())
            }),
        }
    }
}

impl Seek for Sink {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::Memory(buffer) => buffer.seek(to),
            Self::File(file) => Python::attach(|py| {
                let (offset, whence) = match to {
                    SeekFrom::Start(at) => (i128::from(at), 0),
                    SeekFrom::Current(by) => (i128::from(by), 1),
                    SeekFrom::End(by) => (i128::from(by), 2),
                };
                Ok(file.call_method1(py, "seek", (offset, whence))?.extract(py)?)
            }),
        }
    }
}

/// Streaming encoder of a message.
#[pyclass(frozen, module = "tesseral._native")]
pub struct MessageStream {
    inner: Mutex<Option<StreamingEncoder<Sink>>>,
}

fn over() -> TensogramError {
    Error::invalid("the stream is closed: it was finished or has failed").into()
}

impl MessageStream {
    /// Runs `work` on the stream; a failure closes it, because a part of a frame can have been written.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut StreamingEncoder<Sink>) -> Outcome<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let before = inner.as_ref().map(StreamingEncoder::bytes_written);
            let stream = inner.as_mut().ok_or_else(over)?;
            let result = work(stream);
            if result.is_err() && before != Some(stream.bytes_written()) {
                *inner = None;
            }
            result
        })
        .or_raise(py)
    }
}

#[pymethods]
impl MessageStream {
    #[new]
    fn new(
        py: Python<'_>,
        metadata: &Bound<'_, PyAny>,
        encoding: EncodingInput,
        file: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let metadata = metadata_of(py, metadata)?;
        let options = encoding.options()?;
        let sink = file.map_or_else(|| Sink::Memory(Cursor::default()), Sink::File);
        let stream = StreamingEncoder::new(sink, &metadata, &options).or_raise(py)?;
        Ok(Self { inner: Mutex::new(Some(stream)) })
    }

    /// Writes preceder metadata of the next object.
    fn preceder(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        let keys = item(py, keys)?.into_map().unwrap_or_default();
        self.with(py, |stream| stream.write_preceder(keys))
    }

    /// Writes an object.
    fn object(
        &self,
        py: Python<'_>,
        descriptor: &Bound<'_, PyAny>,
        cells: PyReadonlyArray1<'_, u8>,
        encoded: bool,
    ) -> PyResult<()> {
        let descriptor = descriptor_of(py, descriptor)?;
        let cells = cells.as_slice()?;
        self.with(py, |stream| match encoded {
            true => stream.write_object_pre_encoded(&descriptor, cells),
            false => stream.write_object(&descriptor, cells),
        })
    }

    /// Ends the message, and writes its length into the preamble if requested. Returns its bytes if they are in memory.
    fn finish<'py>(&self, py: Python<'py>, backfill: bool) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let sink = py
            .detach(|| {
                let stream = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
                let stream = stream.ok_or_else(over)?;
                if backfill { stream.finish_with_backfill() } else { stream.finish() }
            })
            .or_raise(py)?;
        Ok(match sink {
            Sink::Memory(buffer) => Some(PyBytes::new(py, buffer.get_ref())),
            Sink::File(_) => None,
        })
    }

    fn __len__(&self) -> usize {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.as_ref().map_or(0, StreamingEncoder::object_count)
    }
}

/// Incremental decoder of messages.
#[pyclass(frozen, module = "tesseral._native")]
pub struct MessageDecoder {
    /// Boxed: it requires a larger alignment than Python objects have.
    inner: Mutex<Option<Box<PushDecoder>>>,
}

/// Converts an event: its kind and data.
fn event<'py>(py: Python<'py>, event: Event) -> PyResult<Bound<'py, PyAny>> {
    let known = match event {
        Event::Object { index, descriptor, keys, cells } => {
            let descriptor = dictionary(py, &descriptor.to_item())?;
            ("object", index, descriptor, map(py, &keys)?, PyArray1::from_vec(py, cells))
                .into_pyobject(py)?
                .into_any()
        }
        Event::Message { offset, length, metadata } => {
            ("message", offset, length, dictionary(py, &metadata.to_item())?).into_pyobject(py)?.into_any()
        }
        Event::Damaged { offset, error } => {
            ("damaged", offset, raise(py, &Error::from(error)).into_value(py)).into_pyobject(py)?.into_any()
        }
        Event::Skipped(bytes) => ("skipped", skipped(bytes)).into_pyobject(py)?.into_any(),
        _ => ("other",).into_pyobject(py)?.into_any(),
    };
    Ok(known)
}

#[pymethods]
impl MessageDecoder {
    #[new]
    fn new(decoding: Decoding) -> Self {
        Self { inner: Mutex::new(Some(Box::new(PushDecoder::new(&decoding.into())))) }
    }

    /// Feeds the next bytes, or the end of the stream; returns the resulting events.
    #[pyo3(signature = (bytes=None))]
    fn feed<'py>(
        &self,
        py: Python<'py>,
        bytes: Option<PyReadonlyArray1<'py, u8>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let piece = bytes.as_ref().map(|b| b.as_slice()).transpose()?;
        let events: Vec<Event> = py
            .detach(|| -> Outcome<_> {
                let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
                match piece {
                    Some(piece) => Ok(inner.as_mut().ok_or_else(over)?.feed(piece)),
                    None => Ok(inner.take().ok_or_else(over)?.finish()),
                }
            })
            .or_raise(py)?;
        PyList::new(py, events.into_iter().map(|e| event(py, e)).collect::<PyResult<Vec<_>>>()?)
    }
}

/// A file of messages, read on demand.
#[pyclass(name = "MessageFile", module = "tesseral._native")]
pub struct PyMessageFile {
    inner: tesseral_tensogram::TensogramFile,
}

#[pymethods]
impl PyMessageFile {
    #[new]
    fn new(path: PathBuf) -> Self {
        Self { inner: tesseral_tensogram::TensogramFile::open(path) }
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        py.detach(|| self.inner.message_count()).or_raise(py)
    }

    /// Returns the bytes of a message.
    fn read<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        let bytes = py.detach(|| self.inner.read_message(index)).or_raise(py)?;
        let len = bytes.len() as u64;
        numpy_array::borrowed(py, bytes, &[len], &dtype::named(py, "uint8")?)
    }

    /// Decodes the descriptor of an object of a message, and ranges of its cells, each first cell and count.
    fn range<'py>(
        &self,
        py: Python<'py>,
        message: usize,
        object: usize,
        ranges: Vec<(u64, u64)>,
        decoding: Decoding,
    ) -> PyResult<(Bound<'py, PyAny>, Vec<Bound<'py, PyAny>>)> {
        let options = DecodeOptions::from(decoding);
        let found = py.detach(|| self.inner.decode_range(message, object, &ranges, &options));
        let (descriptor, found) = found.or_raise(py)?;
        let bytes = dtype::named(py, "uint8")?;
        let cells = found.into_iter().map(|cells| {
            let len = cells.len() as u64;
            numpy_array::borrowed(py, cells, &[len], &bytes)
        });
        Ok((dictionary(py, &descriptor.to_item())?, cells.collect::<PyResult<_>>()?))
    }

    /// Bytes outside messages.
    fn skipped(&self, py: Python<'_>) -> PyResult<Vec<Skipped>> {
        let found = py.detach(|| self.inner.skipped()).or_raise(py)?;
        Ok(found.into_iter().map(skipped).collect())
    }

    /// Appends a complete message durably.
    fn append(&mut self, py: Python<'_>, message: &[u8]) -> PyResult<()> {
        py.detach(|| self.inner.append_message(message)).or_raise(py)
    }
}
