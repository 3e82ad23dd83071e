//! Encodes a batch of log rows, verdicts and checkpoints as the request that an export sends.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use gateway_core::audit::checkpoint::SignedCheckpoint;
use gateway_core::exports::{ExportKind, batch_id, otlp_endpoint};
use gateway_core::ids::{EventId, OrgId};
use gateway_core::log_view::LogDetail;
use gateway_core::logs::LogRow;
use gateway_core::otlp::batch::Batch;
use gateway_core::otlp::encode::{self, EvaluationResult};
use gateway_core::otlp::proto::ExportTraceServiceResponse;
use gateway_core::signing;
use gateway_core::time::Timestamp;
use gateway_store::exports::Export;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use prost::Message as _;
use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::{DeliveryClient, DeliveryResult, MAX_RESPONSE_BYTES, post, signed_headers};
use crate::vault::encryption_context;

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub struct Message {
    url: String,
    headers: HeaderMap,
    body: Bytes,
    /// Values of the owner's headers, which are removed from error texts.
    secrets: Vec<String>,
}

/// Shorter header values are not treated as secrets, because they would match anywhere.
const MIN_SECRET_LENGTH: usize = 6;

impl Message {
    /// `custom` are the headers that the owner configured; `required` override them.
    fn new(url: String, custom: HeaderMap, required: HeaderMap, body: Bytes) -> Self {
        let values = custom.values().filter_map(|value| value.to_str().ok());
        let secrets = values.flat_map(|value| [value, value.rsplit(' ').next().unwrap_or(value)]);
        let secrets = secrets.filter(|part| part.len() >= MIN_SECRET_LENGTH).map(ToOwned::to_owned).collect();
        let mut headers = custom;
        headers.extend(required);
        Self { url, headers, body, secrets }
    }

    pub async fn send(self, client: &DeliveryClient) -> DeliveryResult {
        let mut result = post(client, &self.url, self.headers, self.body, MAX_RESPONSE_BYTES).await;
        result.redact(&self.secrets);
        result
    }
}

/// The contents of one request.
#[derive(Debug, Default)]
pub struct Contents {
    pub rows: Vec<LogRow>,
    /// Each with its row, which may have been sent long before.
    pub verdicts: Vec<(LogRow, EvaluationResult)>,
    /// Each with its id in the queue.
    pub checkpoints: Vec<(i64, SignedCheckpoint)>,
    /// Whether request and response texts are included.
    pub content: bool,
}

impl Contents {
    pub fn len(&self) -> usize {
        self.rows.len() + self.verdicts.len() + self.checkpoints.len()
    }
}

/// Encodes the request on a blocking thread.
pub async fn encode(
    client: &DeliveryClient,
    export: &Arc<Export>,
    contents: Contents,
) -> Result<Message, String> {
    let (client, export) = (client.clone(), Arc::clone(export));
    let encoded = tokio::task::spawn_blocking(move || match export.kind {
        ExportKind::Otlp => {
            let mut batch = Batch::default();
            add_rows(&mut batch, &contents.rows, contents.content);
            add_verdicts(&mut batch, &contents.verdicts, contents.content);
            for (_, signed) in &contents.checkpoints {
                batch.add(&encode::checkpoint_span(export.org_id, signed));
            }
            otlp(&client, &export, batch)
        }
        ExportKind::Webhook => {
            let of_checkpoints = contents.checkpoints.iter().map(|(id, _)| *id);
            let ids: Vec<i64> = contents.rows.iter().map(|row| row.id).chain(of_checkpoints).collect();
            let traces = contents.rows.iter().map(|row| LogDetail::new(row, None)).collect();
            let checkpoints = contents.checkpoints.into_iter().map(|(_, signed)| signed).collect();
            let data = BatchData { traces, checkpoints, test: false };
            webhook(&client, &export, &batch_id(export.id, &ids).to_string(), data)
        }
    });
    encoded.await.unwrap_or_else(|_| Err("the batch could not be encoded".into()))
}

fn add_rows(batch: &mut Batch, rows: &[LogRow], content: bool) {
    for row in rows {
        for span in &encode::row_spans(row, content) {
            batch.add(span);
        }
    }
}

fn add_verdicts(batch: &mut Batch, verdicts: &[(LogRow, EvaluationResult)], content: bool) {
    for (row, verdict) in verdicts {
        batch.add(&encode::evaluation_span(row, verdict, content));
    }
}

/// Sends a delivery without rows, to test the destination.
pub async fn test(client: &DeliveryClient, export: &Export) -> DeliveryResult {
    let id: EventId = client.services.ids.new_id();
    let message = match export.kind {
        ExportKind::Otlp => {
            let mut batch = Batch::default();
            batch.add(&encode::test_span(export.org_id, &id.to_string(), client.services.clock.now()));
            otlp(client, export, batch)
        }
        ExportKind::Webhook => {
            webhook(client, export, &id.to_string(), BatchData { test: true, ..BatchData::default() })
        }
    };
    match message {
        Ok(message) => message.send(client).await,
        Err(why) => DeliveryResult::failed(why),
    }
}

/// The number of spans that the destination rejected, and its reason.
pub fn rejected(kind: ExportKind, response: &[u8]) -> (i64, Option<String>) {
    if kind != ExportKind::Otlp {
        return (0, None);
    }
    let partial =
        ExportTraceServiceResponse::decode(response).ok().and_then(|decoded| decoded.partial_success);
    match partial {
        Some(partial) if partial.rejected_spans > 0 => {
            let reason: String =
                partial.error_message.chars().filter(|c| !c.is_control()).take(500).collect();
            (
                partial.rejected_spans,
                Some(format!("{} spans were rejected: {reason}", partial.rejected_spans)),
            )
        }
        _ => (0, None),
    }
}

fn otlp(client: &DeliveryClient, export: &Export, batch: Batch) -> Result<Message, String> {
    let (head, spans) = batch.finish(export.org_id, VERSION);
    let mut gzip = GzEncoder::new(Vec::with_capacity(spans.len() / 4), Compression::fast());
    let body = gzip.write_all(&head).and_then(|()| gzip.write_all(&spans)).and_then(|()| gzip.finish());
    let body = body.map_err(|error| format!("the batch could not be compressed: {error}"))?.into();
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    Ok(Message::new(otlp_endpoint(&export.endpoint), custom_headers(client, export)?, headers, body))
}

#[derive(Serialize)]
struct Envelope<'a> {
    id: &'a str,
    r#type: &'static str,
    org_id: OrgId,
    timestamp: Timestamp,
    data: BatchData,
}

#[derive(Default, Serialize)]
struct BatchData {
    traces: Vec<LogDetail>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    checkpoints: Vec<SignedCheckpoint>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    test: bool,
}

fn webhook(client: &DeliveryClient, export: &Export, id: &str, data: BatchData) -> Result<Message, String> {
    let envelope = Envelope {
        id,
        r#type: "trace.batch",
        org_id: export.org_id,
        timestamp: client.services.clock.now(),
        data,
    };
    let body = serde_json::to_vec(&envelope).map_err(|error| error.to_string())?;
    let mut keys = Vec::new();
    if let Some(secret) = decrypt(client, export, "secret", export.secret.as_deref())? {
        keys.push(signing::decode_secret(&secret).map_err(|error| error.to_string())?);
    }
    let headers = signed_headers(client, &keys, id, &body);
    Ok(Message::new(export.endpoint.clone(), custom_headers(client, export)?, headers, body.into()))
}

fn custom_headers(client: &DeliveryClient, export: &Export) -> Result<HeaderMap, String> {
    let Some(text) = decrypt(client, export, "headers", export.headers.as_deref())? else {
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

fn decrypt(
    client: &DeliveryClient,
    export: &Export,
    column: &str,
    encrypted: Option<&str>,
) -> Result<Option<String>, String> {
    let Some(encrypted) = encrypted else { return Ok(None) };
    let context = encryption_context(export.org_id, &format!("export/{}", export.id), column);
    let decrypted = client.services.vault.open(&context, encrypted).map_err(|error| error.to_string())?;
    Ok(Some(decrypted.expose_secret().to_owned()))
}
