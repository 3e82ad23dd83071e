//! Sets, moves and removes labels of prompts. A label is promoted to a newer version and rolled back to an older one in
//! the same way: it is moved.

use gateway_core::ids::OrgId;
use gateway_core::prompts::MAX_LABELS;
use gateway_store::prompts::{self as store, PromptLabel, PromptName};
use serde_json::{Value, json};

use super::{Change, Prompts};
use crate::cluster::invalidation::{self, Invalidation};
use crate::problem::{ApiResult, Problem};
use crate::services::Services;

/// Where a label is moved to.
#[derive(Debug, Clone, Copy)]
pub struct LabelMove {
    pub version: i64,
    /// The version that the label must point to before.
    pub expected: Option<i64>,
}

impl Prompts {
    /// Sets or moves a label. Returns `None` if the prompt does not exist. The caller has validated the label's name.
    pub async fn move_label(
        &self,
        Change { author, entry }: Change<'_>,
        name: PromptName<'_>,
        label: &str,
        to: LabelMove,
    ) -> ApiResult<Option<PromptLabel>> {
        let Services { clock, db, .. } = &*self.services;
        let (org, now) = (author.org.id, clock.now());
        let mut tx = db.begin().await?;
        let Some((prompt, latest)) = store::lock(&mut tx, org, name).await? else { return Ok(None) };
        if !(1..=latest).contains(&to.version) {
            let why = format!("the prompt has no version {}; the latest is {latest}", to.version);
            return Err(Problem::field("version", why));
        }
        let before = store::find_label(&mut tx, prompt, label).await?;
        let current = before.as_ref().map(|label| label.version);
        if to.expected.is_some_and(|expected| current != Some(expected)) {
            return Err(unexpected(label, current));
        }
        let moved = match before {
            Some(before) if before.version == to.version => return Ok(Some(before)),
            Some(before) => {
                let moved = PromptLabel {
                    version: to.version,
                    previous_version: current,
                    updated_by: Some(author.actor()),
                    updated_at: now,
                    ..before
                };
                store::update_label(&mut tx, &moved).await?;
                moved
            }
            None => {
                if store::count_labels(&mut tx, prompt).await? >= MAX_LABELS {
                    let why = format!("the prompt already has {MAX_LABELS} labels; remove one first");
                    return Err(Problem::conflict(why));
                }
                let new = PromptLabel {
                    prompt_id: prompt,
                    name: label.to_owned(),
                    version: to.version,
                    previous_version: None,
                    updated_by: Some(author.actor()),
                    created_at: now,
                    updated_at: now,
                };
                store::insert_label(&mut tx, &new).await?;
                new
            }
        };
        let from = current.map_or(Value::Null, |version| json!({"version": version}));
        let entry = entry.named(&full_name(name, label));
        tx.record(entry.changed(&from, &json!({"version": to.version})));
        let pending = invalidation::record(&mut tx, stale(org, name, label)).await?;
        invalidation::commit(tx, [pending], &self.cluster).await?;
        Ok(Some(moved))
    }

    /// Removes a label. Returns false if the prompt does not exist or has no such label.
    pub async fn remove_label(
        &self,
        Change { author, entry }: Change<'_>,
        name: PromptName<'_>,
        label: &str,
    ) -> ApiResult<bool> {
        let org = author.org.id;
        let mut tx = self.services.db.begin().await?;
        let Some((prompt, _)) = store::lock(&mut tx, org, name).await? else { return Ok(false) };
        let Some(before) = store::find_label(&mut tx, prompt, label).await? else { return Ok(false) };
        store::delete_label(&mut tx, prompt, label).await?;
        tx.record(entry.named(&full_name(name, label)).deleted(&json!({"version": before.version})));
        let pending = invalidation::record(&mut tx, stale(org, name, label)).await?;
        invalidation::commit(tx, [pending], &self.cluster).await?;
        Ok(true)
    }
}

fn stale(org: OrgId, name: PromptName<'_>, label: &str) -> Invalidation {
    let (namespace, slug) = (name.namespace.to_owned(), name.slug.to_owned());
    Invalidation::PromptLabel { org, namespace, slug, label: label.to_owned() }
}

fn full_name(name: PromptName<'_>, label: &str) -> String {
    format!("{}/{}@{label}", name.namespace, name.slug)
}

fn unexpected(label: &str, current: Option<i64>) -> Problem {
    let message = match current {
        Some(version) => format!("expected_version: the label {label} points to version {version}"),
        None => format!("expected_version: the prompt has no label {label}"),
    };
    let mut problem = Problem::conflict(message);
    problem.extra.insert("current_version".into(), current.into());
    problem
}
