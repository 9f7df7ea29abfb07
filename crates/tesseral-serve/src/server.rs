//! The server: address, routes, and shared state.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
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

fn router(shared: Arc<ServerState>, guard: Arc<RequestGuard>) -> Router {
    Router::new()
        .route("/api/sources", get(json(tree::sources)))
        .route("/api/colors", get(json(tree::colors)))
        .route("/api/arrays", get(json(tree::arrays)))
        .route("/api/array", get(json(tree::array)))
        .route("/api/coordinates", get(json(tree::coordinates)))
        .route("/api/between", get(json(tree::between)))
        .route("/api/versions", get(json(tree::versions)))
        .route("/api/plane", get(bytes(plane::plane)))
        .route("/api/series", get(json(series::series)))
        .route("/api/means", get(json(series::means)))
        .route("/api/value", get(json(cells::value)))
        .route("/api/rows", get(json(cells::rows)))
        .route("/api/points", get(json(cells::points)))
        .route("/api/statistics", get(json(statistics::statistics)))
        .route("/api/histogram", get(json(statistics::histogram)))
        .route("/api/chunks", get(json(chunks::chunks)))
        .route("/api/formats", get(json(download::formats)))
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
