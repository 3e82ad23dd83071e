//! The HTTP server: the listener, and worker threads that serve connections. `dispatch` authenticates each request
//! before routing it, except on public paths, so that an unauthenticated caller learns nothing about them.

mod client;
mod dispatch;
mod errors;
mod worker;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::api::Api;
use crate::app::App;
use crate::console::Console;
use crate::services::StartError;
use worker::{Handlers, WorkerThread};

/// The pause after a failed accept, usually for lack of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Binds the address, with an error message that names the remedy.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|error| StartError::Listen {
        address: address.to_string(),
        why: match error.kind() {
            ErrorKind::AddrInUse => {
                "another process uses this address; stop it, or set GATEWAY_LISTEN to another one".into()
            }
            ErrorKind::PermissionDenied => {
                "permission denied; ports below 1024 need special rights, set GATEWAY_LISTEN to a higher port"
                    .into()
            }
            _ => error.to_string(),
        },
    })
}

/// The worker threads, which have their own runtimes: a proxied request never changes threads, and a busy management
/// call does not delay it.
pub struct Server {
    app: Arc<App>,
    workers: Vec<WorkerThread>,
}

impl Server {
    /// Starts all worker threads. If one cannot start, the others stop.
    pub fn start(app: Arc<App>) -> Result<Self, StartError> {
        let handlers = Handlers {
            api: Arc::new(Api::new(Arc::clone(&app))),
            console: Arc::new(Console::load()),
            app: Arc::clone(&app),
        };
        let lanes = 0..app.services.config.workers;
        let workers =
            lanes.map(|lane| WorkerThread::start(lane, handlers.clone())).collect::<Result<_, _>>()?;
        Ok(Self { app, workers })
    }

    /// Distributes connections over the workers until the application shuts down, then finishes the requests in
    /// progress.
    pub async fn run(self, listener: TcpListener) {
        let Self { app, workers } = self;
        accept(&app, &workers, listener).await;
        // All channels are closed before the first wait, so that the workers stop in parallel.
        let ended: Vec<_> = workers.into_iter().map(WorkerThread::stop).collect();
        for worker in ended {
            let _ = worker.await;
        }
    }
}

async fn accept(app: &App, workers: &[WorkerThread], listener: TcpListener) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = app.services.tasks.stopping() => break,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            continue;
        };
        if let Ok(stream) = stream.into_std() {
            assign(workers, stream, peer).await;
        }
    }
    // Connections that wait in the backlog are served; dropping the listener would reset them.
    if let Ok(listener) = listener.into_std() {
        while let Ok((stream, peer)) = listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                assign(workers, stream, peer).await;
            }
        }
    }
}

/// Assigns a connection to the worker with the fewest connections.
async fn assign(workers: &[WorkerThread], stream: std::net::TcpStream, peer: SocketAddr) {
    // Otherwise a small write waits for the peer's acknowledgement of the previous one.
    let _ = stream.set_nodelay(true);
    if let Some(worker) = workers.iter().min_by_key(|worker| worker.open_connections()) {
        worker.send(stream, peer).await;
    }
}
