//! The documents and archives of a tree.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gateway_core::skills::files::SKILL_MD;
use gateway_core::skills::install::{
    ALL_SKILLS, ListedSkill, Package, plugin_archive, skills_index, skills_index_v1, url_marketplace,
};
use gateway_store::skills::install_trees::InstallTree;
use gateway_store::skills::{self, install_links};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::request::FetchHead;
use super::tree::TreeContext;
use crate::api::openapi::{Operation, OperationOutput};
use crate::api::skills::files::DOWNLOAD;
use crate::compute::{Cancellation, WaitLimits};
use crate::memory::{Reservation, hold};
use crate::problem::{ApiResult, Problem};

/// What an archive adds to a file at most: its header, its path and the padding.
const FILE_HEAD_BYTES: usize = 1_024;

/// What a client fetched, as the list of links shows it.
#[derive(Clone, Copy)]
pub(super) enum FetchKind {
    Index,
    Marketplace,
    Archive,
    File,
    Git,
}

impl FetchKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Marketplace => "marketplace",
            Self::Archive => "archive",
            Self::File => "file",
            Self::Git => "git",
        }
    }
}

/// A document, an archive or a part of the git protocol.
pub(in crate::api::skills) struct TreeAnswer {
    pub content_type: &'static str,
    pub body: Bytes,
}

impl IntoResponse for TreeAnswer {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        let headers = response.headers_mut();
        if self.content_type == DOWNLOAD[0].1 {
            for (name, value) in DOWNLOAD {
                headers.insert::<HeaderName>(name, HeaderValue::from_static(value));
            }
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        // A link is a credential, and git must not get an old list of branches.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert("referrer-policy", HeaderValue::from_static("no-referrer"));
        response
    }
}

impl OperationOutput for TreeAnswer {
    fn describe(operation: &mut Operation<'_>) {
        let content = json!({"*/*": {"schema": {"type": "string", "format": "binary"}}});
        let description = "The document, archive or git response at this path";
        operation.responses.push((200, json!({"description": description, "content": content})));
    }
}

/// Counts a fetch for the list of links.
pub(super) async fn record(context: &TreeContext<'_>, kind: FetchKind, head: &FetchHead) -> ApiResult<()> {
    let services = &context.app.services;
    let fetched = (kind.as_str(), head.client.as_str());
    let now = services.clock.now();
    Ok(install_links::record_fetch(&services.db, context.org, context.link, fetched, now).await?)
}

/// The path of a request, within the tree.
#[derive(Debug, PartialEq, Eq)]
enum Document<'a> {
    Index,
    IndexV1,
    Marketplace,
    File { skill: &'a str, path: &'a str },
    TarGz(&'a str),
    Zip(&'a str),
    Plugin(&'a str),
}

fn parse(path: &str) -> Option<Document<'_>> {
    let discovery = [".well-known/agent-skills/", ".well-known/skills/"];
    if let Some(below) = discovery.iter().find_map(|prefix| path.strip_prefix(prefix)) {
        let is_old = path.starts_with(discovery[1]);
        return match below.split_once('/') {
            Some((skill, path)) => Some(Document::File { skill, path }),
            None if below == "index.json" && is_old => Some(Document::IndexV1),
            None if below == "index.json" => Some(Document::Index),
            None => below.strip_suffix(".tar.gz").map(Document::TarGz),
        };
    }
    if matches!(path, "marketplace.json" | ".claude-plugin/marketplace.json") {
        return Some(Document::Marketplace);
    }
    let plugin = path.strip_suffix(".plugin.zip").map(Document::Plugin);
    let archive = || path.strip_suffix(".zip").map(Document::Zip);
    plugin.or_else(archive).or_else(|| path.strip_suffix(".tar.gz").map(Document::TarGz))
}

pub(super) async fn serve(context: &TreeContext<'_>, path: &str, head: &FetchHead) -> ApiResult<TreeAnswer> {
    let document = parse(path).ok_or_else(Problem::not_found)?;
    let tree = context.current().await?;
    let listing = &tree.listing;
    let (kind, answer) = match document {
        Document::Index => (FetchKind::Index, json_answer(&skills_index(listing))),
        Document::IndexV1 => (FetchKind::Index, json_answer(&skills_index_v1(listing))),
        Document::Marketplace => {
            let market = url_marketplace(&context.slug, listing, &head.base(path));
            (FetchKind::Marketplace, json_answer(&market))
        }
        Document::File { skill, path } => {
            let skill = listing.find(skill).ok_or_else(Problem::not_found)?;
            (FetchKind::File, file(context, skill, path).await?)
        }
        Document::Plugin(ALL_SKILLS) => (FetchKind::Archive, all_skills(context, &tree).await?),
        Document::TarGz(name) | Document::Zip(name) | Document::Plugin(name) => {
            let skill = listing.find(name).ok_or_else(Problem::not_found)?;
            (FetchKind::Archive, archive(context, skill, &document).await?)
        }
    };
    record(context, kind, head).await?;
    Ok(answer)
}

fn json_answer(value: &Value) -> TreeAnswer {
    TreeAnswer { content_type: "application/json", body: value.to_string().into() }
}

/// One file, without loading the others.
async fn file(context: &TreeContext<'_>, skill: &ListedSkill, path: &str) -> ApiResult<TreeAnswer> {
    let found = context.version(skill.id, skill.version).await?;
    if path == SKILL_MD {
        let bytes = found.source.for_agents()?.into_bytes();
        let memory = context.reserve(bytes.len())?;
        return Ok(TreeAnswer { content_type: "text/markdown; charset=utf-8", body: hold(bytes, memory) });
    }
    let entry = found.files.find(path).ok_or_else(Problem::not_found)?;
    let memory = context.reserve(entry.size)?;
    let bytes = skills::find_blob(&context.app.services.db, skill.id, &entry.sha256).await?;
    let bytes = bytes.ok_or_else(Problem::not_found)?;
    Ok(TreeAnswer { content_type: DOWNLOAD[0].1, body: hold(bytes, memory) })
}

async fn archive(
    context: &TreeContext<'_>,
    skill: &ListedSkill,
    document: &Document<'_>,
) -> ApiResult<TreeAnswer> {
    let loaded = load(context, [skill]).await?;
    match document {
        Document::TarGz(_) => {
            let build = |packages: &[Package]| packages.first().map(Package::to_tar_gz).unwrap_or_default();
            build_archive(context, loaded, "application/gzip", build).await
        }
        Document::Zip(_) => {
            let build = |packages: &[Package]| packages.first().map(Package::to_zip).unwrap_or_default();
            build_archive(context, loaded, "application/zip", build).await
        }
        _ => {
            let name = skill.name.clone();
            let build = move |packages: &[Package]| plugin_archive(&name, packages);
            build_archive(context, loaded, "application/zip", build).await
        }
    }
}

async fn all_skills(context: &TreeContext<'_>, tree: &InstallTree) -> ApiResult<TreeAnswer> {
    let loaded = load(context, &tree.listing.skills).await?;
    let build = |packages: &[Package]| plugin_archive(ALL_SKILLS, packages);
    build_archive(context, loaded, "application/zip", build).await
}

/// Packages, and the memory for them and for an archive of them.
struct Loaded {
    packages: Vec<Package>,
    memory: Reservation,
}

/// Reserves the memory of each skill before its files are loaded.
async fn load(
    context: &TreeContext<'_>,
    skills: impl IntoIterator<Item = &ListedSkill>,
) -> ApiResult<Loaded> {
    let (mut memory, mut packages) = (context.reserve(0)?, Vec::new());
    for skill in skills {
        let version = context.version(skill.id, skill.version).await?;
        let heads = (version.files.entries().len() + 1).saturating_mul(FILE_HEAD_BYTES);
        let size = version.files.total_bytes() + version.source.raw_source.len() + heads;
        // The files, the archive, and the tar file within it.
        memory.grow(size.saturating_mul(3))?;
        packages.push(context.package(skill.id, &version).await?);
    }
    Ok(Loaded { packages, memory })
}

/// The memory belongs to the work, which goes on for a while when the client has gone away.
async fn build_archive(
    context: &TreeContext<'_>,
    loaded: Loaded,
    content_type: &'static str,
    build: impl FnOnce(&[Package]) -> Vec<u8> + Send + 'static,
) -> ApiResult<TreeAnswer> {
    let building = move |_: &Cancellation| {
        let Loaded { packages, mut memory } = loaded;
        let bytes = build(&packages);
        drop(packages);
        memory.shrink_to(bytes.len());
        hold(bytes, memory)
    };
    let compute = &context.app.services.compute;
    let body = compute.run(context.org, WaitLimits::REQUEST, building).await?;
    Ok(TreeAnswer { content_type, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_the_tree_is_known() {
        for (path, document) in [
            (".well-known/agent-skills/index.json", Document::Index),
            (".well-known/skills/index.json", Document::IndexV1),
            (".well-known/agent-skills/a.tar.gz", Document::TarGz("a")),
            (".well-known/skills/a/x/y.md", Document::File { skill: "a", path: "x/y.md" }),
            ("marketplace.json", Document::Marketplace),
            ("a.zip", Document::Zip("a")),
            ("a.plugin.zip", Document::Plugin("a")),
            ("a.tar.gz", Document::TarGz("a")),
        ] {
            assert_eq!(parse(path), Some(document), "{path}");
        }
        for path in ["", "a", "index.json", ".well-known/agent-skills", ".well-known/x/index.json", "a.git"] {
            assert_eq!(parse(path), None, "{path}");
        }
    }
}
