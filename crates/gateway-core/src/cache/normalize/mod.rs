//! The normal form of a text for the gate: the words that matter, in their order. English texts lose what is known to
//! be harmless (`english`); of every other language only punctuation and the capital at the beginning are let go, because
//! no list of harmless words is at hand.

mod chunks;
mod english;

/// A text as the gate sees it.
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
    /// Something that is compared letter by letter: quoted text, code, addresses, dates, symbols.
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

    /// Do two tokens say the same?
    pub fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Word(a), Self::Word(b)) => english::canonical_word(a) == english::canonical_word(b),
            (Self::Word(a) | Self::Name(a), Self::Word(b) | Self::Name(b)) => a == b,
            (a, b) => a == b,
        }
    }

    /// May the phrase that begins here stand at either end of a question without changing it?
    pub fn leads_a_phrase(&self) -> bool {
        self.is_any(&["in", "on", "at", "with", "using", "for"])
    }
}

pub fn normal_form(text: &str) -> NormalForm {
    let chunks = chunks::cut(text);
    if english::is_english(&chunks) {
        NormalForm { is_english: true, tokens: english::tokens(&chunks) }
    } else {
        NormalForm { is_english: false, tokens: chunks::strict_tokens(&chunks) }
    }
}
