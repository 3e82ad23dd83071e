//! Verification of the chain.

use gateway_core::audit::Chain;
use gateway_core::audit::chain::{BadEntry, Flaw, Position};
use gateway_core::audit::checkpoint::{Checkpoint, SignedCheckpoint};
use gateway_core::ids::OrgId;
use gateway_store::audit::{self, Kind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Auditor, HeadView};
use crate::api::audited::Audited;
use crate::api::extract::{OptionalBody, optional_object};
use crate::api::response::Json;
use crate::app::App;
use crate::audit::signing::PublicKeys;
use crate::problem::{ApiResult, Problem};

/// Entries that one query reads.
const PAGE: i64 = 1_000;

#[derive(Deserialize, JsonSchema, Default)]
#[schemars(rename = "AuditVerifyRequest")]
pub struct VerifyRequest {
    /// Default: the first entry that is kept.
    #[schemars(range(min = 1))]
    from_seq: Option<i64>,
    /// Default: the last entry.
    #[schemars(range(min = 1))]
    to_seq: Option<i64>,
    /// A checkpoint that was kept elsewhere: the log must still contain it.
    #[serde(default, deserialize_with = "optional_object")]
    checkpoint: Option<SignedCheckpoint>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AuditVerification")]
pub struct Verification {
    ok: bool,
    /// Entries that were read.
    checked: i64,
    first_bad: Option<BadEntry>,
    head: Option<HeadView>,
    /// The latest signed checkpoint that the log was compared with.
    checkpoint: Option<SignedCheckpoint>,
}

pub async fn verify(
    app: Audited,
    auditor: Auditor,
    OptionalBody(request): OptionalBody<VerifyRequest>,
) -> ApiResult<Json<Verification>> {
    for (field, seq) in [("from_seq", request.from_seq), ("to_seq", request.to_seq)] {
        if seq.is_some_and(|seq| seq < 1) {
            return Err(Problem::field(field, "must be a whole number of at least 1"));
        }
    }
    let org = auditor.org();
    let _running = app.shares.verifications.acquire(org, None).await.map_err(|_| {
        Problem::conflict("the audit log of this organization is being verified already; wait until it ends")
    })?;
    let verification = check(&app, org, &request).await?;
    let bad = verification.first_bad;
    let facts = serde_json::json!({"ok": verification.ok, "checked": verification.checked, "first_bad": bad});
    // Behind the response: a damaged log must not keep its verification from answering.
    app.audit.push(app.entry().target(org, &auditor.identity.org.name).created(&facts));
    Ok(Json(verification))
}

async fn check(app: &App, org: OrgId, request: &VerifyRequest) -> ApiResult<Verification> {
    let (db, chain) = (&app.services.db, Chain::Org(org));
    let keys = PublicKeys::load(db).await?;
    check_given(&keys, chain, request.checkpoint.as_ref())?;
    // Before the head: an entry and its head are committed together, so no entry is behind the head.
    let last = audit::last_seq(db, chain).await?;
    let head = audit::head(db, chain).await?;
    let (checked, mut first_bad) = check_entries(app, org, request, (head.as_ref(), last)).await?;
    if first_bad.is_none() {
        first_bad = check_checkpoints(app, chain, &keys, request.checkpoint.as_ref()).await?;
    }
    let checkpoint = audit::latest(db, chain, Kind::Checkpoint).await?;
    let ok = first_bad.is_none();
    Ok(Verification { ok, checked, first_bad, head: head.map(Into::into), checkpoint })
}

/// Checks the links of the requested part; returns how many entries were read and the first bad one.
async fn check_entries(
    app: &App,
    org: OrgId,
    request: &VerifyRequest,
    (head, last): (Option<&audit::Head>, i64),
) -> ApiResult<(i64, Option<BadEntry>)> {
    let chain = Chain::Org(org);
    let (db, queries) = (&app.services.db, &app.shares.queries);
    let end = head.map_or(0, |head| head.seq);
    let upto = request.to_seq.unwrap_or(end).min(end);
    let start = audit::start(db, chain).await?;
    let before = request.from_seq.unwrap_or(1) - 1;
    // Entries before the start were removed by retention.
    let found = if before <= start.seq { Some(start) } else { audit::position(db, chain, before).await? };
    let Some(mut position) = found else {
        return Ok((0, Some(BadEntry { seq: before, why: Flaw::Gap })));
    };
    let mut checked = 0;
    while position.seq < upto {
        let _slot = queries.acquire(org, None).await?;
        match audit::verify_page(db, chain, &mut position, upto, PAGE).await? {
            Ok(0) => return Ok((checked, Some(BadEntry { seq: position.seq + 1, why: Flaw::Gap }))),
            Ok(count) => checked += count,
            Err(flaw) => return Ok((checked, Some(flaw))),
        }
    }
    Ok((checked, check_end(&position, head, last, request.to_seq.is_none())))
}

/// The head belongs to the last entry, and no entry is behind it.
fn check_end(position: &Position, head: Option<&audit::Head>, last: i64, is_whole: bool) -> Option<BadEntry> {
    let head = head?;
    let bad = |seq| Some(BadEntry { seq, why: Flaw::Link });
    if position.seq == head.seq && position.hash != head.hash {
        return bad(position.seq);
    }
    if is_whole && last > head.seq { bad(head.seq + 1) } else { None }
}

fn check_given(keys: &PublicKeys, chain: Chain, given: Option<&SignedCheckpoint>) -> ApiResult<()> {
    let is_ours =
        |given: &SignedCheckpoint| given.checkpoint.org_id == chain.to_string() && keys.verify(given);
    if given.is_none_or(is_ours) {
        return Ok(());
    }
    Err(Problem::field("checkpoint", "is not a checkpoint of this organization, or its signature is wrong"))
}

/// Compares the log with its signed checkpoints, and with one that the caller kept. The latter also finds that newer
/// entries were cut off together with their checkpoints, for example by restoring a backup.
async fn check_checkpoints(
    app: &App,
    chain: Chain,
    keys: &PublicKeys,
    given: Option<&SignedCheckpoint>,
) -> ApiResult<Option<BadEntry>> {
    let db = &app.services.db;
    let flaw = |seq| Some(BadEntry { seq, why: Flaw::Checkpoint });
    if let Some(anchor) = audit::latest(db, chain, Kind::Anchor).await?
        && !keys.verify(&anchor)
    {
        return Ok(flaw(anchor.checkpoint.seq));
    }
    let start = audit::start(db, chain).await?;
    if let Some(SignedCheckpoint { checkpoint: Checkpoint { seq, hash, .. }, .. }) = given
        && *seq >= start.seq
    {
        let found =
            if *seq == start.seq { Some(start.clone()) } else { audit::position(db, chain, *seq).await? };
        if found.is_none_or(|found| found.hash != *hash) {
            return Ok(flaw(*seq));
        }
    }
    if let Some(seq) = audit::contradicted(db, chain, start.seq).await? {
        return Ok(flaw(seq));
    }
    let mut after = start.seq;
    loop {
        let page = audit::checkpoints_after(db, chain, after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(None) };
        after = last.checkpoint.seq;
        if let Some(forged) = page.iter().find(|signed| !keys.verify(signed)) {
            return Ok(flaw(forged.checkpoint.seq));
        }
    }
}
