//! Facts about the client of a request: its address, and the request id that it sent.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const MAX_REQUEST_ID_BYTES: usize = 128;

/// Returns the request id of the client if it is valid.
pub fn given_request_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_valid = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        (1..=MAX_REQUEST_ID_BYTES).contains(&bytes.len())
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':'))
    };
    headers.get(REQUEST_ID).filter(is_valid).cloned()
}

/// Returns the address of the peer. If the peer is a trusted proxy, returns the last address in X-Forwarded-For that is
/// not a trusted proxy.
pub fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: &IpAddr| is_trusted(*address, trusted);
    if !is_trusted(&peer) {
        return peer;
    }
    let forwarded = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    let addresses: Vec<&str> = forwarded.flat_map(|value| value.split(',')).map(str::trim).collect();
    let mut client = peer;
    for address in addresses.iter().rev() {
        let Ok(address) = address.parse::<IpAddr>() else { break };
        // A proxy that listens for both versions of IP writes an IPv4 address as one of IPv6.
        let address = address.to_canonical();
        client = address;
        if !is_trusted(&address) {
            break;
        }
    }
    client
}

/// Whether a proxy in front of the gateway is not configured: then all its clients share the limits of its address.
pub fn is_unknown_proxy(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> bool {
    headers.contains_key("x-forwarded-for") && !is_trusted(peer, trusted)
}

fn is_trusted(address: IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|network| network.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(
            HeaderName::from_static("x-forwarded-for"),
            HeaderValue::from_str(value).unwrap(),
        )])
    }

    #[test]
    fn only_a_trusted_proxy_is_believed_about_the_client() {
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        let client = |peer: &str, value: &str| {
            client_address(peer.parse().unwrap(), &forwarded(value), &trusted).to_string()
        };
        assert_eq!(client("192.0.2.9", "198.51.100.1"), "192.0.2.9");
        assert_eq!(client("10.0.0.1", "198.51.100.1"), "198.51.100.1");
        assert_eq!(client("10.0.0.1", "203.0.113.7, 198.51.100.1, 10.0.0.2"), "198.51.100.1");
        assert_eq!(client("10.0.0.1", "junk"), "10.0.0.1");
        assert_eq!(client("10.0.0.1", "198.51.100.1, junk"), "10.0.0.1");
        assert_eq!(client("10.0.0.1", "::ffff:198.51.100.1, ::ffff:10.0.0.2"), "198.51.100.1");
    }

    #[test]
    fn only_a_peer_that_forwards_without_trust_is_an_unknown_proxy() {
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        let is_unknown =
            |peer: &str, headers: &HeaderMap| is_unknown_proxy(peer.parse().unwrap(), headers, &trusted);
        assert!(is_unknown("192.0.2.9", &forwarded("198.51.100.1")));
        assert!(!is_unknown("192.0.2.9", &HeaderMap::new()));
        assert!(!is_unknown("10.0.0.1", &forwarded("198.51.100.1")));
    }

    #[test]
    fn a_request_id_is_kept_only_if_it_is_valid() {
        let with = |value: &str| {
            given_request_id(&HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_str(value).unwrap())]))
        };
        assert_eq!(with("abc-1").unwrap(), "abc-1");
        assert_eq!(with("a b"), None);
        assert_eq!(with(&"x".repeat(200)), None);
    }
}
