//! Received requests and the parser that reads them.

use std::time::Instant;

/// One request with every byte that the client sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The request line, e.g. `POST /v1/chat/completions?x=1 HTTP/1.1`.
    pub(crate) line: String,
    /// In the order and case in which they were sent. Invalid UTF-8 is replaced; `head` has the raw bytes.
    pub(crate) headers: Vec<(String, String)>,
    /// Request line and headers as sent, including the empty line.
    pub(crate) head: Vec<u8>,
    /// The body without its framing.
    pub(crate) body: Vec<u8>,
    /// The body as sent, including chunk sizes and trailers.
    pub(crate) raw_body: Vec<u8>,
    /// Time at which the head was complete.
    pub(crate) at: Instant,
    /// Index of the connection.
    pub(crate) connection: usize,
    /// Whether the whole body has been received.
    pub(crate) complete: bool,
}

impl Request {
    /// Parses a head that ends with an empty line. Returns `None` when it is not HTTP.
    pub(super) fn from_head(head: Vec<u8>, connection: usize) -> Option<Self> {
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut lines = text.trim_end_matches("\r\n").split("\r\n");
        let line = lines.next().filter(|line| line.contains(" HTTP/1."))?.to_owned();
        let headers = lines
            .map(|line| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned())))
            .collect::<Option<Vec<_>>>()?;
        let (body, raw_body) = (Vec::new(), Vec::new());
        Some(Self { line, headers, head, body, raw_body, at: Instant::now(), connection, complete: false })
    }

    pub(crate) fn method(&self) -> &str {
        self.line.split(' ').next().unwrap_or_default()
    }

    /// Path and query as sent.
    pub(crate) fn target(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    /// Returns the first header with this name, ignoring case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns all values of a header in order.
    pub(crate) fn header_all(&self, name: &str) -> Vec<&str> {
        let same_name = self.headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        same_name.map(|(_, value)| value.as_str()).collect()
    }

    /// Returns the header names as sent, in order.
    pub(crate) fn header_names(&self) -> Vec<&str> {
        self.headers.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Parses the body as JSON; panics when it is not JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("the request body is JSON")
    }

    pub(super) fn expects_continue(&self) -> bool {
        self.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue"))
    }

    /// Whether the connection closes after this request.
    pub(super) fn is_last(&self) -> bool {
        let asks = self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        asks || self.line.ends_with("HTTP/1.0")
    }

    pub(super) fn body_framing(&self) -> BodyFraming {
        if self
            .header("transfer-encoding")
            .is_some_and(|value| value.to_ascii_lowercase().contains("chunked"))
        {
            return BodyFraming::Chunked;
        }
        let length = self.header("content-length").and_then(|value| value.parse().ok());
        BodyFraming::Length(length.unwrap_or(0))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum BodyFraming {
    Length(usize),
    Chunked,
}

/// Length of the request head in `bytes`, including the empty line.
pub(super) fn head_length(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// Incremental parser of a request body.
pub(super) struct BodyReader {
    at: At,
}

#[derive(Clone, Copy)]
enum At {
    /// Inside a body of known length, with the number of remaining bytes.
    Body(usize),
    ChunkSize,
    /// Inside a chunk, with the number of remaining bytes.
    Chunk(usize),
    ChunkEnd,
    Trailers,
    Done,
}

/// The bytes do not match the announced framing.
pub(super) struct Malformed;

impl BodyReader {
    pub(super) fn new(framing: BodyFraming) -> Self {
        let at = match framing {
            BodyFraming::Length(0) => At::Done,
            BodyFraming::Length(length) => At::Body(length),
            BodyFraming::Chunked => At::ChunkSize,
        };
        Self { at }
    }

    /// Moves body bytes from the inbox into the request. Called again when more bytes arrive.
    pub(super) fn take(&mut self, inbox: &mut Vec<u8>, request: &mut Request) -> Result<(), Malformed> {
        loop {
            self.at = match self.at {
                At::Done => {
                    request.complete = true;
                    return Ok(());
                }
                At::Body(_) | At::Chunk(_) if inbox.is_empty() => return Ok(()),
                At::Body(left) => match take_payload(inbox, request, left) {
                    0 => At::Done,
                    left => At::Body(left),
                },
                At::Chunk(left) => match take_payload(inbox, request, left) {
                    0 => At::ChunkEnd,
                    left => At::Chunk(left),
                },
                At::ChunkSize => match take_line(inbox, request) {
                    None => return Ok(()),
                    Some(line) => match chunk_size(&line)? {
                        0 => At::Trailers,
                        size => At::Chunk(size),
                    },
                },
                At::ChunkEnd => match take_line(inbox, request) {
                    None => return Ok(()),
                    Some(line) if line.is_empty() => At::ChunkSize,
                    Some(_) => return Err(Malformed),
                },
                At::Trailers => match take_line(inbox, request) {
                    None => return Ok(()),
                    Some(line) if line.is_empty() => At::Done,
                    Some(_) => At::Trailers,
                },
            }
        }
    }
}

/// Moves up to `left` bytes of payload and returns the number of remaining bytes.
fn take_payload(inbox: &mut Vec<u8>, request: &mut Request, left: usize) -> usize {
    let taken: Vec<u8> = inbox.drain(..left.min(inbox.len())).collect();
    request.body.extend_from_slice(&taken);
    request.raw_body.extend_from_slice(&taken);
    left - taken.len()
}

/// Moves one complete line and returns it without its terminator.
fn take_line(inbox: &mut Vec<u8>, request: &mut Request) -> Option<Vec<u8>> {
    let length = inbox.windows(2).position(|window| window == b"\r\n")?;
    let mut line: Vec<u8> = inbox.drain(..length + 2).collect();
    request.raw_body.extend_from_slice(&line);
    line.truncate(length);
    Some(line)
}

fn chunk_size(line: &[u8]) -> Result<usize, Malformed> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let text = std::str::from_utf8(digits).map_err(|_| Malformed)?;
    usize::from_str_radix(text.trim(), 16).map_err(|_| Malformed)
}
