//! Roll-ups: what usage is read from, so that no dashboard ever scans rows. The same rows are added up several times
//! over, each time telling other columns apart (a cube), by hour and by day; a question is answered from the smallest
//! cube that can tell what it asks for. Users are many, so they are counted by day only.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

use gateway_core::ids::OrgId;
use gateway_core::logs::{LogRow, log_id_time};
use gateway_core::time::{DAY, HOUR};
use gateway_core::totals::{Latencies, Totals, digest};
use sqlx::AssertSqlSafe;

use super::bulk::{Bulk, among, numbers};
use super::write::clean;
use crate::row::{Arg, Row, args};
use crate::{StoreError, Tx};

/// A choice of columns that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Cube {
    /// Status.
    All = 0,
    /// Provider, model, status.
    Models = 1,
    /// Key, application, team, status.
    Keys = 2,
    /// Everything but the user.
    Whole = 3,
    /// User.
    Users = 4,
    /// Everything but the status.
    UsersWhole = 5,
}

impl Cube {
    const EACH: [Self; 6] = [Self::All, Self::Models, Self::Keys, Self::Whole, Self::Users, Self::UsersWhole];

    pub(super) fn number(self) -> i64 {
        self as i64
    }

    /// Kept by the hour, not only by the day?
    pub(super) fn has_hours(self) -> bool {
        !matches!(self, Self::Users | Self::UsersWhole)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Dims {
    cube: Cube,
    org: OrgId,
    provider: Option<String>,
    model: Option<String>,
    key: Option<String>,
    app: Option<String>,
    team: Option<String>,
    user: Option<String>,
    status: Option<i64>,
}

impl Dims {
    fn of(row: &LogRow, cube: Cube) -> Self {
        let models = matches!(cube, Cube::Models | Cube::Whole | Cube::UsersWhole);
        let keys = matches!(cube, Cube::Keys | Cube::Whole | Cube::UsersWhole);
        let users = matches!(cube, Cube::Users | Cube::UsersWhole);
        Self {
            cube,
            org: row.org_id,
            provider: models.then(|| clean(&row.provider)),
            model: row.model.as_deref().filter(|_| models).map(clean),
            key: row.key_id.filter(|_| keys).map(|id| id.to_string()),
            app: row.app_id.filter(|_| keys).map(|id| id.to_string()),
            team: row.team_id.filter(|_| keys).map(|id| id.to_string()),
            user: row.user.as_deref().filter(|_| users).map(clean),
            status: (!users).then(|| i64::from(row.status)),
        }
    }

    fn id(&self) -> i64 {
        let Self { cube, org, provider, model, key, app, team, user, status } = self;
        let cube = cube.number().to_string();
        let status = status.map(|status| status.to_string());
        digest(&[
            Some(&cube),
            Some(&org.to_string()),
            provider.as_deref(),
            model.as_deref(),
            key.as_deref(),
            app.as_deref(),
            team.as_deref(),
            user.as_deref(),
            status.as_deref(),
        ])
    }

    fn columns(self, id: i64) -> Vec<Arg> {
        let Self { cube, org, provider, model, key, app, team, user, status } = self;
        args![id, org, cube.number(), provider, model, key, app, team, user, status]
    }
}

/// Adds new rows to every roll-up that they belong to. The caller holds the lock that keeps others out.
pub(super) async fn add(tx: &mut Tx, rows: &[&LogRow]) -> Result<(), StoreError> {
    let mut dims: HashMap<Dims, i64> = HashMap::new();
    let mut hours: BTreeMap<(i64, i64), Totals> = BTreeMap::new();
    let mut days: BTreeMap<(i64, i64), Totals> = BTreeMap::new();
    for row in rows {
        let at = log_id_time(row.id).0;
        let totals = Totals::of(row);
        for cube in Cube::EACH {
            let dim = Dims::of(row, cube);
            let id = *dims.entry(dim).or_insert_with_key(Dims::id);
            if cube.has_hours() {
                hours.entry((at.div_euclid(HOUR) * HOUR, id)).or_default().add(&totals);
            }
            days.entry((at.div_euclid(DAY) * DAY, id)).or_default().add(&totals);
        }
    }
    merge(tx, Grain::Hours, &mut hours).await?;
    let known = merge(tx, Grain::Days, &mut days).await?;
    let mut unknown: Vec<(Dims, i64)> = dims.into_iter().filter(|(_, id)| !known.contains(id)).collect();
    unknown.sort_unstable_by_key(|(_, id)| *id);
    DIMS.run(tx, unknown.into_iter().map(|(dims, id)| dims.columns(id)).collect()).await
}

#[derive(Clone, Copy)]
pub(super) enum Grain {
    Hours,
    Days,
}

impl Grain {
    pub(super) fn table(self) -> &'static str {
        match self {
            Self::Hours => "usage_hours",
            Self::Days => "usage_days",
        }
    }
}

/// Adds to what is stored. Answers the dims of which something was.
async fn merge(
    tx: &mut Tx,
    grain: Grain,
    new: &mut BTreeMap<(i64, i64), Totals>,
) -> Result<BTreeSet<i64>, StoreError> {
    let table = grain.table();
    let sql =
        format!("SELECT dim_id, {SUMS} FROM {table} WHERE at = $1 AND {}", among(tx.dialect(), "dim_id", 2));
    let mut known = BTreeSet::new();
    let times: BTreeSet<i64> = new.keys().map(|(at, _)| *at).collect();
    for at in times {
        let ids = new.range((at, i64::MIN)..=(at, i64::MAX)).map(|((_, id), _)| *id);
        let list = numbers(ids);
        for row in tx.all(AssertSqlSafe(sql.clone()), args![at, list]).await? {
            let id = row.get("dim_id")?;
            known.insert(id);
            if let Some(totals) = new.get_mut(&(at, id)) {
                totals.add(&read_totals(&row)?);
            }
        }
    }
    let bulk = match grain {
        Grain::Hours => &*HOURS,
        Grain::Days => &*DAYS,
    };
    bulk.run(tx, new.iter().map(|((at, id), totals)| columns(*at, *id, totals)).collect()).await?;
    Ok(known)
}

/// The columns that `read_totals` reads.
pub(super) const SUMS: &str = "requests, prompt_tokens, completion_tokens, cost, priced, unpriced, errors, cache_hits, \
    latency_sum, latency_min, latency_max, latencies";

pub(super) fn read_totals(row: &Row) -> Result<Totals, StoreError> {
    let mut latencies = Latencies::default();
    let text: String = row.get("latencies")?;
    latencies.merge_encoded(row.get("latency_sum")?, row.get("latency_min")?, row.get("latency_max")?, &text);
    Ok(Totals {
        requests: row.get("requests")?,
        prompt_tokens: row.get("prompt_tokens")?,
        completion_tokens: row.get("completion_tokens")?,
        cost: row.get("cost")?,
        priced: row.get("priced")?,
        unpriced: row.get("unpriced")?,
        errors: row.get("errors")?,
        cache_hits: row.get("cache_hits")?,
        latencies,
    })
}

fn columns(at: i64, id: i64, totals: &Totals) -> Vec<Arg> {
    let Totals {
        requests,
        prompt_tokens,
        completion_tokens,
        cost,
        priced,
        unpriced,
        errors,
        cache_hits,
        latencies,
    } = totals;
    args![
        id,
        at,
        *requests,
        *prompt_tokens,
        *completion_tokens,
        *cost,
        *priced,
        *unpriced,
        *errors,
        *cache_hits,
        latencies.sum,
        latencies.min,
        latencies.max,
        latencies.encode(),
    ]
}

static DIMS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        "INSERT INTO usage_dims (id, org_id, cube, provider, model, key_id, app_id, team_id, user_id, status) VALUES",
        "(?,?,?,?,?,?,?,?,?,?)",
        "ON CONFLICT (id) DO NOTHING",
    )
});
static HOURS: LazyLock<Bulk> = LazyLock::new(|| upsert(Grain::Hours));
static DAYS: LazyLock<Bulk> = LazyLock::new(|| upsert(Grain::Days));

fn upsert(grain: Grain) -> Bulk {
    let set: Vec<String> =
        SUMS.split(", ").map(str::trim).map(|name| format!("{name} = excluded.{name}")).collect();
    Bulk::new(
        &format!("INSERT INTO {} (dim_id, at, {SUMS}) VALUES", grain.table()),
        "(?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        &format!("ON CONFLICT (dim_id, at) DO UPDATE SET {}", set.join(", ")),
    )
}
