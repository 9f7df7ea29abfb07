//! The server: address, routes, and shared state.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use tesseral::{Cancel, Error, Result};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::admission::RequestSlots;
use crate::failure::{self, RequestFailure};
use crate::guard::{self, RequestGuard};
use crate::listen::Limited;
use crate::plane::Overviews;
use crate::sources::{Opener, ServedSources};
use crate::{cells, chunks, download, page, plane, series, statistics, tree};

/// Maximum number of concurrent connections.
const CONNECTIONS: usize = 2048;
/// Maximum number of prepared files of downloads.
const PREPARED: usize = 8;
/// Interval of checks for cancellation.
const STOP: Duration = Duration::from_millis(50);

/// Settings of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerSettings {
    /// Address to listen on; the loopback address by default.
    pub address: IpAddr,
    /// Port; 0 for any free one.
    pub port: u16,
    /// Additional host names.
    pub names: Vec<String>,
    /// The token; a random one if none is given.
    pub token: Option<String>,
    /// Maximum number of bytes to decode for one map.
    pub work: u64,
    /// Maximum number of bytes of cached maps.
    pub cache: u64,
    /// Maximum number of cells of one download.
    pub download: u64,
    /// Maximum number of concurrent requests.
    pub running: usize,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            names: Vec::new(),
            token: None,
            work: 64 << 20,
            cache: 64 << 20,
            download: 64 << 20,
            running: 4,
        }
    }
}

/// State that requests share.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) sources: ServedSources,
    pub(crate) overviews: Overviews,
    pub(crate) settings: ServerSettings,
    slots: RequestSlots,
    /// Downloads have a separate limit, because they take long.
    downloads: RequestSlots,
    /// Files that were written and are being sent.
    prepared: Arc<Semaphore>,
}

/// A bound server.
#[derive(Debug)]
pub struct Server {
    listener: std::net::TcpListener,
    address: SocketAddr,
    guard: Arc<RequestGuard>,
    shared: Arc<ServerState>,
}

impl Server {
    /// Opens sources and starts to listen; requests wait until [`run`](Self::run).
    ///
    /// # Errors
    /// Errors of opening a source; `Io` if the address is in use.
    pub fn bind(sources: Vec<(String, Opener)>, settings: ServerSettings) -> Result<Self> {
        let sources = ServedSources::open(sources)?;
        let wanted = SocketAddr::new(settings.address, settings.port);
        let failed = |e| Error::io("listen on", wanted.to_string(), e);
        let listener = std::net::TcpListener::bind(wanted).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let token = settings.token.clone().map_or_else(guard::random_token, Ok)?;
        let guard = Arc::new(RequestGuard::new(token, address, &settings.names));
        let shared = ServerState {
            sources,
            overviews: Overviews::new(settings.cache),
            slots: RequestSlots::new(settings.running.max(1)),
            downloads: RequestSlots::new(1),
            prepared: Arc::new(Semaphore::new(PREPARED)),
            settings,
        };
        Ok(Self { listener, address, guard, shared: Arc::new(shared) })
    }

    /// Address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the page, with the token.
    pub fn url(&self) -> String {
        format!("http://{}/?token={}", self.address, self.guard.token())
    }

    /// The answer to a request of the API without a connection, a token or limits on concurrent requests: `/api/value?at=1,2`.
    /// Downloads are not answered.
    ///
    /// # Errors
    /// `InvalidRequest` if the parameters do not fit; `NotFound` for other paths; errors of the request.
    pub fn answer(&self, target: &str, cancel: Cancel) -> Result<Vec<u8>> {
        let uri: Uri = target.parse().map_err(|_| Error::invalid("the address of the request is invalid"))?;
        if uri.path() == "/api/plane" {
            return plane::plane(&self.shared, &parameters(&uri)?, cancel);
        }
        let found = document(&self.shared, &uri, cancel);
        let found = found.ok_or_else(|| Error::not_found("request", uri.path(), Vec::new()))?;
        Ok(found?.to_string().into_bytes())
    }

    /// Answers requests until `cancel` is set.
    ///
    /// # Errors
    /// `Io` if the server cannot start.
    pub fn run(self, cancel: &Cancel) -> Result<()> {
        let failed = |e| Error::io("serve", "the page", e);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(self.shared.settings.running.max(1) + 4)
            .enable_all()
            .build()
            .map_err(failed)?;
        let router = router(Arc::clone(&self.shared), Arc::clone(&self.guard));
        let stopped = cancel.clone();
        let served = runtime.block_on(async move {
            let listener = Limited::new(TcpListener::from_std(self.listener)?, CONNECTIONS);
            let stop = async move {
                while stopped.check().is_ok() {
                    tokio::time::sleep(STOP).await;
                }
            };
            tokio::select! {
                served = async { axum::serve(listener, router).await } => served,
                () = stop => Ok(()),
            }
        });
        runtime.shutdown_timeout(Duration::from_millis(100));
        served.map_err(failed)
    }
}

/// Declares the requests that are answered by JSON documents.
macro_rules! documents {
    ($($path:literal => $answer:path),* $(,)?) => {
        /// Adds them to a router.
        fn document_routes(router: Router<Arc<ServerState>>) -> Router<Arc<ServerState>> {
            router$(.route($path, get(json($answer))))*
        }

        /// The answer to one of them; `None` for other paths.
        fn document(shared: &ServerState, uri: &Uri, cancel: Cancel) -> Option<Result<Json>> {
            Some(match uri.path() {
                $($path => parameters(uri).and_then(|query| $answer(shared, &query, cancel)),)*
                _ => return None,
            })
        }
    };
}

documents! {
    "/api/sources" => tree::sources,
    "/api/colors" => tree::colors,
    "/api/arrays" => tree::arrays,
    "/api/array" => tree::array,
    "/api/coordinates" => tree::coordinates,
    "/api/between" => tree::between,
    "/api/versions" => tree::versions,
    "/api/series" => series::series,
    "/api/means" => series::means,
    "/api/value" => cells::value,
    "/api/rows" => cells::rows,
    "/api/points" => cells::points,
    "/api/statistics" => statistics::statistics,
    "/api/histogram" => statistics::histogram,
    "/api/chunks" => chunks::chunks,
    "/api/formats" => download::formats,
}

/// The parameters of a request.
fn parameters<Q: DeserializeOwned>(uri: &Uri) -> Result<Q> {
    Query::try_from_uri(uri).map(|Query(parameters)| parameters).map_err(|e| Error::invalid(e.to_string()))
}

fn router(shared: Arc<ServerState>, guard: Arc<RequestGuard>) -> Router {
    document_routes(Router::new())
        .route("/api/plane", get(bytes(plane::plane)))
        .route("/api/download", get(download_file))
        .fallback(page::file)
        .layer(axum::middleware::from_fn_with_state(guard, guard::check))
        .with_state(shared)
}

/// Future of a response.
type ResponseFuture = std::pin::Pin<Box<dyn Future<Output = Response> + Send>>;

/// A handler that computes a JSON document.
fn json<Q: DeserializeOwned + Send + 'static>(
    answer: fn(&ServerState, &Q, Cancel) -> Result<Json>,
) -> impl Fn(State<Arc<ServerState>>, Query<Q>) -> ResponseFuture + Clone + Send + 'static {
    move |State(shared), Query(query)| {
        Box::pin(async move {
            let own = Arc::clone(&shared);
            let found = shared.slots.run(move |cancel| answer(&own, &query, cancel)).await;
            found.map_or_else(RequestFailure::into_response, |body| failure::document(&body))
        })
    }
}

/// A handler that computes bytes.
fn bytes<Q: DeserializeOwned + Send + 'static>(
    answer: fn(&ServerState, &Q, Cancel) -> Result<Vec<u8>>,
) -> impl Fn(State<Arc<ServerState>>, Query<Q>) -> ResponseFuture + Clone + Send + 'static {
    move |State(shared), Query(query)| {
        Box::pin(async move {
            let own = Arc::clone(&shared);
            let found = shared.slots.run(move |cancel| answer(&own, &query, cancel)).await;
            found.map_or_else(RequestFailure::into_response, |body| {
                ([("content-type", "application/octet-stream")], body).into_response()
            })
        })
    }
}

async fn download_file(
    State(shared): State<Arc<ServerState>>,
    Query(query): Query<download::DownloadParameters>,
) -> Response {
    // Files take room until their clients have read them.
    let Ok(place) = Arc::clone(&shared.prepared).try_acquire_owned() else {
        return RequestFailure::Busy.into_response();
    };
    let own = Arc::clone(&shared);
    let found = shared.downloads.run(move |cancel| download::write(&own, &query, cancel)).await;
    found.map_or_else(RequestFailure::into_response, |file| file.kept_with(place).into_response())
}
