//! Chat completions of OpenAI and compatible providers.

use serde_json::{Map, Value, json};

use super::{
    Aggregate, AggregateError,
    chunks::{EventBuffer, text_chunks},
    merge,
};

#[derive(Default)]
pub(super) struct State {
    body: Map<String, Value>,
    choices: Vec<(u64, Choice)>,
    done: bool,
}

#[derive(Default)]
struct Choice {
    message: Map<String, Value>,
    logprobs: Map<String, Value>,
    rest: Map<String, Value>,
}

impl Aggregate for State {
    fn add_event(&mut self, _: &str, mut chunk: Map<String, Value>) -> Result<(), AggregateError> {
        // Padding of streams, which bodies do not have.
        chunk.remove("obfuscation");
        let Some(Value::Array(choices)) = chunk.remove("choices").or_else(|| Some(json!([]))) else {
            return Err(AggregateError::UnsupportedResponse("choices is not a list"));
        };
        for choice in choices {
            let Value::Object(mut choice) = choice else {
                return Err(AggregateError::UnsupportedResponse("a choice is not an object"));
            };
            let into = merge::indexed(&mut self.choices, merge::index_of(&choice, "index").unwrap_or(0))?;
            if let Some(delta) = merge::take_object(&mut choice, "delta") {
                // Some providers repeat the message so far next to each delta.
                choice.remove("message");
                merge::delta(&mut into.message, delta);
            }
            if let Some(logprobs) = merge::take_object(&mut choice, "logprobs") {
                merge::delta(&mut into.logprobs, logprobs);
            }
            merge::latest(&mut into.rest, choice);
        }
        merge::latest(&mut self.body, chunk);
        Ok(())
    }

    fn done(&mut self) {
        self.done = true;
    }

    fn finish(self: Box<Self>) -> Result<Value, AggregateError> {
        let State { mut body, choices, done } = *self;
        let finished =
            |choice: &Choice| choice.rest.get("finish_reason").is_some_and(|reason| !reason.is_null());
        if choices.is_empty() || !(done || choices.iter().all(|(_, choice)| finished(choice))) {
            return Err(AggregateError::Incomplete);
        }
        let choices = choices.into_iter().map(|(index, choice)| choice.build(index));
        let choices = choices.collect::<Result<Vec<Value>, AggregateError>>()?;
        body.insert("object".into(), "chat.completion".into());
        body.insert("choices".into(), choices.into());
        if body.get("usage").is_some_and(Value::is_null) {
            body.remove("usage");
        }
        Ok(Value::Object(body))
    }
}

impl Choice {
    fn build(self, index: u64) -> Result<Value, AggregateError> {
        let Choice { mut message, logprobs, mut rest } = self;
        if rest.get("finish_reason").and_then(Value::as_str) == Some("error") {
            return Err(AggregateError::InBand("finish_reason error".into()));
        }
        message.entry("role").or_insert_with(|| "assistant".into());
        let has = |key: &str| match message.get(key) {
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(list)) => !list.is_empty(),
            Some(value) => !value.is_null(),
            None => false,
        };
        // A stream starts with empty content where a body has null.
        let has_other_output = ["tool_calls", "function_call", "refusal", "audio"].into_iter().any(has);
        let content = message.entry("content").or_insert(Value::Null);
        if has_other_output && content.as_str() == Some("") {
            *content = Value::Null;
        }
        if let Some(Value::Array(calls)) = message.get_mut("tool_calls") {
            for call in calls.iter_mut().filter_map(Value::as_object_mut) {
                call.remove("index");
            }
        }
        rest.insert("index".into(), index.into());
        rest.insert("message".into(), message.into());
        rest.entry("finish_reason").or_insert(Value::Null);
        if !logprobs.is_empty() {
            rest.insert("logprobs".into(), logprobs.into());
        }
        Ok(Value::Object(rest))
    }
}

/// The texts of a message that are streamed in chunks. All other members are in the first delta.
const STREAMED_TEXTS: [&str; 4] = ["reasoning_content", "reasoning", "content", "refusal"];

pub(super) fn synthesize(
    mut body: Map<String, Value>,
    include_usage: bool,
) -> Result<Vec<Vec<u8>>, AggregateError> {
    let Some(choices) = merge::take_list(&mut body, "choices") else {
        return Err(AggregateError::UnsupportedResponse("choices is not a list"));
    };
    let usage = body.remove("usage");
    let mut stream = ChunkStream::new(body, "chat.completion.chunk", include_usage);
    for choice in choices {
        let Value::Object(mut choice) = choice else {
            return Err(AggregateError::UnsupportedResponse("a choice is not an object"));
        };
        let Some(message) = merge::take_object(&mut choice, "message") else {
            return Err(AggregateError::UnsupportedResponse("a choice has no message"));
        };
        let index = choice.remove("index").unwrap_or_else(|| json!(0));
        let logprobs = choice.remove("logprobs");
        if logprobs.is_some() {
            choice.insert("logprobs".into(), Value::Null);
        }
        stream.message(&index, message, logprobs);
        stream.last(&index, &json!({"delta": {}}), choice);
    }
    Ok(stream.end(usage))
}

/// Builds the chunks of a stream, which share some members.
pub(super) struct ChunkStream {
    shared: Map<String, Value>,
    /// Other members of the body, which only the first chunk has.
    first_only: Map<String, Value>,
    include_usage: bool,
    events: EventBuffer,
}

impl ChunkStream {
    pub(super) fn new(body: Map<String, Value>, object: &str, include_usage: bool) -> Self {
        const SHARED: [&str; 5] = ["id", "created", "model", "system_fingerprint", "service_tier"];
        let (mut shared, first_only): (Map<String, Value>, Map<String, Value>) =
            body.into_iter().partition(|(key, _)| SHARED.contains(&&**key));
        shared.insert("object".into(), object.into());
        ChunkStream { shared, first_only, include_usage, events: EventBuffer::default() }
    }

    pub(super) fn chunk(&mut self, choice: &Map<String, Value>) {
        let mut chunk = self.shared.clone();
        let first_only = std::mem::take(&mut self.first_only);
        chunk.extend(first_only.into_iter().filter(|(key, _)| key != "object"));
        chunk.insert("choices".into(), json!([choice]));
        if self.include_usage {
            chunk.insert("usage".into(), Value::Null);
        }
        self.events.data(&Value::Object(chunk));
    }

    /// Adds the chunk with a choice's finish reason and its other members.
    pub(super) fn last(&mut self, index: &Value, empty: &Value, rest: Map<String, Value>) {
        let mut choice = Map::from_iter([("index".to_owned(), index.clone())]);
        choice.extend(empty.as_object().cloned().unwrap_or_default());
        choice.insert("finish_reason".into(), Value::Null);
        choice.extend(rest);
        self.chunk(&choice);
    }

    pub(super) fn end(mut self, usage: Option<Value>) -> Vec<Vec<u8>> {
        if let Some(usage) = usage.filter(|usage| self.include_usage && !usage.is_null()) {
            let mut chunk = self.shared;
            chunk.insert("choices".into(), json!([]));
            chunk.insert("usage".into(), usage);
            self.events.data(&Value::Object(chunk));
        }
        self.events.done();
        self.events.0
    }

    fn delta(&mut self, index: &Value, delta: Value, logprobs: Option<Value>) {
        let mut choice = Map::from_iter([("index".to_owned(), index.clone()), ("delta".to_owned(), delta)]);
        choice.extend(logprobs.map(|logprobs| ("logprobs".to_owned(), logprobs)));
        choice.insert("finish_reason".into(), Value::Null);
        self.chunk(&choice);
    }

    fn message(&mut self, index: &Value, mut message: Map<String, Value>, mut logprobs: Option<Value>) {
        let calls = merge::take_list(&mut message, "tool_calls");
        let mut texts = Vec::new();
        for key in STREAMED_TEXTS {
            if let Some(text) = message.get(key).and_then(Value::as_str) {
                texts.push((key, text.to_owned()));
                message.insert(key.to_owned(), "".into());
            }
        }
        if calls.as_ref().is_some_and(Vec::is_empty) {
            message.insert("tool_calls".into(), json!([]));
        }
        self.delta(index, Value::Object(message), None);
        for (key, text) in texts {
            if key == "content"
                && let Some(tokens) = logprobs.as_mut().and_then(|logprobs| take_tokens(logprobs, &text))
            {
                for (token, entry) in tokens {
                    self.delta(index, json!({key: token}), Some(json!({"content": [entry]})));
                }
                continue;
            }
            for piece in text_chunks(&text) {
                self.delta(index, json!({key: piece}), None);
            }
        }
        if let Some(logprobs) = logprobs.filter(|logprobs| !logprobs.is_null()) {
            self.delta(index, json!({}), Some(logprobs));
        }
        for (at, call) in calls.unwrap_or_default().into_iter().enumerate() {
            self.call(index, at, call);
        }
    }

    /// Adds a tool call: first its name, then its arguments in chunks.
    fn call(&mut self, index: &Value, at: usize, mut call: Value) {
        let mut input = None;
        for (kind, key) in [("function", "arguments"), ("custom", "input")] {
            if let Some(Value::String(text)) = call.get_mut(kind).and_then(|inner| inner.get_mut(key)) {
                input = Some((kind, key, std::mem::take(text)));
            }
        }
        if let Some(call) = call.as_object_mut() {
            call.insert("index".into(), at.into());
        }
        self.delta(index, json!({"tool_calls": [call]}), None);
        if let Some((kind, key, text)) = input {
            for piece in text_chunks(&text) {
                self.delta(index, json!({"tool_calls": [{"index": at, kind: {key: piece}}]}), None);
            }
        }
    }
}

/// Takes the tokens of a text with their probabilities out of `logprobs`, if they join to exactly that text.
fn take_tokens(logprobs: &mut Value, text: &str) -> Option<Vec<(String, Value)>> {
    let entries = logprobs.get_mut("content")?.as_array_mut()?;
    let token = |entry: &Value| entry.get("token").and_then(Value::as_str).map(str::to_owned);
    let tokens = entries.iter().map(token).collect::<Option<Vec<String>>>()?;
    if tokens.is_empty() || tokens.concat() != text {
        return None;
    }
    Some(tokens.into_iter().zip(std::mem::take(entries)).collect())
}
