//! The provider inside the gateway. It is OpenAI-compatible, needs no account and is deterministic, so users can try
//! the gateway and test failures and retries without cost.
//!
//! The response echoes the last user text. Instead it may be the value of `X-Sandbox-Reply`, JSON that matches the
//! response format, or a call of the tool that the request forces. Four characters are a token, rounded up for each
//! text. Ids and times are derived from the request.

mod chat;
mod embed;
mod example;
mod request;
mod responses;

use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The listed models. Any other name is accepted too.
pub const MODELS: [&str; 3] = ["sandbox-small", "sandbox-large", "sandbox-embed"];

/// The usual length of an event of a stream.
const BYTES_PER_CHUNK: usize = 512;

/// The `X-Sandbox-*` headers of a request, not yet parsed.
#[derive(Debug, Clone, Copy, Default)]
pub struct SandboxDirectives<'a> {
    pub status: Option<&'a str>,
    pub delay_ms: Option<&'a str>,
    pub chunks: Option<&'a str>,
    pub reply: Option<&'a str>,
}

impl<'a> SandboxDirectives<'a> {
    pub fn from_headers(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut found = Self::default();
        for (name, value) in headers {
            let field = match () {
                () if name.eq_ignore_ascii_case("x-sandbox-status") => &mut found.status,
                () if name.eq_ignore_ascii_case("x-sandbox-delay-ms") => &mut found.delay_ms,
                () if name.eq_ignore_ascii_case("x-sandbox-chunks") => &mut found.chunks,
                () if name.eq_ignore_ascii_case("x-sandbox-reply") => &mut found.reply,
                () => continue,
            };
            *field = Some(value);
        }
        found
    }
}

/// The response to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxResponse {
    pub status: u16,
    pub content_type: &'static str,
    pub retry_after: Option<u64>,
    /// The wait before the first byte.
    pub delay: Duration,
    pub body: SandboxBody,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxBody {
    Json(Vec<u8>),
    /// Encoded server-sent events, in order.
    Events(Vec<Vec<u8>>),
}

/// Responds to a request. `path` has no query.
pub fn respond(method: &str, path: &str, directives: &SandboxDirectives<'_>, body: &[u8]) -> SandboxResponse {
    let parsed = match ParsedDirectives::parse(directives) {
        Ok(parsed) => parsed,
        Err(error) => return error.into_response(Duration::ZERO),
    };
    let result = match parsed.status {
        Some((status, retry_after)) => Err(SandboxError { retry_after, ..requested_error(status) }),
        None => route(method, path, &parsed, body),
    };
    match result {
        Ok(body) => SandboxResponse {
            status: 200,
            content_type: match &body {
                SandboxBody::Json(_) => "application/json",
                SandboxBody::Events(_) => "text/event-stream",
            },
            retry_after: None,
            delay: parsed.delay,
            body,
        },
        Err(error) => error.into_response(parsed.delay),
    }
}

/// About the length of the response, or more, from a glance at the request: it decides where the response is made and how
/// much memory is reserved for it meanwhile.
pub fn expected_response_bytes(path: &str, directives: &SandboxDirectives<'_>, body: &[u8]) -> usize {
    if path == "/v1/embeddings" {
        return embed::expected_bytes(body);
    }
    let chunks: usize = directives.chunks.and_then(|text| text.trim().parse().ok()).unwrap_or_default();
    let words = directives.reply.map_or(0, |reply| reply.matches(' ').count());
    chunks.max(words).min(request::MAX_CHUNKS) * BYTES_PER_CHUNK + BYTES_PER_CHUNK
}

fn route(
    method: &str,
    path: &str,
    directives: &ParsedDirectives<'_>,
    body: &[u8],
) -> Result<SandboxBody, SandboxError> {
    let seed = Seed::of(path, directives, body);
    match (method, path) {
        ("POST", "/v1/chat/completions") => chat::chat(&object(body)?, directives, &seed),
        ("POST", "/v1/completions") => chat::completions(&object(body)?, directives, &seed),
        ("POST", "/v1/responses") => responses::responses(&object(body)?, directives, &seed),
        ("POST", "/v1/embeddings") => embed::embeddings(&object(body)?),
        ("GET", "/v1/models") => {
            let data: Vec<Value> = MODELS.into_iter().map(model).collect();
            Ok(json_body(&json!({"object": "list", "data": data})))
        }
        ("GET", path) if path.starts_with("/v1/models/") => {
            let id = path.trim_start_matches("/v1/models/");
            match MODELS.into_iter().find(|name| *name == id) {
                Some(id) => Ok(json_body(&model(id))),
                None => Err(SandboxError {
                    status: 404,
                    param: Some("model"),
                    code: Some("model_not_found"),
                    ..SandboxError::new(format!("The model '{id}' does not exist in the sandbox."))
                }),
            }
        }
        _ => Err(SandboxError {
            status: 404,
            code: Some("unknown_url"),
            ..SandboxError::new(format!("The sandbox does not serve {method} {path}."))
        }),
    }
}

fn model(id: &str) -> Value {
    json!({"id": id, "object": "model", "created": 1_700_000_000, "owned_by": "sandbox"})
}

fn object(body: &[u8]) -> Result<Value, SandboxError> {
    match serde_json::from_slice(body) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(SandboxError::new("The body must be a JSON object.".to_owned())),
        Err(error) => Err(SandboxError::new(format!("The body could not be parsed as JSON: {error}"))),
    }
}

fn json_body(value: &Value) -> SandboxBody {
    SandboxBody::Json(value.to_string().into_bytes())
}

/// The parsed directives.
struct ParsedDirectives<'a> {
    status: Option<(u16, Option<u64>)>,
    delay: Duration,
    chunks: Option<usize>,
    reply: Option<&'a str>,
}

impl<'a> ParsedDirectives<'a> {
    fn parse(directives: &SandboxDirectives<'a>) -> Result<Self, SandboxError> {
        let bad = |header: &str, expected: &str| SandboxError::new(format!("{header} must be {expected}."));
        let number = |text: &str, min: u64, max: u64| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|number| digits && (min..=max).contains(number))
        };
        let status = match directives.status {
            None => None,
            Some(text) => {
                let (code, option) = text.split_once(';').unwrap_or((text, ""));
                let wait =
                    option.trim().strip_prefix("retry-after=").map(|wait| number(wait.trim(), 0, 86_400));
                let code = number(code.trim(), 400, 599).and_then(|code| u16::try_from(code).ok());
                match (code, wait) {
                    (Some(code), Some(Some(wait))) => Some((code, Some(wait))),
                    (Some(code), None) if option.trim().is_empty() => Some((code, None)),
                    _ => {
                        return Err(bad(
                            "X-Sandbox-Status",
                            "a status from 400 to 599, such as \"503\" or \"429;retry-after=2\"",
                        ));
                    }
                }
            }
        };
        let delay = match directives.delay_ms {
            None => 0,
            Some(text) => number(text.trim(), 0, 600_000)
                .ok_or_else(|| bad("X-Sandbox-Delay-Ms", "a number of milliseconds from 0 to 600000"))?,
        };
        let chunks = match directives.chunks {
            None => None,
            Some(text) => Some(
                number(text.trim(), 1, request::MAX_CHUNKS as u64)
                    .and_then(|count| usize::try_from(count).ok())
                    .ok_or_else(|| bad("X-Sandbox-Chunks", "a number from 1 to 10000"))?,
            ),
        };
        Ok(Self { status, delay: Duration::from_millis(delay), chunks, reply: directives.reply })
    }
}

/// An error in OpenAI's format.
struct SandboxError {
    status: u16,
    message: String,
    kind: &'static str,
    param: Option<&'static str>,
    code: Option<&'static str>,
    retry_after: Option<u64>,
}

impl SandboxError {
    fn new(message: String) -> Self {
        Self {
            status: 400,
            message,
            kind: "invalid_request_error",
            param: None,
            code: None,
            retry_after: None,
        }
    }

    fn field(param: &'static str, message: &str) -> Self {
        Self { param: Some(param), ..Self::new(message.to_owned()) }
    }

    fn into_response(self, delay: Duration) -> SandboxResponse {
        let Self { status, message, kind, param, code, retry_after } = self;
        let body =
            json_body(&json!({"error": {"message": message, "type": kind, "param": param, "code": code}}));
        SandboxResponse { status, content_type: "application/json", retry_after, delay, body }
    }
}

/// The error that `X-Sandbox-Status` requests.
fn requested_error(status: u16) -> SandboxError {
    let (kind, code) = match status {
        401 | 403 => ("authentication_error", "invalid_api_key"),
        404 => ("invalid_request_error", "not_found"),
        429 => ("rate_limit_error", "rate_limit_exceeded"),
        500.. => ("server_error", "server_error"),
        _ => ("invalid_request_error", "invalid_request"),
    };
    let message = format!("The status {status} was requested by X-Sandbox-Status.");
    SandboxError { status, kind, code: Some(code), ..SandboxError::new(message) }
}

/// The source of ids and times.
struct Seed {
    hex: String,
    created: u32,
}

impl Seed {
    fn of(path: &str, directives: &ParsedDirectives<'_>, body: &[u8]) -> Self {
        let mut hash = Sha256::new();
        for part in [path.as_bytes(), directives.reply.unwrap_or_default().as_bytes(), body] {
            hash.update(part);
            hash.update([0]);
        }
        let hash = hash.finalize();
        // A time in the year after November 2023.
        let created = 1_700_000_000 + u32::from_le_bytes([hash[28], hash[29], hash[30], 0]);
        Self { hex: hex::encode(&hash[..12]), created }
    }
}

/// Four characters are a token.
fn tokens(text: &str) -> usize {
    text.chars().count().div_ceil(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json_of(reply: &SandboxResponse) -> Value {
        let SandboxBody::Json(body) = &reply.body else { panic!("no JSON: {reply:?}") };
        serde_json::from_slice(body).unwrap()
    }

    fn with(header: &'static str, value: &'static str) -> SandboxResponse {
        let directives = SandboxDirectives::from_headers([(header, value)]);
        respond("POST", "/v1/chat/completions", &directives, br#"{"model":"m","messages":[]}"#)
    }

    #[test]
    fn the_status_directive_returns_that_error() {
        let reply = with("X-Sandbox-Status", "429;retry-after=2");
        assert_eq!((reply.status, reply.retry_after), (429, Some(2)));
        assert_eq!(json_of(&reply)["error"]["type"], "rate_limit_error");
        let reply = with("x-sandbox-status", "503");
        assert_eq!((reply.status, reply.retry_after), (503, None));
        assert_eq!(json_of(&reply)["error"]["type"], "server_error");
    }

    #[test]
    fn the_delay_is_returned_and_invalid_directives_name_their_header() {
        assert_eq!(with("X-Sandbox-Delay-Ms", "250").delay, Duration::from_millis(250));
        for (header, value) in [
            ("X-Sandbox-Status", "200"),
            ("X-Sandbox-Status", "600"),
            ("X-Sandbox-Status", "429;retry-after=x"),
            ("X-Sandbox-Status", "429;wait"),
            ("X-Sandbox-Delay-Ms", "-1"),
            ("X-Sandbox-Delay-Ms", "600001"),
            ("X-Sandbox-Chunks", "0"),
            ("X-Sandbox-Chunks", "+5"),
        ] {
            let reply = with(header, value);
            assert_eq!(reply.status, 400, "{header}: {value}");
            assert!(json_of(&reply)["error"]["message"].as_str().unwrap().contains(header), "{header}");
        }
    }

    #[test]
    fn models_are_listed_and_found() {
        let none = SandboxDirectives::default();
        let list = json_of(&respond("GET", "/v1/models", &none, b""));
        assert_eq!(list["data"][0]["id"], MODELS[0]);
        assert_eq!(list["data"].as_array().unwrap().len(), 3);
        assert_eq!(json_of(&respond("GET", "/v1/models/sandbox-embed", &none, b""))["object"], "model");
        let missing = respond("GET", "/v1/models/gpt", &none, b"");
        assert_eq!((missing.status, &json_of(&missing)["error"]["code"]), (404, &json!("model_not_found")));
    }

    #[test]
    fn unknown_paths_and_invalid_bodies_get_openai_errors() {
        let none = SandboxDirectives::default();
        for (method, path) in [("GET", "/v1/chat/completions"), ("POST", "/v1/images"), ("POST", "/")] {
            let reply = respond(method, path, &none, b"{}");
            assert_eq!(
                (reply.status, &json_of(&reply)["error"]["type"]),
                (404, &json!("invalid_request_error"))
            );
        }
        for path in ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"] {
            for body in [
                "",
                "{",
                "[]",
                "null",
                "{}",
                r#"{"model":1}"#,
                r#"{"model":"m"}"#,
                r#"{"model":"m","messages":3,"input":3,"prompt":3}"#,
            ] {
                let reply = respond("POST", path, &none, body.as_bytes());
                assert_eq!(reply.status, 400, "{path} {body}");
                assert!(json_of(&reply)["error"]["message"].is_string());
            }
        }
    }
}
