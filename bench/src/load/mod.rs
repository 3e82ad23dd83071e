//! The load generator: raw HTTP/1.1 over keep-alive connections with minimal work per request, so that it costs less
//! than the target. It samples the CPU of the other processes at both ends of its window.

mod blocks;
mod connection;
mod drive;
mod record;

use std::io::Read;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::LoadOptions;
use crate::error::{BenchError, BenchResult};
use crate::stats::Histogram;

/// The report of a load generator. Times are in microseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadReport {
    /// Responses that completed within the window.
    pub(crate) completed: f64,
    /// All responses, including the warmup.
    pub(crate) total: f64,
    pub(crate) seconds: f64,
    pub(crate) reconnects: f64,
    pub(crate) latency: Latency,
    /// Time to the first byte of the body.
    pub(crate) first: Latency,
    /// Lateness of the generator's own timer, which is not part of the latencies.
    pub(crate) late: Latency,
    /// CPU of all threads of the target.
    pub(crate) cpu_proxy: f64,
    /// CPU of those that serve connections.
    pub(crate) cpu_serving: f64,
    pub(crate) cpu_upstream: f64,
    pub(crate) cpu_client: f64,
    /// CPU used by all other processes on the machine.
    pub(crate) cpu_others: f64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
}

pub(crate) fn run(options: &LoadOptions) -> BenchResult<()> {
    let limit = Duration::from_millis(options.limit_ms);
    runtime(options.threads)?.block_on(async {
        tokio::time::timeout(limit, drive::drive(options)).await.map_err(|_| {
            BenchError::new(format!("answers were still missing after {} ms", limit.as_millis()))
        })?
    })
}

/// One thread unless there are CPUs for more: a switch between threads costs more than the request.
pub(crate) fn runtime(threads: usize) -> BenchResult<tokio::runtime::Runtime> {
    let mut builder = if threads > 1 {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(threads);
        builder
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    Ok(builder.enable_all().build()?)
}

/// Waits until the controller closes standard input or dies.
pub(crate) async fn wait_for_stdin_eof() {
    let (told, ended) = tokio::sync::oneshot::channel::<()>();
    // Not a runtime thread: that would keep the process from exiting at its time limit.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0; 1]);
        drop(told);
    });
    let _ = ended.await;
}

impl LoadReport {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "completed": self.completed,
            "total": self.total,
            "seconds": self.seconds,
            "reconnects": self.reconnects,
            "latency": self.latency.to_json(),
            "first": self.first.to_json(),
            "late": self.late.to_json(),
            "cpu_proxy": self.cpu_proxy,
            "cpu_serving": self.cpu_serving,
            "cpu_upstream": self.cpu_upstream,
            "cpu_client": self.cpu_client,
            "cpu_others": self.cpu_others,
        })
    }

    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let number = |name: &str| value.get(name)?.as_f64();
        Some(Self {
            completed: number("completed")?,
            total: number("total")?,
            seconds: number("seconds")?,
            reconnects: number("reconnects")?,
            latency: Latency::from_json(value.get("latency")?)?,
            first: Latency::from_json(value.get("first")?)?,
            late: Latency::from_json(value.get("late")?)?,
            cpu_proxy: number("cpu_proxy")?,
            cpu_serving: number("cpu_serving")?,
            cpu_upstream: number("cpu_upstream")?,
            cpu_client: number("cpu_client")?,
            cpu_others: number("cpu_others")?,
        })
    }
}

impl Latency {
    /// From a histogram of nanoseconds.
    pub(crate) fn of(histogram: &Histogram) -> Self {
        let us = |ns: f64| ns / 1000.0;
        Self {
            p50: us(histogram.quantile(0.5)),
            p99: us(histogram.quantile(0.99)),
            p999: us(histogram.quantile(0.999)),
            max: us(histogram.max() as f64),
            mean: us(histogram.mean()),
        }
    }

    fn to_json(self) -> Value {
        json!({ "p50": self.p50, "p99": self.p99, "p999": self.p999, "max": self.max, "mean": self.mean })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let number = |name: &str| value.get(name)?.as_f64();
        Some(Self {
            p50: number("p50")?,
            p99: number("p99")?,
            p999: number("p999")?,
            max: number("max")?,
            mean: number("mean")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_the_pipe() {
        let report = LoadReport { completed: 7.0, cpu_client: 1.5, ..LoadReport::default() };
        let text = report.to_json().to_string();
        let read = LoadReport::from_json(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(text, read.to_json().to_string());
    }
}
