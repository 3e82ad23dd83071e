//! The new rows of a batch: what is stored of them, and how they are counted.

use std::borrow::Cow;
use std::collections::HashSet;

use gateway_core::ids::OrgId;
use gateway_core::logs::{BodyStorage, LogRow};
use gateway_core::word_runs::Run;
use sqlx::AssertSqlSafe;

use super::{BodyBytes, Written};
use crate::logs::bulk::{id_list, in_ids};
use crate::logs::columns::{COMMON_ROWS, ROWS, SharedTexts, is_common, values_of};
use crate::logs::days::{Admission, BatchDays, BatchLimits, COUNTED, LineLimits};
use crate::logs::rollup::{self, NewSums};
use crate::logs::texts::{BatchTexts, Texts, has_bodies};
use crate::logs::{batches, bodies, purge, user_spend, words};
use crate::row::args;
use crate::{StoreError, Tx, exports};

/// The rows that are not stored yet with their positions, without duplicates and rows of deleted organizations, ordered
/// by id. Writers insert in an order that is the same for all (by kind of row, then by id), so that two of them with the
/// same rows do not deadlock.
pub(super) async fn new_rows<'a>(
    tx: &mut Tx,
    rows: &'a [LogRow],
) -> Result<Vec<(usize, &'a LogRow)>, StoreError> {
    let these = in_ids(tx.dialect(), "id", 1);
    let sql =
        format!("SELECT id FROM log_rows WHERE {these} UNION ALL SELECT id FROM log_counted WHERE {these}");
    let found = tx.all(AssertSqlSafe(sql), args![id_list(rows.iter().map(|row| row.id))]).await?;
    let mut known = found.iter().map(|row| row.get("id")).collect::<Result<HashSet<i64>, _>>()?;
    let deleted = purge::deleted_orgs(tx, rows).await?;
    let is_new = |(_, row): &(usize, &LogRow)| !deleted.contains(&row.org_id) && known.insert(row.id);
    let mut new: Vec<(usize, &LogRow)> = rows.iter().enumerate().filter(is_new).collect();
    new.sort_unstable_by_key(|(_, row)| row.id);
    Ok(new)
}

/// The new rows of a batch with what the quotas admit of them.
pub(super) struct Batch<'a> {
    /// All new rows, ordered by id.
    pub(super) all: Vec<&'a LogRow>,
    admissions: Vec<Admission>,
    /// The rows as they are stored, ordered by id.
    stored: Vec<(Cow<'a, LogRow>, Texts)>,
    /// The ids of the rows that are only counted.
    pub(super) counted: Vec<i64>,
    without_bodies: u64,
}

impl<'a> Batch<'a> {
    /// Admits the rows, and counts them in the days. The texts of the rows are taken.
    pub(super) fn admit(
        new: Vec<(usize, &'a LogRow)>,
        texts: &mut BatchTexts,
        days: &mut BatchDays,
        limits: &BatchLimits,
    ) -> Self {
        let mut batch = Self {
            all: Vec::with_capacity(new.len()),
            admissions: Vec::with_capacity(new.len()),
            stored: Vec::with_capacity(new.len()),
            counted: Vec::new(),
            without_bodies: 0,
        };
        for (at, row) in new {
            let row_texts = texts.rows.get_mut(at).map(std::mem::take).unwrap_or_default();
            batch.add(row, row_texts, days.admit(row, &limits.quotas));
        }
        batch
    }

    fn add(&mut self, row: &'a LogRow, texts: Texts, admission: Admission) {
        self.all.push(row);
        self.admissions.push(admission);
        match admission {
            Admission::Whole => self.stored.push((Cow::Borrowed(row), texts)),
            Admission::WithoutBodies => {
                let off = BodyStorage::Off;
                let (request, response) = (Vec::new(), Vec::new());
                let row =
                    LogRow { request, response, request_stored: off, response_stored: off, ..row.clone() };
                self.without_bodies += 1;
                self.stored.push((Cow::Owned(row), Texts::default()));
            }
            Admission::Counted => self.counted.push(row.id),
        }
    }

    /// Whether these days admit the same of each row. Counts the rows in the days.
    pub(super) fn is_admitted_by(&self, days: &mut BatchDays, limits: &BatchLimits) -> bool {
        // All rows, because the caller continues with the days.
        let again: Vec<Admission> = self.all.iter().map(|row| days.admit(row, &limits.quotas)).collect();
        again == self.admissions
    }

    /// The rows as they are stored.
    pub(super) fn stored(&self) -> Vec<&LogRow> {
        self.stored.iter().map(|(row, _)| &**row).collect()
    }

    /// Stores the rows, the ids of those that are only counted, bodies, words and the queue of exports. The sessions are
    /// those of `stored`. None of it is shared with other batches.
    pub(super) async fn store(
        &self,
        tx: &mut Tx,
        sessions: &[String],
        made: BatchTexts,
    ) -> Result<BodyBytes, StoreError> {
        COUNTED.run(tx, self.counted.iter().map(|id| args![*id])).await?;
        let new = self.stored();
        if new.is_empty() {
            return Ok(BodyBytes::default());
        }
        let texts: Vec<&Texts> = self.stored.iter().map(|(_, texts)| texts).collect();
        // Blocks and run were made before the transaction, of all rows. Mostly all are new, with their bodies.
        let mut block_of = bodies::by_row(&made.blocks);
        let mut blocks = made.blocks;
        let with_bodies: HashSet<i64> = new.iter().filter(|row| has_bodies(row)).map(|row| row.id).collect();
        // A row that is in the batch twice is in the blocks twice, too.
        let in_blocks = blocks.iter().map(|block| block.ids.len()).sum::<usize>();
        if with_bodies.len() != in_blocks || !with_bodies.iter().all(|id| block_of.contains_key(id)) {
            blocks = bodies::blocks(new.iter().copied());
            block_of = bodies::by_row(&blocks);
        }
        let mut shared = SharedTexts::default();
        let all = new.iter().zip(sessions).zip(&texts);
        let (common, others): (Vec<_>, Vec<_>) = all.partition(|((row, _), _)| is_common(row));
        for (rows, insert) in [(common, &COMMON_ROWS), (others, &ROWS)] {
            let values = rows.into_iter().map(|((row, session), texts)| {
                let block = block_of.get(&row.id).copied();
                values_of(row, session, texts.preview.clone(), block, &mut shared)
            });
            insert.run(tx, values).await?;
        }
        let stored = BodyBytes {
            whole: new.iter().map(|row| (row.request.len() + row.response.len()) as u64).sum(),
            compressed: blocks.iter().map(|block| block.bytes.len() as u64).sum(),
        };
        bodies::add(tx, blocks).await?;
        let indexed: Vec<(i64, OrgId, &[u64])> = new
            .iter()
            .zip(&texts)
            .filter(|(row, _)| has_bodies(row))
            .map(|(row, texts)| (row.id, row.org_id, texts.terms.as_slice()))
            .collect();
        let is_same = |run: &Run| run.ids.iter().eq(indexed.iter().map(|(id, ..)| id));
        if let Some(run) = made.run.filter(is_same).or_else(|| Run::of(indexed.iter().copied())) {
            words::add(tx, run).await?;
        }
        exports::enqueue(tx, &new).await?;
        Ok(stored)
    }

    /// The sums of the rows, for `count`.
    pub(super) fn sums(&self) -> NewSums<'a> {
        NewSums::of(&self.all)
    }

    /// Adds the rows to what they share with other batches, except for the sessions. The caller holds the lock of usage,
    /// and the days were read under it.
    pub(super) async fn count(
        &self,
        tx: &mut Tx,
        sums: NewSums<'_>,
        days: &mut BatchDays,
        lines: LineLimits,
    ) -> Result<(), StoreError> {
        if !self.stored.is_empty() {
            batches::add(tx, &self.stored()).await?;
        }
        rollup::add(tx, sums, days, lines).await?;
        user_spend::add(tx, &self.all, days, lines.spenders).await?;
        days.write(tx).await
    }

    pub(super) fn written(self, bodies: BodyBytes, days: &BatchDays) -> Written {
        Written {
            new: self.all.iter().map(|row| row.id).collect(),
            counted: self.counted,
            without_bodies: self.without_bodies,
            bodies,
            days: days.stored(),
        }
    }
}
