//! Invitations: joining takes the person's consent, and the answer tells nothing about the invited address.

use gateway_core::time::DAY;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::{assert_field_error, fields, missing_id};
use crate::support::{Account, PASSWORD, TestApp, TestResponse};

const ACCEPT: &str = "/api/v1/auth/accept-invite";

fn invites_of(account: &Account) -> String {
    format!("/api/v1/orgs/{}/invites", account.org_id)
}

async fn invite(app: &TestApp, by: &Account, email: &str, role: &str) -> TestResponse {
    let path = format!("/api/v1/orgs/{}/members", by.org_id);
    app.post(&path, json!({"email": email, "role": role})).bearer(&by.token).send().await
}

async fn accept(app: &TestApp, by: &Account, token: &Value) -> TestResponse {
    app.post(ACCEPT, json!({"invite_token": token})).bearer(&by.token).send().await
}

async fn withdraw(app: &TestApp, by: &Account, invite: &Value) -> TestResponse {
    let path = format!("{}/{}", invites_of(by), invite["id"].as_str().unwrap());
    app.delete(&path).bearer(&by.token).send().await
}

async fn orgs_of(app: &TestApp, account: &Account) -> usize {
    let orgs = app.get("/api/v1/auth/orgs").bearer(&account.token).send().await.expect(200);
    orgs["orgs"].as_array().unwrap().len()
}

on_both!(an_invitation_tells_nothing_about_the_account_of_its_address, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.signup("bob").await;
    let known = invite(&app, &ada, " Bob@Example.com", "admin").await.expect(201);
    let unknown = invite(&app, &ada, "nobody@example.com", "admin").await.expect(201);
    let expected = ["created_at", "email", "expires_at", "id", "invite_token", "invited_by", "role"];
    assert_eq!(fields(&known), expected);
    assert_eq!(fields(&unknown), expected);
    assert_eq!((&known["email"], &known["invited_by"]), (&json!("bob@example.com"), &json!(ada.user_id)));
    let events = app.events(&ada.org_id).await;
    let invited: Vec<_> = events.iter().filter(|(kind, _)| kind == "user.invite").collect();
    for ((_, data), email) in invited.iter().zip(["bob@example.com", "nobody@example.com"]) {
        let expected = json!({"user_id": null, "email": email, "role": "admin", "actor": ada.user_id});
        assert_eq!(*data, expected);
    }
    assert_eq!(invited.len(), 2);
    // Without consent nobody is a member: the address may belong to somebody else.
    assert_eq!(orgs_of(&app, &bob).await, 1);
    let switch = json!({"org_id": ada.org_id});
    let switched = app.post("/api/v1/auth/switch-org", switch).bearer(&bob.token).send().await;
    switched.expect_error(403, "forbidden");
    let members = format!("/api/v1/orgs/{}/members", ada.org_id);
    let list = app.get(&members).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["members"].as_array().unwrap().len(), 1);
});

on_both!(a_person_with_an_account_accepts_an_invitation, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.signup("bob").await;
    let token = invite(&app, &ada, &bob.email, "viewer").await.expect(201)["invite_token"].clone();
    let joined = accept(&app, &bob, &token).await.expect(200);
    assert_eq!(fields(&joined), ["expires_at", "org", "role", "token"]);
    let org = json!({"id": ada.org_id, "slug": "acme", "name": "acme", "plan": "free", "role": "viewer"});
    assert_eq!((&joined["org"], &joined["role"]), (&org, &json!("viewer")));
    let me = app.get("/api/v1/auth/entitlements").bearer(joined["token"].as_str().unwrap()).send().await;
    let me = me.expect(200);
    assert_eq!((&me["org_id"], &me["role"]), (&json!(ada.org_id), &json!("viewer")));
    assert_eq!(orgs_of(&app, &bob).await, 2);
    // An invitation admits once.
    accept(&app, &bob, &token).await.expect_error(404, "not_found");
    let list = app.get(&invites_of(&ada)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list, json!({"invites": [], "next_cursor": null}));
    invite(&app, &ada, &bob.email, "admin").await.expect_error(409, "conflict");
});

on_both!(only_the_invited_person_accepts, |app| async move {
    let ada = app.signup("acme").await;
    let (bob, eve) = (app.signup("bob").await, app.signup("eve").await);
    let token = invite(&app, &ada, &bob.email, "admin").await.expect(201)["invite_token"].clone();
    accept(&app, &eve, &token).await.expect_error(403, "forbidden");
    for unknown in ["", "inv-", &format!("inv-{}", "0".repeat(64))] {
        accept(&app, &bob, &json!(unknown)).await.expect_error(404, "not_found");
    }
    assert_field_error(&accept(&app, &bob, &Value::Null).await, "invite_token");
    let by_key = app.post(ACCEPT, json!({"invite_token": token})).key(&bob.api_key).send().await;
    by_key.expect_error(403, "forbidden");
    // The refusals did not consume it.
    accept(&app, &bob, &token).await.expect(200);
    assert_eq!(orgs_of(&app, &eve).await, 1);
});

on_both!(of_concurrent_acceptances_one_succeeds, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.signup("bob").await;
    let token = invite(&app, &ada, &bob.email, "member").await.expect(201)["invite_token"].clone();
    let answers = futures_util::future::join_all((0..4).map(|_| accept(&app, &bob, &token))).await;
    let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 404, 404, 404]);
});

on_both!(invitations_are_listed_and_withdrawn_by_admins, |app| async move {
    let ada = app.signup("acme").await;
    let (bob, eve) = (app.signup("bob").await, app.signup("eve").await);
    let (admin, member) = (app.join(&ada, "admin").await, app.join(&ada, "member").await);
    let first = invite(&app, &ada, &bob.email, "member").await.expect(201);
    let second = invite(&app, &admin, "new@example.com", "viewer").await.expect(201);
    let owner = invite(&app, &ada, "boss@example.com", "owner").await.expect(201);
    let list = app.get(&invites_of(&admin)).bearer(&admin.token).send().await;
    assert!(!list.text().contains("invite_token") && !list.text().contains("inv-"), "{}", list.text());
    let list = list.expect(200);
    let ids: Vec<_> = list["invites"].as_array().unwrap().iter().map(|invite| &invite["id"]).collect();
    assert_eq!(ids, [&owner["id"], &second["id"], &first["id"]], "newest first");
    assert_eq!(list["invites"][1]["invited_by"], json!(admin.user_id));
    let path = format!("{}?limit=2", invites_of(&ada));
    let page = app.get(&path).bearer(&ada.token).send().await.expect(200);
    let path = format!("{path}&cursor={}", page["next_cursor"].as_str().unwrap());
    let rest = app.get(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&rest["invites"][0]["id"], &rest["next_cursor"]), (&first["id"], &Value::Null));

    app.get(&invites_of(&member)).bearer(&member.token).send().await.expect_error(403, "forbidden");
    withdraw(&app, &member, &first).await.expect_error(403, "forbidden");
    // Only owners decide on owners, also when a new invitation would replace theirs.
    withdraw(&app, &admin, &owner).await.expect_error(403, "forbidden");
    invite(&app, &admin, "boss@example.com", "viewer").await.expect_error(403, "forbidden");
    let foreign = format!("{}/{}", invites_of(&eve), first["id"].as_str().unwrap());
    app.delete(&foreign).bearer(&eve.token).send().await.expect_error(404, "not_found");
    let missing = format!("{}/{}", invites_of(&ada), missing_id().as_str().unwrap());
    app.delete(&missing).bearer(&ada.token).send().await.expect_error(404, "not_found");
    app.delete(&format!("{}/7", invites_of(&ada)))
        .bearer(&ada.token)
        .send()
        .await
        .expect_error(400, "bad_request");

    assert_eq!(withdraw(&app, &admin, &first).await.expect(200), json!({"deleted": true}));
    withdraw(&app, &admin, &first).await.expect_error(404, "not_found");
    accept(&app, &bob, &first["invite_token"]).await.expect_error(404, "not_found");
    withdraw(&app, &ada, &second).await.expect(200);
    let body =
        json!({"email": "new@example.com", "password": PASSWORD, "invite_token": second["invite_token"]});
    assert_field_error(&app.post("/api/v1/signup", body).send().await, "invite_token");
    withdraw(&app, &ada, &owner).await.expect(200);
});

on_both!(an_expired_invitation_is_neither_listed_nor_accepted, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.signup("bob").await;
    let token = invite(&app, &ada, &bob.email, "member").await.expect(201)["invite_token"].clone();
    app.app.services.clock.advance(7 * DAY);
    let login = |account: &Account| {
        let email = account.email.clone();
        let app = &app;
        async move { app.login(&email, PASSWORD).await.expect(200)["token"].as_str().unwrap().to_owned() }
    };
    let ada = Account { token: login(&ada).await, ..ada.clone() };
    let bob = Account { token: login(&bob).await, ..bob.clone() };
    accept(&app, &bob, &token).await.expect_error(404, "not_found");
    let list = app.get(&invites_of(&ada)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["invites"], json!([]));
    invite(&app, &ada, &bob.email, "member").await.expect(201);
});

on_both!(an_account_without_an_organization_joins_by_signing_in, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.join(&ada, "member").await;
    let member = format!("/api/v1/orgs/{}/members/{}", ada.org_id, bob.user_id);
    app.delete(&member).bearer(&ada.token).send().await.expect(200);
    let alone = app.login(&bob.email, PASSWORD).await.expect_error(403, "forbidden");
    assert!(alone["message"].as_str().unwrap().contains("invite_token"), "{alone}");
    let token = invite(&app, &ada, &bob.email, "viewer").await.expect(201)["invite_token"].clone();
    app.login(&bob.email, PASSWORD).await.expect_error(403, "forbidden");
    let login = |email: &str, password: &str| {
        let body = json!({"email": email, "password": password, "invite_token": token});
        app.post("/api/v1/login", body).send()
    };
    login(&bob.email, "wrong password").await.expect_error(401, "unauthorized");
    assert_field_error(&login(&ada.email, PASSWORD).await, "email");
    let back = login(&bob.email, PASSWORD).await.expect(200);
    assert_eq!((&back["org"]["id"], &back["org"]["role"]), (&json!(ada.org_id), &json!("viewer")));
    assert_eq!(app.status_with_token(back["token"].as_str().unwrap()).await, 200);
    assert_field_error(&login(&bob.email, PASSWORD).await, "invite_token");
});
