//! When two requests are the same: the key of an entry covers everything that can change the answer, and nothing that
//! only changes how it is delivered. What cannot be judged is not cached.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::json::{CanonicalError, canonical_json};
use super::semantic::PromptSplit;
use crate::ids::OrgId;
use crate::llm::paths::Operation;

/// The name of an entry. Keys of two organizations never meet, because the organization is part of what is hashed.
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
    /// Reads what `Display` wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

/// Why a request is answered by the provider each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotCacheable {
    #[error("the body has the same key twice, so that it is not known what it asks for")]
    DuplicateKey,
    #[error("the body is nested too deeply")]
    TooDeep,
    /// The answer depends on what happened before, or is not there yet.
    #[error("'{0}' makes the answer depend on more than the request")]
    Stateful(&'static str),
}

/// Who may answer: a provider's name, where it is when the organization says so, and the model asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheTarget<'a> {
    pub provider: &'a str,
    /// The base URL of a provider of the organization's own, so that an entry does not outlive a move.
    pub base: Option<&'a str>,
    pub model: Option<&'a str>,
}

/// Everything but the body that can change an answer.
#[derive(Debug, Clone, Copy)]
pub struct KeyParts<'a> {
    pub org: OrgId,
    pub namespace: &'a str,
    /// The whole chain in its order: who asked for no fallback must not get a fallback's answer.
    pub targets: &'a [CacheTarget<'a>],
    /// What `X-Gateway-Format` said, because entries are kept in the caller's shape.
    pub format: Option<&'a str>,
    pub path: &'a str,
    pub query: Option<&'a str>,
    pub content_type: Option<&'a str>,
    /// Those of the caller's headers for which `affects_response` holds, names in lower case, in any order.
    pub headers: &'a [(&'a str, &'a [u8])],
}

/// May answers to such requests be kept at all? Only those that compute something from their body alone.
pub fn is_cacheable(method: &str, operation: Operation) -> bool {
    method == "POST"
        && match operation {
            Operation::Chat
            | Operation::Responses
            | Operation::Messages
            | Operation::GenerateContent
            | Operation::Converse
            | Operation::Embeddings
            | Operation::Completions => true,
            Operation::Models | Operation::Other => false,
        }
}

/// Does this header of the caller (its name in lower case) change what the provider answers?
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

/// The key of a request.
pub fn key(parts: &KeyParts<'_>, body: &[u8]) -> Result<CacheKey, NotCacheable> {
    // What says "stream" only says how the answer travels.
    match canonical_json(body, &["stream", "stream_options"]) {
        Ok(body) => {
            stateless(&body)?;
            Ok(hashed("json", parts, &body))
        }
        Err(CanonicalError::DuplicateKey) => Err(NotCacheable::DuplicateKey),
        Err(CanonicalError::TooDeep) => Err(NotCacheable::TooDeep),
        Err(CanonicalError::NotJson) => Ok(hashed("raw", parts, body)),
    }
}

/// The key of everything but the last user text: requests that share it differ in that text only.
pub fn semantic_key(parts: &KeyParts<'_>, split: &PromptSplit) -> CacheKey {
    hashed("rest", parts, &split.rest)
}

/// Is this an answer that may be given again: complete, and no error under the name of a success?
pub fn is_storable(operation: Operation, status: u16, body: &[u8]) -> bool {
    if status != 200 {
        return false;
    }
    let Ok(answer) = serde_json::from_slice::<Value>(body) else { return false };
    if !answer.is_object() {
        return false;
    }
    let says = |key: &str, value: &str| answer.get(key).and_then(Value::as_str) == Some(value);
    let has_error = |object: &Value| object.get("error").is_some_and(|error| !error.is_null());
    let choices = |key: &str| answer.get(key).map(|list| list.as_array().map_or(&[][..], Vec::as_slice));
    let sound = |list: &[Value]| !list.is_empty() && !list.iter().any(has_error);
    let finished = match operation {
        // Not everybody's chat has choices.
        Operation::Chat | Operation::Completions => choices("choices").is_none_or(sound),
        Operation::Responses => says("status", "completed"),
        Operation::Messages => {
            says("type", "message") && answer.get("stop_reason").is_some_and(Value::is_string)
        }
        Operation::GenerateContent => choices("candidates").is_some_and(sound),
        _ => true,
    };
    finished && !has_error(&answer) && !says("type", "error")
}

/// Refuses what reaches into a conversation kept by the provider, or is answered before it is done.
fn stateless(canonical: &[u8]) -> Result<(), NotCacheable> {
    #[derive(serde::Deserialize)]
    struct Said {
        conversation: Option<serde::de::IgnoredAny>,
        container: Option<serde::de::IgnoredAny>,
        background: Option<Value>,
    }
    // Hardly any request has one of these words, and then there is nothing to parse.
    static NAMES: LazyLock<[Finder<'static>; 3]> =
        LazyLock::new(|| ["\"conversation\"", "\"container\"", "\"background\""].map(Finder::new));
    if !NAMES.iter().any(|name| name.find(canonical).is_some()) {
        return Ok(());
    }
    // A body that is no object, or whose fields are odd, has none of these.
    let Ok(said) = serde_json::from_slice::<Said>(canonical) else { return Ok(()) };
    if said.conversation.is_some() {
        Err(NotCacheable::Stateful("conversation"))
    } else if said.container.is_some() {
        Err(NotCacheable::Stateful("container"))
    } else if said.background.is_some_and(|background| background == true) {
        Err(NotCacheable::Stateful("background"))
    } else {
        Ok(())
    }
}

/// Each part goes in behind its length, so that no two lists of parts give the same bytes.
fn hashed(kind: &str, parts: &KeyParts<'_>, body: &[u8]) -> CacheKey {
    let KeyParts { org, namespace, targets, format, path, query, content_type, headers } = *parts;
    // The small parts are hashed together: each call of its own costs more than its bytes.
    let mut small = Vec::with_capacity(512);
    let mut add = |part: &[u8]| {
        small.extend_from_slice(&(part.len() as u64).to_le_bytes());
        small.extend_from_slice(part);
    };
    add(kind.as_bytes());
    add(org.0.as_bytes());
    add(namespace.as_bytes());
    add(&(targets.len() as u64).to_le_bytes());
    for CacheTarget { provider, base, model } in targets {
        add(provider.as_bytes());
        add_optional(&mut add, *base);
        add_optional(&mut add, *model);
    }
    add_optional(&mut add, format);
    add(plain_path(path).as_bytes());
    let query = plain_query(query.unwrap_or(""));
    add(&(query.len() as u64).to_le_bytes());
    for pair in &query {
        add(pair.as_bytes());
    }
    // JSON is JSON whatever it calls itself; of other bodies the type says how they are read.
    add_optional(&mut add, content_type.filter(|_| kind == "raw"));
    let mut headers: Vec<_> = headers.iter().filter(|(name, _)| affects_response(name)).collect();
    // Stable, because the order of one header's values may matter.
    headers.sort_by_key(|(name, _)| *name);
    add(&(headers.len() as u64).to_le_bytes());
    for (name, value) in headers {
        add(name.as_bytes());
        add(value);
    }
    small.extend_from_slice(&(body.len() as u64).to_le_bytes());
    let mut hash = Sha256::new();
    hash.update(&small);
    hash.update(body);
    CacheKey(hash.finalize().into())
}

/// Nothing is not the empty text.
fn add_optional(add: &mut impl FnMut(&[u8]), part: Option<&str>) {
    match part {
        None => add(b"-"),
        Some(part) => {
            add(b"+");
            add(part.as_bytes());
        }
    }
}

/// The path without what only says that the answer is to be a stream.
fn plain_path(path: &str) -> Cow<'_, str> {
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

/// The query in a fixed order, without credentials and without what only asks for a stream.
fn plain_query(query: &str) -> Vec<&str> {
    let name = |pair: &str| -> String { pair.split('=').next().unwrap_or("").to_ascii_lowercase() };
    let mut pairs: Vec<&str> = query
        .split('&')
        .filter(|pair| !pair.is_empty() && *pair != "alt=sse")
        .filter(|pair| !matches!(&*name(pair), "key" | "access_token"))
        .collect();
    pairs.sort_by_key(|pair| name(pair));
    pairs
}

#[cfg(test)]
mod tests;
