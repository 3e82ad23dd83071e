//! The end of a key: immediate revocation, rotation with its overlap, and the events of both.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::on_both;
use crate::support::TestApp;
use crate::support::assertions::{assert_field_error, assert_unauthorized, assert_uuid_v7, fields, time};

const HOUR: i64 = 3_600_000;
const ME: &str = "/api/v1/auth/entitlements";

async fn rotate(app: &TestApp, token: &str, id: &str, body: Value) -> crate::support::TestResponse {
    app.post(&format!("/api/v1/keys/{id}/rotate"), body).bearer(token).send().await
}

on_both!(a_revoked_key_is_dead_on_the_next_request, |app| async move {
    let ada = app.signup("acme").await;
    let key = app.create_key(&ada.token, json!({"name": "x"})).await;
    // Cached in memory, then revoked.
    for _ in 0..3 {
        assert_eq!(app.status_with_key(&key.raw).await, 200);
    }
    let revoked = app.delete(&key.path()).bearer(&ada.token).send().await;
    assert_eq!(revoked.expect(200), json!({"revoked": true}));
    assert_unauthorized(&app.get(ME).key(&key.raw).send().await);
    let shown = app.get(&key.path()).bearer(&ada.token).send().await.expect(200);
    let at = time(&shown["revoked_at"]);
    assert!((app.app.services.clock.now().0 - at).abs() < 5_000);

    // Revoking again changes nothing, and an update does not restore the key.
    app.app.services.clock.advance(1_000);
    let again = app.delete(&key.path()).bearer(&ada.token).send().await;
    assert_eq!(again.expect(200), json!({"revoked": true}));
    app.put(&key.path(), json!({"name": "y"})).bearer(&ada.token).send().await.expect(200);
    let shown = app.get(&key.path()).bearer(&ada.token).send().await.expect(200);
    assert_eq!(time(&shown["revoked_at"]), at);
    assert_unauthorized(&app.get(ME).key(&key.raw).send().await);
    // A key may revoke itself.
    let own = app.create_key(&ada.token, json!({"name": "own"})).await;
    app.delete(&own.path()).key(&own.raw).send().await.expect(200);
    assert_unauthorized(&app.delete(&own.path()).key(&own.raw).send().await);
});

on_both!(no_request_sent_after_a_revocation_gets_through, |app| async move {
    let ada = app.signup("acme").await;
    let key = app.create_key(&ada.token, json!({"name": "x"})).await;
    let (gone, before, late) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    let caller = || async {
        loop {
            let after = gone.load(Ordering::SeqCst);
            let status = app.status_with_key(&key.raw).await;
            assert!(status == 200 || status == 401, "{status}");
            if status == 200 {
                if after { &late } else { &before }.fetch_add(1, Ordering::SeqCst);
            }
            if after {
                return;
            }
        }
    };
    // Renaming forces reloads of the key, so that a load is in progress during the revocation.
    let renamer = async {
        while !gone.load(Ordering::SeqCst) {
            app.put(&key.path(), json!({"name": "y"})).bearer(&ada.token).send().await.expect(200);
        }
    };
    let revoker = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        app.delete(&key.path()).bearer(&ada.token).send().await.expect(200);
        gone.store(true, Ordering::SeqCst);
    };
    tokio::join!(join_all((0..8).map(|_| caller())), renamer, revoker);
    assert!(before.load(Ordering::SeqCst) > 0, "the key was in use");
    assert_eq!(late.load(Ordering::SeqCst), 0, "requests got through after the revocation was answered");
    assert_unauthorized(&app.get(ME).key(&key.raw).send().await);
});

on_both!(a_client_disconnect_during_revocation_does_not_keep_the_key_valid, |app| async move {
    let ada = app.signup("acme").await;
    let mut keys = Vec::new();
    for n in 0..40 {
        let key = app.create_key(&ada.token, json!({"name": format!("key {n}")})).await;
        assert_eq!(app.status_with_key(&key.raw).await, 200);
        keys.push(key);
    }
    // Each client disconnects a little later than the previous one, so that some do during the commit.
    for (n, key) in (0_u32..).zip(&keys) {
        let mut stream = tokio::net::TcpStream::connect(app.address).await.unwrap();
        let (path, token) = (key.path(), &ada.token);
        let request = format!("DELETE {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let sent = Instant::now();
        while sent.elapsed() < Duration::from_micros(50) * n {
            std::hint::spin_loop();
        }
        drop(stream);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut revoked = 0;
    for key in &keys {
        let shown = app.get(&key.path()).bearer(&ada.token).send().await.expect(200);
        if !shown["revoked_at"].is_null() {
            revoked += 1;
            assert_eq!(app.status_with_key(&key.raw).await, 401, "{shown}");
        }
    }
    assert!(revoked > 0, "some of the revocations were carried out");
});

on_both!(a_rotated_key_has_a_successor_and_24_hours_left, |app| async move {
    let ada = app.signup("acme").await;
    let apps = format!("/api/v1/orgs/{}/apps", ada.org_id);
    let of = app.post(&apps, json!({"name": "a"})).bearer(&ada.token).send().await.expect(201)["id"].clone();
    let body = json!({"name": "ci", "scopes": ["provider:openai"], "app_id": of});
    let old = app.create_key(&ada.token, body).await;
    assert_eq!(app.status_with_key(&old.raw).await, 200);

    let now = app.app.services.clock.now().0;
    let rotated = rotate(&app, &ada.token, &old.id, json!({})).await.expect(201);
    assert_eq!(fields(&rotated), ["key", "message", "overlap_hours", "raw_key"]);
    assert_eq!(fields(&rotated["key"]), ["id", "key_prefix"]);
    assert_uuid_v7(&rotated["key"]["id"]);
    assert_eq!(rotated["overlap_hours"], json!(24));
    assert!(rotated["message"].as_str().is_some_and(|message| !message.is_empty()));
    let raw = rotated["raw_key"].as_str().unwrap();
    assert_eq!(rotated["key"]["key_prefix"], raw[..19]);
    assert_ne!(raw, old.raw);

    let path = format!("/api/v1/keys/{}", rotated["key"]["id"].as_str().unwrap());
    let new = app.get(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!(
        (&new["name"], &new["scopes"], &new["app_id"]),
        (&json!("ci"), &json!(["provider:openai"]), &of)
    );
    assert_eq!((&new["expires_at"], &new["revoked_at"]), (&Value::Null, &Value::Null));
    let shown = app.get(&old.path()).bearer(&ada.token).send().await.expect(200);
    let end = time(&shown["expires_at"]);
    assert!((now + 24 * HOUR..now + 24 * HOUR + 5_000).contains(&end), "{shown}");
    assert_eq!(shown["revoked_at"], Value::Null);

    for raw in [raw, &old.raw] {
        assert_eq!(app.status_with_key(raw).await, 200, "both keys work during the overlap");
    }
    app.app.services.clock.advance(end - app.app.services.clock.now().0 - 1_000);
    for raw in [raw, &old.raw] {
        assert_eq!(app.status_with_key(raw).await, 200, "up to its last second");
    }
    app.app.services.clock.advance(end - app.app.services.clock.now().0);
    assert_unauthorized(&app.get(ME).key(&old.raw).send().await);
    assert_eq!(app.status_with_key(raw).await, 200);
});

on_both!(the_overlap_is_0_to_720_hours, |app| async move {
    let ada = app.signup("acme").await;
    let key = app.create_key(&ada.token, json!({"name": "x"})).await;
    for bad in [json!(-1), json!(721), json!(i64::MAX), json!(1.5), json!("24"), json!([1]), json!(1e30)] {
        let answer = rotate(&app, &ada.token, &key.id, json!({"overlap_hours": bad})).await;
        assert_field_error(&answer, "overlap_hours");
    }
    let shown = app.get(&key.path()).bearer(&ada.token).send().await.expect(200);
    assert_eq!(shown["expires_at"], Value::Null, "a refused rotation changes nothing");

    let longest = rotate(&app, &ada.token, &key.id, json!({"overlap_hours": 720})).await.expect(201);
    assert_eq!(longest["overlap_hours"], json!(720));
    app.app.services.clock.advance(720 * HOUR - 60_000);
    assert_eq!(app.status_with_key(&key.raw).await, 200);
    app.app.services.clock.advance(60_000);
    assert_unauthorized(&app.get(ME).key(&key.raw).send().await);
});

on_both!(an_overlap_of_0_ends_the_old_key_at_once, |app| async move {
    let ada = app.signup("acme").await;
    let key = app.create_key(&ada.token, json!({"name": "x"})).await;
    assert_eq!(app.status_with_key(&key.raw).await, 200);
    let rotated = rotate(&app, &ada.token, &key.id, json!({"overlap_hours": 0})).await.expect(201);
    assert_eq!(rotated["overlap_hours"], json!(0));
    assert_unauthorized(&app.get(ME).key(&key.raw).send().await);
    assert_eq!(app.status_with_key(rotated["raw_key"].as_str().unwrap()).await, 200);
    // Expired now, it cannot be rotated again; nor can a revoked one.
    rotate(&app, &ada.token, &key.id, json!({})).await.expect_error(409, "conflict");
    let revoked = app.create_key(&ada.token, json!({"name": "y"})).await;
    app.delete(&revoked.path()).bearer(&ada.token).send().await.expect(200);
    rotate(&app, &ada.token, &revoked.id, json!({})).await.expect_error(409, "conflict");
    let count = app.get("/api/v1/keys").bearer(&ada.token).send().await.expect(200);
    assert_eq!(count["keys"].as_array().unwrap().len(), 4, "a refused rotation makes no key");
});

on_both!(a_rotation_without_a_body_takes_the_default, |app| async move {
    let ada = app.signup("acme").await;
    let key = app.create_key(&ada.token, json!({"name": "x"})).await;
    let path = format!("{}/rotate", key.path());
    let rotated = app.call(Method::POST, &path).bearer(&ada.token).send().await.expect(201);
    assert_eq!(rotated["overlap_hours"], json!(24));
    let null = rotate(&app, &ada.token, &key.id, json!({"overlap_hours": null, "more": 1})).await.expect(201);
    assert_eq!(null["overlap_hours"], json!(24));
    let broken = app.call(Method::POST, &path).bearer(&ada.token).raw("{").send().await;
    broken.expect_error(400, "bad_request");
});

on_both!(a_second_rotation_does_not_lengthen_the_life_of_the_old_key, |app| async move {
    let ada = app.signup("acme").await;
    let key = app.create_key(&ada.token, json!({"name": "x"})).await;
    rotate(&app, &ada.token, &key.id, json!({"overlap_hours": 1})).await.expect(201);
    rotate(&app, &ada.token, &key.id, json!({"overlap_hours": 720})).await.expect(201);
    app.app.services.clock.advance(HOUR);
    assert_eq!(app.status_with_key(&key.raw).await, 401);
    // Revoking the successor is possible, and revoking the old one during the overlap ends it early.
    let other = app.create_key(&ada.token, json!({"name": "y"})).await;
    let successor = rotate(&app, &ada.token, &other.id, json!({})).await.expect(201);
    app.delete(&other.path()).bearer(&ada.token).send().await.expect(200);
    assert_eq!(app.status_with_key(&other.raw).await, 401);
    assert_eq!(app.status_with_key(successor["raw_key"].as_str().unwrap()).await, 200);
});

on_both!(of_rotations_that_end_a_key_at_the_same_time_exactly_one_wins, |app| async move {
    let ada = app.signup("acme").await;
    let key = app.create_key(&ada.token, json!({"name": "x"})).await;
    let rotations = (0..6).map(|_| rotate(&app, &ada.token, &key.id, json!({"overlap_hours": 0})));
    let answers = join_all(rotations).await;
    let made: Vec<_> = answers.iter().filter(|answer| answer.status == 201).collect();
    assert_eq!(made.len(), 1, "the first one ends the key, so the others find it expired");
    for answer in answers.iter().filter(|answer| answer.status != 201) {
        answer.expect_error(409, "conflict");
    }
    assert_eq!(app.status_with_key(made[0].json()["raw_key"].as_str().unwrap()).await, 200);
});

on_both!(changes_of_keys_emit_events, |app| async move {
    let ada = app.signup("acme").await;
    let first = app.get("/api/v1/keys").bearer(&ada.token).send().await.expect(200)["keys"][0].clone();
    let key = app.create_key(&ada.token, json!({"name": "ci"})).await;
    let rotated = rotate(&app, &ada.token, &key.id, json!({"overlap_hours": 3})).await.expect(201);
    app.delete(&key.path()).key(&ada.api_key).send().await.expect(200);
    app.delete(&key.path()).key(&ada.api_key).send().await.expect(200);
    // Rejected requests emit no event.
    app.post("/api/v1/keys", json!({"name": ""})).bearer(&ada.token).send().await.expect(400);
    rotate(&app, &ada.token, &key.id, json!({})).await.expect(409);

    let data = |id: &Value, name: &str, prefix: &Value, actor: &Value| json!({"key_id": id, "name": name, "key_prefix": prefix, "app_id": null, "actor": actor});
    let made = &key.answer["key"];
    let user = json!(ada.user_id);
    let rotation = json!({"key_id": key.id, "new_key_id": rotated["key"]["id"], "overlap_hours": 3});
    let expected = vec![
        (
            "key.create".to_owned(),
            data(&first["id"], first["name"].as_str().unwrap(), &first["key_prefix"], &user),
        ),
        ("key.create".to_owned(), data(&made["id"], "ci", &made["key_prefix"], &user)),
        ("key.rotate".to_owned(), rotation),
        ("key.revoke".to_owned(), data(&made["id"], "ci", &made["key_prefix"], &first["id"])),
    ];
    assert_eq!(app.events(&ada.org_id).await, expected);
});
