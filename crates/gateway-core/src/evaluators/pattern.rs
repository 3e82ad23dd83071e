//! Regular expressions of tenants. The regex crate matches in time proportional to the size of the compiled program
//! times the length of the text, so the product is bounded.

use regex::{Regex, RegexBuilder};

/// The size of the largest program, in bytes.
pub(super) const MAX_PROGRAM_BYTES: usize = 1 << 20;
/// The size from which programs are measured. Smaller ones count as this size.
const MIN_PROGRAM_BYTES: usize = 8 << 10;
/// Active states of a Unicode class, compared with an ASCII class.
const UNICODE_FACTOR: usize = 4;
/// The program's size times the length of the text: a program of 64 KiB on 64 KiB of text, the largest on 4 KiB.
const MAX_PRODUCT: usize = 1 << 32;

#[derive(Debug)]
pub struct Pattern {
    regex: Regex,
    program_bytes: usize,
}

impl Pattern {
    pub(super) fn compile(pattern: &str) -> Result<Self, String> {
        let (regex, program_bytes) = compile(pattern)?;
        Ok(Self { regex, program_bytes })
    }

    /// The length of the longest text that is matched in bounded time.
    pub(super) fn max_text_bytes(&self) -> usize {
        MAX_PRODUCT / self.program_bytes
    }

    /// Where the first match starts.
    pub(super) fn find(&self, text: &str) -> Option<usize> {
        self.regex.find(text).map(|found| found.start())
    }
}

/// The size of the compiled program as it counts, to a power of two.
pub(super) fn program_bytes(pattern: &str) -> Result<usize, String> {
    compile(pattern).map(|(_, bytes)| bytes)
}

/// A Unicode class such as `\w` has hundreds of states, but only a few of them are active at a time. So the program
/// counts as a multiple of its size without Unicode, if that is less.
fn compile(pattern: &str) -> Result<(Regex, usize), String> {
    let build = |bytes| RegexBuilder::new(pattern).size_limit(bytes).build();
    let (regex, bytes) = measure(MIN_PROGRAM_BYTES, build)?;
    let build = |bytes| regex::bytes::RegexBuilder::new(pattern).unicode(false).size_limit(bytes).build();
    let ascii = measure(MIN_PROGRAM_BYTES / UNICODE_FACTOR, build);
    Ok((regex, ascii.map_or(bytes, |(_, ascii)| bytes.min(ascii * UNICODE_FACTOR))))
}

/// The crate tells the size of a program only by refusing to compile it above a limit.
fn measure<R>(min: usize, build: impl Fn(usize) -> Result<R, regex::Error>) -> Result<(R, usize), String> {
    let mut bytes = min;
    loop {
        match build(bytes) {
            Ok(regex) => return Ok((regex, bytes)),
            Err(regex::Error::CompiledTooBig(_)) if bytes < MAX_PROGRAM_BYTES => bytes *= 2,
            Err(regex::Error::CompiledTooBig(_)) => {
                return Err(format!(
                    "the compiled pattern is larger than {} MiB; use fewer or smaller repetitions, and [0-9] instead of \
                     \\d where ASCII suffices",
                    MAX_PROGRAM_BYTES >> 20
                ));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_the_program_the_shorter_the_text() {
        let max = |pattern: &str| Pattern::compile(pattern).unwrap().max_text_bytes();
        assert_eq!(max("sorry|cannot"), 512 << 10);
        assert_eq!(max(r"^[0-9]{4}-[0-9]{2}$"), 512 << 10);
        for usual in [r"[\w.+-]+@[\w-]+\.[\w.-]+", r"(?i)\b(sorry|unable|cannot)\b", r"^\d{4}-\d{2}-\d{2}$"] {
            assert!(max(usual) >= 128 << 10, "{usual}: {}", max(usual));
        }
        assert!(max("a[ab]{500}[^ab]") <= 64 << 10);
        assert!(max(r"a[ab]{5000}[^ab]") <= 8 << 10);
        let refused = Pattern::compile("a[ab]{50000}[^ab]").unwrap_err();
        assert!(refused.contains("larger than 1 MiB"), "{refused}");
        assert!(Pattern::compile("(").is_err());
    }
}
