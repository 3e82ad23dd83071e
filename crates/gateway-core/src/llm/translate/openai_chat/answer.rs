//! A whole chat completion, read from a provider or written for a caller.

use serde_json::{Map, Value, json};

use super::{
    super::{
        super::{
            Shape,
            chat::{Choice, Content, Logprob, Part, Response, Stop},
            usage::{self, Usage},
        },
        json::{list, object, set, text_at},
    },
    finish_reason,
    read::{read_call, read_content, read_thoughts},
    stop_of,
};

type Object = Map<String, Value>;

pub(super) fn read_response(mut body: Object) -> Option<Response> {
    let choices = list(&mut body, "choices").ok()??;
    let choices = choices.into_iter().enumerate().map(read_choice).collect::<Option<Vec<_>>>()?;
    let report = object(&mut body, "usage").ok().flatten();
    Some(Response {
        id: text_at(&body, "id").to_owned(),
        model: text_at(&body, "model").to_owned(),
        created: body.get("created").and_then(Value::as_i64),
        choices,
        usage: report.and_then(|report| usage::of_report(Shape::OpenAi, &report)),
    })
}

fn read_choice((at, choice): (usize, Value)) -> Option<Choice> {
    let Value::Object(mut choice) = choice else { return None };
    let mut message = object(&mut choice, "message").ok()??;
    let mut parts = Vec::new();
    read_thoughts(&mut message, &mut parts).ok()?;
    let (content, _) = read_content(message.shift_remove("content").filter(|value| !value.is_null())).ok()?;
    parts.extend(content.into_iter().map(listed_thought));
    if let Some(Value::String(refusal)) = message.shift_remove("refusal") {
        parts.push(Part::new(Content::Refusal(refusal)));
    }
    for call in list(&mut message, "tool_calls").ok()?.unwrap_or_default() {
        let Value::Object(call) = call else { return None };
        parts.push(read_call(call).ok()?);
    }
    let index = choice.get("index").and_then(Value::as_u64);
    let logprobs = choice.get("logprobs").map(read_logprobs).unwrap_or_default();
    Some(Choice {
        index: index.and_then(|index| u32::try_from(index).ok()).or_else(|| u32::try_from(at).ok())?,
        parts,
        stop: choice.get("finish_reason").and_then(Value::as_str).map(stop_of),
        logprobs,
    })
}

/// Mistral's reasoning models tell their thoughts in a part of the content.
fn listed_thought(part: Part) -> Part {
    let Content::Other(value) = &part.content else { return part };
    let Some(thoughts) = value.get("thinking").and_then(Value::as_array) else { return part };
    let text = thoughts.iter().filter_map(|thought| thought.get("text")?.as_str()).collect();
    Part::new(Content::Thinking { text, signature: None })
}

/// `{"content": [...], "refusal": [...]}`
pub(super) fn read_logprobs(value: &Value) -> Vec<Logprob> {
    let list = |key: &str| value.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    list("content").iter().chain(list("refusal")).filter_map(read_logprob).collect()
}

pub(super) fn read_logprob(value: &Value) -> Option<Logprob> {
    let bytes = value
        .get("bytes")
        .and_then(Value::as_array)
        .map(|bytes| bytes.iter().filter_map(|byte| u8::try_from(byte.as_u64()?).ok()).collect::<Vec<u8>>());
    let top = value.get("top_logprobs").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    Some(Logprob {
        token: value.get("token")?.as_str()?.to_owned(),
        logprob: value.get("logprob")?.as_number()?.clone(),
        bytes,
        top: top.iter().filter_map(read_logprob).collect(),
    })
}

pub(super) fn logprobs_value(items: &[Logprob]) -> Value {
    fn one(item: &Logprob, with_top: bool) -> Value {
        let mut value = json!({"token": item.token, "logprob": item.logprob, "bytes": item.bytes});
        if with_top {
            value["top_logprobs"] = item.top.iter().map(|top| one(top, false)).collect();
        }
        value
    }
    let content: Vec<Value> = items.iter().map(|item| one(item, true)).collect();
    json!({"content": content, "refusal": null})
}

pub(super) fn write_response(response: Response) -> Value {
    let choices: Vec<Value> = response.choices.into_iter().map(write_choice).collect();
    let mut body = json!({
        "id": response.id,
        "object": "chat.completion",
        "created": response.created,
        "model": response.model,
        "choices": choices,
    });
    if let Some(usage) = response.usage {
        body["usage"] = usage_value(&usage);
    }
    body
}

fn write_choice(choice: Choice) -> Value {
    let mut text: Option<String> = None;
    let mut refusal: Option<String> = None;
    let mut calls = Vec::new();
    let mut thoughts = Vec::new();
    for part in choice.parts {
        match part.content {
            Content::Text(more) => text.get_or_insert_default().push_str(&more),
            Content::Refusal(more) => refusal.get_or_insert_default().push_str(&more),
            Content::ToolCall(call) => {
                let mut written = json!({
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                });
                if let Some(signature) = call.signature {
                    written["extra_content"] = json!({"google": {"thought_signature": signature}});
                }
                calls.push(written);
            }
            Content::Thinking { .. } | Content::Redacted(_) => thoughts.push(part),
            _ => {}
        }
    }
    // Only an answer that is something else than text has no content at all.
    if text.is_none() && refusal.is_none() && calls.is_empty() {
        text = Some(String::new());
    }
    let stop = choice.stop.unwrap_or(Stop::EndTurn);
    let reason = finish_reason(&stop, refusal.is_some());
    let mut message = Object::new();
    message.insert("role".to_owned(), "assistant".into());
    message.insert("content".to_owned(), text.into());
    message.insert("refusal".to_owned(), refusal.into());
    let (thought, details) = details_of(&thoughts);
    set(&mut message, "reasoning_content", thought);
    set(&mut message, "reasoning_details", details);
    set(&mut message, "tool_calls", (!calls.is_empty()).then_some(calls));
    let logprobs = match &*choice.logprobs {
        [] => Value::Null,
        items => logprobs_value(items),
    };
    json!({"index": choice.index, "message": message, "logprobs": logprobs, "finish_reason": reason})
}

/// Thoughts as text, and as details where any of them has something to prove.
pub(super) fn details_of(thoughts: &[Part]) -> (Option<String>, Option<Vec<Value>>) {
    let mut all = String::new();
    let mut details = Vec::new();
    for thought in thoughts {
        match &thought.content {
            Content::Thinking { text, signature } => {
                all.push_str(text);
                if let Some(signature) = signature {
                    details.push(text_detail(text, signature, details.len()));
                }
            }
            Content::Redacted(data) => details.push(encrypted_detail(data, details.len())),
            _ => {}
        }
    }
    ((!all.is_empty()).then_some(all), (!details.is_empty()).then_some(details))
}

pub(super) fn text_detail(text: &str, signature: &str, index: usize) -> Value {
    json!({"type": "reasoning.text", "text": text, "signature": signature, "index": index})
}

pub(super) fn encrypted_detail(data: &str, index: usize) -> Value {
    json!({"type": "reasoning.encrypted", "data": data, "index": index})
}

/// Usage in OpenAI's way of counting: totals, with their parts listed beside them.
pub(super) fn usage_value(usage: &Usage) -> Value {
    let mut input = json!({"cached_tokens": usage.cache_read});
    let written = usage.cache_write.saturating_add(usage.cache_write_1h);
    if written > 0 {
        input["cache_write_tokens"] = written.into();
    }
    if usage.audio_input > 0 {
        input["audio_tokens"] = usage.audio_input.into();
    }
    let mut output = json!({"reasoning_tokens": usage.reasoning});
    if usage.audio_output > 0 {
        output["audio_tokens"] = usage.audio_output.into();
    }
    json!({
        "prompt_tokens": usage.prompt_tokens(),
        "completion_tokens": usage.completion_tokens(),
        "total_tokens": usage.total(),
        "prompt_tokens_details": input,
        "completion_tokens_details": output,
    })
}
