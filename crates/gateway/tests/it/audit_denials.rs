//! Every refused change leaves an entry, and a change without its entry does not happen.

use gateway_core::audit::{Outcome, routes};
use serde_json::json;

use crate::audit::{assert_intact, chain_of, last_seq, wait_for};
use crate::on_both;
use crate::support::routes::{fill_params, routes as all_routes};

on_both!(every_refused_change_leaves_a_denied_entry, |app| async move {
    let owner = app.signup("acme").await;
    let path = format!("/api/v1/orgs/{}", owner.org_id);
    app.put(&path, json!({"plan": "enterprise"})).bearer(&owner.token).send().await.expect(200);
    let viewer = app.join(&owner, "viewer").await;
    let mut refused = 0;
    for route in all_routes() {
        let Some(known) = routes::find(route.method.as_str(), route.path.trim_start_matches("/api/v1"))
        else {
            continue;
        };
        // Every member may leave.
        if route.role.is_none_or(|role| role == gateway_core::access::Role::Viewer) {
            continue;
        }
        let path = fill_params(&route.path, |param| match param {
            "orgId" => owner.org_id.clone(),
            "name" => "absent".to_owned(),
            "evalId" | "runId" | "replayId" => "4711".to_owned(),
            _ => uuid::Uuid::new_v4().to_string(),
        });
        let before = last_seq(&app, &owner.org_id).await;
        app.call(route.method.clone(), &path)
            .bearer(&viewer.token)
            .send()
            .await
            .expect_error(403, "forbidden");
        let entry = wait_for(&app, &owner.org_id, before, known.action).await.entry;
        assert_eq!((entry.outcome, entry.status), (Outcome::Denied, Some(403)), "{}", known.route);
        assert_eq!(entry.actor.id.as_deref(), Some(viewer.user_id.as_str()));
        assert_eq!(entry.target.kind, known.target);
        assert_eq!(entry.target.id.is_some(), !known.id.is_empty(), "{}", known.route);
        assert!(entry.reason.is_some_and(|reason| reason.contains("requires the role")));
        refused += 1;
    }
    assert!(refused > 40, "only {refused} routes: the table was not walked");
    assert_intact(&app, chain_of(&owner.org_id)).await;
});

on_both!(a_change_whose_entry_cannot_be_written_does_not_happen, |app| async move {
    let owner = app.signup("acme").await;
    app.app.services.db.exec("ALTER TABLE audit_entries RENAME TO elsewhere", Vec::new()).await.unwrap();
    let new = json!({"name": "unrecorded"});
    app.post("/api/v1/keys", new.clone()).bearer(&owner.token).send().await.expect_error(500, "internal");
    app.app.services.db.exec("ALTER TABLE elsewhere RENAME TO audit_entries", Vec::new()).await.unwrap();
    let keys = app.get("/api/v1/keys").bearer(&owner.token).send().await;
    assert!(!keys.text().contains("unrecorded"), "{}", keys.text());
    app.post("/api/v1/keys", new).bearer(&owner.token).send().await.expect(201);
    assert_intact(&app, chain_of(&owner.org_id)).await;
});
