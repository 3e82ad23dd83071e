//! OpenTelemetry traces (OTLP): encodes log rows as spans for export, and ingests spans as log rows. Attribute names
//! are kept in one table (`names`), so that both directions agree.

pub mod batch;
mod content;
pub mod encode;
pub mod ingest;
pub mod limits;
pub mod names;
pub mod proto;

use sha2::{Digest, Sha256};

use crate::ids::OrgId;
use crate::logs::{LOG_ID_LOW_BITS, OTEL_SLOTS, first_log_id, first_otel_slot};
use crate::time::Timestamp;

/// The ids of a span: its trace, itself and its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    pub parent: Option<[u8; 8]>,
}

/// Parses a W3C `traceparent` header into the trace id and the id of the calling span.
pub fn parse_traceparent(text: &str) -> Option<([u8; 16], [u8; 8])> {
    let mut parts = text.trim().split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let well_formed = version.len() == 2
        && version != "ff"
        && flags.len() == 2
        && (version != "00" || parts.next().is_none());
    let (mut trace_id, mut span_id) = ([0; 16], [0; 8]);
    hex::decode_to_slice(trace, &mut trace_id).ok()?;
    hex::decode_to_slice(span, &mut span_id).ok()?;
    (well_formed && trace_id != [0; 16] && span_id != [0; 8]).then_some((trace_id, span_id))
}

/// Derives the log id of an ingested span. The id is deterministic and lies in slots that proxied requests never use.
/// Two spans can collide; the later one then moves to `next_log_id`.
pub fn log_id(org: OrgId, at: Timestamp, trace: &[u8], span: &[u8]) -> i64 {
    let mut digest = Sha256::new();
    digest.update(org.0.as_bytes());
    digest.update(trace);
    digest.update(span);
    let slot = i64::from(digest.finalize()[0]) % OTEL_SLOTS;
    first_log_id(at) + first_otel_slot() + slot
}

/// The id slot for spans that follows `id`.
pub fn next_log_id(id: i64) -> i64 {
    let millisecond = id >> LOG_ID_LOW_BITS << LOG_ID_LOW_BITS;
    let slot = id - millisecond - first_otel_slot() + 1;
    if slot < OTEL_SLOTS {
        millisecond + first_otel_slot() + slot
    } else {
        millisecond + (1 << LOG_ID_LOW_BITS) + first_otel_slot()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::logs::log_id_time;

    #[test]
    fn a_traceparent_is_read_and_a_broken_one_is_not() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let (trace, span) = parse_traceparent(good).unwrap();
        assert_eq!(hex::encode(trace), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(hex::encode(span), "b7ad6b7169203331");
        assert!(parse_traceparent("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more").is_some());
        for bad in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-xyz-b7ad6b7169203331-01",
        ] {
            assert!(parse_traceparent(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn the_ids_of_spans_follow_each_other_through_all_slots_in_time() {
        let org: OrgId = "0192f0c1-2345-7abc-8def-0123456789ab".parse().unwrap();
        let at = Timestamp(1_794_700_000_000);
        let first = log_id(org, at, &[1; 16], &[2; 8]);
        assert_eq!(first, log_id(org, at, &[1; 16], &[2; 8]));
        assert_eq!(log_id_time(first), at);
        let mut id = first;
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..300 {
            assert!(seen.insert(id));
            assert!(id % (1 << LOG_ID_LOW_BITS) >= first_otel_slot());
            let next = next_log_id(id);
            assert!(next > id);
            id = next;
        }
        assert!(log_id_time(id).0 - at.0 <= 4);
    }

    proptest! {
        #[test]
        fn a_traceparent_reads_back_and_any_text_can_be_read(
            trace in any::<[u8; 16]>(), span in any::<[u8; 8]>(), text in "(00-)?[0-9a-fé-]{0,60}",
        ) {
            let written = format!("00-{}-{}-01", hex::encode(trace), hex::encode(span));
            let expected = Some((trace, span)).filter(|_| trace != [0; 16] && span != [0; 8]);
            prop_assert_eq!(parse_traceparent(&written), expected);
            let _ = parse_traceparent(&text);
        }
    }
}
