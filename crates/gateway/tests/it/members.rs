//! Members: joining, permissions, and the invariant that an owner remains.

use gateway_core::time::DAY;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::{Account, PASSWORD, TestApp, TestResponse};

fn members_of(account: &Account) -> String {
    format!("/api/v1/orgs/{}/members", account.org_id)
}

fn member_path(org: &Account, of: &Account) -> String {
    format!("/api/v1/orgs/{}/members/{}", org.org_id, of.user_id)
}

async fn invite(app: &TestApp, by: &Account, email: &str, role: &str) -> TestResponse {
    app.post(&members_of(by), json!({"email": email, "role": role})).bearer(&by.token).send().await
}

async fn signup_with(app: &TestApp, email: &str, token: &Value) -> TestResponse {
    let body = json!({"email": email, "password": PASSWORD, "invite_token": token});
    app.post("/api/v1/signup", body).send().await
}

async fn set_role(app: &TestApp, by: &Account, of: &Account, role: &str) -> TestResponse {
    app.put(&member_path(by, of), json!({"role": role})).bearer(&by.token).send().await
}

async fn remove(app: &TestApp, by: &Account, of: &Account) -> TestResponse {
    app.delete(&member_path(by, of)).bearer(&by.token).send().await
}

async fn roles(app: &TestApp, by: &Account) -> Vec<(String, String)> {
    let list = app.get(&members_of(by)).bearer(&by.token).send().await.expect(200);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut roles: Vec<_> =
        list["members"].as_array().unwrap().iter().map(|m| (text(&m["email"]), text(&m["role"]))).collect();
    roles.sort();
    roles
}

on_both!(an_unknown_address_is_invited_and_joins_by_its_token, |app| async move {
    let ada = app.signup("acme").await;
    let invited = invite(&app, &ada, " Bob@Example.COM ", "viewer").await.expect(201);
    let fields: Vec<_> = invited.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["id", "email", "role", "invited_by", "created_at", "expires_at", "invite_token"]);
    assert_eq!((&invited["email"], &invited["role"]), (&json!("bob@example.com"), &json!("viewer")));
    let listed = app.get(&members_of(&ada)).bearer(&ada.token).send().await;
    assert!(!listed.text().contains("invite_token") && !listed.text().contains("inv-"), "{}", listed.text());
    assert_eq!(listed.expect(200)["invitations"][0]["email"], "bob@example.com");

    let joined = signup_with(&app, "bob@example.com", &invited["invite_token"]).await.expect(201);
    assert_eq!(joined["org"], json!({"id": ada.org_id, "slug": "acme", "plan": "free"}));
    assert_eq!(joined["api_key"], Value::Null);
    let bob = joined["token"].as_str().unwrap();
    let me = app.get("/api/v1/auth/entitlements").bearer(bob).send().await.expect(200);
    assert_eq!(me["role"], "viewer");
    let orgs = app.get("/api/v1/auth/orgs").bearer(bob).send().await.expect(200);
    assert_eq!(orgs["orgs"].as_array().unwrap().len(), 1);
    let list = app.get(&members_of(&ada)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["invitations"], json!([]));
    assert_eq!(list["members"][0]["user_id"], joined["user"]["id"]);
    assert_eq!(list["members"][0]["display_name"], "bob");
});

on_both!(an_invitation_admits_only_the_invited_address_and_only_once, |app| async move {
    let ada = app.signup("acme").await;
    let token = invite(&app, &ada, "bob@example.com", "admin").await.expect(201)["invite_token"].clone();
    let other = signup_with(&app, "eve@example.com", &token).await.expect_error(400, "bad_request");
    assert!(other["message"].as_str().unwrap().contains("email"), "{other}");
    // The wrong email neither consumed the invitation nor created an account.
    app.login("eve@example.com", PASSWORD).await.expect_error(401, "unauthorized");
    signup_with(&app, "BOB@example.com", &token).await.expect(201);
    let again = signup_with(&app, "bob2@example.com", &token).await.expect_error(400, "bad_request");
    assert!(again["message"].as_str().unwrap().contains("invite_token"), "{again}");
    for junk in ["", "inv-", &"0".repeat(68)] {
        signup_with(&app, "eve@example.com", &json!(junk)).await.expect_error(400, "bad_request");
    }
});

on_both!(an_invitation_ends_after_a_week, |app| async move {
    let ada = app.signup("acme").await;
    let token = invite(&app, &ada, "bob@example.com", "member").await.expect(201)["invite_token"].clone();
    app.app.services.clock.advance(7 * DAY + 1);
    signup_with(&app, "bob@example.com", &token).await.expect_error(400, "bad_request");
    let ada = Account {
        token: app.login(&ada.email, PASSWORD).await.expect(200)["token"].as_str().unwrap().into(),
        ..ada
    };
    let list = app.get(&members_of(&ada)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["invitations"], json!([]));
    let token = invite(&app, &ada, "bob@example.com", "member").await.expect(201)["invite_token"].clone();
    app.app.services.clock.advance(6 * DAY);
    signup_with(&app, "bob@example.com", &token).await.expect(201);
});

on_both!(a_second_invitation_replaces_the_first, |app| async move {
    let ada = app.signup("acme").await;
    let first = invite(&app, &ada, "bob@example.com", "admin").await.expect(201)["invite_token"].clone();
    let second = invite(&app, &ada, "bob@example.com", "viewer").await.expect(201)["invite_token"].clone();
    let list = app.get(&members_of(&ada)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["invitations"].as_array().unwrap().len(), 1, "{list}");
    signup_with(&app, "bob@example.com", &first).await.expect_error(400, "bad_request");
    signup_with(&app, "bob@example.com", &second).await.expect(201);
    assert!(roles(&app, &ada).await.contains(&("bob@example.com".into(), "viewer".into())));
});

on_both!(members_are_listed_newest_first_in_pages, |app| async move {
    let bob = app.signup("bob").await;
    let ada = app.signup("acme").await;
    let carol = app.join(&ada, "member").await;
    app.accept(&ada, &bob, "viewer").await;
    let mut seen = Vec::new();
    let mut path = format!("{}?limit=1", members_of(&ada));
    for _ in 0..3 {
        let page = app.get(&path).bearer(&ada.token).send().await.expect(200);
        assert_eq!(page["members"].as_array().unwrap().len(), 1);
        seen.push(page["members"][0]["user_id"].as_str().unwrap().to_owned());
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("{}?limit=1&cursor={cursor}", members_of(&ada));
    }
    // Bob's account is the oldest, his membership the newest.
    assert_eq!(seen, [bob.user_id, carol.user_id, ada.user_id.clone()]);
    for bad in ["limit=0", "limit=x", "cursor=%2B%2B", "cursor=AAAA"] {
        let answer = app.get(&format!("{}?{bad}", members_of(&ada))).bearer(&ada.token).send().await;
        answer.expect_error(400, "bad_request");
    }
});

on_both!(a_member_with_bad_fields_is_refused_and_the_field_named, |app| async move {
    let ada = app.signup("acme").await;
    for (body, named) in [
        (json!({}), "email"),
        (json!({"email": "nobody"}), "email"),
        (json!({"email": 1}), "email"),
        (json!({"email": "a@b.c", "role": "king"}), "role"),
        (json!({"email": "a@b.c", "role": 1}), "role"),
        (json!({"email": "a@b.c", "role": {"viewer": null}}), "role"),
    ] {
        let answer = app.post(&members_of(&ada), body.clone()).bearer(&ada.token).send().await;
        let error = answer.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{body}: {error}");
    }
    for body in [json!({}), json!({"role": "king"}), json!({"role": null})] {
        let answer = app.put(&member_path(&ada, &ada), body).bearer(&ada.token).send().await;
        assert!(answer.expect_error(400, "bad_request")["message"].as_str().unwrap().contains("role"));
    }
    let path = format!("{}/x", members_of(&ada));
    app.put(&path, json!({"role": "viewer"}))
        .bearer(&ada.token)
        .send()
        .await
        .expect_error(400, "bad_request");
    app.delete(&path).bearer(&ada.token).send().await.expect_error(400, "bad_request");
});

on_both!(only_admins_manage_members_and_only_owners_touch_owners, |app| async move {
    let ada = app.signup("acme").await;
    let admin = app.join(&ada, "admin").await;
    let member = app.join(&ada, "member").await;
    let viewer = app.join(&ada, "viewer").await;
    for low in [&member, &viewer] {
        invite(&app, low, "x@example.com", "viewer").await.expect_error(403, "forbidden");
        set_role(&app, low, low, "admin").await.expect_error(403, "forbidden");
        remove(&app, low, &admin).await.expect_error(403, "forbidden");
        app.get(&members_of(low)).bearer(&low.token).send().await.expect(200);
    }
    invite(&app, &admin, "x@example.com", "owner").await.expect_error(403, "forbidden");
    set_role(&app, &admin, &member, "owner").await.expect_error(403, "forbidden");
    set_role(&app, &admin, &admin, "owner").await.expect_error(403, "forbidden");
    set_role(&app, &admin, &ada, "admin").await.expect_error(403, "forbidden");
    remove(&app, &admin, &ada).await.expect_error(403, "forbidden");
    // A key is at most an admin, whatever the role of its creator.
    let path = member_path(&ada, &member);
    app.put(&path, json!({"role": "owner"})).key(&ada.api_key).send().await.expect_error(403, "forbidden");
    app.delete(&member_path(&ada, &ada)).key(&ada.api_key).send().await.expect_error(403, "forbidden");
    let body = json!({"email": "x@example.com", "role": "owner"});
    app.post(&members_of(&ada), body).key(&ada.api_key).send().await.expect_error(403, "forbidden");

    set_role(&app, &admin, &viewer, "member").await.expect(200);
    set_role(&app, &admin, &viewer, "admin").await.expect(200);
    invite(&app, &viewer, "x@example.com", "admin").await.expect(201);
    set_role(&app, &ada, &admin, "owner").await.expect(200);
    invite(&app, &admin, "y@example.com", "owner").await.expect(201);
    set_role(&app, &admin, &ada, "viewer").await.expect(200);
    // The former owner's token lost its permissions at once.
    invite(&app, &ada, "z@example.com", "viewer").await.expect_error(403, "forbidden");
    app.delete(&format!("/api/v1/orgs/{}", ada.org_id))
        .bearer(&ada.token)
        .send()
        .await
        .expect_error(403, "forbidden");
});

on_both!(the_last_owner_is_neither_removed_nor_demoted, |app| async move {
    let ada = app.signup("acme").await;
    for role in ["admin", "member", "viewer"] {
        set_role(&app, &ada, &ada, role).await.expect_error(409, "conflict");
    }
    remove(&app, &ada, &ada).await.expect_error(409, "conflict");
    set_role(&app, &ada, &ada, "owner").await.expect(200);
    let bob = app.join(&ada, "owner").await;
    set_role(&app, &ada, &ada, "admin").await.expect(200);
    remove(&app, &bob, &bob).await.expect_error(409, "conflict");
    assert!(roles(&app, &bob).await.contains(&(bob.email.clone(), "owner".into())));
});

on_both!(two_owners_who_demote_each_other_concurrently_leave_one, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.join(&ada, "owner").await;
    let owners = || async {
        let list = app.get(&members_of(&ada)).key(&ada.api_key).send().await.expect(200);
        let of = |account: &Account| {
            let rows = list["members"].as_array().unwrap();
            rows.iter().any(|m| m["user_id"] == account.user_id && m["role"] == "owner")
        };
        (of(&ada), of(&bob))
    };
    for round in 0..6 {
        let (a, b) = if round % 2 == 0 {
            tokio::join!(set_role(&app, &ada, &bob, "admin"), set_role(&app, &bob, &ada, "admin"))
        } else {
            // Each owner gives up ownership.
            tokio::join!(set_role(&app, &ada, &ada, "admin"), set_role(&app, &bob, &bob, "admin"))
        };
        for answer in [&a, &b] {
            assert!([200, 403, 409].contains(&answer.status.as_u16()), "{}", answer.text());
        }
        let (ada_owns, bob_owns) = owners().await;
        assert!(ada_owns != bob_owns, "round {round}: {} {}", a.text(), b.text());
        let (by, of) = if ada_owns { (&ada, &bob) } else { (&bob, &ada) };
        set_role(&app, by, of, "owner").await.expect(200);
    }
    let (a, b) = tokio::join!(remove(&app, &ada, &ada), remove(&app, &bob, &bob));
    let mut statuses = [a.status.as_u16(), b.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409], "{} {}", a.text(), b.text());
});

on_both!(what_an_organization_uses_counts_against_its_oldest_owner, |app| async move {
    let ada = app.signup("acme").await;
    let (bob, eve) = (app.join(&ada, "owner").await, app.join(&ada, "owner").await);
    let owner = async |reader: &Account| {
        // It is loaded again after a change.
        app.get("/api/v1/keys").bearer(&reader.token).send().await.expect(200);
        app.app.services.db.owners().of(ada.org_id.parse().unwrap()).to_string()
    };
    assert_eq!(owner(&bob).await, ada.user_id);
    remove(&app, &bob, &ada).await.expect(200);
    assert_eq!(owner(&bob).await, bob.user_id);
    set_role(&app, &eve, &bob, "admin").await.expect(200);
    assert_eq!(owner(&bob).await, eve.user_id);
    set_role(&app, &eve, &bob, "owner").await.expect(200);
    assert_eq!(owner(&bob).await, bob.user_id);
});

on_both!(a_removed_member_is_out_at_once_and_may_be_added_again, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.join(&ada, "admin").await;
    let body = json!({"name": "bob's"});
    let key = app.post("/api/v1/keys", body).bearer(&bob.token).send().await.expect(201);
    app.get("/api/v1/keys").bearer(&bob.token).send().await.expect(200);
    let gone = remove(&app, &ada, &bob).await.expect(200);
    assert_eq!(gone, json!({"deleted": true}));
    app.get("/api/v1/keys").bearer(&bob.token).send().await.expect_error(401, "unauthorized");
    app.get(&members_of(&ada)).bearer(&bob.token).send().await.expect_error(401, "unauthorized");
    remove(&app, &ada, &bob).await.expect_error(404, "not_found");
    set_role(&app, &ada, &bob, "viewer").await.expect_error(404, "not_found");
    let by_key = app.get("/api/v1/keys").key(key["raw_key"].as_str().unwrap()).send().await;
    by_key.expect_error(401, "unauthorized");
    let back = app.accept(&ada, &bob, "viewer").await;
    assert_eq!(back["org"]["role"], "viewer");
});

on_both!(anybody_leaves_by_themselves, |app| async move {
    let ada = app.signup("acme").await;
    let viewer = app.join(&ada, "viewer").await;
    remove(&app, &viewer, &viewer).await.expect(200);
    app.get("/api/v1/keys").bearer(&viewer.token).send().await.expect_error(401, "unauthorized");
    assert_eq!(roles(&app, &ada).await, [(ada.email.clone(), "owner".to_owned())]);
    let second = app.join(&ada, "owner").await;
    remove(&app, &second, &second).await.expect(200);
});

on_both!(a_demoted_member_loses_their_rights_on_the_next_request, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.join(&ada, "admin").await;
    let org = format!("/api/v1/orgs/{}", ada.org_id);
    app.put(&org, json!({"name": "x"})).bearer(&bob.token).send().await.expect(200);
    let changed = set_role(&app, &ada, &bob, "viewer").await.expect(200);
    assert_eq!((&changed["user_id"], &changed["role"]), (&json!(bob.user_id), &json!("viewer")));
    app.put(&org, json!({"name": "y"})).bearer(&bob.token).send().await.expect_error(403, "forbidden");
    app.get(&org).bearer(&bob.token).send().await.expect(200);
});

on_both!(changes_of_members_emit_events, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.signup("bob").await;
    invite(&app, &ada, "new@example.com", "viewer").await.expect(201);
    app.accept(&ada, &bob, "member").await;
    set_role(&app, &ada, &bob, "admin").await.expect(200);
    set_role(&app, &ada, &bob, "admin").await.expect(200);
    remove(&app, &ada, &ada).await.expect_error(409, "conflict");
    remove(&app, &ada, &bob).await.expect(200);
    let events = app.events(&ada.org_id).await;
    let told: Vec<_> = events.into_iter().filter(|(kind, _)| kind.starts_with("user.")).collect();
    let (email, id, actor) = (&bob.email, &bob.user_id, &ada.user_id);
    let expected = [
        (
            "user.invite",
            json!({"user_id": null, "email": "new@example.com", "role": "viewer", "actor": actor}),
        ),
        ("user.invite", json!({"user_id": null, "email": email, "role": "member", "actor": actor})),
        (
            "user.role_change",
            json!({"user_id": id, "email": email, "role": "admin", "actor": actor, "previous_role": "member"}),
        ),
        ("user.remove", json!({"user_id": id, "email": email, "role": "admin", "actor": actor})),
    ];
    assert_eq!(told, expected.map(|(kind, data)| (kind.to_owned(), data)));
    assert!(app.events(&bob.org_id).await.iter().all(|(kind, _)| !kind.starts_with("user.")));
});

on_both!(only_admins_see_open_invitations_in_the_list_of_members, |app| async move {
    let ada = app.signup("acme").await;
    invite(&app, &ada, "new@example.com", "viewer").await.expect(201);
    for (role, count) in [("viewer", 0), ("member", 0), ("admin", 1), ("owner", 1)] {
        let reader = app.join(&ada, role).await;
        let list = app.get(&members_of(&ada)).bearer(&reader.token).send().await.expect(200);
        assert_eq!(list["invitations"].as_array().unwrap().len(), count, "{role}: {list}");
    }
});
