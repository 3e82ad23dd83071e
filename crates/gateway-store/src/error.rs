//! What can go wrong in the store, told apart only as far as callers act on it.

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A unique value is taken.
    #[error("already exists")]
    Duplicate,
    /// The statement names a row that is not there.
    #[error("refers to something that does not exist")]
    MissingReference,
    /// The database cannot be reached; the same call may succeed later.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// The database was written by a newer version of this program.
    #[error(
        "the database has schema version {found}, but this binary knows only up to {known}: \
         it was used by a newer version of the gateway. Start that version, or restore a backup made before the upgrade"
    )]
    NewerSchema { found: i64, known: i64 },
    /// The address of the database is wrong, or it cannot be opened at all.
    #[error("{0}")]
    Open(String),
    #[error("{0}")]
    Other(String),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::error::ErrorKind;
        match &error {
            sqlx::Error::Database(db) => match db.kind() {
                ErrorKind::UniqueViolation => StoreError::Duplicate,
                ErrorKind::ForeignKeyViolation => StoreError::MissingReference,
                // 57P0x: the server is shutting down or starting; 53300: it has no connection left.
                _ if matches!(db.code().as_deref(), Some("57P01" | "57P02" | "57P03" | "53300")) => {
                    StoreError::Unavailable(db.message().to_owned())
                }
                _ => StoreError::Other(db.message().to_owned()),
            },
            sqlx::Error::Io(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::Tls(_) => StoreError::Unavailable(error.to_string()),
            _ => StoreError::Other(error.to_string()),
        }
    }
}
