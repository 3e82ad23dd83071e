//! What remains of a member who is removed or demoted: keys, and the invitations that they made.

use serde_json::{Value, json};

use crate::on_both;
use crate::support::{Account, TestApp, TestResponse};

fn org_path(org: &Account, below: &str) -> String {
    format!("/api/v1/orgs/{}{below}", org.org_id)
}

/// Creates a key with a credential and returns its id and the raw key.
async fn key_by(app: &TestApp, credential: (&str, &str), body: Value) -> (String, String) {
    let made = app.post("/api/v1/keys", body).header(credential.0, credential.1).send().await.expect(201);
    (made["key"]["id"].as_str().unwrap().to_owned(), made["raw_key"].as_str().unwrap().to_owned())
}

/// The keys of an admin: direct, made by another key, and of an application.
struct Keys {
    own: String,
    made_by_own: String,
    of_app: String,
    made_by_app_key: String,
    of_owner: String,
}

async fn keys_of(app: &TestApp, owner: &Account, admin: &Account) -> Keys {
    let bearer = format!("Bearer {}", admin.token);
    let bearer = ("authorization", bearer.as_str());
    let made = app.post(&org_path(owner, "/apps"), json!({"name": "bot"})).bearer(&owner.token).send().await;
    let in_app = json!({"name": "bot", "app_id": made.expect(201)["id"]});
    let (_, own) = key_by(app, bearer, json!({"name": "own"})).await;
    let (_, made_by_own) = key_by(app, ("x-gateway-key", &own), json!({"name": "child"})).await;
    let (_, of_app) = key_by(app, bearer, in_app).await;
    let (_, made_by_app_key) = key_by(app, ("x-gateway-key", &of_app), json!({"name": "grandchild"})).await;
    let keys = Keys { own, made_by_own, of_app, made_by_app_key, of_owner: owner.api_key.clone() };
    for raw in [&keys.own, &keys.made_by_own, &keys.of_app, &keys.made_by_app_key] {
        assert_eq!(app.status_with_key(raw).await, 200);
    }
    keys
}

async fn statuses(app: &TestApp, keys: &Keys) -> Vec<u16> {
    let mut statuses = Vec::new();
    for raw in [&keys.own, &keys.made_by_own, &keys.of_app, &keys.made_by_app_key, &keys.of_owner] {
        statuses.push(app.status_with_key(raw).await);
    }
    statuses
}

async fn remove(app: &TestApp, by: &Account, of: &Account, query: &str) -> TestResponse {
    let path = org_path(by, &format!("/members/{}{query}", of.user_id));
    app.delete(&path).bearer(&by.token).send().await
}

on_both!(removing_a_member_revokes_the_keys_that_they_made, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.join(&ada, "admin").await;
    let keys = keys_of(&app, &ada, &bob).await;
    let expired = json!({"name": "rotated"});
    let (id, old) = key_by(&app, ("x-gateway-key", &keys.own), expired).await;
    app.post(&format!("/api/v1/keys/{id}/rotate"), json!({})).bearer(&bob.token).send().await.expect(201);
    assert_eq!(remove(&app, &ada, &bob, "").await.expect(200), json!({"deleted": true}));
    assert_eq!(statuses(&app, &keys).await, [401, 401, 200, 401, 200]);
    assert_eq!(app.status_with_key(&old).await, 401);
    let list = app.get("/api/v1/keys").bearer(&ada.token).send().await.expect(200);
    for key in list["keys"].as_array().unwrap() {
        let kept = key["name"] == "bot" || key["name"] == "default";
        assert_eq!(key["revoked_at"] == Value::Null, kept, "{key}");
    }
    let events = app.events(&ada.org_id).await;
    let revoked: Vec<_> = events.iter().filter(|(kind, _)| kind == "key.revoke").collect();
    assert_eq!(revoked.len(), 5, "own, child, grandchild, and both of the rotation");
    assert!(revoked.iter().all(|(_, data)| data["actor"] == json!(ada.user_id)));
});

on_both!(keys_can_be_kept_by_an_admin, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.join(&ada, "admin").await;
    let keys = keys_of(&app, &ada, &bob).await;
    let path = org_path(&ada, &format!("/members/{}?keys=burn", bob.user_id));
    app.delete(&path).bearer(&ada.token).send().await.expect_error(400, "bad_request");
    remove(&app, &ada, &bob, "?keys=keep").await.expect(200);
    assert_eq!(statuses(&app, &keys).await, [200; 5]);
    // Who leaves does not decide that their keys stay.
    let carol = app.join(&ada, "member").await;
    let bearer = format!("Bearer {}", carol.token);
    let (_, raw) = key_by(&app, ("authorization", &bearer), json!({"name": "carols"})).await;
    remove(&app, &carol, &carol, "?keys=keep").await.expect_error(403, "forbidden");
    assert_eq!(app.status_with_key(&raw).await, 200);
    remove(&app, &carol, &carol, "?keys=revoke").await.expect(200);
    assert_eq!(app.status_with_key(&raw).await, 401);
});

on_both!(a_demotion_caps_the_keys_of_the_member_at_once, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.join(&ada, "admin").await;
    let keys = keys_of(&app, &ada, &bob).await;
    let role_of = |raw: &str| {
        let call = app.get("/api/v1/auth/entitlements").key(raw);
        async move { call.send().await.expect(200)["role"].as_str().unwrap().to_owned() }
    };
    let set = |role: &str| {
        let path = org_path(&ada, &format!("/members/{}", bob.user_id));
        app.put(&path, json!({"role": role})).bearer(&ada.token).send()
    };
    for (role, expected) in
        [("owner", "admin"), ("admin", "admin"), ("member", "member"), ("viewer", "viewer")]
    {
        set(role).await.expect(200);
        for raw in [&keys.own, &keys.made_by_own, &keys.of_app, &keys.made_by_app_key] {
            assert_eq!(role_of(raw).await, expected, "{role}");
        }
        assert_eq!(role_of(&keys.of_owner).await, "admin");
    }
    // A promotion gives old keys nothing.
    set("admin").await.expect(200);
    assert_eq!(role_of(&keys.own).await, "viewer");
    let body = json!({"name": "renamed"});
    app.put(&org_path(&ada, ""), body).key(&keys.own).send().await.expect_error(403, "forbidden");
});

on_both!(invitations_of_a_removed_or_demoted_admin_are_withdrawn, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.join(&ada, "owner").await;
    let bearer = format!("Bearer {}", bob.token);
    let (_, raw) = key_by(&app, ("authorization", &bearer), json!({"name": "own"})).await;
    let members = org_path(&ada, "/members");
    let invite = |email: &str, role: &str| json!({"email": email, "role": role});
    app.post(&members, invite("a@example.com", "owner")).bearer(&bob.token).send().await.expect(201);
    app.post(&members, invite("b@example.com", "admin")).key(&raw).send().await.expect(201);
    app.post(&members, invite("c@example.com", "viewer")).bearer(&bob.token).send().await.expect(201);
    app.post(&members, invite("d@example.com", "owner")).bearer(&ada.token).send().await.expect(201);
    let open = || async {
        let list = app.get(&org_path(&ada, "/invites")).bearer(&ada.token).send().await.expect(200);
        let emails = list["invites"].as_array().unwrap().iter().map(|invite| invite["email"].to_string());
        let mut emails: Vec<String> = emails.map(|email| email[1..2].to_owned()).collect();
        emails.sort();
        emails.concat()
    };
    let path = org_path(&ada, &format!("/members/{}", bob.user_id));
    let set = |role: &str| app.put(&path, json!({"role": role})).bearer(&ada.token).send();
    assert_eq!(open().await, "abcd");
    set("admin").await.expect(200);
    assert_eq!(open().await, "bcd");
    set("member").await.expect(200);
    assert_eq!(open().await, "d");
    set("admin").await.expect(200);
    app.post(&members, invite("e@example.com", "admin")).bearer(&bob.token).send().await.expect(201);
    remove(&app, &ada, &bob, "?keys=keep").await.expect(200);
    assert_eq!(open().await, "d");
});
