//! Leases on rows: a node claims a row for a time, renews the lease while it works, and releases the row at the end.
//! The row of a node that died becomes free when its lease expires.
//!
//! Jobs, webhook deliveries and exports use these functions. The node ids of a cluster have leases as well, but those
//! are measured by the clock of the database server (`cluster::node_ids`).

use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::row::{Arg, Row, args};
use crate::{Db, StoreError, Tx};

/// A lease that a node asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease<'a> {
    /// Unique per holder, so that a lease that was lost is not mistaken for a current one.
    pub owner: &'a str,
    pub now: Timestamp,
    pub until: Timestamp,
}

/// Where a table keeps the leases of its rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseTable {
    pub table: &'static str,
    /// The column with the holder of the lease.
    pub owner: &'static str,
    /// The column with the end of the lease.
    pub until: &'static str,
}

/// Which rows to claim and what to return of them. In all parts, `$1` is the owner, `$2` the end of the lease and `$3`
/// the current time; the caller's own parameters begin with `$4`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'a> {
    /// A condition on the table's rows.
    pub condition: &'a str,
    /// More assignments, each with a leading comma.
    pub also_set: &'a str,
    pub returning: &'a str,
}

/// How a row is left behind.
#[derive(Debug, Default)]
pub(crate) struct Release<'a> {
    /// When the row may be claimed again; none for at once.
    pub free_at: Option<Timestamp>,
    /// More assignments, each with a leading comma; their parameters begin with `$4`.
    pub also_set: &'a str,
    pub values: Vec<Arg>,
}

impl LeaseTable {
    /// The condition that the row is not leased at the time in parameter `now`.
    pub(crate) fn is_free(self, alias: &str, now: &str) -> String {
        let until = self.until;
        format!("({alias}{until} IS NULL OR {alias}{until} <= {now})")
    }

    /// Leases the rows that match; returns them.
    pub(crate) async fn claim(
        self,
        tx: &mut Tx,
        lease: &Lease<'_>,
        claim: Claim<'_>,
        values: Vec<Arg>,
    ) -> Result<Vec<Row>, StoreError> {
        let sql = self.claim_sql(claim);
        let mut all = args![lease.owner, lease.until, lease.now];
        all.extend(values);
        tx.all(AssertSqlSafe(sql), all).await
    }

    /// Extends the lease. False when the caller does not hold it any more.
    pub(crate) async fn renew(
        self,
        db: &Db,
        id: impl Into<Arg>,
        owner: &str,
        until: Timestamp,
    ) -> Result<bool, StoreError> {
        let Self { table, owner: holder, until: end } = self;
        let sql = format!("UPDATE {table} SET {end} = $3 WHERE id = $1 AND {holder} = $2");
        Ok(db.exec(AssertSqlSafe(sql), args![id.into(), owner, until]).await? == 1)
    }

    /// Gives up the lease. False when the caller does not hold it any more.
    pub(crate) async fn release(
        self,
        tx: &mut Tx,
        id: impl Into<Arg>,
        owner: &str,
        release: Release<'_>,
    ) -> Result<bool, StoreError> {
        let Self { table, owner: holder, until } = self;
        let Release { free_at, also_set, values } = release;
        let sql = format!(
            "UPDATE {table} SET {holder} = NULL, {until} = $3{also_set} WHERE id = $1 AND {holder} = $2"
        );
        let mut all = args![id.into(), owner, free_at];
        all.extend(values);
        Ok(tx.exec(AssertSqlSafe(sql), all).await? == 1)
    }

    /// Ends every lease. For a database that only one process uses: at start-up, all leases are stale.
    pub(crate) async fn release_all(self, db: &Db, free_at: Option<Timestamp>) -> Result<(), StoreError> {
        let Self { table, owner, until } = self;
        let sql = format!("UPDATE {table} SET {owner} = NULL, {until} = $1 WHERE {owner} IS NOT NULL");
        db.exec(AssertSqlSafe(sql), args![free_at]).await.map(|_| ())
    }

    fn claim_sql(self, claim: Claim<'_>) -> String {
        let Self { table, owner, until } = self;
        let Claim { condition, also_set, returning } = claim;
        format!(
            "UPDATE {table} SET {owner} = $1, {until} = $2{also_set} WHERE {condition} RETURNING {returning}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THINGS: LeaseTable = LeaseTable { table: "things", owner: "lease", until: "leased_until" };

    async fn things() -> Db {
        let db = Db::open("sqlite://:memory:").await.unwrap();
        let mut tx = db.begin().await.unwrap();
        tx.script(
            "CREATE TABLE things (id BIGINT PRIMARY KEY, lease TEXT, leased_until BIGINT); INSERT INTO things (id) VALUES (1)"
                .into(),
        )
        .await
        .unwrap();
        tx.commit().await.unwrap();
        db
    }

    async fn claim(db: &Db, owner: &str, now: i64) -> bool {
        let lease = Lease { owner, now: Timestamp(now), until: Timestamp(now + 10) };
        let condition = format!("id = $4 AND {}", THINGS.is_free("", "$3"));
        let claim = Claim { condition: &condition, also_set: "", returning: "id" };
        let mut tx = db.begin().await.unwrap();
        let rows = THINGS.claim(&mut tx, &lease, claim, args![1_i64]).await.unwrap();
        tx.commit().await.unwrap();
        rows.len() == 1
    }

    async fn release(db: &Db, owner: &str, free_at: Option<Timestamp>) -> bool {
        let mut tx = db.begin().await.unwrap();
        let release = Release { free_at, ..Release::default() };
        let released = THINGS.release(&mut tx, 1_i64, owner, release).await.unwrap();
        tx.commit().await.unwrap();
        released
    }

    #[tokio::test]
    async fn a_lease_has_one_owner_until_it_expires_or_is_released() {
        let db = things().await;
        assert!(claim(&db, "a", 0).await);
        assert!(!claim(&db, "b", 9).await, "held by a");
        assert!(THINGS.renew(&db, 1_i64, "a", Timestamp(20)).await.unwrap());
        assert!(!claim(&db, "b", 19).await, "renewed by a");
        assert!(claim(&db, "b", 20).await, "expired");
        assert!(!THINGS.renew(&db, 1_i64, "a", Timestamp(99)).await.unwrap(), "lost by a");
        assert!(!release(&db, "a", None).await, "not a's to release");
        assert!(release(&db, "b", None).await);
        assert!(claim(&db, "c", 21).await, "free at once");
        assert!(release(&db, "c", Some(Timestamp(50))).await);
        assert!(!claim(&db, "d", 49).await, "free only later");
        assert!(claim(&db, "d", 50).await);
        THINGS.release_all(&db, None).await.unwrap();
        assert!(claim(&db, "e", 51).await);
    }

    #[test]
    fn a_claim_is_one_statement_for_both_databases() {
        let claim = Claim { condition: "id = $4", also_set: ", tries = tries + 1", returning: "id" };
        assert_eq!(
            THINGS.claim_sql(claim),
            "UPDATE things SET lease = $1, leased_until = $2, tries = tries + 1 WHERE id = $4 RETURNING id"
        );
        assert_eq!(THINGS.is_free("t.", "$3"), "(t.leased_until IS NULL OR t.leased_until <= $3)");
    }
}
