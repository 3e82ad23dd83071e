//! The lexical gate of the semantic cache. Similar vectors mean that two texts are about the same subject. The gate
//! decides whether they ask for the same thing: every difference that is not known to be harmless counts.
//!
//! Both texts are normalized (`normalize`): letter case, punctuation, courtesy, articles, contractions, plural endings
//! and a few synonyms are dropped. The remaining words must be equal and in the same order. A negation, number, unit,
//! date, name, quoted or code-like word, comparative, antonym or question word in only one text is a difference, and so
//! is any other unknown word. Only a phrase such as "in Python" may move between the start and the end.

use super::normalize::{NormalForm, Token, normal_form};

/// Whether the response to one of these texts may be served for the other.
pub fn agrees(a: &str, b: &str) -> bool {
    Gate::new(a).admits(b)
}

/// A text that is compared with others.
#[derive(Debug, Clone)]
pub struct Gate(NormalForm);

impl Gate {
    pub fn new(text: &str) -> Self {
        Self(normal_form(text))
    }

    /// Whether the response to the other text may be served for this one.
    pub fn admits(&self, other: &str) -> bool {
        let (a, b) = (&self.0, &normal_form(other));
        a.is_english == b.is_english
            && !a.tokens.is_empty()
            && (all_equivalent(&a.tokens, &b.tokens)
                || has_moved_phrase(&a.tokens, &b.tokens)
                || has_moved_phrase(&b.tokens, &a.tokens))
    }
}

fn all_equivalent(a: &[Token], b: &[Token]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_equivalent(b))
}

/// Whether `b` is `a` with a prepositional phrase moved from the end to the beginning.
fn has_moved_phrase(a: &[Token], b: &[Token]) -> bool {
    a.len() == b.len()
        && (1..a.len()).any(|at| {
            let (rest, phrase) = a.split_at(at);
            let (first, last) = b.split_at(phrase.len());
            phrase[0].is_preposition()
                && phrase.len() > 1
                && all_equivalent(phrase, first)
                && all_equivalent(rest, last)
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn harmless_differences_agree() {
        for (a, b) in [
            ("What is the capital of France?", "what's the capital of france"),
            ("What is the capital of France?", "Can you please tell me what the capital of France is?"),
            ("What is France's capital?", "What is the capital of France?"),
            ("How do I reset my password?", "how can I reset the password"),
            ("How to sort a list in Python?", "In Python, how do I sort a list?"),
            ("Name the three planets", "name the 3 planets"),
            ("Why can't I log in?", "why can not I log in"),
            ("Walk the 5km in 1,000 steps", "walk the 5 km in 1000 steps"),
            ("¿Cuál es la capital de Francia?", "cuál es la capital de Francia"),
            ("日本の首都はどこですか？", "日本の首都はどこですか"),
        ] {
            assert!(agrees(a, b) && agrees(b, a), "{a} / {b}: {:?} {:?}", normal_form(a), normal_form(b));
        }
    }

    #[test]
    fn differences_that_may_matter_disagree() {
        for (a, b) in [
            ("Is it safe to eat raw eggs?", "Is it not safe to eat raw eggs?"),
            ("Convert 10 miles to km", "Convert 100 miles to km"),
            ("Convert euros to dollars", "Convert dollars to euros"),
            ("the mother of the king", "the king of the mother"),
            ("Fix `foo_bar` please", "Fix `foo_baz` please"),
            ("Where can I polish shoes", "Where can I Polish shoes"),
            ("What is my name?", "What is your name?"),
            ("Who is the president?", "Who was the president?"),
            ("What is -5 plus 3?", "What is 5 plus 3?"),
            ("Who do you work for?", "For who do you work?"),
            ("Does the old man see the young boy?", "The young boy does the old man see?"),
            ("How to sort a list in Python?", "In Python, how do I reverse a list?"),
            ("How to sort a list in Python?", "In Ruby, how do I sort a list?"),
            ("Is C++ faster?", "Is C faster?"),
            ("¿Cuál es la capital de Francia?", "¿Cuál es la capital de España?"),
            ("日本の首都はどこですか", "中国の首都はどこですか"),
            ("", ""),
            ("?!", "..."),
        ] {
            assert!(!agrees(a, b) && !agrees(b, a), "{a} / {b}: {:?} {:?}", normal_form(a), normal_form(b));
        }
    }

    proptest! {
        #[test]
        fn a_text_agrees_with_itself_and_both_ways(a in "[a-zA-Z0-9' ,?]{1,40}", b in "[a-zA-Z0-9' ,?]{1,40}") {
            prop_assert!(agrees(&a, &a) || normal_form(&a).tokens.is_empty());
            prop_assert_eq!(agrees(&a, &b), agrees(&b, &a));
        }

        #[test]
        fn another_number_never_agrees(a in 0_u32..100_000, b in 0_u32..100_000) {
            let text = |number: u32| format!("What is {number} times seven?");
            prop_assert_eq!(agrees(&text(a), &text(b)), a == b);
        }
    }
}
