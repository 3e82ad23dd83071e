//! The HTTP server: the listener, and worker threads that serve connections. `dispatch` authenticates each request
//! before routing it, except on public paths, so that an unauthenticated caller learns nothing about them.

mod client;
mod client_stream;
mod compression;
mod connection;
mod dispatch;
mod errors;
mod guarded_body;
mod lingering_close;
mod request_futures;
mod stream_body;
mod tls;
mod worker;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::api::Api;
use crate::app::App;
use crate::connections::OpenConnection;
use crate::console::Console;
use crate::services::StartError;
use connection::Client;
use tls::Tls;
use worker::{Handlers, WorkerThread};

/// The pause after a failed accept, usually for lack of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(10);
/// Idle connections that are closed after a failed accept.
const CLOSED_PER_FAILURE: usize = 8;
/// A client that disappeared without closing its connection is noticed after about two minutes.
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(60);
const TCP_KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const TCP_KEEP_ALIVE_PROBES: u32 = 4;

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
            tls: start_tls(&app)?,
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

/// The TLS side of the listener, if it has one, with its certificate kept up to date.
fn start_tls(app: &App) -> Result<Option<TlsAcceptor>, StartError> {
    let Some(files) = &app.services.config.tls else { return Ok(None) };
    let tls = Tls::open(files)?;
    let acceptor = TlsAcceptor::from(tls.server_config()?);
    app.services.tasks.spawn(tls.watch(Arc::clone(&app.services)));
    Ok(Some(acceptor))
}

async fn accept(app: &App, workers: &[WorkerThread], listener: TcpListener) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = app.services.tasks.stopping() => break,
        };
        let Ok((stream, peer)) = accepted else {
            for _ in 0..CLOSED_PER_FAILURE {
                app.connections.make_room();
            }
            tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            continue;
        };
        // A connection that is refused closes at once.
        if let Ok(open) = app.connections.admit(peer.ip())
            && let Ok(stream) = stream.into_std()
        {
            assign(workers, stream, peer, open).await;
        }
    }
    // Connections that wait in the backlog are served; dropping the listener would reset them.
    if let Ok(listener) = listener.into_std() {
        while let Ok((stream, peer)) = listener.accept() {
            if let Ok(open) = app.connections.admit(peer.ip())
                && stream.set_nonblocking(true).is_ok()
            {
                assign(workers, stream, peer, open).await;
            }
        }
    }
}

/// Assigns a connection to the worker with the fewest connections.
async fn assign(
    workers: &[WorkerThread],
    stream: std::net::TcpStream,
    peer: SocketAddr,
    open: OpenConnection,
) {
    // Otherwise a small write waits for the peer's acknowledgement of the previous one.
    let _ = stream.set_nodelay(true);
    let _ = enable_keep_alive(&stream);
    // On a listener for both versions of IP, an IPv4 address is a part of an IPv6 address.
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    if let Some(worker) = workers.iter().min_by_key(|worker| worker.open_connections()) {
        worker.send(Client { stream, peer, open }).await;
    }
}

fn enable_keep_alive(stream: &std::net::TcpStream) -> rustix::io::Result<()> {
    sockopt::set_tcp_keepidle(stream, TCP_KEEP_ALIVE)?;
    sockopt::set_tcp_keepintvl(stream, TCP_KEEP_ALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, TCP_KEEP_ALIVE_PROBES)?;
    sockopt::set_socket_keepalive(stream, true)
}
