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

/// What the message begins with when a caller waited for the database, or for others who use it, and gave up.
const TIMED_OUT: &str = "timed out";

impl StoreError {
    pub(crate) fn timed_out(what: &str) -> Self {
        Self::Unavailable(format!("{TIMED_OUT}: {what}"))
    }

    /// A caller gave up waiting. The database may be gone, but it may also only be slow, or busy with others: unlike
    /// other kinds of `Unavailable` this one does not tell.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Unavailable(why) if why.starts_with(TIMED_OUT))
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::error::ErrorKind;
        match &error {
            sqlx::Error::Database(db) => match db.kind() {
                ErrorKind::UniqueViolation => StoreError::Duplicate,
                ErrorKind::ForeignKeyViolation => StoreError::MissingReference,
                _ if db.code().is_some_and(|code| is_wait_for_others(&code)) => {
                    StoreError::timed_out(db.message())
                }
                _ if db.code().is_some_and(|code| is_condition_of_the_database(&code)) => {
                    StoreError::Unavailable(db.message().to_owned())
                }
                // No constraint has a name here: the row's partition is missing, because a sweep of another node dropped
                // it after this node had looked. The next attempt creates it again.
                ErrorKind::CheckViolation
                    if db.constraint().is_none() && is_postgres(db.code().as_deref()) =>
                {
                    StoreError::Unavailable(db.message().to_owned())
                }
                _ => StoreError::Other(db.message().to_owned()),
            },
            sqlx::Error::PoolTimedOut => StoreError::timed_out("no connection to the database was free"),
            sqlx::Error::Io(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::Tls(_) => StoreError::Unavailable(error.to_string()),
            _ => StoreError::Other(error.to_string()),
        }
    }
}

/// The codes of PostgreSQL have five characters, those of SQLite fewer.
fn is_postgres(code: Option<&str>) -> bool {
    code.is_some_and(|code| code.len() == 5)
}

/// Whether PostgreSQL gave up a statement because it took too long or because of others: a time-out of the statement or
/// of a lock, a deadlock, a serialization failure.
fn is_wait_for_others(code: &str) -> bool {
    matches!(code, "57014" | "55P03" | "40P01" | "40001")
}

/// Whether an error code tells of the database and not of the statement or its data: the same statement may succeed
/// later.
fn is_condition_of_the_database(code: &str) -> bool {
    // SQLite's codes are numbers, whose low byte is the kind. Those of PostgreSQL have five characters.
    if code.len() < 5 {
        let kind = code.parse::<u32>().map_or(0, |code| code & 0xff);
        // BUSY, LOCKED, NOMEM, READONLY, INTERRUPT, IOERR, CORRUPT, FULL, CANTOPEN, PROTOCOL, NOTADB.
        return matches!(kind, 5..=11 | 13..=15 | 26);
    }
    // Connections; insufficient resources such as a full disk; intervention of the operator, which includes time-outs;
    // errors of the system.
    ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class))
        // Read-only, as a standby is; idle for too long; deadlock and serialization; lock time-out.
        || matches!(code, "25006" | "25P03" | "40001" | "40P01" | "55P03")
}

#[cfg(test)]
mod tests {
    use super::{StoreError, is_condition_of_the_database, is_wait_for_others};

    #[test]
    fn conditions_of_the_database_are_distinguished_from_errors_of_the_data() {
        // SQLite: FULL, IOERR_WRITE, BUSY_SNAPSHOT, IOERR_SHMSIZE. PostgreSQL: disk full, time-out, standby, shutdown.
        for code in ["13", "778", "517", "4874", "53100", "57014", "25006", "57P01", "08006", "40P01"] {
            assert!(is_condition_of_the_database(code), "{code}");
        }
        // SQLite: ERROR, TOOBIG, CONSTRAINT_CHECK, MISMATCH. PostgreSQL: NUL in text, number out of range, check.
        for code in ["1", "18", "275", "20", "22021", "22003", "23514", "42P01", "P0001"] {
            assert!(!is_condition_of_the_database(code), "{code}");
        }
    }

    #[test]
    fn a_wait_that_was_given_up_is_not_an_outage() {
        assert!(StoreError::from(sqlx::Error::PoolTimedOut).is_timeout());
        assert!(StoreError::timed_out("the statement took too long").is_timeout());
        let closed = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        for gone in [sqlx::Error::Io(closed), sqlx::Error::PoolClosed] {
            let error = StoreError::from(gone);
            assert!(matches!(error, StoreError::Unavailable(_)) && !error.is_timeout(), "{error}");
        }
        assert!(!StoreError::Other("timed out: not of the database".into()).is_timeout());
        for code in ["57014", "55P03", "40P01", "40001"] {
            assert!(is_wait_for_others(code) && is_condition_of_the_database(code), "{code}");
        }
        for code in ["53100", "57P01", "08006", "25006", "5"] {
            assert!(!is_wait_for_others(code), "{code}");
        }
    }
}
