//! Prompts and their versions. A version never changes. Version numbers have no gaps, because `next_version` locks the
//! prompt until the new version is committed. Labels, in `labels`, point to versions. `versioned` deletes prompts.

mod labels;

use std::collections::BTreeMap;

use gateway_core::ids::{OrgId, PromptId};
use gateway_core::prompts::VersionSelector;
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::page::{Page, Paged};
use crate::row::{Row, args};
use crate::{Db, StoreError, Tx};

pub use labels::{
    PromptLabel, count_labels, delete_label, find_label, insert_label, labels_of, list_labels, lock,
    update_label,
};

/// A prompt in one of its versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    pub id: PromptId,
    pub namespace: String,
    pub slug: String,
    pub version: i64,
    pub content: String,
    /// The author of this version.
    pub created_by: Option<String>,
    /// When the prompt was created.
    pub created_at: Timestamp,
    /// When this version was created.
    pub updated_at: Timestamp,
    /// The labels of the prompt and the versions that they point to.
    pub labels: BTreeMap<String, i64>,
}

/// The name of a prompt within its organization.
#[derive(Debug, Clone, Copy)]
pub struct PromptName<'a> {
    pub namespace: &'a str,
    pub slug: &'a str,
}

/// A prompt without its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptHead {
    pub id: PromptId,
    pub namespace: String,
    pub slug: String,
    /// The latest.
    pub version: i64,
}

/// Inserts a prompt with its first version. `Duplicate` when the name is in use.
pub async fn insert(tx: &mut Tx, org: OrgId, prompt: &Prompt) -> Result<(), StoreError> {
    let Prompt { id, namespace, slug, version, content, created_by, created_at, updated_at, labels: _ } =
        prompt;
    tx.exec(
        "INSERT INTO prompts (org_id, id, namespace, slug, version, created_at) VALUES ($1, $2, $3, $4, $5, $6)",
        args![org, *id, namespace, slug, *version, *created_at],
    )
    .await?;
    let new =
        NewVersion { version: *version, content, created_by: created_by.as_deref(), created_at: *updated_at };
    insert_version(tx, *id, &new).await
}

/// Assigns the next version number and locks the prompt until the transaction ends. Returns the prompt's id, the number
/// and the prompt's creation time; none when the prompt does not exist.
pub async fn next_version(
    tx: &mut Tx,
    org: OrgId,
    name: PromptName<'_>,
) -> Result<Option<(PromptId, i64, Timestamp)>, StoreError> {
    let row = tx
        .opt(
            "UPDATE prompts SET version = version + 1 WHERE org_id = $1 AND namespace = $2 AND slug = $3 \
             RETURNING id, version, created_at",
            args![org, name.namespace, name.slug],
        )
        .await?;
    row.map(|row| Ok((row.get("id")?, row.get("version")?, row.get("created_at")?))).transpose()
}

/// A version to insert, numbered by `next_version`.
#[derive(Debug, Clone, Copy)]
pub struct NewVersion<'a> {
    pub version: i64,
    pub content: &'a str,
    pub created_by: Option<&'a str>,
    pub created_at: Timestamp,
}

pub async fn insert_version(tx: &mut Tx, prompt: PromptId, new: &NewVersion<'_>) -> Result<(), StoreError> {
    let NewVersion { version, content, created_by, created_at } = *new;
    tx.exec(
        "INSERT INTO prompt_versions (prompt_id, version, content, created_by, created_at) \
         VALUES ($1, $2, $3, $4, $5)",
        args![prompt, version, content, created_by, created_at],
    )
    .await
    .map(|_| ())
}

const COLUMNS: &str = "p.id, p.namespace, p.slug, v.version, v.content, v.created_by, p.created_at, \
    v.created_at AS updated_at, (SELECT string_agg(a.name || ':' || CAST(a.version AS TEXT), ',') \
    FROM prompt_labels a WHERE a.prompt_id = p.id) AS labels";

/// The selected version.
pub async fn find(
    db: &Db,
    org: OrgId,
    name: PromptName<'_>,
    version: &VersionSelector,
) -> Result<Option<Prompt>, StoreError> {
    let mut values = args![org, name.namespace, name.slug];
    let selected = match version {
        VersionSelector::Latest => "v.version = p.version",
        VersionSelector::Number(version) => {
            values.push((*version).into());
            "v.version = $4"
        }
        VersionSelector::Label(label) => {
            values.push(label.as_str().into());
            "v.version = (SELECT l.version FROM prompt_labels l WHERE l.prompt_id = p.id AND l.name = $4)"
        }
    };
    let sql = format!(
        "SELECT {COLUMNS} FROM prompts p JOIN prompt_versions v ON v.prompt_id = p.id AND {selected} \
         WHERE p.org_id = $1 AND p.namespace = $2 AND p.slug = $3"
    );
    let row = db.opt(AssertSqlSafe(sql), values).await?;
    row.as_ref().map(read).transpose()
}

/// The bytes of a version.
const SIZE: &str = "CAST(OCTET_LENGTH(v.content) AS BIGINT) AS size";

/// Every prompt in its latest version, newest first, if there is room for their bytes. A page has fewer than its limit if
/// the prompts are large.
pub async fn list<E: From<StoreError>>(
    db: &Db,
    org: OrgId,
    namespace: Option<&str>,
    page: &Page,
    take_room: impl FnOnce(i64) -> Result<(), E>,
) -> Result<Paged<Prompt>, E> {
    let select = |columns: &str| {
        AssertSqlSafe(format!(
            "SELECT {columns} FROM prompts p JOIN prompt_versions v ON v.prompt_id = p.id AND v.version = p.version \
             WHERE p.org_id = $1 AND ($2 IS NULL OR p.namespace = $2) AND ($3 IS NULL OR p.id < $3) \
             ORDER BY p.id DESC LIMIT $4"
        ))
    };
    let values = |limit: i64| args![org, namespace, page.before.clone(), limit];
    let page = page.bounded_within(&db.all(select(SIZE), values(page.limit)).await?, take_room)?;
    let rows = db.all(select(COLUMNS), values(page.fetch())).await?;
    let prompts = rows.iter().map(read).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(page.cut(prompts, |prompt| prompt.id.to_string()))
}

/// The names of an organization's prompts in their order, at most `limit`.
pub async fn list_heads(db: &Db, org: OrgId, limit: i64) -> Result<Vec<PromptHead>, StoreError> {
    let rows = db
        .all(
            "SELECT id, namespace, slug, version FROM prompts WHERE org_id = $1 AND version > 0 \
             ORDER BY namespace, slug LIMIT $2",
            args![org, limit],
        )
        .await?;
    let read = |row: &Row| {
        Ok(PromptHead {
            id: row.get("id")?,
            namespace: row.get("namespace")?,
            slug: row.get("slug")?,
            version: row.get("version")?,
        })
    };
    rows.iter().map(read).collect()
}

/// The versions of a prompt, newest first, if there is room for their bytes; the cursor is a number. Empty when the prompt
/// does not exist. A page has fewer than its limit if the versions are large.
pub async fn list_versions<E: From<StoreError>>(
    db: &Db,
    org: OrgId,
    name: PromptName<'_>,
    page: &Page,
    take_room: impl FnOnce(i64) -> Result<(), E>,
) -> Result<Paged<Prompt>, E> {
    let select = |columns: &str| {
        AssertSqlSafe(format!(
            "SELECT {columns} FROM prompts p JOIN prompt_versions v ON v.prompt_id = p.id \
             WHERE p.org_id = $1 AND p.namespace = $2 AND p.slug = $3 AND ($4 IS NULL OR v.version < $4) \
             ORDER BY v.version DESC LIMIT $5"
        ))
    };
    let before = page.number_cursor();
    let values = |limit: i64| args![org, name.namespace, name.slug, before, limit];
    let page = page.bounded_within(&db.all(select(SIZE), values(page.limit)).await?, take_room)?;
    let rows = db.all(select(COLUMNS), values(page.fetch())).await?;
    let versions = rows.iter().map(read).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(page.cut(versions, |prompt| prompt.version.to_string()))
}

fn read(row: &Row) -> Result<Prompt, StoreError> {
    Ok(Prompt {
        id: row.get("id")?,
        namespace: row.get("namespace")?,
        slug: row.get("slug")?,
        version: row.get("version")?,
        content: row.get("content")?,
        created_by: row.get("created_by")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
        labels: labels::parse_list(row.get::<Option<String>>("labels")?.as_deref().unwrap_or_default()),
    })
}
