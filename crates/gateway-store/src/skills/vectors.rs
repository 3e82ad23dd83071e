//! Embeddings of published versions, with which the judge finds similar skills.

use gateway_core::ids::SkillId;

use crate::row::{Row, args};
use crate::{Db, StoreError};

/// The embedding of a shelf entry.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillVector {
    pub skill: SkillId,
    pub version: i64,
    pub numbers: Vec<f32>,
}

/// A shelf entry without an embedding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnembeddedSkill {
    pub skill: SkillId,
    pub version: i64,
    pub name: String,
    pub raw_source: String,
}

pub async fn insert_vector(
    db: &Db,
    skill: SkillId,
    version: i64,
    embedder: &str,
    numbers: &[f32],
) -> Result<(), StoreError> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    // INSERT from SELECT, because the skill may have been deleted since.
    db.exec(
        "INSERT INTO skill_vectors (skill_id, version, embedder, vector) \
         SELECT skill_id, version, $3, $4 FROM skill_versions WHERE skill_id = $1 AND version = $2 \
         ON CONFLICT DO NOTHING",
        args![skill, version, embedder, bytes],
    )
    .await
    .map(|_| ())
}

/// The shelf's vectors of one embedding model, newest first, without those of one skill.
pub async fn shelf_vectors(
    db: &Db,
    embedder: &str,
    except: SkillId,
    limit: i64,
) -> Result<Vec<SkillVector>, StoreError> {
    let rows = db
        .all(
            "SELECT s.id, s.published_version AS version, x.vector FROM skills s JOIN skill_vectors x \
             ON x.skill_id = s.id AND x.version = s.published_version AND x.embedder = $1 \
             WHERE s.published_version IS NOT NULL AND s.id <> $2 ORDER BY s.published_at DESC LIMIT $3",
            args![embedder, except, limit],
        )
        .await?;
    let read = |row: &Row| {
        let bytes: Vec<u8> = row.get("vector")?;
        let (fours, _) = bytes.as_chunks::<4>();
        let numbers = fours.iter().map(|four| f32::from_le_bytes(*four)).collect();
        Ok(SkillVector { skill: row.get("id")?, version: row.get("version")?, numbers })
    };
    rows.iter().map(read).collect()
}

/// Shelf entries without a vector of this embedding model, newest first.
pub async fn shelf_missing_vectors(
    db: &Db,
    embedder: &str,
    limit: i64,
) -> Result<Vec<UnembeddedSkill>, StoreError> {
    let rows = db
        .all(
            "SELECT s.id, v.version, v.name, v.raw_source FROM skills s \
             JOIN skill_versions v ON v.skill_id = s.id AND v.version = s.published_version \
             WHERE NOT EXISTS (SELECT 1 FROM skill_vectors x WHERE x.skill_id = s.id AND x.version = v.version \
             AND x.embedder = $1) ORDER BY s.published_at DESC LIMIT $2",
            args![embedder, limit],
        )
        .await?;
    let read = |row: &Row| {
        Ok(UnembeddedSkill {
            skill: row.get("id")?,
            version: row.get("version")?,
            name: row.get("name")?,
            raw_source: row.get("raw_source")?,
        })
    };
    rows.iter().map(read).collect()
}
