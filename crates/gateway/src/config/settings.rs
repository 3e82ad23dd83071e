//! The table of settings with names, defaults and help texts. The environment variables, the keys of the TOML file,
//! `gateway config` and `--help` are derived from it.

/// One setting. Its environment variable is `GATEWAY_` followed by the key in upper case.
pub struct Setting {
    pub key: &'static str,
    pub default: &'static str,
    pub is_secret: bool,
    pub help: &'static str,
}

const fn plain(key: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting { key, default, is_secret: false, help }
}

const fn secret(key: &'static str, help: &'static str) -> Setting {
    Setting { key, default: "", is_secret: true, help }
}

pub static SETTINGS: &[Setting] = &[
    plain("listen", "127.0.0.1:8080", "address to listen on; port 0 selects a free port"),
    plain(
        "tls_cert",
        "",
        "PEM file with the certificate of the listener, followed by those of its issuers; read again when it changes",
    ),
    plain("tls_key", "", "PEM file with the private key of tls_cert"),
    plain("data_dir", "./data", "directory of the SQLite files, the log spool and generated secrets"),
    plain("database_url", "", "sqlite://PATH or postgres://…; default sqlite://{data_dir}/gateway.db"),
    plain(
        "database_connections",
        "12",
        "connections to PostgreSQL; a quarter is for background work, two for authentication, the rest for requests",
    ),
    Setting {
        key: "redis_url",
        default: "",
        is_secret: false,
        help: "optional; shares rate limits and the response cache between nodes",
    },
    secret(
        "token_secret",
        "HMAC key for session tokens; generated in data_dir if not set, required with PostgreSQL",
    ),
    secret(
        "master_key",
        "64 hex digits; encrypts stored secrets; generated in data_dir if not set, required with PostgreSQL",
    ),
    secret(
        "token_secrets_accepted",
        "comma-separated; token secrets that are accepted too but sign nothing, while the secret is being changed",
    ),
    secret(
        "master_keys_accepted",
        "comma-separated; master keys that decrypt but do not encrypt, until `gateway admin rotate-master-key` has run",
    ),
    plain("default_plan", "free", "plan of new organizations: free, pro or enterprise"),
    plain(
        "plan_changes",
        "owner",
        "who may change an organization's plan: owner, or operator (gateway admin set-plan)",
    ),
    plain(
        "auth_attempts",
        "10",
        "attempts per 15 minutes and IP address, counted separately for signup, login and setup",
    ),
    plain(
        "auth_failures",
        "6000",
        "requests with a wrong credential per minute and IP address; more are answered with 429",
    ),
    plain(
        "trusted_proxies",
        "",
        "comma-separated networks (CIDR) of proxies whose X-Forwarded-For header is trusted",
    ),
    plain("rate_limit_free", "1000", "requests per minute and API key on the free plan; 0 means unlimited"),
    plain("rate_limit_pro", "10000", "the same on the pro plan"),
    plain("rate_limit_enterprise", "100000", "the same on the enterprise plan"),
    plain(
        "quotas",
        "",
        "quotas that differ from the plans', such as free.keys=50, pro.rows_per_day=0; 0 means unlimited",
    ),
    plain("orgs_per_user", "100", "organizations that one account may own, 0 for no limit"),
    plain(
        "signup",
        "open",
        "who may create an account: open, invite (only with an invitation) or closed; the first one always can",
    ),
    plain(
        "operator_credentials",
        "all",
        "organizations that may use the operator's provider credentials: all, off, or a list of slugs and plan:NAME",
    ),
    plain(
        "allowed_origins",
        "",
        "comma-separated origins of web pages, such as https://app.example.com, that may call /mcp besides the service's own",
    ),
    plain(
        "compat",
        "",
        "comma-separated; clients of other gateways served below /compat/NAME: litellm, portkey, helicone, openrouter, \
         bifrost",
    ),
    plain(
        "operator_objects",
        "refuse",
        "objects that providers keep for the operator's credential (files, batches, …): refuse, or shared by all",
    ),
    plain(
        "egress_private",
        "auto",
        "whether URLs of tenants may reach private addresses: allow, deny, or auto (one organization, SQLite, on loopback)",
    ),
    plain("judge_provider", "builtin", "provider of the judge in a new rubric"),
    plain("judge_model", "rubric-v1", "model of the judge in a new rubric"),
    plain("embed_provider", "builtin", "provider of the embeddings in a new rubric"),
    plain("embed_model", "hash-v1", "embedding model in a new rubric"),
    plain("embed_dims", "256", "embedding dimensions in a new rubric, 1 to 8192"),
    plain(
        "public_url",
        "",
        "outside address of the gateway, such as https://ai.example.com, for links; default the host of the request",
    ),
    plain(
        "install_links",
        "false",
        "serve skills below /s/TOKEN to readers that cannot send a key; the links are created by admins",
    ),
    plain("public_docs", "false", "serve /openapi.yaml and /llms.txt without authentication"),
    plain(
        "admin_listen",
        "",
        "address of a private listener with Prometheus /metrics, /healthz, /livez and /readyz",
    ),
    plain(
        "eval_queue",
        "256",
        "maximum number of skill evaluations of an organization that wait in the queue",
    ),
    plain("max_body_bytes", "33554432", "maximum size of a request body; larger ones are rejected with 413"),
    plain(
        "memory_bytes",
        "",
        "memory for bodies that are held, of all organizations together; default half of the container's or machine's",
    ),
    plain(
        "max_connections",
        "",
        "maximum number of client connections; default by the limit of file descriptors and the memory",
    ),
    plain(
        "max_connections_per_address",
        "",
        "the same per client address, 0 for no limit; default a quarter of the total, local clients exempt",
    ),
    plain(
        "max_calls",
        "",
        "maximum number of calls in progress, of which one organization has a share; default as for max_connections",
    ),
    plain("head_timeout_ms", "30000", "time for a client to send a complete request head"),
    plain("idle_timeout_ms", "120000", "a client connection without requests is closed after this time"),
    plain("proxy_timeout_ms", "600000", "timeout of a whole call to a provider"),
    plain("log_bodies", "true", "store request and response bodies (up to 256 KiB each) with log rows"),
    plain(
        "log_retention_days",
        "30",
        "days after which log rows are removed; an organization may choose fewer",
    ),
    plain(
        "audit_retention_days",
        "3650",
        "days after which entries of audit logs are removed at the latest; an organization may choose fewer",
    ),
    plain(
        "spool_bytes",
        "1073741824",
        "disk space for log rows while the database is unreachable; when it is full, bodies are dropped first",
    ),
    plain(
        "outage_grace_s",
        "3600",
        "how long cached keys stay valid while PostgreSQL is unreachable and revocations cannot be checked",
    ),
    plain("cache_bytes", "67108864", "memory for cached responses of all organizations together"),
    plain("prices_file", "", "CSV file with prices that override the built-in ones"),
    plain("workers", "", "number of threads that serve requests; default one per core"),
    plain("log_level", "info", "level of the server's own log: error, warn, info, debug or trace"),
];

/// The settings of each provider, as `GATEWAY_PROVIDER_<NAME>_<WHAT>` or `[providers.<name>]` in the file.
pub static PROVIDER_SETTINGS: &[Setting] = &[
    plain("base_url", "", "base URL of the provider, to which the caller's path and query are appended"),
    secret("api_key", "the operator's own credential for the provider"),
];

pub fn env_name(key: &str) -> String {
    format!("GATEWAY_{}", key.to_uppercase())
}
