//! One event of a stream of any provider. A single pass over its keys classifies it. Only events with the model and id,
//! with usage, with an error or at the end of the stream are parsed.

use serde::Deserialize;
use serde_json::{Map, Value as Json, value::RawValue};

use super::{ProviderFormat, Usage, UsageReport, anthropic, body::parse_text, read_usage};
use crate::json::{MemberValue, char_count, for_each_member};

/// How many events are parsed for the model's name and the response id, which occur early or never.
const MAX_IDENTITY_EVENTS: u8 = 4;

/// The results so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    pub(super) model: Option<String>,
    pub(super) response_id: Option<String>,
    pub(super) finish_reason: Option<String>,
    pub(super) in_band_error: Option<String>,
    pub(super) output_chars: u64,
    pub(super) saw_end: bool,
    /// The last object of a sequence announced that more follow.
    pub(super) expects_more: bool,
    /// Usage of a JSON body.
    pub(super) usage: Option<Usage>,
    identity_events: u8,
    /// The last event with usage. Some providers report it in every event, so it is parsed only at the end.
    last_usage_event: Vec<u8>,
    messages: anthropic::Report,
    message_reports: Vec<Box<str>>,
}

impl Reading {
    pub(super) fn final_usage(&self, format: ProviderFormat) -> Option<Usage> {
        if let Some(usage) = self.messages.usage() {
            let raw = match &*self.message_reports {
                [one] => one.clone(),
                several => format!("[{}]", several.join(",")).into(),
            };
            return Some(Usage { raw: Some(raw), ..usage });
        }
        let latest = || {
            // A plain body has no events, and an error of the parser is slow to make.
            let event = Some(&*self.last_usage_event).filter(|event| !event.is_empty())?;
            read_usage(format, serde_json::from_slice::<Envelope<'_>>(event).ok()?.usage()?)
        };
        latest().or_else(|| self.usage.clone())
    }

    /// Records an error value: a text, or an object with a message and possibly a type.
    pub(super) fn error(&mut self, raw: &str) {
        const MAX_LENGTH: usize = 1024;
        let mut text = match serde_json::from_str(raw) {
            Ok(Json::String(text)) => text,
            Ok(Json::Object(error)) => describe(&error).unwrap_or_else(|| raw.to_owned()),
            _ => raw.to_owned(),
        };
        text.truncate(text.floor_char_boundary(MAX_LENGTH));
        self.in_band_error = Some(text);
    }
}

/// The relevant fields of an event, in the names of all providers.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow, rename = "responseId")]
    response_id: Option<&'a RawValue>,
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow, rename = "modelVersion")]
    model_version: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, rename = "usageMetadata")]
    usage_metadata: Option<&'a RawValue>,
    #[serde(borrow, rename = "amazon-bedrock-invocationMetrics")]
    invocation_metrics: Option<&'a RawValue>,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    x_groq: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    incomplete_details: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    fn inner(raw: Option<&'a RawValue>) -> Option<Envelope<'a>> {
        serde_json::from_str(raw?.get()).ok()
    }

    fn usage(&self) -> Option<&'a str> {
        let wrapped = [self.response, self.delta, self.message, self.x_groq, self.metadata];
        self.own_usage()
            .or_else(|| wrapped.into_iter().find_map(|raw| Self::inner(raw)?.own_usage()))
            .or(self.invocation_metrics.map(RawValue::get))
    }

    fn own_usage(&self) -> Option<&'a str> {
        self.usage.or(self.usage_metadata).or(self.meta).map(RawValue::get)
    }

    fn read_identity(&self, reading: &mut Reading) {
        self.read_own_identity(reading);
        for inner in [self.response, self.message].into_iter().filter_map(Self::inner) {
            inner.read_own_identity(reading);
        }
    }

    fn read_own_identity(&self, reading: &mut Reading) {
        let text = |raw: Option<&RawValue>| parse_text(raw?.get());
        if reading.model.is_none() {
            reading.model = text(self.model.or(self.model_version));
        }
        if reading.response_id.is_none() {
            reading.response_id = text(self.id.or(self.response_id));
        }
    }
}

/// Reads one event. `name` is its name in the stream's framing, if it has one.
pub(super) fn read_event(reading: &mut Reading, format: ProviderFormat, name: Option<&[u8]>, data: &[u8]) {
    if data.trim_ascii() == b"[DONE]" {
        reading.saw_end = true;
        return;
    }
    let scan = EventScan::new(format, data);
    let kind = name.or(scan.kind).unwrap_or_default();
    let from_responses = kind.starts_with(b"response.");
    // Responses streams repeat the complete text after its deltas.
    reading.output_chars += if from_responses { scan.delta_chars } else { scan.chars + scan.delta_chars };
    if let Some(reason) = scan.finish_reason {
        reading.finish_reason = Some(String::from_utf8_lossy(reason).into_owned());
    }
    reading.saw_end |= scan.is_end;
    reading.saw_end |= matches!(
        kind,
        b"message_stop"
            | b"messageStop"
            | b"message-end"
            | b"stream-end"
            | b"response.completed"
            | b"response.incomplete"
            | b"response.failed"
    );
    let failed = scan.has_error || kind == b"error";
    let may_identify = reading.identity_events < MAX_IDENTITY_EVENTS
        && (reading.model.is_none() || reading.response_id.is_none());
    let last_response = from_responses && reading.saw_end;
    let merges = scan.has_usage && matches!(kind, b"message_start" | b"message_delta");
    if scan.has_usage && !merges {
        reading.last_usage_event.clear();
        reading.last_usage_event.extend_from_slice(data);
    }
    if !(failed || may_identify || last_response || merges) {
        return;
    }
    let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(data) else { return };
    if may_identify {
        reading.identity_events += 1;
        envelope.read_identity(reading);
    }
    if merges && let Some(raw) = envelope.usage() {
        if let Some(report) = UsageReport::parse(raw) {
            reading.messages.merge(anthropic::Report::read(&report));
        }
        // Reports are cumulative, so the first and the last are enough.
        reading.message_reports.truncate(1);
        reading.message_reports.push(raw.into());
    }
    if failed {
        match (envelope.error, kind) {
            (Some(error), _) => reading.error(error.get()),
            (None, b"error") => reading.error(&String::from_utf8_lossy(data)),
            _ => {}
        }
    }
    if last_response && let Some(response) = Envelope::inner(envelope.response) {
        end_response(reading, &response);
    }
}

fn end_response(reading: &mut Reading, response: &Envelope<'_>) {
    #[derive(Deserialize)]
    struct Details {
        reason: Option<String>,
    }
    let reason =
        response.incomplete_details.and_then(|raw| serde_json::from_str::<Details>(raw.get()).ok()?.reason);
    let status = || serde_json::from_str(response.status?.get()).ok();
    reading.finish_reason = reason.or_else(status);
    if let Some(error) = response.error {
        reading.error(error.get());
    }
}

fn describe(error: &Map<String, Json>) -> Option<String> {
    let text = |key: &str| error.get(key).and_then(Json::as_str).filter(|text| !text.is_empty());
    let message = text("message").or(text("Message"))?;
    let kind = ["type", "status", "code"].into_iter().filter_map(text).find(|kind| *kind != "error");
    Some(kind.map_or_else(|| message.to_owned(), |kind| format!("{kind}: {message}")))
}

/// The result of one pass over an event's keys.
#[derive(Default)]
struct EventScan<'a> {
    kind: Option<&'a [u8]>,
    finish_reason: Option<&'a [u8]>,
    /// Gemini ends a stream with a finish reason, and Bedrock's invoke calls end it with their metrics.
    is_end: bool,
    has_usage: bool,
    has_error: bool,
    chars: u64,
    delta_chars: u64,
}

impl<'a> EventScan<'a> {
    fn new(format: ProviderFormat, data: &'a [u8]) -> Self {
        let mut scan = EventScan::default();
        // Perplexity repeats the message so far next to each delta.
        let mut repeated = false;
        for_each_member(data, |key, value| match (key, value) {
            (
                b"content" | b"text" | b"refusal" | b"reasoning_content" | b"reasoning" | b"thinking"
                | b"partial_json" | b"arguments" | b"input" | b"tool_plan" | b"generation" | b"outputText"
                | b"completion",
                MemberValue::Text(text),
            ) if !repeated => scan.chars += char_count(text),
            (b"delta", MemberValue::Text(text)) => scan.delta_chars += char_count(text),
            (b"delta", _) => repeated = false,
            (b"message", MemberValue::Object) => repeated = format == ProviderFormat::OpenAi,
            (b"usage" | b"usageMetadata", MemberValue::Object) => scan.has_usage = true,
            (b"meta", MemberValue::Object) => scan.has_usage |= format == ProviderFormat::Cohere,
            (b"amazon-bedrock-invocationMetrics", MemberValue::Object) => {
                scan.has_usage = true;
                scan.is_end = true;
            }
            (b"error", MemberValue::Object | MemberValue::Text(_)) => scan.has_error = true,
            (b"type" | b"event_type", MemberValue::Text(text)) if scan.kind.is_none() => {
                scan.kind = Some(text);
            }
            (
                b"finish_reason" | b"stop_reason" | b"finishReason" | b"stopReason" | b"blockReason"
                | b"completionReason",
                MemberValue::Text(text),
            ) if !text.is_empty() => {
                scan.finish_reason = Some(text);
                scan.is_end |= matches!(key, b"finishReason" | b"blockReason");
            }
            _ => {}
        });
        scan
    }
}
