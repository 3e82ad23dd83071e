//! Limits of an organization, for tests of the request path.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{Cluster, ProxyFixture, TestRequest, TestResponse};
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
