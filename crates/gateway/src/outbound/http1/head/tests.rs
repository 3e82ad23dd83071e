//! Tests of heads: how those of responses are found, read and refused, and what those of requests say.

use super::*;

fn parsed(text: &str, method: &Method) -> (ResponseHead, Bytes) {
    let mut input = Bytes::copy_from_slice(text.as_bytes());
    let head = HeadSearch::default().find(&mut input, method).unwrap().unwrap();
    (head, input)
}

#[test]
fn a_head_says_how_the_body_ends() {
    let length = |text: &str| parsed(&format!("HTTP/1.1 200 OK\r\n{text}\r\n"), &Method::POST).0.body;
    for (headers, body) in [
        ("content-length: 5\r\n", Decoder::Length(5)),
        ("Content-Length: 5, 5\r\ncontent-length: 5\r\n", Decoder::Length(5)),
        ("transfer-encoding: chunked\r\n", Decoder::chunked()),
        ("transfer-encoding: gzip, Chunked\r\ncontent-length: 5\r\n", Decoder::chunked()),
        ("transfer-encoding: gzip\r\n", Decoder::UntilClose),
        ("", Decoder::UntilClose),
    ] {
        assert_eq!(length(headers), body, "{headers}");
    }
    for start in ["204 No Content", "304 Not Modified"] {
        let text = format!("HTTP/1.1 {start}\r\ncontent-length: 5\r\n\r\n");
        assert_eq!(parsed(&text, &Method::GET).0.body, Decoder::NONE, "{start}");
    }
    let text = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
    assert_eq!(parsed(text, &Method::HEAD).0.body, Decoder::NONE);
}

#[test]
fn a_head_says_whether_the_connection_stays() {
    for (text, keeps) in [
        ("HTTP/1.1 200 OK\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\nConnection: x, Close\r\n\r\n", false),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n", false),
        ("HTTP/1.0 200 OK\r\n\r\n", false),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", false),
    ] {
        assert_eq!(parsed(text, &Method::GET).0.keep_alive, keeps, "{text}");
    }
}

#[test]
fn what_precedes_the_response_is_skipped_and_what_follows_stays() {
    let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 201 Made\r\na: b\r\n\r\nrest";
    let (head, rest) = parsed(text, &Method::POST);
    assert_eq!((head.response.status().as_u16(), &rest[..]), (201, &b"rest"[..]));
    assert_eq!(head.response.headers()["a"], "b");
    assert!(!head.response.headers().contains_key("link"));
    let whole = text.strip_suffix("rest").unwrap();
    for end in 0..whole.len() {
        let mut input = Bytes::copy_from_slice(&whole.as_bytes()[..end]);
        assert!(HeadSearch::default().find(&mut input, &Method::POST).unwrap().is_none(), "{end}");
    }
}

#[test]
fn the_end_of_a_head_is_found_however_it_arrives() {
    for text in [
        "HTTP/1.1 200 OK\r\na: b\r\n\r\n",
        "HTTP/1.1 200 OK\na: b\n\n",
        "HTTP/1.1 200 OK\r\na: b\n\r\n",
        "\r\n\n\r\nHTTP/1.1 100 Continue\r\n\r\n\r\nHTTP/1.1 200 OK\r\na: b\r\n\r\n",
    ] {
        for size in 1..=text.len() {
            let (mut search, mut input) = (HeadSearch::default(), Bytes::new());
            let mut found = Vec::new();
            for (index, piece) in text.as_bytes().chunks(size).enumerate() {
                input = [&input[..], piece].concat().into();
                if let Some(head) = search.find(&mut input, &Method::GET).unwrap() {
                    found.push((index, head.response.status().as_u16()));
                }
            }
            assert_eq!(found, [(text.len().div_ceil(size) - 1, 200)], "{text:?} in pieces of {size}");
        }
    }
}

#[test]
fn a_length_beside_chunks_is_not_passed_on() {
    let (head, _) =
        parsed("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", &Method::GET);
    assert!(!head.response.headers().contains_key(CONTENT_LENGTH));
    assert_eq!(head.body, Decoder::chunked());
}

#[test]
fn what_is_no_response_is_an_error_at_once() {
    for text in ["220 mail ESMTP\r\n", "SSH-2.0-x", "H\r", "\r\nx", "\rHTTP/1.1", "HTTP/2"] {
        let mut input = Bytes::copy_from_slice(text.as_bytes());
        assert!(HeadSearch::default().find(&mut input, &Method::GET).is_err(), "{text:?}");
    }
    for text in ["", "\r", "\r\n", "H", "HTTP/1.", "HTTP/1.1 200 OK\r\n"] {
        let mut input = Bytes::copy_from_slice(text.as_bytes());
        assert!(HeadSearch::default().find(&mut input, &Method::GET).unwrap().is_none(), "{text:?}");
    }
}

#[test]
fn what_precedes_the_response_is_bounded() {
    for piece in ["\r\n", "HTTP/1.1 102 Processing\r\n\r\n"] {
        let (mut search, mut sent) = (HeadSearch::default(), 0);
        let refused = loop {
            let mut input = Bytes::copy_from_slice(piece.as_bytes());
            sent += input.len();
            match search.find(&mut input, &Method::GET) {
                Ok(head) => assert!(head.is_none() && input.is_empty() && sent <= MAX_HEAD),
                Err(error) => break error,
            }
        };
        assert!(sent > MAX_HEAD, "{refused}");
    }
}

#[test]
fn invalid_heads_are_errors() {
    let many = "a: b\r\n".repeat(MAX_HEADERS + 1);
    let long = format!("HTTP/1.1 200 OK\r\na: {}", "x".repeat(MAX_HEAD));
    for text in [
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length:\r\n\r\n",
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\na b: c\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        &format!("HTTP/1.1 200 OK\r\n{many}\r\n"),
        &long,
    ] {
        let mut input = Bytes::copy_from_slice(text.as_bytes());
        assert!(HeadSearch::default().find(&mut input, &Method::GET).is_err(), "{text:.60}");
    }
}

#[test]
fn a_request_head_has_the_host_and_the_length() {
    let encoded = |uri: &'static str, length| {
        let mut headers = HeaderMap::new();
        headers.insert("a", HeaderValue::from_static("b"));
        headers.insert("content-length", HeaderValue::from_static("99"));
        headers.insert("transfer-encoding", HeaderValue::from_static("gzip"));
        let mut out = Vec::new();
        encode((&Method::POST, &Uri::from_static(uri)), &headers, length, &mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(
        encoded("http://user@host:8080/v1?x=1", RequestLength::Known(7)),
        "POST /v1?x=1 HTTP/1.1\r\na: b\r\nhost: host:8080\r\ncontent-length: 7\r\n\r\n"
    );
    assert_eq!(
        encoded("https://host:443", RequestLength::Chunked),
        "POST / HTTP/1.1\r\na: b\r\nhost: host\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    assert_eq!(
        encoded("http://host?x", RequestLength::None),
        "POST /?x HTTP/1.1\r\na: b\r\nhost: host\r\n\r\n",
        "a length without a body would make a body of the next request"
    );
    let (mut headers, mut out) = (HeaderMap::new(), Vec::new());
    headers.insert("content-length", HeaderValue::from_static("0"));
    encode((&Method::POST, &Uri::from_static("http://host")), &headers, RequestLength::None, &mut out);
    assert_eq!(out, b"POST / HTTP/1.1\r\ncontent-length: 0\r\nhost: host\r\n\r\n");
}
