//! Cache endpoints: statistics and purging; and Redis as the second tier.

use std::time::Duration;

use bytes::Bytes;
use gateway::cache::{CacheMode, CacheRequest, CacheableResponse, Lookup};
use gateway_core::cache::CacheKey;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::on_both;
use crate::support::{Account, Backend, TestApp};

fn ask<'a>(account: &Account, namespace: &'a str, name: &str) -> CacheRequest<'a> {
    CacheRequest {
        org: account.org_id.parse().unwrap(),
        namespace,
        key: key(name),
        mode: CacheMode::Exact,
        ttl: Duration::from_secs(60),
        wait_timeout: Duration::from_secs(5),
    }
}

fn key(name: &str) -> CacheKey {
    CacheKey(Sha256::digest(name).into())
}

async fn store(app: &TestApp, account: &Account, namespace: &str, name: &str) {
    let Lookup::Miss(lead) = app.app.proxy.cache.lookup(ask(account, namespace, name)).await else {
        panic!("{name} is there already")
    };
    let answer = CacheableResponse {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{}"),
        provider: "sandbox".into(),
        model: None,
        usage: None,
    };
    lead.complete(answer, None);
}

async fn has(app: &TestApp, account: &Account, namespace: &str, name: &str) -> bool {
    matches!(app.app.proxy.cache.lookup(ask(account, namespace, name)).await, Lookup::Hit(_))
}

async fn stats(app: &TestApp, account: &Account) -> Value {
    app.get("/api/v1/cache/stats").bearer(&account.token).send().await.expect(200)
}

async fn purge(app: &TestApp, account: &Account, query: &str) -> Value {
    app.delete(&format!("/api/v1/cache{query}")).bearer(&account.token).send().await.expect(200)
}

on_both!(stats_show_entries_hits_and_misses_of_the_cache, |app| async move {
    let ada = app.signup("acme").await;
    let empty = json!({
        "entries": 0, "bytes": 0, "limit_bytes": 64 << 20, "hits": 0, "misses": 0, "semantic_hits": 0,
        "shared_hits": 0, "coalesced": 0, "evictions": 0, "namespaces": [],
    });
    assert_eq!(stats(&app, &ada).await, empty);
    store(&app, &ada, "", "one").await;
    store(&app, &ada, "docs", "two").await;
    assert!(has(&app, &ada, "docs", "two").await);
    let told = stats(&app, &ada).await;
    assert_eq!((&told["entries"], &told["hits"], &told["misses"]), (&json!(2), &json!(1), &json!(2)));
    let namespaces = told["namespaces"].as_array().unwrap();
    assert_eq!(namespaces.len(), 2);
    let docs = &namespaces[1];
    assert_eq!((&docs["namespace"], &docs["entries"]), (&json!("docs"), &json!(1)));
    assert_eq!((&docs["hits"], &docs["misses"]), (&json!(1), &json!(1)));
    let sum: u64 = namespaces.iter().map(|namespace| namespace["bytes"].as_u64().unwrap()).sum();
    assert_eq!(told["bytes"], json!(sum));
    let eve = app.signup("evil").await;
    assert_eq!(stats(&app, &eve).await, empty);
});

on_both!(purging_removes_only_the_named_entries_of_the_organization, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    for (namespace, name) in [("", "a"), ("", "b"), ("x", "c"), ("x", "d"), ("y", "e"), ("z", "f")] {
        store(&app, &ada, namespace, name).await;
    }
    store(&app, &eve, "x", "c").await;
    assert_eq!(purge(&app, &ada, "?namespace=x").await, json!({"deleted": true, "entries": 2}));
    assert_eq!(purge(&app, &ada, "?namespace=x").await, json!({"deleted": true, "entries": 0}));
    assert!(has(&app, &eve, "x", "c").await && has(&app, &ada, "y", "e").await);
    let one = format!("?key={}", key("e"));
    assert_eq!(purge(&app, &ada, &one).await, json!({"deleted": true, "entries": 1}));
    // An empty namespace purges the entries without a namespace, not everything.
    assert_eq!(purge(&app, &ada, "?namespace=").await, json!({"deleted": true, "entries": 2}));
    assert!(has(&app, &ada, "z", "f").await);
    assert_eq!(purge(&app, &ada, "").await, json!({"deleted": true, "entries": 1}));
    assert_eq!(stats(&app, &ada).await["entries"], json!(0));
    assert!(has(&app, &eve, "x", "c").await);
    assert_eq!(purge(&app, &eve, "").await, json!({"deleted": true, "entries": 1}));
});

on_both!(only_admins_empty_the_cache_and_every_member_sees_it, |app| async move {
    let ada = app.signup("acme").await;
    store(&app, &ada, "", "a").await;
    for role in ["viewer", "member"] {
        let other = app.join(&ada, role).await;
        app.delete("/api/v1/cache").bearer(&other.token).send().await.expect_error(403, "forbidden");
        assert_eq!(stats(&app, &other).await["entries"], json!(1));
    }
    app.delete("/api/v1/cache").send().await.expect_error(401, "unauthorized");
    app.get("/api/v1/cache/stats").send().await.expect_error(401, "unauthorized");
    let admin = app.join(&ada, "admin").await;
    assert_eq!(purge(&app, &admin, "").await["entries"], json!(1));
});

on_both!(a_bad_request_to_empty_changes_nothing, |app| async move {
    let ada = app.signup("acme").await;
    store(&app, &ada, "x", "a").await;
    let both = format!("?namespace=x&key={}", key("a"));
    for query in ["?key=12", "?key=zz", &both] {
        let answer = app.delete(&format!("/api/v1/cache{query}")).bearer(&ada.token).send().await;
        let error = answer.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains("key"), "{error}");
    }
    app.get("/api/v1/cache").bearer(&ada.token).send().await.expect_error(405, "method_not_allowed");
    assert!(has(&app, &ada, "x", "a").await);
});

on_both!(entries_go_with_the_clock_and_with_their_organization, |app| async move {
    let ada = app.signup("acme").await;
    store(&app, &ada, "", "a").await;
    app.app.services.clock.advance(59_000);
    assert!(has(&app, &ada, "", "a").await);
    app.app.services.clock.advance(2_000);
    assert!(!has(&app, &ada, "", "a").await);
    store(&app, &ada, "", "b").await;
    app.delete(&format!("/api/v1/orgs/{}", ada.org_id)).bearer(&ada.token).send().await.expect(200);
    assert!(!has(&app, &ada, "", "b").await);
});

fn redis() -> String {
    std::env::var("TEST_REDIS_URL").expect("TEST_REDIS_URL is not set: run the tests with `make test`")
}

async fn health(app: &TestApp, redis: &str) -> Value {
    for _ in 0..100 {
        let body = app.get("/healthz").send().await.expect(200);
        if body["components"]["redis"]["status"] == redis {
            return body;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("redis did not become {redis}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_shows_redis_when_it_is_configured_and_does_not_depend_on_it() {
    let url = redis();
    let app = TestApp::start_with(Backend::Sqlite, &[("GATEWAY_REDIS_URL", &url)]).await;
    assert_eq!(health(&app, "ok").await["status"], "ok");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let away = format!("redis://127.0.0.1:{port}");
    let app = TestApp::start_with(Backend::Sqlite, &[("GATEWAY_REDIS_URL", &away)]).await;
    assert_eq!(health(&app, "down").await["status"], "ok");
    let ada = app.signup("acme").await;
    store(&app, &ada, "", "a").await;
    assert!(has(&app, &ada, "", "a").await);
    assert_eq!(purge(&app, &ada, "").await, json!({"deleted": true, "entries": 1}));
}
