//! An answer in the form that the caller wants: a stream folded into one body, a body replayed as a stream, either of
//! them translated. What has to be collected is collected before anything is sent on, so that a failure in it is one
//! that the next target can make good. A stream that stays one is translated as it passes (`tee`).

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use gateway_core::llm::aggregate::{self, AggregateError};
use gateway_core::llm::failure::AttemptOutcome;
use gateway_core::llm::paths::Operation;
use gateway_core::llm::{BodyFraming, WireFormat};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use super::call::Call;
use super::response_body::Source;
use super::upstream::{AttemptError, UpstreamResponse};
use super::validate::{body_framing, next_piece};

/// A larger answer is not collected.
const LARGEST: usize = 32 << 20;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// What an answer calls itself where the provider gave it no name.
pub struct FallbackIds {
    pub name: String,
    /// Seconds since 1970.
    pub created: i64,
}

/// Is there nothing to be done to any answer?
pub fn is_passthrough(call: &Call) -> bool {
    call.translation.is_none() && !call.has_stream_header()
}

/// The answer in the form that the caller wants. One that stays as it is passes untouched.
pub async fn convert(
    call: &Call,
    answered: UpstreamResponse,
    fallback_ids: &FallbackIds,
    ends_at: Instant,
) -> Result<UpstreamResponse, AttemptError> {
    let framing = body_framing(&answered.head.headers);
    let is_stream = matches!(framing, BodyFraming::Sse | BodyFraming::EventStream);
    let status = answered.head.status;
    if !status.is_success() || framing == BodyFraming::Opaque {
        return Ok(answered);
    }
    let format = call.format();
    if is_stream && call.wants_stream {
        let translator = call.translation.as_ref().map(|made| {
            Box::new(made.stream(&fallback_ids.name, fallback_ids.created, call.caching.is_some()))
        });
        if translator.is_none() {
            return Ok(answered);
        }
        let UpstreamResponse { mut head, source, .. } = answered;
        set_content_type(&mut head.headers, EVENTS);
        return Ok(UpstreamResponse { head, source, framing, translator, collected: None });
    }
    let must_change = call.translation.is_some() || is_stream != call.wants_stream;
    let Some(format) = format.filter(|_| must_change) else {
        return plain(call, answered, fallback_ids, ends_at).await;
    };
    let UpstreamResponse { mut head, source, .. } = answered;
    let raw = collect(source, ends_at).await?;
    let body = match (is_stream, &call.translation) {
        (false, None) => raw.clone(),
        (false, Some(made)) => {
            made.answer(&raw, &fallback_ids.name, fallback_ids.created).map_err(unreadable)?.into()
        }
        (true, None) => aggregate::aggregate_stream(format, framing, &raw).map_err(aggregate_failure)?.into(),
        (true, Some(made)) => {
            let mut out = Vec::new();
            let mut stream = made.stream(&fallback_ids.name, fallback_ids.created, true);
            stream.feed(&raw, &mut out);
            stream.finish(&mut out);
            aggregate::aggregate_stream(format, BodyFraming::Sse, &out).map_err(aggregate_failure)?.into()
        }
    };
    let pieces = if call.wants_stream {
        set_content_type(&mut head.headers, EVENTS);
        let events =
            aggregate::synthesize_stream(format, &body, call.wants_usage).map_err(aggregate_failure)?;
        events.into_iter().map(Bytes::from).collect()
    } else {
        set_content_type(&mut head.headers, JSON);
        VecDeque::from([body.clone()])
    };
    Ok(UpstreamResponse {
        head,
        source: Source::Pieces(pieces),
        framing,
        translator: None,
        collected: Some(Collected { raw, body }),
    })
}

/// A refusal of the provider's, in the caller's words.
pub async fn refusal(call: &Call, answered: UpstreamResponse, ends_at: Instant) -> UpstreamResponse {
    let Some(made) = &call.translation else { return answered };
    let UpstreamResponse { mut head, source, framing, .. } = answered;
    let raw = collect(source, ends_at).await.unwrap_or_default();
    let body = Bytes::from(made.error(head.status, &raw));
    set_content_type(&mut head.headers, JSON);
    let source = Source::whole(body.clone());
    UpstreamResponse { head, source, framing, translator: None, collected: Some(Collected { raw, body }) }
}

/// What the provider sent, and what was made of it.
pub struct Collected {
    pub raw: Bytes,
    /// One body in the caller's format.
    pub body: Bytes,
}

/// An answer whose form is right already. Embeddings and lists of models have no streams, but may be translated.
async fn plain(
    call: &Call,
    answered: UpstreamResponse,
    fallback_ids: &FallbackIds,
    ends_at: Instant,
) -> Result<UpstreamResponse, AttemptError> {
    let Some(made) = &call.translation else { return Ok(answered) };
    let UpstreamResponse { mut head, source, framing, .. } = answered;
    let raw = collect(source, ends_at).await?;
    let body = Bytes::from(made.answer(&raw, &fallback_ids.name, fallback_ids.created).map_err(unreadable)?);
    set_content_type(&mut head.headers, JSON);
    let source = Source::whole(body.clone());
    Ok(UpstreamResponse { head, source, framing, translator: None, collected: Some(Collected { raw, body }) })
}

async fn collect(source: Source, ends_at: Instant) -> Result<Bytes, AttemptError> {
    let (pieces, mut rest) = match source {
        Source::Pieces(pieces) => (pieces, None),
        Source::Begun(pieces, rest) => (pieces, Some(rest)),
        Source::Upstream(rest) => (VecDeque::new(), Some(rest)),
    };
    let mut whole = BytesMut::new();
    for piece in &pieces {
        whole.extend_from_slice(piece);
    }
    while let Some(rest) = &mut rest
        && let Some(piece) = next_piece(rest, ends_at).await?
    {
        whole.extend_from_slice(&piece);
        if whole.len() > LARGEST {
            return Err(AttemptError::of(
                AttemptOutcome::InvalidResponse,
                "its answer is too large to be collected",
            ));
        }
    }
    Ok(whole.freeze())
}

fn set_content_type(headers: &mut HeaderMap, content_type: HeaderValue) {
    headers.insert(CONTENT_TYPE, content_type);
    headers.remove(CONTENT_LENGTH);
}

fn unreadable(error: impl std::fmt::Display) -> AttemptError {
    AttemptError::of(AttemptOutcome::InvalidResponse, error.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "used as a map_err function")]
fn aggregate_failure(error: AggregateError) -> AttemptError {
    let outcome = match error {
        AggregateError::Incomplete => AttemptOutcome::Reset,
        AggregateError::InBand(_) => AttemptOutcome::StreamError,
        AggregateError::UnsupportedResponse(_) | AggregateError::TooLarge => AttemptOutcome::InvalidResponse,
    };
    AttemptError::of(outcome, error.to_string())
}

impl Call {
    /// The format of answers that come from no target.
    pub fn caller_format(&self) -> Option<WireFormat> {
        if !self.caller_is_known {
            return WireFormat::of_response(self.targets[0].target.format, self.operation);
        }
        WireFormat::of_response(self.caller.native(), self.operation).map(|_| match self.operation {
            Operation::Completions => WireFormat::OpenAiCompletions,
            _ => self.caller.into(),
        })
    }

    /// The format of the answer as the caller sees it; None where answers are never streams.
    pub fn format(&self) -> Option<WireFormat> {
        match &self.translation {
            Some(_) => {
                WireFormat::of_response(self.caller.native(), self.operation).map(|_| self.caller.into())
            }
            None => WireFormat::of_response(self.target().format, self.operation),
        }
    }
}
