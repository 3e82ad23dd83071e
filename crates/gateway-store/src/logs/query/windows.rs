//! Sources of windows: ranges of ids that are looked at one after the other, each with a bounded number of rows. They come
//! from the index that leaves the fewest rows.

use std::collections::VecDeque;

use gateway_core::query::{Comparison, Condition, Field, FieldCondition, Query, Test};
use sqlx::AssertSqlSafe;

use super::conditions::{Conditions, Subject, is_in_dims};
use super::texts::{self, TextTerms};
use super::{Scope, oldest_id};
use crate::StoreError;
use crate::logs::bulk::id_list;
use crate::logs::fulltext;
use crate::logs::hour_index::HourIndex;
use crate::logs::rollup::Cube;
use crate::logs::words::{IdRange, WordSearch};
use crate::row::args;

/// Rows of the first window and of later ones: a page of frequent rows needs few, a search for rare ones many.
const FIRST_ROWS: usize = 1_000;
const MAX_ROWS: usize = 20_000;

/// The condition of the index of failures. Every row with an error code has a level above `info`.
pub(super) const FAILURES: &str = " AND (r.level <> 'info' OR r.status >= 400)";

/// Rows from `first` to before `end`.
pub(super) struct Window {
    pub first: i64,
    pub end: i64,
    /// Only these ids.
    pub only: Option<String>,
    /// Not these ids.
    pub without: Option<String>,
}

pub(super) struct Windows<'a> {
    scope: Scope<'a>,
    source: Source,
    texts: TextTerms,
    is_ascending: bool,
    /// How many rows may still be looked at.
    left: usize,
    rows: usize,
    /// Where the last window ended.
    position: i64,
    /// Set when the rows were used up: the ids beyond this one were not looked at.
    pub stopped_at: Option<i64>,
}

enum Source {
    /// Rows with the words of the query.
    Words(Box<WordSearch>),
    /// Ranges of ids that are not looked at yet, and the hours that further ones come from.
    Ranges { ranges: VecDeque<(i64, i64)>, hours: Option<(HourIndex, (i64, i64))> },
}

impl<'a> Windows<'a> {
    /// Windows of the rows from `first` to before `end`.
    pub async fn new(
        scope: Scope<'a>,
        (first, end): (i64, i64),
        is_ascending: bool,
        max_rows: usize,
    ) -> Result<Self, StoreError> {
        let Scope { logs, org, search } = scope;
        let texts = TextTerms::of(&search.query);
        let words = texts.required_words();
        let source = if first >= end {
            Source::Ranges { ranges: VecDeque::new(), hours: None }
        } else if !words.is_empty() && !fulltext::is_used(logs).await? {
            let range = IdRange { after: first.saturating_sub(1), before: end };
            Source::Words(Box::new(WordSearch::new(logs, org, &words, range, is_ascending).await?))
        } else {
            let hours = if is_ascending { None } else { hours(scope, (first, end)).await? };
            let ranges = if hours.is_some() { VecDeque::new() } else { VecDeque::from([(first, end)]) };
            Source::Ranges { ranges, hours: hours.map(|hours| (hours, (first, end))) }
        };
        let position = if is_ascending { first } else { end };
        let left = max_rows;
        Ok(Self { scope, source, texts, is_ascending, left, rows: FIRST_ROWS, position, stopped_at: None })
    }

    /// The next window. `None` after the last one, or when the rows are used up.
    pub async fn next(&mut self) -> Result<Option<Window>, StoreError> {
        let Some(mut window) = self.next_range().await? else { return Ok(None) };
        self.position = if self.is_ascending { window.end } else { window.first };
        let looked_at = texts::restrict(self.scope, &self.texts, &mut window).await?;
        self.left = self.left.saturating_sub(looked_at);
        Ok(Some(window))
    }

    async fn next_range(&mut self) -> Result<Option<Window>, StoreError> {
        let Self { scope, source, is_ascending, left, rows, position, stopped_at, .. } = self;
        let ranges = match source {
            Source::Words(search) => {
                let found = search.next(scope.logs).await?;
                let (Some(first), Some(last)) = (found.iter().min(), found.iter().max()) else {
                    return Ok(None);
                };
                if *left == 0 {
                    *stopped_at = Some(*position);
                    return Ok(None);
                }
                *left = left.saturating_sub(found.len());
                let (first, end) = (*first, *last + 1);
                let only = Some(id_list(found));
                return Ok(Some(Window { first, end, only, without: None }));
            }
            Source::Ranges { ranges, hours } => {
                while ranges.is_empty()
                    && let Some((index, (first, end))) = hours
                {
                    let found = index.next(scope.logs).await?;
                    if found.is_empty() {
                        *hours = None;
                        break;
                    }
                    let clamped = found.into_iter().map(|(from, to)| (from.max(*first), to.min(*end)));
                    ranges.extend(clamped.filter(|(from, to)| from < to));
                }
                ranges
            }
        };
        let Some((first, end)) = ranges.pop_front() else { return Ok(None) };
        if *left == 0 {
            *stopped_at = Some(if *is_ascending { first } else { end });
            return Ok(None);
        }
        let (count, edge) = edge(*scope, (first, end), *is_ascending, (*rows).min(*left)).await?;
        let is_last = count < (*rows).min(*left);
        *left -= count.min(*left);
        *rows = (2 * *rows).min(MAX_ROWS);
        let (window, rest) = match edge {
            Some(edge) if !is_last && *is_ascending => ((first, edge + 1), Some((edge + 1, end))),
            Some(edge) if !is_last => ((edge, end), Some((first, edge))),
            _ => ((first, end), None),
        };
        if let Some(rest) = rest.filter(|(first, end)| first < end) {
            ranges.push_front(rest);
        }
        Ok(Some(Window { first: window.0, end: window.1, only: None, without: None }))
    }
}

/// How many of the next rows there are, at most `rows`, and the last of them.
async fn edge(
    scope: Scope<'_>,
    (first, end): (i64, i64),
    is_ascending: bool,
    rows: usize,
) -> Result<(usize, Option<i64>), StoreError> {
    let rows = i64::try_from(rows).unwrap_or(i64::MAX);
    let mut values = args![scope.org, first, end];
    let mut conditions =
        Conditions { dialect: scope.logs.dialect(), subject: Subject::Rows, values: &mut values };
    let index = match indexed(&scope.search.query) {
        Some(indexed) => conditions.all(&indexed),
        None if is_failure(&scope.search.query) => FAILURES.into(),
        None => String::new(),
    };
    let hint = scope.index();
    let (order, last) = if is_ascending { ("ASC", "MAX") } else { ("DESC", "MIN") };
    values.push(rows.into());
    let limit = values.len();
    let sql = format!(
        "SELECT COUNT(*) AS count, {last}(w.id) AS edge FROM (SELECT r.id FROM log_rows r{hint} WHERE r.org_id = $1 \
         AND r.id >= $2 AND r.id < $3{index} ORDER BY r.id {order} LIMIT ${limit}) w"
    );
    let row = scope.logs.opt(AssertSqlSafe(sql), values).await?;
    let row = row.ok_or_else(|| StoreError::Other("a count has no row".into()))?;
    Ok((usize::try_from(row.get::<i64>("count")?).unwrap_or(0), row.get("edge")?))
}

/// The term that an index of rows answers: one session or user.
fn indexed(query: &Query) -> Option<Query> {
    let is_literal = |test: &Test| matches!(test, Test::Text(pattern) if pattern.as_literal().is_some());
    let of = |wanted: Field| {
        query.terms.iter().find(|term| match &term.condition {
            Condition::Field(FieldCondition { field, tests, .. }) => {
                !term.is_negated && *field == wanted && tests.iter().all(is_literal)
            }
            Condition::Text(_) => false,
        })
    };
    let term = of(Field::Session).or_else(|| of(Field::User))?;
    Some(Query { terms: vec![term.clone()] })
}

/// The field of the term that an index of rows answers.
pub(super) fn indexed_field(query: &Query) -> Option<Field> {
    let indexed = indexed(query)?;
    let (_, condition) = indexed.fields().next()?;
    Some(condition.field)
}

/// Whether only failures match, which have an index.
pub(super) fn is_failure(query: &Query) -> bool {
    let is_above = |test: &Test| match test {
        Test::Failed(failed) => *failed,
        Test::Number(Comparison::Equal | Comparison::GreaterOrEqual, value) => *value >= 400,
        Test::Number(Comparison::Greater, value) => *value >= 399,
        Test::Between(from, _) => *from >= 400,
        Test::Number(Comparison::Less | Comparison::LessOrEqual, _) | Test::Text(_) => false,
    };
    let is_level = |test: &Test| matches!(test, Test::Text(pattern) if pattern.as_literal().is_some_and(|level| level != "info"));
    indexed(query).is_none()
        && query.fields().any(|(is_negated, condition)| {
            !is_negated
                && match condition.field {
                    Field::Status => condition.tests.iter().all(is_above),
                    Field::Level => condition.tests.iter().all(is_level),
                    Field::Error => true,
                    _ => false,
                }
        })
}

/// The hours in which the roll-ups have rows of the query. `None` if they cannot tell, or another index is better.
async fn hours(scope: Scope<'_>, (first, end): (i64, i64)) -> Result<Option<HourIndex>, StoreError> {
    let query = &scope.search.query;
    if indexed(query).is_some() || is_failure(query) {
        return Ok(None);
    }
    let has = |fields: &[Field]| {
        query.fields().any(|(is_negated, condition)| !is_negated && fields.contains(&condition.field))
    };
    let cube = match (has(&[Field::Provider, Field::Model]), has(&[Field::Key, Field::App, Field::Team])) {
        (false, false) => return Ok(None),
        (true, false) => Cube::Models,
        (false, true) => Cube::Keys,
        (true, true) => Cube::Whole,
    };
    let columns: &[Field] = match cube {
        Cube::Models => &[Field::Provider, Field::Model, Field::Status],
        Cube::Keys => &[Field::Key, Field::App, Field::Team, Field::Status],
        _ => &[Field::Provider, Field::Model, Field::Key, Field::App, Field::Team, Field::Status],
    };
    let mut known = Query::default();
    for term in &query.terms {
        if let Condition::Field(condition) = &term.condition
            && columns.contains(&condition.field)
            && is_in_dims(condition)
        {
            known.terms.push(term.clone());
        }
    }
    let oldest = oldest_id(scope.logs, scope.org).await?.unwrap_or(i64::MAX);
    let dialect = scope.logs.dialect();
    let conditions =
        |values: &mut Vec<_>| Conditions { dialect, subject: Subject::DimsOrFolded, values }.all(&known);
    Ok(Some(HourIndex::of_lines(scope.org, cube, (first.max(oldest), end), conditions)))
}
