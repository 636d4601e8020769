//! A server in front of a retriever: `POST /retrieve`.
//!
//! It listens on the loopback address, or on another one if requests must carry a token. Bodies, queries per
//! request, passages per query and the number of requests at a time are bounded; a request beyond the last bound is
//! answered with status 503, after which clients try again. A retriever that fails or panics costs its own request.
//!
//! Not for: encrypted connections; put a proxy in front.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use seed_http::Guard;
use serde_json::json;
use tokio::sync::Semaphore;

use super::wire::{Request, answer_body};
use crate::SearchError;
use crate::retriever::Retriever;

/// Between two looks at whether to stop.
const STOP_POLL: Duration = Duration::from_millis(50);

/// Options of [`RetrievalServer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// Passages per query where a request does not say, or says 0.
    pub default_count: usize,
    /// Most passages per query.
    pub max_count: usize,
    /// Most queries per request.
    pub max_queries: usize,
    /// Longest request body, in bytes.
    pub max_body_bytes: usize,
    /// Requests worked on at a time.
    pub concurrency: usize,
    /// Requests that may wait besides.
    pub waiting: usize,
    /// How long a client may take to send its body.
    pub body_timeout: Duration,
    /// Environment variable with the token that requests must carry as `Authorization: Bearer …`.
    pub token_variable: Option<String>,
}

impl ServerOptions {
    /// The usual bounds at an address: three passages unless asked otherwise, two requests at a time.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            default_count: 3,
            max_count: 100,
            max_queries: 1024,
            max_body_bytes: 1 << 20,
            concurrency: 2,
            waiting: 1024,
            body_timeout: Duration::from_secs(30),
            token_variable: None,
        }
    }
}

/// A server that listens and is not yet answering.
pub struct RetrievalServer {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    retriever: Arc<dyn Retriever>,
    options: ServerOptions,
    guard: Guard,
    /// Requests that are worked on or wait.
    places: Semaphore,
    /// Requests that are worked on.
    workers: Semaphore,
}

impl RetrievalServer {
    /// Takes the address. Requests are accepted from here on and answered by [`RetrievalServer::run`].
    ///
    /// # Errors
    /// [`SearchError::Guard`] for an address that others can reach without a token, or a variable without one;
    /// [`SearchError::Option`] for a bound that is zero;
    /// [`SearchError::Listen`] when the address is taken or not this machine's.
    pub fn bind(retriever: Arc<dyn Retriever>, options: ServerOptions) -> Result<Self, SearchError> {
        let wrong = |option, value: String, rule| SearchError::Option { option, value, rule };
        let guard = Guard::new(options.address, options.token_variable.as_deref())?;
        for (option, value) in [
            ("concurrency", options.concurrency),
            ("default_count", options.default_count),
            ("max_count", options.max_count),
        ] {
            if value == 0 {
                return Err(wrong(option, "0".to_owned(), "at least 1"));
            }
        }
        let listen = |source| SearchError::Listen {
            address: options.address,
            source,
        };
        let listener = TcpListener::bind(options.address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let places = options.concurrency.saturating_add(options.waiting);
        Ok(Self {
            listener,
            address,
            shared: Arc::new(Shared {
                places: Semaphore::new(places.min(Semaphore::MAX_PERMITS)),
                workers: Semaphore::new(options.concurrency.min(Semaphore::MAX_PERMITS)),
                retriever,
                options,
                guard,
            }),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until `stop` says so; then finishes those under way.
    ///
    /// # Errors
    /// [`SearchError::Io`] when threads or the listener fail.
    pub fn run(self, stop: impl Fn() -> bool + Send + Sync + 'static) -> Result<(), SearchError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(self.shared.options.concurrency)
            .thread_name("retrieval")
            .enable_io()
            .enable_time()
            .build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            let router = Router::new()
                .route("/retrieve", post(retrieve))
                .with_state(self.shared);
            let stopped = async move {
                while !stop() {
                    tokio::time::sleep(STOP_POLL).await;
                }
            };
            axum::serve(listener, router)
                .with_graceful_shutdown(stopped)
                .await
        })?;
        Ok(())
    }
}

/// Answers one request.
async fn retrieve(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Body) -> Response {
    match answer(&shared, &headers, body).await {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err((status, detail)) => {
            let body = json!({ "detail": detail }).to_string();
            (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
        }
    }
}

async fn answer(
    shared: &Arc<Shared>,
    headers: &HeaderMap,
    body: Body,
) -> Result<Vec<u8>, (StatusCode, String)> {
    let authorization = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    if !shared.guard.admits(authorization) {
        return Err((
            StatusCode::UNAUTHORIZED,
            "the token is missing or wrong".to_owned(),
        ));
    }
    let options = &shared.options;
    let _place = shared.places.try_acquire().map_err(|_| {
        let message = "too many requests are waiting; try again".to_owned();
        (StatusCode::SERVICE_UNAVAILABLE, message)
    })?;
    let read = tokio::time::timeout(options.body_timeout, to_bytes(body, options.max_body_bytes));
    let bytes = match read.await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => {
            let message = format!(
                "the body could not be read, or has more than {} bytes: {error}",
                options.max_body_bytes
            );
            return Err((StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        Err(_) => {
            return Err((
                StatusCode::REQUEST_TIMEOUT,
                "the body did not arrive in time".to_owned(),
            ));
        }
    };
    let wrong = |message: String| (StatusCode::UNPROCESSABLE_ENTITY, message);
    let request: Request =
        serde_json::from_slice(&bytes).map_err(|error| wrong(format!("the body is no request: {error}")))?;
    let count = match request.topk {
        None | Some(0) => options.default_count,
        Some(count) => usize::try_from(count).unwrap_or(usize::MAX),
    };
    if count > options.max_count {
        return Err(wrong(format!("`topk` is {count}, above {}", options.max_count)));
    }
    let queries = request
        .queries()
        .ok_or_else(|| wrong("the body has neither `query` nor `queries`".to_owned()))?
        .len();
    if queries > options.max_queries {
        return Err(wrong(format!(
            "there are {queries} queries, more than {}",
            options.max_queries
        )));
    }
    let failed = |message: String| (StatusCode::INTERNAL_SERVER_ERROR, message);
    let _worker = shared
        .workers
        .acquire()
        .await
        .map_err(|error| failed(error.to_string()))?;
    let retriever = Arc::clone(&shared.retriever);
    let work = move || {
        let queries = request.queries().unwrap_or_default();
        let found = retriever
            .retrieve(&queries, count)
            .map_err(|error| error.to_string())?;
        answer_body(&found, request.return_scores).map_err(|error| error.to_string())
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer.map_err(failed),
        Err(_) => Err(failed("the retriever panicked".to_owned())),
    }
}
