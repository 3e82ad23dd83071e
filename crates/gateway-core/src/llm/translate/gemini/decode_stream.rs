//! Decodes a provider's generateContent stream.

use serde_json::{Map, Value};

use super::{
    super::{
        super::{
            ProviderFormat,
            chat::{Content, StopReason, StreamEvent, StreamStart},
            usage,
        },
        StreamDecoder,
        json::{parse_event, str_field, take_array, take_object},
        sequencer::MAX_CHOICES,
    },
    decode_error, decode_stop_reason, is_prompt_blocked,
    response::{decode_logprobs, decode_part},
};

#[derive(Default)]
pub(super) struct Decoder {
    has_started: bool,
    /// The number of tool calls of each candidate so far.
    call_counts: Vec<u32>,
}

impl StreamDecoder for Decoder {
    fn decode_event(&mut self, _name: Option<&str>, data: &[u8], out: &mut Vec<StreamEvent>) -> bool {
        let Some(mut body) = parse_event::<Map<String, Value>>(data, out) else { return false };
        if let Some(error) = decode_error(502, &body) {
            out.push(StreamEvent::Error(error));
            return true;
        }
        if !std::mem::replace(&mut self.has_started, true) {
            out.push(StreamEvent::Start(StreamStart {
                id: str_field(&body, "responseId").to_owned(),
                model: str_field(&body, "modelVersion").to_owned(),
                created: None,
                usage: None,
            }));
        }
        let candidates = take_array(&mut body, "candidates").ok().flatten().unwrap_or_default();
        if candidates.is_empty() && is_prompt_blocked(&body) {
            out.push(StreamEvent::Stop { choice: 0, reason: StopReason::Filtered });
        }
        for candidate in candidates {
            if let Value::Object(candidate) = candidate {
                self.decode_candidate(candidate, out);
            }
        }
        let report = take_object(&mut body, "usageMetadata").ok().flatten();
        if let Some(usage) = report.and_then(|report| usage::parse_report(ProviderFormat::Gemini, &report)) {
            out.push(StreamEvent::Usage(usage));
        }
        false
    }
}

impl Decoder {
    fn decode_candidate(&mut self, mut candidate: Map<String, Value>, out: &mut Vec<StreamEvent>) {
        let index = candidate.get("index").and_then(Value::as_u64).unwrap_or(0);
        let Ok(choice) = u32::try_from(index) else { return };
        let mut content = take_object(&mut candidate, "content").ok().flatten().unwrap_or_default();
        for part in take_array(&mut content, "parts").ok().flatten().unwrap_or_default() {
            let Value::Object(part) = part else { continue };
            for part in decode_part(part).unwrap_or_default() {
                self.push_part(choice, part.content, out);
            }
        }
        let items = candidate.get("logprobsResult").map(decode_logprobs).unwrap_or_default();
        if !items.is_empty() {
            out.push(StreamEvent::Logprobs { choice, items });
        }
        if let Some(reason) = candidate.get("finishReason").and_then(Value::as_str) {
            out.push(StreamEvent::Stop { choice, reason: decode_stop_reason(reason) });
        }
    }

    fn push_part(&mut self, choice: u32, content: Content, out: &mut Vec<StreamEvent>) {
        match content {
            Content::Text(text) => out.push(StreamEvent::Text { choice, text }),
            Content::Thinking { text, signature } => {
                if !text.is_empty() {
                    out.push(StreamEvent::Thinking { choice, text });
                }
                out.extend(signature.map(|signature| StreamEvent::Signature { choice, signature }));
            }
            Content::ToolCall(call) => {
                let tool = self.next_call_number(choice);
                let (id, name, signature) = (call.id, call.name, call.signature);
                out.push(StreamEvent::ToolStart { choice, tool, id, name, signature });
                out.push(StreamEvent::ToolArguments { choice, tool, json: call.arguments });
            }
            _ => {}
        }
    }

    fn next_call_number(&mut self, choice: u32) -> u32 {
        let at = (choice as usize).min(MAX_CHOICES - 1);
        if self.call_counts.len() <= at {
            self.call_counts.resize(at + 1, 0);
        }
        self.call_counts[at] += 1;
        self.call_counts[at] - 1
    }
}
