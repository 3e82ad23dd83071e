//! The rows of replays. A row is pending, done or failed. The counts of a replay are computed from its rows, so that
//! they stay correct when a replay is resumed.

use std::sync::LazyLock;

use gateway_core::replays::CallFigures;
use sqlx::AssertSqlSafe;

use super::Replay;
use crate::logs::bulk::Bulk;
use crate::row::{Row, args};
use crate::{Db, StoreError, Tx};

/// A row to replay, and what its call took.
#[derive(Debug, Clone)]
pub struct NewItem {
    pub log_id: i64,
    pub before: CallFigures,
}

/// A row of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayItem {
    pub position: i64,
    pub log_id: i64,
    pub replay_log_id: Option<i64>,
    /// `pending`, `done` or `error`.
    pub state: String,
    pub attempts: i64,
    pub error: Option<String>,
    pub before: CallFigures,
    /// None until the request was made again.
    pub after: Option<CallFigures>,
}

/// What an eval says about one answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    pub score: f64,
    pub passed: bool,
}

/// The verdicts of one eval on both answers of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayScore {
    pub position: i64,
    pub eval_id: i64,
    pub before: Option<Verdict>,
    pub after: Option<Verdict>,
    /// Why a verdict is missing.
    pub error: Option<String>,
}

/// The outcome of a row.
#[derive(Debug, Clone)]
pub enum ReplayOutcome {
    Done {
        position: i64,
        replay_log_id: i64,
        after: CallFigures,
        scores: Vec<ReplayScore>,
    },
    /// Failed, to be retried.
    Retry {
        position: i64,
        error: String,
    },
    /// Failed for good.
    Error {
        position: i64,
        error: String,
    },
}

static ITEMS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        "INSERT INTO replay_items (replay_id, position, log_id, state, attempts, before_provider, before_model, \
         before_status, before_cost, before_latency_ms, before_input_tokens, before_output_tokens)",
        "(?,?,?,'pending',0,?,?,?,?,?,?,?)",
        "",
    )
});

/// Adds the rows of a new replay.
pub async fn add_items(tx: &mut Tx, replay: i64, items: Vec<NewItem>) -> Result<(), StoreError> {
    let values = |(position, NewItem { log_id, before }): (i64, NewItem)| {
        let CallFigures { provider, model, status, cost, latency_ms, input_tokens, output_tokens } = before;
        args![
            replay,
            position,
            log_id,
            provider,
            model,
            status,
            cost,
            latency_ms,
            input_tokens,
            output_tokens
        ]
    };
    let rows: Vec<_> = (0_i64..).zip(items).map(values).collect();
    ITEMS.run(tx, rows.into_iter()).await
}

const COLUMNS: &str = "position, log_id, replay_log_id, state, attempts, error, before_provider, before_model, \
    before_status, before_cost, before_latency_ms, before_input_tokens, before_output_tokens, after_provider, \
    after_model, after_status, after_cost, after_latency_ms, after_input_tokens, after_output_tokens";

/// The rows that are to be replayed next, those with the fewest attempts first.
pub async fn pending_items(db: &Db, replay: i64, limit: i64) -> Result<Vec<ReplayItem>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM replay_items WHERE replay_id = $1 AND state = 'pending' \
         ORDER BY attempts, position LIMIT $2"
    );
    read_all(&db.all(AssertSqlSafe(sql), args![replay, limit]).await?)
}

/// Rows behind a position, in their order.
pub async fn list_items(
    db: &Db,
    replay: &Replay,
    after: i64,
    limit: i64,
) -> Result<Vec<ReplayItem>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM replay_items WHERE replay_id = $1 AND position > $2 ORDER BY position LIMIT $3"
    );
    read_all(&db.all(AssertSqlSafe(sql), args![replay.id, after, limit]).await?)
}

/// What the calls took before and after, of the rows that were replayed.
pub async fn figures(db: &Db, replay: &Replay) -> Result<Vec<(CallFigures, CallFigures)>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM replay_items WHERE replay_id = $1 AND state = 'done'");
    let items = read_all(&db.all(AssertSqlSafe(sql), args![replay.id]).await?)?;
    Ok(items.into_iter().filter_map(|item| item.after.map(|after| (item.before, after))).collect())
}

fn read_all(rows: &[Row]) -> Result<Vec<ReplayItem>, StoreError> {
    rows.iter().map(read).collect()
}

fn read(row: &Row) -> Result<ReplayItem, StoreError> {
    let after = match row.get::<Option<i64>>("after_status")? {
        None => None,
        Some(status) => Some(CallFigures {
            provider: row.get::<Option<String>>("after_provider")?.unwrap_or_default(),
            model: row.get("after_model")?,
            status,
            cost: row.get("after_cost")?,
            latency_ms: row.get::<Option<i64>>("after_latency_ms")?.unwrap_or(0),
            input_tokens: row.get("after_input_tokens")?,
            output_tokens: row.get("after_output_tokens")?,
        }),
    };
    Ok(ReplayItem {
        position: row.get("position")?,
        log_id: row.get("log_id")?,
        replay_log_id: row.get("replay_log_id")?,
        state: row.get("state")?,
        attempts: row.get("attempts")?,
        error: row.get("error")?,
        before: CallFigures {
            provider: row.get("before_provider")?,
            model: row.get("before_model")?,
            status: row.get("before_status")?,
            cost: row.get("before_cost")?,
            latency_ms: row.get("before_latency_ms")?,
            input_tokens: row.get("before_input_tokens")?,
            output_tokens: row.get("before_output_tokens")?,
        },
        after,
    })
}

/// Records the outcomes of rows. A row that is already done is not changed. False when the replay is over.
pub async fn record_outcomes(
    tx: &mut Tx,
    replay: i64,
    outcomes: Vec<ReplayOutcome>,
) -> Result<bool, StoreError> {
    let open = tx
        .exec("UPDATE replays SET status = status WHERE id = $1 AND finished_at IS NULL", args![replay])
        .await?;
    if open == 0 {
        return Ok(false);
    }
    for outcome in outcomes {
        match outcome {
            ReplayOutcome::Done { position, replay_log_id, after, scores } => {
                if done(tx, replay, (position, replay_log_id), after).await? {
                    for score in scores {
                        insert_score(tx, replay, score).await?;
                    }
                }
            }
            ReplayOutcome::Retry { position, error } => {
                failed(tx, (replay, position), "pending", error).await?;
            }
            ReplayOutcome::Error { position, error } => {
                failed(tx, (replay, position), "error", error).await?;
            }
        }
    }
    tx.exec(
        "UPDATE replays SET \
         done = (SELECT COUNT(*) FROM replay_items WHERE replay_id = $1 AND state = 'done'), \
         errors = (SELECT COUNT(*) FROM replay_items WHERE replay_id = $1 AND state = 'error'), \
         spent = (SELECT CAST(COALESCE(SUM(after_cost), 0) AS BIGINT) FROM replay_items WHERE replay_id = $1) \
         WHERE id = $1",
        args![replay],
    )
    .await?;
    Ok(true)
}

/// False if the row was done before.
async fn done(
    tx: &mut Tx,
    replay: i64,
    (position, log_id): (i64, i64),
    after: CallFigures,
) -> Result<bool, StoreError> {
    let CallFigures { provider, model, status, cost, latency_ms, input_tokens, output_tokens } = after;
    let changed = tx
        .exec(
            "UPDATE replay_items SET state = 'done', error = NULL, replay_log_id = $3, after_provider = $4, \
             after_model = $5, after_status = $6, after_cost = $7, after_latency_ms = $8, after_input_tokens = $9, \
             after_output_tokens = $10 WHERE replay_id = $1 AND position = $2 AND state = 'pending'",
            args![
                replay,
                position,
                log_id,
                provider,
                model,
                status,
                cost,
                latency_ms,
                input_tokens,
                output_tokens
            ],
        )
        .await?;
    Ok(changed == 1)
}

async fn failed(
    tx: &mut Tx,
    (replay, position): (i64, i64),
    state: &str,
    error: String,
) -> Result<(), StoreError> {
    tx.exec(
        "UPDATE replay_items SET state = $3, attempts = attempts + 1, error = $4 \
         WHERE replay_id = $1 AND position = $2 AND state = 'pending'",
        args![replay, position, state, error],
    )
    .await
    .map(|_| ())
}

async fn insert_score(tx: &mut Tx, replay: i64, score: ReplayScore) -> Result<(), StoreError> {
    let ReplayScore { position, eval_id, before, after, error } = score;
    let points = |verdict: Option<Verdict>| verdict.map(|verdict| verdict.score);
    let passed = |verdict: Option<Verdict>| verdict.map(|verdict| i64::from(verdict.passed));
    tx.exec(
        "INSERT INTO replay_scores (replay_id, position, eval_id, before_score, before_passed, after_score, \
         after_passed, error) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        args![replay, position, eval_id, points(before), passed(before), points(after), passed(after), error],
    )
    .await
    .map(|_| ())
}

/// The scores of rows from a position to another, both included, by position and eval.
pub async fn list_scores(
    db: &Db,
    replay: &Replay,
    (first, last): (i64, i64),
) -> Result<Vec<ReplayScore>, StoreError> {
    let rows = db
        .all(
            "SELECT position, eval_id, before_score, before_passed, after_score, after_passed, error \
             FROM replay_scores WHERE replay_id = $1 AND position >= $2 AND position <= $3 \
             ORDER BY position, eval_id",
            args![replay.id, first, last],
        )
        .await?;
    let verdict = |score: Option<f64>, passed: Option<i64>| {
        score.zip(passed).map(|(score, passed)| Verdict { score, passed: passed != 0 })
    };
    rows.iter()
        .map(|row| {
            Ok(ReplayScore {
                position: row.get("position")?,
                eval_id: row.get("eval_id")?,
                before: verdict(row.get("before_score")?, row.get("before_passed")?),
                after: verdict(row.get("after_score")?, row.get("after_passed")?),
                error: row.get("error")?,
            })
        })
        .collect()
}

/// The scores of one eval over all rows.
#[derive(Debug, Clone, PartialEq)]
pub struct EvalScores {
    pub eval_id: i64,
    /// Rows with a verdict on both answers. All other figures are of these.
    pub judged: i64,
    pub before_passed: i64,
    pub after_passed: i64,
    pub before_score: Option<f64>,
    pub after_score: Option<f64>,
    /// Rows that failed before and pass now, and the other way round.
    pub gained: i64,
    pub lost: i64,
}

pub async fn score_totals(db: &Db, replay: &Replay) -> Result<Vec<EvalScores>, StoreError> {
    let rows = db
        .all(
            "SELECT eval_id, COUNT(*) AS judged, CAST(SUM(before_passed) AS BIGINT) AS before_passed, \
             CAST(SUM(after_passed) AS BIGINT) AS after_passed, AVG(before_score) AS before_score, \
             AVG(after_score) AS after_score, \
             COUNT(CASE WHEN before_passed = 0 AND after_passed = 1 THEN 1 END) AS gained, \
             COUNT(CASE WHEN before_passed = 1 AND after_passed = 0 THEN 1 END) AS lost \
             FROM replay_scores WHERE replay_id = $1 AND before_passed IS NOT NULL AND after_passed IS NOT NULL \
             GROUP BY eval_id ORDER BY eval_id",
            args![replay.id],
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(EvalScores {
                eval_id: row.get("eval_id")?,
                judged: row.get("judged")?,
                before_passed: row.get("before_passed")?,
                after_passed: row.get("after_passed")?,
                before_score: row.get("before_score")?,
                after_score: row.get("after_score")?,
                gained: row.get("gained")?,
                lost: row.get("lost")?,
            })
        })
        .collect()
}
