//! The live stream of log rows. Rows of this node are broadcast as they are written. The store is read for rows that a
//! resuming client missed, for clients that fell behind, and for rows of other nodes.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gateway_core::ids::OrgId;
use gateway_core::log_view::LogView;
use gateway_core::logs::{LogRow, first_log_id};
use gateway_core::time::{SECOND, Timestamp};
use gateway_store::StoreError;
use gateway_store::logs::{self, LogFilter};
use http::request::Parts;
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::{LogParams, current_rows};
use crate::api::caller::{AppState, Caller, CredentialHeaders, Viewer};
use crate::api::extract::PagedQuery;
use crate::api::openapi::{Operation, OperationInput, OperationOutput};
use crate::api::response::EventStream;
use crate::app::App;
use crate::problem::{ApiResult, Problem};

/// Interval of comments that keep the connection alive.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// How often the caller's credential is checked again.
const CREDENTIAL_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often the store is polled for rows of other nodes, and for rows of which this stream missed the broadcast.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How far back (in milliseconds) rows are read by id when the list of batches does not reach back far enough: a row
/// gets its id at its start and is stored at its end.
const LATE_ROW_WINDOW: i64 = 60 * SECOND;
const PAGE_ROWS: i64 = 200;
/// Batches of rows that one poll reads.
const PAGE_BATCHES: i64 = 4;
/// Number of ids of sent rows that are kept to avoid duplicates.
const MAX_REMEMBERED_IDS: usize = 32_768;
/// Pause after a failed read of the store.
const RETRY_DELAY: Duration = Duration::from_secs(1);

pub(super) async fn follow(
    State(app): AppState,
    caller: Caller<Viewer>,
    credentials: CredentialHeaders,
    LastEventId(last): LastEventId,
    PagedQuery { page: _, filter: params }: PagedQuery<LogParams>,
) -> ApiResult<LogEventStream> {
    let mut filter = params.filter()?;
    let resume = last.or(filter.after_id.take());
    let mut follower = Follower::new(&app, caller.org.id, credentials, filter, resume);
    // Read after the subscription, so that no row is missed in between.
    follower.last_batch = logs::last_batch(&app.services.logs).await?;
    let events = futures_util::stream::unfold(follower, |mut follower| async move {
        follower.next().await.map(|bytes| (bytes, follower))
    });
    Ok(LogEventStream(EventStream::new(events)))
}

/// Produces the events of one stream.
struct Follower {
    app: Arc<App>,
    org: OrgId,
    credentials: CredentialHeaders,
    next_credential_check: Instant,
    filter: LogFilter,
    live_rows: Receiver<Arc<LogRow>>,
    /// Events that are ready to be sent.
    ready: VecDeque<Bytes>,
    sent_ids: HashSet<i64>,
    sent_ids_in_order: VecDeque<i64>,
    /// The store must be read after this id before live rows are awaited.
    read_after: Option<i64>,
    /// The next read of the store is the first one.
    is_replay: bool,
    /// The rows of the batches up to this one were sent.
    last_batch: i64,
    /// The next batches must be read before live rows are awaited.
    read_batches: bool,
    last_poll: Timestamp,
    next_poll: Instant,
}

impl Follower {
    fn new(
        app: &Arc<App>,
        org: OrgId,
        credentials: CredentialHeaders,
        filter: LogFilter,
        resume: Option<i64>,
    ) -> Self {
        let now = app.services.clock.now();
        Self {
            // Subscribed before the store is read, so that no row is missed in between.
            live_rows: app.proxy.tail.subscribe(),
            app: Arc::clone(app),
            org,
            credentials,
            next_credential_check: Instant::now() + CREDENTIAL_CHECK_INTERVAL,
            filter,
            // The headers reach the client only with the first bytes of the body.
            ready: VecDeque::from([Bytes::from_static(b": following\n\n")]),
            // The client has this row, even if it is broadcast only now.
            sent_ids: resume.into_iter().collect(),
            sent_ids_in_order: VecDeque::new(),
            read_after: resume,
            is_replay: resume.is_some(),
            last_batch: 0,
            read_batches: false,
            last_poll: now,
            next_poll: Instant::now() + POLL_INTERVAL,
        }
    }

    /// The next bytes for the client. Returns `None` when the service stops or the credential becomes invalid.
    async fn next(&mut self) -> Option<Bytes> {
        let keep_alive = Instant::now() + KEEP_ALIVE_INTERVAL;
        loop {
            if self.app.services.tasks.is_stopping() || !self.is_still_authorized().await {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
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
            tokio::select! {
                biased;
                () = self.app.services.tasks.stopping() => return None,
                row = self.live_rows.recv() => match row {
                    Ok(row) => self.push_live(&row),
                    Err(RecvError::Lagged(_)) => self.schedule_poll(),
                    Err(RecvError::Closed) => return None,
                },
                () = tokio::time::sleep_until(self.next_credential_check) => {}
                () = tokio::time::sleep_until(self.next_poll) => self.schedule_poll(),
                () = tokio::time::sleep_until(keep_alive) => return Some(Bytes::from_static(b": \n\n")),
            }
        }
    }

    /// A revoked key, a removed member or an expired token ends the stream.
    async fn is_still_authorized(&mut self) -> bool {
        if Instant::now() < self.next_credential_check {
            return true;
        }
        self.next_credential_check = Instant::now() + CREDENTIAL_CHECK_INTERVAL;
        self.app.proxy.access.revalidate(&self.credentials.0).await
    }

    fn push_live(&mut self, row: &LogRow) {
        if row.org_id == self.org && self.filter.matches(row) {
            self.push(&LogView::new(row, logs::preview(&row.request)));
        }
    }

    /// Makes the next step read the batches that were stored since the last poll.
    fn schedule_poll(&mut self) {
        self.read_batches = true;
        self.next_poll = Instant::now() + POLL_INTERVAL;
    }

    /// Reads the rows of the next batches that were not sent yet, in the order in which they were stored.
    async fn read_next_batches(&mut self) {
        let (app, org, after) = (Arc::clone(&self.app), self.org, self.last_batch);
        let found = async move { logs::batches_after(&app.services.logs, org, after, PAGE_BATCHES).await };
        let Some(batches) = self.on_main_runtime(found).await else { return };
        let now = self.app.services.clock.now();
        let last_poll = std::mem::replace(&mut self.last_poll, now);
        if batches.is_incomplete {
            self.read_after = Some(first_log_id(last_poll.plus(-LATE_ROW_WINDOW)));
        }
        let unsent: Vec<i64> = batches.ids.into_iter().filter(|id| !self.sent_ids.contains(id)).collect();
        let (app, filter) = (Arc::clone(&self.app), self.filter.clone());
        let rows = async move { logs::list_these(&app.services.logs, org, &filter, &unsent).await };
        let Some(entries) = self.on_main_runtime(rows).await else { return };
        for entry in entries {
            self.push(&entry.into());
        }
        // Read on until there is nothing new.
        self.read_batches = self.last_batch < batches.last;
        self.last_batch = batches.last;
    }

    /// Runs a read of the store; pauses after an error. Response bodies are polled on workers, which must not use the
    /// database.
    async fn on_main_runtime<T: Send + 'static>(
        &self,
        read: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Option<T> {
        let tasks = &self.app.services.tasks;
        let read = tasks.runtime.spawn(read).await;
        match read.unwrap_or_else(|error| Err(StoreError::Other(error.to_string()))) {
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
        let (app, org) = (Arc::clone(&self.app), self.org);
        // Later rows of this node are broadcast, so only a replay waits for those that are not stored yet.
        let is_replay = std::mem::replace(&mut self.is_replay, false);
        let read = async move {
            let stored = if is_replay { current_rows(&app, org, &filter).await } else { &app.services.logs };
            logs::list_after(stored, org, &filter, PAGE_ROWS).await
        };
        let Some(entries) = self.on_main_runtime(read).await else { return };
        let full = i64::try_from(entries.len()).is_ok_and(|count| count == PAGE_ROWS);
        self.read_after = entries.last().map(|entry| entry.row.id).filter(|_| full);
        for entry in entries {
            self.push(&entry.into());
        }
    }

    /// Queues the event of a row, unless it was sent before.
    fn push(&mut self, row: &LogView) {
        if !self.sent_ids.insert(row.id) {
            return;
        }
        self.sent_ids_in_order.push_back(row.id);
        if self.sent_ids_in_order.len() > MAX_REMEMBERED_IDS
            && let Some(oldest) = self.sent_ids_in_order.pop_front()
        {
            self.sent_ids.remove(&oldest);
        }
        if let Ok(data) = serde_json::to_string(row) {
            self.ready.push_back(format!("event: log\nid: {}\ndata: {data}\n\n", row.id).into());
        }
    }
}

/// The id of the last event that a reconnecting client received.
pub(super) struct LastEventId(Option<i64>);

impl<S: Send + Sync> FromRequestParts<S> for LastEventId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(value) = parts.headers.get("last-event-id").filter(|value| !value.is_empty()) else {
            return Ok(Self(None));
        };
        let id = value.to_str().ok().and_then(|text| text.parse().ok());
        id.map(|id| Self(Some(id)))
            .ok_or_else(|| Problem::field("Last-Event-ID", "must be the id of a log row"))
    }
}

impl OperationInput for LastEventId {
    fn describe(operation: &mut Operation<'_>) {
        operation.parameters.push(json!({
            "name": "Last-Event-ID", "in": "header", "required": false,
            "description": "Resume after this log id.", "schema": {"type": "integer", "format": "int64"},
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
                "description": "Each `event: log` contains a row as in the list, with its log id as `id:`. A comment is sent every 15 s",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            }),
        ));
    }
}
