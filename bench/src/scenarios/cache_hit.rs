//! Cost of a cache hit compared with a forwarded request, and cost of a fallback chain whose first target succeeds.

use super::{BLOCKS_NOTE, compared, in_blocks};
use crate::bench::{BLOCK_REQUESTS, Bench, Pair};
use crate::error::{BenchError, BenchResult};
use crate::http_client;
use crate::report::{Goal, Row, Section};
use crate::request::{self, SEQUENCE_MARK};
use crate::responses::ResponseScript;
use crate::stats::Spread;

const CACHE: &str = "X-Gateway-Cache: true\r\n";
const CHAIN: &str = "X-Gateway-Fallback: groq/llama-3.1-8b-instant, openai/gpt-4o\r\n";

pub(super) fn run(bench: &Bench) -> BenchResult<Section> {
    let base = format!("GATEWAY_PROVIDER_GROQ_BASE_URL=http://{}", bench.direct().addr);
    let pair = bench.start_alone(&[base])?;
    let forwarded = request::chat(2048, ResponseScript::default(), &pair.key);
    let requests = [
        forwarded.clone(),
        request::with_headers(&without_sequence_number(&forwarded), CACHE),
        request::with_headers(&forwarded, CHAIN),
    ];
    let [forwarded, hits, chained] = in_blocks(bench, &pair, requests.each_ref().map(Vec::as_slice))?;
    let made = (hits.len() as u64 * BLOCK_REQUESTS) as f64;
    let found = hits_counted(&pair)?;
    if found + 1.0 < made {
        return Err(BenchError::new(format!("only {found} of {made} requests were cache hits")));
    }
    let cpu = |blocks: &[f64]| Spread::with_confidence(blocks.iter().copied());
    let against = |blocks: &[f64]| compared(blocks, &forwarded, |run, plain| run / plain);
    let row = |name: &str, unit, spread| Row { gateway: spread, ..Row::of_gateway(name, unit, 0.0) };
    Ok(Section {
        id: "k",
        title: format!("cache hit: 2 KB prompt, 300 B answer, {} connections", bench.options.connections),
        rows: vec![
            row("CPU per forwarded request", "us", cpu(&forwarded)),
            row("CPU per cache hit", "us", cpu(&hits)),
            row("a hit against a forwarded request", "x", against(&hits)).goal(Goal::Below(0.5)),
            row("CPU per request with an unused chain", "us", cpu(&chained)),
            row("an unused chain against none", "x", against(&chained)).goal(Goal::Below(1.1)),
        ],
        notes: vec![BLOCKS_NOTE.to_owned()],
    })
}

/// Overwrites the marker of the sequence number, so that all requests are identical.
fn without_sequence_number(request: &[u8]) -> Vec<u8> {
    let mut request = request.to_vec();
    if let Some(at) = memchr::memmem::find(&request, SEQUENCE_MARK) {
        request.iter_mut().skip(at).take(SEQUENCE_MARK.len()).for_each(|byte| *byte = b'n');
    }
    request
}

fn hits_counted(pair: &Pair) -> BenchResult<f64> {
    let addr = pair.gateway.target().addr;
    let request = format!(
        "GET /api/v1/cache/stats HTTP/1.1\r\nHost: {addr}\r\nX-Gateway-Key: {}\r\nConnection: close\r\n\r\n",
        pair.key
    );
    let (status, body) = http_client::call(addr, &request)?;
    let stats: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
    let hits = stats.and_then(|stats| stats.get("hits")?.as_f64());
    hits.ok_or_else(|| BenchError::new(format!("GET /cache/stats returned {status}")))
}
