//! The scanner against serde, on any chunking, and on bodies that parsers read differently.

use super::*;
use proptest::prelude::*;
use serde_json::Value;

static KEYS: [&str; 3] = ["model", "stream", "a"];

fn fed(pieces: &[&[u8]]) -> ObjectScanner<3> {
    let mut scanner = ObjectScanner::new(&KEYS);
    for piece in pieces {
        scanner.feed(piece);
    }
    scanner
}

fn facts(scanner: &ObjectScanner<3>) -> impl PartialEq + std::fmt::Debug + use<> {
    let values = KEYS.map(|key| {
        (
            scanner.range(key),
            scanner.get(key).map(|found| match found {
                ScannedValue::Raw(raw) => Some(raw.to_vec()),
                ScannedValue::Overlong => None,
            }),
        )
    });
    (scanner.status(), scanner.opening(), scanner.closing(), scanner.has_members(), values)
}

#[test]
fn finds_raw_values_and_braces() {
    let body = br#"  {"x":{"model":"no"},"model" : "gpt\"4","a":[1,{"b":"]"}],"stream":true } "#;
    let scanner = fed(&[body]);
    assert_eq!(scanner.status(), ScanStatus::Complete);
    assert_eq!(scanner.get("model"), Some(ScannedValue::Raw(br#""gpt\"4""#)));
    assert_eq!(scanner.get("a"), Some(ScannedValue::Raw(br#"[1,{"b":"]"}]"#)));
    assert_eq!(scanner.get("stream"), Some(ScannedValue::Raw(b"true")));
    assert_eq!((scanner.opening(), scanner.closing()), (Some(2), Some(body.len() - 2)));
    assert_eq!(ObjectScan::new(&KEYS, body).get("stream"), Some(ScannedValue::Raw(b"true")));
}

#[test]
fn refuses_what_others_might_read_differently() {
    let duplicate = ScanStatus::Duplicate("model");
    for (body, status) in [
        (r#"{"model":"a","model":"b"}"#, duplicate),
        (r#"{"model":"a","mod\u0065l":"b"}"#, duplicate),
        (r#"{"\u006d\u006F\u0064\u0065\u006c":"a","model":"b"}"#, duplicate),
        (r#"{"model":"a","MODEL":"b"}"#, duplicate),
        (r#"{"Model":"a","model":"b"}"#, duplicate),
        (r#"{"model":"a","x":{"model":"b"},"models":1,"mode":2}"#, ScanStatus::Complete),
        (r#"{"a":[}],"model":"b"}"#, ScanStatus::Malformed),
        (r#"{"a":[/*"*/],"model":"b"/*"]*/}"#, ScanStatus::Malformed),
        (r#"{"a":1}{"model":"b"}"#, ScanStatus::Malformed),
        (r#"{"a" 1}"#, ScanStatus::Malformed),
        (r#"{"a":1,}"#, ScanStatus::Malformed),
        ("{'a':1}", ScanStatus::Malformed),
        (r#"{"a":,}"#, ScanStatus::Malformed),
        ("{\0\"\0", ScanStatus::Malformed),
        ("[1]", ScanStatus::NotObject),
        ("\u{feff}{}", ScanStatus::NotObject),
        ("{}", ScanStatus::Complete),
        (r#"{"a":"#, ScanStatus::Open),
        ("", ScanStatus::Open),
    ] {
        assert_eq!(fed(&[body.as_bytes()]).status(), status, "{body}");
    }
    assert_eq!(fed(&[br#"{"Model":"a"}"#]).get("model"), None);
}

#[test]
fn long_values_are_marked_and_not_kept() {
    let long = format!(r#"{{"a":"{}","model":"m"}}"#, "x".repeat(VALUE_LIMIT));
    let mut scanner = ObjectScanner::new(&KEYS);
    for piece in long.as_bytes().chunks(1000) {
        scanner.feed(piece);
    }
    assert_eq!(scanner.get("a"), Some(ScannedValue::Overlong));
    assert_eq!(scanner.get("model"), Some(ScannedValue::Raw(br#""m""#)));
    assert_eq!(ObjectScan::new(&KEYS, long.as_bytes()).get("a"), Some(ScannedValue::Overlong));
}

#[test]
fn deep_nesting_is_counted_without_a_limit() {
    let deep = format!(r#"{{"x":{}{},"model":1}}"#, "[{\"a\":".repeat(50_000), "1}]".repeat(50_000));
    assert!(matches!(fed(&[deep.as_bytes()]).get("model"), Some(ScannedValue::Raw(b"1"))));
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((prop_oneof![Just("model".to_owned()), ".*"], inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = serde_json::Map<String, Value>> {
    let key =
        prop_oneof![Just("model".to_owned()), Just("stream".to_owned()), Just("a".to_owned()), "[^mMsSaA].*"];
    prop::collection::vec((key, json()), 0..8).prop_map(|members| members.into_iter().collect())
}

fn pieces<'a>(body: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
    cuts.extend([0, body.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn agrees_with_serde_on_valid_objects_in_any_chunking(
        map in object(), pretty in any::<bool>(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..9),
    ) {
        let body = if pretty { serde_json::to_vec_pretty(&map) } else { serde_json::to_vec(&map) }.unwrap();
        // Not every float survives being written, so what was written is what counts.
        let map: serde_json::Map<String, Value> = serde_json::from_slice(&body).unwrap();
        let whole = ObjectScan::new(&KEYS, &body);
        let parts = fed(&pieces(&body, &cuts));
        prop_assert_eq!(parts.status(), ScanStatus::Complete);
        prop_assert_eq!(whole.has_members(), !map.is_empty());
        for key in KEYS {
            let Some(ScannedValue::Raw(raw)) = parts.get(key) else {
                prop_assert!(!map.contains_key(key));
                continue;
            };
            prop_assert_eq!(whole.get(key), Some(ScannedValue::Raw(raw)));
            prop_assert_eq!(&serde_json::from_slice::<Value>(raw).unwrap(), &map[key]);
        }
    }

    #[test]
    fn any_chunking_of_any_bytes_gives_the_same_answer(
        body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..60),
            r#"[ ]{0,1}\{("(model|a|m\\u006fdel|A|x\\"?)"?[:, ]?[{\["\]}tx1\\,/]{0,4},?){0,5}[\] }]{0,2}"#
                .prop_map(String::into_bytes),
        ],
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..9),
    ) {
        let whole = fed(&[&body]);
        let single: Vec<&[u8]> = body.chunks(1).collect();
        prop_assert_eq!(facts(&fed(&pieces(&body, &cuts))), facts(&whole));
        prop_assert_eq!(facts(&fed(&single)), facts(&whole));
        if serde_json::from_slice::<serde_json::Map<String, Value>>(&body).is_ok() {
            prop_assert!(matches!(whole.status(), ScanStatus::Complete | ScanStatus::Duplicate(_)));
        }
    }
}
