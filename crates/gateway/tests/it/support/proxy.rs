//! A gateway with a programmable upstream and one organization that sends proxied requests.

use std::net::SocketAddr;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::app::{Account, Backend, TestApp};
use super::client::{TestRequest, TestResponse};
use super::raw_http::{RawConnection, request, request_head};
use crate::upstream::Upstream;

/// The operator configures the upstream as the base URL of these providers.
const PROVIDERS: [&str; 5] = ["OPENAI", "ANTHROPIC", "GEMINI", "BEDROCK", "COHERE"];
/// How often a row is looked for, every 20 ms: for 20 s. Rows are stored after the response has ended, late on a busy
/// machine.
const ROW_POLLS: usize = 1_000;

pub struct ProxyFixture {
    pub app: TestApp,
    pub upstream: Upstream,
    pub ada: Account,
}

impl ProxyFixture {
    pub async fn start() -> Self {
        Self::start_with(Backend::Sqlite, &[]).await
    }

    pub async fn start_with(backend: Backend, settings: &[(&str, &str)]) -> Self {
        let upstream = Upstream::start().await;
        let names = PROVIDERS.map(|name| format!("GATEWAY_PROVIDER_{name}_BASE_URL"));
        let url = upstream.url();
        let mut all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), url.as_str())).collect();
        all.extend_from_slice(settings);
        let app = TestApp::start_with(backend, &all).await;
        let ada = app.signup("acme").await;
        Self { app, upstream, ada }
    }

    /// A proxied request with the organization's first key.
    pub fn call(&self, method: Method, provider: &str, path: &str) -> TestRequest {
        self.app.call(method, path).key(&self.ada.api_key).header("x-gateway-provider", provider)
    }

    pub fn post(&self, provider: &str, path: &str, body: impl Into<bytes::Bytes>) -> TestRequest {
        self.call(Method::POST, provider, path).header("content-type", "application/json").raw(body)
    }

    pub fn chat(&self, body: &Value) -> TestRequest {
        self.post("openai", "/v1/chat/completions", body.to_string())
    }

    /// The bytes of a proxied request, for a raw connection.
    pub fn raw_post(&self, provider: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
        request("POST", path, &self.with_key(provider, headers), body)
    }

    pub fn raw_head(&self, provider: &str, path: &str, headers: &[(&str, &str)]) -> String {
        request_head("POST", path, &self.with_key(provider, headers))
    }

    fn with_key<'a>(&'a self, provider: &'a str, headers: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let ours = [("x-gateway-key", self.ada.api_key.as_str()), ("x-gateway-provider", provider)];
        ours.into_iter().chain(headers.iter().copied()).collect()
    }

    pub async fn connect(&self) -> RawConnection {
        RawConnection::connect(self.app.address).await
    }

    /// Creates a custom provider. Its base URL is the upstream unless `fields` overrides it.
    pub async fn provider(&self, name: &str, kind: &str, fields: Value) {
        let mut body = json!({"name": name, "kind": kind, "base_url": self.upstream.url()});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let path = format!("/api/v1/orgs/{}/providers", self.ada.org_id);
        self.app.post(&path, body).bearer(&self.ada.token).send().await.expect(201);
    }

    /// Creates a key with these scopes and returns the raw key.
    pub async fn key(&self, scopes: &[&str]) -> String {
        let body = json!({"name": "scoped", "scopes": scopes});
        let made = self.app.post("/api/v1/keys", body).bearer(&self.ada.token).send().await.expect(201);
        made["raw_key"].as_str().unwrap().to_owned()
    }

    /// Waits for the log row of a response.
    pub async fn log_row(&self, answer: &TestResponse) -> Value {
        self.log_row_by_id(log_id(answer)).await
    }

    /// Waits for the log row with this id.
    pub async fn log_row_by_id(&self, id: i64) -> Value {
        let path = format!("/api/v1/logs/{id}");
        for _ in 0..ROW_POLLS {
            let answer = self.app.get(&path).key(&self.ada.api_key).send().await;
            if answer.status != 404 {
                return answer.expect(200);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("no row {id} within 20 s");
    }

    /// Waits for `count` log rows. Returns them without bodies, ordered by id.
    pub async fn wait_for_rows(&self, count: usize) -> Vec<Value> {
        for _ in 0..ROW_POLLS {
            let list = self.app.get("/api/v1/logs?limit=200").key(&self.ada.api_key).send().await.expect(200);
            let rows = list["logs"].as_array().unwrap();
            if rows.len() >= count {
                return rows.iter().rev().cloned().collect();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("not {count} rows within 20 s");
    }

    /// Waits for the only log row, for requests whose log id the client did not receive.
    pub async fn only_row(&self) -> Value {
        let mut rows = self.wait_for_rows(1).await;
        assert_eq!(rows.len(), 1);
        rows.remove(0)
    }

    pub async fn stored_ids(&self) -> Vec<i64> {
        all_log_ids(self.app.address, &self.ada.api_key).await
    }

    /// Returns the `traceparent` of the row, which no API response contains.
    pub async fn traceparent(&self, id: i64) -> Option<String> {
        self.log_row_by_id(id).await;
        let org = self.ada.org_id.parse().unwrap();
        gateway_store::logs::find(&self.app.app.services.logs, org, id)
            .await
            .unwrap()
            .unwrap()
            .row
            .traceparent
    }
}

/// Pages through `GET /logs` and returns the ids of all rows of the key's organization.
pub async fn all_log_ids(address: SocketAddr, key: &str) -> Vec<i64> {
    let mut ids = Vec::new();
    let mut path = "/api/v1/logs?limit=200".to_owned();
    loop {
        let page = TestRequest::new(address, Method::GET, &path).key(key).send().await.expect(200);
        ids.extend(page["logs"].as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()));
        let Some(cursor) = page["next_cursor"].as_str() else { return ids };
        path = format!("/api/v1/logs?limit=200&cursor={cursor}");
    }
}

pub fn log_id(answer: &TestResponse) -> i64 {
    answer.header("x-gateway-log-id").and_then(|id| id.parse().ok()).expect("a log id")
}
