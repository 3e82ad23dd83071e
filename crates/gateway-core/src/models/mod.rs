//! Named models: what a model name means for an organization. A definition has targets and a strategy that orders them;
//! it is checked when it is saved and compiled once, and each request selects targets from the compiled form. The
//! targets are then ordered and tried by the same rules as those of `X-Gateway-Fallback` (`route`, `failover`).

mod check;
mod compile;
mod condition;
mod definition;
mod edits;
mod fields;
mod names;
mod selection;

pub use check::{InvalidModel, Severity};
pub use compile::{Model, ModelTarget};
pub use condition::{QueryFacts, Scalar};
pub use definition::{
    CacheDefault, CacheDefaultMode, Condition, Definition, FallbackCause, Mode, ModelPrice, NamedCause,
    Strategy, Target,
};
pub use edits::BodyEdits;
pub(crate) use edits::push_name;
pub use fields::BodyFields;
pub(crate) use fields::{TakeMembers, is_object, visit_members};
pub use names::{NamedModels, check_model_name};
pub use selection::Selection;

pub const MAX_TARGETS: usize = 10;
/// Lists of targets within each other: those of the model, and those of its groups.
pub const MAX_DEPTH: usize = 2;
/// The longest definition as JSON, in bytes.
pub const MAX_BYTES: usize = 32 << 10;
/// The length of all definitions of an organization together, in bytes, because they are held in memory.
pub const MAX_TOTAL_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests;
