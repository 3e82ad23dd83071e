//! Whose fault an upstream failure is, and whether to try again or elsewhere: one table for the whole gateway.
//! It applies before the first byte has been sent on; after that a failure can only be reported.

use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;

/// What came of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome {
    Status {
        code: u16,
    },
    /// No connection: refused, unreachable, no such name, TLS failed.
    Connect,
    Timeout,
    /// The connection broke before the answer was whole.
    Reset,
    /// The answer was no HTTP, or no body of the kind it claimed to be.
    InvalidResponse,
    /// The provider answered 200 and then reported an error inside the stream.
    StreamError,
    /// The request could not be put into the target's format, so that it was never sent.
    Untranslatable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request is wrong and would be so anywhere.
    Caller,
    /// The credential is wrong, empty or not allowed to.
    Credential,
    /// The provider, its model or the way there.
    Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    pub fault: Fault,
    /// The same target may be tried again.
    pub retry: bool,
    /// The next target may be tried; for a credential's fault, another credential of the same provider first.
    pub next: bool,
}

/// How to take an outcome; None for an answer that is no failure.
pub fn classify(outcome: AttemptOutcome) -> Option<Failure> {
    let (fault, retry, next) = match outcome {
        AttemptOutcome::Status { code } => match code {
            0..=399 => return None,
            401..=403 => (Fault::Credential, false, true),
            // A model that was retired or never was: trying again is no use, another target is.
            404 | 410 => (Fault::Target, false, true),
            408 | 409 | 429 | 500.. => (Fault::Target, true, true),
            _ => (Fault::Caller, false, false),
        },
        AttemptOutcome::Connect
        | AttemptOutcome::Timeout
        | AttemptOutcome::Reset
        | AttemptOutcome::InvalidResponse
        | AttemptOutcome::StreamError => (Fault::Target, true, true),
        // No fault of the target's, but another one may be able to express it.
        AttemptOutcome::Untranslatable => (Fault::Caller, false, true),
    };
    Some(Failure { fault, retry, next })
}

/// How long the provider asks to wait. The finest of its headers wins; what cannot be read is passed over.
pub fn retry_after<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    now_ms: i64,
) -> Option<Duration> {
    let (mut openai, mut azure, mut plain) = (None, None, None);
    for (name, value) in headers {
        let value = value.trim();
        if name.eq_ignore_ascii_case("retry-after-ms") {
            openai = openai.or_else(|| decimal(value, 1000.0));
        } else if name.eq_ignore_ascii_case("x-ms-retry-after-ms") {
            azure = azure.or_else(|| decimal(value, 1000.0));
        } else if name.eq_ignore_ascii_case("retry-after") {
            plain = plain.or_else(|| decimal(value, 1.0)).or_else(|| date(value, now_ms));
        }
    }
    openai.or(azure).or(plain)
}

fn decimal(value: &str, per_second: f64) -> Option<Duration> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = value.parse().ok().filter(|_| digits)?;
    Duration::try_from_secs_f64(number / per_second).ok()
}

fn date(value: &str, now_ms: i64) -> Option<Duration> {
    let at = DateTimeParser::new().parse_timestamp(value).ok()?.as_millisecond();
    Some(Duration::from_millis(u64::try_from(at.saturating_sub(now_ms)).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_class() {
        const STOP: Option<Failure> = Some(Failure { fault: Fault::Caller, retry: false, next: false });
        const CREDENTIAL: Option<Failure> =
            Some(Failure { fault: Fault::Credential, retry: false, next: true });
        const GONE: Option<Failure> = Some(Failure { fault: Fault::Target, retry: false, next: true });
        const AGAIN: Option<Failure> = Some(Failure { fault: Fault::Target, retry: true, next: true });
        for (codes, expected) in [
            (&[200, 201, 204, 304][..], None),
            (&[400, 405, 406, 411, 413, 414, 415, 416, 418, 422, 431, 451, 499], STOP),
            (&[401, 402, 403], CREDENTIAL),
            (&[404, 410], GONE),
            (&[408, 409, 429, 500, 501, 502, 503, 504, 520, 529, 599], AGAIN),
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
            assert_eq!(classify(outcome), AGAIN, "{outcome:?}");
        }
        const ELSEWHERE: Option<Failure> = Some(Failure { fault: Fault::Caller, retry: false, next: true });
        assert_eq!(classify(AttemptOutcome::Untranslatable), ELSEWHERE);
    }

    #[test]
    fn waiting_times_are_read_in_every_form() {
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
            (&[("retry-after", "-1")], None),
            (&[("retry-after", "inf")], None),
            (&[("retry-after", "")], None),
            (&[("date", "2")], None),
        ] {
            assert_eq!(retry_after(headers.iter().copied(), now), expected, "{headers:?}");
        }
    }
}
