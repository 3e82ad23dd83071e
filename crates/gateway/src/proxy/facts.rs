//! What the path and the body of a request say about it: the model, whether it streams, and what limits its cost.

use std::borrow::Cow;
use std::ops::Range;

use gateway_core::llm::multipart::multipart_model;
use gateway_core::llm::paths::RequestPath;
use gateway_core::llm::peek::{FurtherModels, PeekError, RequestPeek};
use http::header::CONTENT_TYPE;

use super::admit::restricts_models;
use super::context::RequestContext;
use super::inbound::Inbound;
use crate::auth::Identity;
use crate::problem::{ApiResult, Problem};

/// How much of a multipart form is searched for the model when no scope depends on it.
const MAX_FORM_PREFIX: usize = 1 << 20;
const MAX_USER_BYTES: usize = 256;

pub struct RequestFacts {
    /// From the path if it names a model, else from the body.
    pub model: Option<String>,
    pub model_in_path: bool,
    /// Where the model is in the body, if the body has been read as a whole.
    pub model_at: Option<Range<usize>>,
    /// A model in the body next to one in the path. Which one counts depends on the provider.
    pub body_model: Option<String>,
    /// Models in the body from which the provider may choose another one.
    pub further_models: FurtherModels,
    pub max_tokens: Option<u64>,
    /// The number of completions that the body asks for.
    pub choices: Option<u64>,
    /// The path or the body asks for a stream.
    pub streams: bool,
    /// The body asks for the usage chunk of a stream.
    pub include_usage: bool,
    /// The end user that the body names.
    pub user: Option<String>,
}

impl RequestFacts {
    pub fn from_path(context: RequestContext<'_>, path: &RequestPath<'_>) -> ApiResult<Self> {
        let model = path_model(context.identity, path)?;
        Ok(Self {
            model_in_path: model.is_some(),
            model,
            model_at: None,
            body_model: None,
            further_models: FurtherModels::None,
            max_tokens: None,
            choices: None,
            streams: path.is_streaming(context.head.uri.query()),
            include_usage: false,
            user: None,
        })
    }

    /// Reads the body as far as its facts must be known.
    pub async fn read_body(&mut self, context: RequestContext<'_>, inbound: &mut Inbound) -> ApiResult<()> {
        let whole = restricts_models(context.identity);
        if inbound.is_empty() {
            return Ok(());
        }
        let content_type = context.head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let form = content_type.filter(|text| text.to_ascii_lowercase().starts_with("multipart/form-data"));
        if let Some(form) = form {
            inbound.read_prefix(if whole { usize::MAX } else { MAX_FORM_PREFIX }).await?;
            if self.model.is_none() {
                self.model = multipart_model(form, inbound.first_chunk());
            }
            return Ok(());
        }
        // The content type is ignored: a provider may read JSON in spite of it, so the scope check must do the same.
        // Budgets and limits need the whole body too, because a second `max_tokens` could be larger than the first.
        let org = &context.identity.org;
        let peek = inbound.peek(whole || org.budgets.is_some() || org.limits.is_some()).await?;
        self.apply(peek)
    }

    fn apply(&mut self, peek: Result<RequestPeek, PeekError>) -> ApiResult<()> {
        match peek {
            Ok(peek) => {
                if self.model.is_none() {
                    (self.model, self.model_at) = (peek.model, peek.model_at);
                } else {
                    self.body_model = peek.model;
                }
                self.further_models = peek.further_models;
                (self.max_tokens, self.choices) = (peek.max_tokens, peek.choices);
                self.streams |= peek.stream == Some(true);
                self.include_usage = peek.include_usage == Some(true);
                self.user = peek.user.filter(|user| user.len() <= MAX_USER_BYTES);
                Ok(())
            }
            // With two models in one body, the gateway might check one and the provider use the other.
            Err(error @ PeekError::DuplicateKey(_)) => Err(Problem::bad_request(error.to_string())),
            // Other errors are left to the provider. Without a model, scopes that name models reject the request.
            Err(_) => Ok(()),
        }
    }
}

/// If the model in the path is ambiguous, the request is rejected for keys that are restricted to models.
fn path_model(identity: &Identity, path: &RequestPath<'_>) -> ApiResult<Option<String>> {
    match path.model() {
        Ok(model) => Ok(model.map(Cow::into_owned)),
        Err(_) if !restricts_models(identity) => Ok(None),
        Err(error) => Err(Problem::bad_request(error.to_string())),
    }
}
