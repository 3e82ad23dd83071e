//! Scans a skill for content that is unsafe for an agent. Each check reads the whole file and reports findings with the
//! passage; one finding keeps a skill off the shelf. The checks match wording, not intent. They stop the known attacks
//! on skill marketplaces but do not prove that a skill is harmless.

mod encoded;
mod hidden;
mod intent;
mod passages;
mod phrases;
mod secrets;

pub use hidden::is_invisible;

use serde::{Deserialize, Serialize};

use super::quoted;
use crate::skills::files::as_text;
use crate::skills::rubric::{AllowFiles, Axis};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    HiddenText,
    InvisibleCharacters,
    HtmlComment,
    EncodedBlob,
    CredentialPath,
    Exfiltration,
    RemoteCode,
    Override,
    Deception,
    Destruction,
    Persistence,
    LeakedSecret,
    ExecutableFile,
    BinaryFile,
}

impl FindingKind {
    /// Whether the rubric of the organization accepts it.
    pub fn is_allowed(self, allowed: AllowFiles) -> bool {
        match self {
            Self::ExecutableFile => allowed.executable,
            Self::BinaryFile => allowed.binary,
            _ => false,
        }
    }

    pub fn describe(self) -> &'static str {
        match self {
            Self::HiddenText => "text that a reader of the page does not see",
            Self::InvisibleCharacters => "invisible or look-alike characters",
            Self::HtmlComment => "instructions in an HTML comment",
            Self::EncodedBlob => "an encoded blob",
            Self::CredentialPath => "access to a place where credentials are kept",
            Self::Exfiltration => "private data sent to an address",
            Self::RemoteCode => "code from the network that is run unseen",
            Self::Override => "an instruction to ignore instructions or safeguards",
            Self::Deception => "something to be kept from the user",
            Self::Destruction => "a command that destroys data",
            Self::Persistence => "a change that outlives the task",
            Self::LeakedSecret => "a secret in the clear",
            Self::ExecutableFile => "an executable file, which the rubric does not allow",
            Self::BinaryFile => "a binary file, which nobody can read and the rubric does not allow",
        }
    }
}

/// The version of the rules of the scan. Any change of findings needs a new version.
const RULES: &str = "rubric-v1";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub kind: FindingKind,
    /// The passage. Of a secret, only the first characters.
    pub passage: String,
}

impl Finding {
    fn new(kind: FindingKind, passage: impl Into<String>) -> Self {
        Self { kind, passage: passage.into() }
    }
}

/// The kinds of findings in a version and all its files, with the rules that found them. It is stored, because a version
/// never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanRecord {
    pub rules: String,
    pub kinds: Vec<FindingKind>,
}

impl ScanRecord {
    pub fn new(findings: &[Finding]) -> Self {
        let mut kinds: Vec<_> = findings.iter().map(|finding| finding.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        Self { rules: RULES.to_owned(), kinds }
    }

    /// Whether today's rules made it.
    pub fn is_current(&self) -> bool {
        self.rules == RULES
    }

    /// The first finding that the rubric does not accept.
    pub fn first(&self, allowed: AllowFiles) -> Option<FindingKind> {
        self.kinds.iter().copied().find(|kind| !kind.is_allowed(allowed))
    }
}

/// All findings in a file of a skill beside its SKILL.md. The passages begin with its path.
pub fn scan_file(path: &str, bytes: &[u8], executable: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    if executable {
        found.push(Finding::new(FindingKind::ExecutableFile, path));
    }
    match as_text(bytes) {
        None => found.push(Finding::new(FindingKind::BinaryFile, path)),
        Some(text) => found.extend(scan(text).into_iter().map(|finding| {
            let passage = format!("{path}: {}", finding.passage);
            Finding { passage, ..finding }
        })),
    }
    found
}

/// All findings in a file, at most a few of each kind.
pub fn scan(raw_source: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    hidden::scan(raw_source, &mut found);
    encoded::scan(raw_source, &mut found);
    secrets::scan(raw_source, &mut found);
    for passage in passages::passages(raw_source) {
        intent::scan(&passage, &mut found);
    }
    few_of_each(found)
}

/// At most a few findings of each kind, each passage once.
pub fn few_of_each(mut found: Vec<Finding>) -> Vec<Finding> {
    const MAX_PER_KIND: usize = 3;
    found.sort_by_key(|finding| finding.kind);
    let mut kept: Vec<Finding> = Vec::new();
    for finding in found {
        let same = kept.iter().filter(|known| known.kind == finding.kind);
        if same.clone().count() < MAX_PER_KIND && !same.clone().any(|known| known.passage == finding.passage)
        {
            kept.push(finding);
        }
    }
    kept
}

pub fn axis(findings: &[Finding]) -> Axis {
    if findings.is_empty() {
        let rationale = "Looked for hidden text, invisible characters, HTML comments, encoded blobs, credential paths, \
                         exfiltration, remote code, instructions to ignore instructions, deception, destruction and leaked \
                         secrets; found none.";
        return Axis { score: 1.0, rationale: rationale.into() };
    }
    let reasons: Vec<_> = findings
        .iter()
        .map(|finding| format!("{}: {}", finding.kind.describe(), quoted(&finding.passage)))
        .collect();
    Axis { score: 0.0, rationale: format!("Found {}.", reasons.join("; ")) }
}

#[cfg(test)]
mod tests;
