//! Judges a skill. The built-in judge scores the text deterministically and needs no account; a language model can
//! replace it. The safety scan runs in both cases, because a model can be manipulated by the text.

pub mod llm;
mod originality;
mod outline;
mod quality;
pub mod safety;

pub use originality::{Neighbour, compare};
use safety::Finding;

use std::fmt::Write as _;

use super::SkillSource;
use super::rubric::{Axes, Axis, Rubric, rounded};

/// The name of the built-in judge, which its verdicts show and new rubrics have. Rubrics that name another version are
/// judged by the same rules.
pub const RUBRIC_VERSION: &str = "rubric-v1";

/// How far below the threshold the score of an unsafe or copied skill is capped.
const MARGIN: f64 = 0.01;

#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    pub axes: Axes,
    pub overall_score: f64,
    pub passed: bool,
}

/// The built-in judge. `files` are the findings in the skill's other files; `nearest` is the most similar skill on the
/// shelf, if the shelf is not empty.
pub fn builtin(
    source: &SkillSource,
    files: &[Finding],
    nearest: Option<&Neighbour>,
    rubric: &Rubric,
) -> Judgement {
    let outline = outline::Outline::parse(&source.body);
    let findings = all_findings(source, files, rubric);
    let axes = Axes::from([
        ("clarity".to_owned(), quality::clarity(source, &outline)),
        ("specificity".to_owned(), quality::specificity(source, &outline)),
        ("completeness".to_owned(), quality::completeness(&outline)),
        ("safety".to_owned(), safety::axis(&findings)),
        ("originality".to_owned(), originality::axis(nearest)),
    ]);
    let copied = nearest.is_some_and(Neighbour::is_copied);
    judgement(axes, rubric, !findings.is_empty(), copied)
}

/// A judgement from the axes of a language model. Findings of the safety scan override the model's safety score.
pub fn by_model(source: &SkillSource, files: &[Finding], mut axes: Axes, rubric: &Rubric) -> Judgement {
    let findings = all_findings(source, files, rubric);
    if !findings.is_empty() {
        axes.insert("safety".to_owned(), safety::axis(&findings));
    }
    judgement(axes, rubric, !findings.is_empty(), false)
}

/// The findings in the text and in the other files, without those that the rubric accepts.
fn all_findings(source: &SkillSource, files: &[Finding], rubric: &Rubric) -> Vec<Finding> {
    let mut found = safety::scan(&source.raw_source);
    found.extend(files.iter().filter(|finding| !finding.kind.is_allowed(rubric.allow_files)).cloned());
    safety::few_of_each(found)
}

/// A judgement that does not pass, because judging itself failed for this reason.
pub fn failed(reason: &str) -> Judgement {
    let axis = Axis { score: 0.0, rationale: reason.to_owned() };
    Judgement { axes: Axes::from([("judge".to_owned(), axis)]), overall_score: 0.0, passed: false }
}

/// Compares the weighted mean with the threshold. An unsafe skill never passes, not even with a threshold of 0. The
/// score of a copy is capped just below the threshold.
fn judgement(axes: Axes, rubric: &Rubric, unsafe_found: bool, copied: bool) -> Judgement {
    let mean = rubric.overall(&axes);
    let ceiling = if unsafe_found || copied { (rubric.pass_threshold - MARGIN).max(0.0) } else { 1.0 };
    let overall_score = rounded(mean.min(ceiling));
    let passed = overall_score >= rubric.pass_threshold && !unsafe_found;
    Judgement { axes, overall_score, passed }
}

/// The text that is embedded for the similarity search: description and body, without the name.
pub fn embedded_text(source: &SkillSource) -> String {
    const MAX_BYTES: usize = 32 << 10;
    let mut text = format!("{}\n{}", source.description, source.body);
    text.truncate(text.floor_char_boundary(MAX_BYTES));
    text
}

/// Quotes a passage for a rationale: truncated, on one line, with invisible characters escaped.
fn quoted(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    let mut shown = String::from("\"");
    let truncated = text.trim().chars().take(MAX_CHARS).collect::<String>();
    for c in truncated.chars() {
        match c {
            '"' => shown.push('\''),
            c if c.is_whitespace() => shown.push(' '),
            c if c.is_control() || safety::is_invisible(c) => {
                let _ = write!(shown, "<U+{:04X}>", u32::from(c));
            }
            c => shown.push(c),
        }
    }
    if text.trim().chars().nth(MAX_CHARS).is_some() {
        shown.push('…');
    }
    shown.push('"');
    shown
}

#[cfg(test)]
mod tests;
