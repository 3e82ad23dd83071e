//! Cohere's Chat API v2, supported as a provider format only. Its tool plan is decoded as thinking, and text
//! documents of the caller are encoded as its documents.

mod decode_stream;
mod embeddings;
mod encode_request;
mod response;

use serde_json::{Map, Value};

use super::{
    super::chat::{
        ChatRequest, ChatResponse, EmbeddingsRequest, EmbeddingsResponse, Losses, ModelEntry, ProviderError,
        StopReason, TranslationError,
    },
    ProviderCodec, StreamDecoder,
    json::str_field,
};

pub(super) struct Cohere;

impl ProviderCodec for Cohere {
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
        let message = body.get("message")?.as_str()?.to_owned();
        let code = body.get("error_type").and_then(Value::as_str).unwrap_or("provider_error").to_owned();
        Some(ProviderError { status, code, message })
    }

    fn decode_models(&self, body: &Map<String, Value>) -> Option<Vec<ModelEntry>> {
        let rows = body.get("models")?.as_array()?.iter().filter_map(Value::as_object);
        let decode = |row: &Map<String, Value>| ModelEntry {
            id: str_field(row, "name").to_owned(),
            owner: Some("cohere".to_owned()),
            input_limit: row.get("context_length").and_then(Value::as_u64),
            ..ModelEntry::default()
        };
        Some(rows.map(decode).collect())
    }

    fn encode_embeddings_request(
        &self,
        request: EmbeddingsRequest,
        losses: &mut Losses,
    ) -> Result<(String, Value), TranslationError> {
        Ok(embeddings::encode_embeddings_request(&request, losses))
    }

    fn decode_embeddings_response(&self, body: &Map<String, Value>) -> Option<EmbeddingsResponse> {
        embeddings::decode_embeddings_response(body)
    }
}

fn decode_stop_reason(reason: &str) -> StopReason {
    match reason {
        "STOP_SEQUENCE" => StopReason::Sequence(None),
        "MAX_TOKENS" => StopReason::MaxTokens,
        "TOOL_CALL" => StopReason::ToolUse,
        "TIMEOUT" => StopReason::Failed,
        "ERROR_TOXIC" => StopReason::Filtered,
        "ERROR_LIMIT" => StopReason::ContextFull,
        reason if reason.starts_with("ERROR") => StopReason::Failed,
        _ => StopReason::EndTurn,
    }
}
