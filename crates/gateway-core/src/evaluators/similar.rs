//! How like a reference a text is: by its characters, or by embeddings.

use super::{NotEvaluated, Subject, Verdict};
use crate::embed::cosine;

/// The time grows with the product of both lengths.
const LONGEST: usize = 4_096;

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
    pub(super) fn judge(&self, subject: &Subject) -> Result<Verdict, NotEvaluated> {
        let reference = reference(self.reference.as_deref(), subject)?;
        let text = match subject.text()? {
            Ok(text) => text,
            Err(nothing) => return Ok(Verdict::of(false, nothing)),
        };
        let (a, b): (Vec<char>, Vec<char>) = (text.chars().collect(), reference.chars().collect());
        if a.len().max(b.len()) > LONGEST {
            return Err(NotEvaluated(format!("texts of more than {LONGEST} characters are not compared")));
        }
        let (changes, longest) = (distance(&a, &b), a.len().max(b.len()));
        #[expect(clippy::cast_precision_loss, reason = "a share of at most some thousand")]
        let score = if longest == 0 { 1.0 } else { 1.0 - changes as f64 / longest as f64 };
        Ok(Verdict::scored(score, self.threshold, format!("{changes} changes in {longest} characters")))
    }
}

impl Embedding {
    /// The two texts whose embeddings are compared. A subject without a text has its verdict already.
    pub fn texts<'a>(&'a self, subject: &'a Subject) -> Result<Result<[&'a str; 2], Verdict>, NotEvaluated> {
        let reference = reference(self.reference.as_deref(), subject)?;
        Ok(match subject.text()? {
            Ok(text) => Ok([text, reference]),
            Err(nothing) => Err(Verdict::of(false, nothing)),
        })
    }

    pub fn verdict(&self, a: &[f32], b: &[f32]) -> Verdict {
        let cosine = f64::from(cosine(a, b));
        // Opposite meanings are no more alike than strangers.
        Verdict::scored(cosine.max(0.0), self.threshold, format!("cosine similarity {cosine:.4}"))
    }
}

fn reference<'a>(given: Option<&'a str>, subject: &'a Subject) -> Result<&'a str, NotEvaluated> {
    given.or(subject.expected.as_deref()).ok_or_else(|| {
        NotEvaluated(
            "there is nothing to compare with: config.reference is not set, and nothing is expected".into(),
        )
    })
}

/// The least number of characters that must be put in, taken out or replaced.
fn distance(a: &[char], b: &[char]) -> usize {
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[same..], &b[same..]);
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(a: &str, b: &str) -> usize {
        distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>())
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
