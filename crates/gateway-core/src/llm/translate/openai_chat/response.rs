//! Complete (non-streaming) chat completions.

use serde_json::{Map, Value, json};

use super::{
    super::{
        super::{
            ProviderFormat,
            chat::{ChatResponse, Choice, Content, Logprob, Part, StopReason},
            usage::{self, Usage},
        },
        json::{insert_some, str_field, take_array, take_object},
    },
    decode_request::{decode_call, decode_content, decode_thinking},
    decode_stop_reason, encode_finish_reason,
};

type Object = Map<String, Value>;

pub(super) fn decode_response(mut body: Object) -> Option<ChatResponse> {
    let choices = take_array(&mut body, "choices").ok()??;
    let choices = choices.into_iter().enumerate().map(decode_choice).collect::<Option<Vec<_>>>()?;
    let report = take_object(&mut body, "usage").ok().flatten();
    Some(ChatResponse {
        id: str_field(&body, "id").to_owned(),
        model: str_field(&body, "model").to_owned(),
        created: body.get("created").and_then(Value::as_i64),
        choices,
        usage: report.and_then(|report| usage::parse_report(ProviderFormat::OpenAi, &report)),
    })
}

fn decode_choice((at, choice): (usize, Value)) -> Option<Choice> {
    let Value::Object(mut choice) = choice else { return None };
    let mut message = take_object(&mut choice, "message").ok()??;
    let mut parts = Vec::new();
    decode_thinking(&mut message, &mut parts).ok()?;
    let (content, _) =
        decode_content(message.shift_remove("content").filter(|value| !value.is_null())).ok()?;
    parts.extend(content.into_iter().map(decode_thinking_part));
    if let Some(Value::String(refusal)) = message.shift_remove("refusal") {
        parts.push(Part::new(Content::Refusal(refusal)));
    }
    for call in take_array(&mut message, "tool_calls").ok()?.unwrap_or_default() {
        let Value::Object(call) = call else { return None };
        parts.push(decode_call(call).ok()?);
    }
    let index = choice.get("index").and_then(Value::as_u64);
    let logprobs = choice.get("logprobs").map(decode_logprobs).unwrap_or_default();
    Some(Choice {
        index: index.and_then(|index| u32::try_from(index).ok()).or_else(|| u32::try_from(at).ok())?,
        parts,
        stop: choice.get("finish_reason").and_then(Value::as_str).map(decode_stop_reason),
        logprobs,
    })
}

/// Decodes thinking inside the content list, where Mistral's reasoning models put it.
fn decode_thinking_part(part: Part) -> Part {
    let Content::Other(value) = &part.content else { return part };
    let Some(thoughts) = value.get("thinking").and_then(Value::as_array) else { return part };
    let text = thoughts.iter().filter_map(|thought| thought.get("text")?.as_str()).collect();
    Part::new(Content::Thinking { text, signature: None })
}

/// `{"content": [...], "refusal": [...]}`
pub(super) fn decode_logprobs(value: &Value) -> Vec<Logprob> {
    let array_at = |key: &str| value.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    array_at("content").iter().chain(array_at("refusal")).filter_map(decode_logprob).collect()
}

pub(super) fn decode_logprob(value: &Value) -> Option<Logprob> {
    let bytes = value
        .get("bytes")
        .and_then(Value::as_array)
        .map(|bytes| bytes.iter().filter_map(|byte| u8::try_from(byte.as_u64()?).ok()).collect::<Vec<u8>>());
    let top = value.get("top_logprobs").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    Some(Logprob {
        token: value.get("token")?.as_str()?.to_owned(),
        logprob: value.get("logprob")?.as_number()?.clone(),
        bytes,
        top: top.iter().filter_map(decode_logprob).collect(),
    })
}

pub(super) fn encode_logprobs(items: &[Logprob]) -> Value {
    fn encode(item: &Logprob, with_top: bool) -> Value {
        let mut value = json!({"token": item.token, "logprob": item.logprob, "bytes": item.bytes});
        if with_top {
            value["top_logprobs"] = item.top.iter().map(|top| encode(top, false)).collect();
        }
        value
    }
    let content: Vec<Value> = items.iter().map(|item| encode(item, true)).collect();
    json!({"content": content, "refusal": null})
}

pub(super) fn encode_response(response: ChatResponse) -> Value {
    let choices: Vec<Value> = response.choices.into_iter().map(encode_choice).collect();
    let mut body = json!({
        "id": response.id,
        "object": "chat.completion",
        "created": response.created,
        "model": response.model,
        "choices": choices,
    });
    if let Some(usage) = response.usage {
        body["usage"] = encode_usage(&usage);
    }
    body
}

fn encode_choice(choice: Choice) -> Value {
    let mut text: Option<String> = None;
    let mut refusal: Option<String> = None;
    let mut calls = Vec::new();
    let mut thoughts = Vec::new();
    for part in choice.parts {
        match part.content {
            Content::Text(piece) => text.get_or_insert_default().push_str(&piece),
            Content::Refusal(piece) => refusal.get_or_insert_default().push_str(&piece),
            Content::ToolCall(call) => {
                let mut encoded = json!({
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                });
                if let Some(signature) = call.signature {
                    encoded["extra_content"] = json!({"google": {"thought_signature": signature}});
                }
                calls.push(encoded);
            }
            Content::Thinking { .. } | Content::Redacted(_) => thoughts.push(part),
            _ => {}
        }
    }
    // `content` is null only for refusals and tool calls.
    if text.is_none() && refusal.is_none() && calls.is_empty() {
        text = Some(String::new());
    }
    let stop = choice.stop.unwrap_or(StopReason::EndTurn);
    let reason = encode_finish_reason(&stop, refusal.is_some());
    let mut message = Object::new();
    message.insert("role".to_owned(), "assistant".into());
    message.insert("content".to_owned(), text.into());
    message.insert("refusal".to_owned(), refusal.into());
    let (thought, details) = encode_reasoning_details(&thoughts);
    insert_some(&mut message, "reasoning_content", thought);
    insert_some(&mut message, "reasoning_details", details);
    insert_some(&mut message, "tool_calls", (!calls.is_empty()).then_some(calls));
    let logprobs = match &*choice.logprobs {
        [] => Value::Null,
        items => encode_logprobs(items),
    };
    json!({"index": choice.index, "message": message, "logprobs": logprobs, "finish_reason": reason})
}

/// Encodes thinking as one text, and as details if there are signatures or encrypted data.
pub(super) fn encode_reasoning_details(thoughts: &[Part]) -> (Option<String>, Option<Vec<Value>>) {
    let mut all = String::new();
    let mut details = Vec::new();
    for thought in thoughts {
        match &thought.content {
            Content::Thinking { text, signature } => {
                all.push_str(text);
                if let Some(signature) = signature {
                    details.push(encode_text_detail(text, signature, details.len()));
                }
            }
            Content::Redacted(data) => details.push(encode_encrypted_detail(data, details.len())),
            _ => {}
        }
    }
    ((!all.is_empty()).then_some(all), (!details.is_empty()).then_some(details))
}

pub(super) fn encode_text_detail(text: &str, signature: &str, index: usize) -> Value {
    json!({"type": "reasoning.text", "text": text, "signature": signature, "index": index})
}

pub(super) fn encode_encrypted_detail(data: &str, index: usize) -> Value {
    json!({"type": "reasoning.encrypted", "data": data, "index": index})
}

/// Encodes usage as OpenAI counts it: totals, with their breakdown in separate objects.
pub(super) fn encode_usage(usage: &Usage) -> Value {
    let mut input = json!({"cached_tokens": usage.cache_read});
    let cache_write = usage.cache_write.saturating_add(usage.cache_write_1h);
    if cache_write > 0 {
        input["cache_write_tokens"] = cache_write.into();
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
