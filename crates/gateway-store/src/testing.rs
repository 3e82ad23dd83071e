//! Help for tests: a fresh database each, on whichever server they were given.

use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use crate::row::args;
use crate::{Db, StoreError};

/// Creates an empty database of the given name on the server and answers its URL.
pub async fn create_postgres_database(server_url: &str, name: &str) -> Result<String, StoreError> {
    let options = PgConnectOptions::from_str(server_url)?;
    let mut connection = options.connect().await?;
    let quoted = format!("CREATE DATABASE \"{name}\"");
    sqlx::raw_sql(AssertSqlSafe(quoted)).execute(&mut connection).await?;
    connection.close().await?;
    Ok(options.database(name).to_url_lossy().to_string())
}

/// The schema version that a database says it has.
pub async fn schema_version(db: &Db) -> Result<i64, StoreError> {
    let row = db.opt("SELECT MAX(version) AS version FROM schema_versions", Vec::new()).await?;
    row.map_or(Ok(0), |row| row.get::<Option<i64>>("version").map(Option::unwrap_or_default))
}

/// Makes the database look as if a later release had used it; answers the version that it now claims.
pub async fn pretend_newer_schema(db: &Db) -> Result<i64, StoreError> {
    let version = schema_version(db).await? + 1;
    db.exec(
        "INSERT INTO schema_versions (version, name, applied_at) VALUES ($1, $2, $3)",
        args![version, "from the future", 0_i64],
    )
    .await?;
    Ok(version)
}
