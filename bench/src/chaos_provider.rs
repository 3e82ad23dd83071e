//! Providers that fail at random, for the chaos scenario. Every part of a response names the provider, the response
//! and the request, so that the client can verify that it received one complete response to its own request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::error::{BenchError, BenchResult};
use crate::http::parse_head;
use crate::request::{SEQUENCE_DIGITS, SEQUENCE_MARK};
use crate::responses::DONE;
use crate::upstream::{push_chunk, read_more};

/// Percentage of responses that fail.
const FAILURE_PERCENT: u64 = 30;
const WORDS: u64 = 40;
/// Longer than the timeout of an attempt.
const STALL: Duration = Duration::from_secs(30);

/// Kinds of injected failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    ServerError,
    Limited,
    ResetBeforeHead,
    ResetInBody,
    ErrorInStream,
    Stall,
    StallInBody,
}

const PLAIN_FAULTS: [Fault; 6] = [
    Fault::ServerError,
    Fault::Limited,
    Fault::ResetBeforeHead,
    Fault::ResetInBody,
    Fault::Stall,
    Fault::StallInBody,
];
const STREAM_FAULTS: [Fault; 5] =
    [Fault::ServerError, Fault::Limited, Fault::ResetBeforeHead, Fault::ErrorInStream, Fault::Stall];

/// Identifies a response: provider, response number and request number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseTag {
    pub(crate) provider: usize,
    /// Sequence number over all providers.
    pub(crate) answer: u64,
    /// Sequence number of the request.
    pub(crate) request: u64,
}

/// Counters of all providers.
#[derive(Default)]
pub(crate) struct ProviderStats {
    answers: AtomicU64,
    failed: AtomicU64,
}

impl ProviderStats {
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

/// Starts the providers. They stop with the runtime.
pub(crate) async fn start(providers: usize) -> BenchResult<(Vec<SocketAddr>, Arc<ProviderStats>)> {
    let done = Arc::new(ProviderStats::default());
    let mut addresses = Vec::new();
    for provider in 0..providers {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        addresses.push(listener.local_addr()?);
        tokio::spawn(accept(listener, provider, Arc::clone(&done)));
    }
    Ok((addresses, done))
}

async fn accept(listener: TcpListener, provider: usize, done: Arc<ProviderStats>) -> BenchResult<()> {
    // Dropping the set closes the connections.
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let done = Arc::clone(&done);
        connections.spawn(async move { serve(stream, provider, &done).await.ok() });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(mut stream: TcpStream, provider: usize, done: &ProviderStats) -> BenchResult<()> {
    let mut input = bytes::BytesMut::with_capacity(16 * 1024);
    loop {
        let body = read_body(&mut stream, &mut input).await?;
        let answer = done.answers.fetch_add(1, Ordering::Relaxed);
        let tag = ResponseTag { provider, answer, request: number_in(&body) };
        let has = |needle: &[u8]| memchr::memmem::find(&body, needle).is_some();
        let (streams, usage) = (has(b"\"stream\":true"), has(b"\"include_usage\":true"));
        let Some(fault) = fault_for(answer, streams) else {
            send_response(&mut stream, tag, streams, usage).await?;
            continue;
        };
        done.failed.fetch_add(1, Ordering::Relaxed);
        if !fail(&mut stream, fault, tag).await? {
            return Ok(());
        }
    }
}

async fn read_body(stream: &mut TcpStream, input: &mut bytes::BytesMut) -> BenchResult<Vec<u8>> {
    use bytes::Buf as _;
    let mut head = loop {
        if let Some(head) = parse_head(input) {
            break head;
        }
        read_more(stream, input).await?;
    };
    input.advance(head.length);
    let mut body = Vec::new();
    loop {
        let taken = head.body.feed(input, &mut |bytes| body.extend_from_slice(bytes))?;
        input.advance(taken);
        if head.body.is_done() {
            return Ok(body);
        }
        read_more(stream, input).await?;
    }
}

fn number_in(body: &[u8]) -> u64 {
    let at = memchr::memmem::find(body, SEQUENCE_MARK).map(|at| at + SEQUENCE_MARK.len());
    let digits = at.and_then(|at| body.get(at..at + SEQUENCE_DIGITS));
    digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()).unwrap_or_default()
}

/// Selects the fault of a response; `None` for success.
fn fault_for(answer: u64, streams: bool) -> Option<Fault> {
    let chance = splitmix64(answer);
    let faults: &[Fault] = if streams { &STREAM_FAULTS } else { &PLAIN_FAULTS };
    let which = usize::try_from(splitmix64(chance) % faults.len() as u64).unwrap_or_default();
    faults.get(which).copied().filter(|_| chance % 100 < FAILURE_PERCENT)
}

/// Pseudo-random numbers that are the same in every run (splitmix64).
fn splitmix64(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

async fn send_response(
    stream: &mut TcpStream,
    tag: ResponseTag,
    streams: bool,
    usage: bool,
) -> BenchResult<()> {
    if !streams {
        let body = plain(tag);
        stream.write_all(plain_head(&body).as_bytes()).await?;
        let (first, rest) = body.split_at(body.len() / 2);
        stream.write_all(first.as_bytes()).await?;
        tokio::task::yield_now().await;
        stream.write_all(rest.as_bytes()).await?;
        return Ok(());
    }
    let mut out = String::from(STREAM_HEAD);
    let events = events(tag);
    for (at, event) in events.iter().enumerate() {
        if at + 1 == events.len() && usage {
            push_chunk(&mut out, &usage_event(tag));
        }
        push_chunk(&mut out, event);
        if at % 4 == 0 {
            stream.write_all(out.as_bytes()).await?;
            out.clear();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    out.push_str("0\r\n\r\n");
    Ok(stream.write_all(out.as_bytes()).await?)
}

/// Returns false when the connection cannot be reused.
async fn fail(stream: &mut TcpStream, fault: Fault, tag: ResponseTag) -> BenchResult<bool> {
    let refusal = |status: &str, more: &str| {
        let body =
            format!("{{\"error\":{{\"message\":\"answer {} fails\",\"type\":\"chaos\"}}}}", tag.answer);
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    match fault {
        Fault::ServerError => {
            let status = ["500 Oops", "502 Bad Gateway", "503 Unavailable", "529 Overloaded"];
            let which = usize::try_from(tag.answer % 4).unwrap_or_default();
            stream.write_all(refusal(status.get(which).unwrap_or(&"500 Oops"), "").as_bytes()).await?;
            return Ok(true);
        }
        Fault::Limited => {
            let said = refusal("429 Too Many Requests", "retry-after-ms: 20\r\n");
            stream.write_all(said.as_bytes()).await?;
            return Ok(true);
        }
        Fault::ErrorInStream => {
            let mut out = String::from(STREAM_HEAD);
            let event = "data: {\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\"}}\n\n";
            push_chunk(&mut out, event);
            out.push_str("0\r\n\r\n");
            stream.write_all(out.as_bytes()).await?;
            return Ok(true);
        }
        Fault::ResetInBody | Fault::StallInBody => {
            let body = plain(tag);
            let half = body.get(..body.len() / 2).unwrap_or_default();
            stream.write_all(plain_head(&body).as_bytes()).await?;
            stream.write_all(half.as_bytes()).await?;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Fault::ResetBeforeHead | Fault::Stall => {}
    }
    if matches!(fault, Fault::Stall | Fault::StallInBody) {
        let mut rest = bytes::BytesMut::new();
        // The client times out and disconnects.
        let _ = tokio::time::timeout(STALL, read_more(stream, &mut rest)).await;
        return Ok(false);
    }
    stream.set_zero_linger()?;
    Ok(false)
}

const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

fn plain_head(body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n")
}

impl ResponseTag {
    fn name(self) -> String {
        format!("chaos-{}-{}-{}", self.provider, self.answer, self.request)
    }

    fn find(body: &[u8]) -> Option<Self> {
        const MARK: &[u8] = b"\"id\":\"chaos-";
        let at = memchr::memmem::find(body, MARK)? + MARK.len();
        let name = body.get(at..)?.split(|byte| *byte == b'"').next()?;
        let mut parts = std::str::from_utf8(name).ok()?.split('-');
        let provider = parts.next()?.parse().ok()?;
        Some(Self { provider, answer: parts.next()?.parse().ok()?, request: parts.next()?.parse().ok()? })
    }
}

fn plain(tag: ResponseTag) -> String {
    let text: String = (0..WORDS).map(|at| word(tag, at)).collect();
    format!(
        "{{\"id\":\"{}\",\"object\":\"chat.completion\",\"created\":1760000000,\"model\":\"model-{}\",\"choices\":\
         [{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\"}},\"finish_reason\":\"stop\"}}],\
         \"usage\":{{\"prompt_tokens\":100,\"completion_tokens\":{WORDS},\"total_tokens\":140}}}}",
        tag.name(),
        tag.provider
    )
}

/// The events of a stream including the final one, without the usage event.
fn events(tag: ResponseTag) -> Vec<String> {
    let event = |delta: &str, finish: &str| {
        format!(
            "data: {{\"id\":\"{}\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\"model\":\"model-{}\",\
             \"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n",
            tag.name(),
            tag.provider
        )
    };
    let words = (0..WORDS).map(|at| event(&format!("{{\"content\":\"{}\"}}", word(tag, at)), "null"));
    [event("{\"role\":\"assistant\",\"content\":\"\"}", "null")]
        .into_iter()
        .chain(words)
        .chain([event("{}", "\"stop\""), DONE.to_owned()])
        .collect()
}

fn usage_event(tag: ResponseTag) -> String {
    format!(
        "data: {{\"id\":\"{}\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\"model\":\"model-{}\",\
         \"choices\":[],\"usage\":{{\"prompt_tokens\":100,\"completion_tokens\":{WORDS},\"total_tokens\":140}}}}\n\n",
        tag.name(),
        tag.provider
    )
}

fn word(tag: ResponseTag, at: u64) -> String {
    format!("{}.{}.{at} ", tag.provider, tag.answer)
}

/// Verifies that the body is one complete response of one provider to this request. The error describes the mismatch.
pub(crate) fn check(body: &[u8], request: u64, streams: bool) -> BenchResult<ResponseTag> {
    let tag = ResponseTag::find(body).ok_or_else(|| BenchError::new("it names no provider"))?;
    if tag.request != request {
        return Err(BenchError::new(format!("it is the answer to request {}", tag.request)));
    }
    let sent = if streams { events(tag).concat() } else { plain(tag) };
    if body == sent.as_bytes() {
        Ok(tag)
    } else {
        Err(BenchError::new(format!("it is not what provider {} sent", tag.provider)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: ResponseTag = ResponseTag { provider: 1, answer: 7, request: 42 };

    #[test]
    fn about_thirty_of_a_hundred_answers_fail_in_every_way() {
        for streams in [false, true] {
            let fates: Vec<Fault> = (0..10_000).filter_map(|answer| fault_for(answer, streams)).collect();
            assert!((2_850..3_150).contains(&fates.len()), "{}", fates.len());
            let faults: &[Fault] = if streams { &STREAM_FAULTS } else { &PLAIN_FAULTS };
            assert!(
                faults.iter().all(|fault| fates.iter().filter(|fault_for| *fault_for == fault).count() > 400)
            );
        }
    }

    #[test]
    fn a_whole_answer_passes_and_a_part_or_a_mixture_does_not() {
        assert_eq!(check(plain(TAG).as_bytes(), 42, false).ok(), Some(TAG));
        let stream = events(TAG);
        assert_eq!(check(stream.concat().as_bytes(), 42, true).ok(), Some(TAG));
        assert!(check(stream.concat().as_bytes(), 43, true).is_err());
        assert!(check(stream[..stream.len() - 1].concat().as_bytes(), 42, true).is_err());
        let other = events(ResponseTag { answer: 8, ..TAG });
        let mixed = [&stream[..5], &other[5..]].concat().concat();
        assert!(check(mixed.as_bytes(), 42, true).is_err());
        assert!(check(b"{\"error\":{}}", 42, false).is_err());
    }
}
