//! The rules of the response cache: which requests are cacheable and which are equal (`canonical`), and when requests
//! that differ in the last user text may share a response (`semantic`, `gate`). Storage and expiry are decided
//! elsewhere.

mod canonical;
mod gate;
mod json;
mod normalize;
#[cfg(test)]
mod pairs;
mod semantic;

pub use canonical::{
    CacheKey, CacheTarget, CanonicalBody, KeyParts, NotCacheable, affects_response, is_cacheable,
    is_storable, key, semantic_key,
};
pub use gate::{Gate, agrees};
pub use json::{CanonicalError, canonical_json};
pub use semantic::{PromptSplit, split};
