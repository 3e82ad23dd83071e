//! Cases and runs of evals from the log rows that a query selects: which rows, what is skipped, and what is refused.

use gateway_core::logs::{BodyStorage, LogSource};
use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::{assert_field_error, fields};
use crate::support::datasets::DatasetFixture;
use crate::support::log_rows::{chat, row, with};
use crate::support::{Account, TestApp};

/// Writes three questions and what cannot be used: a row without its request, a list of models, an own call. Returns the
/// ids of the questions, oldest first.
async fn write(app: &TestApp, of: &Account) -> Vec<i64> {
    let now = app.app.services.clock.now();
    let asked = |at: i64, text: &str| {
        with(row(of, now.plus(at)), |row| row.request = chat(&format!("{text} please")))
    };
    let rows = [
        asked(0, "one"),
        asked(1, "two"),
        with(asked(2, "three"), |row| row.model = Some("other".into())),
        with(asked(3, "none"), |row| (row.request, row.request_stored) = (Vec::new(), BodyStorage::Off)),
        with(asked(4, "list"), |row| row.path = "/v1/models".into()),
        with(asked(5, "own"), |row| row.source = LogSource::Api),
    ];
    app.write(&rows).await;
    rows[..3].iter().map(|row| row.id).collect()
}

fn log_ids(made: &Value) -> Vec<i64> {
    let cases = made["cases"].as_array().unwrap();
    cases.iter().map(|case| case["metadata"]["log_id"].as_i64().unwrap()).collect()
}

on_both!(a_query_selects_the_rows_that_become_cases, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let ids = write(&app, &ada).await;
    write(&app, &eve).await;
    let data = DatasetFixture::create(&app, &ada).await;
    let made = data.post("/from-logs", json!({"query": "latency:<10s"})).await.expect(201);
    assert_eq!(log_ids(&made), [ids[2], ids[1], ids[0]]);
    assert_eq!(
        (&made["skipped"], &made["partial"], &made["scanned_to"]),
        (&json!(2), &json!(false), &Value::Null)
    );
    assert_eq!(made["cases"][0]["input"], "three please");
    assert_eq!(data.count().await, 3);
    for (body, expected) in [
        (json!({"query": "model:gpt-4o*", "limit": 1}), vec![ids[1]]),
        (json!({"query": "\"two please\""}), vec![ids[1]]),
        (json!({"limit": 2}), vec![ids[2], ids[1]]),
        (json!({"limit": 100_000, "query": "model:other"}), vec![ids[2]]),
    ] {
        let made = data.post("/from-logs", body.clone()).await.expect(201);
        assert_eq!(log_ids(&made), expected, "{body}");
    }
    let past = json!({"query": "model:*", "to": "2020-01-01T00:00:00Z"});
    let none = data.post("/from-logs", past).await;
    assert_field_error(&none, "query");
    assert!(none.text().contains("no row matches"), "{}", none.text());
    let unusable = data.post("/from-logs", json!({"query": "path:/v1/models"})).await;
    assert_field_error(&unusable, "query");
    assert!(unusable.text().contains("none of 1 rows can be a case"), "{}", unusable.text());
    // The answer for given rows has no counts.
    let named = data.post("/from-logs", json!({"log_ids": [ids[0]]})).await.expect(201);
    assert_eq!(fields(&named), ["cases"]);
});

on_both!(a_query_selects_the_rows_that_are_judged, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let ids = write(&app, &ada).await;
    write(&app, &eve).await;
    let eval = app.eval(&ada, "static", "status_ok", json!({})).await;
    let judged = async |body: Value| {
        let run = app.eval_run(&ada, &eval, body).await;
        let results = app.run_results(&ada, &run).await;
        let mut ids: Vec<i64> =
            results["results"].as_array().unwrap().iter().map(|r| r["log_id"].as_i64().unwrap()).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(judged(json!({"query": "model:gpt-4o* \"please\""})).await, ids[..2]);
    assert_eq!(judged(json!({"query": "latency:<10s \"please\"", "model": "other"})).await, ids[2..]);
    assert_eq!(judged(json!({"query": "\"please\"", "limit": 1})).await, ids[2..]);
    let path = format!("/api/v1/evals/{}/run", eval["id"]);
    let run = async |body: Value| app.post(&path, body).bearer(&ada.token).send().await;
    let started = run(json!({"query": "latency:<10s"})).await.expect(202);
    assert_eq!((&started["total"], &started["skipped"]), (&json!(4), &json!(1)));
    assert_eq!(run(json!({})).await.expect(202).get("skipped"), None);
    for (query, why) in
        [("model:nothing", "no row matches"), ("path:/v1/models", "none of 1 rows can be judged")]
    {
        let none = run(json!({"query": query})).await;
        assert_field_error(&none, "query");
        assert!(none.text().contains(why), "{}", none.text());
    }
});

on_both!(a_wrong_selection_is_refused_and_named, |app| async move {
    let ada = app.signup("acme").await;
    let ids = write(&app, &ada).await;
    let data = DatasetFixture::create(&app, &ada).await;
    let eval = app.eval(&ada, "static", "status_ok", json!({})).await;
    for path in [format!("{}/from-logs", data.path), format!("/api/v1/evals/{}/run", eval["id"])] {
        let send = async |body: Value| app.post(&path, body).bearer(&ada.token).send().await;
        let place = send(json!({"query": "status:200 bad:1"})).await.expect_error(400, "bad_request");
        assert_eq!(place["position"], 11, "{place}");
        for (body, named) in [
            (json!({"query": "model:*", "log_ids": [ids[0]]}), "log_ids"),
            (json!({"query": "model:*", "limit": 0}), "limit"),
            (json!({"query": "model:*", "from": "yesterday"}), "from"),
            (json!({"query": 1}), "query"),
        ] {
            assert_field_error(&send(body).await, named);
        }
    }
    assert_eq!(data.count().await, 0);
});
