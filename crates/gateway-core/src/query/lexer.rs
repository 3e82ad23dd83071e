//! Reads the characters of a query, and makes errors that point at them.

use super::MAX_CHARS;

/// An error of a query. The position counts characters from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at character {}: {message}", position + 1)]
pub struct QueryError {
    pub position: usize,
    /// How many characters are wrong; 0 where something is missing.
    pub length: usize,
    pub message: String,
    /// What could stand there.
    pub expected: Vec<String>,
}

/// The characters of a query, read from left to right.
pub(super) struct Lexer {
    chars: Vec<char>,
    at: usize,
}

impl Lexer {
    pub fn new(text: &str) -> Result<Self, QueryError> {
        let chars: Vec<char> = text.chars().take(MAX_CHARS + 1).collect();
        let lexer = Self { chars, at: 0 };
        if lexer.chars.len() > MAX_CHARS {
            return Err(error(
                MAX_CHARS,
                1,
                format!("a query has at most {MAX_CHARS} characters; shorten it"),
            ));
        }
        match lexer.chars.iter().position(|c| *c == '\0') {
            Some(at) => Err(error(at, 1, "a query must not contain NUL characters")),
            None => Ok(lexer),
        }
    }

    pub fn position(&self) -> usize {
        self.at
    }

    pub fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    pub fn skip_blanks(&mut self) {
        self.take_while(char::is_whitespace);
    }

    /// Skips this character if it is next.
    pub fn skip(&mut self, wanted: char) -> bool {
        let is_next = self.peek() == Some(wanted);
        self.at += usize::from(is_next);
        is_next
    }

    pub fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek().is_some_and(&wanted) {
            self.at += 1;
        }
        self.chars[start..self.at].iter().collect()
    }

    /// Reads a text in quotes; the opening quote is next. `\"` and `\\` stand for the characters themselves.
    pub fn take_quoted(&mut self) -> Result<String, QueryError> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            let c = self.peek();
            self.at += 1;
            match c {
                None => {
                    let message = "the quote is not closed; add a \" at the end of the text";
                    return Err(QueryError { expected: vec!["\"".into()], ..error(start, 1, message) });
                }
                Some('"') => break,
                Some('\\') if matches!(self.peek(), Some('"' | '\\')) => {
                    text.extend(self.peek());
                    self.at += 1;
                }
                Some(c) => text.push(c),
            }
        }
        match self.peek() {
            Some(c) if !c.is_whitespace() && c != ',' => {
                Err(error(self.at, 1, "a blank must follow the closing quote"))
            }
            _ => Ok(text),
        }
    }
}

pub(super) fn error(position: usize, length: usize, message: impl Into<String>) -> QueryError {
    QueryError { position, length, message: message.into(), expected: Vec::new() }
}
