//! Decodes a provider's response stream.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    super::{
        super::{
            ProviderFormat,
            chat::{ProviderError, StreamEvent, StreamStart},
            usage,
        },
        StreamDecoder,
        json::{parse_event, str_field},
        openai_chat::decode_logprob_list,
    },
    REDACTED_PREFIX, decode_stop_reason,
    response::unix_seconds,
};

#[derive(Default)]
pub(super) struct Decoder {
    calls: Vec<Call>,
    /// Whether the open reasoning item has contained any text.
    has_thinking: bool,
}

struct Call {
    /// The index of its item in the output.
    index: u64,
    has_arguments: bool,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: Option<String>,
    response: Option<Map<String, Value>>,
    item: Option<Map<String, Value>>,
    output_index: Option<u64>,
    summary_index: Option<u64>,
    delta: Option<String>,
    logprobs: Option<Value>,
    code: Option<String>,
    message: Option<String>,
    error: Option<Map<String, Value>>,
}

impl StreamDecoder for Decoder {
    fn decode_event(&mut self, name: Option<&str>, data: &[u8], out: &mut Vec<StreamEvent>) -> bool {
        let Some(event) = parse_event::<Event>(data, out) else { return false };
        let Event {
            kind,
            response,
            item,
            output_index,
            summary_index,
            delta,
            logprobs,
            code,
            message,
            error,
        } = event;
        let index = output_index.unwrap_or(0);
        let text = delta.unwrap_or_default();
        match kind.as_deref().or(name).unwrap_or_default() {
            "response.created" => {
                let response = response.unwrap_or_default();
                out.push(StreamEvent::Start(StreamStart {
                    id: str_field(&response, "id").to_owned(),
                    model: str_field(&response, "model").to_owned(),
                    created: response.get("created_at").and_then(unix_seconds),
                    usage: None,
                }));
            }
            "response.output_text.delta" => {
                out.push(StreamEvent::Text { choice: 0, text });
                let items = logprobs.as_ref().map(decode_logprob_list).unwrap_or_default();
                if !items.is_empty() {
                    out.push(StreamEvent::Logprobs { choice: 0, items });
                }
            }
            "response.refusal.delta" => out.push(StreamEvent::Refusal { choice: 0, text }),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.has_thinking = true;
                out.push(StreamEvent::Thinking { choice: 0, text });
            }
            // Each further part of a summary is a new paragraph.
            "response.reasoning_summary_part.added" if summary_index.is_some_and(|index| index > 0) => {
                out.push(StreamEvent::Thinking { choice: 0, text: "\n\n".to_owned() });
            }
            "response.output_item.added" => self.start_item(index, &item.unwrap_or_default(), out),
            "response.function_call_arguments.delta" => self.append_arguments(index, text, out),
            "response.output_item.done" => self.end_item(index, item.unwrap_or_default(), out),
            "response.completed" | "response.incomplete" => {
                let mut response = response.unwrap_or_default();
                if let Some(Value::Object(report)) = response.remove("usage")
                    && let Some(usage) = usage::parse_report(ProviderFormat::OpenAi, &report)
                {
                    out.push(StreamEvent::Usage(usage));
                }
                out.push(StreamEvent::Stop { choice: 0, reason: decode_stop_reason(&response) });
                return true;
            }
            "response.failed" | "response.cancelled" => {
                let error =
                    response.as_ref().and_then(|response| response.get("error")).and_then(Value::as_object);
                out.push(StreamEvent::Error(decode_stream_error(error)));
                return true;
            }
            "error" => {
                let top_level = || {
                    let code = code.map(|code| ("code".to_owned(), Value::from(code)));
                    let message = message.map(|message| ("message".to_owned(), Value::from(message)));
                    code.into_iter().chain(message).collect()
                };
                out.push(StreamEvent::Error(decode_stream_error(Some(&error.unwrap_or_else(top_level)))));
                return true;
            }
            _ => {}
        }
        false
    }
}

impl Decoder {
    fn start_item(&mut self, index: u64, item: &Map<String, Value>, out: &mut Vec<StreamEvent>) {
        match str_field(item, "type") {
            "reasoning" => self.has_thinking = false,
            "function_call" => {
                let Ok(tool) = u32::try_from(self.calls.len()) else { return };
                let signature = item.get("extra_content").and_then(|content| content.get("google"));
                let signature = signature.and_then(|google| google.get("thought_signature")?.as_str());
                self.calls.push(Call { index, has_arguments: false });
                out.push(StreamEvent::ToolStart {
                    choice: 0,
                    tool,
                    id: str_field(item, "call_id").to_owned(),
                    name: str_field(item, "name").to_owned(),
                    signature: signature.map(str::to_owned),
                });
            }
            _ => {}
        }
    }

    fn append_arguments(&mut self, index: u64, json: String, out: &mut Vec<StreamEvent>) {
        let Some(at) = self.calls.iter().position(|call| call.index == index) else { return };
        let Ok(tool) = u32::try_from(at) else { return };
        self.calls[at].has_arguments = true;
        out.push(StreamEvent::ToolArguments { choice: 0, tool, json });
    }

    fn end_item(&mut self, index: u64, mut item: Map<String, Value>, out: &mut Vec<StreamEvent>) {
        match str_field(&item, "type") {
            "reasoning" => {
                let Some(Value::String(encrypted)) = item.remove("encrypted_content") else { return };
                out.push(match encrypted.strip_prefix(REDACTED_PREFIX) {
                    Some(data) if !self.has_thinking => {
                        StreamEvent::Redacted { choice: 0, data: data.to_owned() }
                    }
                    _ => StreamEvent::Signature { choice: 0, signature: encrypted },
                });
            }
            // Some servers do not stream arguments and send them complete at the end.
            "function_call" if !self.calls.iter().any(|call| call.index == index && call.has_arguments) => {
                let json = str_field(&item, "arguments").to_owned();
                self.append_arguments(index, json, out);
            }
            _ => {}
        }
    }
}

fn decode_stream_error(error: Option<&Map<String, Value>>) -> ProviderError {
    let string = |key: &str| error.map(|error| str_field(error, key)).filter(|string| !string.is_empty());
    ProviderError {
        status: 502,
        code: string("code").or_else(|| string("type")).unwrap_or("provider_error").to_owned(),
        message: string("message").unwrap_or("the provider reported an error without a message").to_owned(),
    }
}
