//! Tests of the programmable upstream itself, through a plain socket.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{RefusingAddress, Reply, Signal, Upstream};

const SOON: Duration = Duration::from_secs(5);
const GET: &[u8] = b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n";

async fn connect(upstream: &Upstream) -> TcpStream {
    TcpStream::connect(upstream.address).await.unwrap()
}

/// Reads until the text has arrived and returns everything read.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    timeout(SOON, async {
        while !read.ends_with(end.as_bytes()) {
            assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0, "closed after {read:?}");
        }
    })
    .await
    .unwrap_or_else(|_| panic!("only {:?}", String::from_utf8_lossy(&read)));
    String::from_utf8(read).unwrap()
}

async fn read_to_close(stream: &mut TcpStream) -> String {
    let mut read = String::new();
    timeout(SOON, stream.read_to_string(&mut read)).await.unwrap().unwrap();
    read
}

async fn nothing_comes(stream: &mut TcpStream) {
    let mut byte = [0];
    assert!(timeout(Duration::from_millis(50), stream.read(&mut byte)).await.is_err());
}

#[tokio::test]
async fn a_request_is_kept_byte_for_byte() {
    let upstream = Upstream::start().await;
    upstream.set_default_reply(Reply::new(200));
    let mut stream = connect(&upstream).await;
    let head = "POST /v1/x?y=%20 HTTP/1.1\r\nHost: here\r\nX-Odd-CASE:  two words \r\nx-odd-case: again\r\n\
                Content-Length: 5\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(b"he\0lo").await.unwrap();

    let requests = upstream.wait_for_requests(1, SOON).await;

    let request = &requests[0];
    assert_eq!((request.method(), request.target()), ("POST", "/v1/x?y=%20"));
    assert_eq!(request.head, head.as_bytes());
    assert_eq!(request.header_names(), ["Host", "X-Odd-CASE", "x-odd-case", "Content-Length"]);
    assert_eq!(request.header_all("x-odd-case"), ["two words", "again"]);
    assert_eq!(request.body, b"he\0lo");
}

#[tokio::test]
async fn a_chunked_request_is_kept_decoded_and_raw() {
    let upstream = Upstream::start().await;
    upstream.set_default_reply(Reply::new(200));
    let mut stream = connect(&upstream).await;
    stream.write_all(b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    let body = b"4;ext=1\r\nab\r\n\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
    for byte in body {
        stream.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }

    let requests = upstream.wait_for_requests(1, SOON).await;

    assert_eq!(requests[0].body, b"ab\r\n0123456789");
    assert_eq!(requests[0].raw_body, body);
}

#[tokio::test]
async fn an_unfinished_request_is_seen_growing() {
    let upstream = Upstream::start().await;
    let mut stream = connect(&upstream).await;
    stream.write_all(b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf ").await.unwrap();

    upstream.wait_until(SOON, "half a body", || upstream.arrivals().iter().any(|r| r.body == b"half ")).await;

    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn a_disconnect_in_the_middle_of_the_body_is_an_abort() {
    let upstream = Upstream::start().await;
    let mut stream = connect(&upstream).await;
    stream.write_all(b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf ").await.unwrap();
    drop(stream);

    assert_eq!(upstream.wait_for_aborts(1, SOON).await.len(), 1);
}

#[tokio::test]
async fn replies_come_from_the_queue_and_then_from_the_default() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::json(429, "{}").header("Retry-After", "1"));
    upstream.set_default_reply(Reply::new(204));
    let mut stream = connect(&upstream).await;

    stream.write_all(GET).await.unwrap();
    let first = read_until(&mut stream, "{}").await;
    stream.write_all(GET).await.unwrap();
    let second = read_until(&mut stream, "\r\n\r\n").await;

    assert_eq!(
        first,
        "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nRetry-After: 1\r\ncontent-length: 2\r\n\r\n{}"
    );
    assert_eq!(second, "HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(upstream.connections(), 1);
    assert!(upstream.requests().iter().all(|request| request.connection == 0));
}

#[tokio::test]
async fn a_request_without_a_reply_says_so() {
    let upstream = Upstream::start().await;
    let mut stream = connect(&upstream).await;
    stream.write_all(GET).await.unwrap();

    assert!(read_until(&mut stream, "}").await.starts_with("HTTP/1.1 500 "));
}

#[tokio::test]
async fn events_are_sent_one_by_one_on_signals() {
    let upstream = Upstream::start().await;
    let signal = Signal::new();
    upstream.push(Reply::sse(&["one"]).wait_for(&signal).event("two"));
    let mut stream = connect(&upstream).await;
    stream.write_all(GET).await.unwrap();

    let start = read_until(&mut stream, "b\r\ndata: one\n\n\r\n").await;
    assert!(
        start.contains("content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"),
        "{start}"
    );
    nothing_comes(&mut stream).await;
    signal.notify();

    assert_eq!(read_until(&mut stream, "0\r\n\r\n").await, "b\r\ndata: two\n\n\r\n0\r\n\r\n");
}

#[tokio::test]
async fn head_and_body_can_be_held_back() {
    let upstream = Upstream::start().await;
    let signal = Signal::new();
    upstream.push(
        Reply::new(200).wait_before_head(&signal).piece("a").delay(Duration::from_millis(80)).body("b"),
    );
    let mut stream = connect(&upstream).await;
    stream.write_all(GET).await.unwrap();

    nothing_comes(&mut stream).await;
    signal.notify();
    read_until(&mut stream, "content-length: 2\r\n\r\na").await;
    let began = Instant::now();
    read_until(&mut stream, "b").await;

    assert!(began.elapsed() >= Duration::from_millis(60));
}

#[tokio::test]
async fn a_body_can_end_with_the_connection() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::new(200).until_close().body("all"));
    let mut stream = connect(&upstream).await;
    stream.write_all(GET).await.unwrap();

    assert_eq!(read_to_close(&mut stream).await, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nall");
    assert!(upstream.aborts().is_empty());
}

#[tokio::test]
async fn half_a_body_is_shorter_than_announced() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::new(200).body("abc").then_truncate());
    upstream.push(Reply::new(200).chunked().body("abc").then_truncate());
    upstream.push(Reply::new(200).with_content_length(1000).body("abc").then_close());

    for expected in
        ["content-length: 4\r\n\r\nabc", "chunked\r\n\r\n3\r\nabc\r\n", "content-length: 1000\r\n\r\nabc"]
    {
        let mut stream = connect(&upstream).await;
        stream.write_all(GET).await.unwrap();
        let read = read_to_close(&mut stream).await;
        assert!(read.ends_with(expected), "{read}");
    }
}

#[tokio::test]
async fn a_reset_is_a_reset() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::new(200).chunked().piece("abc").then_reset());
    upstream.push(Reply::reset());
    let mut stream = connect(&upstream).await;
    stream.write_all(GET).await.unwrap();
    read_until(&mut stream, "abc\r\n").await;
    let mut other = connect(&upstream).await;
    other.write_all(GET).await.unwrap();

    for stream in [&mut stream, &mut other] {
        let ended = timeout(SOON, stream.read(&mut [0])).await.unwrap();
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn garbage_is_sent_as_it_is() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::garbage("SSH-2.0-nonsense\n"));
    let mut stream = connect(&upstream).await;
    stream.write_all(GET).await.unwrap();

    assert_eq!(read_to_close(&mut stream).await, "SSH-2.0-nonsense\n");
}

#[tokio::test]
async fn a_disconnect_from_a_stalled_reply_is_an_abort_with_its_time() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::sse(&["one"]).then_stall());
    let mut stream = connect(&upstream).await;
    stream.write_all(GET).await.unwrap();
    read_until(&mut stream, "one\n\n\r\n").await;
    assert!(upstream.aborts().is_empty());

    let left = Instant::now();
    drop(stream);
    let aborts = upstream.wait_for_aborts(1, SOON).await;

    assert!(aborts[0].at >= left);
    assert_eq!((aborts[0].connection, aborts[0].request), (0, 0));
    upstream.wait_until(SOON, "closed connection", || upstream.open_connections() == 0).await;
}

#[tokio::test]
async fn a_disconnect_between_requests_is_not_an_abort() {
    let upstream = Upstream::start().await;
    upstream.set_default_reply(Reply::new(200).body("x"));
    let mut stream = connect(&upstream).await;
    stream.write_all(GET).await.unwrap();
    read_until(&mut stream, "x").await;
    drop(stream);
    upstream.wait_until(SOON, "closed connection", || upstream.open_connections() == 0).await;

    assert!(upstream.aborts().is_empty());
}

#[tokio::test]
async fn a_reply_that_the_peer_does_not_read_to_its_end_is_an_abort() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::new(200).body(vec![b'x'; 64 * 1024 * 1024]));
    let mut stream = connect(&upstream).await;
    stream.write_all(GET).await.unwrap();
    read_until(&mut stream, "x").await;
    drop(stream);

    upstream.wait_for_aborts(1, SOON).await;
}

#[tokio::test]
async fn continue_is_sent_unless_the_reply_is_early() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::new(200).interim(103).body("x"));
    upstream.push(Reply::new(417).early().body("y"));
    let mut stream = connect(&upstream).await;
    let head = b"POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";

    stream.write_all(head).await.unwrap();
    assert_eq!(read_until(&mut stream, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"ab").await.unwrap();
    let answer = read_until(&mut stream, "x").await;
    assert!(answer.starts_with("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n"), "{answer}");

    stream.write_all(head).await.unwrap();
    assert!(read_until(&mut stream, "y").await.starts_with("HTTP/1.1 417 "));
}

#[tokio::test]
async fn an_idle_connection_can_be_closed_unannounced() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::new(200).body("x").then_close());
    let mut stream = connect(&upstream).await;
    stream.write_all(GET).await.unwrap();

    assert!(read_to_close(&mut stream).await.ends_with("content-length: 1\r\n\r\nx"));
}

#[tokio::test]
async fn connections_end_with_the_upstream() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::no_response());
    let mut stream = connect(&upstream).await;
    stream.write_all(GET).await.unwrap();
    upstream.wait_for_requests(1, SOON).await;
    drop(upstream);

    assert_eq!(timeout(SOON, stream.read(&mut [0])).await.unwrap().unwrap_or(0), 0);
}

#[tokio::test]
async fn a_refusing_address_refuses() {
    let refusing = RefusingAddress::start();
    let address = refusing.url().replace("http://", "");

    assert_eq!(TcpStream::connect(address).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test]
#[should_panic(expected = "no 1 requests within")]
async fn waiting_in_vain_fails_the_test() {
    Upstream::start().await.wait_for_requests(1, Duration::from_millis(20)).await;
}
