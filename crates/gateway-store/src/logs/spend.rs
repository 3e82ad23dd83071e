//! What was spent through the gateway, by day and by who spent it: read from the days of the roll-ups, which are written
//! with the rows and count each of them once. What others report of calls made elsewhere is left out.

use gateway_core::budget::Spender;
use gateway_core::ids::OrgId;
use gateway_core::time::Timestamp;
use gateway_core::totals::Totals;

use super::rollup::Cube;
use crate::db::Dialect;
use crate::row::{Row, args};
use crate::{Db, StoreError};

/// What one spender spent on one day, in units of 1e-12 USD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaySpend {
    pub day: Timestamp,
    pub spender: Spender,
    pub cost: i64,
}

/// What the whole organization spent since a day began.
pub async fn org_daily_spend(logs: &Db, org: OrgId, since: Timestamp) -> Result<Vec<DaySpend>, StoreError> {
    let rows = logs
        .all(
            "SELECT d.key_id, d.app_id, d.team_id, u.at, u.totals FROM usage_dims d \
             JOIN usage_days u ON u.dim_id = d.id WHERE d.org_id = $1 AND d.cube = $2 AND d.source IS NULL AND u.at >= $3",
            args![org, Cube::All.number(), since],
        )
        .await?;
    rows.iter().map(read).collect()
}

/// What these keys, applications and teams spent since a day began. Ids of one kind are never those of another.
pub async fn daily_spend(
    logs: &Db,
    org: OrgId,
    since: Timestamp,
    ids: &[String],
) -> Result<Vec<DaySpend>, StoreError> {
    let sql = match logs.dialect() {
        Dialect::Sqlite => {
            "WITH wanted AS (SELECT value AS id FROM json_each('[\"' || replace($4, ',', '\",\"') || '\"]')) \
             SELECT d.key_id, d.app_id, d.team_id, u.at, u.totals FROM usage_dims d \
             JOIN usage_days u ON u.dim_id = d.id WHERE d.org_id = $1 AND d.cube = $2 AND d.source IS NULL AND u.at >= $3 \
             AND (d.key_id IN (SELECT id FROM wanted) OR d.app_id IN (SELECT id FROM wanted) \
             OR d.team_id IN (SELECT id FROM wanted))"
        }
        Dialect::Postgres => {
            "SELECT d.key_id, d.app_id, d.team_id, u.at, u.totals FROM usage_dims d \
             JOIN usage_days u ON u.dim_id = d.id WHERE d.org_id = $1 AND d.cube = $2 AND d.source IS NULL AND u.at >= $3 \
             AND (d.key_id = ANY(string_to_array($4, ',')) OR d.app_id = ANY(string_to_array($4, ',')) \
             OR d.team_id = ANY(string_to_array($4, ',')))"
        }
    };
    let rows = logs.all(sql, args![org, Cube::Keys.number(), since, ids.join(",")]).await?;
    rows.iter().map(read).collect()
}

fn read(row: &Row) -> Result<DaySpend, StoreError> {
    let mut totals = Totals::default();
    totals.add_packed(&row.get::<String>("totals")?);
    let spender = Spender { key: row.get("key_id")?, app: row.get("app_id")?, team: row.get("team_id")? };
    Ok(DaySpend { day: row.get("at")?, spender, cost: totals.cost })
}
