//! Names for an adopted skill whose name is already taken.

use super::MAX_NAME_CHARS;

/// How many suffixes are tried after the name itself.
const MAX_SUFFIXES: usize = 100;

/// The names to try, in order: the unchanged name, then `-adopted-1` to `-adopted-100`. A long name is truncated to
/// make room for the suffix.
pub fn candidate_names(base: &str) -> impl Iterator<Item = String> {
    let with_suffix = move |number: usize| {
        let suffix = format!("-adopted-{number}");
        let kept = base.get(..MAX_NAME_CHARS - suffix.len()).unwrap_or(base).trim_end_matches('-');
        format!("{kept}{suffix}")
    };
    std::iter::once(base.to_owned()).chain((1..=MAX_SUFFIXES).map(with_suffix))
}

#[cfg(test)]
mod tests {
    use super::super::check_name;
    use super::*;

    #[test]
    fn the_name_itself_comes_first_then_a_hundred_others() {
        let names: Vec<_> = candidate_names("code-review").collect();
        assert_eq!(names.len(), 101);
        assert_eq!(names[..3], ["code-review", "code-review-adopted-1", "code-review-adopted-2"]);
        assert_eq!(names[100], "code-review-adopted-100");
    }

    #[test]
    fn all_names_are_valid_and_distinct() {
        for base in ["a", &"x".repeat(64), &format!("{}-{}", "a".repeat(53), "b".repeat(10)), "a-adopted-1"] {
            let mut all: Vec<_> = candidate_names(base).collect();
            assert!(all.iter().all(|name| check_name(name).is_ok()), "{all:?}");
            all.sort();
            all.dedup();
            assert_eq!(all.len(), 101, "{base}");
        }
    }
}
