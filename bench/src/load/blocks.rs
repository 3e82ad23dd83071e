//! Several requests in turn, in short blocks against one target: what the machine does meanwhile affects neighbouring
//! blocks equally, so their differences are known to a fraction of a microsecond where whole rounds differ by more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use tokio::task::JoinSet;

use super::connection::Connection;
use super::drive::{check, connect};
use crate::cli::LoadOptions;
use crate::error::{BenchError, BenchResult};
use crate::procfs;

/// Prints the serving threads' CPU per request in microseconds, by request and block. The first two turns warm up.
pub(super) async fn run(options: &LoadOptions) -> BenchResult<()> {
    let mut kinds = Vec::with_capacity(options.request.len());
    for file in &options.request {
        kinds.push((connect(options, file).await?, Vec::with_capacity(options.blocks)));
    }
    let next = Arc::new(AtomicU64::new(0));
    for turn in 0..options.blocks + 2 {
        let mut order: Vec<usize> = (0..kinds.len()).collect();
        // In reverse order every second time, so that a steady drift cancels out.
        if turn % 2 == 1 {
            order.reverse();
        }
        for kind in order {
            let (connections, blocks) = &mut kinds[kind];
            let before = procfs::cpu(&options.proxy_pids);
            *connections = block(std::mem::take(connections), options, &next).await?;
            let used = procfs::serving_cpu_between(&before, &procfs::cpu(&options.proxy_pids));
            if turn >= 2 {
                blocks.push(used / options.requests as f64);
            }
        }
    }
    let blocks: Vec<Vec<f64>> = kinds.into_iter().map(|(_, blocks)| blocks).collect();
    println!("{}", json!(blocks));
    Ok(())
}

/// One block: a number of requests over all connections, until the last one is answered.
async fn block(
    connections: Vec<Connection>,
    options: &LoadOptions,
    next: &Arc<AtomicU64>,
) -> BenchResult<Vec<Connection>> {
    let end = next.load(Ordering::Relaxed) + options.requests;
    let mut tasks = JoinSet::new();
    for mut connection in connections {
        let (next, lengths) = (Arc::clone(next), options.accept_length.clone());
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return BenchResult::Ok(connection);
                }
                check(&connection.exchange(number).await?, &lengths)?;
            }
        });
    }
    let mut connections = Vec::with_capacity(tasks.len());
    while let Some(done) = tasks.join_next().await {
        connections.push(done.map_err(|error| BenchError::new(error.to_string()))??);
    }
    next.store(end, Ordering::Relaxed);
    Ok(connections)
}
