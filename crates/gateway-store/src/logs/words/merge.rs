//! Merges runs of the search index, so that a search reads few of them, and removes deleted rows from them.

use std::collections::HashSet;

use gateway_core::word_runs::{FAN_IN, MergePlan, Run, TOP_LEVEL, decode_ids, merge_part, parts_of};
use sqlx::AssertSqlSafe;

use super::{insert, part_id};
use crate::db::Dialect;
use crate::logs::bulk::{id_list, in_ids};
use crate::row::{Arg, Row, args};
use crate::{Db, StoreError, Tx};

/// The key of the advisory lock on PostgreSQL: one node merges at a time.
const LOCK: i64 = 0x6761_7465_7761_7904;
/// Runs that one query reads, or one transaction removes.
const RUNS_AT_ONCE: i64 = 16;
/// Ids that one query looks up.
const MAX_IDS: usize = 5_000;

struct StoredRun {
    id: i64,
    level: i64,
    deleted: i64,
    ids: Vec<i64>,
}

impl StoredRun {
    const COLUMNS: &'static str = "id, level, deleted, ids";

    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.get("id")?,
            level: row.get("level")?,
            deleted: row.get("deleted")?,
            ids: decode_ids(&row.get::<Vec<u8>>("ids")?)?,
        })
    }
}

/// Where runs are read: on PostgreSQL in the transaction that holds the lock.
enum Source<'a> {
    Db(&'a Db),
    Tx(&'a mut Tx),
}

impl Source<'_> {
    fn dialect(&self) -> Dialect {
        match self {
            Self::Db(db) => db.dialect(),
            Self::Tx(tx) => tx.dialect(),
        }
    }

    async fn all(&mut self, sql: String, args: Vec<Arg>) -> Result<Vec<Row>, StoreError> {
        match self {
            Self::Db(db) => db.all(AssertSqlSafe(sql), args).await,
            Self::Tx(tx) => tx.all(AssertSqlSafe(sql), args).await,
        }
    }
}

/// Merges the runs of one level, or removes the deleted rows of one run. Returns false if there is nothing to do, or
/// another node does it.
pub async fn merge_runs(logs: &Db) -> Result<bool, StoreError> {
    match logs.dialect() {
        // The runs are read before the write lock is taken: batches of new rows wait only until the new run is written.
        Dialect::Sqlite => {
            let Some(merge) = Merge::prepare(&mut Source::Db(logs)).await? else { return Ok(false) };
            let mut tx = logs.begin().await?;
            merge.write(&mut tx).await?;
            tx.commit().await?;
        }
        Dialect::Postgres => {
            let mut tx = logs.begin().await?;
            let sql = "SELECT CAST(CAST(pg_try_advisory_xact_lock($1) AS INTEGER) AS BIGINT) AS held";
            let row = tx.opt(sql, args![LOCK]).await?;
            if row.map_or(Ok(0), |row| row.get::<i64>("held"))? == 0 {
                return Ok(false);
            }
            let Some(merge) = Merge::prepare(&mut Source::Tx(&mut tx)).await? else { return Ok(false) };
            merge.write(&mut tx).await?;
            tx.commit().await?;
        }
    }
    Ok(true)
}

/// Runs and what replaces them.
struct Merge {
    old: Vec<StoredRun>,
    /// The new run with its level. None if all rows were deleted.
    new: Option<(Run, i64)>,
}

impl Merge {
    async fn prepare(source: &mut Source<'_>) -> Result<Option<Self>, StoreError> {
        let old = due_runs(source).await?;
        if old.is_empty() {
            return Ok(None);
        }
        match merge(source, &old).await? {
            Merged::Run(run, level) => Ok(Some(Self { old, new: Some((run, level)) })),
            Merged::Empty => Ok(Some(Self { old, new: None })),
            Merged::PartMissing if all_exist(source, &old).await? => {
                Err(StoreError::Other("the search index is damaged: a part of a run is missing".into()))
            }
            // A merge or a sweep at the same time removed a run.
            Merged::PartMissing => Ok(None),
        }
    }

    async fn write(self, tx: &mut Tx) -> Result<(), StoreError> {
        // Rows may have been deleted meanwhile. Then the next call reads the runs again.
        for run in &self.old {
            let sql = "SELECT id FROM log_word_runs WHERE id = $1 AND deleted = $2";
            if tx.opt(sql, args![run.id, run.deleted]).await?.is_none() {
                return Ok(());
            }
        }
        for run in &self.old {
            remove(tx, run.id).await?;
        }
        match self.new {
            Some((run, level)) => insert(tx, run, level).await,
            None => Ok(()),
        }
    }
}

/// What replaces some runs.
enum Merged {
    /// A run with its level.
    Run(Run, i64),
    /// All rows of the runs were deleted.
    Empty,
    PartMissing,
}

async fn due_runs(source: &mut Source<'_>) -> Result<Vec<StoredRun>, StoreError> {
    let columns = StoredRun::COLUMNS;
    let full = "SELECT level FROM log_word_runs WHERE level < $1 GROUP BY level HAVING COUNT(*) >= $2 \
                ORDER BY level LIMIT 1";
    let fan_in = i64::try_from(FAN_IN).unwrap_or(i64::MAX);
    let found = source.all(full.into(), args![TOP_LEVEL, fan_in]).await?;
    let rows = if let Some(row) = found.first() {
        // Neighbours in time: a search of a range of time reads few runs.
        let sql = format!("SELECT {columns} FROM log_word_runs WHERE level = $1 ORDER BY last_id LIMIT $2");
        source.all(sql, args![row.get::<i64>("level")?, fan_in]).await?
    } else {
        let sql = format!("SELECT {columns} FROM log_word_runs WHERE deleted * 2 >= row_count LIMIT 1");
        source.all(sql, Vec::new()).await?
    };
    rows.iter().map(StoredRun::read).collect()
}

async fn merge(source: &mut Source<'_>, old: &[StoredRun]) -> Result<Merged, StoreError> {
    let level = old.first().map_or(0, |run| run.level);
    let deleted = deleted_rows(source, old).await?;
    let ids: Vec<Vec<i64>> = old.iter().map(|run| run.ids.clone()).collect();
    let plan = MergePlan::new(&ids, level, &deleted)
        .ok_or_else(|| StoreError::Other("merged runs of words have too many rows".into()))?;
    if plan.ids.is_empty() {
        return Ok(Merged::Empty);
    }
    let mut parts = Vec::new();
    let sql = format!("SELECT id, postings FROM log_word_parts WHERE {}", in_ids(source.dialect(), "id", 1));
    for part in 0..parts_of(level) {
        let wanted: Vec<i64> = old.iter().map(|run| part_id(run.id, part)).collect();
        let rows = source.all(sql.clone(), args![id_list(wanted.iter().copied())]).await?;
        if rows.len() < wanted.len() {
            return Ok(Merged::PartMissing);
        }
        let mut old_parts = vec![Vec::new(); old.len()];
        for row in rows {
            let id: i64 = row.get("id")?;
            if let Some(place) =
                wanted.iter().position(|wanted| *wanted == id).and_then(|at| old_parts.get_mut(at))
            {
                *place = row.get("postings")?;
            }
        }
        parts.extend(merge_part(&plan, &old_parts)?);
    }
    Ok(Merged::Run(Run { ids: plan.ids, parts }, plan.level))
}

async fn all_exist(source: &mut Source<'_>, runs: &[StoredRun]) -> Result<bool, StoreError> {
    let sql = format!("SELECT id FROM log_word_runs WHERE {}", in_ids(source.dialect(), "id", 1));
    let found = source.all(sql, args![id_list(runs.iter().map(|run| run.id))]).await?;
    Ok(found.len() == runs.len())
}

/// The rows of the runs that do not exist any more.
async fn deleted_rows(source: &mut Source<'_>, runs: &[StoredRun]) -> Result<HashSet<i64>, StoreError> {
    let mut deleted: HashSet<i64> =
        runs.iter().filter(|run| run.deleted > 0).flat_map(|run| run.ids.iter().copied()).collect();
    let sql = format!("SELECT id FROM log_rows WHERE {}", in_ids(source.dialect(), "id", 1));
    let all: Vec<i64> = deleted.iter().copied().collect();
    for ids in all.chunks(MAX_IDS) {
        for row in source.all(sql.clone(), args![id_list(ids.iter().copied())]).await? {
            deleted.remove(&row.get("id")?);
        }
    }
    Ok(deleted)
}

async fn remove(tx: &mut Tx, run: i64) -> Result<(), StoreError> {
    tx.exec("DELETE FROM log_word_runs WHERE id = $1", args![run]).await?;
    let parts = "DELETE FROM log_word_parts WHERE id >= $1 AND id < $2";
    tx.exec(parts, args![part_id(run, 0), part_id(run + 1, 0)]).await.map(|_| ())
}

/// How many of some rows are in each run that has any. The rows are about to be deleted; their ids are in ascending order.
/// A merge in between makes the count too small: such a run is removed by its age.
pub(in crate::logs) async fn count_rows(logs: &Db, ids: &[i64]) -> Result<Vec<(i64, i64)>, StoreError> {
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else { return Ok(Vec::new()) };
    let sql = format!(
        "SELECT {} FROM log_word_runs WHERE first_id <= $1 AND last_id >= $2 AND id > $3 ORDER BY id LIMIT $4",
        StoredRun::COLUMNS
    );
    let (mut counts, mut after) = (Vec::new(), 0_i64);
    loop {
        let runs = logs.all(AssertSqlSafe(sql.clone()), args![*last, *first, after, RUNS_AT_ONCE]).await?;
        for run in &runs {
            let run = StoredRun::read(run)?;
            after = run.id;
            let found = run.ids.iter().filter(|id| ids.binary_search(id).is_ok()).count();
            if found > 0 {
                counts.push((run.id, i64::try_from(found).unwrap_or(i64::MAX)));
            }
        }
        if i64::try_from(runs.len()).is_ok_and(|found| found < RUNS_AT_ONCE) {
            return Ok(counts);
        }
    }
}

/// Records deleted rows that `count_rows` counted, in the transaction that deletes them.
pub(in crate::logs) async fn note_deleted(tx: &mut Tx, counts: &[(i64, i64)]) -> Result<(), StoreError> {
    for (run, rows) in counts {
        let sql = "UPDATE log_word_runs SET deleted = deleted + $2 WHERE id = $1 \
                   RETURNING row_count - deleted AS kept";
        let kept = tx.opt(sql, args![*run, *rows]).await?;
        if kept.map(|row| row.get::<i64>("kept")).transpose()?.is_some_and(|kept| kept <= 0) {
            remove(tx, *run).await?;
        }
    }
    Ok(())
}

/// Removes runs whose rows are all older than this id, a limited number. Returns how many.
pub(in crate::logs) async fn remove_before(logs: &Db, end: i64) -> Result<u64, StoreError> {
    let sql = "SELECT id FROM log_word_runs WHERE last_id < $1 LIMIT $2";
    let old = logs.all(sql, args![end, RUNS_AT_ONCE]).await?;
    if old.is_empty() {
        return Ok(0);
    }
    let mut tx = logs.begin().await?;
    for run in &old {
        remove(&mut tx, run.get("id")?).await?;
    }
    tx.commit().await?;
    Ok(old.len() as u64)
}
