//! Provider credentials: overriding a built-in provider, defining a custom one, and keeping secrets secret.

use std::path::Path;

use serde_json::{Value, json};

use crate::on_both;
use crate::support::{Account, Backend, TestApp, TestResponse};

fn providers_of(account: &Account) -> String {
    format!("/api/v1/orgs/{}/providers", account.org_id)
}

async fn create(app: &TestApp, by: &Account, body: Value) -> TestResponse {
    app.post(&providers_of(by), body).bearer(&by.token).send().await
}

async fn update(app: &TestApp, by: &Account, name: &str, body: Value) -> TestResponse {
    app.put(&format!("{}/{name}", providers_of(by)), body).bearer(&by.token).send().await
}

on_both!(a_credential_for_a_built_in_provider_is_stored_and_not_shown, |app| async move {
    let ada = app.signup("acme").await;
    let body = json!({"name": "openai", "api_key": "sk-live-1", "headers": {"OpenAI-Organization": "org-x"}});
    let answer = create(&app, &ada, body).await;
    let fields = [
        "name",
        "kind",
        "base_url",
        "path_prefix",
        "has_api_key",
        "credentials",
        "has_headers",
        "models",
        "no_retention",
        "created_at",
        "updated_at",
    ];
    let openai = answer.expect(201);
    assert_eq!(openai.as_object().unwrap().keys().collect::<Vec<_>>(), fields);
    assert_eq!((&openai["name"], &openai["kind"]), (&json!("openai"), &json!("openai")));
    assert_eq!((&openai["base_url"], &openai["models"]), (&Value::Null, &json!([])));
    assert_eq!((&openai["has_api_key"], &openai["has_headers"]), (&json!(true), &json!(true)));
    let list = app.get(&providers_of(&ada)).bearer(&ada.token).send().await;
    assert_eq!(list.expect(200), json!({"providers": [openai], "next_cursor": null}));
    let bare = create(&app, &ada, json!({"name": "anthropic"})).await.expect(201);
    assert_eq!((&bare["has_api_key"], &bare["has_headers"]), (&json!(false), &json!(false)));
});

on_both!(a_custom_provider_has_the_kind_of_a_built_in_one, |app| async move {
    let ada = app.signup("acme").await;
    let body = json!({
        "name": "house-llm_1", "kind": "openai", "base_url": "http://127.0.0.1:9000/llm/", "models": ["a", "b/c"],
    });
    let custom = create(&app, &ada, body).await.expect(201);
    assert_eq!(
        (&custom["kind"], &custom["base_url"]),
        (&json!("openai"), &json!("http://127.0.0.1:9000/llm"))
    );
    assert_eq!(custom["models"], json!(["a", "b/c"]));
    let same = create(&app, &ada, json!({"name": "gemini", "kind": "gemini"})).await.expect(201);
    assert_eq!(same["kind"], "gemini");
});

on_both!(a_provider_with_bad_fields_is_refused_and_the_field_named, |app| async move {
    let ada = app.signup("acme").await;
    for (body, named) in [
        (json!({"api_key": "x"}), "name"),
        (json!({"name": ""}), "name"),
        (json!({"name": "Open AI", "kind": "openai"}), "name"),
        (json!({"name": "a/b", "kind": "openai"}), "name"),
        (json!({"name": "auto", "kind": "openai"}), "name"),
        (json!({"name": "x".repeat(65), "kind": "openai"}), "name"),
        (json!({"name": "house"}), "kind"),
        (json!({"name": "house", "kind": "house"}), "kind"),
        (json!({"name": "openai", "kind": "anthropic"}), "kind"),
        (json!({"name": "house", "kind": 1}), "kind"),
        (json!({"name": "house", "kind": "vllm", "base_url": "127.0.0.1:9000"}), "base_url"),
        (json!({"name": "house", "kind": "vllm", "base_url": "ftp://x"}), "base_url"),
        (json!({"name": "house", "kind": "vllm", "base_url": "file:///etc/passwd"}), "base_url"),
        (json!({"name": "house", "kind": "vllm", "base_url": "https://"}), "base_url"),
        (json!({"name": "house", "kind": "vllm", "base_url": ""}), "base_url"),
        (json!({"name": "house", "kind": "vllm", "base_url": "http://user:pw@x"}), "base_url"),
        (json!({"name": "house", "kind": "vllm", "base_url": "http://x/?a=b"}), "base_url"),
        (json!({"name": "house", "kind": "vllm", "base_url": 1}), "base_url"),
        (json!({"name": "house", "kind": "azure-openai"}), "base_url"),
        (json!({"name": "openai", "api_key": ""}), "api_key"),
        (json!({"name": "openai", "api_key": "a\r\nX-Evil: 1"}), "api_key"),
        (json!({"name": "openai", "api_key": 7}), "api_key"),
        (json!({"name": "openai", "headers": {"bad name": "x"}}), "headers"),
        (json!({"name": "openai", "headers": {"x": "a\nb"}}), "headers"),
        (json!({"name": "openai", "headers": ["x"]}), "headers"),
        (json!({"name": "openai", "models": [""]}), "models"),
        (json!({"name": "openai", "models": "gpt"}), "models"),
    ] {
        let error = create(&app, &ada, body.clone()).await.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{body}: {error}");
    }
    let list = app.get(&providers_of(&ada)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["providers"], json!([]));
});

on_both!(a_second_provider_of_the_same_name_is_a_conflict, |app| async move {
    let ada = app.signup("acme").await;
    create(&app, &ada, json!({"name": "openai", "api_key": "sk-1"})).await.expect(201);
    create(&app, &ada, json!({"name": "openai", "api_key": "sk-2"})).await.expect_error(409, "conflict");
    let eve = app.signup("evil").await;
    create(&app, &eve, json!({"name": "openai"})).await.expect(201);
    let list = app.get(&providers_of(&eve)).bearer(&eve.token).send().await.expect(200);
    assert_eq!(list["providers"][0]["has_api_key"], false, "the other organization's key is not here");
});

on_both!(fields_left_out_stay_and_null_clears, |app| async move {
    let ada = app.signup("acme").await;
    let body = json!({
        "name": "house", "kind": "openai", "base_url": "https://llm.example", "api_key": "sk-1",
        "headers": {"x-team": "a"}, "models": ["m"],
    });
    let first = create(&app, &ada, body).await.expect(201);
    app.app.services.clock.advance(1_000);
    let second = update(&app, &ada, "house", json!({"name": "other", "kind": "gemini"})).await.expect(200);
    for field in ["name", "kind", "base_url", "has_api_key", "has_headers", "models", "created_at"] {
        assert_eq!(second[field], first[field], "{field}");
    }
    assert!(second["updated_at"].as_str() > first["updated_at"].as_str());
    let third = update(&app, &ada, "house", json!({"api_key": null})).await.expect(200);
    assert_eq!((&third["has_api_key"], &third["has_headers"]), (&json!(false), &json!(true)));
    let fourth = update(&app, &ada, "house", json!({"headers": null, "base_url": null, "models": []})).await;
    let fourth = fourth.expect(200);
    assert_eq!(
        (&fourth["has_headers"], &fourth["base_url"], &fourth["models"]),
        (&json!(false), &Value::Null, &json!([]))
    );
    let fifth = update(&app, &ada, "house", json!({"api_key": "sk-2"})).await.expect(200);
    assert_eq!(fifth["has_api_key"], true);
    update(&app, &ada, "house", json!({"base_url": "nonsense"})).await.expect_error(400, "bad_request");
    update(&app, &ada, "absent", json!({})).await.expect_error(404, "not_found");
    update(&app, &ada, "Not.A.Name", json!({})).await.expect_error(400, "bad_request");
});

on_both!(an_address_that_a_custom_provider_needs_cannot_be_cleared, |app| async move {
    let ada = app.signup("acme").await;
    let body = json!({"name": "house", "kind": "azure-openai", "base_url": "https://llm.example"});
    create(&app, &ada, body).await.expect(201);
    let error = update(&app, &ada, "house", json!({"base_url": null})).await.expect_error(400, "bad_request");
    assert!(error["message"].as_str().unwrap().contains("base_url"), "{error}");
});

on_both!(providers_come_in_pages_newest_first, |app| async move {
    let ada = app.signup("acme").await;
    for name in ["openai", "anthropic", "mistral"] {
        create(&app, &ada, json!({"name": name})).await.expect(201);
        app.app.services.clock.advance(1);
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("{}?limit=1{cursor}", providers_of(&ada));
        let page = app.get(&path).bearer(&ada.token).send().await.expect(200);
        seen.extend(
            page["providers"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, ["mistral", "anthropic", "openai"]);
    let path = format!("{}?limit=0", providers_of(&ada));
    app.get(&path).bearer(&ada.token).send().await.expect_error(400, "bad_request");
});

on_both!(a_deleted_credential_is_gone, |app| async move {
    let ada = app.signup("acme").await;
    create(&app, &ada, json!({"name": "openai", "api_key": "sk-1"})).await.expect(201);
    let delete = || app.delete(&format!("{}/openai", providers_of(&ada))).bearer(&ada.token).send();
    assert_eq!(delete().await.expect(200), json!({"deleted": true}));
    delete().await.expect_error(404, "not_found");
    let again = create(&app, &ada, json!({"name": "openai"})).await.expect(201);
    assert_eq!(again["has_api_key"], false);
});

on_both!(changes_of_different_fields_at_the_same_time_all_stay, |app| async move {
    let ada = app.signup("acme").await;
    create(&app, &ada, json!({"name": "openai"})).await.expect(201);
    for round in 0..10 {
        let (a, b) = tokio::join!(
            update(&app, &ada, "openai", json!({"models": [format!("m{round}")]})),
            update(&app, &ada, "openai", json!({"base_url": format!("http://r{round}.example")})),
        );
        for answer in [a, b] {
            answer.expect(200);
        }
        let list = app.get(&providers_of(&ada)).bearer(&ada.token).send().await.expect(200);
        let found = &list["providers"][0];
        assert_eq!(found["models"], json!([format!("m{round}")]));
        assert_eq!(found["base_url"], format!("http://r{round}.example"));
    }
});

const SECRETS: [&str; 3] = ["sk-live-very-secret-1", "sk-live-very-secret-2", "header-very-secret"];

/// Creates, changes and lists credentials, and returns all response bodies.
async fn exercise(app: &TestApp, ada: &Account) -> Vec<TestResponse> {
    let body = json!({"name": "openai", "api_key": SECRETS[0], "headers": {"x-extra": SECRETS[2]}});
    let mut answers = vec![create(app, ada, body).await];
    answers.push(update(app, ada, "openai", json!({"api_key": SECRETS[1]})).await);
    answers.push(app.get(&providers_of(ada)).bearer(&ada.token).send().await);
    for answer in &answers {
        assert!(answer.status.is_success(), "{}", answer.text());
    }
    answers.push(create(app, ada, json!({"name": "openai", "api_key": SECRETS[0]})).await);
    answers.push(create(app, ada, json!({"name": "house", "kind": SECRETS[0], "api_key": SECRETS[1]})).await);
    answers
}

on_both!(no_answer_ever_holds_a_stored_secret, |app| async move {
    let ada = app.signup("acme").await;
    for answer in exercise(&app, &ada).await {
        for secret in SECRETS {
            assert!(!answer.text().contains(secret), "{secret} in {}", answer.text());
        }
    }
    let org = app.get(&format!("/api/v1/orgs/{}", ada.org_id)).bearer(&ada.token).send().await;
    assert!(SECRETS.iter().all(|secret| !org.text().contains(secret)));
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_lies_in_the_clear_in_the_database_files() {
    let app = TestApp::start_with(Backend::Sqlite, &[]).await;
    let ada = app.signup("acme").await;
    exercise(&app, &ada).await;
    let body = json!({"email": "new@example.com", "role": "viewer"});
    let members = format!("/api/v1/orgs/{}/members", ada.org_id);
    let invite = app.post(&members, body).bearer(&ada.token).send().await.expect(201);
    let invite = invite["invite_token"].as_str().unwrap().to_owned();
    let files = files_below(app.data.path());
    let holds =
        |text: &str| files.iter().any(|(_, bytes)| memchr::memmem::find(bytes, text.as_bytes()).is_some());
    assert!(holds("acme@example.com"), "the scan looks at the right files");
    let digits = ada.api_key.strip_prefix("sk-gateway-").unwrap();
    for secret in SECRETS.into_iter().chain([digits, crate::support::PASSWORD, &ada.token, &invite]) {
        assert!(!holds(secret), "{secret} can be read in the data directory");
    }
}

fn files_below(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
    files
}

on_both!(a_wrong_change_is_refused_before_a_missing_provider, |app| async move {
    let ada = app.signup("acme").await;
    for (body, named) in [
        (json!({"base_url": "ftp://x"}), "base_url"),
        (json!({"path_prefix": "v1/"}), "path_prefix"),
        (json!({"api_key": ""}), "api_key"),
        (json!({"api_keys": [{"label": "a b", "api_key": "x"}]}), "api_keys"),
        (json!({"api_keys": [{"label": "a", "api_key": "x", "weight": 0}]}), "api_keys"),
        (json!({"headers": {"Host": "x"}}), "headers"),
        (json!({"models": [""]}), "models"),
    ] {
        let error = update(&app, &ada, "absent", body).await.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().starts_with(named), "{error}");
    }
    // Whether a key may be left out depends on what is stored.
    let valid = json!({"base_url": "https://example.com/", "api_keys": [{"label": "a"}]});
    update(&app, &ada, "absent", valid).await.expect_error(404, "not_found");
});
