//! Values of fields that begin with a text, for completion: from roll-ups, which have every value of the organization once.

use gateway_core::ids::{KeyId, OrgId};
use gateway_core::query::Field;
use sqlx::AssertSqlSafe;

use super::conditions::dim_column;
use crate::db::Dialect;
use crate::logs::rollup::Cube;
use crate::row::args;
use crate::{Db, StoreError};

/// Which values are wanted.
#[derive(Debug, Clone)]
pub struct ValueQuery {
    pub field: Field,
    pub prefix: String,
    /// Only values of this key's requests.
    pub made_by: Option<KeyId>,
    pub limit: i64,
}

/// The values in alphabetical order. Fields that the roll-ups do not have return none.
pub async fn field_values(logs: &Db, org: OrgId, wanted: &ValueQuery) -> Result<Vec<String>, StoreError> {
    let Some(column) = dim_column(wanted.field) else { return Ok(Vec::new()) };
    let of_key = wanted.made_by.is_some();
    let cube = match wanted.field {
        Field::Prompt => Cube::Prompts,
        Field::User if of_key => Cube::UsersWhole,
        Field::User => Cube::Users,
        Field::Provider | Field::Model if !of_key => Cube::Models,
        Field::Provider | Field::Model => Cube::Whole,
        _ => Cube::Keys,
    };
    let value = format!("CAST(d.{column} AS TEXT)");
    let begins = match logs.dialect() {
        // Both compare bytes, and the range of the index of users.
        Dialect::Sqlite => format!("{value} >= $2 AND substr({value}, 1, length($2)) = $2"),
        Dialect::Postgres => format!("starts_with({value}, $2)"),
    };
    let order = match logs.dialect() {
        Dialect::Sqlite => "value",
        Dialect::Postgres => "value COLLATE \"C\"",
    };
    let sql = format!(
        "SELECT value FROM (SELECT DISTINCT {value} AS value FROM usage_dims d WHERE d.org_id = $1 AND d.cube = {} \
         AND d.{column} IS NOT NULL AND {begins} AND ($3 IS NULL OR d.key_id = $3)) v ORDER BY {order} LIMIT $4",
        cube.number()
    );
    let values = args![org, wanted.prefix.as_str(), wanted.made_by, wanted.limit];
    let rows = logs.all(AssertSqlSafe(sql), values).await?;
    rows.iter().map(|row| row.get("value")).collect()
}
