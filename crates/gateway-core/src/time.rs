//! Timestamps in the API's format: RFC 3339, UTC, milliseconds, `Z`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Lengths in milliseconds, for arithmetic with timestamps.
pub const SECOND: i64 = 1_000;
pub const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;
pub const DAY: i64 = 24 * HOUR;

/// Milliseconds since the Unix epoch. Stored as BIGINT, so that it sorts the same in every database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    #[must_use]
    pub fn plus(self, milliseconds: i64) -> Self {
        Self(self.0.saturating_add(milliseconds))
    }

    /// The timestamp after this time span.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        self.plus(i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
    }

    /// The time span since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The time in a header such as `Date`.
    pub fn from_http_date(value: &str) -> Option<Self> {
        let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value.trim()).ok()?;
        Some(Self(date.as_millisecond()))
    }

    /// Whole seconds since the epoch, for tokens and rate-limit headers.
    pub fn unix_seconds(self) -> i64 {
        self.0.div_euclid(SECOND)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", jiff_timestamp(*self))
    }
}

/// Calendar intervals in UTC; weeks start on Monday.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    Minute,
    Hour,
    Day,
    Week,
}

impl Interval {
    pub fn length(self) -> i64 {
        match self {
            Self::Minute => MINUTE,
            Self::Hour => HOUR,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
        }
    }

    /// A time at which an interval starts.
    pub fn origin(self) -> i64 {
        match self {
            // The epoch was a Thursday.
            Self::Week => 4 * DAY,
            Self::Minute | Self::Hour | Self::Day => 0,
        }
    }

    /// The start of the interval that contains the time.
    pub fn start_of(self, at: Timestamp) -> Timestamp {
        let since = at.0 - self.origin();
        Timestamp(since.div_euclid(self.length()) * self.length() + self.origin())
    }
}

/// Converts a timestamp for the calendar functions of `jiff`.
pub fn jiff_timestamp(time: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(time.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an RFC 3339 time such as 2026-01-31T12:00:00Z")]
pub struct MalformedTime;

impl FromStr for Timestamp {
    type Err = MalformedTime;

    fn from_str(text: &str) -> Result<Self, MalformedTime> {
        text.parse::<jiff::Timestamp>().map(|t| Self(t.as_millisecond())).map_err(|_| MalformedTime)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "format": "date-time"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_with_milliseconds_and_z() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp(1_700_000_000_120).to_string(), "2023-11-14T22:13:20.120Z");
    }

    #[test]
    fn intervals_begin_where_calendars_say() {
        let start =
            |interval: Interval| interval.start_of("2026-11-19T13:45:59.999Z".parse().unwrap()).to_string();
        assert_eq!(start(Interval::Minute), "2026-11-19T13:45:00.000Z");
        assert_eq!(start(Interval::Hour), "2026-11-19T13:00:00.000Z");
        assert_eq!(start(Interval::Day), "2026-11-19T00:00:00.000Z");
        assert_eq!(start(Interval::Week), "2026-11-16T00:00:00.000Z");
        let monday: Timestamp = "2026-11-16T00:00:00Z".parse().unwrap();
        assert_eq!(Interval::Week.start_of(monday), monday);
        assert_eq!(Interval::Week.start_of(monday.plus(-1)), monday.plus(-7 * DAY));
    }

    #[test]
    fn offsets_are_parsed_and_invalid_times_rejected() {
        assert_eq!("1970-01-01T01:00:00+01:00".parse(), Ok(Timestamp(0)));
        assert_eq!("yesterday".parse::<Timestamp>(), Err(MalformedTime));
    }
}
