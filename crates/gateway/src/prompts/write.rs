//! New prompts and new versions of them, for whoever makes one: the endpoints, or a run that is kept as a prompt.

use gateway_core::prompts::{MAX_CONTENT, Template, check_name};
use gateway_store::StoreError;
use gateway_store::prompts::{self as store, NewVersion, Prompt, PromptName};
use http::StatusCode;

use crate::app::App;
use crate::auth::Identity;
use crate::nodes::{self, Invalidation};
use crate::problem::{ApiResult, Problem};

/// Saves a template under a name: as the next version where the prompt exists, else as a new prompt. Checks all three.
pub async fn save(app: &App, by: &Identity, name: PromptName<'_>, content: String) -> ApiResult<Prompt> {
    check_name(name.namespace).map_err(|why| Problem::field("namespace", why))?;
    check_name(name.slug).map_err(|why| Problem::field("slug", why))?;
    check_content(&content)?;
    match add_version(app, by, name, content.clone(), None).await? {
        Some(added) => Ok(added),
        None => add_prompt(app, by, name, content).await,
    }
}

/// A new prompt with its first version. The caller has checked names and content; a name that is taken is a conflict.
pub async fn add_prompt(
    app: &App,
    by: &Identity,
    name: PromptName<'_>,
    content: String,
) -> ApiResult<Prompt> {
    let now = app.services.clock.now();
    let prompt = Prompt {
        id: app.services.ids.new_id(),
        namespace: name.namespace.into(),
        slug: name.slug.into(),
        version: 1,
        content,
        created_by: Some(by.actor()),
        created_at: now,
        updated_at: now,
    };
    let mut tx = app.services.db.begin().await?;
    store::insert(&mut tx, by.org.id, &prompt).await.map_err(|error| match error {
        StoreError::Duplicate => {
            Problem::conflict(format!("the prompt {}/{} exists already", name.namespace, name.slug))
        }
        error => error.into(),
    })?;
    tx.commit().await?;
    Ok(prompt)
}

/// The next version of a prompt; None when there is no such prompt. The caller has checked the content.
pub async fn add_version(
    app: &App,
    by: &Identity,
    name: PromptName<'_>,
    content: String,
    expected: Option<i64>,
) -> ApiResult<Option<Prompt>> {
    let (org, actor, now) = (by.org.id, by.actor(), app.services.clock.now());
    let mut tx = app.services.db.begin().await?;
    let Some((id, version, created_at)) = store::next_version(&mut tx, org, name).await? else {
        return Ok(None);
    };
    let current = version - 1;
    if expected.is_some_and(|expected| expected != current) {
        let mut problem = Problem::conflict(format!("expected_version: the current version is {current}"));
        problem.extra.insert("current_version".into(), current.into());
        return Err(problem);
    }
    let new = NewVersion { version, content: &content, created_by: Some(&actor), created_at: now };
    store::insert_version(&mut tx, id, &new).await?;
    let (namespace, slug) = (name.namespace.to_owned(), name.slug.to_owned());
    let told = nodes::tell(&mut tx, Invalidation::PromptVersion { org, namespace, slug }).await?;
    tx.commit().await?;
    told.committed(app);
    Ok(Some(Prompt {
        id,
        namespace: name.namespace.into(),
        slug: name.slug.into(),
        version,
        content,
        created_by: Some(actor),
        created_at,
        updated_at: now,
    }))
}

/// Of a sane length, and its tags are sound.
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
