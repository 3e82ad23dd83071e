//! Any caller's format to any provider's: requests one way, answers, streams, errors and lists of models the other, always
//! through the one model in `chat`. Each format is a module of its own that implements `ClientCodec`, `ProviderCodec` or both;
//! `driver` and `stream` drive them. No clock and no randomness: ids and times that a provider does not give come in
//! as arguments.
//!
//! A target that cannot express a field loses it, which is told (`TranslatedRequest::dropped`, in the caller's words), or makes the
//! request impossible (`TranslationError::Unsupported`) when the request would mean something else without it:
//!
//! | left out and named | refused |
//! |---|---|
//! | seed, penalties, top_k, sampling that a model does not allow | more than one answer (`n`) where there is one |
//! | user, metadata, service_tier, store, prompt_cache_key, verbosity | log probabilities, logit_bias |
//! | cache_control (kept for Anthropic and Bedrock) | tools that are no functions, choices of tools that cannot be said |
//! | a message's name, a picture's detail, a result's `is_error` | pictures, sounds, films and files that the target cannot take |
//! | strict, a schema's name | parts that only their own format knows |
//! | reasoning for models that do not think, or must not now | stop sequences for responses |
//! | thoughts that the target did not sign (`signatures`) | what lies with a provider: earlier responses, containers, cached content |
//! | every other field that only its own format knows | fields listed by `ClientCodec::required_extras` |
//!
//! Said in other words rather than lost: a system message in the middle joins the system prompt, neighbouring turns of one role
//! become one, a choice among some tools leaves the others out, a picture in a tool's result follows in a user's
//! message (chat), effort and budget of thinking turn into each other, any JSON as output is asked for in the system
//! prompt (Anthropic, Bedrock), temperatures above 1 become 1 (Claude).

mod alternating_turns;
mod anthropic;
mod bedrock;
mod claude_models;
mod cohere;
mod driver;
mod embeddings;
mod gemini;
mod json;
mod media;
mod openai_chat;
mod parameter_rules;
mod responses;
mod signatures;
mod stream;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub use driver::{
    RequestOptions, ResponseOptions, TranslatedRequest, UnreadableResponse, translate_error,
    translate_models, translate_request, translate_response,
};
pub use embeddings::{
    TranslatedEmbeddingsRequest, translate_embeddings_request, translate_embeddings_response,
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

/// The side of a format that faces callers.
trait ClientCodec: Sync {
    /// Fields in a request's `extra` that must not be left out in silence: without them it means something else.
    fn required_extras(&self) -> &'static [&'static str];
    fn decode_request(&self, body: Map<String, Value>) -> Result<ChatRequest, TranslationError>;
    fn encode_response(&self, response: ChatResponse) -> Value;
    /// `include_usage`: the caller of an OpenAI stream asked for its usage chunk.
    fn stream_encoder(&self, include_usage: bool) -> Box<dyn StreamEncoder>;
    fn encode_models(&self, models: Vec<ModelEntry>) -> Value;
}

/// The side of a format that faces providers. What cannot be read is None.
trait ProviderCodec: Sync {
    fn encode_request(&self, request: ChatRequest, losses: &mut Losses) -> Result<Value, TranslationError>;
    fn decode_response(&self, body: Map<String, Value>) -> Option<ChatResponse>;
    fn stream_decoder(&self) -> Box<dyn StreamDecoder>;
    fn decode_error(&self, status: u16, body: &Map<String, Value>) -> Option<ProviderError>;
    fn decode_models(&self, body: &Map<String, Value>) -> Option<Vec<ModelEntry>>;

    /// The path and the body of a request for embeddings.
    fn encode_embeddings_request(
        &self,
        _embed: EmbeddingsRequest,
        _losses: &mut Losses,
    ) -> Result<(String, Value), TranslationError> {
        Err(TranslationError::Unsupported {
            field: "model".to_owned(),
            message: "this provider makes no embeddings".to_owned(),
        })
    }

    fn decode_embeddings_response(&self, _body: &Map<String, Value>) -> Option<EmbeddingsResponse> {
        None
    }
}

/// Reads the events of a provider's stream. An event that says nothing adds nothing.
trait StreamDecoder: Send {
    /// Takes in one event and returns whether it was the last. `name` is what the framing calls it.
    fn decode_event(&mut self, name: Option<&str>, data: &[u8], out: &mut Vec<StreamEvent>) -> bool;
}

/// Writes a stream for a caller. `StreamStart` comes first and once, calls come with ids, nothing follows an `Error`.
trait StreamEncoder: Send {
    fn encode_event(&mut self, event: StreamEvent, out: &mut Vec<u8>);
    /// Writes what ends a stream that went well.
    fn finish(&mut self, out: &mut Vec<u8>);
}

/// Whether a model of a provider that has OpenAI's responses is to be called through them: by callers who speak them, and
/// by everybody for the models that have no chat completions. The answer goes into both `RequestOptions` and `ResponseOptions`.
pub fn should_use_responses_api(client: ClientFormat, model: &str) -> bool {
    let model = model.rsplit('/').next().unwrap_or(model);
    let generation = model.split('-').next().unwrap_or(model);
    let reasons = model.starts_with("gpt-5")
        || (generation.starts_with('o') && generation[1..].bytes().all(|digit| digit.is_ascii_digit()));
    client == ClientFormat::OpenAiResponses
        || (reasons && ["-pro", "-codex", "-deep-research"].iter().any(|word| model.contains(word)))
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
