//! Runs whose evals call models: judges and embeddings, their failures and limits.

use gateway_store::testing::count;
use serde_json::{Value, json};

use crate::eval_runs::answered;
use crate::support::{Backend, ProxyFixture};
use crate::upstream::Reply;

fn verdict(text: &str) -> Reply {
    let body = json!({"choices": [{"message": {"content": text}}], "usage": {"prompt_tokens": 3, "completion_tokens": 2}});
    Reply::json(200, &body.to_string())
}

async fn judged_by(gateway: &ProxyFixture) -> (Value, Value) {
    let config = json!({"provider": "openai", "model": "gpt-4o", "criteria": "polite", "threshold": 0.6});
    let eval = gateway.app.eval(&gateway.ada, "llm", "judge", config).await;
    let run = gateway.app.eval_run(&gateway.ada, &eval, json!({})).await;
    let results = gateway.app.run_results(&gateway.ada, &run).await;
    (run, results)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_judges_strictly_and_may_mend_its_answer_once() {
    for backend in Backend::BOTH {
        let gateway = ProxyFixture::start_with(backend, &[]).await;
        answered(&gateway.app, &gateway.ada, &["Good day to you."]).await;
        gateway.upstream.push(verdict("I think it is fine"));
        gateway.upstream.push(verdict(r#"{"score": 0.9, "passed": false, "reason": "cold"}"#));
        let (run, results) = judged_by(&gateway).await;
        assert_eq!((&run["status"], &run["failed"]), (&json!("completed"), &json!(1)), "{run}");
        let result = &results["results"][0];
        assert_eq!(
            (&result["score"], &result["details"]),
            (&json!(0.9), &json!("cold")),
            "an explicit verdict counts"
        );
        let sent = gateway.upstream.requests();
        assert_eq!(sent.len(), 2);
        let first = sent[0].json();
        assert_eq!(first["response_format"]["type"], "json_schema");
        let question = first["messages"][1]["content"].as_str().unwrap();
        assert!(
            question.contains("polite")
                && question.contains("Good day to you.")
                && question.contains("hello there")
        );
        assert!(sent[1].json()["messages"][3]["content"].as_str().unwrap().contains("not valid JSON"));
        let rows = gateway.wait_for_rows(3).await;
        let own: Vec<_> = rows.iter().filter(|row| row["source"] == "api").collect();
        assert_eq!(own.len(), 2);
        assert!(own.iter().all(|row| row["metadata"]["eval_run_id"] == run["id"]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_judge_is_retried_before_it_counts_as_an_error() {
    let gateway = ProxyFixture::start().await;
    answered(&gateway.app, &gateway.ada, &["one"]).await;
    gateway.upstream.push(Reply::json(500, "{}"));
    gateway.upstream.push(verdict(r#"{"score": 0.7}"#));
    let (run, _) = judged_by(&gateway).await;
    assert_eq!(
        (&run["status"], &run["passed"], &run["errors"]),
        (&json!("completed"), &json!(1), &json!(0)),
        "{run}"
    );
    assert_eq!(gateway.upstream.requests().len(), 2);

    gateway.upstream.set_default_reply(Reply::json(503, "{}"));
    let (run, results) = judged_by(&gateway).await;
    assert_eq!((&run["status"], &run["errors"]), (&json!("failed"), &json!(1)), "{run}");
    assert!(results["errors"][0]["error"].as_str().unwrap().contains("provider_error"), "{results}");
    assert_eq!(gateway.upstream.requests().len(), 5, "three tries");

    // A permanent refusal is not retried; an unsupported response format is left out.
    gateway.upstream.set_default_reply(Reply::json(400, r#"{"error": {"message": "no response_format"}}"#));
    let (run, _) = judged_by(&gateway).await;
    assert_eq!(run["status"], "failed");
    let sent = gateway.upstream.requests();
    assert_eq!(sent.len(), 7);
    assert!(sent[6].json().get("response_format").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nul_in_a_providers_text_does_not_repeat_the_run() {
    for backend in Backend::BOTH {
        let gateway = ProxyFixture::start_with(backend, &[]).await;
        answered(&gateway.app, &gateway.ada, &["one", "two", "three", "four"]).await;
        gateway.upstream.set_default_reply(Reply::json(422, "bad \0 request"));
        let (run, results) = judged_by(&gateway).await;
        assert_eq!((&run["status"], &run["errors"]), (&json!("failed"), &json!(4)), "{run}");
        assert!(results["errors"][0]["error"].as_str().unwrap().contains("bad"), "{results}");
        assert_eq!(gateway.upstream.requests().len(), 4);
        // Nor does one in the judge's reason.
        gateway.upstream.set_default_reply(verdict("{\"score\": 0.9, \"reason\": \"a\\u0000b\"}"));
        let (run, results) = judged_by(&gateway).await;
        assert_eq!((&run["status"], &run["passed"]), (&json!("completed"), &json!(4)), "{run}");
        assert_eq!(results["results"][0]["details"], "a b");
        assert_eq!(gateway.upstream.requests().len(), 8);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embeddings_come_from_the_named_or_the_default_provider() {
    let gateway = ProxyFixture::start().await;
    answered(&gateway.app, &gateway.ada, &["the cat sat on the mat", "quarterly revenue figures"]).await;
    let config = json!({"reference": "A cat sits on a mat.", "threshold": 0.5});
    let eval = gateway.app.eval(&gateway.ada, "similarity", "embedding", config.clone()).await;
    let run = gateway.app.eval_run(&gateway.ada, &eval, json!({})).await;
    assert_eq!((&run["passed"], &run["failed"]), (&json!(1), &json!(1)), "{run}");
    assert!(gateway.upstream.requests().is_empty());

    let body = json!({"data": [{"embedding": [1.0, 0.0]}, {"embedding": [0.6, 0.8]}], "usage": {"prompt_tokens": 3}});
    gateway.upstream.set_default_reply(Reply::json(200, &body.to_string()));
    let mut config = config;
    config["provider"] = json!("openai");
    config["model"] = json!("text-embedding-3-small");
    let eval = gateway.app.eval(&gateway.ada, "similarity", "embedding", config).await;
    let run = gateway.app.eval_run(&gateway.ada, &eval, json!({"limit": 1})).await;
    let results = gateway.app.run_results(&gateway.ada, &run).await;
    assert!((results["results"][0]["score"].as_f64().unwrap() - 0.6).abs() < 1e-6, "{results}");
    let sent = gateway.upstream.requests();
    assert_eq!(sent[0].target(), "/v1/embeddings");
    assert_eq!(sent[0].json()["input"][1], "A cat sits on a mat.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_cancelled_while_it_waits_for_its_judge_and_can_then_be_deleted() {
    for backend in Backend::BOTH {
        let gateway = ProxyFixture::start_with(backend, &[]).await;
        let (app, ada) = (&gateway.app, &gateway.ada);
        let texts: Vec<String> = (0..30).map(|number| format!("text {number}")).collect();
        answered(app, ada, &texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
        gateway
            .upstream
            .set_default_reply(verdict(r#"{"score": 1}"#).delay(std::time::Duration::from_millis(300)));
        let config = json!({"provider": "openai", "model": "gpt-4o", "criteria": "any"});
        let eval = app.eval(ada, "llm", "judge", config).await;
        let path = format!("/api/v1/evals/{}/run", eval["id"]);
        let run = app.post(&path, json!({})).bearer(&ada.token).send().await.expect(202);
        gateway.upstream.wait_for_requests(1, std::time::Duration::from_secs(5)).await;
        let path = format!("/api/v1/evals/runs/{}", run["id"]);
        let running = app.delete(&path).bearer(&ada.token).send().await.expect_error(409, "conflict");
        assert!(running["message"].as_str().unwrap().contains("/cancel"), "{running}");
        let cancel = format!("{path}/cancel");
        let cancelled = app.call(http::Method::POST, &cancel).bearer(&ada.token).send().await.expect(200);
        assert_eq!(cancelled["status"], "cancelled");
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        let later = app.wait_for_run(ada, &run).await;
        assert_eq!((&later["status"], &later["completed"]), (&json!("cancelled"), &cancelled["completed"]));
        assert!(gateway.upstream.arrivals().len() <= 16, "nothing more is asked");
        app.call(http::Method::POST, &cancel).bearer(&ada.token).send().await.expect_error(409, "conflict");
        app.delete(&path).bearer(&ada.token).send().await.expect(200);
        assert_eq!(count(&app.app.services.db, "eval_run_items").await.unwrap(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn judges_respect_the_rate_limit_and_resume_in_the_next_window() {
    let gateway = ProxyFixture::start_with(Backend::Sqlite, &[("GATEWAY_RATE_LIMIT_FREE", "100")]).await;
    let (app, ada) = (&gateway.app, &gateway.ada);
    let texts: Vec<String> = (0..110).map(|number| format!("text {number}")).collect();
    answered(app, ada, &texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    gateway.upstream.set_default_reply(verdict(r#"{"score": 1}"#));
    app.advance_to_next_minute();
    let config = json!({"provider": "openai", "model": "gpt-4o", "criteria": "any"});
    let eval = app.eval(ada, "llm", "judge", config).await;
    let path = format!("/api/v1/evals/{}/run", eval["id"]);
    let run = app.post(&path, json!({"limit": 110})).bearer(&ada.token).send().await.expect(202);
    gateway.upstream.wait_for_requests(100, std::time::Duration::from_secs(20)).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(gateway.upstream.requests().len(), 100);
    app.app.services.clock.advance(61_000);
    let run = app.wait_for_run(ada, &run).await;
    assert_eq!(
        (&run["status"], &run["passed"], &run["errors"]),
        (&json!("completed"), &json!(110), &json!(0)),
        "{run}"
    );
}
