//! A minimal HTTP/1.1 parser for loopback: the end of a head, the framing of the body, and an incremental body
//! decoder.

use memchr::memmem;

use crate::error::{BenchError, BenchResult};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Length including the empty line.
    pub(crate) length: usize,
    pub(crate) body: Body,
    pub(crate) close: bool,
}

/// The remaining part of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// Neither a length nor chunked encoding was announced.
    Unframed,
    Bytes(u64),
    Chunked(Chunk),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    Size { value: u64, in_extension: bool },
    Data(u64),
    AfterData,
    Trailer { line: u32 },
    Done,
}

/// Parses the head at the start of `bytes` once it is complete. Works for requests and responses.
pub(crate) fn parse_head(bytes: &[u8]) -> Option<Head> {
    let length = memmem::find(bytes, b"\r\n\r\n")? + 4;
    let mut head = Head { length, body: Body::Unframed, close: false };
    let mut rest = bytes.get(..length)?;
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let (line, next) = rest.split_at_checked(end + 1)?;
        rest = next;
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = line.split_at_checked(colon)?;
        let value = value.get(1..)?.trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            head.body = Body::Bytes(std::str::from_utf8(value).ok()?.parse().ok()?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") && value.eq_ignore_ascii_case(b"chunked") {
            head.body = Body::Chunked(Chunk::Size { value: 0, in_extension: false });
        } else if name.eq_ignore_ascii_case(b"connection") {
            head.close = value.eq_ignore_ascii_case(b"close");
        }
    }
    Some(head)
}

/// Returns the status of a response whose head is complete.
pub(crate) fn status(head: &[u8]) -> Option<u16> {
    std::str::from_utf8(head.get(9..12)?).ok()?.parse().ok()
}

impl Body {
    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Self::Bytes(0) | Self::Chunked(Chunk::Done) | Self::Unframed)
    }

    /// Consumes bytes of this body, passes the content to `sink`, and returns the number of consumed bytes.
    pub(crate) fn feed(&mut self, input: &[u8], sink: &mut impl FnMut(&[u8])) -> BenchResult<usize> {
        match self {
            Self::Unframed => Ok(0),
            Self::Bytes(left) => Ok(take(left, input, sink)),
            Self::Chunked(chunk) => chunk.feed(input, sink),
        }
    }
}

impl Chunk {
    fn feed(&mut self, input: &[u8], sink: &mut impl FnMut(&[u8])) -> BenchResult<usize> {
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            match self {
                Self::Done => break,
                Self::Data(left) => {
                    at += take(left, input.get(at..).unwrap_or_default(), sink);
                    if *left == 0 {
                        *self = Self::AfterData;
                    }
                    continue;
                }
                Self::Size { value, in_extension } => match (byte, (byte as char).to_digit(16)) {
                    (b'\n', _) if *value == 0 => *self = Self::Trailer { line: 0 },
                    (b'\n', _) => *self = Self::Data(*value),
                    (b'\r', _) => {}
                    (b';', _) => *in_extension = true,
                    _ if *in_extension => {}
                    (_, Some(digit)) if *value < 1 << 56 => *value = *value * 16 + u64::from(digit),
                    _ => return Err(BenchError::new("invalid chunk size")),
                },
                Self::AfterData => match byte {
                    b'\n' => *self = Self::Size { value: 0, in_extension: false },
                    b'\r' => {}
                    _ => return Err(BenchError::new("a chunk is longer than its size")),
                },
                Self::Trailer { line } => match byte {
                    b'\n' if *line == 0 => *self = Self::Done,
                    b'\n' => *line = 0,
                    b'\r' => {}
                    _ => *line += 1,
                },
            }
            at += 1;
        }
        Ok(at)
    }
}

fn take(left: &mut u64, input: &[u8], sink: &mut impl FnMut(&[u8])) -> usize {
    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
    if taken > 0 {
        sink(input.get(..taken).unwrap_or_default());
        *left -= taken as u64;
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(body: &mut Body, pieces: &[&[u8]]) -> (Vec<u8>, usize) {
        let (mut content, mut taken) = (Vec::new(), 0);
        for piece in pieces {
            taken += body.feed(piece, &mut |bytes| content.extend_from_slice(bytes)).unwrap();
        }
        (content, taken)
    }

    #[test]
    fn chunks_decode_alike_however_they_are_cut() {
        let wire = b"5;x=y\r\nhello\r\n11\r\n, chunked world!!\r\n0\r\nTrailer: 1\r\n\r\n";
        for first in 0..wire.len() {
            for second in first..wire.len() {
                let mut body = Body::Chunked(Chunk::Size { value: 0, in_extension: false });
                let pieces = [&wire[..first], &wire[first..second], &wire[second..]];
                let (content, taken) = decode(&mut body, &pieces);
                assert_eq!(content, b"hello, chunked world!!");
                assert_eq!(taken, wire.len());
                assert!(body.is_done());
            }
        }
    }

    #[test]
    fn a_body_does_not_consume_following_bytes() {
        let mut body = Body::Bytes(5);
        assert_eq!(decode(&mut body, &[b"hel", b"loHTTP"]), (b"hello".to_vec(), 5));
        let mut body = Body::Chunked(Chunk::Size { value: 0, in_extension: false });
        assert_eq!(decode(&mut body, &[b"0\r\n\r\nHTTP"]).1, 5);
    }

    #[test]
    fn a_truncated_body_is_not_done() {
        let mut body = Body::Chunked(Chunk::Size { value: 0, in_extension: false });
        decode(&mut body, &[b"5\r\nhello\r\n0\r\n"]);
        assert!(!body.is_done());
    }

    #[test]
    fn garbage_in_place_of_a_chunk_size_is_an_error() {
        let mut body = Body::Chunked(Chunk::Size { value: 0, in_extension: false });
        assert!(body.feed(b"zz\r\n", &mut |_| {}).is_err());
    }

    #[test]
    fn a_head_determines_framing_and_closing() {
        let head =
            parse_head(b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 12\r\nConnection: close\r\n\r\nrest").unwrap();
        assert_eq!((head.length, head.body, head.close), (58, Body::Bytes(12), true));
        let head = parse_head(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        assert!(matches!(head.body, Body::Chunked(_)));
        assert_eq!(parse_head(b"HTTP/1.1 200 OK\r\n"), None);
        assert_eq!(status(b"HTTP/1.1 404 Not Found\r\n\r\n"), Some(404));
    }
}
