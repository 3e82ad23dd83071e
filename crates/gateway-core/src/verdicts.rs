//! External verdicts on skills and log rows: valid source names, and how a missing score or pass is derived from the
//! other.

use crate::skills::rubric::{Axes, Axis, rounded};

/// The source of the gateway's own judges. External verdicts must not use it.
pub const INTERNAL_SOURCE: &str = "internal";
/// A verdict on a log row without an explicit pass passes at this score or above.
pub const LOG_THRESHOLD: f64 = 0.5;
const MAX_SOURCE_CHARS: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerdictError {
    #[error("source: must be 1 to 32 lowercase letters, digits, _ or -")]
    Source,
    #[error("source: 'internal' is reserved for the gateway's own judges")]
    Reserved,
    #[error("score: must be a number between 0 and 1")]
    Score,
    #[error("score, passed: at least one of them is required")]
    Nothing,
}

/// Whether the text is a valid source name.
pub fn is_source(text: &str) -> bool {
    (1..=MAX_SOURCE_CHARS).contains(&text.len())
        && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// Checks the source of an external verdict.
pub fn check_source(text: &str) -> Result<(), VerdictError> {
    match text {
        INTERNAL_SOURCE => Err(VerdictError::Reserved),
        text if is_source(text) => Ok(()),
        _ => Err(VerdictError::Source),
    }
}

/// Derives a missing score or pass from the other. If both are given, they are kept.
pub fn resolve_score(
    score: Option<f64>,
    passed: Option<bool>,
    threshold: f64,
) -> Result<(f64, bool), VerdictError> {
    if score.is_some_and(|score| !(0.0..=1.0).contains(&score)) {
        return Err(VerdictError::Score);
    }
    match (score, passed) {
        (Some(score), Some(passed)) => Ok((score, passed)),
        (Some(score), None) => Ok((score, score >= threshold)),
        (None, Some(passed)) => Ok((if passed { 1.0 } else { 0.0 }, passed)),
        (None, None) => Err(VerdictError::Nothing),
    }
}

/// The axes of a verdict without axes of its own.
pub fn single_axis(score: f64, external_ref: &str) -> Axes {
    Axes::from([("external".to_owned(), Axis { score: rounded(score), rationale: external_ref.to_owned() })])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_up_to_32_lowercase_letters_digits_underscores_or_hyphens() {
        for good in ["a", "deep-eval_2", "-", &"x".repeat(32)] {
            assert_eq!(check_source(good), Ok(()), "{good}");
        }
        for bad in ["", "A", "a b", "é", "a\n", "a.b", &"x".repeat(33)] {
            assert_eq!(check_source(bad), Err(VerdictError::Source), "{bad}");
        }
        assert_eq!(check_source("internal"), Err(VerdictError::Reserved));
        assert!(is_source("internal"));
    }

    #[test]
    fn score_and_pass_are_derived_from_each_other() {
        assert_eq!(resolve_score(Some(0.7), None, 0.7), Ok((0.7, true)));
        assert_eq!(resolve_score(Some(0.69), None, 0.7), Ok((0.69, false)));
        assert_eq!(resolve_score(None, Some(true), 0.7), Ok((1.0, true)));
        assert_eq!(resolve_score(None, Some(false), 0.7), Ok((0.0, false)));
        assert_eq!(resolve_score(Some(0.1), Some(true), 0.7), Ok((0.1, true)));
        assert_eq!(resolve_score(None, None, 0.7), Err(VerdictError::Nothing));
        for bad in [-0.01, 1.01, f64::NAN, f64::INFINITY] {
            assert_eq!(resolve_score(Some(bad), Some(true), 0.7), Err(VerdictError::Score), "{bad}");
        }
        for bound in [0.0, 1.0] {
            assert_eq!(resolve_score(Some(bound), Some(false), 0.7), Ok((bound, false)));
        }
    }

    #[test]
    fn a_verdict_without_axes_has_one_with_its_reference() {
        let axes = single_axis(0.123_456, "run/7");
        assert_eq!(
            axes,
            Axes::from([("external".into(), Axis { score: 0.1235, rationale: "run/7".into() })])
        );
    }
}
