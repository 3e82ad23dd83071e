//! Splits a text into words, numbers and literal chunks.

use super::Token;

/// A chunk of a text, independent of its language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub kind: ChunkKind,
    pub text: String,
    /// The capital of the first word in a sentence carries no meaning.
    pub begins_sentence: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkKind {
    /// Letters, possibly with inner apostrophes.
    Word,
    Number,
    Exact,
}

const PUNCTUATION: &str = ".,;:!?…()[]{}'\"¿¡。，、；：！？「」『』（）";

pub fn split_chunks(text: &str) -> Vec<Chunk> {
    let mut splitter = Splitter { chunks: Vec::new(), begins_sentence: true };
    let text: String = text.chars().map(plain_quote).collect();
    let mut rest = text.as_str();
    while let Some(at) = rest.find(['"', '`']) {
        let (before, from) = rest.split_at(at);
        // A fence of several backticks ends with the same number of backticks.
        let quotes = if from.starts_with('"') { 1 } else { from.len() - from.trim_start_matches('`').len() };
        let (mark, inside) = from.split_at(quotes);
        splitter.plain(before);
        let Some(end) = inside.find(mark) else {
            rest = inside;
            continue;
        };
        splitter.push(ChunkKind::Exact, inside[..end].trim());
        rest = &inside[end + mark.len()..];
    }
    splitter.plain(rest);
    splitter.chunks
}

/// The chunks as literal tokens, with the capital at the start of a sentence removed.
pub fn strict_tokens(chunks: &[Chunk]) -> Vec<Token> {
    let token = |chunk: &Chunk| {
        let mut letters = chunk.text.chars();
        match chunk.kind {
            ChunkKind::Word if chunk.begins_sentence => {
                letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect()
            }
            ChunkKind::Word | ChunkKind::Number | ChunkKind::Exact => chunk.text.clone(),
        }
    };
    chunks.iter().map(token).map(Token::Exact).collect()
}

fn plain_quote(c: char) -> char {
    match c {
        '’' | '‘' | 'ʼ' => '\'',
        '“' | '”' | '„' | '«' | '»' => '"',
        c => c,
    }
}

struct Splitter {
    chunks: Vec<Chunk>,
    begins_sentence: bool,
}

impl Splitter {
    fn push(&mut self, kind: ChunkKind, text: &str) {
        if !text.is_empty() {
            self.chunks.push(Chunk { kind, text: text.to_owned(), begins_sentence: self.begins_sentence });
            self.begins_sentence = false;
        }
    }

    fn plain(&mut self, text: &str) {
        for piece in text.split(|c: char| c.is_whitespace() || c == '—') {
            self.piece(piece);
            if piece.ends_with(['.', '!', '?', ':']) {
                self.begins_sentence = true;
            }
        }
    }

    fn piece(&mut self, piece: &str) {
        let core = trimmed(piece);
        if core.is_empty() {
            return;
        }
        let only = |allowed: fn(char) -> bool| core.chars().all(allowed);
        let has_digit = core.chars().any(char::is_numeric);
        if !core.contains(char::is_alphanumeric) {
            self.push(ChunkKind::Exact, core);
        } else if !has_digit && only(|c| c.is_alphabetic() || matches!(c, '\'' | '-' | ',' | ';')) {
            core.split(['-', ',', ';']).for_each(|word| self.push(ChunkKind::Word, word.trim_matches('\'')));
        } else if has_digit && core.is_ascii() {
            self.number(core);
        } else {
            self.push(ChunkKind::Exact, core);
        }
    }

    /// Normalizes common spellings of numbers. Anything else with a digit is compared literally.
    fn number(&mut self, core: &str) {
        if let Some(share) = core.strip_suffix('%') {
            self.number(share);
            return self.push(ChunkKind::Word, "percent");
        }
        let letters =
            core.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '-' | '+'));
        let digits = &core[..core.len() - letters.len()];
        let is_unit = letters.chars().all(|c| c.is_ascii_alphabetic());
        if !is_unit || !digits.contains(|c: char| c.is_ascii_digit()) || digits[1..].contains(['-', '+']) {
            // Names such as COVID-19 are written in either case; with other symbols, case may matter.
            let is_name = core.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
            return self
                .push(ChunkKind::Exact, &if is_name { core.to_ascii_lowercase() } else { core.to_owned() });
        }
        let digits = if has_thousands(digits) { digits.replace(',', "") } else { digits.to_owned() };
        if matches!(letters, "st" | "nd" | "rd" | "th") {
            self.push(ChunkKind::Number, &format!("{digits}{letters}"));
        } else {
            self.push(ChunkKind::Number, &digits);
            self.push(ChunkKind::Word, letters);
        }
    }
}

/// `1,000` and `12,345.6`, but not `1,5`, which may be a list or a fraction.
fn has_thousands(digits: &str) -> bool {
    let whole = digits.split('.').next().unwrap_or("").trim_start_matches(['-', '+']);
    let mut groups = whole.split(',');
    let first = groups.next().unwrap_or("");
    (1..=3).contains(&first.len()) && whole.contains(',') && groups.all(|group| group.len() == 3)
}

/// A piece without the punctuation around it. A sign before a digit, a dot before a name and a factorial stay.
fn trimmed(piece: &str) -> &str {
    let emphasized = piece.starts_with('*') && piece.contains(char::is_alphanumeric);
    let mut core = piece;
    while let Some(first) = core.chars().next() {
        let rest = &core[first.len_utf8()..];
        let stays = first == '.' && rest.starts_with(|c: char| c.is_alphanumeric());
        let goes = PUNCTUATION.contains(first) || first == '–' || (first == '*' && emphasized);
        if !goes || stays {
            break;
        }
        core = rest;
    }
    while let Some(last) = core.chars().next_back() {
        let rest = &core[..core.len() - last.len_utf8()];
        let stays = last == '!' && rest.ends_with(|c: char| c.is_ascii_digit());
        let emphasis = last == '*' && emphasized;
        if stays || !(PUNCTUATION.contains(last) || last == '–' || emphasis) {
            break;
        }
        core = rest;
    }
    core
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut_up(text: &str) -> Vec<(ChunkKind, String)> {
        split_chunks(text).into_iter().map(|chunk| (chunk.kind, chunk.text)).collect()
    }

    #[test]
    fn words_numbers_and_literals_are_distinguished() {
        use ChunkKind::{Exact, Number, Word};
        for (text, expected) in [
            ("Well, don't stop!", &[(Word, "Well"), (Word, "don't"), (Word, "stop")][..]),
            (
                "well-known (rock,pop) stars…",
                &[(Word, "well"), (Word, "known"), (Word, "rock"), (Word, "pop"), (Word, "stars")],
            ),
            (
                "1,000 or 1,5 at 50%",
                &[
                    (Number, "1000"),
                    (Word, "or"),
                    (Number, "1,5"),
                    (Word, "at"),
                    (Number, "50"),
                    (Word, "percent"),
                ],
            ),
            (
                "5km, -5 and 3rd",
                &[(Number, "5"), (Word, "km"), (Number, "-5"), (Word, "and"), (Number, "3rd")],
            ),
            (
                "COVID-19 on 2024-01-05, 10:30",
                &[(Exact, "covid-19"), (Word, "on"), (Exact, "2024-01-05"), (Exact, "10:30")],
            ),
            (
                "C++ and C# in .NET",
                &[(Exact, "C++"), (Word, "and"), (Exact, "C#"), (Word, "in"), (Exact, ".NET")],
            ),
            ("see https://a.example/x?y=1.", &[(Word, "see"), (Exact, "https://a.example/x?y=1")]),
            ("fix `a b` and \"C d\"", &[(Word, "fix"), (Exact, "a b"), (Word, "and"), (Exact, "C d")]),
            ("run\n```\nx = 1\n``` now", &[(Word, "run"), (Exact, "x = 1"), (Word, "now")]),
            ("a “quoted” word", &[(Word, "a"), (Exact, "quoted"), (Word, "word")]),
            ("an open \"quote", &[(Word, "an"), (Word, "open"), (Word, "quote")]),
            ("5! is 4 * 3", &[(Exact, "5!"), (Word, "is"), (Number, "4"), (Exact, "*"), (Number, "3")]),
            ("**bold** 'word'", &[(Word, "bold"), (Word, "word")]),
            ("日本の首都は？", &[(Word, "日本の首都は")]),
            ("?! …", &[]),
        ] {
            let expected: Vec<_> = expected.iter().map(|(kind, text)| (*kind, (*text).to_owned())).collect();
            assert_eq!(cut_up(text), expected, "{text}");
        }
    }

    #[test]
    fn sentences_end_at_punctuation() {
        let starts: Vec<_> =
            split_chunks("One two. Three? four").into_iter().map(|chunk| chunk.begins_sentence).collect();
        assert_eq!(starts, [true, false, true, true]);
    }
}
