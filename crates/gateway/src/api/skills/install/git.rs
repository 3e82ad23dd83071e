//! Git over HTTP: the list of branches and the packs. Clones, shallow clones and pulls work with an unchanged git.

use std::time::Duration;

use gateway_core::git::{
    FetchRequest, History, ObjectKind, Oid, ProtocolError, advertisement, negotiation, pack, pack_answer,
};
use gateway_store::skills::install_trees;

use super::request::{FetchHead, UploadBody};
use super::serve::{FetchKind, TreeAnswer, record};
use super::tree::TreeContext;
use crate::compute::{Cancellation, WaitLimits};
use crate::memory::hold;
use crate::problem::{ApiResult, Problem};

/// How long the parsing of a large request may wait for a thread, and take.
const PARSE_TIMEOUT: Duration = Duration::from_secs(10);
const RESULT: &str = "application/x-git-upload-pack-result";

/// A request below the repository.
pub(super) struct GitRequest<'a> {
    pub below: &'a str,
    pub head: &'a FetchHead,
    pub body: UploadBody,
}

/// The list of branches. Only reading is served, and only with the protocol that sends packs.
pub(super) async fn advertise(
    context: &TreeContext<'_>,
    below: &str,
    head: &FetchHead,
) -> ApiResult<TreeAnswer> {
    if below != "/info/refs" {
        return Err(Problem::not_found());
    }
    if !head.query.split('&').any(|pair| pair == "service=git-upload-pack") {
        return Err(Problem::forbidden("the repository can only be read; use git clone, fetch or pull"));
    }
    let tree = context.current().await?;
    let commit = tree.head.ok_or_else(|| Problem::internal("the repository has no commit"))?;
    Ok(TreeAnswer {
        content_type: "application/x-git-upload-pack-advertisement",
        body: advertisement(commit).into(),
    })
}

pub(super) async fn upload_pack(context: &TreeContext<'_>, request: GitRequest<'_>) -> ApiResult<TreeAnswer> {
    let GitRequest { below, head, body: UploadBody(body) } = request;
    if below != "/git-upload-pack" {
        return Err(Problem::not_found());
    }
    let (compute, bytes) = (&context.app.services.compute, body.len());
    let parsing = move || FetchRequest::parse(&body);
    let fetch = match compute.run_for_body(context.org, bytes, PARSE_TIMEOUT, parsing).await? {
        Ok(fetch) => fetch,
        Err(error) => return Ok(refusal(&error)),
    };
    let (db, key) = (&context.app.services.db, context.tree_key());
    let memory = context.reserve(install_trees::history_bytes(db, key).await?)?;
    let objects = install_trees::history(db, key).await?;
    let blobs: Vec<Oid> = install_trees::object_ids(db, key)
        .await?
        .into_iter()
        .filter(|(_, kind)| *kind == ObjectKind::Blob)
        .map(|(oid, _)| oid)
        .collect();
    let asked = fetch.clone();
    let planning = move |cancellation: &Cancellation| {
        let _memory = memory;
        let history = History::new(&objects, blobs)?;
        if cancellation.is_cancelled() {
            return Err(ProtocolError("the request took too long; try again later".into()));
        }
        history.plan(&asked)
    };
    let planned = context.app.services.compute.run(context.org, WaitLimits::REQUEST, planning).await?;
    let plan = match planned {
        Ok(plan) => plan,
        Err(error) => return Ok(refusal(&error)),
    };
    if !fetch.is_done {
        return Ok(TreeAnswer { content_type: RESULT, body: negotiation(&fetch, &plan).into() });
    }
    record(context, FetchKind::Git, head).await?;
    let bytes = install_trees::objects_bytes(db, key, &plan.objects).await?;
    // The objects, the pack and the answer.
    let mut memory = context.reserve(bytes.saturating_mul(3))?;
    let objects = install_trees::objects(db, key, &plan.objects).await?;
    let packing = move |_: &Cancellation| {
        let answer = pack_answer(&fetch, &plan, &pack(&objects));
        drop(objects);
        memory.shrink_to(answer.len());
        hold(answer, memory)
    };
    let body = context.app.services.compute.run(context.org, WaitLimits::REQUEST, packing).await?;
    Ok(TreeAnswer { content_type: RESULT, body })
}

/// Git shows the text of such a line to its user.
fn refusal(error: &ProtocolError) -> TreeAnswer {
    let text = format!("ERR {error}");
    TreeAnswer { content_type: RESULT, body: format!("{:04x}{text}", text.len() + 4).into() }
}
