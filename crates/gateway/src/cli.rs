//! The command line.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use gateway_core::access::Plan;
use gateway_core::accounts::normalise_email;
use gateway_core::audit::{Actor, Chain, Draft, Outcome, Target};
use gateway_core::ids::AuditId;
use gateway_core::time::HOUR;
use gateway_store::cluster::invalidations::{self, Invalidation};
use gateway_store::{Db, Part, StoreError, accounts, orgs, sign_ins};
use secrecy::ExposeSecret;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use uuid::{NoContext, Uuid};

use crate::app::{App, open_vault};
use crate::auth::passwords::new_reset_token;
use crate::clock::Clock;
use crate::config::{self, Config, ConfigError, SETTINGS, env_name};
use crate::rotate_master_key::Rotation;
use crate::server::{self, Server};
use crate::services::{StartError, migrate_all};
use crate::{admin, api, data_dir, exposure, rotate_master_key, telemetry};

#[derive(Parser)]
#[command(
    name = "gateway",
    version,
    about = "An AI gateway with a management API",
    after_long_help = settings_help(),
    arg_required_else_help = true
)]
pub struct Cli {
    /// A TOML file with settings; environment variables take precedence
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the service
    Serve,
    /// Print the effective settings, with secrets masked
    Config,
    /// Migrate the database schema to this version, then exit
    Migrate,
    /// Commands for the operator
    Admin {
        #[command(subcommand)]
        command: AdminCommand,
    },
    /// Print the OpenAPI document
    Openapi,
    /// Print the version
    Version,
}

#[derive(Subcommand)]
enum AdminCommand {
    /// Set the plan of an organization
    SetPlan {
        /// The organization's slug
        slug: String,
        /// free, pro or enterprise
        plan: String,
    },
    /// Encrypt all stored secrets with GATEWAY_MASTER_KEY; the earlier keys are in GATEWAY_MASTER_KEYS_ACCEPTED
    RotateMasterKey,
    /// Print a one-time token with which a user sets a new password within an hour
    ResetPassword {
        /// The user's email address
        email: String,
    },
}

/// Exit codes: 0 for success, 1 for a failure at run time, 2 for wrong usage or settings.
const FAILED: u8 = 1;
const MISCONFIGURED: u8 = 2;

enum Failure {
    Config(ConfigError),
    Start(StartError),
    Other(String),
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Failure::Config(error)
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Failure::Start(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Start(error.into())
    }
}

pub fn run(cli: Cli) -> ExitCode {
    match execute(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let (code, message) = match failure {
                Failure::Config(error) => (MISCONFIGURED, error.to_string()),
                Failure::Start(error) => (FAILED, error.to_string()),
                Failure::Other(message) => (FAILED, message),
            };
            let _ = writeln!(std::io::stderr(), "gateway: {message}");
            ExitCode::from(code)
        }
    }
}

fn execute(cli: Cli) -> Result<(), Failure> {
    // Files have secrets and request bodies, so no other user may read them.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let started = Instant::now();
    match cli.command {
        Command::Version => print_line(&format!("gateway {}", env!("CARGO_PKG_VERSION"))),
        Command::Openapi => print_line(api::openapi::yaml().trim_end()),
        Command::Config => {
            let values = config::load_raw(cli.config.as_deref())?;
            Config::validate(&values)?;
            print_line(config::masked_toml(&values).trim_end());
        }
        Command::Serve => {
            config::raise_descriptor_limit();
            let values = config::load_raw(cli.config.as_deref())?;
            let config = Config::validate(&values)?;
            telemetry::init(config.log_level);
            for name in &values.unknown_variables {
                tracing::warn!(%name, "unknown setting in the environment; check the name of the variable");
            }
            runtime()?.block_on(serve(config, started))?;
        }
        Command::Migrate => {
            let config = Config::validate(&config::load_raw(cli.config.as_deref())?)?;
            runtime()?.block_on(async {
                let db = open(&config).await?;
                migrate_all(&db, Clock::default().now()).await?.close().await;
                db.close().await;
                Ok::<_, Failure>(())
            })?;
            let (state, logs) = (Part::State.version(), Part::Logs.version());
            print_line(&format!("the schema is up to date (state version {state}, logs version {logs})"));
        }
        Command::Admin { command: AdminCommand::SetPlan { slug, plan } } => {
            let config = Config::validate(&config::load_raw(cli.config.as_deref())?)?;
            let plan: Plan = plan.parse().map_err(|_| {
                ConfigError(format!("unknown plan '{plan}': expected free, pro or enterprise"))
            })?;
            runtime()?.block_on(set_plan(&config, &slug, plan))?;
            print_line(&format!("{slug} is now on the {plan} plan"));
        }
        Command::Admin { command: AdminCommand::RotateMasterKey } => {
            let config = Config::validate(&config::load_raw(cli.config.as_deref())?)?;
            telemetry::init(config.log_level);
            let rotation = runtime()?.block_on(rotate_master_key(&config))?;
            print_line(&format!(
                "{} secrets were encrypted with the current master key, {} were already",
                rotation.rotated, rotation.current
            ));
            if rotation.unreadable > 0 {
                return Err(Failure::Other(format!(
                    "{} secrets cannot be decrypted with any of the keys; add theirs to \
                     GATEWAY_MASTER_KEYS_ACCEPTED, or store them again",
                    rotation.unreadable
                )));
            }
        }
        Command::Admin { command: AdminCommand::ResetPassword { email } } => {
            let config = Config::validate(&config::load_raw(cli.config.as_deref())?)?;
            print_line(&runtime()?.block_on(reset_password(&config, &email))?);
            let _ = writeln!(
                std::io::stderr(),
                "valid for one hour and one use: open /console/reset/TOKEN, or send \
                 POST /api/v1/auth/reset {{\"token\", \"new_password\"}}"
            );
        }
    }
    Ok(())
}

async fn serve(config: Config, started: Instant) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| Failure::Other(error.to_string()))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| Failure::Other(error.to_string()))?;
    let listener = server::bind(config.listen).await?;
    let admin = match config.admin_listen {
        Some(address) => Some(server::bind(address).await?),
        None => None,
    };
    let app = App::start(config, Clock::default()).await?;
    let server = Server::start(Arc::clone(&app))?;
    if let Some(listener) = admin {
        app.services.tasks.spawn(admin::serve(Arc::clone(&app), listener));
    }
    let address = listener.local_addr().map_err(|error| Failure::Other(error.to_string()))?;
    let scheme = if app.services.config.tls.is_some() { "https" } else { "http" };
    log_ready(&app, &format!("{scheme}://{address}"), started.elapsed());
    exposure::log(&app.services);
    let serving = server.run(listener);
    let stopper = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: finishing the requests in progress");
        app.services.tasks.begin_stop();
    };
    tokio::join!(serving, stopper);
    app.finish_stop(Duration::from_secs(10)).await;
    tracing::info!("stopped");
    Ok(())
}

/// Logs the addresses of the service and its data, and on a terminal prints a first command to try.
fn log_ready(app: &App, url: &str, took: Duration) {
    let data = app.services.config.data_dir.display().to_string();
    let database = config::masked_database_url(&app.services.config);
    let ready_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    tracing::info!(url, data, database, ready_ms, "gateway {} is ready", env!("CARGO_PKG_VERSION"));
    use std::io::IsTerminal as _;
    if std::io::stderr().is_terminal() {
        let _ = writeln!(
            std::io::stderr(),
            "\n  Gateway   {url}   (ready in {ready_ms} ms)\n  Data      {data}\n  Database  {database}\n\n  \
             Try it:\n    curl {url}/api/v1/signup -d '{{\"email\":\"you@example.com\",\"password\":\"correct horse\",\
             \"org_slug\":\"demo\"}}'\n"
        );
    }
}

async fn set_plan(config: &Config, slug: &str, plan: Plan) -> Result<(), Failure> {
    let db = open(config).await?;
    db.migrate(Part::State, Clock::default().now()).await?;
    let mut tx = db.begin().await?;
    let changed = orgs::set_plan(&mut tx, slug, plan, Clock::default().now()).await?;
    if let Some(org) = changed {
        invalidations::record(&mut tx, &Invalidation::OrgAll(org)).await?;
        // The organization sees who changed its plan, and the installation what its operator did.
        for (chain, action) in [(Chain::Org(org), "org.plan"), (Chain::System, "operator.set_plan")] {
            let target =
                Target { kind: "org".into(), id: Some(org.to_string()), name: Some(slug.to_owned()) };
            tx.record(operator_entry(chain, action, target).created(&json!({"plan": plan})));
        }
    }
    tx.commit().await?;
    db.close().await;
    changed
        .map(|_| ())
        .ok_or_else(|| Failure::Other(format!("there is no organization with the slug '{slug}'")))
}

fn operator_entry(chain: Chain, action: &str, target: Target) -> Draft {
    let at = Clock::default().now();
    let seconds = u64::try_from(at.unix_seconds()).unwrap_or(0);
    Draft {
        chain,
        id: AuditId(Uuid::new_v7(uuid::Timestamp::from_unix(NoContext, seconds, 0))),
        at,
        node: 0,
        actor: Actor::OPERATOR,
        action: action.to_owned(),
        target,
        outcome: Outcome::Success,
        status: None,
        changes: Vec::new(),
        reason: None,
        request_id: None,
        ip: None,
        user_agent: None,
    }
}

async fn rotate_master_key(config: &Config) -> Result<Rotation, Failure> {
    let vault = open_vault(config)?;
    let db = open(config).await?;
    let logs = migrate_all(&db, Clock::default().now()).await?;
    let rotation = rotate_master_key::run(&db, &logs, &vault).await?;
    let target = Target { kind: "master_key".into(), id: None, name: None };
    let mut tx = db.begin().await?;
    tx.record(operator_entry(Chain::System, "operator.rotate_master_key", target));
    tx.commit().await?;
    logs.close().await;
    db.close().await;
    Ok(rotation)
}

/// Stores the hash of a new token for a password reset and returns the token.
async fn reset_password(config: &Config, email: &str) -> Result<String, Failure> {
    let unknown = || Failure::Other(format!("there is no account with the email '{email}'"));
    let normalised = normalise_email(email).map_err(|_| unknown())?;
    let (token, hash) =
        new_reset_token().ok_or_else(|| Failure::Other("the system has no random numbers".into()))?;
    let db = open(config).await?;
    let now = Clock::default().now();
    db.migrate(Part::State, now).await?;
    let user = accounts::find_by_email(&db, &normalised).await?;
    if let Some(user) = &user {
        let mut tx = db.begin().await?;
        sign_ins::insert_reset(&mut tx, user.id, &hash, now.plus(HOUR)).await?;
        let target =
            Target { kind: "user".into(), id: Some(user.id.to_string()), name: Some(user.email.clone()) };
        tx.record(operator_entry(Chain::System, "operator.reset_password", target));
        tx.commit().await?;
    }
    db.close().await;
    user.map(|_| token).ok_or_else(unknown)
}

async fn open(config: &Config) -> Result<Db, Failure> {
    data_dir::create(config)?;
    Ok(Db::open(config.database_url.expose_secret()).await?)
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    // Idle threads end soon, which returns the 19 MiB of a password hash to the system.
    tokio::runtime::Builder::new_multi_thread()
        .thread_keep_alive(Duration::from_secs(2))
        .enable_all()
        .build()
        .map_err(|error| Failure::Other(format!("cannot start the runtime: {error}")))
}

fn print_line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn settings_help() -> String {
    use std::fmt::Write as _;
    let mut text = String::from(
        "Settings (environment variables; in the TOML file the names are in lower case and without GATEWAY_):\n",
    );
    for setting in SETTINGS {
        let _ = writeln!(text, "  {:<34} {}", env_name(setting.key), setting.help);
    }
    text.push_str("  GATEWAY_PROVIDER_<NAME>_BASE_URL   base URL of a provider\n");
    text.push_str("  GATEWAY_PROVIDER_<NAME>_API_KEY    credential of the operator for a provider\n");
    text
}
