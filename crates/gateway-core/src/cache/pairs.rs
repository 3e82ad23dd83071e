//! Accuracy of the semantic cache on hand-labelled pairs of texts (`fixtures/semantic_pairs.csv`): `same` may share a
//! response, `other` must not. `docs/caching.md` quotes the figures.

use super::gate::agrees;
use crate::embed::{DIMENSIONS, cosine, hash_v1};

/// The minimum percentage of `same` pairs that the gate accepts, alone and with a threshold of 0.95.
const MIN_GATE_HITS_PERCENT: usize = 70;
const MIN_HITS_AT_95_PERCENT: usize = 45;

struct Pair {
    same: bool,
    kind: String,
    a: String,
    b: String,
    similarity: f32,
}

fn pairs() -> Vec<Pair> {
    let text = include_str!("../../fixtures/semantic_pairs.csv");
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let pair = |row: csv::StringRecord| {
        let (a, b) = (row[2].to_owned(), row[3].to_owned());
        let similarity = cosine(&hash_v1(&a, DIMENSIONS), &hash_v1(&b, DIMENSIONS));
        assert!(matches!(&row[0], "same" | "other"), "{row:?}");
        Pair { same: &row[0] == "same", kind: row[1].to_owned(), a, b, similarity }
    };
    reader.records().map(|row| pair(row.unwrap())).collect()
}

fn percent(part: usize, whole: usize) -> usize {
    (part * 100 + whole / 2) / whole
}

#[test]
fn near_misses_miss_and_most_paraphrases_hit() {
    let (same, other): (Vec<Pair>, Vec<Pair>) = pairs().into_iter().partition(|pair| pair.same);
    assert!(same.len() >= 60 && other.len() >= 150, "{} {}", same.len(), other.len());
    for threshold in [0.80, 0.85, 0.90, 0.95, 0.98] {
        let near = |pair: &&Pair| pair.similarity >= threshold;
        let count = |pairs: &[Pair]| {
            let vectors = pairs.iter().filter(near).count();
            (vectors, pairs.iter().filter(near).filter(|pair| agrees(&pair.a, &pair.b)).count())
        };
        let (false_by_vector, false_hits) = count(&other);
        let (hits_by_vector, hits) = count(&same);
        println!(
            "{threshold:.2}: false hits {false_by_vector} -> {false_hits} of {}, hits {hits_by_vector} -> {hits} of {}",
            other.len(),
            same.len()
        );
        assert_eq!(false_hits, 0, "at {threshold}");
        if (threshold - 0.95).abs() < f32::EPSILON {
            assert!(percent(hits, same.len()) >= MIN_HITS_AT_95_PERCENT, "{hits} hits at 0.95");
        }
    }
    // No `other` pair may pass the gate at any similarity, because another embedding may rate any of them as similar.
    let passing: Vec<&Pair> = other.iter().filter(|pair| agrees(&pair.a, &pair.b)).collect();
    let shown: Vec<_> = passing.iter().map(|pair| (&pair.kind, &pair.a, &pair.b)).collect();
    assert!(shown.is_empty(), "{shown:#?}");
    let kept = same.iter().filter(|pair| agrees(&pair.a, &pair.b)).count();
    for pair in same.iter().filter(|pair| !agrees(&pair.a, &pair.b)) {
        println!("rejected by the gate ({}): {} / {}", pair.kind, pair.a, pair.b);
    }
    println!("through the gate alone: {kept} of {}", same.len());
    assert!(percent(kept, same.len()) >= MIN_GATE_HITS_PERCENT, "{kept} of {}", same.len());
}

#[test]
fn the_gate_is_symmetric() {
    for pair in pairs() {
        assert_eq!(agrees(&pair.a, &pair.b), agrees(&pair.b, &pair.a), "{} / {}", pair.a, pair.b);
    }
}
