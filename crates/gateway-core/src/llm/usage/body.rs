//! One plain JSON body, or one object of a row of them: which top-level values are kept and what they say.

use super::{
    ProviderFormat, bedrock,
    json::{Value, characters, pairs},
    objects::{Fields, Wanted},
    read_usage,
    stream::Reading,
};

const SMALL: usize = 64 << 10;
const LARGE: usize = 1 << 20;

/// The values that hold generated text are kept in part only, for a count of its characters.
const TEXTS: [&str; 11] = [
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

pub(super) const WANTED: &[Wanted] = &[
    ("usage", SMALL),
    ("usageMetadata", SMALL),
    ("meta", SMALL),
    ("x_groq", SMALL),
    ("model", SMALL),
    ("modelVersion", SMALL),
    ("id", SMALL),
    ("responseId", SMALL),
    ("error", SMALL),
    ("status", SMALL),
    ("incomplete_details", SMALL),
    ("promptFeedback", SMALL),
    ("stop_reason", SMALL),
    ("stopReason", SMALL),
    ("finish_reason", SMALL),
    ("done_reason", SMALL),
    ("done", SMALL),
    ("is_finished", SMALL),
    ("prompt_token_count", SMALL),
    ("generation_token_count", SMALL),
    ("prompt_eval_count", SMALL),
    ("eval_count", SMALL),
    ("inputTextTokenCount", SMALL),
    ("choices", LARGE),
    ("output", LARGE),
    ("content", LARGE),
    ("candidates", LARGE),
    ("message", LARGE),
    ("generations", LARGE),
    ("text", LARGE),
    ("completion", LARGE),
    ("generation", LARGE),
    ("outputs", LARGE),
    ("results", LARGE),
];

/// What tells whether a body is an answer at all.
pub(super) const ERRORS: &[Wanted] = &[("error", SMALL)];

/// Takes in the values of one object.
pub(super) fn absorb(reading: &mut Reading, format: ProviderFormat, fields: &Fields) {
    let raw = |key: &str| std::str::from_utf8(fields.get(key)?).ok();
    let text = |key: &str| serde_json::from_str::<String>(raw(key)?).ok().filter(|text| !text.is_empty());
    let groq =
        || serde_json::from_str::<Groq<'_>>(raw("x_groq")?).ok()?.usage.map(serde_json::value::RawValue::get);
    let usage = ["usage", "usageMetadata", "meta"]
        .into_iter()
        .find_map(|key| read_usage(format, raw(key)?))
        .or_else(|| read_usage(format, groq()?))
        .or_else(|| bedrock::loose_counts(fields));
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
    reading.more = ["done", "is_finished"].into_iter().any(|key| raw(key) == Some("false"));
    let ended = ["stop_reason", "stopReason", "finish_reason", "done_reason"].into_iter().find_map(text);
    let finish_reason = ended
        .or_else(|| last_reason(fields.get("incomplete_details")?, &[b"reason"]))
        .or_else(|| last_reason(fields.get("promptFeedback")?, &[b"blockReason"]))
        .or_else(|| TEXTS.into_iter().find_map(|key| last_reason(fields.start_of(key)?, REASONS)))
        .or_else(|| text("status"));
    if finish_reason.is_some() {
        reading.finish_reason = finish_reason;
    }
    for key in TEXTS {
        reading.output_chars += fields.start_of(key).map_or(0, text_length);
    }
}

#[derive(serde::Deserialize)]
struct Groq<'a> {
    #[serde(borrow)]
    usage: Option<&'a serde_json::value::RawValue>,
}

const REASONS: &[&[u8]] = &[b"finish_reason", b"finishReason", b"stop_reason", b"completionReason"];

fn last_reason(value: &[u8], keys: &[&[u8]]) -> Option<String> {
    let mut last = None;
    pairs(value, |key, value| {
        if let Value::Text(text) = value
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
        return characters(text.strip_suffix(b"\"").unwrap_or(text));
    }
    let mut total = 0;
    pairs(value, |key, value| {
        if let (
            b"content" | b"text" | b"refusal" | b"reasoning_content" | b"reasoning" | b"thinking"
            | b"arguments" | b"tool_plan" | b"outputText",
            Value::Text(text),
        ) = (key, value)
        {
            total += characters(text);
        }
    });
    total
}
