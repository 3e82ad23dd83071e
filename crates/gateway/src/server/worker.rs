//! Worker threads. Each has a single-threaded runtime, its own connections to providers and its own lane of the log
//! spool, and serves the client connections that are assigned to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsAcceptor;

use super::connection::{Client, connection_builder, serve};
use super::dispatch::Dispatcher;
use super::request_futures::RequestFutures;
use crate::api::Api;
use crate::app::App;
use crate::console::Console;
use crate::outbound::clients::Clients;
use crate::proxy::Worker;
use crate::services::StartError;

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
    pub tls: Option<TlsAcceptor>,
}

pub struct WorkerThread {
    connections: mpsc::Sender<Client>,
    open: Arc<AtomicUsize>,
    ended: oneshot::Receiver<()>,
}

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

    pub async fn send(&self, client: Client) {
        self.open.fetch_add(1, Ordering::Relaxed);
        // An error means that the worker has ended; the connection is then closed.
        let _ = self.connections.send(client).await;
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
async fn work(lane: usize, handlers: Handlers, mut incoming: mpsc::Receiver<Client>, open: Arc<AtomicUsize>) {
    let app = Arc::clone(&handlers.app);
    let builder = connection_builder();
    let dispatcher = Arc::new(Dispatcher { handlers, worker: Worker { lane, clients: Clients::new() } });
    let futures = Arc::<RequestFutures>::default();
    let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
    loop {
        let received = tokio::select! {
            received = incoming.recv() => received,
            _ = sweep.tick() => {
                dispatcher.worker.clients.close_expired();
                continue;
            }
        };
        let Some(client) = received else { break };
        let (dispatcher, futures, builder) = (Arc::clone(&dispatcher), Arc::clone(&futures), builder.clone());
        let counted = OpenConnection(Arc::clone(&open));
        let connection = async move {
            let _counted = counted;
            serve((dispatcher, futures), builder, client).await;
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "connections live on this runtime and are drained below"
        )]
        tokio::spawn(connection);
    }
    if !has_drained(&open, STOP_GRACE).await {
        app.connections.close_all();
        if !has_drained(&open, DRAIN_TIMEOUT).await {
            tracing::warn!("some requests did not finish in time and were aborted");
        }
    }
}

/// Waits until all connections have closed. Returns false after the timeout.
async fn has_drained(open: &AtomicUsize, timeout: Duration) -> bool {
    let deadline = Instant::now() + timeout;
    while open.load(Ordering::Relaxed) > 0 {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(STOP_POLL_INTERVAL).await;
    }
    true
}
