//! The playground: runs, comparisons, streams, history, and prompts saved from runs.

use std::time::Duration;

use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::fields;
use crate::support::client::Events;
use crate::support::{Account, Backend, ProxyFixture, TestApp, TestResponse};
use crate::upstream::Reply;

const RUN: &str = "/api/v1/playground/run";
const COMPARE: &str = "/api/v1/playground/compare";
const SAVE: &str = "/api/v1/playground/save-version";

fn hello() -> Value {
    json!([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello"}])
}

fn sandbox() -> Value {
    json!({"provider": "sandbox", "model": "sandbox-small", "messages": hello()})
}

async fn post(app: &TestApp, by: &Account, path: &str, body: Value) -> TestResponse {
    app.post(path, body).bearer(&by.token).send().await
}

on_both!(a_run_answers_with_output_usage_and_its_log_row, |app| async move {
    let ada = app.signup("acme").await;
    let run = post(&app, &ada, RUN, sandbox()).await.expect(200);
    assert_eq!(
        fields(&run),
        [
            "comparison_id",
            "cost_usd",
            "created_at",
            "finish_reason",
            "id",
            "latency_ms",
            "log_id",
            "messages",
            "model",
            "output",
            "params",
            "provider",
            "tool_calls",
            "usage"
        ]
    );
    assert_eq!((&run["output"], &run["finish_reason"]), (&json!("The sandbox read: hello"), &json!("stop")));
    assert_eq!((&run["provider"], &run["model"]), (&json!("sandbox"), &json!("sandbox-small")));
    assert_eq!(run["usage"]["total_tokens"], 10);
    let row = app.get(&format!("/api/v1/logs/{}", run["log_id"])).bearer(&ada.token).send().await.expect(200);
    assert_eq!(
        (&row["source"], &row["user"], &row["total_tokens"]),
        (&json!("api"), &json!(ada.user_id), &json!(10))
    );

    let mut cut = sandbox();
    cut["params"] = json!({"max_tokens": 1});
    let cut = post(&app, &ada, RUN, cut).await.expect(200);
    assert_eq!(
        (&cut["output"], &cut["finish_reason"], &cut["params"]),
        (&json!("The "), &json!("length"), &json!({"max_tokens": 1}))
    );
});

on_both!(a_malformed_run_is_refused_and_named, |app| async move {
    let ada = app.signup("acme").await;
    let with = |field: &str, value: Value| {
        let mut body = sandbox();
        body[field] = value;
        body
    };
    for (body, named) in [
        (json!({"model": "m", "messages": hello()}), "provider"),
        (json!({"provider": "sandbox", "messages": hello()}), "model"),
        (json!({"provider": "sandbox", "model": "m"}), "messages"),
        (with("provider", json!("nowhere")), "provider"),
        (with("provider", json!("")), "provider"),
        (with("model", json!("")), "model"),
        (with("model", json!(1)), "model"),
        (with("messages", json!([])), "messages"),
        (with("messages", json!("hi")), "messages"),
        (with("messages", json!([{"content": "x"}])), "messages[0].role"),
        (with("messages", json!([{"role": "user"}])), "messages[0].content"),
        (with("params", json!({"stream": true})), "params"),
        (with("params", json!([])), "params"),
        (with("stream", json!("yes")), "stream"),
        (with("prompt", json!({"namespace": "a", "slug": "b"})), "prompt"),
        (with("prompt", json!("a/b")), "prompt"),
    ] {
        let error = post(&app, &ada, RUN, body.clone()).await.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{body}: {error}");
    }
    let viewer = app.join(&ada, "viewer").await;
    post(&app, &viewer, RUN, sandbox()).await.expect_error(403, "forbidden");
    let key = app.create_key(&ada.token, json!({"name": "k", "scopes": ["provider:openai"]})).await;
    app.post(RUN, sandbox()).key(&key.raw).send().await.expect_error(403, "scope_denied");
});

on_both!(a_prompt_is_rendered_and_a_missing_variable_named, |app| async move {
    let ada = app.signup("acme").await;
    let content = "Greet {{name}} in {{tongue}}.";
    let saved = post(&app, &ada, SAVE, json!({"namespace": "geo", "slug": "greet", "content": content}))
        .await
        .expect(200);
    assert_eq!((&saved["version"], &saved["variables"]), (&json!(1), &json!(["name", "tongue"])));
    let with = |variables: Value| {
        json!({"provider": "sandbox", "model": "m",
            "prompt": {"namespace": "geo", "slug": "greet", "version": 1, "variables": variables}})
    };
    let run = post(&app, &ada, RUN, with(json!({"name": "Bob", "tongue": "Latin"}))).await.expect(200);
    assert_eq!(run["output"], "The sandbox read: Greet Bob in Latin.");
    let mut both = with(json!({"name": "Bob", "tongue": "Latin"}));
    both["messages"] = json!([{"role": "user", "content": "now"}]);
    let run_with_both = post(&app, &ada, RUN, both).await.expect(200);
    assert_eq!(run_with_both["messages"][0], json!({"role": "system", "content": "Greet Bob in Latin."}));
    assert_eq!(run_with_both["output"], "The sandbox read: now");
    let error =
        post(&app, &ada, RUN, with(json!({"tongue": "Latin"}))).await.expect_error(422, "validation_error");
    assert!(error["message"].as_str().unwrap().contains("name"), "{error}");
    post(&app, &ada, RUN, with(json!({"name": 1, "tongue": "x"}))).await.expect_error(400, "bad_request");

    // A run of a template is saved as that template.
    let again = json!({"namespace": "geo", "slug": "greet", "run_id": run["id"]});
    let again = post(&app, &ada, SAVE, again).await.expect(200);
    assert_eq!(
        (&again["version"], &again["content"], &again["id"]),
        (&json!(2), &json!(content), &saved["id"])
    );
});

on_both!(a_run_is_saved_as_a_prompt_of_its_messages, |app| async move {
    let ada = app.signup("acme").await;
    let run = post(&app, &ada, RUN, sandbox()).await.expect(200);
    let save = |body: Value| post(&app, &ada, SAVE, body);
    let saved = save(json!({"namespace": "a", "slug": "b", "run_id": run["id"]})).await.expect(200);
    assert_eq!((&saved["content"], &saved["version"]), (&json!("Be kind.\n\nhello"), &json!(1)));
    let nobody = uuid::Uuid::new_v4().to_string();
    for (body, named) in [
        (json!({"namespace": "a", "slug": "b"}), "content"),
        (json!({"namespace": "a", "slug": "b", "content": ""}), "content"),
        (json!({"namespace": "a", "slug": "b", "content": "x", "run_id": run["id"]}), "content"),
        (json!({"namespace": "A", "slug": "b", "content": "x"}), "namespace"),
        (json!({"namespace": "a", "slug": "", "content": "x"}), "slug"),
        (json!({"slug": "b", "content": "x"}), "namespace"),
        (json!({"namespace": "a", "slug": "b", "run_id": nobody}), "run_id"),
        (json!({"namespace": "a", "slug": "b", "run_id": "x"}), "run_id"),
    ] {
        let error = save(body.clone()).await.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{body}: {error}");
    }
    let error = save(json!({"namespace": "a", "slug": "b", "content": "one\n{{ two"})).await;
    let error = error.expect_error(422, "validation_error");
    assert_eq!((&error["line"], &error["column"]), (&json!(2), &json!(1)));
    let next = save(json!({"namespace": "a", "slug": "b", "content": "x"})).await.expect(200);
    assert_eq!(next["version"], 2, "what was refused has made no version");
});

on_both!(history_is_the_callers_own, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.join(&ada, "member").await;
    let mut made = Vec::new();
    for _ in 0..3 {
        made.insert(0, post(&app, &ada, RUN, sandbox()).await.expect(200));
    }
    let by_key = app.post(RUN, sandbox()).key(&ada.api_key).send().await.expect(200);
    let history = async |by: &Account, query: &str| {
        app.get(&format!("/api/v1/playground/history?{query}")).bearer(&by.token).send().await.expect(200)
    };
    assert_eq!(history(&ada, "").await, json!({"runs": made, "next_cursor": null}));
    assert_eq!(history(&bob, "").await["runs"], json!([]));
    let of_key = app.get("/api/v1/playground/history").key(&ada.api_key).send().await.expect(200);
    assert_eq!(of_key["runs"], json!([by_key]));
    let page = history(&ada, "limit=2").await;
    let rest = history(&ada, &format!("cursor={}", page["next_cursor"].as_str().unwrap())).await;
    assert_eq!((&page["runs"], &rest["runs"]), (&json!(made[..2]), &json!(made[2..])));
    let path = format!("/api/v1/playground/history/{}", made[0]["id"].as_str().unwrap());
    assert_eq!(app.get(&path).bearer(&ada.token).send().await.expect(200), made[0]);
    app.get(&path).bearer(&bob.token).send().await.expect_error(404, "not_found");
    app.get("/api/v1/playground/history/x").bearer(&ada.token).send().await.expect_error(400, "bad_request");
    let save = json!({"namespace": "a", "slug": "b", "run_id": made[0]["id"]});
    post(&app, &bob, SAVE, save).await.expect_error(400, "bad_request");
});

on_both!(a_comparison_keeps_the_order_and_one_failure_to_itself, |app| async move {
    let ada = app.signup("acme").await;
    let target = |provider: &str, model: &str| json!({"provider": provider, "model": model});
    let targets = json!([
        {"provider": "sandbox", "model": "one", "params": {"max_tokens": 1}}, target("nowhere", "two"), target("sandbox", "three")
    ]);
    let body = json!({"messages": hello(), "targets": targets, "params": {"temperature": 0}});
    let both = post(&app, &ada, COMPARE, body.clone()).await.expect(200);
    let results = both["results"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    assert_eq!((&results[0]["model"], &results[0]["output"]), (&json!("one"), &json!("The ")));
    assert_eq!(results[0]["params"], json!({"temperature": 0, "max_tokens": 1}));
    assert_eq!((&results[1]["provider"], &results[1]["model"]), (&json!("nowhere"), &json!("two")));
    assert_eq!(results[1]["error"]["code"], "bad_request");
    assert_eq!((&results[2]["model"], &results[2]["comparison_id"]), (&json!("three"), &both["id"]));

    let history = app.get("/api/v1/playground/history").bearer(&ada.token).send().await.expect(200);
    assert_eq!(history["runs"].as_array().unwrap().len(), 2, "what failed is no run");
    let path = format!("/api/v1/playground/history/{}", both["id"].as_str().unwrap());
    assert_eq!(app.get(&path).bearer(&ada.token).send().await.expect(200), both);

    for (targets, named) in [
        (json!([target("sandbox", "m")]), "targets"),
        (json!(vec![target("sandbox", "m"); 11]), "targets"),
        (json!([target("sandbox", "m"), target("sandbox", "")]), "targets[1].model"),
        (json!([target("sandbox", "m"), {"provider": "sandbox"}]), "model"),
        (json!("x"), "targets"),
    ] {
        let answer = post(&app, &ada, COMPARE, json!({"messages": hello(), "targets": targets})).await;
        let error = answer.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{error}");
    }
    let viewer = app.join(&ada, "viewer").await;
    post(&app, &viewer, COMPARE, body).await.expect_error(403, "forbidden");
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_are_called_in_parallel_and_each_counts_against_the_limit() {
    let gateway = ProxyFixture::start_with(Backend::Sqlite, &[("GATEWAY_RATE_LIMIT_FREE", "6")]).await;
    let said = json!({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}).to_string();
    gateway.upstream.set_default_reply(Reply::json(200, &said).delay(Duration::from_millis(300)));
    gateway.app.advance_to_next_minute();
    let targets: Vec<Value> =
        (0..4).map(|n| json!({"provider": "openai", "model": format!("m{n}")})).collect();
    let body = json!({"messages": hello(), "targets": targets});
    let begun = std::time::Instant::now();
    let answer = post(&gateway.app, &gateway.ada, COMPARE, body.clone()).await.expect(200);
    assert!(begun.elapsed() < Duration::from_millis(1_000), "{:?}", begun.elapsed());
    assert!(answer["results"].as_array().unwrap().iter().all(|result| result["output"] == "hi"));
    let second = post(&gateway.app, &gateway.ada, COMPARE, body).await.expect(200);
    let failed: Vec<_> = second["results"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|result| result["error"]["code"] == "rate_limited")
        .collect();
    assert_eq!(failed.len(), 2, "{second}");
}

async fn collect(mut events: Events) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    while let Some(event) = events.next().await {
        all.push((event.name, serde_json::from_str(&event.data).unwrap()));
    }
    all
}

on_both!(a_run_streams_its_start_its_pieces_and_its_end, |app| async move {
    let ada = app.signup("acme").await;
    let mut body = sandbox();
    body["stream"] = json!(true);
    let events = collect(app.post(RUN, body).bearer(&ada.token).open().await).await;
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((names[0], *names.last().unwrap()), ("start", "done"));
    assert!(names[1..names.len() - 1].iter().all(|name| *name == "delta") && names.len() > 4, "{names:?}");
    assert!(events.iter().all(|(_, data)| data["index"] == 0));
    let text: String = events.iter().filter_map(|(_, data)| data["content"].as_str()).collect();
    assert_eq!(text, "The sandbox read: hello");
    let done = &events.last().unwrap().1;
    assert_eq!((&done["output"], &done["usage"]["total_tokens"]), (&json!(text), &json!(10)));
    assert_eq!(done["finish_reason"], "stop");
    assert_eq!(done["id"], events[0].1["id"]);
    let path = format!("/api/v1/playground/history/{}", done["id"].as_str().unwrap());
    let kept = app.get(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&kept["output"], &kept["log_id"]), (&done["output"], &done["log_id"]));
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_comparison_streams_each_target_under_its_index() {
    let gateway = ProxyFixture::start().await;
    let (app, ada) = (&gateway.app, &gateway.ada);
    gateway.upstream.push(Reply::sse(&[
        r#"{"choices":[{"delta":{"content":"a"}}]}"#,
        r#"{"error":{"message":"overloaded"}}"#,
    ]));
    let targets = json!([
        {"provider": "openai", "model": "gpt-4o"}, {"provider": "sandbox", "model": "m"}, {"provider": "nowhere", "model": "m"}
    ]);
    let body = json!({"messages": hello(), "targets": targets, "stream": true});
    let events = collect(app.post(COMPARE, body).bearer(&ada.token).open().await).await;
    let of = |index: usize| -> Vec<&str> {
        events.iter().filter(|(_, data)| data["index"] == index).map(|(name, _)| name.as_str()).collect()
    };
    assert_eq!(of(0), ["start", "delta", "error"]);
    assert_eq!((of(1)[0], *of(1).last().unwrap()), ("start", "done"));
    assert_eq!(of(2), ["start", "error"]);
    let failed = |index: usize| {
        &events.iter().find(|(name, data)| name == "error" && data["index"] == index).unwrap().1
    };
    assert!(failed(0)["error"]["message"].as_str().unwrap().contains("overloaded"), "{:?}", failed(0));
    assert_eq!(failed(2)["error"]["code"], "bad_request");
    let id = events[0].1["comparison_id"].as_str().unwrap();
    let kept =
        app.get(&format!("/api/v1/playground/history/{id}")).bearer(&ada.token).send().await.expect(200);
    assert_eq!(kept["results"].as_array().unwrap().len(), 3);
    assert!(kept["results"][0]["error"].is_object() && kept["results"][1]["output"].is_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_hangs_up_ends_the_call() {
    let gateway = ProxyFixture::start().await;
    let first = Reply::sse(&[r#"{"choices":[{"delta":{"content":"a"}}]}"#]);
    gateway.upstream.push((0..200).fold(first, |reply, _| {
        reply.delay(Duration::from_millis(50)).event(r#"{"choices":[{"delta":{"content":"b"}}]}"#)
    }));
    let body = json!({"provider": "openai", "model": "gpt-4o", "messages": hello(), "stream": true});
    let mut events = gateway.app.post(RUN, body).bearer(&gateway.ada.token).open().await;
    for _ in 0..3 {
        events.next().await.unwrap();
    }
    drop(events);
    gateway.upstream.wait_for_aborts(1, Duration::from_secs(5)).await;
    let row = gateway.only_row().await;
    assert_eq!((&row["status"], &row["error_code"]), (&json!(499), &json!("client_closed")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_hangs_up_ends_a_call_of_a_silent_provider() {
    let delta = r#"{"choices":[{"delta":{"content":"a"}}]}"#;
    for reply in
        [Reply::no_response(), Reply::sse(&[]).flush().then_stall(), Reply::sse(&[delta]).then_stall()]
    {
        let gateway = ProxyFixture::start().await;
        gateway.upstream.push(reply);
        let body = json!({"provider": "openai", "model": "gpt-4o", "messages": hello(), "stream": true});
        let mut events = gateway.app.post(RUN, body).bearer(&gateway.ada.token).open().await;
        assert_eq!(events.next().await.unwrap().name, "start");
        gateway.upstream.wait_for_requests(1, Duration::from_secs(5)).await;
        drop(events);
        gateway.upstream.wait_for_aborts(1, Duration::from_secs(5)).await;
        let row = gateway.only_row().await;
        assert_eq!((&row["status"], &row["error_code"]), (&json!(499), &json!("client_closed")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_and_failures_of_a_provider_are_returned_as_its_error() {
    for backend in Backend::BOTH {
        let gateway = ProxyFixture::start_with(backend, &[]).await;
        let body = json!({"provider": "openai", "model": "gpt-4o", "messages": hello()});
        for (reply, status, message) in [
            (Reply::json(401, r#"{"error":{"message":"bad key"}}"#), json!(401), "bad key"),
            (Reply::json(500, "{}"), json!(500), "500"),
            (Reply::json(200, "not json"), json!(null), "not a chat completion"),
        ] {
            gateway.upstream.push(reply);
            let answer = post(&gateway.app, &gateway.ada, RUN, body.clone()).await;
            let error = answer.expect_error(502, "provider_error");
            assert_eq!(
                (&error["provider"], &error["upstream_status"]),
                (&json!("openai"), &status),
                "{error}"
            );
            assert!(error["message"].as_str().unwrap().contains(message), "{error}");
            assert!(answer.header("x-gateway-log-id").is_some());
        }
        let history =
            gateway.app.get("/api/v1/playground/history").bearer(&gateway.ada.token).send().await.expect(200);
        assert_eq!(history["runs"], json!([]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn providers_say_whether_they_can_be_called_and_what_models_cost() {
    for backend in Backend::BOTH {
        let gateway = ProxyFixture::start_with(backend, &[("GATEWAY_PROVIDER_OPENAI_API_KEY", "sk-x")]).await;
        gateway.provider("mine", "openai", json!({"api_key": "sk-y", "models": ["gpt-4o", "tuned"]})).await;
        let path = "/api/v1/playground/providers";
        let list = gateway.app.get(path).bearer(&gateway.ada.token).send().await.expect(200);
        let of = |name: &str| {
            let all = list["providers"].as_array().unwrap();
            all.iter()
                .find(|provider| provider["name"] == name)
                .unwrap_or_else(|| panic!("no {name}"))
                .clone()
        };
        assert_eq!(
            (&of("sandbox")["configured"], &of("sandbox")["models"][0]["id"]),
            (&json!(true), &json!("sandbox-small"))
        );
        assert_eq!(of("openai")["configured"], true);
        assert_eq!((&of("groq")["configured"], &of("ollama")["configured"]), (&json!(false), &json!(false)));
        let models = of("openai")["models"].clone();
        let gpt = models.as_array().unwrap().iter().find(|model| model["id"] == "gpt-4o").unwrap();
        assert_eq!((&gpt["input_per_mtok"], &gpt["output_per_mtok"]), (&json!(2.5), &json!(10.0)));
        assert_eq!(gpt["context"], 128_000);
        let mine = of("mine");
        assert_eq!((&mine["kind"], &mine["configured"]), (&json!("openai"), &json!(true)));
        assert_eq!(
            mine["models"][1],
            json!({"id": "tuned", "context": null, "input_per_mtok": null, "output_per_mtok": null})
        );
        assert_eq!(mine["models"][0]["input_per_mtok"], 2.5);
    }
}

#[tokio::test]
async fn a_run_with_a_provider_of_another_format_reads_like_any_other() {
    let gateway = ProxyFixture::start().await;
    let reply = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[{"type":"text","text":"Kindly."}],"stop_reason":"max_tokens","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2}}"#;
    gateway.upstream.push(Reply::json(200, reply));
    let body = json!({"provider": "anthropic", "model": "claude-x", "messages": hello()});
    let run = post(&gateway.app, &gateway.ada, RUN, body).await.expect(200);
    assert_eq!((&run["output"], &run["finish_reason"]), (&json!("Kindly."), &json!("length")));
    assert_eq!(run["usage"]["total_tokens"], 5);
    let sent = gateway.upstream.requests().pop().unwrap();
    assert_eq!(sent.target(), "/v1/messages");
    assert!(sent.json()["system"].to_string().contains("Be kind."), "{}", sent.json());
    let vertex = json!({"provider": "vertex", "model": "m", "messages": hello()});
    let refused = post(&gateway.app, &gateway.ada, RUN, vertex).await.expect_error(400, "bad_request");
    assert!(refused["message"].as_str().unwrap().starts_with("provider: vertex"), "{refused}");
}
