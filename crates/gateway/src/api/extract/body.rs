//! JSON bodies. Unknown fields are ignored; an error names the field that is wrong.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use gateway_core::ids::OrgId;
use gateway_core::memory::tree_bytes;
use http::StatusCode;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::error::Category;
use serde_json::json;

use crate::api::openapi::{Operation, OperationInput};
use crate::api::{area_of, error_format_of};
use crate::app::App;
use crate::auth::Identity;
use crate::memory::{HeldBuffer, RequestMemory};
use crate::problem::{ErrorFormat, Problem};

/// The time within which the whole body must be received.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the parsing of a large body may wait for a thread, and take.
const PARSE_TIMEOUT: Duration = Duration::from_secs(20);
/// For signup, login and other requests without a caller.
const MAX_ANONYMOUS_BODY: usize = 64 << 10;

/// A JSON body.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Arc<App>> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        LimitedBody::<{ usize::MAX }, T>::from_request(request, app).await.map(|LimitedBody(body)| Self(body))
    }
}

/// A JSON body of at most `MAX` bytes, where the general limit is too high.
pub struct LimitedBody<const MAX: usize, T>(pub T);

impl<const MAX: usize, T: DeserializeOwned + Send + 'static> FromRequest<Arc<App>> for LimitedBody<MAX, T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let body = JsonBody::read(request, app.services.config.max_body_bytes.min(MAX)).await?;
        body.parse(app).await.map(Self)
    }
}

impl<const MAX: usize, T: JsonSchema> OperationInput for LimitedBody<MAX, T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.json_body::<T>();
    }
}

impl<T: JsonSchema> OperationInput for Body<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.json_body::<T>();
    }
}

/// A JSON body that may be empty, because all of its fields are optional.
pub struct OptionalBody<T>(pub T);

impl<T: DeserializeOwned + Default + Send + 'static> FromRequest<Arc<App>> for OptionalBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let body = JsonBody::read(request, app.services.config.max_body_bytes).await?;
        if body.bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        body.parse(app).await.map(Self)
    }
}

impl<T: JsonSchema> OperationInput for OptionalBody<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.json_body::<T>();
        if let Some(body) = &mut operation.request_body {
            body["required"] = json!(false);
        }
    }
}

/// The error code for an invalid body, which depends on the area of the path.
fn invalid_body_code(path: &str) -> &'static str {
    match error_format_of(path) {
        ErrorFormat::ErrorCode if area_of(path) == "eval-results" => "invalid_request",
        ErrorFormat::ErrorCode => "invalid_body",
        ErrorFormat::Code | ErrorFormat::Both | ErrorFormat::Client(_) => "bad_request",
    }
}

/// How much of a body is read, and for how long.
#[derive(Clone, Copy)]
pub(in crate::api) struct BodyLimits {
    pub bytes: usize,
    pub timeout: Duration,
    /// The longest pause.
    pub idle_timeout: Duration,
}

impl BodyLimits {
    pub(in crate::api) fn new(bytes: usize) -> Self {
        Self { bytes, timeout: BODY_TIMEOUT, idle_timeout: BODY_TIMEOUT }
    }
}

/// A body that becomes a tree.
struct JsonBody {
    bytes: Bytes,
    /// Of the caller. None: the body is short.
    org: Option<OrgId>,
    /// The error code if it is invalid.
    code: &'static str,
}

impl JsonBody {
    /// The memory of the tree is reserved until the request has ended.
    async fn read(request: Request, max_bytes: usize) -> Result<Self, Problem> {
        let code = invalid_body_code(request.uri().path());
        let org = request.extensions().get::<Identity>().map(|identity| identity.org.id);
        let memory = request_memory(&request)?;
        let bytes = read_body(request, BodyLimits::new(max_bytes)).await?;
        memory.grow(tree_bytes(&bytes))?;
        Ok(Self { bytes, org, code })
    }

    /// Parses a large body where computation that tenants cause belongs.
    async fn parse<T: DeserializeOwned + Send + 'static>(self, app: &App) -> Result<T, Problem> {
        let Self { bytes, org, code } = self;
        let parsed = match org {
            Some(org) => {
                let (compute, length) = (&app.services.compute, bytes.len());
                compute.run_for_body(org, length, PARSE_TIMEOUT, move || parse_json(&bytes)).await?
            }
            None => parse_json(&bytes),
        };
        parsed.map_err(|why| Problem::new(StatusCode::BAD_REQUEST, code, why))
    }
}

/// The memory of the request, which stays reserved until it has ended.
pub(in crate::api) fn request_memory(request: &Request) -> Result<RequestMemory, Problem> {
    let memory = request.extensions().get::<RequestMemory>().cloned();
    memory.ok_or_else(|| Problem::internal("the memory of the request is not set"))
}

/// Reads the whole body. Its memory is reserved as it arrives; a body that is too large is not read.
pub(in crate::api) async fn read_body(request: Request, limits: BodyLimits) -> Result<Bytes, Problem> {
    let is_authenticated = request.extensions().get::<Identity>().is_some();
    let limit = if is_authenticated { limits.bytes } else { limits.bytes.min(MAX_ANONYMOUS_BODY) };
    let mut buffer = HeldBuffer::new(request_memory(&request)?.open());
    let mut body = request.into_body();
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(Problem::too_large(limit));
    }
    let all = async {
        buffer.reserve(announced)?;
        loop {
            let frame = tokio::time::timeout(limits.idle_timeout, body.frame()).await;
            let Some(frame) = frame.map_err(|_| Problem::request_timeout())? else { break };
            if let Ok(data) = frame.map_err(|_| Problem::incomplete_body())?.into_data() {
                if buffer.len() + data.len() > limit {
                    return Err(Problem::too_large(limit));
                }
                buffer.append(&data)?;
            }
        }
        Ok(buffer.finish())
    };
    tokio::time::timeout(limits.timeout, all).await.map_err(|_| Problem::request_timeout())?
}

/// Parses a body. The error message names the field that is wrong.
fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err("the body must be a JSON object, but it is empty".into());
    }
    // serde accepts an array as a struct whose fields it lists in order.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err("the body must be a JSON object".into());
    }
    if contains_escaped_nul(bytes) {
        return Err("strings must not contain NUL characters".into());
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        match (inner.classify(), path.as_str()) {
            (Category::Data, path) if path != "." => format!("{path}: {}", without_value(&inner.to_string())),
            (Category::Data, _) => inner.to_string(),
            // serde_json reports a number in place of an enum's string as a syntax error.
            (_, path) if path != "." && serde_json::from_slice::<IgnoredAny>(bytes).is_ok() => {
                format!("{path}: has the wrong type")
            }
            _ => format!("the body is not valid JSON: {inner}"),
        }
    })?;
    json.end().map_err(|error| format!("the body is not valid JSON: {error}"))?;
    Ok(value)
}

/// Serde's names of types that are not those of JSON.
const TYPE_NAMES: [(&str, &str); 9] = [
    ("i32", "a whole number"),
    ("i64", "a whole number"),
    ("u16", "a whole number from 0"),
    ("u32", "a whole number from 0"),
    ("u64", "a whole number from 0"),
    ("usize", "a whole number from 0"),
    ("f64", "a number"),
    ("a sequence", "an array"),
    ("a map", "an object"),
];

/// Removes the value that serde quotes in its message, because it may be a password. The expectation stays.
pub(super) fn without_value(message: &str) -> String {
    let quotes_value = message.starts_with("invalid type: ") || message.starts_with("invalid value: ");
    let Some(at) = message.rfind(", expected ").filter(|_| quotes_value) else { return message.to_owned() };
    let expectation = &message[at + ", expected ".len()..];
    let (expected, place) = match expectation.rfind(" at line ") {
        Some(at) => expectation.split_at(at),
        None => (expectation, ""),
    };
    let named = match TYPE_NAMES.iter().find(|(serde, _)| *serde == expected) {
        Some((_, json)) => json,
        None if expected.starts_with("struct ") || expected.starts_with("internally tagged enum ") => {
            "an object"
        }
        None => expected,
    };
    format!("expected {named}{place}")
}

/// PostgreSQL cannot store a NUL character in a text.
fn contains_escaped_nul(bytes: &[u8]) -> bool {
    memchr::memmem::find_iter(bytes, b"\\u0000").any(|at| {
        let backslashes = bytes[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        backslashes % 2 == 0
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::api::extract::optional_object;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only the errors matter here")]
    struct Sample {
        name: String,
        #[serde(default)]
        items: Vec<u32>,
        colour: Option<Colour>,
        #[serde(default, deserialize_with = "optional_object")]
        size: Option<Size>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Colour {
        Red,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only the errors matter here")]
    struct Size {
        width: Option<u32>,
    }

    #[test]
    fn a_wrong_field_is_named() {
        let error = |text: &str| parse_json::<Sample>(text.as_bytes()).unwrap_err();
        assert!(error(r#"{"name": 1}"#).starts_with("name: "));
        assert!(
            error(r#"{"name": "x", "items": [1, "2"]}"#)
                .starts_with("items[1]: expected a whole number from 0 at")
        );
        assert!(error(r#"{"name": "x", "items": "1"}"#).starts_with("items: expected an array at"));
        assert!(error("{}").contains("`name`"));
        assert!(error("{").starts_with("the body is not valid JSON"));
        assert!(error(r#"{"name": "x"} trailing"#).starts_with("the body is not valid JSON"));
        assert!(error(" ").contains("empty"));
        assert!(error(r#"["x", []]"#).contains("object"));
        assert!(!error(r#"{"name": 31415926}"#).contains("31415926"));
        assert!(error(r#"{"name": "x", "colour": 1}"#).starts_with("colour: "));
        assert!(error(r#"{"name": "x", "colour": "blue"}"#).starts_with("colour: "));
        assert!(error(r#"{"name": "x", "size": [1]}"#).starts_with("size: "));
        assert!(error(r#"{"name": "x", "size": {"width": "1"}}"#).starts_with("size.width: "));
        for valid in
            [r#"{"name": "x", "size": null}"#, r#"{"name": "x", "size": {"width": 1}, "colour": "red"}"#]
        {
            assert!(parse_json::<Sample>(valid.as_bytes()).is_ok(), "{valid}");
        }
        assert!(parse_json::<Sample>(br#"{"name": "x", "unknown": true}"#).is_ok());
    }

    #[test]
    fn a_nul_character_is_rejected_but_not_an_escaped_backslash() {
        assert!(parse_json::<Sample>(br#"{"name": "a\u0000b"}"#).is_err());
        assert!(parse_json::<Sample>(br#"{"name": "a\\u0000b"}"#).is_ok());
    }
}
