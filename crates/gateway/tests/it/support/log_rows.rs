//! Log rows written directly to the store.

use std::sync::atomic::{AtomicI64, Ordering};

use gateway_core::ids::OrgId;
use gateway_core::llm::ProviderFormat;
use gateway_core::logs::{Attempt, BodyStorage, LogRow, LogSource, Tokens, first_log_id};
use gateway_core::time::Timestamp;
use gateway_store::logs;
use serde_json::json;

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
        request_id: "req-1".into(),
        provider: "openai".into(),
        provider_format: Some(ProviderFormat::OpenAi),
        model: Some("gpt-4o".into()),
        path: "/v1/chat/completions".into(),
        latency_ms: 100,
        ttft_ms: Some(40),
        tokens: Some(Tokens { prompt: 10, completion: 5, ..Tokens::default() }),
        cost_usd: Some("0.001".parse().unwrap()),
        attempts: vec![Attempt {
            provider: "openai".into(),
            model: Some("gpt-4o".into()),
            status: Some(200),
            start_ms: 2,
            ttft_ms: Some(38),
            latency_ms: 97,
            error: None,
        }],
        request_stored: BodyStorage::Full,
        response_stored: BodyStorage::Full,
        request: chat("hello there"),
        response: json!({"choices": [{"message": {"role": "assistant", "content": "general greeting"}}]})
            .to_string()
            .into_bytes(),
        ..LogRow::new(
            first_log_id(time) + NEXT.fetch_add(1, Ordering::Relaxed) % 4096,
            org_id.parse::<OrgId>().unwrap(),
            time,
            LogSource::Proxy,
        )
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
        let store = &self.app.services.logs;
        // Again like the log writer: retention may drop the partition of an old day before its row is inserted.
        for _ in 0..3 {
            if let Ok(new) = logs::write_batch(store, rows).await {
                return new.len();
            }
        }
        logs::write_batch(store, rows).await.unwrap().len()
    }
}
