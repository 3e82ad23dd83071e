//! The response bodies of HTTP/2 streams. hyper asks a body for data only while the client's window has room, so a client
//! that grants none would hold its request, the connection to the provider and its place among the calls in progress
//! without end. The body of a stream whose client takes nothing is dropped, and the stream is reset when hyper asks for
//! more. Over HTTP/1 the write timeout does the same.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::guarded_body::GuardedBody;
use crate::connections::ActiveRequest;

/// A client that takes its response more slowly is one that takes nothing.
const MIN_BYTES_PER_SECOND: u64 = 4 << 10;

/// A response body as the connection sends it.
pub enum SentBody {
    Http1(GuardedBody<ActiveRequest>),
    Stream(StreamBody),
}

pub struct StreamBody(Arc<Mutex<State>>);

struct State {
    /// None: it was dropped because the client took nothing.
    body: Option<GuardedBody<ActiveRequest>>,
    /// Until then the client must have taken what it was given last. None: the gateway has nothing to send.
    due: Option<Instant>,
    timeout: Duration,
}

/// The streams of one connection.
#[derive(Clone, Default)]
pub struct OpenStreams(Arc<Mutex<Vec<Weak<Mutex<State>>>>>);

impl OpenStreams {
    pub fn add(&self, body: GuardedBody<ActiveRequest>, timeout: Duration) -> StreamBody {
        let state = State { body: Some(body), due: Some(Instant::now() + timeout), timeout };
        let state = Arc::new(Mutex::new(state));
        let mut open = self.lock();
        if open.len() == open.capacity() {
            open.retain(|stream| stream.strong_count() > 0);
        }
        open.push(Arc::downgrade(&state));
        StreamBody(state)
    }

    /// Drops the bodies that the client does not take. Returns whether a body is left.
    pub fn drop_stalled(&self, now: Instant) -> bool {
        let mut stalled = Vec::new();
        let mut open = self.lock();
        open.retain(|stream| {
            let Some(stream) = stream.upgrade() else { return false };
            let mut state = match stream.try_lock() {
                Ok(state) => state,
                Err(TryLockError::Poisoned(state)) => state.into_inner(),
                // It is polled now.
                Err(TryLockError::WouldBlock) => return true,
            };
            if state.due.is_some_and(|due| due <= now) {
                stalled.extend(state.body.take());
            }
            state.body.is_some()
        });
        let is_left = !open.is_empty();
        // Dropped without the lock: the end of a request may write its log row.
        drop(open);
        drop(stalled);
        is_left
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Mutex<State>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamBody {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(Some(Err(axum::Error::new("the client took nothing of the response"))));
        };
        let polled = Pin::new(body).poll_frame(context);
        self.due = match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                Some(Instant::now() + self.timeout + Duration::from_secs(bytes / MIN_BYTES_PER_SECOND))
            }
            Poll::Ready(_) | Poll::Pending => None,
        };
        polled
    }
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match &mut *self {
            Self::Http1(body) => Pin::new(body).poll_frame(context),
            Self::Stream(body) => body.lock().poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Stream(body) => body.lock().body.as_ref().is_some_and(Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Stream(body) => body.lock().body.as_ref().map(Body::size_hint).unwrap_or_default(),
        }
    }
}
