//! The lexical gate of the semantic cache. Nearness of vectors says that two texts are about the same; whether they ask
//! for the same is decided here, and the rule is plain: a difference that is not known to be harmless matters.
//!
//! Both texts are brought into a normal form (`normal`) that drops what does not matter: letter case, punctuation,
//! courtesy, articles, contractions, plural endings, and the choice between a few interchangeable words. What is left
//! has to be the same words in the same order. So a negation, a number, a unit, a date, a name, a quoted or code-like
//! word, a comparative, an antonym or a question word that stands in one text only is a disagreement, and so is every
//! other word that the table does not know. Only a phrase such as "in Python" may stand first or last.

use super::normalize::{Token, normal_form};

/// May an answer to one of these texts be given to the other?
pub fn agrees(a: &str, b: &str) -> bool {
    let (a, b) = (normal_form(a), normal_form(b));
    a.is_english == b.is_english
        && !a.tokens.is_empty()
        && (all_same(&a.tokens, &b.tokens)
            || moved_phrase(&a.tokens, &b.tokens)
            || moved_phrase(&b.tokens, &a.tokens))
}

fn all_same(a: &[Token], b: &[Token]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same(b))
}

/// Is `b` the text `a` with a prepositional phrase moved from its end to its beginning?
fn moved_phrase(a: &[Token], b: &[Token]) -> bool {
    a.len() == b.len()
        && (1..a.len()).any(|at| {
            let (rest, phrase) = a.split_at(at);
            let (first, last) = b.split_at(phrase.len());
            phrase[0].leads_a_phrase() && phrase.len() > 1 && all_same(phrase, first) && all_same(rest, last)
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
    fn what_may_matter_disagrees() {
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
