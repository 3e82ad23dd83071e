//! Skills through the skills extension: the organization's own, and by their URI those of the shelf. An entry has the
//! verdict on the version in its `_meta`.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_core::accounts::SkillsServed;
use gateway_core::ids::{OrgId, SkillId};
use gateway_core::mcp::{
    Members, SkillManifest, file_uri, meta, mime_type, own_root, parse_own, parse_shelf, shelf_root,
};
use gateway_core::skills::SkillSource;
use gateway_core::skills::files::{FileList, SKILL_MD};
use gateway_store::skills::{self, CurrentVersion, LatestEvaluation};
use serde_json::{Value, json};

use super::{Answer, Context, cacheable, no_resource, reads_skills, unknown};
use crate::jobs::judge_skill;
use crate::mcp::Mcp;
use crate::memory::Reservation;
use crate::problem::{ApiResult, Problem};

/// Skills in a list. Others are served by their URI.
const MAX_SKILLS: i64 = 1_000;

/// What is known of a version.
pub struct CachedManifest {
    pub manifest: SkillManifest,
    _memory: Reservation,
}

/// A version of a skill that the caller may read.
pub(super) struct Served {
    pub skill: SkillId,
    /// Whose skill it is.
    owner: OrgId,
    version: i64,
    pub name: String,
    pub description: String,
    /// Its directory.
    pub root: String,
    pub verdict: Value,
}

/// The text and the files of a version.
struct Content {
    source: SkillSource,
    files: FileList,
}

/// A file of a skill.
pub(super) enum FileBytes {
    Text(String),
    Binary(Vec<u8>),
}

fn verdict(version: i64, content_hash: &str, latest: Option<&LatestEvaluation>) -> Value {
    json!({
        "version": version,
        "content_hash": content_hash,
        "score": latest.map(|latest| latest.score),
        "passed": latest.is_some_and(|latest| latest.passed),
        "source": latest.map(|latest| &latest.source),
    })
}

impl Mcp {
    /// The organization's skills that are served, by name.
    pub(super) async fn served_skills(
        &self,
        context: &Context,
        matches: impl Fn(&CurrentVersion) -> bool,
    ) -> ApiResult<Vec<Served>> {
        let (services, org) = (&self.services, &context.identity.org);
        let is_gated = org.settings.skills_served == SkillsServed::Passed;
        let rubric = judge_skill::rubric_of(services, org.id).await?;
        let sources = is_gated.then_some(rubric.allowed_verdict_sources.as_slice());
        let mut served = Vec::new();
        for found in skills::current_versions(&services.db, org.id, sources, MAX_SKILLS).await? {
            if !matches(&found) {
                continue;
            }
            let (version, scan) = ((found.skill, found.version), found.scan.as_ref());
            if is_gated && !judge_skill::is_safe(services, org.id, version, scan, rubric.allow_files).await? {
                continue;
            }
            served.push(Served {
                skill: found.skill,
                owner: org.id,
                version: found.version,
                root: own_root(&org.slug, &found.name),
                verdict: verdict(found.version, &found.content_hash, found.verdict.as_ref()),
                name: found.name,
                description: found.description,
            });
        }
        Ok(served)
    }

    /// The skill that a URI is in, and the path of the file within it. The caller may read skills.
    pub(super) async fn skill_at(&self, context: &Context, uri: &str) -> ApiResult<Option<(Served, String)>> {
        if let Some((name, path)) = parse_own(&context.identity.org.slug, uri) {
            let found = self.served_skills(context, |skill| skill.name == name).await?;
            if let Some(found) = found.into_iter().next() {
                return Ok(Some((found, path)));
            }
        }
        let Some((publisher, name, path)) = parse_shelf(uri) else { return Ok(None) };
        let db = &self.services.db;
        let Some(hit) = skills::find_hit_on_shelf(db, publisher, name).await? else { return Ok(None) };
        let Some(entry) = skills::find_on_shelf(db, hit.id).await? else { return Ok(None) };
        let served = Served {
            skill: entry.id,
            owner: entry.org_id,
            version: entry.version,
            root: shelf_root(&entry.publisher, &entry.source.name),
            verdict: verdict(entry.version, &entry.content_hash, entry.latest.as_ref()),
            name: entry.source.name,
            description: entry.source.description,
        };
        Ok(Some((served, path)))
    }

    async fn content(&self, served: &Served) -> ApiResult<Content> {
        let found =
            skills::find_version(&self.services.db, served.owner, served.skill, served.version).await?;
        let found = found.ok_or_else(Problem::not_found)?;
        Ok(Content { source: found.source, files: found.files })
    }

    /// What the entry says. A version never changes, so it is read once.
    pub(super) async fn manifest(
        &self,
        context: &Context,
        served: &Served,
    ) -> ApiResult<Arc<CachedManifest>> {
        let org = context.identity.org.id;
        let key: Arc<str> = format!("{}@{}", served.skill, served.version).into();
        if let Some(known) = self.skill_manifests().get(org, &key) {
            return Ok(Arc::clone(known));
        }
        let Content { source, files } = self.content(served).await?;
        let manifest = SkillManifest::new(&source, &files)?;
        let memory = context.identity.org.memory.reserve(manifest.bytes())?;
        let known = Arc::new(CachedManifest { manifest, _memory: memory });
        // If there is no room, the next list reads it again.
        let _ = self.skill_manifests().insert(org, key, Arc::clone(&known), |_| true);
        Ok(known)
    }

    async fn skill_entry(&self, context: &Context, served: &Served) -> ApiResult<Members> {
        let known = self.manifest(context, served).await?;
        let mut entry = members(&known.manifest.entry(&served.root));
        entry.set("_meta", &json!({meta::VERDICT: served.verdict}));
        Ok(entry)
    }

    pub(super) async fn skill_entries(&self, context: &Context) -> ApiResult<Vec<Members>> {
        let mut entries = Vec::new();
        for served in self.served_skills(context, |_| true).await? {
            entries.push(self.skill_entry(context, &served).await?);
        }
        Ok(entries)
    }

    /// The SKILL.md files, for clients that know only resources.
    pub(super) async fn skill_resources(&self, context: &Context) -> ApiResult<Vec<Members>> {
        let served = self.served_skills(context, |_| true).await?;
        let entries = served.into_iter().map(|served| {
            members(&json!({
                "uri": file_uri(&served.root, SKILL_MD),
                "name": served.name,
                "description": served.description,
                "mimeType": "text/markdown",
                "_meta": {meta::VERDICT: served.verdict},
            }))
        });
        Ok(entries.collect())
    }

    pub(super) async fn get_skill(&self, context: &Context, uri: &str) -> Answer {
        let found = if reads_skills(context) { self.skill_at(context, uri).await? } else { None };
        let found = found.filter(|(_, path)| path == SKILL_MD);
        let Some((served, _)) = found else { return Ok(Err(unknown("skill", uri))) };
        let mut result = Members::default();
        result.set("skill", &self.skill_entry(context, &served).await?);
        Ok(Ok(cacheable(result)))
    }

    /// A file of a version, as agents load it. `None` if there is none at this path.
    pub(super) async fn file_bytes(
        &self,
        context: &Context,
        served: &Served,
        path: &str,
    ) -> ApiResult<Option<(FileBytes, Reservation)>> {
        let Content { source, files } = self.content(served).await?;
        if path == SKILL_MD {
            let text = source.for_agents()?;
            let memory = context.identity.org.memory.reserve(text.len() * 4)?;
            return Ok(Some((FileBytes::Text(text), memory)));
        }
        let Some(file) = files.find(path) else { return Ok(None) };
        // The bytes, their text or base64, and the message around it.
        let memory = context.identity.org.memory.reserve(file.size * 5)?;
        let bytes = skills::find_blob(&self.services.db, served.skill, &file.sha256).await?;
        let bytes = bytes.ok_or_else(Problem::not_found)?;
        let content = match String::from_utf8(bytes) {
            Ok(text) => FileBytes::Text(text),
            Err(error) => FileBytes::Binary(error.into_bytes()),
        };
        Ok(Some((content, memory)))
    }

    pub(super) async fn read_skill_file(&self, context: &Context, uri: &str) -> Answer {
        let found = if reads_skills(context) { self.skill_at(context, uri).await? } else { None };
        let Some((served, path)) = found else { return Ok(Err(no_resource(context, uri))) };
        let Some((content, _memory)) = self.file_bytes(context, &served, &path).await? else {
            return Ok(Err(no_resource(context, uri)));
        };
        let mut item = Members::default();
        item.set("uri", &uri);
        match content {
            FileBytes::Text(text) => {
                item.set("mimeType", &mime_type(&path, true));
                item.set("text", &text);
            }
            FileBytes::Binary(bytes) => {
                item.set("mimeType", &mime_type(&path, false));
                item.set("blob", &STANDARD.encode(bytes));
            }
        }
        let mut result = Members::default();
        result.set("contents", &[item]);
        Ok(Ok(cacheable(result)))
    }
}

/// The members of an object.
fn members(value: &Value) -> Members {
    Members::from_raw(&gateway_core::mcp::raw(value)).unwrap_or_default()
}
