//! Keys of an import: each becomes a key of the organization, and its hash one that authenticates below /compat.

use std::collections::HashMap;

use gateway_core::access::Role;
use gateway_core::accounts::KeyHash;
use gateway_core::budget::{Budget, MAX_BUDGETS, Scope, Unpriced, limit_units};
use gateway_core::events::{Event, KeyEventData};
use gateway_core::ids::KeyId;
use gateway_core::import::{Finding, Plan, PlannedBudget, PlannedKey, Status};
use gateway_core::scopes::Scopes;
use gateway_store::keys::{self as store, Key};
use gateway_store::{Tx, budgets, events, foreign_keys};

use super::{Applied, Existing, Importer, Kind};
use crate::problem::{ApiResult, Problem};

impl Importer<'_> {
    /// Returns the ids of the planned keys by their places.
    pub(super) async fn apply_keys(
        &self,
        tx: &mut Tx,
        plan: &Plan,
        applied: &mut Applied,
    ) -> ApiResult<HashMap<usize, KeyId>> {
        let hashes: Vec<KeyHash> = plan.keys.iter().map(|key| key.hash).collect();
        let owners = foreign_keys::owners(tx, &hashes).await?;
        let mut created: HashMap<usize, KeyId> = HashMap::new();
        let mut ids: HashMap<usize, KeyId> = HashMap::new();
        for (index, planned) in plan.keys.iter().enumerate() {
            let found = match owners.get(&planned.hash) {
                None => None,
                Some((org, id)) if *org == self.org => self.find_key(tx, *id).await?,
                Some(_) => {
                    applied.findings.push(Finding {
                        path: format!("keys.{}", planned.name),
                        status: Status::Manual,
                        message: "another organization has imported this key, so it is left out".to_owned(),
                    });
                    continue;
                }
            };
            ids.extend(found.as_ref().map(|key| (index, key.id)));
            let scopes = Scopes::parse(&planned.scopes).map_err(|why| Problem::field("scopes", why))?;
            let existing = match &found {
                None => Existing::Nothing,
                Some(key) if key.name == planned.name && key.scopes == scopes => Existing::Same,
                Some(_) => Existing::Other,
            };
            if !applied.changes.decide(Kind::Key, &planned.name, &existing, self.on_conflict) {
                continue;
            }
            match found {
                Some(_) if self.dry_run => {}
                Some(mut key) => {
                    (key.name, key.scopes) = (planned.name.clone(), scopes);
                    store::update(tx, &key).await?;
                }
                None if self.dry_run => {
                    let is_valid = !planned.revoked && planned.expires_at.is_none_or(|end| self.now < end);
                    applied.unwritten.keys += u64::from(is_valid);
                    created.insert(index, (self.new_id)().into());
                }
                None => {
                    created.insert(index, self.create_key(tx, planned, scopes).await?);
                }
            }
        }
        self.create_budgets(tx, &plan.budgets, &created).await?;
        ids.extend(created);
        Ok(ids)
    }

    async fn find_key(&self, tx: &mut Tx, id: KeyId) -> ApiResult<Option<Key>> {
        if self.dry_run {
            return Ok(store::find_in_tx(tx, self.org, id).await?);
        }
        Ok(store::find_for_update(tx, self.org, id).await?.map(|(key, _)| key))
    }

    async fn create_key(&self, tx: &mut Tx, planned: &PlannedKey, scopes: Scopes) -> ApiResult<KeyId> {
        // Nobody knows a key with this hash: the key is used by the hash that was imported.
        let mut unknown = [0; 32];
        getrandom::fill(&mut unknown).map_err(Problem::internal)?;
        let id: KeyId = (self.new_id)().into();
        let key = Key {
            id,
            org_id: self.org,
            app_id: None,
            name: planned.name.clone(),
            key_prefix: planned.key_prefix.clone(),
            scopes,
            role: Role::Member,
            // The keys stay if the member who imported them leaves.
            created_by: None,
            created_at: self.now,
            expires_at: planned.expires_at,
            revoked_at: planned.revoked.then_some(self.now),
            class: None,
            wait_ms: None,
            max_priority: None,
            last_used_at: None,
        };
        store::insert(tx, &key, KeyHash(unknown)).await?;
        foreign_keys::insert(tx, planned.hash, id, self.source.as_str(), self.now).await?;
        let event = Event::KeyCreate(KeyEventData {
            key_id: id,
            name: key.name,
            key_prefix: key.key_prefix,
            app_id: None,
            actor: self.actor.clone(),
        });
        events::record(tx, self.org, (self.new_id)().into(), &event, self.now).await?;
        Ok(id)
    }

    /// Budgets of keys that are new. Those of others are changed by hand.
    async fn create_budgets(
        &self,
        tx: &mut Tx,
        planned: &[PlannedBudget],
        created: &HashMap<usize, KeyId>,
    ) -> ApiResult<()> {
        let limit = |usd: Option<f64>| {
            usd.map(limit_units).transpose().map_err(|why| Problem::field("max_budget", why))
        };
        let mut unwritten = 0;
        for budget in planned {
            let Some(key) = created.get(&budget.key) else { continue };
            let budget = Budget {
                id: (self.new_id)().into(),
                scope: Scope::Key(*key),
                keys: vec![*key],
                period: budget.period,
                soft_limit: limit(budget.soft_limit_usd)?,
                hard_limit: limit(budget.hard_limit_usd)?,
                unpriced: Unpriced::Allow,
                opening: limit(budget.opening_at(self.now))?.unwrap_or(0),
                created_at: self.now,
            };
            if self.dry_run {
                unwritten += 1;
            } else {
                budgets::insert(tx, self.org, &budget).await?;
            }
        }
        if budgets::count(tx, self.org).await? + unwritten > MAX_BUDGETS {
            return Err(Problem::conflict(format!(
                "the organization would have more than the maximum of {MAX_BUDGETS} budgets"
            )));
        }
        Ok(())
    }
}
