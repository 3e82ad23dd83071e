//! The live stream of log rows. The streams of an organization on this node follow one task (`log::tail`), which knows
//! the new rows of all nodes. A stream itself reads the store for rows that a resuming client missed, and for a client
//! that fell behind.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gateway_core::ids::OrgId;
use gateway_core::log_view::LogView;
use gateway_core::logs::first_log_id;
use gateway_core::query::Query;
use gateway_core::time::SECOND;
use gateway_store::StoreError;
use gateway_store::logs::{self, LogEntry, LogFilter};
use http::header::RETRY_AFTER;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::{LogParams, wait_for_rows};
use crate::api::caller::{AppState, CredentialHeaders, RowReader};
use crate::api::extract::PagedQuery;
use crate::api::openapi::{Operation, OperationInput, OperationOutput};
use crate::api::query;
use crate::api::ready_events::ReadyEvents;
use crate::api::response::EventStream;
use crate::app::App;
use crate::auth::RowAccess;
use crate::log::tail::{MAX_STREAMS_PER_ORG, RecentIds, SubscribeError, Subscription, TailEvent};
use crate::problem::{ApiResult, Problem};
use crate::shares::QUERY_MAX_WAIT;

/// Interval of comments that keep the connection alive.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// How often the caller's credential is checked again.
const CREDENTIAL_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How far back (in milliseconds) rows are read by id when the list of batches does not reach back far enough: a row
/// gets its id at its start and is stored at its end.
const LATE_ROW_WINDOW: i64 = 60 * SECOND;
const PAGE_ROWS: i64 = 200;
/// Batches of rows that one read of a client that fell behind contains.
const PAGE_BATCHES: i64 = 4;
/// Pause after a failed read of the store.
const RETRY_DELAY: Duration = Duration::from_secs(1);

pub(super) async fn follow(
    State(app): AppState,
    caller: RowReader,
    credentials: CredentialHeaders,
    LastEventId(last): LastEventId,
    PagedQuery { page: _, filter: params }: PagedQuery<LogParams>,
) -> ApiResult<LogEventStream> {
    let mut filter = params.filter(caller.row_access())?;
    let query = query::parse(&app, caller.org.id, params.query.as_deref()).await?.unwrap_or_default();
    let resume = last.or(filter.after_id.take());
    let subscribing = app.shares.log_tails.subscribe(&app.services, &app.proxy.tail, caller.org.id);
    let subscription = subscribing.await.map_err(|error| match error {
        SubscribeError::TooMany => too_many_streams(),
        SubscribeError::Store(error) => error.into(),
    })?;
    let reader = Reader { org: caller.org.id, credentials, access: caller.row_access() };
    let mut follower = Follower::new(&app, reader, Wanted { filter, query }, subscription);
    follower.resume_after(resume);
    let events = futures_util::stream::unfold(follower, |mut follower| async move {
        follower.next().await.map(|bytes| (bytes, follower))
    });
    Ok(LogEventStream(EventStream::new(events)))
}

fn too_many_streams() -> Problem {
    let message = format!(
        "the organization has {MAX_STREAMS_PER_ORG} open log streams, the maximum; close one, or poll GET /logs"
    );
    let mut problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", message);
    problem.headers.push((RETRY_AFTER, HeaderValue::from_static("5")));
    problem
}

/// Who follows, and what they may read.
struct Reader {
    org: OrgId,
    credentials: CredentialHeaders,
    access: RowAccess,
}

/// The rows that are streamed.
struct Wanted {
    filter: LogFilter,
    query: Query,
}

impl Wanted {
    fn has_text(&self) -> bool {
        !self.filter.words.is_empty() || self.query.has_text()
    }
}

/// Produces the events of one stream.
struct Follower {
    app: Arc<App>,
    org: OrgId,
    credentials: CredentialHeaders,
    access: RowAccess,
    next_credential_check: Instant,
    filter: LogFilter,
    query: Arc<Query>,
    /// Rows have to be read with their bodies, or searched for words.
    has_text: bool,
    tail: Receiver<TailEvent>,
    /// Events that are ready to be sent.
    ready: ReadyEvents,
    sent: RecentIds,
    /// The store must be read after this id before events of the tail are awaited.
    read_after: Option<i64>,
    /// The next read of the store is the first one.
    is_replay: bool,
    /// Stored rows that have to be searched for words.
    read_these: Vec<i64>,
    /// The rows of the batches up to this one were sent.
    last_batch: i64,
    /// Events were missed, so the next batches must be read before others are awaited.
    read_batches: bool,
}

impl Follower {
    fn new(app: &Arc<App>, reader: Reader, wanted: Wanted, subscription: Subscription) -> Self {
        let Reader { org, credentials, access } = reader;
        let Subscription { events, last_batch } = subscription;
        let has_text = wanted.has_text();
        let Wanted { filter, query } = wanted;
        let account = app.services.memory.account(org);
        Self {
            app: Arc::clone(app),
            org,
            credentials,
            access,
            next_credential_check: Instant::now() + CREDENTIAL_CHECK_INTERVAL,
            filter,
            query: Arc::new(query),
            has_text,
            tail: events,
            ready: ReadyEvents::new(account.open()),
            sent: RecentIds::new(account.open()),
            read_after: None,
            is_replay: false,
            read_these: Vec::new(),
            last_batch,
            read_batches: false,
        }
    }

    /// The client has this row, even if it is broadcast only now, and wants those behind it.
    fn resume_after(&mut self, last: Option<i64>) {
        if let Some(last) = last {
            self.sent.insert(last);
        }
        (self.read_after, self.is_replay) = (last, last.is_some());
    }

    /// The next bytes for the client. Returns `None` when the service stops or the credential becomes invalid.
    async fn next(&mut self) -> Option<Bytes> {
        let keep_alive = Instant::now() + KEEP_ALIVE_INTERVAL;
        loop {
            if self.app.services.tasks.is_stopping() || !self.is_still_authorized().await {
                return None;
            }
            if let Some(event) = self.ready.pop() {
                return Some(event);
            }
            if let Some(after) = self.read_after {
                self.read_store(after).await;
                continue;
            }
            if self.read_batches {
                self.read_next_batches().await;
                continue;
            }
            if !self.read_these.is_empty() {
                self.read_rows().await;
                continue;
            }
            tokio::select! {
                biased;
                () = self.app.services.tasks.stopping() => return None,
                event = self.tail.recv() => match event {
                    Ok(event) => self.accept(event),
                    Err(RecvError::Lagged(_)) => self.read_batches = true,
                    Err(RecvError::Closed) => return None,
                },
                () = tokio::time::sleep_until(self.next_credential_check) => {}
                () = tokio::time::sleep_until(keep_alive) => return Some(Bytes::from_static(b": \n\n")),
            }
        }
    }

    fn accept(&mut self, event: TailEvent) {
        match event {
            TailEvent::Live(row) => {
                if self.filter.matches(&row) && self.query.matches(&row) {
                    self.push(&LogView::new(&row, logs::preview(&row.request)));
                }
            }
            // Stored rows come without their texts.
            TailEvent::Stored(entries) if self.has_text => {
                self.read_these.extend(entries.iter().map(|entry| entry.row.id));
            }
            TailEvent::Stored(entries) => {
                for LogEntry { row, preview } in entries.iter() {
                    if self.filter.matches(row) && self.query.matches(row) {
                        self.push(&LogView::new(row, preview.clone()));
                    }
                }
            }
            TailEvent::Missed => self.read_batches = true,
            TailEvent::Polled(batch) => self.last_batch = batch,
            TailEvent::Incomplete(since) => {
                self.read_after = Some(first_log_id(since.plus(-LATE_ROW_WINDOW)));
            }
        }
    }

    /// A revoked key, a removed member, an expired token or a change of the readable rows ends the stream.
    async fn is_still_authorized(&mut self) -> bool {
        if Instant::now() < self.next_credential_check {
            return true;
        }
        self.next_credential_check = Instant::now() + CREDENTIAL_CHECK_INTERVAL;
        self.app.proxy.access.revalidate_reader(&self.credentials.0, self.access).await
    }

    /// Reads the rows of the next batches that were not sent yet, in the order in which they were stored.
    async fn read_next_batches(&mut self) {
        let (app, org, after) = (Arc::clone(&self.app), self.org, self.last_batch);
        let found = async move { logs::batches_after(&app.services.logs, org, after, PAGE_BATCHES).await };
        let Some(batches) = self.on_main_runtime(found).await else { return };
        if batches.is_incomplete {
            let now = self.app.services.clock.now();
            self.read_after = Some(first_log_id(now.plus(-LATE_ROW_WINDOW)));
        }
        self.read_these.extend(batches.ids);
        // Read on until there is nothing new.
        self.read_batches = self.last_batch < batches.last;
        self.last_batch = batches.last;
        if !self.read_these.is_empty() {
            self.read_rows().await;
        }
    }

    /// Reads stored rows that match and were not sent yet.
    async fn read_rows(&mut self) {
        let unsent: Vec<i64> =
            self.read_these.iter().copied().filter(|id| !self.sent.contains(*id)).collect();
        if unsent.is_empty() {
            self.read_these.clear();
            return;
        }
        let (app, org, filter) = (Arc::clone(&self.app), self.org, self.filter.clone());
        let query = Arc::clone(&self.query);
        let rows = async move {
            let found = logs::list_these(&app.services.logs, org, &filter, &unsent).await?;
            logs::retain_matching(&app.services.logs, org, &query, found).await
        };
        let Some(entries) = self.on_main_runtime(rows).await else { return };
        self.read_these.clear();
        for entry in entries {
            self.push(&entry.into());
        }
    }

    /// Runs a read of the store within the organization's share of queries; pauses after an error. Response bodies are
    /// polled on workers, which must not use the database.
    async fn on_main_runtime<T: Send + 'static>(
        &self,
        read: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Option<T> {
        let (tasks, queries, org) =
            (&self.app.services.tasks, Arc::clone(&self.app.shares.queries), self.org);
        let read = tasks.runtime.spawn(async move {
            let slot = queries.acquire(org, Some(QUERY_MAX_WAIT)).await;
            let _slot = slot.map_err(|error| StoreError::Unavailable(error.to_string()))?;
            read.await
        });
        match read.await.unwrap_or_else(|error| Err(StoreError::Other(error.to_string()))) {
            Ok(found) => Some(found),
            Err(error) => {
                tracing::debug!(%error, "a log stream cannot read the store; it retries");
                let _ = tokio::time::timeout(RETRY_DELAY, tasks.stopping()).await;
                None
            }
        }
    }

    async fn read_store(&mut self, after: i64) {
        let filter = LogFilter { after_id: Some(after), ..self.filter.clone() };
        let (app, org, query) = (Arc::clone(&self.app), self.org, Arc::clone(&self.query));
        // Later rows of this node are broadcast, so only a replay waits for those that are not stored yet.
        let is_replay = std::mem::replace(&mut self.is_replay, false);
        let read = async move {
            if is_replay {
                wait_for_rows(&app, org, &filter).await;
            }
            let found = logs::list_after(&app.services.logs, org, &filter, PAGE_ROWS).await?;
            let full = i64::try_from(found.len()).is_ok_and(|count| count == PAGE_ROWS);
            let last = found.last().map(|entry| entry.row.id).filter(|_| full);
            let matching = logs::retain_matching(&app.services.logs, org, &query, found).await?;
            Ok((matching, last))
        };
        let Some((entries, last)) = self.on_main_runtime(read).await else { return };
        self.read_after = last;
        for entry in entries {
            self.push(&entry.into());
        }
    }

    /// Queues the event of a row, unless it was sent before.
    fn push(&mut self, row: &LogView) {
        if self.sent.contains(row.id) {
            return;
        }
        self.sent.insert(row.id);
        if let Ok(data) = serde_json::to_string(row) {
            self.ready.push(format!("event: log\nid: {}\ndata: {data}\n\n", row.id));
        }
    }
}

/// The id of the last event that a reconnecting client received.
pub(in crate::api) struct LastEventId(pub Option<i64>);

impl<S: Send + Sync> FromRequestParts<S> for LastEventId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(value) = parts.headers.get("last-event-id").filter(|value| !value.is_empty()) else {
            return Ok(Self(None));
        };
        let id = value.to_str().ok().and_then(|text| text.parse().ok());
        id.map(|id| Self(Some(id)))
            .ok_or_else(|| Problem::field("Last-Event-ID", "must be the id of an event"))
    }
}

impl OperationInput for LastEventId {
    fn describe(operation: &mut Operation<'_>) {
        operation.parameters.push(json!({
            "name": "Last-Event-ID", "in": "header", "required": false,
            "description": "Resume after the event with this id.", "schema": {"type": "integer", "format": "int64"},
        }));
    }
}

pub(super) struct LogEventStream(EventStream);

impl IntoResponse for LogEventStream {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

impl OperationOutput for LogEventStream {
    fn describe(operation: &mut Operation<'_>) {
        operation.responses.push((
            200,
            json!({
                "description": "Each `event: log` contains a row as in the list, with its log id as `id:`. A comment is sent every 15 s. An organization may have 20 streams open on a node; one more gets 429 `too_many_streams`",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            }),
        ));
    }
}
