//! The body of a request to a provider: bytes in memory, or the caller's body as it arrives.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::memory::{HeldBuffer, Reservation};
use crate::problem::Problem;

/// The log's copy of a streamed body: its start, if bodies are logged, and its length, which the token estimate needs.
pub struct StreamedCopy {
    prefix: HeldBuffer,
    /// How much more of the body is copied.
    capacity: usize,
    pub length: usize,
    /// More of the body can only come from the caller.
    pub awaits_caller: bool,
}

impl StreamedCopy {
    pub fn with_capacity(capacity: usize, memory: Reservation) -> Self {
        Self { prefix: HeldBuffer::new(memory), capacity, length: 0, awaits_caller: false }
    }

    pub fn prefix(&self) -> &[u8] {
        self.prefix.as_slice()
    }

    fn append(&mut self, data: &[u8]) {
        self.length += data.len();
        let copied = data.len().min(self.capacity);
        self.capacity -= copied;
        if self.prefix.append(&data[..copied]).is_err() {
            // The copy ends here; the body itself goes on.
            self.capacity = 0;
        }
    }
}

/// The caller's body could not be read, or exceeds the limit. The caller receives this problem, not a provider error.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub struct RequestBodyError(pub Problem);

#[derive(Default)]
pub struct OutboundBody {
    chunks: VecDeque<Bytes>,
    rest: Option<Incoming>,
    max_bytes: usize,
    /// Bytes of `rest` until the limit is reached.
    remaining: usize,
    copy: Option<Arc<Mutex<StreamedCopy>>>,
}

impl OutboundBody {
    pub fn whole(body: Bytes) -> Self {
        let chunks = if body.is_empty() { VecDeque::new() } else { VecDeque::from([body]) };
        Self { chunks, ..Self::default() }
    }

    /// The chunks that have been read and the rest, of which at most `remaining` bytes are accepted.
    pub fn streamed(chunks: Vec<Bytes>, rest: Incoming, max_bytes: usize, remaining: usize) -> Self {
        Self { chunks: chunks.into(), rest: Some(rest), max_bytes, remaining, copy: None }
    }

    pub fn copied_to(self, copy: Arc<Mutex<StreamedCopy>>) -> Self {
        Self { copy: Some(copy), ..self }
    }

    /// The log's copy of a streamed body.
    pub fn streamed_copy(&self) -> Option<Arc<Mutex<StreamedCopy>>> {
        self.copy.clone()
    }

    /// The body, if it is in memory.
    pub fn bytes(&self) -> Option<Bytes> {
        match (self.chunks.len(), &self.rest) {
            (0, None) => Some(Bytes::new()),
            (1, None) => self.chunks.front().cloned(),
            _ => None,
        }
    }
}

impl Body for OutboundBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        let data = if let Some(chunk) = this.chunks.pop_front() {
            chunk
        } else {
            let Some(rest) = &mut this.rest else { return Poll::Ready(None) };
            let polled = Pin::new(rest).poll_frame(context);
            if let Some(copy) = &this.copy {
                copy.lock().unwrap_or_else(PoisonError::into_inner).awaits_caller = polled.is_pending();
            }
            match std::task::ready!(polled) {
                None => {
                    this.rest = None;
                    return Poll::Ready(None);
                }
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(RequestBodyError(body_problem(&error)).into())));
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.len() > this.remaining => {
                        let problem = Problem::too_large(this.max_bytes);
                        return Poll::Ready(Some(Err(RequestBodyError(problem).into())));
                    }
                    Ok(data) => {
                        this.remaining -= data.len();
                        data
                    }
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
            }
        };
        if let Some(copy) = &this.copy {
            copy.lock().unwrap_or_else(PoisonError::into_inner).append(&data);
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let buffered: u64 = self.chunks.iter().map(|chunk| chunk.len() as u64).sum();
        match self.rest.as_ref().map(|rest| rest.size_hint().exact()) {
            None => SizeHint::with_exact(buffered),
            Some(Some(rest)) => SizeHint::with_exact(buffered + rest),
            Some(None) => SizeHint::default(),
        }
    }
}

/// The problem of a request body that could not be read.
pub fn body_problem(error: &hyper::Error) -> Problem {
    let io = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    if error.is_incomplete_message() || io.is_some_and(|io| io.kind() == ErrorKind::UnexpectedEof) {
        let status = StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST);
        let message = "the client closed the connection before the end of its request";
        return Problem::new(status, "client_closed", message);
    }
    Problem::bad_request("the request body could not be read to its end")
}
