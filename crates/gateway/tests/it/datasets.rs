//! Datasets over HTTP: the working copy, its cases, and its frozen versions.

use gateway_core::datasets::MAX_CASE_BYTES;
use http::Method;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::{assert_field_error, assert_uuid_v7, fields, time};
use crate::support::datasets::{DATASETS, DatasetFixture};

on_both!(a_dataset_is_created_listed_changed_and_deleted, |app| async move {
    let ada = app.signup("acme").await;
    let body = json!({"name": "questions", "description": "from support"});
    let made = app.post(DATASETS, body).bearer(&ada.token).send().await.expect(201);
    assert_eq!(
        fields(&made),
        ["case_count", "created_at", "current_version", "description", "id", "name", "updated_at"]
    );
    assert_uuid_v7(&made["id"]);
    assert_eq!((&made["current_version"], &made["case_count"]), (&json!(0), &json!(0)));
    assert_eq!(time(&made["created_at"]), time(&made["updated_at"]));
    let path = format!("{DATASETS}/{}", made["id"].as_str().unwrap());
    assert_eq!(app.get(&path).bearer(&ada.token).send().await.expect(200), made);
    let other = app.post(DATASETS, json!({"name": "questions"})).key(&ada.api_key).send().await.expect(201);
    assert_eq!(other["description"], "");
    let list = app.get(DATASETS).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list, json!({"datasets": [other, made], "next_cursor": null}));

    app.app.services.clock.advance(1_000);
    let changed = app.put(&path, json!({"name": "answers"})).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&changed["name"], &changed["description"]), (&json!("answers"), &made["description"]));
    assert!(time(&changed["updated_at"]) > time(&made["updated_at"]));
    let gone = app.delete(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!(gone, json!({"deleted": true}));
    for below in ["", "/cases", "/versions", "/export"] {
        app.get(&format!("{path}{below}")).bearer(&ada.token).send().await.expect_error(404, "not_found");
    }
    app.delete(&path).bearer(&ada.token).send().await.expect_error(404, "not_found");
    app.put(&path, json!({"name": "x"})).bearer(&ada.token).send().await.expect_error(404, "not_found");
});

on_both!(lists_of_datasets_and_cases_come_in_pages, |app| async move {
    let ada = app.signup("acme").await;
    let data = DatasetFixture::create(&app, &ada).await;
    for _ in 0..2 {
        DatasetFixture::create(&app, &ada).await;
    }
    let page = app.get(&format!("{DATASETS}?limit=2")).bearer(&ada.token).send().await.expect(200);
    assert_eq!(page["datasets"].as_array().unwrap().len(), 2);
    let next = format!("{DATASETS}?limit=2&cursor={}", page["next_cursor"].as_str().unwrap());
    let rest = app.get(&next).bearer(&ada.token).send().await.expect(200);
    assert_eq!((rest["datasets"].as_array().unwrap().len(), &rest["next_cursor"]), (1, &Value::Null));

    data.add(&["a", "b", "c", "d", "e"]).await;
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = data.get(&format!("/cases?limit=2{cursor}")).await.expect(200);
        seen.extend(page["cases"].as_array().unwrap().iter().map(|case| case["input"].clone()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, ["e", "d", "c", "b", "a"]);
    for (below, named) in [
        ("/cases?limit=0", "limit"),
        ("/cases?cursor=*", "cursor"),
        ("/cases?version=0", "version"),
        ("/versions?limit=x", "limit"),
        ("/versions?cursor=YQ", "cursor"),
        ("/export?format=xml", "format"),
    ] {
        assert_field_error(&data.get(below).await, named);
    }
});

on_both!(cases_are_added_one_by_one_or_together_and_hold_any_json, |app| async move {
    let ada = app.signup("acme").await;
    let data = DatasetFixture::create(&app, &ada).await;
    let one = json!({"input": {"q": [1, 2.5, null, "ü"]}, "expected": ["x"], "metadata": {"topic": "maths"}});
    let added = data.post("/cases", one.clone()).await.expect(201);
    assert_eq!(fields(&added), ["created_at", "expected", "id", "input", "metadata", "updated_at"]);
    assert_uuid_v7(&added["id"]);
    for field in ["input", "expected", "metadata"] {
        assert_eq!(added[field], one[field]);
    }
    let many = json!({"cases": [{"input": "plain"}, {"input": 7, "expected": false, "metadata": "text"}]});
    let many = data.post("/cases", many).await.expect(201);
    assert_eq!(fields(&many), ["cases"]);
    assert_eq!((&many["cases"][0]["expected"], &many["cases"][0]["metadata"]), (&Value::Null, &json!({})));
    let list = data.get("/cases").await.expect(200);
    assert_eq!(list, json!({"cases": [many["cases"][1], many["cases"][0], added], "next_cursor": null}));
    assert_eq!(data.count().await, 3);

    let path = format!("/cases/{}", added["id"].as_str().unwrap());
    app.app.services.clock.advance(1_000);
    let changed = data.put(&path, json!({"expected": null, "input": "new"})).await.expect(200);
    assert_eq!((&changed["input"], &changed["expected"]), (&json!("new"), &Value::Null));
    assert_eq!((&changed["metadata"], &changed["created_at"]), (&one["metadata"], &added["created_at"]));
    assert!(time(&changed["updated_at"]) > time(&added["updated_at"]));
    assert_eq!(data.get("/cases").await.expect(200)["cases"][2], changed);
    let cleared = data.put(&path, json!({"metadata": null})).await.expect(200);
    assert_eq!(cleared["metadata"], json!({}));

    assert_eq!(data.delete(&path).await.expect(200), json!({"deleted": true}));
    data.delete(&path).await.expect_error(404, "not_found");
    data.put(&path, json!({"input": "x"})).await.expect_error(404, "not_found");
    assert_eq!(data.count().await, 2);
});

on_both!(bad_cases_are_named_and_nothing_is_added, |app| async move {
    let ada = app.signup("acme").await;
    let data = DatasetFixture::create(&app, &ada).await;
    let large = "x".repeat(MAX_CASE_BYTES);
    for (body, named) in [
        (json!({}), "input"),
        (json!({"input": null}), "input"),
        (json!({"cases": []}), "cases"),
        (json!({"cases": [{"input": 1}, {"expected": 1}]}), "cases[1].input"),
        (json!({"cases": "x"}), "cases"),
        (json!({"input": 1, "cases": [{"input": 1}]}), "cases"),
        (json!({"cases": vec![json!({"input": 1}); 1001]}), "cases"),
        (json!({"input": large}), "bytes"),
    ] {
        assert_field_error(&data.post("/cases", body).await, named);
    }
    let id = data.add(&["ok"]).await.remove(0);
    for (body, named) in [(json!({"input": large}), "bytes"), (json!([]), "object")] {
        assert_field_error(&data.put(&format!("/cases/{id}"), body).await, named);
    }
    // A null input counts as absent and changes nothing.
    assert_eq!(data.put(&format!("/cases/{id}"), json!({"input": null})).await.expect(200)["input"], "ok");
    assert_eq!(data.inputs("").await, ["ok"]);
    data.delete("/cases/x").await.expect_error(400, "bad_request");
    for body in [json!({}), json!({"name": ""}), json!({"name": 1}), json!({"name": "x".repeat(201)})] {
        assert_field_error(&app.post(DATASETS, body).bearer(&ada.token).send().await, "name");
    }
    let body = json!({"name": "x", "description": "d".repeat(4_097)});
    assert_field_error(&app.post(DATASETS, body).bearer(&ada.token).send().await, "description");
    assert_field_error(&data.post("/versions", json!({"note": "n".repeat(1_025)})).await, "note");
});

on_both!(a_frozen_version_stays_what_it_was, |app| async move {
    let ada = app.signup("acme").await;
    let data = DatasetFixture::create(&app, &ada).await;
    let ids = data.add(&["a", "b", "c"]).await;
    let noted = data.post("/versions", json!({"note": "first"})).await.expect(201);
    assert_eq!(fields(&noted), ["case_count", "created_at", "created_by", "note", "version"]);
    assert_eq!(
        (&noted["version"], &noted["case_count"], &noted["note"]),
        (&json!(1), &json!(3), &json!("first"))
    );
    assert_eq!(noted["created_by"], json!(ada.user_id));
    let before = data.get("/cases?version=1").await.expect(200);

    data.put(&format!("/cases/{}", ids[0]), json!({"input": "A"})).await.expect(200);
    data.put(&format!("/cases/{}", ids[0]), json!({"input": "AA"})).await.expect(200);
    data.delete(&format!("/cases/{}", ids[1])).await.expect(200);
    let new = data.add(&["d", "e"]).await;
    data.delete(&format!("/cases/{}", new[1])).await.expect(200);
    assert_eq!(data.inputs("").await, ["d", "c", "AA"]);
    assert_eq!(data.get("/cases?version=1").await.expect(200), before);

    let bare = app.call(Method::POST, &format!("{}/versions", data.path)).bearer(&ada.token).send().await;
    assert_eq!(bare.expect(201)["version"], 2);
    data.delete(&format!("/cases/{}", ids[0])).await.expect(200);
    assert_eq!(data.inputs("").await, ["d", "c"]);
    assert_eq!(data.inputs("&version=2").await, ["d", "c", "AA"]);
    assert_eq!(data.inputs("&version=1").await, ["c", "b", "a"]);
    let dataset = data.get("").await.expect(200);
    assert_eq!((&dataset["current_version"], &dataset["case_count"]), (&json!(2), &json!(2)));
    let versions = data.get("/versions").await.expect(200);
    let numbers: Vec<_> = versions["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| (v["version"].clone(), v["case_count"].clone()))
        .collect();
    assert_eq!(numbers, [(json!(2), json!(3)), (json!(1), json!(3))]);
    let page = data.get("/versions?limit=1").await.expect(200);
    let rest =
        data.get(&format!("/versions?cursor={}", page["next_cursor"].as_str().unwrap())).await.expect(200);
    assert_eq!(rest["versions"], json!([noted]));
    data.get("/cases?version=3").await.expect_error(404, "not_found");
    data.get("/export?version=3").await.expect_error(404, "not_found");
    data.post("/sample", json!({"size": 1, "version": 3})).await.expect_error(404, "not_found");
});

on_both!(changes_at_once_are_all_kept_and_versions_have_no_gaps, |app| async move {
    let ada = app.signup("acme").await;
    let data = DatasetFixture::create(&app, &ada).await;
    let id = data.add(&["start"]).await.remove(0);
    let adds =
        futures_util::future::join_all((0..6).map(|number| data.post("/cases", json!({"input": number}))));
    let freezes = futures_util::future::join_all((0..5).map(|_| data.post("/versions", json!({}))));
    let path = format!("/cases/{id}");
    let edits = futures_util::future::join_all(
        (0..5).map(|number| data.put(&path, json!({"input": format!("e{number}")}))),
    );
    let (adds, freezes, edits) = tokio::join!(adds, freezes, edits);
    for answer in &adds {
        answer.expect(201);
    }
    for answer in &edits {
        answer.expect(200);
    }
    let mut numbers: Vec<i64> =
        freezes.iter().map(|answer| answer.expect(201)["version"].as_i64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    assert_eq!((data.count().await, data.inputs("").await.len()), (json!(7), 7));
    for answer in &freezes {
        let version = answer.json();
        let found = data.inputs(&format!("&version={}", version["version"])).await;
        assert_eq!(json!(found.len()), version["case_count"], "{version}");
    }
    let (one, two) = tokio::join!(data.delete(&path), data.delete(&path));
    let mut statuses = [one.status.as_u16(), two.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!((statuses, data.count().await), ([200, 404], json!(6)));
});

on_both!(viewers_read_and_members_write, |app| async move {
    let ada = app.signup("acme").await;
    let (viewer, member) = (app.join(&ada, "viewer").await, app.join(&ada, "member").await);
    let data = DatasetFixture::create(&app, &member).await;
    data.add(&["x"]).await;
    let seen = DatasetFixture { app: &app, by: &viewer, path: data.path.clone() };
    seen.get("").await.expect(200);
    seen.get("/cases").await.expect(200);
    seen.get("/export").await.expect(200);
    seen.post("/sample", json!({"size": 1})).await.expect(200);
    for (below, body) in [
        ("/cases", json!({"input": 1})),
        ("/versions", json!({})),
        ("/import", json!([])),
        ("/from-logs", json!({"log_ids": [1]})),
    ] {
        seen.post(below, body).await.expect_error(403, "forbidden");
    }
    seen.put("", json!({"name": "x"})).await.expect_error(403, "forbidden");
    seen.delete("").await.expect_error(403, "forbidden");
    assert_eq!(data.count().await, 1);
});
