//! Tests: what is sent and read on one connection. The test is the host.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::coop::has_budget_remaining;

use super::connection::{Connection, Stream};
use super::*;
use crate::outbound::body::OutboundBody;

/// A connection, and the host's end of it.
async fn connected() -> (Connection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (host, _) = listener.accept().await.unwrap();
    (Connection::new(Stream::Plain(stream)), host)
}

fn request(body: impl Into<Bytes>) -> Request<OutboundBody> {
    Request::post("http://host/v1").body(OutboundBody::whole(body.into())).unwrap()
}

async fn read_text(host: &mut TcpStream, length: usize) -> String {
    let mut text = vec![0; length];
    host.read_exact(&mut text).await.unwrap();
    String::from_utf8(text).unwrap()
}

async fn send(
    connection: &mut Connection,
    host: &mut TcpStream,
    response: &[u8],
) -> Result<Response<()>, ConnectionError> {
    let expected = "POST /v1 HTTP/1.1\r\nhost: host\r\ncontent-length: 2\r\n\r\nhi";
    let exchange = async {
        assert_eq!(read_text(host, expected.len()).await, expected);
        host.write_all(response).await.unwrap();
    };
    tokio::join!(connection.send(request("hi")), exchange).0
}

async fn body(connection: &mut Connection) -> Result<Vec<u8>, ConnectionError> {
    let mut all = Vec::new();
    while let Some(data) = std::future::poll_fn(|context| connection.poll_data(context)).await {
        all.extend_from_slice(&data?);
    }
    Ok(all)
}

#[tokio::test]
async fn a_connection_is_used_for_one_request_after_the_other() {
    let (mut connection, mut host) = connected().await;
    assert!(connection.is_idle());
    for rest in
        ["content-length: 5\r\n\r\nhello", "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"]
    {
        let response = format!("HTTP/1.1 200 OK\r\n{rest}");
        let response = send(&mut connection, &mut host, response.as_bytes()).await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(!connection.is_idle(), "the body has not been read");
        assert_eq!(body(&mut connection).await.unwrap(), b"hello");
        assert!(connection.is_done() && connection.is_idle());
    }
    let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    send(&mut connection, &mut host, response).await.unwrap();
    assert!(connection.is_done() && !connection.is_idle());
}

#[tokio::test]
async fn a_connection_with_other_bytes_or_without_a_host_is_not_used_again() {
    let (mut connection, mut host) = connected().await;
    send(&mut connection, &mut host, b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab").await.unwrap();
    assert_eq!(body(&mut connection).await.unwrap(), b"a");
    assert!(!connection.is_idle());
    let (mut connection, host) = connected().await;
    drop(host);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!connection.is_idle(), "the host has closed it");
}

#[tokio::test]
async fn a_task_without_budget_knows_which_connections_are_closed() {
    let ((mut open, _host), (mut closed, host)) = (connected().await, connected().await);
    drop(host);
    tokio::time::sleep(Duration::from_millis(50)).await;
    while has_budget_remaining() {
        let _ = tokio::task::consume_budget().now_or_never();
    }
    assert!(open.is_idle() && !closed.is_idle());
}

#[tokio::test]
async fn a_request_that_is_given_up_leaves_a_connection_that_is_not_used_again() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe";
    // Before the request is written, before there is a head, and within the body.
    let (mut connection, _host) = connected().await;
    drop(connection.send(request("hi")));
    assert!(connection.is_idle(), "nothing has been sent");
    let (mut connection, _host) = connected().await;
    assert!(connection.send(request("hi")).now_or_never().is_none());
    assert!(!connection.is_idle());
    let (mut connection, mut host) = connected().await;
    send(&mut connection, &mut host, head).await.unwrap();
    let data = std::future::poll_fn(|context| connection.poll_data(context)).await;
    assert_eq!(data.unwrap().unwrap(), "he");
    assert!(!connection.is_idle());
}

#[tokio::test]
async fn a_response_that_is_cut_off_is_an_error() {
    for start in ["", "HTTP/1.1 200 O", "HTTP/1.1 200 OK\r\n\r"] {
        let (mut connection, mut host) = connected().await;
        let closing = async {
            read_text(&mut host, 10).await;
            host.write_all(start.as_bytes()).await.unwrap();
            host.shutdown().await.unwrap();
        };
        let sent = tokio::join!(connection.send(request("hi")), closing).0;
        assert!(matches!(sent, Err(ConnectionError::Closed)), "{start:?}");
    }
    for (rest, is_whole) in [
        ("content-length: 5\r\n\r\nhell", false),
        ("transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", false),
        ("\r\nhello", true),
    ] {
        let (mut connection, mut host) = connected().await;
        let response = format!("HTTP/1.1 200 OK\r\n{rest}");
        send(&mut connection, &mut host, response.as_bytes()).await.unwrap();
        drop(host);
        assert_eq!(body(&mut connection).await.is_ok(), is_whole, "{rest:?}");
        assert!(!connection.is_idle());
    }
}

#[tokio::test]
async fn a_host_may_respond_before_it_has_read_the_body() {
    let (mut connection, mut host) = connected().await;
    let refusing = async {
        read_text(&mut host, 10).await;
        host.write_all(b"HTTP/1.1 413 Payload Too Large\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
    };
    let sent = tokio::join!(connection.send(request(vec![b'x'; 16 << 20])), refusing).0;
    assert_eq!(sent.unwrap().status(), 413);
    assert_eq!(body(&mut connection).await.unwrap(), b"no");
    assert!(!connection.is_idle(), "the request has not been sent to its end");
}

#[tokio::test]
async fn a_long_exchange_arrives_as_it_was_sent() {
    let (mut connection, mut host) = connected().await;
    let text: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    let length = text.len();
    let echoing = async {
        let head = format!("POST /v1 HTTP/1.1\r\nhost: host\r\ncontent-length: {length}\r\n\r\n");
        assert_eq!(read_text(&mut host, head.len()).await, head);
        let mut received = vec![0; length];
        host.read_exact(&mut received).await.unwrap();
        host.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        for piece in received.chunks(70_001) {
            let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            host.write_all(&chunk).await.unwrap();
        }
        host.write_all(b"0\r\n\r\n").await.unwrap();
    };
    let reading = async {
        connection.send(request(text.clone())).await.unwrap();
        body(&mut connection).await.unwrap()
    };
    let received = tokio::join!(reading, echoing).0;
    assert!(received == text && connection.is_idle());
}
