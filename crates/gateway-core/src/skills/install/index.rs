//! The documents that hosts read: the discovery indexes of Agent Skills, versions 0.2.0 and 0.1.0, and the marketplace
//! of Claude Code with archives as sources.

use serde_json::{Value, json};

use super::{ALL_SKILLS, ListedSkill, Listing};

const SCHEMA: &str = "https://schemas.agentskills.io/discovery/0.2.0/schema.json";
/// Names that Claude Code keeps for its own marketplaces.
const RESERVED: [&str; 4] = ["agent-skills", "anthropic-agent-skills", "anthropic-skills", "claude-skills"];

/// The name of an organization's marketplace. Names that hosts reserve get a suffix.
pub fn marketplace_name(org_slug: &str) -> String {
    let name = format!("{org_slug}-skills");
    if RESERVED.contains(&name.as_str()) { format!("{name}-1") } else { name }
}

/// The index of version 0.2.0. A skill of one file is served as such, others as an archive. `url` is relative to the
/// index, as clients resolve it.
pub fn skills_index(listing: &Listing) -> Value {
    let entry = |skill: &ListedSkill| {
        let (kind, url, digest) = if skill.paths.len() <= 1 {
            ("skill-md", format!("{}/SKILL.md", skill.name), &skill.skill_md)
        } else {
            ("archive", format!("{}.tar.gz", skill.name), &skill.tar_gz)
        };
        json!({
            "name": skill.name,
            "type": kind,
            "description": skill.description,
            "url": url,
            "digest": format!("sha256:{digest}"),
        })
    };
    let mut index =
        json!({"$schema": SCHEMA, "skills": listing.skills.iter().map(entry).collect::<Vec<_>>()});
    if !listing.left_out.is_empty() {
        index["left_out"] = json!(listing.left_out);
    }
    index
}

/// The index of version 0.1.0, which lists the files of each skill.
pub fn skills_index_v1(listing: &Listing) -> Value {
    let entry = |skill: &ListedSkill| json!({"name": skill.name, "description": skill.description, "files": skill.paths});
    json!({"skills": listing.skills.iter().map(entry).collect::<Vec<_>>()})
}

/// A marketplace whose plugins are archives below `base`.
pub fn url_marketplace(org_slug: &str, listing: &Listing, base: &str) -> Value {
    let source = |name: &str, sha256: &str| json!({"source": "archive", "url": format!("{base}/{name}.plugin.zip"), "sha256": sha256});
    let all = plugin(ALL_SKILLS, ALL_DESCRIPTION, None, &source(ALL_SKILLS, &listing.all_skills));
    let single = |skill: &ListedSkill| {
        let source = source(&skill.name, &skill.plugin);
        plugin(&skill.name, &skill.description, Some(skill.version), &source)
    };
    let plugins = std::iter::once(all).chain(listing.skills.iter().map(single));
    marketplace(org_slug, &plugins.collect::<Vec<_>>())
}

pub(super) const ALL_DESCRIPTION: &str = "All skills of this marketplace.";

pub(super) fn plugin(name: &str, description: &str, version: Option<i64>, source: &Value) -> Value {
    let mut plugin = json!({"name": name, "description": description, "source": source});
    if let Some(version) = version {
        plugin["version"] = plugin_version(version).into();
    }
    plugin
}

/// Hosts expect three numbers.
pub(super) fn plugin_version(version: i64) -> String {
    format!("{version}.0.0")
}

pub(super) fn marketplace(org_slug: &str, plugins: &[Value]) -> Value {
    json!({
        "name": marketplace_name(org_slug),
        "owner": {"name": org_slug},
        "plugins": plugins,
    })
}
