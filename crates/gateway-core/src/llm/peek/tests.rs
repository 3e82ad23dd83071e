//! Tests of the one-pass reader of request bodies, against `serde_json` and mutated field types.

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
            model_at: Some(64..72),
            stream: Some(true),
            include_usage: Some(false),
            max_tokens: Some(9),
            user: Some("u".into()),
            choices: None,
            further_models: FurtherModels::None,
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
fn further_models_are_read_or_known_to_be_unreadable() {
    let long = format!(r#"["{}"]"#, "x".repeat(70_000));
    for (value, models) in [
        ("null", FurtherModels::None),
        (r#"["a","b\u0063"]"#, FurtherModels::Named(vec!["a".into(), "bc".into()])),
        ("[]", FurtherModels::Named(Vec::new())),
        (r#""a""#, FurtherModels::Unreadable),
        (r#"["a",1]"#, FurtherModels::Unreadable),
        (r#"{"a":1}"#, FurtherModels::Unreadable),
        (long.as_str(), FurtherModels::Unreadable),
    ] {
        let body = format!(r#"{{"model":"m","models":{value}}}"#);
        assert_eq!(peek(body.as_bytes()).unwrap().further_models, models, "{value:.20}");
    }
    assert_eq!(peek(br#"{"models":[],"MODELS":["a"]}"#), Err(PeekError::DuplicateKey("models")));
}

#[test]
fn errors_name_the_field() {
    for (body, error) in [
        (r#"{"model":"a","mod\u0065l":"b"}"#, PeekError::DuplicateKey("model")),
        (r#"{"max_tokens":1,"MAX_TOKENS":2}"#, PeekError::DuplicateKey("max_tokens")),
        (r#"{"model":"a""#, PeekError::Incomplete),
        ("[]", PeekError::NotObject),
        (r#"{"model":"a"}x"#, PeekError::Malformed),
    ] {
        assert_eq!(peek(body.as_bytes()), Err(error), "{body}");
    }
    assert!(PeekError::DuplicateKey("model").to_string().contains("\"model\""));
}

#[test]
fn a_field_of_another_type_does_not_hide_the_others() {
    let cases = [
        (r#""max_tokens":"1000""#, Some(1_000)),
        (r#""max_tokens":" 1000.0 ""#, Some(1_000)),
        (r#""max_tokens":1e3"#, Some(1_000)),
        (r#""max_tokens":10.2"#, Some(11)),
        (r#""max_tokens":99999999999999999999999"#, Some(u64::MAX)),
        (r#""max_tokens":null,"max_completion_tokens":7"#, Some(7)),
        (r#""max_tokens":9,"max_output_tokens":"7","generationConfig":{"maxOutputTokens":"8"}"#, Some(9)),
        (r#""generationConfig":null"#, None),
        // The model's own limit holds.
        (r#""max_tokens":1e400"#, None),
        (r#""max_tokens":-1"#, None),
        (r#""max_tokens":0"#, None),
        (r#""max_tokens":true"#, None),
        (r#""max_tokens":"many""#, None),
        (r#""max_tokens":"NaN""#, None),
        (r#""max_tokens":[10]"#, None),
        (r#""max_tokens":{"value":10},"max_completion_tokens":10"#, None),
        (r#""generationConfig":[],"max_tokens":10"#, None),
        (r#""generationConfig":{"maxOutputTokens":[]},"max_tokens":10"#, None),
        (r#""generationConfig":{"maxOutputTokens":1,"max_output_tokens":2}"#, None),
    ];
    for (fields, max_tokens) in cases {
        let read = peek(format!(r#"{{{fields},"model":"gpt-4o","stream":"true"}}"#).as_bytes()).unwrap();
        assert_eq!((read.model.as_deref(), read.stream), (Some("gpt-4o"), Some(true)), "{fields}");
        assert_eq!(read.max_tokens, max_tokens, "{fields}");
    }
    let long = "x".repeat(70_000);
    let read = peek(format!(r#"{{"model":"a","max_tokens":"{long}","user":"{long}"}}"#).as_bytes()).unwrap();
    let expected = RequestPeek { model: Some("a".into()), model_at: Some(9..12), ..RequestPeek::default() };
    assert_eq!(read, expected);
    for model in ["1", "null", r#""\ud800""#, &format!("\"{long}\"")] {
        let read = peek(format!(r#"{{"model":{model},"max_tokens":5}}"#).as_bytes()).unwrap();
        assert_eq!((read.model, read.max_tokens), (None, Some(5)));
    }
    for (value, flag) in
        [("1", Some(true)), (r#""False""#, Some(false)), ("0", Some(false)), ("[]", None), ("7", None)]
    {
        let body = format!(r#"{{"stream":{value},"stream_options":{{"include_usage":{value}}}}}"#);
        let read = peek(body.as_bytes()).unwrap();
        assert_eq!((read.stream, read.include_usage), (flag, flag), "{value}");
    }
    assert_eq!(peek(br#"{"n":"5"}"#).unwrap().choices, Some(5));
    assert_eq!(peek(br#"{"n":2,"generationConfig":{"candidateCount":8}}"#).unwrap().choices, Some(8));
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
fn the_model_and_the_stream_are_known_as_soon_as_a_snapshot_has_them() {
    for body in [
        r#"{"model":"gpt","n":1,"stream":true,"a":1}"#,
        r#"{"stream":"no","model":"gpt"}"#,
        r#"{"stream":1e5,"model":7}"#,
        r#"{"stream":null,"model":"\ud800","max_tokens":[]}"#,
        r#"{"stream":[true],"model":null}"#,
        r#"{"a":{"model":"b","stream":true}}"#,
    ] {
        let mut peek = BodyPeek::new();
        for byte in body.as_bytes() {
            peek.feed(&[*byte]).unwrap();
            let read = peek.snapshot().unwrap();
            assert_eq!(
                (peek.has_model(), peek.has_stream()),
                (read.model.is_some(), read.stream.is_some()),
                "{body}"
            );
        }
    }
}

/// A client may send its body byte by byte, behind fields that take long to parse.
#[test]
fn a_chunk_costs_the_same_whatever_came_before_it() {
    use rustix::time::{ClockId, clock_gettime};
    let spent = |length: usize| {
        let list = |item: &str| format!("[{}]", vec![item; length / (item.len() + 1)].join(","));
        let config = format!(r#"{{"a":{}}}"#, list("1"));
        let mut peek = BodyPeek::new();
        let fields = format!(
            r#"{{"stream":"{}","models":{},"metadata":{config},"generationConfig":{config},"model":"{}","x":[0"#,
            "\\u0041".repeat(length / 6),
            list("\"a\""),
            "\\u0041".repeat(length / 6),
        );
        peek.feed(fields.as_bytes()).unwrap();
        let now = || {
            let now = clock_gettime(ClockId::ThreadCPUTime);
            std::time::Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
        };
        let before = now();
        for _ in 0..20_000 {
            peek.feed(b" ").unwrap();
            assert!(peek.has_model() && !peek.has_stream());
        }
        now().saturating_sub(before)
    };
    // A disturbed run takes longer.
    let lowest = |length: usize| (0..4).map(|_| spent(length)).min().unwrap();
    let (short, long) = (lowest(12), lowest(60_000));
    assert!(long < short * 10, "{long:?} instead of {short:?}");
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
        assert_eq!(edited.map(|edited| String::from_utf8(edited).unwrap()).as_deref(), expected, "{body}");
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
        assert_eq!(edited.map(|edited| String::from_utf8(edited).unwrap()).as_deref(), expected, "{body}");
    }
    let body = br#"{"a":1,"model":"x\u0020y","b":2}"#;
    let at = peek(body).unwrap().model_at.unwrap();
    for model in ["gpt-4o", "new \"m\"", "back\\slash", "tab\t", "ü"] {
        let edited = replace_model_at(body, &at, model);
        assert_eq!(edited, replace_model(body, model));
        assert_eq!(serde_json::from_slice::<Value>(&edited.unwrap()).unwrap()["model"], model);
    }
    assert_eq!(replace_model_at(b"{}", &at, "m"), None);
}

/// What a lenient server reads as a count.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn expected_count(value: &Value) -> Option<u64> {
    let number = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.trim().to_owned(),
        _ => return None,
    };
    let float: f64 = number.parse().ok()?;
    number.parse().ok().or_else(|| (float.is_finite() && float >= 0.0).then_some(float.ceil() as u64))
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e6..1e6).prop_map(Value::from),
        any::<u16>().prop_map(|number| Value::from(number.to_string())),
        prop_oneof!["true", "False", "1e3", " 12 ", "-1", "inf", ".*"].prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::hash_map("[a-z]{1,3}|maxOutputTokens", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn every_field_is_read_for_itself(values in prop::collection::vec(prop::option::of(any_json()), KEYS.len()), model in ".*") {
        let mut body: serde_json::Map<String, Value> = KEYS
            .iter()
            .zip(values)
            .filter_map(|(key, value)| Some(((*key).to_owned(), value?)))
            .collect();
        body.insert("model".into(), model.clone().into());
        let read = peek(Value::Object(body.clone()).to_string().as_bytes()).unwrap();
        prop_assert_eq!(read.model, Some(model));
        prop_assert_eq!(read.user.as_deref(), body.get("user").and_then(Value::as_str)
            .or_else(|| body.get("metadata")?.get("user_id")?.as_str()));
        let configs = ["generationConfig", "generation_config", "inferenceConfig"];
        let is_bad = |value: &Value| !value.is_null() && expected_count(value).is_none_or(|count| count == 0);
        let top = ["max_tokens", "max_completion_tokens", "max_output_tokens"].into_iter().filter_map(|key| body.get(key));
        let nested = configs.into_iter().filter_map(|key| body.get(key)?.get("maxOutputTokens"));
        let limits: Vec<&Value> = top.chain(nested).collect();
        let is_unknown = limits.iter().any(|value| is_bad(value))
            || configs.iter().filter_map(|key| body.get(*key)).any(|value| !value.is_null() && !value.is_object());
        let largest = limits.iter().filter_map(|value| expected_count(value)).max();
        prop_assert_eq!(read.max_tokens, largest.filter(|_| !is_unknown));
        if let Some(Value::Bool(stream)) = body.get("stream") {
            prop_assert_eq!(read.stream, Some(*stream));
        }
    }

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
