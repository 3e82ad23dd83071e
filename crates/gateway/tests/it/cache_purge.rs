//! Purges while Redis is unreachable: a purged answer never comes back, neither when Redis returns, nor after a
//! restart, nor on another node.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Backend, Cluster, ProxyFixture, TcpForwarder, TestApp, TestRequest, wait_for_response};
use crate::upstream::Reply;

const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

fn redis_url() -> url::Url {
    let text = std::env::var("TEST_REDIS_URL");
    url::Url::parse(&text.expect("TEST_REDIS_URL is not set: run the tests with `make test`")).unwrap()
}

fn redis_address() -> String {
    let url = redis_url();
    format!("{}:{}", url.host_str().unwrap(), url.port().unwrap_or(6379))
}

async fn forwarder() -> (TcpForwarder, String) {
    let forwarder = TcpForwarder::start(redis_address()).await;
    let mut url = redis_url();
    url.set_host(Some("127.0.0.1")).unwrap();
    url.set_port(Some(forwarder.port())).unwrap();
    (forwarder, url.to_string())
}

/// Waits until Redis itself has the entry, which is written in the background.
async fn wait_until_shared(org_id: &str, key: &str) {
    let (mut redis, url) = (TcpStream::connect(redis_address()).await.unwrap(), redis_url());
    let mut ask = async |command: String| {
        redis.write_all(command.as_bytes()).await.unwrap();
        let mut reply = [0; 128];
        let length = redis.read(&mut reply).await.unwrap();
        String::from_utf8_lossy(&reply[..length]).into_owned()
    };
    if let Some(password) = url.password() {
        let reply = ask(format!("AUTH {} {password}\r\n", url.username())).await;
        assert!(reply.starts_with("+OK"), "{reply}");
    }
    for _ in 0..200 {
        if ask(format!("EXISTS gateway:cache:entry:{org_id}:{key}\r\n")).await.starts_with(":1") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the entry is not in Redis");
}

async fn wait_for_redis(app: &TestApp, status: &str) {
    let is = |answer: &crate::support::TestResponse| answer.json()["components"]["redis"]["status"] == status;
    wait_for_response(WAIT_TIMEOUT, || app.get("/healthz"), is).await;
}

fn ask(proxy: &ProxyFixture, text: &str) -> TestRequest {
    let body = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": text}]});
    proxy.chat(&body).header("x-gateway-cache", "true").header("x-gateway-cache-namespace", "n")
}

async fn restart(proxy: ProxyFixture) -> ProxyFixture {
    let ProxyFixture { app, upstream, ada } = proxy;
    let (config, data) = app.stop().await;
    ProxyFixture { app: TestApp::start(config, data).await, upstream, ada }
}

/// Stores an answer in Redis, purges it while Redis is unreachable, and asks again when it is back.
async fn purge_during_an_outage(backend: Backend, scope: &str, is_restarted: bool) {
    let (forwarder, url) = forwarder().await;
    let mut proxy = ProxyFixture::start_with(backend, &[("GATEWAY_REDIS_URL", &url)]).await;
    proxy
        .upstream
        .set_default_reply(Reply::json(200, r#"{"usage":{"prompt_tokens":3,"completion_tokens":2}}"#));
    wait_for_redis(&proxy.app, "ok").await;
    let first = ask(&proxy, "purged").send().await;
    assert_eq!((first.status.as_u16(), first.header("x-gateway-cache")), (200, Some("MISS")));
    let key = first.header("x-gateway-cache-key").unwrap().to_owned();
    wait_until_shared(&proxy.ada.org_id, &key).await;
    forwarder.cut();
    wait_for_redis(&proxy.app, "down").await;
    let path = format!("/api/v1/cache{}", scope.replace("{key}", &key));
    let purged = proxy.app.delete(&path).bearer(&proxy.ada.token).send().await.expect(200);
    assert_eq!(purged["deleted"], true);
    if is_restarted {
        proxy = restart(proxy).await;
    }
    forwarder.open();
    wait_for_redis(&proxy.app, "ok").await;
    let again = ask(&proxy, "purged").send().await;
    assert_eq!(again.header("x-gateway-cache"), Some("MISS"), "{scope}, restarted: {is_restarted}");
    // What is stored since the purge is served from Redis.
    wait_until_shared(&proxy.ada.org_id, &key).await;
    serves_from_redis(proxy, "purged").await;
}

/// A busy machine may take longer than the timeout of a lookup in Redis, so it is tried several times.
async fn serves_from_redis(mut proxy: ProxyFixture, text: &str) {
    for _ in 0..10 {
        proxy = restart(proxy).await;
        wait_for_redis(&proxy.app, "ok").await;
        if ask(&proxy, text).send().await.header("x-gateway-cache") == Some("HIT") {
            return;
        }
    }
    panic!("the answer never came from Redis");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_during_a_redis_outage_is_in_force_when_redis_is_back() {
    for backend in Backend::BOTH {
        purge_during_an_outage(backend, "", false).await;
        purge_during_an_outage(backend, "?key={key}", false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_during_a_redis_outage_survives_a_restart() {
    for backend in Backend::BOTH {
        purge_during_an_outage(backend, "?namespace=n", true).await;
        purge_during_an_outage(backend, "?key={key}", true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_by_a_node_without_redis_reaches_the_nodes_with_redis() {
    let (forwarder, through) = forwarder().await;
    let direct = redis_url().to_string();
    let settings = [vec![("GATEWAY_REDIS_URL", through.as_str())], vec![("GATEWAY_REDIS_URL", &direct)]];
    let cluster = Cluster::start_each(crate::support::migrated_postgres().await, &settings).await;
    let redis_is = |status: &'static str| {
        move |answer: &crate::support::TestResponse| answer.json()["components"]["redis"]["status"] == status
    };
    for node in &cluster.nodes {
        wait_for_response(WAIT_TIMEOUT, || node.get("/healthz"), redis_is("ok")).await;
    }
    let ask = |node: usize| cluster.chat(node, &cluster.key).header("x-gateway-cache", "true");
    let first = ask(0).send().await;
    assert_eq!(first.header("x-gateway-cache"), Some("MISS"));
    wait_until_shared(&cluster.org_id, first.header("x-gateway-cache-key").unwrap()).await;
    // May take a few attempts on a busy machine, until a lookup in Redis is in time.
    let is_hit = |answer: &crate::support::TestResponse| answer.header("x-gateway-cache") == Some("HIT");
    wait_for_response(WAIT_TIMEOUT, || ask(1), is_hit).await;
    forwarder.cut();
    wait_for_response(WAIT_TIMEOUT, || cluster.nodes[0].get("/healthz"), redis_is("down")).await;
    cluster.manage(0, Method::DELETE, "/api/v1/cache").send().await.expect(200);
    // Other nodes apply a purge within a second.
    wait_for_response(WAIT_TIMEOUT, || ask(1), |answer| answer.header("x-gateway-cache") == Some("MISS"))
        .await;
}
