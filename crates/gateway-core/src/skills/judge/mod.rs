//! Judging a skill. The built-in judge is a deterministic reading of the text, and needs no account; a language model
//! may judge in its place. What is unsafe is looked for in both cases, because a model can be talked round.

pub mod llm;
mod originality;
mod outline;
mod quality;
pub mod safety;

pub use originality::{Neighbour, compare};

use std::fmt::Write as _;

use super::SkillSource;
use super::rubric::{Axes, Axis, Rubric, rounded};

/// The name of the built-in judge's rules. Rules that judge otherwise get another name.
pub const RUBRIC_V1: &str = "rubric-v1";

/// How far below the threshold a score is held that must not pass.
const MARGIN: f64 = 0.01;

#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    pub axes: Axes,
    pub overall_score: f64,
    pub passed: bool,
}

/// The built-in judge. `nearest` is the shelf's most similar skill, if the shelf has any.
pub fn builtin(source: &SkillSource, nearest: Option<&Neighbour>, rubric: &Rubric) -> Judgement {
    let outline = outline::Outline::of(&source.body);
    let findings = safety::scan(&source.raw_source);
    let axes = Axes::from([
        ("clarity".to_owned(), quality::clarity(source, &outline)),
        ("specificity".to_owned(), quality::specificity(source, &outline)),
        ("completeness".to_owned(), quality::completeness(&outline)),
        ("safety".to_owned(), safety::axis(&findings)),
        ("originality".to_owned(), originality::axis(nearest)),
    ]);
    let copied = nearest.is_some_and(Neighbour::is_copied);
    settle(axes, rubric, !findings.is_empty(), copied)
}

/// A judgement from the axes that a language model gave. Our own findings stand above the model's.
pub fn by_model(source: &SkillSource, mut axes: Axes, rubric: &Rubric) -> Judgement {
    let findings = safety::scan(&source.raw_source);
    if !findings.is_empty() {
        axes.insert("safety".to_owned(), safety::axis(&findings));
    }
    settle(axes, rubric, !findings.is_empty(), false)
}

/// No judgement could be had: the skill has not passed, and this is why.
pub fn failed(why: &str) -> Judgement {
    let axis = Axis { score: 0.0, rationale: why.to_owned() };
    Judgement { axes: Axes::from([("judge".to_owned(), axis)]), overall_score: 0.0, passed: false }
}

/// The weighted mean against the threshold. What is unsafe never passes, whatever the threshold; a copy is held just
/// below it.
fn settle(axes: Axes, rubric: &Rubric, unsafe_found: bool, copied: bool) -> Judgement {
    let mean = rubric.overall(&axes);
    let ceiling = if unsafe_found || copied { (rubric.pass_threshold - MARGIN).max(0.0) } else { 1.0 };
    let overall_score = rounded(mean.min(ceiling));
    let passed = overall_score >= rubric.pass_threshold && !unsafe_found;
    Judgement { axes, overall_score, passed }
}

/// What of a skill is embedded to find what is like it: what it says, not what it is called.
pub fn embedded_text(source: &SkillSource) -> String {
    const LONGEST: usize = 32 << 10;
    let mut text = format!("{}\n{}", source.description, source.body);
    text.truncate(text.floor_char_boundary(LONGEST));
    text
}

/// A passage as a rationale quotes it: short, on one line, and with nothing in it that cannot be seen.
fn quoted(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut shown = String::from("\"");
    let visible = text.trim().chars().take(LONGEST).collect::<String>();
    for c in visible.chars() {
        match c {
            '"' => shown.push('\''),
            c if c.is_whitespace() => shown.push(' '),
            c if c.is_control() || safety::is_invisible(c) => {
                let _ = write!(shown, "<U+{:04X}>", u32::from(c));
            }
            c => shown.push(c),
        }
    }
    if text.trim().chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown.push('"');
    shown
}

#[cfg(test)]
mod tests;
