//! Requests as they came over the wire, and the reading of them.

use std::time::Instant;

/// One request, with every byte that the peer sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The request line, e.g. `POST /v1/chat/completions?x=1 HTTP/1.1`.
    pub(crate) line: String,
    /// In order and in the case in which they were sent. Bytes that are not UTF-8 are replaced; `head` has them.
    pub(crate) headers: Vec<(String, String)>,
    /// Request line and headers as sent, the empty line included.
    pub(crate) head: Vec<u8>,
    /// The body without its framing.
    pub(crate) body: Vec<u8>,
    /// The body as sent: for a chunked one with chunk sizes and trailers.
    pub(crate) raw_body: Vec<u8>,
    /// When the head was complete.
    pub(crate) at: Instant,
    /// Which connection it came on, counted from 0.
    pub(crate) connection: usize,
    /// Whether all of the body is here.
    pub(crate) complete: bool,
}

impl Request {
    /// Takes a head apart that ends with an empty line; `None` when it is no HTTP.
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

    /// The first header of that name, in whatever case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// All values of a header, in order.
    pub(crate) fn header_all(&self, name: &str) -> Vec<&str> {
        let same_name = self.headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        same_name.map(|(_, value)| value.as_str()).collect()
    }

    /// The names of all headers as sent, in order.
    pub(crate) fn header_names(&self) -> Vec<&str> {
        self.headers.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// The body as JSON; fails the test when it is none.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("the request body is JSON")
    }

    pub(super) fn expects_continue(&self) -> bool {
        self.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue"))
    }

    /// Whether the connection is to be closed once this request is answered.
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

/// How much of `bytes` the request head takes, the empty line included.
pub(super) fn head_length(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// Takes a body off the wire piece by piece.
pub(super) struct BodyReader {
    at: At,
}

#[derive(Clone, Copy)]
enum At {
    /// Inside a body of known length, with so many bytes to come.
    Body(usize),
    ChunkSize,
    /// Inside a chunk, with so many bytes to come.
    Chunk(usize),
    ChunkEnd,
    Trailers,
    Done,
}

/// What comes is not the framing that the head announced.
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

    /// Moves what belongs to the body from the inbox into the request; more calls follow as more bytes come.
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

/// Moves up to `left` bytes of payload; how many are to come after that.
fn take_payload(inbox: &mut Vec<u8>, request: &mut Request, left: usize) -> usize {
    let taken: Vec<u8> = inbox.drain(..left.min(inbox.len())).collect();
    request.body.extend_from_slice(&taken);
    request.raw_body.extend_from_slice(&taken);
    left - taken.len()
}

/// Moves one line, if all of it is here; the line without its end.
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
