//! Harmless differences in English: contractions, courtesy, articles, a few synonyms, and common ways to phrase a
//! question. Each rule can make two texts equal, so each must be safe on its own. For example, "do" stays, because
//! "what does Anna like" differs from "what is Anna like".

use super::Token;
use super::chunks::{Chunk, ChunkKind};

/// Whether the text has one word that exists only in English, or two that are mostly English.
pub fn is_english(chunks: &[Chunk]) -> bool {
    const SURE: [&str; 13] = [
        "the", "how", "why", "which", "where", "when", "what", "what's", "please", "does", "write",
        "explain", "should",
    ];
    const LIKELY: [&str; 17] = [
        "is", "are", "who", "of", "to", "and", "with", "do", "can", "my", "for", "this", "that", "it", "i",
        "in", "me",
    ];
    let words: Vec<String> = chunks
        .iter()
        .filter(|chunk| chunk.kind == ChunkKind::Word)
        .map(|chunk| chunk.text.to_lowercase())
        .collect();
    let latin = words.iter().flat_map(|word| word.chars()).all(|c| u32::from(c) < 0x250);
    let has = |list: &[&str]| list.iter().filter(|known| words.iter().any(|word| word == *known)).count();
    latin && (has(&SURE) > 0 || has(&LIKELY) > 1)
}

pub fn tokens(chunks: &[Chunk]) -> Vec<Token> {
    let shouting = !chunks.iter().any(|chunk| chunk.text.contains(char::is_lowercase));
    let mut tokens = Vec::new();
    let mut follows_name = false;
    for chunk in chunks {
        // The A of "vitamin A" is not an article, and the I of "World War I" is not a pronoun.
        let is_letter = chunk.text == "A" || (chunk.text == "I" && follows_name);
        follows_name = !chunk.begins_sentence && chunk.text.starts_with(char::is_uppercase);
        match chunk.kind {
            ChunkKind::Exact => tokens.push(Token::Exact(chunk.text.clone())),
            ChunkKind::Number => tokens.push(Token::Word(chunk.text.clone())),
            ChunkKind::Word if is_letter && !chunk.begins_sentence && !shouting => {
                tokens.push(Token::Exact(chunk.text.clone()));
            }
            ChunkKind::Word => expand(chunk, shouting, &mut tokens),
        }
    }
    remove_courtesy(&mut tokens);
    remove_introduction(&mut tokens);
    let is_how_to = unify_how_to(&mut tokens);
    rewrite_possessives(&mut tokens);
    remove_function_words(&mut tokens, is_how_to);
    tokens
}

/// Removes words with a purely grammatical function.
fn remove_function_words(tokens: &mut Vec<Token>, is_how_to: bool) {
    const GRAMMAR: [&str; 9] = ["a", "an", "is", "are", "am", "i", "me", "we", POSSESSIVE];
    // An article is always followed by a word.
    let last = tokens.last().filter(|token| token.is("a")).cloned();
    let mut rest: Vec<Token> = tokens.iter().filter(|token| !token.is_any(&GRAMMAR)).cloned().collect();
    rest.extend(last);
    // Nothing would be left of "who am I".
    if rest.len() > 1 {
        *tokens = rest.clone();
    }
    rest.retain(|token| !token.is("the"));
    // "What is the time" differs from "what is time".
    if rest.len() > 2 {
        *tokens = rest;
    }
    // Instructions do not depend on whose thing it is, but in other questions "my sign" is not just any sign.
    if is_how_to {
        tokens.retain(|token| !token.is_any(&["my", "our"]));
    }
}

/// Marks a possessive noun.
const POSSESSIVE: &str = "'s";

/// Words whose meaning changes with a capital; a marker keeps both forms distinct.
const BY_CASE: [&str; 26] = [
    "aids", "amazon", "apple", "august", "bath", "bill", "chad", "china", "go", "it", "jordan", "march",
    "mark", "may", "nice", "pat", "polish", "ram", "reading", "rose", "rust", "sat", "shell", "turkey", "us",
    "who",
];

/// Expands the contractions of one word.
fn expand(chunk: &Chunk, shouting: bool, tokens: &mut Vec<Token>) {
    let lower = chunk.text.to_lowercase();
    let mut push = |words: &[&str]| tokens.extend(words.iter().map(|word| Token::word(word)));
    let (base, ending) = lower.split_once('\'').unwrap_or((&lower, ""));
    let capitals = chunk.text.chars().filter(|c| c.is_uppercase()).count();
    let is_name = if chunk.begins_sentence { capitals > 1 } else { capitals > 0 };
    let marked = format!("^{base}");
    let base = if is_name && !shouting && BY_CASE.contains(&base) { &*marked } else { base };
    match (base, ending) {
        ("cannot" | "cant", "") | ("can", "t") => push(&["can", "not"]),
        ("dont", "") => push(&["do", "not"]),
        ("doesnt", "") => push(&["does", "not"]),
        ("didnt", "") => push(&["did", "not"]),
        ("isnt", "") => push(&["is", "not"]),
        ("arent", "") => push(&["are", "not"]),
        ("wasnt", "") => push(&["was", "not"]),
        ("wont", "") | ("won", "t") => push(&["will", "not"]),
        ("whats", "") => push(&["what", "is"]),
        ("im", "") => push(&["i", "am"]),
        // The final s of a name is not a plural: Adams is not Adam.
        (word, "") if is_name && !shouting && word.ends_with('s') => {
            tokens.push(Token::Name(word.to_owned()));
        }
        (word, "") => push(&[number_word(word).unwrap_or(word)]),
        ("shan", "t") => push(&["shall", "not"]),
        ("let", "s") => push(&["let", "us"]),
        (
            "what" | "who" | "where" | "when" | "why" | "how" | "it" | "that" | "there" | "here" | "he"
            | "she",
            "s",
        ) => {
            push(&[base, "is"]);
        }
        (base, "s") => push(&[base, POSSESSIVE]),
        (base, "t") if base.ends_with('n') => push(&[&base[..base.len() - 1], "not"]),
        (base, "re") => push(&[base, "are"]),
        (base, "ll") => push(&[base, "will"]),
        (base, "ve") => push(&[base, "have"]),
        (base, "d") => push(&[base, "would"]),
        (base, "m") => push(&[base, "am"]),
        _ => push(&[&lower]),
    }
}

fn number_word(word: &str) -> Option<&'static str> {
    const WORDS: [(&str, &str); 14] = [
        ("zero", "0"),
        ("one", "1"),
        ("two", "2"),
        ("three", "3"),
        ("four", "4"),
        ("five", "5"),
        ("six", "6"),
        ("seven", "7"),
        ("eight", "8"),
        ("nine", "9"),
        ("ten", "10"),
        ("eleven", "11"),
        ("twelve", "12"),
        ("twenty", "20"),
    ];
    WORDS.iter().find(|(name, _)| *name == word).map(|(_, digits)| *digits)
}

const QUESTION: [&str; 8] = ["what", "which", "who", "how", "why", "where", "when", "whether"];

/// Verbs that are requests to the assistant, so that a preceding "can you" is courtesy.
const REQUEST_VERBS: [&str; 21] = [
    "tell",
    "explain",
    "write",
    "give",
    "show",
    "list",
    "describe",
    "summarize",
    "summarise",
    "translate",
    "help",
    "suggest",
    "recommend",
    "provide",
    "create",
    "generate",
    "define",
    "name",
    "compare",
    "convert",
    "fix",
];

/// Removes greetings, "please" and "thank you" where they are unambiguous.
fn remove_courtesy(tokens: &mut Vec<Token>) {
    const GREETING: [&str; 6] = ["hi", "hello", "hey", "ok", "okay", "so"];
    const OPENERS: [&str; 12] =
        ["please", "i", "can", "could", "would", "will", "is", "are", "do", "does", "should", "may"];
    tokens.retain(|token| !token.is_any(&["please", "kindly"]));
    let opens =
        |token: &Token| token.is_any(&QUESTION) || token.is_any(&REQUEST_VERBS) || token.is_any(&OPENERS);
    while tokens.first().is_some_and(|token| token.is_any(&GREETING)) && tokens.get(1).is_some_and(opens) {
        tokens.remove(0);
    }
    if ends_with(tokens, &["thank", "you"]) {
        tokens.truncate(tokens.len() - 2);
    } else if ends_with(tokens, &["thanks"]) {
        tokens.pop();
    }
}

fn starts_with(tokens: &[Token], words: &[&str]) -> bool {
    tokens.len() > words.len() && tokens.iter().zip(words).all(|(token, word)| token.is(word))
}

fn ends_with(tokens: &[Token], words: &[&str]) -> bool {
    tokens.len() > words.len()
        && tokens[tokens.len() - words.len()..].iter().zip(words).all(|(token, word)| token.is(word))
}

/// Removes introductions of a request, such as "tell me".
fn remove_introduction(tokens: &mut Vec<Token>) {
    const BEFORE_REQUEST: [[&str; 2]; 4] =
        [["can", "you"], ["could", "you"], ["would", "you"], ["will", "you"]];
    const BEFORE_QUESTION: [&[&str]; 7] = [
        &["tell", "me"],
        &["i", "want", "to", "know"],
        &["i", "need", "to", "know"],
        &["i", "would", "like", "to", "know"],
        &["i", "am", "wondering"],
        &["i", "was", "wondering"],
        &["do", "you", "know"],
    ];
    for words in BEFORE_REQUEST {
        if starts_with(tokens, &words) && tokens[words.len()].is_any(&REQUEST_VERBS) {
            tokens.drain(..words.len());
        }
    }
    for words in BEFORE_QUESTION {
        if starts_with(tokens, words) && tokens[words.len()].is_any(&QUESTION) {
            tokens.drain(..words.len());
        }
    }
    for words in [&["i", "need", "to"][..], &["i", "would", "like", "to"]] {
        if starts_with(tokens, words) {
            tokens.splice(..words.len(), ["i", "want", "to"].map(Token::word));
        }
    }
    if tokens.first().is_some_and(|token| token.is_any(&REQUEST_VERBS)) && ends_with(tokens, &["for", "me"]) {
        tokens.truncate(tokens.len() - 2);
    }
}

/// Unifies "how do I", "how can I", "how to" and "what are the steps to". Returns whether the text had one of them.
/// "How do you" is excluded, because it may ask how the assistant does it.
fn unify_how_to(tokens: &mut Vec<Token>) -> bool {
    const WAYS: [&[&str]; 3] = [
        &["what", "is", "the", "way", "to"],
        &["what", "is", "a", "way", "to"],
        &["what", "are", "the", "steps", "to"],
    ];
    if let Some(way) = WAYS.into_iter().find(|words| starts_with(tokens, words)) {
        tokens.splice(..way.len(), [Token::word("how")]);
        return true;
    }
    let Some(at) = tokens.iter().position(|token| token.is("how")) else { return false };
    let is_at =
        |behind: usize, words: &[&str]| tokens.get(at + behind).is_some_and(|token| token.is_any(words));
    let asks = is_at(1, &["do", "can", "could", "would"]) && is_at(2, &["i", "we"]) && tokens.len() > at + 3;
    if asks {
        tokens.drain(at + 1..at + 3);
    } else if is_at(1, &["to"]) {
        tokens.remove(at + 1);
    } else {
        return false;
    }
    true
}

/// Rewrites "France's capital" to "capital of France" if both are single words.
fn rewrite_possessives(tokens: &mut [Token]) {
    for at in 1..tokens.len().saturating_sub(1) {
        if tokens[at].is(POSSESSIVE)
            && matches!((&tokens[at - 1], &tokens[at + 1]), (Token::Word(_), Token::Word(_)))
        {
            tokens[at] = Token::word("of");
            tokens.swap(at - 1, at + 1);
        }
    }
}

/// The canonical form of a word: one word for each group of synonyms, without plural endings.
pub fn canonical_word(word: &str) -> &str {
    match singular(word) {
        "which" => "what",
        "doe" => "do",
        "ha" => "have",
        "remove" | "erase" => "delete",
        "fast" => "quick",
        "begin" => "start",
        "purchase" => "buy",
        "utilize" | "utilise" => "use",
        "select" => "choose",
        "simple" => "easy",
        "difficult" => "hard",
        "versu" => "vs",
        "provide" => "give",
        "till" => "until",
        "everybody" => "everyone",
        "anybody" => "anyone",
        "somebody" => "someone",
        "colour" => "color",
        "favourite" => "favorite",
        "behaviour" => "behavior",
        "centre" => "center",
        "summarise" => "summarize",
        "organise" => "organize",
        "optimise" => "optimize",
        "kilometer" | "kilometre" => "km",
        "kilogram" => "kg",
        "celsiu" => "celsius",
        other => other,
    }
}

/// The word without the s of plurals and third persons, if that does not change the meaning.
fn singular(word: &str) -> &str {
    const OTHERS: [&str; 18] = [
        "its", "goods", "customs", "arms", "glasses", "means", "news", "times", "savings", "sales", "his",
        "hers", "always", "yes", "looks", "thanks", "ours", "yours",
    ];
    match word.strip_suffix('s') {
        Some(stem)
            if stem.len() > 1
                && !stem.ends_with(['s', 'i', 'u'])
                && !word.ends_with("ics")
                && !OTHERS.contains(&word) =>
        {
            stem
        }
        _ => word,
    }
}
