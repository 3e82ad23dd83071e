//! Compressed responses of the management API.

use std::io::Read as _;

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::on_both;
use crate::support::TestResponse;
use crate::support::log_rows::{chat, row, with};

fn decoded(answer: &TestResponse) -> Value {
    let mut text = Vec::new();
    match answer.header("content-encoding") {
        Some("gzip") => drop(GzDecoder::new(&answer.body[..]).read_to_end(&mut text).unwrap()),
        Some("br") => brotli::BrotliDecompress(&mut &answer.body[..], &mut text).unwrap(),
        other => panic!("unexpected content encoding {other:?}"),
    }
    serde_json::from_slice(&text).unwrap()
}

on_both!(json_of_more_than_a_kibibyte_is_compressed_for_callers_that_accept_it, |app| async move {
    let ada = app.signup("acme").await;
    let prices = || app.get("/api/v1/usage/prices?provider=anthropic").bearer(&ada.token);
    let plain = prices().send().await;
    let expected = plain.expect(200);
    assert_eq!(plain.header("content-encoding"), None);
    assert_eq!(plain.header("vary"), Some("accept-encoding"));
    assert!(plain.body.len() > 1024, "{}", plain.body.len());
    for (accepted, encoding) in
        [("gzip", "gzip"), ("br", "br"), ("gzip, deflate, br, zstd", "br"), ("br;q=0.1, gzip;q=0.9", "gzip")]
    {
        let answer = prices().header("accept-encoding", accepted).send().await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-encoding"), Some(encoding), "{accepted}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("vary"), Some("accept-encoding"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("content-length"), Some(answer.body.len().to_string().as_str()));
        assert!(answer.body.len() * 3 < plain.body.len(), "{} of {}", answer.body.len(), plain.body.len());
        assert_eq!(decoded(&answer), expected, "{accepted}");
    }
    for accepted in ["identity", "zstd", "gzip;q=0, br;q=0", ""] {
        let answer = prices().header("accept-encoding", accepted).send().await;
        assert_eq!(answer.header("content-encoding"), None, "{accepted}");
        assert_eq!(answer.expect(200), expected);
    }
});

on_both!(small_answers_errors_and_event_streams_are_not_compressed, |app| async move {
    let ada = app.signup("acme").await;
    for path in
        ["/api/v1/auth/orgs", "/api/v1/logs", "/healthz", "/api/v1/logs/nonsense", "/api/v1/logs/stream"]
    {
        let answer = app.get(path).bearer(&ada.token).header("accept-encoding", "gzip, br").send().await;
        assert_eq!(answer.header("content-encoding"), None, "{path}");
    }
});

on_both!(a_large_answer_is_compressed_outside_the_threads_of_requests, |app| async move {
    let ada = app.signup("acme").await;
    let long = with(row(&ada, app.app.services.clock.now()), |row| {
        row.request = chat(&"words of a long prompt ".repeat(10_000));
    });
    app.write(std::slice::from_ref(&long)).await;
    let get = || app.get(&format!("/api/v1/logs/{}", long.id)).bearer(&ada.token);
    let plain = get().send().await;
    assert!(plain.body.len() > 200 << 10);
    let answer = get().header("accept-encoding", "br").send().await;
    assert_eq!(decoded(&answer), plain.expect(200));
});
