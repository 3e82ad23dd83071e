//! The caller's credentials: where a request carries them, and which targets may get them. A credential goes only to the
//! provider that the caller named.

use std::borrow::Cow;

use gateway_core::accounts::KEY_PREFIX;
use gateway_core::llm::credentials::{find_parameter, without_credential_parameters};
use gateway_core::llm::providers::Auth;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;

use super::attempt::Attempt;
use super::context::RequestContext;
use crate::targets::auth::{API_KEY, GOOG_API_KEY, X_API_KEY, add_credential};

/// The headers in which SDKs send the credential of a provider.
pub const CREDENTIAL_HEADERS: [HeaderName; 4] = [AUTHORIZATION, X_API_KEY, API_KEY, GOOG_API_KEY];

/// Adds the credential that the caller sent for the provider. Returns false if there is none.
pub fn add_callers_credential(
    context: RequestContext<'_>,
    attempt: &Attempt<'_>,
    headers: &mut HeaderMap,
) -> bool {
    if !may_use_callers_credential(attempt) {
        return false;
    }
    let mut found = false;
    for name in CREDENTIAL_HEADERS {
        for value in context.head.headers.get_all(&name) {
            if !is_provider_credential(context, value) {
                continue;
            }
            found = true;
            if attempt.translation.is_none() {
                headers.append(name.clone(), value.clone());
            } else if let Some(secret) = without_scheme(value) {
                // The SDK used the header of another provider.
                add_credential(attempt.provider(), Some(&secret), headers);
            }
        }
    }
    if !found && let Some(secret) = query_credential(context, attempt) {
        found = true;
        if attempt.replaces_path() {
            add_credential(attempt.provider(), Some(&SecretString::from(&*secret)), headers);
        }
    }
    found
}

/// Returns true if the caller sent a credential for the provider of the attempt.
pub fn has_callers_credential(context: RequestContext<'_>, attempt: &Attempt<'_>) -> bool {
    let has = |name: &HeaderName| {
        context.head.headers.get_all(name).iter().any(|value| is_provider_credential(context, value))
    };
    may_use_callers_credential(attempt)
        && (CREDENTIAL_HEADERS.iter().any(has) || query_credential(context, attempt).is_some())
}

fn may_use_callers_credential(attempt: &Attempt<'_>) -> bool {
    !attempt.plan.directives.stored_credential && attempt.target.is_named
}

/// The credential in the query, for providers that read it there.
fn query_credential<'a>(context: RequestContext<'a>, attempt: &Attempt<'_>) -> Option<Cow<'a, str>> {
    let name = match attempt.provider().auth {
        Auth::GoogApiKey => "key",
        Auth::OAuthBearer => "access_token",
        Auth::XApiKey | Auth::ApiKey | Auth::SigV4 { .. } | Auth::Bearer | Auth::None => return None,
    };
    let value = find_parameter(context.head.uri.query()?, name)?;
    (!is_ours(context, &value)).then_some(value)
}

fn without_scheme(value: &HeaderValue) -> Option<SecretString> {
    let text = value.to_str().ok()?;
    let secret = match text.split_once(' ') {
        Some((scheme, secret)) if scheme.eq_ignore_ascii_case("bearer") => secret,
        _ => text,
    };
    Some(secret.trim().into())
}

/// SDKs always send some credential. Gateway keys and session tokens are never sent to a provider.
fn is_provider_credential(context: RequestContext<'_>, value: &HeaderValue) -> bool {
    let Ok(text) = value.to_str() else { return true };
    // The credential may follow any scheme, blank or comma.
    let words = text.split([' ', '\t', ',']).filter(|word| !word.is_empty());
    let mut words = words.filter(|word| !word.eq_ignore_ascii_case("bearer")).peekable();
    words.peek().is_some() && !words.any(|word| is_ours(context, word))
}

/// Returns true for a gateway key or a session token.
fn is_ours(context: RequestContext<'_>, text: &str) -> bool {
    text.starts_with(KEY_PREFIX) || (text.starts_with("eyJ") && context.state.tokens.is_ours(text))
}

/// The path and query to send: without gateway keys, and without credentials that are not for the target.
pub fn outbound_path<'p>(attempt: &Attempt<'_>, path_and_query: &'p str) -> Cow<'p, str> {
    let path = without_gateway_keys(path_and_query);
    if may_use_callers_credential(attempt) {
        return path;
    }
    match path {
        Cow::Borrowed(path) => without_credential_parameters(path),
        Cow::Owned(path) => without_credential_parameters(&path).into_owned().into(),
    }
}

/// Removes gateway keys from the query, where some SDKs put them.
fn without_gateway_keys(path_and_query: &str) -> Cow<'_, str> {
    let Some((path, query)) = path_and_query.split_once('?').filter(|(_, query)| query.contains(KEY_PREFIX))
    else {
        return path_and_query.into();
    };
    let kept: Vec<&str> = query.split('&').filter(|pair| !pair.contains(KEY_PREFIX)).collect();
    if kept.is_empty() { path.into() } else { format!("{path}?{}", kept.join("&")).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_keys_are_removed_from_the_query_and_the_rest_is_unchanged() {
        let cases = [
            ("/v1/x", "/v1/x"),
            ("/v1/x?a=%20b&key=AIza", "/v1/x?a=%20b&key=AIza"),
            ("/v1/x?key=sk-gateway-00", "/v1/x"),
            ("/v1/x?a=1&key=sk-gateway-00&b=%2F", "/v1/x?a=1&b=%2F"),
        ];
        for (received, forwarded) in cases {
            assert_eq!(without_gateway_keys(received), forwarded);
        }
    }
}
