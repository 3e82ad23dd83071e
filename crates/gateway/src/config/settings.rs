//! The table of settings: name, default and meaning of each. The environment variable, the key in the TOML file,
//! `gateway config` and the help text all come from it.

/// One setting. Its environment variable is `GATEWAY_` and the key in capitals.
pub struct Setting {
    pub key: &'static str,
    pub default: &'static str,
    pub secret: bool,
    pub help: &'static str,
}

const fn plain(key: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting { key, default, secret: false, help }
}

const fn secret(key: &'static str, help: &'static str) -> Setting {
    Setting { key, default: "", secret: true, help }
}

pub static SETTINGS: &[Setting] = &[
    plain("listen", "127.0.0.1:8080", "address of the service; port 0 picks a free one"),
    plain("data_dir", "./data", "SQLite file, log spool, generated secrets"),
    plain("database_url", "", "sqlite://PATH or postgres://…; default sqlite://{data_dir}/gateway.db"),
    Setting {
        key: "redis_url",
        default: "",
        secret: false,
        help: "shared rate limits, shared cache, cross-node invalidation",
    },
    secret(
        "token_secret",
        "HMAC key of session tokens; generated once in data_dir, required with PostgreSQL",
    ),
    secret(
        "master_key",
        "64 hex digits; seals stored secrets; generated once in data_dir, required with PostgreSQL",
    ),
    plain("default_plan", "free", "plan of new organizations: free, pro or enterprise"),
    plain(
        "plan_changes",
        "owner",
        "who sets an organization's plan: owner, or operator (gateway admin set-plan)",
    ),
    plain("auth_attempts", "10", "attempts per 15 minutes and IP, counted apart for signup, login and setup"),
    plain("trusted_proxies", "", "CIDRs, comma separated, whose X-Forwarded-For is believed"),
    plain("rate_limit_free", "1000", "requests per minute and API key on the free plan; 0 = unlimited"),
    plain("rate_limit_pro", "10000", "the same on the pro plan"),
    plain("rate_limit_enterprise", "100000", "the same on the enterprise plan"),
    plain(
        "egress_private",
        "auto",
        "may tenants' URLs reach private addresses: allow, deny, auto (only while listening on loopback)",
    ),
    plain("judge_provider", "builtin", "judge that a new rubric starts with"),
    plain("judge_model", "rubric-v1", "its model"),
    plain("embed_provider", "builtin", "embeddings that a new rubric starts with"),
    plain("embed_model", "hash-v1", "their model"),
    plain("embed_dims", "256", "their dimensions, 1 to 8192"),
    plain("public_docs", "false", "serve /openapi.yaml and /llms.txt without authentication"),
    plain("admin_listen", "", "a second, private listener: Prometheus /metrics, /healthz, /livez, /readyz"),
    plain("eval_queue", "256", "size of the evaluation dispatch buffer"),
    plain("max_body_bytes", "33554432", "larger request bodies get 413"),
    plain("proxy_timeout_ms", "600000", "limit of a whole upstream call"),
    plain("log_bodies", "true", "keep request and response bodies (up to 256 KiB each) with log rows"),
    plain("log_retention_days", "30", "older log rows are removed in the background"),
    plain(
        "spool_bytes",
        "1073741824",
        "log rows that wait on disk while the database is away; past it bodies are shed first",
    ),
    plain(
        "outage_grace_s",
        "3600",
        "how long known keys are still served while PostgreSQL cannot be asked whether they were revoked",
    ),
    plain("cache_bytes", "67108864", "memory for cached answers of all organizations together"),
    plain("prices_file", "", "a CSV file whose prices go over the built-in ones"),
    plain("workers", "", "threads that carry requests; default one per core"),
    plain("log_level", "info", "the server's own log: error, warn, info, debug or trace"),
];

/// The settings of each provider, as `GATEWAY_PROVIDER_<NAME>_<WHAT>` or `[providers.<name>]` in the file.
pub static PROVIDER_SETTINGS: &[Setting] = &[
    plain("base_url", "", "base URL of the provider; the caller's path and query are appended"),
    secret("api_key", "the operator's own credential for the provider"),
];

pub fn env_name(key: &str) -> String {
    format!("GATEWAY_{}", key.to_uppercase())
}
