//! What a hostile organization can do with one key. Each attack is a loop with a bounded number of tasks; all of them run
//! at once until the time is over.

mod bodies;
mod clients;
mod computation;
mod connections;
mod installs;
mod mcp;
mod objects;
mod queries;

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
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
const PAUSE_AFTER_STREAM: Duration = Duration::from_millis(200);
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
    "config-imports", 1, computation::config_imports;
    "replays", 2, computation::replays;
    "alerts", 2, computation::alerts;
    "reads", 12, objects::reads;
    "log-streams", 60, objects::log_streams;
    "events", 2, objects::events;
    "objects", 2, objects::objects;
    "queries", 6, queries::queries;
    "files", 8, queries::files;
    "views", 1, queries::views;
    "mcp-huge", 2, mcp::huge_servers;
    "mcp-silent", 8, mcp::silent_servers;
    "mcp-followers", 40, mcp::followers;
    "install-trees", 1, installs::trees;
    "install-archives", 3, installs::archives;
    "install-git", 4, installs::git;
    "dialects", 4, clients::dialects;
    "sdk-paths", 2, clients::sdk_paths;
    "named-models", 2, clients::named_models;
};

/// The attacking organization.
struct Attacker {
    addr: SocketAddr,
    key: String,
    org: String,
    servers: Servers,
    /// A request with a large body, which is made once.
    large_request: OnceLock<Vec<u8>>,
    /// Answers by attack and status.
    answers: Mutex<BTreeMap<(&'static str, String), u64>>,
}

/// What the attacker's providers, receivers and MCP servers do.
struct Servers {
    /// Accepts connections and never responds.
    silent: SocketAddr,
    /// Sends without end.
    endless: SocketAddr,
    huge_mcp: SocketAddr,
}

/// The attacks that are chosen by their names, all of them without names.
fn chosen(only: &[String]) -> BenchResult<Vec<&'static Attack>> {
    if only.is_empty() {
        return Ok(ATTACKS.iter().collect());
    }
    let find = |name: &String| ATTACKS.iter().find(|attack| attack.name == name);
    let known = || ATTACKS.iter().map(|attack| attack.name).collect::<Vec<_>>().join(", ");
    only.iter()
        .map(|name| {
            find(name)
                .ok_or_else(|| BenchError::new(format!("no attack is named '{name}'; known: {}", known())))
        })
        .collect()
}

/// Checks the names before anything is started.
pub(super) fn check_names(only: &[String]) -> BenchResult<()> {
    chosen(only).map(|_| ())
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
            servers: Servers {
                silent: serve(connections::never_answer).await?,
                endless: serve(bodies::answer_without_end).await?,
                huge_mcp: serve(mcp::answer_with_much).await?,
            },
            large_request: OnceLock::new(),
            answers: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        for attack in chosen(&options.only)? {
            for task in 0..attack.tasks {
                tasks.spawn((attack.run)(Arc::clone(&attacker), task));
            }
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

    /// A message to an MCP server.
    fn mcp(&self, server: &str, message: &str) -> Vec<u8> {
        format!(
            "POST /mcp/{server} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Gateway-Key: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{message}",
            self.key,
            message.len()
        )
        .into_bytes()
    }

    /// Opens a stream again and again, and reads it to its end.
    async fn follow(&self, name: &'static str, request: &[u8]) {
        loop {
            if let Ok(mut stream) = self.client().connect().await
                && stream.write_all(request).await.is_ok()
            {
                let mut bytes = vec![0; 16 << 10];
                let read = stream.read(&mut bytes).await.unwrap_or(0);
                let status = crate::http::status(bytes.get(..read).unwrap_or_default());
                self.count(name, status.map_or("closed".to_owned(), |status| status.to_string()));
                if status == Some(200) {
                    while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
                }
            }
            tokio::time::sleep(PAUSE_AFTER_STREAM).await;
        }
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, ProcessRole};

    fn only(arguments: &[&str]) -> Vec<String> {
        let arguments = ["gateway-bench", "siege"].iter().chain(arguments);
        match Cli::try_parse_from(arguments).unwrap().part {
            Some(ProcessRole::Siege(options)) => options.only,
            _ => panic!("not the siege"),
        }
    }

    #[test]
    fn attacks_are_chosen_by_name() {
        let names =
            |only: &[String]| chosen(only).unwrap().iter().map(|attack| attack.name).collect::<Vec<_>>();
        assert_eq!(names(&only(&["--only", "queries,mcp-huge"])), ["queries", "mcp-huge"]);
        assert_eq!(names(&only(&[])).len(), ATTACKS.len());
        let unknown = chosen(&only(&["--only", "queries,query"])).err().unwrap().to_string();
        assert!(unknown.contains("'query'") && unknown.contains("install-git"), "{unknown}");
    }

    #[test]
    fn attacks_have_names_of_their_own_and_a_bounded_number_of_tasks() {
        let mut names: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ATTACKS.len());
        assert!(ATTACKS.iter().all(|attack| attack.tasks > 0));
        assert!(ATTACKS.iter().map(|attack| attack.tasks).sum::<usize>() < 500);
    }
}
