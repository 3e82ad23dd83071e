//! Header rules in both directions. Towards the provider: what is ours, what is of this hop and what identifies the
//! caller's browser stays here, and a credential goes only to the provider that it was given for. Towards the caller:
//! the provider's headers pass, ours stand beside them.

use std::borrow::Cow;

use gateway_core::accounts::KEY_PREFIX;
use gateway_core::llm::providers::{ANTHROPIC_VERSION, Auth};
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, FORWARDED,
    HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use secrecy::{ExposeSecret, SecretString};

use super::budget;
use super::cache_stage::CACHE;
use super::call::Call;
use super::record::Record;
use super::target::Target;
use super::upstream::signs_with;
use crate::app::App;
use crate::auth::Identity;
use crate::problem::rate_headers;

pub const PROVIDER: HeaderName = HeaderName::from_static("x-gateway-provider");
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const API_KEY: HeaderName = HeaderName::from_static("api-key");
const GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
const VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const UPSTREAM_STATUS: HeaderName = HeaderName::from_static("x-gateway-upstream-status");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-gateway-request-id");
const LOG_ID: HeaderName = HeaderName::from_static("x-gateway-log-id");
const MODEL: HeaderName = HeaderName::from_static("x-gateway-model");
const CACHE_KEY: HeaderName = HeaderName::from_static("x-gateway-cache-key");
const ATTEMPTS: HeaderName = HeaderName::from_static("x-gateway-attempts");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Where SDKs put the credential of a provider.
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

/// The headers of the upstream request, credential included. A body that is signed adds its signature later.
pub fn outbound(app: &App, call: &Call, head: &Parts) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(head.headers.len() + 4);
    let listed = connection_tokens(&head.headers);
    for (name, value) in &head.headers {
        let is_foreign = call.translation.is_some() && is_of_a_format(name);
        if stays_here(name)
            || CREDENTIALS.contains(name)
            || is_foreign
            || listed.iter().any(|token| name.as_str() == token)
        {
            continue;
        }
        headers.append(name.clone(), value.clone());
    }
    // Compressed answers could be neither metered nor kept.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let has_own = add_callers_credential(app, call, &head.headers, &mut headers);
    for (name, value) in &call.target().headers {
        if !(has_own && CREDENTIALS.contains(name)) {
            headers.insert(name.clone(), value.clone());
        }
    }
    if !has_own {
        add_stored_credential(call.target(), call.secret(), &mut headers);
    }
    headers
}

/// The caller's own credential, as it came. False when it sent none that counts.
fn add_callers_credential(app: &App, call: &Call, from: &HeaderMap, to: &mut HeaderMap) -> bool {
    if call.stored_credential || !call.hop().named {
        return false;
    }
    let mut found = false;
    for name in CREDENTIALS {
        for value in from.get_all(&name) {
            if !is_the_providers(app, value) {
                continue;
            }
            found = true;
            if call.translation.is_none() {
                to.append(name.clone(), value.clone());
            } else if let Some(secret) = bare(value) {
                // The SDK showed it as its own provider wants to see it.
                add_stored_credential(call.target(), Some(&secret), to);
            }
        }
    }
    found
}

/// A credential without the scheme in front of it.
fn bare(value: &HeaderValue) -> Option<SecretString> {
    let text = value.to_str().ok()?;
    let secret = match text.split_once(' ') {
        Some((scheme, secret)) if scheme.eq_ignore_ascii_case("bearer") => secret,
        _ => text,
    };
    Some(secret.trim().into())
}

/// Headers that mean something in one wire format only.
fn is_of_a_format(name: &HeaderName) -> bool {
    let text = name.as_str();
    ["anthropic-", "openai-", "x-goog-", "x-amz"].iter().any(|prefix| text.starts_with(prefix))
}

/// SDKs always send some key: one of ours is no credential of the provider's, and a session token goes to no one.
fn is_the_providers(app: &App, value: &HeaderValue) -> bool {
    let Ok(text) = value.to_str() else { return true };
    // However it is written: behind any scheme, any blank, any comma.
    let words = text.split([' ', '\t', ',']).filter(|word| !word.is_empty());
    let mut words = words.filter(|word| !word.eq_ignore_ascii_case("bearer")).peekable();
    let is_ours =
        |word: &str| word.starts_with(KEY_PREFIX) || (word.starts_with("eyJ") && app.tokens.is_ours(word));
    words.peek().is_some() && !words.any(is_ours)
}

/// The organization's or the operator's credential, as the provider wants to see it. A signature comes later.
pub fn add_stored_credential(target: &Target, secret: Option<&SecretString>, headers: &mut HeaderMap) {
    let Some(secret) = secret else { return };
    let is_signed = signs_with(target, secret);
    let secret = secret.expose_secret();
    let (name, value) = match target.auth {
        Auth::XApiKey => {
            if !headers.contains_key(VERSION) {
                headers.insert(VERSION, HeaderValue::from_static(ANTHROPIC_VERSION));
            }
            (X_API_KEY, secret.to_owned())
        }
        Auth::ApiKey => (API_KEY, secret.to_owned()),
        Auth::GoogApiKey => (GOOG_API_KEY, secret.to_owned()),
        Auth::SigV4 { .. } if is_signed => return,
        Auth::SigV4 { .. } | Auth::Bearer | Auth::OAuthBearer | Auth::None => {
            (AUTHORIZATION, format!("Bearer {secret}"))
        }
    };
    if let Ok(mut value) = HeaderValue::try_from(value) {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
}

/// Some SDKs put their key into the query. One of ours goes to nobody, there as elsewhere.
pub fn without_own_keys(path_and_query: &str) -> Cow<'_, str> {
    let Some((path, query)) = path_and_query.split_once('?').filter(|(_, query)| query.contains(KEY_PREFIX))
    else {
        return path_and_query.into();
    };
    let kept: Vec<&str> = query.split('&').filter(|pair| !pair.contains(KEY_PREFIX)).collect();
    if kept.is_empty() { path.into() } else { format!("{path}?{}", kept.join("&")).into() }
}

/// Did the caller send a credential of the provider's?
pub fn has_callers_credential(app: &App, call: &Call, from: &HeaderMap) -> bool {
    !call.stored_credential
        && call.hop().named
        && CREDENTIALS.iter().any(|name| from.get_all(name).iter().any(|value| is_the_providers(app, value)))
}

fn stays_here(name: &HeaderName) -> bool {
    let text = name.as_str();
    matches!(*name, HOST | CONTENT_LENGTH | COOKIE | EXPECT | FORWARDED | ACCEPT_ENCODING)
        || HOP_BY_HOP.contains(name)
        || text.starts_with("x-gateway-")
        || text.starts_with("x-sandbox-")
        || text.starts_with("x-forwarded-")
        || text == "x-real-ip"
        || text == "proxy-connection"
}

/// Headers that the peer declared to be of this hop only.
fn connection_tokens(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let tokens = values.flat_map(|value| value.split(',')).map(|token| token.trim().to_ascii_lowercase());
    tokens.filter(|token| !matches!(token.as_str(), "" | "close" | "keep-alive")).collect()
}

/// Takes out of the provider's answer what is of its hop, and puts in what the gateway has to say.
pub fn complete(
    headers: &mut HeaderMap,
    call: &Call,
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
    let is_sse =
        headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    if is_sse {
        // A hidden chunk or an error event at the end changes it.
        headers.remove(CONTENT_LENGTH);
    }
    rename_ours(headers);
    for (name, value) in ours(call, record) {
        headers.insert(name, value);
    }
    headers.insert(UPSTREAM_STATUS, status.as_u16().into());
    if let Some(rate) = &identity.rate {
        headers.extend(rate_headers(rate));
    }
}

/// The headers of an answer from the cache.
pub fn complete_found(headers: &mut HeaderMap, identity: &Identity, record: &Record) {
    headers.extend(of_record(record));
    for (name, value) in [(PROVIDER, Some(record.answered_by())), (MODEL, record.model())] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    }
    if let Some(rate) = &identity.rate {
        headers.extend(rate_headers(rate));
    }
}

/// Where the provider uses a name of ours, ours stands and the provider's is passed on under another.
fn rename_ours(headers: &mut HeaderMap) {
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

fn ours(call: &Call, record: &Record) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = of_record(record);
    if let Ok(provider) = HeaderValue::from_str(&call.target().name) {
        headers.push((PROVIDER, provider));
    }
    if let Some(model) = call.model().and_then(|model| HeaderValue::from_str(model).ok()) {
        headers.push((MODEL, model));
    }
    if let Some(dropped) = call.translation.as_ref().map(|made| &made.dropped).filter(|list| !list.is_empty())
        && let Ok(dropped) = HeaderValue::try_from(dropped.join(", "))
    {
        headers.push((HeaderName::from_static("x-gateway-dropped"), dropped));
    }
    headers
}

fn of_record(record: &Record) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = Vec::with_capacity(8);
    headers.push((REQUEST_ID, record.request_id().clone()));
    headers.push((LOG_ID, record.id().into()));
    headers.push((ATTEMPTS, record.attempts_made().into()));
    if let Ok(timing) = HeaderValue::try_from(record.server_timing()) {
        headers.push((SERVER_TIMING, timing));
    }
    if let Some(remaining) = record.budget_remaining() {
        headers.push(budget::remaining_header(remaining));
    }
    let cache = match record.cache() {
        Some("hit") => "HIT",
        Some("refresh") => "REFRESH",
        Some(_) => "MISS",
        None => return headers,
    };
    headers.push((CACHE, HeaderValue::from_static(cache)));
    if let Some(key) = record.cache_key()
        && let Ok(key) = HeaderValue::try_from(key.to_string())
    {
        headers.push((CACHE_KEY, key));
    }
    headers
}

/// What a failed call still carries.
pub fn of_failure(
    call: &Call,
    record: &Record,
    upstream_status: Option<u16>,
) -> Vec<(HeaderName, HeaderValue)> {
    let status = upstream_status.map(|status| (UPSTREAM_STATUS, status.into()));
    ours(call, record).into_iter().chain(status).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_ours_in_the_query_stays_here_and_the_rest_is_untouched() {
        let cases = [
            ("/v1/x", "/v1/x"),
            ("/v1/x?a=%20b&key=AIza", "/v1/x?a=%20b&key=AIza"),
            ("/v1/x?key=sk-gateway-00", "/v1/x"),
            ("/v1/x?a=1&key=sk-gateway-00&b=%2F", "/v1/x?a=1&b=%2F"),
        ];
        for (sent, passed) in cases {
            assert_eq!(without_own_keys(sent), passed);
        }
    }
}
