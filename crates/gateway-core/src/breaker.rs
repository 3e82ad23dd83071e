//! A circuit breaker: it opens when too many of the latest calls failed, rests, lets one probe through, and closes
//! again when that succeeds. Time comes in as milliseconds.

/// Calls lose their weight with time: after this long, about a third of it is left.
const MEMORY_MS: f64 = 20_000.0;
/// Fewer calls than this say nothing.
const ENOUGH: f64 = 4.5;
const FAILING: f64 = 0.5;
const FIRST_REST_MS: i64 = 10_000;
const LONGEST_REST_MS: i64 = 120_000;
/// A probe that nobody reported on for this long is taken for lost.
const PROBE_MS: i64 = 60_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    Go,
    /// The one call that finds out whether things are better.
    Probe,
    /// Not now.
    Stay,
}

#[derive(Debug, Clone, Default)]
pub struct Breaker {
    good: f64,
    bad: f64,
    seen_at: i64,
    state: State,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Closed,
    Open {
        until: i64,
        rest: i64,
    },
    Probing {
        since: i64,
        rest: i64,
    },
}

impl Breaker {
    /// May a call go now? Whoever gets `Probe` must report what came of it.
    pub fn ask(&mut self, now: i64) -> Permit {
        match self.state {
            State::Closed => Permit::Go,
            State::Open { until, .. } if now < until => Permit::Stay,
            State::Probing { since, .. } if now < since + PROBE_MS => Permit::Stay,
            State::Open { rest, .. } | State::Probing { rest, .. } => {
                self.state = State::Probing { since: now, rest };
                Permit::Probe
            }
        }
    }

    pub fn saw(&mut self, good: bool, now: i64) {
        #[expect(clippy::cast_precision_loss, reason = "spans of time are small")]
        let fade = (-((now - self.seen_at).max(0) as f64) / MEMORY_MS).exp();
        (self.good, self.bad, self.seen_at) = (self.good * fade, self.bad * fade, now);
        if good {
            self.good += 1.0;
        } else {
            self.bad += 1.0;
        }
        self.state = match self.state {
            State::Closed if !good && self.is_failing() => Self::opened(now, FIRST_REST_MS),
            // A call that was let through because there was no other choice is as good as a probe.
            State::Open { .. } | State::Probing { .. } if good => {
                (self.good, self.bad) = (0.0, 0.0);
                State::Closed
            }
            State::Probing { rest, .. } => Self::opened(now, (rest * 2).min(LONGEST_REST_MS)),
            state => state,
        };
    }

    /// Nothing is left to remember.
    pub fn is_idle(&self, now: i64) -> bool {
        self.state == State::Closed && now - self.seen_at > 10 * FIRST_REST_MS
    }

    pub fn is_open(&self) -> bool {
        self.state != State::Closed
    }

    fn is_failing(&self) -> bool {
        let all = self.good + self.bad;
        all >= ENOUGH && self.bad / all >= FAILING
    }

    fn opened(now: i64, rest: i64) -> State {
        State::Open { until: now + rest, rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(times: usize, now: i64) -> Breaker {
        let mut breaker = Breaker::default();
        (0..times).for_each(|_| breaker.saw(false, now));
        breaker
    }

    #[test]
    fn a_few_failures_say_nothing_and_many_open_it() {
        assert_eq!(failed(4, 1_000).ask(1_000), Permit::Go);
        assert_eq!(failed(5, 1_000).ask(1_000), Permit::Stay);
    }

    #[test]
    fn failures_among_more_successes_leave_it_closed() {
        let mut breaker = Breaker::default();
        for _ in 0..50 {
            breaker.saw(true, 0);
            breaker.saw(false, 0);
            breaker.saw(true, 0);
        }
        assert_eq!(breaker.ask(0), Permit::Go);
    }

    #[test]
    fn old_failures_are_forgotten() {
        let mut breaker = failed(4, 0);
        breaker.saw(false, 120_000);
        assert_eq!(breaker.ask(120_000), Permit::Go);
    }

    #[test]
    fn after_its_rest_one_probe_goes_and_decides() {
        let mut breaker = failed(5, 0);
        assert_eq!(breaker.ask(9_999), Permit::Stay);
        assert_eq!([breaker.ask(10_000), breaker.ask(10_000)], [Permit::Probe, Permit::Stay]);
        let mut better = breaker.clone();
        better.saw(true, 10_100);
        assert_eq!(better.ask(10_100), Permit::Go);
        breaker.saw(false, 10_100);
        assert_eq!([breaker.ask(30_099), breaker.ask(30_100)], [Permit::Stay, Permit::Probe]);
    }

    #[test]
    fn a_lost_probe_does_not_keep_it_shut() {
        let mut breaker = failed(5, 0);
        assert_eq!(breaker.ask(10_000), Permit::Probe);
        assert_eq!([breaker.ask(69_999), breaker.ask(70_000)], [Permit::Stay, Permit::Probe]);
    }

    #[test]
    fn a_success_that_was_forced_through_closes_it() {
        let mut breaker = failed(5, 0);
        breaker.saw(true, 1_000);
        assert_eq!(breaker.ask(1_000), Permit::Go);
        assert!(!breaker.is_open());
    }
}
