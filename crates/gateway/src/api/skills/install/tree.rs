//! Chooses the versions that are installed, and builds what is served of them. A tree is built again only when another
//! version was chosen, by whichever node notices first.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use gateway_core::git::{Commit, Object, ObjectKind, Oid};
use gateway_core::ids::{InstallLinkId, OrgId, SkillId};
use gateway_core::skills::install::{
    ALL_SKILLS, ListedSkill, Listing, MAX_TREE_BYTES, MAX_TREE_FILES, MAX_TREE_SKILLS, Package, PackageFile,
    Repository, Selection, change_message, plugin_archive, sha256,
};
use gateway_store::Tx;
use gateway_store::skills::install_trees::{self, InstallTree, TreeKey};
use gateway_store::skills::{self, Candidate, SkillVersion};

use crate::app::App;
use crate::compute::{Cancellation, WaitLimits};
use crate::jobs::judge_skill;
use crate::memory::Reservation;
use crate::problem::{ApiResult, Problem};

/// Versions that are considered.
const MAX_CANDIDATES: i64 = 20_000;
/// At this size, or number of commits, the history of the repository begins again.
const MAX_REPOSITORY_BYTES: usize = 64 << 20;
const MAX_COMMITS: i64 = 2_000;
/// How often another node may change the tree while this one builds it.
const MAX_BUILDS: usize = 5;
/// Identifies what a tree is made of besides the versions. Another number makes all trees be built again.
const LAYOUT: &str = "1";

/// Whose skills are installed, and which.
pub(super) struct TreeContext<'a> {
    pub app: &'a Arc<App>,
    pub org: OrgId,
    pub slug: String,
    pub selection: Selection,
    /// Names the tree in the store.
    pub key: String,
    /// None for a caller with a key.
    pub link: Option<InstallLinkId>,
}

/// What was built of the chosen versions.
struct Built {
    listing: Listing,
    repository: Repository,
    /// The history begins again with this commit.
    is_restart: bool,
}

impl TreeContext<'_> {
    pub fn tree_key(&self) -> TreeKey<'_> {
        TreeKey { org: self.org, selection: &self.key }
    }

    /// Reserves memory of the organization.
    pub fn reserve(&self, bytes: usize) -> ApiResult<Reservation> {
        Ok(self.app.services.memory.account(self.org).reserve(bytes)?)
    }

    /// The tree of the versions that are current now.
    pub async fn current(&self) -> ApiResult<InstallTree> {
        let (chosen, left_out) = self.choose().await?;
        let fingerprint = self.fingerprint(&chosen);
        let db = &self.app.services.db;
        for _ in 0..MAX_BUILDS {
            let stored = install_trees::find(db, self.tree_key()).await?;
            if let Some(tree) = stored.as_ref().filter(|tree| tree.fingerprint == fingerprint) {
                return Ok(tree.clone());
            }
            let built = self.build(&chosen, left_out.clone(), stored.as_ref()).await?;
            let seen = stored.and_then(|tree| tree.head);
            let mut tx = db.begin().await?;
            let now = self.app.services.clock.now();
            let locked = install_trees::find_or_insert_for_update(&mut tx, self.tree_key(), now).await?;
            let locked = locked.ok_or_else(Problem::not_found)?;
            // Another node was faster. What it added is not among the objects that were compared.
            if locked.head != seen {
                continue;
            }
            let tree = self.commit(&mut tx, locked, built, &fingerprint).await?;
            tx.commit().await?;
            return Ok(tree);
        }
        Err(Problem::overloaded("the skills are being changed; try again shortly"))
    }

    /// Writes the tree, with a commit if its files have changed.
    async fn commit(
        &self,
        tx: &mut Tx,
        locked: InstallTree,
        built: Built,
        fingerprint: &str,
    ) -> ApiResult<InstallTree> {
        let Built { listing, repository, is_restart } = built;
        let now = self.app.services.clock.now();
        let mut tree = InstallTree { fingerprint: fingerprint.to_owned(), ..locked };
        if tree.root != Some(repository.root) || is_restart {
            if is_restart {
                install_trees::delete_objects(tx, self.tree_key()).await?;
                (tree.head, tree.commits, tree.bytes) = (None, 0, 0);
            }
            let message = change_message(&tree.listing.skills, &listing.skills);
            let commit = Commit {
                tree: repository.root,
                parent: tree.head,
                time: now.unix_seconds(),
                message: &message,
            };
            let commit = Object::new(ObjectKind::Commit, &commit.content());
            (tree.head, tree.root) = (Some(commit.oid), Some(repository.root));
            tree.commits += 1;
            for object in repository.objects.iter().chain([&commit]) {
                tree.bytes += i64::try_from(object.data.len()).unwrap_or(0);
                install_trees::insert_object(tx, self.tree_key(), object).await?;
            }
        }
        tree.listing = listing;
        install_trees::update(tx, self.tree_key(), &tree, now).await?;
        Ok(tree)
    }

    async fn build(
        &self,
        chosen: &[Candidate],
        left_out: Vec<String>,
        stored: Option<&InstallTree>,
    ) -> ApiResult<Built> {
        let bytes: usize = chosen.iter().map(candidate_bytes).sum();
        // The files, their archives and their compressed copies.
        let _memory = self.reserve(bytes.saturating_mul(4))?;
        let known: HashSet<Oid> = install_trees::object_ids(&self.app.services.db, self.tree_key())
            .await?
            .into_iter()
            .map(|(oid, _)| oid)
            .collect();
        let (used, commits) = stored.map_or((0, 0), |tree| (tree.bytes, tree.commits));
        let used = usize::try_from(used).unwrap_or(usize::MAX);
        let mut packages = Vec::with_capacity(chosen.len());
        for candidate in chosen {
            let version = self.version(candidate.skill, candidate.version).await?;
            packages.push((candidate.skill, self.package(candidate.skill, &version).await?));
        }
        let slug = self.slug.clone();
        let building = move |_: &Cancellation| {
            let listed = packages.iter().map(|(id, package)| ListedSkill::new(*id, package)).collect();
            let packages: Vec<Package> = packages.into_iter().map(|(_, package)| package).collect();
            let all_skills = sha256(&plugin_archive(ALL_SKILLS, &packages));
            let mut repository = Repository::build(&slug, &packages, &known);
            let added: usize = repository.objects.iter().map(|object| object.data.len()).sum();
            let is_restart =
                commits > 0 && (commits >= MAX_COMMITS || used.saturating_add(added) > MAX_REPOSITORY_BYTES);
            if is_restart {
                repository = Repository::build(&slug, &packages, &HashSet::new());
            }
            Built { listing: Listing { skills: listed, all_skills, left_out }, repository, is_restart }
        };
        Ok(self.app.services.compute.run(self.org, WaitLimits::IMPORT, building).await?)
    }

    pub async fn version(&self, skill: SkillId, version: i64) -> ApiResult<SkillVersion> {
        let found = skills::find_version(&self.app.services.db, self.org, skill, version).await?;
        found.ok_or_else(Problem::not_found)
    }

    /// Loads the files of a version, as agents get them. The caller has reserved the memory.
    pub async fn package(&self, skill: SkillId, version: &SkillVersion) -> ApiResult<Package> {
        let db = &self.app.services.db;
        let mut files = Vec::with_capacity(version.files.entries().len());
        for entry in version.files.entries() {
            let bytes = skills::find_blob(db, skill, &entry.sha256).await?.ok_or_else(Problem::not_found)?;
            files.push(PackageFile { path: entry.path.clone(), bytes, executable: entry.executable });
        }
        Ok(Package::new(&version.source, version.version, files)?)
    }

    fn fingerprint(&self, chosen: &[Candidate]) -> String {
        let mut text = format!("{LAYOUT} {}\n", self.slug);
        for candidate in chosen {
            let _ = writeln!(text, "{} {}", candidate.skill, candidate.version);
        }
        sha256(text.as_bytes())
    }

    /// The versions to install, sorted by name, and the names of those that do not fit.
    async fn choose(&self) -> ApiResult<(Vec<Candidate>, Vec<String>)> {
        let db = &self.app.services.db;
        let found = if self.selection == Selection::Shelf {
            skills::published_versions(db, self.org, MAX_CANDIDATES).await?
        } else {
            self.passed().await?
        };
        // A renamed skill may still be installed under a name that another one has now.
        let mut by_name: BTreeMap<String, Candidate> = BTreeMap::new();
        for candidate in found.into_iter().filter(|candidate| candidate.name != ALL_SKILLS) {
            let known = by_name.get(&candidate.name);
            if known.is_none_or(|known| candidate.is_current && !known.is_current) {
                by_name.insert(candidate.name.clone(), candidate);
            }
        }
        let (mut chosen, mut left_out, mut bytes, mut files) = (Vec::new(), Vec::new(), 0, 0);
        for candidate in by_name.into_values() {
            let size = candidate_bytes(&candidate);
            let count = usize::try_from(candidate.files).unwrap_or(MAX_TREE_FILES) + 1;
            let is_within = chosen.len() < MAX_TREE_SKILLS && files + count <= MAX_TREE_FILES;
            if is_within && bytes + size <= MAX_TREE_BYTES {
                (bytes, files) = (bytes + size, files + count);
                chosen.push(candidate);
            } else if left_out.len() < MAX_TREE_SKILLS {
                left_out.push(candidate.name);
            }
        }
        Ok((chosen, left_out))
    }

    /// The newest version of each skill that the publish gate accepts: passed by a source that the rubric allows, and
    /// without a safety finding of the internal judge.
    async fn passed(&self) -> ApiResult<Vec<Candidate>> {
        let services = &self.app.services;
        let rubric = judge_skill::rubric_of(services, self.org).await?;
        let sources = &rubric.allowed_verdict_sources;
        let mut chosen: Vec<Candidate> = Vec::new();
        for candidate in skills::passed_versions(&services.db, self.org, sources, MAX_CANDIDATES).await? {
            let is_settled = chosen.last().is_some_and(|last| last.skill == candidate.skill);
            if is_settled || !self.selects(candidate.skill) {
                continue;
            }
            let (version, scan) = ((candidate.skill, candidate.version), candidate.scan.as_ref());
            if judge_skill::is_safe(services, self.org, version, scan, rubric.allow_files).await? {
                chosen.push(candidate);
            }
        }
        Ok(chosen)
    }

    fn selects(&self, skill: SkillId) -> bool {
        match &self.selection {
            Selection::Passed | Selection::Shelf => true,
            Selection::Skills(ids) => ids.contains(&skill),
        }
    }
}

fn candidate_bytes(candidate: &Candidate) -> usize {
    usize::try_from(candidate.bytes).unwrap_or(usize::MAX / 8)
}
