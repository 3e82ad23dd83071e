//! Three providers that each fail 30 % of the time, in one fallback chain with two retries each. Measures how many
//! requests succeed, and that no response mixes two providers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::chaos_provider::{self, ProviderStats};
use crate::error::BenchResult;
use crate::exchange::{Client, Reply};
use crate::report::{Goal, Row, Section};
use crate::request::{SEQUENCE_DIGITS, post, with_headers};
use crate::stats::Histogram;

const PROVIDERS: [&str; 3] = ["OPENAI", "GROQ", "DEEPSEEK"];
const DIRECTIVES: &str = "X-Gateway-Fallback: groq/model-1, deepseek/model-2\r\nX-Gateway-Retry: 2\r\n\
    X-Gateway-Timeout: 1000\r\n";
const CALLERS: u64 = 48;
/// Longer than a request with all of its attempts can take.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
const SHOWN: usize = 5;

pub(super) fn run(bench: &Bench) -> BenchResult<Section> {
    let time = Duration::from_secs(if bench.options.quick { 8 } else { 60 });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (addresses, done) = runtime.block_on(chaos_provider::start(PROVIDERS.len()))?;
    let settings = PROVIDERS.iter().zip(addresses);
    let settings = settings.map(|(name, addr)| format!("GATEWAY_PROVIDER_{name}_BASE_URL=http://{addr}"));
    let pair = bench.start_alone(&settings.collect::<Vec<_>>())?;
    let seen = Arc::new(Mutex::new(CallCounts::default()));
    let until = Instant::now() + time;
    let addr = pair.gateway.target().addr;
    runtime.block_on(async {
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            callers.spawn(call_until(until, addr, pair.key.clone(), caller, Arc::clone(&seen)));
        }
        loop {
            match tokio::time::timeout(Duration::from_millis(200), callers.join_next()).await {
                Ok(None) => return BenchResult::Ok(()),
                Ok(Some(_)) | Err(_) => bench.stop.check()?,
            }
        }
    })?;
    drop(runtime);
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(section(time, &seen, &done))
}

fn section(time: Duration, seen: &CallCounts, done: &ProviderStats) -> Section {
    let percent = |part: u64, of: u64| part as f64 * 100.0 / of.max(1) as f64;
    let bad = seen.refused + seen.cut + seen.mixed;
    let ms = |quantile| seen.latency.quantile(quantile) / 1e6;
    let rows = vec![
        Row::of_gateway("callers without a good answer", "%", percent(bad, seen.calls))
            .goal(Goal::Below(0.1)),
        Row::of_gateway("answers of more than one target", "", seen.mixed as f64).goal(Goal::Below(0.5)),
        Row::of_gateway("errors", "", seen.refused as f64),
        Row::of_gateway("answers that broke off", "", seen.cut as f64),
        Row::of_gateway("calls, plain", "", (seen.calls - seen.streams) as f64),
        Row::of_gateway("calls, streams", "", seen.streams as f64),
        Row::of_gateway("provider's answers that failed", "%", percent(done.failed(), done.answers())),
        Row::of_gateway("attempts per call", "", done.answers() as f64 / seen.calls.max(1) as f64),
        Row::of_gateway("p50", "ms", ms(0.5)),
        Row::of_gateway("p99", "ms", ms(0.99)),
    ];
    Section {
        id: "j",
        title: format!(
            "chaos: {} s, 30 % of the answers of three providers fail, chain of three, 2 retries, {CALLERS} callers",
            time.as_secs()
        ),
        rows,
        notes: seen.examples.clone(),
    }
}

#[derive(Default)]
struct CallCounts {
    calls: u64,
    streams: u64,
    /// An error response.
    refused: u64,
    /// An incomplete response.
    cut: u64,
    /// A complete response that is not one provider's response to this request.
    mixed: u64,
    latency: Histogram,
    examples: Vec<String>,
}

enum CallOutcome {
    Good,
    Refused(String),
    Cut(String),
    Mixed(String),
}

impl CallCounts {
    fn add(&mut self, streams: bool, took: Duration, answer: CallOutcome) {
        self.calls += 1;
        self.streams += u64::from(streams);
        self.latency.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        let (count, why) = match answer {
            CallOutcome::Good => return,
            CallOutcome::Refused(why) => (&mut self.refused, why),
            CallOutcome::Cut(why) => (&mut self.cut, why),
            CallOutcome::Mixed(why) => (&mut self.mixed, why),
        };
        *count += 1;
        if self.examples.len() < SHOWN {
            self.examples.push(why);
        }
    }
}

/// Sends requests in sequence; every second client requests streams.
async fn call_until(
    until: Instant,
    addr: SocketAddr,
    key: String,
    caller: u64,
    seen: Arc<Mutex<CallCounts>>,
) {
    let streams = caller % 2 == 1;
    let mut client = Client::new(addr);
    let mut number = caller;
    while Instant::now() < until {
        let begun = Instant::now();
        let calling = call(&mut client, &key, number, streams);
        let answer = match tokio::time::timeout(WAIT_TIMEOUT, calling).await {
            Ok(answer) => answer,
            Err(_) => CallOutcome::Cut(format!("no end within {} s", WAIT_TIMEOUT.as_secs())),
        };
        if !matches!(answer, CallOutcome::Good) {
            client = Client::new(addr);
        }
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.add(streams, begun.elapsed(), answer);
        number += CALLERS;
    }
}

async fn call(client: &mut Client, key: &str, number: u64, streams: bool) -> CallOutcome {
    let Reply { status, body, .. } = match client.send(&request(key, number, streams)).await {
        Ok(reply) => reply,
        Err(failure) => return CallOutcome::Cut(failure.to_string()),
    };
    let text = || String::from_utf8_lossy(body.get(..body.len().min(300)).unwrap_or_default()).into_owned();
    if status != 200 {
        return CallOutcome::Refused(format!("{status} {}", text()));
    }
    match chaos_provider::check(&body, number, streams) {
        Ok(_) => CallOutcome::Good,
        // The gateway reports that a stream broke off: neither a success nor a mixed response.
        Err(_) if memchr::memmem::find(&body, b"\"error\"").is_some() => {
            let end = String::from_utf8_lossy(body.get(body.len().saturating_sub(300)..).unwrap_or_default());
            CallOutcome::Cut(format!("an error in a stream: {end}"))
        }
        Err(why) => CallOutcome::Mixed(format!("{why}: {}", text())),
    }
}

fn request(key: &str, number: u64, streams: bool) -> Vec<u8> {
    let stream = if streams { ",\"stream\":true" } else { "" };
    let body = format!(
        "{{\"model\":\"model-0\",\"messages\":[{{\"role\":\"user\",\"content\":\
         \"request-number-{number:0SEQUENCE_DIGITS$}\"}}]{stream}}}"
    );
    with_headers(post("/v1/chat/completions", key, &body).as_bytes(), DIRECTIVES)
}
