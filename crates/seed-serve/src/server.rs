//! The HTTP side: who is let in, which path does what, and an end that lets requests finish.
//!
//! Bodies, the time they take, and the number of sequences at a time are bounded. A request whose client goes away
//! leaves the batch at the next token.
//!
//! Not for: what requests mean, or generating.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_core::Stream;
use seed_http::Guard;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api_error::{ApiError, json_response};
use crate::model::Facts;
use crate::request::{Asked, Form};
use crate::response::{Answer, Chunks, Whole};
use crate::worker::{self, Command, Event, Job};
use crate::{ServeError, ServeOptions, ServedModel, body, update};

/// Between two looks at whether to stop.
const STOP_POLL: Duration = Duration::from_millis(50);

/// A server that listens and is not yet answering.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    model: ServedModel,
    shared: Shared,
    commands: Receiver<Command>,
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Sequences that were given up because they took longer than [`ServeOptions::drain_timeout`].
    pub abandoned: usize,
}

pub(crate) struct Shared {
    facts: Arc<Facts>,
    pub(crate) options: ServeOptions,
    guard: Guard,
    /// One permit for each sequence in progress or waiting.
    places: Arc<Semaphore>,
    pub(crate) commands: Sender<Command>,
    /// When the server was started, in seconds since 1970.
    started: u64,
    answers: AtomicU64,
}

impl Server {
    /// Takes the address. Requests are accepted from here on and answered by [`Server::run`].
    ///
    /// # Errors
    /// [`ServeError::Guard`] for an address that others can reach without a token, or a variable without one;
    /// [`ServeError::Option`] for a bound that is zero; [`ServeError::Listen`] when the address is taken or not this
    /// machine's.
    pub fn bind(model: ServedModel, options: ServeOptions) -> Result<Self, ServeError> {
        options.validate()?;
        let guard = Guard::new(options.address, options.token_variable.as_deref())?;
        let listen = |source| ServeError::Listen {
            address: options.address,
            source,
        };
        let listener = TcpListener::bind(options.address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (sender, commands) = channel();
        Ok(Self {
            listener,
            address,
            shared: Shared {
                facts: Arc::clone(&model.facts),
                places: Arc::new(Semaphore::new(options.places())),
                guard,
                commands: sender,
                started: now(),
                answers: AtomicU64::new(0),
                options,
            },
            model,
            commands,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until `stop` says so; then takes no more and finishes those under way, as long as
    /// [`ServeOptions::drain_timeout`] allows.
    ///
    /// # Errors
    /// [`ServeError::Io`] when threads or the listener fail, [`ServeError::Panicked`] when generating does.
    pub fn run(self, stop: impl Fn() -> bool + Send + Sync + 'static) -> Result<Drained, ServeError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(2)
            .thread_name("http")
            .enable_io()
            .enable_time()
            .build()?;
        let working = Arc::new(AtomicBool::new(true));
        let thread = {
            let (model, commands, working) = (self.model, self.commands, Arc::clone(&working));
            let options = self.shared.options.clone();
            std::thread::Builder::new()
                .name("generation".to_owned())
                .spawn(move || {
                    let _ended = Ended(working);
                    worker::work(model, &options, &commands);
                })?
        };
        let (total, drain) = (self.shared.options.places(), self.shared.options.drain_timeout);
        let sequences = Arc::clone(&self.shared.places);
        let (listener, shared) = (self.listener, Arc::new(self.shared));
        let served = runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let (told, stopping) = tokio::sync::oneshot::channel::<()>();
            let stopped = async move {
                while working.load(Ordering::SeqCst) && !stop() {
                    tokio::time::sleep(STOP_POLL).await;
                }
                let _ = told.send(());
            };
            let serving = axum::serve(listener, router(shared)).with_graceful_shutdown(stopped);
            let patience = async move {
                let _ = stopping.await;
                tokio::time::sleep(drain).await;
            };
            let mut serving = std::pin::pin!(serving.into_future());
            let mut patience = std::pin::pin!(patience);
            std::future::poll_fn(move |context| {
                if let Poll::Ready(result) = serving.as_mut().poll(context) {
                    return Poll::Ready(result);
                }
                patience.as_mut().poll(context).map(Ok)
            })
            .await
        });
        let abandoned = total.saturating_sub(sequences.available_permits());
        // Ends what still runs, and with it the last of the senders that the worker listens to.
        runtime.shutdown_background();
        thread.join().map_err(|_| ServeError::Panicked)?;
        served?;
        Ok(Drained { abandoned })
    }
}

/// Tells that the worker's thread has ended, however it did.
struct Ended(Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completion))
        .route("/update_weights_from_disk", post(update_weights))
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(model))
        .layer(from_fn_with_state(Arc::clone(&shared), authorise))
        .route("/health", get(health))
        .fallback(no_path)
        .method_not_allowed_fallback(other_method)
        .with_state(shared)
}

async fn authorise(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let authorization = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    if shared.guard.admits(authorization) {
        next.run(request).await
    } else {
        ApiError::unauthorized().into_response()
    }
}

async fn health() -> Response {
    json_response(StatusCode::OK, &json!({"status": "ok"}))
}

async fn no_path(uri: Uri) -> Response {
    ApiError::no_path(uri.path()).into_response()
}

async fn other_method(method: Method, uri: Uri) -> Response {
    ApiError::method(uri.path(), method.as_str()).into_response()
}

fn model_card(shared: &Shared) -> Value {
    json!({
        "id": shared.facts.name,
        "object": "model",
        "created": shared.started,
        "owned_by": "seed",
        "max_model_len": shared.facts.context,
    })
}

async fn models(State(shared): State<Arc<Shared>>) -> Response {
    let body = json!({"object": "list", "data": [model_card(&shared)]});
    json_response(StatusCode::OK, &body)
}

async fn model(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Response {
    if name == shared.facts.name {
        json_response(StatusCode::OK, &model_card(&shared))
    } else {
        ApiError::no_model(&name, &shared.facts.name).into_response()
    }
}

async fn chat(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Body) -> Response {
    let answer = generate(shared, Form::Chat, &headers, body).await;
    answer.unwrap_or_else(IntoResponse::into_response)
}

async fn completion(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Body) -> Response {
    let answer = generate(shared, Form::Completion, &headers, body).await;
    answer.unwrap_or_else(IntoResponse::into_response)
}

async fn update_weights(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Body) -> Response {
    let answer = update::update_weights(&shared, &headers, body).await;
    answer.unwrap_or_else(IntoResponse::into_response)
}

/// Reads a request, hands it to the worker, and answers.
async fn generate(
    shared: Arc<Shared>,
    form: Form,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let bytes = body::read(headers, body, &shared.options).await?;
    let facts = Arc::clone(&shared.facts);
    // Long prompts take a while to encode, and other connections are served meanwhile.
    let read = tokio::task::spawn_blocking(move || Asked::read(form, &bytes, &facts)).await;
    let asked =
        read.map_err(|_| ApiError::internal("reading the request failed, which is a fault of this server"))??;
    let all = shared.options.places();
    let sequences = asked.sequences();
    if sequences > all {
        return Err(ApiError::field(
            "n",
            format!("the request asks for {sequences} sequences; this server holds {all} at a time"),
        ));
    }
    // Within 32 bits by `places`.
    let permit = Arc::clone(&shared.places)
        .try_acquire_many_owned(sequences as u32)
        .map_err(|_| ApiError::overloaded())?;
    let asked = Arc::new(asked);
    let (sender, events) = unbounded_channel();
    let number = shared.answers.fetch_add(1, Ordering::Relaxed);
    let answer = Answer {
        facts: Arc::clone(&shared.facts),
        asked: Arc::clone(&asked),
        id: match form {
            Form::Chat => format!("chatcmpl-{}-{number}", shared.started),
            Form::Completion => format!("cmpl-{}-{number}", shared.started),
        },
        created: now(),
        weights: None,
    };
    let stream = asked.stream;
    let job = Job {
        asked,
        events: sender,
    };
    let sent = shared.commands.send(Command::Generate(job));
    sent.map_err(|_| ended())?;
    if stream {
        let pieces = Pieces {
            events,
            chunks: Chunks::new(answer),
            ready: VecDeque::new(),
            _permit: permit,
        };
        return Ok(Sse::new(pieces).keep_alive(KeepAlive::default()).into_response());
    }
    let whole = collect(events, Whole::new(answer)).await?;
    drop(permit);
    Ok(json_response(StatusCode::OK, &whole.body()))
}

async fn collect(mut events: UnboundedReceiver<Event>, mut whole: Whole) -> Result<Whole, ApiError> {
    while !whole.is_complete() {
        let event = events.recv().await.ok_or_else(ended)?;
        whole.add(event)?;
    }
    Ok(whole)
}

/// What a request is told whose worker is no more.
pub(crate) fn ended() -> ApiError {
    ApiError::internal(ENDED)
}

const ENDED: &str = "generation has ended on this server";

/// The pieces of an answer as they come.
struct Pieces {
    events: UnboundedReceiver<Event>,
    chunks: Chunks,
    ready: VecDeque<String>,
    /// Held as long as the answer goes on.
    _permit: OwnedSemaphorePermit,
}

impl Stream for Pieces {
    type Item = Result<SseEvent, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(data) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(SseEvent::default().data(data))));
            }
            if self.chunks.is_complete() {
                return Poll::Ready(None);
            }
            let Poll::Ready(event) = self.events.poll_recv(context) else {
                return Poll::Pending;
            };
            let pieces = match event {
                Some(event) => self.chunks.add(event),
                None => vec![self.chunks.fail(ENDED.to_owned())],
            };
            self.ready.extend(pieces);
        }
    }
}
