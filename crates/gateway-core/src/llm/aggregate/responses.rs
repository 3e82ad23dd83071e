//! OpenAI's responses API. The last event of a stream repeats the complete response, so aggregation returns that event.

use serde_json::{Map, Value, json};

use super::{
    Aggregate, AggregateError,
    chunks::{EventBuffer, text_chunks},
    describe, merge,
};

#[derive(Default)]
pub(super) struct State {
    /// Completed items by index, for servers whose last event omits them.
    items: Vec<(u64, Value)>,
    response: Option<Map<String, Value>>,
}

impl Aggregate for State {
    fn add_event(&mut self, name: &str, mut event: Map<String, Value>) -> Result<(), AggregateError> {
        let kind = merge::take_text(&mut event, "type").unwrap_or_else(|| name.to_owned());
        match &*kind {
            "response.output_item.done" => {
                if let (Some(index), Some(item)) =
                    (merge::index_of(&event, "output_index"), event.remove("item"))
                {
                    *merge::indexed(&mut self.items, index)? = item;
                }
            }
            "response.completed" | "response.incomplete" => {
                let response = merge::take_object(&mut event, "response");
                self.response = Some(
                    response.ok_or(AggregateError::UnsupportedResponse("the last event has no response"))?,
                );
            }
            "response.failed" | "response.cancelled" => {
                let error = event.get("response").and_then(|response| response.get("error"));
                return Err(AggregateError::InBand(error.map_or_else(|| kind.into(), describe)));
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value, AggregateError> {
        let mut response = self.response.ok_or(AggregateError::Incomplete)?;
        let empty = response.get("output").and_then(Value::as_array).is_none_or(Vec::is_empty);
        if empty {
            let items: Vec<Value> = self.items.into_iter().map(|(_, item)| item).collect();
            response.insert("output".into(), items.into());
        }
        Ok(Value::Object(response))
    }
}

pub(super) fn synthesize(body: &Map<String, Value>) -> Result<Vec<Vec<u8>>, AggregateError> {
    let Some(Value::Array(output)) = body.get("output") else {
        return Err(AggregateError::UnsupportedResponse("output is not a list"));
    };
    let last = match body.get("status").and_then(Value::as_str) {
        Some("completed") | None => "response.completed",
        Some("incomplete") => "response.incomplete",
        Some(_) => return Err(AggregateError::UnsupportedResponse("the response is not complete")),
    };
    let mut started = body.clone();
    for (key, value) in [("output", json!([])), ("status", "in_progress".into()), ("usage", Value::Null)] {
        started.insert(key.into(), value);
    }
    for key in ["incomplete_details", "completed_at", "output_text"] {
        if let Some(value) = started.get_mut(key) {
            *value = Value::Null;
        }
    }
    let mut events = NumberedEvents::default();
    events.push("response.created", json!({"response": started}));
    events.push("response.in_progress", json!({"response": started}));
    for (at, item) in output.iter().enumerate() {
        events.item(at, item);
    }
    events.push(last, json!({"response": body}));
    Ok(events.events.0)
}

/// Events with sequence numbers.
#[derive(Default)]
struct NumberedEvents {
    next: u64,
    events: EventBuffer,
}

impl NumberedEvents {
    fn push(&mut self, name: &str, mut data: Value) {
        if let Some(data) = data.as_object_mut() {
            data.insert("type".into(), name.into());
            data.insert("sequence_number".into(), self.next.into());
        }
        self.next += 1;
        self.events.named(name, &data);
    }

    fn item(&mut self, at: usize, item: &Value) {
        let kind = item.get("type").and_then(Value::as_str).unwrap_or_default();
        let input = match kind {
            "function_call" | "mcp_call" => Some(("arguments", format!("response.{kind}_arguments"))),
            "custom_tool_call" => Some(("input", "response.custom_tool_call_input".to_owned())),
            _ => None,
        };
        let mut started = item.clone();
        if let Some(members) = started.as_object_mut() {
            if members.contains_key("status") {
                members.insert("status".into(), "in_progress".into());
            }
            for key in ["content", "summary"] {
                if members.get(key).is_some_and(Value::is_array) {
                    members.insert(key.into(), json!([]));
                }
            }
            if let Some((key, _)) = &input {
                members.insert((*key).into(), "".into());
            }
        }
        self.push("response.output_item.added", json!({"output_index": at, "item": started}));
        let place = json!({"item_id": item.get("id"), "output_index": at});
        let parts = |key: &str| item.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        for (index, part) in parts("summary").iter().enumerate() {
            self.summary(&with(&place, "summary_index", index.into()), part);
        }
        for (index, part) in parts("content").iter().enumerate() {
            self.part(&with(&place, "content_index", index.into()), part);
        }
        if let Some((key, event)) = input {
            let text = item.get(key).and_then(Value::as_str).unwrap_or_default();
            self.text(&event, &place, key, text);
        }
        self.push("response.output_item.done", json!({"output_index": at, "item": item}));
    }

    /// Adds one content part of a message or a reasoning item.
    fn part(&mut self, place: &Value, part: &Value) {
        let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
        let (event, key) = match kind {
            "output_text" => ("response.output_text", "text"),
            "refusal" => ("response.refusal", "refusal"),
            "reasoning_text" => ("response.reasoning_text", "text"),
            _ => ("", ""),
        };
        let mut started = part.clone();
        if let Some(members) = started.as_object_mut() {
            for (name, value) in members.iter_mut() {
                match value {
                    Value::String(text) if name == key => text.clear(),
                    Value::Array(list) => list.clear(),
                    _ => {}
                }
            }
        }
        self.push("response.content_part.added", with(place, "part", started));
        if let Some(text) = part.get(key).and_then(Value::as_str) {
            self.text(event, place, key, text);
        }
        for (index, annotation) in
            part.get("annotations").and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            let data = with(&with(place, "annotation_index", index.into()), "annotation", annotation.clone());
            self.push("response.output_text.annotation.added", data);
        }
        self.push("response.content_part.done", with(place, "part", part.clone()));
    }

    fn summary(&mut self, place: &Value, part: &Value) {
        let mut started = part.clone();
        if let Some(Value::String(text)) = started.get_mut("text") {
            text.clear();
        }
        self.push("response.reasoning_summary_part.added", with(place, "part", started));
        if let Some(text) = part.get("text").and_then(Value::as_str) {
            self.text("response.reasoning_summary_text", place, "text", text);
        }
        self.push("response.reasoning_summary_part.done", with(place, "part", part.clone()));
    }

    /// Adds a text: first in chunks, then complete.
    fn text(&mut self, event: &str, place: &Value, key: &str, text: &str) {
        let delta = format!("{event}.delta");
        for piece in text_chunks(text) {
            let mut data = with(place, "delta", piece.into());
            if event == "response.output_text" {
                data = with(&data, "logprobs", json!([]));
            }
            self.push(&delta, data);
        }
        let mut data = with(place, key, text.into());
        if event == "response.output_text" {
            data = with(&data, "logprobs", json!([]));
        }
        self.push(&format!("{event}.done"), data);
    }
}

fn with(place: &Value, key: &str, value: Value) -> Value {
    let mut place = place.clone();
    if let Some(members) = place.as_object_mut() {
        members.insert(key.into(), value);
    }
    place
}
