//! Errors of object stores as errors of this library.

use std::error::Error as _;
use std::io;

use object_store::Error as Failure;
use tesseral_core::{Advice, Error};

use super::reach::Unreachable;

/// The message of an error and its causes, without repetitions.
pub(crate) fn chain(error: &Failure) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = next.source();
    }
    text
}

/// Translates a failed request to `object`.
pub(crate) fn translate(op: &'static str, object: String, failure: &Failure) -> Error {
    let io = |kind: io::ErrorKind| Error::io(op, object.clone(), io::Error::new(kind, chain(failure)));
    if let Some(server) = Unreachable::find(failure) {
        let error = |kind| Error::io(op, object.clone(), io::Error::new(kind, server.to_string()));
        return match server.gives_credentials() {
            true => error(io::ErrorKind::PermissionDenied).hint(CREDENTIALS),
            false => error(io::ErrorKind::NotConnected).hint(ENDPOINT),
        };
    }
    match failure {
        Failure::NotFound { .. } => Error::not_found("object", object, Vec::new()),
        Failure::AlreadyExists { .. } => {
            Error::invalid(format!("output {object} already exists")).hint(Advice::Overwrite)
        }
        Failure::Precondition { .. } | Failure::NotModified { .. } => changed(object),
        Failure::PermissionDenied { .. } | Failure::Unauthenticated { .. } => {
            io(io::ErrorKind::PermissionDenied).hint(CREDENTIALS)
        }
        Failure::NotSupported { .. } | Failure::NotImplemented { .. } => {
            Error::unsupported(format!("this operation on {object}: {}", chain(failure)))
        }
        _ if is_without_ranges(failure) => {
            Error::unsupported(format!("reading parts of {object}: the server ignores range requests"))
                .hint("download the file first, or serve it by a server with range requests")
        }
        _ if chain(failure).contains("redential") => io(io::ErrorKind::PermissionDenied).hint(CREDENTIALS),
        _ => io(io::ErrorKind::Other),
    }
}

/// Hint for a server that requires credentials.
const CREDENTIALS: &str = "set credentials in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, \
     GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY), or \
     AWS_SKIP_SIGNATURE=true for public data";

/// Hint for a server that cannot be reached.
const ENDPOINT: &str = "check the URL and the endpoint (AWS_ENDPOINT_URL, AZURE_STORAGE_ENDPOINT, GOOGLE_BASE_URL), and whether \
     the server is running";

/// Error of an object that is not the one that was read before.
pub(crate) fn changed(object: String) -> Error {
    Error::changed(object, "the object was replaced after it was opened")
}

/// Returns whether a server answered a request for a range with the whole object.
fn is_without_ranges(failure: &Failure) -> bool {
    // The crate has no kind for it.
    matches!(failure, Failure::Generic { source, .. } if source.to_string().contains("non-partial response"))
}
