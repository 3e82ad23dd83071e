//! Finds leaked secrets by their prefixes. Findings quote only the first characters.

use super::{Finding, FindingKind};

/// Prefixes, with the minimum number of characters that follow.
const PREFIXES: [(&str, usize); 18] = [
    ("AKIA", 16),
    ("ASIA", 16),
    ("ghp_", 30),
    ("gho_", 30),
    ("ghs_", 30),
    ("github_pat_", 30),
    ("glpat-", 18),
    ("sk-ant-", 20),
    ("sk-proj-", 20),
    ("sk-gateway-", 40),
    ("sk-", 32),
    ("sk_live_", 16),
    ("rk_live_", 16),
    ("xoxb-", 20),
    ("xoxp-", 20),
    ("AIza", 30),
    ("npm_", 30),
    ("hf_", 30),
];
const KEY_BLOCKS: [&str; 3] = ["-----BEGIN", "PRIVATE KEY-----", "PRIVATE KEY BLOCK-----"];

pub fn scan(raw: &str, found: &mut Vec<Finding>) {
    for word in raw.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))) {
        if is_secret(word) {
            let shown: String = word.chars().take(8).collect();
            found.push(Finding::new(FindingKind::LeakedSecret, format!("{shown}…")));
        }
    }
    for line in raw.lines() {
        let block =
            line.contains(KEY_BLOCKS[0]) && (line.contains(KEY_BLOCKS[1]) || line.contains(KEY_BLOCKS[2]));
        if block {
            found.push(Finding::new(FindingKind::LeakedSecret, line.trim()));
        }
    }
}

fn is_secret(word: &str) -> bool {
    let known = PREFIXES.iter().any(|(prefix, length)| {
        word.strip_prefix(prefix).is_some_and(|rest| rest.len() >= *length && !is_placeholder(rest))
    });
    known || is_signed_token(word)
}

/// Whether the word is a JSON Web Token with a signature.
fn is_signed_token(word: &str) -> bool {
    let parts: Vec<_> = word.split('.').collect();
    parts.len() == 3
        && parts.iter().all(|part| part.len() >= 16)
        && parts[0].starts_with("eyJ")
        && parts[1].starts_with("eyJ")
}

/// Placeholders of documentation contain a telling word, few distinct characters, or no digit.
fn is_placeholder(rest: &str) -> bool {
    let lower = rest.to_lowercase();
    let words = [
        "example",
        "your",
        "xxxx",
        "placeholder",
        "redacted",
        "0000",
        "1234567890",
        "abcdef",
        "dummy",
        "fake",
    ];
    let mut kinds: Vec<char> = rest.chars().collect();
    kinds.sort_unstable();
    kinds.dedup();
    let no_digit = !rest.contains(|c: char| c.is_ascii_digit());
    words.iter().any(|word| lower.contains(word)) || kinds.len() < 8 || no_digit
}
