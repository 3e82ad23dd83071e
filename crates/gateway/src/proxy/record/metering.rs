//! What the record reads of a response while it is forwarded: its usage, and the copy for the log.

use std::sync::Arc;

use gateway_core::ids::OrgId;
use gateway_core::llm::usage::Meter;

use super::{Record, millis_since};
use crate::services::Services;

impl Record {
    /// Meters a chunk as the provider sent it.
    pub fn meter_chunk(&mut self, chunk: &[u8]) {
        self.note_first_byte();
        if let Some(meter) = &mut self.response.meter {
            meter.feed(chunk);
        }
        self.copies.append_response(chunk);
    }

    /// Meters a whole response. `meter` has read it already, where that does not delay other requests.
    pub fn meter_whole(&mut self, raw: &[u8], meter: Option<Meter>) {
        let Some(meter) = meter else { return self.meter_chunk(raw) };
        self.note_first_byte();
        self.response.meter = Some(meter);
        self.copies.append_response(raw);
    }

    /// Whether anything is read of what follows.
    pub fn reads_on(&self) -> bool {
        self.response.meter.as_ref().is_some_and(Meter::reads_on) || self.copies.wants_response()
    }

    /// The rest of the response cannot be decoded.
    pub fn stop_metering(&mut self) {
        self.response.is_partly_metered = true;
        self.copies.set_response_truncated();
    }

    /// Whose work it is to read the response.
    pub fn owner(&self) -> (Arc<Services>, OrgId) {
        (Arc::clone(&self.services), self.caller.org.id)
    }

    /// The body begins, even if nothing can be read of its first bytes.
    pub fn note_first_byte(&mut self) {
        if self.timing.ttft_ms.is_none() {
            self.timing.ttft_ms = Some(millis_since(self.timing.started));
            self.attempts.set_first_byte();
        }
    }
}
