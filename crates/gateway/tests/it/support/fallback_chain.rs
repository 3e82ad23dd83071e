//! A fallback chain of three targets, each with its own upstream, and common provider responses.

use serde_json::{Value, json};

use super::app::Backend;
use super::client::TestRequest;
use super::proxy::ProxyFixture;
use crate::upstream::{Reply, Upstream};

pub const GOOD: &str = r#"{"id":"x","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}"#;
pub const CLAUDE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2}}"#;
pub const ROLE: &str =
    r#"{"id":"x","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#;
pub const HELLO: &str = r#"{"id":"x","model":"m","choices":[{"index":0,"delta":{"content":"hello"}}]}"#;
pub const WORLD: &str = r#"{"id":"x","model":"m","choices":[{"index":0,"delta":{"content":" world"}}]}"#;
pub const STOP: &str = r#"{"id":"x","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
pub const ERROR: &str = r#"{"error":{"message":"overloaded inside","type":"server_error"}}"#;

/// The first target is `openai`; the others are custom providers.
pub struct FallbackChain {
    pub proxy: ProxyFixture,
    pub second: Upstream,
    pub third: Upstream,
}

impl FallbackChain {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        let proxy = ProxyFixture::start_with(Backend::Sqlite, settings).await;
        let (second, third) = (Upstream::start().await, Upstream::start().await);
        proxy.provider("second", "openai", json!({"base_url": second.url(), "api_key": "sk-second"})).await;
        proxy.provider("third", "groq", json!({"base_url": third.url(), "api_key": "sk-third"})).await;
        Self { proxy, second, third }
    }

    pub fn chat(&self) -> TestRequest {
        self.proxy
            .chat(&json!({"model": "m", "messages": []}))
            .header("x-gateway-fallback", "second, third/other")
    }

    pub fn stream(&self) -> TestRequest {
        let body = json!({"model": "m", "messages": [], "stream": true});
        self.proxy.chat(&body).header("x-gateway-fallback", "second")
    }
}

pub fn good() -> Reply {
    Reply::json(200, GOOD)
}

pub fn good_stream() -> Reply {
    Reply::sse(&[ROLE, HELLO, STOP, "[DONE]"])
}

pub fn attempted_providers(row: &Value) -> Vec<(String, Value)> {
    let attempts = row["attempts"].as_array().unwrap();
    attempts.iter().map(|a| (a["provider"].as_str().unwrap().to_owned(), a["status"].clone())).collect()
}
