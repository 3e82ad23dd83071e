//! The fields of a request body that the gateway needs before it forwards the body, read in one pass without a tree.
//! Also the edits of forwarded bodies (usage in a stream, another model), which leave every other byte unchanged.

use serde::Deserialize;

use crate::json::{ObjectScan, ObjectScanner, ScanStatus, ScannedValue};

static KEYS: [&str; 12] = [
    "model",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "generationConfig",
    "generation_config",
    "inferenceConfig",
    "user",
    "metadata",
    "n",
];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestPeek {
    pub model: Option<String>,
    pub stream: Option<bool>,
    /// `stream_options.include_usage`
    pub include_usage: Option<bool>,
    /// The largest limit on output tokens in the body, under any provider's name for it.
    pub max_tokens: Option<u64>,
    /// `user`, or Anthropic's `metadata.user_id`.
    pub user: Option<String>,
    /// The number of requested choices, if it is given and valid.
    pub choices: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PeekError {
    #[error("the request body is not a JSON object")]
    NotObject,
    #[error("the request body is not valid JSON")]
    Malformed,
    #[error("the request body ends before its JSON object is complete")]
    Incomplete,
    #[error("the field \"{0}\" appears more than once in the request body")]
    DuplicateKey(&'static str),
    #[error("the field \"{0}\" has the wrong type")]
    WrongType(&'static str),
    #[error("the field \"{0}\" is too long")]
    Overlong(&'static str),
}

/// Reads a body in chunks.
#[derive(Debug)]
pub struct BodyPeek {
    scanner: ObjectScanner<12>,
}

impl Default for BodyPeek {
    fn default() -> Self {
        Self::new()
    }
}

impl BodyPeek {
    pub fn new() -> Self {
        Self { scanner: ObjectScanner::new(&KEYS) }
    }

    /// Reads the next chunk. An error is final.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<(), PeekError> {
        self.scanner.feed(chunk);
        check_status(self.scanner.status())
    }

    /// The fields so far. Keys may still follow, so only `finish` can rule out duplicates.
    pub fn snapshot(&self) -> Result<RequestPeek, PeekError> {
        check_status(self.scanner.status())?;
        read(|key| self.scanner.get(key))
    }

    pub fn finish(self) -> Result<RequestPeek, PeekError> {
        check_complete(self.scanner.status())?;
        read(|key| self.scanner.get(key))
    }
}

/// Reads a complete body.
pub fn peek(body: &[u8]) -> Result<RequestPeek, PeekError> {
    let scan = ObjectScan::new(&KEYS, body);
    check_complete(scan.status())?;
    read(|key| scan.get(key))
}

/// Returns the body of a stream call with `stream_options.include_usage` set. None if the body can be sent unchanged:
/// the field is set already, or the body is not an object.
pub fn add_include_usage(body: &[u8]) -> Option<Vec<u8>> {
    static OUTER: [&str; 1] = ["stream_options"];
    static INNER: [&str; 1] = ["include_usage"];
    let outer = ObjectScan::new(&OUTER, body);
    if outer.status() != ScanStatus::Complete {
        return None;
    }
    let Some(options) = outer.range("stream_options") else {
        let field: &[u8] = br#""stream_options":{"include_usage":true}"#;
        let comma: &[u8] = if outer.has_members() { b"," } else { b"" };
        let at = outer.closing()?;
        return Some([&body[..at], comma, field, &body[at..]].concat());
    };
    let (before, value, after) = (&body[..options.start], &body[options.clone()], &body[options.end..]);
    if value == b"null" {
        return Some([before, br#"{"include_usage":true}"#, after].concat());
    }
    let inner = ObjectScan::new(&INNER, value);
    if inner.status() != ScanStatus::Complete {
        return None;
    }
    match inner.range("include_usage") {
        Some(flag) if &value[flag.clone()] == b"true" => None,
        Some(flag) => Some([before, &value[..flag.start], b"true", &value[flag.end..], after].concat()),
        None => {
            let at = inner.closing()?;
            let comma: &[u8] = if inner.has_members() { b"," } else { b"" };
            Some([before, &value[..at], comma, br#""include_usage":true"#, &value[at..], after].concat())
        }
    }
}

/// Returns the body with its model replaced and every other byte unchanged. None if the body has no model.
pub fn replace_model(body: &[u8], model: &str) -> Option<Vec<u8>> {
    static KEY: [&str; 1] = ["model"];
    let scan = ObjectScan::new(&KEY, body);
    if scan.status() != ScanStatus::Complete {
        return None;
    }
    let range = scan.range("model")?;
    let name = serde_json::to_string(model).ok()?;
    Some([&body[..range.start], name.as_bytes(), &body[range.end..]].concat())
}

fn check_status(status: ScanStatus) -> Result<(), PeekError> {
    match status {
        ScanStatus::Open | ScanStatus::Complete => Ok(()),
        ScanStatus::NotObject => Err(PeekError::NotObject),
        ScanStatus::Malformed => Err(PeekError::Malformed),
        ScanStatus::Duplicate(key) => Err(PeekError::DuplicateKey(key)),
    }
}

fn check_complete(status: ScanStatus) -> Result<(), PeekError> {
    check_status(status)?;
    if status == ScanStatus::Complete { Ok(()) } else { Err(PeekError::Incomplete) }
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct Limits {
    #[serde(alias = "max_output_tokens", alias = "maxTokens")]
    #[serde(rename = "maxOutputTokens")]
    max: Option<Count>,
}

#[derive(Deserialize)]
struct Metadata {
    user_id: Option<String>,
}

/// A count. Some clients write integers as floats.
#[derive(Deserialize)]
#[serde(untagged)]
enum Count {
    Whole(u64),
    Float(f64),
}

impl Count {
    fn get(&self) -> Option<u64> {
        match *self {
            Self::Whole(count) => Some(count),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "negatives are None, the cast saturates"
            )]
            Self::Float(count) => (count >= 0.0).then_some(count.ceil() as u64),
        }
    }
}

fn read<'a>(get: impl Fn(&str) -> Option<ScannedValue<'a>>) -> Result<RequestPeek, PeekError> {
    let model = field::<String>(&get, "model")?;
    let stream = field::<bool>(&get, "stream")?;
    let include_usage =
        field::<StreamOptions>(&get, "stream_options")?.and_then(|options| options.include_usage);
    let mut max_tokens = None;
    for key in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
        if let Some(count) = field::<Count>(&get, key)? {
            max_tokens = max_tokens.max(Some(count.get().ok_or(PeekError::WrongType(key))?));
        }
    }
    for key in ["generationConfig", "generation_config", "inferenceConfig"] {
        // A call with a long response schema is not rejected; its limit is unknown then.
        if !matches!(get(key), Some(ScannedValue::Overlong)) {
            let limit = field::<Limits>(&get, key)?.and_then(|limits| limits.max);
            max_tokens = max_tokens.max(limit.and_then(|count| count.get()));
        }
    }
    // The end user is only a label of the log row. Other values of these fields are for the upstream to check.
    let user = match field::<String>(&get, "user") {
        Ok(Some(user)) => Some(user),
        _ => field::<Metadata>(&get, "metadata").ok().flatten().and_then(|metadata| metadata.user_id),
    };
    let choices = field::<Count>(&get, "n").ok().flatten().and_then(|count| count.get());
    Ok(RequestPeek { model, stream, include_usage, max_tokens, user, choices })
}

fn field<'a, T: Deserialize<'a>>(
    get: &impl Fn(&str) -> Option<ScannedValue<'a>>,
    key: &'static str,
) -> Result<Option<T>, PeekError> {
    match get(key) {
        None => Ok(None),
        Some(ScannedValue::Overlong) => Err(PeekError::Overlong(key)),
        Some(ScannedValue::Raw(raw)) => serde_json::from_slice(raw).map_err(|_| PeekError::WrongType(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn reads_the_fields_of_every_provider() {
        let chat = peek(br#"{"messages":[{"role":"user","content":"{\"model\":1}"}],"model":"gpt-4o","stream":true,
            "stream_options":{"include_usage":false,"x":[1]},"max_tokens":5,"max_completion_tokens":9.0,"user":"u"}"#);
        assert_eq!(
            chat,
            Ok(RequestPeek {
                model: Some("gpt-4o".into()),
                stream: Some(true),
                include_usage: Some(false),
                max_tokens: Some(9),
                user: Some("u".into()),
                choices: None
            })
        );
        for (body, limit) in [
            (r#"{"generationConfig":{"maxOutputTokens":7}}"#, 7),
            (r#"{"generation_config":{"max_output_tokens":7}}"#, 7),
            (r#"{"inferenceConfig":{"maxTokens":8}}"#, 8),
            (r#"{"max_output_tokens":9}"#, 9),
        ] {
            assert_eq!(peek(body.as_bytes()).unwrap().max_tokens, Some(limit), "{body}");
        }
        assert_eq!(peek(br#"{"n":5}"#).unwrap().choices, Some(5));
        assert_eq!(peek(br#"{"n":"many"}"#).unwrap().choices, None);
        assert_eq!(peek(br#"{"metadata":{"user_id":"x"}}"#).unwrap().user.as_deref(), Some("x"));
        assert_eq!(
            peek(br#"{"model":null,"stream":null,"max_tokens":null,"stream_options":null}"#),
            Ok(RequestPeek::default())
        );
        assert_eq!(peek(br#"{"user":{"id":1},"metadata":[1]}"#), Ok(RequestPeek::default()));
        assert_eq!(peek(br#"{"m\u006fdel":"x\ny"}"#).unwrap().model.as_deref(), Some("x\ny"));
    }

    #[test]
    fn errors_name_the_field() {
        for (body, error) in [
            (r#"{"model":"a","mod\u0065l":"b"}"#, PeekError::DuplicateKey("model")),
            (r#"{"model":1}"#, PeekError::WrongType("model")),
            (r#"{"model":"\ud800"}"#, PeekError::WrongType("model")),
            (r#"{"stream":"true"}"#, PeekError::WrongType("stream")),
            (r#"{"max_tokens":-1}"#, PeekError::WrongType("max_tokens")),
            (
                r#"{"stream_options":{"include_usage":true,"include_usage":false}}"#,
                PeekError::WrongType("stream_options"),
            ),
            (r#"{"model":"a""#, PeekError::Incomplete),
            ("[]", PeekError::NotObject),
            (r#"{"model":"a"}x"#, PeekError::Malformed),
        ] {
            assert_eq!(peek(body.as_bytes()), Err(error), "{body}");
        }
        assert_eq!(
            peek(format!(r#"{{"model":"{}"}}"#, "x".repeat(70_000)).as_bytes()),
            Err(PeekError::Overlong("model"))
        );
        assert!(PeekError::DuplicateKey("model").to_string().contains("\"model\""));
    }

    #[test]
    fn a_body_in_chunks_gives_the_model_early_and_the_rest_later() {
        let mut body = BodyPeek::new();
        body.feed(br#"{"model":"gp"#).unwrap();
        assert_eq!(body.snapshot().unwrap().model, None);
        body.feed(br#"t","messages":["#).unwrap();
        assert_eq!(body.snapshot().unwrap().model.as_deref(), Some("gpt"));
        body.feed(br#"],"stream":true"#).unwrap();
        body.feed(b"}\n").unwrap();
        assert_eq!(body.finish().unwrap().stream, Some(true));
        let mut cut = BodyPeek::new();
        cut.feed(b"{").unwrap();
        assert_eq!(cut.finish(), Err(PeekError::Incomplete));
    }

    #[test]
    fn include_usage_is_added_and_every_other_byte_stays() {
        for (body, expected) in [
            (" { } ", Some(r#" { "stream_options":{"include_usage":true}} "#)),
            (r#"{"a": 1 }"#, Some(r#"{"a": 1 ,"stream_options":{"include_usage":true}}"#)),
            (r#"{"stream_options":null,"a":1}"#, Some(r#"{"stream_options":{"include_usage":true},"a":1}"#)),
            (r#"{"stream_options": {} }"#, Some(r#"{"stream_options": {"include_usage":true} }"#)),
            (r#"{"stream_options":{"x":1}}"#, Some(r#"{"stream_options":{"x":1,"include_usage":true}}"#)),
            (
                r#"{"stream_options":{"include_usage": false ,"x":1}}"#,
                Some(r#"{"stream_options":{"include_usage": true ,"x":1}}"#),
            ),
            (r#"{"stream_options":{"include_usage":true}}"#, None),
            (r#"{"stream_options":"x"}"#, None),
            (r#"{"stream_options":{},"stream_options":{}}"#, None),
            ("[]", None),
            ("{", None),
        ] {
            let edited = add_include_usage(body.as_bytes());
            assert_eq!(
                edited.map(|edited| String::from_utf8(edited).unwrap()).as_deref(),
                expected,
                "{body}"
            );
        }
    }

    #[test]
    fn the_model_is_replaced_and_every_other_byte_stays() {
        for (body, expected) in [
            (
                r#" {"a":1, "model" : "x\u0020y" ,"b":{"model":2}} "#,
                Some(r#" {"a":1, "model" : "new \"m\"" ,"b":{"model":2}} "#),
            ),
            (r#"{"model":null}"#, Some(r#"{"model":"new \"m\""}"#)),
            (r#"{"a":1}"#, None),
            (r#"{"model":"a","model":"b"}"#, None),
            ("[]", None),
        ] {
            let edited = replace_model(body.as_bytes(), "new \"m\"");
            assert_eq!(
                edited.map(|edited| String::from_utf8(edited).unwrap()).as_deref(),
                expected,
                "{body}"
            );
        }
    }

    proptest! {
        #[test]
        fn an_edited_body_differs_by_that_field_alone(key in "[a-z]{1,4}", text in ".*", at in 0_usize..3) {
            let mut value = json!({"stream": true, "messages": [{"content": text}]});
            if at > 0 {
                value["stream_options"] = if at == 1 { json!({key: 1}) } else { Value::Null };
            }
            let edited = add_include_usage(value.to_string().as_bytes()).unwrap();
            let mut edited: Value = serde_json::from_slice(&edited).unwrap();
            prop_assert_eq!(&edited["stream_options"]["include_usage"], &json!(true));
            edited["stream_options"].as_object_mut().unwrap().shift_remove("include_usage");
            if at != 1 {
                value["stream_options"] = json!({});
            }
            prop_assert_eq!(edited, value);
        }

        #[test]
        fn arbitrary_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (peek(&body), add_include_usage(&body));
        }
    }
}
