//! Bulk reads of a dataset: samples and exports. Both are streamed page by page, so that a large dataset needs the
//! memory of one page.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gateway_core::datasets::Case;
use gateway_core::datasets::export::ExportFormat;
use gateway_core::datasets::sample::{MAX_SAMPLE, MAX_SEED, Sampler};
use gateway_core::ids::{CaseId, DatasetId, OrgId};
use gateway_store::StoreError;
use gateway_store::connection_shares::on_behalf_of;
use gateway_store::datasets::{self, DatasetRef, Edition};
use http::HeaderValue;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::edition;
use crate::api::caller::{AppState, Caller, Viewer};
use crate::api::extract::{Body as JsonBody, PathParam, QueryParams};
use crate::api::openapi::{Operation, OperationOutput};
use crate::app::App;
use crate::memory::{MemoryAccount, hold};
use crate::problem::{ApiResult, Problem};

/// A case has up to 256 KiB.
const CASES_PER_PAGE: i64 = 50;
const IDS_PER_PAGE: i64 = 10_000;

/// Reads the cases of one edition of a dataset.
#[derive(Clone)]
struct CaseReader {
    app: Arc<App>,
    memory: Arc<MemoryAccount>,
    org: OrgId,
    id: DatasetId,
    of: Edition,
}

impl CaseReader {
    fn dataset(&self) -> DatasetRef {
        DatasetRef { org: self.org, id: self.id, edition: self.of }
    }

    async fn ids(&self, after: Option<CaseId>) -> Result<Vec<CaseId>, StoreError> {
        datasets::case_ids_after(&self.app.services.db, self.dataset(), after, IDS_PER_PAGE).await
    }

    /// Runs on the main runtime: response bodies are polled on workers, which must not use the database.
    async fn on_main_runtime<T: Send + 'static>(
        &self,
        read: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.app
            .services
            .tasks
            .runtime
            .spawn(on_behalf_of(self.org, read))
            .await
            .unwrap_or_else(|error| Err(StoreError::Other(error.to_string())))
    }

    async fn page(&self, after: Option<CaseId>) -> Result<Vec<Case>, StoreError> {
        let (app, dataset) = (Arc::clone(&self.app), self.dataset());
        self.on_main_runtime(async move {
            datasets::cases_after(&app.services.db, dataset, after, CASES_PER_PAGE).await
        })
        .await
    }

    /// A page of the response. Its memory counts until it has been sent.
    fn hold(&self, page: Vec<u8>) -> Bytes {
        let mut memory = self.memory.open();
        memory.charge(page.len());
        hold(page, memory)
    }

    async fn by_id(&self, ids: Vec<CaseId>) -> Result<Vec<Case>, StoreError> {
        let (app, dataset) = (Arc::clone(&self.app), self.dataset());
        self.on_main_runtime(async move { datasets::cases_by_id(&app.services.db, dataset, &ids).await })
            .await
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct SampleRequest {
    /// Number of cases, up to 10000. A size above the number of cases returns all of them.
    #[schemars(range(min = 1, max = 10000))]
    size: i64,
    /// 0 to 2^53 - 1. The same seed draws the same cases. Default: a random seed, which the response contains.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    seed: Option<i64>,
    /// A frozen version. Default: the working copy.
    #[schemars(range(min = 1))]
    version: Option<i64>,
}

/// The schema of the response, which is written page by page.
#[derive(Serialize, JsonSchema)]
struct Sample {
    cases: Vec<Case>,
    seed: u64,
}

pub(super) async fn sample(
    State(app): AppState,
    caller: Caller<Viewer>,
    PathParam(id): PathParam<DatasetId>,
    JsonBody(request): JsonBody<SampleRequest>,
) -> ApiResult<SampleResponse> {
    let size = usize::try_from(request.size).ok().filter(|size| (1..=MAX_SAMPLE).contains(size));
    let size = size.ok_or_else(|| Problem::field("size", format!("must be between 1 and {MAX_SAMPLE}")))?;
    let seed = match request.seed {
        None => random_seed()?,
        Some(seed) => u64::try_from(seed).ok().filter(|seed| *seed <= MAX_SEED).ok_or_else(|| {
            Problem::field("seed", format!("must be a whole number between 0 and {MAX_SEED}"))
        })?,
    };
    let of = edition(&app, caller.org.id, id, request.version).await?;
    let memory = Arc::clone(&caller.org.memory);
    // A million ids take as long as a query of log rows.
    let slot = app.shares.query_slot(caller.org.id).await?;
    let reader = CaseReader { org: caller.org.id, memory, app, id, of };
    let mut sampler = Sampler::new(seed, size);
    let mut after = None;
    loop {
        let ids = reader.ids(after).await?;
        for id in &ids {
            sampler.offer(*id);
        }
        after = ids.last().copied();
        if after.is_none() {
            break;
        }
    }
    drop(slot);
    let page = usize::try_from(CASES_PER_PAGE).unwrap_or(1);
    let pages = sampler.finish().chunks(page).map(<[CaseId]>::to_vec).collect();
    Ok(SampleResponse(Body::from_stream(sample_stream(reader, pages, seed))))
}

fn sample_stream(
    reader: CaseReader,
    pages: Vec<Vec<CaseId>>,
    seed: u64,
) -> impl futures_util::Stream<Item = Result<Bytes, StoreError>> {
    futures_util::stream::unfold(
        (reader, pages.into_iter(), true, false),
        move |(reader, mut pages, first, done)| async move {
            if done {
                return None;
            }
            let mut out = if first { b"{\"cases\":[".to_vec() } else { Vec::new() };
            let Some(ids) = pages.next() else {
                out.extend_from_slice(format!("],\"seed\":{seed}}}").as_bytes());
                return Some((Ok(out.into()), (reader, pages, false, true)));
            };
            let read = reader.by_id(ids).await.map(|cases| {
                out.extend(ExportFormat::Json.write(&cases, first));
                reader.hold(out)
            });
            let failed = read.is_err();
            Some((read, (reader, pages, false, failed)))
        },
    )
}

fn random_seed() -> ApiResult<u64> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(Problem::internal)?;
    Ok(u64::from_le_bytes(random) & MAX_SEED)
}

pub(super) struct SampleResponse(Body);

impl IntoResponse for SampleResponse {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}

impl OperationOutput for SampleResponse {
    fn describe(operation: &mut Operation<'_>) {
        operation.json_response::<Sample>(200);
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct ExportParams {
    /// Default: `json`.
    format: Option<ExportFormat>,
    /// A frozen version. Default: the working copy.
    #[schemars(range(min = 1))]
    version: Option<i64>,
}

pub(super) async fn export(
    State(app): AppState,
    caller: Caller<Viewer>,
    PathParam(id): PathParam<DatasetId>,
    QueryParams(params): QueryParams<ExportParams>,
) -> ApiResult<Download> {
    let format = params.format.unwrap_or(ExportFormat::Json);
    let of = edition(&app, caller.org.id, id, params.version).await?;
    let version = params.version.map(|version| format!("-v{version}")).unwrap_or_default();
    let name = format!("dataset-{id}{version}.{}", format.extension());
    let memory = Arc::clone(&caller.org.memory);
    let reader = CaseReader { org: caller.org.id, memory, app, id, of };
    Ok(Download { format, name, body: Body::from_stream(export_stream(reader, format)) })
}

/// The next page of an export.
enum ExportPosition {
    Start,
    After(CaseId),
    End,
}

fn export_stream(
    reader: CaseReader,
    format: ExportFormat,
) -> impl futures_util::Stream<Item = Result<Bytes, StoreError>> {
    futures_util::stream::unfold((reader, ExportPosition::Start), move |(reader, position)| async move {
        let (after, mut out) = match position {
            ExportPosition::Start => (None, format.prologue().as_bytes().to_vec()),
            ExportPosition::After(last) => (Some(last), Vec::new()),
            ExportPosition::End => return None,
        };
        match reader.page(after).await {
            Err(error) => Some((Err(error), (reader, ExportPosition::End))),
            Ok(cases) => {
                out.extend(format.write(&cases, after.is_none()));
                let next = cases.last().map_or(ExportPosition::End, |last| ExportPosition::After(last.id));
                if cases.is_empty() {
                    out.extend_from_slice(format.epilogue().as_bytes());
                }
                Some((Ok(reader.hold(out)), (reader, next)))
            }
        }
    })
}

pub(super) struct Download {
    format: ExportFormat,
    name: String,
    body: Body,
}

impl IntoResponse for Download {
    fn into_response(self) -> Response {
        let mut response = Response::new(self.body);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.format.content_type()));
        if let Ok(value) = HeaderValue::try_from(format!("attachment; filename=\"{}\"", self.name)) {
            headers.insert(CONTENT_DISPOSITION, value);
        }
        response
    }
}

impl OperationOutput for Download {
    fn describe(operation: &mut Operation<'_>) {
        let cases = operation.schemas.output.subschema_for::<Vec<Case>>();
        operation.responses.push((
            200,
            json!({
                "description": "The cases, oldest first. CSV has the columns input, expected and metadata",
                "content": {
                    "application/json": {"schema": {"type": "object", "required": ["cases"], "properties": {"cases": cases}}},
                    "text/csv": {"schema": {"type": "string"}},
                    "application/x-ndjson": {"schema": {"type": "string"}},
                },
            }),
        ));
    }
}
