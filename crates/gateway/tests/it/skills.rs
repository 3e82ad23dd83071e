//! Skills of an organization: create, read, change, delete, and the rubric.

use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::{assert_uuid_v7, fields as names, missing_id, time};
use crate::support::skills::{ENTERPRISE, fields, path};
use crate::support::{TestApp, TestResponse};

const RAW: &str = "---\nname: code-review\nheadline: Careful reviews\ndescription: Reviews a change.\nlicense: MIT\n---\n\n# Steps\n\n1. Read it.\n";

#[track_caller]
fn assert_coded(answer: &TestResponse, status: u16, code: &str) -> Value {
    let body = answer.expect_error(status, code);
    assert!(body["error"].is_string() && body["error_code"] == code, "{body}");
    body
}

on_both!(a_skill_is_created_from_a_file, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let skill = app.skill(&ada, json!({"raw_source": RAW, "name": "Ignored Name", "description": ""})).await;
    assert_eq!(
        names(&skill),
        [
            "adoptions",
            "body",
            "content_hash",
            "created_at",
            "description",
            "files",
            "headline",
            "id",
            "latest_evaluation",
            "name",
            "org_id",
            "published_at",
            "published_version",
            "raw_source",
            "source_skill_id",
            "updated_at",
            "version",
            "visibility",
        ]
    );
    assert_uuid_v7(&skill["id"]);
    assert_eq!((&skill["name"], &skill["headline"]), (&json!("code-review"), &json!("Careful reviews")));
    assert_eq!(
        (&skill["description"], &skill["body"]),
        (&json!("Reviews a change."), &json!("# Steps\n\n1. Read it.\n"))
    );
    assert_eq!(
        (&skill["raw_source"], &skill["version"], &skill["visibility"]),
        (&json!(RAW), &json!(1), &json!("private"))
    );
    for field in ["published_at", "published_version", "source_skill_id"] {
        assert_eq!(skill[field], Value::Null, "{field}");
    }
    assert_eq!(time(&skill["created_at"]), time(&skill["updated_at"]));
    let again = app.get(&path(&skill)).key(&ada.api_key).send().await.expect(200);
    assert_eq!(again["raw_source"], skill["raw_source"]);
});

on_both!(a_skill_is_created_from_fields_and_its_file_matches, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let body = json!({"name": "say-hi", "headline": "Hi: \"there\"", "description": "Says hi # not a comment\nin two lines", "body": "---\nHi\n"});
    let skill = app.skill(&ada, body.clone()).await;
    for field in ["name", "headline", "description", "body"] {
        assert_eq!(skill[field], body[field], "{field}");
    }
    let raw = skill["raw_source"].as_str().unwrap();
    assert!(raw.starts_with("---\n"), "{raw}");
    let copy = app.signup("copy").await;
    let read = app.skill(&copy, json!({"raw_source": raw})).await;
    for field in ["name", "headline", "description", "body", "content_hash"] {
        assert_eq!(read[field], skill[field], "{field}");
    }
});

on_both!(what_is_wrong_with_a_new_skill_has_its_code, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    app.skill(&ada, fields("taken")).await;
    let create = async |body: Value| app.post("/api/v1/skills", body).bearer(&ada.token).send().await;
    for (body, code) in [
        (json!({}), "missing_required"),
        (json!({"name": "a"}), "missing_required"),
        (json!({"description": "b"}), "missing_required"),
        (json!({"raw_source": "", "name": "", "description": ""}), "missing_required"),
        (json!({"name": "Not Kebab", "description": "b"}), "invalid_frontmatter"),
        (json!({"name": "a--b", "description": "b"}), "invalid_frontmatter"),
        (json!({"name": "x".repeat(65), "description": "b"}), "invalid_frontmatter"),
        (json!({"name": "a", "description": "x".repeat(1025)}), "invalid_frontmatter"),
        (json!({"raw_source": "no frontmatter"}), "invalid_frontmatter"),
        (json!({"raw_source": "---\nname: a\n---\n"}), "invalid_frontmatter"),
        (json!({"raw_source": "---\ndescription: a\n---\n"}), "invalid_frontmatter"),
        (json!({"raw_source": "---\nname: A\ndescription: b\n---\n"}), "invalid_frontmatter"),
        (json!({"raw_source": "---\nname: [\n---\n"}), "invalid_frontmatter"),
        (json!({"raw_source": "---\nname: a\ndescription: b\nx: &a [*a, *a]\n---\n"}), "invalid_frontmatter"),
        (json!({"name": "a", "description": "b", "body": "x".repeat(300_000)}), "invalid_body"),
        (json!({"name": 5, "description": "b"}), "invalid_body"),
        (json!({"raw_source": ["x"]}), "invalid_body"),
    ] {
        let body = create(body).await;
        assert_coded(&body, 400, code);
    }
    assert_coded(&create(fields("taken")).await, 409, "duplicate_name");
    let broken = app.call(http::Method::POST, "/api/v1/skills").bearer(&ada.token).raw("{").send().await;
    assert_coded(&broken, 400, "invalid_body");
    let list = app.get("/api/v1/skills").bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["skills"].as_array().unwrap().len(), 1, "nothing was made by mistake");
});

on_both!(an_update_makes_a_version_and_keeps_a_snapshot, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let skill = app.skill(&ada, json!({"raw_source": RAW})).await;
    let update = async |body: Value| app.put(&path(&skill), body).bearer(&ada.token).send().await;
    let same = update(json!({"name": "code-review"})).await.expect(200);
    assert_eq!(
        (&same["version"], &same["updated_at"]),
        (&json!(1), &skill["updated_at"]),
        "nothing changed, no version"
    );
    // Also where the file is written in another way than the gateway would: without an empty line before the body.
    let tight = "---\nname: tight\ndescription: 'd'\n---\nBody\n";
    let tight = app.skill(&ada, json!({"raw_source": tight})).await;
    for same in
        [json!({}), json!({"name": "tight", "body": "Body\n"}), json!({"description": "d", "headline": ""})]
    {
        let same = app.put(&path(&tight), same).bearer(&ada.token).send().await.expect(200);
        assert_eq!((&same["version"], &same["raw_source"]), (&json!(1), &tight["raw_source"]));
    }
    app.app.services.clock.advance(5);
    let second = update(json!({"headline": null, "body": "# New\n"})).await.expect(200);
    assert_eq!(
        (&second["version"], &second["headline"], &second["body"]),
        (&json!(2), &json!(""), &json!("# New\n"))
    );
    assert!(second["raw_source"].as_str().unwrap().contains("license: MIT"), "{second}");
    assert!(time(&second["updated_at"]) > time(&skill["updated_at"]));
    let raw = RAW.replace("code-review", "other-name");
    let third = update(json!({"raw_source": raw, "name": "ignored", "body": "ignored"})).await.expect(200);
    assert_eq!(
        (&third["version"], &third["name"], &third["raw_source"]),
        (&json!(3), &json!("other-name"), &json!(raw))
    );
    let listed = app.get(&format!("{}/versions", path(&skill))).bearer(&ada.token).send().await.expect(200);
    let versions = listed["versions"].as_array().unwrap();
    assert_eq!(versions.iter().map(|v| v["version"].as_i64().unwrap()).collect::<Vec<_>>(), [3, 2, 1]);
    assert_eq!((&versions[2]["raw_source"], &versions[2]["created_by"]), (&json!(RAW), &json!(ada.user_id)));
    let page =
        app.get(&format!("{}/versions?limit=2", path(&skill))).bearer(&ada.token).send().await.expect(200);
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = app
        .get(&format!("{}/versions?limit=2&cursor={cursor}", path(&skill)))
        .bearer(&ada.token)
        .send()
        .await;
    assert_eq!(rest.expect(200)["versions"][0]["version"], 1);

    app.skill(&ada, fields("taken")).await;
    assert_coded(&update(json!({"name": "taken"})).await, 409, "duplicate_name");
    for (body, code) in [
        (json!({"name": "Not Kebab"}), "invalid_frontmatter"),
        (json!({"description": ""}), "invalid_frontmatter"),
        (json!({"raw_source": "x"}), "invalid_frontmatter"),
        (json!({"body": 5}), "invalid_body"),
    ] {
        assert_coded(&update(body).await, 400, code);
    }
    let now = app.get(&path(&skill)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(
        (&now["version"], &now["name"]),
        (&json!(3), &json!("other-name")),
        "a bad update changes nothing"
    );
});

on_both!(lists_are_filtered_and_paged, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let public = app.published(&ada, fields("alpha-one")).await;
    for name in ["alpha-two", "beta", "gamma"] {
        app.skill(&ada, fields(name)).await;
    }
    let list = async |query: &str| {
        let answer = app.get(&format!("/api/v1/skills?{query}")).bearer(&ada.token).send().await.expect(200);
        let skills = answer["skills"].as_array().unwrap();
        skills.iter().map(|skill| skill["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list("").await, ["gamma", "beta", "alpha-two", "alpha-one"]);
    assert_eq!(list("visibility=").await.len(), 4);
    assert_eq!(list("visibility=public").await, ["alpha-one"]);
    assert_eq!(list("visibility=private&name_like=alpha").await, ["alpha-two"]);
    assert_eq!(list("name_like=HA-t").await, ["alpha-two"]);
    assert_eq!(list("name_like=%25").await, [""; 0], "a percent sign is a percent sign");
    assert_eq!(list("name_like=a_p").await, [""; 0], "so is an underscore");
    assert_eq!(list("limit=2").await, ["gamma", "beta"]);
    for bad in ["visibility=secret", "limit=0", "limit=x", "cursor=*"] {
        let answer = app.get(&format!("/api/v1/skills?{bad}")).bearer(&ada.token).send().await;
        let error = assert_coded(&answer, 400, "bad_request");
        assert!(error["error"].as_str().unwrap().contains(bad.split('=').next().unwrap()), "{error}");
    }
    let gone = app.delete(&path(&public)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(gone, json!({"deleted": true}));
    assert_eq!(list("name_like=alpha-one").await, [""; 0]);
    assert_coded(&app.get(&path(&public)).bearer(&ada.token).send().await, 404, "not_found");
});

on_both!(invalid_ids_differ_from_missing_ones, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let missing = missing_id();
    for (method, below) in [
        ("GET", ""),
        ("PUT", ""),
        ("DELETE", ""),
        ("GET", "/SKILL.md"),
        ("GET", "/versions"),
        ("POST", "/publish"),
        ("POST", "/unpublish"),
        ("POST", "/evaluate"),
        ("GET", "/evaluations"),
    ] {
        for (id, status, code) in
            [("nonsense", 400, "invalid_id"), (missing.as_str().unwrap(), 404, "not_found")]
        {
            let call =
                app.call(method.parse().unwrap(), &format!("/api/v1/skills/{id}{below}")).json(json!({}));
            assert_coded(&call.bearer(&ada.token).send().await, status, code);
        }
    }
    for (method, below) in [("GET", ""), ("GET", "/SKILL.md"), ("POST", "/adopt")] {
        for (id, status, code) in
            [("nonsense", 400, "invalid_id"), (missing.as_str().unwrap(), 404, "not_found")]
        {
            let call = app.call(method.parse().unwrap(), &format!("/api/v1/skills/public/{id}{below}"));
            assert_coded(&call.bearer(&ada.token).send().await, status, code);
        }
    }
});

on_both!(the_marketplace_comes_with_the_enterprise_plan, |app| async move {
    let ada = app.signup("acme").await;
    let viewer = app.join(&ada, "viewer").await;
    let id = missing_id();
    let id = id.as_str().unwrap();
    let calls = [
        ("GET", "/api/v1/skills".to_owned()),
        ("POST", "/api/v1/skills".to_owned()),
        ("GET", "/api/v1/skills/public".to_owned()),
        ("GET", "/api/v1/skills/rubric".to_owned()),
        ("PUT", format!("/api/v1/skills/rubric/{id}")),
        ("GET", format!("/api/v1/skills/{id}")),
        ("POST", format!("/api/v1/skills/public/{id}/adopt")),
        ("POST", "/api/v1/eval-results".to_owned()),
        ("GET", "/api/v1/eval-results".to_owned()),
    ];
    let ask = async |token: &str, method: &str, path: &str| {
        // A malformed body: plan and role are checked first.
        app.call(method.parse().unwrap(), path).raw("{").bearer(token).send().await
    };
    for (method, path) in &calls {
        let error = assert_coded(&ask(&ada.token, method, path).await, 403, "forbidden");
        assert!(error["error"].as_str().unwrap().contains("plan"), "{error}");
        let error = assert_coded(&ask(&viewer.token, method, path).await, 403, "forbidden");
        assert!(error["error"].as_str().unwrap().contains("plan"), "the plan comes before the role: {error}");
    }
    let org = format!("/api/v1/orgs/{}", ada.org_id);
    app.put(&org, json!({"plan": "enterprise"})).bearer(&ada.token).send().await.expect(200);
    for (method, path) in &calls {
        let answer = ask(&viewer.token, method, path).await;
        if *method == "GET" {
            assert!([200, 400, 404].contains(&answer.status.as_u16()), "{method} {path}: {}", answer.text());
        } else {
            let error = assert_coded(&answer, 403, "forbidden");
            assert!(error["error"].as_str().unwrap().contains("role"), "{error}");
        }
    }
});

on_both!(what_is_another_organizations_is_not_there, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let eve = app.signup("evil").await;
    let skill = app.skill(&ada, fields("secret-recipe")).await;
    for (method, below) in [
        ("GET", ""),
        ("PUT", ""),
        ("DELETE", ""),
        ("GET", "/SKILL.md"),
        ("GET", "/versions"),
        ("POST", "/publish"),
        ("POST", "/unpublish"),
        ("POST", "/evaluate"),
        ("GET", "/evaluations"),
    ] {
        let ask = async |id: &Value| {
            let path = format!("/api/v1/skills/{}{below}", id.as_str().unwrap());
            app.call(method.parse().unwrap(), &path)
                .json(json!({"name": "x"}))
                .bearer(&eve.token)
                .send()
                .await
        };
        let (foreign, missing) = (ask(&skill["id"]).await, ask(&missing_id()).await);
        assert_coded(&foreign, 404, "not_found");
        assert_eq!(foreign.text(), missing.text(), "{method} {below}");
    }
    let private = app
        .get(&format!("/api/v1/skills/public/{}", skill["id"].as_str().unwrap()))
        .bearer(&eve.token)
        .send()
        .await;
    assert_coded(&private, 404, "not_found");
    let list = app.get("/api/v1/skills").bearer(&eve.token).send().await.expect(200);
    assert_eq!(list, json!({"skills": [], "next_cursor": null}));
    assert_eq!(app.get(&path(&skill)).bearer(&ada.token).send().await.expect(200)["version"], 1);
});

on_both!(a_rubric_is_seeded_once_and_changed_in_part, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let get = async || app.get("/api/v1/skills/rubric").bearer(&ada.token).send().await.expect(200);
    let (first, again) = tokio::join!(get(), get());
    assert_eq!(first, again, "two who ask first get the same");
    let rubric = first;
    assert_uuid_v7(&rubric["id"]);
    let chosen = ["judge_provider", "judge_model", "embed_provider", "embed_model", "embed_dims"]
        .map(|f| rubric[f].clone());
    assert_eq!(
        chosen,
        [json!("builtin"), json!("rubric-v1"), json!("builtin"), json!("hash-v1"), json!(256)]
    );
    assert_eq!(
        (&rubric["pass_threshold"], &rubric["allowed_verdict_sources"]),
        (&json!(0.7), &json!(["internal"]))
    );
    assert_eq!(
        names(&rubric["weights"]),
        ["clarity", "completeness", "originality", "safety", "specificity"]
    );
    let at = format!("/api/v1/skills/rubric/{}", rubric["id"].as_str().unwrap());
    let update = async |body: Value| app.put(&at, body).bearer(&ada.token).send().await;
    let change =
        json!({"pass_threshold": 0.5, "weights": {"clarity": 2, "safety": 1}, "judge_provider": null});
    let changed = update(change).await.expect(200);
    assert_eq!(
        (&changed["pass_threshold"], &changed["weights"]),
        (&json!(0.5), &json!({"clarity": 2.0, "safety": 1.0}))
    );
    assert_eq!(changed["judge_provider"], "builtin", "what is not given stays");
    assert_eq!(update(json!({})).await.expect(200), changed);
    for (body, named) in [
        (json!({"pass_threshold": 1.5}), "pass_threshold"),
        (json!({"pass_threshold": "high"}), "pass_threshold"),
        (json!({"embed_dims": 0}), "embed_dims"),
        (json!({"embed_dims": 8193}), "embed_dims"),
        (json!({"embed_dims": 1.5}), "embed_dims"),
        (json!({"weights": {}}), "weights"),
        (json!({"weights": {"clarity": 0}}), "weights"),
        (json!({"weights": {"clarity": -1}}), "weights"),
        (json!({"weights": {"beauty": 1}}), "weights"),
        (json!({"weights": []}), "weights"),
        (json!({"judge_model": ""}), "judge_model"),
        (json!({"allowed_verdict_sources": ["Not Me"]}), "allowed_verdict_sources"),
        (json!({"allowed_verdict_sources": "internal"}), "allowed_verdict_sources"),
        (json!({"pass_threshold": 0.1, "embed_dims": 0}), "embed_dims"),
    ] {
        let error = assert_coded(&update(body.clone()).await, 400, "invalid_body");
        assert!(error["error"].as_str().unwrap().contains(named), "{body}: {error}");
    }
    assert_eq!(get().await, changed, "a bad change changes nothing");
    let eve = app.signup("evil").await;
    for (path, status, code) in [
        ("/api/v1/skills/rubric/nonsense".to_owned(), 400, "invalid_id"),
        (format!("/api/v1/skills/rubric/{}", missing_id().as_str().unwrap()), 404, "not_found"),
        (at.clone(), 404, "not_found"),
    ] {
        assert_coded(
            &app.put(&path, json!({"pass_threshold": 0})).bearer(&eve.token).send().await,
            status,
            code,
        );
    }
    assert_eq!(get().await, changed);
});

on_both!(a_key_of_limited_scope_cannot_choose_a_judge_that_it_may_not_call, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let key = app.create_key(&ada.token, json!({"name": "k", "scopes": ["provider:openai"]})).await;
    let rubric = app.get("/api/v1/skills/rubric").key(&key.raw).send().await.expect(200);
    let path = format!("/api/v1/skills/rubric/{}", rubric["id"].as_str().unwrap());
    let choose =
        async |provider: &str| app.put(&path, json!({"judge_provider": provider})).key(&key.raw).send().await;
    assert_coded(&choose("anthropic").await, 403, "scope_denied");
    choose("openai").await.expect(200);
    choose("builtin").await.expect(200);
});

/// The file of a skill with this source.
async fn served(app: &TestApp, token: &str, skill: &Value) -> TestResponse {
    app.get(&format!("{}/SKILL.md", path(skill))).bearer(token).send().await
}

on_both!(the_file_is_served_as_agents_load_it, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let skill = app.skill(&ada, json!({"raw_source": RAW})).await;
    let file = served(&app, &ada.token, &skill).await;
    assert_eq!(
        (file.status.as_u16(), file.header("content-type")),
        (200, Some("text/markdown; charset=utf-8"))
    );
    let text = file.text();
    let (header, body) = text.strip_prefix("---\n").unwrap().split_once("\n---\n").unwrap();
    let fields: Value = serde_saphyr::from_str(header).unwrap();
    assert_eq!(
        fields,
        json!({"name": "code-review", "description": "Reviews a change.", "license": "MIT", "metadata": {"headline": "Careful reviews"}})
    );
    assert_eq!(body, "\n# Steps\n\n1. Read it.\n");
    let etag = file.header("etag").unwrap().to_owned();
    for known in [etag.clone(), format!("W/{etag}"), format!("\"x\", {etag}"), "*".to_owned()] {
        let call = app
            .get(&format!("{}/SKILL.md", path(&skill)))
            .bearer(&ada.token)
            .header("if-none-match", &known)
            .send()
            .await;
        assert_eq!(
            (call.status.as_u16(), call.text().as_str(), call.header("etag")),
            (304, "", Some(etag.as_str())),
            "{known}"
        );
    }
    app.put(&path(&skill), json!({"body": "New"})).bearer(&ada.token).send().await.expect(200);
    let call = app
        .get(&format!("{}/SKILL.md", path(&skill)))
        .bearer(&ada.token)
        .header("if-none-match", &etag)
        .send()
        .await;
    assert_eq!(call.status, 200);
    assert_ne!(call.header("etag"), Some(etag.as_str()));
});

on_both!(a_wrong_change_is_refused_before_a_missing_skill, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let missing = format!("/api/v1/skills/{}", missing_id().as_str().unwrap());
    let put = |body: Value| app.put(&missing, body).bearer(&ada.token).send();
    for wrong in [
        json!({"name": "Not Kebab"}),
        json!({"description": " "}),
        json!({"description": "x".repeat(1_025)}),
        json!({"raw_source": "no frontmatter"}),
    ] {
        assert_coded(&put(wrong).await, 400, "invalid_frontmatter");
    }
    assert_coded(&put(json!({"body": "x".repeat(2 << 20)})).await, 400, "invalid_body");
    let valid = json!({"name": "kebab-case", "headline": null, "body": "# A"});
    assert_coded(&put(valid).await, 404, "not_found");
});
