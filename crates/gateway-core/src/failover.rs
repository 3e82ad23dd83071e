//! Failover policy: what follows a failed attempt. Pure, so that every rule has a row in a table of tests; the loop
//! that sends the attempts only does what the policy returns.

use std::collections::VecDeque;
use std::time::Duration;

use crate::llm::failure::{Failure, Fault, Refusal};
use crate::route::splitmix64;

/// The first backoff before a retry at the same target; it doubles with each further retry.
const BASE_BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(8);
/// If the target asks for a longer wait than this, the next target is tried instead, if there is one.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(5);
/// How long a rejected credential is not used.
const REJECTED_COOLDOWN: Duration = Duration::from_secs(5 * 60);
/// How long a rate-limited credential is not used when the response has no `Retry-After`.
const RATE_LIMITED_COOLDOWN: Duration = Duration::from_secs(10);
const MAX_COOLDOWN: Duration = Duration::from_secs(60 * 60);

/// The failover rules of one request.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// How often each target may be retried.
    pub max_retries: u32,
    /// The request refers to state that one provider account keeps, so no other credential can serve it.
    pub is_bound: bool,
    /// Seeds the jitter of the backoff.
    pub seed: u64,
}

/// The state of the request when an attempt has failed or is about to start.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Retries already made at this target.
    pub retries: u32,
    /// The target has another credential that can be used now.
    pub has_other_credential: bool,
    /// Another target follows this one.
    pub has_other_target: bool,
    /// Time until the deadline of the whole request.
    pub time_left: Duration,
}

/// A failed attempt.
#[derive(Debug, Clone, Copy)]
pub struct FailedAttempt {
    pub failure: Failure,
    /// The response was a 429.
    pub is_rate_limited: bool,
    /// The delay that the provider requested.
    pub retry_after: Option<Duration>,
    /// The provider rejected the usage option that the gateway had added, and the body can be sent without it.
    pub usage_option_refused: bool,
}

/// What to do after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Send to the same target again after the wait.
    Retry {
        wait: Duration,
    },
    /// Send to the same target at once, with another credential.
    NextCredential,
    /// Send to the same target at once, without the usage option.
    RetryWithoutUsage,
    NextTarget,
    /// Return the failure to the caller.
    Stop,
}

impl Policy {
    pub fn next(&self, progress: &Progress, failed: &FailedAttempt) -> Next {
        if failed.usage_option_refused {
            return Next::RetryWithoutUsage;
        }
        let failure = failed.failure;
        let concerns_credential = failure.fault == Fault::Credential || failed.is_rate_limited;
        if concerns_credential && self.can_switch_credential(progress) && !progress.time_left.is_zero() {
            return Next::NextCredential;
        }
        if failure.retry && progress.retries < self.max_retries {
            let wait = self.retry_wait(progress.retries + 1, failed.retry_after);
            let is_acceptable = wait <= MAX_RETRY_WAIT || !progress.has_other_target;
            if is_acceptable && wait < progress.time_left {
                return Next::Retry { wait };
            }
        }
        if failure.next && progress.has_other_target && !progress.time_left.is_zero() {
            return Next::NextTarget;
        }
        Next::Stop
    }

    /// Returns true if something is left to try should the coming attempt fail.
    pub fn has_alternative(&self, progress: &Progress) -> bool {
        progress.has_other_target
            || progress.retries < self.max_retries
            || self.can_switch_credential(progress)
    }

    fn can_switch_credential(&self, progress: &Progress) -> bool {
        progress.has_other_credential && !self.is_bound
    }

    fn retry_wait(&self, retry: u32, retry_after: Option<Duration>) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let jitter = (splitmix64(self.seed ^ u64::from(retry)) >> 11) as f64 / (1u64 << 53) as f64;
        backoff(retry, jitter).max(retry_after.unwrap_or_default())
    }
}

impl FailedAttempt {
    /// How long the credential of the attempt must not be used. None if the failure does not concern it.
    pub fn credential_cooldown(&self) -> Option<Duration> {
        match self.failure.fault {
            Fault::Credential => Some(REJECTED_COOLDOWN),
            Fault::Target if self.is_rate_limited => {
                Some(self.retry_after.unwrap_or(RATE_LIMITED_COOLDOWN).min(MAX_COOLDOWN))
            }
            Fault::Target | Fault::Caller => None,
        }
    }
}

/// The backoff before a retry (from 1) at the same target. `jitter` is from 0 to 1.
fn backoff(retry: u32, jitter: f64) -> Duration {
    let full = BASE_BACKOFF.saturating_mul(1 << retry.saturating_sub(1).min(10)).min(MAX_BACKOFF);
    full.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
}

/// The targets of a request that have not been tried yet. Targets with an open circuit breaker come after all others:
/// they never delay a healthy target, but are better than no target. Targets that are reserved for a refusal come first
/// after it, and after nothing else.
#[derive(Debug)]
pub struct TargetQueue {
    next: usize,
    count: usize,
    skipped: VecDeque<usize>,
    reserved: VecDeque<(Refusal, usize)>,
}

impl TargetQueue {
    /// A queue of the targets before `count`, and of reserved ones.
    pub fn new(count: usize, reserved: impl IntoIterator<Item = (Refusal, usize)>) -> Self {
        Self { next: 0, count, skipped: VecDeque::new(), reserved: reserved.into_iter().collect() }
    }

    /// Removes and returns the index of the next target. `is_allowed` asks the circuit breaker of a target, which is
    /// not consulted for the last one, for targets that were skipped before and for reserved ones.
    pub fn pop(
        &mut self,
        after: Option<Refusal>,
        mut is_allowed: impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        let reserved = after.and_then(|after| self.reserved.iter().position(|(of, _)| *of == after));
        if let Some((_, index)) = reserved.and_then(|at| self.reserved.remove(at)) {
            return Some(index);
        }
        while self.next < self.count {
            let index = self.next;
            self.next += 1;
            if self.next == self.count || is_allowed(index) {
                return Some(index);
            }
            self.skipped.push_back(index);
        }
        self.skipped.pop_front()
    }

    /// No target is left but reserved ones.
    pub fn is_empty(&self) -> bool {
        self.next == self.count && self.skipped.is_empty()
    }

    /// A target is reserved for this refusal.
    pub fn has_reserved(&self, refusal: Refusal) -> bool {
        self.reserved.iter().any(|(of, _)| *of == refusal)
    }
}

#[cfg(test)]
mod tests {
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
            (
                "without retries the next target at once",
                NO_RETRIES,
                OTHER_TARGET,
                status(503),
                Next::NextTarget,
            ),
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
            (
                "without another credential, the next target",
                POLICY,
                OTHER_TARGET,
                status(403),
                Next::NextTarget,
            ),
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
            (
                "no time for the wait",
                POLICY,
                with_time(SECOND, BOTH),
                retry_after(503, SECOND),
                Next::NextTarget,
            ),
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
        for (denied, expected) in [
            (&[][..], [0, 1, 2, 3]),
            (&[0, 2], [1, 3, 0, 2]),
            (&[0, 1, 2], [3, 0, 1, 2]),
            (&[3], [0, 1, 2, 3]),
        ] {
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
}
