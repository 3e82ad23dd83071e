//! Applications, which group keys and costs.

use serde_json::{Value, json};

use crate::on_both;
use crate::support::{Account, TestApp, TestResponse};

fn apps_of(account: &Account) -> String {
    format!("/api/v1/orgs/{}/apps", account.org_id)
}

fn path_of(account: &Account, app: &Value) -> String {
    format!("{}/{}", apps_of(account), app["id"].as_str().unwrap())
}

async fn create(app: &TestApp, by: &Account, body: Value) -> TestResponse {
    app.post(&apps_of(by), body).bearer(&by.token).send().await
}

on_both!(an_application_is_registered_listed_changed_and_unregistered, |app| async move {
    let ada = app.signup("acme").await;
    let team = app.post(&format!("/api/v1/orgs/{}/teams", ada.org_id), json!({"name": "core"}));
    let team = team.bearer(&ada.token).send().await.expect(201);
    let config = json!({"zebra": 1, "apple": [true, null, {"deep": "ünïcode"}], "ratio": 0.5});
    let body = json!({"name": "bot", "description": "answers", "team_id": team["id"], "config": config});
    let bot = create(&app, &ada, body).await.expect(201);
    let fields: Vec<_> = bot.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["id", "org_id", "name", "description", "team_id", "config", "created_at"]);
    assert_eq!((&bot["org_id"], &bot["team_id"]), (&json!(ada.org_id), &team["id"]));
    assert_eq!(bot["config"], config);
    let plain = create(&app, &ada, json!({"name": "plain"})).await.expect(201);
    assert_eq!((&plain["description"], &plain["team_id"]), (&json!(""), &Value::Null));
    assert_eq!(plain["config"], json!({}));
    let list = app.get(&apps_of(&ada)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list, json!({"apps": [plain, bot], "next_cursor": null}));

    let put = |body: Value| app.put(&path_of(&ada, &bot), body).bearer(&ada.token).send();
    let kept = put(json!({})).await.expect(200);
    assert_eq!(kept, bot);
    let renamed = put(json!({"name": "robot"})).await.expect(200);
    assert_eq!(
        (&renamed["name"], &renamed["config"], &renamed["team_id"]),
        (&json!("robot"), &config, &team["id"])
    );
    let loose = put(json!({"team_id": null, "config": {"only": "this"}})).await.expect(200);
    assert_eq!((&loose["team_id"], &loose["config"]), (&Value::Null, &json!({"only": "this"})));
    assert_eq!(loose["description"], "answers");

    let delete = || app.delete(&path_of(&ada, &bot)).bearer(&ada.token).send();
    assert_eq!(delete().await.expect(200), json!({"deleted": true}));
    delete().await.expect_error(404, "not_found");
    put(json!({"name": "x"})).await.expect_error(404, "not_found");
    let list = app.get(&apps_of(&ada)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["apps"], json!([plain]));
});

on_both!(an_application_with_bad_fields_is_refused_and_the_field_named, |app| async move {
    let ada = app.signup("acme").await;
    let eve = app.signup("evil").await;
    let foreign = app.post(&format!("/api/v1/orgs/{}/teams", eve.org_id), json!({"name": "theirs"}));
    let foreign = foreign.bearer(&eve.token).send().await.expect(201)["id"].clone();
    let bot = create(&app, &ada, json!({"name": "bot"})).await.expect(201);
    for (fields, named) in [
        (json!({"name": ""}), "name"),
        (json!({"name": null, "description": 5}), ""),
        (json!({"description": "x".repeat(4001)}), "description"),
        (json!({"description": ["x"]}), "description"),
        (json!({"team_id": foreign}), "team_id"),
        (json!({"team_id": uuid::Uuid::new_v4()}), "team_id"),
        (json!({"team_id": "core"}), "team_id"),
        (json!({"config": []}), "config"),
        (json!({"config": "x"}), "config"),
        (json!({"config": 1}), "config"),
        (json!({"config": {"x": "y".repeat(64 << 10)}}), "config: must have at most 65536 bytes"),
    ] {
        let mut whole = json!({"name": "new"});
        whole.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let changed = app.put(&path_of(&ada, &bot), fields.clone()).bearer(&ada.token).send().await;
        for answer in [create(&app, &ada, whole).await, changed] {
            let error = answer.expect_error(400, "bad_request");
            assert!(error["message"].as_str().unwrap().contains(named), "{fields}: {error}");
        }
    }
    create(&app, &ada, json!({"description": "nameless"})).await.expect_error(400, "bad_request");
    // `{"x":"…"}` of exactly 64 KiB.
    let longest = json!({"config": {"x": "y".repeat((64 << 10) - 8)}});
    let bot = app.put(&path_of(&ada, &bot), longest.clone()).bearer(&ada.token).send().await.expect(200);
    assert_eq!(bot["config"], longest["config"]);
    let list = app.get(&apps_of(&ada)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["apps"], json!([bot]));
    // A team of another organization and a missing team give the same error.
    let unknown = create(&app, &ada, json!({"name": "x", "team_id": uuid::Uuid::new_v4()})).await;
    assert_eq!(create(&app, &ada, json!({"name": "x", "team_id": foreign})).await.text(), unknown.text());
});

on_both!(registering_and_unregistering_emits_events, |app| async move {
    let ada = app.signup("acme").await;
    let bot = create(&app, &ada, json!({"name": "bot"})).await.expect(201);
    app.put(&path_of(&ada, &bot), json!({"name": "robot"})).bearer(&ada.token).send().await.expect(200);
    app.delete(&path_of(&ada, &bot)).key(&ada.api_key).send().await.expect(200);
    app.delete(&path_of(&ada, &bot)).key(&ada.api_key).send().await.expect_error(404, "not_found");
    create(&app, &ada, json!({"name": ""})).await.expect_error(400, "bad_request");
    let events = app.events(&ada.org_id).await;
    let told: Vec<_> = events.into_iter().filter(|(kind, _)| kind.starts_with("app.")).collect();
    let key = app.get("/api/v1/keys").key(&ada.api_key).send().await.expect(200)["keys"][0]["id"].clone();
    assert_eq!(
        told,
        [
            ("app.create".to_owned(), json!({"app_id": bot["id"], "name": "bot", "actor": ada.user_id})),
            ("app.delete".to_owned(), json!({"app_id": bot["id"], "name": "robot", "actor": key})),
        ]
    );
});

on_both!(an_unregistered_application_leaves_its_keys_valid_without_it, |app| async move {
    let ada = app.signup("acme").await;
    let bot = create(&app, &ada, json!({"name": "bot"})).await.expect(201);
    let body = json!({"name": "bot key", "app_id": bot["id"]});
    let made = app.post("/api/v1/keys", body).bearer(&ada.token).send().await.expect(201);
    let path = format!("/api/v1/keys/{}", made["key"]["id"].as_str().unwrap());
    let raw = made["raw_key"].as_str().unwrap();
    assert_eq!(app.get(&path).key(raw).send().await.expect(200)["app_id"], bot["id"]);
    app.delete(&path_of(&ada, &bot)).bearer(&ada.token).send().await.expect(200);
    let after = app.get(&path).key(raw).send().await.expect(200);
    assert_eq!((&after["app_id"], &after["revoked_at"]), (&Value::Null, &Value::Null));
});

on_both!(changes_of_different_fields_at_the_same_time_all_stay, |app| async move {
    let ada = app.signup("acme").await;
    let bot = create(&app, &ada, json!({"name": "bot"})).await.expect(201);
    for round in 0..10 {
        let put = |body: Value| app.put(&path_of(&ada, &bot), body).bearer(&ada.token).send();
        let (a, b, c) = tokio::join!(
            put(json!({"name": format!("name {round}")})),
            put(json!({"description": format!("text {round}")})),
            put(json!({"config": {"round": round}})),
        );
        for answer in [a, b, c] {
            answer.expect(200);
        }
        let list = app.get(&apps_of(&ada)).bearer(&ada.token).send().await.expect(200);
        let found = &list["apps"][0];
        assert_eq!(found["name"], format!("name {round}"));
        assert_eq!(found["description"], format!("text {round}"));
        assert_eq!(found["config"], json!({"round": round}));
    }
});

on_both!(applications_come_in_pages, |app| async move {
    let ada = app.signup("acme").await;
    let first = create(&app, &ada, json!({"name": "first"})).await.expect(201);
    let second = create(&app, &ada, json!({"name": "second"})).await.expect(201);
    let page = app.get(&format!("{}?limit=1", apps_of(&ada))).bearer(&ada.token).send().await.expect(200);
    assert_eq!(page["apps"], json!([second]));
    let path = format!("{}?cursor={}", apps_of(&ada), page["next_cursor"].as_str().unwrap());
    let rest = app.get(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!(rest, json!({"apps": [first], "next_cursor": null}));
});

on_both!(a_wrong_change_is_refused_before_a_missing_application, |app| async move {
    let ada = app.signup("acme").await;
    let missing = format!("{}/{}", apps_of(&ada), uuid::Uuid::new_v4());
    let put = |body: Value| app.put(&missing, body).bearer(&ada.token).send();
    for (body, named) in [
        (json!({"name": ""}), "name"),
        (json!({"description": "x".repeat(4_001)}), "description"),
        (json!({"team_id": uuid::Uuid::new_v4()}), "team_id"),
    ] {
        let error = put(body).await.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().starts_with(named), "{error}");
    }
    put(json!({"name": "bot", "team_id": null})).await.expect_error(404, "not_found");
});
