//! The publish gate: the single rule that decides whether a skill version goes on the shelf. The store applies a
//! decision in the transaction that read its inputs.

/// The part of an evaluation verdict that the gate needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvaluationVote {
    pub version: i64,
    pub passed: bool,
    pub source: String,
}

/// The inputs of the decision, read under lock.
#[derive(Debug, Clone, Copy)]
pub struct PublishContext<'a> {
    /// The skill's current version.
    pub version: i64,
    /// The version on the shelf; `None` while the skill is private.
    pub published: Option<i64>,
    pub votes: &'a [EvaluationVote],
    /// `allowed_verdict_sources` of the organization's rubric.
    pub allowed_sources: &'a [String],
    /// The safety scan of the internal judge has findings in the current version.
    pub is_unsafe: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishDecision {
    /// Put the current version on the shelf, replacing an older one.
    Publish,
    /// Leave the shelf unchanged. This is not an error: the skill is already public.
    Keep,
    /// The skill is private and its current version has not passed.
    Refuse,
}

/// Decides whether the current version goes on the shelf. That version itself must have passed, by a verdict source
/// that the organization allows. Verdicts on older versions do not count. What is unsafe never passes, whatever a verdict
/// from outside says: publishers report those themselves.
pub fn decide(context: PublishContext<'_>) -> PublishDecision {
    let PublishContext { version, published, votes, allowed_sources, is_unsafe } = context;
    let passes = |vote: &EvaluationVote| {
        vote.version == version && vote.passed && allowed_sources.contains(&vote.source)
    };
    match published {
        Some(live) if live == version => PublishDecision::Keep,
        _ if !is_unsafe && votes.iter().any(passes) => PublishDecision::Publish,
        Some(_) => PublishDecision::Keep,
        None => PublishDecision::Refuse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Description, version on the shelf, votes, allowed sources, expected decision.
    type Row = (&'static str, Option<i64>, Vec<EvaluationVote>, &'static [&'static str], PublishDecision);

    fn vote(version: i64, passed: bool, source: &str) -> EvaluationVote {
        EvaluationVote { version, passed, source: source.into() }
    }

    #[test]
    fn every_row_of_the_table_of_states() {
        let pass = |version| vote(version, true, "internal");
        let fail = |version| vote(version, false, "internal");
        let scanner = |passed| vote(2, passed, "scanner");
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
        for (row, published, votes, allowed, expected) in table {
            let allowed: Vec<String> = allowed.iter().map(|source| (*source).to_owned()).collect();
            let context = PublishContext {
                version: 2,
                published: *published,
                votes,
                allowed_sources: &allowed,
                is_unsafe: false,
            };
            assert_eq!(decide(context), *expected, "{row}");
            let unsafe_decision = decide(PublishContext { is_unsafe: true, ..context });
            let unchanged = if published.is_some() { PublishDecision::Keep } else { PublishDecision::Refuse };
            assert_eq!(unsafe_decision, unchanged, "{row}, but unsafe");
        }
    }

    #[test]
    fn a_source_is_believed_only_under_its_exact_name() {
        for source in ["Internal", "internal ", "intern", "internal2", ""] {
            let (votes, allowed) = ([vote(1, true, source)], ["internal".to_owned()]);
            let context = PublishContext {
                version: 1,
                published: None,
                votes: &votes,
                allowed_sources: &allowed,
                is_unsafe: false,
            };
            assert_eq!(decide(context), PublishDecision::Refuse, "{source}");
        }
    }
}
