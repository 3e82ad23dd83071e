//! OpenAI's legacy completions: choices of plain text.

use serde_json::{Map, Value, json};

use super::{Aggregate, AggregateError, chat::ChunkStream, chunks::text_chunks, merge};

#[derive(Default)]
pub(super) struct State {
    body: Map<String, Value>,
    choices: Vec<(u64, Choice)>,
    done: bool,
}

#[derive(Default)]
struct Choice {
    text: String,
    logprobs: Map<String, Value>,
    rest: Map<String, Value>,
}

impl Aggregate for State {
    fn add_event(&mut self, _: &str, mut chunk: Map<String, Value>) -> Result<(), AggregateError> {
        chunk.remove("obfuscation");
        for choice in merge::take_list(&mut chunk, "choices").unwrap_or_default() {
            let Value::Object(mut choice) = choice else {
                return Err(AggregateError::UnsupportedResponse("a choice is not an object"));
            };
            let into = merge::indexed(&mut self.choices, merge::index_of(&choice, "index").unwrap_or(0))?;
            into.text.push_str(&merge::take_text(&mut choice, "text").unwrap_or_default());
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
        let choices = choices.into_iter().map(|(index, choice)| {
            let Choice { text, logprobs, mut rest } = choice;
            rest.insert("index".into(), index.into());
            rest.insert("text".into(), text.into());
            rest.entry("finish_reason").or_insert(Value::Null);
            if !logprobs.is_empty() {
                rest.insert("logprobs".into(), logprobs.into());
            }
            Value::Object(rest)
        });
        body.insert("choices".into(), choices.collect());
        if body.get("usage").is_some_and(Value::is_null) {
            body.remove("usage");
        }
        Ok(Value::Object(body))
    }
}

pub(super) fn synthesize(
    mut body: Map<String, Value>,
    include_usage: bool,
) -> Result<Vec<Vec<u8>>, AggregateError> {
    let Some(choices) = merge::take_list(&mut body, "choices") else {
        return Err(AggregateError::UnsupportedResponse("choices is not a list"));
    };
    let usage = body.remove("usage");
    let mut stream = ChunkStream::new(body, "text_completion", include_usage);
    for choice in choices {
        let Value::Object(mut choice) = choice else {
            return Err(AggregateError::UnsupportedResponse("a choice is not an object"));
        };
        let text = merge::take_text(&mut choice, "text");
        let text = text.ok_or(AggregateError::UnsupportedResponse("a choice has no text"))?;
        let index = choice.remove("index").unwrap_or_else(|| json!(0));
        for piece in text_chunks(&text) {
            let piece = json!({"text": piece, "index": index, "logprobs": null, "finish_reason": null});
            stream.chunk(&piece.as_object().cloned().unwrap_or_default());
        }
        stream.last(&index, &json!({"text": ""}), choice);
    }
    Ok(stream.end(usage))
}
