//! Verification of the chain.

use gateway_core::audit::Chain;
use gateway_core::audit::chain::{BadEntry, Flaw, Position};
use gateway_core::ids::OrgId;
use gateway_store::audit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Auditor, HeadView};
use crate::api::audited::Audited;
use crate::api::extract::OptionalBody;
use crate::api::response::Json;
use crate::app::App;
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
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AuditVerification")]
pub struct Verification {
    ok: bool,
    /// Entries that were read.
    checked: i64,
    first_bad: Option<BadEntry>,
    head: Option<HeadView>,
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
    let _running = app.audit.begin_verification(org).ok_or_else(|| {
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
    // Before the head: an entry and its head are committed together, so no entry is behind the head.
    let last = audit::last_seq(db, chain).await?;
    let head = audit::head(db, chain).await?;
    let end = head.as_ref().map_or(0, |head| head.seq);
    let upto = request.to_seq.unwrap_or(end).min(end);
    let mut position = match request.from_seq {
        Some(from) if from > 1 => match audit::position(db, chain, from - 1).await? {
            Some(position) => position,
            None => return Ok(bad(0, BadEntry { seq: from - 1, why: Flaw::Gap }, head)),
        },
        _ => Position::start(&chain),
    };
    let mut checked = 0;
    while position.seq < upto {
        match audit::verify_page(db, chain, &mut position, upto, PAGE).await? {
            Ok(0) => return Ok(bad(checked, BadEntry { seq: position.seq + 1, why: Flaw::Gap }, head)),
            Ok(count) => checked += count,
            Err(flaw) => return Ok(bad(checked, flaw, head)),
        }
    }
    let is_end = head.as_ref().is_none_or(|head| upto < head.seq || position.hash == head.hash);
    if !is_end {
        return Ok(bad(checked, BadEntry { seq: upto, why: Flaw::Link }, head));
    }
    if request.to_seq.is_none() && last > end {
        return Ok(bad(checked, BadEntry { seq: end + 1, why: Flaw::Link }, head));
    }
    Ok(Verification { ok: true, checked, first_bad: None, head: head.map(Into::into) })
}

fn bad(checked: i64, flaw: BadEntry, head: Option<audit::Head>) -> Verification {
    Verification { ok: false, checked, first_bad: Some(flaw), head: head.map(Into::into) }
}
