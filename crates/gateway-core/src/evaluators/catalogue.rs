//! Every evaluator by name, with a sentence and a JSON Schema of its config, for people and programs that make
//! definitions.

use std::sync::LazyLock;

use schemars::{JsonSchema, schema_for};
use serde_json::{Value, json};

use super::EvaluatorKind;
use super::config::{
    ContainsConfig, CostConfig, EmbeddingConfig, JudgeConfig, LatencyConfig, LengthConfig, Nothing,
    RegexConfig, SchemaConfig, SimilarityConfig, ValueConfig,
};

#[derive(Debug)]
pub struct CatalogueEntry {
    pub kind: EvaluatorKind,
    pub name: &'static str,
    pub about: &'static str,
    /// A JSON Schema.
    pub config: Value,
}

pub fn catalogue() -> &'static [CatalogueEntry] {
    static ALL: LazyLock<Vec<CatalogueEntry>> = LazyLock::new(all);
    &ALL
}

fn all() -> Vec<CatalogueEntry> {
    use EvaluatorKind::{Llm, Similarity, Static};
    vec![
        described::<Nothing>(Static, "is_json", "The text is valid JSON."),
        described::<SchemaConfig>(Static, "json_schema", "The text is JSON that fits a schema."),
        described::<ContainsConfig>(
            Static,
            "contains",
            "The text contains a value, or one or all of several.",
        ),
        described::<ContainsConfig>(Static, "not_contains", "The text contains none of the values."),
        described::<ValueConfig>(Static, "equals", "The text is the value, blanks around it aside."),
        described::<RegexConfig>(Static, "regex", "A regular expression matches somewhere in the text."),
        described::<ValueConfig>(Static, "starts_with", "The text starts with the value."),
        described::<ValueConfig>(Static, "ends_with", "The text ends with the value."),
        described::<LengthConfig>(Static, "length", "The text has so many characters."),
        described::<LatencyConfig>(Static, "latency", "The request took no longer than this."),
        described::<CostConfig>(Static, "cost", "The request cost no more than this."),
        described::<Nothing>(Static, "status_ok", "The request succeeded: a status below 400 and no error."),
        described::<SimilarityConfig>(
            Similarity,
            "levenshtein",
            "The share of characters that need no change to turn the text into the reference.",
        ),
        described::<EmbeddingConfig>(
            Similarity,
            "embedding",
            "The cosine similarity of the embeddings of text and reference.",
        ),
        described::<JudgeConfig>(Llm, "judge", "A model judges the text by criteria."),
    ]
}

fn described<T: JsonSchema>(kind: EvaluatorKind, name: &'static str, about: &'static str) -> CatalogueEntry {
    let mut config = schema_for!(T).to_value();
    if let Some(schema) = config.as_object_mut() {
        schema.remove("$schema");
        schema.remove("title");
        schema.insert("additionalProperties".into(), false.into());
        let properties = schema.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            properties.insert(
                "field".into(),
                json!({
                    "type": "string",
                    "default": "response",
                    "description": "What is looked at: response (the assistant's text), request, or a JSON pointer \
                                    into either body, as response:/choices/0/finish_reason.",
                }),
            );
        }
    }
    CatalogueEntry { kind, name, about, config }
}
