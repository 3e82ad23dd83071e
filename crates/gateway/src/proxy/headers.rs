//! Header rules in both directions. Towards the provider: headers of the gateway, of the caller's connection and of its
//! browser are removed, and a provider that the caller did not name gets only headers that describe the request.
//! Towards the caller: the provider's headers are forwarded, with those of the gateway added.

use gateway_core::llm::credentials::is_neutral_header;
use http::header::{
    ACCEPT_ENCODING, ALT_SVC, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, FORWARDED, HOST,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, STRICT_TRANSPORT_SECURITY, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::attempt::Attempt;
use super::budget;
use super::context::RequestContext;
use super::credentials::{CREDENTIAL_HEADERS, add_callers_credential};
use super::record::{CacheStatus, Record};
use crate::auth::Identity;
use crate::problem::rate_headers;
use crate::targets::auth::add_credential;

pub const PROVIDER: HeaderName = HeaderName::from_static("x-gateway-provider");
pub const CACHE: HeaderName = HeaderName::from_static("x-gateway-cache");
const UPSTREAM_STATUS: HeaderName = HeaderName::from_static("x-gateway-upstream-status");
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-gateway-request-id");
const LOG_ID: HeaderName = HeaderName::from_static("x-gateway-log-id");
const MODEL: HeaderName = HeaderName::from_static("x-gateway-model");
const MODEL_NAME: HeaderName = HeaderName::from_static("x-gateway-model-name");
pub const DROPPED: HeaderName = HeaderName::from_static("x-gateway-dropped");
const CACHE_KEY: HeaderName = HeaderName::from_static("x-gateway-cache-key");
const ATTEMPTS: HeaderName = HeaderName::from_static("x-gateway-attempts");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

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

/// Headers of a response by which a provider would act on the caller's browser in the name of the gateway's origin.
const ORIGIN_HEADERS: [HeaderName; 4] =
    [SET_COOKIE, STRICT_TRANSPORT_SECURITY, ALT_SVC, HeaderName::from_static("clear-site-data")];

/// The headers of the upstream request, with the credential. A signature is added later.
pub fn outbound(context: RequestContext<'_>, attempt: &Attempt<'_>) -> HeaderMap {
    let received = &context.head.headers;
    let mut headers = HeaderMap::with_capacity(received.len() + 4);
    let listed = connection_tokens(received);
    for (name, value) in received {
        let is_foreign = attempt.translation.is_some() && is_format_specific(name);
        if is_removed(name)
            || CREDENTIAL_HEADERS.contains(name)
            || is_foreign
            || !(attempt.target.is_named || is_neutral_header(name.as_str()))
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
        if !(has_callers && CREDENTIAL_HEADERS.contains(name)) {
            headers.insert(name.clone(), value.clone());
        }
    }
    if !has_callers {
        add_credential(attempt.provider(), attempt.secret(), &mut headers);
    }
    headers
}

/// Headers that have a meaning in one wire format only.
fn is_format_specific(name: &HeaderName) -> bool {
    let text = name.as_str();
    ["anthropic-", "openai-", "x-goog-", "x-amz"].iter().any(|prefix| text.starts_with(prefix))
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
    for name in HOP_BY_HOP.iter().chain(&ORIGIN_HEADERS) {
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

/// Adds the gateway's headers to a response that the gateway makes itself.
pub fn add_own(headers: &mut HeaderMap, context: RequestContext<'_>) {
    headers.insert(REQUEST_ID, context.request_id.clone());
    headers.extend(context.identity.rate.iter().flat_map(rate_headers));
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
    if let Some(name) = record.model_name() {
        headers.push((MODEL_NAME, name.clone()));
    }
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
