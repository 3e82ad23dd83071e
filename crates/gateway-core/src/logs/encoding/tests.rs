//! Tests: encoded rows read back as they were, and damaged ones are refused.

use proptest::prelude::*;

use super::*;
use crate::ids::{AppId, KeyId, TeamId};
use crate::logs::{DryRunVerdict, LimitUse};

/// A row in which everything optional is missing.
fn smallest() -> LogRow {
    LogRow {
        method: String::new(),
        status: 0,
        ..LogRow::new(1, OrgId(Uuid::from_u128(2)), Timestamp(0), LogSource::Proxy)
    }
}

/// A row in which every field is there, with values at their limits.
fn largest() -> LogRow {
    let attempt = |status, error: Option<&str>| Attempt {
        provider: "anthropic".to_owned(),
        model: error.map(|_| "claude".to_owned()),
        status,
        start_ms: -1,
        ttft_ms: status.map(i64::from),
        latency_ms: i64::MAX,
        error: error.map(str::to_owned),
    };
    let uses = LimitUse {
        name: "team".into(),
        reserved: u64::MAX,
        used: 0,
        waited_ms: 3,
        would: Some(DryRunVerdict::Refuse),
    };
    let Ok(serde_json::Value::Object(metadata)) = serde_json::from_str(r#"{"a":{"b":[1,null,"ü"]}}"#) else {
        panic!("metadata is an object")
    };
    LogRow {
        id: i64::MIN,
        org_id: OrgId(Uuid::max()),
        request_id: "ré\"quest\n".to_owned(),
        created_at: Timestamp(i64::MAX),
        level: LogLevel::Error,
        source: LogSource::Replay,
        provider: "openai".to_owned(),
        provider_format: Some(ProviderFormat::Cohere),
        model: Some("gpt-4o".to_owned()),
        method: "POST".to_owned(),
        path: "/v1/chat/completions".to_owned(),
        status: u16::MAX,
        error_code: Some(String::new()),
        stream: true,
        latency_ms: -1,
        ttft_ms: Some(0),
        tokens: Some(Tokens {
            prompt: i64::MAX,
            completion: 1,
            cached: 2,
            cache_write: 3,
            reasoning: 4,
            audio: -5,
        }),
        usage_estimated: true,
        cost_usd: Some(Decimal::MAX),
        unpriced: true,
        cache: Some("hit".to_owned()),
        cache_marks: Some(u32::MAX),
        cache_saved_usd: Some("-0.0000000000000000000000000001".parse().unwrap()),
        queued_ms: Some(u64::MAX),
        limits: LimitUses::new([uses].into_iter()),
        attempts: vec![attempt(None, None), attempt(Some(u16::MAX), Some("")), attempt(Some(0), Some("x"))],
        key_id: Some(KeyId(Uuid::from_u128(3))),
        app_id: Some(AppId(Uuid::from_u128(4))),
        team_id: Some(TeamId(Uuid::from_u128(5))),
        user: Some("maria".to_owned()),
        session_id: Some(String::new()),
        metadata,
        prompt: Some(PromptVersionRef { name: "ns/slug".to_owned(), version: -7 }),
        traceparent: Some("00-0-0-01".to_owned()),
        compat: Some("litellm".to_owned()),
        operation: Some("tools/call".to_owned()),
        tool: Some("search".to_owned()),
        request_stored: BodyStorage::Full,
        response_stored: BodyStorage::Truncated,
        response_is_stream: true,
        ..smallest()
    }
}

fn encoded(row: &LogRow) -> Vec<u8> {
    let mut bytes = Vec::new();
    row.encode(&mut bytes);
    bytes
}

#[test]
fn rows_read_back_as_they_were() {
    for row in [smallest(), largest()] {
        assert_eq!(LogRow::decode(&encoded(&row)).unwrap(), row);
    }
}

#[test]
fn enumerations_keep_their_codes() {
    let codes = (
        LogSource::ALL.map(|source| source as u8),
        ProviderFormat::ALL.map(|format| format as u8),
        STORED.map(|stored| stored as u8),
        [LogLevel::Info, LogLevel::Warn, LogLevel::Error].map(|level| level as u8),
    );
    assert_eq!(codes, ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 1, 2], [0, 1, 2]));
    assert_eq!((Flag::Stream as u32, Flag::Tool as u32), (0, 25));
}

#[test]
fn rows_that_are_cut_have_more_or_come_from_another_version_are_refused() {
    let bytes = encoded(&largest());
    for length in 0..bytes.len() {
        assert!(LogRow::decode(&bytes[..length]).is_err(), "{length}");
    }
    assert!(LogRow::decode(&[&bytes[..], &[0]].concat()).is_err());
    assert!(LogRow::decode(&[&[VERSION + 1], &bytes[1..]].concat()).is_err());
}

#[test]
fn a_row_that_claims_many_attempts_is_refused() {
    let bytes = encoded(&smallest());
    let (start, end) = (&bytes[..bytes.len() - 3], &bytes[bytes.len() - 2..]);
    let bytes = [start, &[0xff, 0xff, 0xff, 0x7f], end].concat();
    assert_eq!(LogRow::decode(&bytes), Err(Malformed("a log row has too many attempts")));
}

/// What version 0.1.0 and its successors wrote.
#[test]
fn a_row_of_json_reads_as_before() {
    const TEXT: &str = r#"{"mark":"0123","id":7,"org_id":"00000000-0000-0000-0000-000000000002","request_id":"r",
        "created_at":"2026-11-15T08:53:20.000Z","level":"warn","source":"mcp","provider":"openai","shape":"anthropic",
        "method":"POST","path":"/","status":404,"stream":true,"latency_ms":12,"tokens":{"prompt":1,"completion":2,
        "cached":0,"cache_write":0,"reasoning":0,"audio":0},"usage_estimated":false,"cost_usd":"0.000125",
        "unpriced":false,"limits":[{"name":"a","reserved":1,"used":1,"waited_ms":0}],"attempts":[{"provider":"openai",
        "model":null,"status":404,"start_ms":0,"ttft_ms":null,"latency_ms":1,"error":null}],"metadata":{"a":1},
        "prompt":{"name":"n/s","version":2},"request_stored":"full","response_stored":"off",
        "response_is_stream":false}"#;
    let row: LogRow = serde_json::from_str(TEXT).unwrap();
    assert_eq!((row.provider_format, row.status), (Some(ProviderFormat::Anthropic), 404));
    assert_eq!((row.limits.list().len(), row.attempts.len(), row.metadata.len()), (1, 1, 1));
    assert_eq!(LogRow::decode(&encoded(&row)).unwrap(), row);
}

proptest! {
    #[test]
    fn any_part_of_a_row_reads_back(present in any::<u32>(), number in any::<i64>(), text in ".{0,40}") {
        let mut row = if present & 1 == 0 { smallest() } else { largest() };
        let other = if present & 1 == 0 { largest() } else { smallest() };
        let is_swapped = |bit: u32| present >> bit & 1 == 1;
        if is_swapped(1) { row.model = other.model }
        if is_swapped(2) { row.tokens = other.tokens }
        if is_swapped(3) { row.cost_usd = other.cost_usd }
        if is_swapped(4) { row.limits = other.limits }
        if is_swapped(5) { row.attempts = other.attempts }
        if is_swapped(6) { row.metadata = other.metadata }
        if is_swapped(7) { row.key_id = other.key_id }
        if is_swapped(8) { row.prompt = other.prompt }
        if is_swapped(9) { row.tool = other.tool }
        (row.id, row.latency_ms, row.user) = (number, number.wrapping_mul(3), Some(text.clone()));
        row.request_id = text;
        prop_assert_eq!(LogRow::decode(&encoded(&row)).unwrap(), row);
    }

    #[test]
    fn damaged_rows_are_read_or_refused(at in 0usize..400, value in any::<u8>()) {
        let mut bytes = encoded(&largest());
        let at = at % bytes.len();
        bytes[at] = value;
        if let Ok(row) = LogRow::decode(&bytes) {
            let again = LogRow::decode(&encoded(&row)).unwrap();
            prop_assert_eq!(again, row);
        }
    }
}
