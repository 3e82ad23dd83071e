//! Several `gateway serve` processes on one PostgreSQL, with one organization and one upstream.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::app::{MASTER_KEY, PASSWORD, TOKEN_SECRET};
use super::client::{TestRequest, TestResponse};
use super::databases::migrated_postgres;
use super::process::{GatewayProcess, command};
use super::proxy::all_log_ids;
use crate::upstream::{Reply, Upstream};

pub struct Cluster {
    pub nodes: Vec<GatewayProcess>,
    pub upstream: Upstream,
    pub database: String,
    pub org_id: String,
    pub token: String,
    pub key: String,
    homes: Vec<Home>,
}

/// Data directory and settings of a node, kept for restarts.
struct Home {
    data: TempDir,
    settings: Vec<(String, String)>,
}

impl Home {
    fn start(&self) -> GatewayProcess {
        let mut command = command(self.data.path(), &["serve"]);
        command.envs(self.settings.iter().cloned());
        tokio::task::block_in_place(|| GatewayProcess::start(&mut command))
    }
}

impl Cluster {
    /// Starts the nodes with the same settings.
    pub async fn start(nodes: usize, settings: &[(&str, &str)]) -> Self {
        let database = migrated_postgres().await;
        let all = vec![settings.to_vec(); nodes];
        Self::start_each(database, &all).await
    }

    /// Starts one node per list of settings. A list may override the database URL.
    pub async fn start_each(database: String, settings: &[Vec<(&str, &str)>]) -> Self {
        let upstream = Upstream::start().await;
        upstream
            .set_default_reply(Reply::json(200, r#"{"usage":{"prompt_tokens":3,"completion_tokens":2}}"#));
        let common = [
            ("GATEWAY_DATABASE_URL", database.as_str()),
            ("GATEWAY_TOKEN_SECRET", TOKEN_SECRET),
            ("GATEWAY_MASTER_KEY", MASTER_KEY),
            ("GATEWAY_AUTH_ATTEMPTS", "100000"),
            ("GATEWAY_EGRESS_PRIVATE", "allow"),
            ("GATEWAY_WORKERS", "1"),
            ("GATEWAY_PROVIDER_OPENAI_BASE_URL", &upstream.url()),
        ];
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let home = |settings: &Vec<(&str, &str)>| Home {
            data: tempfile::tempdir().unwrap(),
            settings: common.iter().chain(settings).map(owned).collect(),
        };
        let homes: Vec<Home> = settings.iter().map(home).collect();
        let nodes: Vec<GatewayProcess> = homes.iter().map(Home::start).collect();
        let body = json!({"email": "ada@example.com", "password": PASSWORD, "org_slug": "acme"});
        let made = nodes[0].post("/api/v1/signup", &body).send().await.expect(201);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self {
            org_id: text(&made["org"]["id"]),
            token: text(&made["token"]),
            key: text(&made["api_key"]),
            nodes,
            upstream,
            database,
            homes,
        }
    }

    /// Starts another node with the settings of the first.
    pub fn add(&mut self) {
        let settings = self.homes[0].settings.clone();
        let home = Home { data: tempfile::tempdir().unwrap(), settings };
        self.nodes.push(home.start());
        self.homes.push(home);
    }

    /// Stops a node with SIGTERM and waits for its exit.
    pub fn stop(&mut self, node: usize) {
        self.nodes[node].signal("TERM");
        let code = tokio::task::block_in_place(|| self.nodes[node].wait_for_exit_code());
        assert_eq!(code, Some(0), "node {node}");
    }

    /// Stops a node with SIGKILL.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].signal("KILL");
        tokio::task::block_in_place(|| self.nodes[node].wait_for_exit_code());
    }

    /// Restarts a stopped node on its own data directory.
    pub fn restart(&mut self, node: usize) {
        self.nodes[node] = self.homes[node].start();
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.address).collect()
    }

    /// A management request with the owner's token.
    pub fn manage(&self, node: usize, method: Method, path: &str) -> TestRequest {
        self.nodes[node].call(method, path).bearer(&self.token)
    }

    pub fn in_org(&self, path: &str) -> String {
        format!("/api/v1/orgs/{}{path}", self.org_id)
    }

    /// A chat request with this key.
    pub fn chat(&self, node: usize, key: &str) -> TestRequest {
        chat_request(self.nodes[node].address, key)
    }

    /// Sends the cheapest request that counts against the rate limit and returns whether it passed. It names no
    /// provider, so that it fails with 400 after admission.
    pub async fn try_request(&self, node: usize) -> bool {
        match self.nodes[node].get("/nowhere").key(&self.key).send().await.status.as_u16() {
            400 => true,
            429 => false,
            other => panic!("{other}"),
        }
    }

    /// Waits until the log contains exactly these rows, each stored once and counted once.
    pub async fn wait_for_exact_rows(&self, ids: &BTreeSet<i64>, limit: Duration) {
        let began = Instant::now();
        loop {
            let stored = all_log_ids(self.nodes[0].address, &self.key).await;
            let found: BTreeSet<i64> = stored.iter().copied().collect();
            assert_eq!(found.len(), stored.len(), "a row is listed twice");
            assert!(found.is_subset(ids), "rows of requests that nobody made");
            if found == *ids {
                break;
            }
            let missing = ids.len() - found.len();
            assert!(began.elapsed() < limit, "{missing} of {} rows are missing", ids.len());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let usage = self.nodes[0].get("/api/v1/usage/summary").key(&self.key).send().await.expect(200);
        assert_eq!((&usage["requests"], &usage["total_tokens"]), (&json!(ids.len()), &json!(ids.len() * 5)));
    }
}

pub fn chat_request(address: SocketAddr, key: &str) -> TestRequest {
    let body =
        json!({"model": "gpt-4o", "max_tokens": 10, "messages": [{"role": "user", "content": "hello"}]});
    let call = TestRequest::new(address, Method::POST, "/v1/chat/completions").key(key);
    call.header("x-gateway-provider", "openai").json(body)
}

/// Repeats the request until the response matches. Panics when the limit expires first.
pub async fn wait_for_response(
    limit: Duration,
    call: impl Fn() -> TestRequest,
    wanted: impl Fn(&TestResponse) -> bool,
) {
    let begun = Instant::now();
    loop {
        let asked = begun.elapsed();
        let answer = call().send().await;
        if wanted(&answer) {
            return;
        }
        assert!(asked < limit, "after {asked:?} still {}: {}", answer.status, answer.text());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
