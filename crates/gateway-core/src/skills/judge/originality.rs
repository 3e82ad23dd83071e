//! How near a skill is to what is on the shelf already: the angle between embeddings finds the neighbour, and the runs of
//! words that both share tell a copy from a skill on the same subject.

use std::collections::HashSet;

use super::quoted;
use crate::skills::rubric::{Axis, rounded};

/// From this similarity on a skill is a copy.
pub const COPY: f64 = 0.9;
/// Up to this similarity a skill is simply another one.
const APART: f64 = 0.5;
/// Words in a run. Texts on the same subject share words, and short phrases, but hardly five in a row.
const RUN: usize = 5;
/// The share of common runs from which on a skill is a copy, however much was put around it.
const SHARED: f64 = 0.6;

/// The skill of the shelf that is most like the one being judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Neighbour {
    pub name: String,
    /// Cosine of the two embeddings.
    pub similarity: f64,
    /// Which embedding it was.
    pub embedder: String,
    /// The share of the neighbour's runs of words that the skill has too.
    pub shared: f64,
}

impl Neighbour {
    /// How near it is, on a scale on which 1 is a copy.
    pub fn nearness(&self) -> f64 {
        (self.similarity / COPY).max(self.shared / SHARED)
    }

    pub fn is_copied(&self) -> bool {
        self.similarity >= COPY || self.shared >= SHARED
    }
}

/// Compares the text of a skill with that of its neighbour.
pub fn compare(name: &str, similarity: f64, embedder: &str, text: &str, neighbour: &str) -> Neighbour {
    let (ours, theirs) = (runs(text), runs(neighbour));
    let common = theirs.iter().filter(|run| ours.contains(*run)).count();
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
    let by_angle = 1.0 - (nearest.similarity - APART) / (COPY - APART);
    let by_runs = 1.0 - nearest.shared / SHARED;
    let score = rounded(by_angle.min(by_runs).clamp(0.0, 1.0));
    let verdict = if nearest.is_copied() { "It is a copy of" } else { "The nearest skill on the shelf is" };
    let rationale = format!(
        "{verdict} {}: similarity {:.2} by {}, {:.0} of 100 runs of {RUN} words in common.",
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

fn runs(text: &str) -> HashSet<Vec<String>> {
    let words: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    words.windows(RUN).map(<[String]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "Read the change first, then run the tests, then say what is wrong with it in one line each.";

    #[test]
    fn a_copy_is_known_however_much_is_put_around_it() {
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
    fn another_text_on_the_same_subject_is_none() {
        let other = "When a change comes in, look at its tests before anything else; write down each fault.";
        let neighbour = compare("other", 0.55, "hash-v1", other, TEXT);
        assert!(!neighbour.is_copied());
        assert!(axis(Some(&neighbour)).score > 0.8);
        assert!(axis(None).score > 0.99);
    }
}
