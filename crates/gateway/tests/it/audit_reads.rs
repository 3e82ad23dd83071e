//! Reading the audit log: who may, filters, pages, the live stream; and entries about reads and failed logins.

use std::time::Duration;

use serde_json::{Value, json};

use crate::on_both;
use crate::support::Cluster;
use crate::support::log_rows::row;
use crate::support::{Account, PASSWORD, TestApp, TestResponse};

fn audit(account: &Account, rest: &str) -> String {
    format!("/api/v1/orgs/{}/audit{rest}", account.org_id)
}

async fn list(app: &TestApp, account: &Account, query: &str) -> Value {
    app.get(&audit(account, query)).bearer(&account.token).send().await.expect(200)
}

fn actions(list: &Value) -> Vec<&str> {
    list["entries"].as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap()).collect()
}

async fn create_key(app: &TestApp, by: &Account, name: &str) -> Value {
    app.post("/api/v1/keys", json!({"name": name})).bearer(&by.token).send().await.expect(201)
}

async fn set(app: &TestApp, owner: &Account, settings: Value) -> TestResponse {
    let path = format!("/api/v1/orgs/{}", owner.org_id);
    app.put(&path, json!({"settings": settings})).bearer(&owner.token).send().await
}

/// Waits until the list has this many entries.
async fn wait_for(app: &TestApp, owner: &Account, query: &str, count: usize) -> Value {
    let end = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let found = list(app, owner, query).await;
        if found["entries"].as_array().unwrap().len() == count {
            return found;
        }
        assert!(tokio::time::Instant::now() < end, "{query}: {found}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

on_both!(entries_are_listed_newest_first_with_filters_and_pages, |app| async move {
    let ada = app.signup("acme").await;
    set(&app, &ada, json!({"audit_reads": "off"})).await.expect(200);
    let key = create_key(&app, &ada, "First_100%").await;
    create_key(&app, &ada, "second").await;
    let id = key["key"]["id"].as_str().unwrap();
    app.delete(&format!("/api/v1/keys/{id}")).bearer(&ada.token).send().await.expect(200);

    let all = list(&app, &ada, "").await;
    assert_eq!(actions(&all), ["key.revoke", "key.create", "key.create", "settings.update", "org.create"]);
    assert_eq!(all["entries"][0]["seq"], 5);
    assert_eq!(all["entries"][0]["prev_hash"], all["entries"][1]["hash"]);
    assert_eq!(all["entries"][0]["target"], json!({"type": "key", "id": id, "name": "First_100%"}));
    assert_eq!(all["entries"][0]["actor"]["name"], ada.email.as_str());

    assert_eq!(actions(&list(&app, &ada, "?action=key.*").await).len(), 3);
    assert_eq!(actions(&list(&app, &ada, "?action=key.create").await).len(), 2);
    assert_eq!(actions(&list(&app, &ada, "?action=key.c_eate*").await).len(), 0);
    let history = list(&app, &ada, &format!("?target_type=key&target_id={id}")).await;
    assert_eq!(actions(&history), ["key.revoke", "key.create"]);
    assert_eq!(actions(&list(&app, &ada, "?q=SECOND").await), ["key.create"]);
    assert_eq!(actions(&list(&app, &ada, "?q=first_100%25").await).len(), 2);
    assert_eq!(actions(&list(&app, &ada, &format!("?actor={}", ada.user_id)).await).len(), 5);
    assert_eq!(actions(&list(&app, &ada, "?outcome=denied").await).len(), 0);
    assert_eq!(actions(&list(&app, &ada, "?after_seq=3").await).len(), 2);
    let at = all["entries"][0]["at"].as_str().unwrap();
    assert_eq!(
        actions(&list(&app, &ada, &format!("?to={at}")).await).iter().filter(|a| **a == "key.revoke").count(),
        0
    );
    assert!(!actions(&list(&app, &ada, &format!("?from={at}")).await).is_empty());
    let first = list(&app, &ada, "?limit=2").await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = list(&app, &ada, &format!("?limit=2&cursor={cursor}")).await;
    assert_eq!(actions(&second), ["key.create", "settings.update"]);

    let one = &all["entries"][1];
    let path = audit(&ada, &format!("/{}", one["id"].as_str().unwrap()));
    assert_eq!(app.get(&path).bearer(&ada.token).send().await.expect(200), *one);
    let head = app.get(&audit(&ada, "/head")).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&head["seq"], &head["hash"]), (&all["entries"][0]["seq"], &all["entries"][0]["hash"]));
    let missing = audit(&ada, &format!("/{}", uuid::Uuid::new_v4()));
    app.get(&missing).bearer(&ada.token).send().await.expect_error(404, "not_found");
});

on_both!(admins_and_named_auditors_read_the_log, |app| async move {
    let ada = app.signup("acme").await;
    let viewer = app.join(&ada, "viewer").await;
    let eve = app.signup("other").await;
    app.get(&audit(&ada, "")).bearer(&viewer.token).send().await.expect_error(403, "forbidden");
    app.get(&audit(&ada, "")).bearer(&eve.token).send().await.expect_error(404, "not_found");
    // The refused read is an entry itself.
    let denied = wait_for(&app, &ada, "?outcome=denied", 1).await;
    assert_eq!(denied["entries"][0]["action"], "access.read");
    assert_eq!(denied["entries"][0]["target"]["id"], "/orgs/{orgId}/audit");

    set(&app, &ada, json!({"auditors": [eve.user_id]})).await.expect_error(400, "bad_request");
    set(&app, &ada, json!({"auditors": [viewer.user_id]})).await.expect(200);
    let read = app.get(&audit(&ada, "")).bearer(&viewer.token).send().await.expect(200);
    assert!(!read["entries"].as_array().unwrap().is_empty());
    app.post(&audit(&ada, "/verify"), json!({})).bearer(&viewer.token).send().await.expect(200);
    app.get("/api/v1/keys").bearer(&viewer.token).send().await.expect(200);
    set(&app, &ada, json!({"auditors": []})).await.expect(200);
    app.get(&audit(&ada, "")).bearer(&viewer.token).send().await.expect_error(403, "forbidden");
});

on_both!(reads_of_conversations_and_failed_logins_are_recorded, |app| async move {
    let ada = app.signup("acme").await;
    let log = row(&ada, app.app.services.clock.now());
    app.write(std::slice::from_ref(&log)).await;
    let path = format!("/api/v1/logs/{}", log.id);
    app.get(&path).key(&ada.api_key).send().await.expect(200);
    app.get(&path).bearer(&ada.token).send().await.expect(200);
    let read = wait_for(&app, &ada, "?action=log.read_bodies", 1).await;
    assert_eq!(read["entries"][0]["target"]["id"], log.id.to_string());
    assert_eq!(read["entries"][0]["actor"]["type"], "user");
    set(&app, &ada, json!({"audit_reads": "all"})).await.expect(200);
    app.get(&path).key(&ada.api_key).send().await.expect(200);
    wait_for(&app, &ada, "?action=log.read_bodies", 2).await;

    app.login(&ada.email, "wrong password").await.expect_error(401, "unauthorized");
    app.login("nobody@example.com", PASSWORD).await.expect_error(401, "unauthorized");
    let failed = wait_for(&app, &ada, "?action=auth.login_failed", 1).await;
    assert_eq!(failed["entries"][0]["outcome"], "failed");
    assert_eq!(failed["entries"][0]["target"]["name"], ada.email.as_str());
});

on_both!(a_key_that_calls_outside_its_scopes_leaves_one_entry_an_hour, |app| async move {
    let ada = app.signup("acme").await;
    let limited = json!({"name": "limited", "scopes": ["provider:anthropic"]});
    let limited = app.post("/api/v1/keys", limited).bearer(&ada.token).send().await.expect(201);
    for _ in 0..3 {
        app.post("/v1/chat/completions", json!({"model": "m", "messages": []}))
            .header("x-gateway-provider", "sandbox")
            .key(limited["raw_key"].as_str().unwrap())
            .send()
            .await
            .expect_error(403, "scope_denied");
    }
    let denied = wait_for(&app, &ada, "?action=scope_denied", 1).await;
    assert_eq!(denied["entries"][0]["actor"]["name"], "limited");
    assert_eq!(denied["entries"][0]["target"]["id"], limited["key"]["id"]);
});

on_both!(
    a_refused_use_of_the_operators_credential_leaves_one_entry_an_hour,
    [("GATEWAY_PROVIDER_OPENAI_API_KEY", "sk-operator")],
    |app| async move {
        let ada = app.signup("acme").await;
        for _ in 0..2 {
            let files = app.get("/v1/files").header("x-gateway-provider", "openai").key(&ada.api_key);
            files.send().await.expect_error(403, "forbidden");
        }
        let denied = wait_for(&app, &ada, "?action=credential.use_denied", 1).await;
        assert_eq!(denied["entries"][0]["target"]["id"], "openai");
        assert_eq!(denied["entries"][0]["actor"]["type"], "key");
    }
);

on_both!(a_stream_delivers_entries_and_resumes, |app| async move {
    let ada = app.signup("acme").await;
    let head = app.get(&audit(&ada, "/head")).bearer(&ada.token).send().await.expect(200);
    let path = audit(&ada, "/stream?action=key.*");
    let mut events = app.get(&path).bearer(&ada.token).open().await;
    create_key(&app, &ada, "one").await;
    let event = events.next().await.unwrap();
    let entry: Value = serde_json::from_str(&event.data).unwrap();
    assert_eq!((event.name.as_str(), entry["target"]["name"].as_str()), ("entry", Some("one")));
    assert_eq!(event.id, entry["seq"].to_string());
    drop(events);
    create_key(&app, &ada, "two").await;
    let mut events = app.get(&path).bearer(&ada.token).header("last-event-id", &event.id).open().await;
    assert!(events.next().await.unwrap().data.contains("\"two\""));
    let path = audit(&ada, &format!("/stream?after_seq={}", head["seq"]));
    let mut events = app.get(&path).bearer(&ada.token).open().await;
    assert_eq!(events.next().await.unwrap().id, (head["seq"].as_i64().unwrap() + 1).to_string());
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_changes_on_two_nodes_are_one_gapless_chain() {
    let cluster = Cluster::start(2, &[]).await;
    let create = |index: usize| {
        let request = cluster.manage(index % 2, http::Method::POST, "/api/v1/keys");
        request.json(json!({"name": format!("key {index}")})).send()
    };
    for group in 0..10 {
        let made = futures_util::future::join_all((0..20).map(|index| create(group * 20 + index))).await;
        for answer in made {
            answer.expect(201);
        }
    }
    let path = cluster.in_org("/audit/verify");
    let verified = cluster.manage(1, http::Method::POST, &path).json(json!({})).send().await.expect(200);
    assert_eq!((&verified["ok"], &verified["first_bad"]), (&json!(true), &Value::Null), "{verified}");
    assert_eq!(verified["head"]["seq"], 201);
    assert_eq!(verified["checked"], 201);
}
