//! The rule that gates publishing, and the only place where it stands. What is on the shelf got there by
//! `PublishDecision::Publish`; the store applies a decision in the transaction that read what it was made from.

/// A verdict on one version of a skill, as far as the gate cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvaluationVote {
    pub version: i64,
    pub passed: bool,
    pub source: String,
}

/// Everything that the decision depends on, read under lock.
#[derive(Debug, Clone, Copy)]
pub struct PublishContext<'a> {
    /// The skill's current version.
    pub version: i64,
    /// The version on the shelf; none while the skill is private.
    pub published: Option<i64>,
    pub ballots: &'a [EvaluationVote],
    /// `allowed_verdict_sources` of the organization's rubric.
    pub allowed: &'a [String],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishDecision {
    /// The current version goes on the shelf, in place of an older one if there is one.
    Publish,
    /// The shelf stays as it is, and that is no error: the skill is public already.
    Keep,
    /// The skill is private, and its current version has not passed.
    Refuse,
}

/// May the current version go on the shelf? It must have passed, itself, in the eyes of a source that the
/// organization believes; what an older version earned does not count.
pub fn decide(standing: PublishContext<'_>) -> PublishDecision {
    let PublishContext { version, published, ballots, allowed } = standing;
    let passes = |ballot: &EvaluationVote| {
        ballot.version == version && ballot.passed && allowed.contains(&ballot.source)
    };
    match published {
        Some(live) if live == version => PublishDecision::Keep,
        _ if ballots.iter().any(passes) => PublishDecision::Publish,
        Some(_) => PublishDecision::Keep,
        None => PublishDecision::Refuse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the row is about, the version on the shelf, who says what, who is believed, what follows.
    type Row = (&'static str, Option<i64>, Vec<EvaluationVote>, &'static [&'static str], PublishDecision);

    fn ballot(version: i64, passed: bool, source: &str) -> EvaluationVote {
        EvaluationVote { version, passed, source: source.into() }
    }

    #[test]
    fn every_row_of_the_table_of_states() {
        let pass = |version| ballot(version, true, "internal");
        let fail = |version| ballot(version, false, "internal");
        let scanner = |passed| ballot(2, passed, "scanner");
        let only_internal: &[&str] = &["internal"];
        let both: &[&str] = &["internal", "scanner"];
        let table: &[Row] = &[
            ("private, passed", None, vec![pass(2)], only_internal, PublishDecision::Publish),
            ("private, nothing judged", None, vec![], only_internal, PublishDecision::Refuse),
            ("private, failed", None, vec![fail(2)], only_internal, PublishDecision::Refuse),
            (
                "private, only the version before passed",
                None,
                vec![pass(1)],
                only_internal,
                PublishDecision::Refuse,
            ),
            (
                "private, a version that is not there yet passed",
                None,
                vec![pass(3)],
                both,
                PublishDecision::Refuse,
            ),
            (
                "private, passed after failing",
                None,
                vec![fail(2), pass(2)],
                only_internal,
                PublishDecision::Publish,
            ),
            (
                "private, failed after passing",
                None,
                vec![pass(2), fail(2)],
                only_internal,
                PublishDecision::Publish,
            ),
            (
                "private, passed by a stranger",
                None,
                vec![scanner(true)],
                only_internal,
                PublishDecision::Refuse,
            ),
            (
                "private, passed by an allowed source",
                None,
                vec![scanner(true)],
                both,
                PublishDecision::Publish,
            ),
            (
                "private, failed by us, passed by an allowed source",
                None,
                vec![fail(2), scanner(true)],
                both,
                PublishDecision::Publish,
            ),
            ("private, nobody is allowed", None, vec![pass(2), scanner(true)], &[], PublishDecision::Refuse),
            ("public, unchanged, passed", Some(2), vec![pass(2)], only_internal, PublishDecision::Keep),
            (
                "public, unchanged, no longer believed",
                Some(2),
                vec![scanner(true)],
                &[],
                PublishDecision::Keep,
            ),
            (
                "public, updated, passed",
                Some(1),
                vec![pass(1), pass(2)],
                only_internal,
                PublishDecision::Publish,
            ),
            (
                "public, updated, failed",
                Some(1),
                vec![pass(1), fail(2)],
                only_internal,
                PublishDecision::Keep,
            ),
            ("public, updated, not judged yet", Some(1), vec![pass(1)], only_internal, PublishDecision::Keep),
            (
                "public, updated, passed by a stranger",
                Some(1),
                vec![scanner(true)],
                only_internal,
                PublishDecision::Keep,
            ),
        ];
        for (row, published, ballots, allowed, expected) in table {
            let allowed: Vec<String> = allowed.iter().map(|source| (*source).to_owned()).collect();
            let standing = PublishContext { version: 2, published: *published, ballots, allowed: &allowed };
            assert_eq!(decide(standing), *expected, "{row}");
        }
    }

    #[test]
    fn a_source_is_believed_only_under_its_exact_name() {
        for source in ["Internal", "internal ", "intern", "internal2", ""] {
            let (ballots, allowed) = ([ballot(1, true, source)], ["internal".to_owned()]);
            let standing =
                PublishContext { version: 1, published: None, ballots: &ballots, allowed: &allowed };
            assert_eq!(decide(standing), PublishDecision::Refuse, "{source}");
        }
    }
}
