//! Roll-ups: usage totals by hour and by day, so that dashboards do not scan log rows.
//!
//! The same rows are added up in several cubes, each with its own set of dimensions. A query reads the smallest cube
//! that has the columns it filters and groups by.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;

use gateway_core::ids::{AppId, KeyId, OrgId, TeamId};
use gateway_core::logs::{LogRow, LogSource, log_id_time};
use gateway_core::time::{DAY, HOUR};
use gateway_core::totals::{Totals, digest};
use rustc_hash::FxBuildHasher;
use sqlx::AssertSqlSafe;

use super::bulk::{Bulk, id_list, in_ids};
use super::columns::{clean, cleaned};
use super::days::{BatchDays, LineLimits};
use super::{closed_days, fold};
use crate::row::{Arg, args};
use crate::{StoreError, Tx};

/// A set of dimensions.
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
    /// Prompt, provider, model, key, application, team; only of requests that have a prompt.
    Prompts = 6,
}

impl Cube {
    const EACH: [Self; 6] = [Self::All, Self::Models, Self::Keys, Self::Whole, Self::Users, Self::UsersWhole];

    /// The cubes that rows belong to.
    pub(super) fn of(rows: &RollupKey<'_>) -> impl Iterator<Item = Self> + use<> {
        Self::EACH.into_iter().chain(rows.prompt.map(|_| Self::Prompts))
    }

    pub(super) fn has_user(self) -> bool {
        matches!(self, Self::Users | Self::UsersWhole)
    }

    pub(super) fn number(self) -> i64 {
        self as i64
    }

    /// The table of its hourly totals.
    pub(super) fn hours(self) -> Grain {
        if self.has_user() { Grain::UserHours } else { Grain::Hours }
    }
}

/// The columns of a line. They are those of a row: what names the line is only made of them once per batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Dims<'a> {
    cube: Cube,
    org: OrgId,
    provider: Option<&'a str>,
    model: Option<&'a str>,
    key: Option<KeyId>,
    app: Option<AppId>,
    team: Option<TeamId>,
    user: Option<&'a str>,
    status: Option<u16>,
    prompt: Option<&'a str>,
    /// Set for the gateway's own calls, and for ingested spans in the cubes that spending is read from.
    source: Option<&'static str>,
}

impl<'a> Dims<'a> {
    pub(super) fn of(rows: &RollupKey<'a>, cube: Cube) -> Self {
        let has_model = matches!(cube, Cube::Models | Cube::Whole | Cube::UsersWhole | Cube::Prompts);
        let has_key = matches!(cube, Cube::Keys | Cube::Whole | Cube::UsersWhole | Cube::Prompts);
        let has_user = cube.has_user();
        let prompt = rows.prompt.filter(|_| cube == Cube::Prompts);
        let spending = matches!(cube, Cube::All | Cube::Keys);
        let source = rows.separate.filter(|source| source.is_internal() || spending);
        Self {
            cube,
            org: rows.org,
            provider: has_model.then_some(rows.provider),
            model: rows.model.filter(|_| has_model),
            key: rows.key.filter(|_| has_key),
            app: rows.app.filter(|_| has_key),
            team: rows.team.filter(|_| has_key),
            user: rows.user.filter(|_| has_user),
            status: (!has_user && prompt.is_none()).then_some(rows.status),
            prompt,
            source: source.map(LogSource::as_str),
        }
    }

    /// The id of the line: a digest of its columns as they are stored. Texts that are stored alike have one line.
    pub(super) fn id(&self) -> i64 {
        let Self { cube, org, provider, model, key, app, team, user, status, prompt, source } = self;
        let (cube, org) = (cube.number().to_string(), org.to_string());
        let [provider, model, user, prompt] = [provider, model, user, prompt].map(|text| text.map(cleaned));
        let key = key.map(|id| id.to_string());
        let app = app.map(|id| id.to_string());
        let team = team.map(|id| id.to_string());
        let status = status.map(|status| status.to_string());
        let mut columns = vec![
            Some(cube.as_str()),
            Some(org.as_str()),
            provider.as_deref(),
            model.as_deref(),
            key.as_deref(),
            app.as_deref(),
            team.as_deref(),
            user.as_deref(),
            status.as_deref(),
        ];
        // These columns were added later; rows without them keep their old id. Only one cube has prompts, all of its
        // rows have one, and so no two rows have the same columns.
        columns.extend(prompt.as_deref().map(Some));
        columns.extend(source.map(Some));
        digest(&columns)
    }

    fn columns(self, id: i64) -> Vec<Arg> {
        let Self { cube, org, provider, model, key, app, team, user, status, prompt, source } = self;
        let [provider, model, user, prompt] = [provider, model, user, prompt].map(|text| text.map(clean));
        let status = status.map(i64::from);
        args![id, org, cube.number(), provider, model, key, app, team, user, status, prompt, source]
    }
}

/// The dimensions of all cubes in one hour. A batch has few distinct keys, so its rows are added up by key first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RollupKey<'a> {
    hour: i64,
    pub(super) org: OrgId,
    pub(super) provider: &'a str,
    pub(super) model: Option<&'a str>,
    key: Option<KeyId>,
    app: Option<AppId>,
    team: Option<TeamId>,
    pub(super) user: Option<&'a str>,
    prompt: Option<&'a str>,
    status: u16,
    /// The source, if its rows are added up apart from others.
    separate: Option<LogSource>,
}

impl<'a> RollupKey<'a> {
    fn of(row: &'a LogRow) -> Self {
        Self {
            hour: log_id_time(row.id).0.div_euclid(HOUR) * HOUR,
            org: row.org_id,
            provider: &row.provider,
            model: row.model.as_deref(),
            key: row.key_id,
            app: row.app_id,
            team: row.team_id,
            user: row.user.as_deref(),
            prompt: row.prompt.as_ref().map(|prompt| prompt.name.as_str()),
            status: row.status,
            separate: Some(row.source).filter(|source| source.is_internal() || *source == LogSource::Otel),
        }
    }

    pub(super) fn is_ingested(&self) -> bool {
        self.separate == Some(LogSource::Otel)
    }

    pub(super) fn day(&self) -> i64 {
        self.hour.div_euclid(DAY) * DAY
    }
}

/// The sums of new rows. They are made before the lock of usage is taken: other writers wait for it.
pub(super) struct NewSums<'a> {
    by_key: fold::ByKey<'a>,
    dims: HashMap<i64, Dims<'a>, FxBuildHasher>,
    grains: BTreeMap<Grain, Sums>,
}

impl<'a> NewSums<'a> {
    pub(super) fn of(rows: &[&'a LogRow]) -> Self {
        let mut by_key = fold::ByKey::default();
        for row in rows {
            by_key.entry(RollupKey::of(row)).or_default().add_row(row);
        }
        Self::of_keys(by_key)
    }

    /// Rows are summed by line first: most lines have several keys, and the id of a line is expensive to compute.
    fn of_keys(by_key: fold::ByKey<'a>) -> Self {
        let mut hours: HashMap<(i64, Dims<'a>), Totals, FxBuildHasher> = HashMap::default();
        for (key, totals) in &by_key {
            for cube in Cube::of(key) {
                hours.entry((key.hour, Dims::of(key, cube))).or_default().add(totals);
            }
        }
        let mut dims = HashMap::default();
        let mut grains: BTreeMap<Grain, Sums> = BTreeMap::new();
        for ((hour, line), totals) in hours {
            let id = line.id();
            dims.insert(id, line);
            let day = (hour.div_euclid(DAY) * DAY, id);
            grains.entry(Grain::Days).or_default().entry(day).or_default().add(&totals);
            grains.entry(line.cube.hours()).or_default().entry((hour, id)).or_default().add(&totals);
        }
        Self { by_key, dims, grains }
    }
}

/// Adds new rows to all roll-ups, and their new lines to the counts of their days. The caller holds the lock of usage.
pub(super) async fn add(
    tx: &mut Tx,
    mut new: NewSums<'_>,
    days: &mut BatchDays,
    limits: LineLimits,
) -> Result<(), StoreError> {
    if let Some(folded) = fold::fold(tx, &new.by_key, days, limits).await? {
        new = NewSums::of_keys(folded);
    }
    let NewSums { dims, mut grains, .. } = new;
    let models: BTreeSet<i64> =
        dims.iter().filter(|(_, dims)| dims.cube == Cube::Models).map(|(id, _)| *id).collect();
    let by_model = grains.get(&Grain::Days).into_iter().flatten().filter(|((_, id), _)| models.contains(id));
    let by_model: Vec<(i64, i64, Totals)> =
        by_model.map(|((day, id), totals)| (*id, *day, totals.clone())).collect();
    closed_days::add_late(tx, &by_model).await?;
    let found = add_stored(tx, &mut grains).await?;
    for (day, id) in grains.get(&Grain::Days).into_iter().flat_map(Sums::keys) {
        if !found.contains(&(*day, *id))
            && let Some(dims) = dims.get(id)
        {
            let counts = days.counts(dims.org, *day);
            *(if dims.cube.has_user() { &mut counts.user_lines } else { &mut counts.model_lines }) += 1;
        }
    }
    for (grain, sums) in &grains {
        let lines = sums.iter().map(|((at, id), totals)| args![*id, *at, totals.pack(*at)]);
        grain.upsert().run(tx, lines).await?;
    }
    let known: HashSet<i64, FxBuildHasher> = found.into_iter().map(|(_, id)| id).collect();
    let mut unknown: Vec<(i64, Dims<'_>)> = dims.into_iter().filter(|(id, _)| !known.contains(id)).collect();
    unknown.sort_unstable_by_key(|(id, _)| *id);
    DIMS.run(tx, unknown.into_iter().map(|(id, dims)| dims.columns(id))).await
}

/// Totals by start of the hour or day and by dimension id.
type Sums = BTreeMap<(i64, i64), Totals>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Grain {
    Hours,
    UserHours,
    Days,
}

impl Grain {
    const EACH: [Self; 3] = [Self::Hours, Self::UserHours, Self::Days];

    fn number(self) -> i64 {
        self as i64
    }

    fn upsert(self) -> &'static Bulk {
        match self {
            Self::Hours => &HOURS,
            Self::UserHours => &USER_HOURS,
            Self::Days => &DAYS,
        }
    }

    pub(super) fn table(self) -> &'static str {
        match self {
            Self::Hours => "usage_hours",
            Self::UserHours => "usage_user_hours",
            Self::Days => "usage_days",
        }
    }
}

/// Adds the stored totals to the new ones. Returns the days and dimension ids that had totals. One statement reads all
/// grains, because readers wait for the batch and each statement waits for a core on a busy machine. It returns the lines
/// of a grain as one text, because there are as many as rows, and a column of a row costs more than all of a line.
async fn add_stored(
    tx: &mut Tx,
    new: &mut BTreeMap<Grain, Sums>,
) -> Result<HashSet<(i64, i64), FxBuildHasher>, StoreError> {
    let read = |(number, grain): (usize, Grain)| {
        let (at, ids) = (2 * number + 1, in_ids(tx.dialect(), "dim_id", 2 * number + 2));
        let (grain, table) = (grain.number(), grain.table());
        format!(
            "SELECT CAST({grain} AS BIGINT) AS grain, string_agg(CAST(dim_id AS TEXT) || ':' || totals, ';') AS lines \
             FROM {table} WHERE at = ${at} AND {ids}"
        )
    };
    let sql = Grain::EACH.into_iter().enumerate().map(read).collect::<Vec<_>>().join(" UNION ALL ");
    let times: Vec<Vec<i64>> =
        Grain::EACH.iter().map(|grain| new.get(grain).map(times_of).unwrap_or_default()).collect();
    let mut known = HashSet::default();
    // Almost always one hour and its day.
    for round in 0..times.iter().map(Vec::len).max().unwrap_or(0) {
        let mut args = Vec::with_capacity(2 * times.len());
        for (grain, times) in Grain::EACH.iter().zip(&times) {
            let at = times.get(round).copied();
            let lines = at.and_then(|at| Some(new.get(grain)?.range((at, i64::MIN)..=(at, i64::MAX))));
            let list = id_list(lines.into_iter().flatten().map(|((_, id), _)| *id));
            args.extend(args![at.unwrap_or_default(), list]);
        }
        for row in tx.all(AssertSqlSafe(sql.clone()), args).await? {
            let grain: i64 = row.get("grain")?;
            let Some(at) = Grain::EACH.into_iter().position(|one| one.number() == grain) else { continue };
            let (grain, Some(at)) = (Grain::EACH[at], times[at].get(round).copied()) else { continue };
            let (Some(sums), Some(lines)) = (new.get_mut(&grain), row.get::<Option<String>>("lines")?) else {
                continue;
            };
            for (id, totals) in lines.split(';').filter_map(|line| line.split_once(':')) {
                let Ok(id) = id.parse() else { continue };
                let line = (at, id);
                if let Some(sum) = sums.get_mut(&line) {
                    sum.add_packed(totals);
                    if grain == Grain::Days {
                        known.insert(line);
                    }
                }
            }
        }
    }
    Ok(known)
}

/// The hours or days of these totals.
fn times_of(sums: &Sums) -> Vec<i64> {
    let mut times: Vec<i64> = sums.keys().map(|(at, _)| *at).collect();
    times.dedup();
    times
}

static DIMS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        "INSERT INTO usage_dims (id, org_id, cube, provider, model, key_id, app_id, team_id, user_id, status, prompt, \
         source)",
        "(?,?,?,?,?,?,?,?,?,?,?,?)",
        "ON CONFLICT (id) DO NOTHING",
    )
});
static HOURS: LazyLock<Bulk> = LazyLock::new(|| upsert(Grain::Hours));
static USER_HOURS: LazyLock<Bulk> = LazyLock::new(|| upsert(Grain::UserHours));
static DAYS: LazyLock<Bulk> = LazyLock::new(|| upsert(Grain::Days));

fn upsert(grain: Grain) -> Bulk {
    Bulk::new(
        &format!("INSERT INTO {} (dim_id, at, totals)", grain.table()),
        "(?,?,?)",
        "ON CONFLICT (dim_id, at) DO UPDATE SET totals = excluded.totals",
    )
}
