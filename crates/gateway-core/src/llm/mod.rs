//! Language-model APIs: the providers, the requests and responses of each wire format, and the classification of
//! failures. Code is selected by wire format; a provider is a row of data in `providers`.

pub mod affinity;
pub mod aggregate;
pub mod chat;
pub mod credentials;
pub mod errors;
pub mod estimate;
pub mod eventstream;
pub mod failure;
mod format;
pub mod multipart;
pub mod objects;
pub mod paths;
pub mod peek;
pub mod preview;
pub mod prompt_cache;
pub mod providers;
pub mod sandbox;
pub mod sdk;
pub mod sigv4;
pub mod sse;
pub mod system_prompt;
pub mod translate;
pub mod usage;

pub use format::{BodyFraming, ClientFormat, ProviderFormat, WireFormat};
