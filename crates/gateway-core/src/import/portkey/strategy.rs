//! Strategies of Portkey: the order of targets, the statuses that lead to the next one, and conditions.

use serde_json::{Map, Value};

use super::super::Status;
use super::super::assemble::strategy;
use super::super::report::{item, join};
use super::Importer;
use super::fields::{CONDITION, STRATEGY};
use super::target::id_of;
use crate::llm::failure::{AttemptOutcome, classify};
use crate::models::{Condition, FallbackCause, Mode, Strategy};

impl Importer {
    pub(super) fn strategy(&mut self, path: &str, config: &Map<String, Value>, count: usize) -> Strategy {
        let at = join(path, "strategy");
        let Some(given) = config.get("strategy").and_then(|given| self.report.object(&at, given)) else {
            return strategy(if count == 1 { Mode::Single } else { Mode::Order });
        };
        self.report.fields(&at, given, STRATEGY);
        let mode = match self.report.text(&at, given, "mode") {
            Some("loadbalance") => Mode::Weighted,
            Some("conditional") => Mode::Conditional,
            Some("single") | None if count == 1 => Mode::Single,
            Some("fallback" | "single") | None => Mode::Order,
            Some(_) => {
                let message = "the mode is not known; targets are tried in order";
                self.report.set(&join(&at, "mode"), Status::Approximate, message);
                Mode::Order
            }
        };
        let mut strategy = strategy(mode);
        strategy.on = self.causes(&join(&at, "on_status_codes"), given.get("on_status_codes"));
        if mode == Mode::Order && strategy.on.is_none() {
            let message = "no other target is tried after 400 and 422, unlike in Portkey";
            self.report.set(&join(&at, "mode"), Status::Approximate, message);
        }
        let conditions = self.conditions(&join(&at, "conditions"), given.get("conditions"));
        let default = self.report.text(&at, given, "default").map(id_of);
        if mode == Mode::Conditional {
            (strategy.conditions, strategy.default) = (Some(conditions), default);
        } else if !conditions.is_empty() || default.is_some() {
            self.report.set(
                &join(&at, "mode"),
                Status::Approximate,
                "its conditions are not used in this mode",
            );
        }
        strategy
    }

    /// Statuses after which the next target is tried.
    fn causes(&mut self, path: &str, codes: Option<&Value>) -> Option<Vec<FallbackCause>> {
        let mut causes = Vec::new();
        for (index, code) in self.report.list(path, codes).iter().enumerate() {
            let code = code.as_u64().and_then(|code| u16::try_from(code).ok());
            let next = |code: &u16| {
                (400..=599).contains(code)
                    && classify(AttemptOutcome::Status { code: *code }).is_some_and(|failure| failure.next)
            };
            if let Some(code) = code.filter(next) {
                causes.push(FallbackCause::Status(code));
            } else {
                let message = "no other target is tried after this status";
                self.report.set(&item(path, index), Status::Unsupported, message);
            }
        }
        (!causes.is_empty()).then_some(causes)
    }

    fn conditions(&mut self, path: &str, list: Option<&Value>) -> Vec<Condition> {
        let mut conditions = Vec::new();
        for (index, condition) in self.report.list(path, list).iter().enumerate() {
            let at = item(path, index);
            let Some(condition) = self.report.object(&at, condition) else { continue };
            self.report.fields(&at, condition, CONDITION);
            let then = self.report.text(&at, condition, "then").map(id_of);
            match (condition.get("query"), then) {
                (Some(Value::Object(query)), Some(then)) => {
                    conditions.push(Condition { query: renamed(query), then });
                }
                _ => self.report.set(&at, Status::Unsupported, "a condition needs a query and a target"),
            }
        }
        conditions
    }
}

/// A query with the gateway's names of fields.
fn renamed(query: &Map<String, Value>) -> Map<String, Value> {
    let rename = |(name, value): (&String, &Value)| {
        let name = if name == "url.pathname" { "path" } else { name };
        let value = match value {
            Value::Array(queries) if name.starts_with('$') => {
                let inner = queries
                    .iter()
                    .map(|query| query.as_object().map_or(query.clone(), |query| renamed(query).into()));
                Value::Array(inner.collect())
            }
            value => value.clone(),
        };
        (name.to_owned(), value)
    };
    query.iter().map(rename).collect()
}
