//! Machine and revision of a measurement, without which its figures cannot be compared.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    pub(crate) load: String,
    pub(crate) commit: String,
    pub(crate) at: String,
}

impl Machine {
    pub(crate) fn detect() -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model =
            cpuinfo.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(':'));
        let read = |path| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let load = read("/proc/loadavg");
        Self {
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            cpu: model.map_or_else(|| "unknown CPU".to_owned(), |(_, name)| name.trim().to_owned()),
            kernel: read("/proc/sys/kernel/osrelease"),
            load: load.split(' ').next().unwrap_or_default().to_owned(),
            commit: commit(),
            at: utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())),
        }
    }

    /// Whether other programs were active at the start of the run.
    pub(crate) fn is_busy(&self) -> bool {
        self.load.parse::<f64>().is_ok_and(|load| load > 0.5 * self.cores as f64)
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "cores": self.cores, "cpu": self.cpu, "kernel": self.kernel, "load": self.load, "commit": self.commit,
        })
    }
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".to_owned() };
    let clean =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|changes| changes.is_empty());
    if clean { commit } else { format!("{commit} with changes") }
}

/// Formats seconds since 1970 as `2026-01-31 12:00 UTC`. Counts days in eras of 400 years that begin in March.
fn utc(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{year:04}-{month:02}-{day_of_month:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_772_323_199), "2026-02-28 23:59 UTC");
        assert_eq!(utc(1_772_323_200), "2026-03-01 00:00 UTC");
    }
}
