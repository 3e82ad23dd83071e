//! Which objects a client needs: those that the wanted commits reach within the depth, without those that its own
//! commits reach. The walk follows the client's own limits, because a shallow clone lacks what lies behind them.

use std::collections::{HashMap, HashSet};

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
                self.add_commits(*want, request, &mut known, &mut plan);
            } else if self.trees.contains_key(want) {
                self.add_tree(*want, request.without_blobs, &mut known, &mut plan.objects);
            } else if self.blobs.contains(want) {
                // Asked for by name, so the client lacks it, whatever its commits reach.
                plan.objects.push(*want);
            } else {
                return Err(ProtocolError(format!("not our ref {want}")));
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

    fn add_commits(&self, from: Oid, request: &FetchRequest, known: &mut HashSet<Oid>, plan: &mut FetchPlan) {
        let mut left = request.depth.unwrap_or(u32::MAX);
        let mut next = Some(from);
        while let Some(commit) = next.take() {
            let Some((tree, parent)) = self.commits.get(&commit) else { break };
            let is_known = !known.insert(commit);
            if !is_known {
                plan.objects.push(commit);
                self.add_tree(*tree, request.without_blobs, known, &mut plan.objects);
            }
            left -= 1;
            let was_shallow = request.shallow.contains(&commit);
            match parent {
                Some(_) if left == 0 => plan.shallow.push(commit),
                // Without a new depth, everything behind a commit that the client has is settled.
                Some(_) if is_known && request.depth.is_none() => {}
                Some(parent) => {
                    if was_shallow && request.depth.is_some() {
                        plan.unshallow.push(commit);
                    }
                    next = Some(*parent);
                }
                None => {}
            }
        }
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
            (request.haves, request.shallow) = (vec![commits[1]], vec![commits[1]]);
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
            (request.haves, request.shallow) = (vec![commits[2]], vec![commits[2]]);
        });
        assert_eq!((plan.shallow, plan.unshallow), (vec![], vec![commits[2]]));
        assert_eq!(plan.objects.len(), 4, "two commits, and the tree and file of the second");
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
