//! Encodes a generateContent stream. The format sends tool calls complete, so their arguments are buffered. Finish
//! reasons and usage are sent with the last event.

use std::io::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    super::{
        super::{
            ClientFormat,
            chat::{StopReason, StreamEvent, ToolCall},
            errors,
            usage::Usage,
        },
        StreamEncoder,
        sequencer::MAX_CHOICES,
    },
    encode_finish_reason,
    response::{encode_call, encode_logprobs, encode_usage},
};

#[derive(Default)]
pub(super) struct Encoder {
    /// The encoded fields that end every event.
    trailer: String,
    usage: Option<Usage>,
    choices: Vec<Candidate>,
}

#[derive(Serialize)]
struct TextPart<'a> {
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought: Option<bool>,
}

#[derive(Default)]
struct Candidate {
    is_used: bool,
    /// Tool calls with incomplete arguments, with their numbers.
    calls: Vec<(u32, ToolCall)>,
    /// Whether the last part was text. A signature then belongs to that text and not to thinking.
    ends_with_text: bool,
    stop: Option<StopReason>,
}

impl StreamEncoder for Encoder {
    fn encode_event(&mut self, event: StreamEvent, out: &mut Vec<u8>) {
        match event {
            StreamEvent::Start(start) => {
                let trailer = json!({"modelVersion": start.model, "responseId": start.id}).to_string();
                trailer.trim_start_matches('{').clone_into(&mut self.trailer);
            }
            StreamEvent::Usage(usage) => self.usage = Some(usage),
            StreamEvent::Error(error) => {
                out.extend(errors::stream_error(ClientFormat::Gemini, &error.code, &error.message));
            }
            StreamEvent::Text { choice, text } | StreamEvent::Refusal { choice, text } => {
                self.flush_calls(choice, out).ends_with_text = true;
                self.push_part(choice, &TextPart { text: &text, thought: None }, out);
            }
            StreamEvent::Thinking { choice, text } => {
                self.flush_calls(choice, out).ends_with_text = false;
                self.push_part(choice, &TextPart { text: &text, thought: Some(true) }, out);
            }
            StreamEvent::Signature { choice, signature } => {
                let mut part = json!({"text": "", "thoughtSignature": signature});
                if !self.flush_calls(choice, out).ends_with_text {
                    part["thought"] = true.into();
                }
                self.push_part(choice, &part, out);
            }
            // This format has no field for encrypted thinking.
            StreamEvent::Redacted { .. } => {}
            StreamEvent::ToolStart { choice, tool, id, name, signature } => {
                let call = ToolCall { id, name, arguments: String::new(), signature };
                let candidate = self.candidate(choice);
                candidate.ends_with_text = false;
                candidate.calls.push((tool, call));
            }
            StreamEvent::ToolArguments { choice, tool, json } => {
                let calls = &mut self.candidate(choice).calls;
                if let Some((_, call)) = calls.iter_mut().find(|(number, _)| *number == tool) {
                    call.arguments.push_str(&json);
                }
            }
            StreamEvent::Logprobs { choice, items } => {
                let candidate = json!({"index": choice, "logprobsResult": encode_logprobs(&items)});
                self.push_candidates(&json!([candidate]), None, out);
            }
            StreamEvent::Stop { choice, reason } => self.flush_calls(choice, out).stop = Some(reason),
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        let candidates = std::mem::take(&mut self.choices);
        let last: Vec<Value> = candidates
            .into_iter()
            .enumerate()
            .filter(|(_, candidate)| candidate.is_used)
            .map(|(index, candidate)| {
                let reason = encode_finish_reason(&candidate.stop.unwrap_or(StopReason::EndTurn));
                json!({"content": {"role": "model"}, "finishReason": reason, "index": index})
            })
            .collect();
        let usage = self.usage.take().map(|usage| encode_usage(&usage));
        self.push_candidates(&last.into(), usage, out);
    }
}

impl Encoder {
    fn candidate(&mut self, choice: u32) -> &mut Candidate {
        let at = (choice as usize).min(MAX_CHOICES - 1);
        if self.choices.len() <= at {
            self.choices.resize_with(at + 1, Candidate::default);
        }
        self.choices[at].is_used = true;
        &mut self.choices[at]
    }

    /// Writes the buffered tool calls. They are complete when another part follows.
    fn flush_calls(&mut self, choice: u32, out: &mut Vec<u8>) -> &mut Candidate {
        for (_, call) in std::mem::take(&mut self.candidate(choice).calls) {
            self.push_part(choice, &encode_call(&call), out);
        }
        self.candidate(choice)
    }

    fn push_part(&self, choice: u32, part: &impl Serialize, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"data: {"candidates":[{"content":{"role":"model","parts":["#);
        // Writing to a Vec cannot fail.
        let _ = serde_json::to_writer(&mut *out, part);
        let _ = write!(out, "]}},\"index\":{choice}}}],{}\n\n", self.trailer);
    }

    fn push_candidates(&self, candidates: &Value, usage: Option<Value>, out: &mut Vec<u8>) {
        let usage = usage.map(|usage| format!(r#""usageMetadata":{usage},"#)).unwrap_or_default();
        let _ = write!(out, "data: {{\"candidates\":{candidates},{usage}{}\n\n", self.trailer);
    }
}
