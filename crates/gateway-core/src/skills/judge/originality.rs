//! Scores originality against the shelf. Cosine similarity of embeddings finds the nearest skill. Shared word n-grams
//! distinguish a copy from a skill on the same subject.

use std::collections::HashSet;

use super::quoted;
use crate::skills::rubric::{Axis, rounded};

/// At or above this similarity a skill is a copy.
pub const COPY_SIMILARITY: f64 = 0.9;
/// At or below this similarity a skill gets the full score.
const DISTINCT_SIMILARITY: f64 = 0.5;
/// Words per n-gram. Texts on the same subject share words and short phrases, but rarely five words in a row.
const NGRAM_WORDS: usize = 5;
/// At or above this share of common n-grams a skill is a copy, regardless of added text.
const COPY_SHARE: f64 = 0.6;

/// The skill on the shelf that is most similar to the one being judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Neighbour {
    pub name: String,
    /// Cosine of the two embeddings.
    pub similarity: f64,
    /// The embedding model.
    pub embedder: String,
    /// The share of the neighbour's n-grams that the skill contains as well.
    pub shared: f64,
}

impl Neighbour {
    /// Closeness on a scale where 1 is a copy.
    pub fn closeness(&self) -> f64 {
        (self.similarity / COPY_SIMILARITY).max(self.shared / COPY_SHARE)
    }

    pub fn is_copied(&self) -> bool {
        self.similarity >= COPY_SIMILARITY || self.shared >= COPY_SHARE
    }
}

/// Compares the text of a skill with that of its neighbour.
pub fn compare(name: &str, similarity: f64, embedder: &str, text: &str, neighbour: &str) -> Neighbour {
    let (ours, theirs) = (ngrams(text), ngrams(neighbour));
    let common = theirs.iter().filter(|ngram| ours.contains(*ngram)).count();
    let share = if theirs.is_empty() { 0.0 } else { ratio(common, theirs.len()) };
    Neighbour { name: name.to_owned(), similarity, embedder: embedder.to_owned(), shared: share }
}

pub fn axis(nearest: Option<&Neighbour>) -> Axis {
    let Some(nearest) = nearest else {
        return Axis {
            score: 1.0,
            rationale: "There is no other skill on the shelf to compare with.".into(),
        };
    };
    let by_similarity =
        1.0 - (nearest.similarity - DISTINCT_SIMILARITY) / (COPY_SIMILARITY - DISTINCT_SIMILARITY);
    let by_ngrams = 1.0 - nearest.shared / COPY_SHARE;
    let score = rounded(by_similarity.min(by_ngrams).clamp(0.0, 1.0));
    let verdict = if nearest.is_copied() { "It is a copy of" } else { "The nearest skill on the shelf is" };
    let rationale = format!(
        "{verdict} {}: similarity {:.2} by {}, {:.0} of 100 runs of {NGRAM_WORDS} words in common.",
        quoted(&nearest.name),
        nearest.similarity,
        nearest.embedder,
        nearest.shared * 100.0,
    );
    Axis { score, rationale }
}

fn ratio(part: usize, whole: usize) -> f64 {
    let as_number = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    as_number(part) / as_number(whole)
}

fn ngrams(text: &str) -> HashSet<Vec<String>> {
    let words: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    words.windows(NGRAM_WORDS).map(<[String]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "Read the change first, then run the tests, then say what is wrong with it in one line each.";

    #[test]
    fn a_copy_is_detected_however_much_text_surrounds_it() {
        let padded = format!(
            "{} {TEXT} {}",
            "Some words before all that. ".repeat(20),
            "And many words behind it.".repeat(20)
        );
        let neighbour = compare("other", 0.4, "hash-v1", &padded, TEXT);
        assert!(neighbour.shared > 0.99);
        assert!(neighbour.is_copied());
        assert!(axis(Some(&neighbour)).score < 0.01);
        assert!(axis(Some(&neighbour)).rationale.contains("copy of \"other\""));
    }

    #[test]
    fn another_text_on_the_same_subject_is_not_a_copy() {
        let other = "When a change comes in, look at its tests before anything else; write down each fault.";
        let neighbour = compare("other", 0.55, "hash-v1", other, TEXT);
        assert!(!neighbour.is_copied());
        assert!(axis(Some(&neighbour)).score > 0.8);
        assert!(axis(None).score > 0.99);
    }
}
