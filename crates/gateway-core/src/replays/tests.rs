//! What is sent again, what it is expected to cost, and the sums.

use serde_json::json;

use super::*;
use crate::ids::OrgId;
use crate::logs::Tokens;
use crate::pricing::PriceTable;
use crate::time::Timestamp;

fn row(path: &str, body: &Value) -> LogRow {
    LogRow {
        provider: "openai".into(),
        model: Some("gpt-4o".into()),
        path: path.into(),
        latency_ms: 100,
        tokens: Some(Tokens { prompt: 1_000_000, completion: 500_000, ..Tokens::default() }),
        cost_usd: Some("0.5".parse().unwrap()),
        request_stored: BodyStorage::Full,
        response_stored: BodyStorage::Full,
        request: body.to_string().into_bytes(),
        ..LogRow::new(7, OrgId(uuid::Uuid::nil()), Timestamp(0), LogSource::Proxy)
    }
}

const CHAT: &str = "/v1/chat/completions";

fn chat() -> Value {
    json!({"model": "gpt-4o", "messages": [], "stream": true, "stream_options": {}, "temperature": 1, "tools": []})
}

#[test]
fn a_request_is_sent_again_with_what_the_target_changes() {
    let other = ReplayTarget {
        provider: Some("groq".into()),
        model: Some("llama".into()),
        params: Map::from_iter([("temperature".to_owned(), json!(0))]),
        ..ReplayTarget::default()
    };
    let sent = prepare(&row(CHAT, &chat()), &other).unwrap();
    assert_eq!(
        (sent.endpoint, sent.provider.as_str(), sent.model.as_str()),
        (ReplayEndpoint::Chat, "groq", "llama")
    );
    assert_eq!(
        Value::Object(sent.body),
        json!({"model": "llama", "messages": [], "temperature": 0, "tools": []})
    );
    let same = prepare(&row(CHAT, &chat()), &ReplayTarget::default()).unwrap();
    assert_eq!((same.provider.as_str(), same.model.as_str(), same.prompt), ("openai", "gpt-4o", None));
    for (path, endpoint) in [
        ("/v1/messages", ReplayEndpoint::Messages),
        ("/v1/responses", ReplayEndpoint::Responses),
        ("/v1beta/models/gemini-pro:streamGenerateContent", ReplayEndpoint::GenerateContent),
    ] {
        let sent = prepare(&row(path, &json!({"x": 1})), &other).unwrap();
        assert_eq!(sent.endpoint, endpoint, "{path}");
        assert_eq!(sent.body.contains_key("model"), endpoint != ReplayEndpoint::GenerateContent, "{path}");
    }
    let slash = ReplayTarget { model: Some("a/b".into()), ..ReplayTarget::default() };
    assert!(
        prepare(&row("/v1beta/models/g:generateContent", &json!({})), &slash).unwrap_err().contains("a/b")
    );
    assert!(prepare(&row(CHAT, &chat()), &slash).is_ok());
}

#[test]
fn the_prompt_of_the_row_is_used_unless_another_is_given() {
    let mut with_prompt = row(CHAT, &chat());
    with_prompt.prompt = Some(PromptVersionRef { name: "a/b".into(), version: 1 });
    let prompt = |row: &LogRow, target: &ReplayTarget| prepare(row, target).unwrap().prompt;
    assert_eq!(prompt(&with_prompt, &ReplayTarget::default()), with_prompt.prompt);
    let other = ReplayTarget {
        prompt: Some(ReplayPrompt { name: "c/d".into(), version: 9 }),
        ..ReplayTarget::default()
    };
    let expected = Some(PromptVersionRef { name: "c/d".into(), version: 9 });
    assert_eq!(prompt(&with_prompt, &other), expected);
    assert_eq!(prompt(&row(CHAT, &chat()), &other), expected);
    assert!(!other.is_empty() && ReplayTarget::default().is_empty());
    let variables = HashMap::from([("x".to_owned(), "y".to_owned())]);
    assert!(ReplayTarget { variables, ..ReplayTarget::default() }.is_empty());
}

#[test]
fn what_cannot_be_sent_again_is_named() {
    let none = ReplayTarget::default();
    let with = |change: fn(&mut LogRow)| {
        let mut row = row(CHAT, &chat());
        change(&mut row);
        prepare(&row, &none).unwrap_err()
    };
    assert!(with(|row| row.path = "/v1/embeddings".into()).contains("chats"));
    assert!(with(|row| row.path = "/v1/completions".into()).contains("chats"));
    assert!(with(|row| row.source = LogSource::Otel).contains("gateway"));
    assert!(with(|row| row.source = LogSource::Mcp).contains("gateway"));
    assert!(with(|row| row.request_stored = BodyStorage::Off).contains("not stored"));
    assert!(with(|row| row.request_stored = BodyStorage::Truncated).contains("truncated"));
    assert!(with(|row| row.request = b"[]".to_vec()).contains("JSON object"));
    assert!(with(|row| row.model = None).contains("target.model"));
    assert!(check(&row(CHAT, &json!([]))).is_ok(), "without its bodies the row looks fine");
}

#[test]
fn an_estimate_uses_the_tokens_of_the_rows() {
    let prices = "provider,model,input_per_mtok,output_per_mtok\nopenai,small,2,8\n";
    let prices = PriceTable::parse(prices).unwrap();
    let price = prices.find("openai", "small");
    let mut estimate = Estimate::default();
    estimate.add(&row(CHAT, &chat()), price);
    assert_eq!((estimate.rows, estimate.cost, estimate.unpriced), (1, 6_000_000_000_000, 0));
    assert_eq!(estimate.cost_before, 500_000_000_000);
    assert_eq!((estimate.input_tokens, estimate.output_tokens), (1_000_000, 500_000));
    estimate.add(&row(CHAT, &chat()), None);
    let mut without = row(CHAT, &chat());
    without.tokens = None;
    estimate.add(&without, price);
    assert_eq!((estimate.rows, estimate.cost, estimate.unpriced), (3, 6_000_000_000_000, 2));
}

#[test]
fn sums_have_percentiles_of_the_nearest_rank() {
    assert_eq!(SideTotals::of([].iter()), SideTotals::default());
    let call = |latency_ms: i64| CallFigures {
        status: if latency_ms > 15 { 500 } else { 200 },
        cost: (latency_ms != 1).then_some(10),
        latency_ms,
        input_tokens: Some(2),
        ..CallFigures::default()
    };
    let calls: Vec<CallFigures> = (1..=20).map(call).collect();
    let totals = SideTotals::of(calls.iter());
    assert_eq!((totals.calls, totals.errors, totals.cost, totals.unpriced), (20, 5, 190, 1));
    assert_eq!((totals.input_tokens, totals.output_tokens), (40, 0));
    assert_eq!((totals.p50_ms, totals.p95_ms), (Some(10), Some(19)));
    assert_eq!(SideTotals::of(calls[..1].iter()).p95_ms, Some(1));
    let figures = CallFigures::of(&row(CHAT, &chat()));
    assert_eq!(
        (figures.cost, figures.status, figures.output_tokens),
        (Some(500_000_000_000), 200, Some(500_000))
    );
}
