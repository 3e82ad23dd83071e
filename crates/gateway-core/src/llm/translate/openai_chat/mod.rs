//! OpenAI's Chat Completions API, which most providers implement. OpenAI's own format has no fields for thinking, so
//! two extensions of compatible providers are used: `reasoning_content` contains the text (`reasoning` is decoded
//! too), and `reasoning_details` contains signatures and encrypted thinking in OpenRouter's format. Gemini's
//! signatures of tool calls are sent in `extra_content`, as in Google's OpenAI-compatible API.

mod decode_request;
mod decode_stream;
mod embeddings;
mod encode_messages;
mod encode_request;
mod encode_stream;
mod models;
mod response;

use serde_json::{Map, Value};

use super::{
    super::chat::{
        ChatRequest, ChatResponse, Content, EmbeddingsRequest, EmbeddingsResponse, Logprob, Losses,
        ModelEntry, Part, ProviderError, StopReason, TranslationError,
    },
    ClientCodec, ProviderCodec, StreamDecoder, StreamEncoder,
};

pub(super) use encode_request::supports_reasoning_effort;

pub(super) struct Chat;

impl ClientCodec for Chat {
    fn required_extras(&self) -> &'static [&'static str] {
        &["functions", "function_call", "audio", "modalities", "web_search_options"]
    }

    fn decode_request(&self, body: Map<String, Value>) -> Result<ChatRequest, TranslationError> {
        decode_request::decode_request(body)
    }

    fn encode_response(&self, response: ChatResponse) -> Value {
        response::encode_response(response)
    }

    fn stream_encoder(&self, include_usage: bool) -> Box<dyn StreamEncoder> {
        Box::new(encode_stream::Encoder::new(include_usage))
    }

    fn encode_models(&self, models: Vec<ModelEntry>) -> Value {
        models::encode_models(models)
    }
}

impl ProviderCodec for Chat {
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
        _losses: &mut Losses,
    ) -> Result<(String, Value), TranslationError> {
        Ok(embeddings::encode_embeddings_request(request))
    }

    fn decode_embeddings_response(&self, body: &Map<String, Value>) -> Option<EmbeddingsResponse> {
        embeddings::decode_embeddings_response(body)
    }
}

/// Decodes a list of log probabilities, which the Responses API sends without a wrapping object.
pub(super) fn decode_logprob_list(list: &Value) -> Vec<Logprob> {
    list.as_array().map_or(&[][..], Vec::as_slice).iter().filter_map(response::decode_logprob).collect()
}

pub(super) fn encode_logprob_list(items: &[Logprob]) -> Value {
    response::encode_logprobs(items)["content"].take()
}

fn decode_error(status: u16, body: &Map<String, Value>) -> Option<ProviderError> {
    let (message, code) = match body.get("error") {
        Some(Value::Object(error)) => (error.get("message")?.as_str()?, error_code(error)),
        Some(Value::String(message)) => (&**message, None),
        // Some compatible providers omit the wrapping `error` object.
        _ => (body.get("message")?.as_str()?, error_code(body)),
    };
    let code = code.unwrap_or_else(|| "provider_error".to_owned());
    Some(ProviderError { status, code, message: message.to_owned() })
}

fn error_code(error: &Map<String, Value>) -> Option<String> {
    ["code", "type"].into_iter().find_map(|key| match error.get(key)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        _ => None,
    })
}

/// Encodes the finish reason. `refusal`: the message contains a refusal, so the reason is `stop`.
fn encode_finish_reason(stop: &StopReason, refusal: bool) -> &'static str {
    match stop {
        StopReason::EndTurn | StopReason::Sequence(_) | StopReason::Paused => "stop",
        StopReason::Refusal if refusal => "stop",
        StopReason::MaxTokens | StopReason::ContextFull => "length",
        StopReason::ToolUse => "tool_calls",
        StopReason::Refusal | StopReason::Filtered => "content_filter",
        StopReason::Failed => "error",
    }
}

fn decode_stop_reason(reason: &str) -> StopReason {
    match reason {
        "length" | "max_tokens" | "model_length" => StopReason::MaxTokens,
        "tool_calls" | "function_call" => StopReason::ToolUse,
        "content_filter" => StopReason::Filtered,
        "error" => StopReason::Failed,
        _ => StopReason::EndTurn,
    }
}

/// Decodes one element of `reasoning_details`.
fn decode_reasoning_detail(detail: Value) -> Option<Part> {
    let Value::Object(mut detail) = detail else { return None };
    let mut text = |key: &str| match detail.remove(key) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    let content = match &*text("type")? {
        "reasoning.encrypted" => Content::Redacted(text("data")?),
        "reasoning.summary" => Content::Thinking { text: text("summary")?, signature: None },
        _ => Content::Thinking {
            text: text("text").unwrap_or_default(),
            signature: text("signature").filter(|signature| !signature.is_empty()),
        },
    };
    Some(Part::new(content))
}
