//! Tests of the query language: what is parsed, where errors point, the canonical form, and the meaning.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::ids::{AppId, OrgId};
use crate::logs::{BodyStorage, LogLevel, LogRow, LogSource, PromptVersionRef, Tokens, first_log_id};
use crate::time::Timestamp;

fn row() -> LogRow {
    let metadata = json!({"env": "prod", "retries": 3, "debug": true, "none": null, "ratio": 1.5});
    LogRow {
        request_id: "req-1".into(),
        level: LogLevel::Warn,
        provider: "openai".into(),
        model: Some("gpt-4o-mini".into()),
        path: "/v1/chat/completions".into(),
        status: 429,
        latency_ms: 2_500,
        tokens: Some(Tokens { prompt: 900, completion: 101, cached: 5, ..Tokens::default() }),
        cost_usd: Some("0.0125".parse().unwrap()),
        cache: Some("HIT".into()),
        app_id: Some(AppId(uuid::Uuid::from_u128(7))),
        user: Some("maria".into()),
        session_id: Some("s 1".into()),
        metadata: metadata.as_object().unwrap().clone(),
        prompt: Some(PromptVersionRef { name: "support/answer".into(), version: 3 }),
        request_stored: BodyStorage::Full,
        response_stored: BodyStorage::Full,
        request: br#"{"messages":[{"role":"user","content":"How tall is the Eiffel Tower?"}]}"#.to_vec(),
        response: br#"{"choices":[{"message":{"content":"330 metres, the tower of Paris"}}]}"#.to_vec(),
        ..LogRow::new(
            first_log_id("2026-03-04T05:06:07Z".parse().unwrap()) + 5,
            OrgId(uuid::Uuid::nil()),
            Timestamp(0),
            LogSource::Proxy,
        )
    }
}

fn matches(query: &str) -> bool {
    parse(query).unwrap().matches(&row())
}

#[test]
fn a_row_matches_what_it_has() {
    for query in [
        "",
        "status:error",
        "status:429",
        "status:4xx",
        "status:500,429",
        "status:>=400 status:<500",
        "status:400..499",
        "-status:ok",
        "latency:>2s",
        "latency:2500",
        "latency:2.5s",
        "latency:<=0.05m",
        "cost:>0.01",
        "cost:$0.0125",
        "tokens:>1k",
        "tokens:1001",
        "input:900 output:101 cached:5 reasoning:0",
        "user:maria",
        "user:ma*",
        "user:*",
        "-key:*",
        "-team:*",
        "model:gpt-4o*",
        "model:*4o*",
        "model:*mini",
        "provider:anthropic,openai",
        "metadata.env:prod",
        "metadata.retries:3",
        "metadata.debug:true",
        "metadata.ratio:1.5",
        "-metadata.none:*",
        "-metadata.absent:x",
        "cache:hit",
        "cache:HIT",
        "-source:api",
        "level:warn,error",
        "stream:false",
        "session:\"s 1\"",
        "prompt:support/* version:>=3",
        "path:*/completions",
        "-ttft:>0",
        "-ttft:<=0",
        "attempts:0",
        "time:>=2026-03-04 time:<2026-03-05",
        "time:2026-03-04..2026-03-05",
        "time:>2026-03-04T05:06:06Z",
        "eiffel tower",
        "EIFFEL paris",
        "\"the Eiffel tower\"",
        "\"330 metres\"",
        "-\"tower Eiffel\"",
        "-absent",
        "app:00000000-0000-0000-0000-000000000007",
    ] {
        assert!(matches(query), "{query}");
        let again = parse(query).unwrap().to_string();
        assert!(matches(&again), "{query} as {again}");
    }
}

#[test]
fn a_row_does_not_match_what_it_lacks() {
    for query in [
        "status:ok",
        "status:5xx",
        "-status:error",
        "latency:>2500",
        "latency:<2500",
        "cost:<0.0125",
        "user:Maria",
        "user:mari",
        "-user:*",
        "model:gpt-4o",
        "model:\"gpt-4o*\"",
        "key:*",
        "metadata.none:*",
        "metadata.absent:x",
        "metadata.env:pro",
        "ttft:>0",
        "ttft:<=0",
        "source:api",
        "time:<2026-03-04",
        "time:2026-03-03..2026-03-04",
        "\"tower Eiffel\"",
        "-\"eiffel tower\"",
        "eiffel absent",
        "messages",
        "-eiffel",
    ] {
        assert!(!matches(query), "{query}");
    }
}

#[test]
fn metadata_with_a_nul_character_counts_as_empty() {
    let mut row = row();
    row.metadata.insert("bad".into(), "a\0b".into());
    assert!(!parse("metadata.env:prod").unwrap().matches(&row));
    assert!(parse("-metadata.env:prod").unwrap().matches(&row));
}

#[test]
fn errors_point_at_the_character_and_say_what_is_expected() {
    let fails = |query: &str| parse(query).unwrap_err();
    for (query, position, length, word) in [
        ("statu:error", 0, 5, "status"),
        ("model:x latncy:>2s", 8, 6, "latency"),
        ("  status:", 9, 0, "missing"),
        ("status:abc", 7, 3, "abc"),
        ("status:600", 7, 3, "600"),
        ("status:9xx", 7, 3, "class"),
        ("latency:>2x", 8, 3, "duration"),
        ("latency:>-2s", 8, 4, "duration"),
        ("cost:>0.0000000000001", 5, 16, "amount"),
        ("latency:5s..1s", 8, 6, "empty"),
        ("level:info,loud", 11, 4, "warn"),
        ("stream:yes", 7, 3, "true or false"),
        ("stream:\"true\"", 7, 6, "quotes"),
        ("user:\"maria", 5, 1, "closed"),
        ("user:\"maria\"x", 12, 1, "blank"),
        ("user:ma\"ria", 7, 1, "quote"),
        ("\"open", 0, 1, "closed"),
        ("- x", 1, 0, "directly"),
        ("--x", 1, 1, "one -"),
        ("a OR b", 2, 2, "OR"),
        ("(a", 0, 1, "parentheses"),
        ("a ...", 2, 3, "letter"),
        ("time:2026-01-01", 5, 10, "range"),
        ("time:>yesterday", 5, 10, "time"),
        ("metadata:x", 0, 8, "metadata.env"),
        ("metadata.a\\b:x", 0, 12, "metadata.env"),
        ("https://example.com", 0, 5, "quotes"),
        ("größe:1", 0, 5, "field"),
        ("user:a,", 7, 0, "missing"),
    ] {
        let error = fails(query);
        assert_eq!((error.position, error.length), (position, length), "{query}: {error}");
        assert!(error.message.contains(word), "{query}: {error}");
        assert!(error.to_string().starts_with(&format!("at character {}: ", position + 1)));
    }
    assert_eq!(fails("level:loud").expected, ["info", "warn", "error"]);
    assert_eq!(fails("statu:error").expected, ["status"]);
    assert_eq!(fails("xyzzy:1").expected.len(), FIELDS.len());
}

#[test]
fn a_query_is_bounded() {
    let terms = |count: usize| "a:".replace("a:", "user:x ").repeat(count);
    assert!(parse(&terms(MAX_TERMS)).is_ok());
    assert_eq!(parse(&terms(MAX_TERMS + 1)).unwrap_err().position, 7 * MAX_TERMS);
    assert_eq!(parse(&"x".repeat(MAX_CHARS + 1)).unwrap_err().position, MAX_CHARS);
    let values = |count: usize| format!("user:{}", vec!["x"; count].join(","));
    assert!(parse(&values(MAX_VALUES)).is_ok());
    assert!(parse(&values(MAX_VALUES + 1)).is_err());
    let words = |count: usize| (0..count).map(|n| format!("w{n}")).collect::<Vec<_>>().join(" ");
    assert!(parse(&words(MAX_WORDS)).is_ok());
    assert!(parse(&words(MAX_WORDS + 1)).is_err());
    assert!(parse(&format!("user:{}", "a*".repeat(MAX_STARS + 1))).is_err());
    assert!(parse("user:\0").is_err());
}

#[test]
fn the_canonical_form_is_short_and_stable() {
    for (query, canonical) in [
        ("  status:error   latency:>2000 ", "status:error latency:>2s"),
        ("latency:1500ms..90s", "latency:1500ms..90s"),
        ("cost:>0.0100", "cost:>0.01"),
        ("status:4xx", "status:400..499"),
        ("tokens:=10k", "tokens:10000"),
        ("user:\"maria\"", "user:maria"),
        ("user:\"ma*\"", "user:\"ma*\""),
        ("user:\"a \\\"b\\\\\"", "user:\"a \\\"b\\\\\""),
        ("model:a**b", "model:a*b"),
        ("-cache:Hit", "-cache:hit"),
        ("time:>=2026-01-31", "time:>=2026-01-31T00:00:00.000Z"),
        ("Word \"two Words\"", "Word \"two Words\""),
    ] {
        assert_eq!(parse(query).unwrap().to_string(), canonical);
    }
}

#[test]
fn names_are_resolved_to_ids() {
    let names = HashMap::from([("id-1".to_owned(), "Checkout".to_owned()), ("id-2".into(), "Search".into())]);
    let resolved = |query: &str| {
        let mut query = parse(query).unwrap();
        query.resolve(Field::App, &names);
        query.to_string()
    };
    assert_eq!(resolved("app:checkout"), "app:checkout,id-1");
    assert_eq!(resolved("-app:*ch*"), "-app:*ch*,id-1,id-2");
    assert_eq!(resolved("app:* team:checkout"), "app:* team:checkout");
    assert_eq!(resolved("app:nobody"), "app:nobody");
}

#[test]
fn every_field_has_a_line_whose_example_parses() {
    for line in FIELDS {
        assert_eq!(line.field.info().name, line.name);
        let query = parse(line.example).unwrap();
        assert!(query.uses(line.field), "{}", line.example);
        assert!(!line.kind.expected().is_empty());
    }
}

#[test]
fn without_bodies_words_are_an_error_at_their_place() {
    for (query, place) in [("status:error -word", (14, 4)), ("\"two words\" status:error", (0, 11))] {
        let error = parse_without_words(query).unwrap_err();
        assert_eq!((error.position, error.length), place, "{query}");
        assert!(parse(query).is_ok());
    }
    let query = "status:error metadata.env:\"in quotes\"";
    assert_eq!(parse_without_words(query), parse(query));
}

/// Texts near the language.
fn near_queries() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("status:".to_owned()),
        Just("latency:>".to_owned()),
        Just("cost:".to_owned()),
        Just("user:".to_owned()),
        Just("metadata.k:".to_owned()),
        Just("time:>=2026-01-01".to_owned()),
        Just("level:info".to_owned()),
        "[-\" ,.*:()<>=\\\\]{1,2}",
        "[0-9]{1,3}(ms|s|k|xx)?",
        "[a-zé日]{1,4}",
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn the_canonical_form_is_the_same_query(text in near_queries()) {
        match parse(&text) {
            Ok(query) => {
                let encoded = query.to_string();
                prop_assert_eq!(parse(&encoded), Ok(query), "{}", encoded);
            }
            Err(error) => prop_assert!(error.position + error.length <= text.chars().count() + 1, "{}", error),
        }
    }

    #[test]
    fn patterns_match_as_regular_expressions_do(pattern in "[ab*]{0,6}", text in "[ab]{0,8}") {
        let expression = format!("^{}$", pattern.replace('*', ".*"));
        let expected = regex::Regex::new(&expression).unwrap().is_match(&text);
        prop_assert_eq!(Pattern::with_stars(&pattern).matches(&text), expected);
    }

    #[test]
    fn a_phrase_has_the_words_of_the_search(text in "[a-zA-Z é日本ß0-9.-]{0,30}") {
        let mut words = phrase::sequence(&text);
        let mut distinct = query_terms(&text);
        words.sort();
        words.dedup();
        distinct.sort();
        prop_assert_eq!(words, distinct);
    }
}
