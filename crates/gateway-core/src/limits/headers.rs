//! The response headers that tell callers about limits: `RateLimit-Policy` and `RateLimit` of
//! draft-ietf-httpapi-ratelimit-headers-11, and those that the clients of OpenAI and Anthropic read.

use std::ops::Range;
use std::time::Duration;

use super::{Policy, Unit};
use crate::time::{SECOND, Timestamp};

/// What the headers of most answers fit in.
const TEXT_CAPACITY: usize = 512;

/// All headers that may be written.
pub const HEADER_NAMES: [&str; 20] = [
    "ratelimit-policy",
    "ratelimit",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "anthropic-ratelimit-requests-limit",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-limit",
    "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-tokens-reset",
    "anthropic-ratelimit-input-tokens-limit",
    "anthropic-ratelimit-input-tokens-remaining",
    "anthropic-ratelimit-input-tokens-reset",
    "anthropic-ratelimit-output-tokens-limit",
    "anthropic-ratelimit-output-tokens-remaining",
    "anthropic-ratelimit-output-tokens-reset",
];
/// The place of `RateLimit-Policy`.
pub const POLICY_HEADER: usize = 0;
const RATE_LIMIT: usize = 1;
/// The first of three headers of a unit.
const OPENAI: [(Unit, usize); 2] = [(Unit::Requests, 2), (Unit::Tokens, 5)];
const ANTHROPIC: [(Unit, usize); 4] =
    [(Unit::Requests, 8), (Unit::Tokens, 11), (Unit::InputTokens, 14), (Unit::OutputTokens, 17)];

/// Writes the headers of an answer. Their values are parts of one text, because every answer of a limited caller has
/// several.
#[derive(Debug)]
pub struct HeaderWriter {
    text: String,
    /// Places in `HEADER_NAMES`, and where their values end.
    ends: Vec<(usize, usize)>,
}

impl Default for HeaderWriter {
    fn default() -> Self {
        Self { text: String::with_capacity(TEXT_CAPACITY), ends: Vec::with_capacity(2 + 3 * ANTHROPIC.len()) }
    }
}

impl HeaderWriter {
    /// `"plan";q=1000;w=60, "team-tokens";q=60000;w=60;qu="tokens"` and
    /// `"team-tokens";r=51230;t=9, "plan";r=998;t=31`.
    pub fn write_rate_limits(&mut self, policies: &[&Policy]) {
        let mut separator = "";
        for policy in policies {
            self.text.push_str(separator);
            self.text.push_str(&policy.item);
            separator = ", ";
        }
        self.end(POLICY_HEADER);
        separator = "";
        for policy in policies {
            self.text.push_str(separator);
            self.text.push_str(policy.quoted_name());
            self.text.push_str(";r=");
            self.number(policy.left);
            if policy.unit != Unit::Concurrent {
                self.text.push_str(";t=");
                self.number(seconds(policy.resets_in));
            }
            separator = ", ";
        }
        self.end(RATE_LIMIT);
    }

    /// The headers of OpenAI for the tightest limit of tokens and of requests.
    pub fn write_openai(&mut self, policies: &[&Policy]) {
        for (unit, name) in OPENAI {
            if let Some(policy) = tightest_of(policies, unit) {
                self.write_amounts(policy, name);
                self.go_duration(policy.resets_in);
                self.end(name + 2);
            }
        }
    }

    /// The headers of Anthropic. Resets are RFC 3339 in whole seconds.
    pub fn write_anthropic(&mut self, policies: &[&Policy], now: Timestamp) {
        for (unit, name) in ANTHROPIC {
            if let Some(policy) = tightest_of(policies, unit) {
                self.write_amounts(policy, name);
                self.text.push_str(&rfc3339(now.after(policy.resets_in)));
                self.end(name + 2);
            }
        }
    }

    /// The values in one text; the place of each header in `HEADER_NAMES`, and that of its value in the text.
    pub fn finish(self) -> (String, impl ExactSizeIterator<Item = (usize, Range<usize>)>) {
        let mut start = 0;
        let places =
            self.ends.into_iter().map(move |(name, end)| (name, std::mem::replace(&mut start, end)..end));
        (self.text, places)
    }

    fn write_amounts(&mut self, policy: &Policy, name: usize) {
        self.number(policy.limit);
        self.end(name);
        self.number(policy.left);
        self.end(name + 1);
    }

    fn number(&mut self, number: u64) {
        self.text.push_str(itoa::Buffer::new().format(number));
    }

    fn end(&mut self, name: usize) {
        self.ends.push((name, self.text.len()));
    }

    /// As OpenAI writes durations: `6m0s`, `1.5s`, `120ms`.
    fn go_duration(&mut self, span: Duration) {
        let (total, millis) = (span.as_secs(), span.subsec_millis());
        if total == 0 && millis > 0 {
            self.number(millis.into());
            return self.text.push_str("ms");
        }
        if total >= 3_600 {
            self.number(total / 3_600);
            self.text.push('h');
        }
        if total >= 60 {
            self.number(total / 60 % 60);
            self.text.push('m');
        }
        self.number(total % 60);
        if millis > 0 {
            self.text.push('.');
            let (mut rest, mut place) = (u64::from(millis), 100);
            while rest > 0 {
                self.number(rest / place);
                (rest, place) = (rest % place, place / 10);
            }
        }
        self.text.push('s');
    }
}

fn tightest_of<'a>(policies: &[&'a Policy], unit: Unit) -> Option<&'a Policy> {
    let of_unit = policies.iter().copied().filter(|policy| policy.unit == unit);
    of_unit.reduce(|tightest, policy| if policy.is_tighter_than(tightest) { policy } else { tightest })
}

/// `"team-tokens";q=60000;w=60;qu="tokens"`. The window is in milliseconds.
pub(super) fn policy_item(name: &str, unit: Unit, limit: u64, window: i64) -> String {
    let mut digits = itoa::Buffer::new();
    let mut text = String::with_capacity(name.len() + 48);
    for part in ["\"", name, "\";q=", digits.format(limit)] {
        text.push_str(part);
    }
    if unit != Unit::Concurrent {
        text.push_str(";w=");
        text.push_str(digits.format(window / SECOND));
    }
    text.push_str(match unit {
        Unit::Requests => "",
        Unit::Concurrent => ";qu=\"concurrent-requests\"",
        Unit::Tokens => ";qu=\"tokens\"",
        Unit::InputTokens => ";qu=\"input-tokens\"",
        Unit::OutputTokens => ";qu=\"output-tokens\"",
    });
    text
}

/// `Retry-After` in seconds and `retry-after-ms`, which name the same moment.
pub fn retry_after(wait: Duration) -> (u64, u64) {
    let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    (millis.div_ceil(1_000), millis)
}

fn seconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX).div_ceil(1_000)
}

fn rfc3339(at: Timestamp) -> String {
    let text = Timestamp(-(-at.0).div_euclid(1_000) * 1_000).to_string();
    text.replace(".000Z", "Z")
}
