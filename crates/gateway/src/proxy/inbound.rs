//! The caller's body. It is read only as far as the model must be known; then it is streamed to the provider, or
//! buffered if it is edited or may be sent more than once.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use gateway_core::llm::peek::{BodyPeek, PeekError, RequestPeek, peek};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::time::Instant;

use super::payload::Payload;
use super::record::Record;
use crate::outbound::body::{OutboundBody, body_problem};
use crate::problem::{ApiResult, Problem};

/// A request body without new data for this time is given up.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Once the model is known, at most this much is read to learn whether the body asks for a stream.
const MAX_PEEK_BYTES: usize = 64 << 10;

pub struct Inbound {
    chunks: Vec<Bytes>,
    /// Bytes in `chunks`.
    length: usize,
    rest: Option<Incoming>,
    /// An error that occurred while the body was not needed yet.
    error: Option<Problem>,
    max_bytes: usize,
    /// The whole body must have arrived by then, because the request holds memory and budget until it has.
    deadline: Instant,
}

impl Inbound {
    /// `timeout` is for the whole body.
    pub fn new(incoming: Incoming, max_bytes: usize, timeout: Duration) -> Self {
        let rest = if incoming.is_end_stream() { None } else { Some(incoming) };
        let deadline = Instant::now() + timeout;
        Self { chunks: Vec::new(), length: 0, rest, error: None, max_bytes, deadline }
    }

    /// A body that the gateway made itself.
    pub fn whole(body: Bytes, max_bytes: usize) -> Self {
        let deadline = Instant::now();
        Self { length: body.len(), chunks: vec![body], rest: None, error: None, max_bytes, deadline }
    }

    /// Returns true if the announced length exceeds the limit.
    pub fn is_too_large(&self) -> bool {
        let announced = self.rest.as_ref().map_or(0, |rest| rest.size_hint().lower());
        announced > self.max_bytes as u64 || self.length > self.max_bytes
    }

    /// The length of the body, if known.
    pub fn total_length(&self) -> Option<u64> {
        let rest = self.rest.as_ref().map_or(Some(0), |rest| rest.size_hint().exact());
        rest.map(|rest| rest.saturating_add(self.length as u64))
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_none() && self.chunks.is_empty()
    }

    /// The first chunk, which usually is the whole body.
    pub fn first_chunk(&self) -> &[u8] {
        self.chunks.first().map_or(&[], |chunk| chunk)
    }

    /// Awaits `work` and reads the first chunk concurrently.
    pub async fn read_while<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let read = tokio::select! {
            biased;
            done = &mut work => return done,
            read = self.read_chunk() => read,
        };
        self.error = read.err();
        work.await
    }

    /// Reads until the gateway knows what it needs. `whole`: to the end, because a duplicate key further down must be
    /// found.
    pub async fn peek(&mut self, whole: bool) -> ApiResult<Result<RequestPeek, PeekError>> {
        if self.chunks.is_empty() && !self.read_chunk().await? {
            return Ok(peek(b""));
        }
        if self.rest.is_none() {
            return Ok(peek(self.first_chunk()));
        }
        let mut scan = BodyPeek::new();
        let mut scanned = 0;
        loop {
            for chunk in &self.chunks[scanned..] {
                if let Err(error) = scan.feed(chunk) {
                    return Ok(Err(error));
                }
            }
            scanned = self.chunks.len();
            let is_enough = |peek: &RequestPeek| {
                peek.model.is_some() && (peek.stream.is_some() || self.length >= MAX_PEEK_BYTES)
            };
            match scan.snapshot() {
                Err(error) => return Ok(Err(error)),
                Ok(peek) if !whole && is_enough(&peek) => return Ok(Ok(peek)),
                Ok(_) => {}
            }
            if !self.read_chunk().await? {
                return Ok(scan.finish());
            }
        }
    }

    /// Reads at least `length` bytes, or all, into one chunk.
    pub async fn read_prefix(&mut self, length: usize) -> ApiResult<()> {
        while self.length < length && self.read_chunk().await? {}
        self.join_chunks();
        Ok(())
    }

    /// Prepares the body for sending. `whole`: buffers all of it.
    pub async fn into_payload(mut self, whole: bool, record: &mut Record) -> ApiResult<Payload> {
        if whole {
            while self.read_chunk().await? {}
        }
        let Some(rest) = self.rest.take() else {
            let body = self.join_chunks();
            record.set_request_body(&body);
            return Ok(Payload::Buffered(body));
        };
        let copy = record.streamed_request_copy();
        let remaining = self.max_bytes.saturating_sub(self.length);
        let body = OutboundBody::streamed(self.chunks, rest, self.max_bytes, remaining).copied_to(copy);
        Ok(Payload::Streamed(Some(body)))
    }

    fn join_chunks(&mut self) -> Bytes {
        match self.chunks.len() {
            0 => Bytes::new(),
            1 => self.chunks[0].clone(),
            _ => {
                let mut whole = BytesMut::with_capacity(self.length);
                self.chunks.iter().for_each(|chunk| whole.extend_from_slice(chunk));
                let whole = whole.freeze();
                self.chunks = vec![whole.clone()];
                whole
            }
        }
    }

    /// Reads one more chunk. Returns false at the end.
    async fn read_chunk(&mut self) -> ApiResult<bool> {
        if let Some(problem) = self.error.take() {
            return Err(problem);
        }
        let Some(rest) = &mut self.rest else { return Ok(false) };
        let now = Instant::now();
        if now >= self.deadline {
            return Err(Problem::request_timeout());
        }
        let due = self.deadline.min(now + IDLE_TIMEOUT);
        let frame = tokio::time::timeout_at(due, rest.frame()).await;
        let Ok(frame) = frame else { return Err(Problem::request_timeout()) };
        match frame {
            None => {
                self.rest = None;
                Ok(false)
            }
            Some(Err(error)) => Err(body_problem(&error)),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    self.length += data.len();
                    if self.length > self.max_bytes {
                        return Err(Problem::too_large(self.max_bytes));
                    }
                    self.chunks.push(data);
                }
                if rest.is_end_stream() {
                    self.rest = None;
                }
                Ok(true)
            }
        }
    }
}
