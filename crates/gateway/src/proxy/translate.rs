//! A request in one wire format for a provider of another: what is sent there, and how its answer reads to the caller.
//! The formats themselves are in `core::llm::translate`; this is what the proxy has to know of a call for it.

use bytes::Bytes;
use gateway_core::llm::chat::TranslationError;
use gateway_core::llm::paths::Operation;
use gateway_core::llm::translate::{
    self, RequestOptions, ResponseOptions, StreamTranslator, UnreadableResponse,
};
use gateway_core::llm::{ClientFormat, ProviderFormat};
use http::StatusCode;

use super::call::{Call, RouteTarget};
use super::target::Target;
use crate::problem::{ApiResult, Problem};

/// How the attempt under way was translated.
pub struct Translation {
    /// Where the provider takes it.
    pub path: String,
    /// Fields of the caller's that were left out.
    pub dropped: Vec<String>,
    from: ProviderFormat,
    to: ClientFormat,
    model: String,
    about: About,
}

enum About {
    Chat { include_usage: bool, use_responses_api: bool },
    Embeddings { base64: bool },
    Models,
}

/// Does the caller's request mean nothing to this target as it is?
pub fn is_needed(call: &Call, target: &Target) -> bool {
    let foreign = call.caller_is_known && call.caller.native() != target.format;
    match call.operation {
        Operation::Chat
        | Operation::Responses
        | Operation::Messages
        | Operation::GenerateContent
        | Operation::Converse => {
            foreign
                || (call.operation == Operation::Responses
                    && call.caller == ClientFormat::OpenAiResponses
                    && target.kind.responses_path.is_none())
        }
        Operation::Embeddings => foreign && call.caller == ClientFormat::OpenAiChat,
        Operation::Models => foreign && call.format_is_set,
        Operation::Completions | Operation::Other => false,
    }
}

/// Can the target be asked for such a thing at all?
pub fn is_possible(call: &Call, target: &Target) -> bool {
    call.operation == Operation::Embeddings || path(call, target, Some("model")).is_some()
}

/// What is sent to the hop of the attempt under way.
pub fn request(call: &Call, hop: &RouteTarget, body: &[u8]) -> ApiResult<(Translation, Bytes)> {
    let (target, model) = (&hop.target, hop.model.as_deref());
    let nowhere = || Problem::bad_request(format!("{} has no endpoint that takes this request", target.name));
    let path = || path(call, target, model).ok_or_else(nowhere);
    let use_responses_api = should_use_responses_api(call, target, model);
    let (path, dropped, body, about) = match call.operation {
        Operation::Models => (path()?, Vec::new(), Vec::new(), About::Models),
        Operation::Embeddings => {
            let model = model.unwrap_or_default();
            let made =
                translate::translate_embeddings_request(target.format, body, model).map_err(problem)?;
            (made.path, made.dropped, made.body, About::Embeddings { base64: made.base64 })
        }
        _ => {
            let options = RequestOptions {
                model: model.ok_or_else(|| Problem::field("model", "is required"))?,
                stream: call.stream,
                supports_include_usage: target.kind.supports_include_usage,
                use_responses_api,
            };
            let made =
                translate::translate_request(call.caller, target.format, body, &options).map_err(problem)?;
            (
                path()?,
                made.dropped,
                made.body,
                About::Chat { include_usage: made.include_usage, use_responses_api },
            )
        }
    };
    let translation = Translation {
        path,
        dropped,
        from: target.format,
        to: call.caller,
        model: model.unwrap_or_default().to_owned(),
        about,
    };
    Ok((translation, body.into()))
}

impl Translation {
    /// A whole answer in the caller's format.
    pub fn answer(&self, body: &[u8], name: &str, created: i64) -> Result<Vec<u8>, UnreadableResponse> {
        match self.about {
            About::Chat { .. } => {
                translate::translate_response(self.from, self.to, body, &self.reply(name, created, true))
            }
            About::Embeddings { base64 } => {
                translate::translate_embeddings_response(self.from, body, &self.model, base64)
            }
            About::Models => translate::translate_models(self.from, self.to, body),
        }
    }

    pub fn error(&self, status: StatusCode, body: &[u8]) -> Vec<u8> {
        translate::translate_error(self.from, self.to, status.as_u16(), body)
    }

    /// `whole`: the stream is folded or kept, and shall tell its usage whether the caller asked for it or not.
    pub fn stream(&self, name: &str, created: i64, whole: bool) -> StreamTranslator {
        StreamTranslator::new(self.from, self.to, &self.reply(name, created, whole))
    }

    fn reply<'a>(&'a self, name: &'a str, created: i64, whole: bool) -> ResponseOptions<'a> {
        let (asked, use_responses_api) = match self.about {
            About::Chat { include_usage, use_responses_api } => (include_usage, use_responses_api),
            About::Embeddings { .. } | About::Models => (false, false),
        };
        ResponseOptions {
            id: name,
            model: &self.model,
            created,
            include_usage: asked || whole,
            use_responses_api,
        }
    }
}

fn path(call: &Call, target: &Target, model: Option<&str>) -> Option<String> {
    let operation = match (call.operation, target.format) {
        (Operation::Models | Operation::Embeddings, _) => call.operation,
        (_, ProviderFormat::OpenAi) if should_use_responses_api(call, target, model) => Operation::Responses,
        (_, ProviderFormat::OpenAi | ProviderFormat::Cohere) => Operation::Chat,
        (_, ProviderFormat::Anthropic) => Operation::Messages,
        (_, ProviderFormat::Gemini) => Operation::GenerateContent,
        (_, ProviderFormat::Bedrock) => Operation::Converse,
    };
    target.kind.path_for(operation, model, call.stream)
}

/// Is the provider spoken to in OpenAI's responses rather than its chat completions?
fn should_use_responses_api(call: &Call, target: &Target, model: Option<&str>) -> bool {
    target.kind.responses_path.is_some()
        && translate::should_use_responses_api(call.caller, model.unwrap_or_default())
}

fn problem(why: TranslationError) -> Problem {
    match why {
        TranslationError::Malformed { field, message } if field.is_empty() => Problem::bad_request(message),
        TranslationError::Malformed { field, message } => Problem::field(&field, message),
        TranslationError::Unsupported { field, message } => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "validation_error", format!("{field}: {message}"))
        }
    }
}
