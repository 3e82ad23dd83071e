//! Merges runs into one, without rows that were deleted. Parts are merged one by one, so that a merge needs memory for a
//! part and not for a run.

use std::collections::HashSet;

use super::sort::sort;
use super::{MAX_ROWS, Posting, encode_part, level_of, part_of, parts_of, read_part};
use crate::packed::Malformed;

/// Where the rows of the old runs are in the new one.
#[derive(Debug)]
pub struct MergePlan {
    /// The ids of the new run, in ascending order.
    pub ids: Vec<i64>,
    /// The level of the new run.
    pub level: i64,
    old_level: i64,
    /// For each old run, the new position of each of its rows. None for deleted rows.
    positions: Vec<Vec<Option<u16>>>,
}

impl MergePlan {
    /// Each run is given by its ids; all are of one level. The new run is of this level or a higher one, even if many of
    /// its rows were deleted. None if it would be too large.
    pub fn new(runs: &[Vec<i64>], old_level: i64, deleted: &HashSet<i64>) -> Option<Self> {
        let mut ids: Vec<i64> = runs.iter().flatten().copied().filter(|id| !deleted.contains(id)).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() > MAX_ROWS {
            return None;
        }
        let position = |id: &i64| ids.binary_search(id).ok().and_then(|at| u16::try_from(at).ok());
        let positions = runs.iter().map(|run| run.iter().map(position).collect()).collect();
        Some(Self { level: level_of(ids.len()).max(old_level), old_level, ids, positions })
    }
}

/// Merges a part of each old run. Returns the new parts that replace them, one or more.
pub fn merge_part(plan: &MergePlan, parts: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Malformed> {
    let new_parts = parts_of(plan.level);
    let share = (new_parts / parts_of(plan.old_level)).max(1);
    let mut postings: Vec<Vec<Posting>> = Vec::new();
    postings.resize_with(share, Vec::new);
    for (part, positions) in parts.iter().zip(&plan.positions) {
        read_part(part, |posting| {
            if let Some(row) = positions.get(usize::from(posting.row())).copied().flatten()
                && let Some(new) = postings.get_mut(part_of(posting.key(), new_parts) % share)
            {
                new.push(Posting::new(posting.key(), row));
            }
        })?;
    }
    let encoded = postings.into_iter().map(|mut part| {
        sort(&mut part, new_parts);
        part.dedup();
        encode_part(&part, plan.ids.len())
    });
    Ok(encoded.collect())
}
