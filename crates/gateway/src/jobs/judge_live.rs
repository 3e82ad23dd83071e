//! Judges rows of live traffic that were drawn. A row that was judged before is passed over, so a job that is done
//! again asks no model twice.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::evaluators::{Evaluator, Subject};
use gateway_core::logs::LogRow;
use gateway_store::evals::{self as store, NewEvalResult};
use gateway_store::{StoreError, logs};
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use super::export_verdicts::{self, ExportVerdicts};
use super::{Context, Done, Failure, Job};
use crate::evals::{self, NoVerdict};

#[derive(Debug, Serialize, Deserialize)]
pub struct JudgeLive(pub Vec<Rows>);

#[derive(Debug, Serialize, Deserialize)]
pub struct Rows {
    pub eval: i64,
    pub log_ids: Vec<i64>,
}

/// Verdicts are kept as soon as there are so many, so that little is lost.
const AT_ONCE: usize = 50;
const PAUSE: Duration = Duration::from_secs(1);

impl Job for JudgeLive {
    const NAME: &'static str = "judge_live";
    const SLOTS: usize = 4;
    const PER_ORG: i64 = 2;
    const ATTEMPTS: i64 = 6;

    async fn run(&self, context: &Context<'_>) -> Result<Done, Failure> {
        for rows in &self.0 {
            let done = judge(context, rows).await?;
            if done != Done::Finished {
                return Ok(done);
            }
        }
        Ok(Done::Finished)
    }

    async fn give_up(&self, _: &Context<'_>, _: &str) -> Result<(), StoreError> {
        Ok(())
    }
}

async fn judge(context: &Context<'_>, rows: &Rows) -> Result<Done, Failure> {
    let (app, org) = (context.app, context.org);
    let Some(eval) = store::find(&app.services.db, org, rows.eval).await? else { return Ok(Done::Finished) };
    let Some(identity) = app.proxy.access.org_identity(org).await? else { return Ok(Done::Finished) };
    if !eval.enabled || eval.sample_rate <= 0.0 {
        return Ok(Done::Finished);
    }
    let Ok(evaluator) = Evaluator::parse(eval.kind.as_str(), &eval.evaluator, &eval.config) else {
        return Ok(Done::Finished);
    };
    let judged = store::live_judged_ids(&app.services.db, eval.id, &rows.log_ids).await?;
    let left: Vec<i64> = rows.log_ids.iter().copied().filter(|id| !judged.contains(id)).collect();
    let metadata = Map::from_iter([("eval_id".to_owned(), json!(eval.id))]);
    let mut again = None;
    for ids in left.chunks(AT_ONCE) {
        if export_verdicts::is_behind(app).await? {
            return Ok(Done::Later(PAUSE));
        }
        let mut results = Vec::new();
        let mut wait = None;
        for row in logs::find_many(&app.services.logs, org, ids, true).await? {
            let subject = subject(&evaluator, row).await?;
            match evals::judge(app, &identity, &evaluator, &subject.0, &metadata).await {
                Ok(verdict) => results.push(NewEvalResult {
                    id: app.services.ids.next_row_id(),
                    position: 0,
                    log_id: Some(subject.1),
                    case_id: None,
                    score: verdict.score,
                    passed: verdict.passed,
                    details: verdict.details,
                }),
                Err(NoVerdict::Wait(until)) => {
                    wait = Some(until);
                    break;
                }
                Err(NoVerdict::Again(why)) => again = Some(why),
                Err(NoVerdict::Never(why)) => {
                    tracing::debug!(why, eval = eval.id, log = subject.1, "a row cannot be judged");
                }
            }
        }
        let told = ExportVerdicts {
            results: results.iter().map(|result| result.id).collect(),
            ..Default::default()
        };
        let told = told.wanted(app, org).await?;
        let mut tx = app.services.db.begin().await?;
        store::insert_live_results(&mut tx, org, eval.id, results, app.services.clock.now()).await?;
        let queued = export_verdicts::enqueue(app, &mut tx, org, told.as_ref()).await?;
        tx.commit().await?;
        if let Some(queued) = queued {
            queued.committed(app);
        }
        if let Some(wait) = wait {
            return Ok(Done::Later(wait));
        }
        if app.services.tasks.is_stopping() {
            return Ok(Done::Later(Duration::ZERO));
        }
    }
    again.map_or(Ok(Done::Finished), |why| Err(Failure(why)))
}

/// Bodies can be long: they are looked through where nobody waits for the thread.
async fn subject(evaluator: &Evaluator, row: LogRow) -> Result<(Subject, i64), Failure> {
    let (field, id) = (evaluator.field.clone(), row.id);
    let row = Arc::new(row);
    let subject = tokio::task::spawn_blocking(move || Subject::from_row(&field, &row)).await;
    subject.map(|subject| (subject, id)).map_err(|error| Failure(error.to_string()))
}
