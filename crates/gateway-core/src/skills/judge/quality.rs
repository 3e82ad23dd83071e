//! Scores clarity, specificity and completeness. Each score is a sum of small observations, which the rationale lists.

use super::outline::{Outline, has_any};
use super::quoted;
use crate::skills::SkillSource;
use crate::skills::rubric::{Axis, rounded};

/// Words that sound like instructions but carry no information.
const VAGUE: [&str; 44] = [
    "various",
    "etc",
    "and so on",
    "as needed",
    "as appropriate",
    "appropriate",
    "best practices",
    "things",
    "stuff",
    "somehow",
    "properly",
    "correctly",
    "high quality",
    "high-quality",
    "leverage",
    "robust",
    "seamless",
    "world-class",
    "optimal",
    "effectively",
    "efficiently",
    "in a good way",
    "a good job",
    "nice",
    "better",
    "great",
    "amazing",
    "awesome",
    "powerful",
    "helpful",
    "useful",
    "make sure everything",
    "be careful",
    "be smart",
    "be professional",
    "do your best",
    "try to",
    "think carefully",
    "all kinds of",
    "any task",
    "anything",
    "whatever",
    "excellent",
    "professional",
];
/// Phrases that say when to use the skill, which an agent needs to select it.
const WHEN: [&str; 16] = [
    "use when",
    "use this when",
    "use it when",
    "use this skill when",
    "use for",
    "use this skill",
    "when the user",
    "when a",
    "when an",
    "when you",
    "when asked",
    "whenever",
    "before",
    "after",
    "triggers on",
    "when",
];
const EXAMPLE: [&str; 8] =
    ["example", "examples", "for instance", "sample", "e.g.", "such as", "input", "looks like"];
const CHECK: [&str; 20] = [
    "verify",
    "verifies",
    "confirm",
    "check that",
    "check whether",
    "check",
    "make sure that",
    "expect",
    "expected",
    "should print",
    "should show",
    "should return",
    "must pass",
    "passes",
    "done when",
    "validate",
    "compare",
    "re-run",
    "run the tests",
    "assert",
];
const LIMIT: [&str; 22] = [
    "do not",
    "don't",
    "never",
    "stop",
    "unless",
    "only if",
    "fails",
    "fail",
    "failure",
    "error",
    "errors",
    "if the",
    "if a",
    "if it",
    "if there",
    "if any",
    "ask the user",
    "out of scope",
    "not for",
    "limits",
    "instead of",
    "pitfalls",
];
const OUTPUT: [&str; 18] = [
    "output",
    "report",
    "reply with",
    "return",
    "write",
    "answer with",
    "produce",
    "format",
    "print",
    "post",
    "list",
    "summarise",
    "summarize",
    "table",
    "present",
    "deliver",
    "hand over",
    "end with",
];

/// The observations of one axis and the score so far.
struct Observations {
    score: f64,
    seen: Vec<String>,
    missed: Vec<&'static str>,
}

impl Observations {
    fn new() -> Self {
        Self { score: 0.0, seen: Vec::new(), missed: Vec::new() }
    }

    fn add(&mut self, worth: f64, seen: Option<String>, missed: &'static str) {
        match seen {
            Some(seen) => {
                self.score += worth;
                self.seen.push(seen);
            }
            None => self.missed.push(missed),
        }
    }

    fn axis(self) -> Axis {
        let seen = if self.seen.is_empty() { "nothing".to_owned() } else { self.seen.join("; ") };
        let missed = if self.missed.is_empty() {
            String::new()
        } else {
            format!(" Missing: {}.", self.missed.join("; "))
        };
        Axis { score: rounded(self.score.clamp(0.0, 1.0)), rationale: format!("Saw {seen}.{missed}") }
    }
}

/// Whether a reader, or an agent that chooses among many skills, can tell what this skill is for and follow it.
pub fn clarity(source: &SkillSource, outline: &Outline<'_>) -> Axis {
    let mut observations = Observations::new();
    let description = source.description.as_str();
    let length = description.chars().count();
    let described = (40..=1024)
        .contains(&length)
        .then(|| format!("a description of {length} characters, {}", quoted(description)));
    observations.add(0.25, described, "a description of 40 characters or more");
    let when = has_any(description, &WHEN).then(|| "it says when to use the skill".to_owned());
    let when = when
        .or_else(|| outline.first_with(&WHEN[..13]).map(|line| format!("when to use it: {}", quoted(line))));
    observations.add(0.25, when, "when to use the skill (\"Use when …\")");
    let vague = first_vague(description);
    let plain = vague.is_none().then(|| "a description without empty words".to_owned());
    observations.add(
        0.1,
        plain,
        "a description without empty words such as \"various\" or \"best practices\"",
    );
    let headings: Vec<_> = outline.headings().collect();
    let structured =
        headings.first().filter(|_| headings.len() >= 2 || outline.words <= 120 && outline.words >= 30);
    observations.add(
        0.2,
        structured.map(|first| match headings.len() {
            1 => format!("the heading {}", quoted(first)),
            count => format!("{count} headings, the first {}", quoted(first)),
        }),
        "two headings or more (one is enough for 30 to 120 words)",
    );
    let (sentences, average) = sentence_length(outline);
    let short =
        (sentences > 0 && average <= 26.0).then(|| format!("sentences of {average:.0} words on average"));
    observations.add(0.2, short, "sentences of at most 26 words on average");
    observations.axis()
}

/// `1 code block`, `2 code blocks`.
fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Whether the skill names commands, files, numbers and tools, instead of speaking in general terms.
pub fn specificity(source: &SkillSource, outline: &Outline<'_>) -> Axis {
    let mut observations = Observations::new();
    let texts: Vec<&str> = outline.texts().chain([source.description.as_str()]).collect();
    let concrete = concrete_words(&texts);
    let count = concrete.len() + outline.spans.len();
    let span = outline.spans.iter().copied().chain(concrete.iter().copied()).next();
    let many = span
        .filter(|_| count >= 4)
        .map(|first| format!("{count} concrete names, numbers or commands such as {}", quoted(first)));
    observations.add(0.35, many, "names of files, commands, fields or numbers (four or more)");
    let code = (outline.code_blocks > 0 || outline.spans.len() >= 4)
        .then(|| [counted(outline.code_blocks, "code block"), counted(outline.spans.len(), "code span")]);
    let code = code.map(|parts| parts.join(" and "));
    observations.add(0.25, code, "code, commands or exact texts to use");
    let density = ratio(count + outline.code_blocks * 4, outline.words);
    let dense =
        (density >= 0.05).then(|| format!("{:.0} of 100 words are concrete", (density * 100.0).min(100.0)));
    observations.add(0.2, dense, "more than general statements: under 5 of 100 words are concrete");
    let vague: Vec<&str> = texts.iter().filter_map(|text| first_vague(text)).collect();
    let few = (outline.words >= 30 && ratio(vague.len(), texts.len()) <= 0.12).then(|| match vague.first() {
        None => "no empty words".to_owned(),
        Some(word) => format!("few empty words ({})", quoted(word)),
    });
    observations.add(
        0.2,
        few,
        "lines that say something: too many with words such as \"appropriate\", or too little text",
    );
    observations.axis()
}

/// Whether the skill has steps, an example, a check, limits and a described result.
pub fn completeness(outline: &Outline<'_>) -> Axis {
    let mut observations = Observations::new();
    let enough = (outline.words >= 80).then(|| format!("{} words of instructions", outline.words));
    observations.add(0.2, enough, "80 words of instructions or more");
    let (steps, items) = (outline.steps(), outline.items());
    let list = if steps.len() >= 3 { &steps } else { &items };
    let first = list.first().filter(|_| steps.len() >= 3 || items.len() >= 4);
    observations.add(
        0.25,
        first.map(|first| format!("{} steps, the first {}", list.len(), quoted(first))),
        "steps (three numbered ones or more)",
    );
    let example = (outline.code_blocks > 0).then(|| "an example in a code block".to_owned());
    let example = example.or_else(|| {
        let line = outline.texts().find(|text| has_any(&without_addresses(text), &EXAMPLE))?;
        Some(format!("an example: {}", quoted(line)))
    });
    observations.add(0.2, example, "an example");
    let check = outline.first_with(&CHECK).map(|line| format!("a check: {}", quoted(line)));
    observations.add(0.15, check, "how to check the result");
    let limit = outline
        .first_with(&LIMIT)
        .map(|line| format!("what may go wrong or must not be done: {}", quoted(line)));
    observations.add(0.1, limit, "what to do when something fails, or what not to do");
    let output = outline.first_with(&OUTPUT).map(|line| format!("what comes out: {}", quoted(line)));
    observations.add(0.1, output, "what the result looks like");
    observations.axis()
}

/// The text without words such as `https://shop.example/a` and `notes.md`, which mean no example by their parts.
fn without_addresses(text: &str) -> String {
    let is_address = |word: &&str| {
        let name = word.trim_matches(|c: char| !c.is_alphanumeric());
        let has_suffix = name.rsplit_once('.').is_some_and(|(_, suffix)| suffix.len() > 1);
        word.contains("://") || has_suffix
    };
    text.split_whitespace().filter(|word| !is_address(word)).collect::<Vec<_>>().join(" ")
}

fn first_vague(text: &str) -> Option<&'static str> {
    VAGUE.into_iter().find(|word| has_any(text, &[word]))
}

/// Words that name something concrete: with a digit, an inner dot, slash or underscore, or several capitals.
fn concrete_words<'a>(texts: &[&'a str]) -> Vec<&'a str> {
    let mut found = Vec::new();
    for text in texts {
        for (index, part) in text.split('`').enumerate() {
            // Text between backticks is counted as a span.
            if index % 2 == 0 {
                found.extend(
                    part.split_whitespace()
                        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
                        .filter(|word| is_concrete(word)),
                );
            }
        }
    }
    found
}

fn is_concrete(word: &str) -> bool {
    let inner = |c: char| word.char_indices().any(|(at, found)| found == c && at > 0 && at + 1 < word.len());
    let capitals = word.chars().filter(char::is_ascii_uppercase).count();
    let letters = word.chars().filter(|c| c.is_alphabetic()).count();
    word.bytes().any(|b| b.is_ascii_digit())
        || inner('.') && letters > 3
        || inner('/') && letters > 3
        || inner('_')
        || capitals >= 2
}

fn ratio(count: usize, of: usize) -> f64 {
    let as_number = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    as_number(count) / as_number(of.max(1))
}

/// The number of sentences outside code and their average length in words. A line end also ends a sentence.
fn sentence_length(outline: &Outline<'_>) -> (usize, f64) {
    let mut lengths = Vec::new();
    for text in outline.texts() {
        let mut words = 0;
        for word in text.split_whitespace() {
            words += 1;
            // A dot inside a path, a name or a number ends nothing.
            if word.ends_with(['.', '!', '?', ';', ':']) {
                lengths.push(words);
                words = 0;
            }
        }
        lengths.extend(Some(words).filter(|words| *words > 0));
    }
    let total: usize = lengths.iter().sum();
    (lengths.len(), ratio(total, lengths.len()))
}
