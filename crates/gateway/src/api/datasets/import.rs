//! Import of cases from files. The body is buffered once and parsed twice, row by row: first to report every bad row,
//! then to store all rows in one transaction. The transaction starts after the whole body was received, because a slow
//! client would otherwise block all other writers.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, Request, State};
use bytes::{Bytes, BytesMut};
use gateway_core::datasets::CaseContent;
use gateway_core::datasets::import::{ImportError, ImportFormat, check, read};
use gateway_core::ids::{DatasetId, OrgId};
use gateway_store::datasets;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::cases::{count, lock_with_room};
use crate::api::caller::{AppState, Caller, Member};
use crate::api::extract::PathParam;
use crate::api::openapi::{Operation, OperationInput};
use crate::api::response::Json;
use crate::app::App;
use crate::problem::{ApiResult, Problem};

/// More rows would block the other writers of an embedded database for too long.
const MAX_ROWS: u64 = 200_000;
/// Rows that are stored at a time. At most two batches are queued.
const BATCH_ROWS: usize = 1_000;
/// An import of at least this many rows updates the database's statistics.
const ANALYZE_MIN_ROWS: usize = 5_000;
const READ_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const READ_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Serialize, JsonSchema)]
pub(super) struct Imported {
    imported: u64,
}

pub(super) async fn import(
    State(app): AppState,
    caller: Caller<Member>,
    PathParam(id): PathParam<DatasetId>,
    file: ImportFile,
) -> ApiResult<Json<Imported>> {
    let file = Arc::new(file);
    let checked = Arc::clone(&file);
    let rows = tokio::task::spawn_blocking(move || check(checked.format, &checked.bytes))
        .await
        .map_err(Problem::internal)?
        .map_err(|error| import_problem(error, file.is_body))?;
    if rows > MAX_ROWS {
        return Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "payload_too_large",
            format!("the import has {rows} rows; the maximum is {MAX_ROWS}"),
        ));
    }
    store(&app, caller.org.id, id, file, rows).await?;
    Ok(Json(Imported { imported: rows }))
}

async fn store(app: &App, org: OrgId, id: DatasetId, file: Arc<ImportFile>, rows: u64) -> ApiResult<()> {
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    let now = app.services.clock.now();
    let mut tx = app.services.db.begin().await?;
    let dataset = lock_with_room(&mut tx, org, id, rows).await?;
    let (sender, mut receiver) = mpsc::channel(2);
    let reading = tokio::task::spawn_blocking(move || send_batches(&file, &sender));
    while let Some(batch) = receiver.recv().await {
        let batch = Vec::into_iter(batch).map(|content| (app.services.ids.new_id(), content)).collect();
        datasets::add_cases(&mut tx, &dataset, batch, now).await?;
    }
    // An error of the reader must not leave a part of the rows behind.
    reading.await.map_err(Problem::internal)?.map_err(|error| import_problem(error, false))?;
    datasets::update_case_count(&mut tx, &dataset, count(rows), now).await?;
    tx.commit().await?;
    if rows >= ANALYZE_MIN_ROWS
        && let Err(error) = datasets::analyze_cases(&app.services.db).await
    {
        tracing::debug!(%error, "cannot update the statistics after a large import; reading may be slow for a while");
    }
    Ok(())
}

fn send_batches(file: &ImportFile, sender: &mpsc::Sender<Vec<CaseContent>>) -> Result<(), ImportError> {
    let mut batch = Vec::with_capacity(BATCH_ROWS);
    read(file.format, &file.bytes, &mut |content| {
        batch.push(content);
        // Sending fails after the store failed; the reader then stops.
        batch.len() < BATCH_ROWS
            || sender.blocking_send(std::mem::replace(&mut batch, Vec::with_capacity(BATCH_ROWS))).is_ok()
    })?;
    if !batch.is_empty() {
        let _ = sender.blocking_send(batch);
    }
    Ok(())
}

/// A body that is not JSON is a bad request; everything else that cannot be imported is unprocessable.
fn import_problem(error: ImportError, is_body: bool) -> Problem {
    let message = error.to_string();
    match error {
        ImportError::Unreadable(why) if is_body => Problem::bad_request(format!(
            "{why}; send a JSON array of cases, {{\"cases\": […]}} or {{\"format\", \"data\"}}, or CSV as text/csv"
        )),
        ImportError::Unreadable(_) => Problem::unprocessable(message),
        ImportError::Rows { rows, more } => {
            let first = rows.first().map(|row| format!("; line {}: {}", row.line, row.message));
            let mut problem = Problem::unprocessable(format!(
                "nothing was imported: {message}{}",
                first.unwrap_or_default()
            ));
            problem.extra.insert("errors".into(), json!(rows));
            // At most a hundred bad rows are listed; the rest is counted.
            problem.extra.insert("more_errors".into(), json!(more));
            problem
        }
    }
}

/// The bytes to import, in the format that the content type or the body's `format` field names.
pub(super) struct ImportFile {
    format: ImportFormat,
    bytes: Bytes,
    /// The bytes are the whole JSON body, not its `data` field.
    is_body: bool,
}

impl FromRequest<Arc<App>> for ImportFile {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let content_type =
            request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let format = match media_type.as_str() {
            "text/csv" | "application/csv" => ImportFormat::Csv,
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" => ImportFormat::Ndjson,
            _ => ImportFormat::Json,
        };
        let bytes = read_body(request, app.services.config.max_body_bytes).await?;
        if format != ImportFormat::Json {
            return Ok(Self { format, bytes, is_body: false });
        }
        unwrap_data(bytes)
    }
}

/// Reads the body into one buffer of its announced size.
async fn read_body(request: Request, limit: usize) -> ApiResult<Bytes> {
    let mut body = request.into_body();
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(Problem::too_large(limit));
    }
    let all = async {
        let mut bytes = BytesMut::with_capacity(announced);
        loop {
            let frame = tokio::time::timeout(READ_IDLE_TIMEOUT, body.frame()).await;
            let Some(frame) = frame.map_err(|_| Problem::request_timeout())? else { break };
            if let Ok(data) = frame.map_err(|_| Problem::incomplete_body())?.into_data() {
                if bytes.len() + data.len() > limit {
                    return Err(Problem::too_large(limit));
                }
                bytes.extend_from_slice(&data);
            }
        }
        Ok(bytes.freeze())
    };
    tokio::time::timeout(READ_TIMEOUT, all).await.map_err(|_| Problem::request_timeout())?
}

#[derive(Deserialize)]
struct Wrapped<'a> {
    format: Option<Value>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

/// A JSON body is either the cases themselves, or an object with `format` and `data`.
fn unwrap_data(bytes: Bytes) -> ApiResult<ImportFile> {
    let is_object = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let wrapped = if is_object { serde_json::from_slice::<Wrapped<'_>>(&bytes).ok() } else { None };
    let Some(Wrapped { format, data }) =
        wrapped.filter(|wrapped| wrapped.format.is_some() || wrapped.data.is_some())
    else {
        return Ok(ImportFile { format: ImportFormat::Json, bytes, is_body: true });
    };
    let format = format.unwrap_or_default();
    let format = ImportFormat::deserialize(&format)
        .map_err(|_| Problem::field("format", "must be one of json, csv, ndjson"))?;
    let data = data.ok_or_else(|| Problem::field("data", "is required together with format"))?.get();
    if data.starts_with('"') {
        let text: String =
            serde_json::from_str(data).map_err(|_| Problem::field("data", "is not a valid JSON string"))?;
        return Ok(ImportFile { format, bytes: text.into(), is_body: false });
    }
    if format == ImportFormat::Json && data.starts_with(['[', '{']) {
        return Ok(ImportFile { format, bytes: bytes.slice_ref(data.as_bytes()), is_body: false });
    }
    Err(Problem::field("data", "must be a string, or for format json an array of cases"))
}

impl OperationInput for ImportFile {
    fn describe(operation: &mut Operation<'_>) {
        let case = json!({
            "type": "object",
            "required": ["input"],
            "properties": {"input": {}, "expected": {}, "metadata": {}},
        });
        let cases = json!({"type": "array", "items": case});
        let wrapped = json!({
            "type": "object",
            "required": ["format", "data"],
            "properties": {
                "format": {"type": "string", "enum": ["json", "csv", "ndjson"]},
                "data": {"type": "string", "description": "The content of the file as text; for json also an array of cases."},
            },
        });
        let object = json!({"type": "object", "required": ["cases"], "properties": {"cases": cases}});
        operation.request_body = Some(json!({"required": true, "content": {
            "application/json": {"schema": {"anyOf": [wrapped, object, cases]}},
            "text/csv": {"schema": {"type": "string"}},
            "application/x-ndjson": {"schema": {"type": "string"}},
        }}));
    }
}
