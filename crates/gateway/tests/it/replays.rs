//! Replays: logged requests made again with another model, provider or prompt, their estimate, bounds and results.

use gateway_core::logs::{BodyStorage, LogSource, PromptVersionRef, Tokens};
use gateway_core::statuses::RunStatus;
use gateway_store::replays::{self as store, Replay};
use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::assert_field_error;
use crate::support::log_rows::{chat, row, with};
use crate::support::{Account, Backend, ProxyFixture, TestApp, TestResponse};
use crate::upstream::Reply;

const REPLAYS: &str = "/api/v1/replays";

async fn start(app: &TestApp, by: &Account, body: Value) -> TestResponse {
    app.post(REPLAYS, body).bearer(&by.token).send().await
}

async fn estimate(app: &TestApp, by: &Account, body: Value) -> TestResponse {
    app.post(&format!("{REPLAYS}/estimate"), body).bearer(&by.token).send().await
}

async fn rows(app: &TestApp, by: &Account, replay: &Value) -> Vec<Value> {
    let path = format!("{REPLAYS}/{}/rows", replay["id"]);
    let list = app.get(&path).bearer(&by.token).send().await.expect(200);
    list["rows"].as_array().unwrap().clone()
}

/// Writes rows with these questions and returns their ids, oldest first.
pub async fn asked(app: &TestApp, by: &Account, questions: &[&str]) -> Vec<i64> {
    let now = app.app.services.clock.now();
    let rows: Vec<_> = (0..)
        .zip(questions)
        .map(|(at, question)| with(row(by, now.plus(at)), |row| row.request = chat(question)))
        .collect();
    app.write(&rows).await;
    rows.iter().map(|row| row.id).collect()
}

fn sandbox() -> Value {
    json!({"provider": "sandbox", "model": "sandbox-small"})
}

on_both!(rows_are_replayed_with_another_model_and_compared, |app| async move {
    let ada = app.signup("acme").await;
    let ids = asked(&app, &ada, &["what is the capital", "say hello"]).await;
    let eval = app.eval(&ada, "static", "contains", json!({"value": "capital"})).await;
    let greeting = app.eval(&ada, "static", "contains", json!({"value": "greeting"})).await;
    let body = json!({
        "name": "To the sandbox", "log_ids": ids, "target": sandbox(),
        "eval_ids": [eval["id"], greeting["id"]],
    });
    let made = start(&app, &ada, body).await.expect(202);
    assert_eq!((&made["status"], &made["total"], &made["done"]), (&json!("queued"), &json!(2), &json!(0)));
    assert_eq!((&made["name"], &made["target"]), (&json!("To the sandbox"), &sandbox()));
    assert_eq!(made["created_by"], json!(ada.user_id));
    let replay = app.wait_for_replay(&ada, &made).await;
    assert_eq!(
        (&replay["status"], &replay["done"], &replay["errors"], &replay["error"]),
        (&json!("completed"), &json!(2), &json!(0), &Value::Null),
        "{replay}"
    );
    let before = &replay["before"];
    assert_eq!(
        (&before["calls"], &before["cost_usd"], &before["p95_ms"]),
        (&json!(2), &json!(0.002), &json!(100))
    );
    assert_eq!((&before["input_tokens"], &before["output_tokens"]), (&json!(20), &json!(10)));
    let after = &replay["after"];
    assert_eq!((&after["calls"], &after["errors"]), (&json!(2), &json!(0)));
    assert!(after["p50_ms"].is_i64() && after["input_tokens"].as_i64().unwrap() > 0, "{after}");
    let scores: Vec<Value> = replay["scores"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| {
            json!([
                s["eval_id"],
                s["judged"],
                s["before"]["passed"],
                s["after"]["passed"],
                s["gained"],
                s["lost"]
            ])
        })
        .collect();
    // The old answers are "general greeting", the sandbox repeats the question.
    assert_eq!(Value::from(scores), json!([[eval["id"], 2, 0, 1, 1, 0], [greeting["id"], 2, 2, 0, 0, 2]]));
    assert_eq!(replay["scores"][0]["after"]["pass_rate"], 0.5);

    let rows = rows(&app, &ada, &replay).await;
    assert_eq!(rows.len(), 2);
    let newest = &rows[0];
    assert_eq!((&newest["log_id"], &newest["state"]), (&json!(ids[1]), &json!("done")));
    assert_eq!(newest["input"], "say hello");
    assert_eq!(newest["before"]["answer"], "general greeting");
    assert_eq!(
        (&newest["before"]["provider"], &newest["before"]["model"]),
        (&json!("openai"), &json!("gpt-4o"))
    );
    assert_eq!(newest["after"]["answer"], "The sandbox read: say hello");
    assert_eq!((&newest["after"]["provider"], &newest["after"]["status"]), (&json!("sandbox"), &json!(200)));
    let verdict = json!({"eval_id": eval["id"], "before": {"score": 0.0, "passed": false},
        "after": {"score": 0.0, "passed": false}, "error": null});
    assert_eq!(newest["scores"][0], verdict);
    // The new call has a row of its own, with a source that can be left out.
    let path = format!("/api/v1/logs/{}", newest["replay_log_id"]);
    let log = app.get(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&log["source"], &log["metadata"]["replay_of"]), (&json!("replay"), &json!(ids[1])));
    assert_eq!(log["metadata"]["replay_id"], replay["id"]);
    for (query, count) in [("source:replay", 2), ("-source:replay", 2), ("source:proxy", 2)] {
        let list =
            app.get(&format!("/api/v1/logs?query={query}")).bearer(&ada.token).send().await.expect(200);
        assert_eq!(list["logs"].as_array().unwrap().len(), count, "{query}");
    }
    let list = app.get(REPLAYS).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&list["replays"][0]["id"], &list["replays"][0]["done"]), (&replay["id"], &json!(2)));

    let path = format!("{REPLAYS}/{}", replay["id"]);
    app.post(&format!("{path}/cancel"), json!({}))
        .bearer(&ada.token)
        .send()
        .await
        .expect_error(409, "conflict");
    app.delete(&path).bearer(&ada.token).send().await.expect(200);
    app.get(&path).bearer(&ada.token).send().await.expect_error(404, "not_found");
    app.get(&format!("/api/v1/logs/{}", newest["replay_log_id"])).bearer(&ada.token).send().await.expect(200);
});

on_both!(an_estimate_says_what_a_replay_would_cost, |app| async move {
    let ada = app.signup("acme").await;
    let now = app.app.services.clock.now();
    let million = Tokens { prompt: 1_000_000, completion: 1_000_000, ..Tokens::default() };
    let written = [
        with(row(&ada, now), |row| row.tokens = Some(million)),
        with(row(&ada, now.plus(1)), |row| row.tokens = None),
        with(row(&ada, now.plus(2)), |row| row.path = "/v1/embeddings".into()),
        with(row(&ada, now.plus(3)), |row| row.request_stored = BodyStorage::Off),
        with(row(&ada, now.plus(4)), |row| row.source = LogSource::Api),
        with(row(&ada, now.plus(5)), |row| (row.tokens, row.model) = (Some(million), Some("other".into()))),
    ];
    app.write(&written).await;
    let judge = json!({"provider": "sandbox", "model": "m", "criteria": "any"});
    let judge = app.eval(&ada, "llm", "judge", judge).await;
    let target = json!({"provider": "openai", "model": "gpt-4o-mini"});
    let body = json!({"query": "model:gpt-4o", "target": target, "eval_ids": [judge["id"]]});
    let found = estimate(&app, &ada, body).await.expect(200);
    assert_eq!((&found["rows"], &found["skipped"]), (&json!(2), &json!(2)), "{found}");
    assert_eq!(found["log_ids"], json!([written[1].id, written[0].id]));
    assert_eq!((&found["unpriced"], &found["cost_before_usd"]), (&json!(1), &json!(0.002)));
    assert_eq!((&found["partial"], &found["judge_calls"]), (&json!(false), &json!(4)));
    assert_eq!((&found["input_tokens"], &found["output_tokens"]), (&json!(1_000_000), &json!(1_000_000)));
    // 0.15 USD for a million input tokens, 0.6 for a million output tokens.
    assert_eq!(found["cost_usd"], 0.75);
    let unknown =
        json!({"log_ids": [written[0].id], "target": {"provider": "openai", "model": "unheard-of"}});
    let found = estimate(&app, &ada, unknown).await.expect(200);
    assert_eq!((&found["cost_usd"], &found["unpriced"]), (&Value::Null, &json!(1)));

    // A replay that would cost more than it may does not start.
    let body = |max: Value| json!({"log_ids": [written[0].id], "target": target, "max_cost_usd": max});
    let error = start(&app, &ada, body(json!(0.7))).await;
    assert_field_error(&error, "max_cost_usd");
    assert!(error.text().contains("0.75"), "{}", error.text());
    for bad in [json!(0), json!(-1), json!(1e9), json!("1")] {
        assert_field_error(&start(&app, &ada, body(bad)).await, "max_cost_usd");
    }
    let list = app.get(REPLAYS).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["replays"], json!([]));
});

on_both!(a_bad_replay_is_refused_and_named, |app| async move {
    let ada = app.signup("acme").await;
    let eve = app.signup("evil").await;
    let ids = asked(&app, &ada, &["x"]).await;
    let theirs = asked(&app, &eve, &["y"]).await;
    let eval = app.eval(&eve, "static", "is_json", json!({})).await;
    let with = |field: &str, value: Value| {
        let mut body = json!({"log_ids": ids, "target": sandbox()});
        body[field] = value;
        body
    };
    let target = |field: &str, value: Value| {
        let mut target = sandbox();
        target[field] = value;
        with("target", target)
    };
    let embedding = row(&ada, app.app.services.clock.now());
    let embedding = crate::support::log_rows::with(embedding, |row| row.path = "/v1/embeddings".into());
    app.write(std::slice::from_ref(&embedding)).await;
    for (body, named) in [
        (with("log_ids", json!([])), "log_ids"),
        (with("log_ids", json!(theirs)), "log_ids"),
        (with("log_ids", json!([4711])), "log_ids"),
        (with("log_ids", json!([embedding.id])), "log_ids"),
        (with("log_ids", json!(vec![1; 1_001])), "log_ids"),
        (with("query", json!("model:x")), "log_ids"),
        (with("target", json!({})), "target"),
        (with("target", json!({"variables": {"x": "y"}})), "target"),
        (target("provider", json!("nowhere")), "target.provider"),
        (target("model", json!(" ")), "target.model"),
        (target("params", json!({"messages": []})), "target.params"),
        (target("params", json!({"stream": true})), "target.params"),
        (target("prompt", json!({"namespace": "a", "slug": "b"})), "target.prompt"),
        (with("eval_ids", json!([eval["id"]])), "eval_ids"),
        (with("eval_ids", json!([1, 2, 3, 4, 5, 6])), "eval_ids"),
        (with("name", json!("")), "name"),
        (json!({"query": "model:absent", "target": sandbox()}), "query"),
        (json!({"query": "modell:x", "target": sandbox()}), "query"),
        (json!({"limit": 0, "target": sandbox()}), "limit"),
    ] {
        let refused = start(&app, &ada, body.clone()).await.expect_error(400, "bad_request");
        let message = refused["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{named}:")), "{body}: {message}");
    }
    let viewer = app.join(&ada, "viewer").await;
    start(&app, &viewer, with("name", json!("x"))).await.expect_error(403, "forbidden");
    estimate(&app, &viewer, with("name", json!("x"))).await.expect_error(403, "forbidden");
    let key = app.create_key(&ada.token, json!({"name": "k", "scopes": ["provider:openai", "read"]})).await;
    let denied = app.post(REPLAYS, with("name", json!("x"))).key(&key.raw).send().await;
    denied.expect_error(403, "scope_denied");
});

on_both!(a_query_selects_the_latest_proxied_chats, |app| async move {
    let ada = app.signup("acme").await;
    let ids = asked(&app, &ada, &["one", "two", "three"]).await;
    let now = app.app.services.clock.now();
    let own = with(row(&ada, now.plus(9)), |row| row.source = LogSource::Api);
    app.write(std::slice::from_ref(&own)).await;
    let found = estimate(&app, &ada, json!({"target": sandbox(), "limit": 2})).await.expect(200);
    assert_eq!(found["log_ids"], json!([ids[2], ids[1]]));
    // Rows of replays are not replayed again.
    let replay = app.replay(&ada, json!({"target": sandbox()})).await;
    assert_eq!((&replay["total"], &replay["done"]), (&json!(3), &json!(3)));
    let found = estimate(&app, &ada, json!({"target": sandbox(), "query": "\"two\""})).await.expect(200);
    assert_eq!(found["log_ids"], json!([ids[1]]));
    // Unless their ids are given.
    let again = rows(&app, &ada, &replay).await[0]["replay_log_id"].clone();
    let replay = app.replay(&ada, json!({"target": sandbox(), "log_ids": [again, own.id]})).await;
    assert_eq!((&replay["total"], &replay["done"]), (&json!(2), &json!(2)), "{replay}");
});

on_both!(a_row_that_cannot_be_replayed_is_an_error_of_its_own, |app| async move {
    let ada = app.signup("acme").await;
    let now = app.app.services.clock.now();
    let written = [
        row(&ada, now),
        with(row(&ada, now.plus(1)), |row| row.request = b"[]".to_vec()),
        with(row(&ada, now.plus(2)), |row| {
            row.prompt = Some(PromptVersionRef { name: "support/gone".into(), version: 1 });
        }),
    ];
    app.write(&written).await;
    let ids: Vec<i64> = written.iter().map(|row| row.id).collect();
    let replay = app.replay(&ada, json!({"log_ids": ids, "target": sandbox()})).await;
    assert_eq!(
        (&replay["status"], &replay["done"], &replay["errors"]),
        (&json!("completed"), &json!(1), &json!(2)),
        "{replay}"
    );
    assert_eq!((&replay["before"]["calls"], &replay["after"]["calls"]), (&json!(1), &json!(1)));
    let rows = rows(&app, &ada, &replay).await;
    assert_eq!((&rows[0]["state"], &rows[0]["after"]), (&json!("error"), &Value::Null));
    assert!(rows[0]["error"].as_str().unwrap().contains("no such prompt"), "{}", rows[0]);
    assert!(rows[1]["error"].as_str().unwrap().contains("JSON object"), "{}", rows[1]);
    let replay = app.replay(&ada, json!({"log_ids": [ids[1]], "target": sandbox()})).await;
    assert_eq!(replay["status"], "failed");
    assert!(replay["error"].as_str().unwrap().contains("JSON object"), "{replay}");
});

pub const OPENAI: &str = r#"{"id":"x","object":"chat.completion","created":1,"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"Paris"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":1000,"total_tokens":2000}}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_body_of_the_row_is_sent_with_what_the_target_changes() {
    for backend in Backend::BOTH {
        let proxy = ProxyFixture::start_with(backend, &[]).await;
        let (app, ada) = (&proxy.app, &proxy.ada);
        proxy.upstream.set_default_reply(Reply::json(200, OPENAI));
        let prompt = json!({"namespace": "support", "slug": "hello", "content": "Be {{how}}."});
        app.post("/api/v1/prompts", prompt).bearer(&ada.token).send().await.expect(201);
        let now = app.app.services.clock.now();
        let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {}}}]);
        let request = json!({"model": "gpt-4o", "stream": true, "temperature": 1, "tools": tools,
            "messages": [{"role": "user", "content": "capital?"}]});
        let claude = json!({"model": "claude-x", "max_tokens": 50, "system": "s",
            "messages": [{"role": "user", "content": "capital?"}]});
        let written = [
            with(row(ada, now), |row| row.request = request.to_string().into_bytes()),
            with(row(ada, now.plus(1)), |row| {
                (row.provider, row.model, row.path) =
                    ("anthropic".into(), Some("claude-x".into()), "/v1/messages".into());
                row.request = claude.to_string().into_bytes();
            }),
        ];
        app.write(&written).await;
        let target = json!({
            "provider": "openai", "model": "gpt-4o", "params": {"temperature": 0},
            "prompt": {"namespace": "support", "slug": "hello"}, "variables": {"how": "brief"},
        });
        let ids = [written[0].id];
        let replay = app.replay(ada, json!({"log_ids": ids, "target": target})).await;
        assert_eq!(replay["status"], "completed", "{replay}");
        let sent = proxy.upstream.requests().pop().unwrap().json();
        assert_eq!(
            (&sent["temperature"], &sent["tools"], &sent["stream"]),
            (&json!(0), &tools, &Value::Null)
        );
        assert_eq!(
            sent["messages"],
            json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "capital?"}])
        );
        let found = &rows(app, ada, &replay).await[0];
        assert_eq!(found["after"]["answer"], "Paris");
        assert_eq!(replay["target"]["prompt"], json!({"name": "support/hello", "version": 1}));

        // Another format is translated as a client's request would be.
        let ids = [written[1].id];
        let target = json!({"provider": "openai", "model": "gpt-4o"});
        let replay = app.replay(ada, json!({"log_ids": ids, "target": target})).await;
        assert_eq!(replay["status"], "completed", "{replay}");
        let sent = proxy.upstream.requests().pop().unwrap();
        assert_eq!((sent.target(), &sent.json()["model"]), ("/v1/chat/completions", &json!("gpt-4o")));
        assert_eq!(sent.json()["messages"][0], json!({"role": "system", "content": "s"}));
        assert_eq!(rows(app, ada, &replay).await[0]["after"]["answer"], "Paris");

        // An error of the provider is a result.
        proxy.upstream.push(Reply::json(400, r#"{"error": {"message": "no"}}"#));
        let replay = app.replay(ada, json!({"log_ids": ids, "target": target})).await;
        assert_eq!((&replay["done"], &replay["after"]["errors"]), (&json!(1), &json!(1)), "{replay}");
        assert_eq!(rows(app, ada, &replay).await[0]["after"]["status"], 400);
    }
}

on_both!(a_key_that_reads_its_own_rows_sees_its_own_replays, |app| async move {
    let ada = app.signup("acme").await;
    let ids = asked(&app, &ada, &["hello"]).await;
    let replay = start(&app, &ada, json!({"log_ids": ids, "target": sandbox()})).await.expect(202);
    app.wait_for_replay(&ada, &replay).await;
    let key = json!({"name": "narrow", "scopes": ["model:sandbox-small"]});
    let key = app.post("/api/v1/keys", key).bearer(&ada.token).send().await.expect(201);
    let key = key["raw_key"].as_str().unwrap();
    let path = format!("{REPLAYS}/{}", replay["id"]);
    app.get(&path).key(key).send().await.expect_error(404, "not_found");
    app.get(&format!("{path}/rows")).key(key).send().await.expect_error(404, "not_found");
    assert_eq!(app.get(REPLAYS).key(key).send().await.expect(200)["replays"], json!([]));
    let all = app.get(REPLAYS).bearer(&ada.token).send().await.expect(200);
    assert_eq!(all["replays"].as_array().unwrap().len(), 1);
});

on_both!(a_replay_that_waits_can_be_cancelled_and_only_so_many_may_wait, |app| async move {
    let ada = app.signup("acme").await;
    let ids = asked(&app, &ada, &["x"]).await;
    let replay = app.replay(&ada, json!({"log_ids": ids, "target": sandbox()})).await;
    let path = format!("{REPLAYS}/{}", replay["id"]);
    // The sandbox responds immediately, so the replay is made unfinished again.
    let reopen = "UPDATE replays SET status = 'queued', finished_at = NULL";
    app.app.services.db.exec(reopen, Vec::new()).await.unwrap();
    let cancelled =
        app.post(&format!("{path}/cancel"), json!({})).bearer(&ada.token).send().await.expect(200);
    assert_eq!(cancelled["status"], "cancelled");
    assert!(cancelled["finished_at"].is_string());
    let db = &app.app.services.db;
    let stored =
        store::find(db, ada.org_id.parse().unwrap(), replay["id"].as_i64().unwrap()).await.unwrap().unwrap();
    let mut tx = db.begin().await.unwrap();
    for id in 0..20 {
        let waiting = Replay { id, status: RunStatus::Queued, finished_at: None, ..stored.clone() };
        store::insert(&mut tx, &waiting).await.unwrap();
    }
    tx.commit().await.unwrap();
    let body = json!({"log_ids": ids, "target": sandbox()});
    start(&app, &ada, body).await.expect_error(409, "conflict");
});
