//! The rules of exports: which rows and checkpoints a destination receives, where they are sent, and when a failed
//! delivery is retried.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::ids::ExportId;
use crate::logs::{LogRow, LogSource, log_id_time};
use crate::time::Timestamp;
use crate::webhooks::derived_id;

/// The maximum number of rows in one request.
pub const MAX_BATCH_ROWS: i64 = 512;
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5 * 60);
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// Older periods are dropped: their rows were processed long ago.
const MAX_PERIODS: usize = 32;

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

/// What an export delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExportSource {
    Proxy,
    Api,
    Otel,
    Mcp,
    Replay,
    /// Signed checkpoints of the audit log.
    Audit,
}

impl ExportSource {
    const ALL: [Self; 6] = [Self::Proxy, Self::Api, Self::Otel, Self::Mcp, Self::Replay, Self::Audit];
    pub const DEFAULT: [Self; 2] = [Self::Proxy, Self::Api];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Proxy => LogSource::Proxy.as_str(),
            Self::Api => LogSource::Api.as_str(),
            Self::Otel => LogSource::Otel.as_str(),
            Self::Mcp => LogSource::Mcp.as_str(),
            Self::Replay => LogSource::Replay.as_str(),
            Self::Audit => "audit",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.as_str() == name)
    }
}

impl From<LogSource> for ExportSource {
    fn from(source: LogSource) -> Self {
        match source {
            LogSource::Proxy => Self::Proxy,
            LogSource::Api => Self::Api,
            LogSource::Otel => Self::Otel,
            LogSource::Mcp => Self::Mcp,
            LogSource::Replay => Self::Replay,
        }
    }
}

/// The periods in which an export was enabled, as start and end. Rows are stored with a delay, so a row belongs to an
/// export if the export was enabled when the row was created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivePeriods(Vec<(i64, Option<i64>)>);

impl ActivePeriods {
    pub fn start(&mut self, now: Timestamp) {
        if !self.is_open() {
            self.0.push((now.0, None));
            let surplus = self.0.len().saturating_sub(MAX_PERIODS);
            self.0.drain(..surplus);
        }
    }

    pub fn stop(&mut self, now: Timestamp) {
        if let Some((_, until)) = self.0.last_mut() {
            until.get_or_insert(now.0);
        }
    }

    fn is_open(&self) -> bool {
        self.0.last().is_some_and(|(_, until)| until.is_none())
    }

    /// Whether the row was created while the export was enabled. An ingested span counts from its arrival.
    pub fn covers(&self, row: &LogRow) -> bool {
        if row.source == LogSource::Otel {
            return self.is_open();
        }
        self.covers_time(row.created_at.plus(row.latency_ms.max(0)))
    }

    /// Whether the export was enabled at this time.
    pub fn covers_time(&self, at: Timestamp) -> bool {
        self.0.iter().any(|(from, until)| at.0 >= *from && until.is_none_or(|until| at.0 < until))
    }
}

/// The URL of an `otlp` export. An endpoint without a path gets the default path `/v1/traces`.
pub fn otlp_endpoint(endpoint: &str) -> String {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("http", endpoint));
    match rest.find(['/', '?', '#']) {
        None => format!("{scheme}://{rest}/v1/traces"),
        Some(at) if &rest[at..] == "/" => format!("{scheme}://{rest}v1/traces"),
        Some(_) => endpoint.to_owned(),
    }
}

/// Exponential backoff after consecutive failures. `random` adds up to 20 % jitter. A longer `Retry-After` of the
/// destination takes precedence.
pub fn retry_delay(failures: i64, retry_after: Option<Duration>, random: u32) -> Duration {
    let doublings = u32::try_from(failures.clamp(1, 16) - 1).unwrap_or(0);
    let delay = Duration::from_secs(1 << doublings).min(MAX_RETRY_DELAY);
    let jitter = delay / 5 * (random % 1024) / 1024;
    delay.saturating_sub(jitter).max(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER))
}

/// The id of a batch. It is derived from the ids of its rows and checkpoints, so that a resent batch has the same id.
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
    fn an_endpoint_without_a_path_gets_the_default_path() {
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
    fn the_retry_delay_doubles_up_to_its_maximum() {
        let seconds = Duration::from_secs;
        assert_eq!(retry_delay(1, None, 0), seconds(1));
        assert_eq!(retry_delay(2, None, 0), seconds(2));
        assert_eq!(retry_delay(100, None, 0), MAX_RETRY_DELAY);
        assert!((800..1_000).contains(&retry_delay(1, None, 1_023).as_millis()));
        assert_eq!(retry_delay(1, Some(seconds(30)), 0), seconds(30));
        assert_eq!(retry_delay(1, Some(Duration::MAX), 0), MAX_RETRY_AFTER);
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
