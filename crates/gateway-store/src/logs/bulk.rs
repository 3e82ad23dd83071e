//! Many rows in few statements. A statement is prepared for a few fixed numbers of rows, not for each length that a
//! batch happens to have, so that every one of them stays prepared.

use crate::db::Dialect;
use crate::row::Arg;
use crate::{StoreError, Tx};

/// Largest first; the last must be 1.
const SIZES: [usize; 4] = [200, 25, 5, 1];

/// The size that a transaction which rests begins with.
const AT_EASE: usize = 1;

/// An INSERT of several rows.
pub(crate) struct Bulk {
    sqlite: [String; SIZES.len()],
    postgres: [String; SIZES.len()],
}

impl Bulk {
    /// `row` is one row of VALUES with `?` for each parameter.
    pub(crate) fn new(head: &str, row: &str, tail: &str) -> Self {
        let statements = |dialect| SIZES.map(|size| statement(dialect, head, row, tail, size));
        Self { sqlite: statements(Dialect::Sqlite), postgres: statements(Dialect::Postgres) }
    }

    /// Answers nothing: what was new is known before. Rows are made as they are needed, so that a transaction that rests
    /// between statements does not do all the work before the first.
    pub(crate) async fn run(
        &'static self,
        tx: &mut Tx,
        mut rows: impl ExactSizeIterator<Item = Vec<Arg>>,
    ) -> Result<(), StoreError> {
        let largest = if tx.rests() { AT_EASE } else { 0 };
        let statements = match tx.dialect() {
            Dialect::Sqlite => &self.sqlite,
            Dialect::Postgres => &self.postgres,
        };
        let mut left = rows.len();
        while left > 0 {
            let Some(at) = (largest..SIZES.len()).find(|at| SIZES[*at] <= left) else { break };
            let args: Vec<Arg> = rows.by_ref().take(SIZES[at]).flatten().collect();
            tx.exec(statements[at].as_str(), args).await?;
            left -= SIZES[at];
        }
        Ok(())
    }
}

/// SQLite looks a numbered parameter up by going through all of them, which thousands do not bear; bare ones it counts.
fn statement(dialect: Dialect, head: &str, row: &str, tail: &str, size: usize) -> String {
    let mut sql = String::from(head);
    let mut parameter = 0;
    for line in 0..size {
        sql.push_str(if line == 0 { " " } else { ", " });
        for c in row.chars() {
            if c == '?' && dialect == Dialect::Postgres {
                parameter += 1;
                sql.push('$');
                sql.push_str(&parameter.to_string());
            } else {
                sql.push(c);
            }
        }
    }
    sql.push(' ');
    sql.push_str(tail);
    sql
}

/// The condition that a column is one of the numbers in a parameter made by `numbers`.
pub(crate) fn among(dialect: Dialect, column: &str, parameter: usize) -> String {
    match dialect {
        Dialect::Sqlite => format!("{column} IN (SELECT value FROM json_each('[' || ${parameter} || ']'))"),
        Dialect::Postgres => {
            format!("{column} = ANY(CAST(string_to_array(${parameter}, ',') AS BIGINT[]))")
        }
    }
}

/// Numbers as one parameter.
pub(crate) fn numbers(values: impl IntoIterator<Item = i64>) -> String {
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

    #[test]
    fn parameters_are_numbered_where_that_costs_nothing() {
        let of = |dialect| {
            statement(dialect, "INSERT INTO t (a, b) VALUES", "(?, f(?))", "ON CONFLICT DO NOTHING", 2)
        };
        assert_eq!(
            of(Dialect::Sqlite),
            "INSERT INTO t (a, b) VALUES (?, f(?)), (?, f(?)) ON CONFLICT DO NOTHING"
        );
        assert_eq!(
            of(Dialect::Postgres),
            "INSERT INTO t (a, b) VALUES ($1, f($2)), ($3, f($4)) ON CONFLICT DO NOTHING"
        );
    }
}
