//! Which objects a client needs: those that the wanted commits reach within the depth, without those that its own
//! commits reach. The walk follows the client's own limits, because a shallow clone lacks what lies behind them.

use std::collections::{HashMap, HashSet, VecDeque};

use super::protocol::{FetchRequest, ProtocolError};
use super::{Object, ObjectKind, Oid, parse_commit, parse_tree};

/// The commits and trees of a repository, and the ids of its files.
#[derive(Debug, Default)]
pub struct History {
    commits: HashMap<Oid, (Oid, Option<Oid>)>,
    trees: HashMap<Oid, Vec<(Oid, bool)>>,
    blobs: HashSet<Oid>,
}

/// What is sent to a client.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FetchPlan {
    /// Commits whose parents the client will not have.
    pub shallow: Vec<Oid>,
    /// Commits whose parents the client gets now.
    pub unshallow: Vec<Oid>,
    pub objects: Vec<Oid>,
}

impl History {
    /// `blobs` are the ids of the files; their contents are not needed.
    pub fn new(objects: &[Object], blobs: impl IntoIterator<Item = Oid>) -> Result<Self, ProtocolError> {
        let damaged = |oid: Oid| ProtocolError(format!("the stored object {oid} is damaged"));
        let mut history = Self { blobs: blobs.into_iter().collect(), ..Self::default() };
        for object in objects {
            let content = object.content().ok_or_else(|| damaged(object.oid))?;
            match object.kind {
                ObjectKind::Commit => {
                    let commit = parse_commit(&content).ok_or_else(|| damaged(object.oid))?;
                    history.commits.insert(object.oid, commit);
                }
                ObjectKind::Tree => {
                    let tree = parse_tree(&content).ok_or_else(|| damaged(object.oid))?;
                    history.trees.insert(object.oid, tree);
                }
                ObjectKind::Blob => {
                    history.blobs.insert(object.oid);
                }
            }
        }
        Ok(history)
    }

    pub fn plan(&self, request: &FetchRequest) -> Result<FetchPlan, ProtocolError> {
        let mut known = self.client_objects(request);
        let mut plan = FetchPlan::default();
        for want in &request.wants {
            if self.commits.contains_key(want) {
                continue;
            }
            if self.trees.contains_key(want) {
                self.add_tree(*want, request.without_blobs, &mut known, &mut plan.objects);
            } else if self.blobs.contains(want) {
                // Asked for by name, so the client lacks it, whatever its commits reach.
                plan.objects.push(*want);
            } else {
                return Err(ProtocolError(format!("not our ref {want}")));
            }
        }
        for (commit, left) in self.commits_within(request, &known) {
            let Some((tree, parent)) = self.commits.get(&commit) else { continue };
            if known.insert(commit) {
                plan.objects.push(commit);
                self.add_tree(*tree, request.without_blobs, &mut known, &mut plan.objects);
            }
            if parent.is_none() || request.depth.is_none() {
                continue;
            }
            if left == 0 {
                plan.shallow.push(commit);
            } else if request.shallow.contains(&commit) {
                plan.unshallow.push(commit);
            }
        }
        plan.objects.sort_unstable();
        plan.objects.dedup();
        Ok(plan)
    }

    /// Everything that the client's commits reach. A client without files of its own fetches them by name.
    fn client_objects(&self, request: &FetchRequest) -> HashSet<Oid> {
        let (mut known, mut ignored) = (HashSet::new(), Vec::new());
        for have in &request.haves {
            let mut next = Some(*have);
            while let Some(commit) = next.take() {
                let Some((tree, parent)) = self.commits.get(&commit) else { break };
                if !known.insert(commit) {
                    break;
                }
                self.add_tree(*tree, false, &mut known, &mut ignored);
                next = parent.filter(|_| !request.shallow.contains(&commit));
            }
        }
        known
    }

    /// The commits that the wanted ones reach within the depth, and how many generations may follow each. All wants are
    /// followed one generation at a time. So a commit is first met with the greatest number, and is visited only once.
    fn commits_within(&self, request: &FetchRequest, known: &HashSet<Oid>) -> Vec<(Oid, u32)> {
        let depth = request.depth.unwrap_or(u32::MAX);
        let mut waiting: VecDeque<(Oid, u32)> = request.wants.iter().map(|want| (*want, depth)).collect();
        let (mut seen, mut reached) = (HashSet::new(), Vec::new());
        while let Some((commit, left)) = waiting.pop_front() {
            let Some((_, parent)) = self.commits.get(&commit) else { continue };
            if !seen.insert(commit) {
                continue;
            }
            let left = left.saturating_sub(1);
            reached.push((commit, left));
            // Without a new depth, everything behind a commit that the client has is settled.
            let is_settled = request.depth.is_none() && known.contains(&commit);
            if let Some(parent) = parent.filter(|_| left > 0 && !is_settled) {
                waiting.push_back((parent, left));
            }
        }
        reached
    }

    fn add_tree(&self, root: Oid, without_blobs: bool, known: &mut HashSet<Oid>, objects: &mut Vec<Oid>) {
        let mut waiting = vec![root];
        while let Some(tree) = waiting.pop() {
            if !known.insert(tree) {
                continue;
            }
            objects.push(tree);
            for (oid, is_tree) in self.trees.get(&tree).into_iter().flatten() {
                if *is_tree {
                    waiting.push(*oid);
                } else if !without_blobs && known.insert(*oid) {
                    objects.push(*oid);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::{Commit, EntryKind, tree_content};

    /// Three commits with one file each, whose content is that of the number; the third has the first one's again.
    fn repository() -> (Vec<Object>, Vec<Oid>) {
        let (mut objects, mut commits) = (Vec::new(), Vec::new());
        for content in [b"1", b"2", b"1"] {
            let blob = Object::new(ObjectKind::Blob, content);
            let file = EntryKind::File { is_executable: false };
            let tree = Object::new(ObjectKind::Tree, &tree_content(&[("f".into(), file, blob.oid)]));
            let parent = commits.last().copied();
            let commit = Commit { tree: tree.oid, parent, time: 0, message: "m" };
            let commit = Object::new(ObjectKind::Commit, &commit.content());
            commits.push(commit.oid);
            objects.extend([blob, tree, commit]);
        }
        (objects, commits)
    }

    fn planned(change: impl FnOnce(&mut FetchRequest, &[Oid])) -> (FetchPlan, Vec<Oid>) {
        let (objects, commits) = repository();
        let history = History::new(&objects, []).unwrap();
        let mut request = FetchRequest { wants: vec![commits[2]], ..FetchRequest::default() };
        change(&mut request, &commits);
        (history.plan(&request).unwrap(), commits)
    }

    #[test]
    fn a_clone_gets_everything_once() {
        let (plan, _) = planned(|_, _| {});
        assert_eq!(plan.objects.len(), 3 + 2 + 2, "two trees and two files are shared");
        assert!(plan.shallow.is_empty());
    }

    #[test]
    fn a_pull_gets_what_is_new() {
        let (plan, commits) = planned(|request, commits| request.haves = vec![commits[1]]);
        assert_eq!(plan.objects, [commits[2]], "the older file is known through the history");
    }

    #[test]
    fn a_shallow_client_gets_what_lies_behind_its_limit() {
        let (plan, commits) = planned(|request, commits| {
            (request.haves, request.shallow) = (vec![commits[1]], HashSet::from([commits[1]]));
        });
        assert_eq!(plan.objects.len(), 3, "the first file again, because the client never had it");
        assert!(plan.objects.contains(&commits[2]) && plan.shallow.is_empty());
    }

    #[test]
    fn the_depth_limits_the_history() {
        let (plan, commits) = planned(|request, _| request.depth = Some(1));
        assert_eq!((plan.objects.len(), plan.shallow), (3, vec![commits[2]]));
        let (plan, commits) = planned(|request, commits| {
            request.depth = Some(u32::MAX);
            (request.haves, request.shallow) = (vec![commits[2]], HashSet::from([commits[2]]));
        });
        assert_eq!((plan.shallow, plan.unshallow), (vec![], vec![commits[2]]));
        assert_eq!(plan.objects.len(), 4, "two commits, and the tree and file of the second");
    }

    #[test]
    fn many_equal_wants_cost_no_more_than_one() {
        let (objects, commits) = repository();
        let history = History::new(&objects, []).unwrap();
        let all = commits.iter().copied().chain(commits.iter().rev().copied());
        let wants: Vec<Oid> = all.cycle().take(10_000).collect();
        for depth in [None, Some(1), Some(2), Some(u32::MAX)] {
            let request = FetchRequest {
                wants: wants.clone(),
                shallow: commits.iter().copied().collect(),
                depth,
                ..FetchRequest::default()
            };
            let reached = history.commits_within(&request, &HashSet::new());
            assert_eq!(reached.len(), commits.len(), "each commit is visited once");
            let plan = history.plan(&request).unwrap();
            let ends = plan.shallow.len() + plan.unshallow.len();
            assert_eq!(ends, if depth.is_some() { 2 } else { 0 }, "each commit with a parent is named once");
            assert_eq!(plan.objects.len(), 3 + 2 + 2);
        }
    }

    #[test]
    fn the_want_that_reaches_farthest_decides() {
        let (plan, commits) = planned(|request, commits| {
            (request.wants, request.depth) = (vec![commits[2], commits[1]], Some(2));
        });
        assert!(plan.shallow.is_empty(), "the second commit's parent is within the depth of the second want");
        assert!(plan.objects.contains(&commits[0]));
    }

    #[test]
    fn files_can_be_left_out_and_fetched_by_name() {
        let (plan, _) = planned(|request, _| request.without_blobs = true);
        assert_eq!(plan.objects.len(), 3 + 2);
        let (objects, _) = repository();
        let blob = objects[0].oid;
        let (plan, _) = planned(|request, commits| {
            (request.wants, request.haves, request.without_blobs) = (vec![blob], vec![commits[2]], true);
        });
        assert_eq!(plan.objects, [blob]);
    }

    #[test]
    fn unknown_objects_are_refused() {
        let (objects, _) = repository();
        let history = History::new(&objects, []).unwrap();
        let request = FetchRequest { wants: vec![Oid([9; 20])], ..FetchRequest::default() };
        assert!(history.plan(&request).unwrap_err().to_string().contains("not our ref"));
        let damaged = Object { data: vec![1], ..objects[2].clone() };
        assert!(History::new(&[damaged], []).is_err());
    }
}
