//! Tests of canonical JSON: equal meanings have one form, with generated texts too, and what is no JSON is refused.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn form(text: &str) -> Result<String, CanonicalError> {
    canonical_json(text.as_bytes(), &[]).map(|bytes| String::from_utf8(bytes).unwrap())
}

#[test]
fn the_same_meaning_has_one_form() {
    for (text, expected) in [
        (r#" { "b" : [ 1 , 2.50 ] , "a" : null } "#, r#"{"a":null,"b":[1,25e-1]}"#),
        (
            r#"{"z":{"y":1,"x":true},"\u0061":"\u0041\/\n"}"#,
            "{\"a\":\"A/\\u000a\",\"z\":{\"x\":true,\"y\":1}}",
        ),
        ("[1.0, 1, 1e0, 10e-1, 0.1E+1]", "[1,1,1,1,1]"),
        ("[100, 1e2, 100.00, 1E+2]", "[1e2,1e2,1e2,1e2]"),
        ("[0, -0, 0.0, -0.0e5]", "[0,0,0,0]"),
        ("[-1.50]", "[-15e-1]"),
        ("[]", "[]"),
        ("{}", "{}"),
        ("\"é \\u00e9\"", "\"é é\""),
        (
            r#"[{"b":[{"d":1,"c":2},{}],"a":{"f":[],"e":{}}},3]"#,
            r#"[{"a":{"e":{},"f":[]},"b":[{"c":2,"d":1},{}]},3]"#,
        ),
    ] {
        assert_eq!(form(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn escapes_are_found_wherever_they_are() {
    for before in 0..70 {
        for escaped in ["\n", "\u{1f}", "\"", "\\"] {
            let text = format!("{}{escaped}{}", "x".repeat(before), "é".repeat(70 - before));
            let json = serde_json::to_string(&text).unwrap();
            let canonical = form(&json).unwrap();
            assert_eq!(serde_json::from_str::<String>(&canonical).unwrap(), text, "{canonical}");
        }
    }
}

#[test]
fn big_integers_never_become_equal() {
    for (a, b) in [
        ("18446744073709551616", "18446744073709551617"),
        ("9007199254740992", "9007199254740993"),
        ("0.1", "0.10000000000000000001"),
        ("1e400", "1e401"),
    ] {
        assert_ne!(form(a).unwrap(), form(b).unwrap(), "{a} {b}");
    }
}

#[test]
fn keys_are_left_out_at_the_top_only() {
    let text = br#"{"stream":true,"a":{"stream":true},"b":[{"stream":1}]}"#;
    let found = canonical_json(text, &["stream", "absent"]).unwrap();
    assert_eq!(found, br#"{"a":{"stream":true},"b":[{"stream":1}]}"#);
}

#[test]
fn invalid_and_ambiguous_json_is_rejected() {
    for text in [
        "",
        "{",
        "[1,]",
        "{\"a\"}",
        "{\"a\":1,}",
        "{,}",
        "01",
        "1.",
        ".5",
        "-",
        "1e",
        "+1",
        "tru",
        "\"a",
        "\"\\ud800\"",
        "\"\\x\"",
        "\"\n\"",
        "{} {}",
        "nul",
        "'a'",
        "1e99999999999999999999",
    ] {
        assert_eq!(form(text), Err(CanonicalError::NotJson), "{text}");
    }
    assert_eq!(canonical_json(b"\"\xff\"", &[]), Err(CanonicalError::NotJson));
    for text in [r#"{"a":1,"a":1}"#, r#"{"a":1,"b":{"x":1,"y":2,"\u0078":3}}"#, r#"{"stream":1,"stream":2}"#]
    {
        assert_eq!(canonical_json(text.as_bytes(), &["stream"]), Err(CanonicalError::DuplicateKey), "{text}");
    }
    assert_eq!(form(&"[".repeat(100_000)), Err(CanonicalError::TooDeep));
    assert!(form(&format!("{}{}", "[".repeat(100), "]".repeat(100))).is_ok());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(".{0,4}", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn the_form_is_json_and_stays_as_it_is(value in any_json()) {
        let once = form(&value.to_string()).unwrap();
        prop_assert!(serde_json::from_str::<Value>(&once).is_ok(), "{}", once);
        prop_assert_eq!(form(&once).unwrap(), once);
    }

    #[test]
    fn layout_and_order_change_nothing(value in any_json()) {
        fn reversed(value: &Value) -> Value {
            match value {
                Value::Array(items) => items.iter().map(reversed).collect(),
                Value::Object(map) => Value::Object(map.iter().rev().map(|(k, v)| (k.clone(), reversed(v))).collect()),
                other => other.clone(),
            }
        }
        let pretty = serde_json::to_string_pretty(&reversed(&value)).unwrap();
        prop_assert_eq!(form(&pretty).unwrap(), form(&value.to_string()).unwrap());
    }

    #[test]
    fn json_is_what_serde_says_it_is(text in r#"(\{|\}|\[|\]|"|:|,|1|0|-|\.|e|true|null|\\|a| ){0,12}"#) {
        let ours = form(&text);
        if ours != Err(CanonicalError::DuplicateKey) {
            prop_assert_eq!(ours.is_ok(), serde_json::from_str::<Value>(&text).is_ok(), "{}", text);
        }
    }
}
