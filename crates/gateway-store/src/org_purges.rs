//! Deleted organizations whose rows in the log database are not deleted yet. An entry is written in the transaction of
//! the deletion and removed when nothing is left. The rows themselves are deleted by `logs::purge_slice`.

use gateway_core::ids::OrgId;
use gateway_core::time::Timestamp;

use crate::leases::{Claim, Lease, LeaseTable, Release};
use crate::row::args;
use crate::{Db, StoreError, Tx};

const LEASES: LeaseTable = LeaseTable { table: "org_purges", owner: "lease", until: "leased_until" };

pub async fn enqueue(tx: &mut Tx, org: OrgId, now: Timestamp) -> Result<(), StoreError> {
    tx.exec("INSERT INTO org_purges (id, deleted_at) VALUES ($1, $2) ON CONFLICT DO NOTHING", args![org, now])
        .await
        .map(|_| ())
}

/// Claims the organization that was deleted first among those that no node works on.
pub async fn claim(db: &Db, lease: &Lease<'_>) -> Result<Option<OrgId>, StoreError> {
    let mut tx = db.begin().await?;
    let condition = format!(
        "id IN (SELECT p.id FROM org_purges p WHERE {} ORDER BY p.deleted_at LIMIT 1 {})",
        LEASES.is_free("p.", "$3"),
        tx.dialect().skip_locked("p")
    );
    let claim = Claim { condition: &condition, also_set: "", returning: "id" };
    let rows = LEASES.claim(&mut tx, lease, claim, Vec::new()).await?;
    tx.commit().await?;
    rows.first().map(|row| row.get("id")).transpose()
}

/// Extends the lease. False when the caller does not hold it any more.
pub async fn renew(db: &Db, org: OrgId, owner: &str, until: Timestamp) -> Result<bool, StoreError> {
    LEASES.renew(db, org, owner, until).await
}

/// Gives up the lease, so that another node may continue.
pub async fn release(db: &Db, org: OrgId, owner: &str) -> Result<(), StoreError> {
    let mut tx = db.begin().await?;
    LEASES.release(&mut tx, org, owner, Release::default()).await?;
    tx.commit().await
}

/// Nothing of the organization is left.
pub async fn finish(db: &Db, org: OrgId) -> Result<(), StoreError> {
    db.exec("DELETE FROM org_purges WHERE id = $1", args![org]).await.map(|_| ())
}

/// Ends every lease at start-up, when no other process works on the database.
pub async fn release_all(db: &Db) -> Result<(), StoreError> {
    LEASES.release_all(db, None).await
}
