//! Applies the plan of an import in a transaction of its caller. What is there already with the same content stays as
//! it is, so that an import can be repeated. A dry run makes the same decisions and checks in a transaction that only
//! reads: it adds what it would have written to what it finds.

mod keys;
mod limits;
mod providers;
mod user_budgets;

use std::collections::HashSet;

use gateway_core::access::Plan as AccountPlan;
use gateway_core::ids::OrgId;
use gateway_core::import::{Finding, Import, Plan, PlannedModel, PlannedSettings, Source, Status};
use gateway_core::llm::providers::builtin;
use gateway_core::models::MAX_BYTES;
use gateway_core::quotas::{Quota, Quotas};
use gateway_core::time::Timestamp;
use gateway_store::models::{self as models_store, StoredModel};
use gateway_store::{Db, StoreError, Tx, orgs, providers as providers_store, quotas as quotas_store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::problem::{ApiResult, Problem};
use crate::quotas::{check_version, exceeded};
use crate::vault::Vault;

/// Names that a message about conflicts shows.
const MAX_SHOWN: usize = 10;

/// What to do about a name that exists with other content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ImportConflict")]
pub enum OnConflict {
    /// Refuse the import.
    #[default]
    Fail,
    /// Leave what is there.
    Skip,
    /// Replace it.
    Replace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ImportedKind")]
pub enum Kind {
    Provider,
    Model,
    Key,
    Limit,
    Budget,
    Setting,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ImportedName")]
pub struct Named {
    pub kind: Kind,
    pub name: String,
}

/// What an import changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ImportChanges")]
pub struct Changes {
    pub created: Vec<Named>,
    pub replaced: Vec<Named>,
    /// There already, with the same content.
    pub unchanged: Vec<Named>,
    /// There already with other content, which stays.
    pub skipped: Vec<Named>,
    /// There already with other content, so that the import is refused.
    pub conflicts: Vec<Named>,
}

/// What exists under a planned name.
enum Existing {
    Nothing,
    Same,
    Other,
}

impl Changes {
    /// Whether the planned content must be written.
    fn decide(&mut self, kind: Kind, name: &str, existing: &Existing, on_conflict: OnConflict) -> bool {
        let (list, is_written) = match (existing, on_conflict) {
            (Existing::Nothing, _) => (&mut self.created, true),
            (Existing::Same, _) => (&mut self.unchanged, false),
            (Existing::Other, OnConflict::Replace) => (&mut self.replaced, true),
            (Existing::Other, OnConflict::Skip) => (&mut self.skipped, false),
            (Existing::Other, OnConflict::Fail) => (&mut self.conflicts, false),
        };
        list.push(Named { kind, name: name.to_owned() });
        is_written
    }

    /// The error of an import that is refused.
    pub fn conflict(&self) -> Option<Problem> {
        if self.conflicts.is_empty() {
            return None;
        }
        let shown = self.conflicts.iter().take(MAX_SHOWN).map(|named| {
            let kind = match named.kind {
                Kind::Provider => "provider",
                Kind::Model => "model",
                Kind::Key => "key",
                Kind::Limit => "limit",
                Kind::Budget => "budget",
                Kind::Setting => "setting",
            };
            format!("{kind} {}", named.name)
        });
        let shown = shown.collect::<Vec<_>>().join(", ");
        let more = self.conflicts.len().saturating_sub(MAX_SHOWN);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        Some(Problem::conflict(format!(
            "these exist with other content: {shown}{more}; set on_conflict to skip or replace"
        )))
    }
}

/// The organization that an import goes to, and what writing takes.
pub struct Importer<'a> {
    pub vault: &'a Vault,
    pub quotas: &'a Quotas,
    pub new_id: &'a (dyn Fn() -> Uuid + Sync),
    pub now: Timestamp,
    pub org: OrgId,
    pub plan: AccountPlan,
    /// Who imports.
    pub actor: String,
    pub source: Source,
    pub on_conflict: OnConflict,
    /// Only plan: nothing is written.
    pub dry_run: bool,
}

/// What was written, with findings that only the stored data show.
#[derive(Default)]
pub struct Applied {
    pub changes: Changes,
    pub findings: Vec<Finding>,
    unwritten: Unwritten,
}

/// What a dry run would have added to what is counted.
#[derive(Default)]
struct Unwritten {
    providers: u64,
    models: u64,
    /// Valid ones.
    keys: u64,
    model_bytes: i64,
}

impl Unwritten {
    /// A model with this definition, or another version of a model.
    fn add_model(&mut self, found: Option<&StoredModel>, definition: &str) -> ApiResult<()> {
        let bytes = |definition: &str| i64::try_from(definition.len()).unwrap_or(i64::MAX);
        self.model_bytes += bytes(definition);
        match found {
            None => self.models += 1,
            Some(found) => {
                check_version("model", found.version + 1)?;
                self.model_bytes -= bytes(&found.definition);
            }
        }
        Ok(())
    }
}

impl Importer<'_> {
    /// The transaction for `apply`. That of a dry run does not wait for others, and others do not wait for it.
    pub async fn begin(&self, db: &Db) -> Result<Tx, StoreError> {
        if self.dry_run { db.begin_read().await } else { db.begin().await }
    }

    /// Writes the plan, unless this is a dry run. The caller commits the transaction.
    pub async fn apply(&self, tx: &mut Tx, import: &Import) -> ApiResult<Applied> {
        let mut applied = Applied::default();
        if !self.dry_run {
            orgs::lock_for_update(tx, self.org).await?;
        }
        self.apply_providers(tx, &import.plan.providers, &mut applied).await?;
        self.apply_models(tx, &import.plan, &mut applied).await?;
        let keys = self.apply_keys(tx, &import.plan, &mut applied).await?;
        self.apply_limits(tx, &import.plan.limits, &keys, &mut applied.changes).await?;
        self.apply_user_budgets(tx, &import.plan.user_budgets, &mut applied.changes).await?;
        self.apply_settings(tx, &import.plan.settings, &mut applied.changes).await?;
        for quota in [Quota::Providers, Quota::Models, Quota::Keys] {
            self.check_quota(tx, quota, &applied.unwritten).await?;
        }
        if !import.plan.models.is_empty() {
            crate::models::check_total_with(tx, self.org, applied.unwritten.model_bytes).await?;
        }
        Ok(applied)
    }

    async fn apply_settings(
        &self,
        tx: &mut Tx,
        planned: &PlannedSettings,
        changes: &mut Changes,
    ) -> ApiResult<()> {
        let Some(log_bodies) = planned.log_bodies else { return Ok(()) };
        let mut settings = orgs::find_in_tx(tx, self.org).await?.ok_or_else(Problem::not_found)?.settings;
        let is_same = settings.log_bodies == log_bodies;
        // Every organization has the setting, so that another value is no conflict.
        let existing = if is_same { Existing::Same } else { Existing::Nothing };
        let is_written = changes.decide(Kind::Setting, "log_bodies", &existing, self.on_conflict);
        if is_written && !self.dry_run {
            settings.log_bodies = log_bodies;
            orgs::update(tx, self.org, None, None, Some(&settings)).await?;
        }
        Ok(())
    }

    /// The organization is locked, so that what was added is counted with everything else.
    async fn check_quota(&self, tx: &mut Tx, quota: Quota, unwritten: &Unwritten) -> ApiResult<()> {
        let Some(limit) = self.quotas.limit(self.plan, quota) else { return Ok(()) };
        let more = match quota {
            Quota::Providers => unwritten.providers,
            Quota::Models => unwritten.models,
            Quota::Keys => unwritten.keys,
            _ => 0,
        };
        let used = quotas_store::count(tx, self.org, quota, self.now).await?.saturating_add(more);
        if used <= limit { Ok(()) } else { Err(exceeded(self.plan, quota, limit)) }
    }

    async fn apply_models(&self, tx: &mut Tx, plan: &Plan, applied: &mut Applied) -> ApiResult<()> {
        if plan.models.is_empty() {
            return Ok(());
        }
        let mut providers = providers_store::names(tx, self.org).await?;
        providers.extend(plan.providers.iter().map(|planned| planned.name.clone()));
        let knows = |name: &str| builtin(name).is_some() || providers.contains(name);
        let mut stored = models_store::by_name(tx, self.org).await?;
        let mut names: HashSet<String> = stored.keys().cloned().collect();
        for PlannedModel { name, definition } in &plan.models {
            let left_out = |why: String| Finding {
                path: format!("models.{name}"),
                status: Status::Manual,
                message: format!("the model is left out: {why}"),
            };
            let checked = match definition.clone().checked(name, &knows) {
                Ok(checked) => serde_json::to_string(&checked).map_err(Problem::internal)?,
                Err(error) => {
                    applied.findings.push(left_out(error.to_string()));
                    continue;
                }
            };
            if checked.len() > MAX_BYTES {
                applied.findings.push(left_out(format!("it is longer than {MAX_BYTES} bytes")));
                continue;
            }
            let found = stored.remove(name);
            let existing = match &found {
                None => Existing::Nothing,
                Some(found) if found.definition == checked => Existing::Same,
                Some(_) => Existing::Other,
            };
            if !applied.changes.decide(Kind::Model, name, &existing, self.on_conflict) {
                continue;
            }
            if found.is_none() && !names.insert(name.clone()) {
                return Err(StoreError::Duplicate.into());
            }
            if self.dry_run {
                applied.unwritten.add_model(found.as_ref(), &checked)?;
            } else {
                self.write_model(tx, found, (name, checked)).await?;
            }
        }
        Ok(())
    }

    async fn write_model(
        &self,
        tx: &mut Tx,
        found: Option<StoredModel>,
        (name, definition): (&str, String),
    ) -> ApiResult<()> {
        let created_by = Some(self.actor.clone());
        let Some(found) = found else {
            let id = (self.new_id)().into();
            let (created_at, updated_at) = (self.now, self.now);
            let name = name.to_owned();
            let model = StoredModel { id, name, version: 1, definition, created_by, created_at, updated_at };
            return Ok(models_store::insert(tx, self.org, &model).await?);
        };
        let before =
            models_store::next_version(tx, self.org, found.id).await?.ok_or_else(Problem::not_found)?;
        let version = before.version + 1;
        check_version("model", version)?;
        let model = StoredModel { version, definition, created_by, updated_at: self.now, ..before };
        Ok(models_store::insert_version(tx, &model).await?)
    }
}
