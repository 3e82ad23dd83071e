//! Verdicts of external evaluators on skills and log rows.

use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::{assert_uuid_v7, fields as names, missing_id, time, with, without_field};
use crate::support::log_rows::row;
use crate::support::skills::{ENTERPRISE, fields, path};
use crate::support::{Account, TestApp, TestResponse};

async fn submit(app: &TestApp, by: &Account, body: Value) -> TestResponse {
    app.post("/api/v1/eval-results", body).bearer(&by.token).send().await
}

async fn log_row(app: &TestApp, of: &Account) -> i64 {
    let log = row(of, app.app.services.clock.now());
    app.write(std::slice::from_ref(&log)).await;
    log.id
}

on_both!(a_verdict_on_a_skill_is_an_evaluation_of_its_current_version, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let skill = app.skill(&ada, fields("judged")).await;
    app.put(&path(&skill), json!({"body": "Second"})).bearer(&ada.token).send().await.expect(200);
    let verdict = json!({"subject_type": "skill", "subject_id": skill["id"], "source": "deep-eval_2", "score": 0.8,
        "external_ref": "https://evals.test/runs/1"});
    let made = submit(&app, &ada, verdict.clone()).await.expect(201);
    assert_eq!(
        names(&made),
        [
            "axes",
            "completion_tokens",
            "content_hash",
            "created_at",
            "external_ref",
            "id",
            "judge_model",
            "judge_provider",
            "latency_ms",
            "org_id",
            "overall_score",
            "passed",
            "prompt_tokens",
            "skill_id",
            "skill_version",
            "source",
        ]
    );
    assert_uuid_v7(&made["id"]);
    time(&made["created_at"]);
    assert_eq!(
        (&made["skill_version"], &made["skill_id"], &made["org_id"]),
        (&json!(2), &skill["id"], &json!(ada.org_id))
    );
    assert_eq!(
        (&made["judge_provider"], &made["judge_model"], &made["source"]),
        (&json!("deep-eval_2"), &json!("external"), &json!("deep-eval_2"))
    );
    for field in ["latency_ms", "prompt_tokens", "completion_tokens"] {
        assert_eq!(made[field], 0, "{field}");
    }
    assert_eq!(
        (&made["overall_score"], &made["passed"]),
        (&json!(0.8), &json!(true)),
        "0.8 is above the threshold of 0.7"
    );
    assert_eq!(made["axes"], json!({"external": {"score": 0.8, "rationale": "https://evals.test/runs/1"}}));
    let axes = json!({"depth": {"score": 0.2, "rationale": "shallow"}});
    let own = submit(&app, &ada, with(&without_field(&verdict, "external_ref"), "axes", axes.clone()))
        .await
        .expect(201);
    assert_eq!((&own["axes"], own.get("external_ref")), (&axes, None));
    assert!(app.evaluations(&ada, &skill).await.contains(&made));
    let latest =
        app.get(&path(&skill)).bearer(&ada.token).send().await.expect(200)["latest_evaluation"].clone();
    assert_eq!(names(&latest), ["passed", "score", "source", "version"]);
});

on_both!(score_and_pass_complete_each_other, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let skill = app.skill(&ada, fields("judged")).await;
    let log = log_row(&app, &ada).await;
    for (subject, field, given, score, passed) in [
        (json!({"subject_type": "skill", "subject_id": skill["id"]}), "score", json!(0.69), 0.69, false),
        (json!({"subject_type": "skill", "subject_id": skill["id"]}), "score", json!(0.7), 0.7, true),
        (json!({"subject_type": "skill", "subject_id": skill["id"]}), "passed", json!(true), 1.0, true),
        (json!({"subject_type": "log", "subject_id": log}), "score", json!(0.5), 0.5, true),
        (json!({"subject_type": "log", "subject_id": log}), "score", json!(0.49), 0.49, false),
        (json!({"subject_type": "log", "subject_id": log}), "passed", json!(false), 0.0, false),
    ] {
        let body = with(&with(&subject, field, given), "source", "s");
        let made = submit(&app, &ada, body.clone()).await.expect(201);
        let found = made.get("score").or_else(|| made.get("overall_score"));
        assert_eq!((found, &made["passed"]), (Some(&json!(score)), &json!(passed)), "{body}");
    }
    let both = json!({"subject_type": "log", "subject_id": log, "source": "s", "score": 0.1, "passed": true});
    assert_eq!(submit(&app, &ada, both).await.expect(201)["passed"], true);
});

on_both!(a_verdict_on_a_log_row_is_kept_with_its_details, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let log = log_row(&app, &ada).await;
    let body = json!({"subject_type": "log", "subject_id": log, "source": "ragas", "score": 0.9, "details": {"faithfulness": [1, null]},
        "axes": {"ignored": {"score": 1}}});
    let made = submit(&app, &ada, body).await.expect(201);
    assert_eq!(
        names(&made),
        ["created_at", "details", "id", "log_id", "org_id", "passed", "score", "source"]
    );
    assert_eq!((&made["log_id"], &made["details"]), (&json!(log), &json!({"faithfulness": [1, null]})));
    let plain = json!({"subject_type": "log", "subject_id": log, "source": "other", "passed": false});
    let second = submit(&app, &ada, plain).await.expect(201);
    assert_eq!(second["details"], json!({}));
    let list =
        async |query: &str| app.get(&format!("/api/v1/eval-results?{query}")).bearer(&ada.token).send().await;
    let all = list(&format!("log_id={log}")).await.expect(200);
    assert_eq!(all, json!({"results": [second, made], "next_cursor": null}));
    let first = list(&format!("log_id={log}&limit=1")).await.expect(200);
    assert_eq!(first["results"], json!([second]));
    let cursor = first["next_cursor"].as_str().unwrap();
    assert_eq!(
        list(&format!("log_id={log}&limit=1&cursor={cursor}")).await.expect(200)["results"],
        json!([made])
    );
    assert_eq!(list("log_id=1").await.expect(200)["results"], json!([]));
    for (query, code) in [
        ("", "missing_log_id"),
        ("log_id=", "missing_log_id"),
        ("log_id=x", "invalid_log_id"),
        ("log_id=1.5", "invalid_log_id"),
        ("log_id=1&limit=0", "bad_request"),
    ] {
        let error = list(query).await.expect_error(400, code);
        assert_eq!(error["error_code"], code, "{query}");
    }
    let eve = app.signup("evil").await;
    let foreign =
        app.get(&format!("/api/v1/eval-results?log_id={log}")).bearer(&eve.token).send().await.expect(200);
    assert_eq!(foreign["results"], json!([]));
});

on_both!(what_is_wrong_with_a_verdict_has_its_code, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let skill = app.skill(&ada, fields("judged")).await;
    let good = json!({"subject_type": "skill", "subject_id": skill["id"], "source": "s", "score": 0.5});
    for (body, code) in [
        (with(&good, "source", "internal"), "invalid_source"),
        (with(&good, "source", "Upper"), "invalid_source"),
        (with(&good, "source", ""), "invalid_source"),
        (with(&good, "source", "x".repeat(33)), "invalid_source"),
        (with(&good, "source", 5), "invalid_source"),
        (without_field(&good, "source"), "invalid_source"),
        (with(&good, "score", 1.01), "invalid_score"),
        (with(&good, "score", -0.01), "invalid_score"),
        (with(&good, "axes", json!({"a": {"score": 2, "rationale": ""}})), "invalid_score"),
        (with(&good, "subject_type", "prompt"), "invalid_subject"),
        (without_field(&good, "subject_type"), "invalid_subject"),
        (without_field(&good, "subject_id"), "invalid_subject"),
        (with(&good, "subject_id", "nonsense"), "invalid_subject"),
        (with(&good, "subject_id", 7), "invalid_subject"),
        (with(&with(&good, "subject_type", "log"), "subject_id", "7"), "invalid_subject"),
        (with(&with(&good, "subject_type", "log"), "subject_id", 7.5), "invalid_subject"),
        (without_field(&good, "score"), "invalid_request"),
        (with(&good, "score", "high"), "invalid_request"),
        (with(&good, "passed", "yes"), "invalid_request"),
        (with(&good, "axes", json!([])), "invalid_request"),
        (with(&good, "details", json!([])), "invalid_request"),
        (with(&good, "external_ref", "x".repeat(3000)), "invalid_request"),
        (json!([]), "invalid_request"),
    ] {
        let error = submit(&app, &ada, body.clone()).await.expect_error(400, code);
        assert_eq!(error["error_code"], code, "{body}");
    }
    let broken =
        app.call(http::Method::POST, "/api/v1/eval-results").bearer(&ada.token).raw("{").send().await;
    broken.expect_error(400, "invalid_request");
    let own: Vec<_> = app.evaluations(&ada, &skill).await;
    assert!(own.iter().all(|evaluation| evaluation["source"] == "internal"), "nothing was kept: {own:?}");
});

on_both!(foreign_and_missing_subjects_look_the_same, ENTERPRISE, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let skill = app.skill(&ada, fields("judged")).await;
    let log = log_row(&app, &ada).await;
    for (kind, theirs, missing) in
        [("skill", skill["id"].clone(), missing_id()), ("log", json!(log), json!(4711))]
    {
        let body = json!({"subject_type": kind, "source": "s", "passed": true});
        let foreign = submit(&app, &eve, with(&body, "subject_id", theirs)).await;
        let absent = submit(&app, &eve, with(&body, "subject_id", missing)).await;
        foreign.expect_error(404, "not_found");
        assert_eq!(foreign.text(), absent.text());
    }
    assert!(app.evaluations(&ada, &skill).await.iter().all(|evaluation| evaluation["source"] == "internal"));
});

on_both!(a_verdict_on_a_row_that_is_only_just_made_finds_it, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let chat = json!({"model": "sandbox-small", "messages": [{"role": "user", "content": "hi"}]});
    let call =
        app.post("/v1/chat/completions", chat).key(&ada.api_key).header("x-gateway-provider", "sandbox");
    let answer = call.send().await;
    let log: i64 = answer.header("x-gateway-log-id").unwrap().parse().unwrap();
    let body = json!({"subject_type": "log", "subject_id": log, "source": "s", "passed": true});
    submit(&app, &ada, body).await.expect(201);
});
