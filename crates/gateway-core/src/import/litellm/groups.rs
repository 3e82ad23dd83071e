//! The deployments of each name as levels of targets, and the names that fallbacks and aliases mean.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::super::Status;
use super::super::assemble::{Level, whole_weights};
use super::super::limits::Amounts;
use super::super::report::{Report, item, join, whole};
use super::deployment::{Deployment, RPM, TPM};
use crate::models::{MAX_TARGETS, Mode, NamedModels};

/// The deployments of one name.
pub struct Group {
    pub name: String,
    pub deployments: Vec<Deployment>,
}

/// Groups deployments by name, in the order of their first appearance.
pub fn group(deployments: Vec<Deployment>) -> Vec<Group> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for deployment in deployments {
        let next = groups.len();
        let place = *places.entry(deployment.model_name.clone()).or_insert(next);
        if place == next {
            groups.push(Group { name: deployment.model_name.clone(), deployments: Vec::new() });
        }
        groups[place].deployments.push(deployment);
    }
    groups
}

impl Group {
    /// What its deployments allow together. One without a limit has no end.
    pub fn amounts(&self) -> Amounts {
        let sum = |of: &dyn Fn(&Deployment) -> Option<f64>| {
            let given = self.deployments.iter().map(of);
            given.sum::<Option<f64>>().filter(|sum| *sum > 0.0).map(whole)
        };
        Amounts {
            requests: sum(&|deployment| deployment.weights[RPM]),
            tokens: sum(&|deployment| deployment.weights[TPM]),
            concurrent: sum(&|deployment| deployment.concurrent),
            ..Amounts::default()
        }
    }

    /// Its targets, those of a lower `order` first. `providers` has the names of the endpoints.
    pub fn levels(&self, (mode, retries): (Mode, u32), providers: &[String]) -> Vec<Level> {
        let mut ordered: Vec<&Deployment> = self.deployments.iter().collect();
        let order = |deployment: &Deployment| deployment.order.unwrap_or(f64::INFINITY);
        ordered.sort_by(|a, b| order(a).total_cmp(&order(b)));
        let same = ordered.chunk_by(|a, b| order(a).total_cmp(&order(b)).is_eq());
        same.map(|deployments| level(deployments, (mode, retries), providers)).collect()
    }

    /// Whether deployments share the retries of a call.
    pub fn shares_retries(&self) -> bool {
        let mut orders: Vec<Option<f64>> = self.deployments.iter().map(|of| of.order).collect();
        orders.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
        orders.windows(2).any(|pair| pair[0] == pair[1])
    }
}

fn level(deployments: &[&Deployment], (mode, retries): (Mode, u32), providers: &[String]) -> Level {
    let is_shared = mode == Mode::Weighted && deployments.len() > 1;
    let weights = is_shared.then(|| weights(deployments)).flatten();
    let target = |(index, deployment): (usize, &&Deployment)| {
        let mut target = deployment.target.clone();
        target.provider = providers.get(deployment.endpoint).cloned();
        if deployments.len() > 1 {
            target.retries = Some(share(target.retries.unwrap_or(retries), deployments.len()));
        }
        target.weight = weights.as_ref().and_then(|weights| weights.get(index).copied());
        target
    };
    Level { mode, targets: deployments.iter().enumerate().map(target).collect() }
}

/// LiteLLM makes one call and the retries for all deployments of a level together. Here each target has its share, so
/// that at least as many calls are made.
fn share(retries: u32, targets: usize) -> u32 {
    let calls = usize::try_from(retries).unwrap_or(usize::MAX).saturating_add(1);
    u32::try_from(calls.div_ceil(targets.max(1)).saturating_sub(1)).unwrap_or(retries)
}

/// LiteLLM takes the kind of weight that the first deployment has; the others have 0 if they lack it.
fn weights(deployments: &[&Deployment]) -> Option<Vec<u32>> {
    let kind = deployments.first()?.weights.iter().position(Option::is_some)?;
    let given: Vec<f64> =
        deployments.iter().map(|deployment| deployment.weights[kind].unwrap_or(0.0)).collect();
    whole_weights(&given)
}

/// A group that a name means, and what the star of its name matched.
#[derive(Clone)]
pub struct Meant {
    /// The name itself.
    pub name: String,
    pub place: usize,
    star: Option<String>,
}

impl Meant {
    /// Replaces the star of targets by what it matched.
    pub fn fill(&self, mut levels: Vec<Level>) -> Vec<Level> {
        let Some(star) = &self.star else { return levels };
        for target in levels.iter_mut().flat_map(|level| &mut level.targets) {
            if let Some(prefix) = target.model.as_deref().and_then(|model| model.strip_suffix('*')) {
                target.model = Some(format!("{prefix}{star}"));
            }
        }
        levels
    }
}

/// What names mean: groups and aliases of them.
pub struct Names {
    groups: NamedModels<usize>,
    aliases: HashMap<String, String>,
}

/// Aliases of aliases are followed this far.
const MAX_ALIAS_STEPS: usize = 10;

impl Names {
    pub fn new(groups: &[Group], aliases: HashMap<String, String>) -> Self {
        let named = groups.iter().enumerate().map(|(place, group)| (group.name.clone(), place));
        Self { groups: named.collect(), aliases }
    }

    /// The group of this name, whatever aliases say.
    pub fn group(&self, name: &str) -> Option<Meant> {
        let (place, _) = self.groups.find(name)?;
        Some(Meant { name: name.to_owned(), place: *place, star: None })
    }

    pub fn find(&self, name: &str) -> Option<Meant> {
        let asked = name.to_owned();
        let mut name = name;
        for _ in 0..MAX_ALIAS_STEPS {
            let Some(next) = self.aliases.get(name) else { break };
            name = next;
        }
        // A name with a star is the pattern itself, not a name that it matches.
        let (place, star) = self.groups.find(name)?;
        let star = star.filter(|_| !name.ends_with('*')).map(str::to_owned);
        Some(Meant { name: asked, place: *place, star })
    }
}

/// The fallbacks of each name.
#[derive(Default)]
pub struct Fallbacks {
    /// With the path of each list.
    by_name: BTreeMap<String, (String, Vec<Meant>)>,
    default: Vec<Meant>,
}

impl Fallbacks {
    /// The groups that follow a name that was asked for, in order.
    pub fn of(&self, name: &str) -> &[Meant] {
        self.by_name.get(name).map_or(self.default.as_slice(), |(_, list)| list)
    }

    /// The groups that follow a name that is a fallback itself. The default is only for names that were asked for.
    pub fn after(&self, name: &str) -> &[Meant] {
        self.by_name.get(name).map_or(&[], |(_, list)| list)
    }

    /// The names with lists of their own, and the paths of the lists.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.by_name.iter().map(|(name, (path, _))| (name.as_str(), path.as_str()))
    }

    /// Reads `[{a: [b, c]}]`. Names that mean nothing have findings.
    pub fn read(&mut self, report: &mut Report, path: &str, lists: Option<&Value>, names: &Names) {
        for (index, entry) in report.list(path, lists).iter().enumerate() {
            let at = item(path, index);
            for (name, list) in report.object(&at, entry).into_iter().flatten() {
                let at = join(&at, name);
                let meant = meant(report, &at, list, names);
                if name == "*" {
                    self.default = meant;
                } else if name.ends_with('*') {
                    let message = "LiteLLM compares it with the name of a call, so that a pattern has no effect there \
                                   either";
                    report.set(&at, Status::Exact, message);
                } else {
                    self.by_name.entry(name.clone()).or_insert((at, meant));
                }
            }
        }
    }

    /// Reads `default_fallbacks`: `[b, c]`.
    pub fn read_default(&mut self, report: &mut Report, path: &str, list: Option<&Value>, names: &Names) {
        if let Some(list) = list.filter(|list| !list.is_null()) {
            self.default = meant(report, path, list, names);
        }
    }
}

/// The groups of a list of names. A pattern is no name that can be called.
fn meant(report: &mut Report, path: &str, list: &Value, names: &Names) -> Vec<Meant> {
    let mut found = Vec::new();
    for (index, name) in report.list(path, Some(list)).iter().enumerate() {
        let at = item(path, index);
        let Some(name) = name.as_str() else {
            report.set(
                &at,
                Status::Manual,
                "a fallback with parameters of its own is not imported; define a model for it",
            );
            continue;
        };
        match names.find(name).filter(|_| !name.ends_with('*')) {
            Some(_) if found.len() == MAX_TARGETS => {
                report.set(&at, Status::Unsupported, format!("a model has at most {MAX_TARGETS} fallbacks"));
            }
            Some(meant) => found.push(meant),
            None => report.set(&at, Status::Manual, "model_list has no such model; the fallback is left out"),
        }
    }
    found
}
