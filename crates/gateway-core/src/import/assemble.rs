//! Named models from lists of targets: levels that are tried one after the other, each with several targets that share
//! the calls.

use super::report::{Report, whole};
use super::{PlannedModel, Status};
use crate::llm::failure::Refusal;
use crate::models::{Definition, MAX_TARGETS, Mode, Strategy, Target, check_model_name};

const MAX_WEIGHT: f64 = 1_000.0;

/// Targets that share the calls, or are chosen among by their mode.
#[derive(Clone, Default)]
pub struct Level {
    pub mode: Mode,
    pub targets: Vec<Target>,
}

/// A definition without anything.
pub fn empty() -> Definition {
    Definition {
        name: None,
        description: String::new(),
        strategy: Strategy::default(),
        targets: Vec::new(),
        retries: None,
        timeout_ms: None,
        first_byte_timeout_ms: None,
        cache: None,
        prompt_cache: None,
        price: None,
        hidden: false,
        enabled: true,
    }
}

pub fn strategy(mode: Mode) -> Strategy {
    Strategy { mode, ..Strategy::default() }
}

/// Sets the strategy and targets of a definition: the levels in order, and targets after a refusal.
pub fn set_targets(
    report: &mut Report,
    path: &str,
    definition: &mut Definition,
    mut levels: Vec<Level>,
    refusals: Vec<(Refusal, Level)>,
) {
    let mut targets: Vec<Target> = Vec::new();
    if levels.len() == 1 {
        let Level { mode, targets: only } = levels.swap_remove(0);
        definition.strategy = strategy(if only.len() == 1 { Mode::Single } else { mode });
        targets.extend(only);
    } else {
        definition.strategy = strategy(Mode::Order);
        targets.extend(levels.into_iter().filter_map(|level| joined(report, path, level)));
    }
    // Targets for a refusal have their places before the list is cut.
    let room = MAX_TARGETS.saturating_sub(refusals.len().min(MAX_TARGETS - 1));
    cut(report, path, &mut targets, room);
    for (refusal, level) in refusals.into_iter().take(MAX_TARGETS - 1) {
        targets.extend(joined(report, path, level).map(|target| Target { when: Some(refusal), ..target }));
    }
    definition.targets = targets;
}

/// A level as one target: itself, or a group.
fn joined(report: &mut Report, path: &str, level: Level) -> Option<Target> {
    let Level { mode, mut targets } = level;
    cut(report, path, &mut targets, MAX_TARGETS);
    match targets.len() {
        0 => None,
        // A weight says nothing about a single target.
        1 => targets.pop().map(|target| Target { weight: None, ..target }),
        _ => Some(Target { strategy: Some(strategy(mode)), targets: Some(targets), ..Target::default() }),
    }
}

fn cut(report: &mut Report, path: &str, targets: &mut Vec<Target>, room: usize) {
    if targets.len() > room {
        let message =
            format!("a list has at most {MAX_TARGETS} targets; {} are left out", targets.len() - room);
        report.set(path, Status::Unsupported, message);
        targets.truncate(room);
    }
}

/// Checks a model and adds it to the plan. One that cannot be saved has a finding instead.
pub fn push(
    report: &mut Report,
    path: &str,
    models: &mut Vec<PlannedModel>,
    name: &str,
    definition: Definition,
) {
    let checked = match check_model_name(name) {
        Ok(()) => definition.checked(name, &|_| true).map_err(|error| error.to_string()),
        Err(why) => Err(format!("the name {why}")),
    };
    match checked {
        Ok(definition) => models.push(PlannedModel { name: name.to_owned(), definition }),
        Err(why) => report.set(path, Status::Unsupported, format!("the model is left out: {why}")),
    }
}

/// Weights as whole numbers from 0 to 1000 in the same proportion. None if all are 0.
pub fn whole_weights(weights: &[f64]) -> Option<Vec<u32>> {
    let largest = weights.iter().copied().fold(0.0, f64::max);
    if largest <= 0.0 {
        return None;
    }
    let fits = largest <= MAX_WEIGHT && weights.iter().all(|weight| weight.fract() == 0.0);
    let scale = if fits { 1.0 } else { MAX_WEIGHT / largest };
    let scaled = weights
        .iter()
        .map(|weight| u32::try_from(whole(weight * scale)).unwrap_or(u32::MAX).max(u32::from(*weight > 0.0)));
    Some(scaled.collect())
}
