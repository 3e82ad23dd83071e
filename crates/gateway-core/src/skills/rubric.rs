//! The rubric: how an organization's skills are judged. It sets the judge, the weights of the axes, and the verdict
//! sources that the publish gate accepts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::verdicts::{INTERNAL_SOURCE, is_source};

/// The axes of every judgement, in display order.
pub const AXES: [&str; 5] = ["clarity", "specificity", "completeness", "safety", "originality"];

const DEFAULT_WEIGHTS: [(&str, f64); 5] =
    [("clarity", 0.2), ("specificity", 0.25), ("completeness", 0.25), ("safety", 0.2), ("originality", 0.1)];
pub const DEFAULT_THRESHOLD: f64 = 0.7;
pub const MAX_DIMS: i64 = 8192;
const MAX_SOURCES: usize = 64;
const MAX_WEIGHT: f64 = 1e6;
const MAX_NAME_CHARS: usize = 200;

/// The provider name of the built-in judge and embedding.
pub const BUILTIN: &str = "builtin";

/// Which files beside SKILL.md are no safety finding by themselves. Their texts are scanned all the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct AllowFiles {
    pub executable: bool,
    pub binary: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Rubric {
    pub judge_provider: String,
    pub judge_model: String,
    pub embed_provider: String,
    pub embed_model: String,
    pub embed_dims: i64,
    pub weights: BTreeMap<String, f64>,
    pub pass_threshold: f64,
    pub allowed_verdict_sources: Vec<String>,
    pub allow_files: AllowFiles,
}

/// A partial update; absent fields stay unchanged.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct RubricChange {
    /// `builtin`, or a provider as `X-Gateway-Provider` names it.
    pub judge_provider: Option<String>,
    pub judge_model: Option<String>,
    /// `builtin`, or a provider with an OpenAI-compatible embeddings endpoint.
    pub embed_provider: Option<String>,
    pub embed_model: Option<String>,
    #[schemars(range(min = 1, max = 8192))]
    pub embed_dims: Option<i64>,
    /// Weight per axis, at least one above 0. An omitted axis has weight 0.
    pub weights: Option<BTreeMap<String, f64>>,
    #[schemars(range(min = 0, max = 1))]
    pub pass_threshold: Option<f64>,
    /// The verdict sources that the publish gate accepts.
    pub allowed_verdict_sources: Option<Vec<String>>,
    /// Which files beside SKILL.md are no finding: `executable`, `binary`. Default: neither.
    pub allow_files: Option<AllowFiles>,
}

/// The score of one axis, with the reason for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Axis {
    #[schemars(range(min = 0, max = 1))]
    pub score: f64,
    #[serde(default)]
    pub rationale: String,
}

pub type Axes = BTreeMap<String, Axis>;

impl Rubric {
    /// The rubric of a new organization, with the server's default judge and embedding.
    pub fn seeded(judge: (&str, &str), embed: (&str, &str), embed_dims: i64) -> Self {
        Self {
            judge_provider: judge.0.to_owned(),
            judge_model: judge.1.to_owned(),
            embed_provider: embed.0.to_owned(),
            embed_model: embed.1.to_owned(),
            embed_dims,
            weights: DEFAULT_WEIGHTS.iter().map(|(axis, weight)| ((*axis).to_owned(), *weight)).collect(),
            pass_threshold: DEFAULT_THRESHOLD,
            allowed_verdict_sources: vec![INTERNAL_SOURCE.to_owned()],
            allow_files: AllowFiles::default(),
        }
    }

    /// The rubric after a partial update, or the invalid field and the reason.
    pub fn changed(mut self, change: RubricChange) -> Result<Self, (&'static str, String)> {
        let RubricChange {
            judge_provider,
            judge_model,
            embed_provider,
            embed_model,
            embed_dims,
            weights,
            pass_threshold,
            allowed_verdict_sources,
            allow_files,
        } = change;
        let names = [
            ("judge_provider", judge_provider, &mut self.judge_provider),
            ("judge_model", judge_model, &mut self.judge_model),
            ("embed_provider", embed_provider, &mut self.embed_provider),
            ("embed_model", embed_model, &mut self.embed_model),
        ];
        for (field, given, current) in names {
            if let Some(given) = given {
                *current = checked_name(given).map_err(|reason| (field, reason))?;
            }
        }
        if let Some(dims) = embed_dims {
            if !(1..=MAX_DIMS).contains(&dims) {
                return Err(("embed_dims", format!("must be a whole number from 1 to {MAX_DIMS}")));
            }
            self.embed_dims = dims;
        }
        if let Some(weights) = weights {
            self.weights = checked_weights(weights).map_err(|reason| ("weights", reason))?;
        }
        if let Some(threshold) = pass_threshold {
            if !(0.0..=1.0).contains(&threshold) {
                return Err(("pass_threshold", "must be between 0 and 1".into()));
            }
            self.pass_threshold = threshold;
        }
        if let Some(sources) = allowed_verdict_sources {
            self.allowed_verdict_sources =
                checked_sources(sources).map_err(|reason| ("allowed_verdict_sources", reason))?;
        }
        if let Some(allowed) = allow_files {
            self.allow_files = allowed;
        }
        Ok(self)
    }

    /// The axes with a weight above 0.
    pub fn weighted_axes(&self) -> impl Iterator<Item = &str> {
        AXES.into_iter().filter(|axis| self.weights.get(*axis).is_some_and(|weight| *weight > 0.0))
    }

    /// The weighted mean; an axis without a score counts as 0.
    pub fn overall(&self, axes: &Axes) -> f64 {
        let weighted =
            self.weights.iter().map(|(axis, weight)| (axes.get(axis).map_or(0.0, |a| a.score), weight));
        let (sum, total) =
            weighted.fold((0.0, 0.0), |(sum, total), (score, weight)| (sum + score * weight, total + weight));
        if total > 0.0 { rounded(sum / total) } else { 0.0 }
    }
}

/// Rounds a score to four digits, so that it does not depend on the order of summation.
pub fn rounded(score: f64) -> f64 {
    (score * 10_000.0).round() / 10_000.0
}

fn checked_name(name: String) -> Result<String, String> {
    if name.trim().is_empty() || name.chars().count() > MAX_NAME_CHARS || name.chars().any(char::is_control) {
        return Err(format!("must be a name of 1 to {MAX_NAME_CHARS} characters"));
    }
    Ok(name)
}

fn checked_weights(weights: BTreeMap<String, f64>) -> Result<BTreeMap<String, f64>, String> {
    if let Some(unknown) = weights.keys().find(|axis| !AXES.contains(&axis.as_str())) {
        let shown: String = unknown.chars().take(40).collect();
        return Err(format!("unknown axis '{shown}'; must be one of {}", AXES.join(", ")));
    }
    if weights.values().any(|weight| !(0.0..=MAX_WEIGHT).contains(weight)) {
        return Err(format!("each weight must be a number from 0 to {MAX_WEIGHT}"));
    }
    if !weights.values().any(|weight| *weight > 0.0) {
        return Err("at least one weight must be above 0".into());
    }
    Ok(weights)
}

fn checked_sources(sources: Vec<String>) -> Result<Vec<String>, String> {
    if sources.len() > MAX_SOURCES {
        return Err(format!("must have at most {MAX_SOURCES} sources"));
    }
    match sources.iter().find(|source| !is_source(source)) {
        Some(_) => Err("each must be 1 to 32 lowercase letters, digits, _ or -".into()),
        None => Ok(sources),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rubric() -> Rubric {
        Rubric::seeded(("builtin", "rubric-v1"), ("builtin", "hash-v1"), 256)
    }

    fn weights(pairs: &[(&str, f64)]) -> BTreeMap<String, f64> {
        pairs.iter().map(|(axis, weight)| ((*axis).to_owned(), *weight)).collect()
    }

    #[test]
    fn an_empty_change_changes_nothing() {
        assert_eq!(rubric().changed(RubricChange::default()), Ok(rubric()));
    }

    #[test]
    fn each_wrong_field_is_named() {
        let wrong = |change: RubricChange| rubric().changed(change).unwrap_err().0;
        let none = RubricChange::default;
        assert_eq!(wrong(RubricChange { judge_provider: Some(" ".into()), ..none() }), "judge_provider");
        assert_eq!(wrong(RubricChange { embed_model: Some("x".repeat(201)), ..none() }), "embed_model");
        for dims in [0, -1, 8193] {
            assert_eq!(wrong(RubricChange { embed_dims: Some(dims), ..none() }), "embed_dims");
        }
        for threshold in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(wrong(RubricChange { pass_threshold: Some(threshold), ..none() }), "pass_threshold");
        }
        for bad in
            [&[][..], &[("clarity", 0.0)], &[("clarity", -1.0)], &[("beauty", 1.0)], &[("safety", f64::NAN)]]
        {
            assert_eq!(wrong(RubricChange { weights: Some(weights(bad)), ..none() }), "weights");
        }
        for bad in ["", "Internal", "a b", &"x".repeat(33)] {
            let change = RubricChange { allowed_verdict_sources: Some(vec![bad.into()]), ..none() };
            assert_eq!(wrong(change), "allowed_verdict_sources");
        }
    }

    #[test]
    fn the_overall_score_is_the_weighted_mean() {
        let axis = |score| Axis { score, rationale: String::new() };
        let axes = Axes::from([("clarity".into(), axis(1.0)), ("safety".into(), axis(0.5))]);
        let change = RubricChange {
            weights: Some(weights(&[("clarity", 1.0), ("safety", 3.0)])),
            ..RubricChange::default()
        };
        let rubric = rubric().changed(change).unwrap();
        assert!((rubric.overall(&axes) - 0.625).abs() < 1e-9);
        assert_eq!(rubric.weighted_axes().collect::<Vec<_>>(), ["clarity", "safety"]);
        assert!(rubric.overall(&Axes::new()) < 1e-9);
    }
}
