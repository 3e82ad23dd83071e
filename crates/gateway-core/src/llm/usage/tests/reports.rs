//! Reports are read as a tree of `serde_json` values would be, from their text and from parsed objects.

use super::{super::body::parse_text, *};

/// Keys of every format, so that random reports are taken for each of them.
const KEYS: &[&str] = &[
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "prompt_tokens_details",
    "completion_tokens_details",
    "reasoning_tokens",
    "audio_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "cache_creation",
    "ephemeral_1h_input_tokens",
    "promptTokenCount",
    "totalTokenCount",
    "promptTokensDetails",
    "modality",
    "tokenCount",
    "inputTokens",
    "outputTokens",
    "cacheWriteInputTokens",
    "cacheDetails",
    "ttl",
    "inputTokenCount",
    "billed_units",
    "tokens",
    "other",
];

const ODD_VALUES: &[&str] = &[
    "12.0",
    "12.5",
    "13.5",
    "0.4",
    "1e3",
    "-0",
    "-0.0",
    "-3.0",
    "1e30",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775809",
    "true",
    "\"AUDIO\"",
    "\"\\u0041UDIO\"",
    "\"1h\"",
    "\"12\"",
    "\"é\\n\"",
];

/// A report with one of these is invalid, even if the value would not be used.
const INVALID_VALUES: &[&str] = &["1e400", "\"\\ud800\"", "\"\\x\"", "01", "tru", "", "\"\u{1}\""];

/// A key as JSON text, sometimes with an escaped character.
fn key_text() -> impl Strategy<Value = String> {
    let key = prop_oneof![4 => 0..5usize, 1 => 0..KEYS.len()];
    (key, proptest::option::weighted(0.2, 0..5usize)).prop_map(|(key, escaped)| {
        let key = KEYS[key];
        let escape = |(at, letter): (usize, char)| match escaped {
            Some(escaped) if escaped == at => format!("\\u{:04x}", u32::from(letter)),
            _ => letter.to_string(),
        };
        key.chars().enumerate().map(escape).collect()
    })
}

fn scalar_text() -> impl Strategy<Value = String> {
    prop_oneof![
        40 => (0u64..100).prop_map(|number| number.to_string()),
        5 => any::<i64>().prop_map(|number| number.to_string()),
        10 => Just("null".to_owned()),
        20 => proptest::sample::select(ODD_VALUES).prop_map(str::to_owned),
        1 => proptest::sample::select(INVALID_VALUES).prop_map(str::to_owned),
    ]
}

fn object_text(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let member =
        (key_text(), "[ \n]?", value).prop_map(|(key, space, value)| format!("\"{key}\":{space}{value}"));
    proptest::collection::vec(member, 0..8).prop_map(|members| format!("{{{}}}", members.join(",")))
}

fn report_text() -> impl Strategy<Value = String> {
    let value = scalar_text().prop_recursive(3, 24, 6, |inner| {
        let list = proptest::collection::vec(inner.clone(), 0..3);
        prop_oneof![object_text(inner), list.prop_map(|items| format!("[{}]", items.join(",")))]
    });
    object_text(value)
}

fn parse_map(raw: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(raw) {
        Ok(Value::Object(map)) => Some(map),
        _ => None,
    }
}

fn expected_count(value: Option<&Value>) -> Option<u64> {
    let number = value?.as_number()?;
    number.as_u64().or_else(|| {
        let float = number.as_f64().filter(|float| *float >= 0.0)?;
        format!("{float:.0}").parse().ok()
    })
}

fn check_same(report: &UsageReport<'_>, map: &Map<String, Value>) {
    for key in KEYS {
        let value = map.get(*key);
        assert_eq!(report.has_any(&[key]), value.is_some(), "{key}");
        assert_eq!(report.count(key), expected_count(value), "{key}");
        assert_eq!(report.text(key), value.and_then(Value::as_str), "{key}");
        let object = value.and_then(Value::as_object);
        assert_eq!(report.object(key).is_some(), object.is_some(), "{key}");
        if let (Some(report), Some(map)) = (report.object(key), object) {
            check_same(report, map);
        }
        let items = value.and_then(Value::as_array).into_iter().flatten();
        let objects: Vec<_> = items.filter_map(Value::as_object).collect();
        assert_eq!(report.list(key).len(), objects.len(), "{key}");
        for (report, map) in report.list(key).iter().zip(objects) {
            check_same(report, map);
        }
    }
    for pair in KEYS.windows(2) {
        let first = pair.iter().find_map(|key| expected_count(map.get(*key)));
        assert_eq!(report.first_count(pair), first);
        for key in KEYS {
            let nested =
                pair.iter().find_map(|object| expected_count(map.get(*object)?.as_object()?.get(*key)));
            assert_eq!(report.nested_count(pair, key), nested);
        }
    }
}

proptest! {
    #[test]
    fn any_report_is_read_as_a_tree_of_values(raw in report_text()) {
        let report = UsageReport::parse(&raw);
        let map = parse_map(&raw);
        prop_assert_eq!(report.is_some(), map.is_some());
        if let (Some(report), Some(map)) = (report, map) {
            check_same(&report, &map);
            check_same(&UsageReport::from_map(&map), &map);
            for format in ProviderFormat::ALL {
                let usage = read_usage(format, &raw).map(|usage| Usage { raw: None, ..usage });
                prop_assert_eq!(usage, parse_report(format, &map));
            }
        }
    }

    #[test]
    fn any_malformed_report_is_rejected(raw in report_text(), cut in 0usize..200, more in "[]{},:\"\\\\ 0]?") {
        let cut: String = raw.chars().take(cut).chain(more.chars()).collect();
        prop_assert_eq!(UsageReport::parse(&cut).is_some(), parse_map(&cut).is_some(), "{}", cut);
    }

    #[test]
    fn texts_are_parsed_as_json(raw in "\"?[a\\\\nu0\"é\u{1}\u{7f} ]{0,6}\"?") {
        let expected = serde_json::from_str::<String>(&raw).ok().filter(|text| !text.is_empty());
        prop_assert_eq!(parse_text(&raw), expected);
    }
}

#[test]
fn a_report_is_rejected_at_the_depth_at_which_serde_json_stops() {
    for depth in 120..135 {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let inside = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            let raw = format!(r#"{{"prompt_tokens":1,"other":{inside}}}"#);
            assert_eq!(UsageReport::parse(&raw).is_some(), parse_map(&raw).is_some(), "{depth}");
        }
    }
}

#[test]
fn the_last_of_many_equal_keys_counts() {
    let members: Vec<_> = (0..=50_000).map(|count| format!(r#""prompt\u005ftokens":{count}"#)).collect();
    let raw = format!("{{{}}}", members.join(","));
    assert_eq!(read(ProviderFormat::OpenAi, &raw), Usage::from_totals(50_000, 0));
}
