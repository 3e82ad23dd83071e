//! AWS Signature Version 4 for services other than S3, as a pure function of the request and the time. Sign last: any
//! later change to the path, the query, a signed header or the body invalidates the signature.

use std::collections::BTreeMap;
use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sha2::{Digest, Sha256};

/// The characters that AWS percent-encodes: all except letters, digits and these four.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub access_key: String,
    pub secret_key: String,
    pub session_token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Parses `access_key:secret_key` or `access_key:secret_key:session_token`, the form in which a key pair is stored
    /// as one credential. Returns `None` for anything else, which is a Bedrock API key to be sent as a bearer token.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().splitn(3, ':');
        let access_key = parts.next()?;
        let secret_key = parts.next()?;
        let long_enough =
            access_key.len() >= 16 && access_key.bytes().all(|byte| byte.is_ascii_alphanumeric());
        (long_enough && !secret_key.is_empty()).then(|| Self {
            access_key: access_key.to_owned(),
            secret_key: secret_key.to_owned(),
            session_token: parts.next().filter(|token| !token.is_empty()).map(str::to_owned),
        })
    }
}

/// The request to sign, exactly as it will be sent.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub method: &'a str,
    /// Percent-encoded, as in the request line.
    pub path: &'a str,
    /// Without the question mark; empty if there is no query.
    pub query: &'a str,
    /// The headers to sign. `host` is required; `content-type` should be included.
    pub headers: &'a [(&'a str, &'a str)],
    /// SHA-256 of the body, in hex.
    pub body_sha256: &'a str,
}

#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    pub region: &'a str,
    pub service: &'a str,
}

/// The headers to add to the request: `x-amz-date`, `x-amz-security-token` for temporary credentials, and
/// `authorization`.
pub fn sign(
    request: &Request<'_>,
    keys: &Credentials,
    scope: Scope<'_>,
    at: Timestamp,
) -> Vec<(&'static str, String)> {
    let time = at.strftime("%Y%m%dT%H%M%SZ").to_string();
    let date = time.get(..8).unwrap_or_default();
    let mut added = vec![("x-amz-date", time.clone())];
    if let Some(token) = &keys.session_token {
        added.push(("x-amz-security-token", token.clone()));
    }
    let (canonical, signed_headers) = canonical_request(request, &added);
    let scope_text = format!("{date}/{}/{}/aws4_request", scope.region, scope.service);
    let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope_text}\n{}", hex_sha256(canonical.as_bytes()));
    let secret = format!("AWS4{}", keys.secret_key);
    let key = [date, scope.region, scope.service, "aws4_request"]
        .iter()
        .fold(secret.into_bytes(), |key, part| hmac(&key, part.as_bytes()));
    let signature = hex::encode(hmac(&key, to_sign.as_bytes()));
    let credential = format!("{}/{scope_text}", keys.access_key);
    let parts = format!("Credential={credential}, SignedHeaders={signed_headers}, Signature={signature}");
    added.push(("authorization", format!("AWS4-HMAC-SHA256 {parts}")));
    added
}

/// SHA-256 in hex, for `Request::body_sha256`.
pub fn hex_sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// The region in a host such as `bedrock-runtime.eu-west-1.amazonaws.com`.
pub fn region_of_host(host: &str) -> Option<&str> {
    let mut labels = host.split('.').rev().skip_while(|label| *label != "amazonaws").skip(1);
    labels.find(|label| label.contains('-') && label.ends_with(|c: char| c.is_ascii_digit()))
}

fn canonical_request(request: &Request<'_>, added: &[(&'static str, String)]) -> (String, String) {
    // An added header replaces the caller's header of that name, so only the added one is signed.
    let is_ours = |name: &str| added.iter().any(|(ours, _)| name.trim().eq_ignore_ascii_case(ours));
    let theirs = request.headers.iter().copied().filter(|(name, _)| !is_ours(name));
    let ours = added.iter().map(|(name, value)| (*name, value.as_str()));
    let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in theirs.chain(ours) {
        let value = value.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        headers.entry(name.trim().to_ascii_lowercase()).or_default().push(value);
    }
    let signed = headers.keys().map(String::as_str).collect::<Vec<_>>().join(";");
    let mut lines = String::new();
    for (name, values) in &headers {
        lines.extend([name, ":", &values.join(","), "\n"]);
    }
    let (method, body) = (request.method, request.body_sha256);
    let (path, query) = (canonical_path(request.path), canonical_query(request.query));
    (format!("{method}\n{path}\n{query}\n{lines}\n{signed}\n{body}"), signed)
}

/// For services other than S3 the path is normalized and encoded a second time: the `%3A` of a model id is signed as
/// `%253A`.
fn canonical_path(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            _ => kept.push(segment),
        }
    }
    let mut canonical = String::new();
    for segment in &kept {
        canonical.push('/');
        canonical.extend(utf8_percent_encode(segment, ENCODED));
    }
    if kept.is_empty() || path.ends_with('/') {
        canonical.push('/');
    }
    canonical
}

fn canonical_query(query: &str) -> String {
    let encode = |text: &str| {
        let decoded: Vec<u8> = percent_decode_str(text).collect();
        percent_encoding::percent_encode(&decoded, ENCODED).to_string()
    };
    let mut pairs: Vec<(String, String)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (encode(name), encode(value)))
        .collect();
    pairs.sort();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    // HMAC accepts keys of any length, so this cannot fail; an empty result would only fail verification.
    Hmac::<Sha256>::new_from_slice(key)
        .map(|mut mac| {
            mac.update(message);
            mac.finalize().into_bytes().to_vec()
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOKEN: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";

    fn keys(token: Option<&str>) -> Credentials {
        Credentials {
            access_key: "AKIDEXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            session_token: token.map(str::to_owned),
        }
    }

    /// Signs `request` with the test suite's host header added, and returns the `authorization` header.
    fn authorization(request: Request<'_>, token: Option<&str>, service: &str) -> String {
        let mut headers = vec![("Host", "example.amazonaws.com")];
        headers.extend(request.headers);
        let request = Request { headers: &headers, ..request };
        let at = "2015-08-30T12:36:00Z".parse().unwrap();
        let mut added = sign(&request, &keys(token), Scope { region: "us-east-1", service }, at);
        assert_eq!(added[0], ("x-amz-date", "20150830T123600Z".to_owned()));
        added.pop().unwrap().1
    }

    #[test]
    fn the_vectors_of_the_aws_test_suite_hold() {
        let form = [("Content-Type", "application/x-www-form-urlencoded")];
        let trim = [("My-Header1", " value1"), ("My-Header2", " \"a   b   c\"")];
        for (name, method, path, query, headers, body, token, signed, signature) in [
            (
                "get-vanilla",
                "GET",
                "/",
                "",
                &[][..],
                "",
                None,
                "host;x-amz-date",
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "get-slashes",
                "GET",
                "//",
                "",
                &[],
                "",
                None,
                "host;x-amz-date",
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "get-relative",
                "GET",
                "/example/..",
                "",
                &[],
                "",
                None,
                "host;x-amz-date",
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "post-vanilla",
                "POST",
                "/",
                "",
                &[],
                "",
                None,
                "host;x-amz-date",
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                "get-vanilla-query-order-key-case",
                "GET",
                "/",
                "Param2=value2&Param1=value1",
                &[],
                "",
                None,
                "host;x-amz-date",
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            (
                "get-vanilla-utf8-query",
                "GET",
                "/",
                "\u{1234}=bar",
                &[],
                "",
                None,
                "host;x-amz-date",
                "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04",
            ),
            (
                "get-unreserved",
                "GET",
                "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
                "",
                &[],
                "",
                None,
                "host;x-amz-date",
                "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
            ),
            (
                "get-header-value-trim",
                "GET",
                "/",
                "",
                &trim,
                "",
                None,
                "host;my-header1;my-header2;x-amz-date",
                "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
            ),
            (
                "post-x-www-form-urlencoded",
                "POST",
                "/",
                "",
                &form,
                "Param1=value1",
                None,
                "content-type;host;x-amz-date",
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
            (
                "post-sts-header-before",
                "POST",
                "/",
                "",
                &[],
                "",
                Some(TOKEN),
                "host;x-amz-date;x-amz-security-token",
                "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
            ),
        ] {
            let expected = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders={signed}, Signature={signature}"
            );
            let body_sha256 = &hex_sha256(body.as_bytes());
            let request = Request { method, path, query, headers, body_sha256 };
            assert_eq!(authorization(request, token, "service"), expected, "{name}");
        }
    }

    #[test]
    fn a_bedrock_model_with_a_colon_is_signed_doubly_encoded() {
        assert_eq!(
            canonical_path("/model/amazon.nova-v1%3A0/converse"),
            "/model/amazon.nova-v1%253A0/converse"
        );
        assert_eq!(canonical_path("/model/amazon.nova-v1:0/converse"), "/model/amazon.nova-v1%3A0/converse");
        assert_eq!(canonical_path("/a%2Fb/"), "/a%252Fb/");
        // A stale date among the headers to sign is replaced, not signed in addition to the new one.
        let json = [("Content-Type", "application/json"), ("X-Amz-Date", "20000101T000000Z")];
        let request = Request {
            method: "POST",
            path: "/model/amazon.nova-v1%3A0/converse",
            query: "",
            headers: &json,
            body_sha256: &hex_sha256(b"{}"),
        };
        let header = authorization(request, None, "bedrock");
        assert_eq!(
            header.rsplit('=').next(),
            Some("4738ce01763d10d506b883b0fa8af4ef6e2c3a1d51c5ee1204157c0172d95241")
        );
    }

    #[test]
    fn key_pairs_are_distinguished_from_api_keys_and_never_printed() {
        let pair = Credentials::parse("AKIAIOSFODNN7EXAMPLE:secret/+x:tok==").unwrap();
        assert_eq!((&*pair.secret_key, pair.session_token.as_deref()), ("secret/+x", Some("tok==")));
        assert_eq!(Credentials::parse("AKIAIOSFODNN7EXAMPLE:s").unwrap().session_token, None);
        assert_eq!(Credentials::parse("ABSKQmVkcm9ja0FQSUtleS1hYmM="), None);
        assert_eq!(Credentials::parse("AKIAIOSFODNN7EXAMPLE:"), None);
        assert!(!format!("{pair:?}").contains("secret/"));
    }

    #[test]
    fn the_region_is_parsed_from_the_host() {
        assert_eq!(region_of_host("bedrock-runtime.us-east-1.amazonaws.com"), Some("us-east-1"));
        assert_eq!(region_of_host("bedrock-runtime.cn-north-1.amazonaws.com.cn"), Some("cn-north-1"));
        assert_eq!(region_of_host("vpce-1.bedrock-runtime.eu-west-3.vpce.amazonaws.com"), Some("eu-west-3"));
        assert_eq!(region_of_host("localhost"), None);
    }

    proptest! {
        #[test]
        fn any_request_can_be_signed(
            path in "(/|\\.|%|[a-z0-9]|é|:| ){0,40}", query in "(&|=|%|[a-f0-9]|é|\\+| ){0,40}", value in ".{0,20}",
        ) {
            let headers = [("X-Any", value.as_str())];
            let request = Request { method: "POST", path: &path, query: &query, headers: &headers, body_sha256: "" };
            let signed = authorization(request, None, "bedrock");
            prop_assert_eq!(signed.rsplit('=').next().map(str::len), Some(64));
            let canonical = canonical_query(&query);
            prop_assert_eq!(&canonical_query(&canonical), &canonical);
            let folded = canonical_path(&path);
            prop_assert!(folded.starts_with('/') && !folded.contains("//") && !folded.contains("/../"));
        }

        #[test]
        fn the_order_of_query_and_headers_does_not_matter(
            pairs in prop::collection::vec(("[a-c]{1,2}", "[a-z %]{0,3}"), 0..6).prop_shuffle(),
        ) {
            let signed = |pairs: &[(String, String)]| {
                let query: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
                authorization(
                    Request { method: "GET", path: "/", query: &query.join("&"), headers: &[], body_sha256: "" },
                    None,
                    "bedrock",
                )
            };
            let mut sorted = pairs.clone();
            sorted.sort();
            prop_assert_eq!(signed(&pairs), signed(&sorted));
        }
    }
}
