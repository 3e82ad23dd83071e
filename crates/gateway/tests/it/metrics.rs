//! The metrics of an organization, as JSON and as Prometheus text.

use gateway_core::logs::LogRow;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::{at, row};
use crate::support::{Account, TestApp, TestRequest};

async fn seed(app: &TestApp, account: &Account) {
    let mut rows: Vec<LogRow> = (0..4).map(|n| row(account, at("2026-11-09T10:00:00Z").plus(n))).collect();
    (rows[1].provider, rows[1].status, rows[1].latency_ms) = ("groq".into(), 500, 500);
    rows[2].model = Some("say \"hi\"\\".into());
    rows[3].model = None;
    app.write(&rows).await;
}

on_both!(the_snapshot_counts_the_organizations_requests, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    seed(&app, &ada).await;
    let mut found = app.get("/api/v1/metrics").key(&ada.api_key).send().await.expect(200);
    assert!(found["uptime_seconds"].as_u64().is_some());
    found["uptime_seconds"] = Value::Null;
    assert_eq!(
        found,
        json!({
            "total_requests": 4, "total_tokens": 60, "avg_latency_ms": 200.0,
            "providers": {"groq": {"requests": 1, "errors": 1}, "openai": {"requests": 3, "errors": 0}},
            "models": {"gpt-4o": {"requests": 2, "errors": 1}, "say \"hi\"\\": {"requests": 1, "errors": 0}},
            "status_codes": {"200": 3, "500": 1},
            "latency_ms": {"p50": 100, "p95": 500, "p99": 500},
            "evals": {"passed": 0, "failed": 0},
            "uptime_seconds": null,
        })
    );
    let empty = app.get("/api/metrics").bearer(&eve.token).send().await.expect(200);
    assert_eq!((&empty["total_requests"], &empty["avg_latency_ms"]), (&json!(0), &json!(0.0)));
    assert_eq!((&empty["providers"], &empty["latency_ms"]["p50"]), (&json!({}), &Value::Null));
    app.get("/api/v1/metrics").send().await.expect_error(401, "unauthorized");
});

on_both!(prometheus_gets_text, |app| async move {
    let ada = app.signup("acme").await;
    seed(&app, &ada).await;
    let text = async |accept: &str| {
        let answer = app.get("/api/v1/metrics").bearer(&ada.token).header("accept", accept).send().await;
        assert_eq!(answer.status, 200);
        (answer.header("content-type").unwrap().to_owned(), answer.text())
    };
    let (kind, plain) = text("text/plain;version=0.0.4;q=0.5,*/*;q=0.1").await;
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    for line in [
        "# TYPE gateway_requests_total counter",
        "gateway_requests_total{provider=\"groq\",model=\"gpt-4o\",status=\"500\"} 1",
        "gateway_requests_total{provider=\"openai\",model=\"say \\\"hi\\\"\\\\\",status=\"200\"} 1",
        "gateway_requests_total{provider=\"openai\",model=\"\",status=\"200\"} 1",
        "gateway_errors_total{provider=\"groq\",model=\"gpt-4o\",status=\"500\"} 1",
        "gateway_tokens_total{provider=\"groq\",model=\"gpt-4o\",status=\"500\",kind=\"prompt\"} 10",
        "gateway_cost_usd_total{provider=\"groq\",model=\"gpt-4o\",status=\"500\"} 0.001",
        "gateway_latency_milliseconds{quantile=\"0.95\"} 500",
        "gateway_latency_milliseconds_sum 800",
        "gateway_latency_milliseconds_count 4",
        "gateway_request_duration_seconds{quantile=\"0.95\"} 0.5",
        "gateway_request_duration_seconds_sum 0.8",
    ] {
        assert!(plain.lines().any(|found| found == line), "{line} is not in\n{plain}");
    }
    assert!(!plain.contains("# EOF"));
    let (kind, open) = text("application/openmetrics-text;version=1.0.0,text/plain;q=0.5").await;
    assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(open.lines().any(|line| line == "# TYPE gateway_requests counter"));
    assert!(open.ends_with("# EOF\n"));
    let (kind, _) = text("application/json, text/plain, */*").await;
    assert_eq!(kind, "application/json");
});

on_both!(the_private_listener_has_metrics_and_probes, |app| async move {
    let ada = app.signup("acme").await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(gateway::admin::serve(std::sync::Arc::clone(&app.app), listener));
    let get = |path: &'static str| TestRequest::new(address, http::Method::GET, path).send();
    for path in ["/livez", "/readyz"] {
        let answer = get(path).await;
        assert_eq!((answer.status.as_u16(), &*answer.text()), (200, "ok\n"));
    }
    assert_eq!(get("/healthz").await.expect(200)["status"], "ok");
    assert_eq!(get("/api/v1/keys").await.status, 404);
    let chat = |model: String| {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
        let call = app.post("/v1/chat/completions", body).key(&ada.api_key);
        call.header("x-gateway-provider", "sandbox").send()
    };
    // More label sets than a small fixed number: the first ones go on counting.
    let models = || (0..150).map(|number| format!("model-{number}"));
    for round in 1..=2 {
        for model in models() {
            chat(model).await;
        }
        let metrics = get("/metrics").await;
        assert_eq!(metrics.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        let text = metrics.text();
        for model in models() {
            let start = format!("gateway_requests_total{{provider=\"sandbox\",model=\"{model}\",");
            let line = text.lines().find(|line| line.starts_with(&start)).unwrap();
            assert!(line.ends_with(&format!(" {round}")), "{line}");
        }
    }
});
