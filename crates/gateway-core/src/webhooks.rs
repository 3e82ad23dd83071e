//! The rules of webhook deliveries: the payload, which responses count as delivered, and when to retry.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::alerts;
use crate::events::Event;
use crate::ids::{DeliveryId, EventId, OrgId, WebhookId};
use crate::time::Timestamp;

/// Sent by `POST /webhooks/{webhookId}/test`; not available for subscription.
pub const TEST_EVENT: &str = "webhook.test";
/// How long a receiver may take to respond.
pub const DELIVERY_TIMEOUT: Duration = Duration::from_secs(15);
/// A webhook whose deliveries all failed for this long is disabled.
pub const DISABLE_AFTER: Duration = Duration::from_secs(5 * 24 * 60 * 60);
/// The upper limit for a receiver's `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The delays before the second, third, … attempt: 5 s, 1 min, 5 min, 30 min, 2 h, 5 h, 10 h.
pub const RETRY_DELAYS: [Duration; 7] = [
    Duration::from_secs(5),
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(2 * 60 * 60),
    Duration::from_secs(5 * 60 * 60),
    Duration::from_secs(10 * 60 * 60),
];

/// The body of a delivery. It is stored, so that every attempt sends the same bytes.
pub fn payload(id: EventId, kind: &str, org: OrgId, at: Timestamp, data: &Value) -> String {
    json!({"id": id, "type": kind, "org_id": org, "timestamp": at, "data": data}).to_string()
}

/// How the body of a delivery is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookFormat {
    /// The event with its type, time and data.
    #[default]
    Standard,
    /// A message with a `text`, which Slack, Mattermost, Rocket.Chat and Google Chat accept.
    Slack,
}

impl WebhookFormat {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Slack => "slack",
        }
    }

    pub fn is_standard(&self) -> bool {
        *self == Self::Standard
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Standard, Self::Slack].into_iter().find(|format| format.as_str() == name)
    }

    pub fn payload(self, id: EventId, org: OrgId, event: &Event, at: Timestamp) -> String {
        self.payload_of(id, org, (event.kind(), &event.data()), at)
    }

    /// The body of an event by its type and data.
    pub fn payload_of(self, id: EventId, org: OrgId, (kind, data): (&str, &Value), at: Timestamp) -> String {
        match self {
            Self::Standard => payload(id, kind, org, at, data),
            Self::Slack => json!({"text": message(kind, data)}).to_string(),
        }
    }
}

/// An event in one line for people: its type, its name, and its other facts. An alert is a sentence.
fn message(kind: &str, data: &Value) -> String {
    if let Some(sentence) = alerts::message(kind, data) {
        return escape(&sentence);
    }
    let mut text = format!("[gateway] {kind}");
    let facts = data.as_object().into_iter().flatten();
    let shown = |value: &Value| match value {
        Value::Null | Value::Object(_) | Value::Array(_) => None,
        Value::String(value) if value.is_empty() => None,
        Value::String(value) => Some(escape(value)),
        other => Some(other.to_string()),
    };
    if let Some(name) = data.get("name").and_then(shown) {
        text.push_str(" *");
        text.push_str(&name);
        text.push('*');
    }
    for (field, value) in facts.filter(|(field, _)| *field != "name") {
        if let Some(value) = shown(value) {
            text.push_str(if text.contains(": ") { ", " } else { ": " });
            text.push_str(field);
            text.push(' ');
            text.push_str(&value);
        }
    }
    text
}

/// Slack reads `<`, `>` and `&` as markup, which names must not be able to write.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The id of a delivery. It is derived from event and webhook, so that an event is delivered to a webhook only once. It
/// has the timestamp of the event.
pub fn delivery_id(event: EventId, webhook: WebhookId) -> DeliveryId {
    let mut digest = Sha256::new();
    digest.update(event.0.as_bytes());
    digest.update(webhook.0.as_bytes());
    DeliveryId(derived_id(event.0, &digest.finalize()))
}

/// A version 7 UUID with the timestamp of `base` and random bits from a digest.
pub fn derived_id(base: Uuid, digest: &[u8]) -> Uuid {
    let mut bytes = *base.as_bytes();
    for (byte, from) in bytes[8..].iter_mut().zip(digest) {
        *byte = *from;
    }
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    Uuid::from_bytes(bytes)
}

/// The result of a delivery attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseClass {
    Delivered,
    Retry,
    /// 410: the receiver rejects all further deliveries.
    Gone,
}

/// Classifies a response by its status; `None` if there was no response.
pub fn classify(status: Option<u16>) -> ResponseClass {
    match status {
        Some(200..=299) => ResponseClass::Delivered,
        Some(410) => ResponseClass::Gone,
        _ => ResponseClass::Retry,
    }
}

/// The time of the next attempt, or `None` after the last one. `random` adds jitter of up to a tenth of the delay in
/// both directions. A longer `Retry-After` of the receiver takes precedence.
pub fn next_attempt(
    now: Timestamp,
    attempts: usize,
    retry_after: Option<Duration>,
    random: u32,
) -> Option<Timestamp> {
    let delay = *RETRY_DELAYS.get(attempts.checked_sub(1)?)?;
    let jitter = delay / 5 * (random % 1024) / 1024;
    let requested = retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
    Some(now.after((delay / 10 * 9 + jitter).max(requested)))
}

/// Parses `Retry-After`, which is a number of seconds or a date, into the time span from now.
pub fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    Some(Timestamp::from_http_date(value)?.since(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_follow_the_schedule_within_a_tenth_and_then_end() {
        let now = Timestamp(1_000_000);
        for (at, delay) in RETRY_DELAYS.iter().enumerate() {
            for random in [0, 511, 1023, u32::MAX] {
                let next = next_attempt(now, at + 1, None, random).unwrap().since(now);
                assert!(next.abs_diff(*delay) <= *delay / 10, "{next:?} for {delay:?}");
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
        let seconds = Duration::from_secs;
        assert_eq!(next_attempt(now, 1, Some(seconds(60)), 512), Some(Timestamp(60_000)));
        assert!(next_attempt(now, 2, Some(seconds(1)), 512).unwrap().0 >= 54_000);
        assert_eq!(next_attempt(now, 1, Some(Duration::MAX), 512), Some(now.after(MAX_RETRY_AFTER)));
    }

    #[test]
    fn retry_after_is_read_as_seconds_or_as_a_date() {
        let now = Timestamp(784_111_777_000);
        assert_eq!(retry_after(" 120 ", now), Some(Duration::from_secs(120)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:47 GMT", now), Some(Duration::from_secs(10)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:27 GMT", now), Some(Duration::ZERO));
        for bad in ["", "soon", "-5", "1.5"] {
            assert_eq!(retry_after(bad, now), None, "{bad}");
        }
    }

    #[test]
    fn a_message_for_slack_names_the_facts_and_has_no_markup_of_names() {
        let data = json!({"name": "<!channel> & co", "limit": 3.5, "bucket": null, "unit": "tokens"});
        let (id, org) = ("0192f0c1-2345-7abc-8def-0123456789ab", "0192f0c1-0000-7000-8000-000000000001");
        let (id, org, at) = (id.parse().unwrap(), org.parse().unwrap(), Timestamp(0));
        let body = WebhookFormat::Slack.payload_of(id, org, ("limit.reached", &data), at);
        let body: Value = serde_json::from_str(&body).unwrap();
        let text = "[gateway] limit.reached *&lt;!channel&gt; &amp; co*: limit 3.5, unit tokens";
        assert_eq!(body, json!({"text": text}));
        let standard = WebhookFormat::Standard.payload_of(id, org, ("limit.reached", &data), at);
        assert_eq!(serde_json::from_str::<Value>(&standard).unwrap()["data"], data);
        let alert = json!({"name": "<!here>", "query": "latency:>2s", "measure": "errors", "above": 1, "value": 3.0, "window_minutes": 5});
        let body = WebhookFormat::Slack.payload_of(id, org, ("alert.fired", &alert), at);
        let text =
            "Alert \"&lt;!here&gt;\": errors 3 over the last 5 min (threshold 1). Query: latency:&gt;2s";
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), json!({"text": text}));
    }

    #[test]
    fn only_2xx_is_delivered_and_only_410_is_final() {
        assert_eq!(classify(Some(204)), ResponseClass::Delivered);
        for status in [None, Some(199), Some(301), Some(400), Some(404), Some(429), Some(500)] {
            assert_eq!(classify(status), ResponseClass::Retry, "{status:?}");
        }
        assert_eq!(classify(Some(410)), ResponseClass::Gone);
    }

    #[test]
    fn a_delivery_id_is_derived_from_event_and_webhook() {
        let event: EventId = "0192f0c1-2345-7abc-8def-0123456789ab".parse().unwrap();
        let webhooks = ["0192f0c1-0000-7000-8000-000000000001", "0192f0c1-0000-7000-8000-000000000002"];
        let [one, two] = webhooks.map(|id| delivery_id(event, id.parse().unwrap()));
        assert_ne!(one, two);
        assert_eq!(one, delivery_id(event, webhooks[0].parse().unwrap()));
        assert_eq!(one.0.get_version_num(), 7);
        assert_eq!(&one.0.as_bytes()[..8], &event.0.as_bytes()[..8]);
    }
}
