//! The live stream of audit entries. A stream polls the store once a second; changes are rare.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gateway_core::audit::Chain;
use gateway_core::ids::OrgId;
use gateway_store::StoreError;
use gateway_store::audit::{self, Entries, Filter};
use gateway_store::fair_slots::Slot;
use http::StatusCode;
use http::header::RETRY_AFTER;
use serde_json::json;
use tokio::time::Instant;

use super::{AuditParams, Auditor, EntryView, is_auditor, query};
use crate::api::caller::{AppState, CredentialHeaders};
use crate::api::extract::QueryParams;
use crate::api::logs::LastEventId;
use crate::api::openapi::{Operation, OperationOutput};
use crate::api::ready_events::ReadyEvents;
use crate::api::response::EventStream;
use crate::app::App;
use crate::auth::Denied;

use crate::problem::{ApiResult, Problem};

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of comments that keep the connection alive.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const PAGE: i64 = 200;

pub async fn follow(
    State(app): AppState,
    auditor: Auditor,
    credentials: CredentialHeaders,
    LastEventId(last): LastEventId,
    QueryParams(params): QueryParams<AuditParams>,
) -> ApiResult<AuditEventStream> {
    let mut filter = params.filter();
    let slot = app.shares.audit_streams.acquire(auditor.org(), None).await;
    let slot = slot.map_err(|_| too_many_streams())?;
    let resume = last.or(filter.after_seq.take());
    let after = match resume {
        Some(after) => after,
        None => audit::head(&app.services.db, auditor.chain()).await?.map_or(0, |head| head.seq),
    };
    auditor.record_read(&app, "audit.read");
    let ready = ReadyEvents::new(app.services.memory.account(auditor.org()).open());
    let follower = Follower { app, org: auditor.org(), credentials, filter, after, ready, _slot: slot };
    Ok(AuditEventStream(EventStream::new(futures_util::stream::unfold(
        follower,
        |mut follower| async move { follower.next().await.map(|bytes| (bytes, follower)) },
    ))))
}

pub struct AuditEventStream(EventStream);

impl IntoResponse for AuditEventStream {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

impl OperationOutput for AuditEventStream {
    fn describe(operation: &mut Operation<'_>) {
        operation.responses.push((
            200,
            json!({
                "description": "Each `event: entry` contains an entry as in the list, with its `seq` as `id:`. Without Last-Event-ID or `after_seq` it begins with the next entry. A comment is sent every 15 s. An organization may have 10 streams open on a node; one more gets 429 `too_many_streams`",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            }),
        ));
    }
}

fn too_many_streams() -> Problem {
    let message = "the organization has the maximum of open audit streams; close one, or poll the list";
    let mut problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", message);
    problem.headers.push((RETRY_AFTER, http::HeaderValue::from_static("5")));
    problem
}

struct Follower {
    app: Arc<App>,
    org: OrgId,
    credentials: CredentialHeaders,
    filter: Filter,
    after: i64,
    ready: ReadyEvents,
    _slot: Slot,
}

impl Follower {
    /// The next bytes for the client. `None` when the service stops or the credential becomes invalid.
    async fn next(&mut self) -> Option<Bytes> {
        let keep_alive = Instant::now() + KEEP_ALIVE_INTERVAL;
        loop {
            if let Some(event) = self.ready.pop() {
                return Some(event);
            }
            if self.app.services.tasks.is_stopping() || !self.is_still_authorized().await {
                return None;
            }
            if let Err(error) = self.read().await {
                tracing::debug!(%error, "an audit stream cannot read the store; it retries");
            }
            if self.ready.is_empty() {
                if Instant::now() >= keep_alive {
                    return Some(Bytes::from_static(b": \n\n"));
                }
                let _ = tokio::time::timeout(POLL_INTERVAL, self.app.services.tasks.stopping()).await;
            }
        }
    }

    /// A revoked credential, a lost role or a changed list of auditors ends the stream. While the database is unreachable,
    /// an earlier authentication stays valid.
    async fn is_still_authorized(&self) -> bool {
        match self.app.proxy.access.identify_again(&self.credentials.0).await {
            Ok(identity) => is_auditor(&identity),
            Err(error) => error == Denied::Unavailable,
        }
    }

    /// Reads the next entries.
    async fn read(&mut self) -> Result<(), StoreError> {
        let (app, chain, filter, after) =
            (Arc::clone(&self.app), Chain::Org(self.org), self.filter.clone(), self.after);
        let read = async move {
            let db = &app.services.db;
            let head = audit::head(db, chain).await?.map_or(0, |head| head.seq);
            let page = audit::since(db, chain, &filter, (after, head), PAGE).await?;
            Ok::<_, StoreError>((page, head))
        };
        let (Entries { found, has_more, .. }, head) = query(&self.app, self.org, read).await?;
        // Entries that the filter leaves out need not be read again.
        self.after =
            found.last().filter(|_| has_more).map_or(head.max(self.after), |stored| stored.entry.seq);
        for stored in found {
            let seq = stored.entry.seq;
            if let Ok(data) = serde_json::to_string(&EntryView::from(stored)) {
                self.ready.push(format!("event: entry\nid: {seq}\ndata: {data}\n\n"));
            }
        }
        Ok(())
    }
}
