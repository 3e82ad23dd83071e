//! Log ids of ingested OpenTelemetry spans. An id is derived from the span, so that a span that is sent twice is one
//! row. When two different spans derive the same id, the later one gets the next free id.

use std::borrow::Cow;
use std::collections::HashMap;

use gateway_core::ids::OrgId;
use gateway_core::logs::{LOG_ID_LOW_BITS, LogRow, LogSource};
use gateway_core::otlp::next_log_id;
use sqlx::AssertSqlSafe;

use super::bulk::{id_list, in_ids};
use crate::row::args;
use crate::{StoreError, Tx};

/// How often a span moves on to the next id.
const MAX_STEPS: usize = 512;
/// The time that `MAX_STEPS` ids can span.
const MAX_SHIFT_MS: i64 = 8;

/// The first and the last id that a row may get.
pub(super) fn possible_ids(row: &LogRow) -> [i64; 2] {
    let moves = if row.source == LogSource::Otel { MAX_SHIFT_MS << LOG_ID_LOW_BITS } else { 0 };
    [row.id, row.id + moves]
}

/// Returns the rows with unique ids.
pub(super) async fn assign_ids<'a>(tx: &mut Tx, rows: &'a [LogRow]) -> Result<Cow<'a, [LogRow]>, StoreError> {
    if rows.iter().all(|row| row.source != LogSource::Otel) {
        return Ok(Cow::Borrowed(rows));
    }
    let mut assigned = rows.to_vec();
    // The organization and the request id that own each id, stored or assigned in this batch. Two organizations may
    // send the same span, and each has a row of it.
    let mut owners: HashMap<i64, (OrgId, String)> = HashMap::new();
    let mut unassigned: Vec<usize> =
        (0..assigned.len()).filter(|at| assigned[*at].source == LogSource::Otel).collect();
    for _ in 0..MAX_STEPS {
        let candidates = unassigned.iter().map(|at| assigned[*at].id).filter(|id| !owners.contains_key(id));
        let sql =
            format!("SELECT id, org_id, request_id FROM log_rows WHERE {}", in_ids(tx.dialect(), "id", 1));
        for row in tx.all(AssertSqlSafe(sql), args![id_list(candidates)]).await? {
            owners.insert(row.get("id")?, (row.get("org_id")?, row.get("request_id")?));
        }
        unassigned.retain(|at| {
            let row = &mut assigned[*at];
            let (org_id, request_id) =
                owners.entry(row.id).or_insert_with(|| (row.org_id, row.request_id.clone()));
            let taken = *org_id != row.org_id || *request_id != row.request_id;
            if taken {
                row.id = next_log_id(row.id);
            }
            taken
        });
        if unassigned.is_empty() {
            break;
        }
    }
    Ok(Cow::Owned(assigned))
}
