//! Spans that a tenant sends, in JSON and in protobuf.

use std::sync::OnceLock;

use gateway_core::ids::OrgId;
use gateway_core::otlp::ingest::{IngestContext, ingest_spans};
use gateway_core::otlp::limits::{json_within_limits, protobuf_within_limits};
use gateway_core::otlp::proto::ExportTraceServiceRequest;
use gateway_core::pricing::PriceTable;
use gateway_core::time::Timestamp;
use prost::Message as _;
use serde_json::json;

pub fn span() -> serde_json::Value {
    json!({
        "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "chat m",
        "startTimeUnixNano": "1800000000000000000", "endTimeUnixNano": "1800000001000000000",
        "attributes": [
            {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
            {"key": "gen_ai.request.model", "value": {"stringValue": "m"}},
            {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "7"}},
        ],
    })
}

pub fn spans_json(length: usize) -> Vec<u8> {
    let spans = vec![span(); length / span().to_string().len()];
    json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string().into_bytes()
}

pub fn spans_protobuf(length: usize) -> Vec<u8> {
    let decoded: ExportTraceServiceRequest = serde_json::from_slice(&spans_json(length * 3)).unwrap();
    decoded.encode_to_vec()
}

fn prices() -> &'static PriceTable {
    static PRICES: OnceLock<PriceTable> = OnceLock::new();
    PRICES.get_or_init(|| PriceTable::builtin().unwrap())
}

fn ingest(request: &ExportTraceServiceRequest) {
    let context = IngestContext {
        org: OrgId(uuid::Uuid::nil()),
        key_id: None,
        app_id: None,
        team_id: None,
        user: None,
        body_limit: Some(256 << 10),
        now: Timestamp(1_800_000_100_000),
        oldest: Timestamp(1_790_000_000_000),
        prices: prices(),
    };
    ingest_spans(request, &context);
}

pub fn ingest_protobuf(bytes: &[u8]) {
    if protobuf_within_limits(bytes)
        && let Ok(request) = ExportTraceServiceRequest::decode(bytes)
    {
        ingest(&request);
    }
}

pub fn ingest_json(bytes: &[u8]) {
    if json_within_limits(bytes)
        && let Ok(request) = serde_json::from_slice(bytes)
    {
        ingest(&request);
    }
}
