//! Skills of an organization: one row with the current and the published version, and the texts of all versions.
//! Callers that change, judge or publish a skill lock its row first (`lock_for_update`), then the rubric's. `versioned`
//! deletes skills.

mod evaluations;
mod files;
pub mod install_links;
pub mod install_trees;
mod served;
mod shelf;
mod vectors;
mod versions;

pub use evaluations::{Evaluation, insert_evaluation, list_evaluations, list_votes};
pub use files::{
    Candidate, copy_blobs, find_blob, insert_blob, passed_versions, published_versions, set_scan,
    stored_bytes,
};
pub use served::{CurrentVersion, ShelfHit, current_versions, find_hit_on_shelf, search_shelf};
pub use shelf::{ShelfEntry, ShelfFilter, ShelfSort, find_on_shelf, list_shelf, record_adoption};
pub use vectors::{
    SkillVector, UnembeddedSkill, VectorSpace, delete_other_vectors, insert_vector, shelf_missing_vectors,
    shelf_vectors,
};
pub use versions::{
    SkillVersion, UnjudgedVersion, find_version, list_versions, mark_judged, unjudged_versions,
};

use gateway_core::ids::{OrgId, SkillId};
use gateway_core::skills::SkillSource;
use gateway_core::skills::files::FileList;
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use self::versions::NewVersion;
use crate::page::{Page, Paged};
use crate::row::{Row, args};
use crate::{Db, StoreError, Tx};

#[derive(Debug, Clone, PartialEq)]
pub struct Skill {
    pub id: SkillId,
    pub org_id: OrgId,
    /// The text of the current version.
    pub source: SkillSource,
    /// The other files of the current version.
    pub files: FileList,
    pub content_hash: String,
    pub version: i64,
    pub published_version: Option<i64>,
    pub published_at: Option<Timestamp>,
    pub adopted: Option<AdoptedFrom>,
    pub adoptions: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub latest: Option<LatestEvaluation>,
}

/// The origin of an adopted skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdoptedFrom {
    pub skill: SkillId,
    pub version: i64,
    /// The version that is published now; none when the origin is not on the shelf any more.
    pub now: Option<i64>,
}

/// The newest evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct LatestEvaluation {
    pub score: f64,
    pub passed: bool,
    pub version: i64,
    pub source: String,
}

/// Restricts a list of skills.
#[derive(Debug, Clone, Default)]
pub struct SkillFilter {
    /// Public or private; none for both.
    pub public: Option<bool>,
    /// A substring of the name.
    pub name: Option<String>,
}

/// A skill to insert.
#[derive(Debug)]
pub struct NewSkill<'a> {
    pub id: SkillId,
    pub source: &'a SkillSource,
    /// Their contents are inserted or copied by the caller.
    pub files: &'a FileList,
    pub adopted: Option<(SkillId, i64)>,
    pub by: &'a str,
    pub now: Timestamp,
}

/// Inserts a skill with its first version. False when the name is in use.
pub async fn insert(tx: &mut Tx, org: OrgId, new: &NewSkill<'_>) -> Result<bool, StoreError> {
    let NewSkill { id, source, files, adopted, by, now } = new;
    let added = tx
        .exec(
            "INSERT INTO skills (id, org_id, name, version, source_skill_id, source_version, adoptions, created_at, \
             updated_at) VALUES ($1, $2, $3, 1, $4, $5, 0, $6, $6) ON CONFLICT (org_id, name) DO NOTHING",
            args![*id, org, &source.name, adopted.map(|(id, _)| id), adopted.map(|(_, version)| version), *now],
        )
        .await?;
    if added == 1 {
        versions::insert(tx, *id, &NewVersion { version: 1, source, files, by, now: *now }).await?;
    }
    Ok(added == 1)
}

/// Locks the skill until the transaction ends, so that its version cannot change. False when it does not
/// exist.
pub async fn lock_for_update(tx: &mut Tx, org: OrgId, id: SkillId) -> Result<bool, StoreError> {
    Ok(tx
        .exec(
            "UPDATE skills SET created_at = created_at WHERE org_id = $1 AND id = $2 AND version > 0",
            args![org, id],
        )
        .await?
        == 1)
}

/// Locks the skill until the transaction ends.
pub async fn find_for_update(tx: &mut Tx, org: OrgId, id: SkillId) -> Result<Option<Skill>, StoreError> {
    if !lock_for_update(tx, org, id).await? {
        return Ok(None);
    }
    let sql = select("WHERE s.org_id = $1 AND s.id = $2");
    tx.opt(AssertSqlSafe(sql), args![org, id]).await?.as_ref().map(read).transpose()
}

pub async fn find(db: &Db, org: OrgId, id: SkillId) -> Result<Option<Skill>, StoreError> {
    let sql = select("WHERE s.org_id = $1 AND s.id = $2");
    db.opt(AssertSqlSafe(sql), args![org, id]).await?.as_ref().map(read).transpose()
}

/// Newest first, if there is room for their bytes. A page has fewer than its limit if the skills are large.
pub async fn list<E: From<StoreError>>(
    db: &Db,
    org: OrgId,
    filter: &SkillFilter,
    page: &Page,
    take_room: impl FnOnce(i64) -> Result<(), E>,
) -> Result<Paged<Skill>, E> {
    let visibility = match filter.public {
        None => "",
        Some(true) => " AND s.published_version IS NOT NULL",
        Some(false) => " AND s.published_version IS NULL",
    };
    let listed = format!(
        "WHERE s.org_id = $1 AND ($2 IS NULL OR LOWER(s.name) LIKE LOWER($2) ESCAPE '\\') \
         AND ($3 IS NULL OR s.id < $3){visibility} ORDER BY s.id DESC LIMIT $4"
    );
    let name = filter.name.as_deref().map(containing);
    let values = |limit: i64| args![org, name.clone(), page.before.clone(), limit];
    let sizes = format!(
        "SELECT {} FROM skills s JOIN skill_versions v ON v.skill_id = s.id AND v.version = s.version {listed}",
        versions::SIZE
    );
    let sizes = db.all(AssertSqlSafe(sizes), values(page.limit)).await?;
    let page = page.bounded_within(&sizes, take_room)?;
    let rows = db.all(AssertSqlSafe(select(&listed)), values(page.fetch())).await?;
    let skills = rows.iter().map(read).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(page.cut(skills, |skill| skill.id.to_string()))
}

/// Inserts the next version of a locked skill. False when another skill has the new name.
pub async fn update(
    tx: &mut Tx,
    skill: &Skill,
    (source, files): (&SkillSource, &FileList),
    by: &str,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let version = skill.version + 1;
    // Checked first, because a violation would abort the transaction. A concurrent insert still causes one.
    let taken = tx
        .opt(
            "SELECT 1 AS one FROM skills WHERE org_id = $1 AND name = $2 AND id <> $3",
            args![skill.org_id, &source.name, skill.id],
        )
        .await?;
    if taken.is_some() {
        return Ok(false);
    }
    tx.exec(
        "UPDATE skills SET name = $2, version = $3, updated_at = $4 WHERE id = $1",
        args![skill.id, &source.name, version, now],
    )
    .await?;
    versions::insert(tx, skill.id, &NewVersion { version, source, files, by, now }).await?;
    Ok(true)
}

/// Publishes a version of a locked skill, or unpublishes it. The caller has checked the gate.
pub async fn set_published(
    tx: &mut Tx,
    id: SkillId,
    published: Option<(i64, Timestamp)>,
) -> Result<(), StoreError> {
    tx.exec(
        "UPDATE skills SET published_version = $2, published_at = $3 WHERE id = $1",
        args![id, published.map(|(version, _)| version), published.map(|(_, at)| at)],
    )
    .await
    .map(|_| ())
}

/// A LIKE pattern that matches texts containing this one.
fn containing(text: &str) -> String {
    let mut pattern = String::from("%");
    for c in text.chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

fn select(rest: &str) -> String {
    format!(
        "SELECT s.id, s.org_id, s.version, s.published_version, s.published_at, s.source_skill_id, s.source_version, \
         origin.published_version AS source_now, s.adoptions, s.created_at, s.updated_at, \
         v.name, v.headline, v.description, v.body, v.raw_source, v.content_hash, v.files, \
         e.overall_score, e.passed, e.skill_version, e.source FROM skills s \
         JOIN skill_versions v ON v.skill_id = s.id AND v.version = s.version \
         LEFT JOIN skills origin ON origin.id = s.source_skill_id \
         LEFT JOIN evaluations e ON e.id = (SELECT MAX(n.id) FROM evaluations n WHERE n.skill_id = s.id) {rest}"
    )
}

fn read(row: &Row) -> Result<Skill, StoreError> {
    let adopted = match (row.get::<Option<SkillId>>("source_skill_id")?, row.get("source_version")?) {
        (Some(skill), Some(version)) => Some(AdoptedFrom { skill, version, now: row.get("source_now")? }),
        _ => None,
    };
    Ok(Skill {
        id: row.get("id")?,
        org_id: row.get("org_id")?,
        source: read_source(row)?,
        files: row.json("files")?,
        content_hash: row.get("content_hash")?,
        version: row.get("version")?,
        published_version: row.get("published_version")?,
        published_at: row.get("published_at")?,
        adopted,
        adoptions: row.get("adoptions")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
        latest: read_latest(row)?,
    })
}

fn read_source(row: &Row) -> Result<SkillSource, StoreError> {
    Ok(SkillSource {
        name: row.get("name")?,
        headline: row.get("headline")?,
        description: row.get("description")?,
        body: row.get("body")?,
        raw_source: row.get("raw_source")?,
    })
}

fn read_latest(row: &Row) -> Result<Option<LatestEvaluation>, StoreError> {
    let Some(score) = row.get::<Option<f64>>("overall_score")? else { return Ok(None) };
    Ok(Some(LatestEvaluation {
        score,
        passed: row.get("passed")?,
        version: row.get("skill_version")?,
        source: row.get("source")?,
    }))
}
