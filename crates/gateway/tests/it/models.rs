//! Named models: definitions and their versions through the management API.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::{Account, TestApp, TestRequest, TestResponse};

fn models_of(account: &Account) -> String {
    format!("/api/v1/orgs/{}/models", account.org_id)
}

fn model_of(account: &Account, name: &str) -> String {
    format!("{}/{}", models_of(account), name.replace('/', "%2F").replace('*', "%2A"))
}

async fn create(app: &TestApp, by: &Account, body: Value) -> TestResponse {
    app.post(&models_of(by), body).bearer(&by.token).send().await
}

fn update(app: &TestApp, by: &Account, name: &str, body: Value) -> TestRequest {
    app.put(&model_of(by, name), body).bearer(&by.token)
}

async fn get(app: &TestApp, by: &Account, rest: &str) -> TestResponse {
    app.get(&format!("{}{rest}", models_of(by))).bearer(&by.token).send().await
}

fn to(model: &str) -> Value {
    json!({"targets": [{"provider": "openai", "model": model}]})
}

fn named(name: &str, model: &str) -> Value {
    let mut body = to(model);
    body["name"] = json!(name);
    body
}

on_both!(definitions_have_a_limit_together, |app| async move {
    let ada = app.signup("acme").await;
    let long = |number: usize| {
        let mut body = named(&format!("long-{number}"), "gpt-4o");
        body["targets"][0]["params"] = json!({"instructions": "x".repeat(31_000)});
        body
    };
    let mut count = 0;
    let refused = loop {
        let made = create(&app, &ada, long(count)).await;
        if made.status != 201 {
            break made;
        }
        count += 1;
    };
    assert_eq!(refused.expect_error(403, "quota_exceeded")["quota"], "model_bytes");
    assert!((130..=135).contains(&count), "{count}");
    create(&app, &ada, named("short", "gpt-4o")).await.expect(201);
    let mut longer = long(0);
    longer.as_object_mut().unwrap().remove("name");
    update(&app, &ada, "short", longer.clone()).send().await.expect_error(403, "quota_exceeded");
    let models =
        json!([{"model_name": "more", "litellm_params": {"model": "openai/o3", "extra_body": longer}}]);
    let data = json!({"model_list": models}).to_string();
    let import = json!({"source": "litellm", "data": data, "apply": true});
    let path = format!("/api/v1/orgs/{}/import", ada.org_id);
    app.post(&path, import).bearer(&ada.token).send().await.expect_error(403, "quota_exceeded");
    app.delete(&model_of(&ada, "long-0")).bearer(&ada.token).send().await.expect(200);
    update(&app, &ada, "short", longer).send().await.expect(200);
});

on_both!(a_definition_is_returned_as_it_was_given, |app| async move {
    let ada = app.signup("acme").await;
    let given = json!({
        "name": "smart",
        "description": "What we use for hard questions.",
        "strategy": {"mode": "order", "on": [429, "5xx", "timeout", "connect", "context", "content_filter"]},
        "targets": [
            {
                "id": "first", "provider": "openai", "model": "gpt-4o", "params": {"temperature": 0},
                "defaults": {"max_tokens": 100}, "timeout_ms": 9000, "retries": 1,
            },
            {
                "id": "rest", "weight": 3, "strategy": {"mode": "weighted"},
                "targets": [
                    {"id": "a", "provider": "anthropic", "model": "claude-sonnet-4-5", "weight": 2},
                    {"id": "b", "provider": "gemini", "model": "gemini-2.5-pro", "weight": 1},
                ],
            },
            {"id": "long", "provider": "gemini", "model": "gemini-2.5-pro", "when": "context"},
        ],
        "retries": 2,
        "timeout_ms": 60000,
        "first_byte_timeout_ms": 10000,
        "cache": {"mode": "exact", "ttl": 60, "namespace": "n"},
        "price": {"input_per_mtok": 1.5, "output_per_mtok": 6.0},
        "hidden": true,
        "enabled": false,
    });
    let made = create(&app, &ada, given.clone()).await.expect(201);
    for (field, value) in given.as_object().unwrap() {
        assert_eq!(&made[field], value, "{field}");
    }
    assert_eq!((&made["version"], &made["created_by"]), (&json!(1), &json!(ada.user_id)));
    assert_eq!(made["created_at"], made["updated_at"]);
    assert_eq!(get(&app, &ada, "").await.expect(200), json!({"models": [made], "next_cursor": null}));
    // By name and by id.
    assert_eq!(get(&app, &ada, "/smart").await.expect(200), made);
    assert_eq!(get(&app, &ada, &format!("/{}", made["id"].as_str().unwrap())).await.expect(200), made);
    // Defaults.
    let plain = create(&app, &ada, named("openai/*", "*")).await.expect(201);
    assert_eq!((&plain["strategy"], &plain["targets"][0]["id"]), (&json!({"mode": "order"}), &json!("1")));
    assert_eq!((&plain["hidden"], &plain["enabled"]), (&json!(false), &json!(true)));
    assert_eq!((&plain["description"], &plain["price"]), (&json!(""), &Value::Null));
    assert_eq!(app.get(&model_of(&ada, "openai/*")).bearer(&ada.token).send().await.expect(200), plain);
});

on_both!(each_put_is_a_version_and_an_old_body_rolls_back, |app| async move {
    let ada = app.signup("acme").await;
    let first = create(&app, &ada, named("m", "one")).await.expect(201);
    let second = update(&app, &ada, "m", to("two")).send().await.expect(200);
    assert_eq!((&second["version"], &second["id"]), (&json!(2), &first["id"]));
    assert_eq!(second["targets"][0]["model"], "two");
    assert_eq!(get(&app, &ada, "/m").await.expect(200), second);
    let old = get(&app, &ada, "/m?version=1").await.expect(200);
    assert_eq!(old, first);
    // The response of an old version is a valid body; the version in it is not looked at.
    let third = update(&app, &ada, "m", old).send().await.expect(200);
    assert_eq!((&third["version"], &third["targets"]), (&json!(3), &first["targets"]));
    let versions = get(&app, &ada, "/m/versions?limit=2").await.expect(200);
    assert_eq!(versions["versions"], json!([third, second]));
    let cursor = versions["next_cursor"].as_str().unwrap();
    let rest = get(&app, &ada, &format!("/m/versions?limit=2&cursor={cursor}")).await.expect(200);
    assert_eq!(rest, json!({"versions": [first], "next_cursor": null}));
    get(&app, &ada, "/m?version=4").await.expect_error(404, "not_found");
    get(&app, &ada, "/m?version=0").await.expect_error(400, "bad_request");
    let renamed = update(&app, &ada, "m", named("other", "x")).send().await;
    assert!(renamed.expect_error(400, "bad_request")["message"].as_str().unwrap().starts_with("name: "));
});

on_both!(concurrent_puts_have_versions_without_gaps, |app| async move {
    let ada = app.signup("acme").await;
    create(&app, &ada, named("m", "m0")).await.expect(201);
    let puts = (0..8).map(|number| update(&app, &ada, "m", to(&format!("m{number}"))).send());
    let mut versions: Vec<i64> =
        join_all(puts).await.iter().map(|answer| answer.expect(200)["version"].as_i64().unwrap()).collect();
    versions.sort_unstable();
    assert_eq!(versions, (2..=9).collect::<Vec<_>>());
    let all = get(&app, &ada, "/m/versions").await.expect(200);
    assert_eq!(all["versions"].as_array().unwrap().len(), 9);
});

on_both!(a_name_is_taken_once_and_free_after_a_deletion, |app| async move {
    let ada = app.signup("acme").await;
    create(&app, &ada, named("m", "x")).await.expect(201);
    create(&app, &ada, named("m", "y")).await.expect_error(409, "conflict");
    let path = model_of(&ada, "m");
    assert_eq!(app.delete(&path).bearer(&ada.token).send().await.expect(200), json!({"deleted": true}));
    app.delete(&path).bearer(&ada.token).send().await.expect_error(404, "not_found");
    update(&app, &ada, "m", to("x")).send().await.expect_error(404, "not_found");
    get(&app, &ada, "/m").await.expect_error(404, "not_found");
    get(&app, &ada, "/m/versions").await.expect_error(404, "not_found");
    assert_eq!(create(&app, &ada, named("m", "z")).await.expect(201)["version"], 1);
    // Names of one organization are not those of another.
    let eve = app.signup("other").await;
    create(&app, &eve, named("m", "x")).await.expect(201);
});

on_both!(what_cannot_work_is_refused_with_the_field, |app| async move {
    let ada = app.signup("acme").await;
    let target = |fields: Value| {
        let mut target = json!({"provider": "openai", "model": "x"});
        target.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        target
    };
    let body =
        |strategy: Value, targets: Value| json!({"name": "m", "strategy": strategy, "targets": targets});
    let order = || json!({"mode": "order"});
    for (status, body, field) in [
        (422, body(order(), json!([target(json!({"provider": "nobody"}))])), "targets[0].provider"),
        (422, body(order(), json!([target(json!({"provider": "auto"}))])), "targets[0].provider"),
        (422, body(json!({"mode": "weighted"}), json!([target(json!({"weight": 0}))])), "targets"),
        (
            422,
            body(
                json!({"mode": "conditional", "default": "1", "conditions": [{"query": {"user": "a"}, "then": "no"}]}),
                json!([target(json!({}))]),
            ),
            "strategy.conditions[0].then",
        ),
        (
            422,
            body(
                json!({"mode": "conditional", "conditions": [{"query": {"user": "a"}, "then": "1"}]}),
                json!([target(json!({}))]),
            ),
            "strategy.default",
        ),
        (422, body(json!({"mode": "order", "on": [400]}), json!([target(json!({}))])), "strategy.on[0]"),
        (422, body(order(), json!([target(json!({"model": "*"}))])), "targets[0].model"),
        (400, body(json!({"mode": "random"}), json!([target(json!({}))])), "strategy.mode"),
        (
            400,
            body(json!({"mode": "order", "on": ["sometimes"]}), json!([target(json!({}))])),
            "strategy.on[0]",
        ),
        (400, body(order(), json!([])), "targets"),
        (400, body(order(), json!([target(json!({"wieght": 1}))])), "targets[0]"),
        (400, body(order(), json!([target(json!({"retries": 6}))])), "targets[0].retries"),
        (400, body(order(), json!([target(json!({"params": {"model": "y"}}))])), "targets[0].params.model"),
        (400, json!({"name": "m"}), "targets"),
        (400, to("x"), "name"),
        (400, named("a b", "x"), "name"),
        (400, named("a*b", "x"), "name"),
        (400, named(&"x".repeat(129), "x"), "name"),
        (400, json!({"name": "m", "targets": [target(json!({}))], "fallbacks": []}), "fallbacks"),
    ] {
        let answer = create(&app, &ada, body.clone()).await;
        let code = if status == 422 { "validation_error" } else { "bad_request" };
        let message = answer.expect_error(status, code)["message"].as_str().unwrap().to_owned();
        assert!(message.contains(field), "{body} gave: {message}");
    }
    let long = named("m", &"x".repeat(40_000));
    create(&app, &ada, long).await.expect_error(413, "payload_too_large");
    assert_eq!(get(&app, &ada, "").await.expect(200)["models"], json!([]));
});

on_both!(viewers_read_and_admins_write, |app| async move {
    let ada = app.signup("acme").await;
    create(&app, &ada, named("m", "x")).await.expect(201);
    for role in ["viewer", "member"] {
        let person = app.join(&ada, role).await;
        let as_person = Account { token: person.token, ..ada.clone() };
        get(&app, &as_person, "").await.expect(200);
        get(&app, &as_person, "/m").await.expect(200);
        get(&app, &as_person, "/m/versions").await.expect(200);
        create(&app, &as_person, named("n", "x")).await.expect_error(403, "forbidden");
        update(&app, &as_person, "m", to("y")).send().await.expect_error(403, "forbidden");
        app.delete(&model_of(&ada, "m")).bearer(&as_person.token).send().await.expect_error(403, "forbidden");
    }
    let admin = app.join(&ada, "admin").await;
    let as_admin = Account { token: admin.token, ..ada.clone() };
    update(&app, &as_admin, "m", to("y")).send().await.expect(200);
});

on_both!(a_wrong_definition_is_refused_before_a_missing_model, |app| async move {
    let ada = app.signup("acme").await;
    let with = |fields: Value| {
        let mut target = json!({"provider": "openai", "model": "x"});
        target.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"targets": [target]})
    };
    let heavy = with(json!({"weight": 5_000}));
    let error = update(&app, &ada, "absent", heavy).send().await.expect_error(400, "bad_request");
    assert!(error["message"].as_str().unwrap().contains("weight"), "{error}");
    let nobody = with(json!({"provider": "nobody"}));
    update(&app, &ada, "absent", nobody).send().await.expect_error(422, "validation_error");
    update(&app, &ada, "absent", to("x")).send().await.expect_error(404, "not_found");
    update(&app, &ada, "absent", named("another", "x")).send().await.expect_error(404, "not_found");
    // The star of the name decides on the star of a target.
    update(&app, &ada, "absent*", to("*")).send().await.expect_error(404, "not_found");
});
