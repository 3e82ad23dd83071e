//! A database outage while requests are served: known keys keep working, management returns an error, and every row
//! is stored after the recovery.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use gateway_store::Db;
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{Backend, PASSWORD, ProxyFixture, TcpForwarder, log_id, migrated_postgres};
use crate::upstream::Reply;

async fn start(settings: &[(&str, &str)]) -> (ProxyFixture, TcpForwarder) {
    let (forwarder, url) = TcpForwarder::to_database(&migrated_postgres().await).await;
    let mut all = vec![("GATEWAY_DATABASE_URL", url.as_str()), ("GATEWAY_RATE_LIMIT_FREE", "0")];
    all.extend_from_slice(settings);
    let proxy = ProxyFixture::start_with(Backend::Sqlite, &all).await;
    proxy
        .upstream
        .set_default_reply(Reply::json(200, r#"{"usage":{"prompt_tokens":3,"completion_tokens":2}}"#));
    (proxy, forwarder)
}

fn body() -> Value {
    json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]})
}

impl ProxyFixture {
    /// Sends requests in sequence for a while and returns their log ids.
    async fn keep_calling(&self, time: Duration) -> BTreeSet<i64> {
        let began = Instant::now();
        let mut ids = BTreeSet::new();
        while began.elapsed() < time {
            let answer = self.chat(&body()).send().await;
            assert_eq!(answer.status.as_u16(), 200, "{}", answer.text());
            ids.insert(log_id(&answer));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        ids
    }

    /// Waits until the store contains exactly these rows, each counted once.
    async fn wait_for_exact_rows(&self, ids: &BTreeSet<i64>, limit: Duration) {
        let began = Instant::now();
        loop {
            let stored = self.stored_ids().await;
            let found: BTreeSet<i64> = stored.iter().copied().collect();
            assert_eq!(found.len(), stored.len(), "a row is listed twice");
            if found == *ids {
                break;
            }
            let missing = ids.difference(&found).count();
            assert!(began.elapsed() < limit, "{missing} rows are missing, {} are there", found.len());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let usage = self.app.get("/api/v1/usage/summary").key(&self.ada.api_key).send().await.expect(200);
        assert_eq!((&usage["requests"], &usage["total_tokens"]), (&json!(ids.len()), &json!(ids.len() * 5)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn known_keys_keep_working_during_a_database_outage_and_no_row_is_lost() {
    let (proxy, forwarder) = start(&[]).await;
    let mut ids = proxy.keep_calling(Duration::from_millis(200)).await;
    forwarder.cut();
    ids.extend(proxy.keep_calling(Duration::from_secs(2)).await);

    // The gateway is unavailable; the caller's credential is not the problem.
    let stranger = format!("sk-gateway-{}", "a".repeat(64));
    let login = json!({"email": proxy.ada.email, "password": PASSWORD});
    for call in [
        proxy.app.get("/api/v1/keys").key(&proxy.ada.api_key),
        proxy.app.get("/api/v1/keys").bearer(&proxy.ada.token),
        proxy.app.get("/api/v1/keys").key(&stranger),
        proxy.app.post("/api/v1/login", login),
        proxy.app.get("/v1/files").key(&stranger).header("x-gateway-provider", "openai"),
    ] {
        let answer = call.send().await;
        answer.expect_error(503, "unavailable");
        assert!(answer.header("retry-after").is_some());
    }
    let health = proxy.app.get("/healthz").send().await.expect(503);
    assert_eq!(
        (&health["status"], &health["components"]["database"]["status"]),
        (&json!("degraded"), &json!("down"))
    );
    assert_eq!(health["components"]["log_spool"]["status"], "ok");
    ids.extend(proxy.keep_calling(Duration::from_secs(2)).await);

    forwarder.open();
    ids.extend(proxy.keep_calling(Duration::from_millis(300)).await);
    proxy.wait_for_exact_rows(&ids, Duration::from_secs(20)).await;
    proxy.app.get("/api/v1/keys").key(&stranger).send().await.expect_error(401, "unauthorized");
    proxy.app.get("/healthz").send().await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unresponsive_database_delays_requests_only_briefly() {
    let (proxy, forwarder) = start(&[]).await;
    let mut ids = proxy.keep_calling(Duration::from_millis(200)).await;
    forwarder.blackhole();
    let began = Instant::now();
    let (calling, managing) = tokio::join!(
        proxy.keep_calling(Duration::from_secs(7)),
        proxy.app.get("/api/v1/keys").key(&proxy.ada.api_key).send()
    );
    ids.extend(calling);
    managing.expect_error(503, "unavailable");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    // The old connections stay silent; new ones work.
    forwarder.open();
    proxy.wait_for_exact_rows(&ids, Duration::from_secs(40)).await;
}

/// A connection is pinged while it returns to its pool. The moments of the trials are spread over this time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_falls_silent_while_it_returns_frees_its_slot() {
    let database = migrated_postgres().await;
    let mut trials = JoinSet::new();
    for step in 0..20 {
        let database = database.clone();
        trials.spawn(async move {
            let (forwarder, url) = TcpForwarder::to_database(&database).await;
            let db = Db::open_with(&url, 1).await.unwrap();
            db.opt("SELECT 1 AS one", Vec::new()).await.unwrap();
            let began = Instant::now();
            while began.elapsed() < step * Duration::from_micros(100) {
                tokio::task::yield_now().await;
            }
            forwarder.blackhole();
            tokio::time::sleep(Duration::from_millis(100)).await;
            forwarder.open();
            let began = Instant::now();
            while let Err(error) = db.opt("SELECT 1 AS one", Vec::new()).await {
                assert!(began.elapsed() < Duration::from_secs(30), "trial {step}: {error}");
            }
        });
    }
    while let Some(trial) = trials.join_next().await {
        trial.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn known_keys_are_served_without_the_database_only_within_the_grace_period() {
    let (proxy, forwarder) = start(&[("GATEWAY_OUTAGE_GRACE_S", "2")]).await;
    proxy.chat(&body()).send().await.expect(200);
    forwarder.cut();
    proxy.chat(&body()).send().await.expect(200);
    let began = Instant::now();
    loop {
        let answer = proxy.chat(&body()).send().await;
        if answer.status == 503 {
            answer.expect_error(503, "unavailable");
            break;
        }
        assert_eq!(answer.status.as_u16(), 200, "{}", answer.text());
        assert!(began.elapsed() < Duration::from_secs(15));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    forwarder.open();
    proxy.chat(&body()).send().await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_spool_sheds_bodies_first_then_rows_and_counts_both() {
    let (proxy, forwarder) = start(&[("GATEWAY_SPOOL_BYTES", "1048576")]).await;
    let long = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "x".repeat(200_000)}]})
        .to_string();
    let mut ids =
        BTreeSet::from([log_id(&proxy.post("openai", "/v1/chat/completions", long.clone()).send().await)]);
    proxy.wait_for_exact_rows(&ids, Duration::from_secs(10)).await;
    forwarder.cut();
    for _ in 0..20 {
        ids.insert(log_id(&proxy.post("openai", "/v1/chat/completions", long.clone()).send().await));
    }
    let shed = proxy.app.app.proxy.spool.shed_bodies.load(std::sync::atomic::Ordering::Relaxed);
    // An organization alone may use seven eighths of the MiB, which have room for four bodies.
    assert_eq!((shed, proxy.shed_rows()), (16, 0));
    assert_eq!(proxy.spool_status().await, "ok");
    forwarder.open();
    proxy.wait_for_exact_rows(&ids, Duration::from_secs(20)).await;
    let mut off = 0;
    for id in &ids {
        let row = proxy.log_row_by_id(*id).await;
        assert_eq!((&row["status"], &row["prompt_tokens"]), (&json!(200), &json!(3)));
        off += u64::from(row["request_stored"] == "off");
    }
    assert_eq!(off, shed);

    // Past twice the limit rows are dropped as well: the losses are counted, and no request is rejected.
    forwarder.cut();
    let metadata = format!("{{\"a\":\"{}\"}}", "x".repeat(16_000));
    let count = 220;
    for _ in 0..count {
        let call = proxy
            .call(Method::POST, "openai", "/v1/chat/completions")
            .header("x-gateway-metadata", &metadata);
        call.raw(body().to_string()).send().await.expect(200);
    }
    assert!((1..count).contains(&proxy.shed_rows()), "{}", proxy.shed_rows());
    assert_eq!(proxy.spool_status().await, "down");
    forwarder.open();
    let (expected, began) = (ids.len() as u64 + count - proxy.shed_rows(), Instant::now());
    while proxy.stored_ids().await.len() as u64 != expected {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{} of {expected}",
            proxy.stored_ids().await.len()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_one_organization_costs_no_other_its_bodies() {
    let (proxy, forwarder) = start(&[("GATEWAY_SPOOL_BYTES", "1048576")]).await;
    let other = proxy.app.signup("other").await;
    let call_of_other = || async {
        let call = proxy.app.post("/v1/chat/completions", body()).key(&other.api_key);
        let answer = call.header("x-gateway-provider", "sandbox").send().await;
        answer.expect(200);
        log_id(&answer)
    };
    call_of_other().await;
    proxy.chat(&body()).send().await.expect(200);
    forwarder.cut();
    let long = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "x".repeat(100_000)}]});
    for _ in 0..30 {
        proxy.chat(&long).send().await.expect(200);
    }
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(call_of_other().await);
    }
    forwarder.open();
    for id in ids {
        let began = Instant::now();
        let row = loop {
            let row = proxy.app.get(&format!("/api/v1/logs/{id}")).key(&other.api_key).send().await;
            if row.status == 200 {
                break row.json();
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{}", row.text());
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert_eq!(
            (&row["request_stored"], &row["response_stored"]),
            (&json!("full"), &json!("full")),
            "{row}"
        );
    }
    assert!(proxy.app.app.proxy.spool.shed_bodies.load(std::sync::atomic::Ordering::Relaxed) > 0);
}

impl ProxyFixture {
    async fn spool_status(&self) -> Value {
        self.app.get("/healthz").send().await.json()["components"]["log_spool"]["status"].take()
    }

    fn shed_rows(&self) -> u64 {
        self.app.app.proxy.spool.shed_rows.load(std::sync::atomic::Ordering::Relaxed)
    }
}
