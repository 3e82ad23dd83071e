//! Bulk inserts and conditions on lists of ids. On PostgreSQL each parameter is an array with the values of a column
//! (`UNNEST`), so that one prepared statement serves any number of rows. On SQLite statements are prepared for a few
//! fixed numbers of rows, so that the statement cache stays small.

use std::fmt::Write as _;
use std::sync::OnceLock;

use crate::db::Dialect;
use crate::row::{Arg, List};
use crate::{StoreError, Tx};

/// Rows per statement on SQLite, largest first. The last must be 1. Each is about twice the next, so that few statements
/// serve any number of rows: readers wait for them.
const SIZES: [usize; 8] = [200, 64, 32, 16, 8, 4, 2, 1];

/// Rows per statement on PostgreSQL, so that a batch is never in memory twice.
const MAX_POSTGRES_ROWS: usize = 1_000;

/// A prepared INSERT of many rows.
pub(crate) struct Bulk {
    head: String,
    row: &'static str,
    tail: &'static str,
    sqlite: [String; SIZES.len()],
    /// Built from the types of the first row.
    postgres: OnceLock<String>,
}

impl Bulk {
    /// `head` ends before `VALUES`; `row` is one row with `?` for each parameter; `tail` follows the rows.
    pub(crate) fn new(head: &str, row: &'static str, tail: &'static str) -> Self {
        let sqlite = SIZES.map(|size| values_sql(head, row, tail, size));
        Self { head: head.to_owned(), row, tail, sqlite, postgres: OnceLock::new() }
    }

    /// Inserts the rows. They are produced one by one, so that a batch is never in memory twice.
    pub(crate) async fn run(
        &'static self,
        tx: &mut Tx,
        rows: impl ExactSizeIterator<Item = Vec<Arg>>,
    ) -> Result<(), StoreError> {
        match tx.dialect() {
            Dialect::Sqlite => self.run_values(tx, rows).await,
            Dialect::Postgres => self.run_lists(tx, rows).await,
        }
    }

    async fn run_values(
        &'static self,
        tx: &mut Tx,
        mut rows: impl ExactSizeIterator<Item = Vec<Arg>>,
    ) -> Result<(), StoreError> {
        let mut left = rows.len();
        while left > 0 {
            let Some(at) = SIZES.iter().position(|size| *size <= left) else { break };
            let mut args: Vec<Arg> = Vec::new();
            for row in rows.by_ref().take(SIZES[at]) {
                if args.is_empty() {
                    args.reserve_exact(row.len() * SIZES[at]);
                }
                args.extend(row);
            }
            tx.exec(self.sqlite[at].as_str(), args).await?;
            left -= SIZES[at];
        }
        Ok(())
    }

    async fn run_lists(
        &'static self,
        tx: &mut Tx,
        mut rows: impl ExactSizeIterator<Item = Vec<Arg>>,
    ) -> Result<(), StoreError> {
        while let Some(first) = rows.next() {
            let mut lists: Vec<List> = first.iter().map(List::of_kind).collect();
            for row in std::iter::once(first).chain(rows.by_ref().take(MAX_POSTGRES_ROWS - 1)) {
                for (list, arg) in lists.iter_mut().zip(row) {
                    list.push(arg)?;
                }
            }
            let sql = self.postgres.get_or_init(|| unnest_sql(&self.head, self.row, self.tail, &lists));
            tx.exec_lists(sql.as_str(), lists).await?;
        }
        Ok(())
    }
}

/// SQLite resolves `$n` by linear search, which is slow with thousands of parameters; `?` is positional.
fn values_sql(head: &str, row: &str, tail: &str, size: usize) -> String {
    let rows = vec![row; size].join(", ");
    format!("{head} VALUES {rows} {tail}")
}

fn unnest_sql(head: &str, row: &str, tail: &str, lists: &[List]) -> String {
    let row = row.strip_prefix('(').and_then(|row| row.strip_suffix(')')).unwrap_or(row);
    let mut columns = String::new();
    for (number, piece) in row.split('?').enumerate() {
        if number > 0 {
            let _ = write!(columns, "c{number}");
        }
        columns.push_str(piece);
    }
    let arrays: Vec<String> =
        (1..).zip(lists).map(|(number, list)| format!("CAST(${number} AS {})", list.type_name())).collect();
    let names: Vec<String> = (1..=lists.len()).map(|number| format!("c{number}")).collect();
    let (arrays, names) = (arrays.join(", "), names.join(", "));
    format!("{head} SELECT {columns} FROM UNNEST({arrays}) AS given({names}) {tail}")
}

/// The condition that a column is one of the ids in a parameter made by `id_list`.
pub(crate) fn in_ids(dialect: Dialect, column: &str, parameter: usize) -> String {
    match dialect {
        Dialect::Sqlite => format!("{column} IN (SELECT value FROM json_each('[' || ${parameter} || ']'))"),
        Dialect::Postgres => {
            format!("{column} = ANY(CAST(string_to_array(${parameter}, ',') AS BIGINT[]))")
        }
    }
}

/// Ids as one parameter.
pub(crate) fn id_list(values: impl IntoIterator<Item = i64>) -> String {
    let mut text = String::new();
    for value in values {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(itoa::Buffer::new().format(value));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::args;

    #[test]
    fn rows_are_values_on_sqlite_and_lists_on_postgresql() {
        let (head, row, tail) = ("INSERT INTO t (a, b)", "(?, f(?))", "ON CONFLICT DO NOTHING");
        assert_eq!(
            values_sql(head, row, tail, 2),
            "INSERT INTO t (a, b) VALUES (?, f(?)), (?, f(?)) ON CONFLICT DO NOTHING"
        );
        let lists: Vec<List> = args![1_i64, "x"].iter().map(List::of_kind).collect();
        assert_eq!(
            unnest_sql(head, row, tail, &lists),
            "INSERT INTO t (a, b) SELECT c1, f(c2) FROM UNNEST(CAST($1 AS BIGINT[]), CAST($2 AS TEXT[])) \
             AS given(c1, c2) ON CONFLICT DO NOTHING"
        );
    }
}
