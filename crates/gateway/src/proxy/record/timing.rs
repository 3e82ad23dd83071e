//! When the request started, and how long its parts took.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use gateway_core::time::Timestamp;

pub(super) struct Timing {
    pub created_at: Timestamp,
    pub started: Instant,
    /// From the start of the latest attempt to the head of the response.
    pub upstream: Option<Duration>,
    /// When the head of the response arrived.
    pub head_at: Option<Instant>,
    /// From the start of the request to the first byte of the body.
    pub ttft_ms: Option<i64>,
}

impl Timing {
    pub fn new(created_at: Timestamp, started: Instant) -> Self {
        Self { created_at, started, upstream: None, head_at: None, ttft_ms: None }
    }

    /// The `Server-Timing` header: time spent in the gateway and at the provider until the head of the response.
    pub fn header(&self) -> String {
        let upstream = self.upstream.unwrap_or_default();
        let gateway = self.started.elapsed().saturating_sub(upstream);
        // Milliseconds with three decimals from whole microseconds: formatting floats is slower.
        let parts = |time: Duration| (time.as_millis(), time.subsec_micros() % 1_000);
        let ((gateway, gateway_part), (upstream, upstream_part)) = (parts(gateway), parts(upstream));
        let mut text = String::with_capacity(48);
        let _ = write!(
            text,
            "gateway;dur={gateway}.{gateway_part:03}, upstream;dur={upstream}.{upstream_part:03}"
        );
        text
    }
}
