//! Gemini's generateContent. Every event of a stream is a complete response with a few more parts.

use serde_json::{Map, Value, json};

use super::{
    Aggregate, AggregateError,
    chunks::{EventBuffer, text_chunks},
    merge,
};

#[derive(Default)]
pub(super) struct State {
    body: Map<String, Value>,
    candidates: Vec<(u64, Candidate)>,
}

#[derive(Default)]
struct Candidate {
    content: Option<Map<String, Value>>,
    parts: Option<Vec<Value>>,
    rest: Map<String, Value>,
}

impl Aggregate for State {
    fn add_event(&mut self, _: &str, mut chunk: Map<String, Value>) -> Result<(), AggregateError> {
        for candidate in merge::take_list(&mut chunk, "candidates").unwrap_or_default() {
            let Value::Object(mut candidate) = candidate else {
                return Err(AggregateError::UnsupportedResponse("a candidate is not an object"));
            };
            let index = merge::index_of(&candidate, "index").unwrap_or(0);
            let into = merge::indexed(&mut self.candidates, index)?;
            if let Some(content) = merge::take_object(&mut candidate, "content") {
                into.add_delta(content)?;
            }
            for (key, lists) in [
                ("citationMetadata", &["citationSources", "citations"]),
                ("logprobsResult", &["topCandidates", "chosenCandidates"]),
            ] {
                if let Some(more) = merge::take_object(&mut candidate, key) {
                    let known = into.rest.entry(key).or_insert_with(|| json!({}));
                    extend(known, more, lists);
                }
            }
            merge::latest(&mut into.rest, candidate);
        }
        // Early events omit counts that only the last one has.
        if let Some(usage) = merge::take_object(&mut chunk, "usageMetadata") {
            match self.body.get_mut("usageMetadata") {
                Some(Value::Object(known)) => merge::latest(known, usage),
                _ => {
                    self.body.insert("usageMetadata".into(), usage.into());
                }
            }
        }
        merge::latest(&mut self.body, chunk);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value, AggregateError> {
        let State { mut body, candidates } = *self;
        let finished =
            |candidate: &Candidate| candidate.rest.get("finishReason").is_some_and(Value::is_string);
        let blocked =
            body.get("promptFeedback").is_some_and(|feedback| feedback.get("blockReason").is_some());
        if !candidates.iter().all(|(_, candidate)| finished(candidate)) || (candidates.is_empty() && !blocked)
        {
            return Err(AggregateError::Incomplete);
        }
        if !candidates.is_empty() {
            let candidates = candidates.into_iter().map(|(_, candidate)| candidate.build());
            body.insert("candidates".into(), candidates.collect());
        }
        Ok(Value::Object(body))
    }
}

impl Candidate {
    fn add_delta(&mut self, mut content: Map<String, Value>) -> Result<(), AggregateError> {
        let parts = merge::take_list(&mut content, "parts");
        merge::latest(self.content.get_or_insert_default(), content);
        let Some(parts) = parts else { return Ok(()) };
        let known = self.parts.get_or_insert_default();
        for part in parts {
            let call = part.get("functionCall");
            if call
                .is_some_and(|call| call.get("partialArgs").is_some() || call.get("willContinue").is_some())
            {
                return Err(AggregateError::UnsupportedResponse("partial function call arguments"));
            }
            if let Some((mark, thought)) = bare_signature(&part)
                && let Some(last) = known.last_mut()
                && is_thought_text(last) == Some(thought)
            {
                last["thoughtSignature"] = mark.into();
                continue;
            }
            match (known.last_mut().and_then(plain_text_mut), &part) {
                (Some((text, thought)), part) if is_thought_text(part) == Some(thought) => {
                    text.push_str(part.get("text").and_then(Value::as_str).unwrap_or_default());
                }
                (_, part)
                    if is_thought_text(part).is_some()
                        && part.get("text").and_then(Value::as_str) == Some("") => {}
                _ => known.push(part),
            }
        }
        Ok(())
    }

    fn build(self) -> Value {
        let Candidate { content, parts, mut rest } = self;
        if let Some(mut content) = content {
            if let Some(parts) = parts.filter(|parts| !parts.is_empty()) {
                content.insert("parts".into(), parts.into());
            }
            rest.insert("content".into(), content.into());
        }
        Value::Object(rest)
    }
}

/// A signature in an empty text part behind the text. A body has the signature in the text part itself.
fn bare_signature(part: &Value) -> Option<(String, bool)> {
    let members = part.as_object()?;
    let thought = members.get("thought").and_then(Value::as_bool);
    let mark = members.get("thoughtSignature")?.as_str()?;
    let known = 2 + usize::from(thought.is_some());
    (members.len() == known && members.get("text")?.as_str()?.is_empty())
        .then(|| (mark.to_owned(), thought.unwrap_or(false)))
}

/// For a part that is only text: whether it is a thought. Parts with signatures are never merged, because a signature
/// is valid for its own part only.
fn is_thought_text(part: &Value) -> Option<bool> {
    let members = part.as_object()?;
    let thought = members.get("thought").and_then(Value::as_bool);
    let known = 1 + usize::from(thought.is_some());
    (members.len() == known && members.get("text").is_some_and(Value::is_string))
        .then(|| thought.unwrap_or(false))
}

fn plain_text_mut(part: &mut Value) -> Option<(&mut String, bool)> {
    let thought = is_thought_text(part)?;
    match part.get_mut("text") {
        Some(Value::String(text)) => Some((text, thought)),
        _ => None,
    }
}

/// Appends to the lists of an object and replaces its other members.
fn extend(known: &mut Value, mut more: Map<String, Value>, lists: &[&str]) {
    let Value::Object(known) = known else { return };
    for key in lists {
        if let (Some(Value::Array(old)), Some(Value::Array(new))) = (known.get_mut(*key), more.get_mut(*key))
        {
            old.extend(std::mem::take(new));
            more.remove(*key);
        }
    }
    merge::latest(known, more);
}

pub(super) fn synthesize(mut body: Map<String, Value>) -> Result<Vec<Vec<u8>>, AggregateError> {
    let candidates = merge::take_list(&mut body, "candidates").unwrap_or_default();
    if candidates.is_empty() && !body.contains_key("promptFeedback") {
        return Err(AggregateError::UnsupportedResponse("the body has no candidates"));
    }
    let mut chunks = Vec::new();
    for candidate in candidates {
        let Value::Object(mut candidate) = candidate else {
            return Err(AggregateError::UnsupportedResponse("a candidate is not an object"));
        };
        let index = candidate.get("index").cloned();
        let mut content = merge::take_object(&mut candidate, "content");
        let parts =
            content.as_mut().and_then(|content| merge::take_list(content, "parts")).unwrap_or_default();
        let mut steps: Vec<Map<String, Value>> = Vec::new();
        for part in parts.into_iter().flat_map(split_part) {
            let mut content = content.clone().unwrap_or_default();
            content.insert("parts".into(), json!([part]));
            let mut step = Map::from_iter([("content".to_owned(), content.into())]);
            step.extend(index.clone().map(|index| ("index".to_owned(), index)));
            steps.push(step);
        }
        let mut last = steps.pop().unwrap_or_else(|| {
            content.map(|content| ("content".to_owned(), Value::Object(content))).into_iter().collect()
        });
        last.extend(candidate);
        steps.push(last);
        chunks.extend(steps);
    }
    const SHARED: [&str; 3] = ["modelVersion", "responseId", "createTime"];
    let shared: Map<String, Value> =
        SHARED.iter().filter_map(|key| Some(((*key).to_owned(), body.get(*key)?.clone()))).collect();
    let mut events = EventBuffer::default();
    let last = chunks.pop();
    for chunk in chunks {
        let mut event = shared.clone();
        event.insert("candidates".into(), json!([chunk]));
        events.data(&Value::Object(event));
    }
    if let Some(last) = last {
        body.insert("candidates".into(), json!([last]));
    }
    events.data(&Value::Object(body));
    Ok(events.0)
}

/// Splits a text part into chunks. Other parts stay whole.
fn split_part(part: Value) -> Vec<Value> {
    if is_thought_text(&part).is_none() {
        return vec![part];
    }
    let text = part.get("text").and_then(Value::as_str).unwrap_or_default();
    text_chunks(text)
        .map(|piece| {
            let mut part = part.clone();
            if let Some(members) = part.as_object_mut() {
                members.insert("text".into(), piece.into());
            }
            part
        })
        .collect()
}
