//! Header rules in both directions. Towards the provider: headers of the gateway, of the caller's connection and of its
//! browser are removed, and a credential goes only to the provider that it was given for. Towards the caller: the
//! provider's headers are forwarded, with those of the gateway added.

use std::borrow::Cow;

use gateway_core::accounts::KEY_PREFIX;
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, FORWARDED,
    HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use secrecy::SecretString;

use super::attempt::Attempt;
use super::budget;
use super::context::RequestContext;
use super::record::{CacheStatus, Record};
use crate::auth::Identity;
use crate::problem::rate_headers;
use crate::targets::auth::{API_KEY, GOOG_API_KEY, X_API_KEY, add_credential};

pub const PROVIDER: HeaderName = HeaderName::from_static("x-gateway-provider");
pub const CACHE: HeaderName = HeaderName::from_static("x-gateway-cache");
const UPSTREAM_STATUS: HeaderName = HeaderName::from_static("x-gateway-upstream-status");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-gateway-request-id");
const LOG_ID: HeaderName = HeaderName::from_static("x-gateway-log-id");
const MODEL: HeaderName = HeaderName::from_static("x-gateway-model");
const DROPPED: HeaderName = HeaderName::from_static("x-gateway-dropped");
const CACHE_KEY: HeaderName = HeaderName::from_static("x-gateway-cache-key");
const ATTEMPTS: HeaderName = HeaderName::from_static("x-gateway-attempts");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// The headers in which SDKs send the credential of a provider.
const CREDENTIALS: [HeaderName; 4] = [AUTHORIZATION, X_API_KEY, API_KEY, GOOG_API_KEY];

const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The headers of the upstream request, with the credential. A signature is added later.
pub fn outbound(context: RequestContext<'_>, attempt: &Attempt<'_>) -> HeaderMap {
    let received = &context.head.headers;
    let mut headers = HeaderMap::with_capacity(received.len() + 4);
    let listed = connection_tokens(received);
    for (name, value) in received {
        let is_foreign = attempt.translation.is_some() && is_format_specific(name);
        if is_removed(name)
            || CREDENTIALS.contains(name)
            || is_foreign
            || listed.iter().any(|token| name.as_str() == token)
        {
            continue;
        }
        headers.append(name.clone(), value.clone());
    }
    // Compressed responses could not be metered.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let has_callers = add_callers_credential(context, attempt, &mut headers);
    for (name, value) in &attempt.provider().headers {
        if !(has_callers && CREDENTIALS.contains(name)) {
            headers.insert(name.clone(), value.clone());
        }
    }
    if !has_callers {
        add_credential(attempt.provider(), attempt.secret(), &mut headers);
    }
    headers
}

/// Adds the credential that the caller sent for the provider. Returns false if there is none.
fn add_callers_credential(
    context: RequestContext<'_>,
    attempt: &Attempt<'_>,
    headers: &mut HeaderMap,
) -> bool {
    if !may_use_callers_credential(attempt) {
        return false;
    }
    let mut found = false;
    for name in CREDENTIALS {
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
    found
}

/// Returns true if the caller sent a credential for the provider of the attempt.
pub fn has_callers_credential(context: RequestContext<'_>, attempt: &Attempt<'_>) -> bool {
    let has = |name: &HeaderName| {
        context.head.headers.get_all(name).iter().any(|value| is_provider_credential(context, value))
    };
    may_use_callers_credential(attempt) && CREDENTIALS.iter().any(has)
}

fn may_use_callers_credential(attempt: &Attempt<'_>) -> bool {
    !attempt.plan.directives.stored_credential && attempt.target.is_named
}

fn without_scheme(value: &HeaderValue) -> Option<SecretString> {
    let text = value.to_str().ok()?;
    let secret = match text.split_once(' ') {
        Some((scheme, secret)) if scheme.eq_ignore_ascii_case("bearer") => secret,
        _ => text,
    };
    Some(secret.trim().into())
}

/// Headers that have a meaning in one wire format only.
fn is_format_specific(name: &HeaderName) -> bool {
    let text = name.as_str();
    ["anthropic-", "openai-", "x-goog-", "x-amz"].iter().any(|prefix| text.starts_with(prefix))
}

/// SDKs always send some credential. Gateway keys and session tokens are never sent to a provider.
fn is_provider_credential(context: RequestContext<'_>, value: &HeaderValue) -> bool {
    let Ok(text) = value.to_str() else { return true };
    // The credential may follow any scheme, blank or comma.
    let words = text.split([' ', '\t', ',']).filter(|word| !word.is_empty());
    let mut words = words.filter(|word| !word.eq_ignore_ascii_case("bearer")).peekable();
    let is_ours = |word: &str| {
        word.starts_with(KEY_PREFIX) || (word.starts_with("eyJ") && context.state.tokens.is_ours(word))
    };
    words.peek().is_some() && !words.any(is_ours)
}

/// Removes gateway keys from the query, where some SDKs put them.
pub fn without_gateway_keys(path_and_query: &str) -> Cow<'_, str> {
    let Some((path, query)) = path_and_query.split_once('?').filter(|(_, query)| query.contains(KEY_PREFIX))
    else {
        return path_and_query.into();
    };
    let kept: Vec<&str> = query.split('&').filter(|pair| !pair.contains(KEY_PREFIX)).collect();
    if kept.is_empty() { path.into() } else { format!("{path}?{}", kept.join("&")).into() }
}

/// Headers of the request that are never forwarded.
fn is_removed(name: &HeaderName) -> bool {
    let text = name.as_str();
    matches!(*name, HOST | CONTENT_LENGTH | COOKIE | EXPECT | FORWARDED | ACCEPT_ENCODING)
        || HOP_BY_HOP.contains(name)
        || text.starts_with("x-gateway-")
        || text.starts_with("x-sandbox-")
        || text.starts_with("x-forwarded-")
        || text == "x-real-ip"
        || text == "proxy-connection"
}

/// The headers that the peer listed in `Connection`, which are hop-by-hop too.
fn connection_tokens(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let tokens = values.flat_map(|value| value.split(',')).map(|token| token.trim().to_ascii_lowercase());
    tokens.filter(|token| !matches!(token.as_str(), "" | "close" | "keep-alive")).collect()
}

/// Turns the headers of the provider's response into those that the caller receives.
pub fn complete(
    headers: &mut HeaderMap,
    attempt: &Attempt<'_>,
    identity: &Identity,
    record: &Record,
    status: StatusCode,
) {
    for token in connection_tokens(headers) {
        headers.remove(token);
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    let is_event_stream =
        headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
    if is_event_stream {
        // A removed chunk or an error event changes the length.
        headers.remove(CONTENT_LENGTH);
    }
    rename_conflicting(headers);
    for (name, value) in gateway_headers(attempt, record) {
        headers.insert(name, value);
    }
    headers.insert(UPSTREAM_STATUS, status.as_u16().into());
    if let Some(rate) = &identity.rate {
        headers.extend(rate_headers(rate));
    }
}

/// Adds the gateway's headers to a response from the cache.
pub fn add_cached(headers: &mut HeaderMap, identity: &Identity, record: &Record) {
    headers.extend(record_headers(record));
    for (name, value) in [(PROVIDER, Some(record.provider())), (MODEL, record.model())] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    }
    if let Some(rate) = &identity.rate {
        headers.extend(rate_headers(rate));
    }
}

/// The gateway's headers of a failed request.
pub fn of_failure(
    attempt: &Attempt<'_>,
    record: &Record,
    upstream_status: Option<u16>,
) -> Vec<(HeaderName, HeaderValue)> {
    let status = upstream_status.map(|status| (UPSTREAM_STATUS, status.into()));
    gateway_headers(attempt, record).into_iter().chain(status).collect()
}

/// If the provider uses a header name of the gateway, its header is forwarded under another name.
fn rename_conflicting(headers: &mut HeaderMap) {
    let is_ours = |name: &HeaderName| {
        let text = name.as_str();
        text.starts_with("x-gateway-")
            || matches!(
                text,
                "x-ratelimit-limit" | "x-ratelimit-remaining" | "x-ratelimit-reset" | "server-timing"
            )
    };
    let taken: Vec<HeaderName> = headers.keys().filter(|name| is_ours(name)).cloned().collect();
    for name in taken {
        let values: Vec<HeaderValue> = headers.get_all(&name).iter().cloned().collect();
        headers.remove(&name);
        if let Ok(renamed) = HeaderName::try_from(format!("x-upstream-{}", name.as_str())) {
            for value in values {
                headers.append(renamed.clone(), value);
            }
        }
    }
}

fn gateway_headers(attempt: &Attempt<'_>, record: &Record) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = record_headers(record);
    if let Ok(provider) = HeaderValue::from_str(&attempt.provider().name) {
        headers.push((PROVIDER, provider));
    }
    if let Some(model) = attempt.model().and_then(|model| HeaderValue::from_str(model).ok()) {
        headers.push((MODEL, model));
    }
    let dropped = attempt.translation.as_ref().map(|translation| &translation.dropped);
    if let Some(dropped) = dropped.filter(|list| !list.is_empty())
        && let Ok(dropped) = HeaderValue::try_from(dropped.join(", "))
    {
        headers.push((DROPPED, dropped));
    }
    headers
}

fn record_headers(record: &Record) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = Vec::with_capacity(8);
    headers.push((REQUEST_ID, record.request_id().clone()));
    headers.push((LOG_ID, record.id().into()));
    headers.push((ATTEMPTS, record.attempt_count().into()));
    if let Ok(timing) = HeaderValue::try_from(record.server_timing()) {
        headers.push((SERVER_TIMING, timing));
    }
    if let Some(remaining) = record.budget_remaining() {
        headers.push(budget::remaining_header(remaining));
    }
    let Some(status) = record.cache_status() else { return headers };
    let status = match status {
        CacheStatus::Hit => "HIT",
        CacheStatus::Refresh => "REFRESH",
        CacheStatus::Miss => "MISS",
    };
    headers.push((CACHE, HeaderValue::from_static(status)));
    if let Some(key) = record.cache_key()
        && let Ok(key) = HeaderValue::try_from(key.to_string())
    {
        headers.push((CACHE_KEY, key));
    }
    headers
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
