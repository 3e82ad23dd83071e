//! One JSON body, or one object of a sequence of them: which top-level values are kept, and their meaning.

use super::{ProviderFormat, bedrock, fields::Fields, read_usage, stream::Reading};
use crate::json::{MemberValue, char_count, for_each_member};

const SMALL_VALUE: usize = 64 << 10;
const LARGE_VALUE: usize = 1 << 20;

/// The top-level values that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Usage,
    UsageMetadata,
    Meta,
    XGroq,
    Model,
    ModelVersion,
    Id,
    ResponseId,
    Error,
    Status,
    IncompleteDetails,
    PromptFeedback,
    StopReason,
    StopReasonCamel,
    FinishReason,
    DoneReason,
    Done,
    IsFinished,
    PromptTokenCount,
    GenerationTokenCount,
    PromptEvalCount,
    EvalCount,
    InputTextTokenCount,
    Choices,
    Output,
    Content,
    Candidates,
    Message,
    Generations,
    Text,
    Completion,
    Generation,
    Outputs,
    Results,
}

pub(super) type ObjectFields = Fields<Field>;

/// The fields with generated text. A prefix of them is kept to count its characters.
const TEXT_FIELDS: [Field; 11] = [
    Field::Choices,
    Field::Output,
    Field::Content,
    Field::Candidates,
    Field::Message,
    Field::Generations,
    Field::Text,
    Field::Completion,
    Field::Generation,
    Field::Outputs,
    Field::Results,
];

impl Field {
    fn from_key(key: &[u8]) -> Option<Self> {
        Some(match key {
            b"usage" => Self::Usage,
            b"usageMetadata" => Self::UsageMetadata,
            b"meta" => Self::Meta,
            b"x_groq" => Self::XGroq,
            b"model" => Self::Model,
            b"modelVersion" => Self::ModelVersion,
            b"id" => Self::Id,
            b"responseId" => Self::ResponseId,
            b"error" => Self::Error,
            b"status" => Self::Status,
            b"incomplete_details" => Self::IncompleteDetails,
            b"promptFeedback" => Self::PromptFeedback,
            b"stop_reason" => Self::StopReason,
            b"stopReason" => Self::StopReasonCamel,
            b"finish_reason" => Self::FinishReason,
            b"done_reason" => Self::DoneReason,
            b"done" => Self::Done,
            b"is_finished" => Self::IsFinished,
            b"prompt_token_count" => Self::PromptTokenCount,
            b"generation_token_count" => Self::GenerationTokenCount,
            b"prompt_eval_count" => Self::PromptEvalCount,
            b"eval_count" => Self::EvalCount,
            b"inputTextTokenCount" => Self::InputTextTokenCount,
            b"choices" => Self::Choices,
            b"output" => Self::Output,
            b"content" => Self::Content,
            b"candidates" => Self::Candidates,
            b"message" => Self::Message,
            b"generations" => Self::Generations,
            b"text" => Self::Text,
            b"completion" => Self::Completion,
            b"generation" => Self::Generation,
            b"outputs" => Self::Outputs,
            b"results" => Self::Results,
            _ => return None,
        })
    }
}

/// Selects all fields.
pub(super) fn select_all(key: &[u8]) -> Option<(Field, usize)> {
    let field = Field::from_key(key)?;
    Some((field, if TEXT_FIELDS.contains(&field) { LARGE_VALUE } else { SMALL_VALUE }))
}

/// Selects the fields that show whether a response failed.
pub(super) fn select_error(key: &[u8]) -> Option<(Field, usize)> {
    (key == b"error").then_some((Field::Error, SMALL_VALUE))
}

/// Adds the values of one object to the reading.
pub(super) fn read_object(reading: &mut Reading, format: ProviderFormat, fields: &ObjectFields) {
    let raw = |field: Field| std::str::from_utf8(fields.get(field)?).ok();
    let text = |field: Field| parse_text(raw(field)?);
    let groq = || {
        serde_json::from_str::<Groq<'_>>(raw(Field::XGroq)?).ok()?.usage.map(serde_json::value::RawValue::get)
    };
    let usage = [Field::Usage, Field::UsageMetadata, Field::Meta]
        .into_iter()
        .find_map(|field| read_usage(format, raw(field)?))
        .or_else(|| read_usage(format, groq()?))
        .or_else(|| bedrock::top_level_counts(fields));
    if usage.is_some() {
        reading.usage = usage;
    }
    if reading.model.is_none() {
        reading.model = text(Field::Model).or_else(|| text(Field::ModelVersion));
    }
    if reading.response_id.is_none() {
        reading.response_id = text(Field::Id).or_else(|| text(Field::ResponseId));
    }
    if let Some(error) = raw(Field::Error).filter(|error| *error != "null") {
        reading.error(error);
    }
    reading.expects_more =
        [Field::Done, Field::IsFinished].into_iter().any(|field| raw(field) == Some("false"));
    let mut nested_reason = None;
    for value in TEXT_FIELDS.into_iter().filter_map(|field| fields.prefix(field)) {
        let scan = TextScan::new(value);
        reading.output_chars += scan.chars;
        nested_reason = nested_reason.or(scan.finish_reason);
    }
    let finish_reason = [Field::StopReason, Field::StopReasonCamel, Field::FinishReason, Field::DoneReason]
        .into_iter()
        .find_map(text)
        .or_else(|| last_text_of(fields.get(Field::IncompleteDetails)?, b"reason"))
        .or_else(|| last_text_of(fields.get(Field::PromptFeedback)?, b"blockReason"))
        .or_else(|| nested_reason.map(|reason| String::from_utf8_lossy(reason).into_owned()))
        .or_else(|| text(Field::Status));
    if finish_reason.is_some() {
        reading.finish_reason = finish_reason;
    }
}

/// The content of a JSON string. None if it is empty or not a string.
pub(super) fn parse_text(raw: &str) -> Option<String> {
    let plain = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let is_plain = |text: &&str| text.bytes().all(|byte| byte >= b' ' && byte != b'\\' && byte != b'"');
    match plain.filter(is_plain) {
        Some(text) => Some(text.to_owned()),
        None => serde_json::from_str(raw).ok(),
    }
    .filter(|text: &String| !text.is_empty())
}

#[derive(serde::Deserialize)]
struct Groq<'a> {
    #[serde(borrow)]
    usage: Option<&'a serde_json::value::RawValue>,
}

fn last_text_of(value: &[u8], wanted: &[u8]) -> Option<String> {
    let mut last = None;
    for_each_member(value, |key, value| {
        if let MemberValue::Text(text) = value
            && !text.is_empty()
            && key == wanted
        {
            last = Some(text);
        }
    });
    last.map(|text| String::from_utf8_lossy(text).into_owned())
}

/// The result of one pass over a value with generated text.
#[derive(Default)]
struct TextScan<'a> {
    chars: u64,
    /// The last one of the value.
    finish_reason: Option<&'a [u8]>,
}

impl<'a> TextScan<'a> {
    fn new(value: &'a [u8]) -> Self {
        let mut scan = TextScan::default();
        if let [b'"', text @ ..] = value {
            scan.chars = char_count(text.strip_suffix(b"\"").unwrap_or(text));
            return scan;
        }
        for_each_member(value, |key, value| {
            let MemberValue::Text(text) = value else { return };
            match key {
                b"content" | b"text" | b"refusal" | b"reasoning_content" | b"reasoning" | b"thinking"
                | b"arguments" | b"tool_plan" | b"outputText" => scan.chars += char_count(text),
                b"finish_reason" | b"finishReason" | b"stop_reason" | b"completionReason"
                    if !text.is_empty() =>
                {
                    scan.finish_reason = Some(text);
                }
                _ => {}
            }
        });
        scan
    }
}
