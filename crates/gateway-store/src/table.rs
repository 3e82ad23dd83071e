//! Maps a struct to the columns of a table, so that each column is listed once.
//!
//! `table!` declares the struct together with its columns and implements [`Table`] for it. The functions of this module
//! build INSERT, SELECT and UPDATE statements from the column list and read rows back:
//!
//! ```text
//! table! {
//!     #[derive(Debug, Clone)]
//!     pub struct Eval in "evals" {
//!         pub id: i64 [key],                  // identifies the row in an UPDATE
//!         pub kind: EvalKind = "type",        // the column is not called like the field
//!         pub config: Value [json],           // JSON text
//!         pub created_at: Timestamp [once],   // written by INSERT, never by UPDATE
//!     }
//! }
//!
//! table::insert(tx, &eval, vec![]).await?;
//! let row = db.opt(Eval::select("org_id = $1 AND id = $2"), args![org, id]).await?;
//! let eval = table::read_opt::<Eval>(row.as_ref())?;
//! ```
//!
//! The remaining modes are `[optional json]` for nullable JSON, and `[via module]` for a column with its own `to_arg` and
//! `from_row` functions.

use std::fmt::Write as _;

use sqlx::AssertSqlSafe;

use crate::row::{Arg, Row};
use crate::{StoreError, Tx};

/// What an UPDATE does with a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnRole {
    /// Selects the row.
    Key,
    /// Is never changed.
    Once,
    /// Is set.
    Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    pub name: &'static str,
    pub role: ColumnRole,
}

/// A struct whose fields are columns of one table.
pub(crate) trait Table: Sized {
    const NAME: &'static str;
    const COLUMNS: &'static [Column];

    /// The fields in the order of `COLUMNS`.
    fn values(&self) -> Vec<Arg>;

    fn from_row(row: &Row) -> Result<Self, StoreError>;

    /// The column list, each name behind `prefix`: `columns("k.")` is `k.id, k.name`.
    fn columns(prefix: &str) -> String {
        let mut list = String::new();
        for column in Self::COLUMNS {
            let comma = if list.is_empty() { "" } else { ", " };
            let _ = write!(list, "{comma}{prefix}{}", column.name);
        }
        list
    }

    /// Selects all columns of the rows that match a condition, which may go on with ORDER BY and LIMIT.
    fn select(condition: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!("SELECT {} FROM {} WHERE {condition}", Self::columns(""), Self::NAME))
    }

    /// Locks the matching rows until the transaction ends and returns all their columns. An UPDATE that changes nothing
    /// takes the row lock on both databases. It must not name a column that others refer to: SQLite would look at every
    /// row that refers to the locked one.
    fn select_for_update(condition: &str) -> AssertSqlSafe<String> {
        let column = Self::COLUMNS.last().map_or("created_at", |column| column.name);
        let (table, columns) = (Self::NAME, Self::columns(""));
        AssertSqlSafe(format!("UPDATE {table} SET {column} = {column} WHERE {condition} RETURNING {columns}"))
    }
}

/// Columns that are not fields of the struct, such as the organization that owns the row.
pub(crate) type ExtraColumns = Vec<(&'static str, Arg)>;

/// Inserts a row.
pub(crate) async fn insert<T: Table + Sync>(
    tx: &mut Tx,
    row: &T,
    extra: ExtraColumns,
) -> Result<(), StoreError> {
    insert_with(tx, row, extra, "").await.map(|_| ())
}

/// Inserts a row with an ON CONFLICT clause; returns the number of rows inserted.
pub(crate) async fn insert_with<T: Table + Sync>(
    tx: &mut Tx,
    row: &T,
    extra: ExtraColumns,
    conflict: &str,
) -> Result<u64, StoreError> {
    let sql = insert_sql::<T>(&extra, conflict);
    let values = row.values().into_iter().chain(extra.into_iter().map(|(_, value)| value)).collect();
    tx.exec(AssertSqlSafe(sql), values).await
}

/// Updates all columns but `once` ones in the row that the key columns select. `extra` are more key columns; `also` is
/// appended to the SET list. Returns the number of rows updated.
pub(crate) async fn update<T: Table + Sync>(
    tx: &mut Tx,
    row: &T,
    extra: ExtraColumns,
    also: &str,
) -> Result<u64, StoreError> {
    let sql = update_sql::<T>(&extra, also);
    let (mut values, mut keys) = (Vec::new(), Vec::new());
    for (column, value) in T::COLUMNS.iter().zip(row.values()) {
        match column.role {
            ColumnRole::Value => values.push(value),
            ColumnRole::Key => keys.push(value),
            ColumnRole::Once => {}
        }
    }
    values.extend(keys);
    values.extend(extra.into_iter().map(|(_, value)| value));
    tx.exec(AssertSqlSafe(sql), values).await
}

pub(crate) fn read_opt<T: Table>(row: Option<&Row>) -> Result<Option<T>, StoreError> {
    row.map(T::from_row).transpose()
}

pub(crate) fn read_all<T: Table>(rows: &[Row]) -> Result<Vec<T>, StoreError> {
    rows.iter().map(T::from_row).collect()
}

fn insert_sql<T: Table>(extra: &[(&'static str, Arg)], conflict: &str) -> String {
    let names: Vec<&str> =
        T::COLUMNS.iter().map(|column| column.name).chain(extra.iter().map(|(name, _)| *name)).collect();
    let parameters: Vec<String> = (1..=names.len()).map(|number| format!("${number}")).collect();
    let (table, names, parameters) = (T::NAME, names.join(", "), parameters.join(", "));
    let space = if conflict.is_empty() { "" } else { " " };
    format!("INSERT INTO {table} ({names}) VALUES ({parameters}){space}{conflict}")
}

fn update_sql<T: Table>(extra: &[(&'static str, Arg)], also: &str) -> String {
    let of_role = |role: ColumnRole| {
        T::COLUMNS.iter().filter(move |column| column.role == role).map(|column| column.name)
    };
    let mut parameter = 0;
    let mut assign = |name: &str| {
        parameter += 1;
        format!("{name} = ${parameter}")
    };
    let mut set: Vec<String> = of_role(ColumnRole::Value).map(&mut assign).collect();
    let keys: Vec<String> =
        of_role(ColumnRole::Key).chain(extra.iter().map(|(name, _)| *name)).map(&mut assign).collect();
    if !also.is_empty() {
        set.push(also.to_owned());
    }
    format!("UPDATE {} SET {} WHERE {}", T::NAME, set.join(", "), keys.join(" AND "))
}

/// See the module's documentation.
macro_rules! table {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident in $table:literal {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty $(= $column:literal)? $([$($mode:tt)+])?),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type,)+
        }

        impl $crate::table::Table for $name {
            const NAME: &'static str = $table;
            const COLUMNS: &'static [$crate::table::Column] = &[$(
                $crate::table::Column {
                    name: $crate::table::table!(@name $field $($column)?),
                    role: $crate::table::table!(@role $($($mode)+)?),
                },
            )+];

            fn values(&self) -> Vec<$crate::row::Arg> {
                vec![$($crate::table::table!(@write [$($($mode)+)?] &self.$field)),+]
            }

            fn from_row(row: &$crate::row::Row) -> Result<Self, $crate::StoreError> {
                Ok(Self {
                    $($field: $crate::table::table!(
                        @read [$($($mode)+)?] row, $crate::table::table!(@name $field $($column)?)
                    ),)+
                })
            }
        }
    };

    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $column:literal) => { $column };

    (@role key) => { $crate::table::ColumnRole::Key };
    (@role once) => { $crate::table::ColumnRole::Once };
    (@role $($other:tt)*) => { $crate::table::ColumnRole::Value };

    (@write [json] $value:expr) => { $crate::row::json($value) };
    (@write [optional json] $value:expr) => { $crate::row::optional_json($value.as_ref()) };
    (@write [via $module:ident] $value:expr) => { $module::to_arg($value) };
    (@write [$($role:ident)?] $value:expr) => { $crate::row::to_arg($value) };

    (@read [json] $row:ident, $column:expr) => { $row.json($column)? };
    (@read [optional json] $row:ident, $column:expr) => { $row.optional_json($column)? };
    (@read [via $module:ident] $row:ident, $column:expr) => { $module::from_row($row, $column)? };
    (@read [$($role:ident)?] $row:ident, $column:expr) => { $row.get($column)? };
}
pub(crate) use table;

#[cfg(test)]
mod tests {
    use super::*;

    table! {
        #[derive(Debug)]
        struct Thing in "things" {
            id: i64 [key],
            kind: String = "type",
            labels: Vec<String> [json],
            note: Option<String>,
            extra: Option<Vec<i64>> [optional json],
            created_at: i64 [once],
        }
    }

    fn thing() -> Thing {
        Thing {
            id: 7,
            kind: "a".into(),
            labels: vec!["x".into()],
            note: Some("n\0".into()),
            extra: None,
            created_at: 1,
        }
    }

    #[test]
    fn statements_name_every_column_once() {
        assert_eq!(Thing::columns("t."), "t.id, t.type, t.labels, t.note, t.extra, t.created_at");
        assert_eq!(
            Thing::select("id = $1").0,
            "SELECT id, type, labels, note, extra, created_at FROM things WHERE id = $1"
        );
        assert_eq!(
            Thing::select_for_update("id = $1").0,
            "UPDATE things SET created_at = created_at WHERE id = $1 RETURNING id, type, labels, note, extra, created_at"
        );
        let owner = [("org_id", Arg::from("o"))];
        assert_eq!(
            insert_sql::<Thing>(&owner, "ON CONFLICT DO NOTHING"),
            "INSERT INTO things (id, type, labels, note, extra, created_at, org_id) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING"
        );
        assert_eq!(
            insert_sql::<Thing>(&[], ""),
            "INSERT INTO things (id, type, labels, note, extra, created_at) VALUES ($1, $2, $3, $4, $5, $6)"
        );
    }

    #[test]
    fn an_update_sets_values_and_selects_by_keys() {
        assert_eq!(
            update_sql::<Thing>(&[("org_id", Arg::from("o"))], "tries = 0"),
            "UPDATE things SET type = $1, labels = $2, note = $3, extra = $4, tries = 0 WHERE id = $5 AND org_id = $6"
        );
    }

    #[test]
    fn values_follow_the_order_of_the_columns() {
        let shown: Vec<String> = thing().values().iter().map(|value| format!("{value:?}")).collect();
        assert_eq!(
            shown,
            [
                "Int(Some(7))",
                "Text(Some(\"a\"))",
                "Text(Some(\"[\\\"x\\\"]\"))",
                "Text(Some(\"n\\0\"))",
                "Text(None)",
                "Int(Some(1))"
            ]
        );
        assert_eq!(shown.len(), Thing::COLUMNS.len());
    }

    /// The statements use only what both databases understand: numbered parameters, RETURNING and ON CONFLICT.
    #[tokio::test]
    async fn rows_are_written_and_read_back_on_sqlite() {
        let db = crate::Db::open("sqlite://:memory:").await.unwrap();
        let mut tx = db.begin().await.unwrap();
        tx.script(
            "CREATE TABLE things (id BIGINT PRIMARY KEY, type TEXT NOT NULL, labels TEXT NOT NULL, note TEXT, extra TEXT, \
             created_at BIGINT NOT NULL)"
                .into(),
        )
        .await
        .unwrap();
        insert(&mut tx, &thing(), vec![]).await.unwrap();
        assert_eq!(insert_with(&mut tx, &thing(), vec![], "ON CONFLICT DO NOTHING").await.unwrap(), 0);
        let changed = Thing { kind: "b".into(), extra: Some(vec![3]), created_at: 9, ..thing() };
        assert_eq!(update(&mut tx, &changed, vec![], "").await.unwrap(), 1);
        let row = tx.opt(Thing::select_for_update("id = $1"), vec![7_i64.into()]).await.unwrap();
        let found = read_opt::<Thing>(row.as_ref()).unwrap().unwrap();
        assert_eq!((found.kind.as_str(), found.extra, found.created_at), ("b", Some(vec![3]), 1));
        assert_eq!((found.labels, found.note.as_deref()), (vec!["x".to_owned()], Some("n ")));
    }
}
