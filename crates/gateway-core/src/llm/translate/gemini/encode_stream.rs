//! A stream of answers for a caller. Calls come whole in this format, so their arguments are gathered; reasons and usage
//! come with the last event.

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
    },
    encode_finish_reason,
    response::{encode_call, encode_logprobs, encode_usage},
};

#[derive(Default)]
pub(super) struct Encoder {
    /// What stands at the end of every event.
    rest: String,
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
    seen: bool,
    /// Calls whose arguments are still growing, with their numbers.
    calls: Vec<(u32, ToolCall)>,
    /// The last part was a text and no thought.
    spoke: bool,
    stop: Option<StopReason>,
}

impl StreamEncoder for Encoder {
    fn encode_event(&mut self, event: StreamEvent, out: &mut Vec<u8>) {
        match event {
            StreamEvent::Start(start) => {
                let rest = json!({"modelVersion": start.model, "responseId": start.id}).to_string();
                rest.trim_start_matches('{').clone_into(&mut self.rest);
            }
            StreamEvent::Usage(usage) => self.usage = Some(usage),
            StreamEvent::Error(failure) => {
                out.extend(errors::stream_error(ClientFormat::Gemini, &failure.code, &failure.message));
            }
            StreamEvent::Text { choice, text } | StreamEvent::Refusal { choice, text } => {
                self.flush(choice, out).spoke = true;
                self.part(choice, &TextPart { text: &text, thought: None }, out);
            }
            StreamEvent::Thinking { choice, text } => {
                self.flush(choice, out).spoke = false;
                self.part(choice, &TextPart { text: &text, thought: Some(true) }, out);
            }
            StreamEvent::Signature { choice, signature } => {
                let mut part = json!({"text": "", "thoughtSignature": signature});
                if !self.flush(choice, out).spoke {
                    part["thought"] = true.into();
                }
                self.part(choice, &part, out);
            }
            // Nobody but its maker can read it, and this format has no place for it.
            StreamEvent::Redacted { .. } => {}
            StreamEvent::ToolStart { choice, tool, id, name, signature } => {
                let call = ToolCall { id, name, arguments: String::new(), signature };
                let candidate = self.candidate(choice);
                candidate.spoke = false;
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
                self.write(&json!([candidate]), None, out);
            }
            StreamEvent::Stop { choice, reason } => self.flush(choice, out).stop = Some(reason),
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        let candidates = std::mem::take(&mut self.choices);
        let last: Vec<Value> = candidates
            .into_iter()
            .enumerate()
            .filter(|(_, candidate)| candidate.seen)
            .map(|(index, candidate)| {
                let reason = encode_finish_reason(&candidate.stop.unwrap_or(StopReason::EndTurn));
                json!({"content": {"role": "model"}, "finishReason": reason, "index": index})
            })
            .collect();
        let usage = self.usage.take().map(|usage| encode_usage(&usage));
        self.write(&last.into(), usage, out);
    }
}

impl Encoder {
    fn candidate(&mut self, choice: u32) -> &mut Candidate {
        const MOST: usize = 256;
        let at = (choice as usize).min(MOST - 1);
        if self.choices.len() <= at {
            self.choices.resize_with(at + 1, Candidate::default);
        }
        self.choices[at].seen = true;
        &mut self.choices[at]
    }

    /// Writes the calls that are complete by now, since something else follows.
    fn flush(&mut self, choice: u32, out: &mut Vec<u8>) -> &mut Candidate {
        for (_, call) in std::mem::take(&mut self.candidate(choice).calls) {
            self.part(choice, &encode_call(&call), out);
        }
        self.candidate(choice)
    }

    fn part(&self, choice: u32, part: &impl Serialize, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"data: {"candidates":[{"content":{"role":"model","parts":["#);
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(&mut *out, part);
        let _ = write!(out, "]}},\"index\":{choice}}}],{}\n\n", self.rest);
    }

    fn write(&self, candidates: &Value, usage: Option<Value>, out: &mut Vec<u8>) {
        let usage = usage.map(|usage| format!(r#""usageMetadata":{usage},"#)).unwrap_or_default();
        let _ = write!(out, "data: {{\"candidates\":{candidates},{usage}{}\n\n", self.rest);
    }
}
