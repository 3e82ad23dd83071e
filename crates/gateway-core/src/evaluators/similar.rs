//! Similarity of a text to a reference, by edit distance or by embeddings.

use super::{NotEvaluated, Subject, Verdict};
use crate::embed::cosine;

/// Longer texts are not compared, because the time grows with the product of both lengths.
const MAX_CHARS: usize = 4_096;

#[derive(Debug)]
pub struct Levenshtein {
    pub reference: Option<String>,
    pub threshold: f64,
}

#[derive(Debug)]
pub struct Embedding {
    pub reference: Option<String>,
    pub threshold: f64,
    pub provider: Option<String>,
    pub model: Option<String>,
}

impl Levenshtein {
    pub(super) fn evaluate(&self, subject: &Subject) -> Result<Verdict, NotEvaluated> {
        let reference = reference(self.reference.as_deref(), subject)?;
        let text = match subject.text()? {
            Ok(text) => text,
            Err(missing) => return Ok(Verdict::binary(false, missing)),
        };
        let (a, b): (Vec<char>, Vec<char>) = (text.chars().collect(), reference.chars().collect());
        if a.len().max(b.len()) > MAX_CHARS {
            return Err(NotEvaluated(format!("texts of more than {MAX_CHARS} characters are not compared")));
        }
        let (changes, longest) = (distance(&a, &b), a.len().max(b.len()));
        #[expect(clippy::cast_precision_loss, reason = "both numbers are at most MAX_CHARS")]
        let score = if longest == 0 { 1.0 } else { 1.0 - changes as f64 / longest as f64 };
        Ok(Verdict::scored(score, self.threshold, format!("{changes} changes in {longest} characters")))
    }
}

impl Embedding {
    /// The two texts whose embeddings are compared. A subject without text fails without an embedding.
    pub fn texts<'a>(&'a self, subject: &'a Subject) -> Result<Result<[&'a str; 2], Verdict>, NotEvaluated> {
        let reference = reference(self.reference.as_deref(), subject)?;
        Ok(match subject.text()? {
            Ok(text) => Ok([text, reference]),
            Err(missing) => Err(Verdict::binary(false, missing)),
        })
    }

    pub fn verdict(&self, a: &[f32], b: &[f32]) -> Verdict {
        let cosine = f64::from(cosine(a, b));
        // Scores must not be negative: opposite texts count as unrelated.
        Verdict::scored(cosine.max(0.0), self.threshold, format!("cosine similarity {cosine:.4}"))
    }
}

fn reference<'a>(given: Option<&'a str>, subject: &'a Subject) -> Result<&'a str, NotEvaluated> {
    given.or(subject.expected.as_deref()).ok_or_else(|| {
        NotEvaluated(
            "there is nothing to compare with: config.reference is not set, and the case has no expected"
                .into(),
        )
    })
}

/// The Levenshtein distance in characters. A common prefix is skipped, because similar texts often share a long one.
fn distance(a: &[char], b: &[char]) -> usize {
    let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    strsim::generic_levenshtein(&Chars(&a[common..]), &Chars(&b[common..]))
}

/// `strsim` takes a sized collection whose reference is iterable.
struct Chars<'a>(&'a [char]);

impl<'a> IntoIterator for &Chars<'a> {
    type Item = char;
    type IntoIter = std::iter::Copied<std::slice::Iter<'a, char>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn between(a: &str, b: &str) -> usize {
        distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>())
    }

    /// The textbook recurrence over the full matrix.
    fn naive_distance(a: &[char], b: &[char]) -> usize {
        let mut matrix = vec![vec![0; b.len() + 1]; a.len() + 1];
        for i in 0..=a.len() {
            for j in 0..=b.len() {
                matrix[i][j] = match (i, j) {
                    (0, _) => j,
                    (_, 0) => i,
                    _ => (matrix[i - 1][j] + 1)
                        .min(matrix[i][j - 1] + 1)
                        .min(matrix[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1])),
                };
            }
        }
        matrix[a.len()][b.len()]
    }

    proptest! {
        #[test]
        fn the_distance_equals_that_of_the_naive_algorithm(a in "[ab\u{e4}\u{1f600} ]{0,24}", b in "[ab\u{e4}\u{1f600} ]{0,24}") {
            let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
            prop_assert_eq!(distance(&a, &b), naive_distance(&a, &b));
        }
    }

    #[test]
    fn the_distance_is_the_least_number_of_changes() {
        for (a, b, changes) in [
            ("", "", 0),
            ("a", "", 1),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
            ("äö", "ao", 2),
            ("same", "same", 0),
        ] {
            assert_eq!(between(a, b), changes, "{a} {b}");
            assert_eq!(between(b, a), changes, "{b} {a}");
        }
    }
}
