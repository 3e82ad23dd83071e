//! The operator's private listener: metrics of the process in Prometheus format, health, and probes for load balancers.
//! It requires no authentication, so it must not be reachable from outside.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use crate::app::App;
use crate::metrics::ProcessState;

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

pub async fn serve(app: Arc<App>, listener: TcpListener) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = app.services.tasks.stopping() => return,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            continue;
        };
        let service_app = Arc::clone(&app);
        let service = service_fn(move |request: Request<Incoming>| {
            let app = Arc::clone(&service_app);
            async move { Ok::<_, Infallible>(respond(&app, request.uri().path()).await) }
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let stopping = Arc::clone(&app);
        app.services.tasks.spawn(async move {
            tokio::select! {
                _ = connection => {}
                () = stopping.services.tasks.stopping() => {}
            }
        });
    }
}

async fn respond(app: &App, path: &str) -> Response {
    match path {
        "/metrics" => text(StatusCode::OK, "text/plain; version=0.0.4", metrics(app)),
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

fn metrics(app: &App) -> String {
    let spool = &app.proxy.spool;
    let memory = &app.services.memory;
    let counters = &app.connections.counters;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    app.proxy.metrics.render(&ProcessState {
        uptime_seconds: app.services.started.elapsed().as_secs(),
        spool_bytes: spool.backlog(),
        rows_appended: spool.appended.load(Ordering::Relaxed),
        bodies_shed: spool.shed_bodies.load(Ordering::Relaxed),
        rows_shed: spool.shed_rows.load(Ordering::Relaxed),
        rows_over_quota: app.log_quotas.counted_rows.load(Ordering::Relaxed),
        bodies_over_quota: app.log_quotas.dropped_bodies.load(Ordering::Relaxed),
        rows_quarantined: spool.set_aside.quarantined(),
        spool_damage: spool.set_aside.damaged(),
        cache_bytes: app.proxy.cache.bytes(),
        memory_bytes: memory.used(),
        memory_refusals: memory.refusals(),
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
        compute: app.services.compute.stats(),
        queries: app.shares.queries.stats(),
    })
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
