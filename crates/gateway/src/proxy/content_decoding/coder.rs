//! The codings behind one interface: a step consumes some input and writes some output.

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder, Operation as _};

use super::{Coding, DecodeError};

/// The largest window that a zstd body of HTTP may need: 8 MiB (RFC 9659).
const ZSTD_WINDOW_LOG: u32 = 23;
const GZIP_WINDOW_BITS: u8 = 15;
const GZIP_MAGIC: u8 = 0x1f;

pub(super) enum Coder {
    Gzip(GzipCoder),
    Deflate(DeflateCoder),
    Brotli(BrotliCoder),
    Zstd(ZstdCoder),
    /// The library cannot make a decoder.
    Unavailable,
}

pub(super) struct Step {
    pub consumed: usize,
    pub written: usize,
}

impl Coder {
    pub fn new(coding: Coding) -> Self {
        match coding {
            Coding::Gzip => Self::Gzip(GzipCoder { inflate: new_gzip(), is_at_end: false, is_ended: false }),
            Coding::Deflate => Self::Deflate(DeflateCoder { inflate: None, is_at_end: false }),
            Coding::Brotli => Self::Brotli(BrotliCoder::new()),
            Coding::Zstd => ZstdCoder::new().map_or(Self::Unavailable, Self::Zstd),
        }
    }

    pub fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, DecodeError> {
        match self {
            Self::Gzip(coder) => coder.step(input, output),
            Self::Deflate(coder) => coder.step(input, output),
            Self::Brotli(coder) => coder.step(input, output),
            Self::Zstd(coder) => coder.step(input, output),
            Self::Unavailable => Err(DecodeError::Corrupt),
        }
    }

    /// The input so far is complete.
    pub fn is_at_end(&self) -> bool {
        match self {
            Self::Gzip(coder) => coder.is_at_end,
            Self::Deflate(coder) => coder.is_at_end,
            Self::Brotli(coder) => coder.is_at_end,
            Self::Zstd(coder) => coder.is_at_end,
            Self::Unavailable => false,
        }
    }
}

fn new_gzip() -> Box<Decompress> {
    Box::new(Decompress::new_gzip(GZIP_WINDOW_BITS))
}

/// Also returns whether the compressed data has ended.
fn inflate(
    decompress: &mut Decompress,
    input: &[u8],
    output: &mut [u8],
) -> Result<(Step, bool), DecodeError> {
    let (read, wrote) = (decompress.total_in(), decompress.total_out());
    let status =
        decompress.decompress(input, output, FlushDecompress::Sync).map_err(|_| DecodeError::Corrupt)?;
    let moved = |now: u64, before: u64| usize::try_from(now - before).unwrap_or(usize::MAX);
    let step =
        Step { consumed: moved(decompress.total_in(), read), written: moved(decompress.total_out(), wrote) };
    Ok((step, status == Status::StreamEnd))
}

/// A gzip body is a sequence of members. Other bytes behind a member are padding.
pub(super) struct GzipCoder {
    inflate: Box<Decompress>,
    is_at_end: bool,
    /// Only padding follows.
    is_ended: bool,
}

impl GzipCoder {
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, DecodeError> {
        if self.is_at_end && !input.is_empty() {
            if self.is_ended || input[0] != GZIP_MAGIC {
                self.is_ended = true;
                return Ok(Step { consumed: input.len(), written: 0 });
            }
            self.inflate = new_gzip();
            self.is_at_end = false;
        } else if self.is_at_end {
            return Ok(Step { consumed: 0, written: 0 });
        }
        let (step, is_at_end) = inflate(&mut self.inflate, input, output)?;
        self.is_at_end = is_at_end;
        Ok(step)
    }
}

/// `deflate` is the zlib format by the standard, and bare deflate data by some servers.
pub(super) struct DeflateCoder {
    /// None until the first byte shows the format.
    inflate: Option<Box<Decompress>>,
    is_at_end: bool,
}

impl DeflateCoder {
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, DecodeError> {
        if self.is_at_end {
            return Ok(Step { consumed: input.len(), written: 0 });
        }
        let Some(first) = input.first() else {
            return match &mut self.inflate {
                Some(state) => inflate(state, input, output).map(|(step, _)| step),
                None => Ok(Step { consumed: 0, written: 0 }),
            };
        };
        // The low bits of a zlib header are 8. No encoder starts deflate data with them: it would be a stored block
        // with padding bits set.
        let has_header = first & 0x0f == 8;
        let state = self.inflate.get_or_insert_with(|| Box::new(Decompress::new(has_header)));
        let (step, is_at_end) = inflate(state, input, output)?;
        self.is_at_end = is_at_end;
        Ok(step)
    }
}

pub(super) struct BrotliCoder {
    state: Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>,
    is_at_end: bool,
}

impl BrotliCoder {
    fn new() -> Self {
        let alloc = StandardAlloc::default;
        // Strict: windows of at most 16 MiB, as in HTTP.
        Self { state: Box::new(BrotliState::new_strict(alloc(), alloc(), alloc())), is_at_end: false }
    }

    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, DecodeError> {
        if self.is_at_end {
            return Ok(Step { consumed: input.len(), written: 0 });
        }
        let (mut left, mut consumed) = (input.len(), 0);
        let (mut room, mut written) = (output.len(), 0);
        let mut total = 0;
        let result = BrotliDecompressStream(
            &mut left,
            &mut consumed,
            input,
            &mut room,
            &mut written,
            output,
            &mut total,
            &mut self.state,
        );
        match result {
            BrotliResult::ResultFailure => return Err(DecodeError::Corrupt),
            BrotliResult::ResultSuccess => self.is_at_end = true,
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
        }
        Ok(Step { consumed, written })
    }
}

pub(super) struct ZstdCoder {
    decoder: Box<ZstdDecoder<'static>>,
    is_at_end: bool,
}

impl ZstdCoder {
    fn new() -> Option<Self> {
        let mut decoder = ZstdDecoder::new().ok()?;
        decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG)).ok()?;
        Some(Self { decoder: Box::new(decoder), is_at_end: false })
    }

    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, DecodeError> {
        // A frame that has ended would otherwise wait for the header of the next one.
        if self.is_at_end && input.is_empty() {
            return Ok(Step { consumed: 0, written: 0 });
        }
        let status = self.decoder.run_on_buffers(input, output).map_err(|_| DecodeError::Corrupt)?;
        self.is_at_end = status.remaining == 0;
        Ok(Step { consumed: status.bytes_read, written: status.bytes_written })
    }
}
