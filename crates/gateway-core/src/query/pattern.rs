//! Patterns of texts, in which `*` stands for any characters.

/// Literal parts with any characters between them. A pattern of one part is a literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    parts: Vec<String>,
}

impl Pattern {
    pub fn literal(text: &str) -> Self {
        Self { parts: vec![text.to_owned()] }
    }

    /// Several stars in a row are one.
    pub fn with_stars(text: &str) -> Self {
        let all: Vec<&str> = text.split('*').collect();
        let last = all.len() - 1;
        let is_part = |(at, part): &(usize, &str)| *at == 0 || *at == last || !part.is_empty();
        let parts = all.into_iter().enumerate().filter(is_part).map(|(_, part)| part.to_owned());
        Self { parts: parts.collect() }
    }

    pub fn as_literal(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [text] => Some(text),
            _ => None,
        }
    }

    /// Whether every text matches.
    pub fn is_any(&self) -> bool {
        self.parts.len() > 1 && self.parts.iter().all(String::is_empty)
    }

    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    pub fn matches(&self, text: &str) -> bool {
        let [first, between @ .., last] = self.parts.as_slice() else {
            return self.parts.first().is_some_and(|literal| literal == text);
        };
        let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
        // The leftmost place of each part leaves the most for the others, so none has to be tried again.
        for part in between {
            let Some(at) = rest.find(part.as_str()) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last.as_str())
    }

    #[must_use]
    pub fn lowercase(&self) -> Self {
        Self { parts: self.parts.iter().map(|part| part.to_lowercase()).collect() }
    }
}
