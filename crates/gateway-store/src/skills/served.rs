//! The skills that agents get over MCP: the current versions of an organization, and the shelf by publisher and name.

use gateway_core::ids::{OrgId, SkillId};
use gateway_core::skills::judge::safety::ScanRecord;
use sqlx::AssertSqlSafe;

use super::{LatestEvaluation, containing, read_latest};
use crate::row::{Row, args};
use crate::{Db, StoreError};

/// The current version of a skill, without its text.
#[derive(Debug, Clone, PartialEq)]
pub struct CurrentVersion {
    pub skill: SkillId,
    pub version: i64,
    pub name: String,
    pub description: String,
    pub content_hash: String,
    pub scan: Option<ScanRecord>,
    /// The newest verdict on this version among those that were asked for.
    pub verdict: Option<LatestEvaluation>,
}

/// A published skill, without its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShelfHit {
    pub id: SkillId,
    /// The slug of the organization.
    pub publisher: String,
    pub name: String,
    pub description: String,
}

/// The current versions of an organization by name, at most `limit`. With `sources` only those that one of these passed.
pub async fn current_versions(
    db: &Db,
    org: OrgId,
    sources: Option<&[String]>,
    limit: i64,
) -> Result<Vec<CurrentVersion>, StoreError> {
    if sources.is_some_and(<[String]>::is_empty) {
        return Ok(Vec::new());
    }
    let sources = sources.unwrap_or_default();
    let places: Vec<String> = (3..3 + sources.len()).map(|number| format!("${number}")).collect();
    let (join, counted) = if sources.is_empty() {
        ("LEFT JOIN", String::new())
    } else {
        ("JOIN", format!(" AND n.passed = 1 AND n.source IN ({})", places.join(", ")))
    };
    let sql = format!(
        "SELECT s.id, v.version, v.name, v.description, v.content_hash, v.scan, e.overall_score, e.passed, \
         e.skill_version, e.source FROM skills s \
         JOIN skill_versions v ON v.skill_id = s.id AND v.version = s.version \
         {join} evaluations e ON e.id = (SELECT MAX(n.id) FROM evaluations n WHERE n.skill_id = s.id \
         AND n.skill_version = s.version{counted}) WHERE s.org_id = $1 ORDER BY v.name LIMIT $2"
    );
    let mut parameters = args![org, limit];
    parameters.extend(sources.iter().map(|source| source.as_str().into()));
    let rows = db.all(AssertSqlSafe(sql), parameters).await?;
    rows.iter().map(read_current).collect()
}

const SHELF: &str = "SELECT s.id, o.slug AS publisher, v.name, v.description FROM skills s \
     JOIN orgs o ON o.id = s.org_id \
     JOIN skill_versions v ON v.skill_id = s.id AND v.version = s.published_version";

/// The published skill of this name. Of several, as renamed ones can be, the newest.
pub async fn find_hit_on_shelf(db: &Db, publisher: &str, name: &str) -> Result<Option<ShelfHit>, StoreError> {
    let sql = format!("{SHELF} WHERE o.slug = $1 AND v.name = $2 ORDER BY s.id DESC LIMIT 1");
    db.opt(AssertSqlSafe(sql), args![publisher, name]).await?.as_ref().map(read_hit).transpose()
}

/// Published skills whose name or description contains the word, the most adopted first.
pub async fn search_shelf(db: &Db, word: &str, limit: i64) -> Result<Vec<ShelfHit>, StoreError> {
    let sql = format!(
        "{SHELF} WHERE LOWER(v.name) LIKE LOWER($1) ESCAPE '\\' OR LOWER(v.description) LIKE LOWER($1) ESCAPE '\\' \
         ORDER BY s.adoptions DESC, s.id DESC LIMIT $2"
    );
    let rows = db.all(AssertSqlSafe(sql), args![containing(word), limit]).await?;
    rows.iter().map(read_hit).collect()
}

fn read_current(row: &Row) -> Result<CurrentVersion, StoreError> {
    Ok(CurrentVersion {
        skill: row.get("id")?,
        version: row.get("version")?,
        name: row.get("name")?,
        description: row.get("description")?,
        content_hash: row.get("content_hash")?,
        scan: row.optional_json("scan")?,
        verdict: read_latest(row)?,
    })
}

fn read_hit(row: &Row) -> Result<ShelfHit, StoreError> {
    Ok(ShelfHit {
        id: row.get("id")?,
        publisher: row.get("publisher")?,
        name: row.get("name")?,
        description: row.get("description")?,
    })
}
