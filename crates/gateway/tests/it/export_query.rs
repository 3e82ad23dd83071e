//! The query of an export: which rows are sent, what becomes of the others, and which queries are refused.

use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::{chat, many, row, with};
use crate::support::receiver::{attribute, otlp, receiver, spans, traces, webhook};
use crate::support::{Account, TestApp};
use crate::upstream::{Reply, Upstream};

const EXPORTS: &str = "/api/v1/exports";

fn matching(upstream: &Upstream, query: &str) -> Value {
    let mut body = webhook(upstream);
    body["query"] = json!(query);
    body
}

async fn refused(app: &TestApp, by: &Account, query: &str) -> Value {
    let mut body = json!({"name": "c", "kind": "otlp", "endpoint": "http://127.0.0.1:9"});
    body["query"] = json!(query);
    app.post(EXPORTS, body).bearer(&by.token).send().await.expect_error(400, "invalid_config")
}

on_both!(only_rows_that_match_arrive_and_the_others_are_skipped, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200)).await;
    let id =
        app.export(&ada, &matching(&upstream, "status:error -model:gpt-4o-mini metadata.env:prod")).await;
    let now = app.app.services.clock.now();
    let failed = |model: &str, env: &str| {
        with(row(&ada, now), |row| {
            (row.status, row.model) = (500, Some(model.into()));
            row.metadata.insert("env".into(), json!(env));
        })
    };
    let rows =
        [failed("gpt-4o", "prod"), row(&ada, now), failed("gpt-4o-mini", "prod"), failed("gpt-4o", "test")];
    app.write(&rows).await;
    let status = app.export_status(&ada, &id, "done", |s| s["skipped"] == 3 && s["delivered"] == 1).await;
    assert_eq!((&status["lag"], &status["dropped"], &status["failed"]), (&json!(0), &json!(0), &json!(0)));
    assert_eq!(traces(&upstream.requests()), [rows[0].id]);
});

on_both!(many_rows_that_do_not_match_do_not_keep_one_that_does, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200)).await;
    let id = app.export(&ada, &matching(&upstream, "model:wanted")).await;
    let mut rows = many(&ada, &app, 1_500);
    rows[1_400].model = Some("wanted".into());
    for batch in rows.chunks(500) {
        app.write(batch).await;
    }
    let status = app.export_status(&ada, &id, "done", |s| s["lag"] == 0 && s["delivered"] == 1).await;
    assert_eq!((&status["skipped"], &status["dropped"]), (&json!(1_499), &json!(0)));
    assert_eq!(upstream.requests().len(), 1, "nothing is sent where no row matches");
});

on_both!(words_and_names_select_rows_and_bodies_stay_where_they_are_not_sent, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200)).await;
    let key = json!({"name": "backend"});
    let key = app.post("/api/v1/keys", key).bearer(&ada.token).send().await.expect(201);
    let key = key["key"]["id"].as_str().unwrap().parse().unwrap();
    let id = app.export(&ada, &matching(&upstream, "\"refund please\" key:Backend")).await;
    let now = app.app.services.clock.now();
    let said = |text: &str| with(row(&ada, now), |row| (row.request, row.key_id) = (chat(text), Some(key)));
    let rows = [
        said("A refund please"),
        said("please refund"),
        with(said("refund please"), |row| row.key_id = None),
    ];
    app.write(&rows).await;
    app.export_status(&ada, &id, "done", |s| s["skipped"] == 2 && s["delivered"] == 1).await;
    assert_eq!(traces(&upstream.requests()), [rows[0].id]);
    // From now on words still select rows that were stored with bodies, which are not sent.
    let org = format!("/api/v1/orgs/{}", ada.org_id);
    let settings = json!({"settings": {"log_bodies": false}});
    app.put(&org, settings).bearer(&ada.token).send().await.expect(200);
    let later = said("Another refund please");
    app.write(std::slice::from_ref(&later)).await;
    app.export_status(&ada, &id, "done", |s| s["delivered"] == 2).await;
    let sent = upstream.requests().pop().unwrap().json()["data"]["traces"][0].clone();
    assert_eq!(
        (&sent["id"], &sent["request"], &sent["response"]),
        (&json!(later.id), &Value::Null, &Value::Null)
    );
});

on_both!(a_changed_query_holds_for_rows_that_wait, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(500)).await;
    let id = app.export(&ada, &matching(&upstream, "model:one")).await;
    let now = app.app.services.clock.now();
    let of = |model: &str| with(row(&ada, now), |row| row.model = Some(model.into()));
    let rows = [of("one"), of("two")];
    app.write(&rows).await;
    app.export_status(&ada, &id, "failing", |s| s["failed"] == 1 && s["lag"] == 2).await;
    upstream.set_default_reply(Reply::new(200));
    let path = format!("{EXPORTS}/{id}");
    let changed = app.put(&path, json!({"query": "model:two"})).bearer(&ada.token).send().await.expect(200);
    assert_eq!(changed["query"], "model:two");
    let status = app.export_status(&ada, &id, "done", |s| s["lag"] == 0).await;
    assert_eq!((&status["delivered"], &status["skipped"]), (&json!(1), &json!(1)));
    let sent = upstream.requests();
    assert_eq!(traces(&sent[sent.len() - 1..]), [rows[1].id]);
    // Without a query every row is sent again.
    app.put(&path, json!({"query": ""})).bearer(&ada.token).send().await.expect(200);
    app.write(&[of("three")]).await;
    app.export_status(&ada, &id, "done", |s| s["delivered"] == 2 && s["skipped"] == 1).await;
});

on_both!(verdicts_follow_only_rows_that_match, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200)).await;
    let mut body = otlp(&upstream);
    body["query"] = json!("model:one greeting");
    let id = app.export(&ada, &body).await;
    let now = app.app.services.clock.now();
    let of = |model: &str| with(row(&ada, now), |row| row.model = Some(model.into()));
    let rows = [of("one"), of("two")];
    app.write(&rows).await;
    for row in &rows {
        let verdict = json!({"subject_type": "log", "subject_id": row.id, "source": "ragas", "score": 0.5});
        app.post("/api/v1/eval-results", verdict).key(&ada.api_key).send().await.expect(201);
    }
    let status = app.export_status(&ada, &id, "done", |s| s["delivered"] == 2 && s["lag"] == 0).await;
    assert_eq!((&status["skipped"], &status["dropped"]), (&json!(2), &json!(0)));
    let sent: Vec<_> = upstream.requests().iter().flat_map(spans).collect();
    let models: Vec<_> =
        sent.iter().filter_map(|span| attribute(&span.attributes, "gen_ai.request.model")).collect();
    assert_eq!(models.len(), 1, "the span of the row, and that of its verdict: {sent:?}");
    assert_eq!(sent.len(), 2);
});

on_both!(a_query_that_cannot_be_used_is_refused_at_its_character, |app| async move {
    let ada = app.enterprise("acme").await;
    let unknown = refused(&app, &ada, "status:error bad:1").await;
    assert_eq!((&unknown["position"], &unknown["length"]), (&json!(13), &json!(3)));
    assert!(unknown["error"].as_str().unwrap().starts_with("query: "), "{unknown}");
    refused(&app, &ada, &"a".repeat(2_049)).await;
    let upstream = receiver(Reply::new(200)).await;
    let id = app.export(&ada, &matching(&upstream, "refund")).await;
    let path = format!("{EXPORTS}/{id}");
    let change = async |query: &str| app.put(&path, json!({"query": query})).bearer(&ada.token).send().await;
    change("latency:>fast").await.expect_error(400, "invalid_config");
    let shown = app.get(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!(shown["query"], "refund", "what was refused changed nothing");
    // Without bodies there are no words.
    let org = format!("/api/v1/orgs/{}", ada.org_id);
    let settings = json!({"settings": {"log_bodies": false}});
    app.put(&org, settings).bearer(&ada.token).send().await.expect(200);
    let words = change("status:error -refund").await.expect_error(400, "invalid_config");
    assert_eq!((&words["position"], &words["length"]), (&json!(14), &json!(6)));
    change("status:error latency:>2s").await.expect(200);
    // What was allowed before stays, and other fields can be changed.
    app.put(&path, json!({"name": "renamed"})).bearer(&ada.token).send().await.expect(200);
});
