//! The heads of requests and responses.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri, Version};
use httparse::{ParserConfig, Status};

use super::decoder::Decoder;
use super::{ConnectionError, consume};

/// More headers make a response invalid.
const MAX_HEADERS: usize = 100;
/// A longer head makes a response invalid.
const MAX_HEAD: usize = 64 << 10;
const PROTOCOL: &[u8] = b"HTTP/1.";

/// How the end of a request body is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestLength {
    /// There is no body.
    None,
    Known(u64),
    Chunked,
}

/// Appends the head of a request. Its host is that of the URI unless it has a header of that name.
pub fn encode((method, uri): (&Method, &Uri), headers: &HeaderMap, length: RequestLength, out: &mut Vec<u8>) {
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let slash = if path.starts_with(['/', '*']) { "" } else { "/" };
    for part in [method.as_str(), " ", slash, path, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    let mut has_host = false;
    for (name, value) in headers {
        has_host |= *name == HOST;
        // The length is that of the body. Without one, the caller may say so: with another length, the host would take
        // the next request of the connection for the body of this one.
        let is_ours = *name == TRANSFER_ENCODING
            || (*name == CONTENT_LENGTH && (length != RequestLength::None || value != "0"));
        if !is_ours {
            line(out, name.as_str(), value.as_bytes());
        }
    }
    if !has_host {
        line(out, "host", host(uri).as_bytes());
    }
    match length {
        RequestLength::None => {}
        RequestLength::Known(length) => {
            line(out, "content-length", itoa::Buffer::new().format(length).as_bytes());
        }
        RequestLength::Chunked => line(out, "transfer-encoding", b"chunked"),
    }
    out.extend_from_slice(b"\r\n");
}

fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The host as a header has it: without the port of the scheme and without a user.
fn host(uri: &Uri) -> &str {
    let Some(authority) = uri.authority() else { return "" };
    match (authority.port_u16(), uri.scheme_str()) {
        (Some(80), Some("http")) | (Some(443), Some("https")) => authority.host(),
        _ => authority.as_str().rsplit('@').next().unwrap_or_default(),
    }
}

/// The head of a response.
#[derive(Debug)]
pub struct ResponseHead {
    pub response: Response<()>,
    pub body: Decoder,
    /// The connection can be used again after the body.
    pub keep_alive: bool,
}

/// The search for the head of a response in what has been read, which grows from one call to the next.
#[derive(Debug, Default)]
pub struct HeadSearch {
    /// How much of the input has no end of a head: a head that arrives in many pieces is not parsed again with each.
    searched: usize,
    /// The bytes of empty lines and of interim responses before the head.
    skipped: usize,
}

impl HeadSearch {
    /// Takes the head of the response out of what has been read. None: more must be read.
    pub fn find(
        &mut self,
        input: &mut Bytes,
        method: &Method,
    ) -> Result<Option<ResponseHead>, ConnectionError> {
        loop {
            self.skip_empty_lines(input)?;
            let length = input.len();
            let head = if self.may_have_ended(input) { parse(input, method)? } else { None };
            let Some(head) = head else {
                self.searched = length;
                return Ok(None);
            };
            self.searched = 0;
            match head.response.status() {
                StatusCode::SWITCHING_PROTOCOLS => {
                    let reason = "the response switches the protocol, which was not asked for";
                    return Err(ConnectionError::Invalid(reason));
                }
                // `100 Continue` and the like precede the response.
                status if status.is_informational() => self.skip(length - input.len())?,
                _ => return Ok(Some(head)),
            }
        }
    }

    /// Whether a head may end in the input, or cannot become one. An empty line ends it.
    fn may_have_ended(&self, input: &[u8]) -> bool {
        // An empty line may have begun in what was searched.
        let new = input.get(self.searched.saturating_sub(2)..).unwrap_or_default();
        let mut line_ends = memchr::memchr_iter(b'\n', new);
        line_ends.any(|at| matches!(&new[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
            || input.len() > MAX_HEAD
            || !begins_as_response(input)
    }

    /// Some hosts send empty lines before the response.
    fn skip_empty_lines(&mut self, input: &mut Bytes) -> Result<(), ConnectionError> {
        let mut rest = &input[..];
        while let [b'\n', after @ ..] | [b'\r', b'\n', after @ ..] = rest {
            rest = after;
        }
        let skipped = input.len() - rest.len();
        if skipped > 0 {
            consume(input, skipped);
            self.searched = 0;
            self.skip(skipped)?;
        }
        Ok(())
    }

    fn skip(&mut self, bytes: usize) -> Result<(), ConnectionError> {
        self.skipped += bytes;
        if self.skipped > MAX_HEAD {
            return Err(ConnectionError::Invalid("too much precedes the response"));
        }
        Ok(())
    }
}

/// A host that speaks another protocol mostly sends a line, and waits.
fn begins_as_response(input: &[u8]) -> bool {
    let compared = input.len().min(PROTOCOL.len());
    input[..compared] == PROTOCOL[..compared] || input == b"\r"
}

fn parse(input: &mut Bytes, method: &Method) -> Result<Option<ResponseHead>, ConnectionError> {
    const INVALID: ConnectionError = ConnectionError::Invalid("the head of the response is invalid");
    let bytes = input.clone();
    let mut lines = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut []);
    let status = ParserConfig::default().parse_response_with_uninit_headers(&mut parsed, &bytes, &mut lines);
    let length = match status {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if bytes.len() <= MAX_HEAD => return Ok(None),
        Ok(Status::Partial) => return Err(ConnectionError::Invalid("the head of the response is too long")),
        Err(_) => return Err(INVALID),
    };
    let is_http11 = parsed.version == Some(1);
    let mut framing = Framing { keep_alive: is_http11, ..Framing::default() };
    let mut headers = HeaderMap::with_capacity(parsed.headers.len());
    for line in &*parsed.headers {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| INVALID)?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(line.value)).map_err(|_| INVALID)?;
        framing.read_header(&name, &value)?;
        headers.append(name, value);
    }
    // The chunks count (RFC 9112, section 6.3). A length beside them would be wrong for a client.
    if framing.is_chunked.is_some() {
        headers.remove(CONTENT_LENGTH);
    }
    let mut response = Response::new(());
    *response.status_mut() = parsed.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(INVALID)?;
    *response.version_mut() = if is_http11 { Version::HTTP_11 } else { Version::HTTP_10 };
    *response.headers_mut() = headers;
    let body = framing.body(response.status(), method, is_http11)?;
    let keep_alive = framing.keep_alive && !framing.is_ambiguous();
    consume(input, length);
    Ok(Some(ResponseHead { response, body, keep_alive }))
}

/// What headers say about the message.
#[derive(Default)]
struct Framing {
    keep_alive: bool,
    says_close: bool,
    length: Option<u64>,
    /// Whether the last transfer coding is that of chunks.
    is_chunked: Option<bool>,
}

impl Framing {
    fn read_header(&mut self, name: &HeaderName, value: &HeaderValue) -> Result<(), ConnectionError> {
        let tokens = || value.to_str().unwrap_or_default().split(',').map(str::trim);
        if *name == CONNECTION {
            self.says_close |= tokens().any(|token| token.eq_ignore_ascii_case("close"));
            self.keep_alive |= tokens().any(|token| token.eq_ignore_ascii_case("keep-alive"));
            self.keep_alive &= !self.says_close;
        } else if *name == TRANSFER_ENCODING {
            self.is_chunked =
                Some(tokens().next_back().is_some_and(|last| last.eq_ignore_ascii_case("chunked")));
        } else if *name == CONTENT_LENGTH {
            for token in tokens() {
                let length = Some(token).filter(|token| token.bytes().all(|byte| byte.is_ascii_digit()));
                let length = length.and_then(|token| token.parse().ok());
                if length.is_none() || self.length.is_some_and(|known| Some(known) != length) {
                    return Err(ConnectionError::Invalid("the response has an invalid length"));
                }
                self.length = length;
            }
        }
        Ok(())
    }

    /// Two lengths: another program on the way may have read the other one.
    fn is_ambiguous(&self) -> bool {
        self.is_chunked.is_some() && self.length.is_some()
    }

    fn body(&self, status: StatusCode, method: &Method, is_http11: bool) -> Result<Decoder, ConnectionError> {
        let has_none = status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            || *method == Method::HEAD;
        Ok(match (self.is_chunked, self.length) {
            _ if has_none => Decoder::NONE,
            (Some(_), _) if !is_http11 => {
                return Err(ConnectionError::Invalid("a response of HTTP/1.0 has a transfer encoding"));
            }
            (Some(true), _) => Decoder::chunked(),
            (None, Some(length)) => Decoder::Length(length),
            (Some(false), _) | (None, None) => Decoder::UntilClose,
        })
    }
}

#[cfg(test)]
mod tests;
