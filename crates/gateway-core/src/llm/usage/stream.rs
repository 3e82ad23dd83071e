//! One event of a stream, whatever its provider: a single pass over its keys tells what it holds, and only events that
//! name themselves, report usage, fail or end the stream are parsed.

use serde::Deserialize;
use serde_json::{Map, Value as Json, value::RawValue};

use super::{
    ProviderFormat, Usage, anthropic,
    json::{Value, characters, pairs},
    read_usage,
};

/// How many events are parsed in search of the model's name and the answer's id, which come early or never.
const INTRODUCTIONS: u8 = 4;

/// What has been read so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    pub(super) model: Option<String>,
    pub(super) response_id: Option<String>,
    pub(super) finish_reason: Option<String>,
    pub(super) in_band_error: Option<String>,
    pub(super) output_chars: u64,
    pub(super) saw_end: bool,
    /// A row of objects said of itself that more would follow.
    pub(super) more: bool,
    /// Usage that needs no further reading.
    pub(super) usage: Option<Usage>,
    introductions: u8,
    /// The last event that reported usage. Some providers report in every event, so it is parsed only at the end.
    latest: Vec<u8>,
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
        let latest = serde_json::from_slice::<Envelope<'_>>(&self.latest).ok();
        latest.and_then(|event| read_usage(format, event.usage()?)).or_else(|| self.usage.clone())
    }

    /// Takes in an error value: a text, or an object with a message and perhaps a kind.
    pub(super) fn error(&mut self, raw: &str) {
        const LONGEST: usize = 1024;
        let mut text = match serde_json::from_str(raw) {
            Ok(Json::String(text)) => text,
            Ok(Json::Object(error)) => describe(&error).unwrap_or_else(|| raw.to_owned()),
            _ => raw.to_owned(),
        };
        text.truncate(text.floor_char_boundary(LONGEST));
        self.in_band_error = Some(text);
    }
}

/// The parts of an event that we act on, in the words of every provider.
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
        self.introduce_itself(reading);
        for inner in [self.response, self.message].into_iter().filter_map(Self::inner) {
            inner.introduce_itself(reading);
        }
    }

    fn introduce_itself(&self, reading: &mut Reading) {
        let text = |raw: Option<&RawValue>| {
            serde_json::from_str::<String>(raw?.get()).ok().filter(|text| !text.is_empty())
        };
        if reading.model.is_none() {
            reading.model = text(self.model.or(self.model_version));
        }
        if reading.response_id.is_none() {
            reading.response_id = text(self.id.or(self.response_id));
        }
    }
}

/// Reads one event. `name` is what the stream's framing calls it, if it calls it anything.
pub(super) fn event(reading: &mut Reading, format: ProviderFormat, name: Option<&[u8]>, data: &[u8]) {
    if data.trim_ascii() == b"[DONE]" {
        reading.saw_end = true;
        return;
    }
    let scan = EventScan::new(format, data);
    let kind = name.or(scan.kind).unwrap_or_default();
    let from_responses = kind.starts_with(b"response.");
    // These streams repeat the finished text after its deltas.
    reading.output_chars += if from_responses { scan.delta_chars } else { scan.chars + scan.delta_chars };
    if let Some(reason) = scan.finish_reason {
        reading.finish_reason = Some(String::from_utf8_lossy(reason).into_owned());
    }
    reading.saw_end |= scan.end;
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
    let failed = scan.error || kind == b"error";
    let introduces =
        reading.introductions < INTRODUCTIONS && (reading.model.is_none() || reading.response_id.is_none());
    let last_response = from_responses && reading.saw_end;
    let merges = scan.usage && matches!(kind, b"message_start" | b"message_delta");
    if scan.usage && !merges {
        reading.latest.clear();
        reading.latest.extend_from_slice(data);
    }
    if !(failed || introduces || last_response || merges) {
        return;
    }
    let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(data) else { return };
    if introduces {
        reading.introductions += 1;
        envelope.read_identity(reading);
    }
    if merges && let Some(raw) = envelope.usage() {
        if let Ok(report) = serde_json::from_str(raw) {
            reading.messages.merge(anthropic::Report::read(&report));
        }
        // The first and the latest report are all that there is to know.
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

/// What one pass over an event's keys shows.
#[derive(Default)]
struct EventScan<'a> {
    kind: Option<&'a [u8]>,
    finish_reason: Option<&'a [u8]>,
    /// Gemini ends a stream with a reason and nothing else, Bedrock's invoke calls with their metrics.
    end: bool,
    usage: bool,
    error: bool,
    chars: u64,
    delta_chars: u64,
}

impl<'a> EventScan<'a> {
    fn new(format: ProviderFormat, data: &'a [u8]) -> Self {
        let mut scan = EventScan::default();
        // Perplexity sends the whole message so far beside each delta.
        let mut repeated = false;
        pairs(data, |key, value| match (key, value) {
            (
                b"content" | b"text" | b"refusal" | b"reasoning_content" | b"reasoning" | b"thinking"
                | b"partial_json" | b"arguments" | b"input" | b"tool_plan" | b"generation" | b"outputText"
                | b"completion",
                Value::Text(text),
            ) if !repeated => scan.chars += characters(text),
            (b"delta", Value::Text(text)) => scan.delta_chars += characters(text),
            (b"delta", _) => repeated = false,
            (b"message", Value::Object) => repeated = format == ProviderFormat::OpenAi,
            (b"usage" | b"usageMetadata", Value::Object) => scan.usage = true,
            (b"meta", Value::Object) => scan.usage |= format == ProviderFormat::Cohere,
            (b"amazon-bedrock-invocationMetrics", Value::Object) => {
                scan.usage = true;
                scan.end = true;
            }
            (b"error", Value::Object | Value::Text(_)) => scan.error = true,
            (b"type" | b"event_type", Value::Text(text)) if scan.kind.is_none() => scan.kind = Some(text),
            (
                b"finish_reason" | b"stop_reason" | b"finishReason" | b"stopReason" | b"blockReason"
                | b"completionReason",
                Value::Text(text),
            ) if !text.is_empty() => {
                scan.finish_reason = Some(text);
                scan.end |= matches!(key, b"finishReason" | b"blockReason");
            }
            _ => {}
        });
        scan
    }
}
