//! Purges of the response cache. They are stored in the database and not in Redis, so that a purge is in force whatever
//! happens to Redis: a Redis that was unreachable, or that was restored from an old snapshot, cannot bring a purged
//! response back.

use std::collections::HashMap;

use gateway_core::cache::CacheKey;
use gateway_core::ids::OrgId;
use gateway_core::time::{DAY, Timestamp};
use sha2::{Digest as _, Sha256};

use crate::row::args;
use crate::{Db, StoreError, Tx};

/// Longer than the TTL of any entry, so that no entry outlives the purge that ended it.
const RETENTION: i64 = 90 * DAY;
/// Purges of single namespaces and entries that are kept per organization. One more purges everything.
const MAX_SCOPES: i64 = 500;
const ALL: &str = "all";

/// The part of a cache to purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PurgeScope {
    All,
    Namespace(String),
    Entry(CacheKey),
}

impl PurgeScope {
    /// The stored form. Namespaces are hashed, because their length and characters are up to the caller.
    fn name(&self) -> String {
        match self {
            Self::All => ALL.to_owned(),
            Self::Namespace(namespace) => namespace_scope(namespace),
            Self::Entry(key) => entry_scope(*key),
        }
    }
}

fn namespace_scope(namespace: &str) -> String {
    format!("namespace:{}", hex::encode(Sha256::digest(namespace)))
}

fn entry_scope(key: CacheKey) -> String {
    format!("entry:{key}")
}

/// The purges of one organization: the mark of the last purge of each scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CachePurges(HashMap<String, String>);

/// The purges that affect an entry. It changes with every one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation(pub(crate) String);

impl CachePurges {
    /// Adds a purge, as `record` stores it.
    pub fn add(&mut self, scope: &PurgeScope, mark: &str) {
        if *scope == PurgeScope::All {
            self.0.clear();
        }
        self.0.insert(scope.name(), mark.to_owned());
    }

    pub fn generation(&self, namespace: &str, key: CacheKey) -> Generation {
        if self.0.is_empty() {
            return Generation("//".to_owned());
        }
        let mark = |scope: &str| self.0.get(scope).map_or("", String::as_str);
        let (of_namespace, of_entry) = (namespace_scope(namespace), entry_scope(key));
        Generation(format!("{}/{}/{}", mark(ALL), mark(&of_namespace), mark(&of_entry)))
    }
}

/// Records a purge. `mark` is unique.
pub async fn record(
    tx: &mut Tx,
    org: OrgId,
    scope: &PurgeScope,
    mark: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let row = tx.opt("SELECT COUNT(*) AS n FROM cache_purges WHERE org_id = $1", args![org]).await?;
    let stored: i64 = row.map_or(Ok(0), |row| row.get("n"))?;
    let scope = if stored < MAX_SCOPES { scope } else { &PurgeScope::All };
    if *scope == PurgeScope::All {
        tx.exec("DELETE FROM cache_purges WHERE org_id = $1", args![org]).await?;
    }
    tx.exec(
        "INSERT INTO cache_purges (org_id, scope, mark, purged_at) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (org_id, scope) DO UPDATE SET mark = excluded.mark, purged_at = excluded.purged_at",
        args![org, scope.name(), mark, now],
    )
    .await
    .map(|_| ())
}

pub async fn list(db: &Db, org: OrgId) -> Result<CachePurges, StoreError> {
    let rows = db.all("SELECT scope, mark FROM cache_purges WHERE org_id = $1", args![org]).await?;
    rows.iter()
        .map(|row| Ok((row.get("scope")?, row.get("mark")?)))
        .collect::<Result<_, _>>()
        .map(CachePurges)
}

/// Removes purges from before the oldest entry that Redis can have.
pub async fn sweep(db: &Db, now: Timestamp) -> Result<u64, StoreError> {
    let before = now.plus(-RETENTION);
    // A read first, so that an idle node writes nothing.
    let old = db.opt("SELECT 1 AS one FROM cache_purges WHERE purged_at < $1 LIMIT 1", args![before]).await?;
    match old {
        Some(_) => db.exec("DELETE FROM cache_purges WHERE purged_at < $1", args![before]).await,
        None => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Part;
    use gateway_core::access::Plan;
    use gateway_core::accounts::OrgSettings;

    const KEY: CacheKey = CacheKey([7; 32]);
    const OTHER: CacheKey = CacheKey([8; 32]);

    /// A database with these purges. Its file lives as long as the directory.
    async fn purged(scopes: &[PurgeScope]) -> (Db, OrgId, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(&format!("sqlite://{}/gateway.db", directory.path().display())).await.unwrap();
        db.migrate(Part::State, Timestamp(0)).await.unwrap();
        let org = "01890000-0000-7000-8000-000000000001".parse().unwrap();
        let mut tx = db.begin().await.unwrap();
        let new = crate::orgs::Org {
            id: org,
            slug: "acme".into(),
            name: "Acme".into(),
            plan: Plan::Free,
            settings: OrgSettings::default(),
            created_at: Timestamp(0),
        };
        crate::orgs::insert(&mut tx, &new).await.unwrap();
        for (number, scope) in scopes.iter().enumerate() {
            record(&mut tx, org, scope, &format!("m{number}"), Timestamp(0)).await.unwrap();
        }
        tx.commit().await.unwrap();
        (db, org, directory)
    }

    #[test]
    fn a_purge_changes_the_generation_of_what_it_affects_and_of_nothing_else() {
        let generations = |purges: &CachePurges| {
            [("n", KEY), ("n", OTHER), ("m", OTHER)].map(|(namespace, key)| purges.generation(namespace, key))
        };
        let mut purges = CachePurges::default();
        let fresh = generations(&purges);
        for (scope, affected) in [
            (PurgeScope::Entry(KEY), [true, false, false]),
            (PurgeScope::Namespace("n".into()), [true, true, false]),
            (PurgeScope::All, [true, true, true]),
        ] {
            let before = generations(&purges);
            purges.add(&scope, &format!("{scope:?}"));
            let after = generations(&purges);
            let changed: Vec<bool> =
                before.iter().zip(&after).map(|(before, after)| before != after).collect();
            assert_eq!(changed, affected, "{scope:?}");
        }
        assert!(generations(&purges).iter().all(|generation| !fresh.contains(generation)));
    }

    #[tokio::test]
    async fn purges_are_read_as_they_were_recorded() {
        let scopes = [
            PurgeScope::All,
            PurgeScope::Entry(KEY),
            PurgeScope::Namespace("a\0b".into()),
            PurgeScope::Entry(KEY),
        ];
        let (db, org, _directory) = purged(&scopes).await;
        let mut expected = CachePurges::default();
        for (number, scope) in scopes.iter().enumerate() {
            expected.add(scope, &format!("m{number}"));
        }
        assert_eq!(list(&db, org).await.unwrap(), expected);
        assert_eq!(sweep(&db, Timestamp(RETENTION)).await.unwrap(), 0);
        assert_eq!(sweep(&db, Timestamp(RETENTION + 1)).await.unwrap(), 3);
        assert_eq!(list(&db, org).await.unwrap(), CachePurges::default());
    }

    #[tokio::test]
    async fn too_many_small_purges_become_one_of_everything() {
        let scopes: Vec<PurgeScope> =
            (0..=MAX_SCOPES).map(|number| PurgeScope::Namespace(number.to_string())).collect();
        let (db, org, _directory) = purged(&scopes).await;
        let purges = list(&db, org).await.unwrap();
        assert_eq!(purges.0.len(), 1);
        assert_ne!(
            purges.generation("never purged", KEY),
            CachePurges::default().generation("never purged", KEY)
        );
    }
}
