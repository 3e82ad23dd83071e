//! Help for tests: a fresh database each, on whichever server they were given.

use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use crate::StoreError;

/// Creates an empty database of the given name on the server and answers its URL.
pub async fn create_postgres_database(server_url: &str, name: &str) -> Result<String, StoreError> {
    let options = PgConnectOptions::from_str(server_url)?;
    let mut connection = options.connect().await?;
    let quoted = format!("CREATE DATABASE \"{name}\"");
    sqlx::raw_sql(AssertSqlSafe(quoted)).execute(&mut connection).await?;
    connection.close().await?;
    Ok(options.database(name).to_url_lossy().to_string())
}
