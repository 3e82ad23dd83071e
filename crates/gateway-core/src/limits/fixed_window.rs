//! Fixed windows: how many requests of a plan remain, and when the window ends. The caller keeps the counts.

use crate::time::{SECOND, Timestamp};

/// Whether a request is allowed, with the values of the rate-limit response headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitStatus {
    pub allowed: bool,
    pub limit: u64,
    pub remaining: u64,
    pub resets_at: Timestamp,
}

impl LimitStatus {
    /// `used` includes this request.
    pub fn new(limit: u64, used: u64, resets_at: Timestamp) -> Self {
        Self { allowed: used <= limit, limit, remaining: limit.saturating_sub(used), resets_at }
    }

    /// Seconds to wait, rounded up so that a client that waits this long is allowed.
    pub fn retry_after(&self, now: Timestamp) -> i64 {
        seconds_rounded_up((self.resets_at.0 - now.0).max(1))
    }

    /// The end of the window as Unix time in seconds, rounded up.
    pub fn reset_seconds(&self) -> i64 {
        seconds_rounded_up(self.resets_at.0)
    }
}

fn seconds_rounded_up(milliseconds: i64) -> i64 {
    -(-milliseconds).div_euclid(SECOND)
}

/// The number of the window that contains `now`. Windows are aligned to the epoch.
pub fn window_of(now: Timestamp, length: i64) -> i64 {
    now.0.div_euclid(length)
}

pub fn window_end(window: i64, length: i64) -> Timestamp {
    Timestamp((window + 1) * length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MINUTE;

    #[test]
    fn the_request_above_the_limit_is_rejected() {
        let end = Timestamp(MINUTE);
        assert_eq!(LimitStatus::new(2, 1, end).remaining, 1);
        assert!(LimitStatus::new(2, 2, end).allowed);
        let rejected = LimitStatus::new(2, 3, end);
        assert!(!rejected.allowed && rejected.remaining == 0);
    }

    #[test]
    fn waiting_is_rounded_up_and_never_zero() {
        let status = LimitStatus::new(1, 2, Timestamp(10_000));
        assert_eq!(status.retry_after(Timestamp(8_999)), 2);
        assert_eq!(status.retry_after(Timestamp(9_000)), 1);
        assert_eq!(status.retry_after(Timestamp(10_000)), 1);
        assert_eq!(status.retry_after(Timestamp(99_000)), 1, "the window has ended");
        assert_eq!(status.retry_after(Timestamp(4_500)), 6);
        for (end, seconds) in [(10_000, 10), (10_001, 11), (10_999, 11), (11_000, 11)] {
            assert_eq!(LimitStatus::new(1, 0, Timestamp(end)).reset_seconds(), seconds, "{end}");
        }
    }

    #[test]
    fn windows_follow_each_other_without_a_gap() {
        assert_eq!(window_of(Timestamp(59_999), MINUTE), 0);
        assert_eq!(window_of(Timestamp(60_000), MINUTE), 1);
        for window in [0, 1, 2, 29_000_000] {
            let end = window_end(window, MINUTE);
            assert_eq!(end, Timestamp(60_000 * (window + 1)));
            assert_eq!([window_of(end.plus(-1), MINUTE), window_of(end, MINUTE)], [window, window + 1]);
        }
    }
}
