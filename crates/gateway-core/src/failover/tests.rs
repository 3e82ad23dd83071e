//! Tests of the failover policy: what follows each failed attempt, and when.

use super::*;
use crate::llm::failure::{AttemptOutcome, classify};

const POLICY: Policy = Policy { max_retries: 2, is_bound: false, seed: 7 };
const BOUND: Policy = Policy { is_bound: true, ..POLICY };
const NO_RETRIES: Policy = Policy { max_retries: 0, ..POLICY };
/// Nothing else to try but retries.
const ALONE: Progress = Progress {
    retries: 0,
    has_other_credential: false,
    has_other_target: false,
    time_left: Duration::from_secs(60),
};
const OTHER_CREDENTIAL: Progress = Progress { has_other_credential: true, ..ALONE };
const OTHER_TARGET: Progress = Progress { has_other_target: true, ..ALONE };
const BOTH: Progress = Progress { has_other_credential: true, ..OTHER_TARGET };

fn outcome(outcome: AttemptOutcome) -> FailedAttempt {
    FailedAttempt {
        failure: classify(outcome).expect("a failure"),
        is_rate_limited: outcome == AttemptOutcome::Status { code: 429 },
        retry_after: None,
        usage_option_refused: false,
    }
}

fn status(code: u16) -> FailedAttempt {
    outcome(AttemptOutcome::Status { code })
}

fn retry_after(code: u16, wait: Duration) -> FailedAttempt {
    FailedAttempt { retry_after: Some(wait), ..status(code) }
}

fn after(retries: u32, progress: Progress) -> Progress {
    Progress { retries, ..progress }
}

fn with_time(time_left: Duration, progress: Progress) -> Progress {
    Progress { time_left, ..progress }
}

/// Retries are compared by kind: the wait has tests of its own.
fn assert_next(rows: &[(&str, Policy, Progress, FailedAttempt, Next)]) {
    for (rule, policy, progress, failed, expected) in rows {
        let next = match policy.next(progress, failed) {
            Next::Retry { .. } => RETRY,
            next => next,
        };
        assert_eq!(next, *expected, "{rule}");
    }
}

const RETRY: Next = Next::Retry { wait: Duration::ZERO };
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn retries_come_before_other_targets_and_end_after_the_maximum() {
    assert_next(&[
        ("a server error is retried", POLICY, ALONE, status(500), RETRY),
        ("a broken connection is retried", POLICY, ALONE, outcome(AttemptOutcome::Reset), RETRY),
        ("the last retry", POLICY, after(1, ALONE), status(500), RETRY),
        ("no retries left, no other target", POLICY, after(2, ALONE), status(500), Next::Stop),
        ("retries come before the next target", POLICY, OTHER_TARGET, status(503), RETRY),
        ("then the next target", POLICY, after(2, OTHER_TARGET), status(503), Next::NextTarget),
        ("without retries the next target at once", NO_RETRIES, OTHER_TARGET, status(503), Next::NextTarget),
        ("a missing model is not retried", POLICY, ALONE, status(404), Next::Stop),
        ("but another target may have it", POLICY, OTHER_TARGET, status(404), Next::NextTarget),
    ]);
}

#[test]
fn faults_of_the_caller_stop_the_request() {
    assert_next(&[
        ("an invalid request is invalid everywhere", POLICY, BOTH, status(400), Next::Stop),
        (
            "another format may express it",
            POLICY,
            BOTH,
            outcome(AttemptOutcome::Untranslatable),
            Next::NextTarget,
        ),
        ("unless there is no other", POLICY, ALONE, outcome(AttemptOutcome::Untranslatable), Next::Stop),
    ]);
}

#[test]
fn rejected_and_limited_credentials_are_replaced_first() {
    assert_next(&[
        ("rejected", POLICY, BOTH, status(401), Next::NextCredential),
        ("rate limited", POLICY, BOTH, status(429), Next::NextCredential),
        ("a rejected credential is not retried", POLICY, ALONE, status(401), Next::Stop),
        ("without another credential, the next target", POLICY, OTHER_TARGET, status(403), Next::NextTarget),
        ("a limited credential is retried", POLICY, OTHER_TARGET, status(429), RETRY),
        ("a server error does not concern the credential", POLICY, OTHER_CREDENTIAL, status(500), RETRY),
        ("a bound request keeps its credential", BOUND, BOTH, status(401), Next::NextTarget),
        ("and retries with it", BOUND, OTHER_CREDENTIAL, status(429), RETRY),
    ]);
}

#[test]
fn a_refused_usage_option_is_left_out_before_anything_else() {
    let refused = |code| FailedAttempt { usage_option_refused: true, ..status(code) };
    assert_next(&[
        ("refused", POLICY, BOTH, refused(400), Next::RetryWithoutUsage),
        ("without retries", NO_RETRIES, ALONE, refused(400), Next::RetryWithoutUsage),
        ("out of time", POLICY, with_time(Duration::ZERO, ALONE), refused(400), Next::RetryWithoutUsage),
    ]);
}

#[test]
fn a_long_wait_is_accepted_only_at_the_last_target() {
    assert_next(&[
        ("short", POLICY, OTHER_TARGET, retry_after(429, MAX_RETRY_WAIT), RETRY),
        ("long", POLICY, OTHER_TARGET, retry_after(503, MAX_RETRY_WAIT + SECOND), Next::NextTarget),
        ("long, no alternative", POLICY, ALONE, retry_after(503, MAX_RETRY_WAIT + SECOND), RETRY),
        ("longer than the deadline", POLICY, ALONE, retry_after(503, 60 * SECOND), Next::Stop),
        ("the longest possible", POLICY, ALONE, retry_after(429, Duration::MAX), Next::Stop),
    ]);
}

#[test]
fn nothing_is_tried_after_the_deadline() {
    let late = |progress| with_time(Duration::ZERO, progress);
    assert_next(&[
        ("retry", POLICY, late(ALONE), status(500), Next::Stop),
        ("credential", POLICY, late(OTHER_CREDENTIAL), status(401), Next::Stop),
        ("target", POLICY, late(BOTH), status(503), Next::Stop),
        ("no time for the wait", POLICY, with_time(SECOND, BOTH), retry_after(503, SECOND), Next::NextTarget),
    ]);
}

#[test]
fn alternatives_are_targets_retries_and_credentials() {
    assert!(POLICY.has_alternative(&ALONE));
    assert!(!POLICY.has_alternative(&after(2, ALONE)));
    assert!(!NO_RETRIES.has_alternative(&ALONE));
    assert!(NO_RETRIES.has_alternative(&OTHER_TARGET));
    assert!(NO_RETRIES.has_alternative(&OTHER_CREDENTIAL));
    let bound = Policy { max_retries: 0, ..BOUND };
    assert!(!bound.has_alternative(&OTHER_CREDENTIAL));
}

#[test]
fn the_wait_is_the_longer_of_backoff_and_retry_after() {
    let wait = |retries, failed| match POLICY.next(&after(retries, ALONE), &failed) {
        Next::Retry { wait } => wait,
        next => panic!("{next:?}"),
    };
    assert!((BASE_BACKOFF / 2..=BASE_BACKOFF).contains(&wait(0, status(500))));
    assert!((BASE_BACKOFF..=BASE_BACKOFF * 2).contains(&wait(1, status(500))));
    assert_eq!(wait(0, retry_after(500, 3 * SECOND)), 3 * SECOND);
    assert_eq!(wait(0, status(500)), wait(0, status(503)), "the same seed has the same jitter");
    assert_ne!(wait(0, status(500)), wait(1, status(500)) / 2, "each retry has its own");
}

#[test]
fn requests_that_failed_together_do_not_retry_together() {
    let waits = |retry| -> Vec<Duration> {
        (0..400).map(|seed| Policy { seed, ..POLICY }.retry_wait(retry, None)).collect()
    };
    for (retry, full) in [(1, BASE_BACKOFF), (2, 2 * BASE_BACKOFF)] {
        let waits = waits(retry);
        let distinct: std::collections::HashSet<_> = waits.iter().collect();
        assert!(distinct.len() > 390, "{}", distinct.len());
        assert!(waits.iter().all(|wait| (full / 2..full).contains(wait)));
        let mean = waits.iter().sum::<Duration>() / 400;
        assert!((full * 72 / 100..full * 78 / 100).contains(&mean), "{mean:?}");
    }
}

#[test]
fn backoff_doubles_within_bounds() {
    let ms = |retry, jitter| backoff(retry, jitter).as_millis();
    assert_eq!([ms(1, 0.0), ms(1, 1.0), ms(2, 1.0), ms(5, 1.0)], [100, 200, 400, 3_200]);
    assert_eq!(ms(u32::MAX, 1.0), 8_000);
}

#[test]
fn credentials_cool_down_after_a_rejection_or_a_rate_limit() {
    for (failed, expected) in [
        (status(401), Some(REJECTED_COOLDOWN)),
        (status(429), Some(RATE_LIMITED_COOLDOWN)),
        (retry_after(429, 30 * SECOND), Some(30 * SECOND)),
        (retry_after(429, Duration::MAX), Some(MAX_COOLDOWN)),
        (retry_after(503, 30 * SECOND), None),
        (status(400), None),
    ] {
        assert_eq!(failed.credential_cooldown(), expected, "{failed:?}");
    }
}

#[test]
fn targets_with_an_open_breaker_come_last() {
    for (denied, expected) in
        [(&[][..], [0, 1, 2, 3]), (&[0, 2], [1, 3, 0, 2]), (&[0, 1, 2], [3, 0, 1, 2]), (&[3], [0, 1, 2, 3])]
    {
        let mut queue = TargetQueue::new(4, []);
        let order: Vec<usize> =
            std::iter::from_fn(|| queue.pop(None, |index| !denied.contains(&index))).collect();
        assert_eq!(order, expected, "{denied:?}");
        assert!(queue.is_empty());
    }
}

#[test]
fn the_queue_is_empty_while_the_last_target_is_tried() {
    let mut queue = TargetQueue::new(2, []);
    assert_eq!(queue.pop(None, |_| false), Some(1));
    assert!(!queue.is_empty(), "the skipped one is left");
    assert_eq!(queue.pop(None, |_| false), Some(0));
    assert!(queue.is_empty());
    assert_eq!(queue.pop(None, |_| true), None);
}

#[test]
fn reserved_targets_come_first_after_their_refusal_only() {
    use Refusal::{ContentFilter, Context};
    let mut queue = TargetQueue::new(2, [(Context, 2), (ContentFilter, 3), (Context, 4)]);
    assert_eq!(queue.pop(None, |_| true), Some(0));
    assert!(queue.has_reserved(Context) && queue.has_reserved(ContentFilter));
    assert_eq!(queue.pop(Some(Context), |_| true), Some(2));
    assert_eq!(queue.pop(Some(Context), |_| true), Some(4));
    assert!(!queue.has_reserved(Context));
    assert_eq!(queue.pop(Some(Context), |_| true), Some(1), "then the others");
    assert!(queue.is_empty());
    assert_eq!(queue.pop(None, |_| true), None);
    assert_eq!(queue.pop(Some(ContentFilter), |_| true), Some(3));
}
