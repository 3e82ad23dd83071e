//! Anthropic's usage. `input_tokens` is only the uncached part. A stream reports twice: the input when the message
//! starts, and the cumulative output when it ends.

use serde_json::{Map, Value};

use super::{Usage, UsageReport};

/// The counts reported so far. A later event overrides an earlier one field by field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::llm) struct Report {
    input: Option<u64>,
    output: Option<u64>,
    cache_read: Option<u64>,
    cache_written: Option<u64>,
    written_5m: Option<u64>,
    written_1h: Option<u64>,
}

impl Report {
    pub(super) fn read(report: &UsageReport<'_>) -> Self {
        Report {
            input: report.count("input_tokens"),
            output: report.count("output_tokens"),
            cache_read: report.count("cache_read_input_tokens"),
            cache_written: report.count("cache_creation_input_tokens"),
            written_5m: report.nested_count(&["cache_creation"], "ephemeral_5m_input_tokens"),
            written_1h: report.nested_count(&["cache_creation"], "ephemeral_1h_input_tokens"),
        }
    }

    /// Reads a report that is parsed already.
    pub(in crate::llm) fn from_map(report: &Map<String, Value>) -> Self {
        Self::read(&UsageReport::from_map(report))
    }

    /// Counts are cumulative, so a zero never replaces an earlier count. Some compatible servers report the input only
    /// at the end, others only at the start.
    pub(in crate::llm) fn merge(&mut self, later: Report) {
        let Report { input, output, cache_read, cache_written, written_5m, written_1h } = later;
        for (old, new) in [
            (&mut self.input, input),
            (&mut self.output, output),
            (&mut self.cache_read, cache_read),
            (&mut self.cache_written, cache_written),
            (&mut self.written_5m, written_5m),
            (&mut self.written_1h, written_1h),
        ] {
            if old.is_none() || new.is_some_and(|new| new > 0) {
                *old = new.or(*old);
            }
        }
    }

    pub(in crate::llm) fn usage(&self) -> Option<Usage> {
        if self.input.is_none() && self.output.is_none() {
            return None;
        }
        let long = self.written_1h.unwrap_or(0);
        let short = self.cache_written.map_or(self.written_5m.unwrap_or(0), |all| all.saturating_sub(long));
        Some(Usage {
            input: self.input.unwrap_or(0),
            cache_read: self.cache_read.unwrap_or(0),
            cache_write: short,
            cache_write_1h: long,
            output: self.output.unwrap_or(0),
            ..Usage::default()
        })
    }
}
