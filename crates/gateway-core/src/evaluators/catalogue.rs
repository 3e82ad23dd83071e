//! The catalogue of evaluators: name, description and JSON Schema of the config, as the API lists them.

use std::sync::LazyLock;

use schemars::{JsonSchema, schema_for};
use serde_json::{Value, json};

use super::EvaluatorKind;
use super::config::{
    ContainsConfig, CostConfig, EmbeddingConfig, JudgeConfig, LatencyConfig, LengthConfig, NoConfig,
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
        entry::<NoConfig>(Static, "is_json", "The text is valid JSON."),
        entry::<SchemaConfig>(Static, "json_schema", "The text is JSON that matches a schema."),
        entry::<ContainsConfig>(Static, "contains", "The text contains a value, or one or all of several."),
        entry::<ContainsConfig>(Static, "not_contains", "The text contains none of the values."),
        entry::<ValueConfig>(Static, "equals", "The text equals the value, ignoring surrounding whitespace."),
        entry::<RegexConfig>(Static, "regex", "A regular expression matches somewhere in the text."),
        entry::<ValueConfig>(Static, "starts_with", "The text starts with the value."),
        entry::<ValueConfig>(Static, "ends_with", "The text ends with the value."),
        entry::<LengthConfig>(Static, "length", "The number of characters is within limits."),
        entry::<LatencyConfig>(Static, "latency", "The request took no longer than this."),
        entry::<CostConfig>(Static, "cost", "The request cost no more than this."),
        entry::<NoConfig>(Static, "status_ok", "The request succeeded: a status below 400 and no error."),
        entry::<SimilarityConfig>(
            Similarity,
            "levenshtein",
            "The share of characters that need no change to turn the text into the reference.",
        ),
        entry::<EmbeddingConfig>(
            Similarity,
            "embedding",
            "The cosine similarity of the embeddings of text and reference.",
        ),
        entry::<JudgeConfig>(Llm, "judge", "A model judges the text by criteria."),
    ]
}

fn entry<T: JsonSchema>(kind: EvaluatorKind, name: &'static str, about: &'static str) -> CatalogueEntry {
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
                    "description": "The text to evaluate: response (the assistant's text), request, or a JSON pointer \
                                    into either body, such as response:/choices/0/finish_reason.",
                }),
            );
        }
    }
    CatalogueEntry { kind, name, about, config }
}
