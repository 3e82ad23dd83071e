//! Preferences among the providers of a model, as OpenRouter's clients state them.

use rust_decimal::Decimal;
use serde_json::Value;

use super::rules::{Refused, text};
use crate::models::{ModelTarget, Selection};
use crate::pricing::Price;
use crate::route::RouteStrategy;

const MAX_PROVIDERS: usize = 50;

/// Which providers are used, and in which order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preferences {
    /// These come first.
    pub order: Vec<String>,
    /// No others are used; empty: all.
    pub only: Vec<String>,
    pub ignore: Vec<String>,
    pub sort: Option<RouteStrategy>,
    /// Others than the first choice may be used.
    pub allows_fallbacks: bool,
    /// In USD per million tokens of the input and of the output.
    pub max_input_price: Option<Decimal>,
    pub max_output_price: Option<Decimal>,
    /// Only providers that keep nothing of calls.
    pub needs_no_retention: bool,
}

impl Default for Preferences {
    fn default() -> Self {
        Self {
            order: Vec::new(),
            only: Vec::new(),
            ignore: Vec::new(),
            sort: None,
            allows_fallbacks: true,
            max_input_price: None,
            max_output_price: None,
            needs_no_retention: false,
        }
    }
}

/// A field with a preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preference {
    Order,
    Only,
    Ignore,
    Sort,
    AllowsFallbacks,
    MaxInputPrice,
    MaxOutputPrice,
    /// If it has this value.
    NoRetention(&'static str),
}

/// What is known about targets.
pub trait TargetInfo {
    /// The kind of a provider.
    fn kind(&self, provider: &str) -> Option<&str>;
    /// The provider keeps nothing of calls.
    fn keeps_nothing(&self, provider: &str) -> bool;
    /// The known price of a target.
    fn price(&self, target: &ModelTarget) -> Option<&Price>;
}

/// Reads a field. `resolve` finds the gateway's name of a provider.
pub(super) fn read(
    preference: Preference,
    preferences: &mut Preferences,
    (value, field): (&Value, &str),
    resolve: &dyn Fn(&str) -> Option<String>,
) -> Result<(), Refused> {
    let invalid = |why: &'static str| Refused::Invalid { name: field.to_owned(), why: why.into() };
    let providers = || {
        let why = "must be a list of at most 50 providers";
        let list = value.as_array().filter(|list| list.len() <= MAX_PROVIDERS).ok_or_else(|| invalid(why))?;
        let name = |item: &Value| -> Result<String, Refused> {
            let given = item.as_str().ok_or_else(|| invalid(why))?;
            // The part after a slash is a variant of the endpoint.
            let base = given.split('/').next().unwrap_or_default();
            Ok(resolve(given).or_else(|| resolve(base)).unwrap_or_else(|| given.to_ascii_lowercase()))
        };
        list.iter().map(name).collect::<Result<Vec<String>, Refused>>()
    };
    let usd = || {
        let usd = text(value).and_then(|text| text.trim().parse::<Decimal>().ok());
        usd.filter(|usd| !usd.is_sign_negative())
            .ok_or_else(|| invalid("must be a price in USD per million tokens"))
    };
    match preference {
        Preference::Order => preferences.order = providers()?,
        Preference::Only => preferences.only = providers()?,
        Preference::Ignore => preferences.ignore = providers()?,
        Preference::Sort => {
            let by = value.get("by").unwrap_or(value);
            preferences.sort = match by.as_str() {
                Some("price") => Some(RouteStrategy::Cheapest),
                Some("throughput" | "latency") => Some(RouteStrategy::Fastest),
                _ => return Err(invalid("must be price, throughput or latency")),
            };
        }
        Preference::AllowsFallbacks => {
            preferences.allows_fallbacks = value.as_bool().ok_or_else(|| invalid("must be true or false"))?;
        }
        Preference::MaxInputPrice => preferences.max_input_price = Some(usd()?),
        Preference::MaxOutputPrice => preferences.max_output_price = Some(usd()?),
        Preference::NoRetention(value_for_it) => {
            preferences.needs_no_retention |= text(value).is_some_and(|value| value == value_for_it);
        }
    }
    Ok(())
}

impl Preferences {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether providers are candidates that the request does not name.
    pub fn admits_others(&self) -> bool {
        self.only.is_empty()
            && (self.sort.is_some()
                || !self.ignore.is_empty()
                || self.has_max_price()
                || self.needs_no_retention
                || (!self.order.is_empty() && self.allows_fallbacks))
    }

    /// The provider that is named first.
    pub fn first_choice(&self) -> Option<&str> {
        self.order.iter().chain(&self.only).next().map(String::as_str)
    }

    /// Only the first target may be called.
    pub fn is_single(&self) -> bool {
        !self.allows_fallbacks && self.order.is_empty()
    }

    fn has_max_price(&self) -> bool {
        self.max_input_price.is_some() || self.max_output_price.is_some()
    }

    /// The targets of one model that are allowed, in the preferred order. None: no target is.
    pub fn apply(&self, mut selection: Selection, info: &dyn TargetInfo) -> Option<Selection> {
        let is_of = |target: &ModelTarget, names: &[String]| {
            let kind = info.kind(&target.provider);
            names.iter().position(|name| *name == target.provider || kind == Some(name))
        };
        let is_exclusive = !self.allows_fallbacks && !self.order.is_empty();
        selection.retain(|target| {
            (self.only.is_empty() || is_of(target, &self.only).is_some())
                && is_of(target, &self.ignore).is_none()
                && (!is_exclusive || is_of(target, &self.order).is_some())
                && (!self.needs_no_retention || info.keeps_nothing(&target.provider))
                && self.is_affordable(target.price.as_deref().or_else(|| info.price(target)))
        });
        if !selection.has_ordinary_targets() {
            return None;
        }
        if self.sort.is_some() || !self.order.is_empty() {
            selection.rank(|target| is_of(target, &self.order), self.sort.unwrap_or_default());
        }
        Some(selection)
    }

    /// A target without a known price is not affordable, because nobody can tell.
    fn is_affordable(&self, price: Option<&Price>) -> bool {
        let fits = |max: Option<Decimal>, price: Option<Decimal>| {
            max.is_none_or(|max| price.is_some_and(|price| price <= max))
        };
        fits(self.max_input_price, price.and_then(|price| price.input_per_mtok))
            && fits(self.max_output_price, price.and_then(|price| price.output_per_mtok))
    }
}
