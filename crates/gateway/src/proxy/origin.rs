//! Where a call comes from: a caller of the proxy, or the gateway itself.

use gateway_core::logs::{LogRow, LogSource, Tokens};
use rust_decimal::Decimal;
use tokio::sync::oneshot;

/// The parts of the log row that an internal caller needs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallSummary {
    pub model: Option<String>,
    pub tokens: Option<Tokens>,
    pub usage_estimated: bool,
    pub cost_usd: Option<Decimal>,
    pub latency_ms: i64,
    pub ttft_ms: Option<i64>,
}

/// The source of the log row, and the channel on which an internal caller receives the summary.
pub struct CallOrigin {
    pub(super) source: LogSource,
    /// The dialect of a request below `/compat`.
    pub(super) compat: Option<&'static str>,
    summary: Option<oneshot::Sender<CallSummary>>,
}

impl Default for CallOrigin {
    fn default() -> Self {
        Self { source: LogSource::Proxy, compat: None, summary: None }
    }
}

impl CallOrigin {
    /// A call of another gateway's client.
    pub fn of_dialect(name: &'static str) -> Self {
        Self { compat: Some(name), ..Self::default() }
    }

    /// A call of the gateway itself. The receiver resolves when the record of the call is closed.
    pub fn internal(source: LogSource) -> (Self, oneshot::Receiver<CallSummary>) {
        let (sender, receiver) = oneshot::channel();
        (Self { source, compat: None, summary: Some(sender) }, receiver)
    }

    /// Sends the summary once the row is complete.
    pub(super) fn report(&mut self, row: &LogRow) {
        let Some(sender) = self.summary.take() else { return };
        let summary = CallSummary {
            model: row.model.clone(),
            tokens: row.tokens,
            usage_estimated: row.usage_estimated,
            cost_usd: row.cost_usd,
            latency_ms: row.latency_ms,
            ttft_ms: row.ttft_ms,
        };
        // An error means that the receiver was dropped.
        let _ = sender.send(summary);
    }
}
