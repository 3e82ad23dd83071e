//! What handlers take from a request besides the caller: ids in the path, query parameters, JSON bodies, the
//! address of the peer. Each refuses with the right words and describes itself to the OpenAPI document.

use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gateway_core::ids::{
    AppId, BudgetId, CaseId, DatasetId, DeliveryId, ExportId, KeyId, OrgId, PlayId, RubricId, SkillId,
    TeamId, UserId, WebhookId,
};
use http::StatusCode;
use http::request::Parts;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::route::{Input, Operation, Output};
use crate::app::App;
use crate::problem::{Family, Problem};

/// A body that trickles in slower than this is given up.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Something that stands in a path, such as `{keyId}`.
pub trait PathParam: Sized {
    const NAME: &'static str;
    fn parse(text: &str) -> Result<Self, String>;
    fn schema() -> serde_json::Value;
}

macro_rules! id_params {
    ($($type:ty = $name:literal),+ $(,)?) => {$(
        impl PathParam for $type {
            const NAME: &'static str = $name;
            fn parse(text: &str) -> Result<Self, String> {
                <$type>::from_str(text).map_err(|error| error.to_string())
            }
            fn schema() -> serde_json::Value {
                json!({"type": "string", "format": "uuid"})
            }
        }
    )+};
}
id_params!(
    OrgId = "orgId",
    KeyId = "keyId",
    TeamId = "teamId",
    AppId = "appId",
    BudgetId = "budgetId",
    UserId = "userId",
    DatasetId = "datasetId",
    CaseId = "caseId",
    PlayId = "playId",
    SkillId = "skillId",
    RubricId = "rubricId",
    WebhookId = "webhookId",
    DeliveryId = "deliveryId",
    ExportId = "exportId",
);

/// An id that is a number: `number_param!(/// doc … RunId = "runId");`
macro_rules! number_param {
    ($(#[$doc:meta])* $name:ident = $param:literal) => {
        $(#[$doc])*
        pub(super) struct $name(pub i64);

        impl $crate::api::extract::PathParam for $name {
            const NAME: &'static str = $param;

            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map(Self).map_err(|_| "not a valid id: expected a whole number".into())
            }

            fn schema() -> serde_json::Value {
                serde_json::json!({"type": "integer", "format": "int64"})
            }
        }
    };
}
pub(super) use number_param;

/// A parameter that may be any text: `text_param!(/// doc … SessionId = "sessionId");`
macro_rules! text_param {
    ($(#[$doc:meta])* $name:ident = $param:literal) => {
        $(#[$doc])*
        struct $name(String);

        impl $crate::api::extract::PathParam for $name {
            const NAME: &'static str = $param;

            fn parse(text: &str) -> Result<Self, String> {
                if text.contains('\0') {
                    return Err("must not contain NUL characters".into());
                }
                Ok(Self(text.into()))
            }

            fn schema() -> serde_json::Value {
                serde_json::json!({"type": "string"})
            }
        }
    };
}
pub(super) use text_param;

/// One parameter of the path.
pub struct At<T>(pub T);

impl<T: PathParam, S: Send + Sync> FromRequestParts<S> for At<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        path_param(parts, state).await.map(Self)
    }
}

pub(super) async fn path_param<T: PathParam, S: Send + Sync>(
    parts: &mut Parts,
    state: &S,
) -> Result<T, Problem> {
    let family = super::family_of(parts.uri.path());
    let malformed = |why: &str| {
        let code = if family == Family::Coded { "invalid_id" } else { "bad_request" };
        Problem::new(StatusCode::BAD_REQUEST, code, format!("{} in the path: {why}", T::NAME))
    };
    let params =
        RawPathParams::from_request_parts(parts, state).await.map_err(|_| malformed("is not readable"))?;
    let found = params.iter().find(|(name, _)| *name == T::NAME);
    let (_, text) = found.ok_or_else(|| malformed("is missing"))?;
    T::parse(text).map_err(|why| malformed(&why))
}

impl<T: PathParam> Input for At<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation
            .parameters
            .push(json!({"name": T::NAME, "in": "path", "required": true, "schema": T::schema()}));
    }
}

/// Query parameters. Unknown ones are ignored.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        if query.contains("%00") {
            return Err(Problem::bad_request("query parameters must not contain NUL characters"));
        }
        let pairs = url::form_urlencoded::parse(query.as_bytes());
        let deserializer = serde_html_form_pairs(pairs);
        serde_path_to_error::deserialize(deserializer).map(Self).map_err(|error| {
            let path = error.path().to_string();
            match path.as_str() {
                "." | "" => Problem::bad_request(error.into_inner().to_string()),
                name => Problem::field(name, error.into_inner()),
            }
        })
    }
}

type Pairs<'a> = serde::de::value::MapDeserializer<
    'a,
    std::vec::IntoIter<(String, super::query::Scalar)>,
    serde::de::value::Error,
>;

/// The last of several values of one name counts.
fn serde_html_form_pairs<'a>(pairs: url::form_urlencoded::Parse<'_>) -> Pairs<'a> {
    let mut seen: Vec<(String, super::query::Scalar)> = Vec::new();
    for (name, value) in pairs {
        let value = super::query::Scalar(value.into_owned());
        match seen.iter_mut().find(|(known, _)| *known == name) {
            Some(entry) => entry.1 = value,
            None => seen.push((name.into_owned(), value)),
        }
    }
    serde::de::value::MapDeserializer::new(seen.into_iter())
}

impl<T: JsonSchema> Input for Params<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.takes_query::<T>();
    }
}

/// A JSON body. Unknown fields are ignored; a wrong one is named.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let code = malformed_body_code(request.uri().path());
        let bytes = read_body(request, app.services.config.max_body_bytes).await?;
        parse_json(&bytes).map(Self).map_err(|why| Problem::new(StatusCode::BAD_REQUEST, code, why))
    }
}

impl<T: JsonSchema> Input for Body<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.takes_json::<T>();
    }
}

/// A JSON body that may be left out, since every field of it may be.
pub struct OptionalBody<T>(pub T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<App>> for OptionalBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let code = malformed_body_code(request.uri().path());
        let bytes = read_body(request, app.services.config.max_body_bytes).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        parse_json(&bytes).map(Self).map_err(|why| Problem::new(StatusCode::BAD_REQUEST, code, why))
    }
}

impl<T: JsonSchema> Input for OptionalBody<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.takes_json::<T>();
        if let Some(body) = &mut operation.request_body {
            body["required"] = json!(false);
        }
    }
}

/// What a malformed body is called in the area that the path belongs to.
fn malformed_body_code(path: &str) -> &'static str {
    match super::family_of(path) {
        Family::Coded if super::area_of(path) == "eval-results" => "invalid_request",
        Family::Coded => "invalid_body",
        Family::Plain | Family::Proxy => "bad_request",
    }
}

pub(super) async fn read_body(request: Request, limit: usize) -> Result<Bytes, Problem> {
    let collected = Limited::new(request.into_body(), limit).collect();
    match tokio::time::timeout(BODY_TIMEOUT, collected).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => {
            Err(Problem::too_large(limit))
        }
        Ok(Err(_)) => Err(Problem::bad_request("the request body could not be read to its end")),
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "request_timeout",
            "the request body did not arrive in time",
        )),
    }
}

/// Parses a body; the message names the field that is wrong.
pub(super) fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err("the body must be a JSON object, but it is empty".into());
    }
    // An array would pass for a struct whose fields it lists in order.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err("the body must be a JSON object".into());
    }
    if holds_nul(bytes) {
        return Err("texts must not contain NUL characters".into());
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        match (inner.classify(), path.as_str()) {
            (serde_json::error::Category::Data, path) if path != "." => {
                format!("{path}: {}", without_value(&inner.to_string()))
            }
            (serde_json::error::Category::Data, _) => inner.to_string(),
            // A number where one of several words is expected counts as bad syntax for serde.
            (_, path) if path != "." && serde_json::from_slice::<IgnoredAny>(bytes).is_ok() => {
                format!("{path}: is of a wrong type")
            }
            _ => format!("the body is not valid JSON: {inner}"),
        }
    })?;
    json.end().map_err(|error| format!("the body is not valid JSON: {error}"))?;
    Ok(value)
}

/// serde quotes the value that it found, and that may be a password: only what was expected is told.
fn without_value(message: &str) -> &str {
    let quotes = message.starts_with("invalid type: ") || message.starts_with("invalid value: ");
    match message.rfind(", expected ") {
        Some(at) if quotes => &message[at + 2..],
        _ => message,
    }
}

/// PostgreSQL cannot keep a NUL in a text, so none is let in.
fn holds_nul(bytes: &[u8]) -> bool {
    memchr::memmem::find_iter(bytes, b"\\u0000").any(|at| {
        let slashes = bytes[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        slashes % 2 == 0
    })
}

/// The caller's address: the peer's, or what a trusted proxy says of it.
pub struct ClientIp(pub IpAddr);

impl<S: Send + Sync> FromRequestParts<S> for ClientIp {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let address = parts.extensions.get::<IpAddr>().copied();
        address.map(Self).ok_or_else(|| Problem::internal("the peer's address is not known"))
    }
}

impl Input for ClientIp {
    fn describe(_: &mut Operation<'_>) {}
}

/// A JSON answer with status 200.
pub struct Json<T>(pub T);

/// 201: something was made.
pub struct Created<T>(pub T);

/// 202: it will be done.
pub struct Accepted<T>(pub T);

macro_rules! json_answer {
    ($($name:ident = $status:literal),+ $(,)?) => {$(
        impl<T: Serialize> IntoResponse for $name<T> {
            fn into_response(self) -> Response {
                let status = StatusCode::from_u16($status).unwrap_or_default();
                match serde_json::to_vec(&self.0) {
                    Ok(body) => (status, [(http::header::CONTENT_TYPE, "application/json")], body).into_response(),
                    Err(error) => Problem::internal(error).into_response(),
                }
            }
        }
        impl<T: JsonSchema> Output for $name<T> {
            fn describe(operation: &mut Operation<'_>) {
                operation.gives_json::<T>($status);
            }
        }
    )+};
}
json_answer!(Json = 200, Created = 201, Accepted = 202);

/// `{"deleted": true}`
#[derive(Serialize, JsonSchema)]
pub struct Deleted {
    pub deleted: bool,
}

impl Deleted {
    pub fn yes() -> Json<Self> {
        Json(Self { deleted: true })
    }
}

/// For a field that may be absent (unchanged), null (cleared) or a value: `Option<Option<T>>`.
pub fn present<'de, T, D>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    Option::<T>::deserialize(deserializer).map(Some)
}

/// For a struct inside a body that may be absent or null. Plain serde would also take an array of its values.
pub fn object<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    struct Object<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }
    }

    deserializer.deserialize_any(Object(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only the errors matter here")]
    struct Sample {
        name: String,
        #[serde(default)]
        items: Vec<u32>,
        colour: Option<Colour>,
        #[serde(default, deserialize_with = "object")]
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
        let wrong = |text: &str| parse_json::<Sample>(text.as_bytes()).unwrap_err();
        assert!(wrong(r#"{"name": 1}"#).starts_with("name: "));
        assert!(wrong(r#"{"name": "x", "items": [1, "2"]}"#).starts_with("items[1]: "));
        assert!(wrong("{}").contains("`name`"));
        assert!(wrong("{").starts_with("the body is not valid JSON"));
        assert!(wrong(r#"{"name": "x"} trailing"#).starts_with("the body is not valid JSON"));
        assert!(wrong(" ").contains("empty"));
        assert!(wrong(r#"["x", []]"#).contains("object"));
        assert!(!wrong(r#"{"name": 31415926}"#).contains("31415926"));
        assert!(wrong(r#"{"name": "x", "colour": 1}"#).starts_with("colour: "));
        assert!(wrong(r#"{"name": "x", "colour": "blue"}"#).starts_with("colour: "));
        assert!(wrong(r#"{"name": "x", "size": [1]}"#).starts_with("size: "));
        assert!(wrong(r#"{"name": "x", "size": {"width": "1"}}"#).starts_with("size.width: "));
        for good in
            [r#"{"name": "x", "size": null}"#, r#"{"name": "x", "size": {"width": 1}, "colour": "red"}"#]
        {
            assert!(parse_json::<Sample>(good.as_bytes()).is_ok(), "{good}");
        }
        assert!(parse_json::<Sample>(br#"{"name": "x", "unknown": true}"#).is_ok());
    }

    #[test]
    fn a_nul_is_refused_and_its_spelling_is_not() {
        assert!(parse_json::<Sample>(br#"{"name": "a\u0000b"}"#).is_err());
        assert!(parse_json::<Sample>(br#"{"name": "a\\u0000b"}"#).is_ok());
    }
}
