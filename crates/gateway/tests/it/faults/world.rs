//! An organization that uses everything which must not be lost, and what its callers were told.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use crate::support::{PASSWORD, TestRequest, TestResponse};
use crate::upstream::{Reply, Upstream};

/// 10 + 100 tokens of gpt-4o cost 0.001025 USD.
const ANSWER: &str = r#"{"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"good"}}],"usage":{"prompt_tokens":10,"completion_tokens":100,"total_tokens":110}}"#;
pub const LIVE_EVAL: &str = "live";
pub const COST: f64 = 0.001_025;
const UNAVAILABLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The provider, and the receivers of events, of log rows and of spans with verdicts.
pub struct Peers {
    pub provider: Upstream,
    pub events: Upstream,
    pub rows: Upstream,
    pub spans: Upstream,
}

impl Peers {
    pub async fn start() -> Self {
        let peers = Self {
            provider: Upstream::start().await,
            events: Upstream::start().await,
            rows: Upstream::start().await,
            spans: Upstream::start().await,
        };
        peers.provider.set_default_reply(Reply::json(200, ANSWER));
        peers.events.set_default_reply(Reply::new(200));
        peers.rows.set_default_reply(Reply::new(200));
        peers.spans.set_default_reply(Reply::new(200));
        peers
    }

    pub fn settings(&self) -> Vec<(String, String)> {
        [
            ("GATEWAY_PROVIDER_OPENAI_BASE_URL", self.provider.url()),
            ("GATEWAY_DEFAULT_PLAN", "enterprise".into()),
            ("GATEWAY_RATE_LIMIT_ENTERPRISE", "0".into()),
            ("GATEWAY_WORKERS", "1".into()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

pub struct World {
    /// Where the gateway listens now.
    pub address: SocketAddr,
    pub peers: Peers,
    pub org: String,
    /// The key that owns everything. It is never revoked.
    pub key: String,
    pub hook: String,
    pub hook_secret: String,
    pub export: String,
    pub span_export: String,
    /// An eval of all live traffic, and one for runs.
    pub live_eval: i64,
    pub eval: i64,
    /// A budget that is never used up.
    pub budget: String,
    pub told: Told,
}

/// What the gateway has answered. An error, or no answer, leaves open whether the change was made.
#[derive(Default)]
pub struct Told {
    pub rows: BTreeSet<i64>,
    pub keys: Vec<ToldKey>,
    pub runs: BTreeSet<i64>,
    pub skills: BTreeSet<String>,
    /// Budgets whose soft limit is below the cost of a call.
    pub small_budgets: BTreeSet<String>,
    names: usize,
}

pub struct ToldKey {
    pub id: String,
    pub raw: String,
    pub state: KeyState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    Valid,
    Revoked,
    /// The revocation had no answer, or an error.
    Unknown,
}

impl World {
    pub async fn create(address: SocketAddr, peers: Peers) -> Self {
        let post = |path: &str, body: Value| TestRequest::new(address, Method::POST, path).json(body);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let signup = json!({"email": "ada@example.com", "password": PASSWORD, "org_slug": "acme"});
        let account = post("/api/v1/signup", signup).send().await.expect(201);
        let (org, key) = (text(&account["org"]["id"]), text(&account["api_key"]));
        let create = async |path: &str, body: Value| post(path, body).key(&key).send().await.expect(201);
        let hook = create("/api/v1/webhooks", json!({"url": peers.events.url(), "events": []})).await;
        let export = json!({"name": "e", "kind": "webhook", "endpoint": peers.rows.url(), "secret": "abc"});
        let export = create("/api/v1/exports", export).await;
        let spans = json!({"name": "s", "kind": "otlp", "endpoint": peers.spans.url()});
        let span_export = create("/api/v1/exports", spans).await;
        let eval = |name: &str, rate: f64| {
            json!({"name": name, "type": "static", "evaluator": "status_ok",
                "config": {}, "sample_rate": rate})
        };
        let live_eval = create("/api/v1/evals", eval(LIVE_EVAL, 1.0)).await;
        let run_eval = create("/api/v1/evals", eval("runs", 0.0)).await;
        let budget = json!({"scope": "org", "period": "monthly", "hard_limit_usd": 1_000.0});
        let budget = create(&format!("/api/v1/orgs/{org}/budgets"), budget).await;
        Self {
            hook: text(&hook["id"]),
            hook_secret: text(&hook["secret"]),
            export: text(&export["id"]),
            span_export: text(&span_export["id"]),
            live_eval: live_eval["id"].as_i64().unwrap(),
            eval: run_eval["id"].as_i64().unwrap(),
            budget: text(&budget["id"]),
            told: Told::default(),
            address,
            peers,
            org,
            key,
        }
    }

    pub fn call(&self, method: Method, path: &str) -> TestRequest {
        TestRequest::new(self.address, method, path).key(&self.key)
    }

    pub fn get(&self, path: &str) -> TestRequest {
        self.call(Method::GET, path)
    }

    pub fn post(&self, path: &str, body: Value) -> TestRequest {
        self.call(Method::POST, path).json(body)
    }

    /// A call that costs money.
    pub async fn chat(&mut self) -> Option<u16> {
        let body =
            json!({"model": "gpt-4o", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]});
        self.proxied("openai", body).await
    }

    /// A streamed call with bodies of this size.
    pub async fn stream(&mut self, bytes: usize) -> Option<u16> {
        let body = json!({"model": "sandbox-small", "stream": true,
            "messages": [{"role": "user", "content": "good ".repeat(bytes / 5)}]});
        self.proxied("sandbox", body).await
    }

    /// A call that the provider fails.
    pub async fn failing_chat(&mut self) -> Option<u16> {
        self.peers.provider.push(Reply::json(400, r#"{"error":{"message":"no"}}"#));
        self.chat().await
    }

    async fn proxied(&mut self, provider: &str, body: Value) -> Option<u16> {
        let call = self.post("/v1/chat/completions", body).header("x-gateway-provider", provider);
        let answer = call.try_send().await?;
        if let Some(id) = answer.header("x-gateway-log-id") {
            let id = id.parse().unwrap();
            assert!(self.told.rows.insert(id), "the log id {id} was given twice");
        }
        Some(answer.status.as_u16())
    }

    pub async fn create_key(&mut self) -> Option<u16> {
        let body = json!({"name": self.told.name("k")});
        let answer = self.post("/api/v1/keys", body).try_send().await?;
        if answer.status == 201 {
            let made = answer.json();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let (id, raw) = (text(&made["key"]["id"]), text(&made["raw_key"]));
            self.told.keys.push(ToldKey { id, raw, state: KeyState::Valid });
        }
        Some(answer.status.as_u16())
    }

    /// Uses the key, so that the gateway has it in its cache.
    pub async fn use_key(&self, raw: &str) -> Option<u16> {
        let call = TestRequest::new(self.address, Method::GET, "/api/v1/auth/entitlements").key(raw);
        Some(call.try_send().await?.status.as_u16())
    }

    /// Revokes the oldest valid key, which was used before.
    pub async fn revoke_key(&mut self) -> Option<u16> {
        let Some(at) = self.told.keys.iter().position(|key| key.state == KeyState::Valid) else {
            return Some(0);
        };
        let raw = self.told.keys[at].raw.clone();
        self.use_key(&raw).await?;
        let path = format!("/api/v1/keys/{}", self.told.keys[at].id);
        self.told.keys[at].state = KeyState::Unknown;
        let answer = self.call(Method::DELETE, &path).try_send().await?;
        if answer.status == 200 {
            self.told.keys[at].state = KeyState::Revoked;
            assert_ne!(self.use_key(&raw).await?, 200, "a revoked key is valid in the next request");
        }
        Some(answer.status.as_u16())
    }

    pub async fn start_run(&mut self) -> Option<u16> {
        let path = format!("/api/v1/evals/{}/run", self.eval);
        let answer = self.post(&path, json!({"limit": 5})).try_send().await?;
        if answer.status == 202 {
            self.told.runs.insert(answer.json()["id"].as_i64().unwrap());
        }
        Some(answer.status.as_u16())
    }

    /// A skill, which is judged once by itself.
    pub async fn create_skill(&mut self) -> Option<u16> {
        let body = json!({"name": self.told.name("s"), "description": "Says hi to people who say hi.",
            "body": "Say hi."});
        let answer = self.post("/api/v1/skills", body).try_send().await?;
        if answer.status == 201 {
            self.told.skills.insert(answer.json()["id"].as_str().unwrap().to_owned());
        }
        Some(answer.status.as_u16())
    }

    /// A budget whose soft limit the next call reaches, which is announced once.
    pub async fn create_small_budget(&mut self) -> Option<u16> {
        let body = json!({"scope": "org", "period": "monthly", "soft_limit_usd": COST / 2.0,
            "hard_limit_usd": 1_000.0});
        let answer = self.post(&format!("/api/v1/orgs/{}/budgets", self.org), body).try_send().await?;
        if answer.status == 201 {
            self.told.small_budgets.insert(answer.json()["id"].as_str().unwrap().to_owned());
        }
        Some(answer.status.as_u16())
    }

    /// All items of a list, over its pages.
    pub async fn list(&self, path: &str, field: &str) -> Vec<Value> {
        let (mut items, mut cursor) = (Vec::new(), String::new());
        loop {
            let join = if path.contains('?') { '&' } else { '?' };
            let page = self.read(&format!("{path}{join}limit=200{cursor}")).await;
            items.extend(page[field].as_array().unwrap().iter().cloned());
            let Some(next) = page["next_cursor"].as_str() else { return items };
            cursor = format!("&cursor={next}");
        }
    }

    pub async fn read(&self, path: &str) -> Value {
        self.response(path).await.expect(200)
    }

    /// Repeats the request while the database has no free connection, as on a busy machine.
    pub async fn response(&self, path: &str) -> TestResponse {
        let began = Instant::now();
        loop {
            let answer = self.get(path).send().await;
            if answer.status != 503 || began.elapsed() > UNAVAILABLE_TIMEOUT {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Told {
    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }
}
