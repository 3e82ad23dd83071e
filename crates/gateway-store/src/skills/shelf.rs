//! The shelf: the published versions of all organizations' skills. These are the only queries that cross organizations
//! on purpose. They return nothing of versions that are not published.

use gateway_core::ids::{OrgId, SkillId};
use gateway_core::skills::SkillSource;
use gateway_core::skills::files::FileList;
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use super::{LatestEvaluation, containing, read_latest, read_source};
use crate::page::{Page, Paged};
use crate::row::{Row, args};
use crate::{Db, StoreError, Tx};

#[derive(Debug, Clone, PartialEq)]
pub struct ShelfEntry {
    pub id: SkillId,
    pub org_id: OrgId,
    /// The slug of the organization.
    pub publisher: String,
    pub source: SkillSource,
    pub files: FileList,
    pub content_hash: String,
    pub version: i64,
    pub published_at: Timestamp,
    pub source_skill_id: Option<SkillId>,
    pub adoptions: i64,
    pub created_at: Timestamp,
    /// When this version was created.
    pub updated_at: Timestamp,
    /// The newest evaluation of this version.
    pub latest: Option<LatestEvaluation>,
    sort_key: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShelfSort {
    Recent,
    Adoptions,
    Score,
}

/// Substrings of the name and of the description.
#[derive(Debug, Clone, Default)]
pub struct ShelfFilter {
    pub name: Option<String>,
    pub description: Option<String>,
}

/// The bytes of an entry.
const SIZE: &str =
    "CAST(OCTET_LENGTH(body) + OCTET_LENGTH(raw_source) + OCTET_LENGTH(files) AS BIGINT) AS size";

pub async fn find_on_shelf(db: &Db, id: SkillId) -> Result<Option<ShelfEntry>, StoreError> {
    let sql = select("*", ShelfSort::Recent, "WHERE id = $1");
    db.opt(AssertSqlSafe(sql), args![id]).await?.as_ref().map(read).transpose()
}

const LISTED: &str = "WHERE ($1 IS NULL OR LOWER(name) LIKE LOWER($1) ESCAPE '\\') \
    AND ($2 IS NULL OR LOWER(description) LIKE LOWER($2) ESCAPE '\\') \
    AND ($3 IS NULL OR sort_key < $3 OR (sort_key = $3 AND id < $4)) ORDER BY sort_key DESC, id DESC LIMIT $5";

/// If there is room for their bytes. A page has fewer than its limit if the skills are large.
pub async fn list_shelf<E: From<StoreError>>(
    db: &Db,
    filter: &ShelfFilter,
    sort: ShelfSort,
    page: &Page,
    take_room: impl FnOnce(i64) -> Result<(), E>,
) -> Result<Paged<ShelfEntry>, E> {
    let [name, description] = [&filter.name, &filter.description].map(|part| part.as_deref().map(containing));
    let (sort_key, id) = page.time_cursor();
    let values = |limit: i64| args![name.clone(), description.clone(), sort_key, id.clone(), limit];
    let sizes = db.all(AssertSqlSafe(select(SIZE, sort, LISTED)), values(page.limit)).await?;
    let page = page.bounded_within(&sizes, take_room)?;
    let rows = db.all(AssertSqlSafe(select("*", sort, LISTED)), values(page.fetch())).await?;
    let found = rows.iter().map(read).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(page.cut(found, |skill| Page::encode_time_cursor(Timestamp(skill.sort_key), skill.id)))
}

/// Counts an adoption and locks the adopted skill until the transaction ends. None when it is not on the shelf.
pub async fn record_adoption(tx: &mut Tx, id: SkillId) -> Result<Option<ShelfEntry>, StoreError> {
    let counted = tx
        .exec(
            "UPDATE skills SET adoptions = adoptions + 1 WHERE id = $1 AND published_version IS NOT NULL",
            args![id],
        )
        .await?;
    if counted == 0 {
        return Ok(None);
    }
    let sql = select("*", ShelfSort::Recent, "WHERE id = $1");
    tx.opt(AssertSqlSafe(sql), args![id]).await?.as_ref().map(read).transpose()
}

fn select(columns: &str, sort: ShelfSort, rest: &str) -> String {
    let sort_key = match sort {
        ShelfSort::Recent => "s.published_at",
        ShelfSort::Adoptions => "s.adoptions",
        // Only the score of the built-in judge counts: publishers report the others themselves. Unjudged skills are
        // last.
        ShelfSort::Score => {
            "CAST(COALESCE((SELECT i.overall_score FROM evaluations i WHERE i.id = (SELECT MAX(m.id) FROM evaluations m \
             WHERE m.skill_id = s.id AND m.skill_version = s.published_version AND m.source = 'internal')), -1) * 10000 \
             AS BIGINT)"
        }
    };
    format!(
        "SELECT {columns} FROM (SELECT s.id, s.org_id, o.slug AS publisher, s.published_version AS version, s.published_at, \
         s.source_skill_id, s.adoptions, s.created_at, v.created_at AS updated_at, {sort_key} AS sort_key, \
         v.name, v.headline, v.description, v.body, v.raw_source, v.content_hash, v.files, \
         e.overall_score, e.passed, e.skill_version, e.source FROM skills s \
         JOIN orgs o ON o.id = s.org_id \
         JOIN skill_versions v ON v.skill_id = s.id AND v.version = s.published_version \
         LEFT JOIN evaluations e ON e.id = (SELECT MAX(n.id) FROM evaluations n WHERE n.skill_id = s.id \
         AND n.skill_version = s.published_version) WHERE s.published_version IS NOT NULL) shelf {rest}"
    )
}

fn read(row: &Row) -> Result<ShelfEntry, StoreError> {
    Ok(ShelfEntry {
        id: row.get("id")?,
        org_id: row.get("org_id")?,
        publisher: row.get("publisher")?,
        source: read_source(row)?,
        files: row.json("files")?,
        content_hash: row.get("content_hash")?,
        version: row.get("version")?,
        published_at: row.get("published_at")?,
        source_skill_id: row.get("source_skill_id")?,
        adoptions: row.get("adoptions")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
        latest: read_latest(row)?,
        sort_key: row.get("sort_key")?,
    })
}
