//! Finds encoded text that a reader cannot check: long base64, hexadecimal or escapes, and short base64 that decodes to
//! words.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::{Finding, FindingKind};

const LONG_BASE64: usize = 120;
const SHORT_BASE64: usize = 24;
const LONG_HEX: usize = 160;
const MIN_ESCAPES: usize = 16;
/// The share of word characters from which decoded bytes count as words.
const MIN_WORD_SHARE: f64 = 0.9;

pub fn scan(raw: &str, found: &mut Vec<Finding>) {
    for run in raw.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '='))) {
        if let Some(description) = describe_blob(run) {
            let shown: String = run.chars().take(40).collect();
            found.push(Finding::new(FindingKind::EncodedBlob, format!("{description}: {shown}")));
        }
    }
    let lower = raw.to_lowercase();
    for (mark, step) in [("\\x", 4), ("\\u", 6), ("%", 3)] {
        if let Some(at) = find_repeated(&lower, mark, step) {
            let shown: String = lower[at..].chars().take(40).collect();
            found.push(Finding::new(FindingKind::EncodedBlob, format!("a run of escapes: {shown}")));
        }
    }
}

fn describe_blob(run: &str) -> Option<String> {
    if run.len() < SHORT_BASE64 {
        return None;
    }
    let hex = run.bytes().all(|b| b.is_ascii_hexdigit());
    if hex {
        return (run.len() >= LONG_HEX).then(|| format!("{} hexadecimal digits", run.len()));
    }
    let has = |test: fn(&u8) -> bool| run.bytes().any(|b| test(&b));
    let mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    // Excludes paths, which rarely contain digits, and long words, which have no capitals.
    if mixed && has(u8::is_ascii_digit) && run.len() >= LONG_BASE64 {
        return Some(format!("{} characters of base64", run.len()));
    }
    let decoded = decode(run)?;
    let text = std::str::from_utf8(&decoded).ok()?;
    let wordy = text.chars().filter(|c| c.is_ascii_alphanumeric() || " .,:/-_|'\"~$@".contains(*c)).count();
    let share =
        f64::from(u32::try_from(wordy).ok()?) / f64::from(u32::try_from(text.chars().count()).ok()?.max(1));
    let spaced = text.trim().contains([' ', '/']) && text.len() >= 12;
    (mixed && spaced && share >= MIN_WORD_SHARE)
        .then(|| format!("base64 that reads \"{}\"", text.chars().take(60).collect::<String>()))
}

fn decode(run: &str) -> Option<Vec<u8>> {
    let bare = run.trim_end_matches('=');
    STANDARD_NO_PAD.decode(bare).or_else(|_| STANDARD.decode(run)).ok()
}

/// The start of a run of at least `MIN_ESCAPES` marks at a fixed distance.
fn find_repeated(text: &str, mark: &str, step: usize) -> Option<usize> {
    let mut start = 0;
    let (mut count, mut last) = (0, None);
    for (at, _) in text.match_indices(mark) {
        if last.is_some_and(|last: usize| at == last + step) {
            count += 1;
        } else {
            (count, start) = (1, at);
        }
        if count >= MIN_ESCAPES {
            return Some(start);
        }
        last = Some(at);
    }
    None
}
