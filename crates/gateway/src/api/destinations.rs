//! Checks of destinations that an organization configures: URLs and headers.

use std::collections::BTreeMap;

const MAX_URL_BYTES: usize = 2_000;
const MAX_HEADERS: usize = 32;
const MAX_HEADER_BYTES: usize = 8_192;
/// Headers of the connection, and headers that the gateway sets.
const RESERVED_HEADERS: [&str; 12] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "proxy-authorization",
];

/// Accepts http and https URLs with a host. A password is rejected, because the URL is returned to every reader.
pub fn check_url(text: &str) -> Result<(), &'static str> {
    let invalid = "must be an http or https URL with a host, such as https://example.com/hook";
    let url = url::Url::parse(text).map_err(|_| invalid)?;
    let sendable = url.as_str().parse::<http::Uri>().is_ok_and(|uri| uri.authority().is_some());
    let plain =
        matches!(url.scheme(), "http" | "https") && url.host_str().is_some_and(|host| !host.is_empty());
    // The parser accepts missing or extra slashes and then takes a part of the path as the host.
    let well_formed = text.split_once("://").is_some_and(|(_, rest)| !rest.starts_with(['/', '\\']));
    if !(plain && sendable && well_formed && text.len() <= MAX_URL_BYTES && text.trim() == text) {
        Err(invalid)
    } else if !url.username().is_empty() || url.password().is_some() {
        Err("must not contain a user name or password; send credentials in a header")
    } else {
        Ok(())
    }
}

/// Checks headers that are sent with every delivery.
pub fn check_headers(headers: &BTreeMap<String, String>) -> Result<(), String> {
    if headers.len() > MAX_HEADERS {
        return Err(format!("must have at most {MAX_HEADERS} headers"));
    }
    for (name, value) in headers {
        let lower = name.to_ascii_lowercase();
        if http::HeaderName::try_from(name.as_str()).is_err() {
            return Err(format!("invalid header name '{}'", name.escape_debug()));
        }
        if value.len() > MAX_HEADER_BYTES || http::HeaderValue::from_str(value).is_err() {
            return Err(format!(
                "invalid value of header '{name}': must be at most {MAX_HEADER_BYTES} bytes without control characters"
            ));
        }
        if RESERVED_HEADERS.contains(&lower.as_str()) || lower.starts_with("webhook-") {
            return Err(format!("header '{name}' is reserved and cannot be set"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_that_can_be_called_are_accepted() {
        for good in
            ["http://127.0.0.1:9", "https://example.com/a/b?c=d", "http://[::1]:80/x", "HTTPS://EXAMPLE.com"]
        {
            assert!(check_url(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "example.com",
            "ftp://example.com",
            "http://",
            "http:///path",
            "http:example.com",
            " http://example.com",
            "https://user:secret@example.com",
            "javascript:alert(1)",
            "http://exa mple.com",
        ] {
            assert!(check_url(bad).is_err(), "{bad}");
        }
        assert!(check_url(&format!("http://example.com/{}", "x".repeat(2_000))).is_err());
    }

    #[test]
    fn reserved_headers_cannot_be_set() {
        let check =
            |name: &str, value: &str| check_headers(&BTreeMap::from([(name.to_owned(), value.to_owned())]));
        assert!(check("Authorization", "Bearer x").is_ok());
        for (name, value) in [
            ("Host", "x"),
            ("webhook-signature", "v1,x"),
            ("bad name", "x"),
            ("x", "a\r\nb: c"),
            ("Content-Type", "x"),
        ] {
            assert!(check(name, value).is_err(), "{name}");
        }
    }
}
