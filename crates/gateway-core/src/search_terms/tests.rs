//! Terms of texts and bodies, and their hashes.

use proptest::prelude::*;

use super::*;

#[test]
fn terms_are_lowercase_and_distinct() {
    assert_eq!(query_terms("Hello, WORLD! hello x2 (naïve)"), ["hello", "world", "x2", "naïve"]);
    assert_eq!(query_terms("\"*' OR -:()"), ["or"]);
    assert_eq!(query_terms("日本 go"), ["日", "本", "go"]);
    assert!(query_terms("*** -- \"").is_empty());
}

#[test]
fn values_become_terms_and_keys_do_not() {
    let request = br#"{"model":"gpt","messages":[{"role":"user","content":"first\nline \u00e9t\u00e9"}]}"#;
    let words = body_terms(request, br#"{"text":"an answer"}"#, false);
    for word in ["gpt", "user", "first", "line", "été", "an", "answer"] {
        assert!(words.split(' ').any(|found| found == word), "{word} in {words:?}");
    }
    for name in ["messages", "content", "nline"] {
        assert!(!words.split(' ').any(|found| found == name), "{name}");
    }
}

fn sorted<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort_unstable();
    values
}

#[test]
fn hashes_are_those_of_the_terms() {
    let request =
        r#"{"messages":[{"content":"Ärger über NAÏVE Größen, 日本 AND x2 x2 Donaudampfschiff 01234567 a"}]}"#;
    let response = br#"{"text":"an answer"}"#;
    let mut hasher = TermHasher::default();
    // The second time with what is left of the first.
    for _ in 0..2 {
        let hashes = hasher.hashes(request.as_bytes(), response, false);
        let terms = body_terms(request.as_bytes(), response, false);
        let expected: Vec<u64> = terms.split(' ').map(term_hash).collect();
        assert_eq!(sorted(hashes), sorted(expected));
        hasher.hashes(b"{\"a\":\"other words\"}", b"", false);
    }
    assert_eq!(
        query_terms("Größen X2").iter().map(|term| term_hash(term)).collect::<Vec<_>>(),
        [term_hash("größen"), term_hash("x2")]
    );
}

#[test]
fn hashes_do_not_change() {
    // They are in the search index of stored rows.
    assert_eq!(term_hash("a"), 0x5221_e31d_3caa_1215);
    assert_eq!(term_hash("answer"), 0xbea6_46cb_4012_8c15);
    assert_eq!(term_hash("größenordnung"), 0x846a_29c9_50f3_54c1);
}

#[test]
fn many_terms_are_distinct_and_limited() {
    let text: String = (0..3_000).flat_map(|n| [format!("w{n} "), format!("W{} ", n % 700)]).collect();
    assert_eq!(TermHasher::default().hashes(text.as_bytes(), b"", false).len(), 3_000);
    let text = (0..9_000).map(|n| format!("w{n}")).collect::<Vec<_>>().join(" ");
    assert_eq!(TermHasher::default().hashes(text.as_bytes(), b"", false).len(), MAX_TERMS);
}

#[test]
fn a_truncated_body_gives_the_terms_that_it_contains() {
    let words = body_terms(br#"{"content":"alpha \"beta\" gam\u00"#, b"plain text", false);
    for word in ["alpha", "beta", "gam", "plain", "text"] {
        assert!(words.split(' ').any(|found| found == word), "{word} in {words:?}");
    }
}

#[test]
fn a_stream_gives_its_joined_text() {
    let stream = b"data: {\"choices\":[{\"delta\":{\"content\":\"won\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"derful\"}}]}\n\n";
    assert_eq!(body_terms(b"", stream, true), "wonderful");
}

#[test]
fn escapes_are_decoded_and_every_script_is_split_the_same_way() {
    let body =
        r#"{"a":"caf\u00e9\tGR\u00d6SSE \ud83d\ude00smile\/x \ud800y “Übung”über 日本go","b":"cut\u00"}"#;
    assert_eq!(
        body_terms(body.as_bytes(), b"", false),
        "cut café größe smile x y übung über 日 本 go".replace("größe", "grösse")
    );
    let long = "a".repeat(100);
    assert_eq!(query_terms(&format!("{long} é{long}")), ["a".repeat(64), format!("é{}", "a".repeat(63))]);
}

#[test]
fn encoded_data_gives_no_terms() {
    let image = format!(r#"{{"url":"data:image/png;base64,{}"}}"#, "aGVsbG8+".repeat(100));
    assert!(body_terms(image.as_bytes(), b"", false).is_empty());
}

proptest! {
    #[test]
    fn no_body_makes_it_panic(request: Vec<u8>, text in ".*") {
        body_terms(&request, text.as_bytes(), true);
        let words = query_terms(&text);
        prop_assert!(words.iter().all(|word| word.chars().all(char::is_alphanumeric)));
        let mut slowly: Vec<String> = Vec::new();
        for run in text.split(|c: char| !c.is_alphanumeric()).filter(|_| !text.contains(is_ideograph)) {
            let folded: String = run.to_lowercase().chars().filter(|c| c.is_alphanumeric()).take(MAX_TERM_CHARS).collect();
            if !folded.is_empty() && !slowly.contains(&folded) {
                slowly.push(folded);
            }
        }
        prop_assert!(text.contains(is_ideograph) || text.contains('Σ') || words == slowly, "{words:?} {slowly:?}");
    }

    /// Words of all lengths, at all distances to the end of the text and to what is no ASCII.
    #[test]
    fn hashes_are_those_of_words_that_are_split_by_character(text in "([A-Za-z0-9@`{\\[/:\u{7f} -]{0,20}[éß_.日]?){0,6}") {
        // A bracket at the start would make it JSON.
        let text = format!(".{text}");
        let mut expected: Vec<u64> = Vec::new();
        let spaced: String = text.chars().map(|c| if is_ideograph(c) { format!(" {c} ") } else { c.to_string() }).collect();
        for word in spaced.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
            let hash = term_hash(&word.to_lowercase().chars().take(MAX_TERM_CHARS).collect::<String>());
            if !expected.contains(&hash) {
                expected.push(hash);
            }
        }
        prop_assert_eq!(TermHasher::default().hashes(text.as_bytes(), b"", false), expected);
    }
}
