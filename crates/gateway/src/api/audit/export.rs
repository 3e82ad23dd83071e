//! Export of the audit log as a stream: entries in one of five formats, and for JSON lines a signed manifest at the end.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gateway_core::audit::Chain;
use gateway_core::audit::chain::Position;
use gateway_core::audit::checkpoint::{Checkpoint, Manifest};
use gateway_core::audit::formats::{Exported, csv_header};
use gateway_core::ids::OrgId;
use gateway_core::time::Timestamp;
use gateway_store::StoreError;
use gateway_store::audit::{self, Entries, Filter, Stored};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Auditor, query};
use crate::api::caller::AppState;
use crate::api::downloads::Download;
use crate::api::extract::QueryParams;
use crate::api::openapi::{Operation, OperationOutput};
use crate::app::App;
use crate::audit::signing::SigningKey;
use crate::memory::{MemoryAccount, hold};
use crate::problem::ApiResult;

const PAGE: i64 = 500;

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Format {
    #[default]
    Jsonl,
    Ocsf,
    Ecs,
    Csv,
    Syslog,
}

impl Format {
    fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Jsonl => ("application/x-ndjson", "jsonl"),
            Self::Ocsf => ("application/x-ndjson", "ocsf.jsonl"),
            Self::Ecs => ("application/x-ndjson", "ecs.jsonl"),
            Self::Csv => ("text/csv; charset=utf-8", "csv"),
            Self::Syslog => ("text/plain; charset=utf-8", "log"),
        }
    }

    fn write(self, out: &mut Vec<u8>, org_id: &str, Stored { entry, hash }: &Stored) {
        let exported = Exported { org_id, entry, hash };
        let line = match self {
            Self::Jsonl => exported.jsonl().to_string(),
            Self::Ocsf => exported.ocsf().to_string(),
            Self::Ecs => exported.ecs().to_string(),
            Self::Syslog => exported.syslog(),
            Self::Csv => {
                out.extend_from_slice(&exported.csv());
                return;
            }
        };
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
}

#[derive(Deserialize, JsonSchema)]
pub struct ExportParams {
    /// Default: `jsonl`.
    format: Option<Format>,
    from: Option<Timestamp>,
    /// Exclusive.
    to: Option<Timestamp>,
}

pub async fn export(
    State(app): AppState,
    auditor: Auditor,
    QueryParams(params): QueryParams<ExportParams>,
) -> ApiResult<AuditExport> {
    let (db, chain) = (&app.services.db, auditor.chain());
    let format = params.format.unwrap_or_default();
    let start = audit::start(db, chain).await?;
    let head = audit::head(db, chain).await?.map_or(0, |head| head.seq);
    // Whole ranges only: an entry that is left out would break the chain.
    let after = match params.from {
        Some(from) => audit::first_since(db, chain, from).await?.map_or(head, |seq| seq - 1),
        None => start.seq,
    };
    let upto = match params.to {
        Some(to) => audit::first_since(db, chain, to).await?.map_or(head, |seq| seq - 1),
        None => head,
    };
    auditor.record_read(&app, "audit.export");
    let (content_type, extension) = format.name();
    let name = format!("audit-{}.{extension}", auditor.org());
    let position = if after == start.seq { Some(start) } else { audit::position(db, chain, after).await? };
    let reader = Reader {
        account: app.services.memory.account(auditor.org()),
        app,
        org: auditor.org(),
        format,
        upto: upto.max(after),
        first: position.clone(),
        position: position.unwrap_or(Position { seq: after, hash: String::new() }),
        state: Stage::Begin,
    };
    let stream = futures_util::stream::unfold(reader, |mut reader| async move {
        reader.next().await.map(|bytes| (bytes, reader))
    });
    Ok(AuditExport(Download { body: Body::from_stream(stream), content_type, name }))
}

enum Stage {
    Begin,
    Entries,
    End,
}

struct Reader {
    app: Arc<App>,
    account: Arc<MemoryAccount>,
    org: OrgId,
    format: Format,
    upto: i64,
    /// Before the first entry.
    first: Option<Position>,
    position: Position,
    state: Stage,
}

impl Reader {
    async fn next(&mut self) -> Option<Result<Bytes, StoreError>> {
        let mut out = Vec::new();
        match self.state {
            Stage::End => return None,
            Stage::Begin => {
                self.state = Stage::Entries;
                if self.format == Format::Csv {
                    out.extend_from_slice(&csv_header());
                }
            }
            Stage::Entries => {}
        }
        if let Err(error) = self.page(&mut out).await {
            self.state = Stage::End;
            return Some(Err(error));
        }
        // Counted until the client has taken it.
        let mut memory = self.account.open();
        memory.charge(out.len());
        Some(Ok(hold(out, memory)))
    }

    async fn page(&mut self, out: &mut Vec<u8>) -> Result<(), StoreError> {
        let (app, chain, range) =
            (Arc::clone(&self.app), Chain::Org(self.org), (self.position.seq, self.upto));
        let read =
            async move { audit::since(&app.services.db, chain, &Filter::default(), range, PAGE).await };
        let Entries { found, bytes, .. } = query(&self.app, self.org, read).await?;
        let mut memory = self.account.open();
        memory.charge(bytes);
        let org_id = chain.to_string();
        for stored in &found {
            self.format.write(out, &org_id, stored);
        }
        if let Some(last) = found.last() {
            self.position = Position { seq: last.entry.seq, hash: last.hash.clone() };
            return Ok(());
        }
        self.state = Stage::End;
        if self.format == Format::Jsonl { self.manifest(out, org_id).await } else { Ok(()) }
    }

    async fn manifest(&self, out: &mut Vec<u8>, org_id: String) -> Result<(), StoreError> {
        let Some(first) = &self.first else { return Ok(()) };
        let Position { seq, hash } = self.position.clone();
        let at = self.app.services.clock.now();
        let checkpoint = Checkpoint { org_id: org_id.clone(), seq, hash: hash.clone(), at };
        let app = Arc::clone(&self.app);
        let runtime = &self.app.services.tasks.runtime;
        let signing = runtime.spawn(async move {
            Ok::<_, StoreError>(SigningKey::load(&app.services).await?.sign(checkpoint))
        });
        let signed = signing.await.map_err(|error| StoreError::Other(error.to_string()))??;
        let manifest = Manifest {
            org_id,
            from_seq: first.seq + 1,
            to_seq: seq,
            entries: seq - first.seq,
            first_prev_hash: first.hash.clone(),
            last_hash: hash,
            checkpoint: signed.checkpoint,
            signature: signed.signature,
            key_id: signed.key_id,
        };
        out.extend_from_slice(json!({"manifest": manifest}).to_string().as_bytes());
        out.push(b'\n');
        Ok(())
    }
}

pub struct AuditExport(Download);

impl IntoResponse for AuditExport {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

impl OperationOutput for AuditExport {
    fn describe(operation: &mut Operation<'_>) {
        operation.responses.push((
            200,
            json!({
                "description": "The entries, oldest first, one per line. `jsonl` ends with a line `{\"manifest\": …}` that has the range, the hashes and a signed checkpoint of the last entry",
                "content": {
                    "application/x-ndjson": {"schema": {"type": "string"}},
                    "text/csv": {"schema": {"type": "string"}},
                    "text/plain": {"schema": {"type": "string"}},
                },
            }),
        ));
    }
}
