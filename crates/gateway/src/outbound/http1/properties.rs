//! Properties of what is read of a response: it does not depend on the pieces in which it arrives, and is what hyper's
//! client reads.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::connection::append;
use super::head::HeadSearch;

const HEADS: [&str; 8] = [
    "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n",
    "HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\nconnection: close\r\n",
    "HTTP/1.0 200 OK\r\n",
    "HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\n",
    "HTTP/1.1 204 No Content\r\n",
    "HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\n",
    "HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 500 No\r\n",
];

/// What one response says. An error of the body comes after the data that was read before it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    status: u16,
    data: Vec<u8>,
    is_whole: bool,
}

/// A response with a length, with chunks, or to the end of the connection.
fn response() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6);
    (prop::sample::select(HEADS.to_vec()), 0..4_u8, pieces).prop_map(|(head, framing, pieces)| {
        let mut bytes = head.as_bytes().to_vec();
        match framing {
            0 => bytes.extend(format!("content-length: {}\r\n\r\n", pieces.concat().len()).bytes()),
            1 => bytes.extend_from_slice(b"\r\n"),
            _ => {
                let extension = if framing == 2 { "" } else { ";a=\"b\"" };
                bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                for piece in pieces {
                    bytes.extend(format!("{:X}{extension}\r\n", piece.len()).bytes());
                    bytes.extend(piece);
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes.extend_from_slice(if framing == 2 { b"0\r\n\r\n" } else { b"0\r\na: b\r\n\r\n" });
                return bytes;
            }
        }
        bytes.extend(pieces.concat());
        bytes
    })
}

/// Some bytes of a response are replaced, inserted or cut off.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![any::<u8>(), prop::sample::select(b"\r\n:; 0159afg,".to_vec())];
    let change = (any::<prop::sample::Index>(), 0..4_u8, byte);
    (response(), prop::collection::vec(change, 0..4)).prop_map(|(mut bytes, changes)| {
        for (at, kind, byte) in changes {
            let at = at.index(bytes.len().max(1));
            match kind {
                0 => bytes.insert(at, byte),
                1 => bytes.truncate(at),
                _ if at < bytes.len() => bytes[at] = byte,
                _ => {}
            }
        }
        bytes
    })
}

/// Reads a response that arrives in pieces of some size, and then the end of the connection.
fn read(bytes: &[u8], size: usize) -> Option<Seen> {
    let mut pieces = bytes.chunks(size);
    let (mut input, mut search) = (Bytes::new(), HeadSearch::default());
    let mut head = loop {
        if let Some(head) = search.find(&mut input, &http::Method::GET).ok()? {
            break head;
        }
        append(&mut input, pieces.next()?);
    };
    let (status, mut data) = (head.response.status().as_u16(), Vec::new());
    let seen = |data, is_whole| Some(Seen { status, data, is_whole });
    loop {
        match head.body.decode(&mut input) {
            Err(_) => return seen(data, false),
            Ok(Some(found)) => data.extend_from_slice(&found),
            Ok(None) if head.body.is_done() => return seen(data, true),
            Ok(None) => match pieces.next() {
                Some(piece) => append(&mut input, piece),
                None => return seen(data, head.body.close().is_ok()),
            },
        }
    }
}

/// Is the host: reads the head of the request and sends the response.
async fn respond(mut host: DuplexStream, response: Vec<u8>) {
    let mut request = [0; 1 << 10];
    let _ = host.read(&mut request).await;
    let _ = host.write_all(&response).await;
}

async fn read_by_hyper(response: Vec<u8>) -> Option<Seen> {
    let (client, host) = tokio::io::duplex(64 << 10);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(client)).await.unwrap();
    let request = http::Request::get("/").header("host", "host").body(Empty::<Bytes>::new()).unwrap();
    let reading = async {
        let response = sender.send_request(request).await.ok()?;
        let status = response.status().as_u16();
        let (mut body, mut data, mut is_whole) = (response.into_body(), Vec::new(), true);
        while let Some(frame) = body.frame().await {
            match frame.map(http_body::Frame::into_data) {
                Ok(Ok(found)) => data.extend_from_slice(&found),
                Ok(Err(_trailers)) => {}
                Err(_) => is_whole = false,
            }
        }
        Some(Seen { status, data, is_whole })
    };
    let driving = async {
        let _ = tokio::join!(respond(host, response), connection);
        std::future::pending::<Option<Seen>>().await
    };
    tokio::select! {
        seen = reading => seen,
        never = driving => never,
    }
}

fn by_hyper(response: Vec<u8>) -> Option<Seen> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(5), read_by_hyper(response)).await.unwrap()
    })
}

proptest! {
    #[test]
    fn pieces_do_not_change_what_is_read(bytes in damaged(), size in 1..90_usize) {
        let whole = read(&bytes, bytes.len().max(1));
        let in_pieces = read(&bytes, size);
        prop_assert_eq!(whole, in_pieces);
    }

    #[test]
    fn hyper_reads_the_same_of_a_valid_response(bytes in response(), size in 1..90_usize) {
        prop_assert_eq!(read(&bytes, size), by_hyper(bytes));
    }
}
