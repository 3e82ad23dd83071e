//! CPU time and memory of processes from /proc.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::process::Command;
use std::sync::LazyLock;

/// CPU time of some processes at one moment. `utime + stime` has a resolution of 10 ms but includes ended threads.
/// The scheduler's figure is exact but covers only living threads. `cpu_between` uses both.
pub(crate) struct CpuSample {
    ticks_us: f64,
    threads: HashMap<(u32, u32), u64>,
    /// Those of them that serve connections, by their name. Empty if the processes have no such names.
    serving: HashSet<(u32, u32)>,
}

/// What the gateway calls the threads that serve connections.
const SERVING: &str = "worker-";

#[derive(Clone, Copy, Default)]
pub(crate) struct Memory {
    pub(crate) resident_kib: u64,
    pub(crate) peak_kib: u64,
}

pub(crate) fn cpu(pids: &[u32]) -> CpuSample {
    let mut sample = CpuSample { ticks_us: 0.0, threads: HashMap::new(), serving: HashSet::new() };
    for &pid in pids {
        let fields = stat_fields(pid).unwrap_or_default();
        // utime and stime are fields 14 and 15 of the line, 12 and 13 after the process's name.
        let ticks: u64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        sample.ticks_us += ticks as f64 * 1e6 / *TICKS_PER_SECOND;
        for tid in numeric_entries(&format!("/proc/{pid}/task")) {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).unwrap_or_default();
            if let Some(on_cpu) = text.split_whitespace().next().and_then(|field| field.parse().ok()) {
                sample.threads.insert((pid, tid), on_cpu);
            }
            let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
            if name.starts_with(SERVING) {
                sample.serving.insert((pid, tid));
            }
        }
    }
    sample
}

/// Microseconds of CPU between two samples: the exact figure, unless the ticks show that a thread ended in between.
pub(crate) fn cpu_between(before: &CpuSample, after: &CpuSample) -> f64 {
    let ticks = after.ticks_us - before.ticks_us;
    let exact = after.exact_since(before, |_| true);
    let tolerance = 2.0 * 1e6 / *TICKS_PER_SECOND;
    if ticks > exact + tolerance { ticks } else { exact }
}

/// The same of the threads that serve connections, or of all if none is named so. They live as long as their process.
pub(crate) fn serving_cpu_between(before: &CpuSample, after: &CpuSample) -> f64 {
    if after.serving.is_empty() {
        return cpu_between(before, after);
    }
    after.exact_since(before, |id| after.serving.contains(id))
}

impl CpuSample {
    fn exact_since(&self, before: &Self, is_counted: impl Fn(&(u32, u32)) -> bool) -> f64 {
        let counted = self.threads.iter().filter(|(id, _)| is_counted(id));
        let used = |(id, on_cpu): (&(u32, u32), &u64)| {
            on_cpu.saturating_sub(before.threads.get(id).copied().unwrap_or(0))
        };
        counted.map(used).sum::<u64>() as f64 / 1000.0
    }
}

/// Microseconds of CPU time used on this machine since boot.
pub(crate) fn machine_busy() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is included in user.
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1).take(8);
    let ticks: u64 = fields
        .enumerate()
        .filter(|(at, _)| !matches!(at, 3 | 4))
        .filter_map(|(_, field)| field.parse::<u64>().ok())
        .sum();
    ticks as f64 * 1e6 / *TICKS_PER_SECOND
}

pub(crate) fn memory(pids: &[u32]) -> Memory {
    let mut sum = Memory::default();
    for pid in pids {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        sum.resident_kib += status_number(&status, "VmRSS:");
        sum.peak_kib += status_number(&status, "VmHWM:");
    }
    sum
}

/// The process and all of its descendants.
pub(crate) fn tree(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = numeric_entries("/proc")
        .into_iter()
        .filter_map(|pid| Some((pid, stat_fields(pid)?.get(1)?.parse().ok()?)))
        .collect();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(parents.iter().filter(|(pid, of)| *of == parent && *pid != parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

/// The process that started this one.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    stat_fields(pid)?.get(1)?.parse().ok()
}

pub(crate) fn status_line(name: &str) -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix(name)).map(|rest| rest.trim().to_owned())
}

static TICKS_PER_SECOND: LazyLock<f64> = LazyLock::new(|| {
    let asked = Command::new("getconf").arg("CLK_TCK").output().ok();
    asked.and_then(|output| String::from_utf8(output.stdout).ok()?.trim().parse().ok()).unwrap_or(100.0)
});

/// The fields of /proc/PID/stat after the name, which may contain spaces and parentheses.
fn stat_fields(pid: u32) -> Option<Vec<String>> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = line.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

fn numeric_entries(folder: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn status_number(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn work_of_this_process_shows_as_cpu_time() {
        let me = [std::process::id()];
        let (before, machine) = (cpu(&me), machine_busy());
        let until = Instant::now() + Duration::from_millis(100);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        assert!(cpu_between(&before, &cpu(&me)) > 10_000.0);
        assert!(machine_busy() > machine);
        assert!(memory(&me).resident_kib > 500);
    }

    #[test]
    fn an_ended_thread_is_included() {
        let sample = |ticks_us, threads: &[(u32, u64)]| CpuSample {
            ticks_us,
            threads: threads.iter().map(|&(tid, on_cpu)| ((1, tid), on_cpu)).collect(),
            serving: HashSet::new(),
        };
        let before = sample(0.0, &[(1, 1_000_000), (2, 5_000_000)]);
        let all_alive = sample(10_000.0, &[(1, 5_500_000), (2, 9_000_000)]);
        assert!((cpu_between(&before, &all_alive) - 8_500.0).abs() < 0.1);
        let one_gone = sample(500_000.0, &[(1, 5_500_000)]);
        assert!((cpu_between(&before, &one_gone) - 500_000.0).abs() < 0.1);
    }

    #[test]
    fn serving_threads_are_counted_apart_where_they_have_names() {
        let sample = |on_cpu: u64, serving: &[u32]| CpuSample {
            ticks_us: 0.0,
            threads: [((1, 1), on_cpu), ((1, 2), 3 * on_cpu)].into(),
            serving: serving.iter().map(|tid| (1, *tid)).collect(),
        };
        let between =
            |serving: &[u32]| serving_cpu_between(&sample(1_000_000, serving), &sample(2_000_000, serving));
        assert!((between(&[2]) - 3_000.0).abs() < 0.1);
        assert!((between(&[]) - 4_000.0).abs() < 0.1);
    }

    #[test]
    fn a_tree_holds_the_children() {
        let mut child = Command::new("sleep").arg("5").spawn().unwrap();
        let found = tree(std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id()));
    }
}
