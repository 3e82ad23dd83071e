//! The field terms of a query as SQL conditions, on log rows or on the dimensions of roll-ups.

use gateway_core::logs::{LogSource, first_log_id};
use gateway_core::query::{Comparison, Field, FieldCondition, Kind, Pattern, Query, Test};
use gateway_core::time::Timestamp;

use crate::db::Dialect;
use crate::logs::fold::OTHER;
use crate::row::Arg;

/// Which table the conditions are about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// `log_rows r`
    Rows,
    /// `usage_dims d`: only the terms on columns of roll-ups.
    Dims,
    /// The same, and lines in which values were folded match too: they may contain any value.
    DimsOrFolded,
}

/// Writes conditions and collects their parameters.
pub(super) struct Conditions<'a> {
    pub dialect: Dialect,
    pub subject: Subject,
    pub values: &'a mut Vec<Arg>,
}

impl Conditions<'_> {
    /// All field terms, each with ` AND ` before it.
    pub fn all(&mut self, query: &Query) -> String {
        let mut sql = String::new();
        for (is_negated, condition) in query.fields() {
            let is_own = self.subject == Subject::Dims && excludes_own_calls(is_negated, condition);
            if self.subject != Subject::Rows && dim_column(condition.field).is_none() && !is_own {
                continue;
            }
            let mut term = self.condition(condition);
            if is_negated {
                term = format!("NOT COALESCE({term}, FALSE)");
            }
            if self.subject == Subject::DimsOrFolded
                && matches!(condition.field, Field::Provider | Field::Model)
            {
                let column = self.expression(condition.field, None);
                term = format!("({term} OR {column} = '{OTHER}')");
            }
            sql.push_str(" AND ");
            sql.push_str(&term);
        }
        sql
    }

    fn condition(&mut self, condition: &FieldCondition) -> String {
        let FieldCondition { field, key, tests } = condition;
        let expression = self.expression(*field, key.as_deref());
        let mut any = Vec::new();
        let literals: Vec<&str> = tests
            .iter()
            .filter_map(|test| match test {
                Test::Text(pattern) => pattern.as_literal(),
                _ => None,
            })
            .collect();
        match literals.as_slice() {
            [] => {}
            [literal] => any.push(format!("{expression} = {}", self.bind(*literal))),
            literals => {
                self.values.push(serde_json::to_string(literals).unwrap_or_default().into());
                any.push(self.dialect.in_texts(&expression, self.values.len()));
            }
        }
        for test in tests {
            match test {
                Test::Text(pattern) if pattern.as_literal().is_some() => {}
                Test::Text(pattern) => any.push(self.pattern(&expression, pattern)),
                Test::Failed(true) => any.push("(r.status >= 400 OR r.error_code IS NOT NULL)".into()),
                Test::Failed(false) => any.push("(r.status < 400 AND r.error_code IS NULL)".into()),
                Test::Number(comparison, value) if field.kind() == Kind::Time => {
                    any.push(self.time(*comparison, *value));
                }
                Test::Between(from, to) if field.kind() == Kind::Time => {
                    let from = self.time(Comparison::GreaterOrEqual, *from);
                    let to = self.time(Comparison::LessOrEqual, *to);
                    any.push(format!("({from} AND {to})"));
                }
                Test::Number(comparison, value) => {
                    any.push(format!("{expression} {} {}", comparison.symbol(), self.bind(*value)));
                }
                Test::Between(from, to) => {
                    let (from, to) = (self.bind(*from), self.bind(*to));
                    any.push(format!("({expression} >= {from} AND {expression} <= {to})"));
                }
            }
        }
        if any.len() == 1 { any.remove(0) } else { format!("({})", any.join(" OR ")) }
    }

    /// The time of a row is its id.
    fn time(&mut self, comparison: Comparison, value: i64) -> String {
        let first = |time: i64| first_log_id(Timestamp(time));
        let (symbol, id) = match comparison {
            Comparison::Greater => (">=", first(value + 1)),
            Comparison::GreaterOrEqual => (">=", first(value)),
            Comparison::Less => ("<", first(value)),
            Comparison::LessOrEqual => ("<", first(value + 1)),
            Comparison::Equal => {
                let (from, to) = (self.bind(first(value)), self.bind(first(value + 1)));
                return format!("(r.id >= {from} AND r.id < {to})");
            }
        };
        format!("r.id {symbol} {}", self.bind(id))
    }

    fn pattern(&mut self, expression: &str, pattern: &Pattern) -> String {
        if pattern.is_any() {
            return format!("{expression} IS NOT NULL");
        }
        match self.dialect {
            Dialect::Sqlite => {
                let escaped = |part: &String| part.replace('[', "[[]").replace('?', "[?]");
                let glob = pattern.parts().iter().map(escaped).collect::<Vec<_>>().join("*");
                format!("{expression} GLOB {}", self.bind(glob.as_str()))
            }
            Dialect::Postgres => {
                let escaped = |part: &String| part.replace('!', "!!").replace('%', "!%").replace('_', "!_");
                let like = pattern.parts().iter().map(escaped).collect::<Vec<_>>().join("%");
                format!("{expression} LIKE {} ESCAPE '!'", self.bind(like.as_str()))
            }
        }
    }

    /// The value of a field.
    pub fn expression(&mut self, field: Field, key: Option<&str>) -> String {
        if self.subject != Subject::Rows {
            return format!("d.{}", dim_column(field).unwrap_or("source"));
        }
        let column = match field {
            Field::Metadata => return self.metadata(key.unwrap_or_default()),
            Field::Cache => return "lower(r.cache)".into(),
            Field::Tokens => return "(r.prompt_tokens + r.completion_tokens)".into(),
            Field::Attempts => {
                return match self.dialect {
                    Dialect::Sqlite => "json_array_length(r.attempts)".into(),
                    Dialect::Postgres => "json_array_length(CAST(r.attempts AS JSON))".into(),
                };
            }
            Field::Status => "status",
            Field::Error => "error_code",
            Field::Level => "level",
            Field::Source => "source",
            Field::Provider => "provider",
            Field::Model => "model",
            Field::Key => "key_id",
            Field::App => "app_id",
            Field::Team => "team_id",
            Field::User => "user_id",
            Field::Session => "session_id",
            Field::Prompt => "prompt",
            Field::PromptVersion => "prompt_version",
            Field::Latency => "latency_ms",
            Field::Ttft => "ttft_ms",
            Field::Cost => "cost",
            Field::InputTokens => "prompt_tokens",
            Field::OutputTokens => "completion_tokens",
            Field::CachedTokens => "cached_tokens",
            Field::ReasoningTokens => "reasoning_tokens",
            Field::Stream => "stream",
            Field::Method => "method",
            Field::Path => "path",
            Field::Compat => "compat",
            Field::Tool => "tool",
            Field::Request => "request_id",
            Field::Id | Field::Time => "id",
        };
        format!("r.{column}")
    }

    /// Strings as they are, other values as JSON, null as nothing. PostgreSQL cannot read JSON with a NUL character.
    fn metadata(&mut self, key: &str) -> String {
        match self.dialect {
            Dialect::Sqlite => {
                let path = self.bind(format!("$.\"{key}\"").as_str());
                format!(
                    "CASE WHEN instr(r.metadata, '\\u0000') > 0 THEN NULL \
                     WHEN json_type(r.metadata, {path}) = 'null' THEN NULL \
                     WHEN json_type(r.metadata, {path}) = 'text' THEN r.metadata ->> {path} \
                     ELSE r.metadata -> {path} END"
                )
            }
            Dialect::Postgres => {
                let key = self.bind(key);
                format!(
                    "CASE WHEN strpos(r.metadata, '\\u0000') > 0 THEN NULL \
                     ELSE CAST(r.metadata AS JSON) ->> {key} END"
                )
            }
        }
    }

    /// Adds a parameter; returns its placeholder.
    fn bind(&mut self, value: impl Into<Arg>) -> String {
        self.values.push(value.into());
        format!("${}", self.values.len())
    }
}

/// The column of a field in the roll-ups.
pub(super) fn dim_column(field: Field) -> Option<&'static str> {
    Some(match field {
        Field::Provider => "provider",
        Field::Model => "model",
        Field::Key => "key_id",
        Field::App => "app_id",
        Field::Team => "team_id",
        Field::User => "user_id",
        Field::Prompt => "prompt",
        Field::Status => "status",
        _ => return None,
    })
}

/// Whether a term leaves out calls of the gateway itself, such as `-source:api,replay`. Roll-ups tell these apart from
/// all others, but not the other sources.
pub(super) fn excludes_own_calls(is_negated: bool, condition: &FieldCondition) -> bool {
    let is_own = |test: &Test| {
        let Test::Text(pattern) = test else { return false };
        pattern.as_literal().and_then(LogSource::parse).is_some_and(LogSource::is_internal)
    };
    is_negated && condition.field == Field::Source && condition.tests.iter().all(is_own)
}

/// Whether the roll-ups can tell if a term holds.
pub(super) fn is_in_dims(condition: &FieldCondition) -> bool {
    dim_column(condition.field).is_some()
        && !condition.tests.iter().any(|test| matches!(test, Test::Failed(_)))
}
