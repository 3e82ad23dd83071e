//! A change of the master key and of the token secret: without downtime, and safe against a kill at any time.

use std::process::Command;

use gateway_store::faults::KillPoint;
use http::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::support::receiver::is_signed_by;
use crate::support::{
    Account, Backend, GatewayProcess, MASTER_KEY, TOKEN_SECRET, TestApp, TestRequest, command,
    fresh_settings, migrated_config, run,
};
use crate::upstream::{Reply, Upstream};

const NEW_KEY: &str = "abababababababababababababababababababababababababababababababab";
const NEW_SECRET: &str = "another token secret that is long enough for everybody";

/// The number of values that `store_secrets` stores.
const VALUES: usize = 8;

struct Stored {
    export: String,
    webhook: String,
    signing: [String; 2],
}

/// Stores a secret in every column that has some.
async fn store_secrets(app: &TestApp, ada: &Account, upstream: &Upstream) -> Stored {
    let provider = json!({
        "name": "house", "kind": "openai", "base_url": upstream.url(), "api_key": "sk-house",
        "api_keys": [{"label": "more", "api_key": "sk-more"}], "headers": {"x-team": "header-house"},
    });
    let path = format!("/api/v1/orgs/{}/providers", ada.org_id);
    app.post(&path, provider).bearer(&ada.token).send().await.expect(201);
    app.app.audit.pass().await.unwrap();
    let export = json!({
        "name": "hook", "kind": "webhook", "endpoint": upstream.url(), "secret": "export-secret",
        "headers": {"Authorization": "Bearer export-token"}, "enabled": false,
    });
    let export = app.export(ada, &export).await;
    let hook = app.create_webhook(ada, &format!("{}/hook", upstream.url()), &["app.delete"]).await;
    let path = format!("{}/rotate-secret", hook.path());
    let rotated = app.post(&path, json!({"overlap_hours": 24})).bearer(&ada.token).send().await.expect(201);
    let signing = [hook.secret.clone(), rotated["secret"].as_str().unwrap().to_owned()];
    Stored { export, webhook: hook.id, signing }
}

/// Every stored secret reaches its destination.
async fn assert_readable(
    call: impl Fn(Method, &str) -> TestRequest,
    ada: &Account,
    upstream: &Upstream,
    stored: &Stored,
) {
    let seen = upstream.requests().len();
    call(Method::GET, "/v1/models")
        .key(&ada.api_key)
        .header("x-gateway-provider", "house")
        .send()
        .await
        .expect(200);
    let test = |path: String, status: u16| {
        let call = call(Method::POST, &path).json(json!({})).key(&ada.api_key);
        async move { call.send().await.expect(status) }
    };
    test(format!("/api/v1/exports/{}/test", stored.export), 200).await;
    test(format!("/api/v1/webhooks/{}/test", stored.webhook), 202).await;
    let requests = upstream.wait_for_requests(seen + 3, crate::support::receiver::WAIT_TIMEOUT).await;
    let [provider, export, webhook] = &requests[seen..] else { panic!("{requests:?}") };
    assert_eq!(provider.header("x-team"), Some("header-house"));
    assert!(matches!(provider.header("authorization"), Some("Bearer sk-house" | "Bearer sk-more")));
    assert_eq!(export.header("authorization"), Some("Bearer export-token"));
    assert!(is_signed_by(export, "export-secret"));
    assert!(
        stored.signing.iter().all(|secret| is_signed_by(webhook, secret)),
        "both secrets of the webhook sign"
    );
}

fn rotate(data: &TempDir, settings: &[(String, String)], keys: [(&str, &str); 2]) -> Command {
    let mut rotate = command(data.path(), &["admin", "rotate-master-key"]);
    rotate.envs(settings.iter().cloned()).envs(keys);
    rotate
}

async fn a_killed_rotation_is_continued(backend: Backend) {
    let data = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let settings = fresh_settings(backend, &data).await;
    let plan = [("GATEWAY_DEFAULT_PLAN".to_owned(), "enterprise".to_owned())];
    let settings: Vec<(String, String)> = settings.into_iter().chain(plan).collect();
    let config = |more: &[(&str, &str)]| {
        let more = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let environment: Vec<_> = settings.iter().cloned().chain(more).collect();
        let raw = gateway::config::RawSettings::load(None, environment).unwrap();
        gateway::config::Config::validate(&raw).unwrap()
    };
    let upstream = Upstream::start().await;
    upstream.set_default_reply(Reply::json(200, "{}"));
    let app = TestApp::start(config(&[]), data.clone()).await;
    let ada = app.signup("acme").await;
    let stored = store_secrets(&app, &ada, &upstream).await;
    app.stop().await;
    let both = [("GATEWAY_MASTER_KEY", NEW_KEY), ("GATEWAY_MASTER_KEYS_ACCEPTED", MASTER_KEY)];
    // Each run dies after one value.
    for done in 0..VALUES {
        let mut killed = rotate(&data, &settings, both);
        let output = run(killed.env("TEST_KILL_AT", KillPoint::SecretReplaced.as_str()));
        assert_eq!(output.code, None, "value {done}: {output:?}");
        if done == VALUES / 2 {
            let app = TestApp::start(config(&both), data.clone()).await;
            assert_readable(|method, path| app.call(method, path), &ada, &upstream, &stored).await;
            app.stop().await;
        }
    }
    let output = run(&mut rotate(&data, &settings, both));
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(
        output
            .stdout
            .contains(&format!("0 secrets were encrypted with the current master key, {VALUES} were")),
        "{output:?}"
    );
    // The old key is no longer needed.
    let app = TestApp::start(config(&[("GATEWAY_MASTER_KEY", NEW_KEY)]), data.clone()).await;
    assert_readable(|method, path| app.call(method, path), &ada, &upstream, &stored).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_rotation_is_continued_on_sqlite() {
    a_killed_rotation_is_continued(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_rotation_is_continued_on_postgres() {
    a_killed_rotation_is_continued(Backend::Postgres).await;
}

async fn the_key_is_changed_while_the_service_runs(backend: Backend) {
    let data = tempfile::tempdir().unwrap();
    let settings: Vec<(String, String)> = fresh_settings(backend, &data)
        .await
        .into_iter()
        .filter(|(name, _)| backend == Backend::Postgres || name != "GATEWAY_MASTER_KEY")
        .chain([("GATEWAY_DEFAULT_PLAN".to_owned(), "enterprise".to_owned())])
        .collect();
    let serve = |more: &[(&str, &str)]| {
        let mut serve = command(data.path(), &["serve"]);
        serve.envs(settings.iter().cloned()).envs(more.iter().copied());
        tokio::task::block_in_place(|| GatewayProcess::start(&mut serve))
    };
    let upstream = Upstream::start().await;
    upstream.set_default_reply(Reply::json(200, "{}"));
    let first = serve(&[]);
    let signup =
        json!({"email": "ada@example.com", "password": crate::support::PASSWORD, "org_slug": "acme"});
    let made = first.post("/api/v1/signup", &signup).send().await.expect(201);
    let key = made["api_key"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/orgs/{}/providers", made["org"]["id"].as_str().unwrap());
    let house = json!({"name": "house", "kind": "openai", "base_url": upstream.url(), "api_key": "sk-house"});
    first.post(&path, &house).key(&key).send().await.expect(201);
    drop(first);
    // A generated key is renamed, and the next start generates another. A configured one is listed as accepted.
    let file = data.path().join("master_key");
    let keys: &[(&str, &str)] = if backend == Backend::Sqlite {
        std::fs::rename(&file, data.path().join("master_key.previous")).unwrap();
        &[]
    } else {
        &[("GATEWAY_MASTER_KEY", NEW_KEY), ("GATEWAY_MASTER_KEYS_ACCEPTED", MASTER_KEY)]
    };
    let second = serve(keys);
    let ask = |process: &GatewayProcess, provider: &str| {
        process.get("/v1/models").key(&key).header("x-gateway-provider", provider).send()
    };
    ask(&second, "house").await.expect(200);
    let mut rotate = command(data.path(), &["admin", "rotate-master-key"]);
    let output = run(rotate.envs(settings.iter().cloned()).envs(keys.iter().copied()));
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.starts_with("1 secrets were encrypted"), "{output:?}");
    ask(&second, "house").await.expect(200);
    drop(second);
    let _ = std::fs::remove_file(data.path().join("master_key.previous"));
    let third = serve(if keys.is_empty() { keys } else { &keys[..1] });
    ask(&third, "house").await.expect(200);
    assert_eq!(upstream.requests().pop().unwrap().header("authorization"), Some("Bearer sk-house"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_is_changed_while_the_service_runs_on_sqlite() {
    the_key_is_changed_while_the_service_runs(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_is_changed_while_the_service_runs_on_postgres() {
    the_key_is_changed_while_the_service_runs(Backend::Postgres).await;
}

async fn a_node_with_another_key_does_not_start(backend: Backend) {
    let data = tempfile::tempdir().unwrap();
    let mut settings = fresh_settings(backend, &data).await;
    // A single node generates its key.
    settings.retain(|(name, _)| backend == Backend::Postgres || name != "GATEWAY_MASTER_KEY");
    let gateway = |arguments: &[&str], more: &[(&str, &str)]| {
        let mut command = command(data.path(), arguments);
        command.envs(settings.iter().cloned()).envs(more.iter().copied());
        command
    };
    let serve = |more: &[(&str, &str)]| {
        tokio::task::block_in_place(|| GatewayProcess::try_start(&mut gateway(&["serve"], more)))
    };
    let Ok(first) = serve(&[]) else { panic!("the service did not become ready") };
    let signup =
        json!({"email": "ada@example.com", "password": crate::support::PASSWORD, "org_slug": "acme"});
    let made = first.post("/api/v1/signup", &signup).send().await.expect(201);
    let path = format!("/api/v1/orgs/{}/providers", made["org"]["id"].as_str().unwrap());
    let credential = json!({"name": "openai", "api_key": "sk-stored"});
    first.post(&path, &credential).key(made["api_key"].as_str().unwrap()).send().await.expect(201);
    drop(first);
    let other = [("GATEWAY_MASTER_KEY", NEW_KEY)];
    let Err(refused) = serve(&other) else { panic!("the service started with another master key") };
    for part in ["GATEWAY_MASTER_KEY ", "GATEWAY_MASTER_KEYS_ACCEPTED", "none of the stored secrets"] {
        assert!(refused.log.contains(part), "{part} is missing in {}", refused.log);
    }
    let doctor = run(&mut gateway(&["doctor", "--offline"], &other));
    assert!(doctor.code == Some(1) && doctor.stdout.contains("GATEWAY_MASTER_KEY"), "{doctor:?}");
    // The generated key is in the data directory.
    let doctor = run(&mut gateway(&["doctor", "--offline"], &[]));
    assert!(!doctor.stdout.contains("GATEWAY_MASTER_KEY"), "{doctor:?}");
    assert!(serve(&[]).is_ok());
    // The way out if the key is lost.
    let rotated = run(&mut gateway(&["admin", "rotate-audit-key"], &other));
    assert_eq!(rotated.code, Some(0), "{rotated:?}");
    assert!(serve(&other).is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_another_key_does_not_start_on_sqlite() {
    a_node_with_another_key_does_not_start(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_another_key_does_not_start_on_postgres() {
    a_node_with_another_key_does_not_start(Backend::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_without_the_old_key_fails_and_changes_nothing() {
    let data = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let settings = fresh_settings(Backend::Sqlite, &data).await;
    let upstream = Upstream::start().await;
    upstream.set_default_reply(Reply::json(200, "{}"));
    let app = TestApp::start(migrated_config(Backend::Sqlite, &data, &[]).await, data.clone()).await;
    let ada = app.enterprise("acme").await;
    let stored = store_secrets(&app, &ada, &upstream).await;
    let keys = [("GATEWAY_MASTER_KEY", NEW_KEY), ("GATEWAY_MASTER_KEYS_ACCEPTED", "")];
    let output = run(&mut rotate(&data, &settings, keys));
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("8 secrets cannot be decrypted"), "{output:?}");
    assert!(!output.stderr.contains(NEW_KEY) && !output.stderr.contains("k1."), "{output:?}");
    assert_readable(|method, path| app.call(method, path), &ada, &upstream, &stored).await;
}

async fn tokens_outlive_a_change_of_the_token_secret(backend: Backend) {
    let data = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let first = "the first token secret is long enough";
    let config = migrated_config(backend, &data, &[("GATEWAY_TOKEN_SECRET", first)]).await;
    let app = TestApp::start(config, data).await;
    let ada = app.signup("acme").await;
    let (mut config, data) = app.stop().await;
    config.token_secret = NEW_SECRET.to_owned().into();
    config.token_secrets_accepted = vec![TOKEN_SECRET.to_owned().into(), first.to_owned().into()];
    let app = TestApp::start(config, data).await;
    let entitlements = |token: &str| app.get("/api/v1/auth/entitlements").bearer(token).send();
    entitlements(&ada.token).await.expect(200);
    let fresh = app.login(&ada.email, crate::support::PASSWORD).await.expect(200)["token"].clone();
    let fresh = fresh.as_str().unwrap().to_owned();
    entitlements(&fresh).await.expect(200);
    // Once the old secret is removed, only its tokens end.
    let (mut config, data) = app.stop().await;
    config.token_secrets_accepted.clear();
    let app = TestApp::start(config, data).await;
    app.get("/api/v1/auth/entitlements").bearer(&fresh).send().await.expect(200);
    app.get("/api/v1/auth/entitlements").bearer(&ada.token).send().await.expect_error(401, "unauthorized");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_outlive_a_change_of_the_token_secret_on_sqlite() {
    tokens_outlive_a_change_of_the_token_secret(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_outlive_a_change_of_the_token_secret_on_postgres() {
    tokens_outlive_a_change_of_the_token_secret(Backend::Postgres).await;
}
