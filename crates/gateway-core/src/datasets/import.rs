//! Imports cases from files, one row at a time, so that memory does not grow with the file. Reading continues after an
//! invalid row, so that all invalid rows can be reported at once.

use std::collections::HashSet;

use memchr::memchr_iter;
use schemars::JsonSchema;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::CaseContent;

/// How many invalid rows are reported; further ones are only counted.
pub const MAX_REPORTED_ROWS: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Rows")]
pub enum ImportFormat {
    /// An array of cases, or `{"cases": […]}`.
    Json,
    Csv,
    Ndjson,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BadRow {
    /// The line in which the row starts, counted from 1.
    pub line: u64,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The file as a whole cannot be parsed.
    #[error("{0}")]
    Unreadable(String),
    #[error("{} rows are invalid", .rows.len() as u64 + .more)]
    Rows { rows: Vec<BadRow>, more: u64 },
}

/// Reads every row and passes valid ones to `take`, until it returns false. Returns the number of rows taken.
pub fn read(
    rows: ImportFormat,
    bytes: &[u8],
    take: &mut dyn FnMut(CaseContent) -> bool,
) -> Result<u64, ImportError> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(ImportError::Unreadable("the text is UTF-16; save it as UTF-8".into()));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut reading = Reading { take, taken: 0, bad: Vec::new(), more: 0, stopped: false };
    match rows {
        ImportFormat::Json => json(bytes, &mut reading)?,
        ImportFormat::Csv => csv(bytes, &mut reading)?,
        ImportFormat::Ndjson => ndjson(bytes, &mut reading),
    }
    let Reading { taken, bad, more, .. } = reading;
    if bad.is_empty() { Ok(taken) } else { Err(ImportError::Rows { rows: bad, more }) }
}

/// Validates every row and returns the number of rows.
pub fn check(rows: ImportFormat, bytes: &[u8]) -> Result<u64, ImportError> {
    read(rows, bytes, &mut |_| true)
}

struct Reading<'a> {
    take: &'a mut dyn FnMut(CaseContent) -> bool,
    taken: u64,
    bad: Vec<BadRow>,
    more: u64,
    stopped: bool,
}

impl Reading<'_> {
    fn row(&mut self, line: u64, content: Result<CaseContent, String>) {
        match content {
            Ok(content) => {
                self.stopped = !(self.take)(content);
                self.taken += u64::from(!self.stopped);
            }
            Err(message) if self.bad.len() < MAX_REPORTED_ROWS => self.bad.push(BadRow { line, message }),
            Err(_) => self.more += 1,
        }
    }
}

fn ndjson(bytes: &[u8], reading: &mut Reading<'_>) {
    for (line, text) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        if reading.stopped {
            return;
        }
        if !text.iter().all(u8::is_ascii_whitespace) {
            reading.row(line, case_from_json(text));
        }
    }
}

fn case_from_json(text: &[u8]) -> Result<CaseContent, String> {
    let value = serde_json::from_slice::<Value>(text).map_err(|error| match error.classify() {
        serde_json::error::Category::Io | serde_json::error::Category::Data => error.to_string(),
        _ => format!("is not valid JSON at column {}", error.column()),
    })?;
    CaseContent::from_value(&value)
}

fn json(bytes: &[u8], reading: &mut Reading<'_>) -> Result<(), ImportError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let document = Document { bytes, reading };
    document
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end())
        .map_err(|error| ImportError::Unreadable(format!("the JSON cannot be read: {error}")))
}

/// Deserializes the array of cases, or the object around it.
struct Document<'a, 'b> {
    bytes: &'a [u8],
    reading: &'a mut Reading<'b>,
}

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array of cases, or an object with `cases`")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut cases: A) -> Result<(), A::Error> {
        let (mut line, mut counted) = (1, 0);
        while let Some(case) = cases.next_element::<&'de RawValue>()? {
            // The offset of this case in the document.
            let at = (case.get().as_ptr() as usize).saturating_sub(self.bytes.as_ptr() as usize);
            let passed = self.bytes.get(counted..at).unwrap_or_default();
            line += memchr_iter(b'\n', passed).count() as u64;
            counted = counted.max(at);
            if !self.reading.stopped {
                self.reading.row(line, case_from_json(case.get().as_bytes()));
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { bytes, reading } = self;
        let mut found = false;
        while let Some(key) = map.next_key::<String>()? {
            if key != "cases" {
                map.next_value::<IgnoredAny>()?;
            } else if std::mem::replace(&mut found, true) {
                return Err(A::Error::custom("duplicate key `cases`"));
            } else {
                map.next_value_seed(Cases(Document { bytes, reading: &mut *reading }))?;
            }
        }
        if found { Ok(()) } else { Err(A::Error::custom("an object must have `cases`, an array of cases")) }
    }
}

/// Deserializes the value of `cases`, which must be an array.
struct Cases<'a, 'b>(Document<'a, 'b>);

impl<'de> DeserializeSeed<'de> for Cases<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self.0)
    }
}

fn csv(bytes: &[u8], reading: &mut Reading<'_>) -> Result<(), ImportError> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes);
    let mut record = csv::ByteRecord::new();
    // Reading from memory does not fail, and a flexible reader accepts any number of fields.
    let mut next = |record: &mut csv::ByteRecord| reader.read_byte_record(record).unwrap_or(false);
    if !next(&mut record) {
        return Err(ImportError::Unreadable(
            "the CSV is empty; it must begin with a header line that has a column `input`".into(),
        ));
    }
    let columns = columns(&record).map_err(ImportError::Unreadable)?;
    let mut last = position(&record);
    while !reading.stopped && next(&mut record) {
        last = position(&record);
        reading.row(last.0, case_from_record(&columns, &record));
    }
    let (line, at) = last;
    if bytes.get(at..).is_some_and(ends_inside_quotes) {
        return Err(ImportError::Unreadable(format!(
            "a quoted field in the row of line {line} is not closed"
        )));
    }
    Ok(())
}

/// Line and offset of a record.
fn position(record: &csv::ByteRecord) -> (u64, usize) {
    let position = record.position();
    position.map_or((0, 0), |at| (at.line(), usize::try_from(at.byte()).unwrap_or(usize::MAX)))
}

#[derive(Debug, PartialEq, Eq)]
enum Column {
    Input,
    Expected,
    Metadata,
    /// Stored in the metadata under its name.
    Other(String),
}

fn columns(header: &csv::ByteRecord) -> Result<Vec<Column>, String> {
    let mut columns = Vec::new();
    let mut names = HashSet::new();
    for (index, name) in header.iter().enumerate() {
        let name = std::str::from_utf8(name).map_err(|_| "the header line is not UTF-8".to_owned())?.trim();
        let column = match name {
            "" => return Err(format!("column {} of the header has no name", index + 1)),
            "input" => Column::Input,
            "expected" => Column::Expected,
            "metadata" => Column::Metadata,
            other => Column::Other(other.to_owned()),
        };
        if !names.insert(name) {
            return Err(format!("duplicate column `{name}` in the header"));
        }
        columns.push(column);
    }
    if !columns.contains(&Column::Input) {
        return Err("the header line has no column `input`".into());
    }
    Ok(columns)
}

fn case_from_record(columns: &[Column], record: &csv::ByteRecord) -> Result<CaseContent, String> {
    if record.len() != columns.len() {
        return Err(format!("has {} fields, but the header has {}", record.len(), columns.len()));
    }
    let (mut input, mut expected, mut metadata) = (Value::Null, Value::Null, Value::Null);
    let mut others = Map::new();
    for (column, field) in columns.iter().zip(record) {
        let text = std::str::from_utf8(field).map_err(|_| "is not UTF-8".to_owned())?;
        match column {
            Column::Input if text.is_empty() => return Err("input: is empty".into()),
            Column::Input => input = cell(text),
            Column::Expected | Column::Metadata if text.is_empty() => {}
            Column::Expected => expected = cell(text),
            Column::Metadata => metadata = cell(text),
            Column::Other(name) => drop(others.insert(name.clone(), cell(text))),
        }
    }
    if !others.is_empty() {
        match &mut metadata {
            Value::Null => metadata = Value::Object(others),
            Value::Object(fields) => fields.extend(others),
            _ => return Err("metadata: must be a JSON object, because other columns are added to it".into()),
        }
    }
    CaseContent::new(&input, &expected, &metadata)
}

/// Parses a JSON object or array; any other cell is a string.
fn cell(text: &str) -> Value {
    if text.trim_start().starts_with(['{', '['])
        && let Ok(value) = serde_json::from_str(text)
    {
        return value;
    }
    Value::String(text.to_owned())
}

/// Whether the last record ends inside quotes. The CSV reader accepts that, and the field would swallow all that
/// follows.
fn ends_inside_quotes(record: &[u8]) -> bool {
    let (mut quoted, mut at_start) = (false, true);
    let mut bytes = record.iter().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' if quoted => {
                if bytes.peek() == Some(&&b'"') {
                    bytes.next();
                } else {
                    quoted = false;
                }
            }
            _ if quoted => {}
            b'"' if at_start => quoted = true,
            b',' | b'\n' | b'\r' => {
                at_start = true;
                continue;
            }
            _ => {}
        }
        at_start = false;
    }
    quoted
}

#[cfg(test)]
mod tests;
