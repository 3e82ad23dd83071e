//! Command line options. The hidden subcommands are the other processes.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::pinning::PinChoice;

#[derive(Parser)]
#[command(name = "gateway-bench", about = "Measures the gateway beside nginx, in front of the same upstream")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) part: Option<ProcessRole>,
    #[command(flatten)]
    pub(crate) options: Options,
}

#[derive(Subcommand)]
pub(crate) enum ProcessRole {
    /// One hostile organization attacks while another one sends ordinary traffic
    Siege(SiegeOptions),
    /// Instructions per request, counted by callgrind, which needs valgrind and a binary with symbols
    Instructions(InstructionsOptions),
    /// What an audit entry costs on SQLite, and how fast a chain is verified
    Audit(AuditOptions),
    /// What it costs to store log rows: CPU, rows per second and bytes on disk
    Rows(RowsOptions),
    /// How long the queries of the log take on many rows
    Queries(QueriesOptions),
    #[command(hide = true)]
    Attack(AttackOptions),
    #[command(hide = true)]
    Upstream(UpstreamOptions),
    #[command(hide = true)]
    Load(LoadOptions),
}

#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Path of the gateway binary, which must be built already
    #[arg(long, default_value = "target/dist/gateway")]
    pub(crate) gateway: PathBuf,
    /// Scenarios to run, by letter, for example a,c
    #[arg(long, value_delimiter = ',', value_name = "LETTERS")]
    pub(crate) only: Vec<String>,
    /// Short measurements: rough figures in about 40 seconds
    #[arg(long)]
    pub(crate) quick: bool,
    /// A million requests in the memory scenario
    #[arg(long)]
    pub(crate) full: bool,
    /// Length of one measurement [default: 1.5, quick 1]
    #[arg(long)]
    pub(crate) seconds: Option<f64>,
    /// Interleaved rounds per scenario; an even number cancels drift [default: 6, quick 2]
    #[arg(long)]
    pub(crate) rounds: Option<usize>,
    /// Connections of the load generator at saturation
    #[arg(long, default_value_t = 32)]
    pub(crate) connections: usize,
    /// Requests per second in the fixed-rate scenario
    #[arg(long, default_value_t = 2000)]
    pub(crate) rate: u32,
    /// Streams per second in the stream scenario
    #[arg(long, default_value_t = 200)]
    pub(crate) stream_rate: u32,
    /// Chunks per stream
    #[arg(long, default_value_t = 50)]
    pub(crate) chunks: u32,
    /// Pause between the chunks of a stream, in milliseconds
    #[arg(long, default_value_t = 5)]
    pub(crate) chunk_gap_ms: u32,
    /// Idle streams held open in the memory scenario [default: 1000, quick 300]
    #[arg(long)]
    pub(crate) streams: Option<usize>,
    /// Requests before memory is measured again [default: 200000, quick 20000, full 1000000]
    #[arg(long)]
    pub(crate) requests: Option<u64>,
    /// CPUs of the proxy under test, and worker processes of nginx
    #[arg(long, default_value_t = 1)]
    pub(crate) workers: usize,
    /// Measure the gateway alone, without ratios
    #[arg(long)]
    pub(crate) no_nginx: bool,
    /// CPUs of proxy, upstream and client: auto, off, or lists such as 0:1:2 or 0-1:2:3
    #[arg(long, default_value = "auto")]
    pub(crate) pin: PinChoice,
    /// Before each measurement, wait up to this many seconds for other programs to be quiet
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) calm: u64,
    /// Additional setting of the gateway, for example GATEWAY_LOG_BODIES=false
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) gateway_env: Vec<String>,
    /// Directory for databases and configurations, on the disk to be measured [default: the system's]
    #[arg(long)]
    pub(crate) work_dir: Option<PathBuf>,
    /// Write everything as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Append a short section to a history file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "bench/HISTORY.md")]
    pub(crate) history: Option<PathBuf>,
    /// Exit with status 2 when a target is missed
    #[arg(long)]
    pub(crate) strict: bool,
    /// Give up after this many seconds
    #[arg(long, default_value_t = 900)]
    pub(crate) max_seconds: u64,
}

#[derive(Args, Clone)]
pub(crate) struct SiegeOptions {
    /// Path of the gateway binary, which must be built already
    #[arg(long, default_value = "target/dist/gateway")]
    pub(crate) gateway: PathBuf,
    /// Length of the attack
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// Length of the ordinary traffic before it
    #[arg(long, default_value_t = 20)]
    pub(crate) baseline_seconds: u64,
    /// Also measure on this PostgreSQL database, which must be empty
    #[arg(long)]
    pub(crate) postgres: Option<String>,
    /// Attacks to run, by name [default: all]
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Memory budget of the gateway in MiB
    #[arg(long, default_value_t = 256)]
    pub(crate) memory_mib: u64,
    /// Exit with status 2 when a target is missed
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Args, Clone)]
pub(crate) struct InstructionsOptions {
    /// Path of the gateway binary, built with symbols
    #[arg(long, default_value = "target/profiling/gateway")]
    pub(crate) gateway: PathBuf,
    /// Requests that are counted of each kind
    #[arg(long, default_value_t = 300)]
    pub(crate) requests: u32,
    /// Kinds of requests, by number [default: all]
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<usize>,
    /// Functions to list for each kind of request, by their own instructions
    #[arg(long, default_value_t = 0)]
    pub(crate) functions: usize,
    /// Directory for callgrind's files, which callgrind_annotate and kcachegrind read [default: not kept]
    #[arg(long)]
    pub(crate) keep: Option<PathBuf>,
    /// Exit with status 2 when a target is missed
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Args, Clone)]
pub(crate) struct AuditOptions {
    /// Entries of the chain that is verified
    #[arg(long, default_value_t = 200_000)]
    pub(crate) entries: u32,
    /// Directory for the database, on the disk to be measured [default: the system's]
    #[arg(long)]
    pub(crate) work_dir: Option<PathBuf>,
    /// Exit with status 2 when a target is missed
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Args, Clone)]
pub(crate) struct RowsOptions {
    /// Rows to store
    #[arg(long, default_value_t = 40_000)]
    pub(crate) rows: usize,
    /// Rows in one transaction; the gateway stores 1,000 under load and indexes their words later
    #[arg(long, default_value_t = 1_000)]
    pub(crate) batch: usize,
    /// Nodes that store rows at the same time (PostgreSQL)
    #[arg(long, default_value_t = 1)]
    pub(crate) nodes: usize,
    /// Only these texts
    #[arg(long)]
    pub(crate) texts: Option<CorpusChoice>,
    /// Measure on this PostgreSQL database, which must be empty and on this machine
    #[arg(long)]
    pub(crate) postgres: Option<String>,
    /// Directory for the database, on the disk to be measured [default: the system's]
    #[arg(long)]
    pub(crate) work_dir: Option<PathBuf>,
    /// Exit with status 2 when a target is missed
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Args, Clone)]
pub(crate) struct QueriesOptions {
    /// Rows to store first
    #[arg(long, default_value_t = 200_000)]
    pub(crate) rows: usize,
    /// How often each query is asked
    #[arg(long, default_value_t = 100)]
    pub(crate) repeats: usize,
    /// Measure on this PostgreSQL database, which must be empty
    #[arg(long)]
    pub(crate) postgres: Option<String>,
    /// Directory for the database, on the disk to be measured [default: the system's]
    #[arg(long)]
    pub(crate) work_dir: Option<PathBuf>,
    /// Exit with status 2 when a target is missed
    #[arg(long)]
    pub(crate) strict: bool,
}

impl RowsOptions {
    pub(crate) fn texts(&self) -> Vec<CorpusChoice> {
        self.texts.map_or_else(|| vec![CorpusChoice::Short, CorpusChoice::Ordinary], |one| vec![one])
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CorpusChoice {
    /// One sentence, repeated: few distinct words
    Short,
    /// Conversations with ordinary language, code, JSON and other scripts
    Ordinary,
}

impl CorpusChoice {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Ordinary => "ordinary",
        }
    }
}

#[derive(Args)]
pub(crate) struct AttackOptions {
    #[arg(long)]
    pub(crate) addr: SocketAddr,
    #[arg(long)]
    pub(crate) key: String,
    #[arg(long)]
    pub(crate) org: String,
    #[arg(long)]
    pub(crate) seconds: u64,
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
}

#[derive(Args)]
pub(crate) struct UpstreamOptions {
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// Directory with the certificate of its ports with TLS
    #[arg(long)]
    pub(crate) tls: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct LoadOptions {
    #[arg(long)]
    pub(crate) addr: SocketAddr,
    /// File with the raw request; several in blocks mode
    #[arg(long, required = true)]
    pub(crate) request: Vec<PathBuf>,
    /// Accepted lengths of a decoded response body
    #[arg(long)]
    pub(crate) accept_length: Vec<u64>,
    #[arg(long)]
    pub(crate) mode: LoadMode,
    #[arg(long)]
    pub(crate) connections: usize,
    /// Open mode: requests per second
    #[arg(long, default_value_t = 1)]
    pub(crate) rate: u32,
    /// Count mode: requests to make; blocks mode: requests of one block
    #[arg(long, default_value_t = 0)]
    pub(crate) requests: u64,
    /// Blocks mode: blocks of each request
    #[arg(long, default_value_t = 0)]
    pub(crate) blocks: usize,
    #[arg(long, default_value_t = 0)]
    pub(crate) warmup_ms: u64,
    #[arg(long, default_value_t = 0)]
    pub(crate) window_ms: u64,
    /// Time limit of the whole process
    #[arg(long)]
    pub(crate) limit_ms: u64,
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// Processes whose CPU is sampled at both ends of the window
    #[arg(long, value_delimiter = ',')]
    pub(crate) proxy_pids: Vec<u32>,
    #[arg(long, value_delimiter = ',')]
    pub(crate) upstream_pids: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadMode {
    /// Every connection sends its next request after the previous response
    Closed,
    /// Requests start at fixed times, independent of responses
    Open,
    /// A number of requests, as fast as possible
    Count,
    /// Several requests take turns, each in short blocks of a number of requests
    Blocks,
    /// Streams are opened and held until standard input closes
    Hold,
}

impl LoadMode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Count => "count",
            Self::Blocks => "blocks",
            Self::Hold => "hold",
        }
    }
}
