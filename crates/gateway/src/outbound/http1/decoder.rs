//! The end of a response body: by its length, by chunks, or by the end of the connection.

use bytes::{Bytes, BytesMut};

use super::{ConnectionError, consume};

/// The bytes of all chunk extensions, and those of the trailers.
const MAX_IGNORED: usize = 16 << 10;
/// Chunks that have arrived together are joined to pieces of at least this size. HTTP/2 keeps some hundred bytes
/// for each piece that it sends, however small it is.
const MIN_PIECE: usize = 4 << 10;

/// Finds the data in what has been read of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoder {
    /// So many bytes follow.
    Length(u64),
    Chunked(Chunks),
    UntilClose,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chunks {
    state: State,
    /// Bytes of extensions and trailers so far.
    ignored: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size {
        size: u64,
        has_digits: bool,
    },
    /// Whitespace after the size.
    AfterSize(u64),
    Extension(u64),
    SizeLf(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// At the start of a line of trailers.
    Trailers,
    Trailer,
    TrailerLf,
    EndLf,
    End,
}

impl Default for State {
    fn default() -> Self {
        Self::Size { size: 0, has_digits: false }
    }
}

impl Decoder {
    pub const NONE: Self = Self::Length(0);

    pub fn chunked() -> Self {
        Self::Chunked(Chunks::default())
    }

    /// The body has ended.
    pub fn is_done(&self) -> bool {
        match self {
            Self::Length(rest) => *rest == 0,
            Self::Chunked(chunks) => chunks.state == State::End,
            Self::UntilClose => false,
        }
    }

    /// The bytes that follow, if that is known.
    pub fn rest(&self) -> Option<u64> {
        match self {
            Self::Length(rest) => Some(*rest),
            Self::Chunked(_) | Self::UntilClose => None,
        }
    }

    /// Takes the next data out of what has been read. None: more must be read, or the body has ended. The end is known
    /// with the last data if it has been read too.
    pub fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, ConnectionError> {
        match self {
            Self::Length(rest) => {
                let data = take(input, *rest);
                *rest -= data.len() as u64;
                Ok(Some(data).filter(|data| !data.is_empty()))
            }
            Self::Chunked(chunks) => chunks.decode(input),
            Self::UntilClose => Ok(Some(std::mem::take(input)).filter(|data| !data.is_empty())),
        }
    }

    /// The connection has ended. An error if the body has not.
    pub fn close(&mut self) -> Result<(), ConnectionError> {
        if *self == Self::UntilClose {
            *self = Self::NONE;
        }
        if self.is_done() { Ok(()) } else { Err(ConnectionError::Closed) }
    }
}

impl Chunks {
    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, ConnectionError> {
        self.skip_framing(input)?;
        let mut data = self.take_data(input);
        if data.len() < MIN_PIECE && self.has_data(input) {
            let mut joined = BytesMut::with_capacity(MIN_PIECE);
            joined.extend_from_slice(&data);
            while joined.len() < MIN_PIECE && self.has_data(input) {
                joined.extend_from_slice(&self.take_data(input));
            }
            data = joined.freeze();
        }
        Ok(Some(data).filter(|data| !data.is_empty()))
    }

    fn has_data(&self, input: &Bytes) -> bool {
        matches!(self.state, State::Data(_)) && !input.is_empty()
    }

    /// Takes what has been read of the current chunk, and reads up to the next one.
    fn take_data(&mut self, input: &mut Bytes) -> Bytes {
        let State::Data(rest) = self.state else { return Bytes::new() };
        let data = take(input, rest);
        let rest = rest - data.len() as u64;
        self.state = if rest == 0 { State::DataCr } else { State::Data(rest) };
        // Broken framing is an error of the next call: what precedes it has arrived.
        let _ = self.skip_framing(input);
        data
    }

    /// Reads up to the next data, or up to the byte that is invalid.
    fn skip_framing(&mut self, input: &mut Bytes) -> Result<(), ConnectionError> {
        let (mut used, mut result) = (0, Ok(()));
        for byte in &input[..] {
            if matches!(self.state, State::Data(_) | State::End) {
                break;
            }
            match self.step(*byte) {
                Ok(state) => self.state = state,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
            used += 1;
        }
        consume(input, used);
        result
    }

    fn step(&mut self, byte: u8) -> Result<State, ConnectionError> {
        const INVALID_SIZE: ConnectionError = ConnectionError::Invalid("a chunk has an invalid size");
        Ok(match (self.state, byte) {
            (State::Size { size, .. }, byte) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                let size =
                    size.checked_mul(16).and_then(|size| size.checked_add(digit)).ok_or(INVALID_SIZE)?;
                State::Size { size, has_digits: true }
            }
            (State::Size { size, has_digits: true } | State::AfterSize(size), b' ' | b'\t') => {
                State::AfterSize(size)
            }
            (State::Size { size, has_digits: true } | State::AfterSize(size), b';') => State::Extension(size),
            (
                State::Size { size, has_digits: true } | State::AfterSize(size) | State::Extension(size),
                b'\r',
            ) => State::SizeLf(size),
            (State::Extension(size), byte) if byte != b'\n' => {
                self.ignore()?;
                State::Extension(size)
            }
            (State::SizeLf(0) | State::TrailerLf, b'\n') => State::Trailers,
            (State::SizeLf(size), b'\n') => State::Data(size),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::default(),
            (State::Trailers, b'\r') => State::EndLf,
            (State::EndLf, b'\n') => State::End,
            (State::Trailer, b'\r') => State::TrailerLf,
            // Trailers belong to the connection, and nobody reads them.
            (State::Trailers | State::Trailer, byte) if byte != b'\n' => {
                self.ignore()?;
                State::Trailer
            }
            (State::Trailers | State::Trailer | State::TrailerLf, _) => {
                return Err(ConnectionError::Invalid("a trailer has no end"));
            }
            (State::DataCr | State::DataLf | State::EndLf, _) => {
                return Err(ConnectionError::Invalid("a chunk has no end"));
            }
            _ => return Err(INVALID_SIZE),
        })
    }

    fn ignore(&mut self) -> Result<(), ConnectionError> {
        self.ignored += 1;
        if self.ignored > MAX_IGNORED {
            return Err(ConnectionError::Invalid("chunk extensions or trailers are too long"));
        }
        Ok(())
    }
}

/// At most so many bytes from the start.
fn take(input: &mut Bytes, most: u64) -> Bytes {
    match usize::try_from(most) {
        Ok(most) if most < input.len() => input.split_to(most),
        _ => std::mem::take(input),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is decoded of a body that arrives in pieces of some size, and what follows it.
    fn decode(decoder: &mut Decoder, body: &[u8], size: usize) -> Result<(Vec<u8>, Bytes), ConnectionError> {
        let (mut data, mut input) = (Vec::new(), Bytes::new());
        for piece in body.chunks(size) {
            input = [&input[..], piece].concat().into();
            while let Some(found) = decoder.decode(&mut input)? {
                assert!(!found.is_empty());
                data.extend_from_slice(&found);
            }
        }
        Ok((data, input))
    }

    #[test]
    fn a_chunked_body_is_the_same_in_pieces_of_any_size() {
        let body = b"5\r\nhello\r\nA ;name=\"v\"\r\n, world!!!\r\n0;x\r\nServer-Timing: a\r\nX: \r\n\r\nHTTP";
        for size in 1..=body.len() {
            let mut decoder = Decoder::chunked();
            let (data, rest) = decode(&mut decoder, body, size).unwrap();
            assert_eq!((&data[..], &rest[..]), (&b"hello, world!!!"[..], &b"HTTP"[..]), "{size}");
            assert!(decoder.is_done() && decoder.close().is_ok());
        }
    }

    #[test]
    fn the_end_of_a_chunked_body_is_known_with_its_last_data() {
        let (mut decoder, mut input) = (Decoder::chunked(), Bytes::from_static(b"2\r\nab\r\n0\r\n\r\n"));
        assert_eq!(decoder.decode(&mut input).unwrap().as_deref(), Some(&b"ab"[..]));
        assert!(decoder.is_done() && input.is_empty());
    }

    #[test]
    fn small_chunks_that_arrive_together_are_one_piece() {
        let body: Vec<u8> = (0..10_000).flat_map(|_| *b"1\r\nx\r\n").chain(*b"0\r\n\r\n").collect();
        let (mut decoder, mut input, mut lengths) = (Decoder::chunked(), Bytes::from(body), Vec::new());
        while let Some(data) = decoder.decode(&mut input).unwrap() {
            lengths.push(data.len());
        }
        assert_eq!(lengths, [MIN_PIECE, MIN_PIECE, 10_000 - 2 * MIN_PIECE]);
        assert!(decoder.is_done() && input.is_empty());
        // A large chunk is not copied.
        let large = Bytes::from([&b"2000\r\n"[..], &[b'x'; 0x2000], b"\r\n1\r\ny\r\n0\r\n\r\n"].concat());
        let (mut decoder, mut input) = (Decoder::chunked(), large.clone());
        let data = decoder.decode(&mut input).unwrap().unwrap();
        assert!(std::ptr::eq(data.as_ptr(), large[6..].as_ptr()) && data.len() == 0x2000);
        assert_eq!(decoder.decode(&mut input).unwrap().as_deref(), Some(&b"y"[..]));
    }

    #[test]
    fn a_body_with_a_length_ends_there() {
        let mut decoder = Decoder::Length(5);
        assert_eq!(decoder.rest(), Some(5));
        let (data, rest) = decode(&mut decoder, b"hello, world", 3).unwrap();
        assert_eq!((&data[..], &rest[..]), (&b"hello"[..], &b", world"[..]));
        assert!(decoder.is_done());
        assert!(Decoder::Length(1).close().is_err(), "it is cut off");
    }

    #[test]
    fn a_body_without_a_length_ends_with_the_connection() {
        let mut decoder = Decoder::UntilClose;
        assert_eq!(decode(&mut decoder, b"abc", 2).unwrap().0, b"abc");
        assert!(!decoder.is_done() && decoder.close().is_ok() && decoder.is_done());
    }

    #[test]
    fn broken_framing_is_an_error() {
        for body in [
            &b"\r\n"[..],
            b"g\r\n",
            b" 5\r\nhello",
            b"5\nhello",
            b"5 5\r\n",
            b"11111111111111111\r\n",
            b"1;a\nb\r\n",
            b"1\r\nabc",
            b"1\r\na\rb",
            b"0\r\n\rx",
            b"0\r\na: b\n\r\n",
            b"0\r\n\n",
            b"0\r\na: b\rc\r\n",
        ] {
            assert!(decode(&mut Decoder::chunked(), body, 1).is_err(), "{}", body.escape_ascii());
        }
        for part in ["1;", "0\r\n"] {
            let body = [part.as_bytes(), &vec![b'x'; MAX_IGNORED + 1]].concat();
            assert!(decode(&mut Decoder::chunked(), &body, 1_000).is_err(), "{part}");
        }
        assert!(Decoder::chunked().close().is_err());
    }
}
