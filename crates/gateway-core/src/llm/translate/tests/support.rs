//! Access to the fixtures. `fixtures/<client>/<case>.request.json` are requests of callers.
//! `fixtures/<provider>/<case>.response.json` and `.stream.txt` are responses of providers, in their published formats.

use std::{fs, path::PathBuf};

use serde_json::{Map, Value};

use super::super::{
    super::{ClientFormat, ProviderFormat, WireFormat, eventstream},
    ResponseOptions, StreamTranslator,
};

/// An API of a provider: the formats of all providers, and the Responses API of OpenAI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProviderApi {
    pub(super) provider: ProviderFormat,
    pub(super) use_responses_api: bool,
}

/// The formats that are translated.
pub(super) const CLIENTS: [ClientFormat; 4] = ClientFormat::ALL;
const PROVIDER_FORMATS: [ProviderFormat; 5] = ProviderFormat::ALL;

impl ProviderApi {
    /// All provider APIs.
    pub(super) fn all() -> Vec<ProviderApi> {
        let responses = ProviderApi { provider: ProviderFormat::OpenAi, use_responses_api: true };
        PROVIDER_FORMATS
            .into_iter()
            .map(|provider| ProviderApi { provider, use_responses_api: false })
            .chain([responses])
            .collect()
    }

    pub(super) fn name(self) -> &'static str {
        if self.use_responses_api { "openai-responses" } else { self.provider.as_str() }
    }

    pub(super) fn model(self) -> &'static str {
        match self.provider {
            ProviderFormat::OpenAi => "gpt-4o",
            ProviderFormat::Anthropic => "claude-sonnet-4-5-20250929",
            ProviderFormat::Gemini => "gemini-2.5-flash",
            ProviderFormat::Bedrock => "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            ProviderFormat::Cohere => "command-a-03-2025",
        }
    }

    pub(super) fn format(self) -> WireFormat {
        match self.provider {
            ProviderFormat::OpenAi if self.use_responses_api => WireFormat::OpenAiResponses,
            ProviderFormat::OpenAi => WireFormat::OpenAiChat,
            ProviderFormat::Anthropic => WireFormat::Anthropic,
            ProviderFormat::Gemini => WireFormat::Gemini,
            ProviderFormat::Bedrock => WireFormat::Bedrock,
            ProviderFormat::Cohere => WireFormat::Cohere,
        }
    }

    pub(super) fn response_options(self) -> ResponseOptions<'static> {
        ResponseOptions {
            id: "gateway-1",
            model: self.model(),
            created: 1_741_570_283,
            include_usage: true,
            use_responses_api: self.use_responses_api,
        }
    }
}

pub(super) fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// Returns the sorted names of the fixtures in a folder, without their suffix.
pub(super) fn cases(folder: &str, suffix: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(fixtures().join(folder)) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> =
        names.filter_map(|name| Some(name.strip_suffix(suffix)?.to_owned())).collect();
    names.sort();
    names
}

pub(super) fn read(folder: &str, file: &str) -> Vec<u8> {
    let path = fixtures().join(folder).join(file);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(super) fn read_json(folder: &str, file: &str) -> Value {
    serde_json::from_slice(&read(folder, file)).unwrap_or_else(|error| panic!("{folder}/{file}: {error}"))
}

/// Returns a provider's stream as bytes. Bedrock's fixtures are lines of event name and payload, with `!` before
/// exceptions.
pub(super) fn stream_bytes(api: ProviderApi, case: &str) -> Vec<u8> {
    let bytes = read(api.name(), &format!("{case}.stream.txt"));
    if api.provider != ProviderFormat::Bedrock {
        return bytes;
    }
    let text = String::from_utf8(bytes).unwrap();
    let frame = |line: &str| {
        let (name, payload) = line.split_once(' ').unwrap();
        let headers = match name.strip_prefix('!') {
            Some(name) => [(":message-type", "exception"), (":exception-type", name)],
            None => [(":message-type", "event"), (":event-type", name)],
        };
        eventstream::encode(&headers, payload.as_bytes()).unwrap()
    };
    text.lines().flat_map(frame).collect()
}

/// Translates a stream that arrives in chunks of the given sizes, used cyclically.
pub(super) fn translate_stream(
    api: ProviderApi,
    client: ClientFormat,
    bytes: &[u8],
    sizes: &[usize],
) -> Vec<u8> {
    let mut translator = StreamTranslator::new(api.provider, client, &api.response_options());
    let mut out = Vec::new();
    let mut rest = bytes;
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (chunk, after) = rest.split_at((*size).clamp(1, rest.len()));
        translator.feed(chunk, &mut out);
        rest = after;
    }
    translator.finish(&mut out);
    assert!(translator.is_finished());
    out
}

/// Removes insignificant differences between JSON values: null fields and the whitespace of JSON inside strings.
pub(super) fn normalize_json(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| normalize_field(key, value)).collect::<Map<_, _>>())
        }
        Value::Array(list) => list.into_iter().map(normalize_json).collect(),
        other => other,
    }
}

fn normalize_field(key: String, value: Value) -> (String, Value) {
    match value {
        Value::String(text) if key == "arguments" => {
            let parsed = serde_json::from_str(&text).unwrap_or(Value::String(text));
            (key, parsed)
        }
        other => (key, normalize_json(other)),
    }
}
