//! A batch of rows as the bytes that a destination is sent.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use gateway_core::exports::{Kind, batch_id, otlp_endpoint};
use gateway_core::ids::{EventId, OrgId};
use gateway_core::log_view::LogDetail;
use gateway_core::logs::LogRow;
use gateway_core::otlp::leave;
use gateway_core::otlp::proto::{ExportTraceServiceResponse, Span};
use gateway_core::signing;
use gateway_core::time::Timestamp;
use gateway_store::exports::Export;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use prost::Message as _;
use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::{ANSWER_BYTES, Sent, post, signed_headers};
use crate::app::App;
use crate::auth::sealed_place;

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub struct Message {
    pub url: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Makes the request for these rows, away from the threads that others wait for.
pub async fn encode(
    app: &Arc<App>,
    export: Export,
    rows: Vec<LogRow>,
    content: bool,
) -> Result<Message, String> {
    let app = Arc::clone(app);
    let made = tokio::task::spawn_blocking(move || match export.kind {
        Kind::Otlp => {
            let spans = rows.iter().flat_map(|row| leave::spans(row, content)).collect();
            otlp(&app, &export, spans)
        }
        Kind::Webhook => {
            let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
            let traces = rows.iter().map(|row| LogDetail::new(row, None)).collect();
            webhook(&app, &export, &batch_id(export.id, &ids).to_string(), traces, false)
        }
    });
    made.await.unwrap_or_else(|_| Err("the batch could not be made".into()))
}

/// A delivery without a row, to see whether the destination takes any.
pub async fn test(app: &App, export: &Export) -> Sent {
    let id: EventId = app.new_id();
    let message = match export.kind {
        Kind::Otlp => {
            otlp(app, export, vec![leave::test_span(export.org_id, &id.to_string(), app.clock.now())])
        }
        Kind::Webhook => webhook(app, export, &id.to_string(), Vec::new(), true),
    };
    match message {
        Ok(Message { url, headers, body }) => post(app, &url, headers, body, ANSWER_BYTES).await,
        Err(why) => Sent::failed(why),
    }
}

/// How many spans the destination took the request without, and why.
pub fn rejected(kind: Kind, answer: &[u8]) -> (i64, Option<String>) {
    if kind != Kind::Otlp {
        return (0, None);
    }
    let partial = ExportTraceServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
    match partial {
        Some(partial) if partial.rejected_spans > 0 => {
            let said: String = partial.error_message.chars().filter(|c| !c.is_control()).take(500).collect();
            (partial.rejected_spans, Some(format!("{} spans were rejected: {said}", partial.rejected_spans)))
        }
        _ => (0, None),
    }
}

fn otlp(app: &App, export: &Export, spans: Vec<Span>) -> Result<Message, String> {
    let plain = leave::request(export.org_id, VERSION, spans).encode_to_vec();
    let mut packed = GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::fast());
    let packed = packed.write_all(&plain).and_then(|()| packed.finish());
    let body = packed.map_err(|error| format!("the batch could not be packed: {error}"))?.into();
    let mut headers = own_headers(app, export)?;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    Ok(Message { url: otlp_endpoint(&export.endpoint), headers, body })
}

#[derive(Serialize)]
struct Envelope<'a> {
    id: &'a str,
    r#type: &'static str,
    org_id: OrgId,
    timestamp: Timestamp,
    data: Traces,
}

#[derive(Serialize)]
struct Traces {
    traces: Vec<LogDetail>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    test: bool,
}

fn webhook(
    app: &App,
    export: &Export,
    id: &str,
    traces: Vec<LogDetail>,
    test: bool,
) -> Result<Message, String> {
    let envelope = Envelope {
        id,
        r#type: "trace.batch",
        org_id: export.org_id,
        timestamp: app.clock.now(),
        data: Traces { traces, test },
    };
    let body = serde_json::to_vec(&envelope).map_err(|error| error.to_string())?;
    let mut keys = Vec::new();
    if let Some(secret) = open(app, export, "secret", export.secret.as_deref())? {
        keys.push(signing::key_of(&secret).map_err(|error| error.to_string())?);
    }
    let mut headers = own_headers(app, export)?;
    headers.extend(signed_headers(app, &keys, id, &body));
    Ok(Message { url: export.endpoint.clone(), headers, body: body.into() })
}

fn own_headers(app: &App, export: &Export) -> Result<HeaderMap, String> {
    let Some(text) = open(app, export, "headers", export.headers.as_deref())? else {
        return Ok(HeaderMap::new());
    };
    let stored: BTreeMap<String, String> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    Ok(stored
        .into_iter()
        .filter_map(|(name, value)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        })
        .collect())
}

fn open(app: &App, export: &Export, column: &str, sealed: Option<&str>) -> Result<Option<String>, String> {
    let Some(sealed) = sealed else { return Ok(None) };
    let place = sealed_place(export.org_id, &format!("export/{}", export.id), column);
    let opened = app.vault.open(&place, sealed).map_err(|error| error.to_string())?;
    Ok(Some(opened.expose_secret().to_owned()))
}
