//! Rows of tables in the forms that databases export: CSV, JSON, and SQL dumps of PostgreSQL.

use serde_json::{Map, Value};

use super::report::item;
use super::{ImportError, parse};

/// The table of keys, and those of teams, end users, budgets and settings where the file has them.
#[derive(Default)]
pub struct Tables {
    pub keys: Vec<Map<String, Value>>,
    pub teams: Vec<Map<String, Value>>,
    pub customers: Vec<Map<String, Value>>,
    /// The budgets that other tables refer to.
    pub budgets: Vec<Map<String, Value>>,
    /// Sections of the configuration by their names.
    config: Vec<Map<String, Value>>,
    /// `general_settings`.
    pub settings: Map<String, Value>,
    /// The paths of what is neither.
    pub others: Vec<String>,
}

const KEYS: &str = "LiteLLM_VerificationToken";
const TEAMS: &str = "LiteLLM_TeamTable";
const CUSTOMERS: &str = "LiteLLM_EndUserTable";
const BUDGETS: &str = "LiteLLM_BudgetTable";
const CONFIG: &str = "LiteLLM_Config\"";
const SETTINGS: &str = "general_settings";

impl Tables {
    fn rows_of(&mut self, statement: &str) -> Option<&mut Vec<Map<String, Value>>> {
        if statement.contains(KEYS) {
            Some(&mut self.keys)
        } else if statement.contains(TEAMS) {
            Some(&mut self.teams)
        } else if statement.contains(CUSTOMERS) {
            Some(&mut self.customers)
        } else if statement.contains(BUDGETS) {
            Some(&mut self.budgets)
        } else if statement.contains(CONFIG) {
            Some(&mut self.config)
        } else {
            None
        }
    }

    /// The settings among the sections of the configuration, which are JSON.
    fn with_settings(mut self) -> Self {
        for row in &self.config {
            let is_it = row.get("param_name").and_then(Value::as_str) == Some(SETTINGS);
            let section = row.get("param_value").and_then(Value::as_str).filter(|_| is_it);
            if let Some(Ok(Value::Object(settings))) = section.map(parse::json) {
                self.settings = settings;
            }
        }
        self
    }
}

pub fn read(text: &str) -> Result<Tables, ImportError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let tables = match text.trim_start().chars().next() {
        None => return Err(ImportError::Malformed("it is empty".to_owned())),
        Some('{' | '[') => json(parse::json(text)?),
        Some(_) if is_sql(text) => sql(text).with_settings(),
        Some(_) => Tables { keys: csv(text)?, ..Tables::default() },
    };
    if tables.keys.is_empty() && tables.teams.is_empty() && tables.customers.is_empty() {
        let message = format!(
            "it has no rows of {KEYS}: give the table as CSV with a header, as JSON, or as an SQL dump"
        );
        return Err(ImportError::Malformed(message));
    }
    Ok(tables)
}

/// A list of rows, or an object with `keys`, `teams`, `customers`, `budgets` and `general_settings`. LiteLLM's own API lists
/// keys as `keys` or `data`.
fn json(value: Value) -> Tables {
    let mut tables = Tables::default();
    let Value::Object(mut fields) = value else {
        tables.keys = rows("keys", Some(value), &mut tables.others);
        return tables;
    };
    let keys = fields.remove("keys").or_else(|| fields.remove("data"));
    tables.keys = rows("keys", keys, &mut tables.others);
    tables.teams = rows("teams", fields.remove("teams"), &mut tables.others);
    tables.customers = rows("customers", fields.remove("customers"), &mut tables.others);
    tables.budgets = rows("budgets", fields.remove("budgets"), &mut tables.others);
    match fields.remove(SETTINGS) {
        Some(Value::Object(settings)) => tables.settings = settings,
        None | Some(Value::Null) => {}
        Some(_) => tables.others.push(SETTINGS.to_owned()),
    }
    tables.others.extend(fields.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name));
    tables
}

/// The objects of a list. Everything else is named in `others`.
fn rows(name: &str, list: Option<Value>, others: &mut Vec<String>) -> Vec<Map<String, Value>> {
    let list = match list {
        Some(Value::Array(list)) => list,
        None | Some(Value::Null) => return Vec::new(),
        Some(_) => {
            others.push(name.to_owned());
            return Vec::new();
        }
    };
    let mut rows = Vec::with_capacity(list.len());
    for (index, row) in list.into_iter().enumerate() {
        match row {
            Value::Object(row) => rows.push(row),
            _ => others.push(item(name, index)),
        }
    }
    rows
}

fn csv(text: &str) -> Result<Vec<Map<String, Value>>, ImportError> {
    let malformed = |error: csv::Error| parse::malformed("CSV", &error.to_string());
    let mut reader = csv::ReaderBuilder::new().from_reader(text.as_bytes());
    let columns: Vec<String> =
        reader.headers().map_err(malformed)?.iter().map(|name| name.trim().to_owned()).collect();
    if !columns.iter().any(|name| name == "token") {
        return Err(ImportError::Malformed(
            "the first line must name the columns, among them token".to_owned(),
        ));
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(malformed)?;
        let fields = columns.iter().zip(record.iter()).filter(|(_, text)| !text.is_empty());
        rows.push(fields.map(|(name, text)| (name.clone(), text.into())).collect());
    }
    Ok(rows)
}

fn is_sql(text: &str) -> bool {
    text.lines().any(|line| starts_statement(line, "COPY ") || starts_statement(line, "INSERT INTO "))
}

fn starts_statement(line: &str, keyword: &str) -> bool {
    line.get(..keyword.len()).is_some_and(|start| start.eq_ignore_ascii_case(keyword))
        && [KEYS, TEAMS, CUSTOMERS, BUDGETS, CONFIG].iter().any(|table| line.contains(table))
}

fn sql(text: &str) -> Tables {
    let mut tables = Tables::default();
    let mut rest = text;
    while let Some((line, behind)) = split_line(rest) {
        let statement = rest;
        rest = behind;
        if starts_statement(line, "COPY ") {
            let columns = columns(line);
            if let Some(rows) = tables.rows_of(line) {
                rest = copied(&columns, behind, rows);
            }
        } else if starts_statement(line, "INSERT INTO ") {
            let (head, values) = statement.split_at(values_at(statement).unwrap_or(line.len()));
            let columns = columns(head);
            if let Some(rows) = tables.rows_of(head) {
                rest = inserted(&columns, values, rows);
            }
        }
    }
    tables
}

/// The first line and what follows it.
fn split_line(text: &str) -> Option<(&str, &str)> {
    if text.is_empty() {
        return None;
    }
    Some(text.split_once('\n').unwrap_or((text, "")))
}

/// Where the rows of an INSERT begin. The names of columns are before it, so that the first match is the keyword.
fn values_at(statement: &str) -> Option<usize> {
    const LONGEST_HEAD: usize = 8 << 10;
    let mut end = statement.len().min(LONGEST_HEAD);
    while !statement.is_char_boundary(end) {
        end -= 1;
    }
    statement[..end].to_ascii_uppercase().find("VALUES")
}

/// The names of columns in the first parentheses.
fn columns(statement: &str) -> Vec<String> {
    let list =
        statement.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map_or("", |(list, _)| list);
    list.split(',').map(|name| name.trim().trim_matches('"').to_owned()).collect()
}

/// The rows of a COPY, up to `\.`; returns what follows.
fn copied<'t>(columns: &[String], text: &'t str, rows: &mut Vec<Map<String, Value>>) -> &'t str {
    let mut rest = text;
    while let Some((line, behind)) = split_line(rest) {
        rest = behind;
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line == "\\." {
            break;
        }
        let fields = columns.iter().zip(line.split('\t')).filter(|(_, field)| *field != "\\N");
        rows.push(fields.map(|(name, field)| (name.clone(), unescaped(field).into())).collect());
    }
    rest
}

fn unescaped(field: &str) -> String {
    let mut text = String::with_capacity(field.len());
    let mut chars = field.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some(other) => text.push(other),
            None => {}
        }
    }
    text
}

/// The rows of an INSERT: `VALUES (…), (…);`. Returns what follows.
fn inserted<'t>(columns: &[String], text: &'t str, rows: &mut Vec<Map<String, Value>>) -> &'t str {
    let mut scanner = Scanner { rest: text };
    while scanner.skip_to_row() {
        let values = scanner.row();
        let fields = columns.iter().zip(values).filter(|(_, value)| !value.is_null());
        rows.push(fields.map(|(name, value)| (name.clone(), value)).collect());
    }
    scanner.rest
}

struct Scanner<'t> {
    rest: &'t str,
}

impl Scanner<'_> {
    /// Moves behind the next opening parenthesis of the statement. False at its end.
    fn skip_to_row(&mut self) -> bool {
        match self.rest.find(['(', ';']) {
            Some(at) if self.rest[at..].starts_with('(') => {
                self.rest = &self.rest[at + 1..];
                true
            }
            Some(at) => {
                self.rest = &self.rest[at + 1..];
                false
            }
            None => {
                self.rest = "";
                false
            }
        }
    }

    /// The values up to the closing parenthesis.
    fn row(&mut self) -> Vec<Value> {
        let mut values = Vec::new();
        loop {
            self.rest = self.rest.trim_start();
            let value = if let Some(quoted) = self.rest.strip_prefix('\'') {
                self.rest = quoted;
                Value::String(self.quoted())
            } else {
                let end = self.rest.find([',', ')']).unwrap_or(self.rest.len());
                let word = self.rest[..end].trim();
                self.rest = &self.rest[end..];
                literal(word)
            };
            values.push(value);
            // A cast such as ::jsonb may follow.
            let end = self.rest.find([',', ')']).unwrap_or(self.rest.len());
            let is_last = !self.rest[end..].starts_with(',');
            self.rest = self.rest.get(end + 1..).unwrap_or("");
            if is_last {
                return values;
            }
        }
    }

    /// The text up to the closing quote; two quotes are one.
    fn quoted(&mut self) -> String {
        let mut text = String::new();
        while let Some((part, rest)) = self.rest.split_once('\'') {
            text.push_str(part);
            self.rest = rest;
            match rest.strip_prefix('\'') {
                Some(rest) => {
                    text.push('\'');
                    self.rest = rest;
                }
                None => return text,
            }
        }
        self.rest = "";
        text
    }
}

fn literal(word: &str) -> Value {
    match word.to_ascii_lowercase().as_str() {
        "null" | "" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => word.parse::<serde_json::Number>().map_or_else(|_| word.into(), Value::Number),
    }
}

/// An array of PostgreSQL such as `{gpt-4o,"a b"}`, or names between commas.
pub fn array(text: &str) -> Vec<String> {
    let text = text.trim();
    let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    let mut names = Vec::new();
    let (mut name, mut is_quoted, mut is_escaped) = (String::new(), false, false);
    for c in inner.chars() {
        match c {
            _ if is_escaped => {
                name.push(c);
                is_escaped = false;
            }
            '\\' => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => names.push(std::mem::take(&mut name)),
            _ => name.push(c),
        }
    }
    names.push(name);
    names.retain(|name| !name.trim().is_empty());
    names
}
