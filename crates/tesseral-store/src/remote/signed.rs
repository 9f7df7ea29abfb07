//! Requests to S3 that the `object_store` crate does not have, by URLs that it signs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::aws::AmazonS3;
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody};
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::signer::{SignedUrlOptions, Signer};
use object_store::{Error as Failure, Result};
use reqwest::header::{HeaderName, HeaderValue, IF_NONE_MATCH};
use reqwest::{Method, StatusCode};
use serde::{Deserialize, Serialize};

use super::reach::Unreachable;

/// Time for which the signature of a request is valid.
const VALID: Duration = Duration::from_secs(900);
/// Maximum size of an answer.
const LONGEST: usize = 16 << 20;
/// How often a request is repeated if the server does not answer it, and the first pause.
const ATTEMPTS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(100);

/// The clients of S3, and of requests that it signs.
#[derive(Clone, Debug)]
pub(crate) struct S3 {
    pub client: Arc<AmazonS3>,
    pub http: HttpClient,
}

/// A request with a signed URL.
pub(crate) struct SignedRequest<'a> {
    pub method: Method,
    pub path: &'a Path,
    pub query: Vec<(&'static str, String)>,
    pub headers: &'a [(HeaderName, &'static str)],
    pub body: Bytes,
}

/// The answer of a server.
pub(crate) struct SignedAnswer {
    pub status: StatusCode,
    pub body: Bytes,
}

pub(crate) fn failed(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
    Failure::Generic { store: "S3", source: source.into() }
}

impl S3 {
    /// Sends a request once.
    pub(crate) async fn send(&self, request: SignedRequest<'_>) -> Result<SignedAnswer> {
        let SignedRequest { method, path, query, headers, body } = request;
        let options = SignedUrlOptions::new().with_query(query);
        let url = self.client.signed_url_opts(method.clone(), path, VALID, &options).await?;
        let mut request = HttpRequest::new(HttpRequestBody::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = url.as_str().parse().map_err(|e| failed(Box::new(e)))?;
        for (name, value) in headers {
            request.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        let answer = self.http.execute(request).await.map_err(|e| failed(Box::new(e)))?;
        let status = answer.status();
        let body = answer.into_body().bytes().await.map_err(|e| failed(Box::new(e)))?;
        match body.len() {
            ..=LONGEST => Ok(SignedAnswer { status, body }),
            _ => Err(failed("the answer is too long")),
        }
    }

    /// Joins the parts of an upload to an object that does not exist.
    ///
    /// # Errors
    /// `AlreadyExists` if it does.
    pub(crate) async fn create_of_parts(&self, path: &Path, upload: &str, parts: &[PartId]) -> Result<()> {
        let body = Bytes::from(completion(parts)?);
        let mut pause = PAUSE;
        for _ in 1..ATTEMPTS {
            match outcome(path, self.complete(path, upload, &body).await) {
                SignedOutcome::Done(result) => return result,
                SignedOutcome::Unanswered(_) => tokio::time::sleep(pause.mul_f64(0.5 + random())).await,
            }
            pause *= 2;
        }
        match outcome(path, self.complete(path, upload, &body).await) {
            SignedOutcome::Done(result) => result,
            SignedOutcome::Unanswered(failure) => Err(failure),
        }
    }

    async fn complete(&self, path: &Path, upload: &str, body: &Bytes) -> Result<SignedAnswer> {
        let query = vec![("uploadId", upload.to_owned())];
        let headers = &[(IF_NONE_MATCH, "*")];
        self.send(SignedRequest { method: Method::POST, path, query, headers, body: body.clone() }).await
    }
}

/// A number from 0 to 1.
fn random() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let bits = RandomState::new().hash_one(std::process::id()) >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

/// What follows from an answer.
#[derive(Debug)]
enum SignedOutcome {
    Done(Result<()>),
    /// The request may succeed if it is repeated.
    Unanswered(Failure),
}

fn outcome(path: &Path, answer: Result<SignedAnswer>) -> SignedOutcome {
    let SignedAnswer { status, body } = match answer {
        Ok(answer) => answer,
        Err(failure) if Unreachable::find(&failure).is_some() => return SignedOutcome::Done(Err(failure)),
        Err(failure) => return SignedOutcome::Unanswered(failure),
    };
    // An error can follow the status of a success.
    let stated: ErrorAnswer = quick_xml::de::from_reader(&body[..]).unwrap_or_default();
    let text = format!("{status} {} {}", stated.code, stated.message);
    let (path, source) = (path.to_string(), text.trim_end().into());
    match (status, stated.code.as_str()) {
        (StatusCode::PRECONDITION_FAILED, _) | (_, "PreconditionFailed") => {
            SignedOutcome::Done(Err(Failure::AlreadyExists { path, source }))
        }
        (StatusCode::CONFLICT, _) => SignedOutcome::Done(Err(Failure::Precondition { path, source })),
        (StatusCode::FORBIDDEN, _) => SignedOutcome::Done(Err(Failure::PermissionDenied { path, source })),
        (StatusCode::NOT_FOUND, _) => SignedOutcome::Done(Err(Failure::NotFound { path, source })),
        (StatusCode::NOT_IMPLEMENTED, _) | (_, "NotImplemented") => {
            SignedOutcome::Done(Err(Failure::NotSupported { source }))
        }
        (StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT, _)
        | (_, "InternalError" | "SlowDown") => SignedOutcome::Unanswered(failed(source)),
        _ if status.is_server_error() => SignedOutcome::Unanswered(failed(source)),
        (_, "") if status.is_success() => SignedOutcome::Done(Ok(())),
        _ => SignedOutcome::Done(Err(failed(source))),
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ErrorAnswer {
    code: String,
    message: String,
}

#[derive(Serialize)]
#[serde(rename = "CompleteMultipartUpload")]
struct Completion<'a> {
    #[serde(rename = "@xmlns")]
    namespace: &'static str,
    #[serde(rename = "Part")]
    parts: Vec<CompletedPart<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct CompletedPart<'a> {
    part_number: usize,
    #[serde(rename = "ETag")]
    etag: &'a str,
}

fn completion(parts: &[PartId]) -> Result<String> {
    let parts = parts.iter().enumerate();
    let parts = parts.map(|(at, part)| CompletedPart { part_number: at + 1, etag: &part.content_id });
    let namespace = "http://s3.amazonaws.com/doc/2006-03-01/";
    let completion = Completion { namespace, parts: parts.collect() };
    quick_xml::se::to_string(&completion).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_by_number_and_tag() {
        let part = |tag: &str| PartId { content_id: tag.to_owned() };
        assert_eq!(
            completion(&[part("\"a\""), part("b")]).unwrap(),
            "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
             <Part><PartNumber>1</PartNumber><ETag>\"a\"</ETag></Part>\
             <Part><PartNumber>2</PartNumber><ETag>b</ETag></Part></CompleteMultipartUpload>"
        );
    }

    #[test]
    fn answers_are_distinguished_by_status_and_body() {
        let answered = |status: u16, body: &'static str| {
            let status = StatusCode::from_u16(status).unwrap();
            outcome(&Path::from("x"), Ok(SignedAnswer { status, body: Bytes::from_static(body.as_bytes()) }))
        };
        let success = "<CompleteMultipartUploadResult><ETag>\"a-2\"</ETag></CompleteMultipartUploadResult>";
        assert!(matches!(answered(200, success), SignedOutcome::Done(Ok(()))));
        assert!(matches!(answered(412, ""), SignedOutcome::Done(Err(Failure::AlreadyExists { .. }))));
        assert!(matches!(answered(403, ""), SignedOutcome::Done(Err(Failure::PermissionDenied { .. }))));
        assert!(matches!(answered(400, "no XML"), SignedOutcome::Done(Err(Failure::Generic { .. }))));
        let late = "<?xml version=\"1.0\"?><Error><Code>InternalError</Code><Message>m</Message></Error>";
        assert!(matches!(answered(200, late), SignedOutcome::Unanswered(_)));
        assert!(matches!(answered(503, ""), SignedOutcome::Unanswered(_)));
        let refused = "<Error><Code>PreconditionFailed</Code></Error>";
        assert!(matches!(answered(200, refused), SignedOutcome::Done(Err(Failure::AlreadyExists { .. }))));
    }
}
