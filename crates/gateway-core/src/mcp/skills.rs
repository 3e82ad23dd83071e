//! Skills as the skills extension of MCP shows them: URIs, entries with the digests of all files, and a search by words.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::skills::files::{FileList, SKILL_MD};
use crate::skills::frontmatter::Document;
use crate::skills::{SkillSource, SourceError};

/// The extension, among the capabilities of clients and servers.
pub const SKILLS_EXTENSION: &str = "io.modelcontextprotocol/skills";
const SCHEME: &str = "skill://";
/// The first segment of skills that are on the shelf of all organizations.
const SHELF: &str = "shelf";
const MAX_WORDS: usize = 10;

/// Whether these capabilities have the skills extension.
pub fn has_skills(capabilities: &Value) -> bool {
    capabilities.get("extensions").is_some_and(|extensions| extensions.get(SKILLS_EXTENSION).is_some())
}

/// The directory of a skill of the organization with this slug.
pub fn own_root(slug: &str, name: &str) -> String {
    format!("{SCHEME}{slug}/{name}")
}

/// The directory of a skill on the shelf.
pub fn shelf_root(publisher: &str, name: &str) -> String {
    format!("{SCHEME}{SHELF}/{publisher}/{name}")
}

/// The URI of a file. Paths of files have no character but the space that must be escaped.
pub fn file_uri(root: &str, path: &str) -> String {
    format!("{root}/{}", path.replace(' ', "%20"))
}

/// The name of a skill of the organization with this slug, and the path of a file of it.
pub fn parse_own<'a>(slug: &str, uri: &'a str) -> Option<(&'a str, String)> {
    let rest = uri.strip_prefix(SCHEME)?.strip_prefix(slug)?.strip_prefix('/')?;
    let (name, path) = rest.split_once('/')?;
    Some((name, path.replace("%20", " ")))
}

/// The publisher and the name of a skill on the shelf, and the path of a file of it.
pub fn parse_shelf(uri: &str) -> Option<(&str, &str, String)> {
    let rest = uri.strip_prefix(SCHEME)?.strip_prefix(SHELF)?.strip_prefix('/')?;
    let (publisher, rest) = rest.split_once('/')?;
    let (name, path) = rest.split_once('/')?;
    Some((publisher, name, path.replace("%20", " ")))
}

/// A file of a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestFile {
    pub path: String,
    pub sha256: String,
    pub size: usize,
}

/// What an entry says of a version of a skill. A version never changes, and neither does this.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillManifest {
    frontmatter: Value,
    /// SKILL.md first.
    files: Vec<ManifestFile>,
}

impl SkillManifest {
    pub fn new(source: &SkillSource, files: &FileList) -> Result<Self, SourceError> {
        let text = source.for_agents()?;
        let frontmatter = Value::Object(Document::parse(&text)?.fields);
        let skill = ManifestFile {
            path: SKILL_MD.to_owned(),
            sha256: hex::encode(Sha256::digest(text.as_bytes())),
            size: text.len(),
        };
        let others = files.entries().iter().map(|file| ManifestFile {
            path: file.path.clone(),
            sha256: file.sha256.clone(),
            size: file.size,
        });
        Ok(Self { frontmatter, files: std::iter::once(skill).chain(others).collect() })
    }

    pub fn files(&self) -> &[ManifestFile] {
        &self.files
    }

    /// The entry of the skill in this directory.
    pub fn entry(&self, root: &str) -> Value {
        let resources: Vec<Value> = self
            .files
            .iter()
            .map(|file| {
                let digest = format!("sha256:{}", file.sha256);
                json!({"uri": file_uri(root, &file.path), "digest": digest, "size": file.size})
            })
            .collect();
        json!({"uri": file_uri(root, SKILL_MD), "frontmatter": self.frontmatter, "resources": resources})
    }

    /// An estimate of the memory that the entry takes.
    pub fn bytes(&self) -> usize {
        self.frontmatter.to_string().len() * 2 + self.files.len() * 512
    }
}

/// The MIME type of a file.
pub fn mime_type(path: &str, is_text: bool) -> &'static str {
    let extension = path.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    match (extension.as_deref(), is_text) {
        (Some("md"), true) => "text/markdown",
        (Some("json"), true) => "application/json",
        (Some("html" | "htm"), true) => "text/html",
        (Some("csv"), true) => "text/csv",
        (_, true) => "text/plain",
        (Some("png"), false) => "image/png",
        (Some("jpg" | "jpeg"), false) => "image/jpeg",
        (Some("pdf"), false) => "application/pdf",
        (Some("zip"), false) => "application/zip",
        (_, false) => "application/octet-stream",
    }
}

/// The words of a query, the longest first: it is the one that tells the most.
pub fn query_words(query: &str) -> Vec<String> {
    let mut words: Vec<String> = query
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.chars().count() > 1)
        .map(str::to_lowercase)
        .take(MAX_WORDS)
        .collect();
    words.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    words.dedup();
    words
}

/// How well a skill fits the words: words in its name count more than those in its description. Zero if none is there.
pub fn relevance(words: &[String], name: &str, description: &str) -> usize {
    let (name, description) = (name.to_lowercase(), description.to_lowercase());
    let of_word = |word: &String| {
        usize::from(name.contains(word.as_str())) * 3 + usize::from(description.contains(word.as_str()))
    };
    words.iter().map(of_word).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skills::files::FileEntry;

    #[test]
    fn uris_lead_back_to_the_skill_and_its_file() {
        let uri = file_uri(&own_root("acme", "pdf"), "docs/a b.md");
        assert_eq!(uri, "skill://acme/pdf/docs/a%20b.md");
        assert_eq!(parse_own("acme", &uri), Some(("pdf", "docs/a b.md".to_owned())));
        assert_eq!(parse_own("ac", &uri), None);
        assert_eq!(parse_own("other", &uri), None);
        let uri = file_uri(&shelf_root("globex", "pdf"), SKILL_MD);
        assert_eq!(parse_shelf(&uri), Some(("globex", "pdf", SKILL_MD.to_owned())));
        for bad in ["skill://shelf/globex/pdf", "skill://acme/pdf/SKILL.md", "file:///a"] {
            assert_eq!(parse_shelf(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_entry_has_the_frontmatter_and_the_digest_of_what_agents_read() {
        let source = SkillSource::from_fields("pdf", "Short", "Reads <files>.", "# Steps\n").unwrap();
        let files = FileList::default().with(FileEntry::new("run.sh", b"ls", true)).unwrap();
        let entry = SkillManifest::new(&source, &files).unwrap().entry("skill://acme/pdf");
        let text = source.for_agents().unwrap();
        assert_eq!(entry["uri"], "skill://acme/pdf/SKILL.md");
        assert_eq!(entry["frontmatter"]["name"], "pdf");
        assert_eq!(entry["frontmatter"]["description"], "Reads \u{2039}files\u{203a}.");
        assert_eq!(entry["frontmatter"]["metadata"]["headline"], "Short");
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(text.as_bytes())));
        assert_eq!(entry["resources"][0]["digest"], digest);
        assert_eq!(entry["resources"][0]["size"], text.len());
        assert_eq!(entry["resources"][1]["uri"], "skill://acme/pdf/run.sh");
    }

    #[test]
    fn a_search_counts_words_and_names_more_than_descriptions() {
        let words = query_words("Read a PDF, a pdf report!");
        assert_eq!(words, ["report", "read", "pdf"]);
        let named = relevance(&words, "pdf-reader", "Reads files.");
        let described = relevance(&words, "files", "Reads a PDF report.");
        assert!(named > described && described > 0);
        assert_eq!(relevance(&words, "images", "Draws."), 0);
        assert!(query_words("a ! ?").is_empty());
    }

    #[test]
    fn the_extension_is_found_among_capabilities() {
        assert!(has_skills(&json!({"extensions": {SKILLS_EXTENSION: {}}})));
        assert!(!has_skills(&json!({"tools": {}})) && !has_skills(&json!({"extensions": {}})));
    }
}
