//! Requests below `/sdk`, of clients that know only a base URL and a key. The key is taken from where they put it, and
//! the path and the headers become those of an ordinary request with `X-Gateway-Provider: auto`.

use gateway_core::llm::ClientFormat;
use gateway_core::llm::paths::RequestPath;
use gateway_core::llm::sdk::{KEY_HEADERS, below, caller_format, key_in, read_path};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri};

use super::directives::FORMAT;
use super::headers::PROVIDER;
use super::plan::AUTO;
use crate::auth::KEY_HEADER;
use crate::problem::{ApiResult, Problem};

/// Marks a request below `/sdk`, in its extensions.
#[derive(Clone, Copy)]
pub struct SdkRequest;

/// The format of a caller below `/sdk`. None for any other request.
pub fn format_of<B>(request: &Request<B>) -> Option<ClientFormat> {
    let rest = below(request.uri().path())?;
    Some(caller_format(rest, request.headers().contains_key("anthropic-version")))
}

/// Rewrites a request below `/sdk`; others stay as they are. On an error the key has been taken, if there is one.
pub fn enter<B>(request: &mut Request<B>) -> ApiResult<()> {
    let Some(rest) = below(request.uri().path()) else { return Ok(()) };
    let read = Some(rest).filter(|rest| !rest.trim_matches('/').is_empty()).map(read_path);
    // First of all, because other errors are only for callers with a key.
    take_key(request.headers_mut())?;
    let read = read.ok_or_else(base_path)?;
    let format = RequestPath::parse(&read.path).client_format();
    let path = match request.uri().query() {
        Some(query) => format!("{}?{query}", read.path),
        None => read.path,
    };
    *request.uri_mut() = path.parse::<Uri>().map_err(|_| Problem::bad_request("the path is invalid"))?;
    let headers = request.headers_mut();
    let provider = match read.provider {
        Some(name) => HeaderValue::try_from(name)
            .map_err(|_| Problem::bad_request("the provider in the path is invalid"))?,
        None => HeaderValue::from_static(AUTO),
    };
    headers.entry(PROVIDER).or_insert(provider);
    if let Some(format) = format {
        // A provider that the caller names must answer in the caller's format too.
        headers.entry(FORMAT).or_insert(HeaderValue::from_static(format.as_str()));
    }
    request.extensions_mut().insert(SdkRequest);
    Ok(())
}

/// Moves the gateway's key to its own header. Other credentials stay, for the provider.
fn take_key(headers: &mut HeaderMap) -> ApiResult<()> {
    let mut found: Option<String> = None;
    let mut is_repeated = false;
    for name in KEY_HEADERS {
        let values = || headers.get_all(name).iter();
        is_repeated |= values().nth(1).is_some();
        let mut keys = values().filter_map(|value| key_in(value.to_str().ok()?));
        if let Some(key) = keys.next().map(str::to_owned) {
            headers.remove(name);
            is_repeated |= found.as_ref().is_some_and(|other| *other != key);
            found.get_or_insert(key);
        }
    }
    if is_repeated {
        return Err(repeated_key());
    }
    if headers.contains_key(KEY_HEADER) {
        return Ok(());
    }
    let key = found.and_then(|key| HeaderValue::try_from(key).ok()).ok_or_else(no_key)?;
    headers.insert(HeaderName::from_static(KEY_HEADER), key);
    Ok(())
}

/// A proxy in front may have checked the other one.
pub(super) fn repeated_key() -> Problem {
    Problem::unauthorized(
        "send one API key: two different ones, or a header with a key that is given twice, are refused",
    )
}

fn no_key() -> Problem {
    Problem::unauthorized(
        "send a gateway key (sk-gateway-…) as the API key of your client; other credentials and session tokens are not \
         accepted below /sdk",
    )
}

fn base_path() -> Problem {
    let message = "this is a base path: OpenAI's clients use /sdk/v1 as the base URL, Anthropic's and Google's use /sdk";
    Problem::new(StatusCode::NOT_FOUND, "not_found", message)
}
