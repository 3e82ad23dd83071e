//! Translates any caller's format into any provider's, and back. Every translation goes through the model in `chat`.
//!
//! The proxy uses these entry points:
//!
//! | direction | function or type |
//! |---|---|
//! | request to the provider | `translate_request` with `RequestOptions`, `translate_embeddings_request` |
//! | response to the caller | `translate_response` with `ResponseOptions`, `translate_embeddings_response` |
//! | list of models to the caller | `translate_models` |
//! | stream to the caller | `StreamTranslator` |
//! | provider error to the caller | `translate_error` |
//! | which API of OpenAI to call | `should_use_responses_api` |
//!
//! Modules:
//!
//! | module | job |
//! |---|---|
//! | `request`, `response`, `stream`, `embeddings` | the entry points above |
//! | `sequencer` | order, ids and limits of stream events, between decoder and encoder |
//! | `signatures` | wraps signatures of thinking for callers of another format than the issuer's |
//! | `anthropic`, `bedrock`, `cohere`, `gemini`, `openai_chat`, `responses` | one codec per format |
//! | `alternating_turns`, `claude_models`, `parameter_rules` | rules that several formats share |
//! | `json`, `media` | helpers for JSON objects and media types |
//!
//! Each format implements `ClientCodec`, `ProviderCodec` or both. Its files are `decode_request`, `encode_request`,
//! `response`, `decode_stream`, `encode_stream`, `embeddings` and `models`. Translation uses neither a clock nor random
//! numbers: ids and times that a provider does not send are arguments.
//!
//! If the target does not support a field, the field is dropped and reported in `TranslatedRequest::dropped`. If
//! dropping it would change the meaning of the request, the translation fails with `TranslationError::Unsupported`:
//!
//! | dropped and reported | rejected |
//! |---|---|
//! | seed, penalties, top_k, sampling that a model does not allow | more than one choice (`n`) where there is one |
//! | user, metadata, service_tier, store, prompt_cache_key, verbosity | log probabilities, logit_bias |
//! | cache_control (kept for Anthropic and Bedrock) | tools that are not functions, unsupported tool choices |
//! | a message's name, an image's detail, a tool result's `is_error` | media and files that the target does not support |
//! | strict, a schema's name | content types that exist in one format only |
//! | reasoning for models that do not support it, or not in this request | stop sequences for the Responses API |
//! | thinking that the target did not sign (`signatures`) | state stored at a provider, such as earlier responses |
//! | every other field that exists in one format only | fields listed by `ClientCodec::required_extras` |
//!
//! Some things are expressed differently rather than dropped:
//! - A later system message is moved into the system prompt, and adjacent messages of one role are merged.
//! - A choice among some tools removes the other tools.
//! - An image in a tool result follows in a user message (chat completions).
//! - Reasoning effort and token budget are converted into each other.
//! - JSON output without a schema is requested in the system prompt (Anthropic, Bedrock).
//! - Temperatures above 1 become 1 (Claude).

mod alternating_turns;
mod anthropic;
mod bedrock;
mod claude_models;
mod cohere;
mod embeddings;
mod gemini;
mod json;
mod media;
mod openai_chat;
mod parameter_rules;
mod request;
mod response;
mod responses;
mod sequencer;
mod signatures;
mod stream;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub(in crate::llm) use claude_models::generation as claude_generation;
pub use embeddings::{
    TranslatedEmbeddingsRequest, translate_embeddings_request, translate_embeddings_response,
};
pub use request::{RequestOptions, TranslatedRequest, translate_request};
pub use response::{
    ResponseOptions, UnreadableResponse, translate_error, translate_models, translate_response,
};
pub use signatures::contains_wrapped_signatures;
pub use stream::StreamTranslator;

use super::{
    ClientFormat,
    chat::{
        ChatRequest, ChatResponse, EmbeddingsRequest, EmbeddingsResponse, Losses, ModelEntry, ProviderError,
        StreamEvent, TranslationError, WireFormat,
    },
};

/// The caller's side of a format: decodes requests and encodes responses.
trait ClientCodec: Sync {
    /// The `extra` fields of a request that must not be dropped, since they change its meaning.
    fn required_extras(&self) -> &'static [&'static str];
    fn decode_request(&self, body: Map<String, Value>) -> Result<ChatRequest, TranslationError>;
    fn encode_response(&self, response: ChatResponse) -> Value;
    /// `include_usage`: the caller of an OpenAI stream asked for the usage chunk.
    fn stream_encoder(&self, include_usage: bool) -> Box<dyn StreamEncoder>;
    fn encode_models(&self, models: Vec<ModelEntry>) -> Value;
}

/// The provider's side of a format: encodes requests and decodes responses. A decoder returns None for a body that is
/// not in the format.
trait ProviderCodec: Sync {
    fn encode_request(&self, request: ChatRequest, losses: &mut Losses) -> Result<Value, TranslationError>;
    fn decode_response(&self, body: Map<String, Value>) -> Option<ChatResponse>;
    fn stream_decoder(&self) -> Box<dyn StreamDecoder>;
    fn decode_error(&self, status: u16, body: &Map<String, Value>) -> Option<ProviderError>;
    fn decode_models(&self, body: &Map<String, Value>) -> Option<Vec<ModelEntry>>;

    /// Returns the path and the body of an embeddings request.
    fn encode_embeddings_request(
        &self,
        _request: EmbeddingsRequest,
        _losses: &mut Losses,
    ) -> Result<(String, Value), TranslationError> {
        Err(TranslationError::Unsupported {
            field: "model".to_owned(),
            message: "this provider does not support embeddings".to_owned(),
        })
    }

    fn decode_embeddings_response(&self, _body: &Map<String, Value>) -> Option<EmbeddingsResponse> {
        None
    }
}

/// Decodes the events of a provider's stream.
trait StreamDecoder: Send {
    /// Appends the decoded events to `out` and returns whether this event was the last. `name` comes from the framing.
    fn decode_event(&mut self, name: Option<&str>, data: &[u8], out: &mut Vec<StreamEvent>) -> bool;
}

/// Encodes a stream for a caller. Receives events with the guarantees of `StreamEvent`.
trait StreamEncoder: Send {
    fn encode_event(&mut self, event: StreamEvent, out: &mut Vec<u8>);
    /// Writes the end of a successful stream.
    fn finish(&mut self, out: &mut Vec<u8>);
}

/// Returns whether to call a model through OpenAI's Responses API, if the provider has it. That is the case for
/// callers of that API, and for models without chat completions. The result belongs into `RequestOptions` and
/// `ResponseOptions`.
pub fn should_use_responses_api(client: ClientFormat, model: &str) -> bool {
    let model = model.rsplit('/').next().unwrap_or(model);
    let generation = model.split('-').next().unwrap_or(model);
    let is_reasoning_model = model.starts_with("gpt-5")
        || (generation.starts_with('o') && generation[1..].bytes().all(|digit| digit.is_ascii_digit()));
    client == ClientFormat::OpenAiResponses
        || (is_reasoning_model
            && ["-pro", "-codex", "-deep-research"].iter().any(|suffix| model.contains(suffix)))
        || model.starts_with("codex-")
        || model.starts_with("computer-use-")
}

fn client_codec(format: ClientFormat) -> &'static dyn ClientCodec {
    match format {
        ClientFormat::OpenAiChat => &openai_chat::Chat,
        ClientFormat::OpenAiResponses => &responses::Responses,
        ClientFormat::Anthropic => &anthropic::Messages,
        ClientFormat::Gemini => &gemini::Gemini,
    }
}

fn provider_codec(format: WireFormat) -> &'static dyn ProviderCodec {
    match format {
        // Completions are never translated: no client or provider format maps to them.
        WireFormat::OpenAiChat | WireFormat::OpenAiCompletions => &openai_chat::Chat,
        WireFormat::OpenAiResponses => &responses::Responses,
        WireFormat::Anthropic => &anthropic::Messages,
        WireFormat::Gemini => &gemini::Gemini,
        WireFormat::Bedrock => &bedrock::Converse,
        WireFormat::Cohere => &cohere::Cohere,
    }
}
