//! Signed checkpoints, exports and their offline verification, and retention.

use std::collections::BTreeMap;

use gateway::audit::signing::verifies;
use gateway::audit::{offline, system_entry};
use gateway_core::audit::checkpoint::SignedCheckpoint;
use gateway_core::audit::{Chain, Target};
use gateway_core::time::DAY;
use gateway_store::audit::{self, Filter};
use serde_json::{Value, json};

use crate::on_both;
use crate::support::skills::ENTERPRISE;
use crate::support::{Account, TestApp};

async fn get(app: &TestApp, ada: &Account, rest: &str) -> crate::support::TestResponse {
    app.get(&format!("/api/v1/orgs/{}/audit{rest}", ada.org_id)).bearer(&ada.token).send().await
}

async fn verify(app: &TestApp, ada: &Account, body: Value) -> Value {
    let path = format!("/api/v1/orgs/{}/audit/verify", ada.org_id);
    app.post(&path, body).bearer(&ada.token).send().await.expect(200)
}

async fn create_keys(app: &TestApp, ada: &Account, count: usize) {
    for index in 0..count {
        let body = json!({"name": format!("key {index} \u{20ac}")});
        app.post("/api/v1/keys", body).bearer(&ada.token).send().await.expect(201);
    }
}

async fn public_keys(app: &TestApp, ada: &Account) -> BTreeMap<String, String> {
    let keys = app.get("/api/v1/audit/keys").key(&ada.api_key).send().await.expect(200);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    keys["keys"].as_array().unwrap().iter().map(|key| (text(&key["id"]), text(&key["public_key"]))).collect()
}

on_both!(an_export_verifies_offline_and_every_change_of_it_is_found, |app| async move {
    let ada = app.signup("acme").await;
    create_keys(&app, &ada, 5).await;
    let exported = get(&app, &ada, "/export").await;
    assert_eq!(exported.status, 200);
    let text = exported.text();
    assert_eq!(text.lines().count(), 7);
    let keys = public_keys(&app, &ada).await;
    let manifest: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let key = &keys[manifest["manifest"]["key_id"].as_str().unwrap()];
    let said = offline::verify(text.as_bytes(), Some(key), &mut |_| ()).unwrap();
    assert!(said.starts_with("intact: 6 entries, 1 to 6; signed by key "), "{said}");

    let lines: Vec<&str> = text.lines().collect();
    let without = |index: usize| {
        let mut lines = lines.clone();
        lines.remove(index);
        lines.join("\n")
    };
    assert!(
        offline::verify(without(2).as_bytes(), None, &mut |_| ())
            .unwrap_err()
            .starts_with("entry 3: it is missing")
    );
    assert!(
        offline::verify(without(6).as_bytes(), None, &mut |_| ())
            .unwrap_err()
            .contains("manifest is missing")
    );
    let changed = text.replace("key 1 ", "key 9 ");
    assert!(
        offline::verify(changed.as_bytes(), None, &mut |_| ())
            .unwrap_err()
            .starts_with("entry 3: its content")
    );
    let other_key = "A".repeat(43) + "=";
    let wrong = offline::verify(text.as_bytes(), Some(&other_key), &mut |_| ()).unwrap_err();
    assert!(wrong.contains("(checkpoint)"), "{wrong}");

    for (format, kind) in [("ocsf", "ndjson"), ("ecs", "ndjson"), ("csv", "csv"), ("syslog", "plain")] {
        let other = get(&app, &ada, &format!("/export?format={format}")).await;
        assert!(other.header("content-type").unwrap().contains(kind), "{format}");
        assert!(other.text().lines().count() >= 6, "{format}");
        assert!(other.text().contains("key.create"));
    }
    get(&app, &ada, "/export?format=xml").await.expect_error(400, "bad_request");
    let end = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        let found = get(&app, &ada, "?action=audit.export").await.expect(200);
        if found["entries"].as_array().unwrap().len() == 5 {
            break;
        }
        assert!(tokio::time::Instant::now() < end, "{found}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
});

on_both!(
    a_checkpoint_is_signed_sent_to_webhooks_that_name_it_and_finds_a_cut_log,
    ENTERPRISE,
    |app| async move {
        let ada = app.signup("acme").await;
        let path = format!("/api/v1/orgs/{}", ada.org_id);
        app.put(&path, json!({"plan": "enterprise"})).bearer(&ada.token).send().await.expect(200);
        let hook = async |events: Value| {
            let body = json!({"url": "http://127.0.0.1:9/hook", "events": events});
            app.post("/api/v1/webhooks", body).bearer(&ada.token).send().await.expect(201)["id"].clone()
        };
        let (named, all) = (hook(json!(["audit.checkpoint"])).await, hook(json!([])).await);
        app.app.audit.pass().await.unwrap();
        let found = get(&app, &ada, "/checkpoints").await.expect(200);
        let first: SignedCheckpoint = serde_json::from_value(found["checkpoints"][0].clone()).unwrap();
        let keys = public_keys(&app, &ada).await;
        assert!(verifies(&keys[&first.key_id], &first.checkpoint, &first.signature));
        let deliveries = async |hook: &Value| {
            let path = format!("/api/v1/webhooks/{}/deliveries", hook.as_str().unwrap());
            let list = app.get(&path).bearer(&ada.token).send().await.expect(200);
            list["deliveries"].as_array().unwrap().clone()
        };
        let sent = deliveries(&named).await;
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0]["payload"]["data"], found["checkpoints"][0]);
        assert!(deliveries(&all).await.is_empty());

        // Nothing is due again within the hour.
        create_keys(&app, &ada, 2).await;
        app.app.audit.pass().await.unwrap();
        assert_eq!(
            get(&app, &ada, "/checkpoints").await.expect(200)["checkpoints"].as_array().unwrap().len(),
            1
        );
        let kept = found["checkpoints"][0].clone();
        let intact = verify(&app, &ada, json!({"checkpoint": kept})).await;
        assert_eq!((&intact["ok"], &intact["first_bad"]), (&json!(true), &Value::Null));
        let mut forged = kept.clone();
        forged["seq"] = json!(2);
        let path = format!("/api/v1/orgs/{}/audit/verify", ada.org_id);
        let refused = app.post(&path, json!({"checkpoint": forged})).bearer(&ada.token).send().await;
        refused.expect_error(400, "bad_request");

        // The entry of the verification is written behind its response.
        let end = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
        while get(&app, &ada, "/head").await.expect(200)["seq"] != 7 {
            assert!(tokio::time::Instant::now() < end, "the verification left no entry");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }

        // The newest entries are cut off, and the head with them.
        let seq = first.checkpoint.seq;
        for sql in [
            "DELETE FROM audit_entries WHERE seq > 2 AND org_id <> 'system'",
            "UPDATE audit_heads SET seq = 2, hash = (SELECT hash FROM audit_entries e WHERE e.seq = 2 \
         AND e.org_id = audit_heads.org_id) WHERE org_id <> 'system'",
        ] {
            app.app.services.db.exec(sql, Vec::new()).await.unwrap();
        }
        let cut = verify(&app, &ada, json!({})).await;
        assert_eq!(cut["first_bad"], json!({"seq": seq, "why": "checkpoint"}), "{cut}");
        // A restored backup has no newer checkpoint either: one that was kept elsewhere finds it.
        app.app.services.db.exec("DELETE FROM audit_checkpoints", Vec::new()).await.unwrap();
        assert_eq!(verify(&app, &ada, json!({})).await["ok"], true);
        let restored = verify(&app, &ada, json!({"checkpoint": kept})).await;
        assert_eq!(restored["first_bad"], json!({"seq": seq, "why": "checkpoint"}), "{restored}");
    }
);

on_both!(retention_removes_the_oldest_entries_and_leaves_an_anchor, |app| async move {
    let ada = app.signup("acme").await;
    let path = format!("/api/v1/orgs/{}", ada.org_id);
    let set = async |days: i64| {
        let body = json!({"settings": {"audit_retention_days": days}});
        app.put(&path, body).bearer(&ada.token).send().await
    };
    set(29).await.expect_error(400, "bad_request");
    set(3651).await.expect_error(400, "bad_request");
    set(30).await.expect(200);
    create_keys(&app, &ada, 3).await;
    app.app.services.clock.advance(31 * DAY);
    let login = app.login(&ada.email, crate::support::PASSWORD).await.expect(200);
    let ada = Account { token: login["token"].as_str().unwrap().to_owned(), ..ada };
    create_keys(&app, &ada, 2).await;
    app.app.audit.pass().await.unwrap();
    let list = get(&app, &ada, "?after_seq=0").await.expect(200);
    let seqs: Vec<i64> =
        list["entries"].as_array().unwrap().iter().map(|entry| entry["seq"].as_i64().unwrap()).collect();
    assert_eq!((seqs.last(), list["entries"][0]["action"].as_str()), (Some(&6), Some("audit.retention")));
    let anchor = get(&app, &ada, "/checkpoints").await.expect(200)["anchor"].clone();
    assert_eq!(anchor["seq"], 5);
    let verified = verify(&app, &ada, json!({})).await;
    assert_eq!((&verified["ok"], &verified["first_bad"]), (&json!(true), &Value::Null), "{verified}");
    let exported = get(&app, &ada, "/export").await.text();
    assert!(offline::verify(exported.as_bytes(), None, &mut |_| ()).unwrap().starts_with("intact: "));
    // The entry after the anchor is missing too.
    app.app.services.db.exec("DELETE FROM audit_entries WHERE seq = 6", Vec::new()).await.unwrap();
    assert_eq!(verify(&app, &ada, json!({})).await["first_bad"], json!({"seq": 6, "why": "gap"}));
});

on_both!(
    the_operator_limits_how_long_entries_are_kept,
    [("GATEWAY_AUDIT_RETENTION_DAYS", "40")],
    |app| async move {
        let ada = app.signup("acme").await;
        let path = format!("/api/v1/orgs/{}", ada.org_id);
        let body = json!({"settings": {"audit_retention_days": 41}});
        let refused = app.put(&path, body).bearer(&ada.token).send().await.expect_error(400, "bad_request");
        assert!(refused["message"].as_str().unwrap().contains("between 30 and 40"), "{refused}");
        create_keys(&app, &ada, 3).await;
        let last = get(&app, &ada, "/head").await.expect(200)["seq"].as_i64().unwrap();
        app.app.services.clock.advance(41 * DAY);
        // By default an organization keeps its entries for a year.
        app.app.audit.pass().await.unwrap();
        let login = app.login(&ada.email, crate::support::PASSWORD).await.expect(200);
        let ada = Account { token: login["token"].as_str().unwrap().to_owned(), ..ada };
        let anchor = get(&app, &ada, "/checkpoints").await.expect(200)["anchor"].clone();
        assert!(anchor["seq"].as_i64() >= Some(last), "{anchor}");
        assert_eq!(verify(&app, &ada, json!({})).await["ok"], true);
    }
);

on_both!(entries_are_read_in_pages_of_bounded_size, |app| async move {
    let ada = app.signup("acme").await;
    let (services, chain) = (&app.app.services, Chain::Org(ada.org_id.parse().unwrap()));
    let large: BTreeMap<String, String> =
        (0..500).map(|n| (format!("field-{n}"), "x".repeat(4_000))).collect();
    for _ in 0..4 {
        let target = Target { kind: "key".into(), id: None, name: None };
        let entry = system_entry(services, chain, "key.create", target).created(&json!(large));
        audit::write(&services.db, vec![entry]).await.unwrap();
    }
    let page = audit::since(&services.db, chain, &Filter::default(), (0, 5), 500).await.unwrap();
    assert!(page.found.len() < 5 && page.has_more && page.bytes < 5 << 20, "{}", page.found.len());
    let seqs: Vec<i64> = page.found.iter().map(|stored| stored.entry.seq).collect();
    assert_eq!(seqs, (1..=i64::try_from(seqs.len()).unwrap()).collect::<Vec<_>>());
    let rest = audit::since(&services.db, chain, &Filter::default(), (4, 5), 500).await.unwrap();
    assert_eq!((rest.found.len(), rest.has_more), (1, false));
    let exported = get(&app, &ada, "/export").await.text();
    assert!(
        offline::verify(exported.as_bytes(), None, &mut |_| ())
            .unwrap()
            .starts_with("intact: 5 entries, 1 to 5")
    );
    let verified = verify(&app, &ada, json!({})).await;
    assert_eq!(
        (&verified["ok"], verified["checked"].as_i64() >= Some(5)),
        (&json!(true), true),
        "{verified}"
    );
});
