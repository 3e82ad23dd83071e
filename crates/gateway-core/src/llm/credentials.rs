//! Where requests carry credentials besides the well-known headers. A credential is meant for one provider, so a target
//! that the caller did not name gets a request without any: query parameters are removed if they are known to be
//! credentials, and headers unless they are known to describe the request.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Query parameters in lower case.
const CREDENTIAL_PARAMETERS: [&str; 30] = [
    "key",
    "api_key",
    "api-key",
    "apikey",
    "x-api-key",
    "x-goog-api-key",
    "subscription-key",
    "access_token",
    "access_key",
    "auth",
    "auth_token",
    "authorization",
    "bearer",
    "bearer_token",
    "client_secret",
    "code",
    "id_token",
    "jwt",
    "oauth_token",
    "password",
    "refresh_token",
    "secret",
    "sig",
    "signature",
    "token",
    "x-amz-credential",
    "x-amz-security-token",
    "x-amz-signature",
    "x-goog-credential",
    "x-goog-signature",
];

/// Headers in lower case that describe the request and are the same for every provider.
const NEUTRAL_HEADERS: [&str; 15] = [
    "accept",
    "accept-language",
    "anthropic-beta",
    "anthropic-version",
    "content-encoding",
    "content-language",
    "content-type",
    "idempotency-key",
    "openai-beta",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-client-request-id",
    "x-idempotency-key",
    "x-request-id",
];

/// Guardrails that the caller selects must not be lost.
const NEUTRAL_HEADER_PREFIX: &str = "x-amzn-bedrock-";

/// Returns true if a query parameter with this name is a credential or part of one.
pub fn is_credential_parameter(name: &str) -> bool {
    let decoded = percent_decode_str(name).decode_utf8_lossy();
    let name = decoded.trim();
    CREDENTIAL_PARAMETERS.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Returns true if a request header (name in lower case) may be sent to a target that the caller did not name.
pub fn is_neutral_header(name: &str) -> bool {
    NEUTRAL_HEADERS.contains(&name) || name.starts_with(NEUTRAL_HEADER_PREFIX)
}

/// Removes the query parameters that are credentials. The others keep their order and their bytes.
pub fn without_credential_parameters(path_and_query: &str) -> Cow<'_, str> {
    let Some((path, query)) = path_and_query.split_once('?') else { return path_and_query.into() };
    let is_kept = |pair: &&str| !is_credential_parameter(parameter_name(pair));
    if query.split('&').all(|pair| is_kept(&pair)) {
        return path_and_query.into();
    }
    let kept: Vec<&str> = query.split('&').filter(is_kept).collect();
    if kept.is_empty() { path.into() } else { format!("{path}?{}", kept.join("&")).into() }
}

/// The decoded value of the first query parameter with this name. None if it is absent or empty.
pub fn find_parameter<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    let value = query.split('&').find_map(|pair| {
        let (given, value) = pair.split_once('=')?;
        (given == name && !value.is_empty()).then_some(value)
    })?;
    percent_decode_str(value).decode_utf8().ok()
}

fn parameter_name(pair: &str) -> &str {
    pair.split('=').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_removed_from_the_query_and_the_rest_keeps_its_bytes() {
        for (given, expected) in [
            ("/v1/x", "/v1/x"),
            ("/v1/x?", "/v1/x?"),
            ("/v1/x?a=%20b&&c", "/v1/x?a=%20b&&c"),
            ("/v1/x?key=1", "/v1/x"),
            ("/v1/x?Key=1&a=2", "/v1/x?a=2"),
            ("/v1/x?a=1&%6bey=2&b=%2F", "/v1/x?a=1&b=%2F"),
            ("/v1/x?a=key&monkey=1&keys=2&page_token=3", "/v1/x?a=key&monkey=1&keys=2&page_token=3"),
            ("/v1/x?access_token&sig=a=b&X-Goog-Signature=c", "/v1/x"),
        ] {
            assert_eq!(without_credential_parameters(given), expected, "{given}");
        }
    }

    #[test]
    fn every_listed_parameter_is_recognized_in_any_case() {
        for name in CREDENTIAL_PARAMETERS {
            assert!(is_credential_parameter(name) && is_credential_parameter(&name.to_ascii_uppercase()));
        }
        assert!(
            ["alt", "api-version", "purpose", "pagetoken", ""]
                .iter()
                .all(|name| !is_credential_parameter(name))
        );
    }

    #[test]
    fn only_headers_that_describe_the_request_are_neutral() {
        for name in ["accept", "content-type", "anthropic-version", "x-amzn-bedrock-trace"] {
            assert!(is_neutral_header(name), "{name}");
        }
        for name in ["authorization", "x-amz-security-token", "openai-organization", "cookie", "x-my-token"] {
            assert!(!is_neutral_header(name), "{name}");
        }
    }

    #[test]
    fn a_parameter_is_found_by_its_name_and_decoded() {
        let query = "a=1&key=&keys=2&key=AIza%2Dx&key=other";
        assert_eq!(find_parameter(query, "key").as_deref(), Some("AIza-x"));
        assert_eq!(find_parameter(query, "b"), None);
        assert_eq!(find_parameter("key", "key"), None);
    }
}
