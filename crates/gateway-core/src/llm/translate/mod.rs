//! Any caller's format to any provider's: requests one way, answers, streams, errors and lists of models the other, always
//! through the one model in `chat`. Each format is a module of its own that implements `Caller`, `Provider` or both;
//! `driver` and `stream` drive them. No clock and no randomness: ids and times that a provider does not give come in
//! as arguments.
//!
//! A target that cannot express a field loses it, which is told (`Translated::dropped`, in the caller's words), or makes the
//! request impossible (`Untranslatable::Refused`) when the request would mean something else without it:
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
//! | every other field that only its own format knows | fields listed by `Caller::meaningful` |
//!
//! Said in other words rather than lost: a system message in the middle joins the system prompt, neighbouring turns of one role
//! become one, a choice among some tools leaves the others out, a picture in a tool's result follows in a user's
//! message (chat), effort and budget of thinking turn into each other, any JSON as output is asked for in the system
//! prompt (Anthropic, Bedrock), temperatures above 1 become 1 (Claude).

mod anthropic;
mod bedrock;
mod claude;
mod cohere;
mod common;
mod driver;
mod embeddings;
mod gemini;
mod json;
mod media;
mod openai_chat;
mod responses;
mod signatures;
mod stream;
#[cfg(test)]
mod tests;
mod turns;

use serde_json::{Map, Value};

pub use driver::{Ask, Reply, Translated, Unreadable, error, models, request, response};
pub use embeddings::{EmbedRequest, embed_request, embed_response};
pub use signatures::holds_wrapped_signatures;
pub use stream::StreamTranslator;

use super::{
    ClientShape, Shape,
    chat::{Embed, Embedded, Failure, Listed, Losses, Request, Response, StreamEvent, Untranslatable, Wire},
};

/// The side of a format that faces callers.
trait Caller: Sync {
    /// Fields in a request's `extra` that must not be left out in silence: without them it means something else.
    fn meaningful(&self) -> &'static [&'static str];
    fn read_request(&self, body: Map<String, Value>) -> Result<Request, Untranslatable>;
    fn write_response(&self, response: Response) -> Value;
    /// `usage_wanted`: the caller of an OpenAI stream asked for its usage chunk.
    fn stream_writer(&self, usage_wanted: bool) -> Box<dyn WriteStream>;
    fn write_models(&self, models: Vec<Listed>) -> Value;
}

/// The side of a format that faces providers. What cannot be read is None.
trait Provider: Sync {
    fn write_request(&self, request: Request, losses: &mut Losses) -> Result<Value, Untranslatable>;
    fn read_response(&self, body: Map<String, Value>) -> Option<Response>;
    fn stream_reader(&self) -> Box<dyn ReadStream>;
    fn read_error(&self, status: u16, body: &Map<String, Value>) -> Option<Failure>;
    fn read_models(&self, body: &Map<String, Value>) -> Option<Vec<Listed>>;

    /// The path and the body of a request for embeddings.
    fn write_embed(&self, _embed: Embed, _losses: &mut Losses) -> Result<(String, Value), Untranslatable> {
        Err(Untranslatable::Refused {
            field: "model".to_owned(),
            message: "this provider makes no embeddings".to_owned(),
        })
    }

    fn read_embedded(&self, _body: &Map<String, Value>) -> Option<Embedded> {
        None
    }
}

/// Reads the events of a provider's stream. An event that says nothing adds nothing.
trait ReadStream: Send {
    /// Takes in one event and returns whether it was the last. `name` is what the framing calls it.
    fn event(&mut self, name: Option<&str>, data: &[u8], out: &mut Vec<StreamEvent>) -> bool;
}

/// Writes a stream for a caller. `Start` comes first and once, calls come with ids, nothing follows an `Error`.
trait WriteStream: Send {
    fn event(&mut self, event: StreamEvent, out: &mut Vec<u8>);
    /// Writes what ends a stream that went well.
    fn end(&mut self, out: &mut Vec<u8>);
}

/// Whether a model of a provider that has OpenAI's responses is to be called through them: by callers who speak them, and
/// by everybody for the models that have no chat completions. The answer goes into both `Ask` and `Reply`.
pub fn through_responses(client: ClientShape, model: &str) -> bool {
    let model = model.rsplit('/').next().unwrap_or(model);
    let generation = model.split('-').next().unwrap_or(model);
    let reasons = model.starts_with("gpt-5")
        || (generation.starts_with('o') && generation[1..].bytes().all(|digit| digit.is_ascii_digit()));
    client == ClientShape::OpenAiResponses
        || (reasons && ["-pro", "-codex", "-deep-research"].iter().any(|word| model.contains(word)))
        || model.starts_with("codex-")
        || model.starts_with("computer-use-")
}

fn caller(shape: ClientShape) -> &'static dyn Caller {
    match shape {
        ClientShape::OpenAiChat => &openai_chat::Chat,
        ClientShape::OpenAiResponses => &responses::Responses,
        ClientShape::Anthropic => &anthropic::Messages,
        ClientShape::Gemini => &gemini::Gemini,
    }
}

fn provider(wire: Wire) -> &'static dyn Provider {
    match wire {
        Wire::OpenAiChat => &openai_chat::Chat,
        Wire::OpenAiResponses => &responses::Responses,
        Wire::Anthropic => &anthropic::Messages,
        Wire::Gemini => &gemini::Gemini,
        Wire::Bedrock => &bedrock::Converse,
        Wire::Cohere => &cohere::Cohere,
    }
}

impl Wire {
    pub fn of_client(client: ClientShape) -> Self {
        match client {
            ClientShape::OpenAiChat => Wire::OpenAiChat,
            ClientShape::OpenAiResponses => Wire::OpenAiResponses,
            ClientShape::Anthropic => Wire::Anthropic,
            ClientShape::Gemini => Wire::Gemini,
        }
    }

    /// What a provider is spoken to in. OpenAI-shaped ones may have two formats: see `through_responses`.
    pub fn of_provider(shape: Shape, responses: bool) -> Self {
        match shape {
            Shape::OpenAi if responses => Wire::OpenAiResponses,
            Shape::OpenAi => Wire::OpenAiChat,
            Shape::Anthropic => Wire::Anthropic,
            Shape::Gemini => Wire::Gemini,
            Shape::Bedrock => Wire::Bedrock,
            Shape::Cohere => Wire::Cohere,
        }
    }
}
