//! Runs: over log rows and datasets, with and without models, and compared.

use gateway_store::testing::count;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::fields;
use crate::support::log_rows::{at, row, with};
use crate::support::{Account, TestApp};

fn answer(text: &str) -> Vec<u8> {
    json!({"choices": [{"message": {"role": "assistant", "content": text}}]}).to_string().into_bytes()
}

/// Writes rows with these response texts and returns their ids, oldest first.
pub async fn answered(app: &TestApp, by: &Account, texts: &[&str]) -> Vec<i64> {
    let now = app.app.services.clock.now();
    let rows: Vec<_> =
        texts.iter().map(|text| with(row(by, now), |row| row.response = answer(text))).collect();
    app.write(&rows).await;
    rows.iter().map(|row| row.id).collect()
}

fn contains(text: &str) -> Value {
    json!({"value": text})
}

on_both!(a_run_judges_recent_rows_and_its_results_can_be_read, |app| async move {
    let ada = app.signup("acme").await;
    let ids = answered(&app, &ada, &["{\"a\": 1}", "no json", "[]"]).await;
    let eval = app.eval(&ada, "static", "is_json", json!({})).await;
    let path = format!("/api/v1/evals/{}/run", eval["id"]);
    let made = app.call(http::Method::POST, &path).bearer(&ada.token).send().await.expect(202);
    assert_eq!(
        fields(&made),
        [
            "completed",
            "created_at",
            "dataset_id",
            "dataset_version",
            "error",
            "errors",
            "eval_id",
            "failed",
            "finished_at",
            "id",
            "passed",
            "started_at",
            "status",
            "target",
            "total",
            "trigger"
        ]
    );
    assert_eq!(
        (&made["status"], &made["total"], &made["trigger"]),
        (&json!("queued"), &json!(3), &json!("manual"))
    );
    let run = app.wait_for_run(&ada, &made).await;
    assert_eq!((&run["status"], &run["completed"]), (&json!("completed"), &json!(3)));
    assert_eq!((&run["passed"], &run["failed"], &run["errors"]), (&json!(2), &json!(1), &json!(0)));

    let results = app.run_results(&ada, &run).await;
    assert_eq!(results["errors"], json!([]));
    let list = results["results"].as_array().unwrap();
    assert_eq!(
        fields(&list[0]),
        ["case_id", "created_at", "details", "eval_id", "id", "log_id", "passed", "run_id", "score"]
    );
    let mut verdicts: Vec<(i64, bool)> =
        list.iter().map(|r| (r["log_id"].as_i64().unwrap(), r["passed"].as_bool().unwrap())).collect();
    verdicts.sort_unstable();
    assert_eq!(verdicts, [(ids[0], true), (ids[1], false), (ids[2], true)]);
    let failed = list.iter().find(|r| r["passed"] == false).unwrap();
    assert_eq!(failed["score"], 0.0);
    assert!(failed["details"].as_str().unwrap().starts_with("not valid JSON"));

    let path = format!("/api/v1/evals/{}/results?limit=2", eval["id"]);
    let page = app.get(&path).bearer(&ada.token).send().await;
    let bare = page.expect(200);
    assert_eq!(bare.as_array().unwrap().len(), 2);
    let cursor = page.header("x-next-cursor").unwrap();
    let rest = app.get(&format!("{path}&cursor={cursor}")).bearer(&ada.token).send().await;
    assert_eq!(rest.expect(200).as_array().unwrap().len(), 1);
    assert_eq!(rest.header("x-next-cursor"), None);

    let metrics = app.get("/api/v1/metrics").bearer(&ada.token).send().await.expect(200);
    assert_eq!(metrics["evals"], json!({"passed": 2, "failed": 1}));
    let text =
        app.get("/api/v1/metrics").header("accept", "text/plain").bearer(&ada.token).send().await.text();
    assert!(text.contains("gateway_eval_results_total{verdict=\"passed\"} 2"), "{text}");
});

on_both!(rows_are_chosen_by_filter_or_by_name, |app| async move {
    let ada = app.signup("acme").await;
    let eve = app.signup("evil").await;
    let on = |time: &str, model: &str| with(row(&ada, at(time)), |row| row.model = Some(model.into()));
    let rows = [
        on("2026-01-01T00:00:00.000Z", "old"),
        on("2026-02-01T00:00:00.000Z", "new"),
        with(on("2026-02-02T00:00:00.000Z", "new"), |row| row.provider = "groq".into()),
        with(on("2026-02-03T00:00:00.000Z", "own"), |row| row.source = gateway_core::logs::LogSource::Api),
        with(on("2026-02-04T00:00:00.000Z", "list"), |row| row.path = "/v1/models".into()),
    ];
    app.write(&rows).await;
    let theirs = row(&eve, at("2026-02-01T00:00:00.000Z"));
    app.write(std::slice::from_ref(&theirs)).await;
    let eval = app.eval(&ada, "static", "status_ok", json!({})).await;
    let judged = async |body: Value| {
        let run = app.eval_run(&ada, &eval, body).await;
        let results = app.run_results(&ada, &run).await;
        let mut ids: Vec<i64> =
            results["results"].as_array().unwrap().iter().map(|r| r["log_id"].as_i64().unwrap()).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(
        judged(json!({})).await,
        [rows[0].id, rows[1].id, rows[2].id],
        "neither own calls nor lists of models"
    );
    assert_eq!(judged(json!({"limit": 1})).await, [rows[2].id]);
    assert_eq!(judged(json!({"limit": 100_000, "model": "new"})).await, [rows[1].id, rows[2].id]);
    assert_eq!(judged(json!({"provider": "groq"})).await, [rows[2].id]);
    assert_eq!(
        judged(json!({"from": "2026-01-15T00:00:00Z", "to": "2026-02-02T00:00:00Z"})).await,
        [rows[1].id]
    );
    assert_eq!(
        judged(json!({"log_ids": [rows[3].id, rows[0].id, rows[0].id]})).await,
        [rows[0].id, rows[3].id]
    );

    let path = format!("/api/v1/evals/{}/run", eval["id"]);
    for (body, named) in [
        (json!({"log_ids": [theirs.id]}), "log_ids"),
        (json!({"log_ids": [4711]}), "log_ids"),
        (json!({"log_ids": []}), "log_ids"),
        (json!({"log_ids": ["x"]}), "log_ids"),
        (json!({"limit": 0}), "limit"),
        (json!({"limit": "x"}), "limit"),
        (json!({"from": "yesterday"}), "from"),
    ] {
        let error =
            app.post(&path, body.clone()).bearer(&ada.token).send().await.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{body}: {error}");
    }
    app.post("/api/v1/evals/4711/run", json!({}))
        .bearer(&ada.token)
        .send()
        .await
        .expect_error(404, "not_found");
});

on_both!(a_run_that_could_judge_nothing_has_failed_and_says_why, |app| async move {
    let ada = app.signup("acme").await;
    let eval = app.eval(&ada, "static", "is_json", json!({})).await;
    let empty = app.eval_run(&ada, &eval, json!({})).await;
    assert_eq!((&empty["status"], &empty["total"]), (&json!("failed"), &json!(0)));
    assert!(empty["error"].as_str().unwrap().contains("nothing to judge"), "{empty}");

    let off = gateway_core::logs::BodyStorage::Off;
    let now = app.app.services.clock.now();
    let bare = with(row(&ada, now), |row| (row.response_stored, row.response) = (off, Vec::new()));
    app.write(std::slice::from_ref(&bare)).await;
    let run = app.eval_run(&ada, &eval, json!({})).await;
    assert_eq!((&run["status"], &run["errors"], &run["completed"]), (&json!("failed"), &json!(1), &json!(1)));
    assert!(run["error"].as_str().unwrap().contains("the response was not stored"), "{run}");
    let results = app.run_results(&ada, &run).await;
    assert_eq!(results["errors"][0]["log_id"], bare.id);
    assert!(results["errors"][0]["error"].as_str().unwrap().contains("the response was not stored"));

    answered(&app, &ada, &["{}"]).await;
    let run = app.eval_run(&ada, &eval, json!({})).await;
    assert_eq!((&run["status"], &run["passed"], &run["errors"]), (&json!("completed"), &json!(1), &json!(1)));
});

on_both!(a_failed_request_fails_where_an_answer_is_wanted, |app| async move {
    let ada = app.signup("acme").await;
    let broken = with(row(&ada, app.app.services.clock.now()), |row| {
        (row.status, row.error_code, row.response) = (502, Some("provider_error".into()), Vec::new());
    });
    app.write(&[broken]).await;
    for (evaluator, config) in
        [("is_json", json!({})), ("status_ok", json!({})), ("not_contains", contains("x"))]
    {
        let eval = app.eval(&ada, "static", evaluator, config).await;
        let run = app.eval_run(&ada, &eval, json!({})).await;
        assert_eq!((&run["failed"], &run["errors"]), (&json!(1), &json!(0)), "{evaluator}: {run}");
    }
});

on_both!(runs_are_listed_found_and_deleted_with_their_eval, |app| async move {
    let ada = app.signup("acme").await;
    answered(&app, &ada, &["x"]).await;
    let (one, two) = (
        app.eval(&ada, "static", "is_json", json!({})).await,
        app.eval(&ada, "static", "status_ok", json!({})).await,
    );
    let first = app.eval_run(&ada, &one, json!({})).await;
    let second = app.eval_run(&ada, &two, json!({})).await;
    let list = async |query: &str| {
        app.get(&format!("/api/v1/evals/runs?{query}")).bearer(&ada.token).send().await.expect(200)
    };
    assert_eq!(list("").await, json!({"runs": [second, first], "next_cursor": null}));
    assert_eq!(list(&format!("eval_id={}", one["id"])).await["runs"], json!([first]));
    assert_eq!(list("status=failed").await["runs"], json!([]));
    let page = list("limit=1").await;
    assert_eq!(page["runs"], json!([second]));
    assert_eq!(
        list(&format!("cursor={}", page["next_cursor"].as_str().unwrap())).await["runs"],
        json!([first])
    );
    app.get("/api/v1/evals/runs?status=odd").bearer(&ada.token).send().await.expect_error(400, "bad_request");
    app.get("/api/v1/evals/runs/x").bearer(&ada.token).send().await.expect_error(400, "bad_request");
    app.get("/api/v1/evals/runs/4711").bearer(&ada.token).send().await.expect_error(404, "not_found");
    app.delete(&format!("/api/v1/evals/{}", one["id"])).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list("").await["runs"], json!([second]));
    let path = format!("/api/v1/evals/runs/{}", first["id"]);
    app.get(&path).bearer(&ada.token).send().await.expect_error(404, "not_found");
});

on_both!(
    a_run_is_deleted_alone_and_makes_room,
    [("GATEWAY_QUOTAS", "free.eval_runs=2, enterprise.eval_runs=2")],
    |app| async move {
        let ada = app.enterprise("acme").await;
        let rows: Vec<String> = (0..1_300).map(|number| format!("row {number}")).collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        answered(&app, &ada, &rows).await;
        let eval = app.eval(&ada, "static", "contains", contains("7")).await;
        let first = app.eval_run(&ada, &eval, json!({"limit": 1_000})).await;
        let second = app.eval_run(&ada, &eval, json!({"limit": 5})).await;
        let start = format!("/api/v1/evals/{}/run", eval["id"]);
        let start = || app.post(&start, json!({"limit": 5})).bearer(&ada.token).send();
        assert_eq!(start().await.expect_error(403, "quota_exceeded")["quota"], "eval_runs");
        let path = format!("/api/v1/evals/runs/{}", first["id"]);
        let delete = |path: String| app.delete(&path).bearer(&ada.token).send();
        assert_eq!(delete(path.clone()).await.expect(200), json!({"deleted": true}));
        delete(path.clone()).await.expect_error(404, "not_found");
        let results = format!("{path}/results");
        app.get(&results).bearer(&ada.token).send().await.expect_error(404, "not_found");
        // The other run keeps its verdicts, and so do the counts.
        assert_eq!(app.run_results(&ada, &second).await["results"].as_array().unwrap().len(), 5);
        let metrics = app.get("/api/v1/metrics").bearer(&ada.token).send().await.expect(200);
        assert_eq!(metrics["evals"], json!({"passed": second["passed"], "failed": second["failed"]}));
        let db = &app.app.services.db;
        assert_eq!(count(db, "eval_run_items").await.unwrap(), 5);
        assert_eq!(count(db, "eval_results").await.unwrap(), 5);
        let actions = app
            .get(&format!("/api/v1/orgs/{}/audit?action=eval.delete_run", ada.org_id))
            .bearer(&ada.token)
            .send()
            .await;
        let actions = actions.expect(200);
        assert_eq!(actions["entries"][0]["target"]["id"], first["id"].to_string(), "{actions}");
        start().await.expect(202);
    }
);

on_both!(two_runs_are_compared_item_by_item, |app| async move {
    let ada = app.signup("acme").await;
    let ids = answered(&app, &ada, &["a b", "a", "b", "c"]).await;
    let eval = app.eval(&ada, "static", "contains", contains("a")).await;
    let before = app.eval_run(&ada, &eval, json!({})).await;
    let path = format!("/api/v1/evals/{}", eval["id"]);
    app.put(&path, json!({"config": contains("b")})).bearer(&ada.token).send().await.expect(200);
    let after = app.eval_run(&ada, &eval, json!({"log_ids": &ids[..3]})).await;
    let compare =
        |run: &Value, to: &Value| format!("/api/v1/evals/runs/{}/compare?to={}", run["id"], to["id"]);
    let both = app.get(&compare(&before, &after)).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&both["eval_id"], &both["compared"]), (&eval["id"], &json!(3)));
    assert_eq!((&both["run"]["pass_rate"], &both["run"]["total"]), (&json!(0.5), &json!(4)));
    assert_eq!((&both["to"]["id"], &both["to"]["passed"]), (&after["id"], &json!(2)));
    assert_eq!(both["gained"], json!([{"log_id": ids[2], "case_id": null, "score": 0.0, "to_score": 1.0}]));
    assert_eq!(both["lost"], json!([{"log_id": ids[1], "case_id": null, "score": 1.0, "to_score": 0.0}]));

    let other = app.eval(&ada, "static", "status_ok", json!({})).await;
    let other = app.eval_run(&ada, &other, json!({})).await;
    for (path, named) in [
        (compare(&before, &other), "the same eval"),
        (compare(&before, &json!({"id": 4711})), "to"),
        (format!("/api/v1/evals/runs/{}/compare?to=x", before["id"]), "to"),
        (format!("/api/v1/evals/runs/{}/compare", before["id"]), "to"),
    ] {
        let error = app.get(&path).bearer(&ada.token).send().await.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{error}");
    }
});

on_both!(a_dataset_is_judged_by_what_its_cases_hold, |app| async move {
    let ada = app.signup("acme").await;
    let cases = [
        json!({"input": "capital of Italy?", "expected": "Rome", "metadata": {"output": "Rome"}}),
        json!({"input": "capital of France?", "expected": "Paris", "metadata": {"output": "Lyon"}}),
        json!({"input": "capital of Spain?", "expected": "Madrid"}),
        json!({"input": "capital of nowhere?"}),
    ];
    let dataset = app.dataset(&ada, &cases).await;
    let eval = app.eval(&ada, "similarity", "levenshtein", json!({"threshold": 1})).await;
    let path = format!("/api/v1/datasets/{dataset}/eval");
    let run = app.post(&path, json!({"eval_id": eval["id"]})).bearer(&ada.token).send().await.expect(202);
    assert_eq!(
        (&run["dataset_id"], &run["trigger"], &run["total"]),
        (&json!(dataset), &json!("dataset"), &json!(4))
    );
    let run = app.wait_for_run(&ada, &run).await;
    assert_eq!((&run["passed"], &run["failed"], &run["errors"]), (&json!(2), &json!(1), &json!(1)), "{run}");
    let results = app.run_results(&ada, &run).await;
    assert!(
        results["results"]
            .as_array()
            .unwrap()
            .iter()
            .all(|r| r["case_id"].is_string() && r["log_id"].is_null())
    );

    let long = "x".repeat(64 << 10);
    for (body, named) in [
        (json!({}), "eval_id"),
        (json!({"eval_id": 4711}), "eval_id"),
        (json!({"eval_id": "x"}), "eval_id"),
        (json!({"eval_id": eval["id"], "version": 1}), "version"),
        (json!({"eval_id": eval["id"], "version": 0}), "version"),
        (json!({"eval_id": eval["id"], "target": {"provider": "nowhere", "model": "m"}}), "target.provider"),
        (json!({"eval_id": eval["id"], "target": {"provider": "sandbox"}}), "model"),
        (
            json!({"eval_id": eval["id"], "target": {"provider": "sandbox", "model": "m",
            "prompt": {"namespace": "a", "slug": "b"}}}),
            "target.prompt",
        ),
        (
            json!({"eval_id": eval["id"], "target": {"provider": "sandbox", "model": "m", "params": {"stream": true}}}),
            "target.params",
        ),
        (
            json!({"eval_id": eval["id"], "target": {"provider": "sandbox", "model": "m", "params": {"x": long}}}),
            "target.params: must have at most 65536 bytes",
        ),
        (
            json!({"eval_id": eval["id"], "target": {"provider": "sandbox", "model": "m",
            "prompt": {"namespace": "a", "slug": "b", "variables": {"x": long}}}}),
            "target.prompt.variables: must have at most 65536 bytes",
        ),
        (json!({"eval_id": eval["id"], "target": {"provider": "sandbox", "model": long}}), "target.model"),
    ] {
        let error =
            app.post(&path, body.clone()).bearer(&ada.token).send().await.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{body}: {error}");
    }
    let nowhere = format!("/api/v1/datasets/{}/eval", uuid::Uuid::new_v4());
    app.post(&nowhere, json!({"eval_id": eval["id"]}))
        .bearer(&ada.token)
        .send()
        .await
        .expect_error(404, "not_found");
});

on_both!(a_page_of_large_runs_has_fewer_of_them, |app| async move {
    let ada = app.signup("acme").await;
    let dataset = app.dataset(&ada, &[json!({"input": "a", "expected": "a"})]).await;
    let eval = app.eval(&ada, "similarity", "levenshtein", json!({"threshold": 1})).await;
    let path = format!("/api/v1/datasets/{dataset}/eval");
    let mut ids = Vec::new();
    for _ in 0..3 {
        let run = app.post(&path, json!({"eval_id": eval["id"]})).bearer(&ada.token).send().await.expect(202);
        ids.insert(0, app.wait_for_run(&ada, &run).await["id"].clone());
    }
    let list = app.get("/api/v1/evals/runs?limit=200").bearer(&ada.token).send().await.expect(200);
    assert_eq!((list["runs"].as_array().unwrap().len(), &list["next_cursor"]), (3, &Value::Null));
    // What an earlier version accepted. A statement of SQLite has at most a million bytes, so the text grows there.
    let target = json!({"provider": "openai", "model": "m", "params": {"x": "z".repeat(105)}});
    let sql = format!("UPDATE eval_runs SET target = REPLACE('{target}', 'z', '{}')", "y".repeat(50 << 10));
    gateway_store::testing::execute(&app.app.services.db, &sql).await.unwrap();
    let (mut found, mut cursor) = (Vec::new(), Value::Null);
    for _ in 0..3 {
        let from = cursor.as_str().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let path = format!("/api/v1/evals/runs?limit=200{from}");
        let list = app.get(&path).bearer(&ada.token).send().await.expect(200);
        assert_eq!(list["runs"].as_array().unwrap().len(), 1);
        found.push(list["runs"][0]["id"].clone());
        cursor = list["next_cursor"].clone();
    }
    assert_eq!((found, cursor), (ids, Value::Null));
});

on_both!(a_target_is_called_first_and_its_row_is_named, |app| async move {
    let ada = app.signup("acme").await;
    let save = json!({"namespace": "geo", "slug": "ask", "content": "What is the capital of {{country}}?"});
    app.post("/api/v1/playground/save-version", save).bearer(&ada.token).send().await.expect(200);
    let dataset = app
        .dataset(&ada, &[json!({"input": {"country": "Italy"}}), json!({"input": {"country": "Peru"}})])
        .await;
    app.freeze(&ada, &dataset).await;
    let eval = app.eval(&ada, "static", "contains", contains("capital of Italy")).await;
    let target = json!({"provider": "sandbox", "model": "sandbox-small", "prompt": {"namespace": "geo", "slug": "ask"}});
    let body = json!({"eval_id": eval["id"], "version": 1, "target": target});
    let path = format!("/api/v1/datasets/{dataset}/eval");
    let run = app.post(&path, body).bearer(&ada.token).send().await.expect(202);
    assert_eq!((&run["dataset_version"], &run["target"]["prompt"]["version"]), (&json!(1), &json!(1)));
    let run = app.wait_for_run(&ada, &run).await;
    assert_eq!(
        (&run["status"], &run["passed"], &run["failed"]),
        (&json!("completed"), &json!(1), &json!(1)),
        "{run}"
    );
    let results = app.run_results(&ada, &run).await;
    let id = &results["results"][0]["log_id"];
    let mut row = json!(null);
    for _ in 0..100 {
        let answer = app.get(&format!("/api/v1/logs/{id}")).bearer(&ada.token).send().await;
        if answer.status == 200 {
            row = answer.json();
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!((&row["source"], &row["metadata"]["eval_run_id"]), (&json!("api"), &run["id"]), "{row}");

    // A missing variable is an error of that case alone.
    let save = json!({"namespace": "geo", "slug": "ask", "content": "{{continent}}?"});
    app.post("/api/v1/playground/save-version", save).bearer(&ada.token).send().await.expect(200);
    let run = app
        .post(&path, json!({"eval_id": eval["id"], "target": target}))
        .bearer(&ada.token)
        .send()
        .await
        .expect(202);
    let run = app.wait_for_run(&ada, &run).await;
    assert_eq!((&run["status"], &run["errors"]), (&json!("failed"), &json!(2)));
    assert!(run["error"].as_str().unwrap().contains("continent"), "{run}");
});

on_both!(only_so_many_runs_may_wait, |app| async move {
    let ada = app.signup("acme").await;
    let ids = answered(&app, &ada, &["x"]).await;
    let config = json!({"provider": "sandbox", "model": "m", "criteria": "any"});
    let eval = app.eval(&ada, "llm", "judge", config).await;
    // The sandbox responds immediately, so unfinished runs are inserted directly.
    let org = ada.org_id.parse().unwrap();
    let mut tx = app.app.services.db.begin().await.unwrap();
    for _ in 0..100 {
        let run = gateway_store::evals::NewRun {
            id: app.app.services.ids.next_row_id(),
            org,
            eval_id: eval["id"].as_i64().unwrap(),
            dataset: None,
            begun_by: "manual",
            definition: &json!({}),
            target: None,
            prompt: None,
            created_by: "test",
            now: app.app.services.clock.now(),
        };
        gateway_store::evals::insert_run(&mut tx, &run).await.unwrap();
    }
    tx.commit().await.unwrap();
    let path = format!("/api/v1/evals/{}/run", eval["id"]);
    app.post(&path, json!({"log_ids": ids})).bearer(&ada.token).send().await.expect_error(409, "conflict");
});
