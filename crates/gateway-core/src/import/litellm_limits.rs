//! The limits of LiteLLM's keys and teams: per minute, and per minute and model. Which tokens they count is a setting that
//! all of them share.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::limits::{Amounts, Limits, Owner, Wanted};
use super::report::{Report, join, whole};
use super::{Status, parse};
use crate::limits::Window;

const SETTINGS: &str = "general_settings";
const TOKEN_TYPE: &str = "token_rate_limit_type";

/// The tokens that limits count.
#[derive(Clone, Copy, Default)]
pub enum CountedTokens {
    #[default]
    Total,
    Input,
    Output,
}

impl CountedTokens {
    /// Reads `general_settings`, if the source has them.
    pub fn read(report: &mut Report, settings: &Map<String, Value>) -> Self {
        for name in settings.keys().filter(|name| *name != TOKEN_TYPE) {
            let message = "is read from config.yaml, which is imported by itself";
            report.set(&join(SETTINGS, name), Status::Manual, message);
        }
        let at = join(SETTINGS, TOKEN_TYPE);
        let given = report.text(SETTINGS, settings, TOKEN_TYPE);
        let counted = match given {
            None | Some("total") => Self::Total,
            Some("input") => Self::Input,
            Some("output") => Self::Output,
            Some(_) => {
                report.set(&at, Status::Unsupported, "must be total, input or output; all tokens count");
                return Self::Total;
            }
        };
        if given.is_some() {
            report.set(&at, Status::Exact, "the limits of keys and teams count these tokens");
        }
        counted
    }

    fn set(self, amounts: &mut Amounts, tokens: Option<u64>) {
        let amount = match self {
            Self::Total => &mut amounts.tokens,
            Self::Input => &mut amounts.input_tokens,
            Self::Output => &mut amounts.output_tokens,
        };
        *amount = tokens;
    }
}

/// Adds the limits of a row of keys or teams. `title` names them; `keys` has the places of the keys that share them.
pub fn add(
    report: &mut Report,
    limits: &mut Limits,
    counted: CountedTokens,
    (path, row): (&str, &Map<String, Value>),
    (title, keys): (&str, &[usize]),
) {
    let mut number = |column: &str| report.number(path, row, column).map(whole).filter(|limit| *limit > 0);
    let (requests, concurrent) = (number("rpm_limit"), number("max_parallel_requests"));
    let mut amounts = Amounts { requests, concurrent, ..Amounts::default() };
    counted.set(&mut amounts, number("tpm_limit"));
    let by_model = by_model(row, counted);
    if amounts.is_nothing() && by_model.is_empty() {
        return;
    }
    if keys.is_empty() {
        report.set(path, Status::Manual, "its limits are left out, because no key of the file belongs to it");
        return;
    }
    let mut wanted = |title: &str, models: Option<Vec<String>>, amounts: Amounts| {
        let at = if models.is_some() { join(path, "metadata") } else { path.to_owned() };
        let owner = Owner::Keys(keys.to_vec());
        limits.add(report, &at, Wanted { title, owner, models, amounts, window: Window::Minute });
    };
    wanted(title, None, amounts);
    for (model, amounts) in by_model {
        wanted(&format!("{title} {model}"), Some(vec![model]), amounts);
    }
}

/// `model_rpm_limit` and `model_tpm_limit`: `{model: limit}`, as columns or in `metadata`.
fn by_model(row: &Map<String, Value>, counted: CountedTokens) -> BTreeMap<String, Amounts> {
    let metadata = object(row.get("metadata"));
    let mut found: BTreeMap<String, Amounts> = BTreeMap::new();
    for column in ["model_rpm_limit", "model_tpm_limit"] {
        let own = object(row.get(column));
        let limits = if own.is_empty() { object(metadata.get(column)) } else { own };
        for (model, limit) in limits {
            let limit = limit.as_f64().filter(|limit| *limit > 0.0).map(whole);
            let amounts = found.entry(model).or_default();
            match column {
                "model_rpm_limit" => amounts.requests = limit,
                _ => counted.set(amounts, limit),
            }
        }
    }
    found.retain(|_, amounts| !amounts.is_nothing());
    found
}

/// An object, which exports of databases have as a text.
fn object(value: Option<&Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(fields)) => fields.clone(),
        Some(Value::String(text)) => match parse::json(text) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        },
        _ => Map::new(),
    }
}
