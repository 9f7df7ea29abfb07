//! The compiled part of the Python package `tesseral`. The public API is in `python/tesseral`; this module opens, reads,
//! reduces and writes without the interpreter lock.
//!
//! Classes: `PySource` (an opened file or folder), `PyView` (cells of one field of one array, as a window), `PyWriter` (a container
//! being written), `Message…` (Tensogram messages, without the engine). Indices are Python objects, never text.
#![forbid(unsafe_code)]

mod dtype;
mod edit;
mod error;
mod hint;
mod index;
mod maintenance;
mod messages;
mod numpy_array;
mod read;
mod reduce;
mod rows;
mod runtime;
mod source;
mod value;
mod view;
mod write;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }

    #[pymodule_export]
    use crate::edit::{append, consolidate, delete, set_attributes, vacuum, versions};
    #[pymodule_export]
    use crate::maintenance::{convert, copy, diff, escape, recover, staging_name, verify};
    #[pymodule_export]
    use crate::messages::{
        MessageDecoder, MessageStream, PyMessageFile, decode, decode_descriptors, decode_range, encode, scan,
        validate,
    };
    #[pymodule_export]
    use crate::numpy_array::PyMemory;
    #[pymodule_export]
    use crate::reduce::join_results;
    #[pymodule_export]
    use crate::rows::PyRows;
    #[pymodule_export]
    use crate::runtime::set_progress;
    #[pymodule_export]
    use crate::source::{PySource, as_of, formats, has_messages, recognize};
    #[pymodule_export]
    use crate::view::PyView;
    #[pymodule_export]
    use crate::write::{PyStagedWrite, PyWriter, declare};
}
