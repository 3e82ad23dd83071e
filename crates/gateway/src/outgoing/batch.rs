//! A batch of rows as the bytes that a destination is sent.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
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

use super::{ANSWER_BYTES, Sent, post, signed_headers};
use crate::app::App;
use crate::vault::encryption_context;

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub struct Message {
    url: String,
    headers: HeaderMap,
    body: Bytes,
    /// What its owner wants nobody else to see.
    secrets: Vec<String>,
}

/// Shorter parts of a header are no secrets, or would be found everywhere.
const SHORTEST_SECRET: usize = 6;

impl Message {
    /// The rest of a message whose headers are those of the export's owner so far.
    fn new(url: String, own: HeaderMap, ours: HeaderMap, body: Bytes) -> Self {
        let values = own.values().filter_map(|value| value.to_str().ok());
        let secrets = values.flat_map(|value| [value, value.rsplit(' ').next().unwrap_or(value)]);
        let secrets = secrets.filter(|part| part.len() >= SHORTEST_SECRET).map(ToOwned::to_owned).collect();
        let mut headers = own;
        headers.extend(ours);
        Self { url, headers, body, secrets }
    }

    pub async fn send(self, app: &App) -> Sent {
        let mut sent = post(app, &self.url, self.headers, self.body, ANSWER_BYTES).await;
        sent.hide(&self.secrets);
        sent
    }
}

/// What goes into a request.
#[derive(Debug, Default)]
pub struct Contents {
    pub rows: Vec<LogRow>,
    /// Each with its row, which may have left long ago.
    pub verdicts: Vec<(LogRow, EvaluationResult)>,
    /// With what was said.
    pub content: bool,
}

/// Makes the request, away from the threads that others wait for.
pub async fn encode(app: &Arc<App>, export: &Arc<Export>, contents: Contents) -> Result<Message, String> {
    let (app, export) = (Arc::clone(app), Arc::clone(export));
    let made = tokio::task::spawn_blocking(move || match export.kind {
        ExportKind::Otlp => {
            let mut batch = Batch::default();
            add_rows(&mut batch, &contents.rows, contents.content);
            add_verdicts(&mut batch, &contents.verdicts, contents.content);
            otlp(&app, &export, batch)
        }
        ExportKind::Webhook => {
            let ids: Vec<i64> = contents.rows.iter().map(|row| row.id).collect();
            let traces = contents.rows.iter().map(|row| LogDetail::new(row, None)).collect();
            webhook(&app, &export, &batch_id(export.id, &ids).to_string(), traces, false)
        }
    });
    made.await.unwrap_or_else(|_| Err("the batch could not be made".into()))
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

/// A delivery without a row, to see whether the destination takes any.
pub async fn test(app: &App, export: &Export) -> Sent {
    let id: EventId = app.services.ids.new_id();
    let message = match export.kind {
        ExportKind::Otlp => {
            let mut batch = Batch::default();
            batch.add(&encode::test_span(export.org_id, &id.to_string(), app.services.clock.now()));
            otlp(app, export, batch)
        }
        ExportKind::Webhook => webhook(app, export, &id.to_string(), Vec::new(), true),
    };
    match message {
        Ok(message) => message.send(app).await,
        Err(why) => Sent::failed(why),
    }
}

/// How many spans the destination took the request without, and why.
pub fn rejected(kind: ExportKind, answer: &[u8]) -> (i64, Option<String>) {
    if kind != ExportKind::Otlp {
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

fn otlp(app: &App, export: &Export, batch: Batch) -> Result<Message, String> {
    let (head, spans) = batch.finish(export.org_id, VERSION);
    let mut packed = GzEncoder::new(Vec::with_capacity(spans.len() / 4), Compression::fast());
    let body = packed.write_all(&head).and_then(|()| packed.write_all(&spans)).and_then(|()| packed.finish());
    let body = body.map_err(|error| format!("the batch could not be packed: {error}"))?.into();
    let mut ours = HeaderMap::new();
    ours.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    ours.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    Ok(Message::new(otlp_endpoint(&export.endpoint), own_headers(app, export)?, ours, body))
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
        timestamp: app.services.clock.now(),
        data: Traces { traces, test },
    };
    let body = serde_json::to_vec(&envelope).map_err(|error| error.to_string())?;
    let mut keys = Vec::new();
    if let Some(secret) = open(app, export, "secret", export.secret.as_deref())? {
        keys.push(signing::decode_secret(&secret).map_err(|error| error.to_string())?);
    }
    let ours = signed_headers(app, &keys, id, &body);
    Ok(Message::new(export.endpoint.clone(), own_headers(app, export)?, ours, body.into()))
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
    let place = encryption_context(export.org_id, &format!("export/{}", export.id), column);
    let opened = app.services.vault.open(&place, sealed).map_err(|error| error.to_string())?;
    Ok(Some(opened.expose_secret().to_owned()))
}
