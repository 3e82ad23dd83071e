//! OTLP ingestion: spans of model calls that were made elsewhere become log rows, through the same spool as proxied
//! requests.

use std::io::Read as _;
use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use gateway_core::logs::MAX_BODY_BYTES;
use gateway_core::memory::tree_bytes;
use gateway_core::otlp::ingest::{self, IngestContext};
use gateway_core::otlp::limits::{self, MAX_ELEMENTS};
use gateway_core::otlp::proto::{ExportTraceServiceRequest, ExportTraceServiceResponse, PartialSuccess};
use gateway_core::time::DAY;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use prost::Message as _;
use serde_json::json;

use super::caller::{AppState, Caller, Member, org_of};
use super::extract::{BodyLimits, read_body, request_memory};
use super::openapi::{Area, Operation, OperationInput, OperationOutput};
use crate::app::App;
use crate::auth::{Identity, Principal};
use crate::compute::{Cancellation, WaitLimits};
use crate::memory::{HeldBuffer, Reservation};
use crate::problem::{ApiResult, Problem};

pub fn area() -> Area {
    Area::new("otel", "Ingestion of traces of model calls that were made elsewhere, by OTLP over HTTP.").post(
        "/otel/v1/traces",
        receive,
        "Ingest spans; those of model calls become log rows with source otel",
    )
}

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// The encoding of a request and of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Protobuf,
    Json,
}

impl Encoding {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let kind = value.split(';').next().unwrap_or_default().trim();
        match kind.to_ascii_lowercase().as_str() {
            PROTOBUF | "application/protobuf" => Some(Self::Protobuf),
            JSON => Some(Self::Json),
            _ => None,
        }
    }
}

/// The spans of a request.
struct Traces {
    encoding: Encoding,
    request: ExportTraceServiceRequest,
}

impl FromRequest<Arc<App>> for Traces {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let encoding = Encoding::of(request.headers())
            .ok_or_else(|| Problem::bad_request(format!("Content-Type must be {PROTOBUF} or {JSON}")))?;
        let compressed = is_gzip(request.headers())?;
        let limit = app.services.config.max_body_bytes;
        let org = org_of(request.extensions())?;
        let memory = request_memory(&request)?;
        let body = read_body(request, BodyLimits::new(limit)).await?;
        let decoded = app.services.compute.run(org, WaitLimits::REQUEST, move |_| {
            let body = if compressed { decompress(&body, limit, memory.open())? } else { body };
            memory.grow(decoded_bytes(encoding, &body))?;
            decode(encoding, &body)
        });
        let request = decoded.await??;
        Ok(Self { encoding, request })
    }
}

fn is_gzip(headers: &HeaderMap) -> ApiResult<bool> {
    let Some(value) = headers.get(CONTENT_ENCODING) else { return Ok(false) };
    match value.to_str().map(str::trim) {
        Ok("" | "identity") => Ok(false),
        Ok(name) if name.eq_ignore_ascii_case("gzip") => Ok(true),
        _ => Err(Problem::bad_request("Content-Encoding must be one of gzip, identity")),
    }
}

/// Decompresses up to the limit.
fn decompress(compressed: &[u8], limit: usize, memory: Reservation) -> ApiResult<Bytes> {
    let mut plain = HeldBuffer::new(memory);
    let mut reader = MultiGzDecoder::new(compressed);
    let mut piece = vec![0; 64 << 10];
    loop {
        let read = reader.read(&mut piece).map_err(|_| Problem::bad_request("the body is not valid gzip"))?;
        if read == 0 {
            return Ok(plain.finish());
        }
        if plain.len() + read > limit {
            return Err(Problem::too_large(limit));
        }
        plain.append(&piece[..read])?;
    }
}

/// An estimate of the memory of decoded spans.
fn decoded_bytes(encoding: Encoding, body: &[u8]) -> usize {
    match encoding {
        Encoding::Json => tree_bytes(body),
        Encoding::Protobuf => body.len().saturating_mul(4),
    }
}

fn decode(encoding: Encoding, body: &[u8]) -> ApiResult<ExportTraceServiceRequest> {
    let bounded = match encoding {
        Encoding::Protobuf => limits::protobuf_within_limits(body),
        Encoding::Json => limits::json_within_limits(body),
    };
    if !bounded {
        let why = format!(
            "the body contains more than {MAX_ELEMENTS} spans, attributes and values; send smaller batches"
        );
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", why));
    }
    match encoding {
        Encoding::Protobuf => ExportTraceServiceRequest::decode(body)
            .map_err(|error| Problem::bad_request(format!("the body is not valid OTLP protobuf: {error}"))),
        // serde accepts an array as a struct whose fields it lists in order.
        Encoding::Json if body.trim_ascii_start().first() != Some(&b'{') => {
            Err(Problem::bad_request("the body is not valid OTLP JSON: it must be an object"))
        }
        Encoding::Json => serde_json::from_slice(body)
            .map_err(|error| Problem::bad_request(format!("the body is not valid OTLP JSON: {error}"))),
    }
}

impl OperationInput for Traces {
    fn describe(operation: &mut Operation<'_>) {
        operation
            .notes
            .push("Bodies may be compressed with gzip. Spans that are not model calls are ignored.");
        operation.request_body = Some(json!({
            "required": true,
            "content": {
                PROTOBUF: {"schema": {"type": "string", "format": "binary"}},
                JSON: {"schema": {"type": "object", "properties": {
                    "resourceSpans": {"type": ["array", "null"], "items": {"type": "object"}},
                }}},
            },
        }));
    }
}

/// The response, in the encoding of the request.
struct TraceResponse {
    encoding: Encoding,
    message: ExportTraceServiceResponse,
}

impl IntoResponse for TraceResponse {
    fn into_response(self) -> Response {
        match self.encoding {
            Encoding::Protobuf => ([(CONTENT_TYPE, PROTOBUF)], self.message.encode_to_vec()).into_response(),
            Encoding::Json => match serde_json::to_vec(&self.message) {
                Ok(body) => ([(CONTENT_TYPE, JSON)], body).into_response(),
                Err(error) => Problem::internal(error).into_response(),
            },
        }
    }
}

impl OperationOutput for TraceResponse {
    fn describe(operation: &mut Operation<'_>) {
        let partial = json!({"type": "object", "properties": {
            "partialSuccess": {"type": "object", "properties": {
                "rejectedSpans": {"type": "string"}, "errorMessage": {"type": "string"},
            }},
        }});
        operation.responses.push((
            200,
            json!({"description": "Success", "content": {
                PROTOBUF: {"schema": {"type": "string", "format": "binary"}},
                JSON: {"schema": partial},
            }}),
        ));
    }
}

async fn receive(
    State(app): AppState,
    caller: Caller<Member>,
    Traces { encoding, request }: Traces,
) -> ApiResult<TraceResponse> {
    // A full spool would drop the rows, but the sender can retry.
    if !app.proxy.spool.is_healthy() {
        return Err(Problem::unavailable());
    }
    let (identity, shared) = (Identity::clone(&caller), Arc::clone(&app));
    let ingesting = move |_: &Cancellation| ingest::ingest_spans(&request, &sender(&shared, &identity));
    let arrived = app.services.compute.run(caller.org.id, WaitLimits::REQUEST, ingesting).await?;
    // Writes to disk under the lock of a lane, so it needs a thread of ordinary priority.
    let written = tokio::task::spawn_blocking(move || {
        for row in arrived.rows {
            app.proxy.spool.append(app.services.config.workers, row);
        }
        (arrived.rejected, arrived.reason)
    });
    let (rejected_spans, reason) = written.await.map_err(Problem::internal)?;
    let partial_success = (rejected_spans > 0)
        .then(|| PartialSuccess { rejected_spans, error_message: reason.unwrap_or_default().to_owned() });
    Ok(TraceResponse { encoding, message: ExportTraceServiceResponse { partial_success } })
}

fn sender<'a>(app: &'a App, caller: &Identity) -> IngestContext<'a> {
    let now = app.services.clock.now();
    let kept_days = app.services.config.retention_of(&caller.org.settings);
    let keeps_bodies = app.services.config.log_bodies && caller.org.settings.log_bodies;
    let (key_id, app_id, team_id, user) = match &caller.principal {
        Principal::Key(key) => (Some(key.id), key.app_id, key.team_id, None),
        Principal::User { id, .. } => (None, None, None, Some(id.to_string())),
        Principal::Org => (None, None, None, None),
    };
    IngestContext {
        org: caller.org.id,
        key_id,
        app_id,
        team_id,
        user,
        body_limit: keeps_bodies.then_some(MAX_BODY_BYTES),
        now,
        oldest: now.plus(-i64::from(kept_days) * DAY),
        prices: &app.proxy.prices,
    }
}
