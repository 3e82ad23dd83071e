//! Circuit breaker. It opens when too many of the recent calls failed, denies calls for a while, then allows one probe
//! and closes again when the probe succeeds. Timestamps are arguments, in milliseconds.

use std::time::Duration;

/// Time constant of the exponential decay: after this time a call counts about a third.
const DECAY: Duration = Duration::from_secs(20);
/// Below this decayed number of calls the failure rate is not significant.
const MIN_CALLS: f64 = 4.5;
const MAX_FAILURE_RATE: f64 = 0.5;
const FIRST_OPEN_TIME: Duration = Duration::from_secs(10);
const MAX_OPEN_TIME: Duration = Duration::from_secs(120);
/// A probe without a reported result counts as lost after this time.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);
/// A closed breaker without calls for this time has no state worth keeping.
const IDLE_TIMEOUT: Duration = Duration::from_secs(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    Allow,
    /// The single call that tests whether the target has recovered.
    Probe,
    Deny,
}

#[derive(Debug, Clone, Default)]
pub struct Breaker {
    successes: f64,
    failures: f64,
    updated_at: i64,
    state: BreakerState,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum BreakerState {
    #[default]
    Closed,
    Open {
        until: i64,
        open_time: Duration,
    },
    Probing {
        since: i64,
        open_time: Duration,
    },
}

impl Breaker {
    /// Decides whether a call is allowed now. The result of a `Probe` must be reported with `record`.
    pub fn permit(&mut self, now: i64) -> Permit {
        match self.state {
            BreakerState::Closed => Permit::Allow,
            BreakerState::Open { until, .. } if now < until => Permit::Deny,
            BreakerState::Probing { since, .. } if now < since + millis(PROBE_TIMEOUT) => Permit::Deny,
            BreakerState::Open { open_time, .. } | BreakerState::Probing { open_time, .. } => {
                self.state = BreakerState::Probing { since: now, open_time };
                Permit::Probe
            }
        }
    }

    pub fn record(&mut self, success: bool, now: i64) {
        #[expect(clippy::cast_precision_loss, reason = "time spans are small")]
        let elapsed = (now - self.updated_at).max(0) as f64;
        let decay = (-elapsed / (DECAY.as_secs_f64() * 1_000.0)).exp();
        (self.successes, self.failures, self.updated_at) =
            (self.successes * decay, self.failures * decay, now);
        if success {
            self.successes += 1.0;
        } else {
            self.failures += 1.0;
        }
        self.state = match self.state {
            BreakerState::Closed if !success && self.is_failing() => Self::open(now, FIRST_OPEN_TIME),
            // A success closes the breaker even without a probe: the call was the last resort of its route.
            BreakerState::Open { .. } | BreakerState::Probing { .. } if success => {
                (self.successes, self.failures) = (0.0, 0.0);
                BreakerState::Closed
            }
            BreakerState::Probing { open_time, .. } => Self::open(now, (open_time * 2).min(MAX_OPEN_TIME)),
            state => state,
        };
    }

    /// Returns true if the breaker can be dropped without changing any decision.
    pub fn is_idle(&self, now: i64) -> bool {
        self.state == BreakerState::Closed && now - self.updated_at > millis(IDLE_TIMEOUT)
    }

    pub fn is_open(&self) -> bool {
        self.state != BreakerState::Closed
    }

    /// Whether a call tests at the moment if the target has recovered.
    pub fn is_probing(&self) -> bool {
        matches!(self.state, BreakerState::Probing { .. })
    }

    fn is_failing(&self) -> bool {
        let calls = self.successes + self.failures;
        calls >= MIN_CALLS && self.failures / calls >= MAX_FAILURE_RATE
    }

    fn open(now: i64, open_time: Duration) -> BreakerState {
        BreakerState::Open { until: now + millis(open_time), open_time }
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn breaker_with_failures(count: usize, now: i64) -> Breaker {
        let mut breaker = Breaker::default();
        (0..count).for_each(|_| breaker.record(false, now));
        breaker
    }

    #[test]
    fn a_few_failures_are_not_significant_and_many_open_the_breaker() {
        assert_eq!(breaker_with_failures(4, 1_000).permit(1_000), Permit::Allow);
        assert_eq!(breaker_with_failures(5, 1_000).permit(1_000), Permit::Deny);
    }

    #[test]
    fn failures_among_more_successes_leave_it_closed() {
        let mut breaker = Breaker::default();
        for _ in 0..50 {
            breaker.record(true, 0);
            breaker.record(false, 0);
            breaker.record(true, 0);
        }
        assert_eq!(breaker.permit(0), Permit::Allow);
    }

    #[test]
    fn old_failures_decay() {
        let mut breaker = breaker_with_failures(4, 0);
        breaker.record(false, 120_000);
        assert_eq!(breaker.permit(120_000), Permit::Allow);
    }

    #[test]
    fn at_least_half_of_the_calls_must_have_failed() {
        for (successes, is_open) in [(4, true), (5, true), (6, false)] {
            let mut breaker = Breaker::default();
            (0..successes).for_each(|_| breaker.record(true, 0));
            (0..5).for_each(|_| breaker.record(false, 0));
            assert_eq!(breaker.is_open(), is_open, "5 failures, {successes} successes");
        }
        let mut breaker = breaker_with_failures(4, 0);
        breaker.record(true, 0);
        assert!(!breaker.is_open(), "only a failure opens it");
    }

    #[test]
    fn a_call_counts_a_third_after_the_time_constant() {
        // Four failures count 1.47 after 20 seconds: three more are 4.47 calls, four more are 5.47.
        for (more, is_open) in [(3, false), (4, true)] {
            let mut breaker = breaker_with_failures(4, 50_000);
            (0..more).for_each(|_| breaker.record(false, 70_000));
            assert_eq!(breaker.is_open(), is_open, "{more}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_change_the_weight_of_calls() {
        let mut breaker = breaker_with_failures(4, 50_000);
        breaker.record(false, 20_000);
        assert!(breaker.is_open());
    }

    #[test]
    fn each_failed_probe_doubles_the_open_time_up_to_two_minutes() {
        let mut breaker = breaker_with_failures(5, 0);
        let mut now = 0;
        for open_time in [10_000, 20_000, 40_000, 80_000, 120_000, 120_000] {
            now += open_time;
            assert_eq!([breaker.permit(now - 1), breaker.permit(now)], [Permit::Deny, Permit::Probe]);
            breaker.record(false, now);
        }
    }

    #[test]
    fn failures_of_calls_that_started_before_it_opened_do_not_extend_the_open_time() {
        let mut breaker = breaker_with_failures(9, 0);
        breaker.record(false, 9_000);
        assert_eq!(breaker.permit(10_000), Permit::Probe);
    }

    #[test]
    fn failures_before_a_recovery_are_forgotten() {
        let mut breaker = breaker_with_failures(50, 0);
        breaker.record(true, 0);
        (0..4).for_each(|_| breaker.record(false, 0));
        assert!(!breaker.is_open());
        breaker.record(false, 0);
        assert!(breaker.is_open());
    }

    #[test]
    fn it_is_open_until_a_call_succeeds() {
        let mut breaker = breaker_with_failures(5, 0);
        assert!(breaker.is_open());
        assert_eq!(breaker.permit(10_000), Permit::Probe);
        assert!(breaker.is_open(), "while the probe runs");
        breaker.record(true, 11_000);
        assert!(!breaker.is_open());
    }

    #[test]
    fn it_is_idle_when_it_is_closed_and_had_no_call_for_a_while() {
        let mut breaker = breaker_with_failures(4, 50_000);
        assert!(!breaker.is_idle(50_000) && !breaker.is_idle(150_000) && breaker.is_idle(150_001));
        breaker.record(false, 50_000);
        assert!(!breaker.is_idle(150_001), "an open breaker is kept");
        assert_eq!(breaker.permit(150_001), Permit::Probe);
        assert!(!breaker.is_idle(999_999));
    }

    #[test]
    fn after_the_open_time_one_probe_is_allowed_and_decides() {
        let mut breaker = breaker_with_failures(5, 0);
        assert_eq!(breaker.permit(9_999), Permit::Deny);
        assert_eq!([breaker.permit(10_000), breaker.permit(10_000)], [Permit::Probe, Permit::Deny]);
        let mut recovered = breaker.clone();
        recovered.record(true, 10_100);
        assert_eq!(recovered.permit(10_100), Permit::Allow);
        breaker.record(false, 10_100);
        assert_eq!([breaker.permit(30_099), breaker.permit(30_100)], [Permit::Deny, Permit::Probe]);
    }

    #[test]
    fn a_lost_probe_does_not_keep_the_breaker_open() {
        let mut breaker = breaker_with_failures(5, 0);
        assert_eq!(breaker.permit(10_000), Permit::Probe);
        assert_eq!([breaker.permit(69_999), breaker.permit(70_000)], [Permit::Deny, Permit::Probe]);
    }

    #[test]
    fn a_success_without_a_probe_closes_it() {
        let mut breaker = breaker_with_failures(5, 0);
        breaker.record(true, 1_000);
        assert_eq!(breaker.permit(1_000), Permit::Allow);
        assert!(!breaker.is_open());
    }

    proptest! {
        /// The naive model keeps every call and weighs each by its age.
        #[test]
        fn it_opens_when_the_weighted_calls_are_many_and_half_of_them_failed(
            calls in prop::collection::vec((0..30_000_i64, prop::bool::weighted(0.4)), 1..40),
        ) {
            let (mut breaker, mut now, mut seen) = (Breaker::default(), 0, Vec::new());
            for (gap, success) in calls {
                now += gap;
                breaker.record(success, now);
                seen.push((now, success));
                #[expect(clippy::cast_precision_loss, reason = "times of a test")]
                let weigh = |(at, _): &&(i64, bool)| (-((now - at) as f64) / 20_000.0).exp();
                let total: f64 = seen.iter().map(|call| weigh(&call)).sum();
                let failed: f64 = seen.iter().filter(|(_, success)| !success).map(|call| weigh(&call)).sum();
                // Sums in another order may fall on either side of a limit.
                prop_assume!((total - MIN_CALLS).abs() > 1e-9 && (failed / total - MAX_FAILURE_RATE).abs() > 1e-9);
                let opens = !success && total >= MIN_CALLS && failed / total >= MAX_FAILURE_RATE;
                prop_assert_eq!(breaker.is_open(), opens);
                if opens {
                    break;
                }
            }
        }
    }
}
