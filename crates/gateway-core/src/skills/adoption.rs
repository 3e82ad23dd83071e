//! What an adopted skill is called when its name is taken.

use super::NAME_LENGTH;

/// Tries beyond the name itself.
const TRIES: usize = 100;

/// The names to try, in order: the name as it is, then `-adopted-1` to `-adopted-100`. A long name is cut so that the
/// suffix has room.
pub fn names(base: &str) -> impl Iterator<Item = String> {
    let with_suffix = move |number: usize| {
        let suffix = format!("-adopted-{number}");
        let kept = base.get(..NAME_LENGTH - suffix.len()).unwrap_or(base).trim_end_matches('-');
        format!("{kept}{suffix}")
    };
    std::iter::once(base.to_owned()).chain((1..=TRIES).map(with_suffix))
}

#[cfg(test)]
mod tests {
    use super::super::check_name;
    use super::*;

    #[test]
    fn the_name_itself_comes_first_then_a_hundred_others() {
        let names: Vec<_> = names("code-review").collect();
        assert_eq!(names.len(), 101);
        assert_eq!(names[..3], ["code-review", "code-review-adopted-1", "code-review-adopted-2"]);
        assert_eq!(names[100], "code-review-adopted-100");
    }

    #[test]
    fn every_name_is_a_valid_one_and_no_two_are_alike() {
        for base in ["a", &"x".repeat(64), &format!("{}-{}", "a".repeat(53), "b".repeat(10)), "a-adopted-1"] {
            let mut all: Vec<_> = names(base).collect();
            assert!(all.iter().all(|name| check_name(name).is_ok()), "{all:?}");
            all.sort();
            all.dedup();
            assert_eq!(all.len(), 101, "{base}");
        }
    }
}
