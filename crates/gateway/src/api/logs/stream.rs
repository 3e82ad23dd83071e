//! The live stream. Rows come from this node as they are written, and from the store where those are not enough: for
//! what a resuming client has missed, for a client that fell behind, and for the rows of other nodes.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gateway_core::ids::OrgId;
use gateway_core::log_view::LogView;
use gateway_core::logs::{LogRow, first_log_id};
use gateway_core::time::{SECOND, Timestamp};
use gateway_store::StoreError;
use gateway_store::db::Dialect;
use gateway_store::logs::{self, LogFilter};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::LogParams;
use crate::api::caller::{AppState, Caller, CredentialHeaders, Viewer};
use crate::api::extract::PagedQuery;
use crate::api::openapi::{Operation, OperationInput, OperationOutput};
use crate::app::App;
use crate::auth;
use crate::problem::{ApiResult, Problem};

/// A comment keeps the connection from looking dead.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// How often the caller's credential is looked at again.
const CHECK: Duration = Duration::from_secs(1);
/// How often the store is asked for the rows of other nodes.
const OTHER_NODES: Duration = Duration::from_secs(2);
/// Rows get their id when they begin and come when they end; this far back is looked for late ones.
const LATE: i64 = 60 * SECOND;
const PAGE: i64 = 200;
/// How many sent rows are remembered, so that none is sent twice.
const REMEMBERED: usize = 8_192;

pub(super) async fn follow(
    State(app): AppState,
    caller: Caller<Viewer>,
    credentials: CredentialHeaders,
    LastEventId(last): LastEventId,
    PagedQuery { page: _, filter: params }: PagedQuery<LogParams>,
) -> ApiResult<EventStream> {
    let mut filter = params.filter()?;
    let resume = last.or(filter.after_id.take());
    let follower = Follower::new(&app, caller.org.id, credentials, filter, resume);
    let stream = futures_util::stream::unfold(follower, |mut follower| async move {
        follower.next().await.map(|bytes| (Ok::<_, Infallible>(bytes), follower))
    });
    Ok(EventStream(Body::from_stream(stream)))
}

struct Follower {
    app: Arc<App>,
    org: OrgId,
    credentials: CredentialHeaders,
    next_check: Instant,
    filter: LogFilter,
    tail: Receiver<Arc<LogRow>>,
    /// Events on their way to the client.
    ready: VecDeque<Bytes>,
    sent: HashSet<i64>,
    sent_in_order: VecDeque<i64>,
    /// The client has seen everything up to here already.
    seen: i64,
    /// The store is to be read behind this id.
    behind: Option<i64>,
    looked: Timestamp,
    next_look: Instant,
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
            // Subscribed before the store is read, so that nothing falls between the two.
            tail: app.proxy.tail.subscribe(),
            app: Arc::clone(app),
            org,
            credentials,
            next_check: Instant::now() + CHECK,
            filter,
            // Headers reach a client only with the first bytes of the body.
            ready: VecDeque::from([Bytes::from_static(b": following\n\n")]),
            sent: HashSet::new(),
            sent_in_order: VecDeque::new(),
            seen: resume.unwrap_or_else(|| first_log_id(now)),
            behind: resume,
            looked: now,
            next_look: Instant::now() + OTHER_NODES,
        }
    }

    /// The next bytes for the client; None when the service stops.
    async fn next(&mut self) -> Option<Bytes> {
        let sign_of_life = Instant::now() + SIGN_OF_LIFE;
        loop {
            if self.app.services.tasks.is_stopping() || !self.may_go_on().await {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if let Some(behind) = self.behind {
                self.read_store(behind).await;
                continue;
            }
            let look = self.app.services.logs.dialect() == Dialect::Postgres;
            tokio::select! {
                biased;
                () = self.app.services.tasks.stopping() => return None,
                row = self.tail.recv() => match row {
                    Ok(row) => self.take_live(&row),
                    Err(RecvError::Lagged(_)) => self.look_back(),
                    Err(RecvError::Closed) => return None,
                },
                () = tokio::time::sleep_until(self.next_check) => {}
                () = tokio::time::sleep_until(self.next_look), if look => self.look_back(),
                () = tokio::time::sleep_until(sign_of_life) => return Some(Bytes::from_static(b": \n\n")),
            }
        }
    }

    /// A key that is revoked, a member who is removed or a token that ends takes its streams with it.
    async fn may_go_on(&mut self) -> bool {
        if Instant::now() < self.next_check {
            return true;
        }
        self.next_check = Instant::now() + CHECK;
        auth::still_good(&self.app, &self.credentials.0).await
    }

    fn take_live(&mut self, row: &LogRow) {
        if row.org_id == self.org && self.filter.matches(row) {
            self.send(&LogView::new(row, logs::preview(&row.request)));
        }
    }

    /// Has the store read again from a little before the last time.
    fn look_back(&mut self) {
        self.behind = Some(first_log_id(self.looked.plus(-LATE)).max(self.seen));
        self.looked = self.app.services.clock.now();
        self.next_look = Instant::now() + OTHER_NODES;
    }

    async fn read_store(&mut self, behind: i64) {
        let filter = LogFilter { after_id: Some(behind), ..self.filter.clone() };
        // The body of a response lives on a worker, and only the main runtime talks to the database.
        let (app, org) = (Arc::clone(&self.app), self.org);
        let read = self
            .app
            .services
            .tasks
            .runtime
            .spawn(async move { logs::list_after(&app.services.logs, org, &filter, PAGE).await });
        match read.await.unwrap_or_else(|error| Err(StoreError::Other(error.to_string()))) {
            Ok(entries) => {
                let full = i64::try_from(entries.len()).is_ok_and(|found| found == PAGE);
                self.behind = entries.last().map(|entry| entry.row.id).filter(|_| full);
                for entry in entries {
                    self.send(&entry.into());
                }
            }
            Err(error) => {
                tracing::debug!(%error, "a log stream waits for the store");
                let _ =
                    tokio::time::timeout(Duration::from_secs(1), self.app.services.tasks.stopping()).await;
            }
        }
    }

    fn send(&mut self, row: &LogView) {
        if !self.sent.insert(row.id) {
            return;
        }
        self.sent_in_order.push_back(row.id);
        if self.sent_in_order.len() > REMEMBERED
            && let Some(oldest) = self.sent_in_order.pop_front()
        {
            self.sent.remove(&oldest);
        }
        if let Ok(data) = serde_json::to_string(row) {
            self.ready.push_back(format!("event: log\nid: {}\ndata: {data}\n\n", row.id).into());
        }
    }
}

/// What a client that was cut off has seen last.
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
            "description": "Resume behind this log id.", "schema": {"type": "integer", "format": "int64"},
        }));
    }
}

pub(super) struct EventStream(Body);

impl IntoResponse for EventStream {
    fn into_response(self) -> Response {
        let mut response = Response::new(self.0);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, http::HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
        headers.insert("x-accel-buffering", http::HeaderValue::from_static("no"));
        response
    }
}

impl OperationOutput for EventStream {
    fn describe(operation: &mut Operation<'_>) {
        operation.responses.push((
            200,
            json!({
                "description": "`event: log` carries a row as the list shows it, `id:` its log id; a comment every 15 s",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            }),
        ));
    }
}
