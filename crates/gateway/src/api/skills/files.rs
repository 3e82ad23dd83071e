//! The files of a skill beside its SKILL.md. Every change creates a version.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gateway_core::ids::{OrgId, SkillId};
use gateway_core::skills::files::{FileEntry, FileError, FileList, MAX_FILE_BYTES, MAX_ORG_BYTES};
use gateway_store::skills::{self, Skill};
use gateway_store::{StoreError, Tx};
use http::StatusCode;
use http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::manage::{commit_and_judge, stored};
use super::view::SkillView;
use super::{Reader, Writer, coded};
use crate::api::audited::Audited;
use crate::api::caller::AppState;
use crate::api::extract::{BodyLimits, FromPath, PathParam, QueryParams, read_body, request_memory};
use crate::api::openapi::{Operation, OperationInput, OperationOutput};
use crate::api::response::Json;
use crate::app::App;
use crate::problem::{ApiResult, Problem};
use crate::quotas;

/// The path of a file below its skill, which may have several segments.
pub(super) struct FilePath(pub String);

impl FromPath for FilePath {
    const NAME: &'static str = "path";

    fn parse(text: &str) -> Result<Self, String> {
        if text.contains('\0') {
            return Err("must not contain NUL characters".into());
        }
        Ok(Self(text.to_owned()))
    }

    fn schema() -> serde_json::Value {
        json!({"type": "string"})
    }
}

/// The bytes of a file. They are a download and never a page of this origin, because tenants choose them.
pub(super) struct FileContent(Vec<u8>);

impl FileContent {
    pub(super) async fn load(
        app: &App,
        skill: SkillId,
        files: &FileList,
        path: &FilePath,
    ) -> ApiResult<Self> {
        let entry = files.find(&path.0).ok_or_else(Problem::not_found)?;
        let bytes = skills::find_blob(&app.services.db, skill, &entry.sha256).await?;
        bytes.map(Self).ok_or_else(|| Problem::internal("the content of a skill's file is missing"))
    }
}

/// The headers of a download.
pub(super) const DOWNLOAD: [(http::HeaderName, &str); 3] = [
    (CONTENT_TYPE, "application/octet-stream"),
    (CONTENT_DISPOSITION, "attachment"),
    (CONTENT_SECURITY_POLICY, "sandbox"),
];

impl IntoResponse for FileContent {
    fn into_response(self) -> Response {
        (DOWNLOAD, self.0).into_response()
    }
}

impl OperationOutput for FileContent {
    fn describe(operation: &mut Operation<'_>) {
        let content = json!({"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}});
        operation.responses.push((200, json!({"description": "The file", "content": content})));
    }
}

/// The bytes of a file in a request.
pub(super) struct FileBody(Bytes);

impl FromRequest<Arc<App>> for FileBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Arc<App>) -> Result<Self, Problem> {
        // For the copy on its way to the database.
        let memory = request_memory(&request)?;
        let bytes = read_body(request, BodyLimits::new(MAX_FILE_BYTES)).await?;
        memory.grow(bytes.len())?;
        Ok(Self(bytes))
    }
}

impl OperationInput for FileBody {
    fn describe(operation: &mut Operation<'_>) {
        operation.request_body = Some(json!({
            "required": true,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }));
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct FileParams {
    /// Whether agents may run the file. Default: false.
    executable: Option<bool>,
}

pub(super) async fn get_file(
    State(app): AppState,
    caller: Reader,
    PathParam(id): PathParam<SkillId>,
    PathParam(path): PathParam<FilePath>,
) -> ApiResult<FileContent> {
    let skill = skills::find(&app.services.db, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    FileContent::load(&app, id, &skill.files, &path).await
}

pub(super) async fn put_file(
    app: Audited,
    caller: Writer,
    PathParam(id): PathParam<SkillId>,
    input: FileInput,
) -> ApiResult<Json<SkillView>> {
    let FileInput { path, is_executable, bytes } = input;
    let file = FileEntry::new(&path.0, &bytes, is_executable);
    // An invalid file is reported before a missing skill.
    FileList::default().with(file.clone())?;
    let mut tx = app.services.db.begin().await?;
    let skill = skills::find_for_update(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    if skill.files.find(&file.path) == Some(&file) {
        return Ok(Json(skill.into()));
    }
    let files = skill.files.with(file.clone())?;
    check_room(&mut tx, caller.org.id, bytes.len()).await?;
    skills::insert_blob(&mut tx, id, &file.sha256, &bytes).await?;
    save(&app, tx, &caller, (&skill, &files)).await
}

pub(super) async fn delete_file(
    app: Audited,
    caller: Writer,
    PathParam(id): PathParam<SkillId>,
    PathParam(path): PathParam<FilePath>,
) -> ApiResult<Json<SkillView>> {
    let mut tx = app.services.db.begin().await?;
    let skill = skills::find_for_update(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    if skill.files.find(&path.0).is_none() {
        return Err(Problem::not_found());
    }
    let files = skill.files.without(&path.0);
    save(&app, tx, &caller, (&skill, &files)).await
}

/// Stores the next version with these files.
async fn save(
    app: &Audited,
    mut tx: Tx,
    caller: &Writer,
    (skill, files): (&Skill, &FileList),
) -> ApiResult<Json<SkillView>> {
    let (id, version) = (skill.id, skill.version + 1);
    let now = app.services.clock.now();
    quotas::check_version("skill", skill.version + 1)?;
    match skills::update(&mut tx, skill, (&skill.source, files), &caller.actor(), now).await {
        Ok(true) => {}
        Ok(false) | Err(StoreError::Duplicate) => return Err(super::duplicate_name(&skill.source.name)),
        Err(error) => return Err(error.into()),
    }
    let state = |files: &FileList, version: i64| {
        let paths: Vec<&str> = files.entries().iter().map(|file| file.path.as_str()).collect();
        json!({"version": version, "files": paths})
    };
    let (before, after) = (state(&skill.files, skill.version), state(files, version));
    tx.record(app.entry().named(&skill.source.name).changed(&before, &after));
    commit_and_judge(app, tx, caller, id, version).await?;
    stored(app, caller, id).await.map(Json)
}

/// Checks that the organization may store this many more bytes.
pub(super) async fn check_room(tx: &mut Tx, org: OrgId, bytes: usize) -> ApiResult<()> {
    if bytes == 0 {
        return Ok(());
    }
    let used = skills::stored_bytes(tx, org).await?;
    if used.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX)) > MAX_ORG_BYTES {
        let why = format!(
            "the files of all versions of the organization's skills may have {MAX_ORG_BYTES} bytes; delete skills that \
             are not needed any more"
        );
        return Err(Problem::quota_exceeded(("skill_file_bytes", MAX_ORG_BYTES.unsigned_abs()), why));
    }
    Ok(())
}

/// The path, the mode and the bytes of a file.
pub(super) struct FileInput {
    path: FilePath,
    is_executable: bool,
    bytes: Bytes,
}

impl FromRequest<Arc<App>> for FileInput {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        use axum::extract::FromRequestParts as _;
        let (mut parts, body) = request.into_parts();
        let PathParam(path) = PathParam::<FilePath>::from_request_parts(&mut parts, app).await?;
        let QueryParams(params) = QueryParams::<FileParams>::from_request_parts(&mut parts, app).await?;
        let FileBody(bytes) = FileBody::from_request(Request::from_parts(parts, body), app).await?;
        Ok(Self { path, is_executable: params.executable.unwrap_or(false), bytes })
    }
}

impl OperationInput for FileInput {
    fn describe(operation: &mut Operation<'_>) {
        <PathParam<FilePath> as OperationInput>::describe(operation);
        <QueryParams<FileParams> as OperationInput>::describe(operation);
        FileBody::describe(operation);
    }
}

impl From<FileError> for Problem {
    fn from(error: FileError) -> Self {
        let (status, code) = match &error {
            FileError::Path(_) => (StatusCode::BAD_REQUEST, "invalid_id"),
            FileError::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large"),
            FileError::Conflict(_) | FileError::TooMany | FileError::TooLargeTogether => {
                (StatusCode::CONFLICT, "conflict")
            }
        };
        coded(status, code, error.to_string())
    }
}
