//! Answers as the clients of other gateways expect them: headers, and the shape of errors within a stream.

use std::time::Duration;

use serde_json::{Value, json};

use super::Dialect;

/// Where a header of an answer has its value from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A header of the gateway.
    Header(&'static str),
    /// A header of the gateway, or else this text.
    HeaderOr(&'static str, &'static str),
    /// A header of the request, or else one of the gateway.
    Echo(&'static str, &'static str),
    /// The model that was asked for.
    Requested,
    /// Attempts at a target after its first one.
    Retries,
    /// Targets that were called after the first one.
    Fallbacks,
    /// Milliseconds until the answer started.
    Duration,
    /// Milliseconds of them that the gateway took itself.
    Overhead,
    /// The place of the target in the config, such as `config.targets[1]`.
    Option,
    /// The place of the target in the list.
    OptionIndex,
    /// All headers of the provider, with the name of this one before theirs.
    OfProvider,
}

/// Where the cost of a call is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostPlace {
    Nowhere,
    /// In a header of answers that are not streams.
    Header,
    /// In the usage of the body, for callers that ask for it.
    Usage,
}

/// The shape of errors within a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamErrors {
    /// That of the format.
    OfFormat,
    /// A chunk with the error and the provider.
    ChunkWithProvider,
}

/// What a call went through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerFacts {
    pub retries: usize,
    pub fallbacks: usize,
    pub duration: Duration,
    pub overhead: Duration,
    /// The place of the target in the route and in its groups; empty for the only one.
    pub option: Vec<usize>,
}

impl AnswerFacts {
    /// The value of a header that depends on the call.
    pub fn value(&self, answer: Answer) -> Option<String> {
        let milliseconds =
            |time: Duration| format!("{}.{:03}", time.as_millis(), time.subsec_micros() % 1_000);
        Some(match answer {
            Answer::Retries => self.retries.to_string(),
            Answer::Fallbacks => self.fallbacks.to_string(),
            Answer::Duration => milliseconds(self.duration),
            Answer::Overhead => milliseconds(self.overhead),
            Answer::Option => {
                let targets = self.option.iter().map(|place| format!(".targets[{place}]"));
                format!("config{}", targets.collect::<String>())
            }
            Answer::OptionIndex => self.option.first().copied().unwrap_or(0).to_string(),
            Answer::Header(_)
            | Answer::HeaderOr(..)
            | Answer::Echo(..)
            | Answer::Requested
            | Answer::OfProvider => return None,
        })
    }
}

impl Dialect {
    /// The data of an event with an error in the shape of the dialect. None: it stays as it is. `provider` and `id` are
    /// those of the call.
    pub fn stream_error(&self, data: &[u8], provider: &str, id: &str) -> Option<Vec<u8>> {
        if self.stream_errors == StreamErrors::OfFormat || memchr::memmem::find(data, b"\"error\"").is_none()
        {
            return None;
        }
        let event: Value = serde_json::from_slice(data).ok()?;
        let error = event.get("error").filter(|error| error.is_object())?;
        // Events with a type are of another format.
        if event.get("type").is_some() {
            return None;
        }
        let text = |value: &Value, name: &str| {
            value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let code = ["code", "type"].iter().find_map(|name| error.get(name).filter(|code| !code.is_null()));
        let mut chunk = json!({
            "id": text(&event, "id").unwrap_or_else(|| id.to_owned()),
            "object": "chat.completion.chunk",
            "created": event.get("created").cloned().unwrap_or_else(|| json!(0)),
            "model": text(&event, "model").unwrap_or_default(),
            "provider": provider,
            "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
            "error": {"code": code.cloned().unwrap_or_else(|| json!("server_error")), "message": text(error, "message")},
        });
        if let Some(usage) = event.get("usage").filter(|usage| !usage.is_null()) {
            chunk["usage"] = usage.clone();
        }
        Some(chunk.to_string().into_bytes())
    }
}
