//! LiteLLM's keys: rows of the table `LiteLLM_VerificationToken`. LiteLLM stores the SHA-256 of a key, so that imported
//! keys go on working although nobody knows them.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::limits::Limits;
use super::litellm_limits::CountedTokens;
use super::report::Fate::{Approximate, Exact, Manual, Unsupported};
use super::report::{Fate, Known, Report, UNKNOWN, item, join};
use super::table::{self, Tables};
use super::{
    Import, ImportError, Plan, PlannedBudget, PlannedKey, Status, litellm_customers, litellm_limits,
};
use crate::accounts::{KeyHash, check_name};
use crate::budget::{MAX_BUDGETS, Period, limit_units};
use crate::scopes::Scopes;
use crate::time::Timestamp;

const LIMIT: Fate =
    Approximate("becomes a limit of the key; it refills all the time, not at the full minute");
const TOKEN_LIMIT: Fate = Approximate(
    "becomes a limit of the key, of all tokens unless general_settings of the source has another token_rate_limit_type; it \
     refills all the time, not at the full minute",
);
const TEAM_LIMIT: Fate =
    Approximate("becomes one limit of the keys of the team; keys that are made later are not in it");
const INFORMATION: Fate = Exact("is information that the gateway does not need");

const COLUMNS: &Known = &[
    ("token", Exact("the hash of the key; the key goes on working below /compat/litellm")),
    ("key_alias", Exact("becomes the name of the key")),
    ("key_name", Exact("is shown as the prefix of the key")),
    ("models", Exact("becomes scopes of the key")),
    ("expires", Exact("becomes the expiry of the key")),
    ("blocked", Exact("a blocked key is imported as a revoked one")),
    ("max_budget", Approximate("becomes a budget of the key per calendar day, week or month")),
    ("budget_duration", Approximate("24h and 1d become a calendar day, 7d a week, 30d and 1mo a month")),
    ("spend", Approximate("counts in the first period of the budget, unless budget_reset_at has passed")),
    ("soft_budget", Approximate("becomes the soft limit of the budget")),
    ("tpm_limit", TOKEN_LIMIT),
    ("rpm_limit", LIMIT),
    ("max_parallel_requests", LIMIT),
    ("model_rpm_limit", LIMIT),
    ("model_tpm_limit", TOKEN_LIMIT),
    ("rate_limits", Manual("create limits by hand: POST /orgs/:orgId/limits")),
    (
        "team_id",
        Approximate(
            "the models of the team limit the key where its table is in the file too; teams are not created",
        ),
    ),
    ("user_id", Manual("create the member here; keys belong to the organization")),
    ("organization_id", Manual("all keys are imported into one organization")),
    ("org_id", Manual("all keys are imported into one organization")),
    ("budget_id", Manual("shared budgets are not imported; create a budget of the organization or a team")),
    (
        "metadata",
        Approximate(
            "model_rpm_limit and model_tpm_limit become limits; the rest is not imported: tags and routing by metadata \
             are set in requests",
        ),
    ),
    ("aliases", Manual("aliases of a key are not imported; create a named model for each")),
    ("config", Manual("settings of a key are not imported")),
    ("router_settings", Manual("settings of a key are not imported; create a named model")),
    ("permissions", Manual("permissions of a key are not imported; see the scopes of keys")),
    ("object_permission_id", Manual("permissions of a key are not imported; see the scopes of keys")),
    ("allowed_routes", Manual("keys are not limited to paths here; see the scopes of keys")),
    ("allowed_cache_controls", Unsupported("keys do not limit the cache")),
    ("model_max_budget", Manual("budgets by model are not imported")),
    ("model_spend", INFORMATION),
    ("budget_reset_at", Exact("afterwards spend counts no longer")),
    ("soft_budget_cooldown", INFORMATION),
    ("litellm_budget_table", Manual("shared budgets are not imported")),
    ("auto_rotate", Manual("keys are rotated with POST /keys/:keyId/rotate")),
    ("rotation_interval", Manual("keys are rotated with POST /keys/:keyId/rotate")),
    ("rotation_count", INFORMATION),
    ("last_rotation_at", INFORMATION),
    ("key_rotation_at", INFORMATION),
    ("created_at", INFORMATION),
    ("created_by", INFORMATION),
    ("updated_at", INFORMATION),
    ("updated_by", INFORMATION),
    ("last_active", INFORMATION),
];

/// Columns of `LiteLLM_TeamTable` that are read. Teams themselves are not imported.
const TEAM_COLUMNS: &Known = &[
    ("team_id", Exact("keys refer to it")),
    ("team_alias", Exact("is in the names of the team's limits")),
    ("models", Exact("limit the keys of the team")),
    ("tpm_limit", TEAM_LIMIT),
    ("rpm_limit", TEAM_LIMIT),
    ("max_parallel_requests", TEAM_LIMIT),
    ("model_rpm_limit", TEAM_LIMIT),
    ("model_tpm_limit", TEAM_LIMIT),
];
const OTHER_TEAM_COLUMN: &str = "teams are not imported; create them with POST /orgs/:orgId/teams";

pub fn plan(text: &str) -> Result<Import, ImportError> {
    let Tables { keys, teams, customers, budgets, settings, others, .. } = table::read(text)?;
    let mut report = Report::default();
    for path in &others {
        report.set(path, Status::Unsupported, UNKNOWN);
    }
    columns(&mut report, "keys", &keys, COLUMNS, None);
    columns(&mut report, "teams", &teams, TEAM_COLUMNS, Some(OTHER_TEAM_COLUMN));
    let counted = CountedTokens::read(&mut report, &settings);
    let models_of: HashMap<&str, Vec<String>> = teams
        .iter()
        .filter_map(|team| Some((team.get("team_id")?.as_str()?, names(team.get("models")))))
        .collect();
    let mut plan = Plan::default();
    let mut hashes: HashMap<KeyHash, usize> = HashMap::new();
    let mut limits = Limits::default();
    let mut members: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, row) in keys.iter().enumerate() {
        let path = item("keys", index);
        let Some(key) = key(&mut report, &path, row, &models_of) else { continue };
        if let Some(other) = hashes.insert(key.hash, index) {
            report.set(
                &path,
                Status::Unsupported,
                format!("is the same key as keys[{other}]; it is left out"),
            );
            continue;
        }
        plan.budgets.extend(budget(&mut report, &path, row, plan.keys.len(), plan.budgets.len()));
        let place = plan.keys.len();
        let title = format!("key {}", key.name);
        litellm_limits::add(&mut report, &mut limits, counted, (&path, row), (&title, &[place]));
        if let Some(team) = row.get("team_id").and_then(Value::as_str) {
            members.entry(team).or_default().push(place);
        }
        plan.keys.push(key);
    }
    for (index, team) in teams.iter().enumerate() {
        let Some(id) = team.get("team_id").and_then(Value::as_str) else { continue };
        let keys = members.get(id).map_or(&[][..], Vec::as_slice);
        let alias = team.get("team_alias").and_then(Value::as_str).filter(|alias| !alias.is_empty());
        let title = format!("team {}", alias.unwrap_or(id));
        let path = item("teams", index);
        litellm_limits::add(&mut report, &mut limits, counted, (&path, team), (&title, keys));
    }
    plan.limits = limits.into_planned();
    plan.user_budgets = litellm_customers::budgets(&mut report, &customers, &budgets);
    Ok(Import { plan, findings: report.into_findings() })
}

/// One finding for each column that has a value in some row.
pub fn columns(
    report: &mut Report,
    table: &str,
    rows: &[Map<String, Value>],
    known: &Known,
    other: Option<&'static str>,
) {
    let set = rows.iter().flatten().filter(|(_, value)| !is_empty(value));
    let used: BTreeSet<&str> = set.map(|(name, _)| name.as_str()).collect();
    for name in used {
        let path = join(&format!("{table}[*]"), name);
        match (known.iter().find(|(known, _)| *known == name), other) {
            (Some((_, fate)), _) => report.fate(&path, *fate),
            (None, Some(other)) => report.set(&path, Status::Manual, other),
            (None, None) => report.set(&path, Status::Unsupported, UNKNOWN),
        }
    }
}

/// Values that a row has if nothing was set.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => matches!(text.trim(), "" | "{}" | "[]" | "0" | "0.0" | "f" | "false" | "null"),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn key(
    report: &mut Report,
    path: &str,
    row: &Map<String, Value>,
    teams: &HashMap<&str, Vec<String>>,
) -> Option<PlannedKey> {
    let Some(hash) = hash(report, path, row) else {
        report.set(&join(path, "token"), Status::Unsupported, "a row without the hash of a key is left out");
        return None;
    };
    let scopes = scopes(report, path, row, teams)?;
    let shown = |name: &str| {
        let text = row.get(name).and_then(Value::as_str)?;
        let text: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
        check_name(&text).is_ok().then_some(text)
    };
    let expires_at = expiry(report, path, row);
    let prefix = shown("key_name").map(|text| text.chars().take(19).collect::<String>());
    let short = hash.to_hex().chars().take(8).collect::<String>();
    Some(PlannedKey {
        name: shown("key_alias").or_else(|| shown("key_name")).unwrap_or_else(|| format!("litellm {short}")),
        key_prefix: prefix.unwrap_or_else(|| "litellm".to_owned()),
        scopes,
        expires_at,
        revoked: row.get("blocked").is_some_and(is_true),
        hash,
    })
}

fn hash(report: &mut Report, path: &str, row: &Map<String, Value>) -> Option<KeyHash> {
    let token = row.get("token").and_then(Value::as_str)?.trim();
    if token.starts_with("sk-") {
        report.set(
            &join(path, "token"),
            Status::Approximate,
            "the key itself is in the file; only its hash is stored",
        );
        return Some(KeyHash(Sha256::digest(token.as_bytes()).into()));
    }
    KeyHash::from_hex(&token.to_ascii_lowercase())
}

/// The scopes of a key. A key whose models are not known is left out, because it would be allowed more than before.
fn scopes(
    report: &mut Report,
    path: &str,
    row: &Map<String, Value>,
    teams: &HashMap<&str, Vec<String>>,
) -> Option<Vec<String>> {
    let at = join(path, "models");
    let mut models = names(row.get("models"));
    let team = row.get("team_id").and_then(Value::as_str).filter(|team| !team.is_empty());
    let of_team = team.and_then(|team| teams.get(team));
    let refers_to_team = models.iter().any(|model| model == "all-team-models");
    if refers_to_team || models.is_empty() {
        match of_team {
            Some(of_team) => models.extend(of_team.iter().cloned()),
            None if refers_to_team => {
                let message = "the models of its team are not in the file, so the key is left out: add \
                               LiteLLM_TeamTable, or create the key by hand";
                report.set(&at, Status::Manual, message);
                return None;
            }
            None if team.is_some() => {
                let message = "the models of its team are not in the file: the key may use all models; add \
                               LiteLLM_TeamTable to limit it";
                report.set(&at, Status::Approximate, message);
            }
            None => {}
        }
    }
    if models.iter().any(|model| model == "no-default-models") {
        report.set(&at, Status::Manual, "the key may use no model, so it is left out");
        return None;
    }
    models.retain(|model| model != "all-team-models");
    if models.is_empty() || models.iter().any(|model| matches!(model.as_str(), "all-proxy-models" | "*")) {
        return Some(vec!["proxy".to_owned()]);
    }
    models.dedup();
    let scopes: Vec<String> = models.iter().map(|model| format!("model:{model}")).collect();
    match Scopes::parse(&scopes) {
        Ok(_) => Some(scopes),
        Err(why) => {
            report.set(&at, Status::Unsupported, format!("the key is left out: {why}"));
            None
        }
    }
}

/// A list of names: JSON, or an array of PostgreSQL such as `{gpt-4o,"a b"}`.
fn names(value: Option<&Value>) -> Vec<String> {
    let parsed;
    let list = match value {
        Some(Value::Array(list)) => list.as_slice(),
        Some(Value::String(text)) if text.trim_start().starts_with('[') => {
            parsed = serde_json::from_str::<Vec<Value>>(text).unwrap_or_default();
            parsed.as_slice()
        }
        Some(Value::String(text)) => return table::array(text),
        _ => &[],
    };
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => *flag,
        Value::String(text) => matches!(text.trim(), "t" | "true" | "True" | "TRUE" | "1"),
        Value::Number(number) => number.as_i64() == Some(1),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

fn expiry(report: &mut Report, path: &str, row: &Map<String, Value>) -> Option<Timestamp> {
    let given = time(row, "expires")?;
    if given.is_none() {
        report.set(
            &join(path, "expires"),
            Status::Unsupported,
            "is not a time, so the key is imported as one that has expired",
        );
    }
    Some(given.unwrap_or(Timestamp(0)))
}

/// The time of a column: none if it is empty, and none inside if it is not a time.
fn time(row: &Map<String, Value>, column: &str) -> Option<Option<Timestamp>> {
    let text = row.get(column).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty())?;
    // Dumps have a blank between date and time, and times in UTC without a zone.
    let iso = text.replacen(' ', "T", 1);
    let zoned = [iso.clone(), format!("{iso}Z"), format!("{iso}:00")];
    Some(zoned.iter().find_map(|text| text.parse().ok()))
}

fn budget(
    report: &mut Report,
    path: &str,
    row: &Map<String, Value>,
    key: usize,
    count: usize,
) -> Option<PlannedBudget> {
    let hard = report.number(path, row, "max_budget");
    let soft = report.number(path, row, "soft_budget").filter(|usd| *usd > 0.0);
    if hard.is_none() && soft.is_none() {
        return None;
    }
    let Some(period) = period(row) else {
        let message = "budgets are per day, week or month here; create one by hand, or the key has none";
        report.set(&join(path, "budget_duration"), Status::Manual, message);
        return None;
    };
    let are_valid = [hard, soft].into_iter().flatten().all(|usd| limit_units(usd).is_ok());
    let are_ordered = soft.is_none_or(|soft| hard.is_none_or(|hard| soft <= hard));
    if !are_valid || !are_ordered || count >= usize::try_from(MAX_BUDGETS).unwrap_or(usize::MAX) {
        let message = format!(
            "the budget is left out: an organization has at most {MAX_BUDGETS}, of at most 1000000000 USD, with a soft \
             limit below the hard one"
        );
        report.set(&join(path, "max_budget"), Status::Manual, message);
        return None;
    }
    let opening_usd = report.number(path, row, "spend").filter(|usd| *usd > 0.0 && limit_units(*usd).is_ok());
    let opening_until = opening_usd.and_then(|_| time(row, "budget_reset_at")).flatten();
    Some(PlannedBudget {
        key,
        period,
        soft_limit_usd: soft,
        hard_limit_usd: hard,
        opening_usd,
        opening_until,
    })
}

/// The period that is nearest to `budget_duration`.
pub fn period(row: &Map<String, Value>) -> Option<Period> {
    match row.get("budget_duration").and_then(Value::as_str).unwrap_or_default().trim() {
        "1d" | "24h" => Some(Period::Daily),
        "7d" | "1w" => Some(Period::Weekly),
        "30d" | "31d" | "1mo" => Some(Period::Monthly),
        _ => None,
    }
}
