//! Encodes a response stream. The last event repeats the complete response, so all parts are kept until then. Items
//! that end earlier are encoded from the same parts.

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    super::{
        super::{
            ClientFormat,
            chat::{
                ChatResponse, Choice, Content, Logprob, Part, StopReason, StreamEvent, StreamStart, ToolCall,
            },
            errors,
            usage::Usage,
        },
        StreamEncoder,
        openai_chat::encode_logprob_list,
    },
    items::{encode_call_item, encode_content_part, encode_item, item_id},
    response::{ResponseObject, encode_response},
};

#[derive(Default)]
pub(super) struct Encoder {
    start: StreamStart,
    sequence: u64,
    parts: Vec<Part>,
    items: Vec<Item>,
    /// The open message or reasoning item. Tool calls stay open until the end, since their arguments can arrive in
    /// parallel.
    open_item: Option<usize>,
    /// The item index of each tool call.
    calls: Vec<usize>,
    logprobs: Vec<Logprob>,
    stop: Option<StopReason>,
    usage: Option<Usage>,
}

struct Item {
    id: String,
    /// The range of its parts.
    from: usize,
    to: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DeltaKind {
    Text,
    Refusal,
    Summary,
    Arguments,
}

impl DeltaKind {
    fn event_name(self) -> &'static str {
        match self {
            DeltaKind::Text => "response.output_text.delta",
            DeltaKind::Refusal => "response.refusal.delta",
            DeltaKind::Summary => "response.reasoning_summary_text.delta",
            DeltaKind::Arguments => "response.function_call_arguments.delta",
        }
    }
}

#[derive(Serialize)]
struct Delta<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    sequence_number: u64,
    item_id: &'a str,
    output_index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary_index: Option<usize>,
    #[serde(rename = "delta")]
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<[(); 0]>,
}

impl StreamEncoder for Encoder {
    fn encode_event(&mut self, event: StreamEvent, out: &mut Vec<u8>) {
        match event {
            StreamEvent::Start(start) => self.start(start, out),
            StreamEvent::Usage(usage) => self.usage = Some(usage),
            StreamEvent::Error(error) => {
                out.extend(errors::stream_error(ClientFormat::OpenAiResponses, &error.code, &error.message));
            }
            StreamEvent::Text { choice: 0, text } => self.push_text(&text, DeltaKind::Text, out),
            StreamEvent::Refusal { choice: 0, text } => self.push_text(&text, DeltaKind::Refusal, out),
            StreamEvent::Thinking { choice: 0, text } => self.push_thinking(&text, out),
            StreamEvent::Signature { choice: 0, signature } => self.push_signature(signature, out),
            StreamEvent::Redacted { choice: 0, data } => {
                self.close_item(out);
                self.start_item(Content::Redacted(data), out);
                self.end_item(self.items.len() - 1, out);
            }
            StreamEvent::ToolStart { choice: 0, id, name, signature, .. } => {
                self.close_item(out);
                let call = ToolCall { id, name, arguments: String::new(), signature };
                self.start_item(Content::ToolCall(call), out);
                self.calls.push(self.items.len() - 1);
            }
            StreamEvent::ToolArguments { choice: 0, tool, json } => self.push_arguments(tool, &json, out),
            StreamEvent::Logprobs { choice: 0, items } => self.logprobs.extend(items),
            StreamEvent::Stop { choice: 0, reason } => self.stop = Some(reason),
            // The format has a single choice.
            _ => {}
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.close_item(out);
        for at in std::mem::take(&mut self.calls) {
            if let Content::ToolCall(call) = &self.parts[self.items[at].from].content {
                let arguments = call.arguments.clone();
                let data = json!({"item_id": self.items[at].id, "output_index": at, "arguments": arguments});
                self.push_event("response.function_call_arguments.done", data, out);
            }
            self.end_item(at, out);
        }
        let StreamStart { id, model, created, .. } = std::mem::take(&mut self.start);
        let choice = Choice {
            index: 0,
            parts: std::mem::take(&mut self.parts),
            stop: self.stop.take(),
            logprobs: std::mem::take(&mut self.logprobs),
        };
        let response = encode_response(ChatResponse {
            id,
            model,
            created,
            choices: vec![choice],
            usage: self.usage.take(),
        });
        let last = match response["status"].as_str() {
            Some("incomplete") => "response.incomplete",
            Some("failed") => "response.failed",
            _ => "response.completed",
        };
        self.push_event(last, json!({"response": response}), out);
    }
}

impl Encoder {
    fn start(&mut self, start: StreamStart, out: &mut Vec<u8>) {
        let StreamStart { id, model, created, .. } = &start;
        let response = ResponseObject {
            id,
            model,
            created: *created,
            status: "in_progress",
            incomplete_reason: None,
            output: &[],
            usage: None,
        };
        let response = response.encode();
        self.start = start;
        self.push_event("response.created", json!({"response": response}), out);
        self.push_event("response.in_progress", json!({"response": response}), out);
    }

    fn push_event(&mut self, kind: &str, data: Value, out: &mut Vec<u8>) {
        let mut event = json!({"type": kind, "sequence_number": self.sequence});
        if let (Value::Object(event), Value::Object(mut data)) = (&mut event, data) {
            event.append(&mut data);
        }
        self.sequence += 1;
        out.extend_from_slice(format!("event: {kind}\ndata: {event}\n\n").as_bytes());
    }

    fn push_delta(&mut self, kind: DeltaKind, at: usize, text: &str, out: &mut Vec<u8>) {
        let Item { from, to, .. } = self.items[at];
        let name = kind.event_name();
        let (content_index, summary_index) = match kind {
            DeltaKind::Text | DeltaKind::Refusal => (Some(to - 1 - from), None),
            DeltaKind::Summary => (None, Some(0)),
            DeltaKind::Arguments => (None, None),
        };
        let delta = Delta {
            kind: name,
            sequence_number: self.sequence,
            item_id: &self.items[at].id,
            output_index: at,
            content_index,
            summary_index,
            text,
            logprobs: (kind == DeltaKind::Text).then_some([]),
        };
        self.sequence += 1;
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\ndata: ");
        // Writing to a Vec cannot fail.
        let _ = serde_json::to_writer(&mut *out, &delta);
        out.extend_from_slice(b"\n\n");
    }

    /// Starts an item with one part.
    fn start_item(&mut self, content: Content, out: &mut Vec<u8>) {
        let at = self.items.len();
        let from = self.parts.len();
        let part = Part::new(content);
        let id = item_id(&self.start.id, at, &part);
        let item = match &part.content {
            Content::ToolCall(call) => encode_call_item(&id, call, "in_progress"),
            Content::Thinking { .. } | Content::Redacted(_) => {
                json!({"id": id, "type": "reasoning", "summary": []})
            }
            _ => {
                json!({"id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": []})
            }
        };
        self.parts.push(part);
        self.items.push(Item { id, from, to: from + 1 });
        self.push_event("response.output_item.added", json!({"output_index": at, "item": item}), out);
    }

    fn push_text(&mut self, text: &str, kind: DeltaKind, out: &mut Vec<u8>) {
        let empty = if kind == DeltaKind::Refusal {
            Content::Refusal(String::new())
        } else {
            Content::Text(String::new())
        };
        let last = self.open_item.map(|at| &self.parts[self.items[at].to - 1].content);
        let continues_part = last.map(std::mem::discriminant) == Some(std::mem::discriminant(&empty));
        let in_message = last.is_some_and(|last| matches!(last, Content::Text(_) | Content::Refusal(_)));
        let at = match self.open_item {
            Some(at) if continues_part => at,
            Some(at) if in_message => {
                self.end_part(at, out);
                self.parts.push(Part::new(empty));
                self.items[at].to = self.parts.len();
                self.start_part(at, out);
                at
            }
            _ => {
                self.close_item(out);
                self.start_item(empty, out);
                let at = self.items.len() - 1;
                self.open_item = Some(at);
                self.start_part(at, out);
                at
            }
        };
        let last = self.items[at].to - 1;
        if let Content::Text(known) | Content::Refusal(known) = &mut self.parts[last].content {
            known.push_str(text);
        }
        self.push_delta(kind, at, text, out);
    }

    fn start_part(&mut self, at: usize, out: &mut Vec<u8>) {
        let Item { ref id, from, to } = self.items[at];
        let part = encode_content_part(&self.parts[to - 1], &json!([]));
        let data = json!({"item_id": id, "output_index": at, "content_index": to - 1 - from, "part": part});
        self.push_event("response.content_part.added", data, out);
    }

    fn end_part(&mut self, at: usize, out: &mut Vec<u8>) {
        let Item { ref id, from, to } = self.items[at];
        let part = &self.parts[to - 1];
        let location = json!({"item_id": id, "output_index": at, "content_index": to - 1 - from});
        let logprobs = encode_logprob_list(&self.logprobs);
        let (kind, mut data, encoded) = match &part.content {
            Content::Refusal(text) => {
                ("response.refusal.done", json!({"refusal": text}), encode_content_part(part, &logprobs))
            }
            Content::Text(text) => {
                let data = json!({"text": text, "logprobs": logprobs});
                ("response.output_text.done", data, encode_content_part(part, &logprobs))
            }
            _ => return,
        };
        let mut end = json!({"part": encoded});
        for event in [&mut data, &mut end] {
            if let (Value::Object(event), Value::Object(location)) = (event, location.clone()) {
                event.extend(location);
            }
        }
        self.push_event(kind, data, out);
        self.push_event("response.content_part.done", end, out);
    }

    fn push_thinking(&mut self, text: &str, out: &mut Vec<u8>) {
        let open = self
            .open_item
            .filter(|at| matches!(self.parts[self.items[*at].from].content, Content::Thinking { .. }));
        let at = if let Some(at) = open {
            at
        } else {
            self.close_item(out);
            self.start_item(Content::Thinking { text: String::new(), signature: None }, out);
            let at = self.items.len() - 1;
            self.open_item = Some(at);
            let part = json!({"type": "summary_text", "text": ""});
            let data =
                json!({"item_id": self.items[at].id, "output_index": at, "summary_index": 0, "part": part});
            self.push_event("response.reasoning_summary_part.added", data, out);
            at
        };
        if let Content::Thinking { text: known, .. } = &mut self.parts[self.items[at].from].content {
            known.push_str(text);
        }
        self.push_delta(DeltaKind::Summary, at, text, out);
    }

    /// Closes the open reasoning item with its signature. Without one, adds a reasoning item without text.
    fn push_signature(&mut self, value: String, out: &mut Vec<u8>) {
        let open = self.open_item.map(|at| self.items[at].from);
        if let Some(Content::Thinking { signature, .. }) = open.map(|from| &mut self.parts[from].content) {
            *signature = Some(value);
            self.close_item(out);
        } else {
            self.close_item(out);
            self.start_item(Content::Thinking { text: String::new(), signature: Some(value) }, out);
            self.end_item(self.items.len() - 1, out);
        }
    }

    fn push_arguments(&mut self, tool: u32, json: &str, out: &mut Vec<u8>) {
        let Some(&at) = self.calls.get(tool as usize) else { return };
        if let Content::ToolCall(call) = &mut self.parts[self.items[at].from].content {
            call.arguments.push_str(json);
        }
        self.push_delta(DeltaKind::Arguments, at, json, out);
    }

    /// Ends the open message or reasoning item.
    fn close_item(&mut self, out: &mut Vec<u8>) {
        let Some(at) = self.open_item.take() else { return };
        if let Content::Thinking { text, .. } = &self.parts[self.items[at].from].content {
            let id = &self.items[at].id;
            let located = |key: &str, value: Value| json!({"item_id": id, "output_index": at, "summary_index": 0, key: value});
            let text_done = located("text", text.clone().into());
            let part_done = located("part", json!({"type": "summary_text", "text": text}));
            self.push_event("response.reasoning_summary_text.done", text_done, out);
            self.push_event("response.reasoning_summary_part.done", part_done, out);
        } else {
            self.end_part(at, out);
        }
        self.end_item(at, out);
    }

    fn end_item(&mut self, at: usize, out: &mut Vec<u8>) {
        let Item { ref id, from, to } = self.items[at];
        let is_first_text =
            self.items[..at].iter().all(|item| !matches!(self.parts[item.from].content, Content::Text(_)));
        let logprobs = if is_first_text { encode_logprob_list(&self.logprobs) } else { json!([]) };
        let item = encode_item(id, &self.parts[from..to], &logprobs);
        self.push_event("response.output_item.done", json!({"output_index": at, "item": item}), out);
    }
}
