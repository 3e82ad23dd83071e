//! Whole requests and whole answers.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::{Map, Value};

use super::super::{
    ClientFormat, ProviderFormat,
    chat::{ChatResponse, Choice, Content, Losses, ProviderError, StopReason, TranslationError, WireFormat},
    errors,
};
use super::{client_codec, provider_codec, signatures};

/// What the proxy knows of a call besides its body.
#[derive(Debug, Clone, Copy)]
pub struct RequestOptions<'a> {
    /// The model as the provider calls it.
    pub model: &'a str,
    /// Whether the provider shall stream; some callers say so in the path.
    pub stream: bool,
    /// The provider takes `stream_options.include_usage`.
    pub supports_include_usage: bool,
    /// The provider has OpenAI's responses, and they are what to call: see `should_use_responses_api`.
    pub use_responses_api: bool,
}

/// A request in the provider's format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatedRequest {
    /// The usual path of the format; a provider's own row in the table may know better.
    pub path: String,
    pub body: Vec<u8>,
    /// Fields of the caller that were left out, in the caller's words.
    pub dropped: Vec<String>,
    /// For `ResponseOptions`: the caller of an OpenAI stream asked for its usage chunk.
    pub include_usage: bool,
}

/// What an answer says of itself where the provider does not.
#[derive(Debug, Clone, Copy)]
pub struct ResponseOptions<'a> {
    pub id: &'a str,
    pub model: &'a str,
    /// Seconds since 1970.
    pub created: i64,
    pub include_usage: bool,
    pub use_responses_api: bool,
}

/// An answer that is not in the provider's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the provider's answer could not be read")]
pub struct UnreadableResponse;

/// AlternatingTurns a caller's request into one for a provider.
pub fn translate_request(
    from: ClientFormat,
    to: ProviderFormat,
    body: &[u8],
    ask: &RequestOptions<'_>,
) -> Result<TranslatedRequest, TranslationError> {
    let (source, target) = (WireFormat::from(from), WireFormat::of_provider(to, ask.use_responses_api));
    let mut request = client_codec(from).decode_request(parse_body(body)?)?;
    ask.model.clone_into(&mut request.model);
    request.stream = ask.stream;
    let include_usage =
        std::mem::replace(&mut request.include_usage, ask.supports_include_usage && ask.stream);
    let mut losses = Losses::new(source);
    if source != target
        && let Some(key) =
            client_codec(from).required_extras().iter().find(|key| request.extra.contains_key(**key))
    {
        return Err(TranslationError::Unsupported {
            field: (*key).to_owned(),
            message: "cannot be translated for this provider".to_owned(),
        });
    }
    signatures::unwrap_request(&mut request, target, &mut losses);
    let body = provider_codec(target).encode_request(request, &mut losses)?.to_string().into_bytes();
    let path = path(target, ask.model, ask.stream);
    Ok(TranslatedRequest { path, body, dropped: losses.into_dropped(), include_usage })
}

/// AlternatingTurns a provider's successful answer into the caller's format.
pub fn translate_response(
    from: ProviderFormat,
    to: ClientFormat,
    body: &[u8],
    reply: &ResponseOptions<'_>,
) -> Result<Vec<u8>, UnreadableResponse> {
    let Ok(Value::Object(body)) = serde_json::from_slice(body) else { return Err(UnreadableResponse) };
    let source = WireFormat::of_provider(from, reply.use_responses_api);
    let mut response = provider_codec(source).decode_response(body).ok_or(UnreadableResponse)?;
    normalize(&mut response, reply);
    signatures::wrap_response(&mut response.choices, source, WireFormat::from(to));
    Ok(client_codec(to).encode_response(response).to_string().into_bytes())
}

/// AlternatingTurns a provider's error into the caller's format. A body that is no error of the format is quoted.
pub fn translate_error(from: ProviderFormat, to: ClientFormat, status: u16, body: &[u8]) -> Vec<u8> {
    let ProviderError { code, message, .. } = decode_error(from, status, body);
    errors::error_body(to, status, &code, &message)
}

/// AlternatingTurns a provider's list of models into the caller's format.
pub fn translate_models(
    from: ProviderFormat,
    to: ClientFormat,
    body: &[u8],
) -> Result<Vec<u8>, UnreadableResponse> {
    let Ok(Value::Object(body)) = serde_json::from_slice(body) else { return Err(UnreadableResponse) };
    let provider = provider_codec(WireFormat::of_provider(from, false));
    let models = provider.decode_models(&body).ok_or(UnreadableResponse)?;
    Ok(client_codec(to).encode_models(models).to_string().into_bytes())
}

fn decode_error(from: ProviderFormat, status: u16, body: &[u8]) -> ProviderError {
    const LONGEST: usize = 1000;
    let provider = provider_codec(WireFormat::of_provider(from, false));
    let known = match serde_json::from_slice(body) {
        Ok(Value::Object(body)) => provider.decode_error(status, &body),
        // Google answers in a list of one when a stream was asked for.
        Ok(Value::Array(list)) => {
            list.first().and_then(Value::as_object).and_then(|body| provider.decode_error(status, body))
        }
        _ => None,
    };
    known.unwrap_or_else(|| {
        let mut message = String::from_utf8_lossy(body).trim().to_owned();
        message.truncate(message.floor_char_boundary(LONGEST));
        if message.is_empty() {
            message = format!("the provider answered with status {status}");
        }
        ProviderError { status, code: "provider_error".to_owned(), message }
    })
}

/// Fills in what the provider left open, and brings every choice into its one form.
fn normalize(response: &mut ChatResponse, reply: &ResponseOptions<'_>) {
    if response.id.is_empty() {
        reply.id.clone_into(&mut response.id);
    }
    if response.model.is_empty() {
        reply.model.clone_into(&mut response.model);
    }
    response.created.get_or_insert(reply.created);
    for choice in &mut response.choices {
        choice.normalize();
        let reason = choice.stop.take().unwrap_or(StopReason::EndTurn);
        choice.stop = Some(resolve_stop_reason(reason, has_refusal(choice), has_calls(choice)));
    }
}

/// Why a model really stopped: several formats say no more than that it did, whether it called tools or declined.
pub(super) fn resolve_stop_reason(reason: StopReason, refused: bool, calls: bool) -> StopReason {
    match reason {
        StopReason::EndTurn if refused => StopReason::Refusal,
        StopReason::EndTurn if calls => StopReason::ToolUse,
        other => other,
    }
}

fn has_refusal(choice: &Choice) -> bool {
    choice.parts.iter().any(|part| matches!(part.content, Content::Refusal(_)))
}

fn has_calls(choice: &Choice) -> bool {
    choice.parts.iter().any(|part| matches!(part.content, Content::ToolCall(_)))
}

pub(super) fn parse_body(body: &[u8]) -> Result<Map<String, Value>, TranslationError> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(body)) => Ok(body),
        Ok(_) => Err(TranslationError::malformed("", "the body must be a JSON object")),
        Err(error) => Err(TranslationError::malformed("", format!("the body is not valid JSON: {error}"))),
    }
}

/// Where a request of this format is sent.
fn path(format: WireFormat, model: &str, stream: bool) -> String {
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

/// A model's name as one segment of a path.
pub(super) fn path_segment(model: &str) -> PercentEncode<'_> {
    const SEGMENT: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'@');
    utf8_percent_encode(model, SEGMENT)
}
