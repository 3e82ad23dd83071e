//! Finds the rows that contain all words of a search, run by run in the order of the result, so that a page of frequent
//! words reads only the runs that have its rows.

use std::collections::HashMap;

use gateway_core::ids::OrgId;
use gateway_core::search_terms::term_hash;
use gateway_core::word_runs::{decode_ids, in_all, key_of, part_of, parts_of, rows_with};
use sqlx::AssertSqlSafe;

use super::part_id;
use crate::logs::bulk::{id_list, in_ids};
use crate::row::args;
use crate::{Db, StoreError};

/// Parts that one query reads, about 16 KiB each.
const MAX_PARTS_AT_ONCE: usize = 64;
/// Ids that are returned at once.
const MAX_IDS: usize = 500;
/// How often a search starts again because a run was merged while it was read.
const MAX_RESTARTS: u32 = 20;

/// Ids of a search: those greater than `after` and less than `before`.
#[derive(Debug, Clone, Copy)]
pub(in crate::logs) struct IdRange {
    pub after: i64,
    pub before: i64,
}

/// A search that returns ids in ascending or descending order.
pub(in crate::logs) struct WordSearch {
    keys: Vec<u64>,
    range: IdRange,
    is_ascending: bool,
    /// The runs that were not read yet; the next one is the last.
    runs: Vec<RunHead>,
    /// Ids that were found and not returned; the next one is the last.
    found: Vec<i64>,
    restarts: u32,
    /// How many runs are read next. A page of a frequent word needs one, a rare word needs all.
    runs_at_once: usize,
}

#[derive(Debug, Clone, Copy)]
struct RunHead {
    id: i64,
    level: i64,
    /// The first id of the run in the order of the search. All others follow.
    start: i64,
}

impl WordSearch {
    pub async fn new(
        logs: &Db,
        org: OrgId,
        words: &[String],
        range: IdRange,
        is_ascending: bool,
    ) -> Result<Self, StoreError> {
        let keys = words.iter().map(|word| key_of(org, term_hash(word))).collect();
        let (runs, found) = (Vec::new(), Vec::new());
        let mut search = Self { keys, range, is_ascending, runs, found, restarts: 0, runs_at_once: 1 };
        search.list_runs(logs).await?;
        Ok(search)
    }

    /// The next ids. Empty after the last one. The rows of some may be deleted.
    pub async fn next(&mut self, logs: &Db) -> Result<Vec<i64>, StoreError> {
        loop {
            let complete = self.complete();
            if !complete.is_empty() || self.runs.is_empty() {
                if let Some(last) = complete.last() {
                    *(if self.is_ascending { &mut self.range.after } else { &mut self.range.before }) = *last;
                }
                return Ok(complete);
            }
            if !self.read_runs(logs).await? {
                // Everything up to the range was returned.
                self.restarts += 1;
                if self.restarts > MAX_RESTARTS {
                    return Err(StoreError::Unavailable("the search index changes too fast".into()));
                }
                self.found.clear();
                self.list_runs(logs).await?;
            }
        }
    }

    async fn list_runs(&mut self, logs: &Db) -> Result<(), StoreError> {
        let (start, order) = if self.is_ascending { ("first_id", "DESC") } else { ("last_id", "ASC") };
        let sql = format!(
            "SELECT id, level, {start} AS start FROM log_word_runs WHERE last_id > $1 AND first_id < $2 \
             ORDER BY {start} {order}"
        );
        let rows = logs.all(AssertSqlSafe(sql), args![self.range.after, self.range.before]).await?;
        let heads = rows.iter().map(|row| {
            Ok(RunHead { id: row.get("id")?, level: row.get("level")?, start: row.get("start")? })
        });
        self.runs = heads.collect::<Result<_, StoreError>>()?;
        Ok(())
    }

    /// Takes the ids that no unread run can precede, a limited number.
    fn complete(&mut self) -> Vec<i64> {
        let Self { runs, found, is_ascending, .. } = self;
        let mut complete = Vec::new();
        while complete.len() < MAX_IDS
            && let Some(id) = found.last().copied()
        {
            let is_next = match runs.last() {
                None => true,
                Some(run) if *is_ascending => id < run.start,
                Some(run) => id > run.start,
            };
            if !is_next {
                break;
            }
            complete.extend(found.pop());
        }
        complete
    }

    /// Reads some runs. Returns false if one of them was merged or deleted meanwhile.
    async fn read_runs(&mut self, logs: &Db) -> Result<bool, StoreError> {
        let most = (MAX_PARTS_AT_ONCE / self.keys.len().max(1)).max(1);
        let count = self.runs_at_once.min(most).min(self.runs.len());
        self.runs_at_once = (2 * self.runs_at_once).min(most);
        let runs = self.runs.split_off(self.runs.len() - count);
        let part_of_key = |run: &RunHead, key: u64| part_id(run.id, part_of(key, parts_of(run.level)));
        let wanted = runs.iter().flat_map(|run| self.keys.iter().map(|key| part_of_key(run, *key)));
        let sql =
            format!("SELECT id, postings FROM log_word_parts WHERE {}", in_ids(logs.dialect(), "id", 1));
        let mut parts: HashMap<i64, Vec<u8>> = HashMap::new();
        for row in logs.all(AssertSqlSafe(sql), args![id_list(wanted)]).await? {
            parts.insert(row.get("id")?, row.get("postings")?);
        }
        let mut matching: HashMap<i64, Vec<u16>> = HashMap::new();
        for run in &runs {
            let mut lists = Vec::new();
            for key in &self.keys {
                let Some(part) = parts.get(&part_of_key(run, *key)) else { return Ok(false) };
                let rows = rows_with(part, *key)?;
                if rows.is_empty() {
                    lists.clear();
                    break;
                }
                lists.push(rows);
            }
            let rows = in_all(lists);
            if !rows.is_empty() {
                matching.insert(run.id, rows);
            }
        }
        self.add_ids(logs, &matching).await
    }

    /// Adds the ids of rows by their positions in runs. Returns false if a run was merged or deleted meanwhile.
    async fn add_ids(&mut self, logs: &Db, rows: &HashMap<i64, Vec<u16>>) -> Result<bool, StoreError> {
        if rows.is_empty() {
            return Ok(true);
        }
        let sql = format!("SELECT id, ids FROM log_word_runs WHERE {}", in_ids(logs.dialect(), "id", 1));
        let runs = logs.all(AssertSqlSafe(sql), args![id_list(rows.keys().copied())]).await?;
        if runs.len() < rows.len() {
            return Ok(false);
        }
        for run in runs {
            let ids = decode_ids(&run.get::<Vec<u8>>("ids")?)?;
            let positions = rows.get(&run.get::<i64>("id")?).into_iter().flatten();
            let found = positions.filter_map(|at| ids.get(usize::from(*at)).copied());
            self.found.extend(found.filter(|id| self.range.after < *id && *id < self.range.before));
        }
        if self.is_ascending {
            self.found.sort_unstable_by(|one, other| other.cmp(one));
        } else {
            self.found.sort_unstable();
        }
        // A row that was deleted and came again is in two runs.
        self.found.dedup();
        Ok(true)
    }
}
