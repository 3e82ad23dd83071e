//! Export of log rows as a stream. It reads a page at a time, each as a query of its own: no transaction stays open, and
//! the organization's other queries have their turn in between.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gateway_core::audit::Target;
use gateway_core::ids::OrgId;
use gateway_core::log_view::export::{csv_header, csv_line, json_line};
use gateway_core::logs::LogRow;
use gateway_store::logs::{self, LogEntry, LogSearch, Sort, SortKey};
use http::request::Parts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::LogParams;
use super::search::{parse_sort, search};
use crate::api::audited::AuditedRead;
use crate::api::caller::{AppState, CredentialHeaders, RowReader};
use crate::api::downloads::{Download, query};
use crate::api::extract::QueryParams;
use crate::api::openapi::{Operation, OperationInput, OperationOutput};
use crate::app::App;
use crate::auth::RowAccess;
use crate::jobs::run_eval::reserve_batch;
use crate::log::tail::row_bytes;
use crate::memory::{MemoryAccount, Reservation, hold};
use crate::problem::{ApiResult, Problem};

const PAGE: i64 = 500;
const MAX_ROWS: i64 = 1_000_000;
/// A body is held as it was stored, and in the text.
const HELD_PER_BYTE: i64 = 3;
/// The longest time to write a batch of bodies.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Format {
    #[default]
    Ndjson,
    Csv,
}

impl Format {
    fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Ndjson => ("application/x-ndjson", "ndjson"),
            Self::Csv => ("text/csv; charset=utf-8", "csv"),
        }
    }

    fn write(self, entries: impl IntoIterator<Item = LogEntry>, with_bodies: bool) -> Vec<u8> {
        let line = match self {
            Self::Ndjson => json_line,
            Self::Csv => csv_line,
        };
        entries.into_iter().flat_map(|LogEntry { row, preview }| line(&row, preview, with_bodies)).collect()
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct ExportParams {
    /// Default: `ndjson`.
    format: Option<Format>,
    /// Whether the rows have their bodies, as `GET /logs/{logId}` shows them. Default: false.
    bodies: Option<bool>,
}

/// Which rows, and how they are written.
pub(super) struct ExportQuery {
    rows: LogParams,
    file: ExportParams,
}

impl<S: Send + Sync> FromRequestParts<S> for ExportQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let QueryParams(rows) = QueryParams::from_request_parts(parts, state).await?;
        let QueryParams(file) = QueryParams::from_request_parts(parts, state).await?;
        Ok(Self { rows, file })
    }
}

impl OperationInput for ExportQuery {
    fn describe(operation: &mut Operation<'_>) {
        operation.query_params::<ExportParams>();
        operation.query_params::<LogParams>();
    }
}

pub(super) async fn export(
    State(app): AppState,
    caller: RowReader,
    read: AuditedRead,
    credentials: CredentialHeaders,
    ExportQuery { rows: params, file }: ExportQuery,
) -> ApiResult<LogExport> {
    let (org, access) = (caller.org.id, caller.row_access());
    let (format, with_bodies) = (file.format.unwrap_or_default(), file.bodies.unwrap_or(false));
    let sort = params.sort.as_deref().map(parse_sort).transpose()?.unwrap_or_default();
    let mut search = search(&app, org, &params, &params.filter(access)?).await?;
    if sort == (Sort { key: SortKey::Time, is_ascending: true }) {
        // Rows that arrive meanwhile would keep it from coming to an end.
        let until = app.services.clock.now().plus(1);
        search.to = Some(search.to.map_or(until, |to| to.min(until)));
    }
    let rows = Rows { org, access, credentials, search, sort, format, with_bodies };
    let memory = Arc::clone(&caller.org.memory);
    let mut reader = Reader { app, memory, rows: Arc::new(rows), at: Position::default() };
    // Before the response begins, so that what is wrong with the request has a status.
    let first = reader.read().await?;
    if with_bodies {
        let target = Target { kind: "log".into(), id: None, name: Some("export".into()) };
        read.record(&reader.app, &caller, "log.read_bodies", target);
    }
    let (content_type, extension) = format.name();
    let rest = futures_util::stream::unfold((Some(first), reader), |(ready, mut reader)| async move {
        match ready {
            Some(first) => Some((Ok(first), (None, reader))),
            None => reader.next().await.map(|read| (read, (None, reader))),
        }
    });
    let name = format!("logs-{org}.{extension}");
    Ok(LogExport(Download { body: Body::from_stream(rest), content_type, name }))
}

/// What is exported.
struct Rows {
    org: OrgId,
    access: RowAccess,
    credentials: CredentialHeaders,
    search: LogSearch,
    sort: Sort,
    format: Format,
    with_bodies: bool,
}

/// How far the export is.
#[derive(Default)]
struct Position {
    is_begun: bool,
    rows: i64,
    cursor: Option<String>,
    /// Rows of the page that wait for their bodies, whose sizes are known.
    pending: VecDeque<(LogEntry, i64)>,
    /// For these rows while the client takes those before them.
    held: Option<Reservation>,
}

impl Position {
    fn is_at_end(&self) -> bool {
        self.is_begun && self.pending.is_empty() && (self.cursor.is_none() || self.rows >= MAX_ROWS)
    }
}

struct Reader {
    app: Arc<App>,
    memory: Arc<MemoryAccount>,
    rows: Arc<Rows>,
    at: Position,
}

impl Reader {
    /// The next bytes for the client. An error is the last item.
    async fn next(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        while !self.at.is_at_end() {
            match self.read().await {
                // Pages of a rare query may have no rows.
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Some(Ok(bytes)),
                Err(problem) => {
                    tracing::debug!(reason = %problem.message, "an export of log rows was interrupted");
                    self.at = Position { is_begun: true, ..Position::default() };
                    return Some(Err(std::io::Error::other(problem.message)));
                }
            }
        }
        None
    }

    /// The rows of a page, or those of them whose bodies fit into a batch.
    async fn read(&mut self) -> ApiResult<Bytes> {
        let (app, memory, rows) = (Arc::clone(&self.app), Arc::clone(&self.memory), Arc::clone(&self.rows));
        let mut at = std::mem::take(&mut self.at);
        let read = async move {
            let read = rows.read(&app, &memory, &mut at).await;
            read.map(|(text, held)| (hold(text, held), at))
        };
        let (bytes, at) = query(&self.app, self.rows.org, read).await?;
        self.at = at;
        Ok(bytes)
    }
}

impl Rows {
    async fn read(
        &self,
        app: &App,
        memory: &Arc<MemoryAccount>,
        at: &mut Position,
    ) -> ApiResult<(Vec<u8>, Reservation)> {
        if app.services.tasks.is_stopping() {
            return Err(Problem::overloaded("the node stops; export again"));
        }
        if !app.proxy.access.revalidate_reader(&self.credentials.0, self.access).await {
            return Err(Problem::forbidden("the credential is not valid any more"));
        }
        if at.pending.is_empty() {
            self.read_page(app, memory, at).await?;
        }
        let is_first = !std::mem::replace(&mut at.is_begun, true);
        let mut text =
            if is_first && self.format == Format::Csv { csv_header(self.with_bodies) } else { Vec::new() };
        let mut held = memory.open();
        if self.with_bodies && !at.pending.is_empty() {
            let sizes: Vec<i64> = at.pending.iter().map(|(_, size)| *size).collect();
            let (count, reserved) = reserve_batch(memory, &sizes, HELD_PER_BYTE)?;
            held = reserved;
            let batch = at.pending.drain(..usize::try_from(count).unwrap_or(1)).map(|(entry, _)| entry);
            let entries = self.with_stored_bodies(app, batch.collect()).await?;
            text.extend(self.written(app, entries, held.bytes()).await?);
        } else {
            let entries: Vec<LogEntry> = at.pending.drain(..).map(|(entry, _)| entry).collect();
            let bytes = entries.iter().map(entry_bytes).sum();
            held.grow(bytes)?;
            text.extend(self.written(app, entries, bytes).await?);
        }
        if at.pending.is_empty() {
            at.held = None;
        }
        // Counted until the client has taken it.
        held.shrink_to(text.len());
        held.charge(text.len() - held.bytes());
        Ok((text, held))
    }

    /// The lines of rows that take so many bytes.
    async fn written(&self, app: &App, entries: Vec<LogEntry>, bytes: usize) -> ApiResult<Vec<u8>> {
        let (format, with_bodies) = (self.format, self.with_bodies);
        let writing = move || format.write(entries, with_bodies);
        Ok(app.services.compute.run_for_body(self.org, bytes, WRITE_TIMEOUT, writing).await?)
    }

    async fn read_page(&self, app: &App, memory: &Arc<MemoryAccount>, at: &mut Position) -> ApiResult<()> {
        let stored = &app.services.logs;
        let page = (PAGE.min(MAX_ROWS - at.rows), at.cursor.as_deref());
        let found = logs::list_matching(stored, self.org, &self.search, self.sort, page).await?;
        if self.sort.key != SortKey::Time
            && let Some(since) = found.scanned_to
        {
            let why = format!("there are too many rows to order before {since}; set from, or order by time");
            return Err(Problem::field("sort", why));
        }
        at.cursor = found.next;
        at.rows += i64::try_from(found.entries.len()).unwrap_or(MAX_ROWS);
        let ids: Vec<i64> = found.entries.iter().map(|entry| entry.row.id).collect();
        let sizes = if self.with_bodies { logs::body_sizes(stored, &ids).await? } else { HashMap::default() };
        let sized = |entry: LogEntry| {
            let size = sizes.get(&entry.row.id).copied().unwrap_or(0);
            (entry, size)
        };
        at.held = Some(memory.reserve(found.entries.iter().map(entry_bytes).sum())?);
        at.pending = found.entries.into_iter().map(sized).collect();
        Ok(())
    }

    /// Rows that were deleted meanwhile stay without bodies.
    async fn with_stored_bodies(&self, app: &App, mut entries: Vec<LogEntry>) -> ApiResult<Vec<LogEntry>> {
        let ids: Vec<i64> = entries.iter().map(|entry| entry.row.id).collect();
        let rows = logs::find_many(&app.services.logs, self.org, &ids, true).await?;
        let mut by_id: HashMap<i64, LogRow> = rows.into_iter().map(|row| (row.id, row)).collect();
        for entry in &mut entries {
            if let Some(row) = by_id.remove(&entry.row.id) {
                entry.row = row;
            }
        }
        Ok(entries)
    }
}

/// About what a row takes.
fn entry_bytes(entry: &LogEntry) -> usize {
    row_bytes(&entry.row) + entry.preview.as_ref().map_or(0, String::len)
}

pub(super) struct LogExport(Download);

impl IntoResponse for LogExport {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

impl OperationOutput for LogExport {
    fn describe(operation: &mut Operation<'_>) {
        operation.responses.push((
            200,
            json!({
                "description": "The rows that match, at most 1000000, each as in the list, one per line; `csv` begins with a line of column names. A body that ends without its end (a broken chunked encoding) is a part of the rows",
                "content": {
                    "application/x-ndjson": {"schema": {"type": "string"}},
                    "text/csv": {"schema": {"type": "string"}},
                },
            }),
        ));
    }
}
