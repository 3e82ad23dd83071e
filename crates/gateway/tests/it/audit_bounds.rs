//! What one organization may do with its audit log at the same time, and that the trouble of one does not touch another.

use std::time::Duration;

use gateway::audit::system_entry;
use gateway_core::audit::{Chain, Outcome, Target};
use gateway_core::ids::OrgId;
use serde_json::json;

use crate::on_both;
use crate::support::{Account, TestApp};

fn org(account: &Account) -> OrgId {
    account.org_id.parse().unwrap()
}

fn path(account: &Account, rest: &str) -> String {
    format!("/api/v1/orgs/{}/audit{rest}", account.org_id)
}

on_both!(an_organization_verifies_once_at_a_time_and_has_a_bounded_number_of_streams, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let shares = &app.app.shares;
    let running = shares.verifications.acquire(org(&ada), None).await.unwrap();
    let verify =
        async |of: &Account| app.post(&path(of, "/verify"), json!({})).bearer(&of.token).send().await;
    verify(&ada).await.expect_error(409, "conflict");
    verify(&eve).await.expect(200);
    drop(running);
    verify(&ada).await.expect(200);

    let mut open = Vec::new();
    for _ in 0..10 {
        open.push(shares.audit_streams.acquire(org(&ada), None).await.unwrap());
    }
    let refused = app.get(&path(&ada, "/stream")).bearer(&ada.token).send().await;
    refused.expect_error(429, "too_many_streams");
    assert!(shares.audit_streams.acquire(org(&eve), None).await.is_ok());
});

on_both!(an_export_waits_for_the_queries_of_its_own_organization_only, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let queries = &app.app.shares.queries;
    let busy =
        (queries.acquire(org(&ada), None).await.unwrap(), queries.acquire(org(&ada), None).await.unwrap());
    let export = async |of: &Account| app.get(&path(of, "/export")).bearer(&of.token).send().await;
    assert!(export(&eve).await.text().contains("\"manifest\""));
    let waiting = export(&ada);
    tokio::pin!(waiting);
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut waiting).await.is_err());
    drop(busy);
    assert!(waiting.await.text().contains("\"manifest\""));
});

async fn denials(app: &TestApp, of: &Account) -> usize {
    let list = app.get(&path(of, "?action=key.update")).bearer(&of.token).send().await.expect(200);
    list["entries"].as_array().unwrap().len()
}

on_both!(a_chain_that_cannot_be_written_does_not_lose_the_entries_of_others, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let sql = "UPDATE audit_heads SET hash = 'damaged' WHERE org_id = $1";
    app.app.services.db.exec(sql, vec![ada.org_id.as_str().into()]).await.unwrap();
    for account in [&ada, &eve, &ada, &eve] {
        let target = Target { kind: "key".into(), id: Some("k".into()), name: None };
        let mut entry = system_entry(&app.app.services, Chain::Org(org(account)), "key.update", target);
        entry.outcome = Outcome::Denied;
        app.app.audit.push(entry);
    }
    let end = tokio::time::Instant::now() + Duration::from_secs(10);
    while denials(&app, &eve).await < 2 {
        assert!(tokio::time::Instant::now() < end, "the entries are lost");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(denials(&app, &ada).await, 0);
});
