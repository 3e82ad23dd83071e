//! Alerts: rules on the log rows that match a query. A measure of the rows of a window is compared with a threshold. The
//! rules only; rows are read and events are sent by the service.

mod message;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use message::message;

use crate::query;
use crate::time::{MINUTE, Timestamp};
use crate::totals::{Totals, usd};

/// Alerts that an organization may have.
pub const MAX_ALERTS: usize = 50;
/// The longest time for which an alert is muted.
pub const MAX_MUTE_MINUTES: u32 = 30 * 24 * 60;

const MAX_NAME: usize = 80;
const MAX_QUERY_BYTES: usize = 2_000;
const MAX_WINDOW_MINUTES: u32 = 24 * 60;
/// A window is checked about ten times, but no more and no less often than this.
const CHECKS_PER_WINDOW: u32 = 10;
const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(15);
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// What is compared with the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    Requests,
    Errors,
    /// The share of requests that failed, from 0 to 1.
    ErrorRate,
    /// The 95th percentile of the latency in milliseconds.
    P95Ms,
    /// The known cost in USD.
    CostUsd,
}

impl Measure {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Errors => "errors",
            Self::ErrorRate => "error_rate",
            Self::P95Ms => "p95_ms",
            Self::CostUsd => "cost_usd",
        }
    }

    /// `None` if there is nothing to measure.
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    fn of(self, totals: &Totals) -> Option<f64> {
        match self {
            Self::Requests => Some(totals.requests as f64),
            Self::Errors => Some(totals.errors as f64),
            Self::ErrorRate if totals.requests == 0 => None,
            Self::ErrorRate => Some(totals.errors as f64 / totals.requests as f64),
            Self::P95Ms => totals.latencies.percentile(0.95).map(|latency| latency as f64),
            Self::CostUsd => Some(usd(totals.cost)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NewAlert")]
pub struct Definition {
    /// 1 to 80 characters; unique in the organization.
    pub name: String,
    /// The rows that count, in the query language of `GET /logs`. Default: all rows.
    #[serde(default)]
    pub query: String,
    pub measure: Measure,
    /// The alert fires while the measure is greater than this.
    pub above: f64,
    /// The length of the window that ends now, 1 to 1440 minutes.
    #[serde(default = "default_window")]
    pub window_minutes: u32,
    /// With fewer rows in the window the alert does not fire, so that one failed request of two is no alarm. Default: 1.
    #[serde(default = "default_min_requests")]
    pub min_requests: u32,
    #[serde(default = "default_enabled")]
    pub enabled: bool,
}

fn default_window() -> u32 {
    5
}

fn default_min_requests() -> u32 {
    1
}

fn default_enabled() -> bool {
    true
}

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// `None` without rows to measure.
    pub value: Option<f64>,
    pub requests: i64,
    /// Set if there were too many rows to read: only those since this time were measured.
    pub scanned_to: Option<Timestamp>,
    pub is_above: bool,
}

impl Definition {
    /// The field that is wrong, and why. Whether the query is valid is checked by `query::parse`.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let refuse = |field, why: &str| Err((field, why.to_owned()));
        if self.name.trim().is_empty() || self.name.chars().count() > MAX_NAME {
            return refuse("name", "must be 1 to 80 characters");
        }
        if self.query.len() > MAX_QUERY_BYTES {
            return refuse("query", "at most 2,000 bytes");
        }
        if !(1..=MAX_WINDOW_MINUTES).contains(&self.window_minutes) {
            return refuse("window_minutes", "must be from 1 to 1440");
        }
        if !self.above.is_finite() || self.above < 0.0 {
            return refuse("above", "must be a number that is not negative");
        }
        if self.measure == Measure::ErrorRate && self.above >= 1.0 {
            return refuse("above", "must be below 1: an error rate is a share of the requests");
        }
        Ok(())
    }

    pub fn window_ms(&self) -> i64 {
        i64::from(self.window_minutes) * MINUTE
    }

    /// The time between two checks.
    pub fn check_interval(&self) -> Duration {
        let window = Duration::from_secs(60) * self.window_minutes;
        (window / CHECKS_PER_WINDOW).clamp(MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL)
    }

    /// What the sums of rows say that were read back to `scanned_to`, or over the whole window.
    pub fn read(&self, totals: &Totals, scanned_to: Option<Timestamp>) -> Reading {
        let value = self.measure.of(totals);
        let has_enough = totals.requests >= i64::from(self.min_requests);
        let is_above = has_enough && value.is_some_and(|value| value > self.above);
        Reading { value, requests: totals.requests, scanned_to, is_above }
    }

    pub fn parsed_query(&self) -> Result<query::Query, query::QueryError> {
        if self.query.trim().is_empty() { Ok(query::Query::default()) } else { query::parse(&self.query) }
    }
}

/// Whether events are sent at this time.
pub fn is_muted(muted_until: Option<Timestamp>, now: Timestamp) -> bool {
    muted_until.is_some_and(|until| now < until)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(measure: Measure, above: f64) -> Definition {
        Definition {
            name: "a".into(),
            query: String::new(),
            measure,
            above,
            window_minutes: 5,
            min_requests: 1,
            enabled: true,
        }
    }

    fn totals(requests: i64, errors: i64, latencies: &[i64]) -> Totals {
        let mut totals = Totals { requests, errors, cost: 2_500_000_000_000, ..Totals::default() };
        for latency in latencies {
            totals.latencies.add(*latency);
        }
        totals
    }

    #[test]
    fn a_measure_is_compared_with_the_threshold() {
        let found = totals(10, 3, &[5, 5, 5, 5, 5, 5, 5, 5, 5, 19]);
        for (measure, value) in [
            (Measure::Requests, 10.0),
            (Measure::Errors, 3.0),
            (Measure::ErrorRate, 0.3),
            (Measure::P95Ms, 19.0),
            (Measure::CostUsd, 2.5),
        ] {
            let name = measure.as_str();
            let reading = definition(measure, value - 0.01).read(&found, None);
            assert_eq!(reading.value, Some(value), "{name}");
            assert!(reading.is_above, "{name}");
            assert!(!definition(measure, value).read(&found, None).is_above, "{name}: equal is not above");
        }
    }

    #[test]
    fn without_enough_rows_nothing_fires() {
        let none = totals(0, 0, &[]);
        assert_eq!(definition(Measure::ErrorRate, 0.0).read(&none, None).value, None);
        assert_eq!(definition(Measure::P95Ms, 0.0).read(&none, None).value, None);
        let few = Definition { min_requests: 20, ..definition(Measure::ErrorRate, 0.1) };
        assert!(!few.read(&totals(19, 19, &[]), None).is_above);
        assert!(few.read(&totals(20, 20, &[]), None).is_above);
    }

    #[test]
    fn a_partial_reading_says_how_far_the_rows_were_read() {
        let found = totals(10, 3, &[]);
        let reading = definition(Measure::Errors, 2.0).read(&found, Some(Timestamp(5)));
        let expected =
            Reading { value: Some(3.0), requests: 10, scanned_to: Some(Timestamp(5)), is_above: true };
        assert_eq!(reading, expected);
        assert_eq!(definition(Measure::Errors, 2.0).read(&found, None).scanned_to, None);
    }

    #[test]
    fn a_window_is_checked_about_ten_times() {
        let every = |window_minutes| {
            Definition { window_minutes, ..definition(Measure::Errors, 1.0) }.check_interval().as_secs()
        };
        assert_eq!([every(1), every(5), every(10), every(1440)], [15, 30, 60, 60]);
    }

    #[test]
    fn wrong_fields_are_named() {
        let good = definition(Measure::ErrorRate, 0.5);
        assert_eq!(good.check(), Ok(()));
        for (field, bad) in [
            ("name", Definition { name: " ".into(), ..good.clone() }),
            ("name", Definition { name: "x".repeat(81), ..good.clone() }),
            ("query", Definition { query: "x".repeat(2_001), ..good.clone() }),
            ("window_minutes", Definition { window_minutes: 0, ..good.clone() }),
            ("window_minutes", Definition { window_minutes: 1_441, ..good.clone() }),
            ("above", Definition { above: f64::NAN, ..good.clone() }),
            ("above", Definition { above: -0.1, ..good.clone() }),
            ("above", Definition { above: 1.0, ..good.clone() }),
        ] {
            assert_eq!(bad.check().unwrap_err().0, field);
        }
    }
}
