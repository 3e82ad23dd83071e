//! Records a response for the cache while it is sent to the caller.

use bytes::Bytes;
use gateway_core::cache::is_storable;
use gateway_core::llm::BodyFraming;
use gateway_core::llm::aggregate::StreamAggregator;
use gateway_core::llm::paths::Operation;
use gateway_core::llm::usage::Usage;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::FillGuard;
use crate::cache::CacheableResponse;
use crate::memory::{HeldBuffer, Reservation};
use crate::proxy::attempt::Attempt;
use crate::proxy::response_format::ResponseContent;
use crate::proxy::upstream::UpstreamResponse;

/// A larger response is not stored.
const MAX_ENTRY_BYTES: usize = 4 << 20;

pub struct CacheRecorder {
    guard: Box<FillGuard>,
    status: StatusCode,
    headers: HeaderMap,
    operation: Operation,
    provider: String,
    model: Option<String>,
    copy: ResponseCopy,
    /// For a stream.
    memory: Reservation,
}

enum ResponseCopy {
    Whole(Bytes),
    Body(HeldBuffer),
    Stream(Box<StreamAggregator>),
    /// Too large, not understood, or without memory for it.
    Discarded,
}

impl CacheRecorder {
    /// None if the response is not storable; then the guard is abandoned.
    pub fn new(
        guard: Box<FillGuard>,
        attempt: &Attempt<'_>,
        response: &UpstreamResponse,
        memory: Reservation,
    ) -> Option<Self> {
        let status = response.head.status;
        let copy = if status == StatusCode::OK { ResponseCopy::of(attempt, response, &memory) } else { None };
        let Some(copy) = copy else {
            guard.abandon();
            return None;
        };
        let mut headers = response.head.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Some(Self {
            guard,
            status,
            headers,
            operation: attempt.plan.directives.operation,
            provider: attempt.provider().name.clone(),
            model: attempt.model().map(ToOwned::to_owned),
            copy,
            memory,
        })
    }

    /// Copies a chunk in the caller's format.
    pub fn feed(&mut self, chunk: &[u8]) {
        let is_kept = match &mut self.copy {
            ResponseCopy::Body(body) => {
                body.len() + chunk.len() <= MAX_ENTRY_BYTES && body.append(chunk).is_ok()
            }
            ResponseCopy::Stream(aggregator) => {
                self.memory.grow(chunk.len()).is_ok() && aggregator.feed(chunk).is_ok()
            }
            ResponseCopy::Whole(_) | ResponseCopy::Discarded => true,
        };
        if !is_kept {
            self.copy = ResponseCopy::Discarded;
            self.memory.shrink_to(0);
        }
    }

    /// The response is complete: stores it, if it is storable.
    pub fn complete(self, usage: Option<Usage>) {
        let body = match self.copy {
            // The entry counts as memory of the cache, so it must not keep that of the response.
            ResponseCopy::Whole(body) if body.len() > MAX_ENTRY_BYTES => None,
            ResponseCopy::Whole(body) => Some(Bytes::copy_from_slice(&body)),
            ResponseCopy::Body(body) => Some(body.release().into()),
            ResponseCopy::Stream(aggregator) => aggregator.finish().ok().map(Bytes::from),
            ResponseCopy::Discarded => None,
        };
        let Some(body) = body.filter(|body| is_storable(self.operation, self.status.as_u16(), body)) else {
            return self.guard.abandon();
        };
        let FillGuard { fill, query } = *self.guard;
        let response = CacheableResponse {
            status: self.status,
            headers: self.headers,
            body,
            provider: self.provider,
            model: self.model,
            usage,
        };
        fill.complete(response, query.as_ref());
    }

    /// The response ended early.
    pub fn abandon(self) {
        self.guard.abandon();
    }
}

impl ResponseCopy {
    fn of(attempt: &Attempt<'_>, response: &UpstreamResponse, memory: &Reservation) -> Option<Self> {
        let translator = match &response.content {
            ResponseContent::Buffered(content) => return Some(Self::Whole(content.body.clone())),
            ResponseContent::Streaming { translator, .. } => translator,
        };
        match response.framing {
            BodyFraming::Json => Some(Self::Body(HeldBuffer::new(memory.empty_sibling()))),
            BodyFraming::Sse | BodyFraming::EventStream => {
                let framing = if translator.is_some() { BodyFraming::Sse } else { response.framing };
                let aggregator = StreamAggregator::new(attempt.wire_format()?, framing, MAX_ENTRY_BYTES);
                Some(Self::Stream(Box::new(aggregator)))
            }
            BodyFraming::Opaque => None,
        }
    }
}
