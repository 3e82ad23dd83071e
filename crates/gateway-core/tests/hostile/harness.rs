//! Fuzzing by mutation: realistic inputs are changed at random, and every reader must keep its properties. `FUZZ_SECONDS`
//! is the time for all targets of a test together. An input that breaks a property is reduced, and kept in
//! `tests/fixtures/fuzz`; every run replays those first.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestError, TestRunner};
use rustix::time::{ClockId, clock_gettime};

/// Longer inputs find nothing that shorter ones do not.
const MAX_LENGTH: usize = 16 << 10;
/// The most CPU time for one input in an unoptimised build. It is far above what any input needs.
const MAX_CPU: Duration = Duration::from_secs(2);
const CASES: u32 = 64;

pub struct FuzzTarget {
    pub name: &'static str,
    pub seeds: Vec<Vec<u8>>,
    /// Panics if a property does not hold.
    pub check: fn(&[u8]),
}

/// Fuzzes all targets, each for the same share of the time.
#[allow(clippy::disallowed_methods, reason = "a test reads the environment itself")]
pub fn fuzz(fixtures: &str, targets: Vec<FuzzTarget>, default_seconds: u64) {
    let given = std::env::var("FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let count = u32::try_from(targets.len()).unwrap();
    let share = Duration::from_secs(given.unwrap_or(default_seconds)) / count;
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(fixtures);
    let failed: Vec<String> =
        targets.into_iter().filter_map(|target| fuzz_one(&folder, target, share).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn fuzz_one(folder: &PathBuf, target: FuzzTarget, time: Duration) -> Result<(), String> {
    let FuzzTarget { name, seeds, check } = target;
    let prefix = format!("{}-", name.replace(' ', "-"));
    let kept = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| {
        let entry = entry.ok()?;
        entry.file_name().to_str()?.starts_with(&prefix).then(|| fs::read(entry.path()).unwrap())
    });
    let kept: Vec<Vec<u8>> = kept.collect();
    for input in kept.iter().chain(&seeds) {
        run(check, input);
    }
    let strategy = mutated(seeds);
    let end = Instant::now() + time;
    while Instant::now() < end {
        let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
        let result = TestRunner::new(config).run(&strategy, |input| {
            run(check, &input);
            Ok(())
        });
        if let Err(TestError::Fail(reason, input)) = result {
            let digest = crc32fast::hash(&input);
            let path = folder.join(format!("{prefix}{digest:08x}"));
            fs::create_dir_all(folder).unwrap();
            fs::write(&path, &input).unwrap();
            let text = String::from_utf8_lossy(&input);
            return Err(format!("{name}: {reason}; the input is kept in {}:\n{text}", path.display()));
        }
    }
    Ok(())
}

fn run(check: fn(&[u8]), input: &[u8]) {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
    };
    let before = now();
    check(input);
    let spent = now().saturating_sub(before);
    assert!(spent < MAX_CPU, "{spent:?} for {} bytes", input.len());
}

#[derive(Clone, Debug)]
enum Mutation {
    Flip(Index, u8),
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    /// Repeats a part.
    Repeat(Index, usize, usize),
    Truncate(Index),
    /// Inserts a part of another seed.
    Splice(Index, Index, Index, usize),
}

/// What formats are made of. Random bytes alone rarely leave a parser's first line.
const WORDS: [&str; 56] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "\\udc00",
    "null",
    "true",
    "-0",
    "1e999",
    "1e-999",
    "9223372036854775808",
    "-1",
    "0.1",
    "{}",
    "[]",
    "\"\"",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "data: ",
    "event: ",
    ": ",
    "[DONE]",
    "---\n",
    "- ",
    "&a ",
    "*a",
    "? ",
    "|\n",
    "{{",
    "}}",
    "\\{{",
    "../",
    "%2f",
    "%",
    "?",
    "&",
    "=",
    "/",
    ";",
    "--",
    "\0",
    "\u{feff}",
    "\u{1f600}",
    "e\u{301}",
    "\u{202e}",
    " ",
    "\t",
    "$ref",
];

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<Index>;
    prop_oneof![
        (at(), 0..8_u8).prop_map(|(at, bit)| Mutation::Flip(at, bit)),
        (at(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (at(), select(&WORDS[..])).prop_map(|(at, word)| Mutation::Insert(at, word.as_bytes().to_vec())),
        (at(), vec(any::<u8>(), 1..8)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (at(), 1..40_usize).prop_map(|(at, length)| Mutation::Remove(at, length)),
        (at(), 1..40_usize, 1..200_usize).prop_map(|(at, length, times)| Mutation::Repeat(at, length, times)),
        at().prop_map(Mutation::Truncate),
        (at(), at(), at(), 1..200_usize)
            .prop_map(|(at, seed, from, length)| Mutation::Splice(at, seed, from, length)),
    ]
}

fn mutated(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    (any::<Index>(), vec(mutation(), 0..6)).prop_map(move |(seed, mutations)| {
        let mut input = seeds[seed.index(seeds.len())].clone();
        for mutation in mutations {
            mutation.apply(&mut input, &seeds);
            input.truncate(MAX_LENGTH);
        }
        input
    })
}

impl Mutation {
    fn apply(self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let place = |at: Index, input: &[u8]| at.index(input.len() + 1);
        let part = |start: usize, length: usize, of: &[u8]| start..(start + length).min(of.len());
        match self {
            Self::Flip(at, bit) if !input.is_empty() => {
                let at = at.index(input.len());
                input[at] ^= 1 << bit;
            }
            Self::Set(at, byte) if !input.is_empty() => {
                let at = at.index(input.len());
                input[at] = byte;
            }
            Self::Flip(..) | Self::Set(..) => {}
            Self::Insert(at, bytes) => {
                let at = place(at, input);
                input.splice(at..at, bytes);
            }
            Self::Remove(at, length) => {
                let at = place(at, input);
                input.drain(part(at, length, input));
            }
            Self::Repeat(at, length, times) => {
                let at = place(at, input);
                let piece = input[part(at, length, input)].repeat(times);
                input.splice(at..at, piece);
            }
            Self::Truncate(at) => input.truncate(place(at, input)),
            Self::Splice(at, seed, from, length) => {
                let (at, other) = (place(at, input), &seeds[seed.index(seeds.len())]);
                let from = place(from, other);
                input.splice(at..at, other[part(from, length, other)].to_vec());
            }
        }
    }
}
