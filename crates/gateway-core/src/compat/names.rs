//! Names of models and providers as the dialects write them.

use super::Dialect;

/// What the organization of the caller has.
pub trait Known {
    /// A named model that a requested name means.
    fn has_model(&self, name: &str) -> bool;
    /// A provider of exactly this name.
    fn has_provider(&self, name: &str) -> bool;
    /// The provider whose base URL the address is, or is below.
    fn provider_at(&self, url: &str) -> Option<String>;
}

/// How a dialect writes a model with its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelStyle {
    /// `provider/model`, or `@provider/model`.
    ProviderFirst,
    /// `model/provider`, or a list of them with commas.
    ProviderLast,
}

/// What the name of a model means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// A named model.
    Model(String),
    Target {
        provider: String,
        model: String,
    },
    /// A model without a provider.
    Bare(String),
}

impl Name {
    /// As a request writes it that asks for the model.
    pub fn text(&self) -> String {
        match self {
            Self::Model(name) | Self::Bare(name) => name.clone(),
            Self::Target { provider, model } => format!("{provider}/{model}"),
        }
    }
}

impl Dialect {
    /// The gateway's name of a provider. The organization's own names come first.
    pub fn provider(&self, name: &str, known: &dyn Known) -> Option<String> {
        let name = name.trim().trim_start_matches('@');
        if known.has_provider(name) {
            return Some(name.to_owned());
        }
        let name = name.to_ascii_lowercase();
        let mapped = self.providers.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| *ours);
        let mapped = mapped.unwrap_or(&name);
        known.has_provider(mapped).then(|| mapped.to_owned())
    }

    /// What the name of a model means.
    pub fn name(&self, name: &str, known: &dyn Known) -> Name {
        let name = name.trim();
        if known.has_model(name) {
            return Name::Model(name.to_owned());
        }
        let parts = match self.models {
            ModelStyle::ProviderFirst => name.split_once('/'),
            ModelStyle::ProviderLast => name.rsplit_once('/').map(|(model, provider)| (provider, model)),
        };
        let target = parts.filter(|(_, model)| !model.is_empty()).and_then(|(provider, model)| {
            Some(Name::Target { provider: self.provider(provider, known)?, model: model.to_owned() })
        });
        target.unwrap_or_else(|| Name::Bare(name.to_owned()))
    }

    /// The names in the text of a model. Only some dialects have lists.
    pub fn split_models<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let separator = match self.models {
            ModelStyle::ProviderFirst => '\0',
            ModelStyle::ProviderLast => ',',
        };
        text.split(separator).map(str::trim).filter(|name| !name.is_empty())
    }
}
