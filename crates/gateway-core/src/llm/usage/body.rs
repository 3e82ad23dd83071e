//! One JSON body, or one object of a sequence of them: which top-level values are kept, and their meaning.

use super::{
    ProviderFormat, bedrock,
    fields::{FieldLimit, Fields},
    read_usage,
    stream::Reading,
};
use crate::json::{MemberValue, char_count, for_each_member};

const SMALL_VALUE: usize = 64 << 10;
const LARGE_VALUE: usize = 1 << 20;

/// The fields with generated text. A prefix of them is kept to count its characters.
const TEXT_FIELDS: [&str; 11] = [
    "choices",
    "output",
    "content",
    "candidates",
    "message",
    "generations",
    "text",
    "completion",
    "generation",
    "outputs",
    "results",
];

pub(super) const ALL_FIELDS: &[FieldLimit] = &[
    ("usage", SMALL_VALUE),
    ("usageMetadata", SMALL_VALUE),
    ("meta", SMALL_VALUE),
    ("x_groq", SMALL_VALUE),
    ("model", SMALL_VALUE),
    ("modelVersion", SMALL_VALUE),
    ("id", SMALL_VALUE),
    ("responseId", SMALL_VALUE),
    ("error", SMALL_VALUE),
    ("status", SMALL_VALUE),
    ("incomplete_details", SMALL_VALUE),
    ("promptFeedback", SMALL_VALUE),
    ("stop_reason", SMALL_VALUE),
    ("stopReason", SMALL_VALUE),
    ("finish_reason", SMALL_VALUE),
    ("done_reason", SMALL_VALUE),
    ("done", SMALL_VALUE),
    ("is_finished", SMALL_VALUE),
    ("prompt_token_count", SMALL_VALUE),
    ("generation_token_count", SMALL_VALUE),
    ("prompt_eval_count", SMALL_VALUE),
    ("eval_count", SMALL_VALUE),
    ("inputTextTokenCount", SMALL_VALUE),
    ("choices", LARGE_VALUE),
    ("output", LARGE_VALUE),
    ("content", LARGE_VALUE),
    ("candidates", LARGE_VALUE),
    ("message", LARGE_VALUE),
    ("generations", LARGE_VALUE),
    ("text", LARGE_VALUE),
    ("completion", LARGE_VALUE),
    ("generation", LARGE_VALUE),
    ("outputs", LARGE_VALUE),
    ("results", LARGE_VALUE),
];

/// The fields that show whether a response failed.
pub(super) const ERROR_FIELDS: &[FieldLimit] = &[("error", SMALL_VALUE)];

/// Adds the values of one object to the reading.
pub(super) fn read_object(reading: &mut Reading, format: ProviderFormat, fields: &Fields) {
    let raw = |key: &str| std::str::from_utf8(fields.get(key)?).ok();
    let text = |key: &str| serde_json::from_str::<String>(raw(key)?).ok().filter(|text| !text.is_empty());
    let groq =
        || serde_json::from_str::<Groq<'_>>(raw("x_groq")?).ok()?.usage.map(serde_json::value::RawValue::get);
    let usage = ["usage", "usageMetadata", "meta"]
        .into_iter()
        .find_map(|key| read_usage(format, raw(key)?))
        .or_else(|| read_usage(format, groq()?))
        .or_else(|| bedrock::top_level_counts(fields));
    if usage.is_some() {
        reading.usage = usage;
    }
    if reading.model.is_none() {
        reading.model = text("model").or_else(|| text("modelVersion"));
    }
    if reading.response_id.is_none() {
        reading.response_id = text("id").or_else(|| text("responseId"));
    }
    if let Some(error) = raw("error").filter(|error| *error != "null") {
        reading.error(error);
    }
    reading.expects_more = ["done", "is_finished"].into_iter().any(|key| raw(key) == Some("false"));
    let top_level = ["stop_reason", "stopReason", "finish_reason", "done_reason"].into_iter().find_map(text);
    let finish_reason = top_level
        .or_else(|| last_text_of(fields.get("incomplete_details")?, &[b"reason"]))
        .or_else(|| last_text_of(fields.get("promptFeedback")?, &[b"blockReason"]))
        .or_else(|| TEXT_FIELDS.into_iter().find_map(|key| last_text_of(fields.prefix(key)?, REASON_KEYS)))
        .or_else(|| text("status"));
    if finish_reason.is_some() {
        reading.finish_reason = finish_reason;
    }
    for key in TEXT_FIELDS {
        reading.output_chars += fields.prefix(key).map_or(0, text_length);
    }
}

#[derive(serde::Deserialize)]
struct Groq<'a> {
    #[serde(borrow)]
    usage: Option<&'a serde_json::value::RawValue>,
}

const REASON_KEYS: &[&[u8]] = &[b"finish_reason", b"finishReason", b"stop_reason", b"completionReason"];

fn last_text_of(value: &[u8], keys: &[&[u8]]) -> Option<String> {
    let mut last = None;
    for_each_member(value, |key, value| {
        if let MemberValue::Text(text) = value
            && !text.is_empty()
            && keys.contains(&key)
        {
            last = Some(text);
        }
    });
    last.map(|text| String::from_utf8_lossy(text).into_owned())
}

fn text_length(value: &[u8]) -> u64 {
    if let [b'"', text @ ..] = value {
        return char_count(text.strip_suffix(b"\"").unwrap_or(text));
    }
    let mut total = 0;
    for_each_member(value, |key, value| {
        if let (
            b"content" | b"text" | b"refusal" | b"reasoning_content" | b"reasoning" | b"thinking"
            | b"arguments" | b"tool_plan" | b"outputText",
            MemberValue::Text(text),
        ) = (key, value)
        {
            total += char_count(text);
        }
    });
    total
}
