//! The contents of skills' files, and which versions agents may install.

use gateway_core::ids::{OrgId, SkillId};
use gateway_core::skills::files::FileList;
use gateway_core::skills::judge::safety::ScanRecord;
use sqlx::AssertSqlSafe;

use crate::row::{Row, args, json};
use crate::{Db, StoreError, Tx};

/// A version of a skill that may be installed.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub skill: SkillId,
    pub version: i64,
    /// Of this version.
    pub name: String,
    pub is_current: bool,
    /// The bytes of SKILL.md and of the other files.
    pub bytes: i64,
    /// The number of the other files.
    pub files: i64,
    pub scan: Option<ScanRecord>,
}

/// Stores the content of a file. It may be stored already.
pub async fn insert_blob(tx: &mut Tx, skill: SkillId, sha256: &str, bytes: &[u8]) -> Result<(), StoreError> {
    tx.exec(
        "INSERT INTO skill_blobs (skill_id, sha256, size, bytes) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (skill_id, sha256) DO NOTHING",
        args![skill, sha256, i64::try_from(bytes.len()).unwrap_or(i64::MAX), bytes.to_vec()],
    )
    .await
    .map(|_| ())
}

/// The content of a file. The caller has found the hash in a version that it may read.
pub async fn find_blob(db: &Db, skill: SkillId, sha256: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let row = db
        .opt("SELECT bytes FROM skill_blobs WHERE skill_id = $1 AND sha256 = $2", args![skill, sha256])
        .await?;
    row.map(|row| row.get("bytes")).transpose()
}

/// Copies the contents of a version's files to a skill that was adopted from it.
pub async fn copy_blobs(tx: &mut Tx, from: SkillId, to: SkillId, files: &FileList) -> Result<(), StoreError> {
    for file in files.entries() {
        tx.exec(
            "INSERT INTO skill_blobs (skill_id, sha256, size, bytes) \
             SELECT $2, sha256, size, bytes FROM skill_blobs WHERE skill_id = $1 AND sha256 = $3 \
             ON CONFLICT (skill_id, sha256) DO NOTHING",
            args![from, to, &file.sha256],
        )
        .await?;
    }
    Ok(())
}

/// The bytes of all files of an organization's skills, of all versions.
pub async fn stored_bytes(tx: &mut Tx, org: OrgId) -> Result<i64, StoreError> {
    let row = tx
        .opt(
            "SELECT CAST(COALESCE(SUM(b.size), 0) AS BIGINT) AS total FROM skill_blobs b \
             JOIN skills s ON s.id = b.skill_id WHERE s.org_id = $1 AND s.version > 0",
            args![org],
        )
        .await?;
    row.map_or(Ok(0), |row| row.get("total"))
}

/// The versions with a passing verdict of an allowed source: by skill, the newest version first. At most `limit`.
pub async fn passed_versions(
    db: &Db,
    org: OrgId,
    sources: &[String],
    limit: i64,
) -> Result<Vec<Candidate>, StoreError> {
    if sources.is_empty() {
        return Ok(Vec::new());
    }
    let places: Vec<String> = (3..3 + sources.len()).map(|number| format!("${number}")).collect();
    let sql = select(&format!(
        "JOIN skill_versions v ON v.skill_id = s.id WHERE s.org_id = $1 AND s.version > 0 \
         AND EXISTS (SELECT 1 FROM evaluations e \
         WHERE e.skill_id = v.skill_id AND e.skill_version = v.version AND e.passed = 1 AND e.source IN ({})) \
         ORDER BY s.id, v.version DESC LIMIT $2",
        places.join(", ")
    ));
    let mut parameters = args![org, limit];
    parameters.extend(sources.iter().map(|source| source.as_str().into()));
    let rows = db.all(AssertSqlSafe(sql), parameters).await?;
    rows.iter().map(read).collect()
}

/// The versions that an organization has on the shelf.
pub async fn published_versions(db: &Db, org: OrgId, limit: i64) -> Result<Vec<Candidate>, StoreError> {
    let sql = select(
        "JOIN skill_versions v ON v.skill_id = s.id AND v.version = s.published_version \
         WHERE s.org_id = $1 ORDER BY s.id LIMIT $2",
    );
    let rows = db.all(AssertSqlSafe(sql), args![org, limit]).await?;
    rows.iter().map(read).collect()
}

/// Stores what the safety scan found in a version.
pub async fn set_scan(db: &Db, skill: SkillId, version: i64, scan: &ScanRecord) -> Result<(), StoreError> {
    db.exec(
        "UPDATE skill_versions SET scan = $3 WHERE skill_id = $1 AND version = $2",
        args![skill, version, json(scan)],
    )
    .await
    .map(|_| ())
}

fn select(rest: &str) -> String {
    format!(
        "SELECT s.id, s.version AS current_version, v.version, v.name, v.scan, v.files_count, \
         CAST(LENGTH(v.raw_source) + v.files_bytes AS BIGINT) AS bytes FROM skills s {rest}"
    )
}

fn read(row: &Row) -> Result<Candidate, StoreError> {
    let (version, current): (i64, i64) = (row.get("version")?, row.get("current_version")?);
    Ok(Candidate {
        skill: row.get("id")?,
        version,
        name: row.get("name")?,
        is_current: version == current,
        bytes: row.get("bytes")?,
        files: row.get("files_count")?,
        scan: row.optional_json("scan")?,
    })
}
