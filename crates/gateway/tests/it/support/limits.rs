//! Limits of an organization, for tests of the request path.

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};

use super::{Cluster, ProxyFixture, TestRequest, TestResponse, wait_for_response};
use crate::upstream::Reply;

/// A chat request of about 30 tokens of input that allows 20 of output.
pub fn chat_body(model: &str) -> Value {
    json!({"model": model, "max_tokens": 20, "messages": [{"role": "user", "content": "hi"}]})
}

/// An answer that used 10 and 20 tokens.
pub fn answer() -> Reply {
    let body = r#"{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}}"#;
    Reply::json(200, body)
}

/// Returns whether a call passed.
#[track_caller]
pub fn passed(answer: &TestResponse) -> bool {
    match answer.status.as_u16() {
        200 => true,
        429 => {
            answer.expect_error(429, "rate_limited");
            false
        }
        other => panic!("{other}: {}", answer.text()),
    }
}

/// The address of the Redis of the tests.
pub fn redis() -> String {
    std::env::var("TEST_REDIS_URL").expect("TEST_REDIS_URL is not set: run the tests with `make test`")
}

/// Calls that are sent again and again do not reach the plan's requests per minute.
pub const MANY_CALLS: (&str, &str) = ("GATEWAY_RATE_LIMIT_FREE", "100000");

/// Waits until every node sees Redis in this state.
pub async fn wait_for_redis(cluster: &Cluster, wanted: &str) {
    for node in &cluster.nodes {
        wait_for_response(
            Duration::from_secs(20),
            || node.get("/healthz"),
            |answer| answer.json()["components"]["redis"]["status"] == wanted,
        )
        .await;
    }
}

/// Waits until every node applies the limit, by a header that only it causes.
pub async fn wait_for_limit(cluster: &Cluster, model: &str) {
    for node in 0..cluster.nodes.len() {
        wait_for_response(
            Duration::from_secs(10),
            || ask(cluster, node, model),
            |answer| answer.header("ratelimit-policy").is_some(),
        )
        .await;
    }
}

/// A call of the cluster's key, which reserves about 40 tokens.
pub fn ask(cluster: &Cluster, node: usize, model: &str) -> TestRequest {
    let body = json!({"model": model, "max_tokens": 10, "messages": [{"role": "user", "content": "hello"}]});
    let call = cluster.nodes[node].call(Method::POST, "/v1/chat/completions").key(&cluster.key);
    call.header("x-gateway-provider", "openai").json(body)
}

/// Sends calls to all nodes at the same time and returns how many passed.
pub async fn admitted(cluster: &Cluster, model: &str, each: usize) -> usize {
    let nodes = 0..cluster.nodes.len();
    let calls = nodes.flat_map(|node| (0..each).map(move |_| ask(cluster, node, model).send()));
    let answers = join_all(calls).await;
    answers.iter().filter(|answer| passed(answer)).count()
}

impl ProxyFixture {
    /// Creates a limit and returns its id.
    pub async fn limit(&self, definition: Value) -> String {
        let path = format!("/api/v1/orgs/{}/limits", self.ada.org_id);
        let made = self.app.post(&path, definition).bearer(&self.ada.token).send().await.expect(201);
        made["id"].as_str().unwrap().to_owned()
    }

    /// A chat request to a model.
    pub fn ask_model(&self, model: &str) -> TestRequest {
        self.chat(&chat_body(model))
    }

    /// Waits until this many calls wait for their limits.
    pub async fn wait_for_waiting(&self, count: usize) {
        let org = self.ada.org_id.parse().unwrap();
        for _ in 0..500 {
            if self.app.app.proxy.limits.waiting(org) == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("not {count} calls wait, but {}", self.app.app.proxy.limits.waiting(org));
    }
}

impl Cluster {
    /// Creates a limit at the first node, and waits until all nodes know it.
    pub async fn limit(&self, definition: Value) {
        let path = self.in_org("/limits");
        self.manage(0, Method::POST, &path).json(definition).send().await.expect(201);
    }

    /// How close to their limits all nodes stay, as the API of the first one says.
    pub async fn exactness(&self) -> String {
        let list = self.manage(0, Method::GET, &self.in_org("/limits")).send().await.expect(200);
        list["exactness"].as_str().unwrap().to_owned()
    }
}
