//! What is installed from a selection of skills: the list for the indexes, and the objects of the git repository. The
//! objects are kept as packs have them, so that a fetch only concatenates them.

use gateway_core::git::{Object, ObjectKind, Oid};
use gateway_core::ids::OrgId;
use gateway_core::skills::install::Listing;
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::row::{Row, args, json};
use crate::{Db, StoreError, Tx};

/// Objects that one statement reads.
const BATCH: usize = 200;

#[derive(Debug, Clone, PartialEq)]
pub struct InstallTree {
    /// Identifies the versions that it was built from.
    pub fingerprint: String,
    pub listing: Listing,
    /// The newest commit, and its tree. None before the first one.
    pub head: Option<Oid>,
    pub root: Option<Oid>,
    pub commits: i64,
    /// What the objects take.
    pub bytes: i64,
}

/// An organization's tree: `passed`, `shelf`, or the id of a link.
#[derive(Debug, Clone, Copy)]
pub struct TreeKey<'a> {
    pub org: OrgId,
    pub selection: &'a str,
}

const SELECT: &str = "SELECT fingerprint, listing, head, root, commits, bytes FROM install_trees \
                      WHERE org_id = $1 AND selection = $2";

pub async fn find(db: &Db, key: TreeKey<'_>) -> Result<Option<InstallTree>, StoreError> {
    db.opt(SELECT, args![key.org, key.selection]).await?.as_ref().map(read).transpose()
}

/// Locks the tree until the transaction ends. Inserts an empty one if there is none, so that two nodes never begin two
/// histories. None when the organization does not exist any more.
pub async fn find_or_insert_for_update(
    tx: &mut Tx,
    key: TreeKey<'_>,
    now: Timestamp,
) -> Result<Option<InstallTree>, StoreError> {
    tx.exec(
        "INSERT INTO install_trees (org_id, selection, fingerprint, listing, head, root, commits, bytes, updated_at) \
         SELECT o.id, $2, '', $3, '', '', 0, 0, $4 FROM orgs o WHERE o.id = $1 \
         ON CONFLICT (org_id, selection) DO UPDATE SET updated_at = install_trees.updated_at",
        args![key.org, key.selection, json(&Listing::default()), now],
    )
    .await?;
    tx.opt(SELECT, args![key.org, key.selection]).await?.as_ref().map(read).transpose()
}

/// Replaces a locked tree.
pub async fn update(
    tx: &mut Tx,
    key: TreeKey<'_>,
    tree: &InstallTree,
    now: Timestamp,
) -> Result<(), StoreError> {
    let InstallTree { fingerprint, listing, head, root, commits, bytes } = tree;
    tx.exec(
        "UPDATE install_trees SET fingerprint = $3, listing = $4, head = $5, root = $6, commits = $7, bytes = $8, \
         updated_at = $9 WHERE org_id = $1 AND selection = $2",
        args![
            key.org,
            key.selection,
            fingerprint,
            json(listing),
            head.map(|oid| oid.to_string()).unwrap_or_default(),
            root.map(|oid| oid.to_string()).unwrap_or_default(),
            *commits,
            *bytes,
            now
        ],
    )
    .await
    .map(|_| ())
}

/// The ids and kinds of all objects.
pub async fn object_ids(db: &Db, key: TreeKey<'_>) -> Result<Vec<(Oid, ObjectKind)>, StoreError> {
    let rows = db
        .all(
            "SELECT oid, kind FROM install_objects WHERE org_id = $1 AND selection = $2",
            args![key.org, key.selection],
        )
        .await?;
    rows.iter().map(|row| Ok((oid(row, "oid")?, kind(row)?))).collect()
}

/// What all commits and directories take in memory, compressed and not.
pub async fn history_bytes(db: &Db, key: TreeKey<'_>) -> Result<usize, StoreError> {
    let row = db
        .opt(
            "SELECT CAST(COALESCE(SUM(size + LENGTH(data)), 0) AS BIGINT) AS total FROM install_objects \
             WHERE org_id = $1 AND selection = $2 AND kind < 3",
            args![key.org, key.selection],
        )
        .await?;
    let bytes: i64 = row.map_or(Ok(0), |row| row.get("total"))?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// All commits and directories.
pub async fn history(db: &Db, key: TreeKey<'_>) -> Result<Vec<Object>, StoreError> {
    let rows = db
        .all(
            "SELECT oid, kind, size, data FROM install_objects WHERE org_id = $1 AND selection = $2 AND kind < 3",
            args![key.org, key.selection],
        )
        .await?;
    rows.iter().map(read_object).collect()
}

/// The bytes that these objects take in a pack.
pub async fn objects_bytes(db: &Db, key: TreeKey<'_>, ids: &[Oid]) -> Result<usize, StoreError> {
    let mut total = 0;
    for ids in ids.chunks(BATCH) {
        let (places, parameters) = places(key, ids);
        let sql = format!(
            "SELECT CAST(COALESCE(SUM(LENGTH(data)), 0) AS BIGINT) AS total FROM install_objects \
             WHERE org_id = $1 AND selection = $2 AND oid IN ({places})"
        );
        let row = db.opt(AssertSqlSafe(sql), parameters).await?;
        let bytes: i64 = row.map_or(Ok(0), |row| row.get("total"))?;
        total += usize::try_from(bytes).unwrap_or(0);
    }
    Ok(total)
}

pub async fn objects(db: &Db, key: TreeKey<'_>, ids: &[Oid]) -> Result<Vec<Object>, StoreError> {
    let mut objects = Vec::with_capacity(ids.len());
    for ids in ids.chunks(BATCH) {
        let (places, parameters) = places(key, ids);
        let sql = format!(
            "SELECT oid, kind, size, data FROM install_objects WHERE org_id = $1 AND selection = $2 \
             AND oid IN ({places})"
        );
        for row in db.all(AssertSqlSafe(sql), parameters).await? {
            objects.push(read_object(&row)?);
        }
    }
    Ok(objects)
}

pub async fn insert_object(tx: &mut Tx, key: TreeKey<'_>, object: &Object) -> Result<(), StoreError> {
    let Object { oid, kind, size, data } = object;
    tx.exec(
        "INSERT INTO install_objects (org_id, selection, oid, kind, size, data) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (org_id, selection, oid) DO NOTHING",
        args![
            key.org,
            key.selection,
            oid.to_string(),
            i64::from(kind.number()),
            i64::try_from(*size).unwrap_or(i64::MAX),
            data.clone()
        ],
    )
    .await
    .map(|_| ())
}

/// Deletes all objects, for a history that begins again.
pub async fn delete_objects(tx: &mut Tx, key: TreeKey<'_>) -> Result<(), StoreError> {
    tx.exec("DELETE FROM install_objects WHERE org_id = $1 AND selection = $2", args![key.org, key.selection])
        .await
        .map(|_| ())
}

fn places(key: TreeKey<'_>, ids: &[Oid]) -> (String, Vec<crate::row::Arg>) {
    let places: Vec<String> = (3..3 + ids.len()).map(|number| format!("${number}")).collect();
    let mut parameters = args![key.org, key.selection];
    parameters.extend(ids.iter().map(|oid| oid.to_string().into()));
    (places.join(", "), parameters)
}

fn read(row: &Row) -> Result<InstallTree, StoreError> {
    Ok(InstallTree {
        fingerprint: row.get("fingerprint")?,
        listing: row.json("listing")?,
        head: optional_oid(row, "head")?,
        root: optional_oid(row, "root")?,
        commits: row.get("commits")?,
        bytes: row.get("bytes")?,
    })
}

fn read_object(row: &Row) -> Result<Object, StoreError> {
    let size: i64 = row.get("size")?;
    Ok(Object {
        oid: oid(row, "oid")?,
        kind: kind(row)?,
        size: usize::try_from(size).unwrap_or(0),
        data: row.get("data")?,
    })
}

fn oid(row: &Row, column: &'static str) -> Result<Oid, StoreError> {
    let text: String = row.get(column)?;
    text.parse().map_err(|error| StoreError::Other(format!("column {column}: {error}")))
}

/// Empty for none.
fn optional_oid(row: &Row, column: &'static str) -> Result<Option<Oid>, StoreError> {
    if row.get::<String>(column)?.is_empty() { Ok(None) } else { oid(row, column).map(Some) }
}

fn kind(row: &Row) -> Result<ObjectKind, StoreError> {
    let number: i64 = row.get("kind")?;
    ObjectKind::from_number(number)
        .ok_or_else(|| StoreError::Other(format!("an object has the unknown kind {number}")))
}
