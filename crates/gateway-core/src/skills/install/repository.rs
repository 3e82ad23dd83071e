//! The git repository of a tree. `skills/{name}` holds each skill. Below `plugins/` the same directories appear once more
//! as plugins, for hosts that install plugins from a repository; git stores equal directories once.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};

use super::index::{ALL_DESCRIPTION, marketplace, plugin, plugin_version};
use super::{ALL_SKILLS, ArchiveFile, ListedSkill, Package, zip};
use crate::git::{EntryKind, Object, ObjectKind, Oid, object_id, tree_content};

/// Manifest directories of the hosts. They read the same format.
const MANIFESTS: [&str; 2] = [".claude-plugin", ".codex-plugin"];

/// The objects of one commit's tree.
#[derive(Debug)]
pub struct Repository {
    pub root: Oid,
    /// Those that are not known yet.
    pub objects: Vec<Object>,
}

/// A directory that is being written.
#[derive(Default)]
struct Directory {
    entries: Vec<(String, EntryKind, Oid)>,
    below: BTreeMap<String, Directory>,
}

impl Directory {
    fn add_file(&mut self, path: &str, executable: bool, oid: Oid) {
        match path.split_once('/') {
            Some((first, rest)) => {
                self.below.entry(first.to_owned()).or_default().add_file(rest, executable, oid);
            }
            None => self.entries.push((path.to_owned(), EntryKind::File { is_executable: executable }, oid)),
        }
    }

    fn add_tree(&mut self, name: &str, oid: Oid) {
        self.entries.push((name.to_owned(), EntryKind::Directory, oid));
    }
}

struct Writer<'a> {
    known: &'a HashSet<Oid>,
    written: HashSet<Oid>,
    objects: Vec<Object>,
}

impl Writer<'_> {
    /// Compresses the content only if nobody has it.
    fn add(&mut self, kind: ObjectKind, content: &[u8]) -> Oid {
        let oid = object_id(kind, content);
        if !self.known.contains(&oid) && self.written.insert(oid) {
            self.objects.push(Object::new(kind, content));
        }
        oid
    }

    fn add_directory(&mut self, directory: Directory) -> Oid {
        let mut entries = directory.entries;
        for (name, below) in directory.below {
            entries.push((name, EntryKind::Directory, self.add_directory(below)));
        }
        self.add(ObjectKind::Tree, &tree_content(&entries))
    }
}

impl Repository {
    /// The repository of these packages, without the objects that are known already.
    pub fn build(org_slug: &str, packages: &[Package], known: &HashSet<Oid>) -> Self {
        let mut writer = Writer { known, written: HashSet::new(), objects: Vec::new() };
        let (mut skills, mut plugins) = (Directory::default(), Directory::default());
        let mut listed = vec![local_plugin(ALL_SKILLS, ALL_DESCRIPTION, None)];
        for package in packages {
            let mut directory = Directory::default();
            for file in &package.files {
                let oid = writer.add(ObjectKind::Blob, &file.bytes);
                directory.add_file(&file.path, file.executable, oid);
            }
            let skill = writer.add_directory(directory);
            skills.add_tree(&package.name, skill);
            let mut only = Directory::default();
            only.add_tree(&package.name, skill);
            let only = writer.add_directory(only);
            let manifest = manifest(&package.name, &package.description, Some(package.version));
            let plugin = plugin_directory(&mut writer, &manifest, only);
            plugins.add_tree(&package.name, plugin);
            listed.push(local_plugin(&package.name, &package.description, Some(package.version)));
        }
        let skills = writer.add_directory(skills);
        let all = plugin_directory(&mut writer, &manifest(ALL_SKILLS, ALL_DESCRIPTION, None), skills);
        plugins.add_tree(ALL_SKILLS, all);
        let plugins = writer.add_directory(plugins);
        let market = writer.add(ObjectKind::Blob, &pretty(&marketplace(org_slug, &listed)));
        let mut root = Directory::default();
        root.add_file(".claude-plugin/marketplace.json", false, market);
        root.add_tree("skills", skills);
        root.add_tree("plugins", plugins);
        Self { root: writer.add_directory(root), objects: writer.objects }
    }
}

/// The directory of a plugin: its manifests, and the skills that it has.
fn plugin_directory(writer: &mut Writer<'_>, manifest: &Value, skills: Oid) -> Oid {
    let manifest = writer.add(ObjectKind::Blob, &pretty(manifest));
    let mut directory = Directory::default();
    for host in MANIFESTS {
        directory.add_file(&format!("{host}/plugin.json"), false, manifest);
    }
    directory.add_tree("skills", skills);
    writer.add_directory(directory)
}

fn local_plugin(name: &str, description: &str, version: Option<i64>) -> Value {
    plugin(name, description, version, &format!("./plugins/{name}").into())
}

fn manifest(name: &str, description: &str, version: Option<i64>) -> Value {
    let mut manifest = json!({"name": name, "description": description});
    if let Some(version) = version {
        manifest["version"] = plugin_version(version).into();
    }
    manifest
}

fn pretty(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}

/// A plugin as an archive. With one package it is that skill's plugin, else the plugin of all.
pub fn plugin_archive(name: &str, packages: &[Package]) -> Vec<u8> {
    let manifest = match packages {
        [package] if package.name == name => manifest(name, &package.description, Some(package.version)),
        _ => manifest(name, ALL_DESCRIPTION, None),
    };
    let manifest = pretty(&manifest);
    let mut files = vec![ArchiveFile {
        path: format!("{}/plugin.json", MANIFESTS[0]),
        bytes: &manifest,
        executable: false,
    }];
    for package in packages {
        files.extend(package.archive_files(&format!("skills/{}/", package.name)));
    }
    zip(&files)
}

/// What a commit says: the skills that were added, updated and removed.
pub fn change_message(before: &[ListedSkill], after: &[ListedSkill]) -> String {
    const MAX_NAMED: usize = 20;
    let find = |list: &[ListedSkill], name: &str| {
        list.iter().find(|skill| skill.name == name).map(|skill| (skill.id, skill.version))
    };
    let mut changes = Vec::new();
    for skill in after {
        match find(before, &skill.name) {
            None => changes.push(format!("Add {} (version {})", skill.name, skill.version)),
            Some(known) if known != (skill.id, skill.version) => {
                changes.push(format!("Update {} to version {}", skill.name, skill.version));
            }
            Some(_) => {}
        }
    }
    let removed = before.iter().filter(|skill| find(after, &skill.name).is_none());
    changes.extend(removed.map(|skill| format!("Remove {}", skill.name)));
    match changes.as_slice() {
        [] => "Update the manifests".to_owned(),
        [only] => only.clone(),
        many => {
            let mut message = format!("Change {} skills\n", many.len());
            for change in many.iter().take(MAX_NAMED) {
                message.push_str("\n- ");
                message.push_str(change);
            }
            message
        }
    }
}
