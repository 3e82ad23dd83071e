//! OpenAI's Responses API: a list of items in, a list of items out. State that OpenAI stores (earlier responses,
//! conversations, stored prompts) does not exist at other providers, so requests that refer to it are rejected.
//!
//! Thinking is encoded as reasoning items with the signature in `encrypted_content`. Encrypted thinking is stored in
//! the same field with a prefix. Gemini's signatures of tool calls are sent in `extra_content`, as in chat
//! completions.

mod decode_request;
mod decode_stream;
mod encode_items;
mod encode_request;
mod encode_stream;
mod items;
mod response;

use serde_json::{Map, Value};

use super::{
    super::chat::{
        ChatRequest, ChatResponse, Losses, ModelEntry, ProviderError, StopReason, TranslationError,
    },
    ClientCodec, ProviderCodec, StreamDecoder, StreamEncoder,
    openai_chat::Chat,
};

pub(super) struct Responses;

impl ClientCodec for Responses {
    fn required_extras(&self) -> &'static [&'static str] {
        &["previous_response_id", "conversation", "prompt", "background", "context_management"]
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
        Chat.encode_models(models)
    }
}

impl ProviderCodec for Responses {
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
        Chat.decode_error(status, body)
    }

    fn decode_models(&self, body: &Map<String, Value>) -> Option<Vec<ModelEntry>> {
        Chat.decode_models(body)
    }
}

/// The prefix of encrypted thinking in `encrypted_content`, which distinguishes it from a signature.
const REDACTED_PREFIX: &str = "redacted:";

/// Returns the status of a response and, if it is incomplete, the reason.
fn encode_status(stop: &StopReason, refusal: bool) -> (&'static str, Option<&'static str>) {
    match stop {
        StopReason::EndTurn | StopReason::Sequence(_) | StopReason::ToolUse | StopReason::Paused => {
            ("completed", None)
        }
        StopReason::Refusal if refusal => ("completed", None),
        StopReason::MaxTokens | StopReason::ContextFull => ("incomplete", Some("max_output_tokens")),
        StopReason::Refusal | StopReason::Filtered => ("incomplete", Some("content_filter")),
        StopReason::Failed => ("failed", None),
    }
}

fn decode_stop_reason(response: &Map<String, Value>) -> StopReason {
    let reason =
        response.get("incomplete_details").and_then(|details| details.get("reason")).and_then(Value::as_str);
    match (response.get("status").and_then(Value::as_str), reason) {
        (Some("incomplete"), Some("content_filter")) => StopReason::Filtered,
        (Some("incomplete"), _) => StopReason::MaxTokens,
        (Some("failed" | "cancelled"), _) => StopReason::Failed,
        _ => StopReason::EndTurn,
    }
}
