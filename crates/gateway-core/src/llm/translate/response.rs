//! Translation of complete responses, errors and model lists.

use serde_json::Value;

use super::super::{
    ClientFormat, ProviderFormat,
    chat::{ChatResponse, Choice, Content, ProviderError, StopReason, WireFormat},
    errors,
};
use super::{client_codec, provider_codec, signatures};

/// Values for what the provider's response does not contain, and how the response is decoded and encoded.
#[derive(Debug, Clone, Copy)]
pub struct ResponseOptions<'a> {
    pub id: &'a str,
    pub model: &'a str,
    /// Unix time in seconds.
    pub created: i64,
    /// Sends the usage chunk of an OpenAI stream.
    pub include_usage: bool,
    /// The same value as in `RequestOptions`.
    pub use_responses_api: bool,
}

/// A response that is not in the provider's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the provider's response could not be decoded")]
pub struct UnreadableResponse;

/// Translates a provider's successful response into the caller's format.
pub fn translate_response(
    from: ProviderFormat,
    to: ClientFormat,
    body: &[u8],
    options: &ResponseOptions<'_>,
) -> Result<Vec<u8>, UnreadableResponse> {
    let Ok(Value::Object(body)) = serde_json::from_slice(body) else { return Err(UnreadableResponse) };
    let source = WireFormat::of_provider(from, options.use_responses_api);
    let mut response = provider_codec(source).decode_response(body).ok_or(UnreadableResponse)?;
    normalize(&mut response, options);
    signatures::wrap_response(&mut response.choices, source, WireFormat::from(to));
    Ok(client_codec(to).encode_response(response).to_string().into_bytes())
}

/// Translates a provider's error into the caller's format. A body of unknown structure becomes the message.
pub fn translate_error(from: ProviderFormat, to: ClientFormat, status: u16, body: &[u8]) -> Vec<u8> {
    let ProviderError { code, message, .. } = decode_error(from, status, body);
    errors::error_body(to, status, &code, &message)
}

/// Translates a provider's model list into the caller's format.
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

/// Several formats report only that the model stopped. Derives the precise reason from the content.
pub(super) fn resolve_stop_reason(reason: StopReason, has_refusal: bool, has_calls: bool) -> StopReason {
    match reason {
        StopReason::EndTurn if has_refusal => StopReason::Refusal,
        StopReason::EndTurn if has_calls => StopReason::ToolUse,
        other => other,
    }
}

fn decode_error(from: ProviderFormat, status: u16, body: &[u8]) -> ProviderError {
    const MAX_MESSAGE_BYTES: usize = 1000;
    let provider = provider_codec(WireFormat::of_provider(from, false));
    let decoded = match serde_json::from_slice(body) {
        Ok(Value::Object(body)) => provider.decode_error(status, &body),
        // Google wraps the error of a streaming request in an array.
        Ok(Value::Array(list)) => {
            list.first().and_then(Value::as_object).and_then(|body| provider.decode_error(status, body))
        }
        _ => None,
    };
    decoded.unwrap_or_else(|| {
        let mut message = String::from_utf8_lossy(body).trim().to_owned();
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        if message.is_empty() {
            message = format!("the provider returned status {status} without a message");
        }
        ProviderError { status, code: "provider_error".to_owned(), message }
    })
}

/// Fills in missing fields and normalizes every choice.
fn normalize(response: &mut ChatResponse, options: &ResponseOptions<'_>) {
    if response.id.is_empty() {
        options.id.clone_into(&mut response.id);
    }
    if response.model.is_empty() {
        options.model.clone_into(&mut response.model);
    }
    response.created.get_or_insert(options.created);
    for choice in &mut response.choices {
        choice.normalize();
        let reason = choice.stop.take().unwrap_or(StopReason::EndTurn);
        choice.stop = Some(resolve_stop_reason(reason, has_refusal(choice), has_calls(choice)));
    }
}

fn has_refusal(choice: &Choice) -> bool {
    choice.parts.iter().any(|part| matches!(part.content, Content::Refusal(_)))
}

fn has_calls(choice: &Choice) -> bool {
    choice.parts.iter().any(|part| matches!(part.content, Content::ToolCall(_)))
}
