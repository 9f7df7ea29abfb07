//! Errors of the HDF5 parser as errors of this project.

use hdf5_reader::error::Error as ParserError;
use tesseral_core::Error;

/// The layout class of virtual datasets.
const VIRTUAL: u8 = 3;

/// Whether the parser does not know the layout because it is that of a virtual dataset.
pub(crate) fn is_virtual(error: &ParserError) -> bool {
    match error {
        ParserError::Context { source, .. } => is_virtual(source),
        ParserError::UnsupportedLayoutClass(class) => *class == VIRTUAL,
        _ => false,
    }
}

/// Converts an error that occurred while reading structure `what` of a file.
pub(crate) fn of_parser(error: ParserError, what: &str, object: &str) -> Error {
    match error {
        ParserError::Context { source, .. } => of_parser(*source, what, object),
        ParserError::Io(io) => match io.downcast::<Error>() {
            Ok(error) => error,
            Err(io) => Error::io("read", object, io),
        },
        ParserError::UnexpectedEof { offset, needed, available } => {
            Error::truncated(what, object, offset, needed, available)
        }
        ParserError::OffsetOutOfBounds(offset) => {
            Error::corrupt(what, object, offset, "the offset is outside the file")
        }
        ParserError::ResourceLimit(_) => {
            let allowed = hdf5_reader::DEFAULT_MAX_OBJECT_HEADER_BYTES as u64;
            Error::limit(what, allowed.saturating_add(1), allowed)
        }
        ParserError::UnsupportedSuperblockVersion(_)
        | ParserError::UnsupportedObjectHeaderVersion(_)
        | ParserError::UnsupportedDatatypeClass(_)
        | ParserError::UnsupportedLayoutClass(_)
        | ParserError::UnsupportedLayoutVersion(_)
        | ParserError::UnsupportedFilterPipelineVersion(_)
        | ParserError::UnsupportedFilter(_)
        | ParserError::UnsupportedEncoding(_)
        | ParserError::UnsupportedChunkIndexType(_) => {
            Error::unsupported(format!("{what} of an HDF5 file: {error}"))
        }
        other => Error::corrupt(what, object, None, other.to_string()),
    }
}
