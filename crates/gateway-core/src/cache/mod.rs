//! The rules of the cache: which requests may be answered from it (`canonical`), when two of them are the same
//! (`canonical`), and when two that differ in their last user text may still share an answer (`semantic`, `gate`).
//! Where entries are kept and how long is not decided here.

mod canonical;
mod gate;
mod json;
mod normalize;
#[cfg(test)]
mod pairs;
mod semantic;

pub use canonical::{
    CacheKey, CacheTarget, KeyParts, NotCacheable, affects_response, is_cacheable, is_storable, key,
    semantic_key,
};
pub use gate::agrees;
pub use json::{CanonicalError, canonical_json};
pub use semantic::{PromptSplit, split};
