//! Evaluators: what an answer can be judged by. A definition is read and checked once, with everything in it compiled,
//! and then judges as many subjects as there are. Those that need a model say what to ask and read what it answers;
//! the asking itself is done elsewhere.

mod catalogue;
mod check;
mod config;
mod judge;
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

/// A definition that was found to be good.
#[derive(Debug)]
pub struct Evaluator {
    pub field: Field,
    pub how: Method,
}

/// How the verdict is found.
#[derive(Debug)]
pub enum Method {
    /// From the subject alone.
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
    /// For a question of yes or no.
    pub fn of(passed: bool, details: impl Into<String>) -> Self {
        Self { score: if passed { 1.0 } else { 0.0 }, passed, details: details.into() }
    }

    pub fn scored(score: f64, threshold: f64, details: impl Into<String>) -> Self {
        Self { score, passed: score >= threshold, details: details.into() }
    }
}

/// No verdict can be had from what is there, now or later.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotEvaluated(pub String);

/// What is wrong with a definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A part is unknown, missing, of a wrong type or out of range.
    #[error("{field}: {why}")]
    Field { field: String, why: String },
    /// A pattern or schema that is none.
    #[error("{field}: {why}")]
    Invalid { field: String, why: String },
}

impl ConfigError {
    fn field(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Field { field: field.into(), why: why.into() }
    }

    fn meaningless(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), why: why.into() }
    }
}

impl Evaluator {
    pub fn read(kind: &str, name: &str, config: &Value) -> Result<Self, ConfigError> {
        config::read(kind, name, config)
    }

    /// The verdict, when it needs nobody else.
    pub fn judge(&self, subject: &Subject) -> Option<Result<Verdict, NotEvaluated>> {
        match &self.how {
            Method::Check(check) => Some(check.judge(subject)),
            Method::Levenshtein(levenshtein) => Some(levenshtein.judge(subject)),
            Method::Embedding(_) | Method::Judge(_) => None,
        }
    }
}

/// Is this log row among the share of rows that the eval judges? The same row gets the same answer every time.
pub fn is_sampled(eval: i64, log: i64, rate: f64) -> bool {
    // The finalizer of splitmix64: every bit of both ids moves every bit of the draw.
    let mut mixed = eval.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ log.cast_unsigned();
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    #[expect(clippy::cast_precision_loss, reason = "a draw of 53 bits fits a float")]
    let draw = (mixed >> 11) as f64 / (1_u64 << 53) as f64;
    draw < rate
}

#[cfg(test)]
mod tests;
