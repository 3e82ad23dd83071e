//! A histogram for latencies, and the median with its range for repeated measurements.

/// Log-linear: 256 steps per doubling, so a value is known to within 0.4 %.
pub(crate) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u64,
    max: u64,
}

/// Median, minimum and maximum of several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

const STEP_BITS: u32 = 8;
const STEPS: u64 = 1 << STEP_BITS;

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { buckets: vec![0; ((64 - STEP_BITS as usize) + 1) << STEP_BITS], count: 0, sum: 0, max: 0 }
    }

    pub(crate) fn record(&mut self, value: u64) {
        if let Some(bucket) = self.buckets.get_mut(index_of(value)) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum += value;
        self.max = self.max.max(value);
    }

    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    pub(crate) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Returns the value at the given quantile.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let wanted = ((self.count as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return middle_of(index).min(self.max as f64);
            }
        }
        0.0
    }
}

fn index_of(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let shift = value.ilog2() - STEP_BITS;
    (u64::from(shift + 1) * STEPS + ((value >> shift) - STEPS)) as usize
}

fn middle_of(index: usize) -> f64 {
    let (group, step) = (index as u64 / STEPS, index as u64 % STEPS);
    if group == 0 {
        return step as f64;
    }
    let width = (1_u64 << (group - 1)) as f64;
    (STEPS + step) as f64 * width + (width - 1.0) / 2.0
}

impl Spread {
    /// The median, with its 95 % confidence interval instead of minimum and maximum: of many values, the extremes say
    /// little.
    pub(crate) fn with_confidence(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        // The number of values below the median has the binomial distribution.
        let count = values.len() as f64;
        let rank = ((count - 1.96 * count.sqrt()) / 2.0).floor().max(0.0) as usize;
        let (min, max) = (*values.get(rank)?, *values.get(values.len().checked_sub(rank + 1)?)?);
        Some(Self { min, max, ..Self::of(values)? })
    }

    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let (low, high) = (*values.get((values.len() - 1) / 2)?, *values.get(values.len() / 2)?);
        let median = f64::midpoint(low, high);
        Some(Self { median, min, max })
    }

    pub(crate) fn one(value: f64) -> Self {
        Self { median: value, min: value, max: value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_half_a_percent() {
        let mut histogram = Histogram::new();
        for value in 1..=100_000_u64 {
            histogram.record(value * 37);
        }
        for part in [0.01, 0.5, 0.9, 0.99, 0.999] {
            let exact = 3_700_000.0 * part;
            let error = (histogram.quantile(part) - exact).abs() / exact;
            assert!(error < 0.005, "{part}: {error}");
        }
        assert!((histogram.quantile(1.0) - 3_700_000.0).abs() < 3_700_000.0 * 0.005);
        assert_eq!(histogram.max(), 3_700_000);
    }

    #[test]
    fn the_confidence_interval_of_the_median_leaves_outliers_out() {
        let values = (0..100).map(f64::from).chain([1e9, -1e9]);
        let spread = Spread::with_confidence(values).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (49.5, 40.0, 59.0));
        assert_eq!(Spread::with_confidence([7.0]), Some(Spread::one(7.0)));
        assert_eq!(Spread::with_confidence([]), None);
    }

    #[test]
    fn small_values_are_exact_and_great_ones_fit() {
        let mut histogram = Histogram::new();
        histogram.record(3);
        assert!((histogram.quantile(0.5) - 3.0).abs() < f64::EPSILON);
        assert!(index_of(u64::MAX) < histogram.buckets.len());
    }

    #[test]
    fn the_median_of_one_two_and_three_rounds() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([4.0]), Some(Spread::one(4.0)));
        assert_eq!(Spread::of([4.0, 2.0]), Some(Spread { median: 3.0, min: 2.0, max: 4.0 }));
        assert_eq!(Spread::of([9.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 9.0 }));
    }
}
