//! `deserialize_with` functions for fields of request bodies.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::body::without_value;

/// For a field that may be absent (unchanged), null (cleared) or a value.
pub fn double_option<'de, T, D>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::<T>::deserialize(deserializer).map(Some)
}

/// For a struct that may be absent or null. Derived implementations would also accept an array of its values.
pub fn optional_object<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct ObjectVisitor<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }
    }

    deserializer.deserialize_any(ObjectVisitor(PhantomData))
}

/// For a definition that may be sent back as a response had it: with fields that only responses have, which are ignored.
pub fn without_fields<'de, T, D>(deserializer: D, read_only: &[&str]) -> Result<T, D::Error>
where
    T: DeserializeOwned,
    D: Deserializer<'de>,
{
    let mut fields = Map::deserialize(deserializer)?;
    for field in read_only {
        fields.remove(*field);
    }
    serde_path_to_error::deserialize(Value::Object(fields)).map_err(|error| {
        let (path, inner) = (error.path().to_string(), without_value(&error.inner().to_string()));
        D::Error::custom(if path == "." { inner } else { format!("{path}: {inner}") })
    })
}
