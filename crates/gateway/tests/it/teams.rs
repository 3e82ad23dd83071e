//! Teams, which are named groups of members.

use serde_json::{Value, json};

use crate::on_both;
use crate::support::{Account, TestApp, TestResponse};

fn teams_of(account: &Account) -> String {
    format!("/api/v1/orgs/{}/teams", account.org_id)
}

async fn create(app: &TestApp, by: &Account, body: Value) -> TestResponse {
    app.post(&teams_of(by), body).bearer(&by.token).send().await
}

async fn update(app: &TestApp, by: &Account, team: &Value, body: Value) -> TestResponse {
    let path = format!("{}/{}", teams_of(by), team["id"].as_str().unwrap());
    app.put(&path, body).bearer(&by.token).send().await
}

fn member_ids(team: &Value) -> Vec<String> {
    let members = team["members"].as_array().unwrap();
    let mut ids: Vec<_> = members.iter().map(|m| m["user_id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

on_both!(a_team_is_created_listed_renamed_and_deleted, |app| async move {
    let ada = app.signup("acme").await;
    let team = create(&app, &ada, json!({"name": "core", "member_ids": [ada.user_id]})).await.expect(201);
    let fields: Vec<_> = team.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["id", "org_id", "name", "members", "created_at"]);
    assert_eq!((&team["org_id"], &team["name"]), (&json!(ada.org_id), &json!("core")));
    assert_eq!(team["members"], json!([{"user_id": ada.user_id, "email": ada.email, "role": "owner"}]));
    let empty = create(&app, &ada, json!({"name": "empty"})).await.expect(201);
    assert_eq!(empty["members"], json!([]));
    let list = app.get(&teams_of(&ada)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list, json!({"teams": [empty, team], "next_cursor": null}));

    let renamed = update(&app, &ada, &team, json!({"name": "kernel"})).await.expect(200);
    assert_eq!((&renamed["name"], &renamed["members"]), (&json!("kernel"), &team["members"]));
    let path = format!("{}/{}", teams_of(&ada), team["id"].as_str().unwrap());
    let gone = app.delete(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!(gone, json!({"deleted": true}));
    app.delete(&path).bearer(&ada.token).send().await.expect_error(404, "not_found");
    update(&app, &ada, &team, json!({"name": "x"})).await.expect_error(404, "not_found");
    let list = app.get(&teams_of(&ada)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["teams"], json!([empty]));
});

on_both!(the_list_of_members_is_replaced_as_a_whole, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.join(&ada, "viewer").await;
    let team = create(&app, &ada, json!({"name": "core", "member_ids": [ada.user_id]})).await.expect(201);
    let both = json!({"member_ids": [bob.user_id, ada.user_id, bob.user_id]});
    let mut expected = vec![ada.user_id.clone(), bob.user_id.clone()];
    expected.sort();
    assert_eq!(member_ids(&update(&app, &ada, &team, both).await.expect(200)), expected);
    let one = update(&app, &ada, &team, json!({"member_ids": [bob.user_id]})).await.expect(200);
    assert_eq!(one["members"], json!([{"user_id": bob.user_id, "email": bob.email, "role": "viewer"}]));
    let kept = update(&app, &ada, &team, json!({})).await.expect(200);
    assert_eq!(member_ids(&kept), [bob.user_id]);
    let none = update(&app, &ada, &team, json!({"member_ids": []})).await.expect(200);
    assert_eq!(none["members"], json!([]));
});

on_both!(a_user_outside_the_organization_is_rejected_and_changes_nothing, |app| async move {
    let ada = app.signup("acme").await;
    let eve = app.signup("evil").await;
    let team = create(&app, &ada, json!({"name": "core", "member_ids": [ada.user_id]})).await.expect(201);
    let nobody = uuid::Uuid::new_v4().to_string();
    for stranger in [&eve.user_id, &nobody] {
        let ids = json!({"name": "changed", "member_ids": [ada.user_id, stranger]});
        for answer in [create(&app, &ada, ids.clone()).await, update(&app, &ada, &team, ids).await] {
            let error = answer.expect_error(400, "bad_request");
            assert!(error["message"].as_str().unwrap().contains("member_ids"), "{error}");
        }
    }
    for (body, named) in [
        (json!({"name": "x", "member_ids": ["x"]}), "member_ids"),
        (json!({"name": "x", "member_ids": "x"}), "member_ids"),
        (json!({"name": "x", "member_ids": [1]}), "member_ids"),
        (json!({"name": "", "member_ids": []}), "name"),
        (json!({"name": {}}), "name"),
    ] {
        for answer in [create(&app, &ada, body.clone()).await, update(&app, &ada, &team, body.clone()).await]
        {
            let error = answer.expect_error(400, "bad_request");
            assert!(error["message"].as_str().unwrap().contains(named), "{body}: {error}");
        }
    }
    create(&app, &ada, json!({"member_ids": []})).await.expect_error(400, "bad_request");
    let list = app.get(&teams_of(&ada)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["teams"], json!([team]));
});

on_both!(leaving_an_organization_leaves_its_teams_and_no_others, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.signup("bob").await;
    let members = format!("/api/v1/orgs/{}/members", ada.org_id);
    app.accept(&ada, &bob, "member").await;
    create(&app, &ada, json!({"name": "a", "member_ids": [bob.user_id, ada.user_id]})).await.expect(201);
    create(&app, &ada, json!({"name": "b", "member_ids": [bob.user_id]})).await.expect(201);
    create(&app, &bob, json!({"name": "own", "member_ids": [bob.user_id]})).await.expect(201);
    let path = format!("{members}/{}", bob.user_id);
    app.delete(&path).bearer(&ada.token).send().await.expect(200);
    // Rejoining does not restore the old team memberships.
    app.accept(&ada, &bob, "member").await;
    let list = app.get(&teams_of(&ada)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(member_ids(&list["teams"][0]), [""; 0]);
    assert_eq!(member_ids(&list["teams"][1]), [ada.user_id]);
    let own = app.get(&teams_of(&bob)).bearer(&bob.token).send().await.expect(200);
    assert_eq!(member_ids(&own["teams"][0]), [bob.user_id]);
});

on_both!(a_member_removed_during_a_team_update_is_in_no_team, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.signup("bob").await;
    let members = format!("/api/v1/orgs/{}/members", ada.org_id);
    let team = create(&app, &ada, json!({"name": "core"})).await.expect(201);
    app.accept(&ada, &bob, "member").await;
    // A long list keeps the team update running while the member is removed.
    let mut ids = vec![bob.user_id.clone()];
    ids.resize(100, ada.user_id.clone());
    for round in 0..3 {
        let leave = app.delete(&format!("{members}/{}", bob.user_id)).bearer(&ada.token).send();
        let (added, left) = tokio::join!(update(&app, &ada, &team, json!({"member_ids": ids})), leave);
        left.expect(200);
        assert!([200, 400].contains(&added.status.as_u16()), "{}", added.text());
        app.accept(&ada, &bob, "member").await;
        let list = app.get(&teams_of(&ada)).bearer(&ada.token).send().await.expect(200);
        let found = member_ids(&list["teams"][0]);
        assert!(!found.contains(&bob.user_id), "round {round}: {}", added.text());
    }
});

on_both!(a_deleted_team_leaves_its_applications_without_one, |app| async move {
    let ada = app.signup("acme").await;
    let team = create(&app, &ada, json!({"name": "core"})).await.expect(201);
    let apps = format!("/api/v1/orgs/{}/apps", ada.org_id);
    let body = json!({"name": "bot", "team_id": team["id"]});
    app.post(&apps, body).bearer(&ada.token).send().await.expect(201);
    let path = format!("{}/{}", teams_of(&ada), team["id"].as_str().unwrap());
    app.delete(&path).bearer(&ada.token).send().await.expect(200);
    let list = app.get(&apps).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&list["apps"][0]["name"], &list["apps"][0]["team_id"]), (&json!("bot"), &Value::Null));
});

on_both!(many_teams_come_in_pages_without_gaps_or_repeats, |app| async move {
    let ada = app.signup("acme").await;
    let mut made = Vec::new();
    for number in 0..5 {
        let team = create(&app, &ada, json!({"name": format!("team {number}")})).await.expect(201);
        made.insert(0, team["id"].clone());
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("{}?limit=2{cursor}", teams_of(&ada));
        let page = app.get(&path).bearer(&ada.token).send().await.expect(200);
        let teams = page["teams"].as_array().unwrap();
        assert!((1..=2).contains(&teams.len()));
        seen.extend(teams.iter().map(|team| team["id"].clone()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, made);
    let exact = app.get(&format!("{}?limit=5", teams_of(&ada))).bearer(&ada.token).send().await.expect(200);
    assert_eq!(exact["next_cursor"], Value::Null);
    let clamped =
        app.get(&format!("{}?limit=100000", teams_of(&ada))).bearer(&ada.token).send().await.expect(200);
    assert_eq!(clamped["teams"].as_array().unwrap().len(), 5);
    for bad in ["limit=0", "limit=-1", "limit=two", "cursor=%00", "cursor=*"] {
        let answer = app.get(&format!("{}?{bad}", teams_of(&ada))).bearer(&ada.token).send().await;
        answer.expect_error(400, "bad_request");
    }
});

on_both!(a_malformed_team_id_is_a_bad_request, |app| async move {
    let ada = app.signup("acme").await;
    let path = format!("{}/core", teams_of(&ada));
    for answer in [
        app.put(&path, json!({"name": "x"})).bearer(&ada.token).send().await,
        app.delete(&path).bearer(&ada.token).send().await,
    ] {
        let error = answer.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains("teamId"), "{error}");
    }
});
