//! Signed checkpoints of the audit log in exports: for those that name the source `audit`, in both kinds.

use gateway_core::audit::checkpoint::SignedCheckpoint;
use gateway_core::otlp::proto::{Any, Span};
use gateway_core::time::HOUR;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::row;
use crate::support::receiver::{
    WAIT_TIMEOUT, attribute, is_signed_by, otlp, receiver, spans, traces, webhook,
};
use crate::support::{Account, TestApp};
use crate::upstream::{Reply, Upstream};

fn with_sources(mut export: Value, name: &str, sources: &[&str]) -> Value {
    (export["name"], export["include_sources"]) = (json!(name), json!(sources));
    export
}

async fn signed(app: &TestApp, ada: &Account) -> Value {
    app.app.audit.pass().await.unwrap();
    let path = format!("/api/v1/orgs/{}/audit/checkpoints", ada.org_id);
    app.get(&path).bearer(&ada.token).send().await.expect(200)["checkpoints"].clone()
}

fn text(span: &Span, name: &str) -> Value {
    match attribute(&span.attributes, name) {
        Some(Any::String(text)) => text.into(),
        Some(Any::Int(number)) => number.into(),
        other => panic!("{name}: {other:?}"),
    }
}

fn checkpoints(upstream: &Upstream) -> Vec<Value> {
    let data = |request: &crate::upstream::Request| request.json()["data"]["checkpoints"].clone();
    upstream
        .requests()
        .iter()
        .flat_map(|request| data(request).as_array().cloned().unwrap_or_default())
        .collect()
}

on_both!(checkpoints_reach_the_exports_that_name_the_audit_log, |app| async move {
    let ada = app.enterprise("acme").await;
    let (hook, collector, usual) =
        (receiver(Reply::new(200)).await, receiver(Reply::new(200)).await, receiver(Reply::new(200)).await);
    let named = app.export(&ada, &with_sources(webhook(&hook), "named", &["audit"])).await;
    let spanned = app.export(&ada, &with_sources(otlp(&collector), "collector", &["proxy", "audit"])).await;
    let default = app.export(&ada, &webhook(&usual)).await;
    let shown = app.get(&format!("/api/v1/exports/{spanned}")).bearer(&ada.token).send().await.expect(200);
    assert_eq!(shown["include_sources"], json!(["proxy", "audit"]));

    let stored = signed(&app, &ada).await;
    let request = hook.wait_for_requests(1, WAIT_TIMEOUT).await.remove(0);
    assert!(is_signed_by(&request, "abc"));
    let batch = request.json();
    assert_eq!(batch["data"], json!({"traces": [], "checkpoints": stored}));
    let sent: SignedCheckpoint = serde_json::from_value(batch["data"]["checkpoints"][0].clone()).unwrap();
    assert_eq!(sent.checkpoint.org_id, ada.org_id);

    let span = spans(&collector.wait_for_requests(1, WAIT_TIMEOUT).await.remove(0)).remove(0);
    assert_eq!(span.name, "audit checkpoint");
    let told = json!({
        "org_id": text(&span, "gateway.org_id"), "seq": text(&span, "gateway.audit.seq"),
        "hash": text(&span, "gateway.audit.hash"), "at": text(&span, "gateway.audit.at"),
        "signature": text(&span, "gateway.audit.signature"), "key_id": text(&span, "gateway.audit.key_id"),
    });
    assert_eq!(told, stored[0]);
    for id in [&named, &spanned] {
        app.export_status(&ada, id, "delivered", |status| status["delivered"] == 1 && status["lag"] == 0)
            .await;
    }

    // Rows reach the exports of their sources as before.
    app.write(&[row(&ada, app.app.services.clock.now())]).await;
    app.export_status(&ada, &default, "delivered", |status| status["delivered"] == 1).await;
    app.export_status(&ada, &spanned, "delivered", |status| status["delivered"] == 2).await;
    assert_eq!((traces(&usual.requests()).len(), checkpoints(&usual).len()), (1, 0));
    assert_eq!(hook.requests().len(), 1);
});

on_both!(a_checkpoint_waits_for_its_destination_and_is_sent_again_under_the_same_id, |app| async move {
    let ada = app.enterprise("acme").await;
    let hook = receiver(Reply::new(200)).await;
    hook.push(Reply::new(503));
    let id = app.export(&ada, &with_sources(webhook(&hook), "hook", &["audit"])).await;
    let first = signed(&app, &ada).await;
    app.export_status(&ada, &id, "delivered", |status| status["delivered"] == 1 && status["failed"] == 1)
        .await;
    let tries: Vec<Value> = hook.requests().iter().map(|request| request.json()["id"].clone()).collect();
    assert_eq!((tries.len(), &tries[0]), (2, &tries[1]));

    // A paused export gets nothing of the pause.
    let path = format!("/api/v1/exports/{id}");
    app.put(&path, json!({"enabled": false})).bearer(&ada.token).send().await.expect(200);
    app.app.services.clock.advance(2 * HOUR);
    assert_eq!(signed(&app, &ada).await.as_array().unwrap().len(), 2);
    app.put(&path, json!({"enabled": true})).bearer(&ada.token).send().await.expect(200);
    app.app.services.clock.advance(2 * HOUR);
    let all = signed(&app, &ada).await;
    app.export_status(&ada, &id, "delivered", |status| status["delivered"] == 2 && status["lag"] == 0).await;
    let arrived = checkpoints(&hook);
    assert_eq!(arrived, [first[0].clone(), first[0].clone(), all[2].clone()]);
});
