//! Checks of the machine and of the stores: files, disk, clock, database, Redis.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gateway_core::pricing::PriceTable;
use gateway_store::redis::RedisClient;
use gateway_store::{Db, Part};
use secrecy::{ExposeSecret as _, SecretString};

use super::Finding;
use crate::app::open_vault;
use crate::clock::Clock;
use crate::config::{Config, masked_database_url};
use crate::rotate_master_key::{self, Sample};

const TIMEOUT: Duration = Duration::from_secs(10);
/// With less, the service cannot keep its own log.
const LEAST_DISK: u64 = 100 << 20;

/// The data directory exists, is writable, and its files are closed to others.
pub fn data_directory(config: &Config) -> Vec<Finding> {
    const CHECK: &str = "files";
    let directory = &config.data_dir;
    let shown = directory.display();
    if !directory.exists() {
        return vec![Finding::ok(CHECK, format!("{shown} does not exist yet; `gateway serve` creates it"))];
    }
    if rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_err() {
        let remedy = format!("run as the owner of {shown}, or name another directory with GATEWAY_DATA_DIR");
        return vec![Finding::failed(CHECK, format!("{shown} is not writable"), remedy)];
    }
    let open = open_to_others(directory);
    if open.is_empty() {
        return vec![Finding::ok(CHECK, format!("{shown} is writable, and closed to other users"))];
    }
    let open = open.into_iter().map(|path| {
        let path = path.display();
        Finding::warning(CHECK, format!("other users have access to {path}"), format!("chmod go-rwx {path}"))
    });
    open.collect()
}

/// The directory and its entries that other users may read or write, at most ten.
fn open_to_others(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = std::iter::once(directory.to_owned()).chain(entries);
    let is_open = |path: &PathBuf| {
        let found = std::fs::symlink_metadata(path);
        found.is_ok_and(|found| !found.is_symlink() && found.permissions().mode() & 0o077 != 0)
    };
    all.filter(is_open).take(10).collect()
}

/// There is room for the log spool.
pub fn disk(config: &Config) -> Finding {
    const CHECK: &str = "disk";
    let mut directory = config.data_dir.as_path();
    while !directory.exists() {
        directory = match directory.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
    }
    let free = match rustix::fs::statvfs(directory) {
        Ok(found) => found.f_bavail.saturating_mul(found.f_frsize),
        Err(error) => {
            let message = format!("cannot read the free space of {}: {error}", directory.display());
            return Finding::warning(CHECK, message, "check that the file system is mounted");
        }
    };
    let message = format!("{} MiB free for {}", free >> 20, config.data_dir.display());
    if free < LEAST_DISK {
        Finding::failed(CHECK, message, "free some space, or name another directory with GATEWAY_DATA_DIR")
    } else if free < config.spool_bytes {
        let remedy =
            format!("the log spool may take {} MiB; see GATEWAY_SPOOL_BYTES", config.spool_bytes >> 20);
        Finding::warning(CHECK, message, remedy)
    } else {
        Finding::ok(CHECK, message)
    }
}

/// Tokens, signatures and ids depend on the time. It cannot be before this version was made.
pub fn clock() -> Finding {
    let now = Clock::default().now();
    let made = PriceTable::default().as_of();
    if now < made {
        let message = format!("the time is {now}, which is before this version was made ({made})");
        return Finding::failed("clock", message, "set the time; run an NTP client");
    }
    Finding::ok("clock", format!("the time is {now}"))
}

/// The database can be opened, and this version can use its schema.
pub async fn database(config: &Config) -> Finding {
    const CHECK: &str = "database";
    let (url, shown) = (config.database_url.expose_secret(), masked_database_url(config));
    if let Some(path) = url.strip_prefix("sqlite://")
        && !Path::new(path).exists()
    {
        return Finding::ok(CHECK, format!("{shown} does not exist yet; `gateway serve` creates it"));
    }
    let checked = async {
        let db = Db::open(url).await?;
        db.ping().await?;
        let logs = db.open_logs().await?;
        let (state, rows) = (db.schema(Part::State).await?, logs.schema(Part::Logs).await?);
        let is_current = state.pending.is_empty() && rows.pending.is_empty();
        let sample = match open_vault(config) {
            Ok(vault) if is_current => rotate_master_key::sample(&db, &logs, &vault).await?,
            _ => Sample::default(),
        };
        logs.close().await;
        db.close().await;
        Ok::<_, gateway_store::StoreError>((state, rows, sample))
    };
    let remedy = "check GATEWAY_DATABASE_URL, and that the server runs and lets this user in";
    match tokio::time::timeout(TIMEOUT, checked).await {
        Err(_) => Finding::failed(CHECK, format!("{shown} does not answer within {TIMEOUT:?}"), remedy),
        Ok(Err(error)) => Finding::failed(CHECK, format!("{shown}: {error}"), remedy),
        Ok(Ok((state, rows, _))) if !(state.is_usable() && rows.is_usable()) => Finding::failed(
            CHECK,
            format!("{shown} has a newer schema, which this version cannot use"),
            "run the version that migrated it, or a later one",
        ),
        Ok(Ok((.., sample))) if sample.is_other_key() => Finding::failed(
            CHECK,
            format!("the master key decrypts none of the secrets that are stored in {shown}"),
            "set GATEWAY_MASTER_KEY to the key that encrypted them, or add it to GATEWAY_MASTER_KEYS_ACCEPTED; a \
             generated one is the file master_key of the data directory at that time",
        ),
        Ok(Ok((state, rows, _))) => {
            let pending = state.pending.len() + rows.pending.len();
            let versions = format!("{shown}, schema {}/{}", state.version, rows.version);
            Finding::ok(
                CHECK,
                match pending {
                    0 => versions,
                    pending => format!("{versions}; {pending} migrations will run at the next start"),
                },
            )
        }
    }
}

pub async fn redis(url: &SecretString) -> Finding {
    let remedy =
        "check GATEWAY_REDIS_URL; without Redis the gateway runs, but limits are not exact across nodes";
    let client = match RedisClient::new(url.expose_secret()) {
        Ok(client) => client,
        Err(error) => return Finding::failed("redis", error.to_string(), remedy),
    };
    match client.check().await {
        Ok(()) => Finding::ok("redis", "it answers"),
        Err(error) => Finding::failed("redis", error.to_string(), remedy),
    }
}
