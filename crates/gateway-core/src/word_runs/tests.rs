//! Runs against a plain map of words, and damaged bytes.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use proptest::prelude::*;

use super::*;

fn org(number: u128) -> OrgId {
    OrgId(uuid::Uuid::from_u128(number))
}

/// The ids of the rows with all words, by the index.
fn search(run: &Run, org: OrgId, terms: &[u64]) -> Vec<i64> {
    let lists = terms.iter().map(|term| {
        let key = key_of(org, *term);
        rows_with(&run.parts[part_of(key, run.parts.len())], key).unwrap()
    });
    in_all(lists.collect()).into_iter().map(|row| run.ids[usize::from(row)]).collect()
}

fn merge(runs: &[Run], deleted: &HashSet<i64>) -> Run {
    let ids: Vec<Vec<i64>> = runs.iter().map(|run| run.ids.clone()).collect();
    let plan = MergePlan::new(&ids, level_of(runs[0].ids.len()), deleted).unwrap();
    let mut parts = Vec::new();
    for number in 0..runs[0].parts.len() {
        let old: Vec<Vec<u8>> = runs.iter().map(|run| run.parts[number].clone()).collect();
        parts.extend(merge_part(&plan, &old).unwrap());
    }
    Run { ids: plan.ids, parts }
}

type Rows = BTreeMap<i64, (OrgId, BTreeSet<u64>)>;

fn rows(ids: std::ops::Range<usize>) -> impl Strategy<Value = Rows> {
    let row = (0..3_u128, prop::collection::btree_set(0..60_u64, 0..25));
    prop::collection::btree_map(1..1_000_000_i64, row.prop_map(|(number, terms)| (org(number), terms)), ids)
}

fn run_of(rows: &Rows) -> Run {
    let terms: Vec<(i64, OrgId, Vec<u64>)> =
        rows.iter().map(|(id, (org, terms))| (*id, *org, terms.iter().copied().collect())).collect();
    Run::of(terms.iter().map(|(id, org, terms)| (*id, *org, terms.as_slice()))).unwrap()
}

fn expected(rows: &Rows, org: OrgId, terms: &[u64]) -> Vec<i64> {
    let found = rows.iter().filter(|(_, (of, words))| *of == org && terms.iter().all(|t| words.contains(t)));
    found.map(|(id, _)| *id).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_run_finds_what_a_scan_finds(rows in rows(1..600), terms in prop::collection::vec(0..60_u64, 1..4)) {
        let run = run_of(&rows);
        prop_assert_eq!(run.parts.len(), parts_of(level_of(rows.len())));
        prop_assert_eq!(&decode_ids(&encode_ids(&run.ids)).unwrap(), &run.ids);
        for number in 0..3 {
            prop_assert_eq!(search(&run, org(number), &terms), expected(&rows, org(number), &terms));
        }
    }

    #[test]
    fn a_merged_run_finds_the_rows_that_were_not_deleted(
        rows in rows(1..500),
        batch in 1..15_usize,
        deleted in prop::collection::hash_set(0..500_usize, 0..60),
        terms in prop::collection::vec(0..60_u64, 1..3),
    ) {
        let all: Vec<(i64, (OrgId, BTreeSet<u64>))> = rows.clone().into_iter().collect();
        let deleted: HashSet<i64> = deleted.iter().filter_map(|at| all.get(*at)).map(|(id, _)| *id).collect();
        let runs: Vec<Run> =
            all.chunks(batch).map(|part| run_of(&part.iter().cloned().collect())).collect();
        let kept: Rows = all.into_iter().filter(|(id, _)| !deleted.contains(id)).collect();
        let merged = merge(&runs, &deleted);
        prop_assert_eq!(merged.ids.clone(), kept.keys().copied().collect::<Vec<_>>());
        for number in 0..3 {
            prop_assert_eq!(search(&merged, org(number), &terms), expected(&kept, org(number), &terms));
        }
        if !kept.is_empty() {
            prop_assert_eq!(merged, run_of(&kept));
        }
    }

    #[test]
    fn damaged_bytes_are_an_error_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), key in any::<u64>()) {
        let _ = rows_with(&bytes, key >> POSTING_BITS);
        let _ = read_part(&bytes, |_| {});
        let _ = decode_ids(&bytes);
    }

    #[test]
    fn a_damaged_part_is_an_error_and_no_panic(rows in rows(1..40), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let run = run_of(&rows);
        let mut part = run.parts[0].clone();
        let at = at.index(part.len());
        part[at] = byte;
        let _ = read_part(&part, |_| {});
        for key in 0..60 {
            let _ = rows_with(&part, key_of(org(0), key));
        }
        let _ = read_part(&part[..at], |_| {});
    }
}

#[test]
fn words_of_organizations_have_different_keys() {
    assert_ne!(key_of(org(1), 7), key_of(org(2), 7));
    assert_ne!(key_of(org(1), 7), key_of(org(1), 8));
    assert_eq!(key_of(org(1), 7) >> KEY_BITS, 0);
}

#[test]
fn frequent_words_are_bitmaps() {
    let terms = [1_u64, 2];
    let rows: Vec<(i64, OrgId, &[u64])> =
        (0..8_000).map(|id| (id, org(1), if id % 50 == 0 { &terms[..] } else { &terms[..1] })).collect();
    let run = Run::of(rows).unwrap();
    let bytes: usize = run.parts.iter().map(Vec::len).sum();
    assert!(bytes < 8_000 / 8 + 8_000 / 50 * 2 + 256 * 2 + 32, "{bytes}");
    assert_eq!(search(&run, org(1), &[1]).len(), 8_000);
    assert_eq!(search(&run, org(1), &[1, 2]).len(), 160);
    assert!(search(&run, org(1), &[1, 3]).is_empty());
}

#[test]
fn sixteen_runs_of_a_level_make_one_of_the_next() {
    for rows in [1, 15, 16, 255, 256, 4_095] {
        assert_eq!(level_of(rows * FAN_IN), level_of(rows) + 1, "{rows}");
        assert!(rows * FAN_IN <= MAX_ROWS);
    }
    assert_eq!(level_of(MAX_ROWS), TOP_LEVEL);
}

#[test]
fn a_run_keeps_its_level_when_most_of_its_rows_are_deleted() {
    let terms = [1_u64];
    let run = Run::of((0..300).map(|id| (id, org(1), &terms[..]))).unwrap();
    let merged = merge(&[run], &(10..300).collect());
    assert_eq!((merged.ids.len(), merged.parts.len()), (10, 16));
    assert_eq!(search(&merged, org(1), &[1]), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_merge_that_is_too_large_is_refused() {
    let runs: Vec<Vec<i64>> = (0..3).map(|run| (0..30_000).map(|id| id * 3 + run).collect()).collect();
    assert!(MergePlan::new(&runs, 3, &HashSet::new()).is_none());
    assert!(MergePlan::new(&runs[..2], 3, &HashSet::new()).is_some());
}
