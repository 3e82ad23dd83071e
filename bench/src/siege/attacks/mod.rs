//! What a hostile organization can do with one key. Each attack is a loop with a bounded number of tasks; all of them run
//! at once until the time is over.

mod bodies;
mod computation;
mod connections;
mod objects;

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::victim::api_request;
use crate::cli::AttackOptions;
use crate::error::{BenchError, BenchResult};
use crate::exchange::{Client, Reply};

/// Limits per address must not be those of the other organization.
const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// After a refusal the attack goes on soon, as a client does that ignores `Retry-After`.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(50);
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(20);

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One way to attack, and in how many tasks.
struct Attack {
    name: &'static str,
    tasks: usize,
    run: fn(Arc<Attacker>, usize) -> Task,
}

macro_rules! attacks {
    ($($name:literal, $tasks:literal, $run:path;)*) => {
        &[$(Attack { name: $name, tasks: $tasks, run: |attacker, task| Box::pin($run(attacker, task)) },)*]
    };
}

const ATTACKS: &[Attack] = attacks! {
    "unknown-keys", 4, connections::unknown_keys;
    "passwords", 2, connections::passwords;
    "silent-connections", 1, connections::silent;
    "slow-heads", 1, connections::slow_heads;
    "stream-resets", 2, connections::stream_resets;
    "malformed-bodies", 2, bodies::malformed;
    "held-bodies", 40, bodies::held;
    "tiny-pieces", 4, bodies::tiny_pieces;
    "cached-bodies", 2, bodies::cached;
    "endless-answers", 4, bodies::endless_answers;
    "spans", 2, bodies::spans;
    "evals", 2, computation::evals;
    "eval-runs", 1, computation::eval_runs;
    "compare", 2, computation::compare;
    "skills", 2, computation::skills;
    "imports", 1, computation::imports;
    "reads", 12, objects::reads;
    "log-streams", 60, objects::log_streams;
    "events", 2, objects::events;
    "objects", 2, objects::objects;
};

/// The attacking organization.
struct Attacker {
    addr: SocketAddr,
    key: String,
    org: String,
    /// A server that accepts connections and never responds.
    silent_server: SocketAddr,
    /// A provider that sends without end.
    endless_server: SocketAddr,
    /// A request with a large body, which is made once.
    large_request: OnceLock<Vec<u8>>,
    /// Answers by attack and status.
    answers: Mutex<BTreeMap<(&'static str, String), u64>>,
}

/// Attacks until the time is over, then prints the answers of each attack.
pub(crate) fn run(options: &AttackOptions) -> BenchResult<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let result = runtime.block_on(async {
        let until = Instant::now() + Duration::from_secs(options.seconds);
        let attacker = Arc::new(Attacker {
            addr: options.addr,
            key: options.key.clone(),
            org: options.org.clone(),
            silent_server: serve(connections::never_answer).await?,
            endless_server: serve(bodies::answer_without_end).await?,
            large_request: OnceLock::new(),
            answers: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        let chosen =
            |attack: &&Attack| options.only.is_empty() || options.only.iter().any(|name| name == attack.name);
        for attack in ATTACKS.iter().filter(chosen) {
            for task in 0..attack.tasks {
                tasks.spawn((attack.run)(Arc::clone(&attacker), task));
            }
        }
        if tasks.is_empty() {
            return Err(BenchError::new("no attack has this name"));
        }
        tokio::time::sleep_until(until.into()).await;
        attacker.print();
        Ok(())
    });
    // Requests in flight end with the process.
    runtime.shutdown_background();
    result
}

/// Serves connections until the process ends.
async fn serve<F>(handle: fn(tokio::net::TcpStream) -> F) -> BenchResult<SocketAddr>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(handle(stream));
        }
    });
    Ok(addr)
}

impl Attacker {
    fn client(&self) -> Client {
        Client::from(self.addr, SOURCE)
    }

    /// Sends a request and counts the answer. Pauses after a refusal.
    async fn send(&self, name: &'static str, client: &mut Client, request: &[u8]) -> Option<Reply> {
        let result = tokio::time::timeout(EXCHANGE_TIMEOUT, client.send(request)).await;
        let (text, reply) = match result {
            Ok(Ok(reply)) => (reply.status.to_string(), Some(reply)),
            Ok(Err(_)) => ("closed".to_owned(), None),
            Err(_) => ("no answer".to_owned(), None),
        };
        self.count(name, text);
        if reply.as_ref().is_none_or(|reply| reply.status >= 400) {
            tokio::time::sleep(PAUSE_AFTER_REFUSAL).await;
        }
        reply
    }

    /// Calls the management API. Returns the body of a success.
    async fn api(
        &self,
        name: &'static str,
        client: &mut Client,
        call: (&str, &str),
        body: &Value,
    ) -> Option<Value> {
        let (method, path) = call;
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = self.send(name, client, &api_request(method, path, &self.key, &body)).await?;
        serde_json::from_slice(&reply.body).ok().filter(|_| reply.status < 300)
    }

    /// A proxied request with more headers, each with its line ending.
    fn proxied(&self, headers: &str, body: &[u8]) -> Vec<u8> {
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Gateway-Key: {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n{headers}\r\n",
            self.key,
            body.len()
        );
        [head.as_bytes(), body].concat()
    }

    fn count(&self, name: &'static str, answer: impl Into<String>) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        *answers.entry((name, answer.into())).or_default() += 1;
    }

    fn print(&self) {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        for attack in ATTACKS {
            let of_attack = answers.iter().filter(|((name, _), _)| *name == attack.name);
            let counts: Vec<String> =
                of_attack.map(|((_, answer), count)| format!("{answer}: {count}")).collect();
            if !counts.is_empty() {
                println!("{:<20} {}", attack.name, counts.join(", "));
            }
        }
    }
}
