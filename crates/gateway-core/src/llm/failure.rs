//! Classification of upstream failures: which side caused them, and whether a retry or a fallback may help. It applies
//! until the first byte is forwarded; later failures can only be reported.

use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The outcome of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome {
    Status {
        code: u16,
    },
    /// No connection: refused, unreachable, unknown host, or TLS failed.
    Connect,
    Timeout,
    /// The connection broke before the response was complete.
    Reset,
    /// The response is not HTTP, or its body does not match its content type.
    InvalidResponse,
    /// The provider returned 200 and then reported an error inside the stream.
    StreamError,
    /// The request cannot be translated into the target's format and was not sent.
    Untranslatable,
    /// The provider refused the input. Only where the route has targets for it; else it is the status.
    Refused(Refusal),
}

/// Why a provider refuses an input that another model may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The input is too long for the model.
    Context,
    /// The provider's filter refused the content.
    ContentFilter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request is invalid for any target.
    Caller,
    /// The credential is invalid, has no credit or lacks permission.
    Credential,
    /// The provider, its model or the network.
    Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    pub fault: Fault,
    /// A retry at the same target may succeed.
    pub retry: bool,
    /// The next target may be tried. After a credential fault, other credentials of the same provider come first.
    pub next: bool,
}

/// Classifies an outcome. None if it is not a failure.
pub fn classify(outcome: AttemptOutcome) -> Option<Failure> {
    let (fault, retry, next) = match outcome {
        AttemptOutcome::Status { code } => match code {
            0..=399 => return None,
            401..=403 => (Fault::Credential, false, true),
            // The model was retired or never existed: a retry fails again, but another target may succeed.
            404 | 410 => (Fault::Target, false, true),
            408 | 409 | 429 | 500.. => (Fault::Target, true, true),
            _ => (Fault::Caller, false, false),
        },
        AttemptOutcome::Connect
        | AttemptOutcome::Timeout
        | AttemptOutcome::Reset
        | AttemptOutcome::InvalidResponse
        | AttemptOutcome::StreamError => (Fault::Target, true, true),
        // The target is not at fault, but another target may support the request.
        AttemptOutcome::Untranslatable => (Fault::Caller, false, true),
        AttemptOutcome::Refused(_) => (Fault::Caller, false, false),
    };
    Some(Failure { fault, retry, next })
}

/// How providers say that the input is too long, in lower case: OpenAI and servers with its API, Anthropic, Gemini,
/// Bedrock, Cohere, Mistral.
const CONTEXT_TEXTS: [&str; 12] = [
    "context_length_exceeded",
    "maximum context length",
    "exceeds the context window",
    "exceed context limit",
    "context_window_exceeded",
    "prompt is too long",
    "input is too long",
    "too many input tokens",
    "exceeds the maximum number of tokens",
    "reduce the length of the messages",
    "too many tokens: total number of tokens",
    "too large for model with",
];
/// How providers say that a filter refused the content, in lower case: OpenAI, Azure, Anthropic, Gemini, Bedrock.
const CONTENT_FILTER_TEXTS: [&str; 11] = [
    "content_filter",
    "content_policy_violation",
    "responsibleaipolicyviolation",
    "content management policy",
    "blocked by content filtering policy",
    "violating our usage policy",
    "rejected as a result of our safety system",
    "prohibited_content",
    "blocked by safety",
    "guardrail_intervened",
    "content_filtered",
];
/// Reasons with which a response ends if a filter refused the content, in lower case.
const FILTERED_FINISHES: [&str; 10] = [
    "content_filter",
    "refusal",
    "safety",
    "prohibited_content",
    "blocklist",
    "spii",
    "recitation",
    "content_filtered",
    "guardrail_intervened",
    "error_toxic",
];

impl Refusal {
    /// Reads the body of an error, or the error inside a stream.
    pub fn of_error(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text).to_lowercase();
        let has = |texts: &[&str]| texts.iter().any(|known| text.contains(known));
        if has(&CONTEXT_TEXTS) {
            Some(Self::Context)
        } else if has(&CONTENT_FILTER_TEXTS) {
            Some(Self::ContentFilter)
        } else {
            None
        }
    }

    /// Reads the reason for which a successful response ended.
    pub fn of_finish(reason: &str) -> Option<Self> {
        let reason = reason.to_lowercase();
        if reason == "model_context_window_exceeded" {
            Some(Self::Context)
        } else if FILTERED_FINISHES.contains(&reason.as_str()) {
            Some(Self::ContentFilter)
        } else {
            None
        }
    }
}

/// A target that was silent for a shorter time than this has not failed: the caller set a short timeout, or the targets
/// before it took the time.
const MIN_SILENCE: Duration = Duration::from_secs(1);

/// What is known about a failed attempt besides its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptFacts {
    /// The request was sent with a credential of the caller.
    pub callers_credential: bool,
    pub names_model: bool,
    /// How long the target had sent nothing when the attempt ended.
    pub silence: Duration,
}

/// What an attempt says about the health of its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthSignal {
    /// The target failed.
    Failure,
    /// The target responded, and the caller or the credential is at fault.
    Alive,
    /// Nothing.
    Unknown,
}

/// Only the target's own faults count against its circuit breaker, which all callers of the organization share.
pub fn health_signal(outcome: AttemptOutcome, facts: &AttemptFacts) -> HealthSignal {
    match outcome {
        // Limits and permissions of the caller's own account.
        AttemptOutcome::Status { code: ..500 } if facts.callers_credential => HealthSignal::Alive,
        // An object that does not exist or is in use, rather than a model.
        AttemptOutcome::Status { code: 404 | 409 | 410 } if !facts.names_model => HealthSignal::Alive,
        AttemptOutcome::Timeout => timeout_signal(facts.silence),
        AttemptOutcome::Untranslatable => HealthSignal::Unknown,
        outcome => match classify(outcome) {
            Some(Failure { fault: Fault::Target, .. }) => HealthSignal::Failure,
            _ => HealthSignal::Alive,
        },
    }
}

/// What a timeout says about the target, which had sent nothing for the time of `silence`.
pub fn timeout_signal(silence: Duration) -> HealthSignal {
    if silence < MIN_SILENCE { HealthSignal::Unknown } else { HealthSignal::Failure }
}

/// The wait time that the provider requests. The most precise header wins, and invalid values are ignored.
pub fn retry_after<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    now_ms: i64,
) -> Option<Duration> {
    let (mut openai, mut azure, mut plain) = (None, None, None);
    for (name, value) in headers {
        let value = value.trim();
        if name.eq_ignore_ascii_case("retry-after-ms") {
            openai = openai.or_else(|| parse_decimal(value, 1000.0));
        } else if name.eq_ignore_ascii_case("x-ms-retry-after-ms") {
            azure = azure.or_else(|| parse_decimal(value, 1000.0));
        } else if name.eq_ignore_ascii_case("retry-after") {
            plain = plain.or_else(|| parse_decimal(value, 1.0)).or_else(|| parse_date(value, now_ms));
        }
    }
    openai.or(azure).or(plain)
}

fn parse_decimal(value: &str, per_second: f64) -> Option<Duration> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = value.parse().ok().filter(|_| digits)?;
    // A number beyond all bounds is a wait that nobody waits for.
    Some(Duration::try_from_secs_f64(number / per_second).unwrap_or(Duration::MAX))
}

fn parse_date(value: &str, now_ms: i64) -> Option<Duration> {
    let at = DateTimeParser::new().parse_timestamp(value).ok()?.as_millisecond();
    Some(Duration::from_millis(u64::try_from(at.saturating_sub(now_ms)).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_classified() {
        const STOP: Option<Failure> = Some(Failure { fault: Fault::Caller, retry: false, next: false });
        const CREDENTIAL: Option<Failure> =
            Some(Failure { fault: Fault::Credential, retry: false, next: true });
        const GONE: Option<Failure> = Some(Failure { fault: Fault::Target, retry: false, next: true });
        const RETRY: Option<Failure> = Some(Failure { fault: Fault::Target, retry: true, next: true });
        for (codes, expected) in [
            (&[200, 201, 204, 304][..], None),
            (&[400, 405, 406, 411, 413, 414, 415, 416, 418, 422, 431, 451, 499], STOP),
            (&[401, 402, 403], CREDENTIAL),
            (&[404, 410], GONE),
            (&[408, 409, 429, 500, 501, 502, 503, 504, 520, 529, 599], RETRY),
        ] {
            for &code in codes {
                assert_eq!(classify(AttemptOutcome::Status { code }), expected, "{code}");
            }
        }
        for outcome in [
            AttemptOutcome::Connect,
            AttemptOutcome::Timeout,
            AttemptOutcome::Reset,
            AttemptOutcome::InvalidResponse,
            AttemptOutcome::StreamError,
        ] {
            assert_eq!(classify(outcome), RETRY, "{outcome:?}");
        }
        const FALLBACK: Option<Failure> = Some(Failure { fault: Fault::Caller, retry: false, next: true });
        assert_eq!(classify(AttemptOutcome::Untranslatable), FALLBACK);
    }

    #[test]
    fn refusals_are_read_from_every_providers_words() {
        use Refusal::{ContentFilter, Context};
        for (text, expected) in [
            (r#"{"error":{"message":"x","code":"context_length_exceeded"}}"#, Some(Context)),
            (r#"{"error":{"message":"This model's maximum context length is 8192 tokens."}}"#, Some(Context)),
            (
                r#"{"type":"error","error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
                Some(Context),
            ),
            (r#"{"error":{"message":"input length and `max_tokens` exceed context limit"}}"#, Some(Context)),
            (
                r#"{"error":{"message":"The input token count (2) exceeds the maximum number of tokens allowed (1)."}}"#,
                Some(Context),
            ),
            (r#"{"message":"Input is too long for requested model."}"#, Some(Context)),
            (r#"{"error":{"code":"content_filter","innererror":{}}}"#, Some(ContentFilter)),
            (r#"{"error":{"message":"Output blocked by content filtering policy"}}"#, Some(ContentFilter)),
            (
                r#"{"error":{"message":"Invalid prompt: your prompt was flagged as potentially violating our usage policy.","code":"invalid_prompt"}}"#,
                Some(ContentFilter),
            ),
            (
                r#"{"error":{"message":"Your request was rejected as a result of our safety system."}}"#,
                Some(ContentFilter),
            ),
            (r#"{"error":{"message":"bad"}}"#, None),
            ("", None),
        ] {
            assert_eq!(Refusal::of_error(text.as_bytes()), expected, "{text}");
        }
        for (reason, expected) in [
            ("content_filter", Some(ContentFilter)),
            ("SAFETY", Some(ContentFilter)),
            ("refusal", Some(ContentFilter)),
            ("model_context_window_exceeded", Some(Context)),
            ("stop", None),
            ("length", None),
        ] {
            assert_eq!(Refusal::of_finish(reason), expected, "{reason}");
        }
        for refusal in [Context, ContentFilter] {
            let failure = classify(AttemptOutcome::Refused(refusal)).unwrap();
            assert_eq!((failure.fault, failure.retry, failure.next), (Fault::Caller, false, false));
        }
    }

    #[test]
    fn only_faults_of_the_target_count_against_it() {
        use HealthSignal::{Alive, Failure, Unknown};
        let status = |code| AttemptOutcome::Status { code };
        let long = AttemptFacts { callers_credential: false, names_model: true, silence: MIN_SILENCE };
        let own = AttemptFacts { callers_credential: true, ..long };
        let object = AttemptFacts { names_model: false, ..long };
        let short = AttemptFacts { silence: Duration::from_millis(999), ..long };
        for (outcomes, facts, expected) in [
            (&[status(404), status(408), status(409), status(410), status(429)][..], long, Failure),
            (&[status(500), status(503), status(529)], long, Failure),
            (&[status(400), status(401), status(403), status(422)], long, Alive),
            (&[status(400), status(401), status(403), status(404), status(408), status(429)], own, Alive),
            (&[status(500), status(529), AttemptOutcome::Reset], own, Failure),
            (&[status(404), status(409), status(410), status(400)], object, Alive),
            (&[status(408), status(429), status(500)], object, Failure),
            (&[AttemptOutcome::Timeout], long, Failure),
            (&[AttemptOutcome::Timeout], short, Unknown),
            (&[status(500), AttemptOutcome::Connect, AttemptOutcome::Reset], short, Failure),
            (&[AttemptOutcome::InvalidResponse, AttemptOutcome::StreamError], short, Failure),
            (&[AttemptOutcome::Untranslatable], long, Unknown),
        ] {
            for &outcome in outcomes {
                assert_eq!(health_signal(outcome, &facts), expected, "{outcome:?} {facts:?}");
            }
        }
    }

    #[test]
    fn retry_after_is_parsed_in_every_form() {
        let now = 1_445_412_475_000; // Wed, 21 Oct 2015 07:27:55 GMT
        let ms = |ms| Some(Duration::from_millis(ms));
        for (headers, expected) in [
            (&[("Retry-After", "2")][..], ms(2000)),
            (&[("retry-after", " 0.5 ")], ms(500)),
            (&[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")], ms(5000)),
            (&[("retry-after", "Wed, 21 Oct 2015 07:00:00 GMT")], ms(0)),
            (&[("retry-after", "20"), ("retry-after-ms", "1500")], ms(1500)),
            (&[("retry-after", "20"), ("X-Ms-Retry-After-Ms", "70")], ms(70)),
            (&[("retry-after-ms", "soon"), ("retry-after", "3")], ms(3000)),
            (&[("retry-after", "18446744073709551616")], Some(Duration::MAX)),
            (&[("retry-after", "-1")], None),
            (&[("retry-after", "inf")], None),
            (&[("retry-after", "1e3")], None),
            (&[("retry-after", "0x2")], None),
            (&[("retry-after", "Wed, 21 Oct 2015 07:27:55 GMT")], ms(0)),
            (&[("retry-after", "4"), ("retry-after", "9")], ms(4000)),
            (&[("retry-after-ms", "100"), ("x-ms-retry-after-ms", "70")], ms(100)),
            (&[("retry-after", "99999999999999999999999")], Some(Duration::MAX)),
            (&[("retry-after", "")], None),
            (&[("date", "2")], None),
        ] {
            assert_eq!(retry_after(headers.iter().copied(), now), expected, "{headers:?}");
        }
    }
}
