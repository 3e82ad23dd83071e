//! The rules of delivering: what a receiver is sent, what counts as received, and when it is tried again.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::ids::{DeliveryId, EventId, OrgId, WebhookId};
use crate::time::{DAY, HOUR, MINUTE, SECOND, Timestamp};

/// Sent by `POST /webhooks/{webhookId}/test`; nobody can subscribe to it.
pub const TEST_EVENT: &str = "webhook.test";
/// How long a receiver has to answer.
pub const TIMEOUT_MS: u64 = 15_000;
/// A webhook whose every delivery failed for this long is switched off.
pub const DISABLE_AFTER: i64 = 5 * DAY;
/// A receiver may ask for more time, but not for longer than this.
const LONGEST_WAIT: i64 = DAY;

/// The waits before the second, third, … attempt.
pub const RETRY_DELAYS: [i64; 7] =
    [5 * SECOND, MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR];

/// The body of a delivery. Its bytes are made once and kept, so that every attempt sends the same.
pub fn payload(id: EventId, kind: &str, org: OrgId, at: Timestamp, data: &Value) -> String {
    json!({"id": id, "type": kind, "org_id": org, "timestamp": at, "data": data}).to_string()
}

/// A delivery's id follows from the event and the webhook, so that an event goes to a webhook once. It lies in time where
/// the event does.
pub fn delivery_id(event: EventId, webhook: WebhookId) -> DeliveryId {
    let mut digest = Sha256::new();
    digest.update(event.0.as_bytes());
    digest.update(webhook.0.as_bytes());
    DeliveryId(derived_id(event.0, &digest.finalize()))
}

/// A version 7 UUID of the same time as `like`, whose random bits come from a digest.
pub fn derived_id(like: Uuid, digest: &[u8]) -> Uuid {
    let mut bytes = *like.as_bytes();
    for (byte, from) in bytes[8..].iter_mut().zip(digest) {
        *byte = *from;
    }
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    Uuid::from_bytes(bytes)
}

/// What an attempt's answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseClass {
    Delivered,
    TryAgain,
    /// 410: the receiver wants nothing more from us, ever.
    Gone,
}

/// None: no answer came.
pub fn classify(status: Option<u16>) -> ResponseClass {
    match status {
        Some(200..=299) => ResponseClass::Delivered,
        Some(410) => ResponseClass::Gone,
        _ => ResponseClass::TryAgain,
    }
}

/// When to try again after so many attempts; None when there were enough. `random` spreads the retries of many deliveries
/// over a tenth of the wait on either side; a receiver that asked for more time gets it.
pub fn next_attempt(
    now: Timestamp,
    attempts: usize,
    retry_after_ms: Option<i64>,
    random: u32,
) -> Option<Timestamp> {
    let wait = *RETRY_DELAYS.get(attempts.checked_sub(1)?)?;
    let spread = wait / 5 * i64::from(random % 1024) / 1024 - wait / 10;
    let asked = retry_after_ms.unwrap_or(0).clamp(0, LONGEST_WAIT);
    Some(now.plus((wait + spread).max(asked)))
}

/// `Retry-After` as milliseconds from now: seconds, or a date.
pub fn retry_after(value: &str, now: Timestamp) -> Option<i64> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<u32>() {
        return Some(i64::from(seconds) * SECOND);
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
    Some((date.as_millisecond() - now.0).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_follow_the_schedule_within_a_tenth_and_then_end() {
        let now = Timestamp(1_000_000);
        for (at, wait) in RETRY_DELAYS.iter().enumerate() {
            for random in [0, 511, 1023, u32::MAX] {
                let next = next_attempt(now, at + 1, None, random).unwrap().0 - now.0;
                assert!((next - wait).abs() <= wait / 10, "{next} for {wait}");
            }
        }
        assert_eq!(next_attempt(now, RETRY_DELAYS.len() + 1, None, 0), None);
        assert_eq!(next_attempt(now, 0, None, 0), None);
        let (low, high) = (next_attempt(now, 1, None, 0), next_attempt(now, 1, None, 1023));
        assert!(low < high, "random numbers spread the attempts");
    }

    #[test]
    fn a_receiver_may_ask_for_more_time_but_not_for_less_or_for_ever() {
        let now = Timestamp(0);
        assert_eq!(next_attempt(now, 1, Some(60_000), 512), Some(Timestamp(60_000)));
        assert!(next_attempt(now, 2, Some(1_000), 512).unwrap().0 >= 54_000);
        assert_eq!(next_attempt(now, 1, Some(i64::MAX), 512), Some(Timestamp(DAY)));
    }

    #[test]
    fn retry_after_is_read_as_seconds_or_as_a_date() {
        let now = Timestamp(784_111_777_000);
        assert_eq!(retry_after(" 120 ", now), Some(120_000));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:47 GMT", now), Some(10_000));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:27 GMT", now), Some(0));
        for bad in ["", "soon", "-5", "1.5"] {
            assert_eq!(retry_after(bad, now), None, "{bad}");
        }
    }

    #[test]
    fn only_2xx_is_received_and_only_410_is_an_end() {
        assert_eq!(classify(Some(204)), ResponseClass::Delivered);
        for status in [None, Some(199), Some(301), Some(400), Some(404), Some(429), Some(500)] {
            assert_eq!(classify(status), ResponseClass::TryAgain, "{status:?}");
        }
        assert_eq!(classify(Some(410)), ResponseClass::Gone);
    }

    #[test]
    fn a_delivery_is_named_by_its_event_and_webhook() {
        let event: EventId = "0192f0c1-2345-7abc-8def-0123456789ab".parse().unwrap();
        let webhooks = ["0192f0c1-0000-7000-8000-000000000001", "0192f0c1-0000-7000-8000-000000000002"];
        let [one, two] = webhooks.map(|id| delivery_id(event, id.parse().unwrap()));
        assert_ne!(one, two);
        assert_eq!(one, delivery_id(event, webhooks[0].parse().unwrap()));
        assert_eq!(one.0.get_version_num(), 7);
        assert_eq!(&one.0.as_bytes()[..8], &event.0.as_bytes()[..8]);
    }
}
