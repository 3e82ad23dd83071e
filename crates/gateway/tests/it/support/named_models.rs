//! Named models in tests of the proxy.

use serde_json::{Value, json};

use super::client::{TestRequest, TestResponse};
use super::proxy::ProxyFixture;
use crate::upstream::Upstream;

impl ProxyFixture {
    /// Creates the model, or a new version of it.
    pub async fn save(&self, name: &str, definition: Value) {
        let path = format!("/api/v1/orgs/{}/models", self.ada.org_id);
        let mut body = definition;
        body["name"] = json!(name);
        let made = self.app.post(&path, body.clone()).bearer(&self.ada.token).send().await;
        if made.status == 409 {
            let path = format!("{path}/{}", name.replace('/', "%2F").replace('*', "%2A"));
            self.app.put(&path, body).bearer(&self.ada.token).send().await.expect(200);
        } else {
            made.expect(201);
        }
    }

    /// A chat request by the name of a model.
    pub fn by_name(&self, name: &str) -> TestRequest {
        self.by_name_with(name, json!({}))
    }

    #[expect(clippy::needless_pass_by_value, reason = "bodies are written in place, as json!({…})")]
    pub fn by_name_with(&self, name: &str, fields: Value) -> TestRequest {
        let mut body = json!({"model": name, "messages": []});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.post("auto", "/v1/chat/completions", body.to_string())
    }
}

/// Two targets in order.
pub fn chain_of(on: Option<Value>) -> Value {
    let mut strategy = json!({"mode": "order"});
    if let Some(on) = on {
        strategy["on"] = on;
    }
    json!({"strategy": strategy, "targets": [
        {"provider": "openai", "model": "one"}, {"provider": "second", "model": "two"},
    ]})
}

/// The provider and model that served a response.
pub fn served(answer: &TestResponse) -> (&str, &str) {
    let header = |name| answer.header(name).unwrap_or_default();
    (header("x-gateway-provider"), header("x-gateway-model"))
}

/// The body of the latest request.
pub fn sent(upstream: &Upstream) -> Value {
    serde_json::from_slice(&upstream.requests().last().unwrap().body).unwrap()
}
