//! Connections that fail for a reason that waiting does not remove.
//!
//! The `object_store` crate repeats a request that found no server, with pauses that grow to seconds: right for a server that is
//! overloaded, but the user of a mistyped address or port waits for an error that is known at once. Such failures are
//! repeated here, [`QUICKLY`] and only where a server may be starting, and then reported as errors that are final.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use object_store::{ClientOptions, Error as Failure};

/// Pauses before a connection that was refused is tried again.
const QUICKLY: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(300)];

/// Texts of resolvers for a name that does not exist, which has no kind of its own.
const UNKNOWN_NAME: [&str; 4] = [
    "Name or service not known",
    "Name does not resolve",
    "nodename nor servname provided",
    "No address associated with hostname",
];

/// Makes clients that end requests to servers that cannot be reached.
#[derive(Debug, Default)]
pub(crate) struct ReachConnector;

impl HttpConnector for ReachConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(ReachService(ReqwestConnector::default().connect(options)?)))
    }
}

#[derive(Debug)]
struct ReachService(HttpClient);

impl HttpService for ReachService {
    // The form of an asynchronous method that the trait expands to.
    fn call<'a, 'async_trait>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'async_trait>>
    where
        'a: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let mut pauses = QUICKLY.iter();
            loop {
                let failure = match self.0.execute(request.clone()).await {
                    Err(failure) if failure.kind() == HttpErrorKind::Connect => failure,
                    other => return other,
                };
                let Some((reason, can_heal)) = hopeless(&failure) else { return Err(failure) };
                match pauses.next().filter(|_| can_heal) {
                    Some(pause) => tokio::time::sleep(*pause).await,
                    None => {
                        let uri = request.uri();
                        let host = uri.authority().map_or_else(String::new, |server| {
                            // Without the user and password that a URL can contain.
                            let text = server.as_str();
                            text.rsplit_once('@').map_or(text, |(_, host)| host).to_owned()
                        });
                        return Err(HttpError::new(HttpErrorKind::Unknown, Unreachable { host, reason }));
                    }
                }
            }
        })
    }
}

/// A server that cannot be reached.
#[derive(Debug)]
pub(crate) struct Unreachable {
    /// Host and port.
    host: String,
    reason: String,
}

impl Unreachable {
    /// Finds it among the causes of a failed request.
    pub(crate) fn find(failure: &Failure) -> Option<&Self> {
        causes(failure).find_map(|cause| cause.downcast_ref())
    }

    /// Returns whether it is the service by which cloud machines get their credentials.
    pub(crate) fn gives_credentials(&self) -> bool {
        self.host.starts_with("169.254.") || self.host.starts_with("metadata.google")
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot connect to {}: {}", self.host, self.reason)
    }
}

impl StdError for Unreachable {}

fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&cause| cause.source())
}

/// The reason of a failed connection that later attempts do not find changed, and whether it can end within a moment.
fn hopeless(failure: &HttpError) -> Option<(String, bool)> {
    for cause in causes(failure) {
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            match error.kind() {
                io::ErrorKind::ConnectionRefused => return Some(("connection refused".to_owned(), true)),
                io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
                    return Some((error.to_string(), true));
                }
                // Certificates that are not accepted, and servers without TLS.
                io::ErrorKind::InvalidData => return Some((error.to_string(), false)),
                _ => {}
            }
        }
    }
    let unknown = |cause: &(dyn StdError + 'static)| {
        let text = cause.to_string();
        UNKNOWN_NAME.iter().any(|known| text.contains(known))
    };
    causes(failure).any(unknown).then(|| ("the name of the server is unknown".to_owned(), false))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn connect(kind: io::ErrorKind, text: &str) -> HttpError {
        HttpError::new(HttpErrorKind::Connect, io::Error::new(kind, text.to_owned()))
    }

    #[test]
    fn failures_that_stay_are_distinguished() {
        let cases = [
            (io::ErrorKind::ConnectionRefused, "x", Some(true)),
            (io::ErrorKind::NetworkUnreachable, "x", Some(true)),
            (io::ErrorKind::InvalidData, "invalid peer certificate", Some(false)),
            (io::ErrorKind::Other, "failed to lookup: Name or service not known", Some(false)),
            (io::ErrorKind::Other, "Temporary failure in name resolution", None),
            (io::ErrorKind::TimedOut, "x", None),
            (io::ErrorKind::ConnectionReset, "x", None),
        ];
        for (kind, text, expected) in cases {
            let found = hopeless(&connect(kind, text)).map(|(_, can_heal)| can_heal);
            assert_eq!(found, expected, "{kind:?} {text}");
        }
    }

    /// Fails to connect a number of times.
    #[derive(Debug)]
    struct Starting {
        failures: usize,
        kind: io::ErrorKind,
        calls: Arc<AtomicUsize>,
    }

    impl HttpService for Starting {
        fn call<'a, 'async_trait>(
            &'a self,
            _: HttpRequest,
        ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'async_trait>>
        where
            'a: 'async_trait,
            Self: 'async_trait,
        {
            let number = self.calls.fetch_add(1, Ordering::Relaxed);
            let fails = number < self.failures;
            let result =
                if fails { Err(connect(self.kind, "x")) } else { Ok(HttpResponse::new(Vec::new().into())) };
            Box::pin(async move { result })
        }
    }

    #[test]
    fn refused_connections_are_tried_again_twice() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let cases = [
            (2, io::ErrorKind::ConnectionRefused, 3, None),
            (9, io::ErrorKind::ConnectionRefused, 3, Some(HttpErrorKind::Unknown)),
            (9, io::ErrorKind::InvalidData, 1, Some(HttpErrorKind::Unknown)),
            // Left to the retries of the crate.
            (9, io::ErrorKind::ConnectionReset, 1, Some(HttpErrorKind::Connect)),
        ];
        for (failures, kind, calls, expected) in cases {
            let attempts = Arc::new(AtomicUsize::new(0));
            let service =
                ReachService(HttpClient::new(Starting { failures, kind, calls: Arc::clone(&attempts) }));
            let mut request = HttpRequest::new(Vec::new().into());
            *request.uri_mut() = "http://user:password@localhost:1/x".parse().unwrap();
            let found = runtime.block_on(service.call(request));
            assert_eq!(attempts.load(Ordering::Relaxed), calls, "{kind:?}");
            let text = found.as_ref().err().map(ToString::to_string).unwrap_or_default();
            assert!(!text.contains("password"), "{text}");
            assert_eq!(found.err().map(|failure| failure.kind()), expected, "{kind:?}");
        }
    }

    #[test]
    fn unreachable_servers_are_found_among_causes() {
        let inner = Unreachable { host: "localhost:1".to_owned(), reason: "connection refused".to_owned() };
        let source = Box::new(HttpError::new(HttpErrorKind::Unknown, inner));
        let failure = Failure::Generic { store: "S3", source };
        let found = Unreachable::find(&failure).unwrap();
        assert_eq!(found.to_string(), "cannot connect to localhost:1: connection refused");
        assert!(!found.gives_credentials());
        let other = Failure::Generic { store: "S3", source: "x".into() };
        assert!(Unreachable::find(&other).is_none());
    }
}
