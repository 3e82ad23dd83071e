//! HTTP/1.1 connection pool with keep-alive, plain or over TLS. A connection has no task of its own: the request that
//! uses it polls it. The response therefore never crosses tasks, and the head is forwarded together with the first body
//! chunk. Dropping a request drops its connection, which also cancels the request at the provider.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::uri::Authority;
use http::{Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::body::OutboundBody;
use super::clients::SendError;
use super::connector::Connector;
use super::http1::{Connection, ConnectionError};
use crate::read_budget::ReadBudget;

pub struct Pool {
    connector: Connector,
    idle: Arc<IdleConnections>,
}

/// Idle connections with the time they became idle, by authority, the most recently used last. The key is a `String`
/// because `Authority` hashes byte by byte.
type ConnectionsByAuthority = HashMap<String, Vec<(Box<Connection>, Instant)>>;

struct IdleConnections {
    connections: Mutex<ConnectionsByAuthority>,
    idle_timeout: Duration,
    max_per_host: usize,
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
    pub(super) async fn connection(&self, uri: &Uri) -> Result<Box<Connection>, SendError> {
        let Some(authority) = uri.authority() else {
            return Err(SendError::Connect("the address has no host".into()));
        };
        match self.idle.take(authority) {
            Some(connection) => Ok(connection),
            // Boxed, because a request rarely needs one.
            None => Box::pin(self.connect(uri)).await,
        }
    }

    pub(super) async fn send_on(
        &self,
        mut connection: Box<Connection>,
        request: Request<OutboundBody>,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let Some(authority) = request.uri().authority().cloned() else {
            return Err(SendError::Connect("the address has no host".into()));
        };
        let response = connection.send(request).await?;
        let pool = Some((Arc::clone(&self.idle), authority));
        let source = Source::Http1(connection);
        let mut body = UpstreamBody { source, read_budget: ReadBudget::default(), pool };
        body.release_at_end();
        Ok(response.map(|()| body))
    }

    /// Closes the idle connections past their timeout.
    pub fn close_expired(&self) {
        let now = Instant::now();
        self.idle.lock().retain(|_, connections| {
            connections.retain_mut(|(connection, idle_since)| {
                now < *idle_since + self.idle.idle_timeout && connection.is_idle()
            });
            !connections.is_empty()
        });
    }

    async fn connect(&self, uri: &Uri) -> Result<Box<Connection>, SendError> {
        let io = self.connector.connect(uri.clone()).await.map_err(SendError::Connect)?;
        Ok(Box::new(Connection::new(io)))
    }
}

impl IdleConnections {
    fn lock(&self) -> MutexGuard<'_, ConnectionsByAuthority> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the most recently used connection that is still open.
    fn take(&self, authority: &Authority) -> Option<Box<Connection>> {
        let mut connections = self.lock();
        let idle = connections.get_mut(authority.as_str())?;
        while let Some((mut connection, idle_since)) = idle.pop() {
            if idle_since.elapsed() < self.idle_timeout && connection.is_idle() {
                return Some(connection);
            }
        }
        None
    }

    fn put(&self, authority: &Authority, mut connection: Box<Connection>) {
        if !connection.is_idle() {
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

/// A response body with the connection it is read from. At its end the connection returns to the pool.
pub struct UpstreamBody {
    source: Source,
    read_budget: ReadBudget,
    pool: Option<(Arc<IdleConnections>, Authority)>,
}

enum Source {
    Http1(Box<Connection>),
    /// Of a connection that hyper-util's client manages.
    Http2(Incoming),
    Ended,
}

impl UpstreamBody {
    fn release_at_end(&mut self) {
        if !matches!(&self.source, Source::Http1(connection) if connection.is_done()) {
            return;
        }
        let source = std::mem::replace(&mut self.source, Source::Ended);
        if let (Source::Http1(connection), Some((idle, authority))) = (source, self.pool.take()) {
            idle.put(&authority, connection);
        }
    }

    fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        match &mut self.source {
            Source::Http1(connection) => connection.poll_data(context).map_ok(Frame::data),
            Source::Http2(incoming) => Pin::new(incoming).poll_frame(context).map_err(Into::into),
            Source::Ended => Poll::Ready(None),
        }
    }
}

impl From<Incoming> for UpstreamBody {
    fn from(incoming: Incoming) -> Self {
        Self { source: Source::Http2(incoming), read_budget: ReadBudget::default(), pool: None }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = ConnectionError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        let this = &mut *self;
        if this.read_budget.must_yield(context) {
            return Poll::Pending;
        }
        let polled = this.poll_data(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                this.read_budget.consume(frame.data_ref().map_or(0, Bytes::len));
                this.release_at_end();
            }
            Poll::Ready(None) => this.release_at_end(),
            Poll::Ready(Some(Err(_))) => this.source = Source::Ended,
            Poll::Pending => this.read_budget.reset(),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Http1(connection) => connection.is_done(),
            Source::Http2(incoming) => incoming.is_end_stream(),
            Source::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Http1(connection) => {
                connection.rest().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            Source::Http2(incoming) => incoming.size_hint(),
            Source::Ended => SizeHint::with_exact(0),
        }
    }
}
