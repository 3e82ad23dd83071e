//! Imports from other gateways: a plan with findings first, for which nobody waits, then everything in one transaction.

use std::time::Duration;

use gateway_core::import::{
    self as sources, Finding, ImportError, MAX_PLANNED, MAX_SOURCE_BYTES, Plan, Source,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::audited::Audited;
use super::caller::{Admin, InOrg};
use super::extract::LimitedBody;
use super::openapi::Area;
use super::response::Json;
use crate::cluster::invalidation::{self, Invalidation};
use crate::import::{Changes, Importer, OnConflict};
use crate::problem::{ApiResult, Problem};

/// The source is a text in JSON, where quotes and line breaks are escaped.
const MAX_BODY_BYTES: usize = 2 * MAX_SOURCE_BYTES;
const READ_TIMEOUT: Duration = Duration::from_secs(30);

pub fn area() -> Area {
    Area::new("import", "Imports of the configuration and the keys of other gateways.").post(
        "/orgs/{orgId}/import",
        import,
        "Plan an import and, with apply, make it: every field of the source is named in a finding",
    )
}

#[derive(Deserialize, JsonSchema)]
struct ImportRequest {
    source: Source,
    /// The text of the file.
    data: String,
    /// False, the default: nothing is written.
    #[serde(default)]
    apply: bool,
    /// What to do about names that exist with other content. Default: `fail`, which answers 409.
    #[serde(default)]
    on_conflict: OnConflict,
}

#[derive(Serialize, JsonSchema)]
struct ImportResult {
    /// Without secrets.
    plan: Plan,
    findings: Vec<Finding>,
    /// What the import changed, or would change.
    changes: Changes,
    applied: bool,
}

async fn import(
    app: Audited,
    caller: InOrg<Admin>,
    LimitedBody(request): LimitedBody<MAX_BODY_BYTES, ImportRequest>,
) -> ApiResult<Json<ImportResult>> {
    let ImportRequest { source, data, apply, on_conflict } = request;
    let org = caller.org.id;
    let (bytes, sha256) = (data.len(), hex::encode(Sha256::digest(data.as_bytes())));
    // The environment of the server is not a tenant's to read.
    let read = move || sources::plan(source, &data, &|_| None);
    let read = app.services.compute.run_for_body(org, bytes, READ_TIMEOUT, read).await?;
    let mut planned = read.map_err(|error| match error {
        ImportError::TooLong => Problem::too_large(MAX_SOURCE_BYTES),
        ImportError::Malformed(_) => Problem::field("data", error),
    })?;
    let count = planned.plan.count();
    if count > MAX_PLANNED {
        let why = format!(
            "has {count} providers, models, keys, budgets and limits; an import may have {MAX_PLANNED}: divide the source, and \
             import its parts one after the other, or ask the operator to run gateway import"
        );
        return Err(Problem::field("data", why));
    }
    let importer = Importer {
        vault: &app.services.vault,
        quotas: &app.services.config.quotas,
        new_id: &|| app.services.ids.new_id(),
        now: app.services.clock.now(),
        org,
        plan: caller.org.plan,
        actor: caller.actor(),
        source,
        on_conflict,
        dry_run: !apply,
    };
    let mut tx = importer.begin(&app.services.db).await?;
    let applied = importer.apply(&mut tx, &planned).await?;
    planned.findings.extend(applied.findings);
    let changes = applied.changes;
    if apply {
        if let Some(problem) = changes.conflict() {
            return Err(problem);
        }
        if changes.created.len() + changes.replaced.len() > 0 {
            let summary = json!({"source": source, "sha256": sha256, "created": changes.created, "replaced": changes.replaced});
            tx.record(app.entry().named(&caller.org.name).created(&summary));
            let pending = [
                invalidation::record(&mut tx, Invalidation::Org(org)).await?,
                invalidation::record(&mut tx, Invalidation::OrgKeys(org)).await?,
            ];
            invalidation::commit(tx, pending, &app.cluster).await?;
        }
    }
    Ok(Json(ImportResult { plan: planned.plan, findings: planned.findings, changes, applied: apply }))
}
