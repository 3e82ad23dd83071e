//! Tests of the process metrics.

use super::*;
use crate::log::spool::tests::row;
use crate::metrics::node::SpoolState;
use crate::metrics::requests::OVERFLOW;
use gateway_core::logs::Tokens;
use gateway_store::fair_slots::SlotStats;

fn request(provider: &str, model: Option<&str>, status: u16) -> LogRow {
    let mut row = row(1, "x");
    (row.provider, row.model, row.status) = (provider.into(), model.map(str::to_owned), status);
    row.tokens = Some(Tokens { prompt: 10, completion: 5, ..Tokens::default() });
    row
}

fn text_of(metrics: &Metrics, node: &NodeState) -> String {
    metrics.render(Format::Prometheus, node, None)
}

fn has_line(text: &str, line: &str) {
    assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
}

#[test]
fn requests_of_all_threads_are_added_up() {
    let metrics = Metrics::new(2);
    for lane in [0, 1, 1, 2] {
        metrics.count(lane, &request("openai", Some("say \"hi\""), 200));
    }
    metrics.count(0, &request("openai", None, 500));
    let text = text_of(
        &metrics,
        &NodeState {
            spool: SpoolState { bytes: 7, rows_shed: 3, ..SpoolState::default() },
            ..NodeState::default()
        },
    );
    let labels = r#"provider="openai",model="say \"hi\"",status="200""#;
    for line in [
        "# TYPE gateway_requests_total counter".to_owned(),
        format!("gateway_requests_total{{{labels}}} 4"),
        r#"gateway_requests_total{provider="openai",model="",status="500"} 1"#.to_owned(),
        format!("gateway_tokens_total{{{labels},kind=\"prompt\"}} 40"),
        format!("gateway_tokens_total{{{labels},kind=\"completion\"}} 20"),
        "# TYPE gateway_latency_ms histogram".to_owned(),
        format!("gateway_latency_ms_bucket{{le=\"10\",{labels}}} 0"),
        format!("gateway_latency_ms_bucket{{le=\"25\",{labels}}} 4"),
        format!("gateway_latency_ms_bucket{{le=\"+Inf\",{labels}}} 4"),
        format!("gateway_latency_ms_sum{{{labels}}} 48"),
        format!("gateway_latency_ms_count{{{labels}}} 4"),
        "# TYPE gateway_request_duration_seconds histogram".to_owned(),
        format!("gateway_request_duration_seconds_bucket{{le=\"0.025\",{labels}}} 4"),
        format!("gateway_request_duration_seconds_sum{{{labels}}} 0.048"),
        "# TYPE gateway_log_spool_bytes gauge".to_owned(),
        "gateway_log_spool_bytes 7".to_owned(),
        "# TYPE gateway_log_rows_shed_total counter".to_owned(),
        "gateway_log_rows_shed_total 3".to_owned(),
    ] {
        has_line(&text, &line);
    }
    assert!(!text.contains("# EOF"));
}

#[test]
fn known_series_go_on_counting_when_new_ones_are_folded_together() {
    // Half of them for one organization.
    let metrics = Metrics::with_max_series(2, 6);
    for lane in 0..2 {
        for model in 0..10 {
            metrics.count(lane, &request("openai", Some(&format!("model-{model}")), 200));
        }
    }
    // A thread that has not used a tracked series finds it too.
    metrics.count(1, &request("openai", Some("model-0"), 200));
    let text = text_of(&metrics, &NodeState::default());
    for (model, count) in [("model-0", 3), ("model-1", 2), ("model-2", 2)] {
        has_line(
            &text,
            &format!(r#"gateway_requests_total{{provider="openai",model="{model}",status="200"}} {count}"#),
        );
    }
    has_line(&text, r#"gateway_requests_total{provider="other",model="other",status="200"} 14"#);
    assert!(!text.contains("model-3"));
    assert!(
        metrics.requests.lanes.iter().all(|lane| lane.lock().unwrap()["openai"].len() == 3),
        "caches are bounded too"
    );
}

#[test]
fn hundreds_of_label_sets_are_counted_each_for_itself() {
    let metrics = Metrics::new(4);
    let models: Vec<String> = (0..30).map(|number| format!("model-{number}")).collect();
    for round in 0..13_usize {
        for model in &models {
            for status in [200, 400, 404, 429, 500] {
                metrics.count(round, &request("openai", Some(model), status));
            }
        }
    }
    let text = text_of(&metrics, &NodeState::default());
    for model in &models {
        for status in [200, 400, 404, 429, 500] {
            has_line(
                &text,
                &format!(
                    r#"gateway_requests_total{{provider="openai",model="{model}",status="{status}"}} 13"#
                ),
            );
        }
    }
    assert!(!text.contains(OVERFLOW));
}

#[test]
fn names_of_providers_do_not_add_series_without_bound() {
    let metrics = Metrics::new(2);
    for number in 0..MAX_SERIES + 500 {
        let mut row = request(&format!("provider-{number}"), Some(&format!("m-{number}")), 200);
        // One organization alone may not use all series.
        row.org_id = uuid::Uuid::from_u128(number as u128).into();
        metrics.count(number, &row);
        metrics.count(number, &request("openai", None, 200));
    }
    let text = text_of(&metrics, &NodeState::default());
    let series = text.lines().filter(|line| line.starts_with("gateway_requests_total{")).count();
    assert_eq!(series, MAX_SERIES + 1, "and one for the others");
    has_line(&text, r#"gateway_requests_total{provider="other",model="other",status="200"} 501"#);
    has_line(
        &text,
        &format!(r#"gateway_requests_total{{provider="openai",model="",status="200"}} {}"#, MAX_SERIES + 500),
    );
}

#[test]
fn organizations_that_use_many_series_leave_some_to_others() {
    let metrics = Metrics::new(1);
    for org in [7, 8] {
        for number in 0..MAX_SERIES {
            let mut row = request(&format!("provider-{org}"), Some(&format!("model-{number}")), 200);
            row.org_id = uuid::Uuid::from_u128(org).into();
            metrics.count(0, &row);
        }
    }
    metrics.count(0, &request("mine", Some(&"m".repeat(200)), 200));
    let mut other = request("openai", Some("gpt-4o"), 200);
    other.org_id = uuid::Uuid::from_u128(9).into();
    metrics.count(0, &other);
    let text = text_of(&metrics, &NodeState::default());
    has_line(&text, r#"gateway_requests_total{provider="openai",model="gpt-4o",status="200"} 1"#);
    let series_of = |org: u128| {
        let start = format!(r#"gateway_requests_total{{provider="provider-{org}","#);
        text.lines().filter(|line| line.starts_with(&start)).count()
    };
    assert_eq!((series_of(7), series_of(8)), (MAX_SERIES / 2, MAX_SERIES / 4));
    let folded = 2 * MAX_SERIES - MAX_SERIES / 2 - MAX_SERIES / 4 + 1;
    has_line(
        &text,
        &format!(r#"gateway_requests_total{{provider="other",model="other",status="200"}} {folded}"#),
    );
}

#[test]
fn waiting_and_refused_work_of_tenants_is_told() {
    let compute = SlotStats { waiting: 3, granted: 10, refused: 2, waited_ms: 1_500 };
    let queries = SlotStats { waiting: 1, refused: 4, ..SlotStats::default() };
    let text = text_of(&Metrics::new(1), &NodeState { compute, queries, ..NodeState::default() });
    for line in [
        "# HELP gateway_compute_waiting Pieces of computation that wait for a thread.",
        "gateway_compute_waiting 3",
        "gateway_compute_started_total 10",
        "# HELP gateway_compute_refused_total Pieces of computation that were refused.",
        "gateway_compute_refused_total 2",
        "gateway_compute_wait_ms_total 1500",
        "gateway_compute_wait_seconds_total 1.5",
        "gateway_queries_waiting 1",
        "gateway_queries_refused_total 4",
    ] {
        has_line(&text, line);
    }
}

#[test]
fn memory_and_connections_are_shown() {
    let state = NodeState {
        memory_bytes: 5,
        memory_refusals: 6,
        calls: 8,
        calls_refused: 9,
        connections: 7,
        connections_refused: [("total", 1), ("address", 2)],
        connections_closed: [("room", 3), ("head_timeout", 0), ("idle", 4)],
        ..NodeState::default()
    };
    let text = text_of(&Metrics::new(1), &state);
    for line in [
        "# HELP gateway_memory_bytes Memory reserved for bodies that are held.",
        "gateway_memory_bytes 5",
        "gateway_memory_refusals_total 6",
        "gateway_calls 8",
        "gateway_calls_refused_total 9",
        "gateway_connections 7",
        r#"gateway_connections_refused_total{reason="address"} 2"#,
        r#"gateway_connections_closed_total{reason="room"} 3"#,
        r#"gateway_connections_closed_total{reason="head_timeout"} 0"#,
    ] {
        has_line(&text, line);
    }
}

#[test]
fn a_traced_request_is_an_example_of_its_bucket() {
    let metrics = Metrics::new(1);
    let mut row = request("openai", Some("m"), 200);
    metrics.count(0, &row);
    row.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
    metrics.count(0, &row);
    row.traceparent = Some("00-evil\"} 1-x-01".into());
    metrics.count(0, &row);
    let text = metrics.render(Format::OpenMetrics, &NodeState::default(), None);
    let exemplar = "# {trace_id=\"0af7651916cd43dd8448eb211c80319c\"} 0.012 ";
    let examples: Vec<&str> = text.lines().filter(|line| line.contains(" # ")).collect();
    assert_eq!(examples.len(), 1, "{examples:?}");
    assert!(
        examples[0].starts_with("gateway_request_duration_seconds_bucket{le=\"0.025\""),
        "{}",
        examples[0]
    );
    assert!(examples[0].contains(exemplar), "{}", examples[0]);
    assert!(!text_of(&metrics, &NodeState::default()).contains("trace_id"));
}
