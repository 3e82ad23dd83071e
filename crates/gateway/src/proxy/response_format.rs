//! Converts a response to the form that the caller requested: a stream aggregated into one body, a body converted to a
//! stream, and either translated. A response that must be buffered for that is buffered before anything is forwarded,
//! so that the next target can still make up for a failure. A stream that stays a stream is translated by the pipeline.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway_core::llm::aggregate::{self, AggregateError};
use gateway_core::llm::failure::AttemptOutcome;
use gateway_core::llm::translate::{StreamTranslator, UnreadableResponse};
use gateway_core::llm::usage::Meter;
use gateway_core::llm::{BodyFraming, ProviderFormat, WireFormat};
use gateway_core::logs::MAX_BODY_BYTES;
use gateway_core::memory::tree_bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use super::attempt::Attempt;
use super::content_decoding::{ContentCodings, PART_BYTES, Undecodable, WholeBody};
use super::context::RequestContext;
use super::plan::StreamMode;
use super::response_body::BodySource;
use super::translate::Translation;
use super::upstream::{AttemptError, UpstreamResponse};
use super::validate::next_chunk;
use crate::memory::{HeldBuffer, MemoryAccount, MemoryExhausted, Reservation, hold};

const MAX_BUFFERED_BYTES: usize = 32 << 20;
/// For a response that was complete just before the deadline of its attempt.
const MIN_CONVERSION_TIME: Duration = Duration::from_secs(1);
const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// The body of a response.
pub enum ResponseContent {
    /// Forwarded as it arrives.
    Streaming { source: BodySource, codings: ContentCodings, translator: Option<Box<StreamTranslator>> },
    /// Was buffered and converted.
    Buffered(BufferedContent),
}

pub struct BufferedContent {
    /// What the provider sent, decoded.
    pub raw: Bytes,
    /// One body in the caller's format.
    pub body: Bytes,
    /// What the caller receives.
    pub chunks: VecDeque<Bytes>,
    /// Has read what the provider sent. None if that is left to the record.
    pub meter: Option<Box<Meter>>,
}

impl BufferedContent {
    fn whole(raw: Bytes, body: Bytes) -> Self {
        let chunks = if body.is_empty() { VecDeque::new() } else { VecDeque::from([body.clone()]) };
        Self { raw, body, chunks, meter: None }
    }

    /// Keeps the memory of what was made of the response until the caller has received it.
    fn held_by(mut self, memory: &mut Reservation) -> Result<Self, MemoryExhausted> {
        let is_shared =
            |chunk: &Bytes| chunk.as_ptr() == self.raw.as_ptr() || chunk.as_ptr() == self.body.as_ptr();
        let made = self.chunks.iter().filter(|chunk| !is_shared(chunk)).map(Bytes::len).sum::<usize>();
        let body = if self.body.as_ptr() == self.raw.as_ptr() { 0 } else { self.body.len() };
        memory.resize(made + body)?;
        if let Some(last) = self.chunks.pop_back() {
            let rest = memory.empty_sibling();
            self.chunks.push_back(hold(last, std::mem::replace(memory, rest)));
        }
        Ok(self)
    }
}

impl ResponseContent {
    /// How the bytes of the source are encoded.
    fn codings(&self) -> ContentCodings {
        match self {
            Self::Streaming { codings, .. } => *codings,
            Self::Buffered(_) => ContentCodings::default(),
        }
    }

    fn into_source(self) -> BodySource {
        match self {
            Self::Streaming { source, .. } => source,
            Self::Buffered(content) => BodySource::Chunks(content.chunks),
        }
    }
}

/// Identifies a translated response if the provider did not.
pub struct FallbackIds {
    pub id: String,
    /// Unix seconds.
    pub created: i64,
}

/// Returns true if no response of the attempt needs a conversion.
pub fn is_passthrough(attempt: &Attempt<'_>) -> bool {
    attempt.translation.is_none() && attempt.plan.stream_mode == StreamMode::Passthrough
}

/// Converts the response to the form that the caller requested.
pub async fn convert(
    context: RequestContext<'_>,
    attempt: &Attempt<'_>,
    response: UpstreamResponse,
    ids: FallbackIds,
    deadline: Instant,
) -> Result<UpstreamResponse, AttemptError> {
    let (org, memory) = (context.identity.org.id, &context.identity.org.memory);
    let framing = response.framing;
    if !response.head.status.is_success() || framing == BodyFraming::Opaque {
        return Ok(response);
    }
    let is_stream = matches!(framing, BodyFraming::Sse | BodyFraming::EventStream);
    let translation = attempt.translation.as_ref();
    let caller_streams = attempt.plan.caller_streams();
    if is_stream && caller_streams {
        let Some(translation) = translation else { return Ok(response) };
        let with_usage = attempt.plan.directives.cache.is_some() || attempt.plan.directives.wants_cost;
        return Ok(translate_stream(response, translation.stream(&ids, with_usage)));
    }
    let must_change = translation.is_some() || is_stream != caller_streams;
    // Embeddings and lists of models have no streams, but may be translated.
    let format = attempt.wire_format().filter(|_| must_change);
    if format.is_none() && translation.is_none() {
        return Ok(response);
    }
    let UpstreamResponse { mut head, content, .. } = response;
    let codings = content.codings();
    let raw = buffer_body(content.into_source(), deadline, memory).await?;
    // The provider has used up its time, and has been paid: what it sent last is still converted.
    let time_left = || deadline.saturating_duration_since(Instant::now()).max(MIN_CONVERSION_TIME);
    let raw = decoded(context, codings, raw, time_left()).await?;
    // For the tree that the response becomes, and then for its other form. It belongs to the work, which goes on for a
    // while when the client has gone away.
    let converted = memory.reserve(tree_bytes(&raw))?;
    let conversion = Conversion {
        translation: translation.cloned(),
        ids,
        provider: attempt.provider().format,
        format,
        framing,
        events_for_caller: caller_streams.then(|| attempt.plan.shows_usage()),
    };
    let bytes = raw.len();
    let converting = move || (conversion.metered(raw), converted);
    let converting = context.services.compute.run_for_body(org, bytes, time_left(), converting);
    let (content, mut converted) = converting.await?;
    let content = content.map_err(unconvertible)?.held_by(&mut converted)?;
    set_content_type(&mut head.headers, if format.is_some() && caller_streams { EVENT_STREAM } else { JSON });
    Ok(UpstreamResponse { head, framing, content: ResponseContent::Buffered(content) })
}

/// Buffers a successful response that is one JSON body, so that its cost is known before its head is sent.
pub async fn buffer_plain(
    response: UpstreamResponse,
    deadline: Instant,
    memory: &Arc<MemoryAccount>,
) -> Result<UpstreamResponse, AttemptError> {
    let UpstreamResponse { head, framing, content } = response;
    let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let is_small = length.is_none_or(|length: usize| length <= MAX_BUFFERED_BYTES);
    let content = match content {
        ResponseContent::Streaming { source, codings, translator: None }
            if framing == BodyFraming::Json
                && head.status.is_success()
                && codings.is_identity()
                && is_small =>
        {
            let body = buffer_body(source, deadline, memory).await?;
            ResponseContent::Buffered(BufferedContent::whole(body.clone(), body))
        }
        content => content,
    };
    Ok(UpstreamResponse { head, framing, content })
}

/// Translates the provider's error response.
pub async fn convert_error(
    attempt: &Attempt<'_>,
    response: UpstreamResponse,
    deadline: Instant,
    memory: &Arc<MemoryAccount>,
) -> UpstreamResponse {
    let Some(translation) = &attempt.translation else { return response };
    let UpstreamResponse { mut head, framing, content } = response;
    let codings = content.codings();
    let raw = buffer_body(content.into_source(), deadline, memory).await.unwrap_or_default();
    let raw = codings.decode_prefix(&raw, MAX_BODY_BYTES as u64);
    let body = Bytes::from(translation.error(head.status, &raw));
    set_content_type(&mut head.headers, JSON);
    let content = ResponseContent::Buffered(BufferedContent::whole(raw, body));
    UpstreamResponse { head, framing, content }
}

fn translate_stream(response: UpstreamResponse, translator: StreamTranslator) -> UpstreamResponse {
    let UpstreamResponse { mut head, framing, content } = response;
    set_content_type(&mut head.headers, EVENT_STREAM);
    let codings = content.codings();
    let (source, translator) = (content.into_source(), Some(Box::new(translator)));
    UpstreamResponse { head, framing, content: ResponseContent::Streaming { source, codings, translator } }
}

/// How a buffered response is converted.
struct Conversion {
    translation: Option<Arc<Translation>>,
    ids: FallbackIds,
    provider: ProviderFormat,
    /// None: there are no streams of such responses.
    format: Option<WireFormat>,
    framing: BodyFraming,
    /// The caller gets a stream, with its usage or without.
    events_for_caller: Option<bool>,
}

enum Unconvertible {
    Stream(AggregateError),
    Body(UnreadableResponse),
}

impl Conversion {
    /// Also meters the response: a large one is read here, and not by the thread of the request.
    fn metered(&self, raw: Bytes) -> Result<BufferedContent, Unconvertible> {
        let mut meter = Meter::new(self.provider, self.framing);
        meter.feed(&raw);
        meter.finish();
        let content = self.apply(raw)?;
        Ok(BufferedContent { meter: Some(Box::new(meter)), ..content })
    }

    fn apply(&self, raw: Bytes) -> Result<BufferedContent, Unconvertible> {
        let Some(format) = self.format else {
            let body = self.body(&raw)?;
            return Ok(BufferedContent::whole(raw, body));
        };
        let is_stream = matches!(self.framing, BodyFraming::Sse | BodyFraming::EventStream);
        let body = if is_stream { self.aggregate(format, &raw)? } else { self.body(&raw)? };
        let chunks = match self.events_for_caller {
            Some(shows_usage) => {
                let events = aggregate::synthesize_stream(format, &body, shows_usage);
                events.map_err(Unconvertible::Stream)?.into_iter().map(Bytes::from).collect()
            }
            None => VecDeque::from([body.clone()]),
        };
        Ok(BufferedContent { raw, body, chunks, meter: None })
    }

    fn body(&self, raw: &Bytes) -> Result<Bytes, Unconvertible> {
        let Some(translation) = &self.translation else { return Ok(raw.clone()) };
        translation.response(raw, &self.ids).map(Bytes::from).map_err(Unconvertible::Body)
    }

    /// Aggregates a whole stream into one body.
    fn aggregate(&self, format: WireFormat, raw: &Bytes) -> Result<Bytes, Unconvertible> {
        let body = match &self.translation {
            None => aggregate::aggregate_stream(format, self.framing, raw),
            Some(translation) => {
                let mut events = Vec::new();
                let mut translator = translation.stream(&self.ids, true);
                translator.feed(raw, &mut events);
                translator.finish(&mut events);
                aggregate::aggregate_stream(format, BodyFraming::Sse, &events)
            }
        };
        body.map(Bytes::from).map_err(Unconvertible::Stream)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "used as a map_err function")]
fn unconvertible(error: Unconvertible) -> AttemptError {
    match &error {
        Unconvertible::Stream(error) => aggregate_error(error),
        Unconvertible::Body(error) => AttemptError::new(AttemptOutcome::InvalidResponse, error.to_string()),
    }
}

async fn buffer_body(
    source: BodySource,
    deadline: Instant,
    memory: &Arc<MemoryAccount>,
) -> Result<Bytes, AttemptError> {
    let (chunks, mut rest) = match source {
        BodySource::Chunks(chunks) => (chunks, None),
        BodySource::Prefixed(chunks, rest) => (chunks, Some(rest)),
        BodySource::Upstream(rest) => (VecDeque::new(), Some(rest)),
    };
    let mut whole = HeldBuffer::new(memory.open());
    for chunk in chunks {
        whole.append(&chunk)?;
    }
    while let Some(rest) = &mut rest
        && let Some(chunk) = next_chunk(rest, deadline).await?
    {
        if whole.len() + chunk.len() > MAX_BUFFERED_BYTES {
            let message = "response is too large to be converted";
            return Err(AttemptError::new(AttemptOutcome::InvalidResponse, message));
        }
        whole.append(&chunk)?;
    }
    Ok(whole.finish())
}

/// The text of a body. One that is large when it is decoded is work of the organization.
async fn decoded(
    context: RequestContext<'_>,
    codings: ContentCodings,
    body: Bytes,
    time_left: Duration,
) -> Result<Bytes, AttemptError> {
    let Some(decoder) = codings.decoder(MAX_BUFFERED_BYTES as u64) else { return Ok(body) };
    let org = &context.identity.org;
    let mut decoding = WholeBody::new(decoder, body, org.memory.open());
    if decoding.decode_some(PART_BYTES).map_err(undecodable)? {
        return decoding.finish().map_err(undecodable);
    }
    let decoding = move || {
        while !decoding.decode_some(PART_BYTES)? {}
        decoding.finish()
    };
    // How large it becomes is not known before.
    let decoded = context.services.compute.run_for_body(org.id, MAX_BUFFERED_BYTES, time_left, decoding);
    decoded.await?.map_err(undecodable)
}

fn undecodable(error: Undecodable) -> AttemptError {
    match error {
        Undecodable::Memory(exhausted) => exhausted.into(),
        Undecodable::Encoding(error) => {
            let message = format!("upstream response cannot be decoded: {error}");
            AttemptError::new(AttemptOutcome::InvalidResponse, message)
        }
    }
}

fn set_content_type(headers: &mut HeaderMap, content_type: HeaderValue) {
    headers.insert(CONTENT_TYPE, content_type);
    headers.remove(CONTENT_LENGTH);
    headers.remove(CONTENT_ENCODING);
}

fn aggregate_error(error: &AggregateError) -> AttemptError {
    let outcome = match error {
        AggregateError::Incomplete => AttemptOutcome::Reset,
        AggregateError::InBand(_) => AttemptOutcome::StreamError,
        AggregateError::UnsupportedResponse(_) | AggregateError::TooLarge => AttemptOutcome::InvalidResponse,
    };
    AttemptError::new(outcome, error.to_string())
}
