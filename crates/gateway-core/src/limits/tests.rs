//! Tests of the rules of limits.

mod buckets;
mod matching;
mod waiting;

use uuid::Uuid;

use super::{Definition, Limit, LimitSet};
use crate::ids::LimitId;

/// A limit of this definition, without the fields that have defaults.
fn limit(definition: &str) -> Limit {
    let definition: Definition = serde_json::from_str(definition).unwrap();
    assert_eq!(definition.check(), Ok(()));
    LimitSet::new([(LimitId(Uuid::nil()), definition, Vec::new())]).limits.remove(0)
}
