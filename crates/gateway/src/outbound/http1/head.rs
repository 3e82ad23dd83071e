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
mod tests {
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
        let (head, _) = parsed(
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            &Method::GET,
        );
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
}
