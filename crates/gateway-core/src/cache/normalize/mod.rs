//! The normal form of a text for the gate: its significant words in order. English texts lose words that are known to
//! be harmless (`english`). Other languages have no such list, so only punctuation and the initial capital are dropped.

mod chunks;
mod english;

/// A normalized text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NormalForm {
    pub is_english: bool,
    pub tokens: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// An ordinary English word or a number, in lower case.
    Word(String),
    /// A word that must not lose its ending, in lower case.
    Name(String),
    /// Compared literally: quoted text, code, addresses, dates, symbols.
    Exact(String),
}

impl Token {
    fn word(text: &str) -> Self {
        Self::Word(text.to_owned())
    }

    fn is(&self, word: &str) -> bool {
        matches!(self, Self::Word(text) if text == word)
    }

    fn is_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(word))
    }

    /// Whether two tokens mean the same.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Word(a), Self::Word(b)) => english::canonical_word(a) == english::canonical_word(b),
            (Self::Word(a) | Self::Name(a), Self::Word(b) | Self::Name(b)) => a == b,
            (a, b) => a == b,
        }
    }

    /// Whether the token starts a phrase that can move to the other end of a question without changing its meaning.
    pub fn is_preposition(&self) -> bool {
        self.is_any(&["in", "on", "at", "with", "using", "for"])
    }
}

pub fn normal_form(text: &str) -> NormalForm {
    let chunks = chunks::split_chunks(text);
    if english::is_english(&chunks) {
        NormalForm { is_english: true, tokens: english::tokens(&chunks) }
    } else {
        NormalForm { is_english: false, tokens: chunks::strict_tokens(&chunks) }
    }
}
