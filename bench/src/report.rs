//! The results: rows with their targets, as a table, as JSON, and as a short section of the history.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::error::{BenchResult, Context};
use crate::machine::Machine;
use crate::stats::Spread;

/// The results of one scenario.
pub(crate) struct Section {
    pub(crate) id: &'static str,
    pub(crate) title: String,
    pub(crate) rows: Vec<Row>,
    pub(crate) notes: Vec<String>,
}

#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) gateway: Option<Spread>,
    pub(crate) nginx: Option<Spread>,
    pub(crate) direct: Option<Spread>,
    /// The gateway compared with nginx, by round.
    pub(crate) against: Option<Comparison>,
    pub(crate) goal: Option<Goal>,
}

#[derive(Clone, Copy)]
pub(crate) enum Comparison {
    Ratio(Spread),
    Difference(Spread),
}

/// The target of the gateway, checked at the median.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// Maximum ratio to nginx.
    Ratio(f64),
    /// Maximum difference to nginx.
    Above(f64),
    /// Exclusive upper bound.
    Below(f64),
    /// Inclusive lower bound.
    AtLeast(f64),
}

impl Row {
    pub(crate) fn of_gateway(name: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Self {
            name: name.into(),
            unit,
            gateway: Some(Spread::one(value)),
            nginx: None,
            direct: None,
            against: None,
            goal: None,
        }
    }

    pub(crate) fn goal(mut self, goal: Goal) -> Self {
        self.goal = Some(goal);
        self
    }

    /// Returns whether the goal is met; `None` without a goal or without a baseline.
    pub(crate) fn met(&self) -> Option<bool> {
        match (self.goal?, self.against) {
            (Goal::Ratio(most), Some(Comparison::Ratio(ratio))) => Some(ratio.median <= most),
            (Goal::Above(most), Some(Comparison::Difference(difference))) => Some(difference.median <= most),
            (Goal::Below(limit), _) => Some(self.gateway?.median < limit),
            (Goal::AtLeast(limit), _) => Some(self.gateway?.median >= limit),
            _ => None,
        }
    }
}

pub(crate) fn print(machine: &Machine, setup: &str, sections: &[Section]) {
    println!("\ngateway-bench, {}, commit {}", machine.at, machine.commit);
    println!(
        "{} cores, {}, Linux {}, load {} at the start",
        machine.cores, machine.cpu, machine.kernel, machine.load
    );
    println!("{setup}");
    println!(
        "Median of the rounds, with the least and the greatest; CPU is that of the target's serving threads unless named otherwise."
    );
    for section in sections {
        println!("\n({}) {}", section.id, section.title);
        print!("{}", table(&section.rows));
        for note in &section.notes {
            println!("    {note}");
        }
    }
    println!("\n{}", summary(sections));
}

pub(crate) fn summary(sections: &[Section]) -> String {
    let rows = || sections.iter().flat_map(|section| &section.rows).filter(|row| row.goal.is_some());
    let count = |verdict| rows().filter(|row| row.met() == verdict).count();
    let (met, missed, open) = (count(Some(true)), count(Some(false)), count(None));
    let open = if open == 0 { String::new() } else { format!(", {open} open") };
    format!("{met} of {} targets met{open}", met + missed)
}

pub(crate) fn all_met(sections: &[Section]) -> bool {
    sections.iter().flat_map(|section| &section.rows).filter_map(Row::met).all(|met| met)
}

pub(crate) fn to_json(machine: &Machine, setup: &str, sections: &[Section]) -> Value {
    let spread = |spread: Option<Spread>| {
        spread.map(|spread| json!({ "median": spread.median, "min": spread.min, "max": spread.max }))
    };
    let row = |row: &Row| {
        let (ratio, difference) = match row.against {
            Some(Comparison::Ratio(ratio)) => (Some(ratio), None),
            Some(Comparison::Difference(difference)) => (None, Some(difference)),
            None => (None, None),
        };
        json!({
            "name": row.name,
            "unit": row.unit,
            "gateway": spread(row.gateway),
            "nginx": spread(row.nginx),
            "direct": spread(row.direct),
            "ratio_to_nginx": spread(ratio),
            "difference_to_nginx": spread(difference),
            "target": row.goal.map(|goal| goal_text(goal, row.unit)),
            "met": row.met(),
        })
    };
    let section = |section: &Section| {
        json!({
            "id": section.id,
            "title": section.title,
            "rows": section.rows.iter().map(row).collect::<Vec<_>>(),
            "notes": section.notes,
        })
    };
    json!({
        "at": machine.at,
        "machine": machine.to_json(),
        "setup": setup,
        "sections": sections.iter().map(section).collect::<Vec<_>>(),
        "targets_met": all_met(sections),
    })
}

/// Writes only the rows that have a target.
pub(crate) fn append_history(
    file: &Path,
    machine: &Machine,
    setup: &str,
    sections: &[Section],
) -> BenchResult<()> {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\n## {}, commit {}\n", machine.at, machine.commit);
    let _ = writeln!(
        text,
        "{} cores, {}, Linux {}. {setup} {}.\n",
        machine.cores,
        machine.cpu,
        machine.kernel,
        summary(sections)
    );
    text.push_str("| | gateway | nginx | against nginx | target | |\n|---|---|---|---|---|---|\n");
    for section in sections {
        for row in section.rows.iter().filter(|row| row.goal.is_some()) {
            let cells = cells(row);
            let _ = writeln!(
                text,
                "| ({}) {} | {} | {} | {} | {} | {} |",
                section.id, cells[0], cells[1], cells[2], cells[4], cells[5], cells[6]
            );
        }
    }
    for section in sections {
        for note in &section.notes {
            let _ = writeln!(text, "\n({}) {note}.", section.id);
        }
    }
    let mut out = std::fs::OpenOptions::new().create(true).append(true).open(file);
    let out =
        out.as_mut().map_err(|error| error.to_string()).context(format!("opening {}", file.display()))?;
    if out.metadata()?.len() == 0 {
        out.write_all(
            b"# What was measured, and when\n\nWritten by `gateway-bench --history`; newest last.\n",
        )?;
    }
    Ok(out.write_all(text.as_bytes())?)
}

const HEADINGS: [&str; 7] = ["", "gateway", "nginx", "direct", "against nginx", "target", ""];

fn table(rows: &[Row]) -> String {
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    lines.extend(rows.iter().map(cells));
    let length = |line: &[String; 7], column: usize| line.get(column).map_or(0, |cell| cell.chars().count());
    let width = |column: usize| {
        let needed = lines.iter().skip(1).map(|line| length(line, column)).max().unwrap_or(0);
        // Empty columns are omitted.
        if needed == 0 { 0 } else { lines.iter().map(|line| length(line, column)).max().unwrap_or(0) }
    };
    let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let mut out = String::from("    ");
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            if *width == 0 {
                continue;
            }
            let pad = " ".repeat(width - cell.chars().count());
            // Names are left-aligned, figures right-aligned.
            let _ = if column == 0 { write!(out, "{cell}{pad}") } else { write!(out, "  {pad}{cell}") };
        }
        text.push_str(out.trim_end());
        text.push('\n');
    }
    text
}

fn cells(row: &Row) -> [String; 7] {
    let show = |spread: Option<Spread>| spread.map_or_else(String::new, spread_text);
    let against = match row.against {
        Some(Comparison::Ratio(ratio)) => format!("{:.2}x ({:.2}-{:.2})", ratio.median, ratio.min, ratio.max),
        Some(Comparison::Difference(difference)) => {
            format!("{:+.1} ({:+.1} to {:+.1})", difference.median, difference.min, difference.max)
        }
        None => String::new(),
    };
    let verdict = match row.met() {
        Some(true) => "✓",
        Some(false) => "✗",
        None if row.goal.is_some() => "?",
        None => "",
    };
    [
        format!("{}, {}", row.name, row.unit),
        show(row.gateway),
        show(row.nginx),
        show(row.direct),
        against,
        row.goal.map_or_else(String::new, |goal| goal_text(goal, row.unit)),
        verdict.to_owned(),
    ]
}

fn goal_text(goal: Goal, unit: &str) -> String {
    match goal {
        Goal::Ratio(most) => format!("<= {most}x nginx"),
        Goal::Above(most) => format!("<= nginx + {most} {unit}"),
        Goal::Below(limit) => format!("< {limit} {unit}"),
        Goal::AtLeast(limit) => format!(">= {limit} {unit}"),
    }
}

fn spread_text(spread: Spread) -> String {
    let digits = |value: f64| match value.abs() {
        value if value >= 1000.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    let places = digits(spread.median);
    if (spread.max - spread.min).abs() < f64::EPSILON {
        return format!("{:.places$}", spread.median);
    }
    format!("{:.places$} ({:.places$}-{:.places$})", spread.median, spread.min, spread.max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(against: Option<Comparison>, goal: Goal) -> Row {
        Row { against, ..Row::of_gateway("CPU", "us", 20.0).goal(goal) }
    }

    #[test]
    fn a_goal_is_judged_at_the_median() {
        let ratio = Some(Comparison::Ratio(Spread { median: 1.4, min: 1.0, max: 2.0 }));
        assert_eq!(row(ratio, Goal::Ratio(1.4)).met(), Some(true));
        assert_eq!(row(ratio, Goal::Ratio(1.39)).met(), Some(false));
        let difference = Some(Comparison::Difference(Spread::one(51.0)));
        assert_eq!(row(difference, Goal::Above(50.0)).met(), Some(false));
        assert_eq!(row(None, Goal::Below(20.0)).met(), Some(false));
        assert_eq!(row(None, Goal::Below(20.1)).met(), Some(true));
        assert_eq!(row(None, Goal::AtLeast(20.0)).met(), Some(true));
        assert_eq!(row(None, Goal::AtLeast(20.1)).met(), Some(false));
    }

    #[test]
    fn without_nginx_a_ratio_is_open_and_counts_neither_way() {
        let open = row(None, Goal::Ratio(1.4));
        assert_eq!(open.met(), None);
        assert_eq!(cells(&open)[6], "?");
        let sections = [Section { id: "a", title: String::new(), rows: vec![open], notes: Vec::new() }];
        assert_eq!(summary(&sections), "0 of 0 targets met, 1 open");
        assert!(all_met(&sections));
    }

    #[test]
    fn columns_line_up_and_empty_ones_are_left_out() {
        let rows = [row(None, Goal::Below(5.0)), Row::of_gateway("a longer name", "ms", 1.0)];
        let text = table(&rows);
        assert!(!text.contains("nginx"), "{text}");
        let starts: Vec<_> =
            text.lines().skip(1).map(|line| line.rfind("20.0").or(line.rfind("1.00"))).collect();
        assert_eq!(starts[0], starts[1], "{text}");
    }
}
