//! Streams and plain bodies of one wire format, each made out of the other: `fold` turns a complete stream into the
//! body that the same call would have answered without streaming, `replay` turns such a body into a stream. A cached
//! answer can so serve both kinds of callers, and a caller can have the kind that it did not ask the provider for.
//!
//! Fields that are not known here ride along: texts of deltas are joined, other values are replaced by later ones,
//! lists of indexed objects are merged by index. What a fold cannot understand is an error, never a guess.

mod anthropic;
mod chat;
mod cohere;
mod completions;
mod converse;
mod gemini;
mod merge;
mod pieces;
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

/// Why there is no body, or no stream, to be had. None of these may be cached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AggregateError {
    #[error("the stream ended before the answer was complete")]
    Incomplete,
    #[error("the stream carried an error: {0}")]
    InBand(Box<str>),
    #[error("the answer is not understood: {0}")]
    NotUnderstood(&'static str),
    #[error("the answer is larger than the limit")]
    TooLarge,
}

/// Folds a whole stream. For streams that arrive in pieces, or that may be too long, there is `StreamAggregator`.
pub fn aggregate_stream(
    format: WireFormat,
    framing: BodyFraming,
    bytes: &[u8],
) -> Result<Vec<u8>, AggregateError> {
    let mut aggregator = StreamAggregator::new(format, framing, usize::MAX);
    aggregator.feed(bytes)?;
    aggregator.finish()
}

/// Turns a plain body into the events of a stream, each ready to be written. `include_usage` is OpenAI's option: its
/// chat and completion streams tell usage only to those who ask; the other formats always tell it.
pub fn synthesize_stream(
    format: WireFormat,
    body: &[u8],
    include_usage: bool,
) -> Result<Vec<Vec<u8>>, AggregateError> {
    let Ok(Value::Object(body)) = serde_json::from_slice(body) else {
        return Err(AggregateError::NotUnderstood("the body is no JSON object"));
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

/// Folds a stream as it arrives. What it holds grows with the answer, so it gives up after `limit` bytes of stream.
pub struct StreamAggregator {
    source: Source,
    reading: Reading,
    left: usize,
}

enum Source {
    Sse(EventReader),
    EventStream(FrameReader),
    /// Gemini's streams are one JSON array when events were not asked for.
    Array(Vec<u8>),
}

struct Reading {
    state: Box<dyn Aggregate + Send>,
    failed: Option<AggregateError>,
}

/// The fold of one format. Errors inside the stream never reach it.
trait Aggregate {
    /// Takes one event: its name, where the format has names, and its data.
    fn take(&mut self, name: &str, event: Map<String, Value>) -> Result<(), AggregateError>;

    /// Takes note of OpenAI's end marker.
    fn done(&mut self) {}

    fn finish(self: Box<Self>) -> Result<Value, AggregateError>;
}

impl StreamAggregator {
    pub fn new(format: WireFormat, framing: BodyFraming, limit: usize) -> Self {
        let mut failed = None;
        let source = match framing {
            BodyFraming::Sse => Source::Sse(EventReader::new(EventLimits::READ)),
            BodyFraming::EventStream => Source::EventStream(FrameReader::new()),
            BodyFraming::Json if format == WireFormat::Gemini => Source::Array(Vec::new()),
            BodyFraming::Json | BodyFraming::Opaque => {
                failed = Some(AggregateError::NotUnderstood("the body is no stream"));
                Source::Array(Vec::new())
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
        StreamAggregator { source, reading: Reading { state, failed }, left: limit }
    }

    /// Takes the next piece. An error is final, and `finish` will tell it again.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<(), AggregateError> {
        let StreamAggregator { source, reading, left } = self;
        reading.standing()?;
        let Some(rest) = left.checked_sub(chunk.len()) else {
            *source = Source::Array(Vec::new());
            return reading.fail(AggregateError::TooLarge);
        };
        *left = rest;
        match source {
            Source::Sse(events) => events.feed(chunk, |item| reading.item(item)),
            Source::EventStream(frames) => {
                if frames.feed(chunk, |frame| reading.frame(&frame)).is_err() {
                    return reading.fail(AggregateError::NotUnderstood("a frame is broken"));
                }
            }
            Source::Array(held) => held.extend_from_slice(chunk),
        }
        reading.standing()
    }

    /// The body, as the provider would have answered it in one piece.
    pub fn finish(self) -> Result<Vec<u8>, AggregateError> {
        let StreamAggregator { source, mut reading, .. } = self;
        match source {
            Source::Sse(mut events) => events.finish(|item| reading.item(item)),
            Source::EventStream(frames) => {
                reading.standing()?;
                if !frames.at_boundary() {
                    return Err(AggregateError::Incomplete);
                }
            }
            Source::Array(held) => {
                reading.standing()?;
                reading.array(&held)?;
            }
        }
        reading.standing()?;
        let body = reading.state.finish()?;
        serde_json::to_vec(&body).map_err(|_| AggregateError::NotUnderstood("the body cannot be written"))
    }
}

impl Reading {
    fn standing(&self) -> Result<(), AggregateError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// The first failure is the one that is told.
    fn fail(&mut self, error: AggregateError) -> Result<(), AggregateError> {
        self.failed.get_or_insert(error);
        self.standing()
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
            // Bedrock wraps the events of its models' own formats.
            (None, Some("chunk")) => self.wrapped(frame.payload),
            (None, name) => self.event(name.unwrap_or(""), frame.payload),
        };
        self.failed = result.err();
    }

    fn wrapped(&mut self, payload: &[u8]) -> Result<(), AggregateError> {
        #[derive(serde::Deserialize)]
        struct Chunk {
            bytes: String,
        }
        let inner =
            serde_json::from_slice::<Chunk>(payload).ok().and_then(|chunk| STANDARD.decode(chunk.bytes).ok());
        self.event("", &inner.ok_or(AggregateError::NotUnderstood("a chunk is broken"))?)
    }

    fn event(&mut self, name: &str, data: &[u8]) -> Result<(), AggregateError> {
        let Ok(Value::Object(event)) = serde_json::from_slice(data) else {
            return Err(AggregateError::NotUnderstood("an event is no JSON object"));
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
        self.state.take(name, event)
    }

    fn array(&mut self, held: &[u8]) -> Result<(), AggregateError> {
        let items = match serde_json::from_slice(held) {
            Ok(Value::Array(items)) => items,
            Ok(item @ Value::Object(_)) => vec![item],
            Ok(_) => return Err(AggregateError::NotUnderstood("the body is no list of answers")),
            Err(error) if error.is_eof() => return Err(AggregateError::Incomplete),
            Err(_) => return Err(AggregateError::NotUnderstood("the body is no JSON")),
        };
        for item in items {
            let Value::Object(event) = item else {
                return Err(AggregateError::NotUnderstood("an answer is no JSON object"));
            };
            self.object("", event)?;
        }
        Ok(())
    }
}

/// The words of an error: a text, or an object with a message.
fn describe(error: &Value) -> Box<str> {
    const LONGEST: usize = 1024;
    let message = error.get("message").and_then(Value::as_str).or_else(|| error.as_str());
    let text = message.map_or_else(|| error.to_string(), str::to_owned);
    text[..text.floor_char_boundary(LONGEST)].into()
}
