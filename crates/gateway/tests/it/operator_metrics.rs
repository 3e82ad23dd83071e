//! The operator's metrics: what they count, their names, and the alert rules and the dashboard that use them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use gateway_core::ids::OrgId;
use gateway_store::jobs::{self, NewJob};
use http::Method;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::fallback_chain::{FallbackChain, good};
use crate::support::{RawConnection, TestApp, TestRequest, TestResponse, request};
use crate::upstream::Reply;

const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

async fn private_listener(app: &TestApp) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(gateway::admin::serve(Arc::clone(&app.app), listener));
    address
}

async fn scrape(address: SocketAddr, accept: &str) -> TestResponse {
    let response = TestRequest::new(address, Method::GET, "/metrics").header("accept", accept).send().await;
    assert_eq!(response.status, 200);
    response
}

/// The value of a series as it is written.
fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is not in\n{text}")).parse().unwrap()
}

fn families(text: &str) -> BTreeMap<String, (String, String)> {
    let mut families = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(help) = line.strip_prefix("# HELP ") else {
            assert!(!line.starts_with("# TYPE "), "no HELP before {line}");
            continue;
        };
        let (name, help) = help.split_once(' ').unwrap();
        let kind = lines.next().and_then(|line| line.strip_prefix(&format!("# TYPE {name} ")));
        let known = families.insert(name.to_owned(), (kind.unwrap().to_owned(), help.to_owned()));
        assert!(known.is_none(), "{name} is there twice");
    }
    families
}

/// Whether a name ends with the name of a unit that is not a base unit.
fn has_other_unit(name: &str) -> bool {
    let name = name.strip_suffix("_total").unwrap_or(name);
    [
        "ms",
        "milliseconds",
        "us",
        "microseconds",
        "minutes",
        "hours",
        "days",
        "kb",
        "mb",
        "kib",
        "mib",
        "percent",
    ]
    .iter()
    .any(|unit| name.ends_with(&format!("_{unit}")))
}

/// The rules of `promtool check metrics`. A family with an old name must tell the new one.
fn check_names(text: &str) {
    let families = families(text);
    for (name, (kind, help)) in &families {
        assert!(help.len() > 10 && help.ends_with('.'), "{name}: {help}");
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
        if has_other_unit(name) {
            let replacement = help.strip_prefix("Deprecated, use ").and_then(|help| help.split_once('.'));
            let (replacement, _) = replacement.unwrap_or_else(|| panic!("{name}: {help}"));
            assert!(families.contains_key(replacement) && !has_other_unit(replacement), "{replacement}");
        }
    }
}

/// The output without families of old names, for `promtool`.
fn without_deprecated(text: &str) -> String {
    let deprecated: Vec<String> = families(text)
        .into_iter()
        .filter_map(|(name, (_, help))| help.starts_with("Deprecated").then_some(name))
        .collect();
    let is_of = |line: &str, name: &String| {
        line.strip_prefix("# HELP ").or(line.strip_prefix("# TYPE ")).unwrap_or(line).starts_with(&**name)
    };
    let kept = text.lines().filter(|line| !deprecated.iter().any(|name| is_of(line, name)));
    kept.flat_map(|line| [line, "\n"]).collect()
}

/// Runs `promtool` where it is installed.
fn promtool(arguments: &[&str], input: &str) {
    let Ok(mut tool) = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    else {
        return;
    };
    tool.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let done = tool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(done.status.success(), "promtool {arguments:?}: {said}");
}

on_both!(the_private_listener_tells_what_an_operator_needs, |app| async move {
    let ada = app.signup("acme").await;
    let address = private_listener(&app).await;
    let chat = |text: &str| {
        let body = json!({"model": "sandbox-small", "messages": [{"role": "user", "content": text}]});
        let call = app.post("/v1/chat/completions", body).key(&ada.api_key);
        call.header("x-gateway-provider", "sandbox").header("x-gateway-cache", "true")
    };
    chat("a").header("traceparent", &format!("00-{TRACE}-b7ad6b7169203331-01")).send().await.expect(200);
    chat("a").send().await.expect(200);
    app.get("/api/v1/keys").send().await.expect_error(401, "unauthorized");
    app.get("/api/v1/keys").key("sk-gateway-wrong").send().await.expect_error(401, "unauthorized");
    app.login(&ada.email, "a wrong password").await.expect_error(401, "unauthorized");
    app.get("/api/v1/prompts/missing").bearer(&ada.token).send().await;
    let unknown = app.post("/v1/chat/completions", json!({})).key(&ada.api_key);
    unknown.header("x-gateway-provider", "nowhere").send().await.expect_error(400, "bad_request");

    let response = scrape(address, "text/plain").await;
    assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = response.text();
    check_names(&text);
    promtool(&["check", "metrics"], &without_deprecated(&text));
    for (series, expected) in [
        (r#"gateway_cache_results_total{result="miss"}"#, 1.0),
        (r#"gateway_cache_results_total{result="hit"}"#, 1.0),
        (r#"gateway_upstream_attempts_total{provider="sandbox",outcome="success"}"#, 1.0),
        (r#"gateway_authentication_failures_total{reason="missing"}"#, 1.0),
        (r#"gateway_authentication_failures_total{reason="invalid"}"#, 1.0),
        (r#"gateway_authentication_failures_total{reason="wrong_password"}"#, 1.0),
        (r#"gateway_error_responses_total{surface="api",code="unauthorized"}"#, 3.0),
        (r#"gateway_error_responses_total{surface="proxy",code="bad_request"}"#, 1.0),
        (r#"gateway_stage_duration_seconds_count{stage="authenticate"}"#, 3.0),
        (r#"gateway_stage_duration_seconds_count{stage="upstream"}"#, 1.0),
        (r#"gateway_stage_duration_seconds_count{stage="prepare"}"#, 2.0),
        (r#"gateway_queue_items{queue="jobs"}"#, 0.0),
        ("gateway_database_up", 1.0),
        ("gateway_log_spool_writable", 1.0),
        ("gateway_nodes", 1.0),
    ] {
        assert!((value(&text, series) - expected).abs() < 0.5, "{series} {}", value(&text, series));
    }
    for positive in [
        r#"gateway_database_wait_seconds_count{pool="state"}"#,
        r#"gateway_database_wait_seconds_count{pool="authentication"}"#,
        "gateway_log_database_bytes",
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "process_start_time_seconds",
        "process_max_fds",
    ] {
        assert!(value(&text, positive) > 0.0, "{positive}");
    }
    let build = format!("gateway_build_info{{version=\"{}\",", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&build), "{text}");
    assert!(!text.contains(TRACE), "the older format has no exemplars");

    let response = scrape(address, OPEN_METRICS).await;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(response.header("content-type"), Some(kind));
    let text = response.text();
    assert!(text.ends_with("\n# EOF\n") && text.contains(&format!("# {{trace_id=\"{TRACE}\"}}")), "{text}");

    let own = app.get("/api/v1/metrics").bearer(&ada.token).header("accept", "text/plain").send().await;
    check_names(&own.text());
    promtool(&["check", "metrics"], &without_deprecated(&own.text()));
});

#[tokio::test]
async fn attempts_failovers_and_breakers_are_counted() {
    let chain = FallbackChain::start().await;
    let address = private_listener(&chain.proxy.app).await;
    chain.proxy.upstream.set_default_reply(Reply::json(500, "{}"));
    chain.second.set_default_reply(good());
    for _ in 0..6 {
        chain.chat().send().await.expect(200);
    }
    // A list waits until the rows are stored.
    chain.proxy.app.get("/api/v1/logs").key(&chain.proxy.ada.api_key).send().await.expect(200);
    let text = scrape(address, "").await.text();
    for kind in ["", "_compressed"] {
        assert!(value(&text, &format!("gateway_log_body{kind}_bytes_total")) > 0.0);
    }
    for (series, expected) in [
        // The second target is a tenant's own provider with the API of openai.
        (r#"gateway_upstream_attempts_total{provider="openai",outcome="server_error"}"#, 5.0),
        (r#"gateway_upstream_attempts_total{provider="openai",outcome="success"}"#, 6.0),
        (r#"gateway_upstream_skipped_total{provider="openai"}"#, 1.0),
        ("gateway_upstream_failovers_total", 5.0),
        ("gateway_log_rows_stored_total", 6.0),
        ("gateway_breakers_opened_total", 1.0),
        (r#"gateway_breakers{state="open"}"#, 1.0),
        (r#"gateway_stage_duration_seconds_count{stage="failover"}"#, 5.0),
    ] {
        assert!((value(&text, series) - expected).abs() < 0.5, "{series} {}", value(&text, series));
    }
}

on_both!(due_work_of_the_queues_is_counted_with_its_age, |app| async move {
    let ada = app.signup("acme").await;
    let address = private_listener(&app).await;
    let series = |name: &str, queue: &str| format!("gateway_queue_{name}{{queue=\"{queue}\"}}");
    let services = &app.app.services;
    let now = services.clock.now();
    // No worker takes jobs of this name. The second one is not due yet.
    for due_at in [now.plus(-120_000), now.plus(3_600_000)] {
        let job = NewJob {
            id: services.ids.new_id(),
            org: OrgId(ada.org_id.parse().unwrap()),
            name: "of nobody",
            dedup_key: None,
            payload: "{}",
            due_at,
            now,
        };
        let mut tx = services.db.begin().await.unwrap();
        assert!(jobs::enqueue(&mut tx, &job).await.unwrap());
        tx.commit().await.unwrap();
    }
    let text = scrape(address, "").await.text();
    assert!((value(&text, &series("items", "jobs")) - 1.0).abs() < 0.5, "{text}");
    assert!((120.0..180.0).contains(&value(&text, &series("oldest_seconds", "jobs"))), "{text}");
    for queue in ["deliveries", "exports"] {
        assert!(value(&text, &series("items", queue)).abs() < 0.5);
        assert!(value(&text, &series("oldest_seconds", queue)).abs() < 0.5);
    }
});

fn deploy_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn alert_rules() -> Vec<Value> {
    let text = std::fs::read_to_string(deploy_file("prometheus-alerts.yaml")).unwrap();
    let rules: Value = serde_saphyr::from_str(&text).unwrap();
    let groups = rules["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// Every `expr` of the dashboard.
fn dashboard_expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("expr").and_then(Value::as_str).map(ToOwned::to_owned));
            members.values().for_each(|member| dashboard_expressions(member, found));
        }
        Value::Array(values) => values.iter().for_each(|value| dashboard_expressions(value, found)),
        _ => {}
    }
}

/// The names of series that the text format has, also of families without samples.
fn series_names(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (name, (kind, _)) in families(text) {
        if kind == "histogram" {
            names.extend(["_bucket", "_sum", "_count"].map(|suffix| format!("{name}{suffix}")));
        } else {
            names.insert(name);
        }
    }
    names
}

#[tokio::test]
async fn alert_rules_and_dashboard_use_metrics_that_exist() {
    let app = TestApp::start_with(crate::support::Backend::Sqlite, &[]).await;
    let text = scrape(private_listener(&app).await, "").await.text();
    let names = series_names(&text);
    let mut expressions: Vec<String> =
        alert_rules().iter().map(|rule| rule["expr"].as_str().unwrap().to_owned()).collect();
    let alerts = expressions.len();
    let dashboard = std::fs::read_to_string(deploy_file("grafana-dashboard.json")).unwrap();
    dashboard_expressions(&serde_json::from_str(&dashboard).unwrap(), &mut expressions);
    assert!(alerts > 10 && expressions.len() - alerts > 20, "{alerts} of {}", expressions.len());
    let deprecated: Vec<String> = families(&text)
        .into_iter()
        .filter_map(|(name, (_, help))| help.starts_with("Deprecated").then_some(name))
        .collect();
    for expression in &expressions {
        let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let used: Vec<&str> =
            words.filter(|word| word.starts_with("gateway_") || word.starts_with("process_")).collect();
        assert!(!used.is_empty() || expression.contains("up{"), "{expression}");
        for name in used {
            assert!(names.contains(name), "{name} of {expression}");
            assert!(!deprecated.iter().any(|old| name.starts_with(&**old)), "{name} is deprecated");
        }
    }
    promtool(&["check", "rules", &deploy_file("prometheus-alerts.yaml").display().to_string()], "");
}

#[test]
fn every_alert_is_explained() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    for rule in alert_rules() {
        let name = rule["alert"].as_str().unwrap();
        assert!(manual.contains(&format!("`{name}`")), "docs/operations.md does not explain {name}");
        assert!(["critical", "warning"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{name}");
        let annotations = &rule["annotations"];
        assert!(annotations["summary"].is_string() && annotations["runbook"].is_string(), "{name}");
    }
}

/// Every family of the private listener is in the manual, and the manual names no other.
#[tokio::test]
async fn the_manual_lists_every_metric() {
    let app = TestApp::start_with(crate::support::Backend::Sqlite, &[]).await;
    let text = scrape(private_listener(&app).await, "").await.text();
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let listed: BTreeSet<&str> = manual
        .split(|c: char| !(c.is_ascii_lowercase() || c == '_'))
        .filter(|word| word.starts_with("gateway_") || word.starts_with("process_"))
        // The beginning of the names of packages.
        .filter(|word| *word != "gateway_")
        .collect();
    for name in families(&text).keys() {
        assert!(listed.contains(name.as_str()), "docs/operations.md does not list {name}");
    }
    for name in listed {
        assert!(families(&text).contains_key(name), "docs/operations.md lists {name}, which does not exist");
    }
}

/// What hangs on the private listener does not take the descriptors of callers.
#[tokio::test]
async fn the_private_listener_has_a_limited_number_of_connections() {
    let app = TestApp::start_with(crate::support::Backend::Sqlite, &[]).await;
    let address = private_listener(&app).await;
    let mut open = Vec::new();
    for _ in 0..64 {
        let mut connection = RawConnection::connect(address).await;
        connection.send(request("GET", "/livez", &[], b"")).await;
        assert_eq!(connection.head().await.status, 200);
        open.push(connection);
    }
    let mut refused = RawConnection::connect(address).await;
    refused.try_send(&request("GET", "/livez", &[], b"")).await;
    assert!(refused.try_head().await.is_none());
    open.truncate(32);
    for _ in 0..500 {
        let mut connection = RawConnection::connect(address).await;
        connection.try_send(&request("GET", "/livez", &[], b"")).await;
        if connection.try_head().await.is_some_and(|head| head.status == 200) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("closed connections make no room");
}
