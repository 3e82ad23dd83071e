//! Embeddings of published versions, with which the judge finds similar skills.

use gateway_core::ids::{OrgId, SkillId};
use gateway_core::time::Timestamp;

use crate::row::{Row, args};
use crate::{Db, StoreError};

/// A set of vectors that can be compared with each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VectorSpace {
    /// The owner; none for vectors that the gateway computes itself, which all organizations share.
    pub org: Option<OrgId>,
    /// Names the model, its address and the owner.
    pub embedder: String,
    /// The length of every vector.
    pub dims: usize,
}

/// The embedding of a shelf entry.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillVector {
    pub skill: SkillId,
    pub published_at: Timestamp,
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

/// Stores the vector of a version in the place of those of earlier versions.
pub async fn insert_vector(
    db: &Db,
    space: &VectorSpace,
    skill: SkillId,
    version: i64,
    numbers: &[f32],
) -> Result<(), StoreError> {
    let VectorSpace { org, embedder, dims } = space;
    if numbers.len() != *dims {
        return Err(StoreError::Other(format!("a vector of {} numbers instead of {dims}", numbers.len())));
    }
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut tx = db.begin().await?;
    tx.exec(
        "DELETE FROM skill_vectors WHERE skill_id = $1 AND version < $2 AND embedder = $3",
        args![skill, version, embedder.as_str()],
    )
    .await?;
    // INSERT from SELECT, because the skill may have been deleted since.
    tx.exec(
        "INSERT INTO skill_vectors (skill_id, version, embedder, vector, org_id) \
         SELECT skill_id, version, $3, $4, $5 FROM skill_versions WHERE skill_id = $1 AND version = $2 \
         ON CONFLICT DO NOTHING",
        args![skill, version, embedder.as_str(), bytes, *org],
    )
    .await?;
    tx.commit().await
}

/// A page of the shelf's vectors in a space, newest first, without those of one skill. `after` is the last vector of
/// the previous page.
pub async fn shelf_vectors(
    db: &Db,
    space: &VectorSpace,
    except: SkillId,
    after: Option<&SkillVector>,
    limit: i64,
) -> Result<Vec<SkillVector>, StoreError> {
    let bytes = i64::try_from(space.dims * size_of::<f32>()).unwrap_or(i64::MAX);
    let (after_time, after_skill) = (after.map(|last| last.published_at), after.map(|last| last.skill));
    let rows = db
        .all(
            "SELECT s.id, s.published_at, x.vector FROM skills s JOIN skill_vectors x \
             ON x.skill_id = s.id AND x.version = s.published_version AND x.embedder = $1 \
             WHERE s.published_version IS NOT NULL AND s.id <> $2 AND LENGTH(x.vector) = $3 \
             AND ($4 IS NULL OR s.published_at < $4 OR (s.published_at = $4 AND s.id < $5)) \
             ORDER BY s.published_at DESC, s.id DESC LIMIT $6",
            args![space.embedder.as_str(), except, bytes, after_time, after_skill, limit],
        )
        .await?;
    let read = |row: &Row| {
        let bytes: Vec<u8> = row.get("vector")?;
        let (fours, _) = bytes.as_chunks::<4>();
        let numbers = fours.iter().map(|four| f32::from_le_bytes(*four)).collect();
        Ok(SkillVector { skill: row.get("id")?, published_at: row.get("published_at")?, numbers })
    };
    rows.iter().map(read).collect()
}

/// Shelf entries without a vector in this space, newest first.
pub async fn shelf_missing_vectors(
    db: &Db,
    space: &VectorSpace,
    limit: i64,
) -> Result<Vec<UnembeddedSkill>, StoreError> {
    let rows = db
        .all(
            "SELECT s.id, v.version, v.name, v.raw_source FROM skills s \
             JOIN skill_versions v ON v.skill_id = s.id AND v.version = s.published_version \
             WHERE NOT EXISTS (SELECT 1 FROM skill_vectors x WHERE x.skill_id = s.id AND x.version = v.version \
             AND x.embedder = $1) ORDER BY s.published_at DESC LIMIT $2",
            args![space.embedder.as_str(), limit],
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

/// Deletes the vectors that an organization owns in other spaces, so that it never owns more than the shelf has.
pub async fn delete_other_vectors(db: &Db, org: OrgId, current: &VectorSpace) -> Result<u64, StoreError> {
    let others = "FROM skill_vectors WHERE org_id = $1 AND embedder <> $2";
    let parameters = || args![org, current.embedder.as_str()];
    // A read first, so that the usual case writes nothing.
    let sql = sqlx::AssertSqlSafe(format!("SELECT 1 AS one {others} LIMIT 1"));
    match db.opt(sql, parameters()).await? {
        Some(_) => db.exec(sqlx::AssertSqlSafe(format!("DELETE {others}")), parameters()).await,
        None => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Part;

    const SKILLS: u32 = 5;

    fn skill(number: u32) -> SkillId {
        format!("01890000-0000-7000-8000-{number:012}").parse().unwrap()
    }

    fn org() -> OrgId {
        "01890000-0000-7000-8000-000000000099".parse().unwrap()
    }

    fn space(dims: usize) -> VectorSpace {
        VectorSpace { org: None, embedder: format!("test/{dims}"), dims }
    }

    /// A shelf of skills that were all published at the same time. Its file lives as long as the directory.
    async fn shelf() -> (Db, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(&format!("sqlite://{}/gateway.db", directory.path().display())).await.unwrap();
        db.migrate(Part::State, Timestamp(0)).await.unwrap();
        let mut tx = db.begin().await.unwrap();
        let org = org();
        tx.script(format!(
            "INSERT INTO orgs (id, slug, name, plan, settings, created_at, changed_at) \
             VALUES ('{org}', 'acme', 'Acme', 'free', '{{}}', 0, 0)"
        ))
        .await
        .unwrap();
        for id in (1..=SKILLS).map(skill) {
            tx.script(format!(
                "INSERT INTO skills (id, org_id, name, version, published_version, published_at, adoptions, created_at, \
                 updated_at) VALUES ('{id}', '{org}', '{id}', 1, 1, 7, 0, 0, 0); \
                 INSERT INTO skill_versions (skill_id, version, name, headline, description, body, raw_source, \
                 content_hash, judged, created_at, created_by) VALUES ('{id}', 1, 's', '', '', '', '', '', 1, 0, '')"
            ))
            .await
            .unwrap();
        }
        tx.commit().await.unwrap();
        (db, directory)
    }

    #[tokio::test]
    async fn pages_contain_every_vector_of_the_space_once() {
        let ((db, _directory), space) = (shelf().await, space(2));
        assert_eq!(shelf_missing_vectors(&db, &space, 10).await.unwrap().len(), 5);
        for number in 1..=SKILLS {
            insert_vector(&db, &space, skill(number), 1, &[1.0, 2.0]).await.unwrap();
        }
        assert!(insert_vector(&db, &space, skill(1), 1, &[1.0]).await.is_err(), "of another length");
        assert!(shelf_missing_vectors(&db, &space, 10).await.unwrap().is_empty());
        let (mut seen, mut last) = (Vec::new(), None);
        loop {
            let page = shelf_vectors(&db, &space, skill(3), last.as_ref(), 2).await.unwrap();
            seen.extend(page.iter().map(|vector| vector.skill));
            let Some(end) = page.into_iter().next_back() else { break };
            last = Some(end);
        }
        assert_eq!(seen, [5, 4, 2, 1].map(skill));
    }

    #[tokio::test]
    async fn a_vector_of_another_length_is_not_read() {
        let ((db, _directory), space) = (shelf().await, space(2));
        insert_vector(&db, &space, skill(1), 1, &[1.0, 2.0]).await.unwrap();
        insert_vector(&db, &space, skill(2), 1, &[1.0, 2.0]).await.unwrap();
        db.exec("UPDATE skill_vectors SET vector = x'00' WHERE skill_id = $1", args![skill(2)])
            .await
            .unwrap();
        let found = shelf_vectors(&db, &space, skill(9), None, 10).await.unwrap();
        assert_eq!(found.iter().map(|vector| vector.skill).collect::<Vec<_>>(), [skill(1)]);
    }

    #[tokio::test]
    async fn an_organization_owns_the_vectors_of_one_space_only() {
        let (db, _directory) = shelf().await;
        let org = org();
        let owned = |name: &str| VectorSpace { org: Some(org), embedder: name.to_owned(), dims: 1 };
        for space in [owned("old"), owned("new"), space(1)] {
            insert_vector(&db, &space, skill(1), 1, &[1.0]).await.unwrap();
        }
        assert_eq!(delete_other_vectors(&db, org, &owned("new")).await.unwrap(), 1);
        assert_eq!(delete_other_vectors(&db, org, &space(1)).await.unwrap(), 1);
        assert_eq!(shelf_vectors(&db, &space(1), skill(9), None, 10).await.unwrap().len(), 1, "shared");
    }
}
