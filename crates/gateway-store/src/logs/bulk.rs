//! Many rows in few statements. On PostgreSQL each parameter is a list with the values of a column (`UNNEST`), so that one
//! prepared statement serves any number of rows. On SQLite a statement is prepared for a few fixed numbers of rows, not
//! for each length that a batch happens to have.

use std::fmt::Write as _;
use std::sync::OnceLock;

use crate::db::Dialect;
use crate::row::{Arg, List};
use crate::{StoreError, Tx};

/// On SQLite. Largest first; the last must be 1.
const SIZES: [usize; 4] = [200, 25, 5, 1];

/// Rows in one statement of PostgreSQL at most, so that no batch is held in memory twice as a whole.
const MOST: usize = 1_000;

/// An INSERT of several rows.
pub(crate) struct Bulk {
    head: String,
    row: &'static str,
    tail: &'static str,
    sqlite: [String; SIZES.len()],
    /// Made when the first row tells the kinds of its columns.
    postgres: OnceLock<String>,
}

impl Bulk {
    /// `head` ends before `VALUES`; `row` is one row of them with `?` for each parameter.
    pub(crate) fn new(head: &str, row: &'static str, tail: &'static str) -> Self {
        let sqlite = SIZES.map(|size| of_values(head, row, tail, size));
        Self { head: head.to_owned(), row, tail, sqlite, postgres: OnceLock::new() }
    }

    /// Answers nothing: what was new is known before. Rows are made as they are needed, so that no batch is in memory
    /// twice as a whole.
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
            let args: Vec<Arg> = rows.by_ref().take(SIZES[at]).flatten().collect();
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
            for row in std::iter::once(first).chain(rows.by_ref().take(MOST - 1)) {
                for (list, arg) in lists.iter_mut().zip(row) {
                    list.push(arg)?;
                }
            }
            let sql = self.postgres.get_or_init(|| of_lists(&self.head, self.row, self.tail, &lists));
            tx.exec_lists(sql.as_str(), lists).await?;
        }
        Ok(())
    }
}

/// SQLite looks a numbered parameter up by going through all of them, which thousands do not bear; bare ones it counts.
fn of_values(head: &str, row: &str, tail: &str, size: usize) -> String {
    let rows = vec![row; size].join(", ");
    format!("{head} VALUES {rows} {tail}")
}

fn of_lists(head: &str, row: &str, tail: &str, lists: &[List]) -> String {
    let row = row.strip_prefix('(').and_then(|row| row.strip_suffix(')')).unwrap_or(row);
    let mut columns = String::new();
    for (number, piece) in row.split('?').enumerate() {
        if number > 0 {
            let _ = write!(columns, "c{number}");
        }
        columns.push_str(piece);
    }
    let given: Vec<String> =
        (1..).zip(lists).map(|(number, list)| format!("CAST(${number} AS {})", list.type_name())).collect();
    let names: Vec<String> = (1..=lists.len()).map(|number| format!("c{number}")).collect();
    let (given, names) = (given.join(", "), names.join(", "));
    format!("{head} SELECT {columns} FROM UNNEST({given}) AS given({names}) {tail}")
}

/// The condition that a column is one of the numbers in a parameter made by `numbers`.
pub(crate) fn in_ids(dialect: Dialect, column: &str, parameter: usize) -> String {
    match dialect {
        Dialect::Sqlite => format!("{column} IN (SELECT value FROM json_each('[' || ${parameter} || ']'))"),
        Dialect::Postgres => {
            format!("{column} = ANY(CAST(string_to_array(${parameter}, ',') AS BIGINT[]))")
        }
    }
}

/// Numbers as one parameter.
pub(crate) fn id_list(values: impl IntoIterator<Item = i64>) -> String {
    let mut text = String::new();
    for value in values {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&value.to_string());
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
            of_values(head, row, tail, 2),
            "INSERT INTO t (a, b) VALUES (?, f(?)), (?, f(?)) ON CONFLICT DO NOTHING"
        );
        let lists: Vec<List> = args![1_i64, "x"].iter().map(List::of_kind).collect();
        assert_eq!(
            of_lists(head, row, tail, &lists),
            "INSERT INTO t (a, b) SELECT c1, f(c2) FROM UNNEST(CAST($1 AS BIGINT[]), CAST($2 AS TEXT[])) \
             AS given(c1, c2) ON CONFLICT DO NOTHING"
        );
    }
}
