//! Three providers of which each fails three times in ten, a chain over them, two retries each: how many callers get a
//! good answer, and whether any gets one that is made of two.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::failure::{Failure, Outcome};
use crate::http::{parse_head, status};
use crate::report::{Goal, Row, Section};
use crate::request::{SEQUENCE_DIGITS, directing, post};
use crate::stats::Histogram;
use crate::unsteady::{self, Done};

const PROVIDERS: [&str; 3] = ["OPENAI", "GROQ", "DEEPSEEK"];
const DIRECTIVES: &str = "X-Gateway-Fallback: groq/model-1, deepseek/model-2\r\nX-Gateway-Retry: 2\r\n\
    X-Gateway-Timeout: 1000\r\n";
const CALLERS: u64 = 48;
/// More than a call with all of its attempts can take.
const PATIENCE: Duration = Duration::from_secs(30);
const SHOWN: usize = 5;

pub(super) fn run(bench: &Bench) -> Outcome<Section> {
    let time = Duration::from_secs(if bench.options.quick { 8 } else { 60 });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (addresses, done) = runtime.block_on(unsteady::start(PROVIDERS.len()))?;
    let settings = PROVIDERS.iter().zip(addresses);
    let settings = settings.map(|(name, addr)| format!("GATEWAY_PROVIDER_{name}_BASE_URL=http://{addr}"));
    let pair = bench.start_alone(&settings.collect::<Vec<_>>())?;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let until = Instant::now() + time;
    let addr = pair.gateway.target().addr;
    runtime.block_on(async {
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            callers.spawn(call_until(until, addr, pair.key.clone(), caller, Arc::clone(&seen)));
        }
        loop {
            match tokio::time::timeout(Duration::from_millis(200), callers.join_next()).await {
                Ok(None) => return Outcome::Ok(()),
                Ok(Some(_)) | Err(_) => bench.stop.check()?,
            }
        }
    })?;
    drop(runtime);
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(section(time, &seen, &done))
}

fn section(time: Duration, seen: &Seen, done: &Done) -> Section {
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
struct Seen {
    calls: u64,
    streams: u64,
    /// Answered with an error.
    refused: u64,
    /// Begun, but not whole.
    cut: u64,
    /// Whole, but not one target's answer to this request.
    mixed: u64,
    latency: Histogram,
    examples: Vec<String>,
}

enum Answer {
    Good,
    Refused(String),
    Cut(String),
    Mixed(String),
}

impl Seen {
    fn add(&mut self, streams: bool, took: Duration, answer: Answer) {
        self.calls += 1;
        self.streams += u64::from(streams);
        self.latency.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        let (count, why) = match answer {
            Answer::Good => return,
            Answer::Refused(why) => (&mut self.refused, why),
            Answer::Cut(why) => (&mut self.cut, why),
            Answer::Mixed(why) => (&mut self.mixed, why),
        };
        *count += 1;
        if self.examples.len() < SHOWN {
            self.examples.push(why);
        }
    }
}

/// One call after the other; every second caller wants streams.
async fn call_until(until: Instant, addr: SocketAddr, key: String, caller: u64, seen: Arc<Mutex<Seen>>) {
    let streams = caller % 2 == 1;
    let mut stream = None;
    let mut number = caller;
    while Instant::now() < until {
        let begun = Instant::now();
        let calling = call(&mut stream, addr, &key, number, streams);
        let answer = match tokio::time::timeout(PATIENCE, calling).await {
            Ok(answer) => answer,
            Err(_) => Answer::Cut(format!("no end within {} s", PATIENCE.as_secs())),
        };
        if !matches!(answer, Answer::Good) {
            stream = None;
        }
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.add(streams, begun.elapsed(), answer);
        number += CALLERS;
    }
}

async fn call(
    kept: &mut Option<TcpStream>,
    addr: SocketAddr,
    key: &str,
    number: u64,
    streams: bool,
) -> Answer {
    let (status, body) = match exchange(kept, addr, &request(key, number, streams)).await {
        Ok(answer) => answer,
        Err(failure) => return Answer::Cut(failure.to_string()),
    };
    let text = || String::from_utf8_lossy(body.get(..body.len().min(300)).unwrap_or_default()).into_owned();
    if status != 200 {
        return Answer::Refused(format!("{status} {}", text()));
    }
    match unsteady::check(&body, number, streams) {
        Ok(_) => Answer::Good,
        // The gateway says itself that a stream broke off: that is no answer, but no mixture either.
        Err(_) if memchr::memmem::find(&body, b"\"error\"").is_some() => {
            let end = String::from_utf8_lossy(body.get(body.len().saturating_sub(300)..).unwrap_or_default());
            Answer::Cut(format!("an error in a stream: {end}"))
        }
        Err(why) => Answer::Mixed(format!("{why}: {}", text())),
    }
}

fn request(key: &str, number: u64, streams: bool) -> Vec<u8> {
    let stream = if streams { ",\"stream\":true" } else { "" };
    let body = format!(
        "{{\"model\":\"model-0\",\"messages\":[{{\"role\":\"user\",\"content\":\
         \"request-number-{number:0SEQUENCE_DIGITS$}\"}}]{stream}}}"
    );
    directing(post("/v1/chat/completions", key, &body).as_bytes(), DIRECTIVES)
}

async fn exchange(kept: &mut Option<TcpStream>, addr: SocketAddr, request: &[u8]) -> Outcome<(u16, Vec<u8>)> {
    let stream = match kept {
        Some(stream) => stream,
        None => kept.insert(TcpStream::connect(addr).await?),
    };
    stream.set_nodelay(true)?;
    stream.write_all(request).await?;
    let mut input = Vec::new();
    let mut head = loop {
        if let Some(head) = parse_head(&input) {
            break head;
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Err(Failure::new("the connection was closed before an answer came"));
        }
    };
    let code = status(&input).ok_or_else(|| Failure::new("the answer has no status"))?;
    let mut rest = input.split_off(head.length);
    let mut body = Vec::new();
    loop {
        let taken = head.body.feed(&rest, &mut |bytes| body.extend_from_slice(bytes))?;
        rest.drain(..taken);
        if head.body.is_done() {
            break;
        }
        if stream.read_buf(&mut rest).await? == 0 {
            return Err(Failure::new("the connection was closed in the middle of an answer"));
        }
    }
    if head.close {
        *kept = None;
    }
    Ok((code, body))
}
