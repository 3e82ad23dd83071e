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
mod tests;
