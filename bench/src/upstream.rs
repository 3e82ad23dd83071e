//! The provider behind every target: reads a request and responds at once, or streams as the request specifies.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use memchr::memmem;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::cli::UpstreamOptions;
use crate::error::{BenchError, BenchResult};
use crate::http::{Body, parse_head};
use crate::mcp_upstream::{self, Answer};
use crate::responses::{DONE, ResponseScript, chunk, plain_body, usage_chunk};
use crate::tls;

/// Serves until standard input closes, at the latest when the controller dies.
pub(crate) fn run(options: &UpstreamOptions) -> BenchResult<()> {
    let runtime = crate::load::runtime(options.threads)?;
    runtime.block_on(async {
        let bind = || TcpListener::bind("127.0.0.1:0");
        let [plain, http1, http2] = [bind().await?, bind().await?, bind().await?];
        let acceptor =
            |protocol| options.tls.as_deref().map(|folder| tls::acceptor(folder, protocol)).transpose();
        let (tls_http1, tls_http2) = (acceptor("http/1.1")?, acceptor("h2")?);
        println!("{} {} {}", plain.local_addr()?, http1.local_addr()?, http2.local_addr()?);
        tokio::select! {
            result = accept(plain, None) => result,
            result = accept(http1, tls_http1) => result,
            result = accept_http2(http2, tls_http2) => result,
            () = crate::load::wait_for_stdin_eof() => Ok(()),
        }
    })
}

async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>) -> BenchResult<()> {
    let body = plain_body();
    let plain: Arc<[u8]> = Arc::from(
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes(),
    );
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let plain = Arc::clone(&plain);
        let acceptor = acceptor.clone();
        // A client disconnect is not an error here. A proxy that corrupts requests shows in its responses.
        tokio::spawn(async move {
            match acceptor {
                Some(acceptor) => serve(acceptor.accept(stream).await?, &plain).await,
                None => serve(stream, &plain).await,
            }
        });
    }
}

/// Responds to every request with the plain response.
async fn accept_http2(listener: TcpListener, acceptor: Option<TlsAcceptor>) -> BenchResult<()> {
    let body = Bytes::from(plain_body());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (Some(acceptor), body) = (acceptor.clone(), body.clone()) else { continue };
        let respond = move |request: http::Request<Incoming>| {
            let body = body.clone();
            async move {
                request.into_body().collect().await?;
                let mut response = http::Response::new(Full::new(body));
                let json = http::HeaderValue::from_static("application/json");
                response.headers_mut().insert(http::header::CONTENT_TYPE, json);
                Ok::<_, hyper::Error>(response)
            }
        };
        tokio::spawn(async move {
            let stream = TokioIo::new(acceptor.accept(stream).await?);
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder
                .serve_connection(stream, hyper::service::service_fn(respond))
                .await
                .map_err(std::io::Error::other)
        });
    }
}

/// A connection to a client.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

async fn serve(mut stream: impl Stream, plain: &[u8]) -> BenchResult<()> {
    let mut input = BytesMut::with_capacity(32 * 1024);
    let mut decoded = Vec::new();
    loop {
        let mut head = loop {
            if let Some(head) = parse_head(&input) {
                break head;
            }
            read_more(&mut stream, &mut input).await?;
        };
        input.advance(head.length);
        let asked = match &mut head.body {
            Body::Unframed => Asked::Model(ResponseScript::default(), false),
            Body::Bytes(length) => {
                let length = usize::try_from(*length).unwrap_or(usize::MAX);
                while input.len() < length {
                    read_more(&mut stream, &mut input).await?;
                }
                let found = parse_request(input.get(..length).unwrap_or_default());
                input.advance(length);
                found
            }
            body @ Body::Chunked(_) => {
                decoded.clear();
                loop {
                    let taken = body.feed(&input, &mut |bytes| decoded.extend_from_slice(bytes))?;
                    input.advance(taken);
                    if body.is_done() {
                        break;
                    }
                    read_more(&mut stream, &mut input).await?;
                }
                parse_request(&decoded)
            }
        };
        match asked {
            Asked::Model(script, _) if script.chunks == 0 => stream.write_all(plain).await?,
            Asked::Model(script, wants_usage) => answer_in_chunks(&mut stream, script, wants_usage).await?,
            Asked::Mcp(Answer::Body(body)) => {
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length:";
                stream.write_all(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
            }
            Asked::Mcp(Answer::Accepted) => {
                stream.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").await?;
            }
            Asked::Mcp(Answer::Never) => return wait_for_end(&mut stream).await,
        }
        stream.flush().await?;
    }
}

/// What a request asks for.
enum Asked {
    /// An answer of a model, and whether usage is wanted.
    Model(ResponseScript, bool),
    /// An answer of the MCP server.
    Mcp(Answer),
}

/// Sends nothing until the client disconnects.
async fn wait_for_end(stream: &mut impl Stream) -> BenchResult<()> {
    while stream.read(&mut [0; 64]).await? > 0 {}
    Err(BenchError::new("the client disconnected"))
}

pub(crate) async fn read_more(stream: &mut impl Stream, input: &mut BytesMut) -> BenchResult<()> {
    input.reserve(16 * 1024);
    match stream.read_buf(input).await? {
        0 => Err(BenchError::new("the client disconnected")),
        _ => Ok(()),
    }
}

fn parse_request(body: &[u8]) -> Asked {
    if let Some(answer) = mcp_upstream::answer(body) {
        return Asked::Mcp(answer);
    }
    let script = ResponseScript::find(body);
    Asked::Model(script, script.chunks > 0 && memmem::find(body, b"\"include_usage\"").is_some())
}

async fn answer_in_chunks(stream: &mut impl Stream, script: ResponseScript, usage: bool) -> BenchResult<()> {
    // X-Accel-Buffering disables the buffering of nginx for this stream.
    let mut out = String::from(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\
         X-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    for at in 0..script.chunks {
        if at > 0 && script.gap_ms > 0 {
            tokio::time::sleep(Duration::from_millis(u64::from(script.gap_ms))).await;
        }
        push_chunk(&mut out, &chunk(script, at, usage));
        if at + 1 == script.chunks {
            if usage {
                push_chunk(&mut out, &usage_chunk(script));
            }
            push_chunk(&mut out, DONE);
            out.push_str("0\r\n\r\n");
        }
        stream.write_all(out.as_bytes()).await?;
        stream.flush().await?;
        out.clear();
        if script.hold {
            return wait_for_end(stream).await;
        }
    }
    Ok(())
}

pub(crate) fn push_chunk(out: &mut String, content: &str) {
    use std::fmt::Write as _;
    // Writing to a String cannot fail.
    let _ = write!(out, "{:x}\r\n{content}\r\n", content.len());
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;
    use crate::request;

    /// Returns everything that the upstream sends in response to these bytes until it is silent or closes.
    fn ask(request: &[u8], until: &[u8]) -> String {
        crate::load::runtime(1).unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            tokio::spawn(accept(listener, None));
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(request).await.unwrap();
            let mut said = Vec::new();
            while !said.ends_with(until) {
                let read = tokio::time::timeout(Duration::from_secs(5), stream.read_buf(&mut said));
                assert!(read.await.unwrap().unwrap() > 0);
            }
            String::from_utf8(said).unwrap()
        })
    }

    #[test]
    fn a_plain_request_gets_the_plain_response() {
        let said = ask(&request::chat(2048, ResponseScript::default(), "key"), plain_body().as_bytes());
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n"));
    }

    #[test]
    fn a_chunked_request_is_parsed() {
        let script = ResponseScript { chunks: 2, ..ResponseScript::default() };
        let body = format!("{{\"user\":\"{}\"}}", script.to_user());
        let (first, second) = body.split_at(15);
        let request = format!(
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n",
            first.len(),
            second.len()
        );
        assert_eq!(ask(request.as_bytes(), b"0\r\n\r\n").matches("data: {").count(), 2);
    }

    #[test]
    fn usage_is_sent_only_on_request() {
        let script = ResponseScript { chunks: 3, ..ResponseScript::default() };
        let ask_with = |options: &str| {
            let body = format!("{{\"user\":\"{}\"{options}}}", script.to_user());
            ask(request::post("/v1/chat/completions", "key", &body).as_bytes(), b"0\r\n\r\n")
        };
        assert_eq!(ask_with("").matches("usage").count(), 0);
        let with = ask_with(",\"stream_options\":{\"include_usage\":true}");
        assert_eq!(with.matches("\"usage\":null").count(), 3);
        assert_eq!(with.matches("\"total_tokens\":483").count(), 1);
    }
}
