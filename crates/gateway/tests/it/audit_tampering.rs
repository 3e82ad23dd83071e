//! Changes of the stored audit log behind the gateway's back are found, with the entry and the reason.

use serde_json::{Value, json};

use crate::on_both;
use crate::support::{Account, TestApp};

async fn with_entries(app: &TestApp, count: usize) -> Account {
    let ada = app.signup("acme").await;
    for index in 1..count {
        let body = json!({"name": format!("key {index}")});
        app.post("/api/v1/keys", body).bearer(&ada.token).send().await.expect(201);
    }
    ada
}

async fn sql(app: &TestApp, statement: &'static str) {
    app.app.services.db.exec(statement, Vec::new()).await.unwrap();
}

async fn verify(app: &TestApp, ada: &Account, body: Value) -> Value {
    let path = format!("/api/v1/orgs/{}/audit/verify", ada.org_id);
    app.post(&path, body).bearer(&ada.token).send().await.expect(200)
}

/// Tampers, and expects the first bad entry.
async fn expect_bad(app: &TestApp, statements: &[&'static str], seq: i64, why: &str) {
    let ada = with_entries(app, 7).await;
    for statement in statements {
        sql(app, statement).await;
    }
    let found = verify(app, &ada, json!({})).await;
    assert_eq!(found["ok"], false, "{found}");
    assert_eq!(found["first_bad"], json!({"seq": seq, "why": why}), "{found}");
}

macro_rules! tampering {
    ($($name:ident: $statements:expr => $seq:literal, $why:literal;)+) => {$(
        on_both!($name, |app| async move {
            expect_bad(&app, &$statements, $seq, $why).await;
        });
    )+};
}
tampering! {
    a_changed_entry: ["UPDATE audit_entries SET body = REPLACE(body, 'key 2', 'key 9') WHERE seq = 3"] => 3, "hash";
    a_changed_column: ["UPDATE audit_entries SET actor_id = 'somebody' WHERE seq = 4"] => 4, "hash";
    a_changed_hash: ["UPDATE audit_entries SET hash = SUBSTR(hash, 2) || SUBSTR(hash, 1, 1) WHERE seq = 2"] => 2, "hash";
    a_deleted_entry: ["DELETE FROM audit_entries WHERE seq = 4 AND org_id <> 'system'"] => 4, "gap";
    the_first_entry_deleted: ["DELETE FROM audit_entries WHERE seq = 1 AND org_id <> 'system'"] => 1, "gap";
    the_last_entries_deleted: ["DELETE FROM audit_entries WHERE seq > 5"] => 6, "gap";
    an_entry_inserted_behind_the_head: [
        "INSERT INTO audit_entries (org_id, seq, id, at, actor_id, action, target_type, target_id, outcome, body, hash) \
         SELECT org_id, 8, id, at + 1, actor_id, action, target_type, target_id, outcome, body, hash \
         FROM audit_entries WHERE seq = 7"
    ] => 8, "link";
    an_entry_inserted_in_the_middle: [
        "UPDATE audit_entries SET seq = seq + 100 WHERE seq > 3 AND org_id <> 'system'",
        "INSERT INTO audit_entries (org_id, seq, id, at, actor_id, action, target_type, target_id, outcome, body, hash) \
         SELECT org_id, 4, id, at, actor_id, action, target_type, target_id, outcome, body, hash \
         FROM audit_entries WHERE seq = 3",
        "UPDATE audit_entries SET seq = seq - 99 WHERE seq > 100"
    ] => 4, "link";
    two_entries_swapped: [
        "UPDATE audit_entries SET seq = 100 WHERE seq = 3",
        "UPDATE audit_entries SET seq = 3 WHERE seq = 4",
        "UPDATE audit_entries SET seq = 4 WHERE seq = 100"
    ] => 3, "link";
    the_head_rolled_back: [
        "UPDATE audit_heads SET seq = 4, hash = (SELECT hash FROM audit_entries WHERE seq = 4) WHERE org_id <> 'system'"
    ] => 5, "link";
    the_head_rewritten: ["UPDATE audit_heads SET hash = SUBSTR(hash, 2) || SUBSTR(hash, 1, 1) WHERE org_id <> 'system'"] => 7, "link";
}

on_both!(an_intact_log_is_verified, |app| async move {
    let ada = with_entries(&app, 7).await;
    let found = verify(&app, &ada, json!({})).await;
    assert_eq!(
        (&found["ok"], &found["checked"], &found["first_bad"]),
        (&json!(true), &json!(7), &Value::Null)
    );
    assert_eq!(found["head"]["seq"], 7);
});

on_both!(a_part_of_the_log_is_verified, |app| async move {
    let ada = with_entries(&app, 6).await;
    sql(&app, "UPDATE audit_entries SET body = REPLACE(body, 'key 1', 'key 9') WHERE seq = 2").await;
    let found = verify(&app, &ada, json!({"from_seq": 3})).await;
    assert_eq!((&found["ok"], &found["checked"]), (&json!(true), &json!(4)), "{found}");
    let found = verify(&app, &ada, json!({"to_seq": 1})).await;
    assert_eq!((&found["ok"], &found["checked"]), (&json!(true), &json!(1)), "{found}");
    let found = verify(&app, &ada, json!({"from_seq": 2, "to_seq": 2})).await;
    assert_eq!(found["first_bad"], json!({"seq": 2, "why": "hash"}));
    let path = format!("/api/v1/orgs/{}/audit/verify", ada.org_id);
    let bad = app.post(&path, json!({"from_seq": 0})).bearer(&ada.token).send().await;
    bad.expect_error(400, "bad_request");
});
