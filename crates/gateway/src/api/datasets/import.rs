//! Import of cases from files. The body is buffered once and parsed twice, row by row: first to report every bad row,
//! then to build the cases. They are stored in short transactions, so that other writers never wait long, and the last
//! one makes all of them visible at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use gateway_core::audit::Draft;
use gateway_core::datasets::CaseContent;
use gateway_core::datasets::import::{ImportError, ImportFormat, check, read};
use gateway_core::ids::{CaseId, DatasetId, OrgId};
use gateway_core::time::HOUR;
use gateway_store::StoreError;
use gateway_store::datasets::{self, StagedImport};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::cases::{count, lock_with_room};
use crate::api::audited::Audited;
use crate::api::caller::{Caller, Member};
use crate::api::extract::{BodyLimits, PathParam, read_body, request_memory};
use crate::api::openapi::{Operation, OperationInput};
use crate::api::response::Json;
use crate::app::App;
use crate::compute::{Cancellation, WaitLimits};
use crate::memory::RequestMemory;
use crate::problem::{ApiResult, Problem};
use crate::slices::pause;

/// All rows of an import are in memory at once.
const MAX_ROWS: u64 = 200_000;
/// What a row takes in memory besides its texts.
const ROW_BYTES: usize = 128;
/// Rows that are stored in one transaction.
const BATCH_ROWS: usize = 500;
/// An import of at least this many rows updates the database's statistics, if the last update was a while ago.
const ANALYZE_MIN_ROWS: usize = 5_000;
const READ_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const READ_TIMEOUT: Duration = Duration::from_secs(300);
/// Rows of imports that were interrupted longer ago than this, in milliseconds, are removed.
const ABANDONED_AFTER: i64 = HOUR;
/// How long a caller waits while another import is stored.
const MAX_WAIT: Duration = Duration::from_secs(30);

#[derive(Serialize, JsonSchema)]
pub(super) struct Imported {
    imported: u64,
}

pub(super) async fn import(
    app: Audited,
    caller: Caller<Member>,
    PathParam(id): PathParam<DatasetId>,
    file: ImportFile,
) -> ApiResult<Json<Imported>> {
    let parsing = move |cancellation: &Cancellation| parse(&file, cancellation);
    let cases = app.services.compute.run(caller.org.id, WaitLimits::IMPORT, parsing).await??;
    let imported = cases.len() as u64;
    let slot = app.shares.imports.acquire(caller.org.id, Some(MAX_WAIT)).await;
    let slot = slot.map_err(|_| Problem::overloaded("other imports are in progress; try again shortly"))?;
    // A task of its own, because a client that disconnects must not interrupt it half way.
    let (org, shared, entry) = (caller.org.id, Arc::clone(&app), app.entry());
    let (sender, receiver) = oneshot::channel();
    app.services.tasks.spawn(async move {
        let stored = store(&shared, (org, id), cases, entry).await;
        drop(slot);
        let _ = sender.send(stored);
    });
    receiver.await.map_err(Problem::internal)??;
    Ok(Json(Imported { imported }))
}

fn parse(file: &ImportFile, cancellation: &Cancellation) -> ApiResult<Vec<CaseContent>> {
    let problem = |error| import_problem(error, file.is_body);
    let rows = check(file.format, &file.bytes).map_err(problem)?;
    if rows > MAX_ROWS {
        return Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "payload_too_large",
            format!("the import has more than {MAX_ROWS} rows, the maximum"),
        ));
    }
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    file.memory.grow(rows.saturating_mul(ROW_BYTES))?;
    let mut cases = Vec::with_capacity(rows);
    read(file.format, &file.bytes, &mut |content| {
        cases.push(content);
        !cases.len().is_multiple_of(BATCH_ROWS) || !cancellation.is_cancelled()
    })
    .map_err(problem)?;
    if cases.len() != rows {
        return Err(problem(ImportError::Unreadable("the import was interrupted".into())));
    }
    Ok(cases)
}

async fn store(
    app: &App,
    (org, id): (OrgId, DatasetId),
    cases: Vec<CaseContent>,
    entry: Draft,
) -> ApiResult<()> {
    let (rows, now) = (cases.len(), app.services.clock.now());
    let mut cases = cases.into_iter();
    // Not all at once: making many ids takes long, and other requests need the thread.
    let mut next_batch = || -> Vec<(CaseId, CaseContent)> {
        cases.by_ref().take(BATCH_ROWS).map(|content| (app.services.ids.new_id(), content)).collect()
    };
    let mut batch = next_batch();
    let mut tx = app.services.db.begin().await?;
    let dataset = lock_with_room(&mut tx, org, id, rows).await?;
    let entry = entry.named(&dataset.name).created(&json!({"cases": rows}));
    if rows <= BATCH_ROWS {
        datasets::add_cases(&mut tx, &dataset, batch, now).await?;
        datasets::update_case_count(&mut tx, &dataset, count(rows), now).await?;
        tx.record(entry);
        return Ok(tx.commit().await?);
    }
    tx.commit().await?;
    while datasets::delete_abandoned(&app.services.db, id, now.plus(-ABANDONED_AFTER)).await? > 0 {}
    let mut ranges = Vec::new();
    let import =
        StagedImport { number: app.services.ids.next_row_id(), version: dataset.current_version + 1, now };
    while let Some(range) = batch.first().zip(batch.last()).map(|(first, last)| (first.0, last.0)) {
        ranges.push(range);
        let mut tx = app.services.db.begin().await?;
        let began = Instant::now();
        import.add(&mut tx, id, batch).await?;
        tx.commit().await?;
        pause(began).await;
        batch = next_batch();
    }
    let mut tx = app.services.db.begin().await?;
    let dataset = lock_with_room(&mut tx, org, id, rows).await?;
    import.publish(&mut tx, &dataset).await?;
    datasets::update_case_count(&mut tx, &dataset, count(rows), now).await?;
    tx.record(entry);
    tx.commit().await?;
    if let Err(error) = finish(app, id, import, ranges).await {
        tracing::debug!(%error, "the next change of the dataset completes the import");
    }
    if rows >= ANALYZE_MIN_ROWS
        && app.shares.may_analyze(app.services.clock.now())
        && let Err(error) = datasets::analyze_cases(&app.services.db).await
    {
        tracing::debug!(%error, "cannot update the statistics after a large import; reading may be slow for a while");
    }
    Ok(())
}

async fn finish(
    app: &App,
    id: DatasetId,
    import: StagedImport,
    ranges: Vec<(CaseId, CaseId)>,
) -> Result<(), StoreError> {
    for range in ranges {
        let mut tx = app.services.db.begin().await?;
        let began = Instant::now();
        let goes_on = import.publish_batch(&mut tx, id, range).await?;
        tx.commit().await?;
        pause(began).await;
        if !goes_on {
            return Ok(());
        }
    }
    let mut tx = app.services.db.begin().await?;
    import.finish(&mut tx, id).await?;
    tx.commit().await
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
    memory: RequestMemory,
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
        let limits = BodyLimits {
            bytes: app.services.config.max_body_bytes,
            timeout: READ_TIMEOUT,
            idle_timeout: READ_IDLE_TIMEOUT,
        };
        let memory = request_memory(&request)?;
        let bytes = read_body(request, limits).await?;
        // For the batches on their way to the store.
        memory.grow(bytes.len())?;
        if format != ImportFormat::Json {
            return Ok(Self { format, bytes, is_body: false, memory });
        }
        unwrap_data(bytes, memory)
    }
}

#[derive(Deserialize)]
struct Wrapped<'a> {
    format: Option<Value>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

/// A JSON body is either the cases themselves, or an object with `format` and `data`.
fn unwrap_data(bytes: Bytes, memory: RequestMemory) -> ApiResult<ImportFile> {
    let is_object = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let wrapped = if is_object { serde_json::from_slice::<Wrapped<'_>>(&bytes).ok() } else { None };
    let Some(Wrapped { format, data }) =
        wrapped.filter(|wrapped| wrapped.format.is_some() || wrapped.data.is_some())
    else {
        return Ok(ImportFile { format: ImportFormat::Json, bytes, is_body: true, memory });
    };
    let format = format.unwrap_or_default();
    let format = ImportFormat::deserialize(&format)
        .map_err(|_| Problem::field("format", "must be one of json, csv, ndjson"))?;
    let data = data.ok_or_else(|| Problem::field("data", "is required together with format"))?.get();
    if data.starts_with('"') {
        let text: String =
            serde_json::from_str(data).map_err(|_| Problem::field("data", "is not a valid JSON string"))?;
        return Ok(ImportFile { format, bytes: text.into(), is_body: false, memory });
    }
    if format == ImportFormat::Json && data.starts_with(['[', '{']) {
        return Ok(ImportFile { format, bytes: bytes.slice_ref(data.as_bytes()), is_body: false, memory });
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
