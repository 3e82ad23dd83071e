//! The scanners against serde_json, on any generated JSON text, on any prefix of one, and on arbitrary bytes.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

#[test]
fn members_are_visited_at_any_depth_and_never_inside_strings() {
    let text = br#"{"a" : {"b":"x\"usage\":{} y"},"c":["usage",1],"d":null,"e":""}"#;
    let mut members = Vec::new();
    for_each_member(text, |key, value| members.push((key, value)));
    assert_eq!(
        members,
        [
            (&b"a"[..], MemberValue::Object),
            (b"b", MemberValue::Text(br#"x\"usage\":{} y"#)),
            (b"c", MemberValue::Other),
            (b"d", MemberValue::Other),
            (b"e", MemberValue::Text(b"")),
        ]
    );
}

#[test]
fn characters_count_escapes_and_multibyte_letters_once() {
    for (raw, expected) in
        [("abc", 3), (r"a\n\u00e9", 3), ("é漢", 2), (r"\ud83d\ude00!", 2), ("", 0), (r"\", 1)]
    {
        assert_eq!(char_count(raw.as_bytes()), expected, "{raw}");
    }
}

#[test]
fn segments_name_every_kind_of_escape() {
    use Escape::{Invalid, Letter, Truncated, Unit};
    let raw = r"aé\n\u00e9\x\é\u00g9\u00";
    let found: Vec<_> =
        segments(raw.as_bytes()).map(|segment| (&raw[segment.range], segment.escape)).collect();
    assert_eq!(
        found,
        [
            ("aé", None),
            (r"\n", Some(Letter(b'n'))),
            (r"\u00e9", Some(Unit(0xe9))),
            (r"\x", Some(Invalid)),
            (r"\é", Some(Invalid)),
            (r"\u00g9", Some(Invalid)),
            (r"\u00", Some(Truncated)),
        ]
    );
}

#[test]
fn a_truncated_string_is_cut_before_a_split_escape_or_pair() {
    for (raw, kept) in [
        (r"x\ud83d\ude00", r"x\ud83d\ude00"),
        (r"x\ud83d\ude", "x"),
        (r"x\ud83d\", "x"),
        (r"x\ud83d", "x"),
        (r"x\ud8", "x"),
        (r"x\", "x"),
        (r"x\ud83dy", r"x\ud83dy"),
        ("x", "x"),
    ] {
        assert_eq!(&raw[..closable_length(raw.as_bytes())], kept, "{raw}");
    }
}

/// Any JSON value, with strings that need escapes.
fn json() -> impl Strategy<Value = Value> {
    let text = || prop_oneof![".{0,8}", r#"["\\/\n\t\u{1}😀éa]{0,6}"#];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((text(), inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn texts<'a>(value: &'a Value, keys: &mut Vec<&'a str>, values: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => values.push(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, keys, values)),
        Value::Object(members) => {
            for (key, value) in members {
                keys.push(key);
                texts(value, keys, values);
            }
        }
        _ => {}
    }
}

fn written(value: &Value, pretty: bool) -> String {
    if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) }.unwrap()
}

/// The content with every character escaped as UTF-16 code units.
fn fully_escaped(content: &str) -> String {
    content.encode_utf16().fold(String::new(), |escaped, unit| format!("{escaped}\\u{unit:04X}"))
}

/// Calls every function of the module; the results do not matter.
fn scan_all(bytes: &[u8]) {
    for_each_member(bytes, |key, _| drop(unescape(key)));
    for token in string_tokens(bytes) {
        let raw = &bytes[token.range];
        let _ = (unescape(raw), char_count(raw), closable_length(raw));
        assert_eq!(segments(raw).map(|segment| segment.range.len()).sum::<usize>(), raw.len());
    }
    if let Some((first, rest)) = bytes.split_first() {
        let _ = ValueSkipper::new(*first).feed(rest);
    }
    if let Ok(text) = str::from_utf8(bytes) {
        let _ = (Number::read(text), complete_truncated(text));
    }
    static KEYS: [&str; 1] = ["a"];
    let _ = ObjectScan::new(&KEYS, bytes).get("a");
}

proptest! {
    #[test]
    fn strings_agree_with_serde(value in json(), pretty in any::<bool>()) {
        let text = written(&value, pretty);
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        texts(&value, &mut keys, &mut values);
        let content = |token: StringToken| unescape(&text.as_bytes()[token.range]).unwrap();
        let (found_keys, found_values): (Vec<_>, Vec<_>) =
            string_tokens(text.as_bytes()).partition(|token| token.is_key);
        for token in found_keys.iter().chain(&found_values) {
            prop_assert_eq!(token.has_escapes, text[token.range.clone()].contains('\\'));
        }
        prop_assert_eq!(found_keys.into_iter().map(content).collect::<Vec<_>>(), keys);
        prop_assert_eq!(found_values.into_iter().map(content).collect::<Vec<_>>(), values);
    }

    #[test]
    fn unescape_agrees_with_serde(raw in r#"([a-z é😀]|\\[nrtbf/\\"ux]|\\u[dD][89c-f][0-9a-f]{2}|\\u00[0-9A-F]{2}|\x01){0,8}"#) {
        prop_assume!(string_end(raw.as_bytes(), 0).is_none());
        let ours = unescape(raw.as_bytes());
        let expected = serde_json::from_str::<String>(&format!("\"{raw}\"")).ok();
        prop_assert_eq!(&ours, &expected);
        if let Some(content) = ours {
            prop_assert_eq!(char_count(raw.as_bytes()), content.chars().count() as u64);
            prop_assert_eq!(closable_length(raw.as_bytes()), raw.len());
            prop_assert_eq!(unescape(fully_escaped(&content).as_bytes()), Some(content));
        }
    }

    #[test]
    fn members_agree_with_serde(value in json(), pretty in any::<bool>()) {
        let text = written(&value, pretty);
        let mut keys = Vec::new();
        texts(&value, &mut keys, &mut Vec::new());
        let mut found = Vec::new();
        for_each_member(text.as_bytes(), |key, _| found.push(unescape(key).unwrap()));
        prop_assert_eq!(found, keys);
    }

    #[test]
    fn the_span_of_a_value_is_the_whole_value_in_any_chunking(value in json(), size in 1_usize..9) {
        let text = value.to_string();
        let followed = format!("{text},1");
        let (first, rest) = followed.as_bytes().split_first().unwrap();
        let mut skipper = ValueSkipper::new(*first);
        let mut end = 1;
        for chunk in rest.chunks(size) {
            if let Some(length) = skipper.feed(chunk) {
                end += length;
                break;
            }
            end += chunk.len();
        }
        prop_assert_eq!(&followed[..end], text);
    }

    #[test]
    fn numbers_agree_with_serde(text in r"-?[0-9]{0,3}(\.[0-9]{0,2})?([eE][+-]?[0-9]{0,2})?") {
        let valid = serde_json::from_str::<Value>(&text).is_ok();
        prop_assert_eq!(Number::read(&text).is_some_and(|(_, length)| length == text.len()), valid);
    }

    #[test]
    fn any_prefix_of_any_json_completes_to_json(value in json(), cut in any::<prop::sample::Index>()) {
        let text = json_in_object(&value);
        let cut = text.floor_char_boundary(1 + cut.index(text.len()));
        let completed = complete_truncated(&text[..cut]).unwrap();
        prop_assert!(serde_json::from_str::<Value>(&completed).is_ok(), "{} from {}", completed, &text[..cut]);
        if cut == text.len() {
            prop_assert_eq!(completed, text);
        }
    }

    #[test]
    fn prefixes_and_arbitrary_bytes_never_panic(
        value in json(),
        cut in any::<prop::sample::Index>(),
        noise in prop::collection::vec(any::<u8>(), 0..40),
        symbols in r#"[\[\]{}":,\\u0ad8é ]{0,40}"#,
    ) {
        let text = value.to_string();
        scan_all(&text.as_bytes()[..cut.index(text.len() + 1)]);
        scan_all(&noise);
        scan_all(symbols.as_bytes());
    }
}

fn json_in_object(value: &Value) -> String {
    serde_json::json!({ "value": value }).to_string()
}
