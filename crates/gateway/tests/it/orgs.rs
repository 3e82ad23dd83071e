//! Organizations: creating, reading, changing and deleting them, and permissions.

use serde_json::{Value, json};

use crate::on_both;
use crate::support::{Account, TestApp};

/// Creates another organization for the same user and returns a token scoped to it.
async fn second_org(app: &TestApp, of: &Account, slug: &str) -> (String, String) {
    let org = app.post("/api/v1/orgs", json!({"name": slug, "slug": slug})).bearer(&of.token).send().await;
    let id = org.expect(201)["id"].as_str().unwrap().to_owned();
    let switched = app.post("/api/v1/auth/switch-org", json!({"org_id": id})).bearer(&of.token).send().await;
    (id, switched.expect(200)["token"].as_str().unwrap().to_owned())
}

fn settings_with(log_bodies: bool, log_retention_days: &Value) -> Value {
    json!({
        "log_bodies": log_bodies, "log_retention_days": log_retention_days, "auditors": [],
        "audit_reads": "users", "audit_retention_days": 365, "default_provider": null,
        "prompt_cache": {"mode": "off", "ttl": "5m", "min_tokens": 1024}, "affinity": "header",
        "self_service_keys": null, "limit_headers": "all", "skills_served": "passed", "skills_as_tools": true,
    })
}

on_both!(an_organization_is_founded_with_the_slug_that_was_asked_for, |app| async move {
    let ada = app.signup("acme").await;
    let body = json!({"name": "Acme Labs", "slug": "acme-labs", "plan": "enterprise", "unknown": 1});
    let org = app.post("/api/v1/orgs", body).bearer(&ada.token).send().await.expect(201);
    let fields: Vec<_> = org.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["id", "slug", "name", "plan", "role", "settings", "created_at"]);
    assert_eq!((&org["slug"], &org["name"]), (&json!("acme-labs"), &json!("Acme Labs")));
    assert_eq!((&org["plan"], &org["role"]), (&json!("free"), &json!("owner")));
    assert_eq!(org["settings"], settings_with(true, &Value::Null));
    let created = org["created_at"].as_str().unwrap();
    assert!(created.len() == "2026-01-01T00:00:00.000Z".len() && created.ends_with('Z'), "{created}");
    let id: uuid::Uuid = org["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(id.get_version_num(), 7);
});

on_both!(an_organization_without_a_slug_gets_one_made_from_its_name, |app| async move {
    let ada = app.signup("acme").await;
    let mut seen = Vec::new();
    for (name, start) in
        [("Acme Labs, Inc.", "acme-labs-inc-"), ("Acme Labs, Inc.", "acme-labs-inc-"), ("日本", "org-")]
    {
        let org = app.post("/api/v1/orgs", json!({"name": name})).bearer(&ada.token).send().await.expect(201);
        let slug = org["slug"].as_str().unwrap().to_owned();
        assert!(slug.starts_with(start) && slug.len() <= 48, "{slug}");
        assert!(!seen.contains(&slug), "{slug} came twice");
        seen.push(slug);
    }
    let long = app.post("/api/v1/orgs", json!({"name": "x".repeat(200)})).bearer(&ada.token).send().await;
    assert!(long.expect(201)["slug"].as_str().unwrap().len() <= 48);
});

on_both!(an_organization_with_bad_fields_is_refused_and_the_field_named, |app| async move {
    let ada = app.signup("acme").await;
    for (body, named) in [
        (json!({}), "name"),
        (json!({"name": "  "}), "name"),
        (json!({"name": 7}), "name"),
        (json!({"name": "x".repeat(201)}), "name"),
        (json!({"name": "a\u{7}b"}), "name"),
        (json!({"name": "x", "slug": "Not A Slug"}), "slug"),
        (json!({"name": "x", "slug": ""}), "slug"),
        (json!({"name": "x", "slug": "-x"}), "slug"),
        (json!({"name": "x", "slug": "x".repeat(49)}), "slug"),
        (json!({"name": "x", "slug": ["x"]}), "slug"),
    ] {
        let answer = app.post("/api/v1/orgs", body.clone()).bearer(&ada.token).send().await;
        let error = answer.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{body}: {error}");
    }
    for body in [json!(["A name", "a-slug"]), json!("x"), json!(null), json!([{"name": "x"}])] {
        let answer = app.post("/api/v1/orgs", body).bearer(&ada.token).send().await;
        answer.expect_error(400, "bad_request");
    }
    let taken =
        app.post("/api/v1/orgs", json!({"name": "x", "slug": "acme"})).bearer(&ada.token).send().await;
    taken.expect_error(409, "conflict");
});

on_both!(an_api_key_founds_no_organization, |app| async move {
    let ada = app.signup("acme").await;
    let answer = app.post("/api/v1/orgs", json!({"name": "x"})).key(&ada.api_key).send().await;
    answer.expect_error(403, "forbidden");
});

on_both!(a_person_lists_their_organizations_newest_first_and_a_key_its_own, |app| async move {
    let ada = app.signup("acme").await;
    let (second, _) = second_org(&app, &ada, "second").await;
    let (third, _) = second_org(&app, &ada, "third").await;
    app.signup("stranger").await;
    let ids = |list: &Value| -> Vec<String> {
        list["orgs"].as_array().unwrap().iter().map(|org| org["id"].as_str().unwrap().to_owned()).collect()
    };
    let list = app.get("/api/v1/orgs").bearer(&ada.token).send().await.expect(200);
    assert_eq!(ids(&list), [third.clone(), second.clone(), ada.org_id.clone()]);
    assert_eq!(list["next_cursor"], Value::Null);
    let of_key = app.get("/api/orgs").key(&ada.api_key).send().await.expect(200);
    assert_eq!(ids(&of_key), std::slice::from_ref(&ada.org_id));
    assert_eq!(of_key["orgs"][0]["role"], "admin");

    let first = app.get("/api/v1/orgs?limit=2").bearer(&ada.token).send().await.expect(200);
    assert_eq!(ids(&first), [third, second]);
    let cursor = first["next_cursor"].as_str().unwrap();
    let path = format!("/api/v1/orgs?limit=2&cursor={cursor}");
    let rest = app.get(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!((ids(&rest), &rest["next_cursor"]), (vec![ada.org_id.clone()], &Value::Null));
    for bad in ["0", "-1", "x", "1.5"] {
        let answer = app.get(&format!("/api/v1/orgs?limit={bad}")).bearer(&ada.token).send().await;
        answer.expect_error(400, "bad_request");
    }
});

on_both!(a_member_reads_the_organization_with_their_own_role, |app| async move {
    let ada = app.signup("acme").await;
    let viewer = app.join(&ada, "viewer").await;
    let path = format!("/api/v1/orgs/{}", ada.org_id);
    let org = app.get(&path).bearer(&viewer.token).send().await.expect(200);
    assert_eq!(
        (&org["slug"], &org["role"], &org["plan"]),
        (&json!("acme"), &json!("viewer"), &json!("free"))
    );
    let by_key = app.get(&path).key(&ada.api_key).send().await.expect(200);
    assert_eq!(by_key["role"], "admin");
});

on_both!(an_admin_changes_name_and_settings_and_the_rest_stays, |app| async move {
    let ada = app.signup("acme").await;
    let admin = app.join(&ada, "admin").await;
    let path = format!("/api/v1/orgs/{}", ada.org_id);
    let change = |body: Value, token: &str| app.put(&path, body).bearer(token).send();
    let named = change(json!({"name": "Acme & Sons"}), &admin.token).await.expect(200);
    assert_eq!(
        (&named["name"], &named["slug"], &named["role"]),
        (&json!("Acme & Sons"), &json!("acme"), &json!("admin"))
    );
    let settings = change(json!({"settings": {"log_retention_days": 7}}), &admin.token).await.expect(200);
    assert_eq!(settings["settings"], settings_with(true, &json!(7)));
    let settings = change(json!({"settings": {"log_bodies": false}}), &admin.token).await.expect(200);
    assert_eq!(settings["settings"], settings_with(false, &json!(7)));
    let settings = change(json!({"settings": {"log_retention_days": null}}), &admin.token).await.expect(200);
    assert_eq!(settings["settings"], settings_with(false, &Value::Null));
    let unchanged = change(json!({}), &admin.token).await.expect(200);
    assert_eq!((&unchanged["name"], &unchanged["settings"]), (&json!("Acme & Sons"), &settings["settings"]));
    let read = app.get(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&read["name"], &read["settings"]), (&json!("Acme & Sons"), &settings["settings"]));
});

on_both!(bad_settings_are_refused_and_the_field_named, |app| async move {
    let ada = app.signup("acme").await;
    let path = format!("/api/v1/orgs/{}", ada.org_id);
    for (body, named) in [
        (json!({"name": ""}), "name"),
        (json!({"plan": "gold"}), "plan"),
        (json!({"plan": 3}), "plan"),
        (json!({"settings": {"log_bodies": "yes"}}), "settings.log_bodies"),
        (json!({"settings": {"log_retention_days": 0}}), "settings.log_retention_days"),
        (json!({"settings": {"log_retention_days": -3}}), "settings.log_retention_days"),
        (json!({"settings": {"log_retention_days": 36501}}), "settings.log_retention_days"),
        (json!({"settings": {"log_retention_days": 1.5}}), "settings.log_retention_days"),
        (json!({"settings": 1}), "settings"),
        (json!({"settings": [true, 5]}), "settings"),
    ] {
        let error =
            app.put(&path, body.clone()).bearer(&ada.token).send().await.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{body}: {error}");
    }
});

on_both!(only_an_owner_changes_the_plan_and_it_counts_at_once, |app| async move {
    let ada = app.signup("acme").await;
    let admin = app.join(&ada, "admin").await;
    let path = format!("/api/v1/orgs/{}", ada.org_id);
    let both = json!({"name": "Renamed", "plan": "enterprise"});
    app.put(&path, both.clone()).bearer(&admin.token).send().await.expect_error(403, "forbidden");
    app.put(&path, both.clone()).key(&ada.api_key).send().await.expect_error(403, "forbidden");
    let untouched = app.get(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&untouched["name"], &untouched["plan"]), (&json!("acme"), &json!("free")));

    let changed = app.put(&path, both).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&changed["name"], &changed["plan"]), (&json!("Renamed"), &json!("enterprise")));
    let seen = app.get("/api/v1/auth/entitlements").key(&ada.api_key).send().await.expect(200);
    assert_eq!(seen["plan"], "enterprise");
    assert_eq!(seen["entitlements"], json!(["integrations", "skill_marketplace", "webhooks"]));
});

on_both!(
    where_the_operator_sets_plans_an_owner_does_not,
    [("GATEWAY_PLAN_CHANGES", "operator")],
    |app| async move {
        let ada = app.signup("acme").await;
        let path = format!("/api/v1/orgs/{}", ada.org_id);
        let body = json!({"plan": "pro", "name": "x"});
        app.put(&path, body).bearer(&ada.token).send().await.expect_error(403, "forbidden");
        let named = app.put(&path, json!({"name": "y"})).bearer(&ada.token).send().await.expect(200);
        assert_eq!((&named["name"], &named["plan"]), (&json!("y"), &json!("free")));
    }
);

on_both!(
    a_new_organization_starts_on_the_default_plan,
    [("GATEWAY_DEFAULT_PLAN", "enterprise")],
    |app| async move {
        let ada = app.signup("acme").await;
        let org = app.post("/api/v1/orgs", json!({"name": "x"})).bearer(&ada.token).send().await.expect(201);
        assert_eq!(org["plan"], "enterprise");
    }
);

on_both!(changes_of_different_fields_at_the_same_time_all_stay, |app| async move {
    let ada = app.signup("acme").await;
    let path = format!("/api/v1/orgs/{}", ada.org_id);
    for round in 1..=8 {
        let change = |body: Value| app.put(&path, body).bearer(&ada.token).send();
        let (a, b, c) = tokio::join!(
            change(json!({"name": format!("name {round}")})),
            change(json!({"settings": {"log_retention_days": round}})),
            change(json!({"settings": {"log_bodies": round % 2 == 0}})),
        );
        for answer in [a, b, c] {
            answer.expect(200);
        }
        let org = app.get(&path).bearer(&ada.token).send().await.expect(200);
        assert_eq!(org["name"], format!("name {round}"));
        assert_eq!(org["settings"], settings_with(round % 2 == 0, &json!(round)));
    }
});

on_both!(deleting_an_organization_deletes_everything_in_it, |app| async move {
    let ada = app.signup("acme").await;
    let admin = app.join(&ada, "admin").await;
    let at = |below: &str| format!("/api/v1/orgs/{}{below}", ada.org_id);
    let create = |below: &str, body: Value| app.post(&at(below), body).bearer(&ada.token).send();
    create("/teams", json!({"name": "core", "member_ids": [ada.user_id]})).await.expect(201);
    create("/apps", json!({"name": "bot"})).await.expect(201);
    create("/providers", json!({"name": "openai", "api_key": "sk-live"})).await.expect(201);
    let invite = create("/members", json!({"email": "late@example.com"})).await.expect(201);
    let (second, second_token) = second_org(&app, &ada, "second").await;

    app.delete(&at("")).bearer(&admin.token).send().await.expect_error(403, "forbidden");
    app.delete(&at("")).key(&ada.api_key).send().await.expect_error(403, "forbidden");
    let gone = app.delete(&at("")).bearer(&ada.token).send().await.expect(200);
    assert_eq!(gone["deleted"], true);
    assert_eq!(gone["audit"]["hash"].as_str().unwrap().len(), 64);

    for token in [&ada.token, &admin.token] {
        app.get("/api/v1/keys").bearer(token).send().await.expect_error(401, "unauthorized");
    }
    app.get("/api/v1/keys").key(&ada.api_key).send().await.expect_error(401, "unauthorized");
    let body = json!({"email": "late@example.com", "password": "correct horse", "invite_token": invite["invite_token"]});
    let late = app.post("/api/v1/signup", body).send().await.expect_error(400, "bad_request");
    assert!(late["message"].as_str().unwrap().contains("invite_token"), "{late}");
    assert_eq!(app.events(&ada.org_id).await, []);

    let left = app.get("/api/v1/orgs").bearer(&second_token).send().await.expect(200);
    assert_eq!(left["orgs"].as_array().unwrap().len(), 1, "{left}");
    assert_eq!(left["orgs"][0]["id"], second);
    app.get(&at("")).bearer(&second_token).send().await.expect_error(404, "not_found");
    // The slug is free again.
    app.post("/api/v1/orgs", json!({"name": "acme", "slug": "acme"}))
        .bearer(&second_token)
        .send()
        .await
        .expect(201);
});

on_both!(another_organization_of_the_same_person_asks_to_switch_first, |app| async move {
    let ada = app.signup("acme").await;
    let (second, second_token) = second_org(&app, &ada, "second").await;
    for below in ["", "/members", "/teams", "/apps", "/providers"] {
        let path = format!("/api/v1/orgs/{second}{below}");
        app.get(&path).bearer(&ada.token).send().await.expect_error(403, "forbidden");
        app.get(&path).bearer(&second_token).send().await.expect(200);
        // A key belongs to one organization.
        app.get(&path).key(&ada.api_key).send().await.expect_error(404, "not_found");
    }
    let path = format!("/api/v1/orgs/{second}");
    app.delete(&path).bearer(&ada.token).send().await.expect_error(403, "forbidden");
    app.get(&path).bearer(&second_token).send().await.expect(200);
});

on_both!(a_malformed_organization_id_is_a_bad_request, |app| async move {
    let ada = app.signup("acme").await;
    let simple = ada.org_id.replace('-', "");
    for id in ["x", "0", "%00", "%ff", "..", "null", simple.as_str(), &format!("{{{}}}", ada.org_id)] {
        let id = id.replace('{', "%7B").replace('}', "%7D");
        for below in ["", "/teams"] {
            let answer = app.get(&format!("/api/v1/orgs/{id}{below}")).bearer(&ada.token).send().await;
            let error = answer.expect_error(400, "bad_request");
            assert!(error["message"].as_str().unwrap().contains("orgId"), "{id}: {error}");
        }
    }
});
