//! The rows of one person.

use gateway_core::ids::KeyId;
use gateway_core::logs::LogRow;

use crate::db::Dialect;
use crate::row::Arg;

/// Rows of calls that a member made with a session token, and of calls with the keys that the member made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnRows {
    /// The id of the member.
    pub user: String,
    pub keys: Vec<KeyId>,
}

impl OwnRows {
    pub(super) fn includes(&self, row: &LogRow) -> bool {
        match row.key_id {
            Some(key) => self.keys.contains(&key),
            None => row.user.as_deref() == Some(&*self.user),
        }
    }

    /// The condition on the rows or roll-ups of a table, with its parameters.
    pub(super) fn condition(&self, dialect: Dialect, table: &str, values: &mut Vec<Arg>) -> String {
        let keys: Vec<String> = self.keys.iter().map(ToString::to_string).collect();
        values.push(self.user.clone().into());
        let user = values.len();
        values.push(serde_json::to_string(&keys).unwrap_or_default().into());
        let keys = dialect.in_texts(&format!("{table}.key_id"), values.len());
        format!(" AND (({table}.key_id IS NULL AND {table}.user_id = ${user}) OR {keys})")
    }
}
