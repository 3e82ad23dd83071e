//! Receivers of webhooks and exports. Signatures and payloads are checked with independent libraries.

use std::io::Read as _;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::read::GzDecoder;
use gateway_core::otlp::proto::{Any, ExportTraceServiceRequest, KeyValue, Span};
use prost::Message as _;
use serde_json::{Value, json};

use super::{Account, TestApp};
use crate::upstream::{Reply, Request, Upstream};

pub const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// A webhook with the secret from its creation response.
pub struct TestWebhook {
    pub id: String,
    pub secret: String,
}

impl TestWebhook {
    pub fn path(&self) -> String {
        format!("/api/v1/webhooks/{}", self.id)
    }
}

impl TestApp {
    /// Signs up an account on the enterprise plan.
    pub async fn enterprise(&self, slug: &str) -> Account {
        let account = self.signup(slug).await;
        self.set_enterprise_plan(&account).await;
        account
    }

    pub async fn create_webhook(&self, of: &Account, url: &str, events: &[&str]) -> TestWebhook {
        let body = json!({"url": url, "events": events});
        let made = self.post("/api/v1/webhooks", body).bearer(&of.token).send().await.expect(201);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        TestWebhook { id: text(&made["id"]), secret: text(&made["secret"]) }
    }

    /// Returns the webhook's deliveries, newest first.
    pub async fn deliveries(&self, of: &Account, hook: &TestWebhook) -> Vec<Value> {
        let path = format!("{}/deliveries?limit=200", hook.path());
        let list = self.get(&path).key(&of.api_key).send().await.expect(200);
        list["deliveries"].as_array().unwrap().clone()
    }

    /// Waits until the webhook's only delivery matches.
    pub async fn delivery(
        &self,
        of: &Account,
        hook: &TestWebhook,
        what: &str,
        fits: impl Fn(&Value) -> bool,
    ) -> Value {
        let mut last = Value::Null;
        for _ in 0..400 {
            let all = self.deliveries(of, hook).await;
            if let Some(delivery) = all.first() {
                assert_eq!(all.len(), 1, "one delivery: {all:?}");
                if fits(delivery) {
                    return delivery.clone();
                }
                last = delivery.clone();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("no delivery that is {what}: {last}");
    }

    pub async fn export(&self, of: &Account, body: &Value) -> String {
        let made = self.post("/api/v1/exports", body.clone()).bearer(&of.token).send().await.expect(201);
        made["id"].as_str().unwrap().to_owned()
    }

    /// Waits until the status of the export matches.
    pub async fn export_status(
        &self,
        of: &Account,
        id: &str,
        what: &str,
        fits: impl Fn(&Value) -> bool,
    ) -> Value {
        let path = format!("/api/v1/exports/{id}");
        let mut last = Value::Null;
        for _ in 0..600 {
            last = self.get(&path).key(&of.api_key).send().await.expect(200)["status"].clone();
            if fits(&last) {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the export never was {what}: {last}");
    }
}

/// Starts a receiver with a default reply.
pub async fn receiver(reply: Reply) -> Upstream {
    let upstream = Upstream::start().await;
    upstream.set_default_reply(reply);
    upstream
}

/// The body of an OTLP export to this receiver.
pub fn otlp(upstream: &Upstream) -> Value {
    json!({"name": "collector", "kind": "otlp", "endpoint": upstream.url()})
}

/// The body of a webhook export to this receiver.
pub fn webhook(upstream: &Upstream) -> Value {
    json!({"name": "hook", "kind": "webhook", "endpoint": upstream.url(), "secret": "abc"})
}

/// Decodes the spans of a gzip-compressed OTLP request.
pub fn spans(request: &Request) -> Vec<Span> {
    assert_eq!(request.header("content-encoding"), Some("gzip"));
    assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
    let mut plain = Vec::new();
    GzDecoder::new(&request.body[..]).read_to_end(&mut plain).unwrap();
    let message = ExportTraceServiceRequest::decode(&plain[..]).unwrap();
    message.resource_spans.into_iter().flat_map(|r| r.scope_spans).flat_map(|s| s.spans).collect()
}

pub fn attribute(attributes: &[KeyValue], name: &str) -> Option<Any> {
    attributes.iter().find(|pair| pair.key == name)?.value.clone()?.value
}

/// Returns the log id of a span.
pub fn span_log_id(span: &Span) -> Option<i64> {
    match attribute(&span.attributes, "gateway.log_id")? {
        Any::Int(id) => Some(id),
        _ => None,
    }
}

/// Returns the log ids sent to a webhook destination, over all requests.
pub fn traces(requests: &[Request]) -> Vec<i64> {
    let rows = |request: &Request| request.json()["data"]["traces"].as_array().unwrap().clone();
    requests.iter().flat_map(rows).map(|row| row["id"].as_i64().unwrap()).collect()
}

/// Returns whether the request is signed with the secret, verified over the raw bytes.
pub fn is_signed_by(request: &Request, secret: &str) -> bool {
    let bytes = match secret.strip_prefix("whsec_") {
        Some(text) => BASE64.decode(text).unwrap(),
        None => secret.as_bytes().to_vec(),
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, &bytes);
    let header =
        |name: &str| request.header(name).unwrap_or_else(|| panic!("no {name}: {:?}", request.headers));
    let mut signed = format!("{}.{}.", header("webhook-id"), header("webhook-timestamp")).into_bytes();
    signed.extend_from_slice(&request.body);
    header("webhook-signature").split(' ').any(|signature| {
        let (version, text) = signature.split_once(',').expect("a version");
        assert_eq!(version, "v1");
        hmac::verify(&key, &signed, &BASE64.decode(text).unwrap()).is_ok()
    })
}
