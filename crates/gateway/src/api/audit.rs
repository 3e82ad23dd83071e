//! Reading the audit log: lists, single entries, the live stream, and verification of the chain.

mod export;
mod stream;
mod verify;

use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use gateway_core::access::Role;
use gateway_core::audit::checkpoint::SignedCheckpoint;
use gateway_core::audit::{Chain, Entry, Outcome, Target};
use gateway_core::ids::{AuditId, OrgId};
use gateway_core::time::Timestamp;
use gateway_store::audit::{self, Filter, Stored};
use http::request::Parts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::audited::AuditedRead;
use super::caller::{AppState, Caller, InOrg, Viewer, require_role};
use super::downloads::query;
use super::extract::{PagedQuery, PathParam, QueryParams};
use super::openapi::{Area, Operation, OperationInput};
use super::page;
use super::response::Json;
use crate::app::App;
use crate::auth::{Identity, Principal};
use crate::problem::{ApiResult, Problem};

pub fn area() -> Area {
    Area::new("audit", "The audit log: who changed what, in a chain of hashes that shows tampering.")
        .get("/orgs/{orgId}/audit", list, "List the entries, newest first")
        .get("/orgs/{orgId}/audit/export", export::export, "Export the entries as a file, oldest first")
        .get("/orgs/{orgId}/audit/checkpoints", checkpoints, "List the signed checkpoints, oldest first")
        .get("/audit/keys", keys, "List the public keys that sign checkpoints, also old ones")
        .get("/orgs/{orgId}/audit/head", head, "Get the number and the hash of the last entry")
        .get("/orgs/{orgId}/audit/stream", stream::follow, "Follow new entries as server-sent events")
        .post("/orgs/{orgId}/audit/verify", verify::verify, "Verify the chain; one verification at a time")
        .get("/orgs/{orgId}/audit/{auditId}", get, "Get an entry")
}

/// Admins, and the members that the setting `auditors` names.
pub(super) struct Auditor {
    pub identity: Identity,
    read: AuditedRead,
}

impl FromRequestParts<Arc<App>> for Auditor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let caller = InOrg::<Viewer>::from_request_parts(parts, app).await?;
        let read = AuditedRead::from_request_parts(parts, app).await?;
        if !is_auditor(&caller) {
            require_role(Role::Admin, &caller)?;
        }
        Ok(Self { identity: caller.clone(), read })
    }
}

/// Whether the caller is an admin or a named auditor.
fn is_auditor(identity: &Identity) -> bool {
    let is_named = match &identity.principal {
        Principal::User { id, .. } => identity.org.settings.auditors.contains(id),
        Principal::Key(_) | Principal::Org => false,
    };
    is_named || identity.role >= Role::Admin
}

impl OperationInput for Auditor {
    fn describe(operation: &mut Operation<'_>) {
        InOrg::<Viewer>::describe(operation);
        operation.role = Some(Role::Admin);
        operation.notes.push("Members that `settings.auditors` names may read it too.");
    }
}

impl Auditor {
    fn org(&self) -> OrgId {
        self.identity.org.id
    }

    fn chain(&self) -> Chain {
        Chain::Org(self.org())
    }

    /// Records that the log was read, if the organization wants it.
    fn record_read(&self, app: &App, action: &str) {
        let target = Target { kind: "audit".into(), id: Some(self.org().to_string()), name: None };
        self.read.record(app, &self.identity, action, target);
    }
}

/// An entry with its hash.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "HashedAuditEntry")]
pub(super) struct EntryView {
    #[serde(flatten)]
    entry: Entry,
    /// Hex SHA-256 of the bytes of `prev_hash` and the canonical JSON (RFC 8785) of the entry without `hash`.
    hash: String,
}

impl From<Stored> for EntryView {
    fn from(Stored { entry, hash }: Stored) -> Self {
        Self { entry, hash }
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct AuditParams {
    /// The id of a user or key.
    actor: Option<String>,
    /// An action such as `key.create`; with a trailing `*`, every action that begins so.
    action: Option<String>,
    target_type: Option<String>,
    target_id: Option<String>,
    outcome: Option<Outcome>,
    from: Option<Timestamp>,
    /// Exclusive.
    to: Option<Timestamp>,
    /// Text that occurs anywhere in the entry, in any case.
    q: Option<String>,
    /// Only entries with a greater number.
    after_seq: Option<i64>,
}

impl AuditParams {
    fn filter(self) -> Filter {
        let Self { actor, action, target_type, target_id, outcome, from, to, q, after_seq } = self;
        let outcome = outcome.map(|outcome| outcome.as_str().to_owned());
        Filter { actor, action, target_type, target_id, outcome, from, to, q, after_seq }
    }
}

#[derive(Serialize, JsonSchema)]
struct EntryList {
    entries: Vec<EntryView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    auditor: Auditor,
    PagedQuery { page, filter: params }: PagedQuery<AuditParams>,
) -> ApiResult<Json<EntryList>> {
    let page = page.numeric_page()?;
    let found = audit::list(&app.services.db, auditor.chain(), &params.filter(), &page).await?;
    if page.before.is_none() {
        auditor.record_read(&app, "audit.read");
    }
    let (entries, next_cursor) = page::into_views(found);
    Ok(Json(EntryList { entries, next_cursor }))
}

async fn get(
    State(app): AppState,
    auditor: Auditor,
    PathParam(id): PathParam<AuditId>,
) -> ApiResult<Json<EntryView>> {
    let found = audit::find(&app.services.db, auditor.chain(), &id.to_string()).await?;
    found.map(|stored| Json(stored.into())).ok_or_else(Problem::not_found)
}

#[derive(Clone, Serialize, JsonSchema)]
#[schemars(rename = "AuditHead")]
pub(super) struct HeadView {
    seq: i64,
    hash: String,
    at: Timestamp,
}

impl From<audit::Head> for HeadView {
    fn from(audit::Head { seq, hash, at }: audit::Head) -> Self {
        Self { seq, hash, at }
    }
}

async fn head(State(app): AppState, auditor: Auditor) -> ApiResult<Json<HeadView>> {
    let head = audit::head(&app.services.db, auditor.chain()).await?;
    head.map(|head| Json(head.into())).ok_or_else(Problem::not_found)
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AuditKey")]
struct KeyView {
    id: String,
    algorithm: &'static str,
    /// Base64 of the 32 bytes.
    public_key: String,
    created_at: Timestamp,
}

#[derive(Serialize, JsonSchema)]
struct AuditKeyList {
    keys: Vec<KeyView>,
}

async fn keys(State(app): AppState, _: Caller<Viewer>) -> ApiResult<Json<AuditKeyList>> {
    let view = |audit::StoredKey { id, public_key, created_at, sealed: _ }| KeyView {
        id,
        algorithm: "Ed25519",
        public_key,
        created_at,
    };
    let keys = audit::keys(&app.services.db).await?;
    Ok(Json(AuditKeyList { keys: keys.into_iter().map(view).collect() }))
}

#[derive(Deserialize, JsonSchema)]
struct CheckpointParams {
    /// Only checkpoints of later entries.
    after_seq: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
struct CheckpointList {
    /// At most 200; go on with the `seq` of the last one as `after_seq`.
    checkpoints: Vec<SignedCheckpoint>,
    /// The last entry that retention removed.
    anchor: Option<SignedCheckpoint>,
}

async fn checkpoints(
    State(app): AppState,
    auditor: Auditor,
    QueryParams(params): QueryParams<CheckpointParams>,
) -> ApiResult<Json<CheckpointList>> {
    let (db, after) = (&app.services.db, params.after_seq.unwrap_or(0));
    let checkpoints = audit::checkpoints_after(db, auditor.chain(), after, page::MAX_LIMIT).await?;
    let anchor = audit::latest(db, auditor.chain(), audit::Kind::Anchor).await?;
    Ok(Json(CheckpointList { checkpoints, anchor }))
}
