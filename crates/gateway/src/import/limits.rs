//! Limits of an import. Those of keys are made when the keys are there.

use std::collections::HashMap;

use gateway_core::ids::KeyId;
use gateway_core::import::PlannedLimit;
use gateway_core::limits::{MAX_LIMITS, Scope};
use gateway_store::Tx;
use gateway_store::limits::{self as store, LimitOwner, StoredLimit};

use super::{Changes, Existing, Importer, Kind};
use crate::problem::{ApiResult, Problem};

impl Importer<'_> {
    /// `keys` has the ids of the planned keys by their places.
    pub(super) async fn apply_limits(
        &self,
        tx: &mut Tx,
        limits: &[PlannedLimit],
        keys: &HashMap<usize, KeyId>,
        changes: &mut Changes,
    ) -> ApiResult<()> {
        if limits.is_empty() {
            return Ok(());
        }
        let mut stored = store::by_name(tx, self.org).await?;
        let mut unwritten = 0;
        for planned in limits {
            let mut definition = planned.definition.clone();
            let mut keys: Vec<KeyId> =
                planned.keys.iter().filter_map(|place| keys.get(place)).copied().collect();
            keys.sort_unstable();
            let mut owner = LimitOwner::default();
            if definition.scope == Scope::Key {
                // None of its keys was imported.
                let Some(first) = keys.first() else { continue };
                owner.key = Some(*first);
                definition.scope_id = Some(first.to_string());
            }
            let name = definition.name.clone();
            let definition = serde_json::to_string(&definition).map_err(Problem::internal)?;
            let found = match stored.remove(&name) {
                Some(found) if self.dry_run => store::find_in_tx(tx, self.org, found.id).await?,
                Some(found) => store::find_for_update(tx, self.org, found.id).await?,
                None => None,
            };
            let existing = match &found {
                None => Existing::Nothing,
                // Keys that replaced others may have been added.
                Some(found)
                    if found.definition == definition && keys.iter().all(|key| found.keys.contains(key)) =>
                {
                    Existing::Same
                }
                Some(_) => Existing::Other,
            };
            if !changes.decide(Kind::Limit, &name, &existing, self.on_conflict) {
                continue;
            }
            if self.dry_run {
                unwritten += i64::from(found.is_none());
                continue;
            }
            let (is_new, id, created_at) = match found {
                None => (true, (self.new_id)().into(), self.now),
                Some(found) => (false, found.id, found.created_at),
            };
            let limit = StoredLimit { id, name, definition, keys, created_at, updated_at: self.now };
            if is_new {
                store::insert(tx, self.org, &limit, owner).await?;
            } else {
                store::update(tx, self.org, &limit, owner).await?;
                store::set_keys(tx, &limit).await?;
            }
        }
        let count = store::count(tx, self.org).await? + unwritten;
        if usize::try_from(count).unwrap_or(usize::MAX) > MAX_LIMITS {
            return Err(Problem::conflict(format!(
                "the organization would have more than the maximum of {MAX_LIMITS} limits"
            )));
        }
        Ok(())
    }
}
