//! Requests below `/sdk`, of clients that know only a base URL and a key: what their paths mean, where they put the key,
//! and the format in which they read errors.

use super::ClientFormat;
use super::paths::RequestPath;
use crate::accounts::hash_key;

/// The headers in which clients put their key, besides the gateway's own.
pub const KEY_HEADERS: [&str; 4] = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];

/// A path below `/sdk` as the proxy reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SdkPath {
    pub path: String,
    /// The provider that the model in the path names, as in `models/openai/gpt-4o:generateContent`.
    pub provider: Option<String>,
}

/// The part of a path below `/sdk`. None for any other path.
pub fn below(path: &str) -> Option<&str> {
    path.strip_prefix("/sdk").filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Reads the part below `/sdk`. A version that the base URL lacks, or has twice, is corrected: SDKs differ in whether the
/// base URL ends in it.
pub fn read_path(rest: &str) -> SdkPath {
    let path = with_version(rest);
    let (start, id) = match path.find("/models/") {
        Some(at) => path.split_at(at + "/models/".len()),
        None => return SdkPath { path, provider: None },
    };
    let Some((first, last)) = id.trim_end_matches('/').split_once('/') else {
        return SdkPath { path, provider: None };
    };
    if is_model_call(last) {
        let (path, provider) = (format!("{start}{last}"), Some(first.to_owned()));
        return SdkPath { path, provider };
    }
    let path = format!("{start}{first}%2F{}", last.replace('/', "%2F"));
    SdkPath { path, provider: None }
}

/// The format of the caller, for errors and lists of models.
pub fn caller_format(path: &str, has_anthropic_version: bool) -> ClientFormat {
    let path = with_version(path);
    if let Some(format) = RequestPath::parse(&path).client_format() {
        format
    } else if path.starts_with("/v1beta/") {
        ClientFormat::Gemini
    } else if has_anthropic_version || path.starts_with("/v1/messages/") {
        ClientFormat::Anthropic
    } else {
        ClientFormat::OpenAiChat
    }
}

/// The gateway's key in the value of a header, with or without a scheme. None: it is not a key of this gateway.
pub fn key_in(value: &str) -> Option<&str> {
    let value = value.trim();
    let key = match value.split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => key.trim(),
        _ => value,
    };
    hash_key(key).map(|_| key)
}

fn with_version(rest: &str) -> String {
    const UNVERSIONED: [&str; 8] =
        ["chat", "completions", "responses", "embeddings", "messages", "models", "images", "audio"];
    for (start, by) in [("/v1/v1/", "/v1/"), ("/v1/v1beta/", "/v1beta/"), ("/openai/v1/", "/v1/")] {
        if let Some(rest) = rest.strip_prefix(start) {
            return format!("{by}{rest}");
        }
    }
    let first = rest.trim_start_matches('/').split('/').next().unwrap_or_default();
    if !UNVERSIONED.contains(&first) {
        return rest.to_owned();
    }
    let version = if is_model_call(rest) { "/v1beta" } else { "/v1" };
    format!("{version}{rest}")
}

/// Whether a path ends in a method of Google's API. Names of models may have colons too.
fn is_model_call(path: &str) -> bool {
    const METHODS: [&str; 6] = [
        "generateContent",
        "streamGenerateContent",
        "countTokens",
        "embedContent",
        "batchEmbedContents",
        "predict",
    ];
    path.rsplit_once(':').is_some_and(|(_, method)| METHODS.contains(&method))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rest: &str) -> (String, Option<String>) {
        let SdkPath { path, provider } = read_path(rest);
        (path, provider)
    }

    #[test]
    fn only_paths_below_sdk_are_read() {
        assert_eq!(below("/sdk/v1/models"), Some("/v1/models"));
        assert_eq!(below("/sdk"), Some(""));
        for other in ["/sdks/v1", "/v1/sdk/x", "/SDK/v1", "sdk"] {
            assert_eq!(below(other), None, "{other}");
        }
    }

    #[test]
    fn versions_are_added_and_not_doubled() {
        for (rest, path) in [
            ("/v1/chat/completions", "/v1/chat/completions"),
            ("/chat/completions", "/v1/chat/completions"),
            ("/models", "/v1/models"),
            ("/v1/v1/messages", "/v1/messages"),
            ("/v1/v1beta/models", "/v1beta/models"),
            ("/openai/v1/responses", "/v1/responses"),
            ("/models/m:generateContent", "/v1beta/models/m:generateContent"),
            ("/openai/deployments/m/chat/completions", "/openai/deployments/m/chat/completions"),
            ("/api/v1/keys", "/api/v1/keys"),
        ] {
            assert_eq!(read(rest), (path.to_owned(), None), "{rest}");
        }
    }

    #[test]
    fn the_provider_of_a_model_in_the_path_is_found() {
        let read_model = read("/v1beta/models/openai/gpt-4o:streamGenerateContent");
        assert_eq!(read_model, ("/v1beta/models/gpt-4o:streamGenerateContent".into(), Some("openai".into())));
        assert_eq!(read("/v1/models/openai/gpt-4o"), ("/v1/models/openai%2Fgpt-4o".into(), None));
        assert_eq!(read("/v1/models/a/b/c:8b"), ("/v1/models/a%2Fb%2Fc:8b".into(), None));
    }

    #[test]
    fn the_format_follows_the_path() {
        for (path, version, format) in [
            ("/v1/chat/completions", false, ClientFormat::OpenAiChat),
            ("/responses", false, ClientFormat::OpenAiResponses),
            ("/v1/messages", false, ClientFormat::Anthropic),
            ("/v1/messages/count_tokens", false, ClientFormat::Anthropic),
            ("/v1beta/models/m:generateContent", false, ClientFormat::Gemini),
            ("/v1beta/models", false, ClientFormat::Gemini),
            ("/v1/models", true, ClientFormat::Anthropic),
            ("/v1/models", false, ClientFormat::OpenAiChat),
        ] {
            assert_eq!(caller_format(path, version), format, "{path}");
        }
    }

    #[test]
    fn only_keys_of_the_gateway_are_found() {
        let key = format!("{}{}", crate::accounts::KEY_PREFIX, "0".repeat(64));
        let is_key = hash_key(&key).is_some();
        assert!(is_key);
        for value in [format!("Bearer {key}"), format!("bearer  {key} "), key.clone()] {
            assert_eq!(key_in(&value), Some(&*key), "{value}");
        }
        for value in ["Bearer sk-other", "", "Basic dXNlcjpwYXNz", "eyJhbGciOiJIUzI1NiJ9.e30.x"] {
            assert_eq!(key_in(value), None, "{value}");
        }
    }
}
