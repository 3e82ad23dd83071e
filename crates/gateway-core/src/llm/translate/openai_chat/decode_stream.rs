//! A provider's stream of chat chunks. Copiers leave out the index of a call, give several calls the same one or repeat
//! ids, so a call is told from the next by its index and its id together.

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
        stream::MAX_TOOL_CALLS,
    },
    decode_error, decode_reasoning_detail, decode_stop_reason,
    response::decode_logprobs,
};

#[derive(Default)]
pub(super) struct Decoder {
    started: bool,
    calls: Vec<Call>,
    thoughts: Vec<ThinkingDedup>,
}

/// ThinkingDedup come as plain text, as details or as both, in either order: what one way has told, the other only repeats.
#[derive(Default)]
struct ThinkingDedup {
    told: usize,
    as_text: usize,
    as_details: usize,
}

impl ThinkingDedup {
    /// What is new in a text that brings all that came its way to `total` bytes.
    fn fresh(told: &mut usize, total: usize, text: String) -> String {
        let new = total.saturating_sub(*told).min(text.len());
        *told = total.max(*told);
        let at = text.ceil_char_boundary(text.len() - new);
        if at == 0 { text } else { text[at..].to_owned() }
    }
}

struct Call {
    choice: u32,
    index: u32,
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
            out.push(StreamEvent::Error(failure(error)));
            return true;
        }
        let choices = chunk.choices.unwrap_or_default();
        // Azure opens with a chunk about its filters, which has neither choices nor a name.
        if !self.started && !choices.is_empty() {
            self.started = true;
            out.push(StreamEvent::Start(StreamStart {
                id: chunk.id.unwrap_or_default(),
                model: chunk.model.unwrap_or_default(),
                created: chunk.created,
                usage: None,
            }));
        }
        for choice in choices {
            self.choice(choice, out);
        }
        let report = chunk.usage.or_else(|| chunk.x_groq?.usage);
        if let Some(usage) = report.and_then(|report| usage::parse_report(ProviderFormat::OpenAi, &report)) {
            out.push(StreamEvent::Usage(usage));
        }
        false
    }
}

impl Decoder {
    fn choice(&mut self, said: ChunkChoice, out: &mut Vec<StreamEvent>) {
        let choice = said.index.unwrap_or(0);
        if let Some(delta) = said.delta {
            let text = delta.reasoning_content.or(delta.reasoning);
            if text.is_some() || delta.reasoning_details.is_some() {
                self.thoughts(choice, text, delta.reasoning_details.unwrap_or_default(), out);
            }
            match delta.content {
                Some(Value::String(text)) if !text.is_empty() => {
                    out.push(StreamEvent::Text { choice, text });
                }
                // Mistral's reasoning models send lists of parts.
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
                self.call(choice, call, out);
            }
        }
        if let Some(logprobs) = said.logprobs {
            let items = decode_logprobs(&logprobs);
            if !items.is_empty() {
                out.push(StreamEvent::Logprobs { choice, items });
            }
        }
        if let Some(reason) = said.finish_reason.filter(|reason| !reason.is_empty()) {
            out.push(StreamEvent::Stop { choice, reason: decode_stop_reason(&reason) });
        }
    }

    fn thoughts(
        &mut self,
        choice: u32,
        text: Option<String>,
        details: Vec<Value>,
        out: &mut Vec<StreamEvent>,
    ) {
        const MOST: usize = 256;
        let at = (choice as usize).min(MOST - 1);
        if self.thoughts.len() <= at {
            self.thoughts.resize_with(at + 1, ThinkingDedup::default);
        }
        let ThinkingDedup { told, as_text, as_details } = &mut self.thoughts[at];
        for part in details.into_iter().filter_map(decode_reasoning_detail) {
            match part.content {
                Content::Thinking { text, signature } => {
                    *as_details += text.len();
                    let text = ThinkingDedup::fresh(told, *as_details, text);
                    out.push(StreamEvent::Thinking { choice, text });
                    out.extend(signature.map(|signature| StreamEvent::Signature { choice, signature }));
                }
                Content::Redacted(data) => out.push(StreamEvent::Redacted { choice, data }),
                _ => {}
            }
        }
        if let Some(text) = text {
            *as_text += text.len();
            let text = ThinkingDedup::fresh(told, *as_text, text);
            out.push(StreamEvent::Thinking { choice, text });
        }
    }

    fn call(&mut self, choice: u32, said: CallDelta, out: &mut Vec<StreamEvent>) {
        let (name, arguments) = said.function.map_or((None, None), |said| (said.name, said.arguments));
        let id = said.id.filter(|id| !id.is_empty());
        let index = said.index.unwrap_or(0);
        let open = self.calls.iter().rev().find(|call| call.choice == choice && call.index == index);
        let same = open.filter(|call| id.as_ref().is_none_or(|id| *id == call.id));
        let tool = if let Some(call) = same {
            call.tool
        } else {
            let count = self.calls.iter().filter(|call| call.choice == choice).count();
            // One more than is allowed, so that it is seen and refused.
            let Some(tool) = u32::try_from(count).ok().filter(|tool| *tool <= MAX_TOOL_CALLS) else { return };
            let id = id.unwrap_or_default();
            let signature = said
                .extra_content
                .as_ref()
                .and_then(|content| content.get("google")?.get("thought_signature")?.as_str())
                .map(str::to_owned);
            self.calls.push(Call { choice, index, id: id.clone(), tool });
            out.push(StreamEvent::ToolStart { choice, tool, id, name: name.unwrap_or_default(), signature });
            tool
        };
        let arguments = arguments.map(|arguments| match arguments {
            Value::String(json) => json,
            Value::Null => String::new(),
            // Some send them whole and parsed.
            other => other.to_string(),
        });
        if let Some(json) = arguments.filter(|json| !json.is_empty()) {
            out.push(StreamEvent::ToolArguments { choice, tool, json });
        }
    }
}

/// Some put the status that it would have been into the code.
fn failure(error: Value) -> ProviderError {
    let status = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let status = status.filter(|status| (400..600).contains(status)).unwrap_or(502);
    decode_error(status, &Map::from_iter([("error".to_owned(), error)])).unwrap_or_else(|| ProviderError {
        status,
        code: "provider_error".to_owned(),
        message: "the provider failed while it was answering".to_owned(),
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
