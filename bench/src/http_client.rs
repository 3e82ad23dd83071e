//! Blocking HTTP client for unmeasured requests: signup, health checks and setup.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::error::{BenchError, BenchResult, Context};
use crate::http::{Body, parse_head, status};

/// Sends `request`, which must contain `Connection: close`, and returns the status and the body.
pub(crate) fn call(addr: SocketAddr, request: &str) -> BenchResult<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect_timeout(&addr, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.set_nodelay(true)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let mut head = parse_head(&answer).ok_or_else(|| BenchError::new("the response has no head"))?;
    let status = status(&answer).ok_or_else(|| BenchError::new("the response has no status"))?;
    let rest = answer.get(head.length..).unwrap_or_default();
    let mut body = Vec::new();
    if head.body == Body::Unframed {
        body.extend_from_slice(rest);
    } else {
        head.body.feed(rest, &mut |content| body.extend_from_slice(content))?;
    }
    Ok((status, body))
}

pub(crate) fn get(addr: SocketAddr, path: &str) -> BenchResult<(u16, Vec<u8>)> {
    call(addr, &format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n"))
}

pub(crate) fn post_json(addr: SocketAddr, path: &str, body: &str) -> BenchResult<(u16, serde_json::Value)> {
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {addr}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    let (status, body) = call(addr, &request)?;
    let text = String::from_utf8_lossy(&body);
    let value = serde_json::from_str(&text).context(format!("POST {path} returned {status} {text}"))?;
    Ok((status, value))
}

/// Client of the management API with an API key.
pub(crate) struct Api<'a> {
    pub(crate) addr: SocketAddr,
    pub(crate) key: &'a str,
}

impl Api<'_> {
    pub(crate) fn request(&self, method: &str, path: &str, body: &str) -> BenchResult<serde_json::Value> {
        let request = format!(
            "{method} /api/v1{path} HTTP/1.1\r\nHost: {}\r\nX-Gateway-Key: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.addr,
            self.key,
            body.len()
        );
        let (status, answer) = call(self.addr, &request)?;
        let text = String::from_utf8_lossy(&answer);
        let value = serde_json::from_str(&text).ok().filter(|_| (200..300).contains(&status));
        value.ok_or_else(|| BenchError::new(format!("{method} {path} returned {status} {text}")))
    }
}
