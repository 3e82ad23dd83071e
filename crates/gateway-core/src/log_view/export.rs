//! Log rows as the lines of a file: JSON lines, and CSV with a fixed list of columns.

use serde_json::Value;

use super::{LogDetail, LogView, StoredBody};
use crate::csv_text;
use crate::logs::LogRow;

/// The columns of CSV: the fields of the row in the API. Lists and objects are cells of JSON.
const COLUMNS: [&str; 38] = [
    "id",
    "request_id",
    "created_at",
    "level",
    "source",
    "provider",
    "model",
    "method",
    "path",
    "status",
    "error_code",
    "stream",
    "latency_ms",
    "ttft_ms",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "total_tokens",
    "usage_estimated",
    "cost_usd",
    "cache",
    "cache_marks",
    "queued_ms",
    "key_id",
    "app_id",
    "team_id",
    "user",
    "session_id",
    "prompt",
    "prompt_version",
    "compat",
    "operation",
    "tool",
    "attempts",
    "limits",
    "metadata",
    "preview",
];
const STORAGE: [&str; 2] = ["request_stored", "response_stored"];
const BODIES: [&str; 2] = ["request", "response"];

/// A row as a line of JSON.
pub fn json_line(row: &LogRow, preview: Option<String>, with_bodies: bool) -> Vec<u8> {
    let json = if with_bodies {
        serde_json::to_vec(&LogDetail::new(row, preview))
    } else {
        serde_json::to_vec(&LogView::new(row, preview))
    };
    let mut line = json.unwrap_or_default();
    // A stored body is written as it was sent, and may have breaks between its tokens. Inside of strings JSON has none.
    for byte in &mut line {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line.push(b'\n');
    line
}

/// The first line of CSV.
pub fn csv_header(with_bodies: bool) -> Vec<u8> {
    let bodies = if with_bodies { BODIES.as_slice() } else { &[] };
    csv_text::row(COLUMNS.iter().chain(&STORAGE).chain(bodies).map(|name| (*name).to_owned()))
}

/// A row as a line of CSV.
pub fn csv_line(row: &LogRow, preview: Option<String>, with_bodies: bool) -> Vec<u8> {
    let view = serde_json::to_value(LogView::new(row, preview)).unwrap_or_default();
    let mut cells: Vec<String> = COLUMNS.iter().chain(&STORAGE).map(|name| cell(&view[*name])).collect();
    if with_bodies {
        cells.extend([&row.request, &row.response].map(|body| StoredBody::read(body).into_text()));
    }
    csv_text::row(cells)
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl StoredBody {
    fn into_text(self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Json(json) => json.get().to_owned(),
            Self::Text(text) | Self::Bytes { base64: text } => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The fields of a row in the API are those of its schema.
    #[test]
    fn every_field_of_a_row_is_a_column() {
        let schema = schemars::schema_for!(LogView);
        let fields: BTreeSet<&str> =
            schema.as_value()["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let columns: BTreeSet<&str> = COLUMNS.iter().chain(&STORAGE).copied().collect();
        assert_eq!(columns, fields);
        let header = String::from_utf8(csv_header(true)).unwrap();
        assert!(header.starts_with("id,request_id,") && header.ends_with(",request,response\n"), "{header}");
        assert_eq!(header.matches(',').count() + 1, columns.len() + 2);
    }

    #[test]
    fn a_cell_has_the_text_or_json_of_a_value() {
        for (value, expected) in [
            (Value::Null, ""),
            (Value::from("a \"b\""), "a \"b\""),
            (Value::from(0.001), "0.001"),
            (Value::from(true), "true"),
            (serde_json::json!({"a": [1]}), r#"{"a":[1]}"#),
        ] {
            assert_eq!(cell(&value), expected);
        }
        assert_eq!(StoredBody::read(br#"{"n": 1.50}"#).into_text(), r#"{"n": 1.50}"#);
        assert_eq!(StoredBody::read(b"").into_text(), "");
        assert_eq!(StoredBody::read(&[0xff, 0x00, 0x41]).into_text(), "/wBB");
    }
}
