//! Decodes a provider's stream of chat chunks. Compatible providers omit the index of a tool call, reuse an index for
//! several calls, or repeat ids. A call is therefore identified by its index and its id together.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    super::{
        super::{
            ProviderFormat,
            chat::{Content, ProviderError, StreamEvent, StreamStart},
            usage,
        },
        StreamDecoder,
        json::{lenient, parse_event},
        sequencer::{MAX_CHOICES, MAX_TOOL_CALLS},
    },
    decode_error, decode_reasoning_detail, decode_stop_reason,
    response::decode_logprobs,
};

#[derive(Default)]
pub(super) struct Decoder {
    has_started: bool,
    /// The latest call of each choice and index.
    calls: HashMap<(u32, u32), Call>,
    call_counts: HashMap<u32, u32>,
    thinking: Vec<ThinkingDedup>,
}

/// Removes duplicate thinking. Providers send it as plain text, as details or as both, in either order. Counts the
/// bytes that were emitted and the bytes that arrived by each of the two.
#[derive(Default)]
struct ThinkingDedup {
    emitted: usize,
    from_text: usize,
    from_details: usize,
}

impl ThinkingDedup {
    /// Returns the part of a text that was not emitted yet. `total`: the bytes that arrived this way, `text` included.
    fn unseen(emitted: &mut usize, total: usize, text: String) -> String {
        let new = total.saturating_sub(*emitted).min(text.len());
        *emitted = total.max(*emitted);
        let at = text.ceil_char_boundary(text.len() - new);
        if at == 0 { text } else { text[at..].to_owned() }
    }
}

struct Call {
    id: String,
    tool: u32,
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default, deserialize_with = "lenient")]
    id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    model: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    created: Option<i64>,
    choices: Option<Vec<ChunkChoice>>,
    usage: Option<Map<String, Value>>,
    x_groq: Option<Groq>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Groq {
    usage: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct ChunkChoice {
    #[serde(default, deserialize_with = "lenient")]
    index: Option<u32>,
    delta: Option<Delta>,
    logprobs: Option<Value>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<Value>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    reasoning_details: Option<Vec<Value>>,
    tool_calls: Option<Vec<CallDelta>>,
}

#[derive(Deserialize)]
struct CallDelta {
    #[serde(default, deserialize_with = "lenient")]
    index: Option<u32>,
    id: Option<String>,
    function: Option<FunctionDelta>,
    extra_content: Option<Value>,
}

#[derive(Deserialize)]
struct FunctionDelta {
    name: Option<String>,
    arguments: Option<Value>,
}

impl StreamDecoder for Decoder {
    fn decode_event(&mut self, _name: Option<&str>, data: &[u8], out: &mut Vec<StreamEvent>) -> bool {
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            return true;
        }
        let Some(chunk) = parse_event::<Chunk>(data, out) else { return false };
        if let Some(error) = chunk.error {
            out.push(StreamEvent::Error(decode_stream_error(error)));
            return true;
        }
        let choices = chunk.choices.unwrap_or_default();
        // Azure starts with a chunk of filter results that has neither choices nor an id.
        if !self.has_started && !choices.is_empty() {
            self.has_started = true;
            out.push(StreamEvent::Start(StreamStart {
                id: chunk.id.unwrap_or_default(),
                model: chunk.model.unwrap_or_default(),
                created: chunk.created,
                usage: None,
            }));
        }
        for choice in choices {
            self.decode_choice(choice, out);
        }
        let report = chunk.usage.or_else(|| chunk.x_groq?.usage);
        if let Some(usage) = report.and_then(|report| usage::parse_report(ProviderFormat::OpenAi, &report)) {
            out.push(StreamEvent::Usage(usage));
        }
        false
    }
}

impl Decoder {
    fn decode_choice(&mut self, chunk: ChunkChoice, out: &mut Vec<StreamEvent>) {
        let choice = chunk.index.unwrap_or(0);
        if let Some(delta) = chunk.delta {
            let text = delta.reasoning_content.or(delta.reasoning);
            if text.is_some() || delta.reasoning_details.is_some() {
                self.decode_thinking(choice, text, delta.reasoning_details.unwrap_or_default(), out);
            }
            match delta.content {
                Some(Value::String(text)) if !text.is_empty() => {
                    out.push(StreamEvent::Text { choice, text });
                }
                // Mistral's reasoning models send arrays of parts.
                Some(Value::Array(parts)) => {
                    for part in parts {
                        decode_listed_part(choice, &part, out);
                    }
                }
                _ => {}
            }
            if let Some(text) = delta.refusal {
                out.push(StreamEvent::Refusal { choice, text });
            }
            for call in delta.tool_calls.unwrap_or_default() {
                self.decode_call(choice, call, out);
            }
        }
        if let Some(logprobs) = chunk.logprobs {
            let items = decode_logprobs(&logprobs);
            if !items.is_empty() {
                out.push(StreamEvent::Logprobs { choice, items });
            }
        }
        if let Some(reason) = chunk.finish_reason.filter(|reason| !reason.is_empty()) {
            out.push(StreamEvent::Stop { choice, reason: decode_stop_reason(&reason) });
        }
    }

    fn decode_thinking(
        &mut self,
        choice: u32,
        text: Option<String>,
        details: Vec<Value>,
        out: &mut Vec<StreamEvent>,
    ) {
        let at = (choice as usize).min(MAX_CHOICES - 1);
        if self.thinking.len() <= at {
            self.thinking.resize_with(at + 1, ThinkingDedup::default);
        }
        let ThinkingDedup { emitted, from_text, from_details } = &mut self.thinking[at];
        for part in details.into_iter().filter_map(decode_reasoning_detail) {
            match part.content {
                Content::Thinking { text, signature } => {
                    *from_details += text.len();
                    let text = ThinkingDedup::unseen(emitted, *from_details, text);
                    out.push(StreamEvent::Thinking { choice, text });
                    out.extend(signature.map(|signature| StreamEvent::Signature { choice, signature }));
                }
                Content::Redacted(data) => out.push(StreamEvent::Redacted { choice, data }),
                _ => {}
            }
        }
        if let Some(text) = text {
            *from_text += text.len();
            let text = ThinkingDedup::unseen(emitted, *from_text, text);
            out.push(StreamEvent::Thinking { choice, text });
        }
    }

    fn decode_call(&mut self, choice: u32, delta: CallDelta, out: &mut Vec<StreamEvent>) {
        let (name, arguments) =
            delta.function.map_or((None, None), |function| (function.name, function.arguments));
        let id = delta.id.filter(|id| !id.is_empty());
        let index = delta.index.unwrap_or(0);
        let open = self.calls.get(&(choice, index));
        let same = open.filter(|call| id.as_ref().is_none_or(|id| *id == call.id));
        let tool = if let Some(call) = same {
            call.tool
        } else {
            let count = self.call_counts.entry(choice).or_default();
            // Emit one call above the limit, so that the sequencer rejects the stream.
            if *count > MAX_TOOL_CALLS {
                return;
            }
            let tool = *count;
            *count += 1;
            let id = id.unwrap_or_default();
            let signature = delta
                .extra_content
                .as_ref()
                .and_then(|content| content.get("google")?.get("thought_signature")?.as_str())
                .map(str::to_owned);
            self.calls.insert((choice, index), Call { id: id.clone(), tool });
            out.push(StreamEvent::ToolStart { choice, tool, id, name: name.unwrap_or_default(), signature });
            tool
        };
        let arguments = arguments.map(|arguments| match arguments {
            Value::String(json) => json,
            Value::Null => String::new(),
            // Some providers send complete arguments as parsed JSON.
            other => other.to_string(),
        });
        if let Some(json) = arguments.filter(|json| !json.is_empty()) {
            out.push(StreamEvent::ToolArguments { choice, tool, json });
        }
    }
}

/// Decodes an error inside a stream. Some providers send an HTTP status as its code.
fn decode_stream_error(error: Value) -> ProviderError {
    let status = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let status = status.filter(|status| (400..600).contains(status)).unwrap_or(502);
    decode_error(status, &Map::from_iter([("error".to_owned(), error)])).unwrap_or_else(|| ProviderError {
        status,
        code: "provider_error".to_owned(),
        message: "the provider reported an error without a message".to_owned(),
    })
}

fn decode_listed_part(choice: u32, part: &Value, out: &mut Vec<StreamEvent>) {
    let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
    if let Some(text) = text(part) {
        out.push(StreamEvent::Text { choice, text });
        return;
    }
    let inner = part.get("thinking").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for text in inner.iter().filter_map(text) {
        out.push(StreamEvent::Thinking { choice, text });
    }
}
