//! One client connection: the time limits for request heads and idle connections, the protocol settings, and the
//! graceful end.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use http::Version;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::client_stream::ClientStream;
use super::dispatch::Dispatcher;
use super::guarded_body::GuardedBody;
use super::lingering_close::LingeringClose;
use super::request_futures::RequestFutures;
use super::stream_body::{OpenStreams, SentBody};
use crate::connections::OpenConnection;
use crate::write_timeout::WriteTimeoutIo;

/// For a client that does not read its response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// A connection that was asked to close and has no request is dropped after this time.
const CLOSE_GRACE: Duration = Duration::from_secs(1);
/// What a connection may make the gateway buffer before a request is authenticated.
const MAX_HTTP1_BUFFER: usize = 64 << 10;
const MAX_HEADER_LIST_BYTES: u32 = 64 << 10;
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 512 << 10;
const MAX_CONCURRENT_STREAMS: u32 = 200;
/// Streams that the client reset before they were accepted. More of them end the connection.
const MAX_RESET_STREAMS: usize = 20;
const MAX_ERROR_RESET_STREAMS: usize = 256;
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// A client that opened a connection.
pub struct Client {
    pub stream: std::net::TcpStream,
    pub peer: std::net::SocketAddr,
    pub open: OpenConnection,
}

pub fn connection_builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // hyper's timeout for heads begins with the end of the request before, not with the first byte: `serve` has its own.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(MAX_HTTP1_BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEADER_LIST_BYTES)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
        .max_local_error_reset_streams(MAX_ERROR_RESET_STREAMS)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    builder
}

/// A request head of which not all bytes have arrived.
struct OpenHead {
    number: u32,
    due: Instant,
}

enum Event {
    Closed,
    /// The timer has fired.
    Due,
}

/// Serves a connection until it closes.
pub async fn serve(
    (dispatcher, futures): (Arc<Dispatcher>, Arc<RequestFutures>),
    builder: auto::Builder<TokioExecutor>,
    client: Client,
) {
    let Client { stream, peer, open } = client;
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    let config = &dispatcher.handlers.app.services.config;
    let (head_timeout, idle_timeout) = (config.head_timeout, config.idle_timeout);
    let write_timeout = config.proxy_timeout.min(WRITE_TIMEOUT);
    let mut timer = pin!(tokio::time::sleep(head_timeout));
    let mut close_requested = pin!(open.state.close_requested());
    // Nothing is allocated for a connection that sends nothing.
    tokio::select! {
        biased;
        readable = stream.readable() => if readable.is_err() { return },
        () = close_requested.as_mut() => return,
        () = timer.as_mut() => {
            open.counters().closed_head_timeout.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
    let stream = match &dispatcher.handlers.tls {
        None => ClientStream::plain(stream),
        // The time limit of the request head includes the handshake.
        Some(acceptor) => tokio::select! {
            biased;
            accepted = acceptor.accept(stream) => match accepted {
                Ok(stream) => ClientStream::tls(stream),
                Err(_) => return,
            },
            () = close_requested.as_mut() => return,
            () = timer.as_mut() => {
                open.counters().closed_head_timeout.fetch_add(1, Ordering::Relaxed);
                return;
            }
        },
    };
    let (state, streams) = (&open.state, &OpenStreams::default());
    let service = service_fn(|request: Request<Incoming>| {
        let active = state.begin_request(request.version());
        let streams = (request.version() == Version::HTTP_2).then(|| streams.clone());
        let handling = futures.handle(&dispatcher, peer, request);
        async move {
            let response = handling.await;
            // The connection is busy until the body has been sent or dropped.
            Ok::<_, Infallible>(response.map(|body| {
                let body = GuardedBody::new(body, active);
                match streams {
                    Some(streams) => SentBody::Stream(streams.add(body, write_timeout)),
                    None => SentBody::Http1(body),
                }
            }))
        }
    });
    let reader = Arc::clone(state);
    let stream = LingeringClose::new(stream, Arc::clone(state));
    let io = WriteTimeoutIo::new(stream, write_timeout, move || reader.note_bytes());
    let mut http = pin!(builder.serve_connection(io, service));
    let (mut is_closing, mut head) = (false, None::<OpenHead>);
    loop {
        let event = poll_fn(|context| {
            // Errors of a connection need no handling: its requests have written their own log rows.
            if http.as_mut().poll(context).is_ready() {
                return Poll::Ready(Event::Closed);
            }
            // Mostly a head arrives as a whole, and no time is read for it.
            let open_head = state.open_head();
            if open_head != head.as_ref().map(|head| head.number) {
                let due = Instant::now() + head_timeout;
                head = open_head.map(|number| OpenHead { number, due });
                if head.is_some() && due < timer.deadline() {
                    timer.as_mut().reset(due);
                }
            }
            timer.as_mut().poll(context).map(|()| Event::Due)
        });
        tokio::select! {
            biased;
            () = close_requested.as_mut(), if !is_closing => {
                is_closing = true;
                http.as_mut().graceful_shutdown();
                timer.as_mut().reset(Instant::now() + CLOSE_GRACE);
                continue;
            }
            event = event => match event {
                Event::Closed => return,
                Event::Due => {}
            },
        }
        let now = Instant::now();
        let next = match (state.idle_time(), &head) {
            (Some(_), _) if is_closing => return,
            (None, _) if is_closing => now + CLOSE_GRACE,
            (Some(_), Some(head)) if state.had_request() && head.due > now => head.due,
            (_, head) if head.is_some() || !state.had_request() => {
                open.counters().closed_head_timeout.fetch_add(1, Ordering::Relaxed);
                return;
            }
            (Some(idle), _) if idle >= idle_timeout => {
                open.counters().closed_idle.fetch_add(1, Ordering::Relaxed);
                state.request_close();
                continue;
            }
            (idle, _) => now + idle_timeout.saturating_sub(idle.unwrap_or_default()),
        };
        let next = if streams.drop_stalled(now) { next.min(now + write_timeout / 4) } else { next };
        timer.as_mut().reset(next);
    }
}
