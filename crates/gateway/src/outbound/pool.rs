//! HTTP/1.1 connection pool with keep-alive, plain or over TLS. A connection has no task of its own: the request that
//! uses it polls it. The response therefore never crosses tasks, and the head is forwarded together with the first body
//! chunk. Dropping a request drops its connection, which also cancels the request at the provider.

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http::header::HOST;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};

use super::body::OutboundBody;
use super::clients::SendError;
use super::connector::{Connector, Io};

/// What a host may make the gateway buffer: the head of a response, or a body that the caller reads slowly.
const MAX_BUFFER: usize = 64 << 10;

pub struct Pool {
    connector: Connector,
    idle: Arc<IdleConnections>,
}

/// Idle connections with the time they became idle, by authority, the most recently used last. The key is a `String`
/// because `Authority` hashes byte by byte.
type ConnectionsByAuthority = HashMap<String, Vec<(Box<PooledConnection>, Instant)>>;

struct IdleConnections {
    connections: Mutex<ConnectionsByAuthority>,
    idle_timeout: Duration,
    max_per_host: usize,
}

/// A connection for one request.
pub(super) struct Checkout {
    connection: Box<PooledConnection>,
    /// It was idle before, so the host may have closed it.
    reused: bool,
}

impl Pool {
    pub(super) fn new(connector: Connector, idle_timeout: Duration, max_per_host: usize) -> Self {
        let idle = IdleConnections { connections: Mutex::default(), idle_timeout, max_per_host };
        Self { connector, idle: Arc::new(idle) }
    }

    pub async fn send(&self, request: Request<OutboundBody>) -> Result<Response<UpstreamBody>, SendError> {
        let connection = self.connection(request.uri()).await?;
        self.send_on(connection, request).await
    }

    /// A connection to the host: an idle one, or a new one.
    pub(super) async fn connection(&self, uri: &Uri) -> Result<Checkout, SendError> {
        let Some(authority) = uri.authority() else {
            return Err(SendError::Connect("the address has no host".into()));
        };
        match self.idle.take(authority) {
            Some(connection) => Ok(Checkout { connection, reused: true }),
            None => Ok(Checkout { connection: self.connect(uri).await?, reused: false }),
        }
    }

    pub(super) async fn send_on(
        &self,
        mut checkout: Checkout,
        mut request: Request<OutboundBody>,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let uri = request.uri().clone();
        let Some(authority) = uri.authority() else {
            return Err(SendError::Connect("the address has no host".into()));
        };
        request.headers_mut().entry(HOST).or_insert_with(|| host_header(&uri, authority));
        *request.uri_mut() = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")).into();
        loop {
            let Checkout { mut connection, reused } = checkout;
            match connection.send(request).await {
                Ok(response) => {
                    let (head, incoming) = response.into_parts();
                    let pool = Some((Arc::clone(&self.idle), authority.clone()));
                    let mut body = UpstreamBody {
                        incoming,
                        read_budget: ReadBudget::default(),
                        connection: Some(connection),
                        pool,
                    };
                    body.release_at_end();
                    return Ok(Response::from_parts(head, body));
                }
                Err(mut error) => match error.take_message() {
                    // The provider closed the idle connection before the request was sent: retry on another.
                    Some(unsent) if reused => request = unsent,
                    _ => return Err(error.into_error().into()),
                },
            }
            checkout = self.connection(&uri).await?;
        }
    }

    /// Closes the idle connections past their timeout.
    pub fn close_expired(&self) {
        let now = Instant::now();
        self.idle.lock().retain(|_, connections| {
            connections.retain_mut(|(connection, idle_since)| {
                now < *idle_since + self.idle.idle_timeout && connection.is_open()
            });
            !connections.is_empty()
        });
    }

    async fn connect(&self, uri: &Uri) -> Result<Box<PooledConnection>, SendError> {
        let io = self.connector.connect(uri.clone()).await.map_err(SendError::Connect)?;
        let (sender, connection) = http1::Builder::new().max_buf_size(MAX_BUFFER).handshake(io).await?;
        let repoll = Arc::new(RepollWaker::default());
        let waker = Arc::clone(&repoll).into();
        Ok(Box::new(PooledConnection { sender, connection, waker, repoll, closed: false }))
    }
}

fn host_header(uri: &Uri, authority: &Authority) -> HeaderValue {
    let host = match (authority.port_u16(), uri.scheme_str()) {
        (Some(80), Some("http")) | (Some(443), Some("https")) => authority.host(),
        _ => authority.as_str().rsplit('@').next().unwrap_or_default(),
    };
    HeaderValue::from_str(host).unwrap_or_else(|_| HeaderValue::from_static(""))
}

impl IdleConnections {
    fn lock(&self) -> MutexGuard<'_, ConnectionsByAuthority> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the most recently used connection that is still open.
    fn take(&self, authority: &Authority) -> Option<Box<PooledConnection>> {
        let mut connections = self.lock();
        let idle = connections.get_mut(authority.as_str())?;
        while let Some((mut connection, idle_since)) = idle.pop() {
            if idle_since.elapsed() < self.idle_timeout && connection.is_open() {
                return Some(connection);
            }
        }
        None
    }

    fn put(&self, authority: &Authority, mut connection: Box<PooledConnection>) {
        if !connection.is_open() {
            return;
        }
        let mut connections = self.lock();
        let idle = match connections.get_mut(authority.as_str()) {
            Some(idle) => idle,
            None => connections.entry(authority.as_str().to_owned()).or_default(),
        };
        if idle.len() < self.max_per_host {
            idle.push((connection, Instant::now()));
        }
    }
}

/// An HTTP/1.1 connection that is polled by the request that uses it.
struct PooledConnection {
    sender: SendRequest<OutboundBody>,
    connection: Connection<Io, OutboundBody>,
    repoll: Arc<RepollWaker>,
    /// `repoll` as a `Waker`, built once per connection.
    waker: Waker,
    closed: bool,
}

type SendRequestError = hyper::client::conn::TrySendError<Request<OutboundBody>>;

impl PooledConnection {
    async fn send(&mut self, request: Request<OutboundBody>) -> Result<Response<Incoming>, SendRequestError> {
        let mut sending = pin!(self.sender.try_send_request(request));
        let Self { connection, repoll, waker, closed, .. } = self;
        std::future::poll_fn(|context| {
            repoll.poll(context, waker, |context| {
                drive(connection, closed, context);
                sending.as_mut().poll(context)
            })
        })
        .await
    }

    fn poll_body(
        &mut self,
        context: &mut Context<'_>,
        body: &mut Incoming,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self { connection, repoll, waker, closed, .. } = self;
        repoll.poll(context, waker, |context| {
            drive(connection, closed, context);
            Pin::new(&mut *body).poll_frame(context)
        })
    }

    /// Whether the connection can take a request. An idle connection needs no waker.
    fn is_open(&mut self) -> bool {
        drive(&mut self.connection, &mut self.closed, &mut Context::from_waker(Waker::noop()));
        !self.closed && self.sender.is_ready()
    }
}

/// Does the pending reads and writes. Errors reach the caller through the response future or its body.
fn drive(connection: &mut Connection<Io, OutboundBody>, closed: &mut bool, context: &mut Context<'_>) {
    if !*closed {
        *closed = Pin::new(connection).poll(context).is_ready();
    }
}

/// Polls a connection and its request in place. The two wake each other, but they run in one task, so a wake-up during
/// a poll only means another poll. Polling again at once avoids a pass through the scheduler.
#[derive(Default)]
struct RepollWaker {
    state: AtomicU8,
    task: AtomicWaker,
}

const IDLE: u8 = 0;
const POLLING: u8 = 1;
const WOKEN: u8 = 2;
/// After this number of polls the task yields to the scheduler.
const MAX_POLLS: usize = 16;

impl RepollWaker {
    fn poll<T>(
        &self,
        outer: &mut Context<'_>,
        waker: &Waker,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.task.register(outer.waker());
        let mut inner = Context::from_waker(waker);
        for _ in 0..MAX_POLLS {
            self.state.store(POLLING, Ordering::Release);
            if let Poll::Ready(output) = poll(&mut inner) {
                self.state.store(IDLE, Ordering::Release);
                return Poll::Ready(output);
            }
            let not_woken =
                self.state.compare_exchange(POLLING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok();
            if not_woken {
                return Poll::Pending;
            }
        }
        self.state.store(IDLE, Ordering::Release);
        outer.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Wake for RepollWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let during_poll = self
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| (state != IDLE).then_some(WOKEN));
        if during_poll.is_err() {
            self.task.wake();
        }
    }
}

/// Bytes of a body that a task reads before it yields to the other tasks of its worker. A provider that sends faster than
/// the gateway reads would otherwise occupy the worker for as long as it sends.
const READ_BUDGET: usize = 256 << 10;

/// Counts what a task has read of a body since it last waited or yielded.
#[derive(Default)]
struct ReadBudget {
    used: usize,
}

impl ReadBudget {
    /// Whether the task must yield. It is woken again at once, behind the tasks that are ready.
    fn must_yield(&mut self, context: &Context<'_>) -> bool {
        let is_exhausted = self.used >= READ_BUDGET;
        if is_exhausted {
            self.used = 0;
            context.waker().wake_by_ref();
        }
        is_exhausted
    }

    fn consume(&mut self, bytes: usize) {
        self.used += bytes;
    }

    /// The task waits for the provider, so other tasks run anyway.
    fn reset(&mut self) {
        self.used = 0;
    }
}

/// A response body with the connection it is read from. At its end the connection returns to the pool.
pub struct UpstreamBody {
    incoming: Incoming,
    read_budget: ReadBudget,
    connection: Option<Box<PooledConnection>>,
    pool: Option<(Arc<IdleConnections>, Authority)>,
}

impl UpstreamBody {
    fn release_at_end(&mut self) {
        if self.incoming.is_end_stream() {
            self.release();
        }
    }

    fn release(&mut self) {
        if let (Some(connection), Some((idle, authority))) = (self.connection.take(), self.pool.take()) {
            idle.put(&authority, connection);
        }
    }
}

/// The body of a response whose connection hyper-util's client manages.
impl From<Incoming> for UpstreamBody {
    fn from(incoming: Incoming) -> Self {
        Self { incoming, read_budget: ReadBudget::default(), connection: None, pool: None }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self { incoming, read_budget, connection, .. } = &mut *self;
        if read_budget.must_yield(context) {
            return Poll::Pending;
        }
        let polled = match connection {
            Some(connection) => connection.poll_body(context, incoming),
            None => Pin::new(incoming).poll_frame(context),
        };
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                read_budget.consume(frame.data_ref().map_or(0, Bytes::len));
                self.release_at_end();
            }
            Poll::Ready(None) => self.release(),
            Poll::Ready(Some(Err(_))) => self.connection = None,
            Poll::Pending => read_budget.reset(),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_body_that_never_waits_yields_to_other_tasks() {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let context = Context::from_waker(&waker);
        let mut budget = ReadBudget::default();
        let yields = (0..16).filter(|_| {
            budget.consume(READ_BUDGET / 4);
            budget.must_yield(&context)
        });
        assert_eq!(yields.count(), 4);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 4, "the task is woken again");
        budget.consume(READ_BUDGET);
        budget.reset();
        assert!(!budget.must_yield(&context), "it has waited");
    }
}
