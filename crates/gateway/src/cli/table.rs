//! Tables for people: columns as wide as their longest value, numbers at the right.

use serde_json::Value;

/// A column: its title, and the JSON pointer of its value in a row.
pub struct Column {
    pub title: &'static str,
    pub pointer: &'static str,
}

pub const fn column(title: &'static str, pointer: &'static str) -> Column {
    Column { title, pointer }
}

/// Values longer than this are cut.
const MAX_WIDTH: usize = 60;

/// The rows as text, with a line of titles.
pub fn table(columns: &[Column], rows: &[Value]) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| columns.iter().map(|column| cell(row.pointer(column.pointer))).collect())
        .collect();
    let width = |index: usize| {
        let longest = cells.iter().map(|row| row[index].chars().count()).max().unwrap_or_default();
        longest.max(columns[index].title.len())
    };
    let is_number = |index: usize| {
        let pointer = columns[index].pointer;
        rows.iter().all(|row| row.pointer(pointer).is_none_or(|value| value.is_number() || value.is_null()))
    };
    let layout: Vec<(usize, bool)> =
        (0..columns.len()).map(|index| (width(index), is_number(index))).collect();
    let line = |texts: &[String]| {
        let padded = texts.iter().zip(&layout).map(|(text, (width, is_number))| {
            if *is_number { format!("{text:>width$}") } else { format!("{text:<width$}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let titles: Vec<String> = columns.iter().map(|column| column.title.to_uppercase()).collect();
    let lines = std::iter::once(&titles).chain(&cells).map(|texts| line(texts));
    lines.collect::<Vec<_>>().join("\n")
}

fn cell(value: Option<&Value>) -> String {
    let text = match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => items.iter().map(|item| cell(Some(item))).collect::<Vec<_>>().join(" "),
        // Without an exponent, because these are costs.
        Some(Value::Number(number)) if number.is_f64() => number.as_f64().unwrap_or_default().to_string(),
        Some(other) => other.to_string(),
    };
    // Control characters of stored names must not reach the terminal.
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().count() <= MAX_WIDTH {
        return text;
    }
    text.chars().take(MAX_WIDTH - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_aligned_and_control_characters_removed() {
        let columns = [column("name", "/name"), column("calls", "/sums/calls"), column("tags", "/tags")];
        let rows = [
            json!({"name": "a\u{1b}[31m", "sums": {"calls": 5}, "tags": ["x", "y"]}),
            json!({"name": "longer name", "sums": {"calls": 1200}, "tags": null}),
        ];
        let expected = "NAME         CALLS  TAGS\na [31m           5  x y\nlonger name   1200  -";
        assert_eq!(table(&columns, &rows), expected);
        assert_eq!(table(&columns, &[]), "NAME  CALLS  TAGS");
    }

    #[test]
    fn long_values_are_cut() {
        let shown = cell(Some(&json!("x".repeat(100))));
        assert!(shown.chars().count() == MAX_WIDTH && shown.ends_with('…'), "{shown}");
    }
}
