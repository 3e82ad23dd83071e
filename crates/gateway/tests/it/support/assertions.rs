//! Assertions and small steps that many tests share.

use serde_json::{Value, json};

use super::client::TestResponse;
use super::{Account, TestApp};

/// A new API key: its id, the raw key, and the response that created it.
pub struct NewKey {
    pub id: String,
    pub raw: String,
    pub answer: Value,
}

impl NewKey {
    pub fn path(&self) -> String {
        format!("/api/v1/keys/{}", self.id)
    }
}

impl TestApp {
    /// Creates an API key with a session token.
    pub async fn create_key(&self, token: &str, body: Value) -> NewKey {
        let answer = self.post("/api/v1/keys", body).bearer(token).send().await.expect(201);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        NewKey { id: text(&answer["key"]["id"]), raw: text(&answer["raw_key"]), answer }
    }

    /// Moves the organization to the enterprise plan, which includes every feature.
    pub async fn set_enterprise_plan(&self, owner: &Account) {
        let path = format!("/api/v1/orgs/{}", owner.org_id);
        self.put(&path, json!({"plan": "enterprise"})).bearer(&owner.token).send().await.expect(200);
    }

    /// Returns the status of a read request with this key.
    pub async fn status_with_key(&self, raw: &str) -> u16 {
        self.get("/api/v1/auth/entitlements").key(raw).send().await.status.as_u16()
    }

    /// Returns the status of a read request with this token.
    pub async fn status_with_token(&self, token: &str) -> u16 {
        self.get("/api/v1/auth/entitlements").bearer(token).send().await.status.as_u16()
    }

    /// Advances the clock to the next full minute, so that a test does not straddle two rate limit windows.
    pub fn advance_to_next_minute(&self) {
        let now = self.app.services.clock.now().0;
        self.app.services.clock.advance(60_000 - now.rem_euclid(60_000));
    }
}

/// Returns the sorted field names of an object.
#[track_caller]
pub fn fields(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// Asserts the format (RFC 3339, UTC, milliseconds, `Z`) and returns milliseconds since the epoch.
#[track_caller]
pub fn time(value: &Value) -> i64 {
    let text = value.as_str().unwrap_or_else(|| panic!("no time: {value}"));
    assert_eq!((text.len(), &text[19..20], &text[23..]), (24, ".", "Z"), "{text}");
    text.parse::<gateway_core::time::Timestamp>().unwrap().0
}

/// Asserts that the value is a hyphenated UUID of version 7.
#[track_caller]
pub fn assert_uuid_v7(value: &Value) {
    let text = value.as_str().unwrap_or_else(|| panic!("no id: {value}"));
    let id: uuid::Uuid = text.parse().unwrap();
    assert_eq!((text.len(), id.get_version_num()), (36, 7), "{text}");
}

/// Asserts a 400 whose message names the field.
#[track_caller]
pub fn assert_field_error(answer: &TestResponse, field: &str) {
    let body = answer.expect_error(400, "bad_request");
    assert_eq!(fields(&body), ["code", "message"]);
    let message = body["message"].as_str().unwrap();
    assert!(message.contains(field), "'{message}' does not name {field}");
}

/// Returns the body without one field.
pub fn without_field(body: &Value, field: &str) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().remove(field);
    body
}

/// Returns the body with one field replaced.
pub fn with(body: &Value, field: &str, value: impl Into<Value>) -> Value {
    let mut body = body.clone();
    body[field] = value.into();
    body
}

/// Asserts the 401 of an unauthenticated request.
#[track_caller]
pub fn assert_unauthorized(answer: &TestResponse) {
    let body = answer.expect_error(401, "unauthorized");
    assert_eq!(fields(&body), ["code", "message"]);
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    assert_eq!(answer.header("x-ratelimit-limit"), None, "a stranger has no window");
}

/// Returns a UUID that no resource has.
pub fn missing_id() -> Value {
    json!(uuid::Uuid::new_v4())
}
