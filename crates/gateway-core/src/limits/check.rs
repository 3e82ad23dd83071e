//! Checks of a definition when it is saved.

use super::definition::{Definition, Scope};
use super::{MAX_AMOUNT, Unit};

const MAX_NAME: usize = 40;
const MAX_PATTERNS: usize = 50;
const MAX_PATTERN: usize = 256;
const MAX_CLASS: usize = 40;
const MAX_CLASSES: usize = 10;
const MAX_CONCURRENT: u64 = 1_000_000;

type Checked = Result<(), (&'static str, String)>;

fn refuse(field: &'static str, why: impl Into<String>) -> Checked {
    Err((field, why.into()))
}

/// `^[a-z0-9-]{1,40}$`
fn is_name(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Whether keys may have this class.
pub fn is_valid_class(class: &str) -> bool {
    is_name(class, MAX_CLASS)
}

impl Definition {
    /// The field that is wrong, and why. Whether the scope exists is not checked here.
    pub fn check(&self) -> Checked {
        if !is_name(&self.name, MAX_NAME) {
            return refuse("name", "must be 1 to 40 lower-case letters, digits or '-'");
        }
        self.check_scope()?;
        self.check_amounts()?;
        for pattern in self.models.iter().flatten() {
            if !(1..=MAX_PATTERN).contains(&pattern.len()) {
                return refuse("models", "each must be 1 to 256 characters long");
            }
        }
        match &self.models {
            Some(models) if models.is_empty() => {
                return refuse("models", "must not be empty; omit it for every model");
            }
            Some(models) if models.len() > MAX_PATTERNS => return refuse("models", "at most 50 names"),
            _ => {}
        }
        self.check_reserve()
    }

    fn check_scope(&self) -> Checked {
        match (self.scope, self.scope_id.as_deref()) {
            (Scope::Org, None) => Ok(()),
            (Scope::Org, Some(_)) => refuse("scope_id", "must be absent with scope org"),
            (scope, None | Some("")) => {
                refuse("scope_id", format!("is required with scope {}", scope.as_str()))
            }
            (_, Some(id)) if id.len() > MAX_PATTERN => refuse("scope_id", "at most 256 characters"),
            _ => Ok(()),
        }
    }

    fn check_amounts(&self) -> Checked {
        let units = Unit::REFILLING.into_iter().chain([Unit::Concurrent]);
        let mut is_any_set = false;
        for unit in units {
            let Some(amount) = self.amount(unit) else { continue };
            is_any_set = true;
            let max = if unit == Unit::Concurrent { MAX_CONCURRENT } else { MAX_AMOUNT };
            if !(1..=max).contains(&amount) {
                return refuse(unit.as_str(), format!("must be from 1 to {max}"));
            }
        }
        if is_any_set {
            return Ok(());
        }
        refuse("requests", "one of requests, tokens, input_tokens, output_tokens and concurrent is required")
    }

    fn check_reserve(&self) -> Checked {
        if self.reserve.len() > MAX_CLASSES {
            return refuse("reserve", "at most 10 classes");
        }
        for (class, share) in &self.reserve {
            if !is_valid_class(class) {
                return refuse("reserve", "classes are 1 to 40 lower-case letters, digits or '-'");
            }
            if !(*share > 0.0 && *share < 1.0) {
                return refuse("reserve", format!("the share of '{class}' must be above 0 and below 1"));
            }
        }
        if self.reserve.values().sum::<f64>() > 1.0 {
            return refuse("reserve", "the shares together must not exceed 1");
        }
        Ok(())
    }
}
