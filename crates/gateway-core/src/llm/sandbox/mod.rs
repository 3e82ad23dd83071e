//! The provider inside the gateway: OpenAI-compatible, needs no account, and answers the same to the same request,
//! so that people can try the gateway, rehearse failures and test their retry code without spending anything.
//!
//! The rules, all deterministic: the answer echoes the last user text (or is what `X-Sandbox-SandboxResponse` says, or
//! JSON that fits the response format, or a call of the tool that the request forces). Four characters are a
//! token, rounded up for each text. Ids and times are derived from the request.

mod chat;
mod embed;
mod example;
mod request;
mod responses;

use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The models that are listed; any other name is accepted too.
pub const MODELS: [&str; 3] = ["sandbox-small", "sandbox-large", "sandbox-embed"];

/// The `X-Sandbox-*` headers of a request, as they came.
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
            let place = match () {
                () if name.eq_ignore_ascii_case("x-sandbox-status") => &mut found.status,
                () if name.eq_ignore_ascii_case("x-sandbox-delay-ms") => &mut found.delay_ms,
                () if name.eq_ignore_ascii_case("x-sandbox-chunks") => &mut found.chunks,
                () if name.eq_ignore_ascii_case("x-sandbox-reply") => &mut found.reply,
                () => continue,
            };
            *place = Some(value);
        }
        found
    }
}

/// What is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxResponse {
    pub status: u16,
    pub content_type: &'static str,
    pub retry_after: Option<u64>,
    /// To wait before the first byte.
    pub delay: Duration,
    pub body: SandboxBody,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxBody {
    Json(Vec<u8>),
    /// Complete server-sent events, to be written one after the other.
    Events(Vec<Vec<u8>>),
}

/// Answers a request; `path` is without the query.
pub fn respond(method: &str, path: &str, directives: &SandboxDirectives<'_>, body: &[u8]) -> SandboxResponse {
    let orders = match Orders::read(directives) {
        Ok(orders) => orders,
        Err(problem) => return problem.reply(Duration::ZERO),
    };
    let reply = match orders.status {
        Some((status, retry_after)) => Err(Problem { retry_after, ..rehearsed(status) }),
        None => route(method, path, &orders, body),
    };
    match reply {
        Ok(body) => SandboxResponse {
            status: 200,
            content_type: match &body {
                SandboxBody::Json(_) => "application/json",
                SandboxBody::Events(_) => "text/event-stream",
            },
            retry_after: None,
            delay: orders.delay,
            body,
        },
        Err(problem) => problem.reply(orders.delay),
    }
}

fn route(method: &str, path: &str, orders: &Orders<'_>, body: &[u8]) -> Result<SandboxBody, Problem> {
    let seed = Seed::of(path, orders, body);
    match (method, path) {
        ("POST", "/v1/chat/completions") => chat::chat(&object(body)?, orders, &seed),
        ("POST", "/v1/completions") => chat::completions(&object(body)?, orders, &seed),
        ("POST", "/v1/responses") => responses::responses(&object(body)?, orders, &seed),
        ("POST", "/v1/embeddings") => embed::embeddings(&object(body)?),
        ("GET", "/v1/models") => {
            let data: Vec<Value> = MODELS.into_iter().map(model).collect();
            Ok(whole(&json!({"object": "list", "data": data})))
        }
        ("GET", path) if path.starts_with("/v1/models/") => {
            let id = path.trim_start_matches("/v1/models/");
            match MODELS.into_iter().find(|name| *name == id) {
                Some(id) => Ok(whole(&model(id))),
                None => Err(Problem {
                    status: 404,
                    param: Some("model"),
                    code: Some("model_not_found"),
                    ..Problem::new(format!("The model '{id}' does not exist in the sandbox."))
                }),
            }
        }
        _ => Err(Problem {
            status: 404,
            code: Some("unknown_url"),
            ..Problem::new(format!("The sandbox has no {method} {path}."))
        }),
    }
}

fn model(id: &str) -> Value {
    json!({"id": id, "object": "model", "created": 1_700_000_000, "owned_by": "sandbox"})
}

fn object(body: &[u8]) -> Result<Value, Problem> {
    match serde_json::from_slice(body) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(Problem::new("The body has to be a JSON object.".to_owned())),
        Err(error) => Err(Problem::new(format!("The body could not be parsed as JSON: {error}"))),
    }
}

fn whole(value: &Value) -> SandboxBody {
    SandboxBody::Json(value.to_string().into_bytes())
}

/// The directives, checked.
struct Orders<'a> {
    status: Option<(u16, Option<u64>)>,
    delay: Duration,
    chunks: Option<usize>,
    reply: Option<&'a str>,
}

impl<'a> Orders<'a> {
    fn read(directives: &SandboxDirectives<'a>) -> Result<Self, Problem> {
        let bad = |header: &str, wants: &str| Problem::new(format!("{header} has to be {wants}."));
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
                number(text.trim(), 1, 10_000)
                    .and_then(|count| usize::try_from(count).ok())
                    .ok_or_else(|| bad("X-Sandbox-Chunks", "a number from 1 to 10000"))?,
            ),
        };
        Ok(Self { status, delay: Duration::from_millis(delay), chunks, reply: directives.reply })
    }
}

/// An error in OpenAI's format.
struct Problem {
    status: u16,
    message: String,
    kind: &'static str,
    param: Option<&'static str>,
    code: Option<&'static str>,
    retry_after: Option<u64>,
}

impl Problem {
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

    fn reply(self, delay: Duration) -> SandboxResponse {
        let Self { status, message, kind, param, code, retry_after } = self;
        let body = whole(&json!({"error": {"message": message, "type": kind, "param": param, "code": code}}));
        SandboxResponse { status, content_type: "application/json", retry_after, delay, body }
    }
}

/// The error that `X-Sandbox-Status` asks for.
fn rehearsed(status: u16) -> Problem {
    let (kind, code) = match status {
        401 | 403 => ("authentication_error", "invalid_api_key"),
        404 => ("invalid_request_error", "not_found"),
        429 => ("rate_limit_error", "rate_limit_exceeded"),
        500.. => ("server_error", "server_error"),
        _ => ("invalid_request_error", "invalid_request"),
    };
    let message = format!("The sandbox was asked to answer with status {status}.");
    Problem { status, kind, code: Some(code), ..Problem::new(message) }
}

/// What ids and times are derived from.
struct Seed {
    hex: String,
    created: u32,
}

impl Seed {
    fn of(path: &str, orders: &Orders<'_>, body: &[u8]) -> Self {
        let mut hash = Sha256::new();
        for part in [path.as_bytes(), orders.reply.unwrap_or_default().as_bytes(), body] {
            hash.update(part);
            hash.update([0]);
        }
        let hash = hash.finalize();
        // Any time in the year after November 2023.
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
    fn status_directive_answers_with_that_error() {
        let reply = with("X-Sandbox-Status", "429;retry-after=2");
        assert_eq!((reply.status, reply.retry_after), (429, Some(2)));
        assert_eq!(json_of(&reply)["error"]["type"], "rate_limit_error");
        let reply = with("x-sandbox-status", "503");
        assert_eq!((reply.status, reply.retry_after), (503, None));
        assert_eq!(json_of(&reply)["error"]["type"], "server_error");
    }

    #[test]
    fn delay_is_handed_on_and_bad_directives_name_their_header() {
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
    fn unknown_paths_and_broken_bodies_get_openai_errors() {
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
