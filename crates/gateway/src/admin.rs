//! The operator's private listener: metrics of the process in Prometheus format, health, and probes for load balancers.
//! It requires no authentication, so it must not be reachable from outside.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use gateway_store::StoreError;
use gateway_store::queues::{self, QueueDepth};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::app::App;
use crate::metrics::exposition::Format;
use crate::metrics::node::{NodeState, QueueState, SpoolState};
use crate::metrics::process::ProcessStats;
use crate::services::Services;

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// A database that does not answer within this time must not delay a scrape any longer.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(2);
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Scrapers and probes need a few. Beyond that, what hangs on this listener would take the descriptors of callers.
const MAX_CONNECTIONS: usize = 64;

pub async fn serve(app: Arc<App>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = app.services.tasks.stopping() => return,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            continue;
        };
        // Closed at once. An idle connection is closed after the header timeout, so there is room again soon.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let service_app = Arc::clone(&app);
        let service = service_fn(move |request: Request<Incoming>| {
            let app = Arc::clone(&service_app);
            async move { Ok::<_, Infallible>(respond(&app, request.uri().path(), request.headers()).await) }
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let stopping = Arc::clone(&app);
        app.services.tasks.spawn(async move {
            let _place = place;
            tokio::select! {
                _ = connection => {}
                () = stopping.services.tasks.stopping() => {}
            }
        });
    }
}

async fn respond(app: &App, path: &str, headers: &HeaderMap) -> Response {
    match path {
        "/metrics" => {
            let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
            let format = Format::from_accept(accept);
            text(StatusCode::OK, format.content_type(), metrics(app, format).await)
        }
        "/healthz" => {
            let health = app.health.check(&app.services, &app.proxy).await;
            let status = if health.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            text(status, "application/json", serde_json::to_string(&health).unwrap_or_default())
        }
        // A node that is stopping finishes its requests but must not get new ones.
        "/readyz" if app.services.tasks.is_stopping() => {
            text(StatusCode::SERVICE_UNAVAILABLE, "text/plain", "stopping\n".into())
        }
        "/livez" | "/readyz" => text(StatusCode::OK, "text/plain", "ok\n".into()),
        _ => text(StatusCode::NOT_FOUND, "text/plain", "try /metrics, /healthz, /livez or /readyz\n".into()),
    }
}

async fn metrics(app: &App, format: Format) -> String {
    let node = node_state(app).await;
    let process = tokio::task::spawn_blocking(ProcessStats::read).await.ok().flatten();
    app.proxy.metrics.render(format, &node, process.as_ref())
}

async fn node_state(app: &App) -> NodeState {
    let (services, proxy) = (&app.services, &app.proxy);
    let counters = &app.connections.counters;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let [closed, open, half_open] = proxy.health.breaker_counts();
    let queues = tokio::time::timeout(QUEUE_TIMEOUT, queue_states(app)).await;
    let log_bytes = tokio::time::timeout(QUEUE_TIMEOUT, queues::log_bytes(&services.logs)).await;
    NodeState {
        uptime_seconds: services.started.elapsed().as_secs(),
        spool: spool_state(app),
        cache_bytes: proxy.cache.bytes(),
        memory_bytes: services.memory.used(),
        memory_refusals: services.memory.refusals(),
        calls: services.calls.running(),
        calls_refused: services.calls.refusals(),
        connections: app.connections.open() as u64,
        connections_refused: [
            ("total", count(&counters.refused_total)),
            ("address", count(&counters.refused_address)),
        ],
        connections_closed: [
            ("room", count(&counters.closed_for_room)),
            ("head_timeout", count(&counters.closed_head_timeout)),
            ("idle", count(&counters.closed_idle)),
        ],
        breakers: [("closed", closed), ("open", open), ("half_open", half_open)],
        breakers_opened: proxy.health.breakers_opened(),
        compute: services.compute.stats(),
        queries: app.shares.queries.stats(),
        audit_entries: gateway_store::audit::written(),
        audit_checkpoint_age: app.audit.seconds_since_pass(),
        database_waits: vec![
            ("state", services.db.waits()),
            ("authentication", services.db_authentication.waits()),
            ("logs", services.logs.waits()),
            ("logs_low_priority", services.logs_low_priority.waits()),
        ],
        queues: queues.ok().and_then(Result::ok),
        log_database_bytes: log_bytes.ok().and_then(Result::ok).map(|bytes| bytes.max(0).cast_unsigned()),
        redis_is_up: proxy.redis.as_ref().map(|redis| redis.is_up()),
        nodes: app.cluster.live_nodes(),
    }
}

fn spool_state(app: &App) -> SpoolState {
    let spool = &app.proxy.spool;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    SpoolState {
        bytes: spool.backlog(),
        limit_bytes: spool.limit(),
        oldest_seconds: spool.oldest_age().as_secs_f64(),
        is_writable: spool.is_writable(),
        rows_appended: count(&spool.appended),
        bodies_shed: count(&spool.shed_bodies),
        rows_shed: count(&spool.shed_rows),
        rows_stored: count(&app.log_quotas.stored_rows),
        body_bytes: count(&app.log_quotas.body_bytes),
        compressed_bytes: count(&app.log_quotas.compressed_bytes),
        rows_over_quota: count(&app.log_quotas.counted_rows),
        bodies_over_quota: count(&app.log_quotas.dropped_bodies),
        rows_quarantined: spool.set_aside.quarantined(),
        damage: spool.set_aside.damaged(),
    }
}

async fn queue_states(app: &App) -> Result<[(&'static str, QueueState); 3], StoreError> {
    let Services { db, logs, clock, .. } = &*app.services;
    let now = clock.now();
    let (jobs, deliveries, exports) =
        tokio::try_join!(queues::jobs(db, now), queues::deliveries(db, now), queues::exports(logs, now))?;
    let state = |depth: QueueDepth| {
        let waited = depth.oldest.map_or(0, |oldest| (now.0 - oldest.0).max(0));
        QueueState {
            items: depth.items.max(0).cast_unsigned(),
            oldest_seconds: Duration::from_millis(waited.cast_unsigned()).as_secs_f64(),
        }
    };
    Ok([("jobs", state(jobs)), ("deliveries", state(deliveries)), ("exports", state(exports))])
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
