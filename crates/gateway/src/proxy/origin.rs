//! Where a call comes from: a caller of the proxy, or the gateway itself.

use gateway_core::logs::{LogRow, LogSource, Tokens};
use rust_decimal::Decimal;
use tokio::sync::oneshot;

use crate::calls_in_progress::CallInProgress;

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
    /// What the call takes of its organization's share. `None` for a call that is a part of another one.
    call: Option<CallInProgress>,
}

impl Default for CallOrigin {
    fn default() -> Self {
        Self { source: LogSource::Proxy, compat: None, summary: None, call: None }
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
        (Self { source, summary: Some(sender), ..Self::default() }, receiver)
    }

    pub(super) fn with_call(self, call: Option<CallInProgress>) -> Self {
        Self { call, ..self }
    }

    /// What must be kept until the response has ended.
    pub(super) fn take_call(&mut self) -> Option<CallInProgress> {
        self.call.take()
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
