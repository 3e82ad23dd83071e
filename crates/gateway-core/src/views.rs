//! Saved views: a query with its order, grouping, range and columns under a name, for a page of the console. A view belongs
//! to who made it, and is private unless it is shared with the organization.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Views that an organization may have.
pub const MAX_VIEWS: usize = 200;
/// Private views that a person may have in an organization.
pub const MAX_PRIVATE_VIEWS: usize = 50;

const MAX_NAME: usize = 80;
const MAX_COLUMNS: usize = 40;
const MAX_COLUMN_CHARS: usize = 40;
/// The longest span in its unit.
const MAX_SPAN: u32 = 9_999;
const CALENDAR: [&str; 4] = ["today", "yesterday", "this-month", "last-month"];

/// The page that a view belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ViewPage {
    Logs,
    Usage,
    Sessions,
}

impl ViewPage {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Logs => "logs",
            Self::Usage => "usage",
            Self::Sessions => "sessions",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Logs, Self::Usage, Self::Sessions].into_iter().find(|page| page.as_str() == name)
    }

    /// What its rows can be ordered by.
    fn orders(self) -> &'static [&'static str] {
        match self {
            Self::Logs => &["time", "latency", "cost", "tokens"],
            Self::Usage => &["cost", "requests", "errors", "in", "out", "p95"],
            Self::Sessions => &[],
        }
    }

    /// What its rows can be grouped by.
    fn groups(self) -> &'static [&'static str] {
        match self {
            Self::Usage => &["model", "provider", "key", "team", "app", "user", "prompt", "error", "tool"],
            Self::Logs | Self::Sessions => &[],
        }
    }
}

/// What a view shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    pub query: String,
    pub columns: Option<Vec<String>>,
    pub sort: Option<String>,
    /// What usage is grouped by. Views from before it existed have none.
    pub by: Option<String>,
    pub range: Option<String>,
}

/// What is wrong with a name.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    if name.trim().is_empty() || name.chars().count() > MAX_NAME {
        return Err("must be 1 to 80 characters");
    }
    if name.chars().any(char::is_control) {
        return Err("must not contain control characters");
    }
    Ok(())
}

impl Definition {
    /// The field that is wrong, and why. Whether the query is valid is checked by `query::parse`.
    pub fn check(&self, page: ViewPage) -> Result<(), (&'static str, String)> {
        if let Some(columns) = &self.columns {
            check_columns(columns).map_err(|why| ("columns", why))?;
        }
        if let Some(sort) = &self.sort {
            check_sort(page, sort).map_err(|why| ("sort", why))?;
        }
        if let Some(by) = &self.by {
            check_group(page, by).map_err(|why| ("by", why))?;
        }
        if !self.range.as_deref().is_none_or(is_range) {
            let why = "must be a span such as 30m, 24h or 7d, one of today, yesterday, this-month and last-month, or \
                       two times such as 2026-01-31T00:00:00Z..2026-02-01T00:00:00Z";
            return Err(("range", why.into()));
        }
        Ok(())
    }
}

fn check_columns(columns: &[String]) -> Result<(), String> {
    if columns.is_empty() || columns.len() > MAX_COLUMNS {
        return Err(format!("must have 1 to {MAX_COLUMNS} names"));
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    for (at, column) in columns.iter().enumerate() {
        if column.is_empty() || column.len() > MAX_COLUMN_CHARS || !column.chars().all(is_part) {
            return Err(format!(
                "the name at {at} must be 1 to {MAX_COLUMN_CHARS} of the characters a-z, 0-9, _ - ."
            ));
        }
        if columns[..at].contains(column) {
            return Err(format!("{column} is there twice"));
        }
    }
    Ok(())
}

fn check_sort(page: ViewPage, sort: &str) -> Result<(), String> {
    let orders = page.orders();
    let key = sort.strip_suffix(":asc").or_else(|| sort.strip_suffix(":desc")).unwrap_or(sort);
    if orders.contains(&key) {
        return Ok(());
    }
    Err(if orders.is_empty() {
        format!("must be absent: {} have one order", page.as_str())
    } else {
        format!("must be one of {}, with :asc for the lowest first", orders.join(", "))
    })
}

fn check_group(page: ViewPage, by: &str) -> Result<(), String> {
    let groups = page.groups();
    if groups.contains(&by) {
        return Ok(());
    }
    Err(if groups.is_empty() {
        format!("must be absent: {} are not grouped", page.as_str())
    } else {
        format!("must be one of {}", groups.join(", "))
    })
}

fn is_range(text: &str) -> bool {
    if let Some((from, to)) = text.split_once("..") {
        let time = |text: &str| text.parse::<Timestamp>().ok();
        return time(from).zip(time(to)).is_some_and(|(from, to)| from < to);
    }
    let span = text.strip_suffix(['m', 'h', 'd']).filter(|number| number.bytes().all(|b| b.is_ascii_digit()));
    let is_span = span.and_then(|number| number.parse().ok()).is_some_and(|n| (1..=MAX_SPAN).contains(&n));
    is_span || CALENDAR.contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> Definition {
        Definition { query: String::new(), columns: None, sort: None, by: None, range: None }
    }

    fn wrong(page: ViewPage, change: impl Fn(&mut Definition)) -> Option<&'static str> {
        let mut definition = view();
        change(&mut definition);
        definition.check(page).err().map(|(field, _)| field)
    }

    #[test]
    fn a_name_has_1_to_80_characters() {
        assert!(check_name("Fehler bei Müller").is_ok());
        assert!(check_name(&"ü".repeat(80)).is_ok());
        for name in ["", "  ", "a\nb", &"a".repeat(81)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn each_page_has_its_orders() {
        let sorted = |page, sort: &str| wrong(page, |view| view.sort = Some(sort.into()));
        for sort in ["time", "latency", "cost:asc", "tokens:desc"] {
            assert_eq!(sorted(ViewPage::Logs, sort), None, "{sort}");
        }
        for sort in ["", "p95", "cost:up", ":asc"] {
            assert_eq!(sorted(ViewPage::Logs, sort), Some("sort"), "{sort}");
        }
        assert_eq!(sorted(ViewPage::Usage, "p95"), None);
        assert_eq!(sorted(ViewPage::Usage, "latency"), Some("sort"));
        assert_eq!(sorted(ViewPage::Sessions, "time"), Some("sort"));
        assert_eq!(wrong(ViewPage::Sessions, |_| {}), None);
    }

    #[test]
    fn only_usage_is_grouped() {
        let grouped = |page, by: &str| wrong(page, |view| view.by = Some(by.into()));
        for by in ["model", "user", "tool"] {
            assert_eq!(grouped(ViewPage::Usage, by), None, "{by}");
        }
        assert_eq!(grouped(ViewPage::Usage, "colour"), Some("by"));
        assert_eq!(grouped(ViewPage::Logs, "model"), Some("by"));
        assert_eq!(grouped(ViewPage::Sessions, "model"), Some("by"));
    }

    #[test]
    fn a_view_without_a_group_can_be_read() {
        let stored = r#"{"query": "status:error", "columns": null, "sort": null, "range": "7d"}"#;
        let read: Definition = serde_json::from_str(stored).unwrap();
        assert_eq!(read, Definition { query: "status:error".into(), range: Some("7d".into()), ..view() });
    }

    #[test]
    fn a_range_is_a_span_a_part_of_the_calendar_or_two_times() {
        let ranged = |range: &str| wrong(ViewPage::Logs, |view| view.range = Some(range.into()));
        for range in
            ["30m", "24h", "9999d", "today", "last-month", "2026-01-31T00:00:00Z..2026-02-01T00:00:00.5Z"]
        {
            assert_eq!(ranged(range), None, "{range}");
        }
        let twice = "2026-01-31T00:00:00Z..2026-01-31T00:00:00Z";
        for range in ["", "h", "0h", "10000d", "+1h", "1.5h", "24", "24w", "tomorrow", "2026-01-31..", twice]
        {
            assert_eq!(ranged(range), Some("range"), "{range}");
        }
    }

    #[test]
    fn columns_are_few_names_each_once() {
        let with = |columns: Vec<String>| wrong(ViewPage::Logs, |view| view.columns = Some(columns.clone()));
        let numbered = |count: usize| (0..count).map(|n| format!("c{n}")).collect::<Vec<_>>();
        assert_eq!(with(numbered(MAX_COLUMNS)), None);
        assert_eq!(with(vec!["metadata.env".into(), "cost_usd".into()]), None);
        assert_eq!(with(numbered(MAX_COLUMNS + 1)), Some("columns"));
        assert_eq!(with(Vec::new()), Some("columns"));
        for names in [["a", "a"], ["a", ""], ["a", "two words"], ["a", &"b".repeat(41)]] {
            assert_eq!(with(names.map(str::to_owned).to_vec()), Some("columns"), "{names:?}");
        }
    }
}
