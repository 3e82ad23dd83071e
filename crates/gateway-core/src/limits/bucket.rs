//! A bucket that refills continuously: full at its capacity, and refilled at capacity per window.
//!
//! Levels are integers in units of 1/window, so that every millisecond adds a whole number of them and nothing is
//! rounded: after any number of steps the level is what one step would have made of it. Levels of most limits fit into 64
//! bits, and are divided as such: a division of 128 bits takes several times as long.

use std::time::Duration;

use rust_decimal::prelude::ToPrimitive as _;

use crate::time::Timestamp;

/// A clock that went back further than this starts the refill anew. Smaller steps come from threads that read the
/// clock at about the same time, and must not refill twice.
const MAX_CLOCK_STEP: i64 = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    capacity: u64,
    /// The time of a whole refill, in milliseconds.
    window: i64,
    /// In units of 1/window.
    level: i128,
    updated_at: Timestamp,
}

impl Bucket {
    /// A full bucket.
    pub fn new(capacity: u64, window: i64, now: Timestamp) -> Self {
        let window = window.max(1);
        Self { capacity, window, level: i128::from(capacity) * i128::from(window), updated_at: now }
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    pub fn window(&self) -> i64 {
        self.window
    }

    /// Adds what time has refilled.
    pub fn refill(&mut self, now: Timestamp) {
        let elapsed = now.0.saturating_sub(self.updated_at.0);
        if elapsed < 0 {
            if elapsed < -MAX_CLOCK_STEP {
                self.updated_at = now;
            }
            return;
        }
        self.updated_at = now;
        if elapsed == 0 || self.is_full() {
            return;
        }
        let refilled = self.level.saturating_add(i128::from(self.capacity) * i128::from(elapsed));
        self.level = refilled.min(self.full());
    }

    /// What is left, in whole units; negative after calls that used more than they had reserved.
    pub fn left(&self) -> i64 {
        match i64::try_from(self.level) {
            Ok(level) => level.div_euclid(self.window),
            Err(_) => i64::try_from(self.level.div_euclid(i128::from(self.window))).unwrap_or(i64::MAX),
        }
    }

    /// Whether `amount` can be taken and `floor` is left.
    pub fn has(&self, amount: u64, floor: u64) -> bool {
        self.level >= self.scaled(amount.saturating_add(floor))
    }

    /// Takes an amount, whatever is left.
    pub fn take(&mut self, amount: u64) {
        self.level -= self.scaled(amount);
    }

    /// Gives back what was not used, or takes what was used beyond it.
    pub fn give_back(&mut self, amount: i64) {
        let amount = i128::from(amount) * i128::from(self.window);
        self.level = (self.level + amount).min(self.full());
    }

    /// How long until `amount` can be taken and `floor` is left, to the millisecond. Zero if it can be now.
    pub fn time_until(&self, amount: u64, floor: u64) -> Duration {
        let missing = self.scaled(amount.saturating_add(floor).min(self.capacity)) - self.level;
        self.time_for(missing)
    }

    /// How long until it is full.
    pub fn time_until_full(&self) -> Duration {
        self.time_for(self.full() - self.level)
    }

    pub fn is_full(&self) -> bool {
        self.level >= self.full()
    }

    /// The part that is left, for comparisons only.
    pub fn share(&self) -> f64 {
        let number = |level: i128| match i64::try_from(level) {
            Ok(level) => level.to_f64(),
            Err(_) => level.to_f64(),
        };
        number(self.level).unwrap_or(0.0) / number(self.full()).unwrap_or(1.0).max(1.0)
    }

    /// Whether less than a fifth is left.
    pub fn is_low(&self) -> bool {
        self.level * 5 < self.full()
    }

    /// The limit was changed: what is used stays used.
    pub fn resize(&mut self, capacity: u64, window: i64) {
        let window = window.max(1);
        if (capacity, window) == (self.capacity, self.window) {
            return;
        }
        let used = (self.full() - self.level) * i128::from(window) / i128::from(self.window);
        (self.capacity, self.window) = (capacity, window);
        self.level = self.full() - used;
    }

    /// Replaces the level by one that is known from elsewhere, in whole units.
    pub fn set_left(&mut self, left: i64, now: Timestamp) {
        self.level = (i128::from(left) * i128::from(self.window)).min(self.full());
        self.updated_at = now;
    }

    fn full(&self) -> i128 {
        self.scaled(self.capacity)
    }

    fn scaled(&self, amount: u64) -> i128 {
        i128::from(amount) * i128::from(self.window)
    }

    /// Rounded up, so that a caller that waits this long finds it.
    fn time_for(&self, missing: i128) -> Duration {
        if missing <= 0 {
            return Duration::ZERO;
        }
        let rate = self.capacity.max(1);
        let millis = match u64::try_from(missing) {
            Ok(missing) => missing.div_ceil(rate),
            Err(_) => u64::try_from((missing - 1) / i128::from(rate) + 1).unwrap_or(u64::MAX),
        };
        Duration::from_millis(millis)
    }
}
