//! Skills as agents install them: a tree of packages, served as discovery indexes, archives, a plugin marketplace and a
//! git repository. All of it is a function of the packages, so that every node serves the same bytes.

mod archive;
mod index;
mod repository;

pub use archive::{ArchiveFile, tar_gz, zip};
pub use index::{marketplace_name, skills_index, skills_index_v1, url_marketplace};
pub use repository::{Repository, change_message, plugin_archive};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::files::SKILL_MD;
use super::{SkillSource, SourceError};
use crate::ids::SkillId;

/// Bounds of a tree. What does not fit, in the order of the names, is left out and named.
pub const MAX_TREE_SKILLS: usize = 500;
pub const MAX_TREE_FILES: usize = 5_000;
pub const MAX_TREE_BYTES: usize = 32 << 20;
/// The plugin with every skill. No skill of this name is installed.
pub const ALL_SKILLS: &str = "all-skills";

/// Which skills of an organization are installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// The newest version of each skill that the publish gate accepts.
    Passed,
    /// What the organization has on the shelf.
    Shelf,
    /// Like `Passed`, but only these.
    Skills(Vec<SkillId>),
}

/// The files of one version of a skill, as agents load them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    pub description: String,
    pub version: i64,
    /// SKILL.md first, the others sorted by path.
    pub files: Vec<PackageFile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageFile {
    pub path: String,
    pub bytes: Vec<u8>,
    pub executable: bool,
}

impl Package {
    pub fn new(source: &SkillSource, version: i64, files: Vec<PackageFile>) -> Result<Self, SourceError> {
        let skill = PackageFile {
            path: SKILL_MD.to_owned(),
            bytes: source.for_agents()?.into_bytes(),
            executable: false,
        };
        Ok(Self {
            name: source.name.clone(),
            description: source.description.clone(),
            version,
            files: std::iter::once(skill).chain(files).collect(),
        })
    }

    /// The files of an archive below a directory.
    fn archive_files(&self, below: &str) -> Vec<ArchiveFile<'_>> {
        self.files
            .iter()
            .map(|file| ArchiveFile {
                path: format!("{below}{}", file.path),
                bytes: &file.bytes,
                executable: file.executable,
            })
            .collect()
    }

    /// The skill's directory as an archive.
    pub fn to_tar_gz(&self) -> Vec<u8> {
        tar_gz(&self.archive_files(""))
    }

    pub fn to_zip(&self) -> Vec<u8> {
        zip(&self.archive_files(""))
    }
}

/// What the indexes say of a skill. It is stored, so that an index is served without its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedSkill {
    pub id: SkillId,
    pub version: i64,
    pub name: String,
    pub description: String,
    /// SKILL.md first.
    pub paths: Vec<String>,
    /// SHA-256 of SKILL.md, of the archive, and of the plugin.
    pub skill_md: String,
    pub tar_gz: String,
    pub plugin: String,
}

impl ListedSkill {
    pub fn new(id: SkillId, package: &Package) -> Self {
        let skill_md = package.files.first().map(|file| sha256(&file.bytes)).unwrap_or_default();
        Self {
            id,
            version: package.version,
            name: package.name.clone(),
            description: package.description.clone(),
            paths: package.files.iter().map(|file| file.path.clone()).collect(),
            skill_md,
            tar_gz: sha256(&package.to_tar_gz()),
            plugin: sha256(&plugin_archive(&package.name, std::slice::from_ref(package))),
        }
    }
}

/// What is installed from a selection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Sorted by name.
    pub skills: Vec<ListedSkill>,
    /// SHA-256 of the plugin with all skills.
    pub all_skills: String,
    /// The names of skills that did not fit.
    pub left_out: Vec<String>,
}

impl Listing {
    pub fn find(&self, name: &str) -> Option<&ListedSkill> {
        self.skills.iter().find(|skill| skill.name == name)
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests;
