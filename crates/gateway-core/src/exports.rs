//! The rules of exports: which rows a destination is owed, where they go, and when a failing one is tried again.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::ids::ExportId;
use crate::logs::{LogRow, LogSource, log_id_time};
use crate::time::{MINUTE, SECOND, Timestamp};
use crate::webhooks::derived_id;

/// Rows in one request, at most.
pub const MAX_BATCH_ROWS: i64 = 512;
const LONGEST_WAIT: i64 = 5 * MINUTE;
/// Earlier periods are forgotten: rows of so long ago have come long since.
const PERIODS: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportKind {
    Otlp,
    Webhook,
}

impl ExportKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Otlp => "otlp",
            Self::Webhook => "webhook",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Otlp, Self::Webhook].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// When an export was enabled: from then on, until then. A row is on its way for a moment before it is stored, so what
/// counts is when it was made, not what the export is when it arrives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivePeriods(Vec<(i64, Option<i64>)>);

impl ActivePeriods {
    pub fn begin(&mut self, now: Timestamp) {
        if !self.is_open() {
            self.0.push((now.0, None));
            let surplus = self.0.len().saturating_sub(PERIODS);
            self.0.drain(..surplus);
        }
    }

    pub fn end(&mut self, now: Timestamp) {
        if let Some((_, until)) = self.0.last_mut() {
            until.get_or_insert(now.0);
        }
    }

    fn is_open(&self) -> bool {
        self.0.last().is_some_and(|(_, until)| until.is_none())
    }

    /// Was the row made while the export was enabled? Spans that others send are made when they come.
    pub fn cover(&self, row: &LogRow) -> bool {
        if row.source == LogSource::Otel {
            return self.is_open();
        }
        self.cover_at(row.created_at.plus(row.latency_ms.max(0)))
    }

    /// Was the export enabled then?
    pub fn cover_at(&self, at: Timestamp) -> bool {
        self.0.iter().any(|(from, until)| at.0 >= *from && until.is_none_or(|until| at.0 < until))
    }
}

/// Where an export of kind `otlp` goes: the endpoint as it was given; without a path, to the usual one.
pub fn otlp_endpoint(endpoint: &str) -> String {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("http", endpoint));
    match rest.find(['/', '?', '#']) {
        None => format!("{scheme}://{rest}/v1/traces"),
        Some(at) if &rest[at..] == "/" => format!("{scheme}://{rest}v1/traces"),
        Some(_) => endpoint.to_owned(),
    }
}

/// How long a destination is left alone after so many failures in a row. `random` spreads it.
pub fn retry_delay(failures: i64, retry_after_ms: Option<i64>, random: u32) -> i64 {
    let doublings = u32::try_from(failures.clamp(1, 16) - 1).unwrap_or(0);
    let wait = (SECOND << doublings).min(LONGEST_WAIT);
    let spread = wait / 5 * i64::from(random % 1024) / 1024;
    (wait - spread).max(retry_after_ms.unwrap_or(0).clamp(0, 24 * 60 * MINUTE))
}

/// A batch's id follows from what is in it, so that the same rows have the same id when they are sent again.
pub fn batch_id(export: ExportId, rows: &[i64]) -> Uuid {
    let mut digest = Sha256::new();
    digest.update(export.0.as_bytes());
    for row in rows {
        digest.update(row.to_be_bytes());
    }
    let digest = digest.finalize();
    let at = log_id_time(rows.first().copied().unwrap_or_default()).0.max(0).cast_unsigned();
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&at.to_be_bytes()[2..]);
    bytes[6..8].copy_from_slice(&digest[8..10]);
    bytes[6] = (bytes[6] & 0x0f) | 0x70;
    derived_id(Uuid::from_bytes(bytes), &digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_a_path_gets_the_usual_one() {
        for (given, used) in [
            ("http://collector:4318", "http://collector:4318/v1/traces"),
            ("http://collector:4318/", "http://collector:4318/v1/traces"),
            ("https://x.example/api/otel", "https://x.example/api/otel"),
            ("https://x.example/v1/traces?tenant=a", "https://x.example/v1/traces?tenant=a"),
            ("https://x.example?tenant=a", "https://x.example?tenant=a"),
        ] {
            assert_eq!(otlp_endpoint(given), used);
        }
    }

    #[test]
    fn a_failing_destination_is_asked_ever_less_often() {
        assert_eq!(retry_delay(1, None, 0), 1_000);
        assert_eq!(retry_delay(2, None, 0), 2_000);
        assert_eq!(retry_delay(100, None, 0), LONGEST_WAIT);
        assert!((800..1_000).contains(&retry_delay(1, None, 1_023)));
        assert_eq!(retry_delay(1, Some(30_000), 0), 30_000);
    }

    #[test]
    fn the_same_rows_are_the_same_batch() {
        let export: ExportId = "0192f0c1-2345-7abc-8def-0123456789ab".parse().unwrap();
        let id = batch_id(export, &[1 << 40, 2 << 40]);
        assert_eq!(id, batch_id(export, &[1 << 40, 2 << 40]));
        assert_ne!(id, batch_id(export, &[1 << 40]));
        assert_eq!(id.get_version_num(), 7);
    }
}
