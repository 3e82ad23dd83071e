//! Files of cases on their way in. The bytes are held once and gone through twice, a row at a time: first to name every
//! bad row, then, when there is none, to store all of them in one transaction. Nothing is stored while the body is still
//! on its way, since a slow sender would otherwise keep every other writer waiting.

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

use super::cases::{count, hold_for};
use crate::api::caller::{AppState, Caller, Member};
use crate::api::extract::PathParam;
use crate::api::openapi::{Operation, OperationInput};
use crate::api::response::Json;
use crate::app::App;
use crate::problem::{ApiResult, Problem};

/// More rows would keep the other writers of an embedded database waiting for too long.
const MAX_ROWS: u64 = 200_000;
/// Rows that are handed to the store at a time; two such batches wait at most.
const BATCH: usize = 1_000;
/// From so many rows on, the database is told that there are more now.
const MANY: usize = 5_000;
/// A sender that is silent for this long is given up, and so is one that needs longer for all of it.
const SILENCE: Duration = Duration::from_secs(60);
const WHOLE_BODY: Duration = Duration::from_secs(300);

#[derive(Serialize, JsonSchema)]
pub(super) struct Imported {
    imported: u64,
}

pub(super) async fn import(
    State(app): AppState,
    caller: Caller<Member>,
    PathParam(id): PathParam<DatasetId>,
    file: File,
) -> ApiResult<Json<Imported>> {
    let file = Arc::new(file);
    let first_look = Arc::clone(&file);
    let rows = tokio::task::spawn_blocking(move || check(first_look.rows, &first_look.bytes))
        .await
        .map_err(Problem::internal)?
        .map_err(|error| refused(error, file.is_body))?;
    if rows > MAX_ROWS {
        return Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "payload_too_large",
            format!("an import takes at most {MAX_ROWS} rows, and this has {rows}"),
        ));
    }
    store(&app, caller.org.id, id, file, rows).await?;
    Ok(Json(Imported { imported: rows }))
}

async fn store(app: &App, org: OrgId, id: DatasetId, file: Arc<File>, rows: u64) -> ApiResult<()> {
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    let now = app.services.clock.now();
    let mut tx = app.services.db.begin().await?;
    let held = hold_for(&mut tx, org, id, rows).await?;
    let (sender, mut receiver) = mpsc::channel(2);
    let reading = tokio::task::spawn_blocking(move || send_batches(&file, &sender));
    while let Some(batch) = receiver.recv().await {
        let batch = Vec::into_iter(batch).map(|content| (app.services.ids.new_id(), content)).collect();
        datasets::add_cases(&mut tx, &held, batch, now).await?;
    }
    // Whatever went wrong on the other side must not leave half of the rows behind.
    reading.await.map_err(Problem::internal)?.map_err(|error| refused(error, false))?;
    datasets::update_case_count(&mut tx, &held, count(rows), now).await?;
    tx.commit().await?;
    if rows >= MANY
        && let Err(error) = datasets::analyze_cases(&app.services.db).await
    {
        tracing::debug!(%error, "large datasets are read slowly until the database has looked at them by itself");
    }
    Ok(())
}

fn send_batches(file: &File, sender: &mpsc::Sender<Vec<CaseContent>>) -> Result<(), ImportError> {
    let mut batch = Vec::with_capacity(BATCH);
    read(file.rows, &file.bytes, &mut |content| {
        batch.push(content);
        // Nobody takes them any more when storing has failed.
        batch.len() < BATCH
            || sender.blocking_send(std::mem::replace(&mut batch, Vec::with_capacity(BATCH))).is_ok()
    })?;
    if !batch.is_empty() {
        let _ = sender.blocking_send(batch);
    }
    Ok(())
}

/// A body that is no JSON is malformed; anything else that cannot be imported is well-formed and meaningless.
fn refused(error: ImportError, is_body: bool) -> Problem {
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
            // Beyond a hundred, bad rows are only counted.
            problem.extra.insert("more_errors".into(), json!(more));
            problem
        }
    }
}

/// What is to be imported, with the format that its type or the wrapping body names.
pub(super) struct File {
    rows: ImportFormat,
    bytes: Bytes,
    /// The JSON is the request body itself.
    is_body: bool,
}

impl FromRequest<Arc<App>> for File {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let kind =
            request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let rows = match kind.as_str() {
            "text/csv" | "application/csv" => ImportFormat::Csv,
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" => ImportFormat::Ndjson,
            _ => ImportFormat::Json,
        };
        let bytes = receive(request, app.services.config.max_body_bytes).await?;
        if rows != ImportFormat::Json {
            return Ok(Self { rows, bytes, is_body: false });
        }
        unwrap(bytes)
    }
}

/// The body in one piece, written into its place as it comes.
async fn receive(request: Request, limit: usize) -> ApiResult<Bytes> {
    let mut body = request.into_body();
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(Problem::too_large(limit));
    }
    let late = || {
        Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "request_timeout",
            "the request body did not arrive in time",
        )
    };
    let all = async {
        let mut bytes = BytesMut::with_capacity(announced);
        while let Some(frame) = tokio::time::timeout(SILENCE, body.frame()).await.map_err(|_| late())? {
            let frame =
                frame.map_err(|_| Problem::bad_request("the request body could not be read to its end"))?;
            if let Ok(data) = frame.into_data() {
                if bytes.len() + data.len() > limit {
                    return Err(Problem::too_large(limit));
                }
                bytes.extend_from_slice(&data);
            }
        }
        Ok(bytes.freeze())
    };
    tokio::time::timeout(WHOLE_BODY, all).await.map_err(|_| late())?
}

#[derive(Deserialize)]
struct Wrapped<'a> {
    format: Option<Value>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

/// JSON is either the cases themselves or names a format and carries the data.
fn unwrap(bytes: Bytes) -> ApiResult<File> {
    let is_object = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let wrapped = if is_object { serde_json::from_slice::<Wrapped<'_>>(&bytes).ok() } else { None };
    let Some(Wrapped { format, data }) =
        wrapped.filter(|wrapped| wrapped.format.is_some() || wrapped.data.is_some())
    else {
        return Ok(File { rows: ImportFormat::Json, bytes, is_body: true });
    };
    let format = format.unwrap_or_default();
    let rows = ImportFormat::deserialize(&format)
        .map_err(|_| Problem::field("format", "must be json, csv or ndjson"))?;
    let data = data.ok_or_else(|| Problem::field("data", "is required beside `format`"))?.get();
    if data.starts_with('"') {
        let text: String =
            serde_json::from_str(data).map_err(|_| Problem::field("data", "is not a readable text"))?;
        return Ok(File { rows, bytes: text.into(), is_body: false });
    }
    if rows == ImportFormat::Json && data.starts_with(['[', '{']) {
        return Ok(File { rows, bytes: bytes.slice_ref(data.as_bytes()), is_body: false });
    }
    Err(Problem::field("data", "must be a text, or for the format json an array of cases"))
}

impl OperationInput for File {
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
                "data": {"type": "string", "description": "The file's text. For json an array of cases will do as well."},
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
