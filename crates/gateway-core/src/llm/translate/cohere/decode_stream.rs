//! Decodes a chat stream. The tool plan comes first, then tool calls, then text, each piece in an event of its own.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    super::{
        super::{
            ProviderFormat,
            chat::{ProviderError, StopReason, StreamEvent, StreamStart},
            usage,
        },
        StreamDecoder,
        json::parse_event,
    },
    decode_stop_reason,
    response::decode_logprob,
};

#[derive(Default)]
pub(super) struct Decoder {
    /// Cohere's index of each tool call.
    calls: Vec<u64>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: Option<String>,
    id: Option<String>,
    index: Option<u64>,
    delta: Option<Delta>,
    logprobs: Option<Value>,
    message: Option<String>,
}

#[derive(Deserialize, Default)]
struct Delta {
    message: Option<Message>,
    finish_reason: Option<String>,
    usage: Option<Map<String, Value>>,
    error: Option<String>,
}

#[derive(Deserialize, Default)]
struct Message {
    tool_plan: Option<String>,
    content: Option<Value>,
    tool_calls: Option<Value>,
}

impl StreamDecoder for Decoder {
    fn decode_event(&mut self, name: Option<&str>, data: &[u8], out: &mut Vec<StreamEvent>) -> bool {
        if data.trim_ascii() == b"[DONE]" {
            return true;
        }
        let Some(event) = parse_event::<Event>(data, out) else { return false };
        let index = event.index.unwrap_or(0);
        let delta = event.delta.unwrap_or_default();
        let message = delta.message.unwrap_or_default();
        match event.kind.as_deref().or(name).unwrap_or_default() {
            "message-start" => {
                let id = event.id.unwrap_or_default();
                out.push(StreamEvent::Start(StreamStart { id, ..StreamStart::default() }));
            }
            "tool-plan-delta" => {
                out.extend(message.tool_plan.map(|text| StreamEvent::Thinking { choice: 0, text }));
            }
            "content-start" | "content-delta" => {
                decode_content(message.content.as_ref(), out);
                if let Some(item) = event.logprobs.as_ref().and_then(decode_logprob) {
                    out.push(StreamEvent::Logprobs { choice: 0, items: vec![item] });
                }
            }
            "tool-call-start" => self.start_call(index, message.tool_calls.as_ref(), out),
            "tool-call-delta" => self.append_arguments(index, message.tool_calls.as_ref(), out),
            "message-end" => {
                let reason = delta.finish_reason.as_deref().map_or(StopReason::EndTurn, decode_stop_reason);
                if reason == StopReason::Failed || delta.error.is_some() {
                    let message = delta
                        .error
                        .unwrap_or_else(|| "the provider reported an error without a message".to_owned());
                    let code = "provider_error".to_owned();
                    out.push(StreamEvent::Error(ProviderError { status: 502, code, message }));
                    return true;
                }
                if let Some(usage) =
                    delta.usage.and_then(|report| usage::parse_report(ProviderFormat::Cohere, &report))
                {
                    out.push(StreamEvent::Usage(usage));
                }
                out.push(StreamEvent::Stop { choice: 0, reason });
                return true;
            }
            "" | "error" => {
                if let Some(message) = event.message {
                    let code = "provider_error".to_owned();
                    out.push(StreamEvent::Error(ProviderError { status: 502, code, message }));
                    return true;
                }
            }
            _ => {}
        }
        false
    }
}

fn decode_content(content: Option<&Value>, out: &mut Vec<StreamEvent>) {
    let text = |key: &str| Some(content?.get(key)?.as_str()?.to_owned());
    out.extend(text("thinking").map(|text| StreamEvent::Thinking { choice: 0, text }));
    out.extend(text("text").map(|text| StreamEvent::Text { choice: 0, text }));
}

impl Decoder {
    fn start_call(&mut self, index: u64, call: Option<&Value>, out: &mut Vec<StreamEvent>) {
        let Ok(tool) = u32::try_from(self.calls.len()) else { return };
        self.calls.push(index);
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let id = text(call.and_then(|call| call.get("id")));
        let name = text(call.and_then(|call| call.get("function")?.get("name")));
        out.push(StreamEvent::ToolStart { choice: 0, tool, id, name, signature: None });
        self.append_arguments(index, call, out);
    }

    fn append_arguments(&self, index: u64, call: Option<&Value>, out: &mut Vec<StreamEvent>) {
        let json = call.and_then(|call| call.get("function")?.get("arguments")?.as_str());
        let at = self.calls.iter().rposition(|known| *known == index).and_then(|at| u32::try_from(at).ok());
        if let (Some(json), Some(tool)) = (json, at) {
            out.push(StreamEvent::ToolArguments { choice: 0, tool, json: json.to_owned() });
        }
    }
}
