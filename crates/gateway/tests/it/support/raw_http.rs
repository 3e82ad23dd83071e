//! A client that reads and writes raw bytes: for slow requests, timed response chunks and clients that disconnect.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Upper bound for one read.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

pub struct RawConnection {
    stream: TcpStream,
    inbox: Vec<u8>,
}

/// Status line and headers of a response.
#[derive(Debug)]
pub struct Head {
    pub status: u16,
    pub headers: Vec<(String, String)>,
}

impl Head {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub fn log_id(&self) -> i64 {
        self.header("x-gateway-log-id").and_then(|id| id.parse().ok()).expect("a log id")
    }
}

/// The connection closed before the end of the body.
#[derive(Debug, PartialEq, Eq)]
pub struct Cut {
    pub got: Vec<u8>,
}

impl RawConnection {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, inbox: Vec::new() }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Returns false if the peer has closed the connection.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok()
    }

    /// Reads the next response head, including interim responses.
    pub async fn head(&mut self) -> Head {
        let head = self.try_head().await;
        head.unwrap_or_else(|| panic!("the connection ended before a head: {:?}", self.seen()))
    }

    /// Reads the next response head. `None` if the connection is closed instead.
    pub async fn try_head(&mut self) -> Option<Head> {
        let end = loop {
            if let Some(at) = self.inbox.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.more().await {
                return None;
            }
        };
        let head: Vec<u8> = self.inbox.drain(..end).collect();
        let text = String::from_utf8(head).unwrap();
        let mut lines = text.trim_end().split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status");
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        Some(Head { status, headers })
    }

    /// Reads one chunk of a chunked body. `None` is the end of the body.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, Cut> {
        let line = loop {
            if let Some(at) = self.inbox.windows(2).position(|window| window == b"\r\n") {
                break at;
            }
            self.need().await?;
        };
        let size = std::str::from_utf8(&self.inbox[..line]).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).expect("a chunk size");
        while self.inbox.len() < line + 2 + size + 2 {
            self.need().await?;
        }
        let chunk = self.inbox[line + 2..line + 2 + size].to_vec();
        self.inbox.drain(..line + 2 + size + 2);
        Ok((size > 0).then_some(chunk))
    }

    /// Reads chunks until the body contains `end`.
    pub async fn chunks_until(&mut self, end: &str) -> Vec<u8> {
        let mut got = Vec::new();
        while !String::from_utf8_lossy(&got).contains(end) {
            let chunk = self.chunk().await.expect("the body goes on");
            got.extend(chunk.expect("the body is not over"));
        }
        got
    }

    /// Reads the whole body according to the framing headers.
    pub async fn body(&mut self, head: &Head) -> Result<Vec<u8>, Cut> {
        if head.header("transfer-encoding").is_some() {
            let mut got = Vec::new();
            loop {
                match self.chunk().await {
                    Ok(Some(chunk)) => got.extend(chunk),
                    Ok(None) => return Ok(got),
                    Err(Cut { got: rest }) => return Err(Cut { got: [got, rest].concat() }),
                }
            }
        }
        let length = head.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        while self.inbox.len() < length {
            self.need().await?;
        }
        Ok(self.inbox.drain(..length).collect())
    }

    /// Asserts that no bytes arrive within `time`.
    pub async fn assert_no_data_for(&mut self, time: Duration) {
        assert!(self.inbox.is_empty(), "already here: {:?}", self.seen());
        let read = timeout(time, self.stream.read_buf(&mut self.inbox)).await;
        assert!(read.is_err(), "something came: {:?}", self.seen());
    }

    /// Reads until the peer closes the connection. Returns what it sent.
    pub async fn until_closed(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.inbox)
    }

    async fn need(&mut self) -> Result<(), Cut> {
        if self.more().await { Ok(()) } else { Err(Cut { got: std::mem::take(&mut self.inbox) }) }
    }

    /// Reads available bytes. Returns false when the connection is closed or reset.
    async fn more(&mut self) -> bool {
        let read = timeout(WAIT_TIMEOUT, self.stream.read_buf(&mut self.inbox)).await;
        read.unwrap_or_else(|_| panic!("nothing came any more; so far: {:?}", self.seen()))
            .is_ok_and(|length| length > 0)
    }

    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.inbox).into_owned()
    }
}

/// The bytes of a request with a body of known length.
pub fn request(method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let length = body.len().to_string();
    let mut headers = headers.to_vec();
    headers.push(("content-length", &length));
    [request_head(method, target, &headers).as_bytes(), body].concat()
}

/// A request head with `host` and exactly these headers.
pub fn request_head(method: &str, target: &str, headers: &[(&str, &str)]) -> String {
    let lines: String = headers.iter().flat_map(|(name, value)| [name, ": ", value, "\r\n"]).collect();
    format!("{method} {target} HTTP/1.1\r\nhost: gateway.test\r\n{lines}\r\n")
}

pub fn http_chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}
