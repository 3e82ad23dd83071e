//! OTLP ingestion: external spans become log rows, once, in every encoding.

use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use gateway_core::otlp::proto::ExportTraceServiceRequest;
use prost::Message as _;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::{Account, TestApp, TestResponse};

const TRACES: &str = "/api/v1/otel/v1/traces";

fn attribute(key: &str, value: &Value) -> Value {
    let kind = match value {
        Value::String(_) => "stringValue",
        Value::Bool(_) => "boolValue",
        Value::Number(number) if number.is_f64() => "doubleValue",
        _ => "intValue",
    };
    json!({"key": key, "value": {kind: value}})
}

/// A recent chat span with the GenAI semantic conventions.
fn span(app: &TestApp, number: u64) -> Value {
    let start = u64::try_from(app.app.services.clock.now().0 - 5_000).unwrap() * 1_000_000;
    json!({
        "traceId": format!("{number:032x}"), "spanId": format!("{number:016x}"), "name": "chat gpt-4o", "kind": 3,
        "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + 1_500_000_000).to_string(),
        "attributes": [
            attribute("gen_ai.operation.name", &json!("chat")),
            attribute("gen_ai.provider.name", &json!("openai")),
            attribute("gen_ai.request.model", &json!("gpt-4o")),
            attribute("gen_ai.usage.input_tokens", &json!(1_000)),
            attribute("gen_ai.usage.output_tokens", &json!(100)),
            attribute("gen_ai.input.messages",
                &json!(r#"[{"role":"user","parts":[{"type":"text","content":"find the walrus"}]}]"#)),
            attribute("gen_ai.output.messages",
                &json!(r#"[{"role":"assistant","parts":[{"type":"text","content":"here"}]}]"#)),
        ],
    })
}

fn batch(spans: &[Value]) -> Value {
    let resource = json!({"attributes": [attribute("service.name", &json!("bot"))]});
    json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "sdk"}, "spans": spans}]}]})
}

fn protobuf(batch: &Value) -> Vec<u8> {
    serde_json::from_value::<ExportTraceServiceRequest>(batch.clone()).unwrap().encode_to_vec()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

async fn send_json(app: &TestApp, by: &Account, batch: &Value) -> TestResponse {
    app.post(TRACES, batch.clone()).key(&by.api_key).send().await
}

/// Waits for `count` rows of the organization.
async fn rows(app: &TestApp, of: &Account, count: usize) -> Vec<Value> {
    for _ in 0..200 {
        let list = app.get("/api/v1/logs?limit=200&source=otel").key(&of.api_key).send().await.expect(200);
        let rows = list["logs"].as_array().unwrap().clone();
        if rows.len() >= count {
            return rows;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not {count} rows");
}

on_both!(a_span_becomes_a_row_that_is_priced_and_found, |app| async move {
    let ada = app.signup("acme").await;
    let answer = send_json(&app, &ada, &batch(&[span(&app, 7)])).await;
    assert_eq!((answer.expect(200), answer.header("content-type")), (json!({}), Some("application/json")));
    let row = rows(&app, &ada, 1).await.remove(0);
    assert_eq!(
        (&row["source"], &row["provider"], &row["model"]),
        (&json!("otel"), &json!("openai"), &json!("gpt-4o"))
    );
    assert_eq!((&row["status"], &row["latency_ms"]), (&json!(200), &json!(1_500)));
    assert_eq!((&row["prompt_tokens"], &row["completion_tokens"]), (&json!(1_000), &json!(100)));
    assert!(row["cost_usd"].as_f64().unwrap() > 0.0);
    assert_eq!(row["preview"], "find the walrus");
    assert_eq!(row["metadata"]["service_name"], "bot");
    let found = app.get("/api/v1/logs?q=walrus").key(&ada.api_key).send().await.expect(200);
    assert_eq!(found["logs"][0]["id"], row["id"]);
    let usage = app.get("/api/v1/usage/summary").key(&ada.api_key).send().await.expect(200);
    assert_eq!((&usage["requests"], &usage["total_tokens"]), (&json!(1), &json!(1_100)));
    let shown = app.get(&format!("/api/v1/logs/{}", row["id"])).key(&ada.api_key).send().await.expect(200);
    assert_eq!(shown["response"]["choices"][0]["message"]["content"], "here");
});

on_both!(protobuf_and_gzip_say_the_same, |app| async move {
    let ada = app.signup("acme").await;
    for (number, packed) in [(1, false), (2, true)] {
        let plain = protobuf(&batch(&[span(&app, number)]));
        let mut call = app.call(http::Method::POST, "/api/otel/v1/traces").key(&ada.api_key);
        call = call.header("content-type", "application/x-protobuf");
        let call =
            if packed { call.header("content-encoding", "gzip").raw(gzip(&plain)) } else { call.raw(plain) };
        let answer = call.send().await;
        assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 0), "{}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/x-protobuf"));
    }
    let text = batch(&[span(&app, 3)]).to_string();
    let call =
        app.call(http::Method::POST, TRACES).key(&ada.api_key).header("content-type", "application/json");
    call.header("content-encoding", "gzip").raw(gzip(text.as_bytes())).send().await.expect(200);
    assert_eq!(rows(&app, &ada, 3).await.len(), 3);
});

on_both!(a_span_that_is_sent_twice_is_one_row, |app| async move {
    let ada = app.signup("acme").await;
    let one = span(&app, 1);
    let all = batch(&[one.clone(), span(&app, 2), one]);
    send_json(&app, &ada, &all).await.expect(200);
    rows(&app, &ada, 2).await;
    send_json(&app, &ada, &all).await.expect(200);
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert_eq!(rows(&app, &ada, 2).await.len(), 2);
    let usage = app.get("/api/v1/usage/summary").key(&ada.api_key).send().await.expect(200);
    assert_eq!(usage["requests"], 2);
});

/// Spans that start in the same millisecond.
fn spans_of_one_moment(app: &TestApp, count: u64) -> Vec<Value> {
    let first = span(app, 1);
    let same_moment = |number: u64| {
        let mut span = first.clone();
        span["spanId"] = json!(format!("{number:016x}"));
        span
    };
    (1..=count).map(same_moment).collect()
}

on_both!(spans_of_one_moment_are_all_kept, |app| async move {
    let ada = app.signup("acme").await;
    // More rows than there are log ids in a millisecond.
    let spans = spans_of_one_moment(&app, 180);
    send_json(&app, &ada, &batch(&spans[..90])).await.expect(200);
    send_json(&app, &ada, &batch(&spans[90..])).await.expect(200);
    assert_eq!(rows(&app, &ada, 180).await.len(), 180);
    send_json(&app, &ada, &batch(&spans)).await.expect(200);
    tokio::time::sleep(Duration::from_millis(800)).await;
    let usage = app.get("/api/v1/usage/summary").key(&ada.api_key).send().await.expect(200);
    assert_eq!(usage["requests"], 180);
});

on_both!(each_organization_has_its_own_row_of_the_same_span, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("other").await);
    // With 128 log ids in a millisecond, many spans of the two organizations derive the same id.
    let spans = batch(&spans_of_one_moment(&app, 100));
    for _ in 0..2 {
        for account in [&ada, &eve] {
            send_json(&app, account, &spans).await.expect(200);
        }
    }
    for account in [&ada, &eve] {
        assert_eq!(rows(&app, account, 100).await.len(), 100);
        let usage = app.get("/api/v1/usage/summary").key(&account.api_key).send().await.expect(200);
        assert_eq!(usage["requests"], 100);
    }
});

on_both!(
    spans_older_than_the_retention_are_refused,
    [("GATEWAY_LOG_RETENTION_DAYS", "30")],
    |app| async move {
        let (ada, eve) = (app.signup("acme").await, app.signup("other").await);
        let org = format!("/api/v1/orgs/{}", ada.org_id);
        app.put(&org, json!({"settings": {"log_retention_days": 2}}))
            .bearer(&ada.token)
            .send()
            .await
            .expect(200);
        let started_hours_ago = |number: u64, hours: i64| {
            let mut span = span(&app, number);
            let start = (app.app.services.clock.now().0 - hours * 3_600_000) * 1_000_000;
            span["startTimeUnixNano"] = json!(start.to_string());
            span["endTimeUnixNano"] = json!((start + 1_000_000_000).to_string());
            span
        };
        let spans =
            batch(&[started_hours_ago(1, 47), started_hours_ago(2, 49), started_hours_ago(3, 24 * 31)]);
        let answer = send_json(&app, &ada, &spans).await.expect(200);
        assert_eq!(answer["partialSuccess"]["rejectedSpans"], "2");
        assert_eq!(answer["partialSuccess"]["errorMessage"], "a span started before the retention period");
        assert_eq!(rows(&app, &ada, 1).await.len(), 1);
        // The retention is that of the organization that sends.
        let answer = send_json(&app, &eve, &spans).await.expect(200);
        assert_eq!(answer["partialSuccess"]["rejectedSpans"], "1");
        assert_eq!(rows(&app, &eve, 2).await.len(), 2);
    }
);

on_both!(invalid_spans_are_reported_and_valid_ones_stored, |app| async move {
    let ada = app.signup("acme").await;
    let mut nameless = span(&app, 2);
    nameless["traceId"] = json!("");
    let mut ancient = span(&app, 3);
    ancient["startTimeUnixNano"] = json!("1000");
    let mut other = span(&app, 4);
    other["attributes"] = json!([attribute("http.request.method", &json!("GET"))]);
    let mixed = batch(&[nameless, span(&app, 1), ancient, other]);
    let answer = send_json(&app, &ada, &mixed).await.expect(200);
    assert_eq!(answer["partialSuccess"]["rejectedSpans"], "2");
    assert!(answer["partialSuccess"]["errorMessage"].as_str().unwrap().contains("trace id"));
    let call = app.call(http::Method::POST, TRACES).key(&ada.api_key).raw(protobuf(&mixed));
    let answer = call.header("content-type", "application/x-protobuf").send().await;
    let read = gateway_core::otlp::proto::ExportTraceServiceResponse::decode(&answer.body[..]).unwrap();
    assert_eq!(read.partial_success.map(|partial| partial.rejected_spans), Some(2));
    assert_eq!(rows(&app, &ada, 1).await.len(), 1);
});

on_both!(bodies_that_are_no_otlp_are_refused, [("GATEWAY_MAX_BODY_BYTES", "100000")], |app| async move {
    let ada = app.signup("acme").await;
    let send = async |kind: &str, encoding: &str, body: Vec<u8>| {
        let call = app.call(http::Method::POST, TRACES).key(&ada.api_key).header("content-type", kind);
        call.header("content-encoding", encoding).raw(body).send().await
    };
    let good = batch(&[span(&app, 1)]).to_string().into_bytes();
    for (kind, encoding, body, word) in [
        ("application/json", "identity", b"{".to_vec(), "JSON"),
        ("application/json", "identity", b"[]".to_vec(), "JSON"),
        ("application/x-protobuf", "identity", b"\xff\xff\xff".to_vec(), "protobuf"),
        ("application/json", "gzip", b"not packed".to_vec(), "gzip"),
        ("application/json", "gzip", gzip(&good)[..40].to_vec(), "gzip"),
        ("application/json", "br", good.clone(), "Content-Encoding"),
        ("text/plain", "identity", good.clone(), "Content-Type"),
    ] {
        let refused = send(kind, encoding, body).await.expect_error(400, "bad_request");
        assert!(refused["message"].as_str().unwrap().contains(word), "{refused}");
    }
    let bomb = gzip(&vec![b' '; 50_000_000]);
    assert!(bomb.len() < 100_000);
    send("application/json", "gzip", bomb).await.expect_error(413, "payload_too_large");
    send("application/json", "identity", vec![b' '; 100_001]).await.expect_error(413, "payload_too_large");
    app.call(http::Method::POST, TRACES).raw(good.clone()).send().await.expect_error(401, "unauthorized");
    let viewer = app.join(&ada, "viewer").await;
    let call =
        app.call(http::Method::POST, TRACES).bearer(&viewer.token).header("content-type", "application/json");
    call.raw(good).send().await.expect_error(403, "forbidden");
});

on_both!(message_contents_are_stored_only_when_the_organization_allows_it, |app| async move {
    let ada = app.signup("acme").await;
    let org = format!("/api/v1/orgs/{}", ada.org_id);
    app.put(&org, json!({"settings": {"log_bodies": false}})).bearer(&ada.token).send().await.expect(200);
    send_json(&app, &ada, &batch(&[span(&app, 1)])).await.expect(200);
    let row = rows(&app, &ada, 1).await.remove(0);
    assert_eq!((&row["request_stored"], &row["preview"]), (&json!("off"), &Value::Null));
});

on_both!(few_bytes_that_would_fill_the_memory_are_refused, |app| async move {
    let ada = app.signup("acme").await;
    let send = async |kind: &str, body: Vec<u8>| {
        let call = app.call(http::Method::POST, TRACES).key(&ada.api_key).header("content-type", kind);
        call.header("content-encoding", "gzip").raw(gzip(&body)).send().await
    };
    let spans = b"\x12\x00".repeat(600_000);
    let around = |field: u8, inner: &[u8]| {
        let mut outer = vec![field];
        prost::encode_length_delimiter(inner.len(), &mut outer).unwrap();
        [outer, inner.to_vec()].concat()
    };
    let empty = around(0x0a, &around(0x12, &spans));
    let refused = send("application/x-protobuf", empty).await.expect_error(413, "payload_too_large");
    assert!(refused["message"].as_str().unwrap().contains("smaller batches"), "{refused}");
    let lists = format!(r#"{{"resourceSpans": [{}]}}"#, vec!["[]"; 600_000].join(","));
    send("application/json", lists.into_bytes()).await.expect_error(413, "payload_too_large");
});

on_both!(openinference_spans_become_rows_too, |app| async move {
    let ada = app.signup("acme").await;
    let mut llm = span(&app, 1);
    llm["attributes"] = json!([
        attribute("openinference.span.kind", &json!("LLM")),
        attribute("llm.model_name", &json!("gpt-4o")),
        attribute("llm.token_count.prompt", &json!(1_000)),
        attribute("llm.token_count.completion", &json!(100)),
        attribute("llm.input_messages.0.message.role", &json!("user")),
        attribute("llm.input_messages.0.message.content", &json!("find the walrus")),
    ]);
    let mut chain = span(&app, 2);
    chain["attributes"] = json!([attribute("openinference.span.kind", &json!("CHAIN"))]);
    assert_eq!(send_json(&app, &ada, &batch(&[llm, chain])).await.expect(200), json!({}));
    let rows = rows(&app, &ada, 1).await;
    assert_eq!(rows.len(), 1);
    assert_eq!((&rows[0]["provider"], &rows[0]["model"]), (&json!("openai"), &json!("gpt-4o")));
    assert_eq!((&rows[0]["total_tokens"], &rows[0]["preview"]), (&json!(1_100), &json!("find the walrus")));
    assert!(rows[0]["cost_usd"].as_f64().unwrap() > 0.0);
});
