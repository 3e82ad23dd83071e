//! The search index of log rows: runs (`gateway_core::word_runs`). A batch of rows adds a run in its transaction, so that
//! its rows are found as soon as they are stored. Runs are merged later.

mod merge;
mod search;

pub use merge::merge_runs;
pub(super) use merge::{count_rows, note_deleted, remove_before};
pub(super) use search::{IdRange, WordSearch};

use std::sync::LazyLock;

use gateway_core::word_runs::{Malformed, Run, encode_ids, level_of};

use super::bulk::Bulk;
use crate::row::args;
use crate::{StoreError, Tx};

/// The lowest bits of a part's id are its number in the run.
const PART_BITS: u32 = 8;

static PARTS: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::new("INSERT INTO log_word_parts (id, postings)", "(?, ?)", ""));

impl From<Malformed> for StoreError {
    fn from(error: Malformed) -> Self {
        Self::Other(error.to_string())
    }
}

/// The id of a part.
fn part_id(run: i64, part: usize) -> i64 {
    run << PART_BITS | i64::try_from(part).unwrap_or_default()
}

pub(super) async fn add(tx: &mut Tx, run: Run) -> Result<(), StoreError> {
    let level = level_of(run.ids.len());
    insert(tx, run, level).await
}

async fn insert(tx: &mut Tx, run: Run, level: i64) -> Result<(), StoreError> {
    let (Some(first), Some(last)) = (run.ids.first(), run.ids.last()) else { return Ok(()) };
    let rows = i64::try_from(run.ids.len()).unwrap_or(i64::MAX);
    let sql = "INSERT INTO log_word_runs (level, row_count, deleted, first_id, last_id, ids) \
               VALUES ($1, $2, 0, $3, $4, $5) RETURNING id";
    let row = tx.opt(sql, args![level, rows, *first, *last, encode_ids(&run.ids)]).await?;
    let id: i64 = row.ok_or_else(|| StoreError::Other("a run of words has no id".into()))?.get("id")?;
    let parts: Vec<(usize, Vec<u8>)> = run.parts.into_iter().enumerate().collect();
    PARTS.run(tx, parts.into_iter().map(|(part, postings)| args![part_id(id, part), postings])).await
}
