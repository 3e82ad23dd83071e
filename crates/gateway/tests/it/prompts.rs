//! Prompts over HTTP: immutable versions, rendering, concurrent writers.

use std::collections::{BTreeSet, HashMap};

use gateway::audit::system_entry;
use gateway::prompts::Change;
use gateway_core::audit::{Chain, Target};
use gateway_core::logs::PromptVersionRef;
use gateway_core::prompts::{MAX_CONTENT, MAX_RENDERED};
use gateway_store::prompts::PromptName;
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::{assert_field_error, assert_uuid_v7, fields, time};
use crate::support::log_rows::{at, row, with};
use crate::support::{Account, TestApp, TestResponse};

const PROMPTS: &str = "/api/v1/prompts";
pub const HELLO: &str = "/api/v1/prompts/support/hello";

pub async fn create(app: &TestApp, by: &Account, slug: &str, content: &str) -> TestResponse {
    let body = json!({"namespace": "support", "slug": slug, "content": content});
    app.post(PROMPTS, body).bearer(&by.token).send().await
}

pub async fn update(app: &TestApp, by: &Account, body: Value) -> TestResponse {
    app.put(HELLO, body).bearer(&by.token).send().await
}

async fn read(app: &TestApp, by: &Account, path: &str) -> TestResponse {
    app.get(path).bearer(&by.token).send().await
}

async fn render(app: &TestApp, by: &Account, query: &str, body: Value) -> TestResponse {
    app.post(&format!("{HELLO}/render{query}"), body).bearer(&by.token).send().await
}

on_both!(a_prompt_is_created_changed_read_and_deleted, |app| async move {
    let ada = app.signup("acme").await;
    let made = create(&app, &ada, "hello", "Hello {{name}} of {{ org }}, {{name}}!").await.expect(201);
    assert_eq!(
        fields(&made),
        [
            "content",
            "created_at",
            "created_by",
            "id",
            "labels",
            "namespace",
            "slug",
            "updated_at",
            "variables",
            "version"
        ]
    );
    assert_uuid_v7(&made["id"]);
    assert_eq!(time(&made["created_at"]), time(&made["updated_at"]));
    assert_eq!((&made["version"], &made["variables"]), (&json!(1), &json!(["name", "org"])));
    assert_eq!(made["created_by"], json!(ada.user_id));
    assert_eq!(read(&app, &ada, HELLO).await.expect(200), made);

    app.app.services.clock.advance(1_000);
    let second = update(&app, &ada, json!({"content": "Hi {{who}}"})).await.expect(200);
    assert_eq!((&second["version"], &second["variables"]), (&json!(2), &json!(["who"])));
    assert_eq!((&second["id"], &second["created_at"]), (&made["id"], &made["created_at"]));
    assert!(time(&second["updated_at"]) > time(&made["updated_at"]));
    assert_eq!(read(&app, &ada, HELLO).await.expect(200), second);

    // The first version is unchanged, whichever way it is read.
    for path in [
        format!("{HELLO}?version=1"),
        format!("{HELLO}/versions/1"),
        "/api/prompts/support/hello?version=1".into(),
    ] {
        assert_eq!(read(&app, &ada, &path).await.expect(200), made, "{path}");
    }
    let versions = read(&app, &ada, &format!("{HELLO}/versions")).await.expect(200);
    assert_eq!(versions, json!({"versions": [second, made], "next_cursor": null}));

    let gone = app.delete(HELLO).bearer(&ada.token).send().await.expect(200);
    assert_eq!(gone, json!({"deleted": true}));
    for path in [
        HELLO.into(),
        format!("{HELLO}/versions"),
        format!("{HELLO}/versions/1"),
        format!("{HELLO}?version=1"),
    ] {
        read(&app, &ada, &path).await.expect_error(404, "not_found");
    }
    app.delete(HELLO).bearer(&ada.token).send().await.expect_error(404, "not_found");
    update(&app, &ada, json!({"content": "x"})).await.expect_error(404, "not_found");
    // A new prompt with the same name starts over.
    let again = create(&app, &ada, "hello", "x").await.expect(201);
    assert_eq!(again["version"], 1);
    assert_ne!(again["id"], made["id"]);
});

on_both!(a_name_that_is_taken_is_a_conflict, |app| async move {
    let ada = app.signup("acme").await;
    let eve = app.signup("evil").await;
    let made = create(&app, &ada, "hello", "one").await.expect(201);
    create(&app, &ada, "hello", "two").await.expect_error(409, "conflict");
    assert_eq!(read(&app, &ada, HELLO).await.expect(200), made);
    // Names are unique per organization only.
    create(&app, &eve, "hello", "three").await.expect(201);
    let (one, two) = tokio::join!(create(&app, &ada, "race", "a"), create(&app, &ada, "race", "b"));
    let mut statuses = [one.status.as_u16(), two.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409]);
});

on_both!(an_expected_version_guards_against_a_lost_change, |app| async move {
    let ada = app.signup("acme").await;
    create(&app, &ada, "hello", "one").await.expect(201);
    let second = update(&app, &ada, json!({"content": "two", "expected_version": 1})).await.expect(200);
    assert_eq!(second["version"], 2);
    for stale in [1, 3] {
        let error = update(&app, &ada, json!({"content": "three", "expected_version": stale})).await;
        let error = error.expect_error(409, "conflict");
        assert_eq!(error["current_version"], 2);
    }
    assert_eq!(read(&app, &ada, HELLO).await.expect(200), second);
    for bad in [json!(0), json!(-1), json!("1"), json!(1.5)] {
        assert_field_error(
            &update(&app, &ada, json!({"content": "x", "expected_version": bad})).await,
            "expected_version",
        );
    }
});

on_both!(writers_at_once_leave_no_gap_and_only_one_wins_an_expected_version, |app| async move {
    let ada = app.signup("acme").await;
    create(&app, &ada, "hello", "start").await.expect(201);
    let writes = (0..12).map(|number| update(&app, &ada, json!({"content": format!("free {number}")})));
    let mut numbers = BTreeSet::new();
    for answer in futures_util::future::join_all(writes).await {
        assert!(numbers.insert(answer.expect(200)["version"].as_i64().unwrap()));
    }
    assert_eq!(numbers, (2..=13).collect());
    let guarded = (0..8).map(|number| {
        update(&app, &ada, json!({"content": format!("guarded {number}"), "expected_version": 13}))
    });
    let answers = futures_util::future::join_all(guarded).await;
    let won: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
    assert_eq!(won.len(), 1);
    assert!(answers.iter().all(|answer| [200, 409].contains(&answer.status.as_u16())));
    assert_eq!(read(&app, &ada, HELLO).await.expect(200), won[0].json());
    let all = read(&app, &ada, &format!("{HELLO}/versions?limit=200")).await.expect(200);
    let versions: Vec<i64> = all["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| version["version"].as_i64().unwrap())
        .collect();
    assert_eq!(versions, (1..=14).rev().collect::<Vec<_>>());
});

on_both!(a_template_is_rendered_with_what_is_given, |app| async move {
    let ada = app.signup("acme").await;
    create(&app, &ada, "hello", r"Dear {{name}}: {{body}} \{{name}}").await.expect(201);
    let good = json!({"variables": {"name": "Ada", "body": "<b>{{name}}</b>"}});
    let rendered = render(&app, &ada, "", good.clone()).await.expect(200);
    assert_eq!(rendered, json!({"rendered": "Dear Ada: <b>{{name}}</b> {{name}}"}));
    let more = json!({"variables": {"name": "Ada", "body": "", "z": "", "extra": "x"}});
    let rendered = render(&app, &ada, "", more).await.expect(200);
    assert_eq!(rendered, json!({"rendered": "Dear Ada:  {{name}}", "unused": ["extra", "z"]}));

    for body in [json!({}), json!({"variables": {"nam": "x"}})] {
        let error = render(&app, &ada, "", body).await.expect_error(422, "validation_error");
        assert_eq!(error["missing"], json!(["name", "body"]));
        assert!(error["message"].as_str().unwrap().contains("name, body"), "{error}");
    }
    for bad in [json!({"name": 1}), json!({"name": null}), json!({"name": ["x"]}), json!([]), json!("x")] {
        assert_field_error(&render(&app, &ada, "", json!({"variables": bad})).await, "variables");
    }
    update(&app, &ada, json!({"content": "plain"})).await.expect(200);
    assert_eq!(render(&app, &ada, "", json!({})).await.expect(200), json!({"rendered": "plain"}));
    let bare = app.call(http::Method::POST, &format!("{HELLO}/render")).bearer(&ada.token).send().await;
    assert_eq!(bare.expect(200), json!({"rendered": "plain"}));
    let first = render(&app, &ada, "?version=1", good).await.expect(200);
    assert_eq!(first["rendered"], "Dear Ada: <b>{{name}}</b> {{name}}");
    render(&app, &ada, "?version=3", json!({})).await.expect_error(404, "not_found");
    assert_field_error(&render(&app, &ada, "?version=0", json!({})).await, "version");
});

on_both!(a_template_that_is_none_is_refused_with_its_place, |app| async move {
    let ada = app.signup("acme").await;
    let made = create(&app, &ada, "hello", "ok").await.expect(201);
    for (content, line, column) in
        [("{{", 1, 1), ("a\n {{1}}", 2, 2), ("x {{a b}}", 1, 3), ("{{#each x}}", 1, 1)]
    {
        for answer in
            [create(&app, &ada, "bad", content).await, update(&app, &ada, json!({"content": content})).await]
        {
            let error = answer.expect_error(422, "validation_error");
            assert_eq!((&error["line"], &error["column"]), (&json!(line), &json!(column)), "{content}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(&format!("line {line}, column {column}")), "{message}");
        }
    }
    assert_eq!(read(&app, &ada, HELLO).await.expect(200), made);
    read(&app, &ada, "/api/v1/prompts/support/bad").await.expect_error(404, "not_found");
});

on_both!(bad_fields_are_named_and_sizes_are_bounded, |app| async move {
    let ada = app.signup("acme").await;
    let good = json!({"namespace": "support", "slug": "hello", "content": "x"});
    let long = "a".repeat(65);
    for (field, bad) in [
        ("namespace", json!("Support")),
        ("namespace", json!("")),
        ("namespace", json!("a/b")),
        ("namespace", json!(7)),
        ("slug", json!("-x")),
        ("slug", json!(long)),
        ("slug", Value::Null),
        ("content", json!("")),
        ("content", json!({})),
    ] {
        let mut body = good.clone();
        body[field] = bad;
        assert_field_error(&app.post(PROMPTS, body).bearer(&ada.token).send().await, field);
    }
    for field in ["namespace", "slug", "content"] {
        let body = crate::support::assertions::without_field(&good, field);
        assert_field_error(&app.post(PROMPTS, body).bearer(&ada.token).send().await, field);
    }
    let longest = "x".repeat(MAX_CONTENT);
    create(&app, &ada, "hello", &longest).await.expect(201);
    create(&app, &ada, "longer", &format!("{longest}x")).await.expect_error(413, "payload_too_large");
    update(&app, &ada, json!({"content": format!("{longest}x")}))
        .await
        .expect_error(413, "payload_too_large");
    // A short template can render to a very long text.
    let pieces = 20_000;
    update(&app, &ada, json!({"content": "{{x}}".repeat(pieces)})).await.expect(200);
    let value = "x".repeat(MAX_RENDERED / pieces + 1);
    let error = render(&app, &ada, "", json!({"variables": {"x": value}})).await;
    error.expect_error(413, "payload_too_large");
    for path in ["/api/v1/prompts/Support/hello", "/api/v1/prompts/support/he%20llo"] {
        assert_eq!(read(&app, &ada, path).await.expect_error(400, "bad_request")["code"], "bad_request");
    }
    for (path, named) in [
        (format!("{HELLO}/versions/one"), "version"),
        (format!("{HELLO}/versions/0"), "version"),
        (format!("{HELLO}?version=One"), "version"),
        (format!("{HELLO}?version=v1"), "version"),
        (format!("{HELLO}?version=-1"), "version"),
        (format!("{PROMPTS}?namespace=A"), "namespace"),
        (format!("{PROMPTS}?limit=0"), "limit"),
        (format!("{HELLO}/versions?cursor=*"), "cursor"),
    ] {
        assert_field_error(&read(&app, &ada, &path).await, named);
    }
    read(&app, &ada, &format!("{HELLO}?version=99")).await.expect_error(404, "not_found");
});

on_both!(lists_come_in_pages_and_by_namespace, |app| async move {
    let ada = app.signup("acme").await;
    let mut made = Vec::new();
    for number in 0..5 {
        let prompt = create(&app, &ada, &format!("p{number}"), "x").await.expect(201);
        made.insert(0, prompt["slug"].clone());
    }
    let body = json!({"namespace": "sales", "slug": "pitch", "content": "Buy {{what}}"});
    app.post(PROMPTS, body).key(&ada.api_key).send().await.expect(201);
    let sales = read(&app, &ada, &format!("{PROMPTS}?namespace=sales")).await.expect(200);
    assert_eq!(sales["prompts"].as_array().unwrap().len(), 1);
    assert_eq!((&sales["prompts"][0]["slug"], &sales["next_cursor"]), (&json!("pitch"), &Value::Null));
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("{PROMPTS}?namespace=support&limit=2{cursor}");
        let page = read(&app, &ada, &path).await.expect(200);
        seen.extend(page["prompts"].as_array().unwrap().iter().map(|prompt| prompt["slug"].clone()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, made);
    for _ in 0..4 {
        app.put("/api/v1/prompts/support/p0", json!({"content": "y"}))
            .bearer(&ada.token)
            .send()
            .await
            .expect(200);
    }
    let page = read(&app, &ada, "/api/v1/prompts/support/p0/versions?limit=3").await.expect(200);
    let numbers = |page: &Value| -> Vec<Value> {
        page["versions"].as_array().unwrap().iter().map(|version| version["version"].clone()).collect()
    };
    assert_eq!(numbers(&page), [5, 4, 3]);
    let path =
        format!("/api/v1/prompts/support/p0/versions?cursor={}", page["next_cursor"].as_str().unwrap());
    let rest = read(&app, &ada, &path).await.expect(200);
    assert_eq!((numbers(&rest), &rest["next_cursor"]), (vec![json!(2), json!(1)], &Value::Null));
});

on_both!(viewers_read_and_render_and_members_write, |app| async move {
    let ada = app.signup("acme").await;
    let (viewer, member) = (app.join(&ada, "viewer").await, app.join(&ada, "member").await);
    create(&app, &viewer, "hello", "x").await.expect_error(403, "forbidden");
    create(&app, &member, "hello", "x {{y}}").await.expect(201);
    update(&app, &viewer, json!({"content": "z"})).await.expect_error(403, "forbidden");
    app.delete(HELLO).bearer(&viewer.token).send().await.expect_error(403, "forbidden");
    read(&app, &viewer, HELLO).await.expect(200);
    render(&app, &viewer, "", json!({"variables": {"y": "1"}})).await.expect(200);
    app.get(PROMPTS).send().await.expect_error(401, "unauthorized");
});

on_both!(a_template_is_saved_as_a_new_prompt_or_as_its_next_version, |app| async move {
    let ada = app.signup("acme").await;
    let mut headers = HeaderMap::new();
    headers.insert("x-gateway-key", HeaderValue::from_str(&ada.api_key).unwrap());
    let Ok(identity) =
        app.app.proxy.access.authenticate(&headers, std::net::Ipv4Addr::LOCALHOST.into()).await
    else {
        panic!("a good key")
    };
    let save = async |slug: &str, content: &str| {
        let name = PromptName { namespace: "saved", slug };
        let target = Target { kind: "prompt".into(), id: None, name: None };
        let entry = system_entry(&app.app.services, Chain::System, "prompt.update", target);
        app.app.proxy.prompts.save(Change { author: &identity, entry }, name, content.into()).await
    };
    assert_eq!(save("run", "one").await.unwrap().version, 1);
    assert_eq!(save("run", "two").await.unwrap().version, 2);
    assert_eq!(save("Run", "x").await.unwrap_err().status, 400);
    assert_eq!(save("run", "{{").await.unwrap_err().status, 422);
    let found = read(&app, &ada, "/api/v1/prompts/saved/run").await.expect(200);
    assert_eq!((&found["version"], &found["content"]), (&json!(2), &json!("two")));
});

on_both!(usage_is_broken_down_by_prompt, |app| async move {
    let ada = app.signup("acme").await;
    let used = |name: &str, version| Some(PromptVersionRef { name: name.into(), version });
    let rows: Vec<_> = [
        ("2026-11-09T10:10:00Z", "gpt-4o", used("support/hello", 1)),
        ("2026-11-09T11:10:00Z", "gpt-4o", used("support/hello", 2)),
        ("2026-11-10T10:10:00Z", "gpt-4o-mini", used("sales/pitch", 1)),
        ("2026-11-10T10:20:00Z", "gpt-4o", None),
    ]
    .into_iter()
    .map(|(time, model, prompt)| {
        with(row(&ada, at(time)), |row| (row.model, row.prompt) = (Some(model.into()), prompt))
    })
    .collect();
    app.write(&rows).await;
    let found = async |query: &str| -> HashMap<String, i64> {
        let path = format!("/api/v1/usage/breakdown?by=prompt&{query}");
        let answer = read(&app, &ada, &path).await.expect(200);
        assert_eq!(answer["by"], "prompt");
        let rows = answer["rows"].as_array().unwrap().clone();
        assert!(rows.iter().all(|row| row["key"] == row["name"] && row["total_tokens"] != 0));
        rows.iter()
            .map(|row| (row["key"].as_str().unwrap().into(), row["requests"].as_i64().unwrap()))
            .collect()
    };
    let both = HashMap::from([("support/hello".to_owned(), 2), ("sales/pitch".to_owned(), 1)]);
    // Whole days, partial hours and a range within one hour are read from different tables.
    assert_eq!(found("from=2026-11-09T00:00:00Z&to=2026-11-11T00:00:00Z").await, both);
    assert_eq!(found("from=2026-11-09T10:05:00Z&to=2026-11-10T10:30:00Z").await, both);
    assert_eq!(
        found("from=2026-11-10T10:05:00Z&to=2026-11-10T10:30:00Z").await,
        HashMap::from([("sales/pitch".to_owned(), 1)])
    );
    assert_eq!(
        found("from=2026-11-09T00:00:00Z&to=2026-11-11T00:00:00Z&model=gpt-4o").await,
        HashMap::from([("support/hello".to_owned(), 2)])
    );
    // The other totals count every request once.
    let path = "/api/v1/usage/summary?from=2026-11-09T00:00:00Z&to=2026-11-11T00:00:00Z";
    assert_eq!(read(&app, &ada, path).await.expect(200)["requests"], 4);
});
