//! API keys. Only hashes are stored; the caller sees the raw key once.

use gateway_core::access::Role;
use gateway_core::accounts::KeyHash;
use gateway_core::ids::{AppId, KeyId, OrgId, TeamId, UserId};
use gateway_core::scopes::Scopes;
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::accounts::TEAM_OF_MEMBER;
use crate::db::Dialect;
use crate::page::{Page, Paged};
use crate::row::{Arg, args};
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

table! {
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Key in "api_keys" {
        pub id: KeyId [key],
        pub org_id: OrgId [key],
        pub app_id: Option<AppId>,
        pub name: String,
        pub key_prefix: String [once],
        pub scopes: Scopes [json],
        /// The upper bound of a full-scope key's permissions: the role of its creator.
        pub role: Role,
        /// The class whose reserved share of limits its calls may use.
        pub class: Option<String>,
        /// How long its calls wait for their limits if they do not say it.
        pub wait_ms: Option<i64>,
        /// The highest priority that its calls may ask for.
        pub max_priority: Option<i64>,
        /// The user or key that created it.
        pub created_by: Option<String> [once],
        pub created_at: Timestamp [once],
        pub expires_at: Option<Timestamp>,
        pub revoked_at: Option<Timestamp>,
        pub last_used_at: Option<Timestamp> [once],
    }
}

impl Key {
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

pub async fn insert(tx: &mut Tx, key: &Key, hash: KeyHash) -> Result<(), StoreError> {
    table::insert(tx, key, vec![("hash", hash.into())]).await
}

/// Newest first.
pub async fn list(db: &Db, org: OrgId, page: &Page) -> Result<Paged<Key>, StoreError> {
    let sql = Key::select("org_id = $1 AND ($2 IS NULL OR id < $2) ORDER BY id DESC LIMIT $3");
    let rows = db.all(sql, args![org, page.before.clone(), page.fetch()]).await?;
    Ok(page.cut(table::read_all::<Key>(&rows)?, |key| key.id.to_string()))
}

pub async fn find(db: &Db, org: OrgId, id: KeyId) -> Result<Option<Key>, StoreError> {
    let row = db.opt(Key::select("org_id = $1 AND id = $2"), args![org, id]).await?;
    table::read_opt(row.as_ref())
}

/// Reads the key inside a transaction. `find_for_update` locks it.
pub async fn find_in_tx(tx: &mut Tx, org: OrgId, id: KeyId) -> Result<Option<Key>, StoreError> {
    let row = tx.opt(Key::select("org_id = $1 AND id = $2"), args![org, id]).await?;
    table::read_opt(row.as_ref())
}

/// Locks the key until the transaction ends; returns it with its hash.
pub async fn find_for_update(
    tx: &mut Tx,
    org: OrgId,
    id: KeyId,
) -> Result<Option<(Key, KeyHash)>, StoreError> {
    let mut sql = Key::select_for_update("org_id = $1 AND id = $2");
    sql.0.push_str(", hash");
    let row = tx.opt(sql, args![org, id]).await?;
    row.map(|row| Ok((Key::from_row(&row)?, row.get("hash")?))).transpose()
}

pub async fn update(tx: &mut Tx, key: &Key) -> Result<(), StoreError> {
    table::update(tx, key, vec![], "").await.map(|_| ())
}

/// The number of keys that are valid, or ended after this time.
pub async fn count_not_ended_before(tx: &mut Tx, org: OrgId, since: Timestamp) -> Result<i64, StoreError> {
    let sql = "SELECT COUNT(*) AS n FROM api_keys WHERE org_id = $1 AND (revoked_at IS NULL OR revoked_at > $2) \
               AND (expires_at IS NULL OR expires_at > $2)";
    tx.opt(sql, args![org, since]).await?.map_or(Ok(0), |row| row.get("n"))
}

/// The keys that a user created, and those created by such keys. `made` has the ids of their creators.
const MADE_BY: &str = "WITH RECURSIVE made (id) AS (SELECT CAST($2 AS TEXT) UNION \
    SELECT k.id FROM api_keys k JOIN made ON k.created_by = made.id WHERE k.org_id = $1)";

/// The keys that a user created, directly or by another key, also those that are no longer valid.
pub async fn made_by(db: &Db, org: OrgId, user: UserId) -> Result<Vec<KeyId>, StoreError> {
    let sql =
        format!("{MADE_BY} SELECT k.id FROM api_keys k JOIN made ON made.id = k.id WHERE k.org_id = $1");
    let rows = db.all(AssertSqlSafe(sql), args![org, user]).await?;
    rows.iter().map(|row| row.get("id")).collect()
}

/// The number of valid keys that a user or key created, directly or by another key.
pub async fn count_valid_made_by(
    tx: &mut Tx,
    org: OrgId,
    creator: &str,
    now: Timestamp,
) -> Result<i64, StoreError> {
    let sql = format!(
        "{MADE_BY} SELECT COUNT(*) AS n FROM api_keys k JOIN made ON made.id = k.id WHERE k.org_id = $1 \
         AND k.id <> $2 AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $3)"
    );
    let row = tx.opt(AssertSqlSafe(sql), args![org, creator, now]).await?;
    row.map_or(Ok(0), |row| row.get("n"))
}

/// Revokes the keys that a user created, directly or by another key, and that belong to no application. Returns them.
pub async fn revoke_made_by(
    tx: &mut Tx,
    org: OrgId,
    user: UserId,
    now: Timestamp,
) -> Result<Vec<Key>, StoreError> {
    let sql = format!(
        "{MADE_BY} UPDATE api_keys SET revoked_at = $3 WHERE org_id = $1 AND id IN (SELECT id FROM made) \
         AND revoked_at IS NULL AND app_id IS NULL RETURNING {}",
        Key::columns("")
    );
    table::read_all(&tx.all(AssertSqlSafe(sql), args![org, user, now]).await?)
}

/// Limits the role of the keys that a user created, directly or by another key. Returns the number of changed keys.
pub async fn cap_made_by(tx: &mut Tx, org: OrgId, user: UserId, role: Role) -> Result<u64, StoreError> {
    let mut changed = 0;
    for above in Role::ALL.iter().copied().filter(|above| *above > role) {
        let sql = format!(
            "{MADE_BY} UPDATE api_keys SET role = $4 WHERE org_id = $1 AND id IN (SELECT id FROM made) AND role = $3"
        );
        changed += tx.exec(AssertSqlSafe(sql), args![org, user, above, role]).await?;
    }
    Ok(changed)
}

/// Deletes the invitations that a user made, directly or by a key, for roles that `may_stay` does not hold for.
pub async fn withdraw_invites_of(
    tx: &mut Tx,
    org: OrgId,
    user: UserId,
    may_stay: impl Fn(Role) -> bool,
) -> Result<u64, StoreError> {
    let mut deleted = 0;
    for role in Role::ALL.iter().copied().filter(|role| !may_stay(*role)) {
        let sql = format!(
            "{MADE_BY} DELETE FROM invites WHERE org_id = $1 AND role = $3 AND invited_by IN (SELECT id FROM made)"
        );
        deleted += tx.exec(AssertSqlSafe(sql), args![org, user, role]).await?;
    }
    Ok(deleted)
}

/// What the request path needs to know about a key.
#[derive(Debug, Clone)]
pub struct KeyAccess {
    pub key: Key,
    pub team_id: Option<TeamId>,
}

pub async fn find_access(db: &Db, hash: KeyHash) -> Result<Option<KeyAccess>, StoreError> {
    read_access(db, "k.hash = $1", args![hash]).await
}

/// What its calls count for, of a key that is known by its id.
pub async fn find_access_by_id(db: &Db, org: OrgId, id: KeyId) -> Result<Option<KeyAccess>, StoreError> {
    read_access(db, "k.org_id = $1 AND k.id = $2", args![org, id]).await
}

/// The team is that of the application. A key with the rights of a member or less counts for the team of the member who
/// made it, directly or by another key, unless its application has a team: a new key is no way around a team's budget.
async fn read_access(db: &Db, is_it: &str, args: Vec<Arg>) -> Result<Option<KeyAccess>, StoreError> {
    let sql = format!(
        "WITH RECURSIVE made (id, by) AS (SELECT k.id, k.created_by FROM api_keys k WHERE {is_it} UNION \
         SELECT p.id, p.created_by FROM api_keys p JOIN made ON p.id = made.by) \
         SELECT {}, COALESCE(a.team_id, (SELECT ({TEAM_OF_MEMBER}) FROM memberships m \
         WHERE k.role IN ('member', 'viewer') AND m.org_id = k.org_id \
         AND m.user_id IN (SELECT by FROM made) LIMIT 1)) AS team_id \
         FROM api_keys k LEFT JOIN apps a ON a.id = k.app_id WHERE {is_it}",
        Key::columns("k.")
    );
    let row = db.opt(AssertSqlSafe(sql), args).await?;
    row.map(|row| Ok(KeyAccess { key: Key::from_row(&row)?, team_id: row.get("team_id")? })).transpose()
}

/// Keys in one statement.
const MAX_TOUCHED: usize = 500;

/// Records when keys were last used, with one statement for many keys. Called in batches, off the request path.
pub async fn touch(db: &Db, used: &[(KeyId, Timestamp)]) -> Result<(), StoreError> {
    let list = match db.dialect() {
        Dialect::Sqlite => "SELECT value ->> 0 AS id, value ->> 1 AS at FROM json_each($1)",
        Dialect::Postgres => {
            "SELECT value ->> 0 AS id, CAST(value ->> 1 AS BIGINT) AS at \
             FROM json_array_elements(CAST($1 AS JSON)) AS u(value)"
        }
    };
    let sql = format!(
        "UPDATE api_keys SET last_used_at = used.at FROM ({list}) used \
         WHERE api_keys.id = used.id AND COALESCE(last_used_at, 0) < used.at"
    );
    for used in used.chunks(MAX_TOUCHED) {
        let pairs: Vec<(String, i64)> = used.iter().map(|(id, at)| (id.to_string(), at.0)).collect();
        let list = serde_json::to_string(&pairs).unwrap_or_default();
        db.exec(AssertSqlSafe(sql.clone()), args![list]).await?;
    }
    Ok(())
}
