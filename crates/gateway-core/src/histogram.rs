//! A histogram of durations. Threads add to it without a lock; a reader gets each observation once, but the counts and
//! the sum may be of different moments.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Debug)]
pub struct Histogram {
    /// Upper bounds in microseconds, ascending.
    bounds: &'static [u64],
    /// One for each bound, and one for everything above the last.
    counts: Box<[AtomicU64]>,
    sum_us: AtomicU64,
}

/// What a histogram, or several of the same bounds, had counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramReading {
    pub bounds: &'static [u64],
    /// By bucket, not cumulative; the last one is above all bounds.
    pub counts: Vec<u64>,
    pub sum_us: u64,
}

impl Histogram {
    /// `bounds` are upper bounds in microseconds, ascending.
    pub fn new(bounds: &'static [u64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum_us: AtomicU64::new(0) }
    }

    /// Adds a duration. Returns the index of its bucket.
    pub fn observe(&self, duration: Duration) -> usize {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = self.bounds.partition_point(|bound| *bound < micros);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(micros, Ordering::Relaxed);
        bucket
    }

    pub fn read(&self) -> HistogramReading {
        let mut reading = HistogramReading::new(self.bounds);
        self.add_to(&mut reading);
        reading
    }

    /// Adds what was counted to a reading of a histogram with the same bounds.
    pub fn add_to(&self, reading: &mut HistogramReading) {
        for (sum, count) in reading.counts.iter_mut().zip(&self.counts) {
            *sum += count.load(Ordering::Relaxed);
        }
        reading.sum_us = reading.sum_us.wrapping_add(self.sum_us.load(Ordering::Relaxed));
    }
}

impl HistogramReading {
    pub fn new(bounds: &'static [u64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum_us: 0 }
    }

    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::new(&[1_000, 2_000]);
        let buckets = [0, 1_000, 1_001, 2_000, 2_001, 9_999].map(Duration::from_micros);
        assert_eq!(buckets.map(|duration| histogram.observe(duration)), [0, 0, 1, 1, 2, 2]);
        let reading = histogram.read();
        assert_eq!((reading.counts.as_slice(), reading.sum_us), ([2, 2, 2].as_slice(), 16_001));
        assert_eq!(reading.total(), 6);
    }

    #[test]
    fn histograms_of_several_threads_are_added_up() {
        let (one, other) = (Histogram::new(&[10]), Histogram::new(&[10]));
        one.observe(Duration::from_micros(5));
        other.observe(Duration::from_micros(50));
        let mut reading = one.read();
        other.add_to(&mut reading);
        assert_eq!(reading, HistogramReading { bounds: &[10], counts: vec![1, 1], sum_us: 55 });
    }
}
