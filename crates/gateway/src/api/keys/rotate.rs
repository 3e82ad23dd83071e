//! Rotation: a successor of a key, which has everything of it, while the old one stays valid for some hours.

use gateway_core::events::Event;
use gateway_core::ids::KeyId;
use gateway_core::quotas::Quota;
use gateway_core::time::HOUR;
use gateway_store::{budgets, events, keys, limits, orgs};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::audited::Audited;
use super::super::caller::KeyManager;
use super::super::extract::{OptionalBody, PathParam};
use super::super::response::Created;
use super::self_service::Bounds;
use super::{KeyBrief, check_ended, find_managed, generate};
use crate::cluster::invalidation::{self, Invalidation};
use crate::problem::{ApiResult, Problem};
use crate::quotas;

const DEFAULT_OVERLAP_HOURS: i64 = 24;
const MAX_OVERLAP_HOURS: i64 = 720;

#[derive(Deserialize, JsonSchema, Default)]
pub(super) struct RotateRequest {
    /// Hours that the old key stays valid, 0 to 720. Default: 24.
    #[schemars(range(min = 0, max = 720))]
    overlap_hours: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Rotated {
    key: KeyBrief,
    raw_key: String,
    overlap_hours: i64,
    message: String,
}

pub(super) async fn rotate(
    app: Audited,
    manager: KeyManager,
    PathParam(id): PathParam<KeyId>,
    OptionalBody(request): OptionalBody<RotateRequest>,
) -> ApiResult<Created<Rotated>> {
    let overlap_hours = request.overlap_hours.unwrap_or(DEFAULT_OVERLAP_HOURS);
    if !(0..=MAX_OVERLAP_HOURS).contains(&overlap_hours) {
        return Err(Problem::field("overlap_hours", format!("must be between 0 and {MAX_OVERLAP_HOURS}")));
    }
    let org = manager.identity.org.id;
    let mut tx = app.services.db.begin().await?;
    // Without an overlap the number of valid keys stays the same.
    if overlap_hours > 0 {
        quotas::check(&app.services, &mut tx, &manager.identity.org, Quota::Keys).await?;
        if let Some(bounds) = Bounds::of(&manager.identity)? {
            bounds.check_overlap(&mut tx, &manager.identity, app.services.clock.now()).await?;
        }
    }
    // Also without an overlap: the old key is kept.
    orgs::lock_for_update(&mut tx, org).await?;
    check_ended(&app, &mut tx, &manager.identity.org).await?;
    let (mut old, hash) = find_managed(&mut tx, &manager, id).await?;
    // Read after the row is locked: a concurrent rotation may have expired the key while this one waited.
    let now = app.services.clock.now();
    if !old.is_valid(now) {
        return Err(Problem::conflict("a revoked or expired key cannot be rotated; create a new one"));
    }
    let mut new = generate(&app, org, old.name.clone(), old.app_id, old.created_by.clone())?;
    (new.key.scopes, new.key.role) = (old.scopes.clone(), old.role.min(manager.identity.role));
    new.key.class.clone_from(&old.class);
    (new.key.wait_ms, new.key.max_priority) = (old.wait_ms, old.max_priority);
    let end = now.plus(overlap_hours * HOUR);
    old.expires_at = Some(old.expires_at.map_or(end, |earlier| earlier.min(end)));
    keys::update(&mut tx, &old).await?;
    keys::insert(&mut tx, &new.key, new.hash).await?;
    let has_budget = budgets::add_rotated_key(&mut tx, old.id, new.key.id).await?;
    let has_limit = limits::add_rotated_key(&mut tx, old.id, new.key.id).await?;
    let successor = json!({"new_key_id": new.key.id, "overlap_hours": overlap_hours});
    tx.record(app.entry().named(&old.name).created(&successor));
    let event = Event::KeyRotate { key_id: old.id, new_key_id: new.key.id, overlap_hours };
    events::record(&mut tx, org, app.services.ids.new_id(), &event, now).await?;
    let mut pending = Vec::new();
    for changed in [hash, new.hash] {
        pending.push(invalidation::record(&mut tx, Invalidation::Key(changed)).await?);
    }
    if has_budget || has_limit {
        pending.push(invalidation::record(&mut tx, Invalidation::Org(org)).await?);
    }
    invalidation::commit(tx, pending, &app.cluster).await?;
    Ok(Created(Rotated {
        key: (&new.key).into(),
        raw_key: new.raw,
        overlap_hours,
        message: format!("store the new key now; the old one stays valid for {overlap_hours} hours"),
    }))
}
