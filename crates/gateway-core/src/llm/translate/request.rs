//! Translation of complete requests.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::{Map, Value};

use super::{
    super::{
        ClientFormat, ProviderFormat,
        chat::{Losses, TranslationError, WireFormat},
    },
    client_codec, provider_codec, signatures,
};

/// What the translation has to know about a call besides its body.
#[derive(Debug, Clone, Copy)]
pub struct RequestOptions<'a> {
    /// The provider's name of the model.
    pub model: &'a str,
    /// Whether the request to the provider enables streaming. Some formats encode that in the path and not in the body.
    pub stream: bool,
    /// The provider accepts `stream_options.include_usage`.
    pub supports_include_usage: bool,
    /// Calls an OpenAI provider through its Responses API. See `should_use_responses_api`.
    pub use_responses_api: bool,
}

/// A request in the provider's format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatedRequest {
    /// The default path of the format. The configuration of a provider can override it.
    pub path: String,
    pub body: Vec<u8>,
    /// The fields that were dropped, by their names in the caller's format.
    pub dropped: Vec<String>,
    /// The caller of an OpenAI stream asked for the usage chunk. Belongs into `ResponseOptions`.
    pub include_usage: bool,
}

/// Translates a caller's request into a provider's format.
pub fn translate_request(
    from: ClientFormat,
    to: ProviderFormat,
    body: &[u8],
    options: &RequestOptions<'_>,
) -> Result<TranslatedRequest, TranslationError> {
    let (source, target) = (WireFormat::from(from), WireFormat::of_provider(to, options.use_responses_api));
    let mut request = client_codec(from).decode_request(parse_body(body)?)?;
    options.model.clone_into(&mut request.model);
    request.stream = options.stream;
    let include_usage =
        std::mem::replace(&mut request.include_usage, options.supports_include_usage && options.stream);
    let mut losses = Losses::new(source);
    if source != target
        && let Some(key) =
            client_codec(from).required_extras().iter().find(|key| request.extra.contains_key(**key))
    {
        return Err(TranslationError::Unsupported {
            field: (*key).to_owned(),
            message: "is not supported by this provider".to_owned(),
        });
    }
    signatures::unwrap_request(&mut request, target, &mut losses);
    let body = provider_codec(target).encode_request(request, &mut losses)?.to_string().into_bytes();
    let path = default_path(target, options.model, options.stream);
    Ok(TranslatedRequest { path, body, dropped: losses.into_dropped(), include_usage })
}

pub(super) fn parse_body(body: &[u8]) -> Result<Map<String, Value>, TranslationError> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(body)) => Ok(body),
        Ok(_) => Err(TranslationError::malformed("", "the body must be a JSON object")),
        Err(error) => Err(TranslationError::malformed("", format!("the body is not valid JSON: {error}"))),
    }
}

/// Encodes a model name as one path segment.
pub(super) fn path_segment(model: &str) -> PercentEncode<'_> {
    const SEGMENT: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'@');
    utf8_percent_encode(model, SEGMENT)
}

fn default_path(format: WireFormat, model: &str, stream: bool) -> String {
    let model = path_segment(model);
    match (format, stream) {
        (WireFormat::OpenAiChat | WireFormat::OpenAiCompletions, _) => "/v1/chat/completions".to_owned(),
        (WireFormat::OpenAiResponses, _) => "/v1/responses".to_owned(),
        (WireFormat::Anthropic, _) => "/v1/messages".to_owned(),
        (WireFormat::Gemini, false) => format!("/v1beta/models/{model}:generateContent"),
        (WireFormat::Gemini, true) => format!("/v1beta/models/{model}:streamGenerateContent?alt=sse"),
        (WireFormat::Bedrock, false) => format!("/model/{model}/converse"),
        (WireFormat::Bedrock, true) => format!("/model/{model}/converse-stream"),
        (WireFormat::Cohere, _) => "/v2/chat".to_owned(),
    }
}
