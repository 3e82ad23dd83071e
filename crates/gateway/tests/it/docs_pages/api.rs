//! The reference of the management API, a page for each area, from the OpenAPI document.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;

use gateway::api::openapi;
use serde_json::{Map, Value};

use super::{NOTICE, Pages, cell};

/// Objects inside objects are shown with dotted names down to this depth.
const MAX_DEPTH: usize = 4;

const INTRODUCTION: &str = "\
The whole management API, generated from the OpenAPI document of this version. A running gateway serves that document at
`GET /openapi.yaml`; `gateway openapi` prints it.

- Every path under `/api/v1` is also available under `/api`.
- Send an API key in `X-Gateway-Key`, or a session token in `Authorization: Bearer`. Areas and fields that a role or a
  plan does not allow are refused with 403 ([errors](../errors.md)).
- Bodies are JSON. An unknown field of a request is ignored unless the page says otherwise.
- Lists are paged: `next_cursor` of an answer is `cursor` of the next request.

| area | what it is for |
|---|---|
";

/// One page while it is written.
struct Page<'a> {
    schemas: &'a Map<String, Value>,
    text: String,
    /// Types that the page refers to, and those that are not described yet.
    named: BTreeSet<&'a str>,
    waiting: VecDeque<&'a str>,
}

pub fn pages() -> Pages {
    let document = openapi::document();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let mut pages = Pages::new();
    let mut index = format!("{NOTICE}\n\n# API reference\n\n{INTRODUCTION}");
    for tag in document["tags"].as_array().unwrap() {
        let (name, description) = (tag["name"].as_str().unwrap(), tag["description"].as_str().unwrap());
        let file = format!("{}.md", name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
        let _ = writeln!(index, "| [{name}]({file}) | {} |", cell(description));
        let mut page =
            Page { schemas, text: String::new(), named: BTreeSet::new(), waiting: VecDeque::new() };
        let _ = write!(page.text, "{NOTICE}\n\n# API: {name}\n\n{description}\n");
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                if operation["tags"][0] == name {
                    page.operation(method, path, operation);
                }
            }
        }
        page.types();
        pages.insert(file, page.text);
    }
    pages.insert("index.md".to_owned(), index);
    pages
}

impl<'a> Page<'a> {
    fn operation(&mut self, method: &str, path: &str, operation: &'a Value) {
        let summary = operation["summary"].as_str().unwrap_or(path);
        let _ = write!(self.text, "\n## {summary}\n\n`{} {path}`\n", method.to_uppercase());
        if let Some(description) = operation["description"].as_str() {
            let _ = write!(self.text, "\n{description}\n");
        }
        if operation["security"].as_array().is_some_and(Vec::is_empty) {
            self.text += "\nNeeds no key.\n";
        }
        if let Some(parameters) = operation["parameters"].as_array() {
            self.text += "\n| parameter | in | type | meaning |\n|---|---|---|---|\n";
            for parameter in parameters {
                let kind = self.type_of(&parameter["schema"]);
                let required = if parameter["required"] == true { "Required. " } else { "" };
                let meaning = parameter["description"].as_str().unwrap_or_default();
                let (name, place) = (parameter["name"].as_str().unwrap(), parameter["in"].as_str().unwrap());
                let _ = writeln!(self.text, "| `{name}` | {place} | {kind} | {required}{} |", cell(meaning));
            }
        }
        if let Some((kind, schema)) = content(&operation["requestBody"]) {
            let _ = write!(self.text, "\nBody: `{kind}`");
            self.body(schema, true);
        }
        for (status, response) in operation["responses"].as_object().into_iter().flatten() {
            if status == "default" {
                continue;
            }
            let _ = write!(self.text, "\nReturns {status}");
            match content(response) {
                Some((kind, schema)) => {
                    let _ = write!(self.text, ", `{kind}`");
                    self.body(schema, false);
                }
                None => self.text += ".\n",
            }
        }
    }

    /// Ends a line with the type of a body, or with a table of its fields.
    fn body(&mut self, schema: &'a Value, is_request: bool) {
        let object = self.resolve(schema);
        if object["properties"].is_object() {
            self.text += ":\n";
            self.fields(object, is_request);
        } else {
            let kind = self.type_of(schema);
            let _ = writeln!(self.text, ": {kind}.");
        }
    }

    fn fields(&mut self, object: &'a Value, is_request: bool) {
        let mut rows = Vec::new();
        self.collect(object, "", is_request, &mut rows);
        self.text += "\n| field | type | meaning |\n|---|---|---|\n";
        for row in rows {
            self.text += &row;
        }
    }

    fn collect(&mut self, object: &'a Value, prefix: &str, is_request: bool, rows: &mut Vec<String>) {
        let required: Vec<_> = object["required"].as_array().into_iter().flatten().collect();
        for (name, property) in object["properties"].as_object().into_iter().flatten() {
            let kind = self.type_of(property);
            let is_required = is_request && required.iter().any(|one| *one == name);
            let mut meaning = if is_required { "Required. ".to_owned() } else { String::new() };
            meaning += &cell(property["description"].as_str().unwrap_or_default());
            if let Some(default) = property.get("default") {
                let _ = write!(meaning, " Default: `{}`.", cell(&default.to_string()));
            }
            rows.push(format!("| `{prefix}{name}` | {kind} | {} |\n", meaning.trim()));
            let is_inline = property["properties"].is_object() && prefix.matches('.').count() + 1 < MAX_DEPTH;
            if is_inline {
                self.collect(property, &format!("{prefix}{name}."), is_request, rows);
            }
        }
    }

    /// The types that the page refers to, each once.
    fn types(&mut self) {
        let mut is_first = true;
        while let Some(name) = self.waiting.pop_front() {
            if std::mem::take(&mut is_first) {
                self.text += "\n## Types\n";
            }
            let _ = write!(self.text, "\n### {name}\n");
            let schema = &self.schemas[name];
            if let Some(description) = schema["description"].as_str() {
                let _ = write!(self.text, "\n{}\n", cell(description));
            }
            if schema["properties"].is_object() {
                self.fields(schema, false);
            } else {
                let kind = self.alternatives(schema).unwrap_or_else(|| "any JSON".to_owned());
                let _ = write!(self.text, "\n{kind}\n");
            }
        }
    }

    /// The schema behind a reference.
    fn resolve(&self, schema: &'a Value) -> &'a Value {
        match reference(schema) {
            Some(name) => self.schemas.get(name).unwrap_or(schema),
            None => schema,
        }
    }

    /// The type in a cell. Named objects are links to their description.
    fn type_of(&mut self, schema: &'a Value) -> String {
        if let Some(name) = reference(schema) {
            let Some((name, target)) = self.schemas.get_key_value(name) else { return "any JSON".to_owned() };
            if !target["properties"].is_object() && self.alternatives(target).is_none() {
                return self.type_of(target);
            }
            if self.named.insert(name) {
                self.waiting.push_back(name);
            }
            return format!("[{name}](#{})", name.to_lowercase());
        }
        if let Some(text) = self.alternatives(schema) {
            return text;
        }
        if let Some(values) = schema["enum"].as_array() {
            let shown: Vec<_> = values.iter().map(literal).collect();
            return shown.join(", ");
        }
        if let Some(value) = schema.get("const") {
            return literal(value);
        }
        let names: Vec<&str> = match &schema["type"] {
            Value::String(name) => vec![name.as_str()],
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            _ => return "any JSON".to_owned(),
        };
        let shown: Vec<_> = names.into_iter().map(|name| self.simple(name, schema)).collect();
        shown.join(" or ")
    }

    fn simple(&mut self, name: &str, schema: &'a Value) -> String {
        match name {
            "array" if schema["items"].is_object() => format!("list of {}", self.type_of(&schema["items"])),
            "array" => "list".to_owned(),
            "object" if schema["additionalProperties"].is_object() => {
                format!("map to {}", self.type_of(&schema["additionalProperties"]))
            }
            "null" => name.to_owned(),
            _ => match schema["format"].as_str() {
                Some(format @ ("uuid" | "date-time" | "date" | "email" | "uri" | "binary")) => {
                    format!("{name} ({format})")
                }
                _ => name.to_owned(),
            },
        }
    }

    /// The text of a choice between types; None if the schema is no choice.
    fn alternatives(&mut self, schema: &'a Value) -> Option<String> {
        let choices = ["oneOf", "anyOf", "allOf"].into_iter().find_map(|key| schema[key].as_array())?;
        let mut shown = Vec::new();
        for choice in choices {
            let text = if choice["properties"].is_object() {
                self.inline_object(choice)
            } else {
                self.type_of(choice)
            };
            if !shown.contains(&text) {
                shown.push(text);
            }
        }
        Some(shown.join(" or "))
    }

    /// An object without a name, as its fields.
    fn inline_object(&mut self, schema: &'a Value) -> String {
        let fields = schema["properties"].as_object().into_iter().flatten();
        let shown: Vec<_> =
            fields.map(|(name, field)| format!("`{name}`: {}", self.type_of(field))).collect();
        format!("an object with {}", shown.join(", "))
    }
}

fn content(part: &Value) -> Option<(&str, &Value)> {
    let (kind, media) = part["content"].as_object()?.iter().next()?;
    Some((kind, &media["schema"]))
}

fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/components/schemas/")
}

fn literal(value: &Value) -> String {
    format!("`{}`", value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned))
}
