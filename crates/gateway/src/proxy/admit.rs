//! Admission: which model is asked for, and whether the key's scopes allow it. Everything that is refused here makes
//! no upstream call.

use gateway_core::llm::multipart::multipart_model;
use gateway_core::llm::paths::Operation;
use gateway_core::llm::peek::{PeekError, RequestPeek};
use gateway_core::scopes::Scopes;
use http::request::Parts;
use http::{Method, StatusCode};

use super::body::Inbound;
use super::call::{Call, RouteTarget};
use crate::auth::{Identity, Who};
use crate::problem::{ApiResult, Problem};

/// Does the caller's key name models? Then a request whose model cannot be told must be refused.
pub fn names_models(identity: &Identity) -> bool {
    matches!(&identity.who, Who::Key(key) if key.scopes.names_models())
}

/// Reads the body as far as the model must be known.
pub async fn learn_model(
    identity: &Identity,
    call: &mut Call,
    head: &Parts,
    inbound: &mut Inbound,
) -> ApiResult<()> {
    let whole = names_models(identity);
    if inbound.is_empty() {
        return Ok(());
    }
    let content_type = head.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let form = content_type.filter(|text| text.to_ascii_lowercase().starts_with("multipart/form-data"));
    if let Some(form) = form {
        // The form names the model anywhere; only a short look is taken unless a scope depends on it.
        inbound.read_some(if whole { usize::MAX } else { 1 << 20 }).await?;
        if call.asked_model.is_none() {
            call.asked_model = multipart_model(form, inbound.seen());
        }
        return Ok(());
    }
    // Whatever the content type says: a provider may read JSON in spite of it, and so must the check of scopes.
    // A limit that is named twice could be taken for the smaller one, so budgets look at all of it too.
    let peek = inbound.peek(whole || identity.org.budgets.is_some()).await?;
    apply(call, peek)
}

fn apply(call: &mut Call, peek: Result<RequestPeek, PeekError>) -> ApiResult<()> {
    match peek {
        Ok(peek) => {
            if call.asked_model.is_none() {
                call.asked_model = peek.model;
            } else {
                call.body_model = peek.model;
            }
            (call.max_tokens, call.answers) = (peek.max_tokens, peek.choices);
            call.stream |= peek.stream == Some(true);
            call.wants_usage = peek.include_usage == Some(true);
            if call.user.is_none() {
                call.user = peek.user.filter(|user| user.len() <= 256);
            }
            Ok(())
        }
        // Two models in one body: we might check one, and the provider take the other.
        Err(error @ PeekError::DuplicateKey(_)) => Err(Problem::bad_request(error.to_string())),
        // Anything else is for the provider to judge; without a model, scopes that name one refuse it below.
        Err(_) => Ok(()),
    }
}

/// The key's scopes, before any call: every place where the request may go must be within them.
pub fn check_scopes(identity: &Identity, call: &Call, head: &Parts) -> ApiResult<()> {
    let Who::Key(key) = &identity.who else { return Ok(()) };
    let lists_models =
        call.operation == Operation::Models && matches!(head.method, Method::GET | Method::HEAD);
    for hop in &call.targets {
        let provider = &hop.target.name;
        // The model in the path counts for some providers, the one in the body for others.
        let body_model = call.body_model.as_deref().filter(|_| !hop.target.kind.has_model_in_path());
        let both = body_model.is_none_or(|model| key.scopes.allow(provider, Some(model)));
        let allowed = (both && key.scopes.allow(provider, hop.model.as_deref()))
            || (lists_models && key.scopes.allow_provider(provider));
        if !allowed {
            return Err(denied(&key.scopes, hop));
        }
    }
    Ok(())
}

fn denied(scopes: &Scopes, hop: &RouteTarget) -> Problem {
    let provider = &hop.target.name;
    let what = match &hop.model {
        Some(model) => format!("the model '{model}' of {provider}"),
        None if scopes.names_models() => {
            format!("{provider}: this request names no model that can be checked")
        }
        None => provider.clone(),
    };
    Problem::new(StatusCode::FORBIDDEN, "scope_denied", format!("the key's scopes do not allow {what}"))
}
