//! Items. Requests and responses of this format consist of the same items.

use serde_json::{Map, Value, json};

use super::{
    super::{
        super::chat::{Content, Media, MediaKind, MediaSource, Part, ToolCall, TranslationError},
        json::{at_path, into_object, require_string, take_array, take_string, take_value},
        media::{image, source_from_url},
    },
    REDACTED_PREFIX,
};

type Object = Map<String, Value>;

/// Decodes the content of a message or tool output. The flag returned is true for a plain string.
pub(super) fn decode_content(
    content: Option<Value>,
    field: &str,
) -> Result<(Vec<Part>, bool), TranslationError> {
    match content {
        None => Ok((Vec::new(), false)),
        Some(Value::String(text)) => Ok((vec![Part::text(text)], true)),
        Some(Value::Array(list)) => {
            let decode = |(at, value)| at_path(|| format!("{field}.{at}"), decode_part(value));
            Ok((list.into_iter().enumerate().map(decode).collect::<Result<_, _>>()?, false))
        }
        Some(_) => Err(TranslationError::malformed(field, "must be a string or an array of parts")),
    }
}

fn decode_part(value: Value) -> Result<Part, TranslationError> {
    let mut part = into_object(value, "")?;
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let content = match &*kind {
        "input_text" | "output_text" | "text" => {
            // Output text that is sent back as input has empty annotations and log probabilities.
            for key in ["annotations", "logprobs"] {
                if part.get(key).and_then(Value::as_array).is_some_and(Vec::is_empty) {
                    part.shift_remove(key);
                }
            }
            Content::Text(require_string(&mut part, "text")?)
        }
        "refusal" => Content::Refusal(require_string(&mut part, "refusal")?),
        "input_image" => {
            let source = match (take_string(&mut part, "image_url")?, take_string(&mut part, "file_id")?) {
                (Some(url), _) => source_from_url(url),
                (None, Some(id)) => MediaSource::File(id),
                (None, None) => {
                    return Err(TranslationError::malformed("image_url", "requires image_url or file_id"));
                }
            };
            let detail = take_string(&mut part, "detail")?;
            Content::Media(Media { detail, ..image(source) })
        }
        "input_file" => {
            let source = match (take_string(&mut part, "file_data")?, take_string(&mut part, "file_url")?) {
                (Some(data), _) if data.starts_with("data:") => source_from_url(data),
                (Some(data), _) => MediaSource::Base64 { mime: "application/pdf".to_owned(), data },
                (None, Some(url)) => MediaSource::Url { url, mime: None },
                (None, None) => match take_string(&mut part, "file_id")? {
                    Some(id) => MediaSource::File(id),
                    None => {
                        return Err(TranslationError::malformed(
                            "file_data",
                            "requires file_data, file_url or file_id",
                        ));
                    }
                },
            };
            let name = take_string(&mut part, "filename")?;
            Content::Media(Media { kind: MediaKind::Document, source, name, detail: None })
        }
        "" => return Err(TranslationError::malformed("type", "is required")),
        _ => return Ok(Part::new(Content::Other(part.into()))),
    };
    part.shift_remove("type");
    Ok(Part { content, cache: None, extra: part })
}

pub(super) fn decode_call(mut item: Object) -> Result<Part, TranslationError> {
    item.shift_remove("type");
    let id = require_string(&mut item, "call_id")?;
    let name = require_string(&mut item, "name")?;
    let arguments = take_string(&mut item, "arguments")?.unwrap_or_default();
    let signature = google_signature(&item);
    if signature.is_some() {
        item.shift_remove("extra_content");
    }
    let call = ToolCall { id, name, arguments, signature };
    Ok(Part { content: Content::ToolCall(call), cache: None, extra: item })
}

fn google_signature(item: &Object) -> Option<String> {
    let signature = item.get("extra_content")?.get("google")?.get("thought_signature")?;
    signature.as_str().map(str::to_owned)
}

/// Decodes a reasoning item. The full text takes precedence over the summary.
pub(super) fn decode_reasoning(mut item: Object) -> Result<Option<Part>, TranslationError> {
    item.shift_remove("type");
    let summary = take_array(&mut item, "summary")?.unwrap_or_default();
    let content = take_array(&mut item, "content")?.unwrap_or_default();
    let texts = |parts: &[Value]| -> Vec<String> {
        parts.iter().filter_map(|part| Some(part.get("text")?.as_str()?.to_owned())).collect()
    };
    let text = if content.is_empty() { texts(&summary).join("\n\n") } else { texts(&content).concat() };
    let encrypted = take_value(&mut item, "encrypted_content");
    let encrypted = encrypted.and_then(|encrypted| encrypted.as_str().map(str::to_owned));
    let content = match encrypted {
        Some(encrypted) if text.is_empty() && encrypted.starts_with(REDACTED_PREFIX) => {
            Content::Redacted(encrypted[REDACTED_PREFIX.len()..].to_owned())
        }
        None if text.is_empty() => return Ok(None),
        signature => Content::Thinking { text, signature },
    };
    Ok(Some(Part { content, cache: None, extra: item }))
}

/// Returns the ranges of parts that form the items of a response. Adjacent texts and refusals form one message. Each
/// thinking part and each tool call is an item of its own.
pub(super) fn item_spans(parts: &[Part]) -> Vec<std::ops::Range<usize>> {
    let mut spans: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        match part.content {
            Content::Text(_) | Content::Refusal(_) => match spans.last_mut() {
                Some(span) if span.end == at && is_message_part(&parts[span.start]) => span.end = at + 1,
                _ => spans.push(at..at + 1),
            },
            Content::Thinking { .. } | Content::Redacted(_) | Content::ToolCall(_) => spans.push(at..at + 1),
            _ => {}
        }
    }
    spans
}

pub(super) fn is_message_part(part: &Part) -> bool {
    matches!(part.content, Content::Text(_) | Content::Refusal(_))
}

/// Generates the id of item number `at` from the response's id, since other formats have no item ids.
pub(super) fn item_id(response: &str, at: usize, part: &Part) -> String {
    let kind = match part.content {
        Content::Thinking { .. } | Content::Redacted(_) => "rs",
        Content::ToolCall(_) => "fc",
        _ => "msg",
    };
    let response = response.strip_prefix("resp_").unwrap_or(response);
    format!("{kind}_{response}_{at}")
}

/// Encodes one item of a response from the parts of one span.
pub(super) fn encode_item(id: &str, parts: &[Part], logprobs: &Value) -> Value {
    match parts.first().map(|part| &part.content) {
        Some(Content::ToolCall(call)) => encode_call_item(id, call, "completed"),
        Some(Content::Thinking { text, signature }) => {
            let summary: Vec<Value> = (!text.is_empty())
                .then(|| json!({"type": "summary_text", "text": text}))
                .into_iter()
                .collect();
            let mut item = json!({"id": id, "type": "reasoning", "summary": summary});
            if let Some(signature) = signature {
                item["encrypted_content"] = signature.clone().into();
            }
            item
        }
        Some(Content::Redacted(data)) => {
            json!({"id": id, "type": "reasoning", "summary": [], "encrypted_content": format!("{REDACTED_PREFIX}{data}")})
        }
        _ => {
            let content: Vec<Value> =
                parts.iter().filter_map(|part| encode_content_part(part, logprobs)).collect();
            json!({"id": id, "type": "message", "status": "completed", "role": "assistant", "content": content})
        }
    }
}

pub(super) fn encode_call_item(id: &str, call: &ToolCall, status: &str) -> Value {
    let mut item = json!({
        "id": id, "type": "function_call", "status": status,
        "call_id": call.id, "name": call.name, "arguments": call.arguments,
    });
    if let Some(signature) = &call.signature {
        item["extra_content"] = json!({"google": {"thought_signature": signature}});
    }
    item
}

/// Encodes one content part of an output message.
pub(super) fn encode_content_part(part: &Part, logprobs: &Value) -> Option<Value> {
    match &part.content {
        Content::Text(text) => {
            Some(json!({"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}))
        }
        Content::Refusal(text) => Some(json!({"type": "refusal", "refusal": text})),
        _ => None,
    }
}
