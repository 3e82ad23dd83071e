//! The fields of a request body that the gateway needs before it forwards the body, read in one pass without a tree.
//! Also the edits of forwarded bodies (usage in a stream, another model), which leave every other byte unchanged.

use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::{ObjectScan, ObjectScanner, ScanStatus, ScannedValue};

static KEYS: [&str; 13] = [
    "model",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "generationConfig",
    "generation_config",
    "inferenceConfig",
    "user",
    "metadata",
    "n",
    "models",
];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestPeek {
    pub model: Option<String>,
    /// Where the model is in the body, with its quotes.
    pub model_at: Option<Range<usize>>,
    pub stream: Option<bool>,
    /// `stream_options.include_usage`
    pub include_usage: Option<bool>,
    /// The largest limit on output tokens in the body, under any provider's name for it. None if there is none, or if
    /// one of them cannot be read: then only the model's own limit holds.
    pub max_tokens: Option<u64>,
    /// `user`, or Anthropic's `metadata.user_id`.
    pub user: Option<String>,
    /// The number of requested choices, if it is given and valid.
    pub choices: Option<u64>,
    pub further_models: FurtherModels,
}

/// `models`, from which some providers choose if they do not use the model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FurtherModels {
    #[default]
    None,
    Named(Vec<String>),
    /// The field is not a list of names, or too long to be read.
    Unreadable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PeekError {
    #[error("the request body is not a JSON object")]
    NotObject,
    #[error("the request body is not valid JSON")]
    Malformed,
    #[error("the request body ends before its JSON object is complete")]
    Incomplete,
    #[error("the field \"{0}\" appears more than once in the request body")]
    DuplicateKey(&'static str),
}

/// Reads a body in chunks.
#[derive(Debug)]
pub struct BodyPeek {
    scanner: ObjectScanner<13>,
    /// What the complete fields say. Each is parsed once, however many chunks follow.
    has_model: Option<bool>,
    has_stream: Option<bool>,
}

impl Default for BodyPeek {
    fn default() -> Self {
        Self::new()
    }
}

impl BodyPeek {
    pub fn new() -> Self {
        Self { scanner: ObjectScanner::new(&KEYS), has_model: None, has_stream: None }
    }

    /// Reads the next chunk. An error is final.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<(), PeekError> {
        self.scanner.feed(chunk);
        check_status(self.scanner.status())
    }

    /// Whether the fields so far name a model. Cheap enough to be asked after each chunk.
    pub fn has_model(&mut self) -> bool {
        if self.has_model.is_none() {
            self.has_model = self.scanner.get("model").map(|value| text(Some(value)).is_some());
        }
        self.has_model.unwrap_or_default()
    }

    /// Whether the fields so far tell if the body asks for a stream. Cheap enough to be asked after each chunk.
    pub fn has_stream(&mut self) -> bool {
        if self.has_stream.is_none() {
            self.has_stream = self.scanner.get("stream").map(|value| stream(Some(value)).is_some());
        }
        self.has_stream.unwrap_or_default()
    }

    /// The fields so far, which are parsed for this. Keys may still follow, so only `finish` can rule out duplicates.
    pub fn snapshot(&self) -> Result<RequestPeek, PeekError> {
        check_status(self.scanner.status())?;
        Ok(self.read())
    }

    pub fn finish(self) -> Result<RequestPeek, PeekError> {
        check_complete(self.scanner.status())?;
        Ok(self.read())
    }

    fn read(&self) -> RequestPeek {
        read(|key| self.scanner.get(key), self.scanner.range("model"))
    }
}

/// Reads a complete body.
pub fn peek(body: &[u8]) -> Result<RequestPeek, PeekError> {
    let scan = ObjectScan::new(&KEYS, body);
    check_complete(scan.status())?;
    Ok(read(|key| scan.get(key), scan.range("model")))
}

/// Returns the body of a stream call with `stream_options.include_usage` set. None if the body can be sent unchanged:
/// the field is set already, or the body is not an object.
pub fn add_include_usage(body: &[u8]) -> Option<Vec<u8>> {
    static OUTER: [&str; 1] = ["stream_options"];
    static INNER: [&str; 1] = ["include_usage"];
    let outer = ObjectScan::new(&OUTER, body);
    if outer.status() != ScanStatus::Complete {
        return None;
    }
    let Some(options) = outer.range("stream_options") else {
        let field: &[u8] = br#""stream_options":{"include_usage":true}"#;
        let comma: &[u8] = if outer.has_members() { b"," } else { b"" };
        let at = outer.closing()?;
        return Some([&body[..at], comma, field, &body[at..]].concat());
    };
    let (before, value, after) = (&body[..options.start], &body[options.clone()], &body[options.end..]);
    if value == b"null" {
        return Some([before, br#"{"include_usage":true}"#, after].concat());
    }
    let inner = ObjectScan::new(&INNER, value);
    if inner.status() != ScanStatus::Complete {
        return None;
    }
    match inner.range("include_usage") {
        Some(flag) if &value[flag.clone()] == b"true" => None,
        Some(flag) => Some([before, &value[..flag.start], b"true", &value[flag.end..], after].concat()),
        None => {
            let at = inner.closing()?;
            let comma: &[u8] = if inner.has_members() { b"," } else { b"" };
            Some([before, &value[..at], comma, br#""include_usage":true"#, &value[at..], after].concat())
        }
    }
}

/// Returns the body with its model replaced and every other byte unchanged. None if the body has no model.
pub fn replace_model(body: &[u8], model: &str) -> Option<Vec<u8>> {
    static KEY: [&str; 1] = ["model"];
    let scan = ObjectScan::new(&KEY, body);
    if scan.status() != ScanStatus::Complete {
        return None;
    }
    replace_model_at(body, &scan.range("model")?, model)
}

/// The same for a body whose model is known to be at `range`. None if the body is shorter.
pub fn replace_model_at(body: &[u8], range: &Range<usize>, model: &str) -> Option<Vec<u8>> {
    let (before, after) = (body.get(..range.start)?, body.get(range.end..)?);
    let is_plain = |byte: u8| byte >= b' ' && !matches!(byte, b'"' | b'\\');
    if model.bytes().all(is_plain) {
        return Some([before, b"\"", model.as_bytes(), b"\"", after].concat());
    }
    let name = serde_json::to_string(model).ok()?;
    Some([before, name.as_bytes(), after].concat())
}

fn check_status(status: ScanStatus) -> Result<(), PeekError> {
    match status {
        ScanStatus::Open | ScanStatus::Complete => Ok(()),
        ScanStatus::NotObject => Err(PeekError::NotObject),
        ScanStatus::Malformed => Err(PeekError::Malformed),
        ScanStatus::Duplicate(key) => Err(PeekError::DuplicateKey(key)),
    }
}

fn check_complete(status: ScanStatus) -> Result<(), PeekError> {
    check_status(status)?;
    if status == ScanStatus::Complete { Ok(()) } else { Err(PeekError::Incomplete) }
}

#[derive(Deserialize)]
struct StreamOptions<'a> {
    #[serde(borrow)]
    include_usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct GenerationConfig<'a> {
    #[serde(borrow)]
    #[serde(alias = "max_output_tokens", alias = "maxTokens")]
    #[serde(rename = "maxOutputTokens")]
    max: Option<&'a RawValue>,
    #[serde(borrow)]
    #[serde(alias = "candidate_count")]
    #[serde(rename = "candidateCount")]
    choices: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Metadata {
    user_id: Option<String>,
}

/// Reads each field on its own: one that has another type than expected does not hide the others. The provider checks
/// it, and some providers accept it.
fn read<'a>(get: impl Fn(&str) -> Option<ScannedValue<'a>>, model_at: Option<Range<usize>>) -> RequestPeek {
    let mut limit = OutputLimit::default();
    for key in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
        match get(key) {
            None => {}
            Some(ScannedValue::Overlong) => limit.is_unknown = true,
            Some(ScannedValue::Raw(raw)) => limit.add(raw),
        }
    }
    let mut choices = match get("n") {
        Some(ScannedValue::Raw(raw)) => count(raw),
        _ => None,
    };
    for key in ["generationConfig", "generation_config", "inferenceConfig"] {
        let Some(value) = get(key) else { continue };
        let ScannedValue::Raw(raw) = value else {
            limit.is_unknown = true;
            continue;
        };
        match object::<GenerationConfig<'_>>(raw) {
            Some(config) => {
                if let Some(max) = config.max {
                    limit.add(max.get().as_bytes());
                }
                choices = choices.max(config.choices.and_then(|choices| count(choices.get().as_bytes())));
            }
            None => limit.is_unknown |= raw != b"null",
        }
    }
    let stream = stream(get("stream"));
    let include_usage = match get("stream_options") {
        Some(ScannedValue::Raw(raw)) => object::<StreamOptions<'_>>(raw)
            .and_then(|options| options.include_usage)
            .and_then(|value| flag(value.get().as_bytes())),
        _ => None,
    };
    let user = text(get("user")).or_else(|| match get("metadata")? {
        ScannedValue::Raw(raw) => object::<Metadata>(raw)?.user_id,
        ScannedValue::Overlong => None,
    });
    let model = text(get("model"));
    let model_at = model_at.filter(|_| model.is_some());
    let further_models = match get("models") {
        None | Some(ScannedValue::Raw(b"null")) => FurtherModels::None,
        Some(ScannedValue::Raw(raw)) => {
            serde_json::from_slice(raw).map_or(FurtherModels::Unreadable, FurtherModels::Named)
        }
        Some(ScannedValue::Overlong) => FurtherModels::Unreadable,
    };
    let max_tokens = limit.get();
    RequestPeek { model, model_at, stream, include_usage, max_tokens, user, choices, further_models }
}

/// A string; None if the field is missing, too long or of another type.
fn text(value: Option<ScannedValue<'_>>) -> Option<String> {
    match value? {
        ScannedValue::Overlong => None,
        ScannedValue::Raw(raw) => serde_json::from_slice(raw).ok(),
    }
}

/// What the field `stream` says, if it can be read.
fn stream(value: Option<ScannedValue<'_>>) -> Option<bool> {
    match value? {
        ScannedValue::Overlong => None,
        ScannedValue::Raw(raw) => flag(raw),
    }
}

/// An object. Serde would also read a struct from an array.
fn object<'a, T: Deserialize<'a>>(raw: &'a [u8]) -> Option<T> {
    if raw.starts_with(b"{") { serde_json::from_slice(raw).ok() } else { None }
}

#[derive(Default)]
struct OutputLimit {
    largest: Option<u64>,
    /// There is a limit that cannot be read, so it may be larger than the others.
    is_unknown: bool,
}

impl OutputLimit {
    /// Zero and negative numbers mean "no limit" to some servers.
    fn add(&mut self, raw: &[u8]) {
        match count(raw) {
            Some(0) => self.is_unknown = true,
            Some(tokens) => self.largest = self.largest.max(Some(tokens)),
            None => self.is_unknown |= raw != b"null",
        }
    }

    fn get(&self) -> Option<u64> {
        self.largest.filter(|_| !self.is_unknown)
    }
}

/// The text of a scalar: many servers accept a number or a boolean in quotes.
fn scalar(raw: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(raw).ok()?;
    if text.starts_with('"') {
        let unquoted: String = serde_json::from_str(text).ok()?;
        return Some(unquoted.trim().to_owned());
    }
    (!text.starts_with(['{', '['])).then(|| text.to_owned())
}

/// A count. Some clients write integers as floats or as strings.
fn count(raw: &[u8]) -> Option<u64> {
    let text = scalar(raw)?;
    if let Ok(count) = text.parse() {
        return Some(count);
    }
    let count: f64 = text.parse().ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "negatives are None, the cast saturates"
    )]
    (count.is_finite() && count >= 0.0).then_some(count.ceil() as u64)
}

fn flag(raw: &[u8]) -> Option<bool> {
    match &*scalar(raw)?.to_ascii_lowercase() {
        "true" | "1" | "1.0" | "t" | "y" | "yes" | "on" => Some(true),
        "false" | "0" | "0.0" | "f" | "n" | "no" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
