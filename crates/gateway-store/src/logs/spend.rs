//! Spending by day, key, application and team, read from the daily roll-ups, and by end user. Ingested spans are calls that did not go
//! through the gateway, so they are not included.

use std::collections::HashSet;

use gateway_core::budget::Spender;
use gateway_core::ids::OrgId;
use gateway_core::time::Timestamp;
use gateway_core::totals::Totals;
use sqlx::AssertSqlSafe;

use super::bulk::{id_list, in_ids};
use super::rollup::Cube;
use super::user_spend::{self, UserDay};
use crate::db::Dialect;
use crate::row::{Row, args};
use crate::{Db, StoreError, Tx};

/// The spending of one spender on one day, in units of 1e-12 USD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaySpend {
    pub day: Timestamp,
    pub spender: Spender,
    pub cost: i64,
    /// Calls without a price.
    pub unpriced_calls: u64,
}

/// A consistent view of the log, fixed by the first statement. Writers do not wait for it, and it does not wait for
/// them.
pub struct SpendSnapshot(Tx);

impl SpendSnapshot {
    pub async fn open(logs: &Db) -> Result<Self, StoreError> {
        Ok(Self(logs.begin_snapshot().await?))
    }

    /// The spending of the whole organization since the start of a day.
    pub async fn of_org(&mut self, org: OrgId, since: Timestamp) -> Result<Vec<DaySpend>, StoreError> {
        let rows = self
            .0
            .all(
                "SELECT d.key_id, d.app_id, d.team_id, u.at, u.totals FROM usage_dims d \
                 JOIN usage_days u ON u.dim_id = d.id \
                 WHERE d.org_id = $1 AND d.cube = $2 AND (d.source IS NULL OR d.source <> 'otel') AND u.at >= $3",
                args![org, Cube::All.number(), since],
            )
            .await?;
        rows.iter().map(read).collect()
    }

    /// What the given keys, applications and teams spent since the start of a day. Their ids never collide.
    pub async fn of_ids(
        &mut self,
        org: OrgId,
        since: Timestamp,
        ids: &[String],
    ) -> Result<Vec<DaySpend>, StoreError> {
        let sql = match self.0.dialect() {
            Dialect::Sqlite => {
                "WITH wanted AS (SELECT value AS id FROM json_each('[\"' || replace($4, ',', '\",\"') || '\"]')) \
                 SELECT d.key_id, d.app_id, d.team_id, u.at, u.totals FROM usage_dims d \
                 JOIN usage_days u ON u.dim_id = d.id \
                 WHERE d.org_id = $1 AND d.cube = $2 AND (d.source IS NULL OR d.source <> 'otel') AND u.at >= $3 \
                 AND (d.key_id IN (SELECT id FROM wanted) OR d.app_id IN (SELECT id FROM wanted) \
                 OR d.team_id IN (SELECT id FROM wanted))"
            }
            Dialect::Postgres => {
                "SELECT d.key_id, d.app_id, d.team_id, u.at, u.totals FROM usage_dims d \
                 JOIN usage_days u ON u.dim_id = d.id \
                 WHERE d.org_id = $1 AND d.cube = $2 AND (d.source IS NULL OR d.source <> 'otel') AND u.at >= $3 \
                 AND (d.key_id = ANY(string_to_array($4, ',')) OR d.app_id = ANY(string_to_array($4, ',')) \
                 OR d.team_id = ANY(string_to_array($4, ',')))"
            }
        };
        let rows = self.0.all(sql, args![org, Cube::Keys.number(), since, ids.join(",")]).await?;
        rows.iter().map(read).collect()
    }

    /// What each of these users spent since the start of a day, in their order. `today` is the start of the current day.
    pub async fn of_users(
        &mut self,
        org: OrgId,
        (since, today): (Timestamp, Timestamp),
        users: &[&str],
    ) -> Result<Vec<Vec<UserDay>>, StoreError> {
        user_spend::of_users(&mut self.0, org, (since, today), users).await
    }

    /// Which of these log rows the view contains. Their cost is in its roll-ups.
    pub async fn contained_rows(&mut self, ids: &[i64]) -> Result<HashSet<i64>, StoreError> {
        if ids.is_empty() {
            return Ok(HashSet::new());
        }
        let these = in_ids(self.0.dialect(), "id", 1);
        let sql = format!(
            "SELECT id FROM log_rows WHERE {these} UNION ALL SELECT id FROM log_counted WHERE {these}"
        );
        let rows = self.0.all(AssertSqlSafe(sql), args![id_list(ids.iter().copied())]).await?;
        rows.iter().map(|row| row.get("id")).collect()
    }
}

fn read(row: &Row) -> Result<DaySpend, StoreError> {
    let mut totals = Totals::default();
    totals.add_packed(&row.get::<String>("totals")?);
    let spender = Spender { key: row.get("key_id")?, app: row.get("app_id")?, team: row.get("team_id")? };
    let unpriced_calls = u64::try_from(totals.unpriced).unwrap_or(0);
    Ok(DaySpend { day: row.get("at")?, spender, cost: totals.cost, unpriced_calls })
}
