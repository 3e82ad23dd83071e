//! Checks of the fields of a provider.

use std::collections::BTreeMap;

use gateway_core::llm::providers::{all, builtin};
use gateway_store::providers::ApiKey;

use super::NewApiKey;
use crate::problem::{ApiResult, Problem};
use crate::targets::BaseUrl;

const MAX_HEADERS: usize = 32;
const MAX_MODELS: usize = 1_000;
const MAX_API_KEYS: usize = 50;

pub(super) fn check_provider_name(name: &str) -> Result<(), &'static str> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let fits = matches!(name.as_bytes(), [first, rest @ ..]
        if plain(*first) && rest.len() <= 63 && rest.iter().all(|b| plain(*b) || matches!(b, b'-' | b'_')));
    if !fits {
        Err("must be 1 to 64 lowercase letters, digits, '-' or '_', starting with a letter or digit")
    } else if name == "auto" {
        Err("'auto' is reserved")
    } else {
        Ok(())
    }
}

/// The kind of a provider: its own name for a built-in one, otherwise the given kind.
pub(super) fn checked_kind(name: &str, kind: Option<String>) -> ApiResult<String> {
    let known = || all().iter().map(|provider| provider.name).collect::<Vec<_>>().join(", ");
    match (builtin(name), kind) {
        (Some(_), None) => Ok(name.to_owned()),
        (Some(_), Some(kind)) if kind == name => Ok(kind),
        (Some(_), Some(_)) => Err(Problem::field(
            "kind",
            "the kind of a built-in provider cannot be changed; choose another name",
        )),
        (None, Some(kind)) if builtin(&kind).is_some() => Ok(kind),
        (None, Some(_)) => Err(Problem::field("kind", format!("must be one of {}", known()))),
        (None, None) => {
            Err(Problem::field("kind", format!("is required for a custom provider: one of {}", known())))
        }
    }
}

/// Accepts http and https URLs with a host and without credentials, query or fragment.
pub(super) fn checked_base_url(text: &str) -> ApiResult<String> {
    let invalid = || Problem::field("base_url", "must be a URL such as https://api.example.com");
    let url = url::Url::parse(text).map_err(|_| invalid())?;
    let plain = matches!(url.scheme(), "http" | "https")
        && url.host().is_some()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none()
        && text.len() <= 2_000;
    let text = url.as_str().trim_end_matches('/');
    if plain && BaseUrl::parse(text).is_some() { Ok(text.to_owned()) } else { Err(invalid()) }
}

/// Accepts an empty prefix, and segments such as `/v2` or `/api/v3`.
pub(super) fn check_path_prefix(text: &str) -> ApiResult<()> {
    let is_segment = |segment: &str| {
        !segment.is_empty()
            && !matches!(segment, "." | "..")
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
    };
    let is_path = text.strip_prefix('/').is_some_and(|path| path.split('/').all(is_segment));
    if text.is_empty() || (is_path && text.len() <= 200) {
        Ok(())
    } else {
        Err(Problem::field("path_prefix", "must be empty or a path such as /v2, without a slash at its end"))
    }
}

pub(super) fn check_models(models: &[String]) -> ApiResult<()> {
    let invalid =
        |model: &String| model.is_empty() || model.len() > 200 || model.chars().any(char::is_control);
    if models.len() > MAX_MODELS || models.iter().any(invalid) {
        let why = format!("must be at most {MAX_MODELS} names of 1 to 200 characters");
        return Err(Problem::field("models", why));
    }
    Ok(())
}

pub(super) fn check_secret(key: &str) -> ApiResult<()> {
    let sendable = http::HeaderValue::from_str(key).is_ok_and(|value| value.to_str().is_ok());
    if !key.trim().is_empty() && key.len() <= 8_192 && sendable {
        Ok(())
    } else {
        Err(Problem::field("api_key", "must be 1 to 8192 printable ASCII characters"))
    }
}

/// Checks a new set of credentials, except that an entry without a key needs a stored one.
pub(super) fn check_api_keys(given: &[NewApiKey]) -> ApiResult<()> {
    let invalid = |why: String| Err(Problem::field("api_keys", why));
    if given.len() > MAX_API_KEYS {
        return invalid(format!("must have at most {MAX_API_KEYS} entries"));
    }
    for (index, NewApiKey { label, api_key, weight }) in given.iter().enumerate() {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !(1..=64).contains(&label.len()) || !label.chars().all(plain) {
            return invalid("each label must be 1 to 64 letters, digits, '-', '_' or '.'".into());
        }
        if !(1..=1_000).contains(&weight.unwrap_or(1)) {
            return invalid(format!("the weight of '{label}' must be between 1 and 1000"));
        }
        if given[..index].iter().any(|other| other.label == *label) {
            return invalid(format!("duplicate label '{label}'"));
        }
        if let Some(key) = api_key {
            check_secret(key)?;
        }
    }
    Ok(())
}

/// The set of credentials as it is stored. An entry without a key keeps the stored key of its label.
pub(super) fn sealed_api_keys(
    given: Vec<NewApiKey>,
    stored: &[ApiKey],
    seal: impl Fn(&str, &str) -> ApiResult<String>,
) -> ApiResult<Vec<ApiKey>> {
    let mut api_keys: Vec<ApiKey> = Vec::with_capacity(given.len());
    for NewApiKey { label, api_key, weight } in given {
        let sealed = if let Some(key) = api_key {
            seal(&label, &key)?
        } else {
            let stored = stored.iter().find(|stored| stored.label == label).ok_or_else(|| {
                let why =
                    format!("api_key is required for the label '{label}': none is stored for this origin");
                Problem::field("api_keys", why)
            })?;
            stored.sealed.clone()
        };
        api_keys.push(ApiKey { label, weight: weight.unwrap_or(1), sealed });
    }
    Ok(api_keys)
}

pub(super) fn check_headers(headers: &BTreeMap<String, String>) -> ApiResult<()> {
    let sendable = |(name, value): (&String, &String)| {
        http::HeaderName::try_from(name.as_str()).is_ok() && http::HeaderValue::from_str(value).is_ok()
    };
    if headers.len() > MAX_HEADERS || !headers.iter().all(sendable) {
        return Err(Problem::field("headers", format!("must be at most {MAX_HEADERS} valid HTTP headers")));
    }
    if let Some(name) = headers.keys().find(|name| is_reserved(&name.to_ascii_lowercase())) {
        return Err(Problem::field("headers", format!("header '{name}' is reserved and cannot be set")));
    }
    Ok(())
}

/// Headers that would change the framing or the routing of a request.
fn is_reserved(name: &str) -> bool {
    const RESERVED: [&str; 9] = [
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    RESERVED.contains(&name) || name.starts_with("x-gateway-") || name.starts_with("proxy-")
}
