//! Bulk reads of a dataset: samples and exports. Both are streamed page by page, so that a large dataset needs the
//! memory of one page, which is reserved before its cases are read. Each page is a query of its own, and the organization's
//! other queries have their turn in between.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::Stream;
use gateway_core::datasets::Case;
use gateway_core::datasets::export::ExportFormat;
use gateway_core::datasets::sample::{MAX_SAMPLE, MAX_SEED, Sampler};
use gateway_core::ids::{CaseId, DatasetId, OrgId};
use gateway_store::StoreError;
use gateway_store::datasets::{self, DatasetRef, Edition};
use http::header::CONTENT_TYPE;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::edition;
use crate::api::caller::{AppState, Caller, Viewer};
use crate::api::downloads::{Download, query};
use crate::api::extract::{Body as JsonBody, PathParam, QueryParams};
use crate::api::openapi::{Operation, OperationOutput};
use crate::app::App;
use crate::jobs::run_eval::reserve_batch;
use crate::memory::{MemoryAccount, Reservation, hold};
use crate::problem::{ApiResult, Problem};

/// Fewer if they are large.
const CASES_PER_PAGE: i64 = 200;
const IDS_PER_PAGE: i64 = 10_000;
/// A case is held as the database returned it, as it was read, and in the text.
const HELD_PER_BYTE: i64 = 3;
/// The longest time to write a page.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

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

    /// The next cases after one.
    async fn after(&self, after: Option<CaseId>) -> ApiResult<Page> {
        let (db, dataset) = (&self.app.services.db, self.dataset());
        let sizes = datasets::case_sizes_after(db, dataset, after, CASES_PER_PAGE).await?;
        let (count, memory) = reserve_batch(&self.memory, &sizes, HELD_PER_BYTE)?;
        let cases = datasets::cases_after(db, dataset, after, count).await?;
        Ok(Page { cases, memory })
    }

    /// The first of the cases with these ids, and how many of the ids they are for.
    async fn by_id(&self, ids: &[CaseId]) -> ApiResult<(Page, usize)> {
        let (db, dataset) = (&self.app.services.db, self.dataset());
        let sizes = datasets::case_sizes_by_id(db, dataset, ids).await?;
        let (count, memory) = reserve_batch(&self.memory, &sizes, HELD_PER_BYTE)?;
        let count = usize::try_from(count).unwrap_or(0).min(ids.len());
        let cases = datasets::cases_by_id(db, dataset, &ids[..count]).await?;
        Ok((Page { cases, memory }, count))
    }
}

/// Cases, and the memory that is reserved for them and for their text.
struct Page {
    cases: Vec<Case>,
    memory: Reservation,
}

impl Page {
    /// The text of the cases behind its beginning. Its memory counts until it has been sent.
    async fn write(
        self,
        reader: &CaseReader,
        format: ExportFormat,
        mut text: Vec<u8>,
        is_first: bool,
    ) -> ApiResult<Bytes> {
        let Self { cases, mut memory } = self;
        let writing = move || {
            text.extend(format.write(&cases, is_first));
            text
        };
        let compute = &reader.app.services.compute;
        let text = compute.run_for_body(reader.org, memory.bytes(), WRITE_TIMEOUT, writing).await?;
        memory.shrink_to(text.len());
        memory.charge(text.len() - memory.bytes());
        Ok(hold(text, memory))
    }
}

/// Cuts the connection, so that a part does not look like the whole.
fn interrupted(problem: &Problem) -> std::io::Error {
    tracing::debug!(reason = %problem.message, "a response with cases of a dataset was interrupted");
    std::io::Error::other(problem.message.to_string())
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
    let ids: Arc<[CaseId]> = Arc::from(sampler.finish());
    // Before the response begins, so that it has the status of what is wrong.
    let first = reader.sample_part(&ids, SampleFrom::default(), seed).await?;
    Ok(SampleResponse(Body::from_stream(sample_stream(reader, ids, seed, first))))
}

/// A part of a response, and where the next one begins; none at the end.
type Part<T> = (Bytes, Option<T>);

/// Where the rest of a sample begins.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct SampleFrom {
    /// In the ids of the sample.
    place: usize,
    /// A case has been written, so the next one needs a comma.
    has_cases: bool,
}

impl CaseReader {
    /// The cases of a sample from one of its ids on.
    async fn sample_part(
        &self,
        ids: &Arc<[CaseId]>,
        from: SampleFrom,
        seed: u64,
    ) -> ApiResult<Part<SampleFrom>> {
        let (reader, ids) = (self.clone(), Arc::clone(ids));
        let read = async move {
            let is_first = from == SampleFrom::default();
            let text = if is_first { b"{\"cases\":[".to_vec() } else { Vec::new() };
            let most = usize::try_from(CASES_PER_PAGE).unwrap_or(1);
            let SampleFrom { mut place, has_cases } = from;
            // Cases may have been deleted since their ids were drawn.
            while let Some(rest) = ids.get(place..).filter(|rest| !rest.is_empty()) {
                let (page, count) = reader.by_id(&rest[..rest.len().min(most)]).await?;
                place += count;
                if !page.cases.is_empty() {
                    let text = page.write(&reader, ExportFormat::Json, text, !has_cases).await?;
                    return Ok((text, Some(SampleFrom { place, has_cases: true })));
                }
            }
            Ok::<_, Problem>((end_of_sample(text, seed), None))
        };
        query(&self.app, self.org, read).await
    }

    /// The cases of an export after one of them.
    async fn export_part(&self, format: ExportFormat, after: Option<CaseId>) -> ApiResult<Part<CaseId>> {
        let reader = self.clone();
        let read = async move {
            let is_first = after.is_none();
            let mut text = if is_first { format.prologue().as_bytes().to_vec() } else { Vec::new() };
            let page = reader.after(after).await?;
            let next = page.cases.last().map(|last| last.id);
            if next.is_none() {
                text.extend_from_slice(format.epilogue().as_bytes());
            }
            Ok::<_, Problem>((page.write(&reader, format, text, is_first).await?, next))
        };
        query(&self.app, self.org, read).await
    }
}

fn end_of_sample(mut text: Vec<u8>, seed: u64) -> Bytes {
    text.extend_from_slice(format!("],\"seed\":{seed}}}").as_bytes());
    text.into()
}

fn sample_stream(
    reader: CaseReader,
    ids: Arc<[CaseId]>,
    seed: u64,
    first: Part<SampleFrom>,
) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    parts(first, move |from| {
        let (reader, ids) = (reader.clone(), Arc::clone(&ids));
        async move { reader.sample_part(&ids, from, seed).await }
    })
}

/// The parts of a response, each of which tells where the next one begins.
fn parts<T, F: Future<Output = ApiResult<Part<T>>>>(
    first: Part<T>,
    read: impl Fn(T) -> F,
) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    let (first, next) = first;
    futures_util::stream::unfold((Some(first), next, read), |(ready, next, read)| async move {
        if let Some(bytes) = ready {
            return Some((Ok(bytes), (None, next, read)));
        }
        match read(next?).await {
            Ok((bytes, next)) => Some((Ok(bytes), (None, next, read))),
            Err(problem) => Some((Err(interrupted(&problem)), (None, None, read))),
        }
    })
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
) -> ApiResult<DatasetExport> {
    let format = params.format.unwrap_or(ExportFormat::Json);
    let of = edition(&app, caller.org.id, id, params.version).await?;
    let version = params.version.map(|version| format!("-v{version}")).unwrap_or_default();
    let name = format!("dataset-{id}{version}.{}", format.extension());
    let memory = Arc::clone(&caller.org.memory);
    let reader = CaseReader { org: caller.org.id, memory, app, id, of };
    let first = reader.export_part(format, None).await?;
    let rest = parts(first, move |after| {
        let reader = reader.clone();
        async move { reader.export_part(format, Some(after)).await }
    });
    Ok(DatasetExport(Download { body: Body::from_stream(rest), content_type: format.content_type(), name }))
}

pub(super) struct DatasetExport(Download);

impl IntoResponse for DatasetExport {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

impl OperationOutput for DatasetExport {
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
