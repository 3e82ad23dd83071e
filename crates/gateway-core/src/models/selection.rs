//! The targets of a request, and what a request may change about them.

use std::sync::Arc;

use super::ModelTarget;
use crate::route::{Group, Member, RouteStrategy};

/// The targets of a model for one request.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Those of `route` first, in the order of its indices, then those with `when`.
    pub targets: Vec<Arc<ModelTarget>>,
    pub route: Group,
}

impl Selection {
    /// Targets that are tried in order.
    pub fn of(targets: Vec<ModelTarget>) -> Self {
        let route = Group::flat(RouteStrategy::Order, targets.iter().map(|_| 1));
        Self { targets: targets.into_iter().map(Arc::new).collect(), route }
    }

    /// Several selections, each tried after the one before it.
    pub fn in_order(mut parts: Vec<Self>) -> Self {
        if parts.len() == 1 {
            return parts.swap_remove(0);
        }
        let (mut targets, mut reserved, mut members) = (Vec::new(), Vec::new(), Vec::new());
        for Self { targets: mut of_part, mut route } in parts {
            let ordinary = of_part.iter().take_while(|target| target.when.is_none()).count();
            reserved.extend(of_part.split_off(ordinary));
            shift(&mut route, targets.len());
            targets.extend(of_part);
            members.push(Member::Group(route));
        }
        targets.extend(reserved);
        Self { targets, route: Group { strategy: RouteStrategy::Order, weight: 1, members } }
    }

    pub fn has_ordinary_targets(&self) -> bool {
        self.targets.first().is_some_and(|target| target.when.is_none())
    }

    /// Changes each target.
    pub fn map(&mut self, mut change: impl FnMut(&mut ModelTarget)) {
        for target in &mut self.targets {
            let mut changed = ModelTarget::clone(target);
            change(&mut changed);
            *target = Arc::new(changed);
        }
    }

    /// Keeps only some targets.
    pub fn retain(&mut self, mut keeps: impl FnMut(&ModelTarget) -> bool) {
        let mut next = 0;
        let mut place = |target: &Arc<ModelTarget>| {
            keeps(target).then(|| {
                next += 1;
                next - 1
            })
        };
        let places: Vec<Option<usize>> = self.targets.iter().map(&mut place).collect();
        let mut is_kept = places.iter().map(Option::is_some);
        self.targets.retain(|_| is_kept.next().unwrap_or_default());
        let route = std::mem::replace(&mut self.route, Group::flat(RouteStrategy::Order, std::iter::empty()));
        if let Some(route) = moved(route, &places) {
            self.route = route;
        }
    }

    /// Puts the targets that have a place into its order, and the others behind them.
    pub fn rank(&mut self, place: impl Fn(&ModelTarget) -> Option<usize>, others: RouteStrategy) {
        let ordinary = self.targets.iter().enumerate().filter(|(_, target)| target.when.is_none());
        let mut ranked: Vec<(usize, usize)> = Vec::new();
        let mut rest = Vec::new();
        for (index, target) in ordinary {
            match place(target) {
                Some(place) => ranked.push((place, index)),
                None => rest.push(Member::Target { index, weight: 1 }),
            }
        }
        ranked.sort_by_key(|(place, _)| *place);
        let mut members: Vec<Member> =
            ranked.into_iter().map(|(_, index)| Member::Target { index, weight: 1 }).collect();
        let others = Group { strategy: others, weight: 1, members: rest };
        self.route = if members.is_empty() {
            others
        } else {
            if !others.members.is_empty() {
                members.push(Member::Group(others));
            }
            Group { strategy: RouteStrategy::Order, weight: 1, members }
        };
    }

    /// Keeps the first of what is tried in order, and the targets for a refusal only if `keeps_reserved`.
    pub fn keep_first(&mut self, keeps_reserved: bool) {
        if self.route.strategy == RouteStrategy::Order {
            self.route.members.truncate(1);
        }
        let mut kept = Vec::new();
        collect(&self.route, &mut kept);
        let mut index = 0;
        self.retain(|target| {
            index += 1;
            kept.contains(&(index - 1)) || (keeps_reserved && target.when.is_some())
        });
    }
}

/// Adds to all indices.
fn shift(group: &mut Group, by: usize) {
    for member in &mut group.members {
        match member {
            Member::Target { index, .. } => *index += by,
            Member::Group(group) => shift(group, by),
        }
    }
}

/// The group with other indices, without what has none. None if nothing is left.
fn moved(group: Group, places: &[Option<usize>]) -> Option<Group> {
    let Group { strategy, weight, members } = group;
    let member = |member: Member| match member {
        Member::Target { index, weight } => {
            Some(Member::Target { index: places.get(index).copied().flatten()?, weight })
        }
        Member::Group(group) => moved(group, places).map(Member::Group),
    };
    let members: Vec<Member> = members.into_iter().filter_map(member).collect();
    (!members.is_empty()).then_some(Group { strategy, weight, members })
}

fn collect(group: &Group, indices: &mut Vec<usize>) {
    for member in &group.members {
        match member {
            Member::Target { index, .. } => indices.push(*index),
            Member::Group(group) => collect(group, indices),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(names: &[&str]) -> Selection {
        Selection::of(names.iter().map(|name| ModelTarget::direct(*name, "m")).collect())
    }

    fn names(selection: &Selection) -> Vec<&str> {
        let facts = vec![crate::route::TargetFacts::default(); selection.targets.len()];
        selection
            .route
            .order(&facts, 0)
            .into_iter()
            .map(|index| selection.targets[index].provider.as_str())
            .collect()
    }

    #[test]
    fn parts_are_tried_one_after_the_other() {
        let mut joined =
            Selection::in_order(vec![selection(&["a", "b"]), selection(&["c"]), selection(&["d"])]);
        assert_eq!(names(&joined), ["a", "b", "c", "d"]);
        joined.retain(|target| target.provider != "b" && target.provider != "c");
        assert_eq!((names(&joined), joined.targets.len()), (vec!["a", "d"], 2));
        joined.retain(|_| false);
        assert!(!joined.has_ordinary_targets() && names(&joined).is_empty());
    }

    #[test]
    fn ranked_targets_come_first_and_the_first_can_stand_alone() {
        let mut ranked = selection(&["a", "b", "c", "d"]);
        let order = ["c", "a"];
        ranked.rank(|target| order.iter().position(|name| *name == target.provider), RouteStrategy::Order);
        assert_eq!(names(&ranked), ["c", "a", "b", "d"]);
        ranked.keep_first(false);
        assert_eq!((names(&ranked), ranked.targets.len()), (vec!["c"], 1));
        let mut groups = Selection::in_order(vec![selection(&["a", "b"]), selection(&["c"])]);
        groups.keep_first(false);
        assert_eq!(names(&groups), ["a", "b"]);
    }

    #[test]
    fn targets_for_a_refusal_stay_behind_the_others() {
        let mut first = selection(&["a", "b"]);
        first.map(|target| {
            if target.provider == "b" {
                target.when = Some(crate::llm::failure::Refusal::Context);
            }
        });
        first.route.members.truncate(1);
        let mut joined = Selection::in_order(vec![first, selection(&["c"])]);
        let providers = |joined: &Selection| -> Vec<String> {
            joined.targets.iter().map(|target| target.provider.clone()).collect()
        };
        assert_eq!(
            (providers(&joined), names(&joined)),
            (["a", "c", "b"].map(String::from).into(), vec!["a", "c"])
        );
        joined.keep_first(true);
        assert_eq!((providers(&joined), names(&joined)), (["a", "b"].map(String::from).into(), vec!["a"]));
        joined.keep_first(false);
        assert_eq!(providers(&joined), ["a"]);
    }
}
