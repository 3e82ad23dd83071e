//! Skills and evaluations in responses, and the SKILL.md file.

use axum::response::{IntoResponse, Response};
use gateway_core::ids::{EvaluationId, OrgId, RubricId, SkillId};
use gateway_core::skills::files::FileEntry;
use gateway_core::skills::rubric::Axes;
use gateway_core::skills::{SkillSource, content_hash};
use gateway_core::time::Timestamp;
use gateway_core::verdicts::INTERNAL_SOURCE;
use gateway_store::skills::{AdoptedFrom, Evaluation, LatestEvaluation, ShelfEntry, Skill, SkillVersion};
use http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::api::openapi::{Operation, OperationInput, OperationOutput};
use crate::problem::ApiResult;

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "SkillVisibility")]
pub enum Visibility {
    Private,
    Public,
}

/// The state of the shelf entry that a skill was adopted from.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "SkillSourceStatus")]
pub enum SourceStatus {
    /// The shelf still has the adopted version.
    Current,
    /// The shelf has a later version.
    Updated,
    /// It was unpublished or deleted.
    Withdrawn,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Skill")]
pub struct SkillView {
    id: SkillId,
    org_id: OrgId,
    name: String,
    headline: String,
    description: String,
    body: String,
    raw_source: String,
    /// The files beside SKILL.md.
    files: Vec<FileEntry>,
    /// SHA-256 of `raw_source`; of the list of all files if there are others.
    content_hash: String,
    version: i64,
    visibility: Visibility,
    /// The version on the shelf, which may be older than the current one.
    published_version: Option<i64>,
    source_skill_id: Option<SkillId>,
    /// The adopted version.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_version: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_status: Option<SourceStatus>,
    published_at: Option<Timestamp>,
    /// Number of adoptions.
    adoptions: i64,
    /// Only on the shelf: the slug of the organization that published it.
    #[serde(skip_serializing_if = "Option::is_none")]
    publisher: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    latest_evaluation: Option<LatestView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LatestEvaluation")]
pub struct LatestView {
    score: f64,
    passed: bool,
    version: i64,
    /// `internal` is the gateway's own judge. On the shelf, the source of another verdict follows the slug of the
    /// publisher, who reported it: `acme/scanner`.
    source: String,
}

impl LatestView {
    /// A verdict as the shelf shows it. The publisher chose the name of an outside source, so it is shown as its own.
    fn of(latest: LatestEvaluation, publisher: &str) -> Self {
        let view = Self::from(latest);
        if view.source == INTERNAL_SOURCE {
            return view;
        }
        let source = format!("{publisher}/{}", view.source);
        Self { source, ..view }
    }
}

impl From<LatestEvaluation> for LatestView {
    fn from(latest: LatestEvaluation) -> Self {
        let LatestEvaluation { score, passed, version, source } = latest;
        Self { score, passed, version, source }
    }
}

impl From<Skill> for SkillView {
    fn from(skill: Skill) -> Self {
        let Skill {
            id,
            org_id,
            source,
            files,
            content_hash,
            version,
            published_version,
            published_at,
            adopted,
            adoptions,
            created_at,
            updated_at,
            latest,
        } = skill;
        let SkillSource { name, headline, description, body, raw_source } = source;
        let status = |adopted: &AdoptedFrom| match adopted.now {
            Some(now) if now == adopted.version => SourceStatus::Current,
            Some(_) => SourceStatus::Updated,
            None => SourceStatus::Withdrawn,
        };
        Self {
            id,
            org_id,
            name,
            headline,
            description,
            body,
            raw_source,
            files: files.into_entries(),
            content_hash,
            version,
            visibility: if published_version.is_some() { Visibility::Public } else { Visibility::Private },
            published_version,
            source_skill_id: adopted.map(|adopted| adopted.skill),
            source_version: adopted.map(|adopted| adopted.version),
            source_status: adopted.as_ref().map(status),
            published_at,
            adoptions,
            publisher: None,
            created_at,
            updated_at,
            latest_evaluation: latest.map(Into::into),
        }
    }
}

impl From<ShelfEntry> for SkillView {
    fn from(skill: ShelfEntry) -> Self {
        let SkillSource { name, headline, description, body, raw_source } = skill.source;
        let publisher = skill.publisher;
        Self {
            id: skill.id,
            org_id: skill.org_id,
            name,
            headline,
            description,
            body,
            raw_source,
            files: skill.files.into_entries(),
            content_hash: skill.content_hash,
            version: skill.version,
            visibility: Visibility::Public,
            published_version: Some(skill.version),
            source_skill_id: skill.source_skill_id,
            source_version: None,
            source_status: None,
            published_at: Some(skill.published_at),
            adoptions: skill.adoptions,
            created_at: skill.created_at,
            updated_at: skill.updated_at,
            latest_evaluation: skill.latest.map(|latest| LatestView::of(latest, &publisher)),
            publisher: Some(publisher),
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SkillVersion")]
pub struct VersionView {
    version: i64,
    name: String,
    headline: String,
    description: String,
    body: String,
    raw_source: String,
    files: Vec<FileEntry>,
    content_hash: String,
    created_at: Timestamp,
    /// The user or key that created it.
    created_by: String,
}

impl From<SkillVersion> for VersionView {
    fn from(version: SkillVersion) -> Self {
        let SkillVersion { version, source, files, content_hash, judged: _, created_at, created_by } =
            version;
        let SkillSource { name, headline, description, body, raw_source } = source;
        let files = files.into_entries();
        Self {
            version,
            name,
            headline,
            description,
            body,
            raw_source,
            files,
            content_hash,
            created_at,
            created_by,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Evaluation")]
pub struct EvaluationView {
    id: EvaluationId,
    org_id: OrgId,
    skill_id: SkillId,
    skill_version: i64,
    /// The `content_hash` of the judged version.
    content_hash: String,
    /// The rubric of an evaluation by the gateway's own judge.
    #[serde(skip_serializing_if = "Option::is_none")]
    rubric_config_id: Option<RubricId>,
    axes: Axes,
    overall_score: f64,
    passed: bool,
    judge_provider: String,
    judge_model: String,
    latency_ms: i64,
    prompt_tokens: i64,
    completion_tokens: i64,
    source: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    external_ref: String,
    created_at: Timestamp,
}

impl From<Evaluation> for EvaluationView {
    fn from(evaluation: Evaluation) -> Self {
        let Evaluation {
            id,
            org_id,
            skill_id,
            skill_version,
            content_hash,
            rubric_config_id,
            axes,
            overall_score,
            passed,
            judge_provider,
            judge_model,
            latency_ms,
            prompt_tokens,
            completion_tokens,
            source,
            external_ref,
            created_at,
        } = evaluation;
        Self {
            id,
            org_id,
            skill_id,
            skill_version,
            content_hash,
            rubric_config_id,
            axes,
            overall_score,
            passed,
            judge_provider,
            judge_model,
            latency_ms,
            prompt_tokens,
            completion_tokens,
            source,
            external_ref,
            created_at,
        }
    }
}

/// The SKILL.md file with its ETag, or 304 if the client already has it.
pub struct SkillFile {
    text: String,
    etag: String,
    not_modified: bool,
}

impl SkillFile {
    pub fn new(source: &SkillSource, known: &KnownEtags) -> ApiResult<Self> {
        let text = source.for_agents()?;
        let etag = format!("\"{}\"", content_hash(&text));
        let not_modified = known.0.iter().any(|tag| tag == "*" || tag.trim_start_matches("W/") == etag);
        Ok(Self { text, etag, not_modified })
    }
}

impl IntoResponse for SkillFile {
    fn into_response(self) -> Response {
        let mut headers = HeaderMap::new();
        if let Ok(etag) = HeaderValue::try_from(self.etag) {
            headers.insert(ETAG, etag);
        }
        if self.not_modified {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/markdown; charset=utf-8"));
        (headers, self.text).into_response()
    }
}

impl OperationOutput for SkillFile {
    fn describe(operation: &mut Operation<'_>) {
        let content = json!({"text/markdown": {"schema": {"type": "string"}}});
        let etag = json!({"ETag": {"schema": {"type": "string"}}});
        operation
            .responses
            .push((200, json!({"description": "The file", "headers": etag, "content": content})));
        operation.responses.push((304, json!({"description": "Not modified"})));
    }
}

/// The ETags in `If-None-Match`.
pub struct KnownEtags(Vec<String>);

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for KnownEtags {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut http::request::Parts, _: &S) -> Result<Self, Self::Rejection> {
        let values = parts.headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        Ok(Self(values.flat_map(|value| value.split(',')).map(|tag| tag.trim().to_owned()).collect()))
    }
}

impl OperationInput for KnownEtags {
    fn describe(operation: &mut Operation<'_>) {
        operation.parameters.push(json!({
            "name": "If-None-Match", "in": "header", "required": false, "schema": {"type": "string"},
        }));
    }
}
