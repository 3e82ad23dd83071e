//! A stream of a response for a caller. The last event repeats the whole answer, so all of it is kept until then; the
//! items that end before are written from the same parts.

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
    response::{encode_response, response_object},
};

#[derive(Default)]
pub(super) struct Encoder {
    start: StreamStart,
    sequence: u64,
    parts: Vec<Part>,
    items: Vec<Item>,
    /// The message or thought that is being written. Calls stay open until the end: they may grow side by side.
    open: Option<usize>,
    /// The item of each call.
    calls: Vec<usize>,
    logprobs: Vec<Logprob>,
    stop: Option<StopReason>,
    usage: Option<Usage>,
}

struct Item {
    id: String,
    /// The first of its parts.
    from: usize,
    to: usize,
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
            StreamEvent::Error(failure) => {
                out.extend(errors::stream_error(
                    ClientFormat::OpenAiResponses,
                    &failure.code,
                    &failure.message,
                ));
            }
            StreamEvent::Text { choice: 0, text } => self.say(&text, false, out),
            StreamEvent::Refusal { choice: 0, text } => self.say(&text, true, out),
            StreamEvent::Thinking { choice: 0, text } => self.think(&text, out),
            StreamEvent::Signature { choice: 0, signature } => self.sign(signature, out),
            StreamEvent::Redacted { choice: 0, data } => {
                self.close(out);
                self.add(Content::Redacted(data), out);
                self.done(self.items.len() - 1, out);
            }
            StreamEvent::ToolStart { choice: 0, id, name, signature, .. } => {
                self.close(out);
                let call = ToolCall { id, name, arguments: String::new(), signature };
                self.add(Content::ToolCall(call), out);
                self.calls.push(self.items.len() - 1);
            }
            StreamEvent::ToolArguments { choice: 0, tool, json } => self.arguments(tool, &json, out),
            StreamEvent::Logprobs { choice: 0, items } => self.logprobs.extend(items),
            StreamEvent::Stop { choice: 0, reason } => self.stop = Some(reason),
            // A caller of this format cannot have asked for more than one answer.
            _ => {}
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.close(out);
        for at in std::mem::take(&mut self.calls) {
            if let Content::ToolCall(call) = &self.parts[self.items[at].from].content {
                let arguments = call.arguments.clone();
                let data = json!({"item_id": self.items[at].id, "output_index": at, "arguments": arguments});
                self.push("response.function_call_arguments.done", data, out);
            }
            self.done(at, out);
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
        self.push(last, json!({"response": response}), out);
    }
}

impl Encoder {
    fn start(&mut self, start: StreamStart, out: &mut Vec<u8>) {
        let StreamStart { id, model, created, .. } = &start;
        let response = response_object(id, model, *created, "in_progress", None, &json!([]), None);
        self.start = start;
        self.push("response.created", json!({"response": response}), out);
        self.push("response.in_progress", json!({"response": response}), out);
    }

    fn push(&mut self, kind: &str, data: Value, out: &mut Vec<u8>) {
        let mut event = json!({"type": kind, "sequence_number": self.sequence});
        if let (Value::Object(event), Value::Object(mut data)) = (&mut event, data) {
            event.append(&mut data);
        }
        self.sequence += 1;
        out.extend_from_slice(format!("event: {kind}\ndata: {event}\n\n").as_bytes());
    }

    fn delta(
        &mut self,
        kind: &str,
        at: usize,
        place: (Option<usize>, Option<usize>),
        text: &str,
        out: &mut Vec<u8>,
    ) {
        let (content_index, summary_index) = place;
        let delta = Delta {
            kind,
            sequence_number: self.sequence,
            item_id: &self.items[at].id,
            output_index: at,
            content_index,
            summary_index,
            text,
            logprobs: (kind == "response.output_text.delta").then_some([]),
        };
        self.sequence += 1;
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\ndata: ");
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(&mut *out, &delta);
        out.extend_from_slice(b"\n\n");
    }

    /// Opens an item that holds one part.
    fn add(&mut self, content: Content, out: &mut Vec<u8>) {
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
        self.push("response.output_item.added", json!({"output_index": at, "item": item}), out);
    }

    fn say(&mut self, text: &str, refusal: bool, out: &mut Vec<u8>) {
        let (empty, kind) = if refusal {
            (Content::Refusal(String::new()), "response.refusal.delta")
        } else {
            (Content::Text(String::new()), "response.output_text.delta")
        };
        let last = self.open.map(|at| &self.parts[self.items[at].to - 1].content);
        let grows = last.map(std::mem::discriminant) == Some(std::mem::discriminant(&empty));
        let in_message = last.is_some_and(|last| matches!(last, Content::Text(_) | Content::Refusal(_)));
        let at = match self.open {
            Some(at) if grows => at,
            Some(at) if in_message => {
                self.part_done(at, out);
                self.parts.push(Part::new(empty));
                self.items[at].to = self.parts.len();
                self.part_added(at, out);
                at
            }
            _ => {
                self.close(out);
                self.add(empty, out);
                let at = self.items.len() - 1;
                self.open = Some(at);
                self.part_added(at, out);
                at
            }
        };
        let Item { from, to, .. } = self.items[at];
        if let Content::Text(known) | Content::Refusal(known) = &mut self.parts[to - 1].content {
            known.push_str(text);
        }
        self.delta(kind, at, (Some(to - 1 - from), None), text, out);
    }

    fn part_added(&mut self, at: usize, out: &mut Vec<u8>) {
        let Item { ref id, from, to } = self.items[at];
        let part = encode_content_part(&self.parts[to - 1], &json!([]));
        let data = json!({"item_id": id, "output_index": at, "content_index": to - 1 - from, "part": part});
        self.push("response.content_part.added", data, out);
    }

    fn part_done(&mut self, at: usize, out: &mut Vec<u8>) {
        let Item { ref id, from, to } = self.items[at];
        let part = &self.parts[to - 1];
        let place = json!({"item_id": id, "output_index": at, "content_index": to - 1 - from});
        let logprobs = encode_logprob_list(&self.logprobs);
        let (kind, mut data, whole) = match &part.content {
            Content::Refusal(text) => {
                ("response.refusal.done", json!({"refusal": text}), encode_content_part(part, &logprobs))
            }
            Content::Text(text) => {
                let data = json!({"text": text, "logprobs": logprobs});
                ("response.output_text.done", data, encode_content_part(part, &logprobs))
            }
            _ => return,
        };
        let mut end = json!({"part": whole});
        for event in [&mut data, &mut end] {
            if let (Value::Object(event), Value::Object(place)) = (event, place.clone()) {
                event.extend(place);
            }
        }
        self.push(kind, data, out);
        self.push("response.content_part.done", end, out);
    }

    fn think(&mut self, text: &str, out: &mut Vec<u8>) {
        let open = self
            .open
            .filter(|at| matches!(self.parts[self.items[*at].from].content, Content::Thinking { .. }));
        let at = if let Some(at) = open {
            at
        } else {
            self.close(out);
            self.add(Content::Thinking { text: String::new(), signature: None }, out);
            let at = self.items.len() - 1;
            self.open = Some(at);
            let part = json!({"type": "summary_text", "text": ""});
            let data =
                json!({"item_id": self.items[at].id, "output_index": at, "summary_index": 0, "part": part});
            self.push("response.reasoning_summary_part.added", data, out);
            at
        };
        if let Content::Thinking { text: known, .. } = &mut self.parts[self.items[at].from].content {
            known.push_str(text);
        }
        self.delta("response.reasoning_summary_text.delta", at, (None, Some(0)), text, out);
    }

    /// Ends a thought, or stands for one that is not shown.
    fn sign(&mut self, mark: String, out: &mut Vec<u8>) {
        let open = self.open.map(|at| self.items[at].from);
        if let Some(Content::Thinking { signature, .. }) = open.map(|from| &mut self.parts[from].content) {
            *signature = Some(mark);
            self.close(out);
        } else {
            self.close(out);
            self.add(Content::Thinking { text: String::new(), signature: Some(mark) }, out);
            self.done(self.items.len() - 1, out);
        }
    }

    fn arguments(&mut self, tool: u32, json: &str, out: &mut Vec<u8>) {
        let Some(&at) = self.calls.get(tool as usize) else { return };
        if let Content::ToolCall(call) = &mut self.parts[self.items[at].from].content {
            call.arguments.push_str(json);
        }
        self.delta("response.function_call_arguments.delta", at, (None, None), json, out);
    }

    /// Ends the message or thought that is open.
    fn close(&mut self, out: &mut Vec<u8>) {
        let Some(at) = self.open.take() else { return };
        if let Content::Thinking { text, .. } = &self.parts[self.items[at].from].content {
            let id = &self.items[at].id;
            let place = |key: &str, value: Value| json!({"item_id": id, "output_index": at, "summary_index": 0, key: value});
            let told = place("text", text.clone().into());
            let part = place("part", json!({"type": "summary_text", "text": text}));
            self.push("response.reasoning_summary_text.done", told, out);
            self.push("response.reasoning_summary_part.done", part, out);
        } else {
            self.part_done(at, out);
        }
        self.done(at, out);
    }

    fn done(&mut self, at: usize, out: &mut Vec<u8>) {
        let Item { ref id, from, to } = self.items[at];
        let first_said =
            self.items[..at].iter().all(|item| !matches!(self.parts[item.from].content, Content::Text(_)));
        let logprobs = if first_said { encode_logprob_list(&self.logprobs) } else { json!([]) };
        let item = encode_item(id, &self.parts[from..to], &logprobs);
        self.push("response.output_item.done", json!({"output_index": at, "item": item}), out);
    }
}
