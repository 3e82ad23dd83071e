//! Estimates of eval runs: what several evals and models over a dataset would cost, and who may ask.

use serde_json::{Value, json};

use crate::on_both;
use crate::support::{Account, TestApp, TestResponse};

async fn estimate(app: &TestApp, by: &Account, dataset: &str, body: Value) -> TestResponse {
    app.post(&format!("/api/v1/datasets/{dataset}/eval/estimate"), body).bearer(&by.token).send().await
}

on_both!(an_estimate_adds_up_evals_and_models, |app| async move {
    let ada = app.signup("acme").await;
    // 4000 characters with the quotes: 1000 tokens each.
    let input = "x".repeat(3_998);
    let dataset = app.dataset(&ada, &[json!({"input": input}), json!({"input": input})]).await;
    let first = app.eval(&ada, "static", "is_json", json!({})).await;
    let judge = json!({"provider": "sandbox", "model": "m", "criteria": "any"});
    let judge = app.eval(&ada, "llm", "judge", judge).await;
    let mini = json!({"provider": "openai", "model": "gpt-4o-mini"});
    let short = json!({"provider": "openai", "model": "gpt-4o-mini", "params": {"max_tokens": 100}});
    let free = json!({"provider": "openai", "model": "unheard-of"});
    let body = json!({"eval_ids": [first["id"], judge["id"], first["id"]], "targets": [mini, short, free], "output_tokens": 1000});
    let found = estimate(&app, &ada, &dataset, body).await.expect(200);
    assert_eq!(
        (&found["cases"], &found["runs"], &found["calls"]),
        (&json!(2), &json!(6), &json!(12)),
        "{found}"
    );
    assert_eq!(found["judge_calls"], 6);
    let targets = &found["targets"];
    assert_eq!((&targets[0]["calls"], &targets[0]["input_tokens"]), (&json!(4), &json!(4_000)), "{found}");
    assert_eq!((&targets[0]["output_tokens"], &targets[1]["output_tokens"]), (&json!(4_000), &json!(400)));
    // 0.15 USD for a million input tokens, 0.6 for a million output tokens.
    assert_eq!((&targets[0]["cost_usd"], &targets[1]["cost_usd"]), (&json!(0.003), &json!(0.000_84)));
    assert_eq!((&targets[2]["cost_usd"], &found["cost_usd"]), (&Value::Null, &json!(0.003_84)));

    // The text of the prompt goes with each input.
    let save = json!({"namespace": "a", "slug": "b", "content": "word ".repeat(200)});
    app.post("/api/v1/playground/save-version", save).bearer(&ada.token).send().await.expect(200);
    let prompted =
        json!({"provider": "openai", "model": "gpt-4o-mini", "prompt": {"namespace": "a", "slug": "b"}});
    let body = json!({"eval_ids": [first["id"]], "targets": [prompted]});
    let found = estimate(&app, &ada, &dataset, body).await.expect(200);
    assert!(found["targets"][0]["input_tokens"].as_i64().unwrap() >= 2_400, "{found}");
    assert_eq!(found["targets"][0]["output_tokens"], 1_000, "500 for each answer by default");

    // Stored outputs are judged without calls.
    let found = estimate(&app, &ada, &dataset, json!({"eval_ids": [first["id"]]})).await.expect(200);
    assert_eq!((&found["runs"], &found["calls"], &found["cost_usd"]), (&json!(1), &json!(0), &Value::Null));

    // A frozen version keeps its cases.
    app.freeze(&ada, &dataset).await;
    let path = format!("/api/v1/datasets/{dataset}/cases");
    app.post(&path, json!({"input": "third"})).bearer(&ada.token).send().await.expect(201);
    let of = |version: Value| json!({"eval_ids": [first["id"]], "version": version});
    assert_eq!(estimate(&app, &ada, &dataset, of(json!(1))).await.expect(200)["cases"], 2);
    assert_eq!(estimate(&app, &ada, &dataset, of(Value::Null)).await.expect(200)["cases"], 3);
    let empty =
        app.post("/api/v1/datasets", json!({"name": "empty"})).bearer(&ada.token).send().await.expect(201);
    let empty = empty["id"].as_str().unwrap();
    let found = estimate(&app, &ada, empty, json!({"eval_ids": [first["id"]], "targets": [mini]})).await;
    assert_eq!(found.expect(200)["cost_usd"], 0.0);
});

on_both!(an_estimate_is_bounded_and_stays_in_the_organization, |app| async move {
    let ada = app.signup("acme").await;
    let eve = app.signup("other").await;
    let dataset = app.dataset(&ada, &[json!({"input": "x"})]).await;
    let eval = app.eval(&ada, "static", "is_json", json!({})).await;
    let theirs = app.eval(&eve, "static", "is_json", json!({})).await;
    let target = json!({"provider": "sandbox", "model": "m"});
    let with = |name: &str, value: Value| {
        let mut body = json!({"eval_ids": [eval["id"]], "targets": [target]});
        body[name] = value;
        body
    };
    for (body, named) in [
        (with("eval_ids", json!([])), "eval_ids"),
        (with("eval_ids", json!([theirs["id"]])), "eval_ids"),
        (with("eval_ids", json!((0..11).collect::<Vec<_>>())), "eval_ids"),
        (with("targets", json!(vec![target.clone(); 11])), "targets"),
        (with("targets", json!([{"provider": "nowhere", "model": "m"}])), "target.provider"),
        (with("output_tokens", json!(0)), "output_tokens"),
        (with("output_tokens", json!(1_000_001)), "output_tokens"),
        (with("version", json!(1)), "version"),
    ] {
        let refused = estimate(&app, &ada, &dataset, body.clone()).await.expect_error(400, "bad_request");
        let message = refused["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{named}:")), "{body}: {message}");
    }
    let body = with("version", Value::Null);
    let stolen = json!({"eval_ids": [theirs["id"]]});
    estimate(&app, &eve, &dataset, stolen).await.expect_error(404, "not_found");
    let viewer = app.join(&ada, "viewer").await;
    estimate(&app, &viewer, &dataset, body.clone()).await.expect_error(403, "forbidden");
    let member = app.join(&ada, "member").await;
    estimate(&app, &member, &dataset, body.clone()).await.expect(200);
    let key = app.create_key(&ada.token, json!({"name": "k", "scopes": ["provider:openai", "read"]})).await;
    let path = format!("/api/v1/datasets/{dataset}/eval/estimate");
    app.post(&path, body).key(&key.raw).send().await.expect_error(403, "scope_denied");
});
