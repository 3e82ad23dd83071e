//! Plans a usage query: which cube it reads, and which parts of its range are read from days, hours and log rows.

use gateway_core::time::{DAY, HOUR, Interval, Timestamp};

use super::rollup::{Cube, Grain};
use super::usage::{TimeRange, UsageFilter, UsageGroup};

/// The smallest cube that has all columns of the filter and the group.
pub(super) fn smallest_cube(filter: &UsageFilter, group: Option<UsageGroup>) -> Cube {
    let UsageFilter { provider, model, key_id, app_id, team_id, user, own } = filter;
    let models = provider.is_some()
        || model.is_some()
        || matches!(group, Some(UsageGroup::Provider | UsageGroup::Model));
    let keys = key_id.is_some()
        || own.is_some()
        || app_id.is_some()
        || team_id.is_some()
        || matches!(group, Some(UsageGroup::Key | UsageGroup::App | UsageGroup::Team));
    let users = user.is_some() || own.is_some() || group == Some(UsageGroup::User);
    if group == Some(UsageGroup::Prompt) {
        return Cube::Prompts;
    }
    match (users, models, keys) {
        (true, false, false) => Cube::Users,
        (true, _, _) => Cube::UsersWhole,
        (false, false, false) => Cube::All,
        (false, true, false) => Cube::Models,
        (false, false, true) => Cube::Keys,
        (false, true, true) => Cube::Whole,
    }
}

/// Where the usage of a part of the range is read from.
#[derive(Clone, Copy)]
pub(super) enum UsageSource {
    LogRows,
    Rollup(Grain),
}

/// Splits a range into the largest parts that have roll-ups: days, then hours, then log rows.
pub(super) fn split_range(
    range: TimeRange,
    interval: Option<Interval>,
    hours: Grain,
) -> Vec<(UsageSource, TimeRange)> {
    let (from, to) = (range.from.0, range.to.0);
    let up =
        |at: i64, unit: i64| at.div_euclid(unit) * unit + if at.rem_euclid(unit) == 0 { 0 } else { unit };
    let down = |at: i64, unit: i64| at.div_euclid(unit) * unit;
    let mut parts = Vec::new();
    let mut push = |source: UsageSource, from: i64, to: i64| {
        if from < to {
            parts.push((source, TimeRange { from: Timestamp(from), to: Timestamp(to) }));
        }
    };
    let (first, last) = (up(from, HOUR), down(to, HOUR));
    if interval == Some(Interval::Minute) || first >= last {
        push(UsageSource::LogRows, from, to);
        return parts;
    }
    push(UsageSource::LogRows, from, first);
    let (first_day, last_day) = (up(first, DAY), down(last, DAY));
    if interval == Some(Interval::Hour) || first_day >= last_day {
        push(UsageSource::Rollup(hours), first, last);
    } else {
        push(UsageSource::Rollup(hours), first, first_day);
        push(UsageSource::Rollup(Grain::Days), first_day, last_day);
        push(UsageSource::Rollup(hours), last_day, last);
    }
    push(UsageSource::LogRows, last, to);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(from: &str, to: &str, interval: Option<Interval>) -> Vec<String> {
        let range = TimeRange { from: from.parse().unwrap(), to: to.parse().unwrap() };
        let parts = split_range(range, interval, Grain::Hours);
        assert_eq!(parts.first().map(|(_, part)| part.from), Some(range.from));
        assert_eq!(parts.last().map(|(_, part)| part.to), Some(range.to));
        assert!(parts.windows(2).all(|pair| pair[0].1.to == pair[1].1.from));
        let name = |source: &UsageSource| match source {
            UsageSource::LogRows => "rows",
            UsageSource::Rollup(Grain::Hours | Grain::UserHours) => "hours",
            UsageSource::Rollup(Grain::Days) => "days",
        };
        parts.iter().map(|(source, part)| format!("{} from {}", name(source), part.from)).collect()
    }

    #[test]
    fn a_range_is_split_into_the_largest_parts() {
        assert_eq!(
            split("2026-11-01T10:20:00Z", "2026-11-05T02:30:00Z", None),
            [
                "rows from 2026-11-01T10:20:00.000Z",
                "hours from 2026-11-01T11:00:00.000Z",
                "days from 2026-11-02T00:00:00.000Z",
                "hours from 2026-11-05T00:00:00.000Z",
                "rows from 2026-11-05T02:00:00.000Z",
            ]
        );
        assert_eq!(
            split("2026-11-01T00:00:00Z", "2026-11-05T00:00:00Z", Some(Interval::Week)),
            ["days from 2026-11-01T00:00:00.000Z"]
        );
        assert_eq!(
            split("2026-11-01T00:00:00Z", "2026-11-05T00:00:00Z", Some(Interval::Hour)),
            ["hours from 2026-11-01T00:00:00.000Z"]
        );
        assert_eq!(
            split("2026-11-01T10:10:00Z", "2026-11-01T10:50:00Z", None),
            ["rows from 2026-11-01T10:10:00.000Z"]
        );
    }
}
