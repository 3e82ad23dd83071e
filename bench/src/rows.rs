//! What it costs to store log rows, in the store alone: CPU per row, rows per second and bytes on disk, for ordinary texts
//! and for the short text of the other scenarios.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use gateway_core::ids::{AppId, KeyId, OrgId};
use gateway_core::logs::{Attempt, BodyStorage, LogRow, LogSource, Tokens, first_log_id};
use gateway_core::time::{DAY, Timestamp};
use gateway_store::logs::{self, BatchLimits, BatchTexts};
use gateway_store::{Db, Part};
use rust_decimal::Decimal;
use uuid::Uuid;

use crate::cli::{CorpusChoice, RowsOptions};
use crate::corpus::{Corpus, Exchange};
use crate::error::{BenchError, BenchResult, Context as _, StopFlag};
use crate::process::TempDir;
use crate::procfs::{self, CpuSample};
use crate::responses::plain_body;

/// Rows that are made before one measurement, so that making them is not part of it.
const MADE_AT_ONCE: usize = 4_000;
const ORGS: u64 = 3;
const KEYS: u64 = 20;
const NODE_BITS: u32 = 7;
/// Milliseconds between two rows.
const STEP: i64 = 1;
const NOW: i64 = 1_790_000_000_000;
/// Rows of different texts are this far apart, so that both can be stored in one database.
const BETWEEN_TEXTS: i64 = 90 * DAY;

/// Prints the figures. Returns whether the targets are met, or need not be.
pub(crate) fn run(options: &RowsOptions, stop: &StopFlag) -> BenchResult<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let parent = options.work_dir.clone().unwrap_or_else(std::env::temp_dir);
    println!(
        "{:<10} {:<9} {:>5} {:>6} {:>9} {:>9} {:>9} {:>9}",
        "database", "texts", "nodes", "batch", "us/row", "server", "rows/s", "bytes"
    );
    if let Some(url) = &options.postgres {
        runtime.block_on(check_empty(&Database::Postgres(url)))?;
    }
    let mut is_met = true;
    for choice in options.texts() {
        let folder = TempDir::create(&parent)?;
        let database = Database::of(options.postgres.as_deref(), folder.path());
        let figures = runtime.block_on(measure(options, &database, choice, stop))?;
        println!("{}", figures.line(options, &database, choice));
        is_met &= figures.client_us + figures.server_us <= database.most_us(choice);
    }
    Ok(is_met || !options.strict)
}

/// Rows that are stored already would be skipped, and cost next to nothing.
async fn check_empty(database: &Database<'_>) -> BenchResult<()> {
    let logs = database.open().await?;
    let found = logs.opt("SELECT 1 AS found FROM log_rows LIMIT 1", Vec::new()).await;
    logs.close().await;
    match found.context("looking for rows")? {
        Some(_) => Err(BenchError::new("the database has log rows already; create an empty one and name it")),
        None => Ok(()),
    }
}

pub(crate) enum Database<'a> {
    Sqlite(&'a Path),
    Postgres(&'a str),
}

impl<'a> Database<'a> {
    pub(crate) fn of(postgres: Option<&'a str>, folder: &'a Path) -> Self {
        match postgres {
            Some(url) => Self::Postgres(url),
            None => Self::Sqlite(folder),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "SQLite",
            Self::Postgres(_) => "PostgreSQL",
        }
    }

    /// The target: microseconds of CPU per row, of the server too.
    fn most_us(&self, choice: CorpusChoice) -> f64 {
        match (self, choice) {
            (Self::Postgres(_), _) => 60.0,
            (Self::Sqlite(_), CorpusChoice::Ordinary) => 30.0,
            (Self::Sqlite(_), CorpusChoice::Short) => 20.0,
        }
    }

    pub(crate) async fn open(&self) -> BenchResult<Db> {
        let url = match self {
            Self::Sqlite(folder) => format!("sqlite://{}/rows.db", folder.display()),
            Self::Postgres(url) => (*url).to_owned(),
        };
        let state = Db::open(&url).await.context("opening the database")?;
        let logs = state.open_logs().await.context("opening the database of the log")?;
        logs.migrate(Part::Logs, Timestamp(0)).await.context("migrating")?;
        Ok(logs)
    }

    async fn bytes(&self, logs: &Db) -> BenchResult<f64> {
        match self {
            Self::Sqlite(folder) => {
                let files = std::fs::read_dir(folder)?.flatten();
                Ok(files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum::<u64>() as f64)
            }
            Self::Postgres(_) => {
                let sql = "SELECT CAST(pg_database_size(current_database()) AS BIGINT) AS bytes";
                let row = logs.opt(sql, Vec::new()).await.context("reading the size")?;
                let bytes: i64 = row.map_or(Ok(0), |row| row.get("bytes")).context("reading the size")?;
                Ok(bytes as f64)
            }
        }
    }

    /// The processes of the server: those of this database's postmaster.
    async fn server(&self, logs: &Db) -> BenchResult<Vec<u32>> {
        let Self::Postgres(_) = self else { return Ok(Vec::new()) };
        let sql = "SELECT CAST(pg_backend_pid() AS BIGINT) AS pid";
        let row = logs.opt(sql, Vec::new()).await.context("finding the server")?;
        let pid: i64 = row.map_or(Ok(0), |row| row.get("pid")).context("finding the server")?;
        let pid = u32::try_from(pid).context("finding the server")?;
        Ok(procfs::parent(pid).map(procfs::tree).unwrap_or_default())
    }
}

struct Figures {
    client_us: f64,
    server_us: f64,
    rate: f64,
    bytes: f64,
}

impl Figures {
    fn line(&self, options: &RowsOptions, database: &Database<'_>, choice: CorpusChoice) -> String {
        format!(
            "{:<10} {:<9} {:>5} {:>6} {:>9.1} {:>9.1} {:>9.0} {:>9.0}",
            database.name(),
            choice.name(),
            options.nodes,
            options.batch,
            self.client_us,
            self.server_us,
            self.rate,
            self.bytes
        )
    }
}

/// CPU that was used while rows were stored.
#[derive(Default)]
struct Used {
    client_us: f64,
    server_us: f64,
    seconds: f64,
}

async fn measure(
    options: &RowsOptions,
    database: &Database<'_>,
    choice: CorpusChoice,
    stop: &StopFlag,
) -> BenchResult<Figures> {
    let first = database.open().await?;
    let empty = database.bytes(&first).await?;
    let mut nodes = vec![first];
    while nodes.len() < options.nodes {
        nodes.push(database.open().await?);
    }
    let mut sources: Vec<Source> =
        (0_u64..).take(nodes.len()).map(|node| Source::new(node, choice)).collect();
    let (mut used, mut stored) = (Used::default(), 0);
    while stored < options.rows {
        stop.check()?;
        let made: Vec<Vec<LogRow>> = sources.iter_mut().map(|source| source.rows(MADE_AT_ONCE)).collect();
        stored += made.iter().map(Vec::len).sum::<usize>();
        let server = database.server(&nodes[0]).await?;
        let meter = Meter::start(&server);
        store(&nodes, made, options.batch).await?;
        meter.add_to(&mut used, &server);
    }
    let server = database.server(&nodes[0]).await?;
    let meter = Meter::start(&server);
    while logs::merge_runs(&nodes[0]).await.context("merging")? {
        stop.check()?;
    }
    meter.add_to(&mut used, &server);
    let bytes = (database.bytes(&nodes[0]).await? - empty) / stored as f64;
    for node in nodes {
        node.close().await;
    }
    let rows = stored as f64;
    Ok(Figures {
        client_us: used.client_us / rows,
        server_us: used.server_us / rows,
        rate: rows / used.seconds,
        bytes,
    })
}

/// Stores the rows of each node at the same time.
pub(crate) async fn store(nodes: &[Db], made: Vec<Vec<LogRow>>, batch: usize) -> BenchResult<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for (node, rows) in nodes.iter().cloned().zip(made) {
        tasks.spawn(async move {
            let rows = Arc::new(rows);
            for batch in rows.chunks(batch.max(1)) {
                let texts = BatchTexts::of(batch);
                logs::write_prepared(&node, batch, texts, &BatchLimits::default())
                    .await
                    .context("storing rows")?;
            }
            BenchResult::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.map_err(|error| BenchError::new(error.to_string()))??;
    }
    Ok(())
}

struct Meter {
    started: Instant,
    client: CpuSample,
    server: CpuSample,
}

impl Meter {
    fn start(server: &[u32]) -> Self {
        let client = procfs::cpu(&[std::process::id()]);
        Self { server: procfs::cpu(server), client, started: Instant::now() }
    }

    fn add_to(self, used: &mut Used, server: &[u32]) {
        used.seconds += self.started.elapsed().as_secs_f64();
        used.client_us += procfs::cpu_between(&self.client, &procfs::cpu(&[std::process::id()]));
        used.server_us += procfs::cpu_between(&self.server, &procfs::cpu(server));
    }
}

/// The rows of one node.
pub(crate) struct Source {
    node: u64,
    choice: CorpusChoice,
    corpus: Corpus,
    made: i64,
}

impl Source {
    pub(crate) fn new(node: u64, choice: CorpusChoice) -> Self {
        Self { node, choice, corpus: Corpus::new(node + 1), made: 0 }
    }

    pub(crate) fn rows(&mut self, count: usize) -> Vec<LogRow> {
        (0..count).map(|_| self.row()).collect()
    }

    fn row(&mut self) -> LogRow {
        self.made += 1;
        let number = self.made.unsigned_abs();
        let exchange = match self.choice {
            CorpusChoice::Ordinary => self.corpus.next(),
            CorpusChoice::Short => short(number),
        };
        let start = match self.choice {
            CorpusChoice::Ordinary => NOW,
            CorpusChoice::Short => NOW + BETWEEN_TEXTS,
        };
        let at = Timestamp(start + self.made * STEP);
        let id = first_log_id(at) | i64::try_from(self.node).unwrap_or_default() << NODE_BITS;
        let key = exchange.conversation % KEYS;
        let latency_ms = 400 + self.made % 900;
        LogRow {
            request_id: uuid(9, number << 8 | self.node).to_string(),
            provider: "openai".into(),
            provider_format: Some(gateway_core::llm::ProviderFormat::OpenAi),
            model: Some("gpt-4o-mini".into()),
            path: "/v1/chat/completions".into(),
            status: if self.made % 500 == 0 { 500 } else { 200 },
            latency_ms,
            tokens: Some(Tokens { prompt: 540, completion: 60, ..Tokens::default() }),
            cost_usd: Some(Decimal::new(117, 6)),
            attempts: vec![Attempt {
                provider: "openai".into(),
                model: Some("gpt-4o-mini".into()),
                status: Some(200),
                start_ms: 1,
                ttft_ms: None,
                latency_ms: latency_ms - 1,
                error: None,
            }],
            key_id: Some(KeyId(uuid(2, key))),
            app_id: Some(AppId(uuid(3, key % 5))),
            user: Some(format!("user-{}", exchange.user)),
            session_id: Some(format!("conversation-{}", exchange.conversation)),
            request_stored: BodyStorage::Full,
            response_stored: BodyStorage::Full,
            request: exchange.request.into_bytes(),
            response: exchange.response.into_bytes(),
            ..LogRow::new(id, OrgId(uuid(1, key % ORGS)), at, LogSource::Proxy)
        }
    }
}

/// The request of the other scenarios.
fn short(number: u64) -> Exchange {
    let request = crate::request::chat_body(2048, crate::responses::ResponseScript::default());
    let request = request.replace("request-number-00000000", &format!("request-number-{number:08}"));
    Exchange { conversation: number / 8, user: number % 50, request, response: plain_body() }
}

fn uuid(kind: u64, number: u64) -> Uuid {
    Uuid::from_u64_pair(0x0192_f0c1_0000_7000 + (kind << 16), 0x8000_0000_0000_0000 | number)
}
