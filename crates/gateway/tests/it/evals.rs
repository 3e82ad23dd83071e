//! Eval definitions: created, listed, changed, deleted, and rejected when invalid.

use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::{fields, time};
use crate::support::{Account, TestApp, TestResponse};

async fn create(app: &TestApp, by: &Account, body: Value) -> TestResponse {
    app.post("/api/v1/evals", body).bearer(&by.token).send().await
}

fn is_json() -> Value {
    json!({"name": "valid", "type": "static", "evaluator": "is_json", "config": {"field": "response"}, "enabled": true})
}

on_both!(a_definition_is_made_read_changed_and_deleted, |app| async move {
    let ada = app.signup("acme").await;
    let made = create(&app, &ada, is_json()).await.expect(201);
    assert_eq!(
        fields(&made),
        ["config", "created_at", "enabled", "evaluator", "id", "name", "sample_rate", "type", "updated_at"]
    );
    let id = made["id"].as_i64().unwrap();
    assert!((1..1 << 53).contains(&id));
    time(&made["created_at"]);
    assert_eq!(
        (&made["type"], &made["evaluator"], &made["enabled"]),
        (&json!("static"), &json!("is_json"), &json!(true))
    );
    assert_eq!((&made["config"], &made["sample_rate"]), (&json!({"field": "response"}), &json!(0.0)));
    let bare = json!({"name": "bare", "type": "static", "evaluator": "status_ok"});
    let bare = create(&app, &ada, bare).await.expect(201);
    assert_eq!((&bare["config"], &bare["enabled"]), (&json!({}), &json!(true)));

    let path = format!("/api/v1/evals/{id}");
    assert_eq!(app.get(&path).bearer(&ada.token).send().await.expect(200), made);
    let change = json!({"name": "changed", "enabled": false, "sample_rate": 0.5});
    let changed = app.put(&path, change).bearer(&ada.token).send().await.expect(200);
    assert_eq!(
        (&changed["name"], &changed["enabled"], &changed["sample_rate"]),
        (&json!("changed"), &json!(false), &json!(0.5))
    );
    assert_eq!((&changed["config"], &changed["evaluator"]), (&made["config"], &made["evaluator"]));
    let other = json!({"type": "similarity", "evaluator": "levenshtein", "config": {"reference": "x"}});
    let changed = app.put(&path, other).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&changed["type"], &changed["config"]), (&json!("similarity"), &json!({"reference": "x"})));

    let gone = app.delete(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!(gone, json!({"deleted": true}));
    app.get(&path).bearer(&ada.token).send().await.expect_error(404, "not_found");
    app.put(&path, json!({"name": "x"})).bearer(&ada.token).send().await.expect_error(404, "not_found");
    app.delete(&path).bearer(&ada.token).send().await.expect_error(404, "not_found");
    app.get("/api/v1/evals/x").bearer(&ada.token).send().await.expect_error(400, "bad_request");
});

on_both!(definitions_are_listed_by_type_and_state_in_pages, |app| async move {
    let ada = app.signup("acme").await;
    let mut made = Vec::new();
    for number in 0..3 {
        let body = json!({"name": format!("{number}"), "type": "static", "evaluator": "is_json", "enabled": number != 1});
        made.insert(0, create(&app, &ada, body).await.expect(201));
    }
    made.insert(0, app.eval(&ada, "similarity", "levenshtein", json!({"reference": "x"})).await);
    let list = async |query: &str| {
        let path = format!("/api/v1/evals?{query}");
        app.get(&path).bearer(&ada.token).send().await.expect(200)
    };
    assert_eq!(list("").await, json!({"evals": made, "next_cursor": null}));
    assert_eq!(list("type=static&enabled=true").await["evals"], json!([made[1], made[3]]));
    assert_eq!(list("type=llm").await["evals"], json!([]));
    assert_eq!(list("enabled=false").await["evals"], json!([made[2]]));
    let first = list("limit=3").await;
    assert_eq!(first["evals"], json!(made[..3]));
    let rest = list(&format!("cursor={}", first["next_cursor"].as_str().unwrap())).await;
    assert_eq!(rest, json!({"evals": [made[3]], "next_cursor": null}));
    for bad in ["type=magic", "enabled=maybe", "limit=0", "cursor=x"] {
        let answer = app.get(&format!("/api/v1/evals?{bad}")).bearer(&ada.token).send().await;
        let error = answer.expect_error(400, "bad_request");
        let named = bad.split('=').next().unwrap();
        assert!(error["message"].as_str().unwrap().starts_with(named), "{error}");
    }
});

on_both!(a_definition_that_means_nothing_is_refused_and_named, |app| async move {
    let ada = app.signup("acme").await;
    let of = |kind: &str, evaluator: &str, config: Value| json!({"name": "x", "type": kind, "evaluator": evaluator, "config": config});
    let judge = |provider: &str| json!({"provider": provider, "model": "m", "criteria": "good"});
    let malformed = [
        (json!({"type": "static", "evaluator": "is_json"}), "name"),
        (json!({"name": "", "type": "static", "evaluator": "is_json"}), "name"),
        (json!({"name": "x", "evaluator": "is_json"}), "type"),
        (json!({"name": "x", "type": "static"}), "evaluator"),
        (of("magic", "is_json", json!({})), "magic"),
        (of("static", "magic", json!({})), "magic"),
        (of("static", "is_json", json!({"colour": 1})), "config.colour"),
        (of("static", "is_json", json!("x")), "config"),
        (of("static", "contains", json!({})), "config.value"),
        (of("similarity", "embedding", json!({"threshold": 2})), "config.threshold"),
        (of("llm", "judge", judge("nowhere")), "config.provider"),
        (of("llm", "judge", json!({"provider": "sandbox", "model": "m"})), "config.criteria"),
        (json!({"name": "x", "type": "static", "evaluator": "is_json", "sample_rate": 1.5}), "sample_rate"),
        (json!({"name": "x", "type": "static", "evaluator": "is_json", "enabled": "yes"}), "enabled"),
    ];
    for (body, named) in malformed {
        let error = create(&app, &ada, body.clone()).await.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{body}: {error}");
    }
    for (body, named) in [
        (of("static", "regex", json!({"pattern": "("})), "config.pattern"),
        (of("static", "json_schema", json!({"schema": {"type": "nonsense"}})), "config.schema"),
        (of("static", "json_schema", json!({"schema": {"$ref": "http://127.0.0.1:1/"}})), "config.schema"),
    ] {
        let error = create(&app, &ada, body.clone()).await.expect_error(422, "validation_error");
        assert!(error["message"].as_str().unwrap().contains(named), "{body}: {error}");
    }
    let list = app.get("/api/v1/evals").bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["evals"], json!([]));

    let made = create(&app, &ada, is_json()).await.expect(201);
    let path = format!("/api/v1/evals/{}", made["id"]);
    let wrong = app.put(&path, json!({"evaluator": "regex"})).bearer(&ada.token).send().await;
    wrong.expect_error(400, "bad_request");
    let wrong = app
        .put(&path, json!({"evaluator": "regex", "config": {"pattern": "["}}))
        .bearer(&ada.token)
        .send()
        .await;
    wrong.expect_error(422, "validation_error");
    assert_eq!(app.get(&path).bearer(&ada.token).send().await.expect(200), made);
});

on_both!(the_evaluators_are_listed_with_schemas_of_their_configs, |app| async move {
    let ada = app.signup("acme").await;
    let list = app.get("/api/v1/evals/evaluators").bearer(&ada.token).send().await.expect(200);
    let evaluators = list["evaluators"].as_array().unwrap();
    let names: Vec<&str> = evaluators.iter().map(|e| e["evaluator"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "is_json",
            "json_schema",
            "contains",
            "not_contains",
            "equals",
            "regex",
            "starts_with",
            "ends_with",
            "length",
            "latency",
            "cost",
            "status_ok",
            "levenshtein",
            "embedding",
            "judge"
        ]
    );
    for evaluator in evaluators {
        assert_eq!(evaluator["config"]["type"], "object", "{evaluator}");
        assert!(evaluator["config"]["properties"]["field"].is_object(), "{evaluator}");
        assert!(evaluator["description"].is_string());
    }
    assert_eq!(evaluators[14]["type"], "llm");
    assert_eq!(evaluators[14]["config"]["required"], json!(["provider", "model", "criteria"]));
});

on_both!(viewers_read_and_members_write, |app| async move {
    let ada = app.signup("acme").await;
    let viewer = app.join(&ada, "viewer").await;
    let member = app.join(&ada, "member").await;
    create(&app, &viewer, is_json()).await.expect_error(403, "forbidden");
    let made = create(&app, &member, is_json()).await.expect(201);
    let path = format!("/api/v1/evals/{}", made["id"]);
    assert_eq!(app.get(&path).bearer(&viewer.token).send().await.expect(200), made);
    app.post(&format!("{path}/run"), json!({}))
        .bearer(&viewer.token)
        .send()
        .await
        .expect_error(403, "forbidden");
});

on_both!(a_scoped_key_cannot_call_other_models_through_a_run, |app| async move {
    let ada = app.signup("acme").await;
    let key = app
        .create_key(&ada.token, json!({"name": "k", "scopes": ["provider:sandbox", "model:sandbox-small"]}))
        .await;
    let judge = |model: &str| {
        json!({"name": "j", "type": "llm", "evaluator": "judge",
            "config": {"provider": "sandbox", "model": model, "criteria": "c"}})
    };
    app.post("/api/v1/evals", judge("sandbox-small")).key(&key.raw).send().await.expect(201);
    app.post("/api/v1/evals", judge("sandbox-large"))
        .key(&key.raw)
        .send()
        .await
        .expect_error(403, "scope_denied");
    let large = create(&app, &ada, judge("sandbox-large")).await.expect(201);
    let run = format!("/api/v1/evals/{}/run", large["id"]);
    app.post(&run, json!({})).key(&key.raw).send().await.expect_error(403, "scope_denied");
});

on_both!(a_wrong_change_is_refused_before_a_missing_eval, |app| async move {
    let ada = app.signup("acme").await;
    let put = |body: Value| app.put("/api/v1/evals/4711", body).bearer(&ada.token).send();
    for (body, named) in [
        (json!({"type": "magic"}), "type"),
        (json!({"name": ""}), "name"),
        (json!({"sample_rate": 2}), "sample_rate"),
        (json!({"type": "static", "evaluator": "magic", "config": {}}), "magic"),
    ] {
        let error = put(body.clone()).await.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{body}: {error}");
    }
    let pattern = json!({"type": "static", "evaluator": "regex", "config": {"pattern": "("}});
    put(pattern).await.expect_error(422, "validation_error");
    // Whether this is right depends on the stored evaluator.
    put(json!({"config": {"pattern": "("}})).await.expect_error(404, "not_found");
    put(is_json()).await.expect_error(404, "not_found");
});
