//! The rule that gates publishing, and the only place where it stands. What is on the shelf got there by
//! `Decision::Publish`; the store applies a decision in the transaction that read what it was made from.

/// A verdict on one version of a skill, as far as the gate cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ballot {
    pub version: i64,
    pub passed: bool,
    pub source: String,
}

/// Everything that the decision depends on, read under lock.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// The skill's current version.
    pub version: i64,
    /// The version on the shelf; none while the skill is private.
    pub published: Option<i64>,
    pub ballots: &'a [Ballot],
    /// `allowed_verdict_sources` of the organization's rubric.
    pub allowed: &'a [String],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The current version goes on the shelf, in place of an older one if there is one.
    Publish,
    /// The shelf stays as it is, and that is no error: the skill is public already.
    Keep,
    /// The skill is private, and its current version has not passed.
    Refuse,
}

/// May the current version go on the shelf? It must have passed, itself, in the eyes of a source that the
/// organization believes; what an older version earned does not count.
pub fn publish(standing: Standing<'_>) -> Decision {
    let Standing { version, published, ballots, allowed } = standing;
    let passes =
        |ballot: &Ballot| ballot.version == version && ballot.passed && allowed.contains(&ballot.source);
    match published {
        Some(live) if live == version => Decision::Keep,
        _ if ballots.iter().any(passes) => Decision::Publish,
        Some(_) => Decision::Keep,
        None => Decision::Refuse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the row is about, the version on the shelf, who says what, who is believed, what follows.
    type Row = (&'static str, Option<i64>, Vec<Ballot>, &'static [&'static str], Decision);

    fn ballot(version: i64, passed: bool, source: &str) -> Ballot {
        Ballot { version, passed, source: source.into() }
    }

    #[test]
    fn every_row_of_the_table_of_states() {
        let pass = |version| ballot(version, true, "internal");
        let fail = |version| ballot(version, false, "internal");
        let scanner = |passed| ballot(2, passed, "scanner");
        let only_internal: &[&str] = &["internal"];
        let both: &[&str] = &["internal", "scanner"];
        let table: &[Row] = &[
            ("private, passed", None, vec![pass(2)], only_internal, Decision::Publish),
            ("private, nothing judged", None, vec![], only_internal, Decision::Refuse),
            ("private, failed", None, vec![fail(2)], only_internal, Decision::Refuse),
            ("private, only the version before passed", None, vec![pass(1)], only_internal, Decision::Refuse),
            ("private, a version that is not there yet passed", None, vec![pass(3)], both, Decision::Refuse),
            ("private, passed after failing", None, vec![fail(2), pass(2)], only_internal, Decision::Publish),
            ("private, failed after passing", None, vec![pass(2), fail(2)], only_internal, Decision::Publish),
            ("private, passed by a stranger", None, vec![scanner(true)], only_internal, Decision::Refuse),
            ("private, passed by an allowed source", None, vec![scanner(true)], both, Decision::Publish),
            (
                "private, failed by us, passed by an allowed source",
                None,
                vec![fail(2), scanner(true)],
                both,
                Decision::Publish,
            ),
            ("private, nobody is allowed", None, vec![pass(2), scanner(true)], &[], Decision::Refuse),
            ("public, unchanged, passed", Some(2), vec![pass(2)], only_internal, Decision::Keep),
            ("public, unchanged, no longer believed", Some(2), vec![scanner(true)], &[], Decision::Keep),
            ("public, updated, passed", Some(1), vec![pass(1), pass(2)], only_internal, Decision::Publish),
            ("public, updated, failed", Some(1), vec![pass(1), fail(2)], only_internal, Decision::Keep),
            ("public, updated, not judged yet", Some(1), vec![pass(1)], only_internal, Decision::Keep),
            (
                "public, updated, passed by a stranger",
                Some(1),
                vec![scanner(true)],
                only_internal,
                Decision::Keep,
            ),
        ];
        for (row, published, ballots, allowed, expected) in table {
            let allowed: Vec<String> = allowed.iter().map(|source| (*source).to_owned()).collect();
            let standing = Standing { version: 2, published: *published, ballots, allowed: &allowed };
            assert_eq!(publish(standing), *expected, "{row}");
        }
    }

    #[test]
    fn a_source_is_believed_only_under_its_exact_name() {
        for source in ["Internal", "internal ", "intern", "internal2", ""] {
            let (ballots, allowed) = ([ballot(1, true, source)], ["internal".to_owned()]);
            let standing = Standing { version: 1, published: None, ballots: &ballots, allowed: &allowed };
            assert_eq!(publish(standing), Decision::Refuse, "{source}");
        }
    }
}
