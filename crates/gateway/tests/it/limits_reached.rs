//! Limits that were reached: who is told, what is counted, and what becomes of calls that the gateway makes itself.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::support::limits::answer;
use crate::support::log_rows::row;
use crate::support::{Backend, ProxyFixture, TestRequest, wait_for_response};
use crate::upstream::Reply;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reached_limit_is_an_event_once_per_window_and_a_metric_each_time() {
    for backend in Backend::BOTH {
        let fixture = ProxyFixture::start_with(backend, &[]).await;
        let (app, ada) = (&fixture.app, &fixture.ada);
        fixture.upstream.set_default_reply(answer());
        let id = fixture.limit(json!({"name": "few", "requests": 1, "window": "day", "per": "user"})).await;
        let ask = || fixture.ask_model("m").header("x-gateway-user", "ann");
        ask().send().await.expect(200);
        let usage = format!("/api/v1/orgs/{}/limits/{id}/usage", ada.org_id);
        // The counts are written once a second, and the event after them.
        for (more, refused) in [(1, 1), (2, 3)] {
            for _ in 0..more {
                ask().send().await.expect_error(429, "rate_limited");
            }
            let counted = format!("\"refused\":{refused},");
            let read = || app.get(&usage).bearer(&ada.token);
            wait_for_response(Duration::from_secs(20), read, |usage| usage.text().contains(&counted)).await;
        }
        let mut reached = Vec::new();
        for _ in 0..500 {
            reached = app.events(&ada.org_id).await;
            reached.retain(|(kind, _)| kind == "limit.reached");
            if !reached.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(reached.len(), 1, "{reached:?}");
        let expected = json!({
            "limit_id": id, "name": "few", "unit": "requests", "limit": 1, "per": "user", "bucket": "ann", "window": "day",
        });
        assert_eq!(reached[0].1, expected);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(gateway::admin::serve(Arc::clone(&app.app), listener));
        let metrics = TestRequest::new(address, Method::GET, "/metrics").send().await.text();
        assert!(metrics.contains("gateway_limit_refused_total{name=\"few\"} 3\n"), "{metrics}");
    }
}

/// Calls of the playground count as those of the organization.
#[tokio::test]
async fn calls_of_the_gateway_itself_count_for_the_organization() {
    let fixture = ProxyFixture::start().await;
    fixture.upstream.set_default_reply(answer());
    fixture
        .limit(json!({"name": "org", "requests": 1, "window": "day", "per": "user", "missing": "refuse"}))
        .await;
    let body = json!({"provider": "sandbox", "model": "sandbox-small", "messages": [{"role": "user", "content": "hi"}]});
    let run = || -> TestRequest {
        fixture.app.post("/api/v1/playground/run", body.clone()).bearer(&fixture.ada.token)
    };
    run().send().await.expect(200);
    run().send().await.expect_error(429, "rate_limited");
}

/// So do those of a judge: a run goes on when there is room again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_a_judge_count_and_wait_for_the_limit() {
    let fixture = ProxyFixture::start().await;
    let (app, ada) = (&fixture.app, &fixture.ada);
    let verdict = r#"{"choices":[{"message":{"content":"{\"score\": 1}"}}],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#;
    fixture.upstream.set_default_reply(Reply::json(200, verdict));
    let now = app.app.services.clock.now();
    app.write(&[row(ada, now), row(ada, now), row(ada, now)]).await;
    fixture.limit(json!({"name": "judges", "requests": 2, "models": ["judge-1"], "window": "hour"})).await;
    let config = json!({"provider": "openai", "model": "judge-1", "criteria": "any"});
    let eval = app.eval(ada, "llm", "judge", config).await;
    let path = format!("/api/v1/evals/{}/run", eval["id"]);
    let run = app.post(&path, json!({})).bearer(&ada.token).send().await.expect(202);
    fixture.upstream.wait_for_requests(2, Duration::from_secs(20)).await;
    fixture.ask_model("judge-1").send().await.expect_error(429, "rate_limited");
    assert_eq!(fixture.upstream.requests().len(), 2);
    // The run waits by the clock from the moment when it was refused, which may be after the first step.
    let clock = &app.app.services.clock;
    clock.advance(3_600_000);
    let stepping = async {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            clock.advance(600_000);
        }
    };
    let run = tokio::select! {
        run = app.wait_for_run(ada, &run) => run,
        () = stepping => unreachable!("it has no end"),
    };
    assert_eq!(
        (&run["status"], &run["passed"], &run["errors"]),
        (&json!("completed"), &json!(3), &json!(0)),
        "{run}"
    );
}
