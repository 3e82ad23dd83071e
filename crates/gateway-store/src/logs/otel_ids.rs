//! Spans of others on their way in. A span's id is made from the span, so that one that is sent twice is one row; where two
//! different spans come upon the same id, the later one moves on to the next.

use std::borrow::Cow;
use std::collections::HashMap;

use gateway_core::logs::{LOG_ID_LOW_BITS, LogRow, LogSource};
use gateway_core::otlp::next_log_id;
use sqlx::AssertSqlSafe;

use super::bulk::{id_list, in_ids};
use crate::row::args;
use crate::{StoreError, Tx};

/// How far a span moves at most.
const STEPS: usize = 512;
const FARTHEST_MS: i64 = 8;

/// The first and the last id that a row may come to have.
pub(super) fn possible_ids(row: &LogRow) -> [i64; 2] {
    let moves = if row.source == LogSource::Otel { FARTHEST_MS << LOG_ID_LOW_BITS } else { 0 };
    [row.id, row.id + moves]
}

/// The rows with ids that are theirs alone.
pub(super) async fn assign_ids<'a>(tx: &mut Tx, rows: &'a [LogRow]) -> Result<Cow<'a, [LogRow]>, StoreError> {
    if rows.iter().all(|row| row.source != LogSource::Otel) {
        return Ok(Cow::Borrowed(rows));
    }
    let mut settled = rows.to_vec();
    // Who has an id: what is stored, and what of this batch has found its place.
    let mut holders: HashMap<i64, String> = HashMap::new();
    let mut open: Vec<usize> =
        (0..settled.len()).filter(|at| settled[*at].source == LogSource::Otel).collect();
    for _ in 0..STEPS {
        let asked = open.iter().map(|at| settled[*at].id).filter(|id| !holders.contains_key(id));
        let sql = format!("SELECT id, request_id FROM log_rows WHERE {}", in_ids(tx.dialect(), "id", 1));
        for row in tx.all(AssertSqlSafe(sql), args![id_list(asked)]).await? {
            holders.insert(row.get("id")?, row.get("request_id")?);
        }
        open.retain(|at| {
            let row = &mut settled[*at];
            let holder = holders.entry(row.id).or_insert_with(|| row.request_id.clone());
            let taken = *holder != row.request_id;
            if taken {
                row.id = next_log_id(row.id);
            }
            taken
        });
        if open.is_empty() {
            break;
        }
    }
    Ok(Cow::Owned(settled))
}
