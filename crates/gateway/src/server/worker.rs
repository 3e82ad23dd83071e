//! Worker threads. Each has a single-threaded runtime, its own connections to providers and its own lane of the log
//! spool, and serves the client connections that are assigned to it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use super::dispatch::{Dispatcher, respond};
use crate::api::Api;
use crate::app::App;
use crate::console::Console;
use crate::outbound::clients::Clients;
use crate::proxy::Worker;
use crate::services::StartError;
use crate::tasks::Tasks;
use crate::write_timeout::WriteTimeoutIo;

/// For the head of a request, also the first one of a connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// For a client that does not read its response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_HEADER_LIST_BYTES: u32 = 64 << 10;
/// How often unused connections to providers are closed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(15);
/// For requests in progress when the service stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// When the service stops, connections accept requests for this long, because a request may already be on its way.
const STOP_GRACE: Duration = Duration::from_secs(1);
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Connections that may wait until the worker takes them.
const MAX_QUEUED_CONNECTIONS: usize = 1024;

/// The request handlers, shared by all workers.
#[derive(Clone)]
pub struct Handlers {
    pub app: Arc<App>,
    pub api: Arc<Api>,
    pub console: Arc<Console>,
}

pub struct WorkerThread {
    connections: mpsc::Sender<Connection>,
    open: Arc<AtomicUsize>,
    ended: oneshot::Receiver<()>,
}

type Connection = (std::net::TcpStream, SocketAddr);

impl WorkerThread {
    pub fn start(lane: usize, handlers: Handlers) -> Result<Self, StartError> {
        let (connections, incoming) = mpsc::channel(MAX_QUEUED_CONNECTIONS);
        let (end, ended) = oneshot::channel();
        let open = Arc::new(AtomicUsize::new(0));
        let worker_open = Arc::clone(&open);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(StartError::Thread)?;
        let run = move || {
            runtime.block_on(work(lane, handlers, incoming, worker_open));
            // Dropping the runtime drops aborted requests, which then write their log rows.
            drop(runtime);
            let _ = end.send(());
        };
        let thread = std::thread::Builder::new().name(format!("worker-{lane}")).spawn(run);
        thread.map_err(StartError::Thread)?;
        Ok(Self { connections, open, ended })
    }

    pub fn open_connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub async fn send(&self, stream: std::net::TcpStream, peer: SocketAddr) {
        self.open.fetch_add(1, Ordering::Relaxed);
        // An error means that the worker has ended; the connection is then closed.
        let _ = self.connections.send((stream, peer)).await;
    }

    /// Closes the channel, which makes the worker drain. The receiver resolves when the thread has ended.
    pub fn stop(self) -> oneshot::Receiver<()> {
        self.ended
    }
}

/// Counts a connection until it is dropped, also by a panic.
struct OpenConnection(Arc<AtomicUsize>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves connections until the channel closes, then drains.
async fn work(
    lane: usize,
    handlers: Handlers,
    mut incoming: mpsc::Receiver<Connection>,
    open: Arc<AtomicUsize>,
) {
    let graceful = GracefulShutdown::new();
    let builder = connection_builder();
    let write_timeout = handlers.app.services.config.proxy_timeout.min(WRITE_TIMEOUT);
    let dispatcher = Arc::new(Dispatcher { handlers, worker: Worker { lane, clients: Clients::new() } });
    let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
    loop {
        let received = tokio::select! {
            received = incoming.recv() => received,
            _ = sweep.tick() => {
                dispatcher.worker.clients.close_expired();
                continue;
            }
        };
        let Some((stream, peer)) = received else { break };
        let Ok(stream) = TcpStream::from_std(stream) else {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        };
        let dispatcher = Arc::clone(&dispatcher);
        let counted = OpenConnection(Arc::clone(&open));
        let (builder, watcher) = (builder.clone(), graceful.watcher());
        let connection = async move {
            let _counted = counted;
            if is_readable(&stream, &dispatcher.handlers.app.services.tasks).await {
                let service = service_fn(move |request| {
                    let dispatcher = Arc::clone(&dispatcher);
                    // Boxed, because hyper moves the future and keeps its memory while a stream runs for minutes.
                    Box::pin(async move { Ok::<_, Infallible>(respond(&dispatcher, peer, request).await) })
                });
                let io = WriteTimeoutIo::new(stream, write_timeout);
                // Errors of a connection need no handling: its requests have written their own log rows.
                let _ = watcher.watch(builder.serve_connection(io, service).into_owned()).await;
            }
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "connections live on this runtime and are drained below"
        )]
        tokio::spawn(connection);
    }
    let deadline = Instant::now() + STOP_GRACE;
    while open.load(Ordering::Relaxed) > 0 && Instant::now() < deadline {
        tokio::time::sleep(STOP_POLL_INTERVAL).await;
    }
    if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not finish in time and were aborted");
    }
}

fn connection_builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEADER_LIST_BYTES)
        .keep_alive_interval(HEADER_TIMEOUT)
        .keep_alive_timeout(HEADER_TIMEOUT);
    builder
}

/// Waits for the first bytes of a connection. Returns false on a timeout, or soon after the service stops.
async fn is_readable(stream: &TcpStream, tasks: &Tasks) -> bool {
    let stop = async {
        tasks.stopping().await;
        tokio::time::sleep(STOP_GRACE).await;
    };
    tokio::select! {
        readable = tokio::time::timeout(HEADER_TIMEOUT, stream.readable()) => matches!(readable, Ok(Ok(()))),
        () = stop => false,
    }
}
