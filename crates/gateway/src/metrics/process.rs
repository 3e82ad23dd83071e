//! What the operating system knows about this process, under the names that all Prometheus clients use. Linux only.

use std::path::Path;

use super::exposition::{Exposition, Kind};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessStats {
    cpu_seconds: f64,
    threads: u64,
    start_seconds: f64,
    virtual_bytes: u64,
    resident_bytes: u64,
    open_fds: u64,
    max_fds: Option<u64>,
}

impl ProcessStats {
    /// None where there is no `/proc`.
    pub fn read() -> Option<Self> {
        let own = Path::new("/proc/self");
        let text = |name: &str| std::fs::read_to_string(own.join(name)).ok();
        let stat = Stat::parse(&text("stat")?)?;
        let boot = boot_time(&std::fs::read_to_string("/proc/stat").ok()?)?;
        let open_fds = std::fs::read_dir(own.join("fd")).ok()?.count() as u64;
        let (ticks, page) = (rustix::param::clock_ticks_per_second(), rustix::param::page_size() as u64);
        Some(Self {
            cpu_seconds: seconds(stat.cpu_ticks, ticks),
            threads: stat.threads,
            start_seconds: seconds(stat.start_ticks, ticks) + seconds(boot, 1),
            virtual_bytes: stat.virtual_bytes,
            resident_bytes: stat.resident_pages.saturating_mul(page),
            // Without the one that lists them.
            open_fds: open_fds.saturating_sub(1),
            max_fds: text("limits").as_deref().and_then(max_open_files),
        })
    }

    pub fn write(&self, out: &mut Exposition) {
        out.single("process_cpu_seconds", Kind::Counter, "CPU time used by the process.", self.cpu_seconds);
        let gauges = [
            ("process_resident_memory_bytes", "Memory of the process in RAM.", self.resident_bytes),
            ("process_virtual_memory_bytes", "Address space of the process.", self.virtual_bytes),
            ("process_open_fds", "Open file descriptors.", self.open_fds),
            ("process_threads", "Threads of the process.", self.threads),
        ];
        for (name, help, value) in gauges {
            out.single(name, Kind::Gauge, help, value);
        }
        if let Some(max_fds) = self.max_fds {
            out.single("process_max_fds", Kind::Gauge, "Limit of open file descriptors.", max_fds);
        }
        out.single(
            "process_start_time_seconds",
            Kind::Gauge,
            "When the process started, in seconds since 1970.",
            self.start_seconds,
        );
    }
}

/// Fields of `/proc/self/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The second field is the name in parentheses, which may contain anything. The third has the index 0 here.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: number(11)?.saturating_add(number(12)?),
            threads: number(17)?,
            start_ticks: number(19)?,
            virtual_bytes: number(20)?,
            resident_pages: number(21)?,
        })
    }
}

/// Seconds since 1970 at which the system started.
fn boot_time(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn max_open_files(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[expect(clippy::cast_precision_loss, reason = "a time in seconds")]
fn seconds(ticks: u64, ticks_per_second: u64) -> f64 {
    ticks as f64 / ticks_per_second.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_kernel_are_read() {
        let stat = "42 (a b) c) S 1 42 42 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 7 0 1234 99000 21 18446744073709551615";
        let expected =
            Stat { cpu_ticks: 200, threads: 7, start_ticks: 1234, virtual_bytes: 99_000, resident_pages: 21 };
        assert_eq!(Stat::parse(stat), Some(expected));
        assert_eq!(Stat::parse("42 (a) S 1"), None);
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\nprocesses 5\n"), Some(1_700_000_000));
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 524288               files     \n";
        assert_eq!(max_open_files(limits), Some(1024));
        assert_eq!(max_open_files("Max open files            unlimited            unlimited"), None);
    }

    #[test]
    fn this_process_is_described() {
        let stats = ProcessStats::read().unwrap();
        assert!(stats.resident_bytes > 1 << 20 && stats.virtual_bytes >= stats.resident_bytes);
        assert!(stats.open_fds >= 3 && stats.threads >= 1 && stats.start_seconds > 1.7e9);
    }
}
