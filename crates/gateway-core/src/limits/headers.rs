//! The response headers that tell callers about limits: `RateLimit-Policy` and `RateLimit` of
//! draft-ietf-httpapi-ratelimit-headers-11, and those that the clients of OpenAI and Anthropic read.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Policy, Unit};
use crate::time::{SECOND, Timestamp};

/// What most headers fit in.
const HEADER_CAPACITY: usize = 256;

fn tightest_of<'a>(policies: &[&'a Policy], unit: Unit) -> Option<&'a Policy> {
    let of_unit = policies.iter().copied().filter(|policy| policy.unit == unit);
    of_unit.reduce(|tightest, policy| if policy.is_tighter_than(tightest) { policy } else { tightest })
}

/// `"plan";q=1000;w=60, "team-tokens";q=60000;w=60;qu="tokens"`
pub fn policy_header(policies: &[&Policy]) -> String {
    let mut text = String::with_capacity(HEADER_CAPACITY);
    for policy in policies {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(&policy.item);
    }
    text
}

/// `"team-tokens";q=60000;w=60;qu="tokens"`. The window is in milliseconds.
pub(super) fn policy_item(name: &str, unit: Unit, limit: u64, window: i64) -> String {
    let mut text = String::new();
    push_name(&mut text, name);
    let _ = write!(text, ";q={limit}");
    if unit != Unit::Concurrent {
        let _ = write!(text, ";w={}", window / SECOND);
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

/// `"team-tokens";r=51230;t=9, "plan";r=998;t=31`
pub fn rate_limit_header(policies: &[&Policy]) -> String {
    let mut text = String::with_capacity(HEADER_CAPACITY);
    let mut digits = itoa::Buffer::new();
    for policy in policies {
        push_name(&mut text, &policy.name);
        text.push_str(";r=");
        text.push_str(digits.format(policy.left));
        if policy.unit != Unit::Concurrent {
            text.push_str(";t=");
            text.push_str(digits.format(seconds(policy.resets_in)));
        }
    }
    text
}

/// Begins the next member of a list.
fn push_name(text: &mut String, name: &str) {
    if !text.is_empty() {
        text.push_str(", ");
    }
    text.push('"');
    text.push_str(name);
    text.push('"');
}

/// The headers of OpenAI for the tightest limit of tokens and of requests.
pub fn openai_headers(policies: &[&Policy]) -> Vec<(&'static str, String)> {
    let units = [
        (
            Unit::Requests,
            ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
        ),
        (
            Unit::Tokens,
            ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
        ),
    ];
    let mut headers = Vec::with_capacity(6);
    for (unit, [limit, remaining, reset]) in units {
        let Some(policy) = tightest_of(policies, unit) else { continue };
        headers.push((limit, policy.limit.to_string()));
        headers.push((remaining, policy.left.to_string()));
        headers.push((reset, go_duration(policy.resets_in)));
    }
    headers
}

/// The headers of Anthropic. Resets are RFC 3339 in whole seconds.
pub fn anthropic_headers(policies: &[&Policy], now: Timestamp) -> Vec<(&'static str, String)> {
    let units = [
        (
            Unit::Requests,
            [
                "anthropic-ratelimit-requests-limit",
                "anthropic-ratelimit-requests-remaining",
                "anthropic-ratelimit-requests-reset",
            ],
        ),
        (
            Unit::Tokens,
            [
                "anthropic-ratelimit-tokens-limit",
                "anthropic-ratelimit-tokens-remaining",
                "anthropic-ratelimit-tokens-reset",
            ],
        ),
        (
            Unit::InputTokens,
            [
                "anthropic-ratelimit-input-tokens-limit",
                "anthropic-ratelimit-input-tokens-remaining",
                "anthropic-ratelimit-input-tokens-reset",
            ],
        ),
        (
            Unit::OutputTokens,
            [
                "anthropic-ratelimit-output-tokens-limit",
                "anthropic-ratelimit-output-tokens-remaining",
                "anthropic-ratelimit-output-tokens-reset",
            ],
        ),
    ];
    let mut headers = Vec::with_capacity(12);
    for (unit, [limit, remaining, reset]) in units {
        let Some(policy) = tightest_of(policies, unit) else { continue };
        let resets_at = rfc3339(now.after(policy.resets_in));
        headers.push((limit, policy.limit.to_string()));
        headers.push((remaining, policy.left.to_string()));
        headers.push((reset, resets_at));
    }
    headers
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

/// As OpenAI writes durations: `6m0s`, `1.5s`, `120ms`.
fn go_duration(span: Duration) -> String {
    let (total, millis) = (span.as_secs(), span.subsec_millis());
    if total == 0 {
        return if millis == 0 { "0s".to_owned() } else { format!("{millis}ms") };
    }
    let (hours, minutes, seconds) = (total / 3_600, total / 60 % 60, total % 60);
    let mut text = String::new();
    if hours > 0 {
        let _ = write!(text, "{hours}h");
    }
    if total >= 60 {
        let _ = write!(text, "{minutes}m");
    }
    let _ = match millis {
        0 => write!(text, "{seconds}s"),
        _ => write!(text, "{}s", format!("{seconds}.{millis:03}").trim_end_matches('0')),
    };
    text
}
