//! The organization that must not notice the attack: proxied calls, management calls and reads of its log rows, at fixed
//! times. Latencies count from the time at which a call was due, so a delayed start counts as well.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::error::{BenchError, BenchResult, StopFlag};
use crate::exchange::{Client, Reply};
use crate::request;
use crate::responses::ResponseScript;
use crate::stats::Histogram;

const PROXIED_INTERVAL: Duration = Duration::from_millis(10);
/// One management call for so many proxied calls.
const MANAGEMENT_EVERY: u64 = 5;
/// One look at a log row for so many proxied calls.
const LOG_READ_EVERY: u64 = 20;
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const BODY_BYTES: usize = 2_048;
const SHOWN: usize = 5;

pub(super) struct Victim {
    addr: SocketAddr,
    key: String,
    chat: Vec<u8>,
}

#[derive(Default)]
pub(super) struct Series {
    latency: Histogram,
    pub(super) calls: u64,
    pub(super) errors: u64,
    examples: Vec<String>,
}

#[derive(Default)]
pub(super) struct Figures {
    pub(super) proxied: Series,
    pub(super) management: Series,
    /// The longest time from the end of a response until its row was readable.
    pub(super) log_delay_ms: f64,
}

/// What a call of the traffic does.
#[derive(Clone, Copy)]
enum Call {
    Proxied { reads_log: bool },
    Management(u64),
}

/// Connections that no call uses, and the figures.
#[derive(Default)]
struct Shared {
    idle: Vec<Client>,
    figures: Figures,
}

impl Victim {
    pub(super) fn new(addr: SocketAddr, key: String) -> Self {
        let chat = request::chat(BODY_BYTES, ResponseScript::default(), &key);
        Self { addr, key, chat }
    }

    /// Sends ordinary traffic for this time.
    pub(super) async fn send(&self, time: Duration, stop: &StopFlag) -> BenchResult<Figures> {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let mut calls = JoinSet::new();
        let mut ticks = tokio::time::interval(PROXIED_INTERVAL);
        let began = Instant::now();
        let mut number = 0;
        while began.elapsed() < time {
            // The time at which the call was due, also if this task was late.
            let due = ticks.tick().await.into_std();
            stop.check()?;
            number += 1;
            self.start(&mut calls, &shared, due, Call::Proxied { reads_log: number % LOG_READ_EVERY == 0 });
            if number % MANAGEMENT_EVERY == 0 {
                self.start(&mut calls, &shared, due, Call::Management(number / MANAGEMENT_EVERY));
            }
            while calls.try_join_next().is_some() {}
        }
        while calls.join_next().await.is_some() {}
        let mut shared = lock(&shared);
        Ok(std::mem::take(&mut shared.figures))
    }

    fn start(&self, calls: &mut JoinSet<()>, shared: &Arc<Mutex<Shared>>, due: Instant, call: Call) {
        let (shared, addr, key) = (Arc::clone(shared), self.addr, self.key.clone());
        let request = match call {
            Call::Proxied { .. } => self.chat.clone(),
            Call::Management(number) => management_request(&key, number),
        };
        calls.spawn(async move {
            let kept = lock(&shared).idle.pop();
            let mut client = kept.unwrap_or_else(|| Client::new(addr));
            let result = exchange(&mut client, &request).await;
            let took = due.elapsed();
            let log_id = result.as_ref().ok().and_then(|reply| reply.header("x-gateway-log-id"));
            let log_id = log_id.map(str::to_owned);
            let mut delay = None;
            if let (Call::Proxied { reads_log: true }, Some(id)) = (call, log_id) {
                delay = Some(log_delay(&mut client, &key, &id).await);
            }
            let mut shared = lock(&shared);
            if result.is_ok() {
                shared.idle.push(client);
            }
            let series = match call {
                Call::Proxied { .. } => &mut shared.figures.proxied,
                Call::Management(_) => &mut shared.figures.management,
            };
            series.add(took, result.err());
            if let Some(delay) = delay {
                let longest = &mut shared.figures.log_delay_ms;
                *longest = longest.max(delay.as_secs_f64() * 1e3);
            }
        });
    }
}

/// Succeeds with a response below 400 within the timeout.
async fn exchange(client: &mut Client, request: &[u8]) -> BenchResult<Reply> {
    let reply = tokio::time::timeout(CALL_TIMEOUT, client.send(request));
    let reply = reply.await.map_err(|_| BenchError::new("no response within 10 s"))??;
    if reply.status < 400 {
        return Ok(reply);
    }
    let text = String::from_utf8_lossy(reply.body.get(..reply.body.len().min(300)).unwrap_or_default());
    Err(BenchError::new(format!("{} {text}", reply.status)))
}

/// The time until the row of a response is readable.
async fn log_delay(client: &mut Client, key: &str, id: &str) -> Duration {
    let began = Instant::now();
    let request = api_request("GET", &format!("/logs/{id}"), key, "");
    while began.elapsed() < CALL_TIMEOUT {
        if exchange(client, &request).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    began.elapsed()
}

fn management_request(key: &str, number: u64) -> Vec<u8> {
    let (method, path, body) = match number % 6 {
        0 => ("GET", "/keys", String::new()),
        1 => ("GET", "/logs?limit=20", String::new()),
        2 => ("GET", "/usage/summary", String::new()),
        3 => ("POST", "/prompts/main/greeting/render", r#"{"variables":{"name":"Ada"}}"#.to_owned()),
        4 => ("GET", "/auth/entitlements", String::new()),
        _ => ("PUT", "/prompts/main/greeting", format!(r#"{{"content":"Hello {{{{name}}}} {number}"}}"#)),
    };
    api_request(method, path, key, &body)
}

pub(super) fn api_request(method: &str, path: &str, key: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} /api/v1{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Gateway-Key: {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Series {
    fn add(&mut self, took: Duration, error: Option<BenchError>) {
        self.calls += 1;
        self.latency.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        if let Some(error) = error {
            self.errors += 1;
            if self.examples.len() < SHOWN {
                self.examples.push(error.to_string());
            }
        }
    }

    /// Milliseconds.
    pub(super) fn p50(&self) -> f64 {
        self.latency.quantile(0.5) / 1e6
    }

    pub(super) fn p99(&self) -> f64 {
        self.latency.quantile(0.99) / 1e6
    }
}

impl Figures {
    pub(super) fn errors(&self) -> u64 {
        self.proxied.errors + self.management.errors
    }

    pub(super) fn examples(&self) -> impl Iterator<Item = &str> {
        self.proxied.examples.iter().chain(&self.management.examples).map(String::as_str)
    }
}
