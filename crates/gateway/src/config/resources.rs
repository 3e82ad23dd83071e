//! Defaults that depend on the machine: memory and file descriptors.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::parse::integer;
use super::{ConfigError, RawSettings};
use crate::connections::{AddressLimit, ConnectionLimits};

/// The smallest default, and the default where the size of the memory is unknown.
const MIN_MEMORY: u64 = 64 << 20;
/// The setting may be smaller.
const MIN_MEMORY_SETTING: u64 = 1 << 20;
/// Descriptors for the databases, the log spool and other files.
const OTHER_DESCRIPTORS: u64 = 256;
/// What a connection may buffer before its request is known.
const CONNECTION_BYTES: u64 = 64 << 10;
const MIN_CONNECTIONS: u64 = 64;
const MAX_CONNECTIONS: u64 = 65_536;

/// The memory for bodies: the setting, or half of the memory that the process may use.
pub(super) fn memory_bytes(values: &RawSettings) -> Result<u64, ConfigError> {
    if !values.get("memory_bytes").trim().is_empty() {
        return integer(values, "memory_bytes", MIN_MEMORY_SETTING, 1 << 50);
    }
    Ok(available_memory().map_or(MIN_MEMORY, |bytes| (bytes / 2).max(MIN_MEMORY)))
}

/// A connection usually needs a second descriptor for the call to a provider.
pub(super) fn connection_limits(values: &RawSettings, memory: u64) -> Result<ConnectionLimits, ConfigError> {
    let total = if values.get("max_connections").trim().is_empty() {
        default_connections(memory)
    } else {
        integer(values, "max_connections", 1, 10_000_000)?
    };
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let per_address = if values.get("max_connections_per_address").trim().is_empty() {
        AddressLimit::Remote(count((total / 4).max(1)))
    } else {
        match integer(values, "max_connections_per_address", 0, 10_000_000)? {
            0 => AddressLimit::Unlimited,
            limit => AddressLimit::All(count(limit)),
        }
    };
    Ok(ConnectionLimits { total: count(total), per_address })
}

/// Calls in progress. Each has a connection to a provider, so they have the half of the descriptors that client
/// connections leave; over HTTP/2 a client has many calls on one connection.
pub(super) fn max_calls(values: &RawSettings, memory: u64) -> Result<u64, ConfigError> {
    if values.get("max_calls").trim().is_empty() {
        return Ok(default_connections(memory));
    }
    integer(values, "max_calls", 1, 10_000_000)
}

fn default_connections(memory: u64) -> u64 {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = (memory / CONNECTION_BYTES).min(MAX_CONNECTIONS);
    (descriptors.saturating_sub(OTHER_DESCRIPTORS) / 2).min(most).max(MIN_CONNECTIONS)
}

/// Allows the process as many descriptors as the system lets it have. The usual soft limit of 1024 is only for programs
/// that use `select`.
pub fn raise_descriptor_limit() {
    let limits = getrlimit(Resource::Nofile);
    if limits.current != limits.maximum {
        // If it fails, the limit on connections follows the lower one.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits });
    }
}

/// The limit of the container, or else the memory of the machine.
fn available_memory() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| machine_memory(&text));
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(Path::new("/sys/fs/cgroup"), &groups);
    let limits = limits.iter().filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok());
    limits.chain(machine).min()
}

fn machine_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The files with the limits of the process's group and of all groups above it, in version 2 and 1. A file without a
/// limit has the text `max` or a huge number.
fn limit_files(root: &Path, groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (directory, file) = match controllers {
            "" => (root.to_path_buf(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(group.trim_start_matches('/'));
        files.extend(group.ancestors().map(|group| directory.join(group).join(file)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_all_groups_count() {
        let files = |groups: &str| -> Vec<String> {
            let found = limit_files(Path::new("/r"), groups);
            found.iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(files("0::/\n"), ["/r/memory.max"]);
        assert_eq!(files("0::/a/b\n"), ["/r/a/b/memory.max", "/r/a/memory.max", "/r/memory.max"]);
        assert_eq!(
            files("5:cpu,memory:/a\n4:pids:/a\n"),
            ["/r/memory/a/memory.limit_in_bytes", "/r/memory/memory.limit_in_bytes"]
        );
    }

    #[test]
    fn the_memory_of_the_machine_is_read_in_kibibytes() {
        assert_eq!(machine_memory("MemFree: 1 kB\nMemTotal:       2048 kB\n"), Some(2 << 20));
        assert_eq!(machine_memory("MemFree: 1 kB\n"), None);
        assert!(available_memory().is_some());
    }
}
