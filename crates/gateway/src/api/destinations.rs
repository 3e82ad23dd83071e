//! Addresses and headers of receivers that an organization chooses.

use std::collections::BTreeMap;

const MAX_URL: usize = 2_000;
const MAX_HEADERS: usize = 32;
const MAX_HEADER_BYTES: usize = 8_192;
/// Names that belong to the connection, or that we set ourselves.
const RESERVED: [&str; 12] = [
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

/// http or https, with a host, and without a password that would be shown to every reader.
pub fn check_url(text: &str) -> Result<(), &'static str> {
    let wrong = "must be an http or https URL with a host, such as https://example.com/hook";
    let url = url::Url::parse(text).map_err(|_| wrong)?;
    let sendable = url.as_str().parse::<http::Uri>().is_ok_and(|uri| uri.authority().is_some());
    let plain =
        matches!(url.scheme(), "http" | "https") && url.host_str().is_some_and(|host| !host.is_empty());
    // The parser forgives slashes that are missing or too many, and then takes a path for the host.
    let well_formed = text.split_once("://").is_some_and(|(_, rest)| !rest.starts_with(['/', '\\']));
    if !(plain && sendable && well_formed && text.len() <= MAX_URL && text.trim() == text) {
        Err(wrong)
    } else if !url.username().is_empty() || url.password().is_some() {
        Err("must not hold a user name or password; use a header for them")
    } else {
        Ok(())
    }
}

/// Headers that can be sent with every request.
pub fn check_headers(headers: &BTreeMap<String, String>) -> Result<(), String> {
    if headers.len() > MAX_HEADERS {
        return Err(format!("must be at most {MAX_HEADERS} headers"));
    }
    for (name, value) in headers {
        let lower = name.to_ascii_lowercase();
        if http::HeaderName::try_from(name.as_str()).is_err() {
            return Err(format!("'{}' is no name of a header", name.escape_debug()));
        }
        if value.len() > MAX_HEADER_BYTES || http::HeaderValue::from_str(value).is_err() {
            return Err(format!("the value of '{name}' cannot be sent"));
        }
        if RESERVED.contains(&lower.as_str()) || lower.starts_with("webhook-") {
            return Err(format!("'{name}' cannot be set: it belongs to the connection or to the delivery"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_can_be_called_are_taken() {
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
    fn headers_of_the_connection_or_of_the_delivery_cannot_be_set() {
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
