//! Fixed windows: how many requests are left, and when the window ends. Where the counts are kept is the
//! caller's business.

use crate::time::{SECOND, Timestamp};

/// The answer to "may this one pass?", with all that the response headers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitStatus {
    pub allowed: bool,
    pub limit: u64,
    pub remaining: u64,
    pub resets_at: Timestamp,
}

impl LimitStatus {
    /// `used` counts this request too.
    pub fn of(limit: u64, used: u64, resets_at: Timestamp) -> Self {
        Self { allowed: used <= limit, limit, remaining: limit.saturating_sub(used), resets_at }
    }

    /// Whole seconds to wait, rounded up so that a client that obeys is let in.
    pub fn retry_after(&self, now: Timestamp) -> i64 {
        (self.resets_at.0 - now.0).max(1).div_euclid(SECOND)
            + i64::from((self.resets_at.0 - now.0).max(1).rem_euclid(SECOND) > 0)
    }

    /// The Unix time in seconds at which the window has surely ended.
    pub fn reset_seconds(&self) -> i64 {
        (self.resets_at.0 + SECOND - 1).div_euclid(SECOND)
    }
}

/// The number of the window that `now` lies in, for windows aligned to the epoch.
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
    fn the_request_after_the_last_is_refused() {
        let end = Timestamp(MINUTE);
        assert_eq!(LimitStatus::of(2, 1, end).remaining, 1);
        assert!(LimitStatus::of(2, 2, end).allowed);
        let refused = LimitStatus::of(2, 3, end);
        assert!(!refused.allowed && refused.remaining == 0);
    }

    #[test]
    fn waiting_is_rounded_up_and_never_zero() {
        let verdict = LimitStatus::of(1, 2, Timestamp(10_000));
        assert_eq!(verdict.retry_after(Timestamp(8_999)), 2);
        assert_eq!(verdict.retry_after(Timestamp(9_000)), 1);
        assert_eq!(verdict.retry_after(Timestamp(10_000)), 1);
    }

    #[test]
    fn windows_follow_each_other_without_a_gap() {
        assert_eq!(window_of(Timestamp(59_999), MINUTE), 0);
        assert_eq!(window_of(Timestamp(60_000), MINUTE), 1);
        assert_eq!(window_end(0, MINUTE), Timestamp(60_000));
    }
}
