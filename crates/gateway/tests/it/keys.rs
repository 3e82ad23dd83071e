//! API keys: formats, permissions, pagination, and what is stored.

use gateway_core::time::HOUR;
use gateway_store::testing::count;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::on_both;
use crate::support::TestApp;
use crate::support::assertions::{assert_field_error, assert_uuid_v7, fields, missing_id, time, with};

const KEYS: &str = "/api/v1/keys";
const SHAPE: [&str; 14] = [
    "app_id",
    "class",
    "created_at",
    "created_by",
    "expires_at",
    "id",
    "imported",
    "key_prefix",
    "last_used_at",
    "max_priority",
    "name",
    "revoked_at",
    "scopes",
    "wait_ms",
];

async fn make_app(app: &TestApp, token: &str, org: &str) -> String {
    let path = format!("/api/v1/orgs/{org}/apps");
    let made = app.post(&path, json!({"name": "crawler"})).bearer(token).send().await.expect(201);
    made["id"].as_str().unwrap().to_owned()
}

on_both!(a_new_key_is_shown_once_with_all_its_fields, |app| async move {
    let ada = app.signup("acme").await;
    let of = make_app(&app, &ada.token, &ada.org_id).await;
    let body = json!({"name": "ci", "scopes": ["provider:openai", "model:gpt-4o*"], "app_id": of});
    let made = app.create_key(&ada.token, body).await;
    assert_eq!(fields(&made.answer), ["key", "raw_key"]);
    let key = &made.answer["key"];
    assert_eq!(fields(key), SHAPE);
    assert_uuid_v7(&key["id"]);
    assert!((app.app.services.clock.now().0 - time(&key["created_at"])).abs() < 5_000);
    let digits = made.raw.strip_prefix("sk-gateway-").expect("the prefix of keys");
    assert!(digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
    assert_eq!(key["key_prefix"], format!("sk-gateway-{}", &digits[..8]));
    assert_eq!((&key["name"], &key["app_id"]), (&json!("ci"), &json!(of)));
    assert_eq!(key["scopes"], json!(["provider:openai", "model:gpt-4o*"]));
    assert_eq!(key["created_by"], json!(ada.user_id));
    for field in ["expires_at", "revoked_at", "last_used_at"] {
        assert_eq!(key[field], Value::Null, "{field}");
    }
    // Later reads return the same object without the secret.
    let got = app.get(&made.path()).bearer(&ada.token).send().await;
    assert_eq!(&got.expect(200), key);
    let list = app.get(KEYS).bearer(&ada.token).send().await;
    let listed = list.expect(200);
    assert_eq!(fields(&listed), ["keys", "next_cursor"]);
    assert_eq!((&listed["keys"][0], &listed["next_cursor"]), (key, &Value::Null));
    for text in [got.text(), list.text()] {
        assert!(!text.contains(digits) && !text.contains("hash"), "{text}");
    }
});

on_both!(scopes_default_to_everything_and_bad_ones_are_named, |app| async move {
    let ada = app.signup("acme").await;
    for body in [json!({"name": "x"}), json!({"name": "x", "scopes": null, "app_id": null, "more": [1]})] {
        let made = app.create_key(&ada.token, body).await;
        assert_eq!(made.answer["key"]["scopes"], json!(["*"]));
        assert_eq!(made.answer["key"]["app_id"], Value::Null);
    }
    let long = format!("model:{}", "x".repeat(300));
    let many = vec!["model:x"; 101];
    let made = app.create_key(&ada.token, json!({"name": "x"})).await;
    for scopes in [
        json!([]),
        json!([""]),
        json!(["all"]),
        json!(["provider:"]),
        json!(["model:"]),
        json!(["team:x"]),
        json!(["Provider:x"]),
        json!(["*", "nonsense"]),
        json!(["model:a b"]),
        json!([" *"]),
        json!([long]),
        json!(many),
        json!("*"),
        json!({"*": true}),
        json!([1]),
        json!([null]),
        json!([["*"]]),
    ] {
        let body = json!({"name": "x", "scopes": scopes});
        assert_field_error(&app.post(KEYS, body.clone()).bearer(&ada.token).send().await, "scopes");
        assert_field_error(&app.put(&made.path(), body).bearer(&ada.token).send().await, "scopes");
    }
    for name in [json!(""), json!(" "), json!("x".repeat(201)), json!("a\u{0}b"), json!(1), json!(["x"])] {
        let answer = app.post(KEYS, json!({"name": name})).bearer(&ada.token).send().await;
        assert_field_error(&answer, if name == json!("a\u{0}b") { "NUL" } else { "name" });
    }
    assert_field_error(&app.post(KEYS, json!({})).bearer(&ada.token).send().await, "name");
});

on_both!(a_key_belongs_only_to_an_application_of_its_own_organization, |app| async move {
    let (ada, bob) = (app.signup("acme").await, app.signup("bobs").await);
    let bobs = make_app(&app, &bob.token, &bob.org_id).await;
    let made = app.create_key(&ada.token, json!({"name": "x"})).await;
    let foreign = json!({"name": "x", "app_id": bobs});
    let missing = json!({"name": "x", "app_id": missing_id()});
    for (method, path) in [(http::Method::POST, KEYS.to_owned()), (http::Method::PUT, made.path())] {
        let call =
            |body: &Value| app.call(method.clone(), &path).json(body.clone()).bearer(&ada.token).send();
        let (foreign, missing) = (call(&foreign).await, call(&missing).await);
        assert_field_error(&foreign, "app_id");
        assert_eq!(foreign.body, missing.body, "what exists elsewhere is not told");
        assert_field_error(&call(&json!({"name": "x", "app_id": "crawler"})).await, "app_id");
    }
    assert_eq!(app.get(&made.path()).bearer(&ada.token).send().await.expect(200)["app_id"], Value::Null);
});

on_both!(an_update_changes_what_it_names_and_takes_effect_at_once, |app| async move {
    let ada = app.signup("acme").await;
    let of = make_app(&app, &ada.token, &ada.org_id).await;
    let made = app.create_key(&ada.token, json!({"name": "old"})).await;
    assert_eq!(app.status_with_key(&made.raw).await, 200);
    let put = |body: Value| app.put(&made.path(), body).bearer(&ada.token).send();

    let renamed =
        put(json!({"name": "new", "key_prefix": "sk-gateway-00000000", "id": "x"})).await.expect(200);
    assert_eq!(renamed, with(&made.answer["key"], "name", "new"));
    assert_eq!(app.status_with_key(&made.raw).await, 200, "a renamed key works on");
    let moved = put(json!({"app_id": of})).await.expect(200);
    assert_eq!((&moved["name"], &moved["app_id"]), (&json!("new"), &json!(of)));
    assert_eq!(put(json!({"app_id": null})).await.expect(200)["app_id"], Value::Null);
    assert_eq!(put(json!({})).await.expect(200)["name"], "new");

    // With narrower scopes the key acts as a member; with wider ones as an admin from the next request.
    for (scopes, role) in [(json!(["provider:openai"]), "member"), (json!(["*"]), "admin")] {
        assert_eq!(put(json!({"scopes": scopes})).await.expect(200)["scopes"], scopes);
        let me = app.get("/api/v1/auth/entitlements").key(&made.raw).send().await.expect(200);
        assert_eq!(me["role"], role);
    }
    assert_eq!(app.events(&ada.org_id).await.iter().filter(|event| event.0.starts_with("key.")).count(), 2);
});

on_both!(pages_show_every_key_once_newest_first, |app| async move {
    let ada = app.signup("acme").await;
    let mut expected = Vec::new();
    for n in 0..7 {
        expected.insert(0, app.create_key(&ada.token, json!({"name": format!("key {n}")})).await.id);
    }
    let read = |query: String| app.get(&format!("{KEYS}{query}")).bearer(&ada.token).send();
    for limit in [1, 3, 7, 8, 9] {
        let (mut seen, mut cursor, mut rounds) = (Vec::new(), None::<String>, 0);
        loop {
            let after = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
            let page = read(format!("?limit={limit}{after}")).await.expect(200);
            let ids: Vec<_> = page["keys"].as_array().unwrap().iter().map(|key| key["id"].clone()).collect();
            assert!(ids.len() <= limit && !ids.is_empty());
            seen.extend(ids.into_iter().map(|id| id.as_str().unwrap().to_owned()));
            rounds += 1;
            // A key created during pagination does not disturb the pages.
            if rounds == 1 && limit == 3 {
                let id = app.create_key(&ada.token, json!({"name": "in between"})).await.id;
                expected.insert(0, id);
            }
            match page["next_cursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => break,
            }
        }
        let known = if limit == 3 { &expected[1..] } else { &expected[..] };
        // The oldest key was created at signup.
        assert_eq!(seen.len(), known.len() + 1, "limit {limit}");
        assert_eq!(&seen[..known.len()], known, "limit {limit}");
    }
});

on_both!(the_last_uses_of_many_keys_are_recorded_together, |app| async move {
    let ada = app.signup("acme").await;
    let db = &app.app.services.db;
    let now = app.app.services.clock.now();
    let mut tx = db.begin().await.unwrap();
    let mut used = Vec::new();
    for n in 0..1_100 {
        let key = gateway_store::keys::Key {
            id: app.app.services.ids.new_id(),
            org_id: ada.org_id.parse().unwrap(),
            app_id: None,
            name: format!("key {n}"),
            key_prefix: "sk-gateway-00000000".into(),
            role: gateway_core::access::Role::Admin,
            scopes: gateway_core::scopes::Scopes::all(),
            created_by: None,
            created_at: now,
            expires_at: None,
            revoked_at: None,
            class: None,
            wait_ms: None,
            max_priority: None,
            last_used_at: None,
        };
        let hash = gateway_core::accounts::KeyHash(Sha256::digest(key.id.to_string()).into());
        gateway_store::keys::insert(&mut tx, &key, hash).await.unwrap();
        used.push((key.id, now.plus(n)));
    }
    tx.commit().await.unwrap();
    let recorded = async || {
        let set = format!("api_keys WHERE last_used_at = (SELECT CAST({} AS BIGINT))", now.0 + 1_099);
        let all = format!("api_keys WHERE last_used_at >= {}", now.0);
        (count(db, &set).await.unwrap(), count(db, &all).await.unwrap())
    };
    gateway_store::keys::touch(db, &used).await.unwrap();
    assert_eq!(recorded().await, (1, 1_100));
    // A use that is reported late does not replace a later one.
    let earlier: Vec<_> = used.iter().map(|(id, _)| (*id, now.plus(-1_000))).collect();
    gateway_store::keys::touch(db, &earlier).await.unwrap();
    assert_eq!(recorded().await, (1, 1_100));
});

on_both!(a_limit_is_a_whole_number_from_1_and_cut_to_200, |app| async move {
    let ada = app.signup("acme").await;
    let org = ada.org_id.parse().unwrap();
    let mut tx = app.app.services.db.begin().await.unwrap();
    for n in 0..210 {
        let key = gateway_store::keys::Key {
            id: app.app.services.ids.new_id(),
            org_id: org,
            app_id: None,
            name: format!("key {n}"),
            key_prefix: "sk-gateway-00000000".into(),
            role: gateway_core::access::Role::Admin,
            scopes: gateway_core::scopes::Scopes::all(),
            created_by: None,
            created_at: app.app.services.clock.now(),
            expires_at: None,
            revoked_at: None,
            class: None,
            wait_ms: None,
            max_priority: None,
            last_used_at: None,
        };
        let hash = gateway_core::accounts::KeyHash(Sha256::digest(key.id.to_string()).into());
        gateway_store::keys::insert(&mut tx, &key, hash).await.unwrap();
    }
    tx.commit().await.unwrap();
    let read = |query: &str| app.get(&format!("{KEYS}?{query}")).bearer(&ada.token).send();
    for (query, count) in [
        ("", 50),
        ("limit=", 50),
        ("limit=1", 1),
        ("limit=200", 200),
        ("limit=201", 200),
        ("limit=1000", 200),
        ("limit=99999999999999999999999", 200),
        ("unknown=1", 50),
    ] {
        let page = read(query).await.expect(200);
        assert_eq!(page["keys"].as_array().unwrap().len(), count, "{query}");
        assert!(page["next_cursor"].is_string());
    }
    for bad in ["0", "-1", "abc", "1.5", "1e2", "0x10", "%20", "-99999999999999999999999", "true"] {
        assert_field_error(&read(&format!("limit={bad}")).await, "limit");
    }
    for bad in ["%21%21", "abc%00", "====", "a"] {
        read(&format!("cursor={bad}")).await.expect_error(400, "bad_request");
    }
});

on_both!(a_member_manages_their_own_keys_and_an_admin_all, |app| async move {
    let owner = app.signup("acme").await;
    let (admin, member, other) =
        (app.join(&owner, "admin").await, app.join(&owner, "member").await, app.join(&owner, "member").await);
    let key = app.create_key(&member.token, json!({"name": "mine"})).await;
    assert_eq!(key.answer["key"]["created_by"], json!(member.user_id));
    let rotate = format!("{}/rotate", key.path());
    let denied = |answer: crate::support::TestResponse| answer.expect_error(403, "forbidden");
    denied(app.put(&key.path(), json!({"name": "x"})).bearer(&other.token).send().await);
    denied(app.post(&rotate, json!({})).bearer(&other.token).send().await);
    denied(app.delete(&key.path()).bearer(&other.token).send().await);
    assert_eq!(app.status_with_key(&key.raw).await, 200);
    // Every member may read.
    app.get(&key.path()).bearer(&other.token).send().await.expect(200);

    for manager in [&member, &admin, &owner] {
        app.put(&key.path(), json!({"name": "x"})).bearer(&manager.token).send().await.expect(200);
    }
    app.post(&rotate, json!({})).bearer(&member.token).send().await.expect(201);
    app.delete(&key.path()).bearer(&admin.token).send().await.expect(200);
    assert_eq!(app.status_with_key(&key.raw).await, 401);
});

on_both!(a_viewer_reads_keys_and_manages_none, |app| async move {
    let owner = app.signup("acme").await;
    let viewer = app.join(&owner, "viewer").await;
    let key = app.create_key(&owner.token, json!({"name": "x"})).await;
    let list = app.get(KEYS).bearer(&viewer.token).send().await.expect(200);
    assert_eq!(list["keys"].as_array().unwrap().len(), 2);
    app.get(&key.path()).bearer(&viewer.token).send().await.expect(200);
    for (method, path) in [
        (http::Method::POST, KEYS.to_owned()),
        (http::Method::PUT, key.path()),
        (http::Method::DELETE, key.path()),
        (http::Method::POST, format!("{}/rotate", key.path())),
    ] {
        let answer = app.call(method, &path).json(json!({"name": "y"})).bearer(&viewer.token).send().await;
        answer.expect_error(403, "forbidden");
    }
    assert_eq!(app.get(&key.path()).bearer(&owner.token).send().await.expect(200), key.answer["key"]);
});

on_both!(a_key_of_limited_scope_acts_as_a_member_and_manages_no_keys, |app| async move {
    let ada = app.signup("acme").await;
    let scoped = app.create_key(&ada.token, json!({"name": "s", "scopes": ["model:gpt-4o"]})).await;
    let me = app.get("/api/v1/auth/entitlements").key(&scoped.raw).send().await.expect(200);
    assert_eq!(me["role"], "member");
    app.get(KEYS).key(&scoped.raw).send().await.expect(200);
    for (method, path) in [
        (http::Method::POST, KEYS.to_owned()),
        (http::Method::PUT, scoped.path()),
        (http::Method::DELETE, scoped.path()),
        (http::Method::POST, format!("{}/rotate", scoped.path())),
    ] {
        let answer = app.call(method, &path).json(json!({"name": "y"})).key(&scoped.raw).send().await;
        answer.expect_error(403, "forbidden");
    }
    let org = format!("/api/v1/orgs/{}", ada.org_id);
    app.put(&org, json!({"name": "x"})).key(&scoped.raw).send().await.expect_error(403, "forbidden");
});

on_both!(a_key_of_full_scope_acts_as_an_admin_and_never_as_an_owner, |app| async move {
    let ada = app.signup("acme").await;
    let mixed = app.create_key(&ada.token, json!({"name": "m", "scopes": ["provider:openai", "*"]})).await;
    for raw in [&ada.api_key, &mixed.raw] {
        let made = app.post(KEYS, json!({"name": "by a key"})).key(raw).send().await.expect(201);
        let path = format!("{KEYS}/{}", made["key"]["id"].as_str().unwrap());
        assert_uuid_v7(&made["key"]["created_by"]);
        assert_ne!(made["key"]["created_by"], json!(ada.user_id), "the key made it, not the person");
        app.put(&path, json!({"name": "y"})).key(raw).send().await.expect(200);
        app.delete(&path).key(raw).send().await.expect(200);
        let org = format!("/api/v1/orgs/{}", ada.org_id);
        app.put(&org, json!({"name": "x"})).key(raw).send().await.expect(200);
        app.put(&org, json!({"plan": "pro"})).key(raw).send().await.expect_error(403, "forbidden");
        app.delete(&org).key(raw).send().await.expect_error(403, "forbidden");
        let members = format!("{org}/members");
        let invite = json!({"email": "new@example.com", "role": "owner"});
        app.post(&members, invite).key(raw).send().await.expect_error(403, "forbidden");
    }
});

on_both!(keys_of_another_organization_look_missing, |app| async move {
    let (ada, bob) = (app.signup("acme").await, app.signup("bobs").await);
    let key = app.create_key(&ada.token, json!({"name": "adas"})).await;
    let missing = format!("{KEYS}/{}", missing_id().as_str().unwrap());
    for credential in
        [("authorization", format!("Bearer {}", bob.token)), ("x-gateway-key", bob.api_key.clone())]
    {
        for (method, tail) in [
            (http::Method::GET, ""),
            (http::Method::PUT, ""),
            (http::Method::DELETE, ""),
            (http::Method::POST, "/rotate"),
        ] {
            let call = |path: &str| {
                let call = app.call(method.clone(), &format!("{path}{tail}")).json(json!({"name": "stolen"}));
                call.header(credential.0, &credential.1).send()
            };
            let (foreign, absent) = (call(&key.path()).await, call(&missing).await);
            foreign.expect_error(404, "not_found");
            assert_eq!((foreign.status, &foreign.body), (absent.status, &absent.body), "{method} {tail}");
        }
    }
    let list = app.get(KEYS).bearer(&bob.token).send().await;
    assert!(!list.text().contains(&key.id));
    assert_eq!(app.get(&key.path()).bearer(&ada.token).send().await.expect(200), key.answer["key"]);
    assert_eq!(app.status_with_key(&key.raw).await, 200);
});

on_both!(only_hashes_of_keys_and_passwords_are_kept, |app| async move {
    let ada = app.signup("acme").await;
    let made = app.create_key(&ada.token, json!({"name": "x"})).await;
    let rows = app.app.services.db.all("SELECT hash, key_prefix FROM api_keys", Vec::new()).await.unwrap();
    let hashes: Vec<String> = rows.iter().map(|row| row.get("hash").unwrap()).collect();
    for raw in [&ada.api_key, &made.raw] {
        assert!(hashes.contains(&hex::encode(Sha256::digest(raw))), "{hashes:?}");
    }
    let users = app.app.services.db.all("SELECT password_hash FROM users", Vec::new()).await.unwrap();
    let hash: String = users[0].get("password_hash").unwrap();
    assert!(hash.starts_with("$argon2id$"), "{hash}");
    // On SQLite the data directory contains everything, and no file in it contains a secret.
    let secrets = [&ada.api_key[11..], &made.raw[11..], crate::support::PASSWORD];
    for entry in std::fs::read_dir(app.data.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        for secret in secrets {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "a secret lies in {}", path.display());
        }
    }
});

on_both!(a_key_made_with_an_expiry_stops_working_then, |app| async move {
    let ada = app.signup("acme").await;
    let now = app.app.services.clock.now();
    let at = now.plus(HOUR).to_string();
    let key = app.create_key(&ada.token, json!({"name": "for an hour", "expires_at": at})).await;
    assert_eq!(time(&key.answer["key"]["expires_at"]), now.plus(HOUR).0);
    assert_eq!(app.status_with_key(&key.raw).await, 200);
    app.app.services.clock.advance(HOUR + 1);
    assert_eq!(app.status_with_key(&key.raw).await, 401);
    let past = json!({"name": "late", "expires_at": now.to_string()});
    let refused = app.post(KEYS, past).bearer(&ada.token).send().await;
    assert_field_error(&refused, "expires_at");
});

on_both!(the_last_use_of_a_key_is_noted, |app| async move {
    let ada = app.signup("acme").await;
    let used = app.create_key(&ada.token, json!({"name": "used"})).await;
    let idle = app.create_key(&ada.token, json!({"name": "idle"})).await;
    let renamed = app.create_key(&ada.token, json!({"name": "renamed right after its use"})).await;
    let revoked = app.create_key(&ada.token, json!({"name": "revoked right after its use"})).await;
    let before = app.app.services.clock.now().0;
    for key in [&used, &renamed, &revoked] {
        assert_eq!(app.status_with_key(&key.raw).await, 200);
    }
    app.put(&renamed.path(), json!({"name": "r"})).bearer(&ada.token).send().await.expect(200);
    app.delete(&revoked.path()).bearer(&ada.token).send().await.expect(200);
    let after = app.app.services.clock.now().0;
    // Written in the background, at the latest at shutdown.
    let (config, data) = app.stop().await;
    let app = TestApp::start(config, data).await;
    for key in [&used, &renamed, &revoked] {
        let shown = app.get(&key.path()).bearer(&ada.token).send().await.expect(200);
        let at = time(&shown["last_used_at"]);
        assert!((before..=after).contains(&at), "{shown}");
    }
    let shown = app.get(&idle.path()).bearer(&ada.token).send().await.expect(200);
    assert_eq!(shown["last_used_at"], Value::Null);
});

on_both!(a_key_never_may_more_than_the_one_who_made_it, |app| async move {
    let owner = app.signup("acme").await;
    let member = app.join(&owner, "member").await;
    let made = app.create_key(&member.token, json!({"name": "mine", "scopes": ["*"]})).await;
    let apps = format!("/api/v1/orgs/{}/apps", owner.org_id);
    app.post(&apps, json!({"name": "x"})).key(&made.raw).send().await.expect_error(403, "forbidden");
    app.post(&apps, json!({"name": "x"})).key(&owner.api_key).send().await.expect(201);
    // The same holds for its successor and for keys that it creates.
    let rotated =
        app.post(&format!("{}/rotate", made.path()), json!({})).bearer(&owner.token).send().await.expect(201);
    let child = app.post("/api/v1/keys", json!({"name": "child"})).key(&made.raw).send().await.expect(201);
    for raw in [&rotated["raw_key"], &child["raw_key"]] {
        let answer = app.post(&apps, json!({"name": "x"})).key(raw.as_str().unwrap()).send().await;
        answer.expect_error(403, "forbidden");
    }
    // The creator of the key can manage its successor.
    let path = format!("/api/v1/keys/{}", rotated["key"]["id"].as_str().unwrap());
    app.put(&path, json!({"name": "still mine"})).bearer(&member.token).send().await.expect(200);
});

on_both!(a_demoted_admin_makes_no_more_admin_keys_of_old_ones, |app| async move {
    let owner = app.signup("acme").await;
    let admin = app.join(&owner, "admin").await;
    let old = app.create_key(&admin.token, json!({"name": "old", "scopes": ["provider:openai"]})).await;
    let full = app.create_key(&admin.token, json!({"name": "full"})).await;
    let member = format!("/api/v1/orgs/{}/members/{}", owner.org_id, admin.user_id);
    app.put(&member, json!({"role": "member"})).bearer(&owner.token).send().await.expect(200);
    app.put(&old.path(), json!({"scopes": ["*"]})).bearer(&admin.token).send().await.expect(200);
    let rotated =
        app.post(&format!("{}/rotate", full.path()), json!({})).bearer(&admin.token).send().await.expect(201);
    let apps = format!("/api/v1/orgs/{}/apps", owner.org_id);
    for raw in [old.raw.as_str(), rotated["raw_key"].as_str().unwrap()] {
        app.post(&apps, json!({"name": "x"})).key(raw).send().await.expect_error(403, "forbidden");
    }
});
