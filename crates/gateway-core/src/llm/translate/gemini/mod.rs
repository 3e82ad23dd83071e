//! Google's generateContent API. A message is a list of parts, and each event of a stream is a complete response with a
//! few more parts. Tool results refer to calls by name, and ids are a later addition, so missing ids are generated.
//!
//! A signature is stored in the part that it signs: thinking, a tool call or text. The model signs only the first
//! two, so the signature of a text is represented as an empty thinking part after it.

mod decode_request;
mod decode_stream;
mod embeddings;
mod encode_parts;
mod encode_request;
mod encode_stream;
mod models;
mod response;

use serde_json::{Map, Value};

use super::{
    super::chat::{
        ChatRequest, ChatResponse, EmbeddingsRequest, EmbeddingsResponse, Losses, ModelEntry, ProviderError,
        StopReason, TranslationError,
    },
    ClientCodec, ProviderCodec, StreamDecoder, StreamEncoder,
    json::str_field,
};

pub(super) struct Gemini;

impl ClientCodec for Gemini {
    fn required_extras(&self) -> &'static [&'static str] {
        &["cachedContent", "generationConfig.responseModalities", "generationConfig.speechConfig"]
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

impl ProviderCodec for Gemini {
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
        decode_error(status, body)
    }

    fn decode_models(&self, body: &Map<String, Value>) -> Option<Vec<ModelEntry>> {
        models::decode_models(body)
    }

    fn encode_embeddings_request(
        &self,
        request: EmbeddingsRequest,
        losses: &mut Losses,
    ) -> Result<(String, Value), TranslationError> {
        Ok(embeddings::encode_embeddings_request(request, losses))
    }

    fn decode_embeddings_response(&self, body: &Map<String, Value>) -> Option<EmbeddingsResponse> {
        embeddings::decode_embeddings_response(body)
    }
}

fn decode_error(status: u16, body: &Map<String, Value>) -> Option<ProviderError> {
    let error = body.get("error")?.as_object()?;
    let mut details = error.get("details").and_then(Value::as_array).into_iter().flatten();
    let reason = details.find_map(|detail| detail.get("reason")?.as_str());
    let code = reason.or_else(|| error.get("status")?.as_str()).unwrap_or("provider_error");
    Some(ProviderError { status, code: code.to_owned(), message: str_field(error, "message").to_owned() })
}

fn encode_finish_reason(stop: &StopReason) -> &'static str {
    match stop {
        StopReason::EndTurn | StopReason::Sequence(_) | StopReason::ToolUse | StopReason::Paused => "STOP",
        StopReason::MaxTokens | StopReason::ContextFull => "MAX_TOKENS",
        StopReason::Refusal | StopReason::Filtered => "SAFETY",
        StopReason::Failed => "OTHER",
    }
}

fn decode_stop_reason(reason: &str) -> StopReason {
    match reason {
        "MAX_TOKENS" => StopReason::MaxTokens,
        "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
        | "MODEL_ARMOR" => StopReason::Filtered,
        reason if reason.starts_with("IMAGE_") => StopReason::Filtered,
        "OTHER"
        | "MALFORMED_FUNCTION_CALL"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS"
        | "MISSING_THOUGHT_SIGNATURE"
        | "MALFORMED_RESPONSE" => StopReason::Failed,
        _ => StopReason::EndTurn,
    }
}

/// Returns whether Google blocked the prompt, in which case there are no candidates.
fn is_prompt_blocked(body: &Map<String, Value>) -> bool {
    body.get("promptFeedback").is_some_and(|feedback| feedback.get("blockReason").is_some())
}
