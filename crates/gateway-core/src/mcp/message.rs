//! One JSON-RPC message: parsed without a tree of its parameters, and written again with few members changed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// Longer ids are refused, because they are repeated in answers and log messages.
const MAX_ID_BYTES: usize = 256;
const MAX_METHOD_BYTES: usize = 128;
/// The data of longer errors is dropped: it is the only part of a message that is parsed into a tree.
const MAX_ERROR_BYTES: usize = 16 << 10;

/// Codes of JSON-RPC and of MCP.
pub mod codes {
    pub const PARSE: i32 = -32_700;
    pub const INVALID_REQUEST: i32 = -32_600;
    pub const METHOD_NOT_FOUND: i32 = -32_601;
    pub const INVALID_PARAMS: i32 = -32_602;
    pub const INTERNAL: i32 = -32_603;
    pub const HEADER_MISMATCH: i32 = -32_020;
    pub const MISSING_CAPABILITY: i32 = -32_021;
    pub const UNSUPPORTED_VERSION: i32 = -32_022;
    pub const RESOURCE_NOT_FOUND: i32 = -32_002;
}

/// The members of an object, each as the text that was received. Of a repeated member the last one counts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Members(BTreeMap<String, Box<RawValue>>);

impl Members {
    pub fn from_raw(raw: &RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    pub fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.get(name).map(AsRef::as_ref)
    }

    /// The text of a member that is a string.
    pub fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    pub fn value(&self, name: &str) -> Option<Value> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    pub fn members(&self, name: &str) -> Option<Self> {
        Self::from_raw(self.get(name)?)
    }

    pub fn set(&mut self, name: &str, value: &impl Serialize) {
        if let Ok(raw) = to_raw_value(value) {
            self.0.insert(name.to_owned(), raw);
        }
    }

    pub fn remove(&mut self, name: &str) -> Option<Box<RawValue>> {
        self.0.remove(name)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The length of the names and values.
    pub fn bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.get().len()).sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_ref()))
    }
}

/// The id of a request: a string or a number, as it was received.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct RequestId(Box<RawValue>);

impl RequestId {
    pub fn from_text(text: &str) -> Option<Self> {
        to_raw_value(text).ok().map(Self)
    }

    pub fn parse(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok().and_then(Self::from_raw)
    }

    fn from_raw(raw: Box<RawValue>) -> Option<Self> {
        let is_id =
            raw.get().starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit());
        (is_id && raw.get().len() <= MAX_ID_BYTES).then_some(Self(raw))
    }

    /// The JSON text.
    pub fn json(&self) -> &str {
        self.0.get()
    }
}

/// An error of JSON-RPC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RpcError {
    pub code: i32,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub fn with_data(self, data: Value) -> Self {
        Self { data: Some(data), ..self }
    }

    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(codes::INVALID_PARAMS, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(codes::INTERNAL, message)
    }

    pub fn method_not_found(method: &str) -> Self {
        Self::new(codes::METHOD_NOT_FOUND, format!("Method not found: {method}"))
    }
}

/// A message that was received.
#[derive(Debug, Clone)]
pub enum Incoming {
    Request {
        id: RequestId,
        method: String,
        params: Members,
    },
    Notification {
        method: String,
        params: Members,
    },
    /// The answer to a question, with the text of its result.
    Response {
        id: RequestId,
        outcome: Result<Box<RawValue>, RpcError>,
    },
}

#[derive(Deserialize)]
struct Envelope {
    jsonrpc: Option<String>,
    #[serde(default)]
    id: Option<Box<RawValue>>,
    method: Option<String>,
    #[serde(default)]
    params: Option<Box<RawValue>>,
    #[serde(default)]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<Box<RawValue>>,
}

/// An error without its data.
#[derive(Deserialize)]
struct BareError {
    code: i32,
    message: String,
}

fn parse_error(raw: &RawValue) -> Option<RpcError> {
    if raw.get().len() <= MAX_ERROR_BYTES {
        return serde_json::from_str(raw.get()).ok();
    }
    let BareError { code, message } = serde_json::from_str(raw.get()).ok()?;
    Some(RpcError::new(code, message))
}

/// Parses a body that must be one message.
pub fn parse(body: &[u8]) -> Result<Incoming, RpcError> {
    let invalid = |why: &str| RpcError::new(codes::INVALID_REQUEST, format!("Invalid request: {why}"));
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if first == Some(&b'[') {
        return Err(invalid("batches are not supported; send each message by itself"));
    }
    let envelope: Envelope = match serde_json::from_slice(body) {
        Ok(envelope) => envelope,
        Err(error) if error.is_data() => return Err(invalid("the body is no JSON-RPC message")),
        Err(_) => return Err(RpcError::new(codes::PARSE, "Parse error: the body is not valid JSON")),
    };
    if envelope.jsonrpc.as_deref() != Some("2.0") {
        return Err(invalid("`jsonrpc` must be \"2.0\""));
    }
    let id = match envelope.id.filter(|id| id.get() != "null") {
        Some(raw) => Some(
            RequestId::from_raw(raw)
                .ok_or_else(|| invalid("`id` must be a string or a number of at most 256 bytes"))?,
        ),
        None => None,
    };
    let params = match envelope.params.filter(|params| params.get() != "null") {
        Some(raw) => Members::from_raw(&raw).ok_or_else(|| invalid("`params` must be an object"))?,
        None => Members::default(),
    };
    if envelope.method.as_ref().is_some_and(|method| method.is_empty() || method.len() > MAX_METHOD_BYTES) {
        return Err(invalid("`method` must have 1 to 128 bytes"));
    }
    let error = match envelope.error {
        Some(raw) => {
            Some(parse_error(&raw).ok_or_else(|| invalid("`error` must have a code and a message"))?)
        }
        None => None,
    };
    match (id, envelope.method, envelope.result, error) {
        (Some(id), Some(method), None, None) => Ok(Incoming::Request { id, method, params }),
        (None, Some(method), None, None) => Ok(Incoming::Notification { method, params }),
        (Some(id), None, Some(result), None) => Ok(Incoming::Response { id, outcome: Ok(result) }),
        (Some(id), None, None, Some(error)) => Ok(Incoming::Response { id, outcome: Err(error) }),
        _ => Err(invalid("it must be a request, a notification or a response")),
    }
}

/// The text of a value.
pub fn raw(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// The text of an answer.
pub fn response_text(id: Option<&RequestId>, outcome: &Result<Box<RawValue>, RpcError>) -> String {
    let id = id.map_or("null", RequestId::json);
    match outcome {
        Ok(result) => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        Err(error) => {
            let error = serde_json::to_string(error).unwrap_or_else(|_| "null".into());
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(body: &str) -> i32 {
        parse(body.as_bytes()).unwrap_err().code
    }

    #[test]
    fn a_message_is_a_request_a_notification_or_a_response() {
        let parsed =
            parse(br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","x":1.10}}"#);
        let Ok(Incoming::Request { id, method, params }) = parsed else { panic!("{parsed:?}") };
        assert_eq!(
            (id.json(), method.as_str(), params.text("name").as_deref()),
            ("7", "tools/call", Some("a"))
        );
        assert_eq!(params.get("x").map(RawValue::get), Some("1.10"), "numbers keep their digits");
        assert!(matches!(
            parse(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
            Ok(Incoming::Notification { .. })
        ));
        assert!(matches!(
            parse(br#"{"jsonrpc":"2.0","id":"a","result":{}}"#),
            Ok(Incoming::Response { outcome: Ok(_), .. })
        ));
        assert!(matches!(
            parse(br#"{"jsonrpc":"2.0","id":"a","error":{"code":-1,"message":"x"}}"#),
            Ok(Incoming::Response { outcome: Err(RpcError { code: -1, .. }), .. })
        ));
    }

    #[test]
    fn anything_else_is_refused_with_the_code_of_its_fault() {
        assert_eq!(code("{"), codes::PARSE);
        assert_eq!(code(""), codes::PARSE);
        for body in [
            r#" [{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
            "[]",
            r#""text""#,
            r#"{"id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":""}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#,
        ] {
            assert_eq!(code(body), codes::INVALID_REQUEST, "{body}");
        }
        let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(300));
        assert_eq!(code(&long), codes::INVALID_REQUEST);
    }

    #[test]
    fn of_a_repeated_member_the_last_one_counts_and_is_the_only_one_that_is_written() {
        let members: Members = serde_json::from_str(r#"{"name":"a","name":"b"}"#).unwrap();
        assert_eq!(members.text("name").as_deref(), Some("b"));
        assert_eq!(serde_json::to_string(&members).unwrap(), r#"{"name":"b"}"#);
    }

    #[test]
    fn answers_repeat_the_id_as_it_was_received() {
        let id = RequestId::parse("7").unwrap();
        assert_eq!(response_text(Some(&id), &Ok(raw(&1))), r#"{"jsonrpc":"2.0","id":7,"result":1}"#);
        let error = Err(RpcError::method_not_found("x"));
        assert_eq!(
            response_text(None, &error),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found: x"}}"#
        );
    }
}
