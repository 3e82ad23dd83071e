//! TLS to the upstream, as with every real provider: saturation and streams beside nginx, and a host that speaks only
//! HTTP/2, which nginx cannot call.

use super::{saturation, streams, without_direct};
use crate::bench::{Bench, Measured, Wire};
use crate::error::BenchResult;
use crate::report::{Goal, Row, Section};
use crate::stats::Spread;

pub(super) fn run(bench: &Bench) -> BenchResult<Section> {
    let title = format!(
        "TLS to the upstream: 2 KB prompt, 300 B answer, {} connections; {}",
        bench.options.connections,
        streams::title(bench)
    );
    if !bench.has_tls() {
        let notes = vec!["left out: openssl, which makes the certificate, is not installed".to_owned()];
        return Ok(Section { id: "r", title, rows: Vec::new(), notes });
    }
    let pair = bench.start_pair_over(Wire::Tls)?;
    let plain = saturation::saturate(bench, &pair, 2048)?;
    let streamed = streams::stream(bench, &pair.targets(), &pair.key)?;
    drop(pair);
    let http2 = saturation::saturate(bench, &bench.start_pair_over(Wire::Http2)?, 2048)?;
    let of_http2 = Spread::of(http2.gateway.iter().map(Measured::cpu_per_answer));
    let rows = vec![
        plain.ratio_row("CPU per request", "us", Measured::cpu_per_answer).goal(Goal::Ratio(1.5)),
        plain.ratio_row("CPU per request, work put off included", "us", |run| run.cpu_with_deferred),
        plain.ratio_row("requests per second", "1/s", Measured::rate),
        without_direct(streamed.ratio_row("CPU per stream", "us", Measured::cpu_per_answer))
            .goal(Goal::Ratio(1.1)),
        streamed.difference_row("first chunk, p50", "us", |run| run.load.first.p50),
        Row { gateway: of_http2, ..Row::of_gateway("CPU per request by HTTP/2", "us", 0.0) },
    ];
    let notes = plain.saturation_notes(bench.options.workers).into_iter();
    let notes = notes.chain(streamed.rate_notes(bench.options.stream_rate)).collect();
    Ok(Section { id: "r", title, rows, notes })
}
