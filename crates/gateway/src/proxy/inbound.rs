//! The caller's body. It is read only as far as the model must be known; then it is streamed to the provider, or
//! buffered if it is edited or may be sent more than once.

use std::time::Duration;

use bytes::Bytes;
use gateway_core::llm::peek::{BodyPeek, PeekError, RequestPeek, peek};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::time::Instant;

use super::payload::Payload;
use super::received::Received;
use super::record::Record;
use crate::memory::{MemoryExhausted, Reservation};
use crate::outbound::body::{OutboundBody, body_problem};
use crate::problem::{ApiResult, Problem};

/// A request body without new data for this time is given up.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Once the model is known, at most this much is read to learn whether the body asks for a stream.
const MAX_PEEK_BYTES: usize = 64 << 10;

pub struct Inbound {
    received: Received,
    rest: Option<Incoming>,
    /// An error that occurred while the body was not needed yet.
    error: Option<Problem>,
    max_bytes: usize,
    /// The whole body must have arrived by then, because the request holds memory and budget until it has.
    deadline: Instant,
}

impl Inbound {
    /// `timeout` is for the whole body. `memory` grows with what is held of it.
    pub fn new(incoming: Incoming, max_bytes: usize, timeout: Duration, memory: Reservation) -> Self {
        let rest = if incoming.is_end_stream() { None } else { Some(incoming) };
        let deadline = Instant::now() + timeout;
        Self { received: Received::new(memory), rest, error: None, max_bytes, deadline }
    }

    /// A body that the gateway made itself.
    pub fn whole(body: Bytes, max_bytes: usize, memory: Reservation) -> Result<Self, MemoryExhausted> {
        let mut received = Received::new(memory);
        received.push(body)?;
        Ok(Self { received, rest: None, error: None, max_bytes, deadline: Instant::now() })
    }

    /// Returns true if the announced length exceeds the limit.
    pub fn is_too_large(&self) -> bool {
        let announced = self.rest.as_ref().map_or(0, |rest| rest.size_hint().lower());
        announced > self.max_bytes as u64 || self.received.length() > self.max_bytes
    }

    /// The length of the body, if known.
    pub fn total_length(&self) -> Option<u64> {
        let rest = self.rest.as_ref().map_or(Some(0), |rest| rest.size_hint().exact());
        rest.map(|rest| rest.saturating_add(self.received.length() as u64))
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_none() && self.received.is_empty()
    }

    /// The first chunk, which usually is the whole body.
    pub fn first_chunk(&self) -> &[u8] {
        self.received.first()
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
        if self.received.is_empty() && self.read_chunk().await?.is_none() {
            return Ok(peek(b""));
        }
        if self.rest.is_none() {
            return Ok(peek(self.first_chunk()));
        }
        if whole {
            self.prepare_whole()?;
        }
        let mut scan = BodyPeek::new();
        for slice in self.received.slices() {
            if let Err(error) = scan.feed(slice) {
                return Ok(Err(error));
            }
        }
        loop {
            // The fields are parsed once, when they are enough: chunks may be as small as a byte.
            let is_long = self.received.length() >= MAX_PEEK_BYTES;
            if !whole && scan.has_model() && (is_long || scan.has_stream()) {
                // A second model may follow.
                return Ok(scan.snapshot().map(|peek| RequestPeek { model_at: None, ..peek }));
            }
            let Some(data) = self.read_chunk().await? else { return Ok(scan.finish()) };
            if let Err(error) = scan.feed(&data) {
                return Ok(Err(error));
            }
        }
    }

    /// Reads at least `length` bytes, or all, into one chunk.
    pub async fn read_prefix(&mut self, length: usize) -> ApiResult<()> {
        if length == usize::MAX {
            self.prepare_whole()?;
        }
        while self.received.length() < length && self.read_chunk().await?.is_some() {}
        Ok(self.received.join()?)
    }

    /// Prepares the body for sending. `whole`: buffers all of it.
    pub async fn into_payload(mut self, whole: bool, record: &mut Record) -> ApiResult<Payload> {
        if whole && self.rest.is_some() {
            self.prepare_whole()?;
            while self.read_chunk().await?.is_some() {}
        }
        let Some(rest) = self.rest.take() else {
            let body = self.received.into_whole()?;
            record.set_request_body(&body);
            return Ok(Payload::Buffered(body));
        };
        let copy = record.streamed_request_copy();
        let remaining = self.max_bytes.saturating_sub(self.received.length());
        let chunks = self.received.into_chunks();
        let body = OutboundBody::streamed(chunks, rest, self.max_bytes, remaining).copied_to(copy);
        Ok(Payload::Streamed(Some(body)))
    }

    /// Reserves the memory for the whole body, so that one that cannot be held is not read.
    fn prepare_whole(&mut self) -> Result<(), MemoryExhausted> {
        let total = self.total_length().and_then(|total| usize::try_from(total).ok());
        self.received.make_contiguous(total)
    }

    /// Reads one more chunk. Returns `None` at the end.
    async fn read_chunk(&mut self) -> ApiResult<Option<Bytes>> {
        if let Some(problem) = self.error.take() {
            return Err(problem);
        }
        loop {
            let Some(rest) = &mut self.rest else { return Ok(None) };
            let now = Instant::now();
            if now >= self.deadline {
                return Err(Problem::request_timeout());
            }
            let due = self.deadline.min(now + IDLE_TIMEOUT);
            let frame = tokio::time::timeout_at(due, rest.frame()).await;
            let Ok(frame) = frame else { return Err(Problem::request_timeout()) };
            let data = match frame {
                None => {
                    self.rest = None;
                    return Ok(None);
                }
                Some(Err(error)) => return Err(body_problem(&error)),
                Some(Ok(frame)) => frame.into_data(),
            };
            let is_end = rest.is_end_stream();
            // Trailers are not a part of the body.
            if let Ok(data) = &data {
                if self.received.length() + data.len() > self.max_bytes {
                    return Err(Problem::too_large(self.max_bytes));
                }
                self.received.push(data.clone())?;
            }
            if is_end {
                self.rest = None;
            }
            if let Ok(data) = data {
                return Ok(Some(data));
            }
        }
    }
}
