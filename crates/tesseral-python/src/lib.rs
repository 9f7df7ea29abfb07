//! The compiled part of the Python package `tesseral`. What people use is in `python/tesseral`; this module is what it stands
//! on: opening, reading, reducing and writing without the interpreter's lock.
//!
//! One class per thing: `Source` (an opened file or folder), `View` (cells of one field of one array, as a window over it),
//! `Writer` (a container being written), `Message…` (Tensogram messages, without the engine). Indices come as Python's own objects, never as text.
#![forbid(unsafe_code)]

mod dtype;
mod edit;
mod error;
mod index;
mod messages;
mod numbers;
mod read;
mod reduce;
mod rows;
mod runtime;
mod source;
mod tools;
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
    use crate::messages::{
        MessageDecoder, MessageFile, MessageStream, decode, decode_descriptors, decode_range, encode, scan,
        validate,
    };
    #[pymodule_export]
    use crate::numbers::Memory;
    #[pymodule_export]
    use crate::reduce::{Partial, merge};
    #[pymodule_export]
    use crate::rows::Rows;
    #[pymodule_export]
    use crate::source::{Source, as_of, formats, recognise};
    #[pymodule_export]
    use crate::tools::{convert, diff, escape, recover, staging_name, verify};
    #[pymodule_export]
    use crate::view::View;
    #[pymodule_export]
    use crate::write::{Staged, Writer, declare};
}
