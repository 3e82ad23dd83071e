//! Log rows written directly to the store.

use std::sync::atomic::{AtomicI64, Ordering};

use gateway_core::ids::OrgId;
use gateway_core::llm::ProviderFormat;
use gateway_core::logs::{
    Attempt, BodyStorage, LimitUses, LogLevel, LogRow, LogSource, Tokens, first_log_id,
};
use gateway_core::time::Timestamp;
use gateway_store::logs;
use serde_json::{Map, json};

use super::{Account, TestApp};

pub fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A successful chat with 10 + 5 tokens, a cost of 0.001 USD and a latency of 100 ms.
pub fn row(account: &Account, time: Timestamp) -> LogRow {
    row_in_org(&account.org_id, time)
}

/// The same row for an organization given by id.
pub fn row_in_org(org_id: &str, time: Timestamp) -> LogRow {
    static NEXT: AtomicI64 = AtomicI64::new(0);
    LogRow {
        id: first_log_id(time) + NEXT.fetch_add(1, Ordering::Relaxed) % 4096,
        org_id: org_id.parse::<OrgId>().unwrap(),
        request_id: "req-1".into(),
        created_at: time,
        level: LogLevel::Info,
        source: LogSource::Proxy,
        provider: "openai".into(),
        provider_format: Some(ProviderFormat::OpenAi),
        model: Some("gpt-4o".into()),
        method: "POST".into(),
        path: "/v1/chat/completions".into(),
        status: 200,
        error_code: None,
        stream: false,
        latency_ms: 100,
        ttft_ms: Some(40),
        tokens: Some(Tokens { prompt: 10, completion: 5, ..Tokens::default() }),
        usage_estimated: false,
        cost_usd: Some("0.001".parse().unwrap()),
        unpriced: false,
        cache: None,
        cache_marks: None,
        cache_saved_usd: None,
        queued_ms: None,
        limits: LimitUses::default(),
        attempts: vec![Attempt {
            provider: "openai".into(),
            model: Some("gpt-4o".into()),
            status: Some(200),
            start_ms: 2,
            ttft_ms: Some(38),
            latency_ms: 97,
            error: None,
        }],
        key_id: None,
        app_id: None,
        team_id: None,
        user: None,
        session_id: None,
        metadata: Map::new(),
        prompt: None,
        traceparent: None,
        compat: None,
        operation: None,
        tool: None,
        request_stored: BodyStorage::Full,
        response_stored: BodyStorage::Full,
        request: chat("hello there"),
        response: json!({"choices": [{"message": {"role": "assistant", "content": "general greeting"}}]})
            .to_string()
            .into_bytes(),
        response_is_stream: false,
    }
}

/// Applies a change to the row.
pub fn with(mut row: LogRow, change: impl FnOnce(&mut LogRow)) -> LogRow {
    change(&mut row);
    row
}

/// Returns `count` rows without bodies, one per millisecond.
pub fn many(of: &Account, app: &TestApp, count: usize) -> Vec<LogRow> {
    let now = app.app.services.clock.now();
    (0..count)
        .map(|number| {
            with(row(of, now.plus(i64::try_from(number).unwrap())), |row| {
                (row.request, row.response) = (Vec::new(), Vec::new());
            })
        })
        .collect()
}

/// A chat request body with this user message.
pub fn chat(text: &str) -> Vec<u8> {
    json!({"model": "gpt-4o", "messages": [{"role": "user", "content": text}]}).to_string().into_bytes()
}

impl TestApp {
    pub async fn write(&self, rows: &[LogRow]) -> usize {
        logs::write_batch(&self.app.services.logs, rows).await.unwrap().len()
    }
}
