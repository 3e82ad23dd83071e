//! Decodes a Converse stream. The headers of a frame name the event, and the payload is a JSON object.

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
        json::parse_event,
    },
    decode_stop_reason,
};

#[derive(Default)]
pub(super) struct Decoder {
    calls: Vec<Call>,
    /// The stop reason and the usage arrive in two events. The stream ends after both.
    has_stop: bool,
    has_usage: bool,
}

struct Call {
    block: u32,
    has_arguments: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(default)]
    content_block_index: u32,
    start: Option<BlockStart>,
    delta: Option<Delta>,
    stop_reason: Option<String>,
    usage: Option<Map<String, Value>>,
    message: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockStart {
    tool_use: Option<ToolUse>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolUse {
    #[serde(rename = "toolUseId")]
    id: Option<String>,
    name: Option<String>,
    input: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Delta {
    text: Option<String>,
    tool_use: Option<ToolUse>,
    reasoning_content: Option<Reasoning>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reasoning {
    text: Option<String>,
    signature: Option<String>,
    redacted_content: Option<String>,
}

const CHOICE: u32 = 0;

impl StreamDecoder for Decoder {
    fn decode_event(&mut self, name: Option<&str>, data: &[u8], out: &mut Vec<StreamEvent>) -> bool {
        let choice = CHOICE;
        let name = name.unwrap_or_default();
        let Some(event) = parse_event::<Event>(data, out) else { return false };
        match name {
            "messageStart" => out.push(StreamEvent::Start(StreamStart::default())),
            "contentBlockStart" => {
                if let Some(call) = event.start.and_then(|start| start.tool_use) {
                    let Ok(tool) = u32::try_from(self.calls.len()) else { return false };
                    self.calls.push(Call { block: event.content_block_index, has_arguments: false });
                    out.push(StreamEvent::ToolStart {
                        choice,
                        tool,
                        id: call.id.unwrap_or_default(),
                        name: call.name.unwrap_or_default(),
                        signature: None,
                    });
                }
            }
            "contentBlockDelta" => {
                if let Some(delta) = event.delta {
                    self.apply_delta(event.content_block_index, delta, out);
                }
            }
            "contentBlockStop" => {
                if let Some((tool, call)) = self.find_call(event.content_block_index)
                    && !std::mem::replace(&mut call.has_arguments, true)
                {
                    out.push(StreamEvent::ToolArguments { choice, tool, json: "{}".to_owned() });
                }
            }
            "messageStop" => {
                let reason = decode_stop_reason(event.stop_reason.as_deref().unwrap_or_default());
                out.push(StreamEvent::Stop { choice, reason });
                self.has_stop = true;
            }
            "metadata" => {
                let usage =
                    event.usage.and_then(|report| usage::parse_report(ProviderFormat::Bedrock, &report));
                out.extend(usage.map(StreamEvent::Usage));
                self.has_usage = true;
            }
            exception if exception.ends_with("Exception") || event.message.is_some() => {
                out.push(StreamEvent::Error(stream_error(exception, event.message)));
                return true;
            }
            _ => {}
        }
        self.has_stop && self.has_usage
    }
}

impl Decoder {
    fn apply_delta(&mut self, block: u32, delta: Delta, out: &mut Vec<StreamEvent>) {
        let choice = CHOICE;
        if let Some(text) = delta.text {
            out.push(StreamEvent::Text { choice, text });
        }
        if let Some(json) = delta.tool_use.and_then(|call| call.input).filter(|json| !json.is_empty())
            && let Some((tool, call)) = self.find_call(block)
        {
            call.has_arguments = true;
            out.push(StreamEvent::ToolArguments { choice, tool, json });
        }
        if let Some(reasoning) = delta.reasoning_content {
            out.extend(reasoning.text.map(|text| StreamEvent::Thinking { choice, text }));
            out.extend(reasoning.signature.map(|signature| StreamEvent::Signature { choice, signature }));
            out.extend(reasoning.redacted_content.map(|data| StreamEvent::Redacted { choice, data }));
        }
    }

    fn find_call(&mut self, block: u32) -> Option<(u32, &mut Call)> {
        let at = self.calls.iter().position(|call| call.block == block)?;
        Some((u32::try_from(at).ok()?, &mut self.calls[at]))
    }
}

fn stream_error(name: &str, message: Option<String>) -> ProviderError {
    let status = match name {
        "throttlingException" => 429,
        "validationException" => 400,
        "serviceUnavailableException" => 503,
        "modelStreamErrorException" => 424,
        _ => 500,
    };
    let message = message.unwrap_or_else(|| "the provider reported an error without a message".to_owned());
    ProviderError { status, code: name.to_owned(), message }
}
