//! Translation of a request into the format of another provider, and of its response back into the caller's format.
//! The formats are in `core::llm::translate`; this module knows which translation a request needs.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use gateway_core::llm::chat::TranslationError;
use gateway_core::llm::paths::Operation;
use gateway_core::llm::translate::{
    self, RequestOptions, ResponseOptions, StreamTranslator, UnreadableResponse,
};
use gateway_core::llm::{ClientFormat, ProviderFormat, WireFormat};
use http::StatusCode;

use super::directives::Directives;
use super::plan::{Plan, RouteTarget};
use super::response_format::FallbackIds;
use crate::problem::{ApiResult, Problem};
use crate::targets::Target;

/// How the request of an attempt was translated.
pub struct Translation {
    pub path: String,
    /// Fields of the request that the provider's format cannot express.
    pub dropped: Vec<String>,
    from: ProviderFormat,
    to: ClientFormat,
    model: String,
    endpoint: TranslatedEndpoint,
}

enum TranslatedEndpoint {
    Chat { include_usage: bool, use_responses_api: bool },
    Embeddings { base64: bool },
    Models,
}

/// Returns true if the provider cannot read the caller's request as it is.
pub fn is_needed(directives: &Directives, provider: &Target) -> bool {
    let client_format = directives.client_format;
    let is_foreign = directives.is_format_known() && client_format.native() != provider.format;
    match directives.operation {
        Operation::Chat
        | Operation::Responses
        | Operation::Messages
        | Operation::GenerateContent
        | Operation::Converse => {
            is_foreign
                || (directives.operation == Operation::Responses
                    && client_format == ClientFormat::OpenAiResponses
                    && provider.kind.responses_path.is_none())
        }
        Operation::Embeddings => is_foreign && client_format == ClientFormat::OpenAiChat,
        Operation::Models => is_foreign && directives.is_format_declared(),
        Operation::Completions | Operation::Other => false,
    }
}

/// Returns true if the provider has an endpoint for the translated request.
pub fn is_possible(plan: &Plan<'_>, provider: &Target) -> bool {
    plan.directives.operation == Operation::Embeddings || path(plan, provider, Some("model")).is_some()
}

/// The translation of the body for a target, to be done where its length allows.
pub fn request(
    plan: &Plan<'_>,
    target: &RouteTarget,
    body: Bytes,
) -> impl FnOnce() -> ApiResult<(Translation, Bytes)> + Send + use<> {
    let (provider, model) = (Arc::clone(&target.provider), target.model.clone());
    let work = Work {
        operation: plan.directives.operation,
        client_format: plan.directives.client_format,
        path: path(plan, &provider, model.as_deref()),
        use_responses_api: should_use_responses_api(plan, &provider, model.as_deref()),
        stream: plan.provider_streams(),
        provider,
        model,
    };
    move || work.translate(&body)
}

/// What a translation needs to know of its call.
struct Work {
    operation: Operation,
    client_format: ClientFormat,
    provider: Arc<Target>,
    model: Option<String>,
    path: Option<String>,
    use_responses_api: bool,
    stream: bool,
}

impl Work {
    fn translate(self, body: &[u8]) -> ApiResult<(Translation, Bytes)> {
        let Self { operation, client_format, provider, model, path, use_responses_api, stream } = self;
        let model = model.as_deref();
        let unsupported =
            || Problem::bad_request(format!("{} has no endpoint for this request", provider.name));
        let path = || path.ok_or_else(unsupported);
        let (path, dropped, body, endpoint) = match operation {
            Operation::Models => (path()?, Vec::new(), Vec::new(), TranslatedEndpoint::Models),
            Operation::Embeddings => {
                let model = model.unwrap_or_default();
                let translated =
                    translate::translate_embeddings_request(provider.format, body, model).map_err(problem)?;
                let endpoint = TranslatedEndpoint::Embeddings { base64: translated.base64 };
                (translated.path, translated.dropped, translated.body, endpoint)
            }
            _ => {
                let options = RequestOptions {
                    model: model.ok_or_else(|| Problem::field("model", "is required"))?,
                    stream,
                    supports_include_usage: provider.kind.supports_include_usage,
                    use_responses_api,
                };
                let translated = translate::translate_request(client_format, provider.format, body, &options)
                    .map_err(problem)?;
                let endpoint =
                    TranslatedEndpoint::Chat { include_usage: translated.include_usage, use_responses_api };
                (path()?, translated.dropped, translated.body, endpoint)
            }
        };
        let translation = Translation {
            path,
            dropped,
            from: provider.format,
            to: client_format,
            model: model.unwrap_or_default().to_owned(),
            endpoint,
        };
        Ok((translation, body.into()))
    }
}

impl Translation {
    /// Translates a whole response.
    pub fn response(&self, body: &[u8], ids: &FallbackIds) -> Result<Vec<u8>, UnreadableResponse> {
        match self.endpoint {
            TranslatedEndpoint::Chat { .. } => {
                translate::translate_response(self.from, self.to, body, &self.options(ids, true))
            }
            TranslatedEndpoint::Embeddings { base64 } => {
                translate::translate_embeddings_response(self.from, body, &self.model, base64)
            }
            TranslatedEndpoint::Models => translate::translate_models(self.from, self.to, body),
        }
    }

    /// The format of the translated request, if it is a chat.
    pub fn chat_format(&self) -> Option<WireFormat> {
        match self.endpoint {
            TranslatedEndpoint::Chat { use_responses_api, .. } => {
                Some(WireFormat::of_provider(self.from, use_responses_api))
            }
            TranslatedEndpoint::Embeddings { .. } | TranslatedEndpoint::Models => None,
        }
    }

    pub fn error(&self, status: StatusCode, body: &[u8]) -> Vec<u8> {
        translate::translate_error(self.from, self.to, status.as_u16(), body)
    }

    /// A translator for the stream of a response. `with_usage`: the stream is aggregated or cached, so it must contain
    /// its usage even if the caller did not ask for it.
    pub fn stream(&self, ids: &FallbackIds, with_usage: bool) -> StreamTranslator {
        StreamTranslator::new(self.from, self.to, &self.options(ids, with_usage))
    }

    fn options<'a>(&'a self, ids: &'a FallbackIds, with_usage: bool) -> ResponseOptions<'a> {
        let (requested, use_responses_api) = match self.endpoint {
            TranslatedEndpoint::Chat { include_usage, use_responses_api } => {
                (include_usage, use_responses_api)
            }
            TranslatedEndpoint::Embeddings { .. } | TranslatedEndpoint::Models => (false, false),
        };
        ResponseOptions {
            id: &ids.id,
            model: &self.model,
            created: ids.created,
            include_usage: requested || with_usage,
            use_responses_api,
        }
    }
}

fn path(plan: &Plan<'_>, provider: &Target, model: Option<&str>) -> Option<String> {
    let operation = match (plan.directives.operation, provider.format) {
        (operation @ (Operation::Models | Operation::Embeddings), _) => operation,
        (_, ProviderFormat::OpenAi) if should_use_responses_api(plan, provider, model) => {
            Operation::Responses
        }
        (_, ProviderFormat::OpenAi | ProviderFormat::Cohere) => Operation::Chat,
        (_, ProviderFormat::Anthropic) => Operation::Messages,
        (_, ProviderFormat::Gemini) => Operation::GenerateContent,
        (_, ProviderFormat::Bedrock) => Operation::Converse,
    };
    provider.kind.path_for(operation, model, plan.provider_streams()).map(Cow::into_owned)
}

/// Returns true if OpenAI's Responses API is used instead of its chat completions.
fn should_use_responses_api(plan: &Plan<'_>, provider: &Target, model: Option<&str>) -> bool {
    provider.kind.responses_path.is_some()
        && translate::should_use_responses_api(plan.directives.client_format, model.unwrap_or_default())
}

fn problem(error: TranslationError) -> Problem {
    match error {
        TranslationError::Malformed { field, message } if field.is_empty() => Problem::bad_request(message),
        TranslationError::Malformed { field, message } => Problem::field(&field, message),
        TranslationError::Unsupported { field, message } => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "validation_error", format!("{field}: {message}"))
        }
    }
}
