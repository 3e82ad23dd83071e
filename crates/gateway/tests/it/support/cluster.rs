//! Several `gateway serve` processes on one PostgreSQL, with one organization and one upstream behind them.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::app::{MASTER_KEY, PASSWORD, TOKEN_SECRET, fresh_postgres};
use super::client::{Answer, Call};
use super::process::{Served, command};
use crate::upstream::{Reply, Upstream};

pub struct Cluster {
    pub nodes: Vec<Served>,
    pub upstream: Upstream,
    pub database: String,
    pub org_id: String,
    pub token: String,
    pub key: String,
    _data: Vec<TempDir>,
}

impl Cluster {
    /// Each node has these settings, beginning with its database when that is not the shared one's own address.
    pub async fn start(nodes: usize, settings: &[(&str, &str)]) -> Self {
        let database = fresh_postgres().await;
        let all = vec![settings.to_vec(); nodes];
        Self::start_each(database, &all).await
    }

    pub async fn start_each(database: String, settings: &[Vec<(&str, &str)>]) -> Self {
        let upstream = Upstream::start().await;
        upstream.always(Reply::json(200, r#"{"usage":{"prompt_tokens":3,"completion_tokens":2}}"#));
        let data: Vec<TempDir> = settings.iter().map(|_| tempfile::tempdir().unwrap()).collect();
        let mut nodes = Vec::new();
        for (settings, data) in settings.iter().zip(&data) {
            let mut command = command(data.path(), &["serve"]);
            command
                .env("GATEWAY_DATABASE_URL", &database)
                .env("GATEWAY_TOKEN_SECRET", TOKEN_SECRET)
                .env("GATEWAY_MASTER_KEY", MASTER_KEY)
                .env("GATEWAY_AUTH_ATTEMPTS", "100000")
                .env("GATEWAY_WORKERS", "1")
                .env("GATEWAY_PROVIDER_OPENAI_BASE_URL", upstream.url())
                .envs(settings.iter().copied());
            nodes.push(Served::start(&mut command));
        }
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
            _data: data,
        }
    }

    /// A management call with the owner's token.
    pub fn manage(&self, node: usize, method: Method, path: &str) -> Call {
        self.nodes[node].call(method, path).bearer(&self.token)
    }

    pub fn in_org(&self, path: &str) -> String {
        format!("/api/v1/orgs/{}{path}", self.org_id)
    }

    /// A call of a model with this key.
    pub fn chat(&self, node: usize, key: &str) -> Call {
        let body = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]});
        let call = self.nodes[node].call(Method::POST, "/v1/chat/completions").key(key);
        call.header("x-gateway-provider", "openai").json(body)
    }

    /// The cheapest request that counts: it names no provider, so that it is refused once it is let in.
    pub async fn knock(&self, node: usize) -> bool {
        match self.nodes[node].get("/nowhere").key(&self.key).send().await.status.as_u16() {
            400 => true,
            429 => false,
            other => panic!("{other}"),
        }
    }
}

/// Asks until the answer is as wanted, which must be within the limit.
pub async fn seen_within(limit: Duration, call: impl Fn() -> Call, wanted: impl Fn(&Answer) -> bool) {
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
