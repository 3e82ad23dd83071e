//! Conversion between the streams and the bodies of one wire format. `aggregate_stream` converts a complete stream into
//! the body that the same call returns without streaming, and `synthesize_stream` converts such a body into a stream. A
//! cached response can therefore serve both forms, and a caller can get a form that the provider did not send.
//!
//! Unknown fields are kept: texts of deltas are joined, other values are replaced by later ones, and lists of indexed
//! objects are merged by index. An unsupported stream or body is an error, never a guess.

mod anthropic;
mod chat;
mod chunks;
mod cohere;
mod completions;
mod converse;
mod gemini;
mod merge;
mod request;
mod responses;
#[cfg(test)]
mod tests;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use super::{
    BodyFraming, WireFormat,
    eventstream::{Frame, FrameReader},
    sse::{EventItem, EventLimits, EventReader},
};

pub use request::{set_stream, stream_path};

/// Why a conversion failed. Such a response must not be cached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AggregateError {
    #[error("the stream ended before the response was complete")]
    Incomplete,
    #[error("the stream carried an error: {0}")]
    InBand(Box<str>),
    #[error("unsupported response: {0}")]
    UnsupportedResponse(&'static str),
    #[error("the response exceeds the size limit")]
    TooLarge,
}

/// Aggregates a complete stream. `StreamAggregator` does the same for a stream in chunks, with a size limit.
pub fn aggregate_stream(
    format: WireFormat,
    framing: BodyFraming,
    bytes: &[u8],
) -> Result<Vec<u8>, AggregateError> {
    let mut aggregator = StreamAggregator::new(format, framing, usize::MAX);
    aggregator.feed(bytes)?;
    aggregator.finish()
}

/// Converts a body into the encoded events of a stream. `include_usage` is OpenAI's option: its chat and completion
/// streams report usage only on request. The other formats always report it.
pub fn synthesize_stream(
    format: WireFormat,
    body: &[u8],
    include_usage: bool,
) -> Result<Vec<Vec<u8>>, AggregateError> {
    let Ok(Value::Object(body)) = serde_json::from_slice(body) else {
        return Err(AggregateError::UnsupportedResponse("the body is not a JSON object"));
    };
    if let Some(error) = body.get("error").filter(|error| !error.is_null()) {
        return Err(AggregateError::InBand(describe(error)));
    }
    match format {
        WireFormat::OpenAiChat => chat::synthesize(body, include_usage),
        WireFormat::OpenAiCompletions => completions::synthesize(body, include_usage),
        WireFormat::OpenAiResponses => responses::synthesize(&body),
        WireFormat::Anthropic => anthropic::synthesize(body),
        WireFormat::Gemini => gemini::synthesize(body),
        WireFormat::Bedrock => converse::synthesize(body),
        WireFormat::Cohere => cohere::synthesize(body),
    }
}

/// Adds the tool calls of one chunk of a chat completion to those of the chunks before it. Pieces of a call have its
/// index.
pub fn merge_tool_calls(calls: &mut Vec<Value>, pieces: Vec<Value>) {
    merge::join_lists(calls, pieces);
}

/// Aggregates a stream in chunks. Its memory grows with the response, so it fails after `limit` bytes of stream.
pub struct StreamAggregator {
    decoder: StreamDecoder,
    reading: Reading,
    remaining_bytes: usize,
}

enum StreamDecoder {
    Sse(EventReader),
    EventStream(FrameReader),
    /// A Gemini stream without `alt=sse` is one JSON array.
    Array(Vec<u8>),
}

struct Reading {
    state: Box<dyn Aggregate + Send>,
    failed: Option<AggregateError>,
}

/// The aggregation of one format. Errors inside the stream are handled before.
trait Aggregate {
    /// Adds one event by its data and its name, which is empty in formats without event names.
    fn add_event(&mut self, name: &str, event: Map<String, Value>) -> Result<(), AggregateError>;

    /// Records OpenAI's end marker.
    fn done(&mut self) {}

    fn finish(self: Box<Self>) -> Result<Value, AggregateError>;
}

impl StreamAggregator {
    pub fn new(format: WireFormat, framing: BodyFraming, limit: usize) -> Self {
        let mut failed = None;
        let decoder = match framing {
            BodyFraming::Sse => StreamDecoder::Sse(EventReader::new(EventLimits::READ)),
            BodyFraming::EventStream => StreamDecoder::EventStream(FrameReader::new()),
            BodyFraming::Json if format == WireFormat::Gemini => StreamDecoder::Array(Vec::new()),
            BodyFraming::Json | BodyFraming::Opaque => {
                failed = Some(AggregateError::UnsupportedResponse("the body is not a stream"));
                StreamDecoder::Array(Vec::new())
            }
        };
        let state: Box<dyn Aggregate + Send> = match format {
            WireFormat::OpenAiChat => Box::new(chat::State::default()),
            WireFormat::OpenAiCompletions => Box::new(completions::State::default()),
            WireFormat::OpenAiResponses => Box::new(responses::State::default()),
            WireFormat::Anthropic => Box::new(anthropic::State::default()),
            WireFormat::Gemini => Box::new(gemini::State::default()),
            WireFormat::Bedrock => Box::new(converse::State::default()),
            WireFormat::Cohere => Box::new(cohere::State::default()),
        };
        StreamAggregator { decoder, reading: Reading { state, failed }, remaining_bytes: limit }
    }

    /// Adds the next chunk. An error is final, and `finish` returns it again.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<(), AggregateError> {
        let StreamAggregator { decoder, reading, remaining_bytes } = self;
        reading.check()?;
        let Some(rest) = remaining_bytes.checked_sub(chunk.len()) else {
            *decoder = StreamDecoder::Array(Vec::new());
            return reading.fail(AggregateError::TooLarge);
        };
        *remaining_bytes = rest;
        match decoder {
            StreamDecoder::Sse(events) => events.feed(chunk, |item| reading.item(item)),
            StreamDecoder::EventStream(frames) => {
                if frames.feed(chunk, |frame| reading.frame(&frame)).is_err() {
                    return reading.fail(AggregateError::UnsupportedResponse("invalid event stream frame"));
                }
            }
            StreamDecoder::Array(buffer) => buffer.extend_from_slice(chunk),
        }
        reading.check()
    }

    /// The body that the provider would have returned without streaming.
    pub fn finish(self) -> Result<Vec<u8>, AggregateError> {
        let StreamAggregator { decoder, mut reading, .. } = self;
        match decoder {
            StreamDecoder::Sse(mut events) => events.finish(|item| reading.item(item)),
            StreamDecoder::EventStream(frames) => {
                reading.check()?;
                if !frames.at_boundary() {
                    return Err(AggregateError::Incomplete);
                }
            }
            StreamDecoder::Array(buffer) => {
                reading.check()?;
                reading.array(&buffer)?;
            }
        }
        reading.check()?;
        let body = reading.state.finish()?;
        serde_json::to_vec(&body)
            .map_err(|_| AggregateError::UnsupportedResponse("the body cannot be serialized"))
    }
}

impl Reading {
    fn check(&self) -> Result<(), AggregateError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Records a failure. The first one is kept.
    fn fail(&mut self, error: AggregateError) -> Result<(), AggregateError> {
        self.failed.get_or_insert(error);
        self.check()
    }

    fn item(&mut self, item: EventItem<'_>) {
        if self.failed.is_some() {
            return;
        }
        let result = match item {
            EventItem::Overlong => Err(AggregateError::TooLarge),
            EventItem::Event(event) => match event.data.trim_ascii() {
                b"" => Ok(()),
                b"[DONE]" => {
                    self.state.done();
                    Ok(())
                }
                data => {
                    self.event(event.event.and_then(|name| str::from_utf8(name).ok()).unwrap_or(""), data)
                }
            },
        };
        self.failed = result.err();
    }

    fn frame(&mut self, frame: &Frame<'_>) {
        if self.failed.is_some() {
            return;
        }
        let result = match (frame.exception_type, frame.event_type) {
            (Some(kind), _) => {
                let text = serde_json::from_slice(frame.payload)
                    .map_or_else(|_| "".into(), |error| describe(&error));
                Err(AggregateError::InBand(if text.is_empty() {
                    kind.into()
                } else {
                    format!("{kind}: {text}").into()
                }))
            }
            // Bedrock's invoke calls wrap the events of the model's own format.
            (None, Some("chunk")) => self.wrapped_event(frame.payload),
            (None, name) => self.event(name.unwrap_or(""), frame.payload),
        };
        self.failed = result.err();
    }

    fn wrapped_event(&mut self, payload: &[u8]) -> Result<(), AggregateError> {
        #[derive(serde::Deserialize)]
        struct Chunk {
            bytes: String,
        }
        let inner =
            serde_json::from_slice::<Chunk>(payload).ok().and_then(|chunk| STANDARD.decode(chunk.bytes).ok());
        self.event("", &inner.ok_or(AggregateError::UnsupportedResponse("invalid Base64 chunk"))?)
    }

    fn event(&mut self, name: &str, data: &[u8]) -> Result<(), AggregateError> {
        let Ok(Value::Object(event)) = serde_json::from_slice(data) else {
            return Err(AggregateError::UnsupportedResponse("an event is not a JSON object"));
        };
        self.object(name, event)
    }

    fn object(&mut self, name: &str, event: Map<String, Value>) -> Result<(), AggregateError> {
        if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
            return Err(AggregateError::InBand(describe(error)));
        }
        let kind = event.get("type").and_then(Value::as_str).unwrap_or(name);
        if kind == "error" || name == "error" {
            return Err(AggregateError::InBand(describe(&Value::Object(event))));
        }
        self.state.add_event(name, event)
    }

    fn array(&mut self, buffer: &[u8]) -> Result<(), AggregateError> {
        let items = match serde_json::from_slice(buffer) {
            Ok(Value::Array(items)) => items,
            Ok(item @ Value::Object(_)) => vec![item],
            Ok(_) => return Err(AggregateError::UnsupportedResponse("the body is not a list of responses")),
            Err(error) if error.is_eof() => return Err(AggregateError::Incomplete),
            Err(_) => return Err(AggregateError::UnsupportedResponse("the body is not JSON")),
        };
        for item in items {
            let Value::Object(event) = item else {
                return Err(AggregateError::UnsupportedResponse("a response is not a JSON object"));
            };
            self.object("", event)?;
        }
        Ok(())
    }
}

/// The message of an error, which is a text or an object with a message.
fn describe(error: &Value) -> Box<str> {
    const MAX_LENGTH: usize = 1024;
    let message = error.get("message").and_then(Value::as_str).or_else(|| error.as_str());
    let text = message.map_or_else(|| error.to_string(), str::to_owned);
    text[..text.floor_char_boundary(MAX_LENGTH)].into()
}
