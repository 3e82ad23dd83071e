//! Cache keys. A key covers everything that can change the response, and nothing that only changes its delivery.
//! Requests without a reliable key are not cached.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde_json::Value;

use super::json::{CanonicalError, canonical_json};
use super::semantic::PromptSplit;
use crate::ids::OrgId;
use crate::llm::credentials::is_credential_parameter;
use crate::llm::paths::Operation;

/// Top-level fields that only change how the response is delivered.
pub(super) const DELIVERY_FIELDS: [&str; 2] = ["stream", "stream_options"];

/// The key of a cache entry. The organization is part of the hash, so keys of two organizations never collide.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheKey(pub [u8; 32]);

impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

impl CacheKey {
    /// Parses the output of `Display`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

/// Why a request bypasses the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotCacheable {
    #[error("the body has a duplicate key, so its meaning is ambiguous")]
    DuplicateKey,
    #[error("the body is nested too deeply")]
    TooDeep,
    /// The response depends on earlier requests, or is returned before it is complete.
    #[error("'{0}' makes the response depend on more than the request")]
    Stateful(&'static str),
}

/// A target of the request: the provider, its base URL if the organization configured one, and the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheTarget<'a> {
    pub provider: &'a str,
    /// The base URL of an organization's own provider, so that a changed URL invalidates its entries.
    pub base: Option<&'a str>,
    pub model: Option<&'a str>,
    /// Fields that the target sets in the body; empty if there are none.
    pub edits: &'a str,
}

/// Everything except the body that can change a response.
#[derive(Debug, Clone, Copy)]
pub struct KeyParts<'a> {
    pub org: OrgId,
    pub namespace: &'a str,
    /// The whole fallback chain in order: a request without fallbacks must not get the response of a fallback.
    pub targets: &'a [CacheTarget<'a>],
    /// The value of `X-Gateway-Format`, because entries are stored in the caller's format.
    pub format: Option<&'a str>,
    pub path: &'a str,
    pub query: Option<&'a str>,
    pub content_type: Option<&'a str>,
    /// The caller's headers for which `affects_response` is true, names in lower case, in any order.
    pub headers: &'a [(&'a str, &'a [u8])],
}

/// Whether responses of this operation can be cached: only operations that depend on nothing but the request.
pub fn is_cacheable(method: &str, operation: Operation) -> bool {
    method == "POST" && operation.calls_model()
}

/// Whether a request header (name in lower case) can change the provider's response.
pub fn affects_response(header: &str) -> bool {
    matches!(
        header,
        "anthropic-beta"
            | "anthropic-version"
            | "openai-beta"
            | "openai-organization"
            | "openai-project"
            | "content-encoding"
    ) || header.starts_with("x-sandbox-")
        || header.starts_with("x-amzn-bedrock-")
}

/// A body in the form that its key is made of. Making it takes time in proportion to the body.
#[derive(Debug)]
pub enum CanonicalBody {
    Json(Vec<u8>),
    /// The body is not JSON, so its bytes are used.
    Raw,
}

impl CanonicalBody {
    pub fn of(body: &[u8]) -> Result<Self, NotCacheable> {
        match canonical_json(body, &DELIVERY_FIELDS) {
            Ok(canonical) => {
                check_stateless(&canonical)?;
                Ok(Self::Json(canonical))
            }
            Err(CanonicalError::DuplicateKey) => Err(NotCacheable::DuplicateKey),
            Err(CanonicalError::TooDeep) => Err(NotCacheable::TooDeep),
            Err(CanonicalError::NotJson) => Ok(Self::Raw),
        }
    }
}

/// The key of a request for an exact match.
pub fn key(parts: &KeyParts<'_>, canonical: &CanonicalBody, body: &[u8]) -> CacheKey {
    match canonical {
        CanonicalBody::Json(canonical) => hash_key("json", parts, canonical),
        CanonicalBody::Raw => hash_key("raw", parts, body),
    }
}

/// The key of everything except the last user text. Requests with the same semantic key differ in that text only.
pub fn semantic_key(parts: &KeyParts<'_>, split: &PromptSplit) -> CacheKey {
    hash_key("rest", parts, &split.rest)
}

/// Whether a response can be stored: it must be complete and must not be an error with a success status.
pub fn is_storable(operation: Operation, status: u16, body: &[u8]) -> bool {
    if status != 200 {
        return false;
    }
    let Ok(response) = serde_json::from_slice::<Value>(body) else { return false };
    if !response.is_object() {
        return false;
    }
    let field_is = |key: &str, value: &str| response.get(key).and_then(Value::as_str) == Some(value);
    let has_error = |object: &Value| object.get("error").is_some_and(|error| !error.is_null());
    let choices = |key: &str| response.get(key).map(|list| list.as_array().map_or(&[][..], Vec::as_slice));
    let is_complete = |list: &[Value]| !list.is_empty() && !list.iter().any(has_error);
    let finished = match operation {
        // Some providers' chat responses have no `choices`.
        Operation::Chat | Operation::Completions => choices("choices").is_none_or(is_complete),
        Operation::Responses => field_is("status", "completed"),
        Operation::Messages => {
            field_is("type", "message") && response.get("stop_reason").is_some_and(Value::is_string)
        }
        Operation::GenerateContent => choices("candidates").is_some_and(is_complete),
        _ => true,
    };
    finished && !has_error(&response) && !field_is("type", "error")
}

/// Rejects requests that continue a conversation stored at the provider, or that run in the background.
fn check_stateless(canonical: &[u8]) -> Result<(), NotCacheable> {
    #[derive(serde::Deserialize)]
    struct StatefulFields {
        conversation: Option<serde::de::IgnoredAny>,
        container: Option<serde::de::IgnoredAny>,
        background: Option<Value>,
    }
    // Most requests contain none of these names and need no parsing.
    static NAMES: LazyLock<[Finder<'static>; 3]> =
        LazyLock::new(|| ["\"conversation\"", "\"container\"", "\"background\""].map(Finder::new));
    if !NAMES.iter().any(|name| name.find(canonical).is_some()) {
        return Ok(());
    }
    // A body that is not an object has none of these fields.
    let Ok(fields) = serde_json::from_slice::<StatefulFields>(canonical) else { return Ok(()) };
    if fields.conversation.is_some() {
        Err(NotCacheable::Stateful("conversation"))
    } else if fields.container.is_some() {
        Err(NotCacheable::Stateful("container"))
    } else if fields.background.is_some_and(|background| background == true) {
        Err(NotCacheable::Stateful("background"))
    } else {
        Ok(())
    }
}

/// Hashes all parts with length prefixes, so that different parts never produce the same bytes.
fn hash_key(kind: &str, parts: &KeyParts<'_>, body: &[u8]) -> CacheKey {
    let KeyParts { org, namespace, targets, format, path, query, content_type, headers } = *parts;
    // Hashing the small parts in one call is faster than one call for each.
    let mut small = Vec::with_capacity(512);
    let mut add = |part: &[u8]| {
        small.extend_from_slice(&(part.len() as u64).to_le_bytes());
        small.extend_from_slice(part);
    };
    add(kind.as_bytes());
    add(org.0.as_bytes());
    add(namespace.as_bytes());
    add(&(targets.len() as u64).to_le_bytes());
    for CacheTarget { provider, base, model, edits } in targets {
        add(provider.as_bytes());
        add_optional(&mut add, *base);
        add_optional(&mut add, *model);
        if !edits.is_empty() {
            add(b"edits");
            add(edits.as_bytes());
        }
    }
    add_optional(&mut add, format);
    add(path_without_streaming(path).as_bytes());
    let query = normalized_query(query.unwrap_or(""));
    add(&(query.len() as u64).to_le_bytes());
    for pair in &query {
        add(pair.as_bytes());
    }
    // JSON is recognized whatever its content type; other bodies are interpreted by their content type.
    add_optional(&mut add, content_type.filter(|_| kind == "raw"));
    let mut headers: Vec<_> = headers.iter().filter(|(name, _)| affects_response(name)).collect();
    // The sort is stable, because the order of repeated values of one header may matter.
    headers.sort_by_key(|(name, _)| *name);
    add(&(headers.len() as u64).to_le_bytes());
    for (name, value) in headers {
        add(name.as_bytes());
        add(value);
    }
    small.extend_from_slice(&(body.len() as u64).to_le_bytes());
    // SHA-256 costs several times as much, unless the processor has instructions for it.
    let mut hash = blake3::Hasher::new();
    hash.update(&small);
    hash.update(body);
    CacheKey(hash.finalize().into())
}

/// Distinguishes an absent part from an empty one.
fn add_optional(add: &mut impl FnMut(&[u8]), part: Option<&str>) {
    match part {
        None => add(b"-"),
        Some(part) => {
            add(b"+");
            add(part.as_bytes());
        }
    }
}

/// Maps the path of a streaming operation to its non-streaming form.
fn path_without_streaming(path: &str) -> Cow<'_, str> {
    const STREAMED: [(&str, &str); 5] = [
        (":streamGenerateContent", ":generateContent"),
        (":streamRawPredict", ":rawPredict"),
        (":serverStreamingPredict", ":predict"),
        ("/converse-stream", "/converse"),
        ("/invoke-with-response-stream", "/invoke"),
    ];
    STREAMED
        .iter()
        .find_map(|(streamed, plain)| Some(Cow::Owned(format!("{}{plain}", path.strip_suffix(streamed)?))))
        .unwrap_or(Cow::Borrowed(path))
}

/// The query parameters in a fixed order, without credentials and streaming parameters.
fn normalized_query(query: &str) -> Vec<&str> {
    let name = |pair: &str| -> String { pair.split('=').next().unwrap_or("").to_ascii_lowercase() };
    let mut pairs: Vec<&str> = query
        .split('&')
        .filter(|pair| !pair.is_empty() && *pair != "alt=sse")
        .filter(|pair| !is_credential_parameter(&name(pair)))
        .collect();
    pairs.sort_by_key(|pair| name(pair));
    pairs
}

#[cfg(test)]
mod tests;
