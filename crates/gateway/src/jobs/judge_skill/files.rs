//! Reads the files of a skill for the judge, one at a time: the findings in them, and an excerpt for a language model.

use std::fmt::Write as _;

use gateway_core::ids::{OrgId, SkillId};
use gateway_core::skills::files::{FileEntry, FileList, as_text};
use gateway_core::skills::judge::safety::{self, Finding, ScanRecord};
use gateway_core::skills::rubric::AllowFiles;
use gateway_store::{StoreError, skills};

use crate::compute::{Cancellation, ComputeError, WaitLimits};
use crate::jobs::JobError;
use crate::problem::Problem;
use crate::services::Services;

/// Text of all files together that a language model gets.
const MAX_EXCERPT_BYTES: usize = 64 << 10;

/// What the judge has to know of a skill's files.
#[derive(Default)]
pub struct FileFindings {
    pub findings: Vec<Finding>,
    pub excerpt: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Compute(#[from] ComputeError),
    #[error("the content of the file {0} is missing in the database")]
    Missing(String),
}

/// Scans all files of a version.
pub async fn read(
    services: &Services,
    org: OrgId,
    skill: SkillId,
    files: &FileList,
) -> Result<FileFindings, ReadError> {
    let mut found = FileFindings::default();
    for entry in files.entries() {
        let bytes = skills::find_blob(&services.db, skill, &entry.sha256).await?;
        let bytes = bytes.ok_or_else(|| ReadError::Missing(entry.path.clone()))?;
        add_excerpt(&mut found.excerpt, entry, &bytes);
        let (path, executable) = (entry.path.clone(), entry.executable);
        let scanning = move |_: &Cancellation| safety::scan_file(&path, &bytes, executable);
        found.findings.extend(services.compute.run(org, WaitLimits::JOB, scanning).await?);
    }
    found.findings = safety::few_of_each(found.findings);
    Ok(found)
}

fn add_excerpt(excerpt: &mut String, entry: &FileEntry, bytes: &[u8]) {
    let left = MAX_EXCERPT_BYTES.saturating_sub(excerpt.len());
    let mode = if entry.executable { ", executable" } else { "" };
    let _ = write!(excerpt, "\n\n--- The file {} ({} bytes{mode})", entry.path, entry.size);
    match as_text(bytes) {
        None => excerpt.push_str(" is binary.\n"),
        Some(text) if text.len() <= left => {
            let _ = write!(excerpt, ":\n{text}");
        }
        Some(text) => {
            let _ = write!(excerpt, " begins:\n{}", &text[..text.floor_char_boundary(left)]);
        }
    }
}

/// All kinds of findings in a version: in its text and in its files.
pub async fn scan_version(
    services: &Services,
    org: OrgId,
    skill: SkillId,
    (raw_source, files): (String, &FileList),
) -> Result<ScanRecord, ReadError> {
    let FileFindings { mut findings, .. } = read(services, org, skill, files).await?;
    let scanning = move |_: &Cancellation| safety::scan(&raw_source);
    findings.extend(services.compute.run(org, WaitLimits::REQUEST, scanning).await?);
    Ok(ScanRecord::new(&findings))
}

/// Whether the safety scan of a version has no finding that the rubric does not accept. Versions never change, so each is
/// scanned once.
pub async fn is_safe(
    services: &Services,
    org: OrgId,
    (skill, version): (SkillId, i64),
    scan: Option<&ScanRecord>,
    allowed: AllowFiles,
) -> Result<bool, ReadError> {
    if let Some(scan) = scan.filter(|scan| scan.is_current()) {
        return Ok(scan.first(allowed).is_none());
    }
    let Some(found) = skills::find_version(&services.db, org, skill, version).await? else {
        return Ok(false);
    };
    let scan = scan_version(services, org, skill, (found.source.raw_source, &found.files)).await?;
    skills::set_scan(&services.db, skill, version, &scan).await?;
    Ok(scan.first(allowed).is_none())
}

impl From<ReadError> for JobError {
    fn from(error: ReadError) -> Self {
        Self(error.to_string())
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => error.into(),
            ReadError::Compute(error) => error.into(),
            ReadError::Missing(_) => Self::internal(error),
        }
    }
}
