//! The SKILL.md format: YAML between two `---` lines, then Markdown. The YAML library runs with a small resource
//! budget, because the text is untrusted.

use serde_json::{Map, Value};

use super::{MAX_DESCRIPTION_CHARS, MAX_SOURCE_BYTES, SourceError};

const MAX_FRONTMATTER_BYTES: usize = 16 << 10;
/// The top-level keys that public validators accept; they reject a file with any other key.
const KNOWN_KEYS: [&str; 6] =
    ["name", "description", "license", "compatibility", "metadata", "allowed-tools"];

/// A parsed file. A written document parses back to an equal one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Document {
    /// The frontmatter in its original order.
    pub fields: Map<String, Value>,
    pub body: String,
    /// The original frontmatter text, kept as long as no field changes.
    header: Option<String>,
}

impl Document {
    pub fn parse(raw: &str) -> Result<Self, SourceError> {
        if raw.len() > MAX_SOURCE_BYTES {
            return Err(SourceError::TooLarge);
        }
        let (yaml, body) = split(raw).ok_or_else(|| {
            invalid("the text must begin with frontmatter: a --- line, YAML, and another --- line")
        })?;
        if yaml.len() > MAX_FRONTMATTER_BYTES {
            return Err(invalid(&format!("the frontmatter is larger than {MAX_FRONTMATTER_BYTES} bytes")));
        }
        let fields = parse_yaml(yaml)?;
        Ok(Self { fields, body: body.to_owned(), header: Some(yaml.to_owned()) })
    }

    /// The text value of a key, if the key is present.
    pub fn text(&self, key: &str) -> Result<Option<String>, SourceError> {
        match self.fields.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(invalid(&format!("{key}: must be a string; put it in quotes"))),
        }
    }

    /// The headline: a top-level key, as the API writes it, or an entry of `metadata`, as agents receive it. Empty if
    /// absent.
    pub fn headline(&self) -> Result<String, SourceError> {
        if let Some(headline) = self.text("headline")? {
            return Ok(headline);
        }
        let nested = self.fields.get("metadata").and_then(|metadata| metadata.get("headline"));
        Ok(nested.and_then(Value::as_str).unwrap_or_default().to_owned())
    }

    pub fn set(&mut self, key: &str, value: &str) {
        self.fields.insert(key.to_owned(), value.into());
        self.header = None;
    }

    /// Sets the headline; an empty one removes it.
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
        if raw.len() > MAX_SOURCE_BYTES { Err(SourceError::TooLarge) } else { Ok(raw) }
    }

    /// The file in the form that public validators accept. The headline and all unknown keys move under `metadata`,
    /// with text values. Angle brackets are replaced in the description, because agents embed it in tags.
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
                        text.chars().take(MAX_DESCRIPTION_CHARS).collect::<String>().into(),
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

fn invalid(message: &str) -> SourceError {
    SourceError::Frontmatter(message.to_owned())
}

/// Splits a file into YAML and body. One empty line after the frontmatter belongs to neither.
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

/// Disallows anchors, aliases and deep nesting and limits the node count. Frontmatter needs none of these, and YAML
/// bombs are built from them.
fn parse_yaml(yaml: &str) -> Result<Map<String, Value>, SourceError> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 2_000,
            max_nodes: 1_000,
            max_depth: 8,
            flow_nesting_limit: 8,
            max_aliases: 0,
            max_anchors: 0,
            max_documents: 1,
            max_merge_keys: 0,
            max_total_scalar_bytes: MAX_FRONTMATTER_BYTES,
        },
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options::<Value>(yaml, options) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(invalid("the frontmatter must be a mapping of keys and values")),
        Err(error) => {
            let reason: String = error.to_string().chars().take(200).collect();
            Err(invalid(&format!("the frontmatter is not valid YAML: {reason}")))
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
        // Lists of tools are separated by spaces.
        Value::Array(items) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ").into()
        }
        other => other.to_string().into(),
    }
}
