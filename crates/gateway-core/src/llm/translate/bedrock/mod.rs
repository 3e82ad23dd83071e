//! Bedrock's Converse API, one format for models of many vendors. Parameters that only Claude supports are sent in
//! `additionalModelRequestFields`.

mod decode_stream;
mod embeddings;
mod encode_request;
mod models;
mod response;

use serde_json::{Map, Value};

use super::{
    super::chat::{
        ChatRequest, ChatResponse, EmbeddingsRequest, EmbeddingsResponse, Losses, ModelEntry, ProviderError,
        StopReason, TranslationError,
    },
    ProviderCodec, StreamDecoder,
};

pub(super) struct Converse;

impl ProviderCodec for Converse {
    fn encode_request(&self, request: ChatRequest, losses: &mut Losses) -> Result<Value, TranslationError> {
        encode_request::encode_request(request, losses)
    }

    fn decode_response(&self, body: Map<String, Value>) -> Option<ChatResponse> {
        response::decode_response(&body)
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        Box::new(decode_stream::Decoder::default())
    }

    fn decode_error(&self, status: u16, body: &Map<String, Value>) -> Option<ProviderError> {
        let message = body.get("message").or_else(|| body.get("Message"))?.as_str()?.to_owned();
        let kind = body.get("__type").and_then(Value::as_str).map(|kind| {
            // `com.amazon.coral.service#AccessDeniedException`
            kind.rsplit('#').next().unwrap_or(kind).to_owned()
        });
        let code = kind.unwrap_or_else(|| exception_name(status).to_owned());
        Some(ProviderError { status, code, message })
    }

    fn decode_models(&self, body: &Map<String, Value>) -> Option<Vec<ModelEntry>> {
        models::decode_models(body)
    }

    fn encode_embeddings_request(
        &self,
        request: EmbeddingsRequest,
        losses: &mut Losses,
    ) -> Result<(String, Value), TranslationError> {
        embeddings::encode_embeddings_request(request, losses)
    }

    fn decode_embeddings_response(&self, body: &Map<String, Value>) -> Option<EmbeddingsResponse> {
        embeddings::decode_embeddings_response(body)
    }
}

/// Derives the exception name from the status, since Bedrock sends the name in a header and not in the body.
fn exception_name(status: u16) -> &'static str {
    match status {
        400 => "ValidationException",
        403 => "AccessDeniedException",
        404 => "ResourceNotFoundException",
        408 => "ModelTimeoutException",
        424 => "ModelErrorException",
        429 => "ThrottlingException",
        503 => "ServiceUnavailableException",
        _ => "InternalServerException",
    }
}

fn decode_stop_reason(reason: &str) -> StopReason {
    match reason {
        "tool_use" => StopReason::ToolUse,
        "max_tokens" => StopReason::MaxTokens,
        "stop_sequence" => StopReason::Sequence(None),
        "guardrail_intervened" | "content_filtered" => StopReason::Filtered,
        "model_context_window_exceeded" => StopReason::ContextFull,
        "malformed_model_output" | "malformed_tool_use" => StopReason::Failed,
        "refusal" => StopReason::Refusal,
        _ => StopReason::EndTurn,
    }
}
