//! The errors of the store, with one variant for each reaction of a caller.

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A unique value is already in use.
    #[error("already exists")]
    Duplicate,
    /// The statement references a row that does not exist.
    #[error("references a row that does not exist")]
    MissingReference,
    /// The database cannot be reached; the same call may succeed later.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// The database was migrated by a newer version of this program.
    #[error(
        "the database has schema version {found}, but this binary knows only up to {known}: \
         it was used by a newer version of the gateway. Start that version, or restore a backup made before the upgrade"
    )]
    NewerSchema { found: i64, known: i64 },
    /// The database applied another text of a migration than the one in this binary.
    #[error(
        "migration {version} ({name}) was edited after the database applied it: released migrations must not change. \
         Restore the released file, and make the change in a new migration"
    )]
    EditedMigration { version: i64, name: &'static str },
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
                // 57P0x: the server is shutting down or starting; 53300: it accepts no more connections.
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
