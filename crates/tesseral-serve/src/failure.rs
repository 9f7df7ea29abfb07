//! Errors as answers.

use std::error::Error as _;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value as Json, json};
use tesseral::{Advice, Error, ErrorKind};

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum RequestFailure {
    /// An error of the library.
    Error(Error),
    /// Too many requests wait.
    Busy,
}

impl From<Error> for RequestFailure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// An answer as JSON.
pub(crate) fn document(body: &Json) -> Response {
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    ([kind], body.to_string()).into_response()
}

/// Advice in the words of the page.
fn worded(advice: &Advice) -> Option<String> {
    Some(match advice {
        Advice::RaiseMemory => "start the server with more memory".to_owned(),
        Advice::SkipDigests | Advice::Recover => "restore the source from a copy".to_owned(),
        Advice::SelectByPosition => "select by position".to_owned(),
        _ => return None,
    })
}

fn status(error: &Error) -> StatusCode {
    match error.kind() {
        ErrorKind::NotFound { .. } => StatusCode::NOT_FOUND,
        ErrorKind::InvalidRequest { .. } => StatusCode::BAD_REQUEST,
        ErrorKind::Unsupported { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorKind::Limit { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn kind(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound { .. } => "not found",
        ErrorKind::InvalidRequest { .. } => "invalid request",
        ErrorKind::Unsupported { .. } => "not supported",
        ErrorKind::Limit { .. } => "limit",
        ErrorKind::Cancelled => "canceled",
        _ if error.is_damage() => "damage",
        _ => "failure",
    }
}

/// An error with its causes and its hint.
pub(crate) fn described(error: &Error) -> Json {
    let mut causes = Vec::new();
    let mut printed = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !printed.contains(&text) {
            printed.push_str(&text);
            causes.push(text);
        }
        source = cause.source();
    }
    let hint = error.advice().map(|advice| advice.worded(&worded));
    json!({"error": error.to_string(), "kind": kind(error), "causes": causes, "hint": hint})
}

impl IntoResponse for RequestFailure {
    fn into_response(self) -> Response {
        let (status, body) = match self {
            Self::Error(error) => (status(&error), described(&error)),
            Self::Busy => {
                let body =
                    json!({"error": "the server is busy", "kind": "busy", "causes": [], "hint": "try again"});
                (StatusCode::SERVICE_UNAVAILABLE, body)
            }
        };
        let mut response = document(&body);
        *response.status_mut() = status;
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
