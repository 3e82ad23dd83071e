//! Amazon's `application/vnd.amazon.eventstream`, the streaming format of Bedrock: binary frames with checksums,
//! headers and payloads. The decoder is incremental and bounded. A wrong checksum ends the stream, because the start of
//! the next frame is unknown then.

use thiserror::Error;

/// Amazon allows 24 MiB of payload and 128 KiB of headers.
const MAX_FRAME: usize = (24 << 20) + (128 << 10) + OVERHEAD;
const PRELUDE: usize = 12;
const CHECKSUM: usize = 4;
const OVERHEAD: usize = PRELUDE + CHECKSUM;

/// One frame, with the headers that give its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Frame<'a> {
    pub event_type: Option<&'a str>,
    /// Set for errors inside a stream. Amazon calls some of them exceptions and some errors.
    pub exception_type: Option<&'a str>,
    pub payload: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("invalid frame length")]
    Length,
    #[error("wrong prelude checksum")]
    PreludeChecksum,
    #[error("wrong message checksum")]
    MessageChecksum,
    #[error("malformed frame headers")]
    Headers,
}

/// Reads frames from a byte stream.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// The incomplete frame of earlier chunks.
    buffered: Vec<u8>,
    failed: Option<FrameError>,
}

impl FrameReader {
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `visit` for every frame that this chunk completes. An error is final and returned for every later chunk.
    pub fn feed(&mut self, chunk: &[u8], mut visit: impl FnMut(Frame<'_>)) -> Result<(), FrameError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = self.read(chunk, &mut visit);
        if let Err(error) = result {
            self.failed = Some(error);
            self.buffered = Vec::new();
        }
        result
    }

    /// An invalid frame has ended the reading.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Whether the stream may end here, between two frames.
    pub fn at_boundary(&self) -> bool {
        self.buffered.is_empty() && self.failed.is_none()
    }

    fn read(&mut self, chunk: &[u8], visit: &mut impl FnMut(Frame<'_>)) -> Result<(), FrameError> {
        let mut rest = chunk;
        while !self.buffered.is_empty() {
            let needed = match frame_length(&self.buffered)? {
                Some(length) => length,
                None => PRELUDE,
            };
            let (taken, after) = rest.split_at((needed - self.buffered.len()).min(rest.len()));
            self.buffered.extend_from_slice(taken);
            rest = after;
            if self.buffered.len() < needed {
                return Ok(());
            }
            if frame_length(&self.buffered)? == Some(self.buffered.len()) {
                visit(decode(&self.buffered)?);
                self.buffered.clear();
                self.buffered.shrink_to(64 << 10);
            }
        }
        while let Some(length) = frame_length(rest)? {
            let Some((frame, after)) = rest.split_at_checked(length) else { break };
            visit(decode(frame)?);
            rest = after;
        }
        self.buffered.extend_from_slice(rest);
        Ok(())
    }
}

/// Encodes a frame with string headers, as Bedrock uses them.
pub fn encode(headers: &[(&str, &str)], payload: &[u8]) -> Result<Vec<u8>, FrameError> {
    const STRING: u8 = 7;
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(u8::try_from(name.len()).map_err(|_| FrameError::Headers)?);
        block.extend_from_slice(name.as_bytes());
        block.push(STRING);
        block.extend_from_slice(&u16::try_from(value.len()).map_err(|_| FrameError::Headers)?.to_be_bytes());
        block.extend_from_slice(value.as_bytes());
    }
    let total = OVERHEAD + block.len() + payload.len();
    if total > MAX_FRAME {
        return Err(FrameError::Length);
    }
    let mut frame = Vec::with_capacity(total);
    for length in [total, block.len()] {
        frame.extend_from_slice(&u32::try_from(length).map_err(|_| FrameError::Length)?.to_be_bytes());
    }
    frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
    frame.extend_from_slice(&block);
    frame.extend_from_slice(payload);
    frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
    Ok(frame)
}

/// The length of the frame that starts here. None until its prelude is complete; the prelude's checksum is verified.
fn frame_length(bytes: &[u8]) -> Result<Option<usize>, FrameError> {
    let Some(prelude) = bytes.get(..PRELUDE) else { return Ok(None) };
    if crc32fast::hash(&prelude[..8]) != number(&prelude[8..]) {
        return Err(FrameError::PreludeChecksum);
    }
    let (total, headers) = (number(prelude) as usize, number(&prelude[4..]) as usize);
    if total > MAX_FRAME || headers > total.saturating_sub(OVERHEAD) || total < OVERHEAD {
        return Err(FrameError::Length);
    }
    Ok(Some(total))
}

fn decode(frame: &[u8]) -> Result<Frame<'_>, FrameError> {
    let (message, checksum) = frame.split_at(frame.len() - CHECKSUM);
    if crc32fast::hash(message) != number(checksum) {
        return Err(FrameError::MessageChecksum);
    }
    let headers_end = PRELUDE + number(&message[4..]) as usize;
    let mut found = Frame { payload: &message[headers_end..], ..Frame::default() };
    let mut error_code = None;
    let mut rest = &message[PRELUDE..headers_end];
    while !rest.is_empty() {
        let (name, value, after) = header(rest).ok_or(FrameError::Headers)?;
        rest = after;
        match name {
            b":event-type" => found.event_type = value,
            b":exception-type" => found.exception_type = value,
            b":error-code" => error_code = value,
            _ => {}
        }
    }
    found.exception_type = found.exception_type.or(error_code);
    Ok(found)
}

type Header<'a> = (&'a [u8], Option<&'a str>, &'a [u8]);

/// One header: its name, its value if it is a string, and the bytes behind it.
fn header(bytes: &[u8]) -> Option<Header<'_>> {
    let (length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let (kind, rest) = rest.split_first()?;
    let (size, rest) = match kind {
        0 | 1 => (0, rest),
        2 => (1, rest),
        3 => (2, rest),
        4 => (4, rest),
        5 | 8 => (8, rest),
        9 => (16, rest),
        6 | 7 => {
            let (size, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*size)), rest)
        }
        _ => return None,
    };
    let (value, rest) = rest.split_at_checked(size)?;
    let text = if *kind == 7 { std::str::from_utf8(value).ok() } else { None };
    Some((name, text, rest))
}

fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk::<4>().map_or(0, |four| u32::from_be_bytes(*four))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Seen = (Option<String>, Option<String>, Vec<u8>);

    fn collect(chunks: &[&[u8]]) -> (Vec<Seen>, Option<FrameError>, bool) {
        let mut frames = FrameReader::new();
        let mut seen = Vec::new();
        let mut error = None;
        for chunk in chunks {
            let result = frames.feed(chunk, |frame| {
                seen.push((
                    frame.event_type.map(str::to_owned),
                    frame.exception_type.map(str::to_owned),
                    frame.payload.to_vec(),
                ));
            });
            error = error.or(result.err());
        }
        (seen, error, frames.at_boundary())
    }

    fn sample() -> Vec<u8> {
        let mut bytes =
            encode(&[(":event-type", "messageStart"), (":message-type", "event")], b"{}").unwrap();
        bytes.extend(
            encode(&[(":exception-type", "throttlingException")], b"{\"message\":\"slow\"}").unwrap(),
        );
        bytes.extend(encode(&[(":error-code", "InternalError")], b"").unwrap());
        bytes
    }

    #[test]
    fn frames_come_back_as_they_were_encoded() {
        let (seen, error, at_boundary) = collect(&[&sample()]);
        assert_eq!(error, None);
        assert!(at_boundary);
        assert_eq!(
            seen,
            [
                (Some("messageStart".into()), None, b"{}".to_vec()),
                (None, Some("throttlingException".into()), b"{\"message\":\"slow\"}".to_vec()),
                (None, Some("InternalError".into()), Vec::new()),
            ]
        );
    }

    /// The test vector "empty_message" of Amazon's suite.
    #[test]
    fn the_empty_message_of_amazon_is_read() {
        let frame = hex::decode("000000100000000005c248eb7d98c8ff").unwrap();
        assert_eq!(collect(&[&frame]).0, [(None, None, Vec::new())]);
        assert_eq!(encode(&[], b"").unwrap(), frame);
    }

    #[test]
    fn headers_of_other_types_are_stepped_over() {
        let mut block = b"\x04flag\x00\x04five\x05\0\0\0\0\0\0\0\x01".to_vec();
        block.extend_from_slice(b"\x0b:event-type\x07\0\x04pong");
        let mut frame = u32::try_from(OVERHEAD + block.len()).unwrap().to_be_bytes().to_vec();
        frame.extend(u32::try_from(block.len()).unwrap().to_be_bytes());
        frame.extend(crc32fast::hash(&frame).to_be_bytes());
        frame.extend(block);
        frame.extend(crc32fast::hash(&frame).to_be_bytes());
        assert_eq!(collect(&[&frame]).0, [(Some("pong".into()), None, Vec::new())]);
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let good = encode(&[(":event-type", "x")], b"payload").unwrap();
        for (place, expected) in [(1, FrameError::PreludeChecksum), (20, FrameError::MessageChecksum)] {
            let mut bad = good.clone();
            bad[place] ^= 1;
            assert_eq!(collect(&[&bad, &good]), (Vec::new(), Some(expected), false));
        }
    }

    #[test]
    fn an_oversized_frame_is_rejected_before_it_is_buffered() {
        let mut prelude = u32::MAX.to_be_bytes().to_vec();
        prelude.extend(0u32.to_be_bytes());
        prelude.extend(crc32fast::hash(&prelude).to_be_bytes());
        assert_eq!(collect(&[&prelude]).1, Some(FrameError::Length));
    }

    #[test]
    fn a_stream_cut_short_is_not_at_a_boundary() {
        let bytes = sample();
        assert!(!collect(&[&bytes[..bytes.len() - 1]]).2);
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_frames(
            size in 1usize..40,
            broken in proptest::option::of((0usize..150, 1u8..=255)),
        ) {
            let mut bytes = sample();
            if let Some((place, change)) = broken && let Some(byte) = bytes.get_mut(place) {
                *byte ^= change;
            }
            let chunks: Vec<&[u8]> = bytes.chunks(size).collect();
            prop_assert_eq!(collect(&chunks), collect(&[&bytes]));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = collect(&[&bytes]);
        }
    }
}
