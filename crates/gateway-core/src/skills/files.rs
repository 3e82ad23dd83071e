//! The files of a skill beside its SKILL.md: which paths are safe, how many there may be, and the hash over all of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::content_hash;

/// Files of one skill.
pub const MAX_FILES: usize = 512;
pub const MAX_FILE_BYTES: usize = 1 << 20;
/// All files of one version.
pub const MAX_TOTAL_BYTES: usize = 16 << 20;
/// What all versions of an organization's skills may store.
pub const MAX_ORG_BYTES: i64 = 1 << 30;
/// Short enough for every archive format.
const MAX_PATH_BYTES: usize = 150;
const MAX_SEGMENT_BYTES: usize = 100;
const MAX_DEPTH: usize = 10;

/// The file that every skill has. It is changed through the skill itself.
pub const SKILL_MD: &str = "SKILL.md";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SkillFile")]
pub struct FileEntry {
    pub path: String,
    pub size: usize,
    pub sha256: String,
    pub executable: bool,
}

impl FileEntry {
    pub fn new(path: &str, bytes: &[u8], executable: bool) -> Self {
        Self {
            path: path.to_owned(),
            size: bytes.len(),
            sha256: hex::encode(Sha256::digest(bytes)),
            executable,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("path: {0}")]
    Path(&'static str),
    #[error("path: '{0}' already exists, and some file systems cannot keep both")]
    Conflict(String),
    #[error("a skill may have at most {MAX_FILES} files; delete some first")]
    TooMany,
    #[error("a file may have at most {MAX_FILE_BYTES} bytes")]
    TooLarge,
    #[error("the files of a skill may have at most {MAX_TOTAL_BYTES} bytes together; delete some first")]
    TooLargeTogether,
}

/// The files of a version, sorted by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileList(Vec<FileEntry>);

impl FileList {
    pub fn entries(&self) -> &[FileEntry] {
        &self.0
    }

    pub fn into_entries(self) -> Vec<FileEntry> {
        self.0
    }

    pub fn find(&self, path: &str) -> Option<&FileEntry> {
        self.0.iter().find(|entry| entry.path == path)
    }

    pub fn total_bytes(&self) -> usize {
        self.0.iter().map(|entry| entry.size).sum()
    }

    /// The list with a file added, or replaced.
    pub fn with(&self, file: FileEntry) -> Result<Self, FileError> {
        check_path(&file.path)?;
        if file.size > MAX_FILE_BYTES {
            return Err(FileError::TooLarge);
        }
        let mut entries = self.without(&file.path).0;
        if let Some(other) = entries.iter().find(|entry| conflicts(&entry.path, &file.path)) {
            return Err(FileError::Conflict(other.path.clone()));
        }
        let at = entries.partition_point(|entry| entry.path < file.path);
        entries.insert(at, file);
        let list = Self(entries);
        if list.0.len() > MAX_FILES {
            return Err(FileError::TooMany);
        }
        if list.total_bytes() > MAX_TOTAL_BYTES {
            return Err(FileError::TooLargeTogether);
        }
        Ok(list)
    }

    /// The list without a file, which need not be in it.
    #[must_use]
    pub fn without(&self, path: &str) -> Self {
        Self(self.0.iter().filter(|entry| entry.path != path).cloned().collect())
    }

    /// Identifies the text and all files. Without files it is the SHA-256 of the text. With files it is the SHA-256 of a
    /// line for each file, SKILL.md among them, sorted by path: the path, a NUL, and the SHA-256 of the file. A line of an
    /// executable file has another NUL and an `x`, because a verdict depends on it.
    pub fn content_hash(&self, raw_source: &str) -> String {
        let text = content_hash(raw_source);
        if self.0.is_empty() {
            return text;
        }
        let skill = FileEntry { path: SKILL_MD.into(), size: 0, sha256: text, executable: false };
        let mut all: Vec<&FileEntry> = self.0.iter().chain([&skill]).collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        let mut hash = Sha256::new();
        for FileEntry { path, sha256, executable, .. } in all {
            let mode = if *executable { "\0x" } else { "" };
            hash.update(format!("{path}\0{sha256}{mode}\n").as_bytes());
        }
        hex::encode(hash.finalize())
    }
}

/// Whether a path is safe to write on every system, into a git tree and into an archive.
pub fn check_path(path: &str) -> Result<(), FileError> {
    let error = |why| Err(FileError::Path(why));
    if path.is_empty() || path.len() > MAX_PATH_BYTES {
        return error("must have 1 to 150 characters");
    }
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '@' | '=' | ',' | ' ');
    if !path.chars().all(|c| c == '/' || is_plain(c)) {
        return error("may contain letters, digits, spaces and . _ - + @ = , and / between directories");
    }
    let segments: Vec<&str> = path.split('/').collect();
    if segments.len() > MAX_DEPTH {
        return error("may have at most 10 segments");
    }
    for segment in &segments {
        if segment.is_empty() {
            return error("must not begin or end with a slash or have two in a row");
        }
        if segment.len() > MAX_SEGMENT_BYTES {
            return error("each segment may have at most 100 characters");
        }
        if segment.ends_with('.') || segment.starts_with(' ') || segment.ends_with(' ') {
            return error("a segment must not be . or .., end with a dot, or begin or end with a space");
        }
        if segment.eq_ignore_ascii_case(".git") {
            return error("must not contain a segment .git");
        }
    }
    if path.eq_ignore_ascii_case(SKILL_MD) {
        return error("SKILL.md is changed through the skill itself: PUT /skills/{skillId}");
    }
    if segments.first().is_some_and(|first| first.eq_ignore_ascii_case(SKILL_MD)) {
        return error("SKILL.md is a file of the skill, so it cannot be a directory; use another name");
    }
    Ok(())
}

/// Whether two paths cannot exist together: equal but for case, or one is a directory of the other.
fn conflicts(a: &str, b: &str) -> bool {
    let (a, b) = (a.to_ascii_lowercase(), b.to_ascii_lowercase());
    let is_below =
        |path: &str, directory: &str| path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
    a == b || is_below(&a, &b) || is_below(&b, &a)
}

/// The text of a file. `None` for a binary file: one that is not UTF-8 or has control characters.
pub fn as_text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let is_binary = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{c}');
    (!text.contains(is_binary)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, size: usize) -> FileEntry {
        FileEntry { size, ..FileEntry::new(path, b"x", false) }
    }

    #[test]
    fn hostile_paths_are_refused() {
        for good in [
            "a",
            "scripts/run.sh",
            ".gitignore",
            "a b/c+d@1=2,3.txt",
            "docs/SKILL.md",
            "SKILL.md2/x",
            "..a",
            "a..b",
        ] {
            assert_eq!(check_path(good), Ok(()), "{good}");
        }
        let deep = "a/".repeat(10) + "a";
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "a/",
            "a//b",
            ".",
            "..",
            "../a",
            "a/../b",
            "a/..",
            "a/./b",
            "a\\b",
            "a\0b",
            "a\nb",
            "C:/a",
            "a:b",
            "~/a",
            "a~1",
            "*",
            "a?",
            "é",
            "a\u{200b}b",
            "SKILL.md",
            "skill.MD",
            "SKILL.md/x",
            "skill.MD/a/b",
            ".git",
            ".git/config",
            "x/.GIT/hooks/a",
            "a.",
            "a. ",
            " a",
            "a /b",
            "aux/..",
            "%2e%2e/a",
            &"a".repeat(151),
            &"a".repeat(101),
            &deep,
        ] {
            assert!(matches!(check_path(bad), Err(FileError::Path(_))), "{bad}");
        }
    }

    #[test]
    fn paths_that_some_file_systems_confuse_are_refused() {
        let list = FileList::default().with(file("a/B.txt", 1)).unwrap();
        for bad in ["a/b.txt", "A/B.txt", "a", "a/B.txt/c", "A/b.TXT/c"] {
            assert!(matches!(list.with(file(bad, 1)), Err(FileError::Conflict(_))), "{bad}");
        }
        assert!(list.with(file("a/B.txt", 2)).is_ok(), "replaced");
        assert!(list.with(file("a/B.txt2", 2)).is_ok());
    }

    #[test]
    fn number_and_size_are_bounded() {
        let empty = FileList::default();
        assert_eq!(empty.with(file("a", MAX_FILE_BYTES + 1)), Err(FileError::TooLarge));
        let mut list = empty.clone();
        for number in 0..MAX_TOTAL_BYTES / MAX_FILE_BYTES {
            list = list.with(file(&format!("f{number}"), MAX_FILE_BYTES)).unwrap();
        }
        assert_eq!(list.with(file("one-more", 1)), Err(FileError::TooLargeTogether));
        assert!(list.with(file("f0", 1)).is_ok(), "a smaller one in its place");
        let mut list = empty;
        for number in 0..MAX_FILES {
            list = list.with(file(&format!("f{number}"), 1)).unwrap();
        }
        assert_eq!(list.with(file("one-more", 1)), Err(FileError::TooMany));
        assert_eq!(list.without("f0").entries().len(), MAX_FILES - 1);
    }

    #[test]
    fn the_hash_covers_every_path_content_and_mode() {
        let raw = "---\nname: a\n---\n";
        let empty = FileList::default();
        assert_eq!(empty.content_hash(raw), content_hash(raw), "as before without files");
        let list = |path: &str, bytes: &[u8], executable| {
            empty.with(FileEntry::new(path, bytes, executable)).unwrap().content_hash(raw)
        };
        let all = [
            list("a", b"1", false),
            list("b", b"1", false),
            list("a", b"2", false),
            list("a", b"1", true),
            empty.content_hash(raw),
        ];
        let mut distinct = all.to_vec();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), all.len());
        let text = format!("SKILL.md\0{}\na\0{}\n", content_hash(raw), hex::encode(Sha256::digest(b"1")));
        assert_eq!(all[0], content_hash(&text));
    }

    #[test]
    fn binary_files_are_told_from_text() {
        assert_eq!(as_text("ä\tb\r\n".as_bytes()), Some("ä\tb\r\n"));
        assert!(as_text(b"\xff").is_none() && as_text(b"a\0b").is_none() && as_text(b"\x1b[0m").is_none());
    }
}
