//! Gemini's generateContent: every event of a stream is a whole answer with a few more parts.

use serde_json::{Map, Value, json};

use super::{
    Aggregate, AggregateError, merge,
    pieces::{Written, pieces},
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
    fn take(&mut self, _: &str, mut chunk: Map<String, Value>) -> Result<(), AggregateError> {
        for candidate in merge::take_list(&mut chunk, "candidates").unwrap_or_default() {
            let Value::Object(mut candidate) = candidate else {
                return Err(AggregateError::NotUnderstood("a candidate is no object"));
            };
            let index = merge::index_of(&candidate, "index").unwrap_or(0);
            let into = merge::indexed(&mut self.candidates, index)?;
            if let Some(content) = merge::take_object(&mut candidate, "content") {
                into.grow(content)?;
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
        // Early events leave out what only the last one knows.
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
            let candidates = candidates.into_iter().map(|(_, candidate)| candidate.whole());
            body.insert("candidates".into(), candidates.collect());
        }
        Ok(Value::Object(body))
    }
}

impl Candidate {
    fn grow(&mut self, mut content: Map<String, Value>) -> Result<(), AggregateError> {
        let parts = merge::take_list(&mut content, "parts");
        merge::latest(self.content.get_or_insert_default(), content);
        let Some(parts) = parts else { return Ok(()) };
        let known = self.parts.get_or_insert_default();
        for part in parts {
            let call = part.get("functionCall");
            if call
                .is_some_and(|call| call.get("partialArgs").is_some() || call.get("willContinue").is_some())
            {
                return Err(AggregateError::NotUnderstood("arguments that come in pieces"));
            }
            if let Some((mark, thought)) = bare_signature(&part)
                && let Some(last) = known.last_mut()
                && plain(last) == Some(thought)
            {
                last["thoughtSignature"] = mark.into();
                continue;
            }
            match (known.last_mut().and_then(plain_text), &part) {
                (Some((text, thought)), part) if plain(part) == Some(thought) => {
                    text.push_str(part.get("text").and_then(Value::as_str).unwrap_or_default());
                }
                (_, part)
                    if plain(part).is_some() && part.get("text").and_then(Value::as_str) == Some("") => {}
                _ => known.push(part),
            }
        }
        Ok(())
    }

    fn whole(self) -> Value {
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

/// A signature that came behind the last of its text, in a part without any; a plain answer has it in the text's own.
fn bare_signature(part: &Value) -> Option<(String, bool)> {
    let members = part.as_object()?;
    let thought = members.get("thought").and_then(Value::as_bool);
    let mark = members.get("thoughtSignature")?.as_str()?;
    let known = 2 + usize::from(thought.is_some());
    (members.len() == known && members.get("text")?.as_str()?.is_empty())
        .then(|| (mark.to_owned(), thought.unwrap_or(false)))
}

/// Whether a part is text and nothing else, and then whether it is a thought. Parts with signatures stay apart, as
/// Google asks: a signature holds for its own part only.
fn plain(part: &Value) -> Option<bool> {
    let members = part.as_object()?;
    let thought = members.get("thought").and_then(Value::as_bool);
    let known = 1 + usize::from(thought.is_some());
    (members.len() == known && members.get("text").is_some_and(Value::is_string))
        .then(|| thought.unwrap_or(false))
}

fn plain_text(part: &mut Value) -> Option<(&mut String, bool)> {
    let thought = plain(part)?;
    match part.get_mut("text") {
        Some(Value::String(text)) => Some((text, thought)),
        _ => None,
    }
}

/// Adds to the lists of an object; everything else is replaced by what is later.
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
        return Err(AggregateError::NotUnderstood("there are no candidates"));
    }
    let mut chunks = Vec::new();
    for candidate in candidates {
        let Value::Object(mut candidate) = candidate else {
            return Err(AggregateError::NotUnderstood("a candidate is no object"));
        };
        let index = candidate.get("index").cloned();
        let mut content = merge::take_object(&mut candidate, "content");
        let parts =
            content.as_mut().and_then(|content| merge::take_list(content, "parts")).unwrap_or_default();
        let mut steps: Vec<Map<String, Value>> = Vec::new();
        for part in parts.into_iter().flat_map(cut) {
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
    let mut written = Written::default();
    let last = chunks.pop();
    for chunk in chunks {
        let mut event = shared.clone();
        event.insert("candidates".into(), json!([chunk]));
        written.data(&Value::Object(event));
    }
    if let Some(last) = last {
        body.insert("candidates".into(), json!([last]));
    }
    written.data(&Value::Object(body));
    Ok(written.0)
}

/// A part as it would be streamed: a text in pieces, everything else whole.
fn cut(part: Value) -> Vec<Value> {
    if plain(&part).is_none() {
        return vec![part];
    }
    let text = part.get("text").and_then(Value::as_str).unwrap_or_default();
    pieces(text)
        .map(|piece| {
            let mut part = part.clone();
            if let Some(members) = part.as_object_mut() {
                members.insert("text".into(), piece.into());
            }
            part
        })
        .collect()
}
