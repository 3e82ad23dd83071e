//! The command line.

mod daily;
mod doctor;
mod generate;
mod import;
mod init;
mod migrations;
mod operator;
mod orgs;
mod progress;
mod remote;
mod serve;
mod settings;
mod table;
mod upgrade;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use gateway_core::access::Plan;
use gateway_store::StoreError;

use crate::config::{self, Config, ConfigError, Reader, SETTINGS, env_name};
use crate::services::StartError;
use crate::{api, audit, telemetry};
use daily::{KeyCommand, LogCommand, UsageOptions};
use orgs::OrgCommand;
use progress::Progress;
use remote::{Remote, RemoteOptions};

#[derive(Parser)]
#[command(
    name = "gateway",
    version,
    about = "An AI gateway with a management API",
    after_long_help = settings_help(),
    arg_required_else_help = true
)]
pub struct Cli {
    /// A TOML file with settings; environment variables take precedence [default: GATEWAY_CONFIG, or ./gateway.toml, or
    /// (except for `serve`) /etc/gateway/gateway.toml]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the service
    Serve,
    /// Write a configuration file with every setting and its explanation
    Init(init::InitOptions),
    /// Check disk, clock, stores, ports, file modes and providers; exit status 1 if a check fails
    Doctor(doctor::DoctorOptions),
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
    /// Import the configuration or the keys of another gateway into an organization
    Import(import::ImportOptions),
    /// Keys of an organization, at a running gateway
    Keys {
        #[command(flatten)]
        remote: RemoteOptions,
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// Organizations and members, at a running gateway
    Orgs {
        #[command(flatten)]
        remote: RemoteOptions,
        #[command(subcommand)]
        command: OrgCommand,
    },
    /// Logged requests, at a running gateway
    Logs {
        #[command(flatten)]
        remote: RemoteOptions,
        #[command(subcommand)]
        command: LogCommand,
    },
    /// Requests, tokens and cost, at a running gateway
    Usage {
        #[command(flatten)]
        remote: RemoteOptions,
        #[command(flatten)]
        options: UsageOptions,
    },
    /// Check an exported audit log
    Audit {
        #[command(subcommand)]
        command: AuditCommand,
    },
    /// Show what the start of this version changes in the database; exit status 1 if it cannot use it
    UpgradeCheck {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the completions for a shell
    Completions { shell: clap_complete::Shell },
    /// Print the manual page
    Man,
}

#[derive(Subcommand)]
enum AuditCommand {
    /// Check the chain of an export in JSON lines, without a server; exit status 1 if it is not intact
    Verify {
        file: PathBuf,
        /// The public key of the manifest's key_id, from GET /api/v1/audit/keys
        #[arg(long)]
        key: Option<String>,
    },
}

#[derive(Subcommand)]
enum KeysCommand {
    #[command(flatten)]
    Daily(KeyCommand),
    /// End the imported keys of an organization, in the database of this machine: they no longer authenticate below
    /// /compat
    RetireForeign {
        /// The slug of the organization
        #[arg(long)]
        org: String,
    },
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
    /// Sign the checkpoints of audit logs with a new key; the public keys of earlier ones stay listed
    RotateAuditKey,
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
    let file = cli.config.as_deref();
    match cli.command {
        Command::Version => print_line(&format!("gateway {}", env!("CARGO_PKG_VERSION"))),
        Command::Audit { command: AuditCommand::Verify { file, key } } => {
            let opened = std::fs::File::open(&file)
                .map_err(|error| Failure::Other(format!("cannot open {}: {error}", file.display())))?;
            let mut progress = Progress::new("entries checked");
            let verified = audit::offline::verify(opened, key.as_deref(), &mut |done| progress.at(done));
            drop(progress);
            print_line(&verified.map_err(Failure::Other)?);
        }
        Command::Import(options) => {
            let config = settings::of_installation(file)?;
            print_line(&runtime()?.block_on(import::import(&config, &options))?);
        }
        Command::Init(options) => print_line(&init::run(&options)?),
        Command::Doctor(options) => {
            let values = config::load_raw(file, Reader::Command).map_err(|error| error.to_string());
            let runtime = runtime()?;
            let checked = runtime.block_on(doctor::run(values, &options));
            // The system may still be looking up a name.
            runtime.shutdown_background();
            checked?;
        }
        Command::Completions { shell } => print_line(&generate::completions(shell)),
        Command::Man => print_line(&generate::manual()?),
        Command::UpgradeCheck { json } => {
            let config = settings::without_secrets(&settings::read(file)?)?;
            print_line(&runtime()?.block_on(upgrade::check(&config, json))?);
        }
        Command::Keys { remote, command: KeysCommand::Daily(command) } => {
            let remote = Remote::new(&remote)?;
            runtime()?.block_on(daily::keys(&remote, command))?;
        }
        Command::Orgs { remote, command } => {
            let remote = Remote::new(&remote)?;
            runtime()?.block_on(orgs::run(&remote, command))?;
        }
        Command::Logs { remote, command } => {
            let remote = Remote::new(&remote)?;
            runtime()?.block_on(daily::logs(&remote, command))?;
        }
        Command::Usage { remote, options } => {
            let remote = Remote::new(&remote)?;
            runtime()?.block_on(daily::usage(&remote, options))?;
        }
        Command::Keys { remote: _, command: KeysCommand::RetireForeign { org } } => {
            let config = settings::of_installation(file)?;
            print_line(&runtime()?.block_on(import::retire_foreign(&config, &org))?);
        }
        Command::Openapi => print_line(api::openapi::yaml().trim_end()),
        Command::Config => {
            let values = settings::read(file)?;
            settings::without_secrets(&values)?;
            print_line(config::masked_toml(&values).trim_end());
        }
        Command::Serve => {
            config::raise_descriptor_limit();
            let values = config::load_raw(file, Reader::Service)?;
            let config = Config::validate(&values)?;
            telemetry::init(config.log_level);
            if let Some(found) = values.file.as_ref().filter(|found| !found.is_named) {
                tracing::info!(file = %found.path.display(), "using the settings in this file");
            }
            for name in &values.unknown_variables {
                tracing::warn!(%name, "unknown setting in the environment; check the name of the variable");
            }
            runtime()?.block_on(serve::serve(config, started))?;
        }
        Command::Migrate => {
            let config = Config::validate(&settings::read(file)?)?;
            let (state, logs) = runtime()?.block_on(operator::migrate(&config))?;
            print_line(&format!("the schema is up to date (state version {state}, logs version {logs})"));
        }
        Command::Admin { command: AdminCommand::SetPlan { slug, plan } } => {
            let config = settings::of_installation(file)?;
            let plan: Plan = plan.parse().map_err(|_| {
                ConfigError(format!("unknown plan '{plan}': expected free, pro or enterprise"))
            })?;
            runtime()?.block_on(operator::set_plan(&config, &slug, plan))?;
            print_line(&format!("{slug} is now on the {plan} plan"));
        }
        Command::Admin { command: AdminCommand::RotateMasterKey } => {
            let config = settings::of_installation(file)?;
            telemetry::init(config.log_level);
            let rotation = runtime()?.block_on(operator::rotate_master_key(&config))?;
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
        Command::Admin { command: AdminCommand::RotateAuditKey } => {
            let config = settings::of_installation(file)?;
            let id = runtime()?.block_on(operator::rotate_audit_key(&config))?;
            print_line(&format!("checkpoints of audit logs are signed with the key {id} from now on"));
        }
        Command::Admin { command: AdminCommand::ResetPassword { email } } => {
            let config = settings::of_installation(file)?;
            print_line(&runtime()?.block_on(operator::reset_password(&config, &email))?);
            let _ = writeln!(
                std::io::stderr(),
                "valid for one hour and one use: open /console/reset/TOKEN, or send \
                 POST /api/v1/auth/reset {{\"token\", \"new_password\"}}"
            );
        }
    }
    Ok(())
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
