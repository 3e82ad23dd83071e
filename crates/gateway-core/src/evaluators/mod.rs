//! Evaluators judge responses. A definition is validated and compiled once and then evaluates any number of subjects.
//! Evaluators that need a model build the prompt and parse the answer here; the call itself is made elsewhere.

mod catalogue;
mod check;
mod config;
mod judge;
mod pattern;
mod schema;
mod similar;
mod subject;

pub use catalogue::{CatalogueEntry, catalogue};
pub use judge::Judge;
pub use similar::Embedding;
pub use subject::{BodySide, CallFacts, Field, Subject, SubjectText};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use check::Check;
use similar::Levenshtein;

/// The families of evaluators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Kind")]
pub enum EvaluatorKind {
    Static,
    Similarity,
    Llm,
}

impl EvaluatorKind {
    pub const ALL: [Self; 3] = [Self::Static, Self::Similarity, Self::Llm];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Similarity => "similarity",
            Self::Llm => "llm",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// A validated definition.
#[derive(Debug)]
pub struct Evaluator {
    pub field: Field,
    pub method: Method,
}

/// How the verdict is computed.
#[derive(Debug)]
pub enum Method {
    /// A deterministic check of the subject alone.
    Check(Check),
    Levenshtein(Levenshtein),
    Embedding(Embedding),
    Judge(Judge),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// 0 to 1.
    pub score: f64,
    pub passed: bool,
    pub details: String,
}

impl Verdict {
    /// A pass/fail verdict with a score of 1 or 0.
    pub fn binary(passed: bool, details: impl Into<String>) -> Self {
        Self { score: if passed { 1.0 } else { 0.0 }, passed, details: details.into() }
    }

    pub fn scored(score: f64, threshold: f64, details: impl Into<String>) -> Self {
        Self { score, passed: score >= threshold, details: details.into() }
    }
}

/// The subject lacks the data for a verdict, and retrying would not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotEvaluated(pub String);

/// Why a definition was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A field is unknown, missing, of the wrong type or out of range.
    #[error("{field}: {reason}")]
    Field { field: String, reason: String },
    /// A pattern or schema does not compile.
    #[error("{field}: {reason}")]
    Invalid { field: String, reason: String },
}

impl ConfigError {
    fn field(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Field { field: field.into(), reason: reason.into() }
    }

    fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), reason: reason.into() }
    }
}

impl Evaluator {
    pub fn parse(kind: &str, name: &str, config: &Value) -> Result<Self, ConfigError> {
        config::parse(kind, name, config)
    }

    /// The verdict of an evaluator that needs no model; `None` for the others.
    pub fn evaluate(&self, subject: &Subject) -> Option<Result<Verdict, NotEvaluated>> {
        match &self.method {
            Method::Check(check) => Some(check.evaluate(subject)),
            Method::Levenshtein(levenshtein) => Some(levenshtein.evaluate(subject)),
            Method::Embedding(_) | Method::Judge(_) => None,
        }
    }
}

/// Whether a log row belongs to the sample that the eval judges. The result is deterministic.
pub fn is_sampled(eval: i64, log: i64, rate: f64) -> bool {
    // The splitmix64 finalizer: every bit of both ids affects every bit of the result.
    let mut mixed = eval.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ log.cast_unsigned();
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit an f64 exactly")]
    let draw = (mixed >> 11) as f64 / (1_u64 << 53) as f64;
    draw < rate
}

#[cfg(test)]
mod tests;
