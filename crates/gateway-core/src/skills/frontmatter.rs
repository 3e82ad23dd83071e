//! SKILL.md: YAML between two lines of `---`, then Markdown. Read and written by a YAML library under a small budget,
//! because the text comes from anybody.

use serde_json::{Map, Value};

use super::{DESCRIPTION_LENGTH, SOURCE_BYTES, SourceError};

/// Of the YAML alone.
const FRONTMATTER_BYTES: usize = 16 << 10;
/// The keys that the public validators know; they refuse a file with any other at its top.
const KNOWN_KEYS: [&str; 6] =
    ["name", "description", "license", "compatibility", "metadata", "allowed-tools"];

/// A file taken apart. What is written reads back as the same document.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Document {
    /// The frontmatter in the order in which it stands.
    pub fields: Map<String, Value>,
    pub body: String,
    /// The frontmatter as it was read, while no field of it is changed.
    header: Option<String>,
}

impl Document {
    pub fn parse(raw: &str) -> Result<Self, SourceError> {
        if raw.len() > SOURCE_BYTES {
            return Err(SourceError::TooLarge);
        }
        let (yaml, body) = split(raw).ok_or_else(|| {
            wrong("the text must begin with frontmatter: a line of ---, YAML, and another line of ---")
        })?;
        if yaml.len() > FRONTMATTER_BYTES {
            return Err(wrong(&format!("the frontmatter is larger than {FRONTMATTER_BYTES} bytes")));
        }
        let fields = parse_yaml(yaml)?;
        Ok(Self { fields, body: body.to_owned(), header: Some(yaml.to_owned()) })
    }

    /// A key whose value is text, if it is there.
    pub fn text(&self, key: &str) -> Result<Option<String>, SourceError> {
        match self.fields.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(wrong(&format!("{key}: must be text; put it in quotes"))),
        }
    }

    /// At the top, as the API writes it, or under `metadata`, as agents are given it. Empty when there is none.
    pub fn headline(&self) -> Result<String, SourceError> {
        if let Some(headline) = self.text("headline")? {
            return Ok(headline);
        }
        let below = self.fields.get("metadata").and_then(|metadata| metadata.get("headline"));
        Ok(below.and_then(Value::as_str).unwrap_or_default().to_owned())
    }

    pub fn set(&mut self, key: &str, value: &str) {
        self.fields.insert(key.to_owned(), value.into());
        self.header = None;
    }

    /// An empty one removes it.
    pub fn set_headline(&mut self, headline: &str) {
        if let Some(metadata) = self.fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.shift_remove("headline");
            if metadata.is_empty() {
                self.fields.shift_remove("metadata");
            }
        }
        self.fields.shift_remove("headline");
        self.header = None;
        if !headline.is_empty() {
            self.set("headline", headline);
        }
    }

    pub fn write(&self) -> Result<String, SourceError> {
        let header = match &self.header {
            Some(header) => header.clone(),
            None => write_yaml(&self.fields)?,
        };
        let break_line = if header.is_empty() || header.ends_with('\n') { "" } else { "\n" };
        let gap = if self.body.is_empty() { "" } else { "\n" };
        let raw = format!("---\n{header}{break_line}---\n{gap}{}", self.body);
        if raw.len() > SOURCE_BYTES { Err(SourceError::TooLarge) } else { Ok(raw) }
    }

    /// The file as the public validators want it: the headline and every key that they do not know go under
    /// `metadata`, whose values are text; the description has no angle brackets, because agents put it between tags.
    pub fn for_agents(&self) -> Result<String, SourceError> {
        let mut fields = Map::new();
        let mut metadata = Map::new();
        for (key, value) in &self.fields {
            match (key.as_str(), value) {
                ("metadata", Value::Object(known)) => {
                    metadata.extend(known.iter().map(|(key, value)| (key.clone(), as_text(value))));
                }
                ("description", Value::String(text)) => {
                    let text = text.replace('<', "\u{2039}").replace('>', "\u{203a}");
                    fields.insert(
                        key.clone(),
                        text.chars().take(DESCRIPTION_LENGTH).collect::<String>().into(),
                    );
                }
                (known, _) if known != "metadata" && KNOWN_KEYS.contains(&known) => {
                    fields.insert(key.clone(), as_text(value));
                }
                (_, Value::Null) => {}
                _ => {
                    metadata.entry(key.clone()).or_insert_with(|| as_text(value));
                }
            }
        }
        if !metadata.is_empty() {
            fields.insert("metadata".into(), metadata.into());
        }
        Self { fields, body: self.body.clone(), header: None }.write()
    }
}

fn wrong(why: &str) -> SourceError {
    SourceError::Frontmatter(why.to_owned())
}

/// The YAML and the body. One empty line behind the frontmatter belongs to neither.
fn split(raw: &str) -> Option<(&str, &str)> {
    let raw = raw.strip_prefix('\u{feff}').unwrap_or(raw);
    let is_fence = |line: &str| line.trim_end() == "---";
    let first = raw.split_inclusive('\n').next().filter(|line| is_fence(line))?;
    let rest = &raw[first.len()..];
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if is_fence(line) {
            let body = &rest[at + line.len()..];
            let body = body.strip_prefix("\r\n").or_else(|| body.strip_prefix('\n')).unwrap_or(body);
            return Some((&rest[..at], body));
        }
        at += line.len();
    }
    None
}

/// No anchors and aliases, no depth, few nodes: nothing that a frontmatter needs, and all that a bomb is made of.
fn parse_yaml(yaml: &str) -> Result<Map<String, Value>, SourceError> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 4_000,
            max_nodes: 2_000,
            max_depth: 8,
            flow_nesting_limit: 8,
            max_aliases: 0,
            max_anchors: 0,
            max_documents: 1,
            max_merge_keys: 0,
            max_total_scalar_bytes: FRONTMATTER_BYTES,
        },
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options::<Value>(yaml, options) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(wrong("the frontmatter must be a list of keys and values")),
        Err(error) => {
            let why: String = error.to_string().chars().take(200).collect();
            Err(wrong(&format!("the frontmatter is no YAML that can be used: {why}")))
        }
    }
}

fn write_yaml(fields: &Map<String, Value>) -> Result<String, SourceError> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(fields, options).map_err(|_| SourceError::Synthesis)
}

fn as_text(value: &Value) -> Value {
    match value {
        Value::String(text) => text.clone().into(),
        // A list of tools is written with spaces between them.
        Value::Array(items) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ").into()
        }
        other => other.to_string().into(),
    }
}
