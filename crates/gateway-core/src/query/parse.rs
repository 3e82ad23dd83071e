//! Parses a query: terms, fields and lists of values.

use super::lexer::{Lexer, QueryError, error};
use super::values::{parse_text, parse_value};
use super::{
    Condition, FIELDS, Field, FieldCondition, MAX_TERMS, MAX_VALUES, MAX_WORDS, Query, Term, Test,
    TextCondition,
};

/// Field names that are at least this similar are suggested.
const MIN_SIMILARITY: f64 = 0.8;

/// Parses a query in time proportional to its length.
pub fn parse(text: &str) -> Result<Query, QueryError> {
    parse_with(text, true)
}

/// The same for rows without bodies: words to search for are an error.
pub fn parse_without_words(text: &str) -> Result<Query, QueryError> {
    parse_with(text, false)
}

fn parse_with(text: &str, has_bodies: bool) -> Result<Query, QueryError> {
    let mut parser = Parser { lexer: Lexer::new(text)?, values: 0, words: 0, has_bodies };
    let mut query = Query::default();
    loop {
        parser.lexer.skip_blanks();
        let start = parser.lexer.position();
        if parser.lexer.peek().is_none() {
            return Ok(query);
        }
        if query.terms.len() == MAX_TERMS {
            return Err(error(start, 1, format!("a query has at most {MAX_TERMS} terms; remove some")));
        }
        query.terms.push(parser.term()?);
    }
}

struct Parser {
    lexer: Lexer,
    /// Values and words so far.
    values: usize,
    words: usize,
    /// Whether there are bodies to search for words.
    has_bodies: bool,
}

impl Parser {
    fn term(&mut self) -> Result<Term, QueryError> {
        let is_negated = self.lexer.skip('-');
        let start = self.lexer.position();
        let condition = match self.lexer.peek() {
            None => return Err(missing_term(start)),
            Some(c) if c.is_whitespace() => return Err(missing_term(start)),
            Some('-') => return Err(error(start, 1, "a term is negated by one -; remove this one")),
            Some('(' | ')') => {
                let message =
                    "there are no parentheses: all terms must hold, and field:a,b means one of both";
                return Err(error(start, 1, message));
            }
            Some('"') => {
                let text = self.lexer.take_quoted()?;
                self.text(start, &text, true)?
            }
            Some(_) => {
                let name = self.lexer.take_while(|c| !c.is_whitespace() && c != ':' && c != '"');
                match self.lexer.peek() {
                    Some(':') => {
                        self.lexer.skip(':');
                        self.field(start, &name)?
                    }
                    Some('"') => {
                        let message = "a blank must precede a quote";
                        return Err(error(self.lexer.position(), 1, message));
                    }
                    _ => self.text(start, &name, false)?,
                }
            }
        };
        Ok(Term { is_negated, condition })
    }

    fn text(&mut self, start: usize, text: &str, is_quoted: bool) -> Result<Condition, QueryError> {
        let length = self.lexer.position() - start;
        if !is_quoted && matches!(text, "AND" | "OR" | "NOT") {
            let message = format!(
                "there is no {text}: all terms must hold, field:a,b means one of both, and -term negates; put the word \
                 in quotes to search for it"
            );
            return Err(error(start, length, message));
        }
        let condition = TextCondition::new(text, is_quoted);
        let condition = condition.ok_or_else(|| {
            let message = "a text to search for needs a letter or a digit";
            QueryError { expected: vec!["a word".into()], ..error(start, length, message) }
        })?;
        if !self.has_bodies {
            let message =
                "words are searched for in bodies, which are not stored; name a field, such as model:gpt-4o*";
            return Err(QueryError { expected: vec!["field:value".into()], ..error(start, length, message) });
        }
        self.words += condition.words().len();
        if self.words > MAX_WORDS {
            return Err(error(
                start,
                length,
                format!("a query has at most {MAX_WORDS} words to search for; remove some"),
            ));
        }
        Ok(Condition::Text(condition))
    }

    fn field(&mut self, start: usize, name: &str) -> Result<Condition, QueryError> {
        let length = name.chars().count();
        let (field, key) = Field::parse(name).ok_or_else(|| unknown_field(start, length, name))?;
        let mut tests = Vec::new();
        loop {
            tests.push(self.value(field)?);
            self.values += 1;
            if self.values > MAX_VALUES {
                let message = format!("a query has at most {MAX_VALUES} values; remove some");
                return Err(error(self.lexer.position(), 0, message));
            }
            if !self.lexer.skip(',') {
                break;
            }
        }
        Ok(Condition::Field(FieldCondition { field, key: key.map(str::to_owned), tests }))
    }

    fn value(&mut self, field: Field) -> Result<Test, QueryError> {
        let (start, kind) = (self.lexer.position(), field.kind());
        let with_expected = |problem: QueryError| QueryError { expected: kind.expected(), ..problem };
        if self.lexer.peek() == Some('"') {
            let text = self.lexer.take_quoted()?;
            let length = self.lexer.position() - start;
            return parse_text(kind, &text, true).map_err(|why| with_expected(error(start, length, why)));
        }
        let text = self.lexer.take_while(|c| !c.is_whitespace() && c != ',' && c != '"');
        if self.lexer.peek() == Some('"') {
            let message = "a quote must begin or end the value; write \\\" inside of quotes";
            return Err(error(self.lexer.position(), 1, message));
        }
        if text.is_empty() {
            let message = format!("a value of {} is missing", field.info().name);
            return Err(with_expected(error(start, 0, message)));
        }
        let length = text.chars().count();
        parse_value(kind, &text).map_err(|why| with_expected(error(start, length, why)))
    }
}

fn missing_term(position: usize) -> QueryError {
    let message = "a term must follow the - directly";
    QueryError { expected: vec!["field:value".into(), "a word".into()], ..error(position, 0, message) }
}

fn unknown_field(position: usize, length: usize, name: &str) -> QueryError {
    if name == "metadata" || name.starts_with("metadata.") {
        let message = "name one key of the metadata, such as metadata.env:prod; keys have letters, digits and _ - . / @";
        return QueryError { expected: vec!["metadata.key".into()], ..error(position, length, message) };
    }
    let name: String = name.chars().take(40).collect();
    let similarity = |line: &&'static str| strsim::jaro_winkler(line, &name);
    let names = FIELDS.iter().map(|line| line.name);
    let nearest = names.clone().max_by(|one, other| similarity(one).total_cmp(&similarity(other)));
    let nearest = nearest.filter(|nearest| similarity(nearest) >= MIN_SIMILARITY);
    let hint = nearest.map(|nearest| format!(" (did you mean {nearest}?)")).unwrap_or_default();
    let message =
        format!("there is no field {name:?}{hint}; put a text with a colon in quotes to search for it");
    let expected = nearest.map_or_else(|| names.map(str::to_owned).collect(), |name| vec![name.to_owned()]);
    QueryError { expected, ..error(position, length, message) }
}
