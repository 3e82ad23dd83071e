//! A programmable upstream for proxy tests: a loopback HTTP/1.1 server that works on raw bytes. It records exactly
//! what the gateway sent, and its replies can be slow, truncated or malformed.
//!
//! Replies come from a queue (`push`), then from the default reply (`set_default_reply`). Every request is recorded.

#![allow(clippy::disallowed_methods, reason = "a test server is no task of the application's")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test helper fails the test by panicking")]
#![allow(dead_code, reason = "a toolbox: not every tool is in use all the time")]

mod reply;
mod request;
mod serve;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

pub(crate) use reply::{Reply, Signal};
pub(crate) use request::Request;

/// Closes its listener and all connections when dropped.
pub(crate) struct Upstream {
    address: SocketAddr,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

/// A client that disconnected while the upstream was still reading the body or playing a reply.
#[derive(Clone, Debug)]
pub(crate) struct Abort {
    pub(crate) connection: usize,
    /// Index of the request in [`Upstream::arrivals`].
    pub(crate) request: usize,
    pub(crate) at: Instant,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state = Arc::new(State::default());
        let accepting = tokio::spawn(accept(listener, Arc::clone(&state)));
        Self { address, state, accepting }
    }

    /// The base URL without a trailing slash.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Queues a reply for one request. Replies are assigned in the order in which request heads arrive.
    pub(crate) fn push(&self, reply: Reply) {
        self.state.lock().queue.push_back(reply);
    }

    /// Sets the reply for requests that find the queue empty.
    pub(crate) fn set_default_reply(&self, reply: Reply) {
        self.state.lock().always = Some(reply);
    }

    /// Returns the complete requests, ordered by the arrival of their heads.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.state.lock().arrivals.iter().filter(|request| request.complete).cloned().collect()
    }

    /// Returns all requests whose head arrived, with the body bytes received so far.
    pub(crate) fn arrivals(&self) -> Vec<Request> {
        self.state.lock().arrivals.clone()
    }

    pub(crate) fn aborts(&self) -> Vec<Abort> {
        self.state.lock().aborts.clone()
    }

    /// Number of connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.state.lock().connections
    }

    /// Number of connections that are open now.
    pub(crate) fn open_connections(&self) -> usize {
        self.state.lock().open
    }

    /// Waits for at least `n` complete requests and panics on timeout.
    pub(crate) async fn wait_for_requests(&self, n: usize, limit: Duration) -> Vec<Request> {
        self.wait_until(limit, &format!("{n} requests"), || self.requests().len() >= n).await;
        self.requests()
    }

    /// Waits for at least `n` aborts and panics on timeout.
    pub(crate) async fn wait_for_aborts(&self, n: usize, limit: Duration) -> Vec<Abort> {
        self.wait_until(limit, &format!("{n} aborts"), || self.aborts().len() >= n).await;
        self.aborts()
    }

    /// Waits until the condition holds and panics on timeout.
    pub(crate) async fn wait_until(&self, limit: Duration, what: &str, is_true: impl Fn() -> bool) {
        let mut changes = self.state.changes.subscribe();
        let waited = timeout(limit, changes.wait_for(|()| is_true())).await;
        if waited.is_err() {
            let state = self.state.lock();
            let lines: Vec<&str> = state.arrivals.iter().map(|request| request.line.as_str()).collect();
            panic!("no {what} within {limit:?}; arrivals: {lines:?}, aborts: {:?}", state.aborts);
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        // Aborting the accept task also drops its connections.
        self.accepting.abort();
    }
}

/// An address that refuses every connection. The bound socket keeps other tests from listening on the port.
pub(crate) struct RefusingAddress {
    socket: TcpSocket,
}

impl RefusingAddress {
    pub(crate) fn start() -> Self {
        let socket = TcpSocket::new_v4().expect("sockets can be had");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("loopback has a free port");
        Self { socket }
    }

    /// The base URL without a trailing slash.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.socket.local_addr().expect("a bound socket has an address"))
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let number = state.change(|inner| {
            inner.connections += 1;
            inner.open += 1;
            inner.connections - 1
        });
        let state = Arc::clone(&state);
        connections.spawn(async move {
            serve::connection(stream, number, &state).await;
            state.change(|inner| inner.open -= 1);
        });
        while connections.try_join_next().is_some() {}
    }
}

/// State shared by the server tasks and the test.
struct State {
    inner: Mutex<Inner>,
    changes: watch::Sender<()>,
}

#[derive(Default)]
struct Inner {
    queue: VecDeque<Reply>,
    always: Option<Reply>,
    arrivals: Vec<Request>,
    aborts: Vec<Abort>,
    connections: usize,
    open: usize,
}

impl Default for State {
    fn default() -> Self {
        Self { inner: Mutex::default(), changes: watch::channel(()).0 }
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of this lock panics")
    }

    /// Applies a change and wakes all waiters.
    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let result = change(&mut self.lock());
        self.changes.send_replace(());
        result
    }

    /// Records a request whose head is complete and returns its index and reply.
    fn arrive(&self, request: Request) -> (usize, Reply) {
        self.change(|inner| {
            inner.arrivals.push(request);
            let reply = inner.queue.pop_front().or_else(|| inner.always.clone());
            (inner.arrivals.len() - 1, reply.unwrap_or_else(Reply::unscripted))
        })
    }

    fn abort(&self, connection: usize, request: usize) {
        let at = Instant::now();
        self.change(|inner| inner.aborts.push(Abort { connection, request, at }));
    }
}
