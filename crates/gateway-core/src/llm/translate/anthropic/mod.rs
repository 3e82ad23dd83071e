//! Anthropic's Messages API. A JSON schema for the output is requested by `output_config.format`, which works
//! together with thinking and streams as text. The format has no parameter for output of any JSON object, so a line
//! in the system prompt requests it. Gemini signs tool calls; its signature is returned as that of a thinking block
//! before the call.

mod decode_request;
mod decode_stream;
mod encode_request;
mod encode_stream;
mod models;
mod response;

use serde_json::{Map, Value};

use super::{
    super::chat::{
        ChatRequest, ChatResponse, Losses, ModelEntry, ProviderError, StopReason, TranslationError,
    },
    ClientCodec, ProviderCodec, StreamDecoder, StreamEncoder,
    json::str_field,
};

pub(super) struct Messages;

impl ClientCodec for Messages {
    fn required_extras(&self) -> &'static [&'static str] {
        &["mcp_servers", "container"]
    }

    fn decode_request(&self, body: Map<String, Value>) -> Result<ChatRequest, TranslationError> {
        decode_request::decode_request(body)
    }

    fn encode_response(&self, response: ChatResponse) -> Value {
        response::encode_response(response)
    }

    fn stream_encoder(&self, _usage_wanted: bool) -> Box<dyn StreamEncoder> {
        Box::new(encode_stream::Encoder::default())
    }

    fn encode_models(&self, models: Vec<ModelEntry>) -> Value {
        models::encode_models(models)
    }
}

impl ProviderCodec for Messages {
    fn encode_request(&self, request: ChatRequest, losses: &mut Losses) -> Result<Value, TranslationError> {
        encode_request::encode_request(request, losses)
    }

    fn decode_response(&self, body: Map<String, Value>) -> Option<ChatResponse> {
        response::decode_response(body)
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        Box::new(decode_stream::Decoder::default())
    }

    fn decode_error(&self, status: u16, body: &Map<String, Value>) -> Option<ProviderError> {
        decode_error(Some(status), body)
    }

    fn decode_models(&self, body: &Map<String, Value>) -> Option<Vec<ModelEntry>> {
        models::decode_models(body)
    }
}

/// An error inside a stream has no status, so the status is derived from the error type.
fn decode_error(status: Option<u16>, body: &Map<String, Value>) -> Option<ProviderError> {
    let error = body.get("error")?.as_object()?;
    let kind = str_field(error, "type");
    let status = status.unwrap_or(match kind {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" => 429,
        "timeout_error" => 504,
        "overloaded_error" => 529,
        _ => 500,
    });
    let code = if kind.is_empty() { "provider_error" } else { kind }.to_owned();
    Some(ProviderError { status, code, message: str_field(error, "message").to_owned() })
}

fn decode_stop_reason(reason: &str, sequence: Option<&str>) -> StopReason {
    match reason {
        "max_tokens" => StopReason::MaxTokens,
        "stop_sequence" => StopReason::Sequence(sequence.map(str::to_owned)),
        "tool_use" => StopReason::ToolUse,
        "refusal" => StopReason::Refusal,
        "pause_turn" => StopReason::Paused,
        "model_context_window_exceeded" => StopReason::ContextFull,
        _ => StopReason::EndTurn,
    }
}

/// Returns the stop reason and the matched stop sequence.
fn encode_stop_reason(stop: &StopReason) -> (&'static str, Option<&str>) {
    match stop {
        StopReason::EndTurn | StopReason::Failed => ("end_turn", None),
        StopReason::MaxTokens => ("max_tokens", None),
        StopReason::Sequence(sequence) => ("stop_sequence", sequence.as_deref()),
        StopReason::ToolUse => ("tool_use", None),
        StopReason::Refusal | StopReason::Filtered => ("refusal", None),
        StopReason::Paused => ("pause_turn", None),
        StopReason::ContextFull => ("model_context_window_exceeded", None),
    }
}
