//! Templates of prompts in requests: rendered into the body, current after every change, and known without the database.

use bytes::Bytes;
use gateway::problem::Problem;
use gateway::prompts::PromptDirective;
use gateway_core::ids::OrgId;
use gateway_core::llm::paths::Operation;
use gateway_core::logs::PromptVersionRef;
use gateway_store::prompts::{self as store, PromptLabel, PromptName};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use crate::on_both;
use crate::prompts::{HELLO, create, update};
use crate::support::TestApp;

fn header(prompt: &str, variables: &str) -> PromptDirective {
    let mut headers = HeaderMap::new();
    headers.insert("x-gateway-prompt", HeaderValue::from_str(prompt).unwrap());
    headers.insert("x-gateway-prompt-variables", HeaderValue::from_str(variables).unwrap());
    PromptDirective::from_headers(&headers).unwrap().unwrap()
}

async fn put_into(
    app: &TestApp,
    org: &str,
    asked: &PromptDirective,
) -> Result<(Value, PromptVersionRef), Problem> {
    let org: OrgId = org.parse().unwrap();
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let prompts = &app.app.proxy.prompts;
    let (body, used) = prompts.apply(org, asked, Operation::Chat, &Bytes::from(body)).await?;
    Ok((serde_json::from_slice(&body).unwrap(), used))
}

on_both!(a_request_gets_the_rendered_prompt_and_sees_every_change_at_once, |app| async move {
    let ada = app.signup("acme").await;
    let eve = app.signup("evil").await;
    create(&app, &ada, "hello", "Be {{how}}.").await.expect(201);
    let asked = header("support/hello", r#"{"how": "kind"}"#);
    for round in 1..=3 {
        let (body, used) = put_into(&app, &ada.org_id, &asked).await.unwrap();
        let text = if round == 1 { "Be kind.".to_owned() } else { format!("kind {round}") };
        assert_eq!(body["messages"][0], json!({"role": "system", "content": text}));
        assert_eq!(body["messages"][1], json!({"role": "user", "content": "hi"}));
        assert_eq!(used, PromptVersionRef { name: "support/hello".into(), version: round });
        update(&app, &ada, json!({"content": format!("{{{{how}}}} {}", round + 1)})).await.expect(200);
    }
    let (body, used) =
        put_into(&app, &ada.org_id, &header("support/hello@1", r#"{"how": "brief"}"#)).await.unwrap();
    assert_eq!((&body["messages"][0]["content"], used.version), (&json!("Be brief."), 1));

    let error = put_into(&app, &ada.org_id, &header("support/hello", "{}")).await.unwrap_err();
    assert_eq!((error.status.as_u16(), error.code), (422, "validation_error"));
    assert_eq!(error.extra["missing"], json!(["how"]));
    let foreign = put_into(&app, &eve.org_id, &asked).await.unwrap_err();
    let missing = put_into(&app, &ada.org_id, &header("support/none", "{}")).await.unwrap_err();
    assert_eq!((foreign.status.as_u16(), &foreign.message), (400, &missing.message));
    assert!(missing.message.contains("x-gateway-prompt"));
    assert_eq!(put_into(&app, &ada.org_id, &header("support/hello@99", "{}")).await.unwrap_err().status, 400);

    app.delete(HELLO).bearer(&ada.token).send().await.expect(200);
    for version in ["", "@1"] {
        let asked = header(&format!("support/hello{version}"), r#"{"how": "x"}"#);
        assert_eq!(put_into(&app, &ada.org_id, &asked).await.unwrap_err().status, 400, "{version}");
    }
    create(&app, &ada, "hello", "new {{how}}").await.expect(201);
    let (body, used) = put_into(&app, &ada.org_id, &asked).await.unwrap();
    assert_eq!((&body["messages"][0]["content"], used.version), (&json!("new kind"), 1));
});

on_both!(a_known_prompt_needs_no_database, |app| async move {
    let ada = app.signup("acme").await;
    create(&app, &ada, "hello", "Be {{how}}.").await.expect(201);
    let asked = header("support/hello", r#"{"how": "kind"}"#);
    put_into(&app, &ada.org_id, &asked).await.unwrap();
    // Without an invalidation, which could arrive only after the label was read.
    let (org, name) = (ada.org_id.parse().unwrap(), PromptName { namespace: "support", slug: "hello" });
    let mut tx = app.app.services.db.begin().await.unwrap();
    let (prompt_id, version) = store::lock(&mut tx, org, name).await.unwrap().unwrap();
    let now = app.app.services.clock.now();
    let label = PromptLabel {
        prompt_id,
        name: "production".into(),
        version,
        previous_version: None,
        updated_by: None,
        created_at: now,
        updated_at: now,
    };
    store::insert_label(&mut tx, &label).await.unwrap();
    tx.commit().await.unwrap();
    let labelled = header("support/hello@production", r#"{"how": "kind"}"#);
    put_into(&app, &ada.org_id, &labelled).await.unwrap();
    app.app.services.db.close().await;
    put_into(&app, &ada.org_id, &labelled).await.unwrap();
    let (body, _) = put_into(&app, &ada.org_id, &asked).await.unwrap();
    assert_eq!(body["messages"][0]["content"], "Be kind.");
    let unknown = put_into(&app, &ada.org_id, &header("support/other", "{}")).await.unwrap_err();
    assert_eq!(unknown.status, 503);
});

on_both!(a_moved_label_is_never_hidden_by_a_reader_at_the_same_time, |app| async move {
    let ada = app.signup("acme").await;
    create(&app, &ada, "hello", "1").await.expect(201);
    for version in 2..=6 {
        update(&app, &ada, json!({"content": version.to_string()})).await.expect(200);
    }
    let path = format!("{HELLO}/labels/production");
    let asked = header("support/hello@production", "{}");
    for version in [1, 6, 2, 5, 3, 4] {
        let moved = app.put(&path, json!({"version": version})).bearer(&ada.token).send();
        let readers = futures_util::future::join_all((0..4).map(|_| put_into(&app, &ada.org_id, &asked)));
        let (moved, _) = tokio::join!(moved, readers);
        moved.expect(200);
        let (body, used) = put_into(&app, &ada.org_id, &asked).await.unwrap();
        assert_eq!((&body["messages"][0]["content"], used.version), (&json!(version.to_string()), version));
    }
});

on_both!(a_change_is_never_hidden_by_a_reader_at_the_same_time, |app| async move {
    let ada = app.signup("acme").await;
    create(&app, &ada, "hello", "1").await.expect(201);
    let asked = header("support/hello", "{}");
    for version in 2..=8 {
        let change = update(&app, &ada, json!({"content": version.to_string()}));
        let readers = futures_util::future::join_all((0..4).map(|_| put_into(&app, &ada.org_id, &asked)));
        let (changed, _) = tokio::join!(change, readers);
        changed.expect(200);
        let (body, used) = put_into(&app, &ada.org_id, &asked).await.unwrap();
        assert_eq!((&body["messages"][0]["content"], used.version), (&json!(version.to_string()), version));
    }
});

on_both!(a_long_prompt_is_rendered_by_the_threads_for_computation, |app| async move {
    let ada = app.signup("acme").await;
    create(&app, &ada, "hello", &"{{x}}".repeat(300)).await.expect(201);
    let started = || app.app.services.compute.stats().granted;
    for (length, pieces_of_work) in [(400, 0), (600, 1)] {
        let value = "\"".repeat(length / 2) + &"y".repeat(length / 2);
        let asked = header("support/hello", &json!({"x": value}).to_string());
        let before = started();
        let (body, _) = put_into(&app, &ada.org_id, &asked).await.unwrap();
        assert_eq!(body["messages"][0]["content"].as_str().unwrap(), value.repeat(300));
        assert_eq!(started() - before, pieces_of_work, "{length} times 300 bytes");
        let render = app.post(&format!("{HELLO}/render"), json!({"variables": {"x": value, "unused": "z"}}));
        let rendered = render.bearer(&ada.token).send().await.expect(200);
        assert_eq!(
            (&rendered["rendered"], &rendered["unused"]),
            (&json!(value.repeat(300)), &json!(["unused"]))
        );
        let prompt = json!({"namespace": "support", "slug": "hello", "variables": {"x": value}});
        let run = json!({"provider": "sandbox", "model": "sandbox-small", "prompt": prompt});
        let run = app.post("/api/v1/playground/run", run).bearer(&ada.token).send().await.expect(200);
        assert_eq!(run["messages"][0]["content"], json!(value.repeat(300)));
        assert!(started() - before >= 3 * pieces_of_work, "rendered again");
    }
    let error = put_into(&app, &ada.org_id, &header("support/hello", "{}")).await.unwrap_err();
    assert_eq!(error.extra["missing"], json!(["x"]));
});
