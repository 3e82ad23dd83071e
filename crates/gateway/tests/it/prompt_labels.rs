//! Labels of prompts: set, moved, rolled back and removed, used wherever a version can be given, and the usage and scores
//! of each version.

use gateway_core::logs::{LogSource, PromptVersionRef};
use serde_json::{Value, json};

use crate::on_both;
use crate::prompts::{HELLO, create, update};
use crate::support::assertions::{assert_field_error, fields};
use crate::support::log_rows::{row, with};
use crate::support::{Account, Backend, ProxyFixture, TestApp, TestResponse};
use crate::upstream::Reply;

async fn set(app: &TestApp, by: &Account, label: &str, body: Value) -> TestResponse {
    app.put(&format!("{HELLO}/labels/{label}"), body).bearer(&by.token).send().await
}

async fn read(app: &TestApp, by: &Account, path: &str) -> TestResponse {
    app.get(path).bearer(&by.token).send().await
}

/// A prompt with three versions, whose texts are their numbers.
async fn three_versions(app: &TestApp, by: &Account) {
    create(app, by, "hello", "one").await.expect(201);
    for content in ["two", "three"] {
        update(app, by, json!({"content": content})).await.expect(200);
    }
}

on_both!(a_label_is_set_moved_rolled_back_and_removed, |app| async move {
    let ada = app.signup("acme").await;
    three_versions(&app, &ada).await;
    let first = set(&app, &ada, "production", json!({"version": 2})).await.expect(200);
    assert_eq!(
        fields(&first),
        ["created_at", "label", "previous_version", "updated_at", "updated_by", "version"]
    );
    assert_eq!((&first["label"], &first["version"]), (&json!("production"), &json!(2)));
    assert_eq!((&first["previous_version"], &first["updated_by"]), (&Value::Null, &json!(ada.user_id)));

    // Moved to another version, and back.
    app.app.services.clock.advance(1_000);
    let moved = json!({"version": 3, "expected_version": 2});
    let moved = set(&app, &ada, "production", moved).await.expect(200);
    assert_eq!((&moved["version"], &moved["previous_version"]), (&json!(3), &json!(2)));
    assert_eq!(moved["created_at"], first["created_at"]);
    assert_ne!(moved["updated_at"], first["updated_at"]);
    let same = set(&app, &ada, "production", json!({"version": 3})).await.expect(200);
    assert_eq!(same, moved, "a label that points there already is not moved");
    let back = set(&app, &ada, "production", json!({"version": 2, "expected_version": 3})).await.expect(200);
    assert_eq!((&back["version"], &back["previous_version"]), (&json!(2), &json!(3)));
    for stale in [json!(1), json!(3)] {
        let refused = set(&app, &ada, "production", json!({"version": 1, "expected_version": stale})).await;
        assert_eq!(refused.expect_error(409, "conflict")["current_version"], 2);
    }
    let unknown = set(&app, &ada, "staging", json!({"version": 1, "expected_version": 1})).await;
    assert_eq!(unknown.expect_error(409, "conflict")["current_version"], Value::Null);

    set(&app, &ada, "staging", json!({"version": 3})).await.expect(200);
    let list = read(&app, &ada, &format!("{HELLO}/labels")).await.expect(200);
    let names: Vec<&Value> = list["labels"].as_array().unwrap().iter().map(|label| &label["label"]).collect();
    assert_eq!(names, [&json!("production"), &json!("staging")]);
    assert_eq!(list["labels"][0], back);
    // Every version of the prompt names all labels, and so does a new one.
    let labels = json!({"production": 2, "staging": 3});
    let versions = read(&app, &ada, &format!("{HELLO}/versions")).await.expect(200);
    assert!(versions["versions"].as_array().unwrap().iter().all(|version| version["labels"] == labels));
    assert_eq!(read(&app, &ada, "/api/v1/prompts").await.expect(200)["prompts"][0]["labels"], labels);
    assert_eq!(update(&app, &ada, json!({"content": "four"})).await.expect(200)["labels"], labels);

    let path = format!("{HELLO}/labels/production");
    let gone = app.delete(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!(gone, json!({"deleted": true}));
    app.delete(&path).bearer(&ada.token).send().await.expect_error(404, "not_found");
    assert_eq!(read(&app, &ada, HELLO).await.expect(200)["labels"], json!({"staging": 3}));
    // Labels go with their prompt.
    app.delete(HELLO).bearer(&ada.token).send().await.expect(200);
    read(&app, &ada, &format!("{HELLO}/labels")).await.expect_error(404, "not_found");
    let again = create(&app, &ada, "hello", "new").await.expect(201);
    assert_eq!(again["labels"], json!({}));
});

on_both!(every_move_of_a_label_is_in_the_audit_log, |app| async move {
    let ada = app.signup("acme").await;
    three_versions(&app, &ada).await;
    for version in [1, 3, 1] {
        set(&app, &ada, "production", json!({"version": version})).await.expect(200);
    }
    app.delete(&format!("{HELLO}/labels/production")).bearer(&ada.token).send().await.expect(200);
    let path = format!("/api/v1/orgs/{}/audit?limit=4", ada.org_id);
    let entries = read(&app, &ada, &path).await.expect(200);
    let found: Vec<Value> = entries["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            assert_eq!(entry["target"]["name"], "support/hello@production");
            assert_eq!(entry["target"]["id"], "support/hello");
            let change = &entry["changes"][0];
            assert_eq!(change["path"], "/version");
            json!([entry["action"], change["from"], change["to"]])
        })
        .collect();
    assert_eq!(
        Value::from(found),
        json!([
            ["prompt.unlabel", 1, null],
            ["prompt.label", 3, 1],
            ["prompt.label", 1, 3],
            ["prompt.label", null, 1],
        ])
    );
});

on_both!(labels_are_bounded_and_do_not_look_like_versions, |app| async move {
    let ada = app.signup("acme").await;
    three_versions(&app, &ada).await;
    for bad in ["1", "v1", "V1", "latest", "Production", "a%20b", &"a".repeat(65)] {
        let refused = set(&app, &ada, bad, json!({"version": 1})).await.expect_error(400, "bad_request");
        assert!(refused["message"].as_str().unwrap().contains("label"), "{bad}: {refused}");
    }
    for bad in [json!(0), json!(4), json!(-1), json!("1"), json!(1.5), Value::Null] {
        assert_field_error(&set(&app, &ada, "production", json!({"version": bad})).await, "version");
    }
    assert_field_error(&set(&app, &ada, "production", json!({})).await, "version");
    for number in 0..20 {
        set(&app, &ada, &format!("label-{number}"), json!({"version": 1})).await.expect(200);
    }
    set(&app, &ada, "one-more", json!({"version": 1})).await.expect_error(409, "conflict");
    set(&app, &ada, "label-0", json!({"version": 2})).await.expect(200);
    app.delete(&format!("{HELLO}/labels/label-0")).bearer(&ada.token).send().await.expect(200);
    set(&app, &ada, "one-more", json!({"version": 1})).await.expect(200);
});

on_both!(viewers_read_labels_and_members_move_them, |app| async move {
    let ada = app.signup("acme").await;
    let (viewer, member) = (app.join(&ada, "viewer").await, app.join(&ada, "member").await);
    let eve = app.signup("evil").await;
    three_versions(&app, &ada).await;
    set(&app, &viewer, "production", json!({"version": 1})).await.expect_error(403, "forbidden");
    set(&app, &member, "production", json!({"version": 1})).await.expect(200);
    read(&app, &viewer, &format!("{HELLO}/labels")).await.expect(200);
    read(&app, &viewer, &format!("{HELLO}/usage")).await.expect(200);
    let path = format!("{HELLO}/labels/production");
    app.delete(&path).bearer(&viewer.token).send().await.expect_error(403, "forbidden");
    set(&app, &eve, "production", json!({"version": 1})).await.expect_error(404, "not_found");
    read(&app, &eve, &format!("{HELLO}?version=production")).await.expect_error(404, "not_found");
});

on_both!(a_label_stands_for_its_version_wherever_one_can_be_given, |app| async move {
    let ada = app.signup("acme").await;
    create(&app, &ada, "hello", "one {{input}}").await.expect(201);
    update(&app, &ada, json!({"content": "two {{input}}"})).await.expect(200);
    set(&app, &ada, "production", json!({"version": 1})).await.expect(200);
    for (version, text) in [("production", "one x"), ("1", "one x"), ("latest", "two x"), ("", "two x")] {
        let body = json!({"variables": {"input": "x"}});
        let path = format!("{HELLO}/render?version={version}");
        let rendered = app.post(&path, body).bearer(&ada.token).send().await.expect(200);
        assert_eq!(rendered["rendered"], text, "{version}");
        let found = read(&app, &ada, &format!("{HELLO}?version={version}")).await.expect(200);
        assert_eq!(found["content"], text.replace('x', "{{input}}"), "{version}");
    }
    for path in [format!("{HELLO}?version=staging"), format!("{HELLO}?version=9")] {
        let error = read(&app, &ada, &path).await.expect_error(404, "not_found");
        let named = path.split_once('=').unwrap().1;
        assert!(error["message"].as_str().unwrap().contains(named), "{error}");
    }

    let run = |version: Value| {
        let prompt =
            json!({"namespace": "support", "slug": "hello", "version": version, "variables": {"input": "x"}});
        json!({"provider": "sandbox", "model": "m", "prompt": prompt})
    };
    let play = async |version: Value| {
        app.post("/api/v1/playground/run", run(version)).bearer(&ada.token).send().await
    };
    for (version, text) in [(json!("production"), "one x"), (json!(1), "one x"), (json!("latest"), "two x")] {
        let done = play(version).await.expect(200);
        assert_eq!(done["output"], format!("The sandbox read: {text}"));
    }
    let error = play(json!("staging")).await.expect_error(400, "bad_request");
    assert!(error["message"].as_str().unwrap().contains("no label staging"), "{error}");
    for bad in [json!(0), json!("v1"), json!(true)] {
        assert_field_error(&play(bad).await, "prompt.version");
    }
});

on_both!(scores_of_evals_are_summed_by_version, |app| async move {
    let ada = app.signup("acme").await;
    create(&app, &ada, "hello", "one {{input}}").await.expect(201);
    update(&app, &ada, json!({"content": "two {{input}}"})).await.expect(200);
    set(&app, &ada, "production", json!({"version": 1})).await.expect(200);
    let dataset =
        app.post("/api/v1/datasets", json!({"name": "d"})).bearer(&ada.token).send().await.expect(201);
    let below = |what: &str| format!("/api/v1/datasets/{}/{what}", dataset["id"].as_str().unwrap());
    for input in ["a", "b"] {
        app.post(&below("cases"), json!({"input": input})).bearer(&ada.token).send().await.expect(201);
    }
    let eval = app.eval(&ada, "static", "contains", json!({"value": "one"})).await;
    for version in [json!("production"), json!("production"), json!(2)] {
        let prompt = json!({"namespace": "support", "slug": "hello", "version": version});
        let target = json!({"provider": "sandbox", "model": "m", "prompt": prompt});
        let body = json!({"eval_id": eval["id"], "target": target});
        let run = app.post(&below("eval"), body).bearer(&ada.token).send().await.expect(202);
        app.wait_for_run(&ada, &run).await;
    }
    let unknown = json!({"namespace": "support", "slug": "hello", "version": "staging"});
    let target = json!({"provider": "sandbox", "model": "m", "prompt": unknown});
    let body = json!({"eval_id": eval["id"], "target": target});
    let refused = app.post(&below("eval"), body).bearer(&ada.token).send().await;
    let refused = refused.expect_error(400, "bad_request");
    assert!(refused["message"].as_str().unwrap().starts_with("target.prompt: "), "{refused}");

    let usage = read(&app, &ada, &format!("{HELLO}/usage")).await.expect(200);
    let scores: Vec<Value> = usage["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| {
            let score = &version["evals"][0];
            assert_eq!((&score["eval_id"], &version["requests"]), (&eval["id"], &json!(0)));
            json!([
                version["version"],
                version["labels"],
                score["runs"],
                score["passed"],
                score["failed"],
                score["pass_rate"]
            ])
        })
        .collect();
    assert_eq!(Value::from(scores), json!([[2, [], 1, 0, 2, 0.0], [1, ["production"], 2, 4, 0, 1.0]]));
});

on_both!(usage_of_a_prompt_is_told_apart_by_version, |app| async move {
    let ada = app.signup("acme").await;
    three_versions(&app, &ada).await;
    set(&app, &ada, "production", json!({"version": 2})).await.expect(200);
    let now = app.app.services.clock.now();
    let used = |name: &str, version| Some(PromptVersionRef { name: name.into(), version });
    let rows: Vec<_> = [
        (used("support/hello", 1), 200, LogSource::Proxy),
        (used("support/hello", 2), 200, LogSource::Proxy),
        (used("support/hello", 2), 500, LogSource::Proxy),
        (used("support/hello-2", 2), 200, LogSource::Proxy),
        (used("support/hello", 2), 200, LogSource::Api),
        (None, 200, LogSource::Proxy),
    ]
    .into_iter()
    .map(|(prompt, status, source)| {
        with(row(&ada, now.plus(-60_000)), |row| {
            (row.prompt, row.status, row.source) = (prompt, status, source);
        })
    })
    .collect();
    app.write(&rows).await;
    let usage = read(&app, &ada, &format!("{HELLO}/usage")).await.expect(200);
    assert_eq!(usage["partial"], false);
    let versions: Vec<Value> = usage["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| {
            json!([
                version["version"],
                version["labels"],
                version["requests"],
                version["errors"],
                version["cost_usd"]
            ])
        })
        .collect();
    assert_eq!(Value::from(versions), json!([[2, ["production"], 2, 1, 0.002], [1, [], 1, 0, 0.001]]));
    let path = format!("{HELLO}/usage?from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z");
    assert_eq!(read(&app, &ada, &path).await.expect(200)["versions"], json!([]));
    read(&app, &ada, "/api/v1/prompts/support/none/usage").await.expect_error(404, "not_found");
});

#[tokio::test]
async fn a_request_gets_the_labelled_version_from_the_very_next_one_on() {
    for backend in Backend::BOTH {
        let proxy = ProxyFixture::start_with(backend, &[]).await;
        let (app, ada) = (&proxy.app, &proxy.ada);
        three_versions(app, ada).await;
        let reply = json!({"choices": [{"message": {"role": "assistant", "content": "x"}}]}).to_string();
        proxy.upstream.set_default_reply(Reply::json(200, &reply));
        let chat = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        let call = || proxy.chat(&chat).header("x-gateway-prompt", "support/hello@production").send();
        let refused = call().await;
        let error = refused.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains("no label production"), "{error}");
        assert!(proxy.upstream.arrivals().is_empty());
        for (version, text) in [(2, "two"), (3, "three"), (2, "two"), (1, "one")] {
            set(app, ada, "production", json!({"version": version})).await.expect(200);
            let answer = call().await;
            answer.expect(200);
            let sent = proxy.upstream.requests().pop().unwrap().json();
            assert_eq!(sent["messages"][0], json!({"role": "system", "content": text}));
            let row = proxy.log_row(&answer).await;
            assert_eq!((&row["prompt"], &row["prompt_version"]), (&json!("support/hello"), &json!(version)));
        }
        app.delete(&format!("{HELLO}/labels/production")).bearer(&ada.token).send().await.expect(200);
        call().await.expect_error(400, "bad_request");
    }
}
