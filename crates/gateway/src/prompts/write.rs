//! Creates prompts and new versions of them.

use std::collections::BTreeMap;

use gateway_core::audit::Draft;
use gateway_core::prompts::{MAX_CONTENT, Template, check_name};
use gateway_core::quotas::Quota;
use gateway_store::StoreError;
use gateway_store::prompts::{self as store, NewVersion, Prompt, PromptName};
use http::StatusCode;
use serde_json::{Value, json};

use super::Prompts;
use crate::auth::Identity;
use crate::cluster::invalidation::{self, Invalidation};
use crate::problem::{ApiResult, Problem};
use crate::quotas;
use crate::services::Services;

/// Who changes a prompt, and the audit entry of it.
pub struct Change<'a> {
    pub author: &'a Identity,
    pub entry: Draft,
}

impl Prompts {
    /// Saves a template as the next version of a prompt, or as a new prompt. Validates the name and the content.
    pub async fn save(&self, change: Change<'_>, name: PromptName<'_>, content: String) -> ApiResult<Prompt> {
        check_name(name.namespace).map_err(|why| Problem::field("namespace", why))?;
        check_name(name.slug).map_err(|why| Problem::field("slug", why))?;
        check_content(&content)?;
        let Change { author, entry } = change;
        let next = Change { author, entry: entry.clone() };
        match self.add_version(next, name, content.clone(), None).await? {
            Some(added) => Ok(added),
            None => self.create(Change { author, entry: entry.action("prompt.create") }, name, content).await,
        }
    }

    /// Creates a prompt with its first version. The caller has validated name and content.
    pub async fn create(
        &self,
        Change { author, entry }: Change<'_>,
        name: PromptName<'_>,
        content: String,
    ) -> ApiResult<Prompt> {
        let Services { clock, db, ids, .. } = &*self.services;
        let now = clock.now();
        let prompt = Prompt {
            id: ids.new_id(),
            namespace: name.namespace.into(),
            slug: name.slug.into(),
            version: 1,
            content,
            created_by: Some(author.actor()),
            created_at: now,
            updated_at: now,
            labels: BTreeMap::new(),
        };
        let mut tx = db.begin().await?;
        quotas::check(&self.services, &mut tx, &author.org, Quota::Prompts).await?;
        store::insert(&mut tx, author.org.id, &prompt).await.map_err(|error| match error {
            StoreError::Duplicate => {
                Problem::conflict(format!("the prompt {}/{} already exists", name.namespace, name.slug))
            }
            error => error.into(),
        })?;
        tx.record(entry_of(entry, name, (None, 1), &prompt.content));
        tx.commit().await?;
        Ok(prompt)
    }

    /// Adds the next version of a prompt. Returns `None` if the prompt does not exist. The caller has validated the
    /// content.
    pub async fn add_version(
        &self,
        Change { author, entry }: Change<'_>,
        name: PromptName<'_>,
        content: String,
        expected: Option<i64>,
    ) -> ApiResult<Option<Prompt>> {
        let Services { clock, db, .. } = &*self.services;
        let (org, actor, now) = (author.org.id, author.actor(), clock.now());
        let mut tx = db.begin().await?;
        let Some((id, version, created_at)) = store::next_version(&mut tx, org, name).await? else {
            return Ok(None);
        };
        let current = version - 1;
        if expected.is_some_and(|expected| expected != current) {
            let mut problem =
                Problem::conflict(format!("expected_version: the current version is {current}"));
            problem.extra.insert("current_version".into(), current.into());
            return Err(problem);
        }
        quotas::check_version("prompt", version)?;
        let new = NewVersion { version, content: &content, created_by: Some(&actor), created_at: now };
        store::insert_version(&mut tx, id, &new).await?;
        let labels = store::labels_of(&mut tx, id).await?;
        tx.record(entry_of(entry, name, (Some(current), version), &content));
        let (namespace, slug) = (name.namespace.to_owned(), name.slug.to_owned());
        let stale = Invalidation::PromptVersion { org, namespace, slug };
        let pending = invalidation::record(&mut tx, stale).await?;
        invalidation::commit(tx, [pending], &self.cluster).await?;
        Ok(Some(Prompt {
            id,
            namespace: name.namespace.into(),
            slug: name.slug.into(),
            version,
            content,
            created_by: Some(actor),
            created_at,
            updated_at: now,
            labels,
        }))
    }
}

/// Long contents are shown by their hash; the versions themselves stay readable.
fn entry_of(entry: Draft, name: PromptName<'_>, versions: (Option<i64>, i64), content: &str) -> Draft {
    let name = format!("{}/{}", name.namespace, name.slug);
    let (from, to) = versions;
    let from = from.map_or(Value::Null, |version| json!({"version": version}));
    entry.target(&name, &name).changed(&from, &json!({"version": to, "content": content}))
}

/// Checks the length and the syntax of a template.
pub fn check_content(content: &str) -> ApiResult<()> {
    if content.is_empty() {
        return Err(Problem::field("content", "must not be empty"));
    }
    if content.len() > MAX_CONTENT {
        return Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "payload_too_large",
            format!("content: must have at most {MAX_CONTENT} bytes"),
        ));
    }
    Template::parse(content).map(|_| ()).map_err(|error| {
        let mut problem = Problem::unprocessable(format!("content: {error}"));
        problem.extra.insert("line".into(), error.line.into());
        problem.extra.insert("column".into(), error.column.into());
        problem
    })
}
