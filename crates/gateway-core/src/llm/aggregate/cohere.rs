//! Cohere's chat API, version 2. Every event contains the part of the message that it adds.

use serde_json::{Map, Value, json};

use super::{
    Aggregate, AggregateError,
    chunks::{EventBuffer, text_chunks},
    merge,
};

#[derive(Default)]
pub(super) struct State {
    body: Map<String, Value>,
    message: Map<String, Value>,
    content: Vec<(u64, Map<String, Value>)>,
    calls: Vec<(u64, Map<String, Value>)>,
    citations: Vec<(u64, Map<String, Value>)>,
    logprobs: Vec<Value>,
    ended: bool,
}

impl Aggregate for State {
    fn add_event(&mut self, name: &str, mut event: Map<String, Value>) -> Result<(), AggregateError> {
        let kind = merge::take_text(&mut event, "type").unwrap_or_else(|| name.to_owned());
        let index = merge::index_of(&event, "index").unwrap_or(0);
        let mut delta = merge::take_object(&mut event, "delta").unwrap_or_default();
        let mut message = merge::take_object(&mut delta, "message").unwrap_or_default();
        match &*kind {
            "message-start" => {
                merge::latest(&mut self.body, event);
                merge::latest(&mut self.message, message);
            }
            "content-start" | "content-delta" => {
                self.logprobs.extend(event.remove("logprobs").filter(|entry| !entry.is_null()));
                let more = merge::take_object(&mut message, "content").unwrap_or_default();
                merge::delta(merge::indexed(&mut self.content, index)?, more);
            }
            "tool-plan-delta" => merge::delta(&mut self.message, message),
            "tool-call-start" | "tool-call-delta" => {
                let more = merge::take_object(&mut message, "tool_calls").unwrap_or_default();
                merge::delta(merge::indexed(&mut self.calls, index)?, more);
            }
            "citation-start" => {
                let citation = merge::take_object(&mut message, "citations").unwrap_or_default();
                *merge::indexed(&mut self.citations, index)? = citation;
            }
            "message-end" => {
                if let Some(error) = delta.get("error").and_then(Value::as_str) {
                    return Err(AggregateError::InBand(error.into()));
                }
                if let Some(reason) = delta.get("finish_reason").and_then(Value::as_str)
                    && reason.starts_with("ERROR")
                {
                    return Err(AggregateError::InBand(format!("finish_reason {reason}").into()));
                }
                merge::latest(&mut self.body, event);
                merge::latest(&mut self.body, delta);
                self.ended = true;
            }
            // Ends of blocks, and debug events.
            _ => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value, AggregateError> {
        let State { mut body, mut message, content, calls, citations, logprobs, ended: true } = *self else {
            return Err(AggregateError::Incomplete);
        };
        // A stream starts with empty lists, which a body omits.
        message.retain(|_, value| *value != json!([]) && *value != json!(""));
        for (key, list) in [("content", content), ("tool_calls", calls), ("citations", citations)] {
            if !list.is_empty() {
                message.insert(key.into(), list.into_iter().map(|(_, item)| Value::Object(item)).collect());
            }
        }
        body.insert("message".into(), message.into());
        if !logprobs.is_empty() {
            body.insert("logprobs".into(), logprobs.into());
        }
        Ok(Value::Object(body))
    }
}

pub(super) fn synthesize(mut body: Map<String, Value>) -> Result<Vec<Vec<u8>>, AggregateError> {
    let message = merge::take_object(&mut body, "message");
    let mut message = message.ok_or(AggregateError::UnsupportedResponse("the body has no message"))?;
    let content = merge::take_list(&mut message, "content").unwrap_or_default();
    let calls = merge::take_list(&mut message, "tool_calls").unwrap_or_default();
    let citations = merge::take_list(&mut message, "citations").unwrap_or_default();
    let plan = merge::take_text(&mut message, "tool_plan").unwrap_or_default();
    let mut logprobs = merge::take_list(&mut body, "logprobs").unwrap_or_default().into_iter();
    let id = body.remove("id");

    let mut events = EventBuffer::default();
    for (key, empty) in [
        ("content", json!([])),
        ("tool_plan", json!("")),
        ("tool_calls", json!([])),
        ("citations", json!([])),
    ] {
        message.insert(key.into(), empty);
    }
    let mut start = json!({"type": "message-start", "delta": {"message": message}});
    if let (Some(id), Some(start)) = (id, start.as_object_mut()) {
        start.insert("id".into(), id);
    }
    events.named("message-start", &start);
    let mut step = |kind: &str, index: Option<usize>, member: &str, value: Value, entry: Option<Value>| {
        let mut event = json!({"type": kind, "delta": {"message": {member: value}}});
        if let Some(event) = event.as_object_mut() {
            event.extend(index.map(|index| ("index".to_owned(), index.into())));
            event.extend(entry.map(|entry| ("logprobs".to_owned(), entry)));
        }
        events.named(kind, &event);
    };
    for piece in text_chunks(&plan) {
        step("tool-plan-delta", None, "tool_plan", piece.into(), None);
    }
    for (at, mut call) in calls.into_iter().enumerate() {
        let arguments = match call.get_mut("function").and_then(|function| function.get_mut("arguments")) {
            Some(Value::String(text)) => std::mem::take(text),
            _ => String::new(),
        };
        step("tool-call-start", Some(at), "tool_calls", call, None);
        for piece in text_chunks(&arguments) {
            step("tool-call-delta", Some(at), "tool_calls", json!({"function": {"arguments": piece}}), None);
        }
        step("tool-call-end", Some(at), "tool_calls", json!({}), None);
    }
    for (at, mut block) in content.into_iter().enumerate() {
        let key = if block.get("thinking").is_some() { "thinking" } else { "text" };
        let text = match block.get_mut(key) {
            Some(Value::String(text)) => std::mem::take(text),
            _ => String::new(),
        };
        step("content-start", Some(at), "content", block, None);
        for piece in text_chunks(&text) {
            step("content-delta", Some(at), "content", json!({key: piece}), logprobs.next());
        }
        step("content-end", Some(at), "content", json!({}), None);
    }
    // If there are more probabilities than chunks, the rest follow without text.
    for entry in logprobs {
        step("content-delta", Some(0), "content", json!({}), Some(entry));
    }
    for (at, citation) in citations.into_iter().enumerate() {
        step("citation-start", Some(at), "citations", citation, None);
        step("citation-end", Some(at), "citations", json!({}), None);
    }
    events.named("message-end", &json!({"type": "message-end", "delta": body}));
    Ok(events.0)
}
