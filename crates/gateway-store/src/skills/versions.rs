//! The versions of skills, which never change.

use gateway_core::ids::{OrgId, SkillId};
use gateway_core::skills::SkillSource;
use gateway_core::skills::files::FileList;
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use super::read_source;
use crate::page::{Page, Paged};
use crate::row::{Row, args, json};
use crate::{Db, StoreError, Tx};

#[derive(Debug, Clone, PartialEq)]
pub struct SkillVersion {
    pub version: i64,
    pub source: SkillSource,
    pub files: FileList,
    pub content_hash: String,
    /// The built-in judge has evaluated it.
    pub judged: bool,
    pub created_at: Timestamp,
    pub created_by: String,
}

/// A version that the built-in judge has not evaluated yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnjudgedVersion {
    pub org: OrgId,
    pub skill: SkillId,
    pub version: i64,
}

pub(super) struct NewVersion<'a> {
    pub version: i64,
    pub source: &'a SkillSource,
    pub files: &'a FileList,
    pub by: &'a str,
    pub now: Timestamp,
}

pub(super) async fn insert(tx: &mut Tx, skill: SkillId, new: &NewVersion<'_>) -> Result<(), StoreError> {
    let NewVersion { version, source, files, by, now } = *new;
    let SkillSource { name, headline, description, body, raw_source } = source;
    tx.exec(
        "INSERT INTO skill_versions (skill_id, version, name, headline, description, body, raw_source, content_hash, \
         judged, created_at, created_by, files, files_count, files_bytes) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, $9, $10, $11, $12, $13)",
        args![
            skill,
            version,
            name,
            headline,
            description,
            body,
            raw_source,
            files.content_hash(raw_source),
            now,
            by,
            json(files),
            i64::try_from(files.entries().len()).unwrap_or(i64::MAX),
            i64::try_from(files.total_bytes()).unwrap_or(i64::MAX)
        ],
    )
    .await
    .map(|_| ())
}

/// The bytes of a version.
pub(super) const SIZE: &str = "CAST(OCTET_LENGTH(v.body) + OCTET_LENGTH(v.raw_source) + OCTET_LENGTH(v.description) \
                               + OCTET_LENGTH(v.files) AS BIGINT) AS size";

const SELECT: &str = "SELECT v.version, v.name, v.headline, v.description, v.body, v.raw_source, v.content_hash, v.judged, \
    v.created_at, v.created_by, v.files FROM skill_versions v JOIN skills s ON s.id = v.skill_id";

pub async fn find_version(
    db: &Db,
    org: OrgId,
    skill: SkillId,
    version: i64,
) -> Result<Option<SkillVersion>, StoreError> {
    let sql =
        format!("{SELECT} WHERE s.org_id = $1 AND v.skill_id = $2 AND v.version = $3 AND s.version > 0");
    let row = db.opt(AssertSqlSafe(sql), args![org, skill, version]).await?;
    row.as_ref().map(read).transpose()
}

/// Newest first, if there is room for their bytes. A page has fewer than its limit if the versions are large.
pub async fn list_versions<E: From<StoreError>>(
    db: &Db,
    org: OrgId,
    skill: SkillId,
    page: &Page,
    take_room: impl FnOnce(i64) -> Result<(), E>,
) -> Result<Paged<SkillVersion>, E> {
    let before = page.before.as_ref().map(|before| before.parse::<i64>().unwrap_or(0));
    let condition = "FROM skill_versions v JOIN skills s ON s.id = v.skill_id WHERE s.org_id = $1 AND v.skill_id = $2 \
                     AND ($3 IS NULL OR v.version < $3) ORDER BY v.version DESC LIMIT $4";
    let sizes = format!("SELECT {SIZE} {condition}");
    let sizes = db.all(AssertSqlSafe(sizes), args![org, skill, before, page.limit]).await?;
    let page = page.bounded_within(&sizes, take_room)?;
    let sql = format!(
        "{SELECT} WHERE s.org_id = $1 AND v.skill_id = $2 AND ($3 IS NULL OR v.version < $3) \
         ORDER BY v.version DESC LIMIT $4"
    );
    let rows = db.all(AssertSqlSafe(sql), args![org, skill, before, page.fetch()]).await?;
    let versions = rows.iter().map(read).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(page.cut(versions, |version| version.version.to_string()))
}

/// Versions that the built-in judge has not evaluated and that have no job of that name with the deduplication key
/// `skill:version`, newest first, at most `limit`. Organizations with `limit` jobs are left out, because theirs do not
/// fit into the queue and would hide those of others.
pub async fn unjudged_versions(db: &Db, job: &str, limit: i64) -> Result<Vec<UnjudgedVersion>, StoreError> {
    let rows = db
        .all(
            "SELECT s.org_id, v.skill_id, v.version FROM skill_versions v JOIN skills s ON s.id = v.skill_id \
             WHERE v.judged = 0 AND s.version > 0 AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.name = $1 \
             AND j.only_one = v.skill_id || ':' || v.version) \
             AND s.org_id NOT IN (SELECT q.org_id FROM jobs q WHERE q.name = $1 GROUP BY q.org_id \
                                  HAVING COUNT(*) >= $2) \
             ORDER BY v.created_at DESC LIMIT $2",
            args![job, limit],
        )
        .await?;
    let read = |row: &Row| {
        Ok(UnjudgedVersion {
            org: row.get("org_id")?,
            skill: row.get("skill_id")?,
            version: row.get("version")?,
        })
    };
    rows.iter().map(read).collect()
}

pub async fn mark_judged(tx: &mut Tx, skill: SkillId, version: i64) -> Result<(), StoreError> {
    tx.exec(
        "UPDATE skill_versions SET judged = 1 WHERE skill_id = $1 AND version = $2",
        args![skill, version],
    )
    .await
    .map(|_| ())
}

fn read(row: &Row) -> Result<SkillVersion, StoreError> {
    Ok(SkillVersion {
        version: row.get("version")?,
        source: read_source(row)?,
        files: row.json("files")?,
        content_hash: row.get("content_hash")?,
        judged: row.get("judged")?,
        created_at: row.get("created_at")?,
        created_by: row.get("created_by")?,
    })
}
